"""What callers may say about change records.

::

    key                       default         values
    tombstone                 by format       ignore, delete: what a record without a value does
    truncate                  bad             bad, ignore: what becomes of a record that empties the source table
    unavailable               bad             bad, keep, null: a value that the source did not send and no old row tells
    unavailable_placeholder   __debezium...   the text that stands for such a value
    missing                   unavailable     unavailable, null: a column that an update of OGG leaves out
    old_rows                  auto            auto, whole, key: what old rows hold
    binary                    base64          base64, base64-url-safe, hex, latin1 (so for canal-json), or by column
    decimal                   text            text, base64, or by column: what text in DECIMAL columns is
    time_unit                 (none)          s, ms, us, ns, or by column: integers in TIME and TIMESTAMP columns
    time_zone                 UTC             zone of wall clocks that become instants, and the other way round
    zero_dates                bad             bad, null: 0000-00-00
    out_of_range              bad             bad, null: dates and times that their type does not have
    database, table           (all)           patterns that the names of the source match as a whole
    metadata                  (none)          columns that are filled from the envelope: {column: name}
    computed                  (none)          columns that are computed from others: {column: expression}
    bad                       keep            keep, fail: whether the first bad record raises an error
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.expr.predicate import Projection
from merganser.expr.setting import Setting, checked_zone
from merganser.expr.text import parse_projection
from merganser.options.registry import did_you_mean
from merganser.parsing.rules import BASE64_UNSAID, UNITS, Rules
from merganser.schema import types as t
from merganser.values import dataclass

FORMATS: Final = (
    "debezium-json", "debezium-json-schema", "debezium-flat", "canal-json", "maxwell-json", "ogg-json", "json",
)  # fmt: skip
_AVRO: Final = ("debezium-avro", "debezium-avro-confluent")
_OTHER_NAMES: Final = {"debezium-flattened": "debezium-flat"}
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "tombstone": ("ignore", "delete"),
    "truncate": ("bad", "ignore"),
    "unavailable": ("bad", "keep", "null"),
    "missing": ("unavailable", "null"),
    "old_rows": ("auto", "whole", "key"),
    "zero_dates": ("bad", "null"),
    "out_of_range": ("bad", "null"),
    "bad": ("keep", "fail"),
}
_BY_COLUMN: Final[Mapping[str, tuple[str, ...]]] = {
    "binary": ("base64", "base64-url-safe", "hex", "latin1"),
    "decimal": ("text", "base64"),
    "time_unit": tuple(UNITS),
}
"""Options that are one value for all columns, or a dictionary of values by column."""
_TEXTS: Final = ("unavailable_placeholder", "time_zone", "database", "table")
_METADATA: Final = (
    "op", "database", "schema", "table", "source_ts", "ingest_ts", "position", "gtid", "transaction",
)  # fmt: skip
COLUMNWISE: Final = ("metadata", "computed", "time_unit", "binary", "decimal")
"""Options that may name columns, in a dictionary."""
PLACEHOLDER: Final = "__debezium_unavailable_value"


@dataclass(frozen=True, slots=True)
class CdcOptions:
    """What a caller said; see the head of the module.

    Attributes:
        rules: the part that reading values needs.
        database, table: patterns that match whole names; None: all.
    """

    format: str
    tombstone: str = "ignore"
    truncate: str = "bad"
    unavailable: str = "bad"
    placeholder: str = PLACEHOLDER
    missing: str = "unavailable"
    old_rows: str = "auto"
    rules: Rules = Rules()
    database: str | None = None
    table: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    computed: Mapping[str, Projection] = field(default_factory=dict)
    fail: bool = False

    @property
    def envelope(self) -> bool:
        """Whether more of the envelope is wanted than the rows."""
        return bool(self.database or self.table or self.metadata)


_OF_OTHERS: Final = dict.fromkeys(
    ("ignore_parse_errors", "ignore_parse_error"),
    "Give dead_letters=, a table for bad records, and the good ones are written.",
)
"""What to write in place of options of other engines."""


def check_names(options: Mapping[str, Any], arguments: Sequence[str] = ()) -> None:
    """Refuse names that are no option of change records.

    Args:
        arguments: names that a call takes besides options.

    Raises:
        InvalidInputError: names the key and what it may have been meant to be.
    """
    known = (*_CHOICES, *_TEXTS, *_BY_COLUMN, "metadata", "computed")
    for option in options:
        if option not in known:
            folded = str(option).rpartition(".")[2].replace("-", "_").lower()
            hint = _OF_OTHERS.get(folded) or did_you_mean(str(option), [*known, *arguments])
            raise InvalidInputError(f"{_ACTION}: unknown option {option!r}. {hint}", option=str(option))


def cdc_options(format_: str, options: Mapping[str, Any], fields: Sequence[t.Field], key: Sequence[str]) -> CdcOptions:
    """Return what options say.

    Args:
        format_: one of FORMATS.
        options: keys of the module's head.
        fields: the columns of the table.
        key: its primary key.

    Raises:
        InvalidInputError: an unknown format or key, or a value without a meaning; names it.
        UnsupportedError: records of this format cannot be read without a registry.
    """
    if format_ in _AVRO:
        raise UnsupportedError(
            f"{_ACTION} of format '{format_}': their schemas lie in a registry, which merganser does not ask. Let the "
            "connector write JSON ('value.converter'), and read 'debezium-json'.",
            format=format_,
        )
    name = _OTHER_NAMES.get(str(format_), str(format_))
    if name not in FORMATS:
        raise InvalidInputError(
            f"{_ACTION}: unknown format {format_!r:.60}. {did_you_mean(str(format_), [*FORMATS, *_OTHER_NAMES])}",
            format=str(format_),
        )
    check_names(options)
    columns = [field.name for field in fields]
    for option, value in options.items():
        if option in _CHOICES and value not in _CHOICES[option]:
            raise _wrong(option, value, f"It is one of {', '.join(map(repr, _CHOICES[option]))}.")
        if option in _TEXTS and not isinstance(value, str):
            raise _wrong(option, value, "Give text.")
    given = dict(options)
    if name == "json" and (found := {"database", "table"} & given.keys()):
        raise _wrong(min(found), given[min(found)], "Records of the format 'json' do not name their table.")
    for option, choices in _BY_COLUMN.items():
        _check_by_column(option, given.get(option), choices, columns)
    unsaid = "latin1" if name == "canal-json" else BASE64_UNSAID
    rules = Rules(
        binary=given.get("binary", unsaid),
        decimal=given.get("decimal", "text"),
        time_unit=given.get("time_unit"),
        time_zone=checked_zone(given.get("time_zone", "UTC")),
        zero_dates=given.get("zero_dates") == "null",
        beyond_null=given.get("out_of_range") == "null",
        binary_else=unsaid,
        days=name.startswith("debezium"),
    )
    return CdcOptions(
        name,
        given.get("tombstone", "delete" if name in ("json", "debezium-flat") else "ignore"),
        given.get("truncate", "bad"),
        given.get("unavailable", "bad"),
        given.get("unavailable_placeholder", PLACEHOLDER),
        given.get("missing", "unavailable"),
        given.get("old_rows", "auto"),
        rules,
        _pattern("database", given.get("database")),
        _pattern("table", given.get("table")),
        _metadata(given.get("metadata", {}), columns, name),
        _computed(given, fields, key),
        given.get("bad") == "fail",
    )


def without_columns(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that name no columns, so that they have a meaning for any table."""
    return {key: value for key, value in options.items() if not isinstance(value, Mapping)}


def name_patterns(options: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the patterns that names of databases and of tables match, among the options of `cdc_options`.

    Raises:
        InvalidInputError: one is no regular expression.
    """
    return _pattern("database", options.get("database")), _pattern("table", options.get("table"))


_ACTION: Final = "cannot read change records"


def _check_by_column(option: str, value: Any, choices: tuple[str, ...], columns: Sequence[str]) -> None:
    for column, choice in value.items() if isinstance(value, Mapping) else [(None, value)]:
        if column is not None and column not in columns:
            raise _unknown_column(option, column, columns)
        if choice not in choices and not (choice is None and column is None):
            raise _wrong(
                option, value, f"It is one of {', '.join(map(repr, choices))}, or a dictionary of these by column."
            )


def _metadata(value: Any, columns: Sequence[str], format_: str) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise _wrong("metadata", value, "Give a dictionary, such as {'changed_at': 'source_ts'}.")
    for column, name in value.items():
        if column not in columns:
            raise _unknown_column("metadata", column, columns)
        if name not in _METADATA:
            raise _wrong("metadata", value, f"{name!r:.60} is none of {', '.join(map(repr, _METADATA))}.")
    if value and format_ == "json":
        raise _wrong("metadata", value, "Records of the format 'json' have no envelope.")
    return dict(value)


def _computed(given: Mapping[str, Any], fields: Sequence[t.Field], key: Sequence[str]) -> Mapping[str, Projection]:
    value = given.get("computed", {})
    if not isinstance(value, Mapping):
        raise _wrong("computed", value, "Give a dictionary, such as {'dt': 'date(created)'}.")
    by_name = {field.name: field for field in fields}
    for column, text in value.items():
        if column not in by_name:
            raise _unknown_column("computed", column, list(by_name))
        if column in given.get("metadata", {}):
            raise _wrong("computed", value, f"Option 'metadata' fills the column '{column}' already.")
        if not isinstance(text, str):
            raise _wrong("computed", value, f"The expression of '{column}' is no text.")
    others = [field for field in fields if field.name not in value]
    if key and all(name in value or name in given.get("metadata", {}) for name in key):
        raise _wrong("computed", value, "No column of the primary key would come from the records.")
    setting = Setting(timezone=given.get("time_zone", "UTC"))
    return {
        column: parse_projection(text, others, setting=setting).assigned_to(
            by_name[column].type.with_nullable(True), setting.zone
        )
        for column, text in value.items()
    }


def _pattern(key: str, value: str | None) -> str | None:
    if value is None:
        return None
    whole = f"^(?:{value})$"
    try:
        re.compile(whole)
        pc.match_substring_regex(pa.array([""]), whole)
    except (re.error, pa.ArrowInvalid) as error:
        raise _wrong(key, value, f"It is no regular expression ({error}).") from None
    return whole


def _unknown_column(key: str, column: Any, columns: Sequence[str]) -> InvalidInputError:
    return InvalidInputError(
        f"{_ACTION}: option '{key}' names the column {column!r:.60}, which the table does not have. "
        f"{did_you_mean(str(column), list(columns))}",
        option=key,
        column=str(column),
    )


def _wrong(key: str, value: Any, advice: str) -> InvalidInputError:
    return InvalidInputError(f"{_ACTION}: option '{key}' is {value!r:.100}. {advice}", option=key)
