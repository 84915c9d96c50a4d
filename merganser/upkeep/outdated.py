"""Outdated files: data files that differ from what the options of their table now ask of new files.

The answer comes from metadata. The name of a file says its format. The manifest holds a small index of a file as a
whole; of a larger one it says that there is one. What lies in that one, and the compression, follow from the options
in the schema that the file was written with. So options that a handle adds to the stored ones count only where the
metadata of a file shows their effect. Otherwise a full compaction with such a handle would rewrite the same files each
time.
"""

from __future__ import annotations

import contextlib
from typing import Final

from merganser.codec.bloom import BLOOM_FILTER
from merganser.codec.data_format import format_of
from merganser.codec.file_index import decode_file_index
from merganser.errors import FormatError, InvalidInputError
from merganser.files.index import INDEX_SUFFIX
from merganser.files.layout import FileLayout, file_layout
from merganser.meta.data_file import DataFile
from merganser.meta.schemas import SchemaStore
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env

FORMAT: Final = "format"
COMPRESSION: Final = "compression"
INDEX: Final = "index"
_READABLE: Final = ("parquet", "orc", "avro")


class Outdated:
    """Tells which files are outdated. Reads at most the schema files that the data files name.

    Args:
        table: with its newest schema.
    """

    def __init__(self, table: TableDef, env: Env) -> None:
        self._table = table
        self._store = SchemaStore(table.paths, env)
        self._wanted: dict[int, FileLayout] = {}
        self._stored: dict[tuple[int, int], FileLayout | None] = {}

    def reasons(self, file: DataFile, level: int) -> tuple[str, ...]:
        """Return in what a file differs from a new one: some of `FORMAT`, `COMPRESSION` and `INDEX`.

        Args:
            level: of the new one.
        """
        if level not in self._wanted:
            self._wanted[level] = file_layout(self._table, level)
        wanted, then, now = self._wanted[level], self._at(file.schema_id, level), self._at(self._table.schema.id, level)
        found = []
        with contextlib.suppress(InvalidInputError):  # a name without an extension
            if format_of(file.name) != wanted.format and format_of(file.name) in _READABLE:
                found.append(FORMAT)
        if then is not None and now is not None:
            if not found and _compression(then) != _compression(now):
                found.append(COMPRESSION)
            if self._lacks_index(file, wanted, then, now):
                found.append(INDEX)
        return tuple(found)

    def _at(self, schema_id: int, level: int) -> FileLayout | None:
        """Return the layout that a stored schema asks for; None if its file is lost or damaged."""
        if (schema_id, level) not in self._stored:
            layout = None
            with contextlib.suppress(FormatError):
                own = self._table.schema
                schema = own if schema_id == own.id else self._store.load(schema_id)
                stored = TableDef(self._table.name, self._table.path, schema, schema.options, self._table.branch)
                layout = file_layout(stored, level)
            self._stored[schema_id, level] = layout
        return self._stored[schema_id, level]

    @staticmethod
    def _lacks_index(file: DataFile, wanted: FileLayout, then: FileLayout, now: FileLayout) -> bool:
        """Return whether a file lacks the Bloom filter of a column that it was written with."""
        names = {field.id: field.name for field in then.value_fields}
        due = {one.field.id for one in wanted.filters} & set(names)
        if file.embedded_index is not None:
            with contextlib.suppress(FormatError):
                indexes = decode_file_index(file.embedded_index, path=file.name)
                there = {index.column for index in indexes if index.kind == BLOOM_FILTER}
                due = {number for number in due if names[number] not in there}
        elif any(name.endswith(INDEX_SUFFIX) for name in file.extra_files):
            due &= {one.field.id for one in now.filters} - {one.field.id for one in then.filters}
        return bool(due)


def _compression(layout: FileLayout) -> str:
    return layout.write_format.compression.lower()
