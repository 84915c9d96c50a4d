"""Avro container files -> columns of Python values, many files at once.

Files of one schema and codec are read as one: their blocks follow each other under one header, so that a schema is
parsed once and not once per file, and the library is entered once. polars-avro reads them, if it is installed,
several times as fast as fastavro, which is always there.

Both refuse some files, and neither says which file of many is damaged. So a file that cannot be read together with
others is left out of every answer, and the caller reads it alone, which names what is wrong.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from merganser.codec.avro import read_records
from merganser.codec.avro_container import MAGIC, SYNC_BYTES, Block, block_places, encoded_map, header_map
from merganser.codec.avro_schema import without_logical_types
from merganser.errors import FormatError

try:
    import polars as pl
    import polars_avro
except ImportError:  # the extra `[avro]` is not installed
    polars_avro = None

Columns: TypeAlias = dict[str, list[Any]]
"""Values by the dotted names of fields (`_FILE._FILE_NAME`), as many of each as there are records; timestamps as
epoch milliseconds."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ACCELERATED_BYTES_MIN: Final = 49_152
"""Below, fastavro is faster: polars-avro takes a while to begin."""


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


def read_together(files: Sequence[bytes]) -> Iterator[Together]:
    """Yield the columns of container files, those of one schema and codec together.

    Files without records, and those that cannot be read so, are in no answer.
    """
    groups: dict[tuple[bytes, bytes], dict[int, _Container]] = {}
    for place, data in enumerate(files):
        try:
            header, at = header_map(data, len(MAGIC))
            sync = data[at : at + SYNC_BYTES]
            blocks = tuple(block_places(data, at + SYNC_BYTES, sync, ""))
        except (FormatError, IndexError, ValueError, EOFError):
            continue
        if blocks and data[: len(MAGIC)] == MAGIC and "avro.schema" in header:
            key = header["avro.schema"], header.get("avro.codec", b"null")
            groups.setdefault(key, {})[place] = _Container(data, sync, blocks)
    for (schema, codec), members in groups.items():
        counts = tuple(sum(block.rows for block in container.blocks) for container in members.values())
        columns = _columns(schema, codec, list(members.values()))
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


def _columns(schema: bytes, codec: bytes, containers: Sequence[_Container]) -> Columns | None:
    try:
        container = _joined(schema, codec, containers)
    except (ValueError, TypeError, AttributeError, RecursionError):  # the schema is no JSON, or none of a schema
        return None
    if polars_avro is not None and len(container) >= _ACCELERATED_BYTES_MIN:
        try:
            return _flattened("", polars_avro.read_avro(io.BytesIO(container)))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # a panic of its Rust code is no Exception; the other library may still read the file
            pass
    try:
        return columns_of(read_records(container, ""))
    except (FormatError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _flattened(prefix: str, frame: pl.DataFrame) -> Columns:
    out: Columns = {}
    for column in frame.get_columns():
        if isinstance(column.dtype, pl.Struct):
            out |= _flattened(f"{prefix}{column.name}.", column.struct.unnest())
        else:
            if isinstance(column.dtype, pl.Datetime):
                column = column.cast(pl.Datetime("ms")).cast(pl.Int64)
            out[prefix + column.name] = column.to_list()
    return out
