"""The same file of a key table again, under a new name and with higher sequence numbers.

Two writers that overlap in time take the same numbers. The one that commits later gives its new rows new numbers before
it commits (`write/renumber`). A file that a snapshot may name is never changed, so the new numbers go into a new file.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Final

import pyarrow.compute as pc

from merganser.files.layout import file_layout
from merganser.files.read import DataFileReader, FileToRead
from merganser.files.write import RollingWriter
from merganser.meta.data_file import DataFile
from merganser.meta.table_def import TableDef
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from merganser.storage.env import Env
from merganser.storage.paths import join

_ROWS: Final = 32_768
"""Rows in memory at a time, at least a row group of them."""

_NO_LIMIT: Final = 1 << 62


def stem(table: TableDef, file: DataFile) -> str:
    """Return the text that the name of a new file and the names of all files made of it begin with."""
    return file.name.removesuffix(file_layout(table).suffix)


def shifted(table: TableDef, env: Env, directory: str, file: DataFile, offset: int) -> DataFile:
    """Write a file again with all of its sequence numbers raised. It is durable; the given file stays.

    Args:
        table: the table as it was when the file was written.
        directory: the bucket's.
        file: a file of level 0 that this version wrote and no snapshot names.
        offset: what is added to every number.

    Raises:
        StorageError, FormatError: nothing new is left behind.
    """
    layout = file_layout(table)
    layout = replace(
        layout, prefix=f"{stem(table, file)}-", target_size_bytes=_NO_LIMIT, target_rows=_NO_LIMIT
    )  # one file stays one
    target = FileToRead(join(directory, file.name), file, table.schema.fields, file.schema_id)
    writer = RollingWriter(table=table, env=env, directory=directory, layout=layout)
    reader = DataFileReader(env.storage, target, columns=table.schema.fields, sequence=True, kind=True)
    with contextlib.closing(reader):
        try:
            while (rows := reader.read(_ROWS)) is not None:
                writer.write(
                    rows.select(range(len(table.schema.fields))),
                    sequences=pc.add_checked(rows.column(SEQUENCE_NUMBER.name), offset),
                    kinds=rows.column(VALUE_KIND.name),
                )
            (made,) = writer.close()
            return made
        except BaseException:
            writer.abort()
            raise
