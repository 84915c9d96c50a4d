"""Which columns the data files of a table have, in which format they are written, with which statistics and filters.

A key table's file holds `_KEY_<column>` for each key column, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, then all
columns of the table. An append table's file holds the columns alone.

Format: sections "pk table file columns", "append table files", "stats".
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import replace
from functools import cached_property, lru_cache

import pyarrow as pa

from merganser.codec.data_format import ValueLimits, WriteFormat, check_can_hold
from merganser.codec.stats import StatsMode, parse_stats_mode
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.files.index import FilterSettings, filters_of
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.options.option import Options
from merganser.rules.checks import named_formats
from merganser.schema import types as t
from merganser.schema.literals import default_value
from merganser.schema.nullability import loosened
from merganser.schema.table_schema import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND, TableSchema
from merganser.storage.env import Env
from merganser.values import dataclass


@dataclass(frozen=True)
class FileLayout:
    """How a table's data files are written.

    Attributes:
        key_fields: `_KEY_*` columns; empty for append tables and for thin files.
        value_fields: the table's columns.
        format: `parquet`, `orc` or `avro`.
        suffix: what file names end in, with the dot.
        prefix: what file names begin with.
        stats_modes: one mode per value field.
        target_size_bytes, target_rows: where a new file begins.
        filters: columns that have a Bloom filter in the index of each file.
        index_in_manifest_max_bytes: up to which an index lies in the manifest.
        ordered: rows come in the order of their keys.
    """

    keyed: bool
    key_fields: tuple[t.Field, ...]
    value_fields: tuple[t.Field, ...]
    format: str
    write_format: WriteFormat
    suffix: str
    prefix: str
    stats_modes: tuple[StatsMode, ...]
    dense_stats: bool
    target_size_bytes: int
    target_rows: int
    filters: tuple[FilterSettings, ...]
    index_in_manifest_max_bytes: int
    ordered: bool = True

    def has_bytes_of(self, other: FileLayout) -> bool:
        """Return whether files of both layouts hold the same bytes and statistics for the same rows."""
        return replace(self, prefix="", filters=(), index_in_manifest_max_bytes=0) == replace(
            other, prefix="", filters=(), index_in_manifest_max_bytes=0
        )

    def with_nullable(self, names: Collection[str]) -> FileLayout:
        """Return the layout of files in which some of the table's columns, and all parts of them, may be null."""
        fields = [f if f.name not in names else replace(f, type=loosened(f.type)) for f in self.value_fields]
        return replace(self, value_fields=tuple(fields))

    @cached_property
    def fields(self) -> tuple[t.Field, ...]:
        """All physical columns, in order."""
        system = (SEQUENCE_NUMBER, VALUE_KIND) if self.keyed else ()
        return self.key_fields + system + self.value_fields


@lru_cache(maxsize=256)
def file_layout(table: TableDef, level: int = 0) -> FileLayout:
    """Return how files of a level are written."""
    options = table.options
    file_format = options.get(w.FILE_FORMAT_PER_LEVEL).get(level) or options.get(w.FILE_FORMAT)
    compression = options.get(w.FILE_COMPRESSION_PER_LEVEL).get(level) or options.get(w.FILE_COMPRESSION)
    suffix = f".{file_format}"
    if options.get(w.FILE_SUFFIX_INCLUDE_COMPRESSION) and compression.lower() != "none":
        suffix = f".{_EXTENSIONS.get(compression.lower(), compression.lower())}{suffix}"
    block = options.get(w.FILE_BLOCK_SIZE)
    write_format = WriteFormat(
        compression=compression,
        zstd_level=options.get(w.FILE_COMPRESSION_ZSTD_LEVEL),
        sorted_by=table.key[0] if table.key else None,
        often_zero=VALUE_KIND.name if table.keyed else None,
    )
    if block is not None:
        write_format = replace(write_format, block_size_bytes=block)
    schema = table.schema
    key_fields = () if not table.keyed or options.get(w.DATA_FILE_THIN_MODE) else schema.key_fields
    return FileLayout(
        keyed=table.keyed,
        key_fields=key_fields,
        value_fields=schema.fields,
        format=file_format,
        write_format=write_format,
        suffix=suffix,
        prefix=options.get(w.DATA_FILE_PREFIX),
        stats_modes=_stats_modes(table, level),
        dense_stats=options.get(w.STATS_DENSE_STORE),
        target_size_bytes=w.target_file_size_bytes(options, keyed=table.keyed),
        target_rows=options.get(w.TARGET_FILE_ROW_NUM),
        filters=filters_of(schema.fields, options),
        index_in_manifest_max_bytes=options.get(w.FILE_INDEX_IN_MANIFEST),
    )


def changelog_layout(table: TableDef) -> FileLayout:
    """Return how changelog files are written: as data files, but for options of levels and their own options."""
    options = table.options
    own = {
        w.FILE_FORMAT.key: options.get(w.CHANGELOG_FILE_FORMAT),
        w.FILE_COMPRESSION.key: options.get(w.CHANGELOG_FILE_COMPRESSION),
        w.STATS_MODE_OPTION.key: options.get(w.CHANGELOG_FILE_STATS_MODE),
    }
    texts = {key: text for key, text in options.items() if key not in _OF_LEVELS}
    texts |= {key: text for key, text in own.items() if text is not None}
    layout = file_layout(replace(table, options=Options(texts)))
    return replace(layout, prefix=options.get(w.CHANGELOG_FILE_PREFIX), filters=())


def received_layout(table: TableDef) -> FileLayout:
    """Return how files of received rows are written: they are read once, by the commit that follows."""
    texts = {w.FILE_COMPRESSION.key: "none", w.STATS_MODE_OPTION.key: "none", w.DATA_FILE_THIN_MODE.key: "true"}
    layout = file_layout(replace(table, options=Options(texts)))
    return replace(layout, prefix=RECEIVED_PREFIX)


def postponed_layout(table: TableDef, env: Env) -> FileLayout:
    """Return how rows that wait for their buckets are written: not sorted, no statistics, in Avro if it has the types.

    The names of the files of one writer share a prefix, by which a compaction keeps them together.
    """
    options = table.options
    texts = {**options, w.STATS_MODE_OPTION.key: "none"}
    texts = {key: text for key, text in texts.items() if key not in _OF_LEVELS}
    with contextlib.suppress(UnsupportedError):
        fields = table.schema.fields
        check_can_hold("avro", fields)
        texts[w.FILE_FORMAT.key] = "avro"
    layout = file_layout(replace(table, options=Options(texts)))
    writer = env.random.getrandbits(31)
    prefix = f"{options.get(w.DATA_FILE_PREFIX)}-u-{env.new_id()}-s-{writer}-w-"
    modes = tuple(parse_stats_mode("none") for _ in layout.stats_modes)
    return replace(layout, prefix=prefix, filters=(), stats_modes=modes, dense_stats=True, ordered=False)


RECEIVED_PREFIX = "received-"
_OF_LEVELS = {option.key for option in (w.FILE_FORMAT_PER_LEVEL, w.FILE_COMPRESSION_PER_LEVEL, w.STATS_MODE_PER_LEVEL)}
_EXTENSIONS = {"zstd": "zst", "gzip": "gz", "zlib": "zlib"}


def _stats_modes(table: TableDef, level: int) -> tuple[StatsMode, ...]:
    options = table.options
    general = options.get(w.STATS_MODE_PER_LEVEL).get(level) or options.get(w.STATS_MODE_OPTION)
    first = options.get(w.STATS_KEEP_FIRST_N_COLUMNS)
    modes = []
    for i, field in enumerate(table.schema.fields):
        own = options.get(w.COLUMN_STATS_MODE.of(field.name))
        text = own if own is not None else "none" if 0 <= first <= i else general
        modes.append(parse_stats_mode(text))
    return tuple(modes)


def check_formats(schema: TableSchema, *, what: str) -> None:
    """Refuse a table with a column, or a default, that files of one of its formats cannot hold, at any level.

    Args:
        what: beginning of the message, such as "cannot create 'db.orders'".

    Raises:
        InvalidInputError: a default; names the column. Nothing was changed.
        UnsupportedError: names the column; nothing was changed.
    """
    for file_format in named_formats(schema.options):
        try:
            check_can_hold(file_format, schema.fields)
        except UnsupportedError as error:
            raise UnsupportedError(f"{what}: {error.message}. Nothing was changed.", **error.context) from None

    limits = value_limits(schema.options)
    for field in schema.fields_with_defaults if limits.any else ():
        if field.default is None:
            continue
        default = default_value(field)
        if limits.beyond(pa.array([default], default.type))[0]:
            raise InvalidInputError(
                f"{what}: the default of column '{field.name}' is {field.default}, {limits.why}. Nothing was changed.",
                column=field.name,
            )


def value_limits(options: Options) -> ValueLimits:
    """Return which values files of the table cannot hold, and what happens to digits that columns do not store.

    Rows are rewritten at other levels, and as changelog rows, so each format that the options name counts.
    """
    return ValueLimits(named_formats(options), options.get(w.TIMESTAMP_PRECISION) == "truncate")


def physical_name(field: t.Field) -> str:
    """Return the table column that a `_KEY_*` column repeats."""
    return field.name.removeprefix(KEY_PREFIX)
