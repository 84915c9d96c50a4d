"""File indexes: which filters the data files of a table get, and what those of a data file say of values.

The index of a data file lies in the manifest, or, if it is larger, in `<data file>.index` beside it, which the entry
of the data file names among its extra files. It is written before the data file is finished and lives as long.

An index is a help: a read without it is slower and the same. So an index that is missing, damaged or of an unknown
kind is left aside. Crash at any instruction: an index file is there that no snapshot names.

Format: section "file index".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.bloom import (
    BLOOM_FILTER,
    BloomBuilder,
    BloomFilter,
    Flags,
    Hashes,
    bit_count,
    can_filter,
    value_hashes,
)
from merganser.codec.file_index import ColumnIndex, decode_file_index, encode_file_index
from merganser.errors import InvalidInputError, MerganserError, StorageError
from merganser.meta.data_file import DataFile
from merganser.options import write as w
from merganser.options.option import Options
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.values import dataclass

INDEX_SUFFIX: Final = ".index"
_BITS_MAX: Final = (1 << 31) - 1
_HELD_BYTES: Final = 200
"""About what a filter weighs in memory beside its bits."""

_log = logging.getLogger(__name__)


# writing


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """The Bloom filter of a column.

    Attributes:
        field: the column.
        items: different values that it is made for; None: those that come.
        rate: share of other values that it may take for its own.
    """

    field: t.Field
    items: int | None
    rate: float


def filters_of(fields: Sequence[t.Field], options: Options) -> tuple[FilterSettings, ...]:
    """Return the filters of new data files.

    Another engine may have listed a column that cannot have one; its data files have none of it.

    Raises:
        InvalidInputError: an option is not of its form.
    """
    by_name = {field.name: field for field in fields}
    return tuple(
        FilterSettings(
            by_name[name],
            options.get(w.FILE_INDEX_BLOOM_ITEMS.of(name)),
            options.get(w.FILE_INDEX_BLOOM_FPP.of(name)),
        )
        for name in dict.fromkeys(options.get(w.FILE_INDEX_BLOOM_COLUMNS))
        if name in by_name and can_filter(by_name[name].type)
    )


def check_filters(schema: TableSchema, *, what: str) -> None:
    """Refuse a table whose options ask for a filter that the format does not have.

    Args:
        what: beginning of the message, such as "cannot create 'db.orders'".

    Raises:
        InvalidInputError: names the column; nothing was changed.
    """
    by_name = {field.name: field for field in schema.fields}
    for column in schema.options.get(w.FILE_INDEX_BLOOM_COLUMNS):
        if column not in by_name:
            _refuse(what, column, "the format has filters of whole columns only, not of single keys of a map")
        if not can_filter(kind := by_name[column].type):
            _refuse(
                what,
                column,
                f"it has the type {kind}. The format has filters of texts, bytes, integers, FLOAT, DOUBLE, dates, "
                "times and timestamps",
            )
    for filtered in filters_of(schema.fields, schema.options):
        if filtered.items is not None and bit_count(filtered.items, filtered.rate) > _BITS_MAX:
            wanted = f"one for {filtered.items:,} values with a share of {filtered.rate}"
            _refuse(what, filtered.field.name, f"a filter has at most {_BITS_MAX:,} bits, too few for {wanted}")


def _refuse(what: str, column: str, why: str) -> NoReturn:
    raise InvalidInputError(
        f"{what}: column '{column}' cannot have a Bloom filter: {why}. Change "
        f"'{w.FILE_INDEX_BLOOM_COLUMNS.key}'. Nothing was changed.",
        column=column,
    )


class IndexBuilder:
    """Makes the index of one data file."""

    def __init__(self, filters: Sequence[FilterSettings]) -> None:
        self._builders = [(one.field, BloomBuilder(one.items, one.rate)) for one in filters]

    def add(self, rows: pa.Table) -> None:
        """Take rows of the file, with at least the columns of its filters."""
        for field, builder in self._builders:
            builder.add(rows.column(field.name), field.type)

    def finish(self) -> tuple[ColumnIndex, ...]:
        """Return the indexes of the file; none if no column has a filter."""
        return tuple(
            ColumnIndex(field.name, BLOOM_FILTER, builder.finish().encode()) for field, builder in self._builders
        )


def place_index(
    env: Env, directory: str, name: str, indexes: Sequence[ColumnIndex], *, in_manifest_max_bytes: int
) -> tuple[bytes | None, tuple[str, ...]]:
    """Put the index of a data file where it belongs. A file made for it is durable.

    Args:
        directory: the bucket's.
        name: of the data file.

    Returns:
        The bytes for the manifest or None, and the names of files that belong to the data file.
    """
    if not indexes:
        return None, ()
    held = encode_file_index(indexes, checked=False)
    if len(held) <= in_manifest_max_bytes:
        return held, ()
    env.storage.replace(join(directory, name + INDEX_SUFFIX), encode_file_index(indexes, checked=True), durable=True)
    return None, (name + INDEX_SUFFIX,)


# reading


class Sought:
    """Values to look for in many data files, hashed once.

    Args:
        values: n values in the Arrow type of `kind`.
        kind: type of the column, for which filters exist.
    """

    def __init__(self, values: pa.Array | pa.ChunkedArray, kind: t.DataType) -> None:
        self._hashes, self._nulls = value_hashes(values, kind)
        self._zeros: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        if isinstance(kind, t.Float | t.Double):  # both zeros are equal, and have different hashes
            self._zeros = np.flatnonzero(np.asarray(pc.equal(values, pa.scalar(0, values.type)).fill_null(False)))
            self._other_zeros: Hashes = value_hashes(pc.negate(values), kind)[0][self._zeros]

    def __len__(self) -> int:
        return len(self._hashes)

    def may_lie_in(self, filtered: BloomFilter | None) -> Flags:
        """Return for each value whether a column may hold it, bool[n]. A null always may.

        Args:
            filtered: of the column; None: it holds only nulls.
        """
        found = np.zeros(len(self), np.bool_) if filtered is None else filtered.may_hold(self._hashes)
        if filtered is not None and len(self._zeros):
            found[self._zeros] |= filtered.may_hold(self._other_zeros)
        return found if self._nulls is None else found | self._nulls


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """What is known of the values of one column of a data file. `bloom` None: all of them are null."""

    bloom: BloomFilter | None

    def may_hold(self, sought: Sought) -> Flags:
        """Return for each of n values whether the data file may hold it in the column, bool[n]. False is certain."""
        return sought.may_lie_in(self.bloom)


NO_FILTERS: Final[Mapping[str, ColumnFilter]] = {}


def column_filters(env: Env, directory: str, file: DataFile) -> Mapping[str, ColumnFilter]:
    """Return the filters of a data file by column, as its own schema names it. One read at most, and kept then.

    Never an error: an index that is missing or damaged is left aside with a warning, other kinds of index without one.

    Args:
        directory: the bucket's.
    """
    path = file_index_path(directory, file)
    if path is None:
        return NO_FILTERS
    key = ("file index", path)
    known: Mapping[str, ColumnFilter] | None = env.cache.get(key)
    if known is not None:
        return known
    known = NO_FILTERS
    try:
        known = read_filters(env, directory, file)
    except MerganserError as error:
        _log.warning("a file index is not used, so that reads skip fewer files: %s", error)
        if isinstance(error, StorageError):  # the next read may have more luck
            return known
    if file.embedded_index is None:  # else it is held already, with the manifest
        weight = sum(0 if held.bloom is None else len(held.bloom.bits) for held in known.values())
        env.cache.put(key, known, weight + _HELD_BYTES * (1 + len(known)))
    return known


def read_filters(env: Env, directory: str, file: DataFile) -> Mapping[str, ColumnFilter]:
    """Return the filters of a data file by column, read anew.

    Raises:
        NotFoundError, FormatError: its index is missing or damaged.
    """
    path = file_index_path(directory, file)
    if path is None:
        return NO_FILTERS
    data = file.embedded_index if file.embedded_index is not None else env.storage.read(path)
    return {
        index.column: ColumnFilter(None if index.body is None else BloomFilter.decode(index.body, path=path))
        for index in decode_file_index(data, path=path)
        if index.kind == BLOOM_FILTER
    }


def file_index_path(directory: str, file: DataFile) -> str | None:
    """Return where the index of a data file lies, that of the data file itself if in the manifest; None: it has none.

    Args:
        directory: the bucket's.
    """
    beside = directory if file.external_path is None else file.external_path.rpartition("/")[0]
    if file.embedded_index is not None:
        return join(beside, file.name)
    name = next((name for name in file.extra_files if name.endswith(INDEX_SUFFIX)), None)
    return None if name is None else join(beside, name)
