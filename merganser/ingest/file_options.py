r"""What may be said about files of rows: the layout of CSV files, and how the store that holds the files is reached.

::

    format          (none)     of all files, whatever their names say: parquet, orc, avro, csv, json or arrow
    csv.delimiter   ,          between the fields; '\t' is a tab
    csv.quote       "          around fields; empty: no field is quoted. A quote inside a quoted field is doubled
    csv.escape      (none)     makes the next character a plain one
    csv.header      true       the first row names the columns; false: fields are columns by their position
    csv.encoding    utf-8      any that Python knows
    csv.null        (empty)    the unquoted fields that are null, with commas between them: ',NA' is empty or NA
    csv.binary      base64     what fields of BINARY and BYTES hold: base64, or text
    zero_dates      bad        bad, null: the date 0000-00-00 in CSV and JSON files
    out_of_range    bad        bad, null: dates and times in CSV and JSON files that their type does not have

A quoted field is never null. Keys of a store ('s3.endpoint') are those that catalogs take.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from merganser.errors import InvalidInputError, a_type
from merganser.expr.setting import checked_zone
from merganser.options.registry import did_you_mean
from merganser.parsing.rules import UNITS, Rules
from merganser.values import dataclass

CSV_KEYS: Final = ("delimiter", "quote", "escape", "header", "encoding", "null", "binary")
FORMATS: Final = ("parquet", "orc", "avro", "csv", "json", "arrow")
"""The formats in which files hold rows."""

_FORMAT: Final = "format"
_ODD_TIMES: Final = ("zero_dates", "out_of_range")
_STORES: Final = ("s3.", "gs.", "az.")
_BINARY: Final = ("base64", "text")


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How a CSV file is laid out.

    Attributes:
        delimiter: one character.
        quote: one character, or None.
        escape: one character, or None.
        header: whether the first row names the columns.
        encoding: name of a codec.
        null: unquoted fields that are null.
        base64: whether binary columns hold base64; else their bytes are those of the text.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    encoding: str = "utf-8"
    null: tuple[str, ...] = ("",)
    base64: bool = True


@dataclass(frozen=True, slots=True)
class FileOptions:
    """What a caller said about files of rows.

    Attributes:
        csv: how CSV files are laid out.
        zero_dates, beyond_null: whether such dates and times are null.
        store: options of the store that holds the files; they may hold keys, so no repr shows them.
        form: the format of all files; None: their names say it.
    """

    csv: CsvFormat = CsvFormat()
    store: Mapping[str, str] = field(default_factory=dict, repr=False)
    form: str | None = None
    zero_dates: bool = False
    beyond_null: bool = False


def file_options(options: Mapping[str, Any] | None, *, action: str) -> FileOptions:
    """Return what options say.

    Args:
        options: keys of this module, with texts (or a bool for `csv.header`).
        action: what is being done, as messages begin: "cannot load files into 'db.orders'".

    Raises:
        InvalidInputError: an unknown key, or a value that has no meaning; names it.
    """
    if options is None:
        return FileOptions()
    if not isinstance(options, Mapping):
        raise InvalidInputError(
            f"{action}: options is {a_type(options)}. Give a dictionary, such as {{'csv.null': ',NA'}}."
        )
    known = [_FORMAT, *_ODD_TIMES, *(f"csv.{name}" for name in CSV_KEYS)]
    form: str | None = None
    csv: dict[str, str] = {}
    store: dict[str, str] = {}
    odd = dict.fromkeys(_ODD_TIMES, False)
    for key, value in options.items():
        if key == _FORMAT:
            form = str(value).strip().lower()
            if form not in FORMATS:
                raise _wrong(action, key, value, f"It is {', '.join(map(repr, FORMATS))}.")
        elif key in _ODD_TIMES:
            if value not in ("bad", "null"):
                raise _wrong(action, key, value, "It is 'bad' or 'null'.")
            odd[key] = value == "null"
        elif key in known:
            csv[key] = str(value).lower() if isinstance(value, bool) else value
            if not isinstance(csv[key], str):
                raise _wrong(action, key, value, "Give text.")
        elif isinstance(key, str) and key.startswith(_STORES):
            store[key] = str(value)
        else:
            raise InvalidInputError(
                f"{action}: unknown option {key!r} of files. {did_you_mean(str(key), known)}", option=str(key)
            )
    return FileOptions(_csv_format(csv, action), store, form, odd["zero_dates"], odd["out_of_range"])


def file_rules(
    said: FileOptions, time_zone: str | None, time_unit: Any, columns: Sequence[str], action: str, *, truncates: bool
) -> Rules:
    """Return how texts in files are read.

    Args:
        said: the options of the files.
        time_zone, time_unit: see `Table.load`.
        columns: names of the columns of the table.
        action: what is being done, as messages begin.
        truncates: whether digits are dropped that a TIME or TIMESTAMP column does not hold.

    Raises:
        InvalidInputError: there is no such zone, unit or column.
    """
    for column, unit in time_unit.items() if isinstance(time_unit, Mapping) else [(None, time_unit)]:
        if column is not None and column not in columns:
            raise InvalidInputError(
                f"{action}: time_unit names the column {column!r:.60}, which the table does not have. "
                f"{did_you_mean(str(column), list(columns))}",
                column=str(column),
            )
        if unit not in UNITS and not (unit is None and column is None):
            raise InvalidInputError(
                f"{action}: time_unit is {time_unit!r:.100}. It is one of {', '.join(map(repr, UNITS))}, or a "
                "dictionary of these by column."
            )
    return Rules(
        binary="base64",
        time_unit=time_unit,
        time_zone=None if time_zone is None else checked_zone(time_zone),
        zero_dates=said.zero_dates,
        beyond_null=said.beyond_null,
        files=True,
        truncates=truncates,
    )


def _csv_format(given: Mapping[str, str], action: str) -> CsvFormat:
    default = CsvFormat()
    header = given.get("csv.header", "true").strip().lower()
    if header not in ("true", "false"):
        raise _wrong(action, "csv.header", header, "It is 'true' or 'false'.")
    encoding = given.get("csv.encoding", default.encoding)
    try:
        codecs.lookup(encoding)
    except (LookupError, ValueError):
        raise _wrong(action, "csv.encoding", encoding, "Name one that Python knows, such as 'latin-1'.") from None
    binary = given.get("csv.binary", "base64").strip().lower()
    if binary not in _BINARY:
        raise _wrong(action, "csv.binary", binary, "It is 'base64' or 'text'.")
    delimiter = _character(given, "csv.delimiter", default.delimiter, action)
    if delimiter is None:
        raise _wrong(action, "csv.delimiter", "", "It is one character.")
    made = CsvFormat(
        delimiter,
        _character(given, "csv.quote", default.quote, action),
        _character(given, "csv.escape", default.escape, action),
        header == "true",
        encoding,
        tuple(given["csv.null"].split(",")) if "csv.null" in given else default.null,
        binary == "base64",
    )
    marks = [mark for mark in (made.delimiter, made.quote, made.escape) if mark is not None]
    if len(set(marks)) < len(marks):
        raise InvalidInputError(
            f"{action}: two of 'csv.delimiter', 'csv.quote' and 'csv.escape' are the same character. "
            f"They are {', '.join(map(repr, marks))}."
        )
    return made


def _character(given: Mapping[str, str], key: str, default: str | None, action: str) -> str | None:
    text = given.get(key)
    if text is None:
        return default
    text = "\t" if text == "\\t" else text
    if len(text) > 1 or not text.isascii() or text in ("\n", "\r", "\0"):
        raise _wrong(action, key, text, "It is one ASCII character, and no line break.")
    return text or None


def _wrong(action: str, key: str, value: Any, advice: str) -> InvalidInputError:
    return InvalidInputError(f"{action}: option '{key}' is {value!r:.60}. {advice}", option=key)
