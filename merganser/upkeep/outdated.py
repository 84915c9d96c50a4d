"""Outdated files: data files that differ from what the options of their table now ask of new files.

The answer comes from metadata. The name of a file says its format. The manifest holds a small index of a file as a
whole; of a larger one it says that there is one. What lies in that one, and the compression, follow from the options
in the schema that the file was written with. So options that a handle adds to the stored ones count only where the
metadata of a file shows their effect. Otherwise a full compaction with such a handle would rewrite the same files each
time.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Final

from merganser.codec.bloom import BLOOM_FILTER
from merganser.codec.data_format import format_of
from merganser.codec.file_index import decode_file_index
from merganser.errors import FormatError, InvalidInputError, UnsupportedError
from merganser.files.index import file_index_path
from merganser.files.layout import FileLayout, file_layout
from merganser.meta.data_file import DataFile
from merganser.meta.live_files import LiveFiles
from merganser.meta.schemas import SchemaStore
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env

FORMAT: Final = "format"
COMPRESSION: Final = "compression"
INDEX: Final = "index"
_FORMATS: Final = ("parquet", "orc", "avro")
"""Formats that this version writes."""


class Outdated:
    """Tells which files are outdated. Reads at most the schema files that the data files name.

    Args:
        table: with its newest schema.
    """

    def __init__(self, table: TableDef, env: Env) -> None:
        self._table = table
        self._store = SchemaStore(table.paths, env)
        self._layouts: dict[tuple[int | None, int], FileLayout | None] = {}

    def reasons(self, file: DataFile, level: int) -> tuple[str, ...]:
        """Return in what a file differs from a new one: some of `FORMAT`, `COMPRESSION` and `INDEX`.

        Args:
            level: of the new one.
        """
        wanted = self._layout(None, level)
        then, now = self._layout(file.schema_id, level), self._layout(self._table.schema.id, level)
        if wanted is None or wanted.format not in _FORMATS:
            return ()
        found = []
        with contextlib.suppress(InvalidInputError):  # a name without an extension
            if format_of(file.name) != wanted.format and format_of(file.name) in _FORMATS:
                found.append(FORMAT)
        if then is not None and now is not None:
            if not found and _compression(then) != _compression(now):
                found.append(COMPRESSION)
            if self._lacks_index(file, wanted, then, now):
                found.append(INDEX)
        return tuple(found)

    def _layout(self, schema_id: int | None, level: int) -> FileLayout | None:
        """Return the layout that a stored schema asks for; None if nothing can be said of it.

        Args:
            schema_id: None: the schema and the options of the table as it was opened.
        """
        if (schema_id, level) not in self._layouts:
            found = None
            # The schema is lost, or another engine has set options that this version does not know.
            with contextlib.suppress(FormatError, InvalidInputError, UnsupportedError):
                found = file_layout(self._table if schema_id is None else self._stored_table(schema_id), level)
            self._layouts[schema_id, level] = found
        return self._layouts[schema_id, level]

    def _stored_table(self, schema_id: int) -> TableDef:
        schema = self._table.schema if schema_id == self._table.schema.id else self._store.load(schema_id)
        return replace(self._table, schema=schema, options=schema.options)

    @staticmethod
    def _lacks_index(file: DataFile, wanted: FileLayout, then: FileLayout, now: FileLayout) -> bool:
        """Return whether a file lacks the Bloom filter of a column that it was written with."""
        names = {field.id: field.name for field in then.value_fields}
        due = {one.field.id for one in wanted.filters} & set(names)
        own = {one.field.id for one in then.filters}
        if file.embedded_index is not None and not due <= own:  # to decode 50,000 of them takes seconds
            with contextlib.suppress(FormatError):
                indexes = decode_file_index(file.embedded_index, path=file.name)
                there = {index.column for index in indexes if index.kind == BLOOM_FILTER}
                due = {number for number in due if names[number] not in there}
        elif file_index_path("", file) is not None:
            due &= {one.field.id for one in now.filters} - own
        return bool(due)


def outdated_files(table: TableDef, env: Env, live: LiveFiles) -> dict[str, list[DataFile]]:
    """Return the live files in buckets that are outdated where they lie, by the reason.

    Args:
        table: with its newest schema.
    """
    found: dict[str, list[DataFile]] = {}
    outdated = Outdated(table, env)
    for entry in live:
        for reason in outdated.reasons(entry.file, entry.file.level) if entry.bucket >= 0 else ():
            found.setdefault(reason, []).append(entry.file)
    return found


def _compression(layout: FileLayout) -> str:
    return layout.write_format.compression.lower()
