"""Data formats: given an open file and its format, return a reader or writer of Arrow tables.

There are three formats: Parquet, ORC and Avro. Their modules open no path; they take one for messages and for the name
of the file. They know no table, only fields, each with a name, an id and a type.

Readers trust no byte of a file. Damage raises FormatError with the path. It never raises an error of the library below,
and never gives a wrong row if the format has a checksum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import IO, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.avro_file import AvroFileReader, AvroFileWriter
from merganser.codec.avro_schema import avro_schema
from merganser.codec.orc import OrcFileReader, OrcFileWriter, beyond_orc
from merganser.codec.parquet import ParquetFileReader, ParquetFileWriter
from merganser.codec.parquet_pages import Kept
from merganser.codec.row_groups import WriteFormat
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema.types import Field
from merganser.values import dataclass

__all__ = [
    "FORMATS",
    "Bound",
    "FileReader",
    "FileWriter",
    "GroupBounds",
    "ValueLimits",
    "WriteFormat",
    "check_can_hold",
    "format_of",
    "open_reader",
    "open_writer",
]

FORMATS: Final = ("parquet", "orc", "avro")
"""The formats of data files that can be read and written."""

_COMPRESSION_EXTENSIONS: Final = frozenset(
    {"zst", "zstd", "zstandard", "gz", "gzip", "snappy", "lz4", "lzo", "br", "brotli", "bz2", "deflate", "xz"}
)

Bound = bool | int | str | bytes | Decimal
"""A statistic as stored: DATE in days, TIME in ms, TIMESTAMP in the unit of its Arrow type, both since 1970."""

GroupBounds = tuple[list[Bound | None], list[Bound | None], list[int | None]]
"""Per group: smallest value, largest value, number of nulls; None where the file does not say."""


class FileReader(Protocol):
    """A data file open for reading. Safe to use from one thread at a time.

    Attributes:
        column_names: top-level columns, as the file names them and in its order.
        row_count: rows in the file.
        group_rows: rows in each row group, stripe or block; their sum is `row_count`.
    """

    column_names: tuple[str, ...]
    row_count: int
    group_rows: tuple[int, ...]

    def own_schema(self) -> pa.Schema:
        """Return the columns as the file says them itself, in its order, whatever a table takes them for."""

    def read(self, groups: Sequence[int] | None, columns: Sequence[Field]) -> pa.Table:
        """Return columns of some groups.

        Args:
            groups: positions in `group_rows`, in the order wanted; None for the whole file.
            columns: fields looked up by name. Ids are not compared: many writers leave them out.

        Returns:
            One column per field, in that order, in exactly the type of `schema.arrow.arrow_type`, with the rows
            in file order. Only the bytes of these columns are decoded (Avro: all bytes of the blocks).

        Raises:
            FormatError: the file has no such column, its type cannot hold the field's values, or bytes are damaged.
            UnsupportedError: a value does not fit the Arrow type (nanoseconds outside the years 1677 to 2262).
        """

    def parts(self, group: int, columns: Sequence[Field], rows: int) -> Iterator[pa.Table]:
        """Yield the rows of one group, as `read` does, in parts of at most `rows` rows; whole where the format cannot.

        The file must not be read otherwise before the last part was taken.
        """

    def read_where(self, groups: range, columns: Sequence[Field], kept: Kept) -> pa.Table | None:
        """Return columns of the rows of some neighbouring groups for which a condition is true.

        Args:
            groups: positions in `group_rows`.
            columns: as for `read`.
            kept: the condition, on the file's columns.

        Returns:
            None: the format, or something in the file, does not allow it; `read` reads the groups.
        """

    def group_bytes(self, group: int, columns: Sequence[Field]) -> int | None:
        """Return how many bytes the encoded values of columns of a group take, not compressed; None: unknown.

        In memory they take about as much, and more where text is stored in dictionaries.
        """

    def group_bounds(self, field: Field) -> GroupBounds | None:
        """Return smallest and largest value and null count of a column, group by group.

        The values are bounds, not always values that occur: other writers shorten long text. FLOAT and DOUBLE
        have None for both, because files leave NaN out of them. None for everything when the file or the format
        keeps no such numbers for the column, and when there is no such column.

        Raises:
            FormatError: the statistics are damaged.
        """

    def all_zero(self, column: str) -> bool:
        """Return whether the file notes that an integer column is 0 in every row. False: it does not say."""

    def check_values(self) -> None:
        """Refuse a file of another writer with values that cannot be read as they were meant, now or later.

        What the file says of its values is mostly enough. Otherwise they are read.

        Raises:
            UnsupportedError: names the column: times that Arrow cannot hold, or of a calendar or zone that is not told.
        """

    def sums_pages(self) -> bool:
        """Return whether the writer left checksums of the stored values, which every read verifies."""

    def close(self) -> None:
        """Release the reader and the file it was given. Safe to call twice."""


class FileWriter(Protocol):
    """A data file being written."""

    def write(self, table: pa.Table) -> None:
        """Append rows; call any number of times.

        Args:
            table: the columns of the fields in their order, with exactly the types of `schema.arrow.arrow_schema`.

        Raises:
            InvariantError: the table has another schema, or nulls in a column that allows none.
        """

    def close(self) -> None:
        """Write what is buffered and the footer. The sink stays open: its owner makes the bytes durable."""

    def abort(self) -> None:
        """Give the file up: drop what is buffered, without a complaint now or when the writer is collected.

        The bytes in the sink are no data file; its owner drops them.
        """


def format_of(file_name: str) -> str:
    """Return the format a file name ends in: the last extension, or the one before a compression extension.

    `data-1.parquet` and `data-1.zst.parquet` give `parquet`, `data-1.json.gz` gives `json`; the format need not
    be one that can be read. Format: section "directory layout".

    Raises:
        InvalidInputError: the name has no extension.
    """
    parts = file_name.rsplit("/", 1)[-1].lower().split(".")[1:]
    if len(parts) > 1 and parts[-1] in _COMPRESSION_EXTENSIONS:
        parts.pop()
    if not parts or not parts[-1]:
        raise InvalidInputError(f"cannot tell the format of data file '{file_name}': its name has no extension")
    return parts[-1]


def open_reader(
    file: pa.NativeFile | IO[bytes], format: str, path: str, size: int, *, footer_checksum: int | None = None
) -> FileReader:
    """Return a reader of an open data file.

    Args:
        file: open for random reads. The reader closes it; when this call raises, it is still the caller's.
        format: what `format_of` said of the file's name.
        path: for messages; its last part has to be the name under which the file was written, else what the file notes
            of itself is not believed.
        size: bytes of the file as metadata gives them.
        footer_checksum: the CRC-32 of the footer of a Parquet file, if it was noted.

    Raises:
        FormatError: the bytes are no file of this format.
        UnsupportedError: the format is none of `FORMATS`.
    """
    match format.lower():
        case "parquet":
            return ParquetFileReader(file, path, footer_checksum)
        case "orc":
            return OrcFileReader(file, path)
        case "avro":
            return AvroFileReader(file, path, size)
    raise UnsupportedError(
        f"cannot read '{path}': merganser reads data files in {', '.join(FORMATS)}, not {format!r}", path=path
    )


def check_can_hold(format: str, fields: Sequence[Field]) -> None:
    """Refuse columns that files of a format cannot hold, whatever their values, as `open_writer` does.

    Raises:
        UnsupportedError: names the column.
    """
    if format == "avro":
        avro_schema(fields)  # Parquet and ORC hold all columns of the format


@dataclass(frozen=True, slots=True)
class ValueLimits:
    """What files of some formats cannot hold, of types that `check_can_hold` accepts.

    ORC files hold no timestamp outside the years 1677 to 2262; Parquet and Avro hold every value.

    Attributes:
        formats: the formats that a table's options name.
        truncates: whether digits of moments are dropped that their column does not store.
    """

    formats: tuple[str, ...]
    truncates: bool = False

    @property
    def any(self) -> bool:
        """Whether there are values that one of the formats cannot hold."""
        return "orc" in self.formats

    def beyond(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        """Return bool[n], which values a file of one of the formats cannot hold."""
        return beyond_orc(values) if self.any else np.zeros(len(values), np.bool_)

    @property
    def why(self) -> str:
        """Why they cannot, as the rest of a sentence about a value."""
        return (
            "outside the years 1677 to 2262, which are all that timestamps in ORC files hold, and options of the table "
            "name ORC: name parquet in 'file.format', 'file.format.per.level' and 'changelog-file.format'"
        )


def open_writer(
    sink: pa.NativeFile | IO[bytes], format: str, fields: Sequence[Field], options: WriteFormat
) -> FileWriter:
    """Return a writer of a new data file.

    Args:
        sink: open for writing, and left open.
        format: one of `FORMATS`.
        fields: the columns, at least one; their ids are stored where the format has a place for them.
        options: how to lay the file out.

    Raises:
        InvalidInputError: an unknown compression.
        UnsupportedError: the format is none of `FORMATS`, or it cannot hold a column's type.
    """
    match format.lower():
        case "parquet":
            return ParquetFileWriter(sink, fields, options)
        case "orc":
            return OrcFileWriter(sink, fields, options)
        case "avro":
            return AvroFileWriter(sink, fields, options)
    raise UnsupportedError(f"merganser writes data files in {', '.join(FORMATS)}, not {format!r}")
