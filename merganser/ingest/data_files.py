"""ORC and Avro files of any writer, as their rows are handed to a table: read as data files, in the types they say."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from merganser.codec.data_format import open_reader
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.arrow import fields_from_arrow


class DataFileRows:
    """An ORC or Avro file open for reading.

    Attributes:
        schema: its columns.
        group_rows: rows of each stripe or block.
    """

    def __init__(self, file: pa.NativeFile, form: str, path: str) -> None:
        """Read the footer of an ORC file, or all of an Avro file; the file stays the caller's.

        Raises:
            FormatError: it is no such file, or damaged.
            UnsupportedError: a column has a type that no table has.
        """
        self._reader = open_reader(file, form, path, file.size())
        own = self._reader.own_schema()
        self._fields = _fields(own, path)
        self._reader.check_values()
        self.schema = own
        self.group_rows = self._reader.group_rows

    def tables(self, groups: tuple[int, int] | None) -> Iterator[pa.Table]:
        """Yield the rows of stripes or blocks in order.

        Args:
            groups: the first one and the one behind the last; None: all.

        Raises:
            FormatError: the bytes are damaged.
            UnsupportedError: a column has a type, or values, that cannot be read.
        """
        for group in range(*groups) if groups else range(len(self.group_rows)):
            yield self._reader.read([group], self._fields)


def _fields(schema: pa.Schema, path: str) -> tuple[t.Field, ...]:
    try:
        return fields_from_arrow(schema)
    except InvalidInputError as error:
        raise UnsupportedError(f"cannot read the rows of '{path}': {error} Nothing was written.", path=path) from error
