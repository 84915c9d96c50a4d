"""System tables of a catalog, in the database `sys`: its tables, their partitions and options, and its own options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from merganser.catalogs.names import SYSTEM
from merganser.errors import NotFoundError
from merganser.handle.system_table import CatalogTable
from merganser.handle.table import Table
from merganser.meta.data_file import ManifestEntry
from merganser.meta.table_state import MetaReader
from merganser.options.registry import did_you_mean
from merganser.options.secrets import shown
from merganser.options.write import TYPE
from merganser.storage.env import Env


class Warehouse(Protocol):
    """A catalog."""

    @property
    def warehouse(self) -> str: ...

    @property
    def env(self) -> Env: ...

    @property
    def table_defaults(self) -> Mapping[str, Any]: ...

    def list_databases(self) -> list[str]: ...

    def list_tables(self, database: str) -> list[str]: ...

    def table(self, name: str) -> Any: ...


def catalog_table(catalog: Warehouse, name: str) -> CatalogTable:
    """Return the handle of `sys.<name>`.

    Raises:
        NotFoundError: there is no such system table.
    """
    if name not in TABLES:
        full = f"{SYSTEM}.{name}"
        raise NotFoundError(f"there is no system table '{full}'. {did_you_mean(name, list(TABLES))}", table=full)
    schema, make = TABLES[name]

    def rows() -> pa.Table:
        columns = list(zip(*make(catalog), strict=True)) or [()] * len(schema)
        return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)

    return CatalogTable(f"{SYSTEM}.{name}", catalog.env, rows)


def _opened(catalog: Warehouse) -> Iterator[tuple[str, str, Table]]:
    """Yield all tables with the names of their databases and their own. One that is dropped meanwhile is left out."""
    for database in catalog.list_databases():
        for name in catalog.list_tables(database):
            try:
                yield database, name, catalog.table(f"{database}.{name}")
            except NotFoundError:
                continue


def totals(entries: Sequence[ManifestEntry]) -> tuple[int, int, int, int | None]:
    """Return rows, bytes and number of data files, and when the newest was created."""
    files = [entry.file for entry in entries]
    times = [file.creation_time_ms for file in files if file.creation_time_ms is not None]
    return sum(f.row_count for f in files), sum(f.size for f in files), len(files), max(times, default=None)


def _tables(catalog: Warehouse) -> Iterator[tuple[Any, ...]]:
    """Yield the tables. Who owns, created and changed them is stored nowhere: null."""
    for database, name, table in _opened(catalog):
        state = MetaReader(table.definition.paths, table.env, table.name).latest()
        entries = [entry for held in state.live.buckets.values() for entry in held.entries]
        sums = (None,) * 4 if state.snapshot is None else totals(entries)
        keys = bool(table.partition_by), bool(table.primary_key)
        yield database, name, table.definition.options.get(TYPE), *keys, *(None,) * 5, *sums


def _partitions(catalog: Warehouse) -> Iterator[tuple[Any, ...]]:
    """Yield the partitions that have files. Whether they are done is stored nowhere: null."""
    for database, name, table in _opened(catalog):
        if table.partition_by:
            found: dict[bytes, list[ManifestEntry]] = {}
            state = MetaReader(table.definition.paths, table.env, table.name).latest()
            for (partition, _), held in state.live.buckets.items():
                found.setdefault(partition, []).extend(held.entries)
            for partition, entries in found.items():
                directory = table.definition.partition_directory(partition).removeprefix(f"{table.path}/")
                yield database, name, directory, *totals(entries), None


def _options(catalog: Warehouse) -> Iterator[tuple[str, ...]]:
    for database, name, table in _opened(catalog):
        for key, value in sorted(shown(table.definition.schema.options).items()):
            yield database, name, key, value


def _own_options(catalog: Warehouse) -> Iterable[tuple[str, str]]:
    defaults = {f"table-default.{key}": str(value) for key, value in catalog.table_defaults.items()}
    return sorted(shown({"warehouse": catalog.warehouse, **defaults}).items())


_TEXT, _NUMBER, _FLAG = pa.string(), pa.int64(), pa.bool_()
TABLES: Final[Mapping[str, tuple[pa.Schema, Callable[[Warehouse], Iterable[tuple[Any, ...]]]]]] = {
    "tables": (pa.schema([
        ("database_name", _TEXT), ("table_name", _TEXT), ("table_type", _TEXT), ("partitioned", _FLAG),
        ("primary_key", _FLAG), ("owner", _TEXT), ("created_at", _NUMBER), ("created_by", _TEXT),
        ("updated_at", _NUMBER), ("updated_by", _TEXT), ("record_count", _NUMBER), ("file_size_in_bytes", _NUMBER),
        ("file_count", _NUMBER), ("last_file_creation_time", _NUMBER),
    ]), _tables),
    "partitions": (pa.schema([
        ("database_name", _TEXT), ("table_name", _TEXT), ("partition_name", _TEXT), ("recordCount", _NUMBER),
        ("fileSizeInBytes", _NUMBER), ("fileCount", _NUMBER), ("lastFileCreationTime", _NUMBER), ("done", _FLAG),
    ]), _partitions),
    "all_table_options": (pa.schema([
        ("database_name", _TEXT), ("table_name", _TEXT), ("key", _TEXT), ("value", _TEXT),
    ]), _options),
    "catalog_options": (pa.schema([("key", _TEXT), ("value", _TEXT)]), _own_options),
}  # fmt: skip
"""The system tables of a catalog, with their columns."""
