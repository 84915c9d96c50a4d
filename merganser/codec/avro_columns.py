"""Avro container files -> columns of Python values, many files at once.

The reader joins the blocks of all files of one schema and codec under one header. So it parses the schema once, not
once per file, and calls the library once. If polars-avro is installed, it decodes several times as fast as fastavro,
which is always there. polars-avro gets only files that are known to be whole, since some damaged files put it into an
endless loop.

Both libraries refuse some files, and neither names the damaged file among many. So the answer omits every file that
cannot be read together with others. The caller reads such a file alone, and the error then names the damage.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final, TypeAlias

import pyarrow as pa

from merganser.codec import avro_accelerator
from merganser.codec.avro import read_records
from merganser.codec.avro_container import MAGIC, SYNC_BYTES, Block, block_places, encoded_map, header_map
from merganser.codec.avro_schema import without_logical_types
from merganser.errors import FormatError
from merganser.values import dataclass

Columns: TypeAlias = dict[str, list[Any]]
"""Values by the dotted names of fields (`_FILE._FILE_NAME`), as many of each as there are records; timestamps as
epoch milliseconds, arrays as lists or tuples."""

AsFile: TypeAlias = Callable[[bytes], AbstractContextManager[str]]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH_ROWS: Final = 1024


@dataclass(frozen=True, slots=True)
class Together:
    """Files that were read as one.

    Attributes:
        members: their positions among the files given.
        counts: how many records each has.
        columns: of all of them, one after the other.
    """

    members: tuple[int, ...]
    counts: tuple[int, ...]
    columns: Columns


@dataclass(frozen=True, slots=True)
class _Container:
    data: bytes
    sync: bytes
    blocks: tuple[Block, ...]


def read_together(files: Sequence[bytes], whole: Sequence[bool], as_file: AsFile) -> Iterator[Together]:
    """Yield the columns of container files, those of one schema and codec together.

    Files without records, and those that cannot be read so, are in no answer.

    Args:
        whole: of each file whether its bytes are sure to be what its writer made.
        as_file: gives the path of a file of some bytes.
    """
    groups: dict[tuple[bytes, bytes, bool], dict[int, _Container]] = {}
    for place, (data, is_whole) in enumerate(zip(files, whole, strict=True)):
        try:
            header, at = header_map(data, len(MAGIC))
            sync = data[at : at + SYNC_BYTES]
            blocks = tuple(block_places(data, at + SYNC_BYTES, sync, ""))
        except (FormatError, IndexError, ValueError, EOFError):
            continue
        if blocks and data[: len(MAGIC)] == MAGIC and "avro.schema" in header:
            key = header["avro.schema"], header.get("avro.codec", b"null"), is_whole
            groups.setdefault(key, {})[place] = _Container(data, sync, blocks)
    for (schema, codec, are_whole), members in groups.items():
        counts = tuple(sum(block.rows for block in container.blocks) for container in members.values())
        columns = _columns(schema, codec, list(members.values()), as_file if are_whole else None)
        if columns is not None and all(len(values) == sum(counts) for values in columns.values()):
            yield Together(tuple(members), counts, columns)


def columns_of(records: Sequence[Mapping[str, Any]]) -> Columns:
    """Return records as columns.

    Raises:
        KeyError, TypeError: they have not all the same fields.
    """
    out: Columns = {}
    for name in records[0] if records else ():
        values = [record[name] for record in records]
        if isinstance(values[0], dict):
            out |= {f"{name}.{below}": column for below, column in columns_of(values).items()}
        elif any(isinstance(value, datetime) for value in values):
            out[name] = [None if value is None else _epoch_ms(value) for value in values]
        else:
            out[name] = values
    return out


def _epoch_ms(value: datetime) -> int:
    return round((value.replace(tzinfo=UTC) - _EPOCH).total_seconds() * 1000)


def _joined(schema: bytes, codec: bytes, containers: Sequence[_Container]) -> bytes:
    """Return one container of all blocks. Milliseconds stay numbers: no library makes Python datetimes of them."""
    if schema.count(b'"logicalType"') == schema.count(b'"timestamp-millis"'):
        schema = json.dumps(without_logical_types(json.loads(schema), {}, "")).encode()
    sync = containers[0].sync
    parts = [MAGIC, encoded_map({"avro.schema": schema, "avro.codec": codec}), sync]
    for container in containers:
        for block in container.blocks:
            parts += [container.data[block.begin : block.end], sync]
    return b"".join(parts)


def _columns(schema: bytes, codec: bytes, containers: Sequence[_Container], as_file: AsFile | None) -> Columns | None:
    try:
        container = _joined(schema, codec, containers)
    except (ValueError, TypeError, AttributeError, RecursionError):  # the schema is no JSON, or none of a schema
        return None
    if as_file is not None and avro_accelerator.pays(len(container)):
        with contextlib.suppress(Exception):  # the other library may still read the file
            return _accelerated(container, as_file)
    try:
        return columns_of(read_records(container, ""))
    except (FormatError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _accelerated(container: bytes, as_file: AsFile) -> Columns:
    """Return the columns of a container through polars-avro.

    A batch is given up before the next one is read: they share their memory, and a process that plans once does not
    fetch pages from the system for all of them.
    """
    out: Columns = {}
    with as_file(container) as path:
        for batch in avro_accelerator.batches(path, _BATCH_ROWS):
            _add_flattened(out, "", batch.schema.names, batch.columns)
            del batch
    return out


def _add_flattened(out: Columns, prefix: str, names: Sequence[str], arrays: Sequence[pa.Array]) -> None:
    for name, array in zip(names, arrays, strict=True):
        if pa.types.is_struct(array.type):
            _add_flattened(out, f"{prefix}{name}.", [field.name for field in array.type], array.flatten())
        else:
            out.setdefault(prefix + name, []).extend(_values(array))


def _values(array: pa.Array) -> Sequence[Any]:
    """Return the Python values of an array.

    Lists become tuples, cut from one and not filled value by value, and equal ones are kept once: few differ.
    """
    if array.null_count == len(array):
        return [None] * len(array)
    is_list = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    if is_list and not array.null_count and not pa.types.is_nested(array.type.value_type):
        inside, ends = tuple(array.values.to_pylist()), array.offsets.to_pylist()
        kept: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        return [kept.setdefault(some, some) for some in (inside[begin:end] for begin, end in pairwise(ends))]
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz)).cast(pa.int64())
    return array.to_pylist()  # type: ignore[no-any-return]
