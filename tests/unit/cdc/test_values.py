"""Values of change records: those that connectors sent, and those that their documentation names."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.cdc.new_tables import table_told
from merganser.cdc.records import Parsed, parse_records
from merganser.errors import InvalidInputError
from merganser.schema import types as t
from merganser.schema.types_text import parse_type

_CASES = Path(__file__).parents[2] / "debezium" / "cases"


def _recorded(name: str) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in (_CASES / f"{name}.jsonl").read_text().splitlines()]
    return [(line["value"], line["key"]) for line in lines]


def _parsed(records: list[tuple[str, str | None]], schema: dict[str, str], **options: Any) -> Parsed:
    fields = [t.Field(i, name, parse_type(kind)) for i, (name, kind) in enumerate(schema.items())]
    values, keys = (pa.array(part, pa.string()) for part in zip(*records, strict=True))
    return parse_records(values, options.pop("format", "debezium-json"), fields, ("id",), options, keys)


def _one(name: str, i: int, schema: dict[str, str], **options: Any) -> dict[str, Any]:
    found = _parsed([_recorded(name)[i]], schema, **options)
    assert found.rejected.to_pylist() == []
    row: dict[str, Any] = found.rows.to_pylist()[0]
    return row


# what connectors sent


def test_numbers_of_more_than_38_digits_are_text_of_all_their_digits() -> None:
    row = _one("03_numeric40_precise", 0, {"id": "BIGINT", "n40": "STRING", "nf": "STRING", "n2": "STRING"})
    assert row == {"id": 463, "n40": "-" + "9" * 35 + ".99999", "nf": "-50356698.1932342", "n2": "-9999999999.99"}
    bad = _parsed(_recorded("03_numeric40_precise")[:1], {"id": "BIGINT", "n40": "DECIMAL(38, 5)"}).rejected
    assert bad["reason"].to_pylist() == [
        f"bad-value: column n40: '4pzWDjyjW0BURgqfAAAAAAE=' is the number -{'9' * 35}.99999 of 40 digits, which is no "
        "DECIMAL(38, 5)"
    ]


@pytest.mark.parametrize("decimal", ["text", "base64"])
def test_an_object_of_a_scale_and_a_value_is_a_decimal_without_a_schema(decimal: str) -> None:
    def parsed(kind: str, scale: Any = 3) -> Parsed:
        after = {"id": 1, "v": {"scale": scale, "value": "Bw=="}}
        return _parsed([(json.dumps({"op": "c", "after": after}), None)], {"id": "INT", "v": kind}, decimal=decimal)

    assert str(parsed("DECIMAL(10, 3)").rows["v"][0]) == "0.007"
    assert parsed("STRING").rows["v"].to_pylist() == ['{"scale":3,"value":"Bw=="}']
    (reason,) = parsed("DECIMAL(10, 2)").rejected["reason"].to_pylist()
    assert reason.endswith("is the number 0.007 of 1 digits, which is no DECIMAL(10, 2)")
    (reason,) = parsed("DECIMAL(10, 3)", "x").rejected["reason"].to_pylist()
    assert reason.endswith('\'{"scale":"x","value":"Bw=="}\' is no DECIMAL(10, 3)')


def _told(name: str) -> dict[str, str]:
    value, key = _recorded(name)[0]
    return {column: str(kind) for column, kind in table_told("debezium-json", value, key).columns.items()}


def test_a_table_made_of_a_record_takes_it_with_all_digits_of_its_times() -> None:
    columns = _told("04_microtime_auto_table")
    assert (columns["tm"], columns["tm3"], columns["n40"]) == ("STRING", "TIME(3)", "STRING")
    assert _one("04_microtime_auto_table", 0, columns)["tm"] == "23:59:59.999999"


def test_iso_texts_without_a_schema_fit_dates_times_and_timestamps_alike() -> None:
    schema = {
        "id": "BIGINT", "dt": "DATE", "tm3": "TIME(3)", "tmtz": "TIME(3)", "ts": "TIMESTAMP(6)",
        "tstz": "TIMESTAMP(6) WITH LOCAL TIME ZONE", "da": "ARRAY<DATE>",
    }  # fmt: skip
    row = _one("05_isostring_time_no_schema", 0, schema)
    assert [str(row[name]) for name in ("dt", "tm3", "tmtz", "ts", "tstz")] == [
        "1969-12-31", "00:00:00.998000", "05:00:00", "1700-03-01 00:00:00.000001", "1972-05-31 03:57:56.001000+00:00",
    ]  # fmt: skip


@pytest.mark.parametrize("format", ["json", "debezium-json"])
@pytest.mark.parametrize(
    ("text", "zone", "shown"),
    [
        ("2026-01-01T00:00:00+02:00", "UTC", None),
        ("2026-01-01T02:00:00+02:00", "UTC", "2026-01-01"),
        ("2025-12-31T19:00:00-05", "UTC", "2026-01-01"),
        ("2026-01-01T00:00:00+01:00", "Europe/Berlin", "2026-01-01"),
        ("2025-12-31T23:00:00Z", "Europe/Berlin", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "Europe/Berlin", None),
        ("2026-01-01+02:00", "Europe/Berlin", "2026-01-01"),
    ],
)
def test_an_instant_is_a_date_if_it_is_midnight_in_the_time_zone(
    format: str, text: str, zone: str, shown: str | None
) -> None:
    row = {"id": 1, "d": text}
    record = json.dumps(row if format == "json" else {"op": "c", "after": row})
    found = _parsed([(record, None)], {"id": "INT", "d": "DATE"}, format=format, time_zone=zone)
    if shown is None:
        (reason,) = found.rejected["reason"].to_pylist()
        assert reason == (
            f"bad-value: column d: '{text}' is not midnight in {zone}, as DATE needs. Set time_zone to the zone of its "
            "dates"
        )
    else:
        assert found.rows["d"].cast(pa.string()).to_pylist() == [shown]


@pytest.mark.parametrize(
    ("name", "count", "kind", "shown"),
    [
        ("io.debezium.time.Timestamp", 1767225600000, "DATE", "2026-01-01"),
        ("io.debezium.time.MicroTimestamp", 1767225600000000, "DATE", "2026-01-01"),
        ("io.debezium.time.Timestamp", 20454, "DATE", None),  # 20 seconds
        ("io.debezium.time.Time", 0, "DATE", None),
        ("io.debezium.time.Time", 1000, "TIMESTAMP(3)", None),
        ("io.debezium.time.Date", 20454, "DATE", "2026-01-01"),
    ],
)
def test_integers_in_dates_and_timestamps_count_what_their_schema_says(
    name: str, count: int, kind: str, shown: str | None
) -> None:
    after = {"field": "after", "type": "struct", "fields": [{"field": "d", "type": "int64", "name": name}]}
    record = {"schema": {"fields": [after]}, "payload": {"op": "c", "after": {"id": 1, "d": count}}}
    found = _parsed([(json.dumps(record), None)], {"id": "INT", "d": kind})
    assert found.rows["d"].cast(pa.string()).to_pylist() == ([] if shown is None else [shown])
    assert [reason.split(": ", 2)[2] for reason in found.rejected["reason"].to_pylist()] == (
        [f"'{count}' is no {kind}"] if shown is None else []
    )


@pytest.mark.parametrize("name", [None, "IsoTimestamp", "ZonedTimestamp", "IsoTime", "IsoDate"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_text_columns_hold_iso_texts_exactly_as_they_are_sent(name: str | None, zone: str) -> None:
    for text in ("2024-07-03T09:46:00.120Z", "2024-07-03T09:46Z", "18:45:54.1234Z", "2026-01-01Z", "18:45:54+02:00"):
        record: dict[str, Any] = {"op": "c", "after": {"id": 1, "s": text}}
        if name is not None:
            of_row = [{"field": "s", "type": "string", "name": f"io.debezium.time.{name}"}]
            after = {"field": "after", "type": "struct", "fields": of_row}
            record = {"schema": {"fields": [after]}, "payload": record}
        found = _parsed([(json.dumps(record), None)], {"id": "INT", "s": "STRING"}, time_zone=zone)
        assert found.rows["s"].to_pylist() == [text]


def test_decimals_and_bytes_have_an_encoding_by_column() -> None:
    schema = {"id": "BYTES", "n2": "DECIMAL(12, 2)", "n65": "STRING", "bu": "DECIMAL(20, 0)", "bl": "BYTES"}
    options = {"decimal": {"bu": "base64"}, "binary": {"bl": "hex"}}
    row = _one("10_mixed_decimal_encodings", 0, schema, **options)
    assert (row["id"], row["n2"], row["bu"]) == (b"\x01\x1c", Decimal("-1.28"), 2**64 - 1)
    assert row["bl"] == bytes(range(256))
    with pytest.raises(InvalidInputError, match=r"option 'decimal' names the column 'x'"):
        _one("10_mixed_decimal_encodings", 0, schema, decimal={"x": "base64"})
    with pytest.raises(InvalidInputError, match=r"or a dictionary of these by column"):
        _one("10_mixed_decimal_encodings", 0, schema, decimal={"bu": "hex"})


def test_hexadecimal_text_is_not_read_as_base64_unless_the_caller_says_so() -> None:
    records, schema = _recorded("11_hex_and_bits"), {"id": "BIGINT", "ba": "BYTES"}
    found = _parsed(records, schema)
    assert found.rows.num_rows == 0
    assert [reason.split("' ", 1)[1] for reason in found.rejected["reason"].to_pylist()] == [
        "is read as base64 and looks like hexadecimal. Set binary='hex', or binary='base64' if it is base64",
    ] * 2
    assert _parsed(records, schema, binary="hex").rows["ba"].to_pylist() == [
        bytes.fromhex(text) for text in ("c800c5ed6ed7e1a4031ef348ac0f1448a9fd", "0731758ad9ad015c33e001")
    ]
    assert _parsed(records[:1], schema, binary="base64").rows.num_rows == 1


@pytest.mark.parametrize(
    ("name", "value", "of_schema", "kind", "shown"),
    [
        ("Bits", "Bw0=", {"length": "12"}, "BYTES", b"\x0d\x07"),
        ("Bits", "Bw==", {"length": "12"}, "BYTES", b"\x00\x07"),
        ("Bits", "", {"length": "20"}, "BYTES", b"\0\0\0"),
        ("Bits", "Bw0=", {"length": "12"}, "INT", 0x0D07),
        ("Bits", "Bw0=", {"length": str(2**31 - 1)}, "BYTES", b"\x0d\x07"),  # `bit varying` without a length
        ("Bits", "Bw0=", {"length": "83886080"}, "BYTES", b"\x0d\x07"),
        ("Enum", "with\\,comma", {"allowed": "sad,with\\,comma"}, "STRING", "with,comma"),
        ("Enum", "back\\,slash", {"allowed": "sad"}, "STRING", "back\\,slash"),
    ],
)
def test_bits_keep_their_zero_bytes_and_labels_their_commas(
    name: str, value: str, of_schema: dict[str, str], kind: str, shown: Any
) -> None:
    field = {"field": "v", "type": "bytes", "name": f"io.debezium.data.{name}", "parameters": of_schema}
    assert _value_of(field, value, kind) == shown


def _value_of(field: dict[str, Any], value: Any, kind: str, **options: Any) -> Any:
    found = _with_schema(field, value, kind, **options)
    assert found.rejected["reason"].to_pylist() == []
    return found.rows["v"].to_pylist()[0]


def _with_schema(field: dict[str, Any], value: Any, kind: str, **options: Any) -> Parsed:
    row = {"type": "struct", "field": "after", "fields": [{"field": "id", "type": "int32"}, {**field, "field": "v"}]}
    text = json.dumps({"schema": {"fields": [row]}, "payload": {"op": "c", "after": {"id": 1, "v": value}}})
    return _parsed([(text, None)], {"id": "INT", "v": kind}, **options)


def test_infinite_times_are_bad_or_null() -> None:
    schema = {"id": "BIGINT", "tstz": "TIMESTAMP(6) WITH LOCAL TIME ZONE"}
    bad = _parsed(_recorded("12_infinity"), schema).rejected["reason"].to_pylist()
    assert bad == [
        f"bad-value: column tstz: '{word}' is beyond TIMESTAMP(6) WITH LOCAL TIME ZONE, which holds 0001-01-01 to "
        "9999-12-31. Set out_of_range='null' to write null"
        for word in ("infinity", "-infinity")
    ]
    assert _parsed(_recorded("12_infinity"), schema, out_of_range="null").rows["tstz"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("kind", "value", "logical"),
    [
        ("DATE", "infinity", None),
        ("DATE", "10000-01-01", None),
        ("DATE", "+12026-01-01", None),
        ("DATE", "0044-03-15 BC", None),
        ("DATE", "-0044-03-15", None),
        ("DATE", "0000-03-15", None),
        ("DATE", 2147483647, "io.debezium.time.Date"),
        ("DATE", -2147483648, "io.debezium.time.Date"),
        ("TIME(3)", "24:00:00", None),
        ("TIME(3)", "-00:30:00", None),
        ("TIME(3)", "838:59:59.5", None),
        ("TIME(3)", 86_400_000_000, "io.debezium.time.MicroTime"),
        ("TIME(3)", -1_000, "io.debezium.time.MicroTime"),
        ("TIMESTAMP(3)", "-infinity", None),
        ("TIMESTAMP(6)", "10000-01-01 00:00:00", None),
        ("TIMESTAMP(6)", "9999-12-31T23:59:59-01:00", None),
        ("TIMESTAMP(6)", 9223372036825200000, "io.debezium.time.MicroTimestamp"),
        ("TIMESTAMP(6)", -9223372036832400000, "io.debezium.time.MicroTimestamp"),
        ("TIMESTAMP(9)", 9223372036854775807, "io.debezium.time.Timestamp"),
        ("TIMESTAMP(9)", "9999-12-31 00:00:00", None),
        ("DECIMAL(10, 2)", "NaN", None),
        ("DECIMAL(10, 2)", "-Infinity", None),
    ],
)
def test_values_that_a_type_does_not_have_are_bad_by_name_or_null(kind: str, value: Any, logical: str | None) -> None:
    field = {"type": "int64" if isinstance(value, int) else "string", "name": logical}
    bad = _with_schema(field, value, kind).rejected["reason"].to_pylist()
    assert [str(value) in reason and "Set out_of_range='null'" in reason for reason in bad] == [True]
    assert _value_of(field, value, kind, out_of_range="null") is None


def test_an_integer_that_became_larger_than_its_column_says_how_to_widen_it() -> None:
    found = _parsed(_recorded("13_widened_int"), {"id": "INT", "a": "INT", "b": "STRING"})
    assert (
        found.rejected["reason"].to_pylist()
        == [
            "bad-value: column a: '1099511627776' does not fit INT. If the column of the source became wider, "
            "widen this one with retype_column"
        ]
        * 2
    )
    assert _parsed(_recorded("13_widened_int"), {"id": "INT", "a": "BIGINT"}).rows["a"].to_pylist() == [1 << 40] * 2


def test_a_column_becomes_wider_with_its_source_where_the_table_says_so(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("d")
    options = {"write.merge-schema": "true", "write.merge-schema.type-widening": "true", "bucket": "1"}
    table = catalog.create_table("d.t", {"id": "INT", "a": "INT"}, primary_key=["id"], options=options)
    values, keys = (list(part) for part in zip(*_recorded("13_widened_int"), strict=True))
    table.write_changes(values, "debezium-json", keys=keys)
    assert catalog.table("d.t").read(columns=["id", "a"]).to_pylist() == [
        {"id": 1145, "a": 1 << 40}, {"id": 1152, "a": 1 << 40},
    ]  # fmt: skip


# what the documentation of connectors names

_TIME, _DATA, _CONNECT = "io.debezium.time.", "io.debezium.data.", "org.apache.kafka.connect.data."
_DOCUMENTED: list[tuple[str, str, Any, dict[str, Any], str, Any]] = [
    # SQL Server
    ("int16", "", 255, {}, "SMALLINT", 255),
    (
        "bytes",
        _CONNECT + "Decimal",
        "AYag",
        {"scale": "4", "connect.decimal.precision": "19"},
        "DECIMAL(19, 4)",
        "10.0000",
    ),
    ("int64", _TIME + "NanoTime", 45296123456700, {}, "STRING", "12:34:56.123456700"),
    ("int32", _TIME + "Time", 45296123, {}, "TIME(3)", "12:34:56.123000"),
    ("int64", _TIME + "NanoTimestamp", 1714564800123456700, {}, "TIMESTAMP(9)", "2024-05-01 12:00:00.123456700"),
    (
        "string",
        _TIME + "ZonedTimestamp",
        "2024-05-01T14:00:00.1234567+02:00",
        {},
        "TIMESTAMP(9) WITH LOCAL TIME ZONE",
        "2024-05-01 12:00:00.123456700+00:00",
    ),
    ("string", _DATA + "Xml", "<a/>", {}, "STRING", "<a/>"),
    # Oracle
    ("struct", _DATA + "VariableScaleDecimal", {"scale": -2, "value": "AQ=="}, {}, "STRING", "100"),
    ("struct", _DATA + "VariableScaleDecimal", {"scale": 130, "value": "/w=="}, {}, "STRING", "-0." + "0" * 129 + "1"),
    ("bytes", _CONNECT + "Decimal", "AQ==", {"scale": "-3", "connect.decimal.precision": "5"}, "DECIMAL(8, 0)", "1000"),
    ("int64", _TIME + "Timestamp", 253402300799000, {}, "TIMESTAMP(3)", "9999-12-31 23:59:59"),
    ("int64", _TIME + "MicroDuration", -37091106000000, {}, "BIGINT", "-37091106000000"),
    ("string", _TIME + "Interval", "P-1Y-2M3DT0H0M0S", {}, "STRING", "P-1Y-2M3DT0H0M0S"),
    # MySQL and MariaDB
    ("int64", _TIME + "MicroTime", -3020399000000, {}, "STRING", "-838:59:59.000000"),
    ("int32", _TIME + "Year", 1901, {}, "INT", "1901"),
    ("string", _DATA + "EnumSet", "a,c d", {"allowed": "a,b,c d"}, "STRING", "a,c d"),
    ("bytes", _CONNECT + "Decimal", "AP//////////", {"scale": "0"}, "DECIMAL(38, 0)", str(2**64 - 1)),
    ("bytes", _DATA + "Bits", "/////////38=", {"length": "64"}, "BYTES", str(b"\x7f" + b"\xff" * 7)),
    ("struct", _DATA + "geometry.Geometry", {"wkb": "AQ==", "srid": 4326}, {}, "BYTES", str(b"\x01")),
    # PostgreSQL
    ("string", _TIME + "ZonedTime", "05:00:00Z", {}, "STRING", "05:00:00Z"),
    ("string", _DATA + "Ltree", "a.b", {}, "STRING", "a.b"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "logical", "value", "parameters", "told", "shown"), _DOCUMENTED)
def test_documented_types_of_connectors_make_columns_that_take_their_values(
    kind: str, logical: str, value: Any, parameters: dict[str, str], told: str, shown: Any
) -> None:
    inner = [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}]
    field = {"field": "v", "type": kind, "name": logical, "parameters": parameters, "fields": inner}
    row = {"type": "struct", "field": "after", "fields": [{"field": "id", "type": "int32"}, field]}
    source = {"type": "struct", "field": "source", "name": "io.debezium.connector.sqlserver.Source"}
    schema = {"fields": [row, *([source] if told.startswith("TIMESTAMP(9)") else [])]}
    text = json.dumps({"schema": schema, "payload": {"op": "c", "after": {"id": 1, "v": value}}})
    columns = table_told("debezium-json", text, '{"id": 1}').columns
    assert str(columns["v"]) == told
    found = _parsed([(text, None)], {"id": "INT", "v": told})
    assert found.rejected["reason"].to_pylist() == []
    column = found.rows["v"]
    if told.startswith("TIMESTAMP(9)"):
        column = column.cast(pa.string())
        shown = shown.replace("+00:00", "Z")
    assert str(column.to_pylist()[0]) == str(shown)


def test_a_map_whose_keys_are_numbers_is_a_list_of_pairs() -> None:
    field = {"type": "map", "keys": {"type": "int16"}, "values": {"type": "double"}}
    assert _value_of(field, [[1, 0.5], [7, None]], "MAP<SMALLINT, DOUBLE>") == [(1, 0.5), (7, None)]
    for wrong in ([[1]], [1], [{"key": 1, "value": 2}], [[None, 1.0]]):
        assert _with_schema(field, wrong, "MAP<SMALLINT, DOUBLE>").rejected.num_rows == 1


@pytest.mark.parametrize("size", [1, 15, 16, 17, 40, 64, 65, 3000])
def test_integers_of_any_length_keep_their_digits(size: int) -> None:
    numbers = [(1 << 8 * size - 1) - 1, -(1 << 8 * size - 1), (1 << 8 * size - 2) + 37]
    for number in numbers:
        text = base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()
        field = {"type": "bytes", "name": _CONNECT + "Decimal", "parameters": {"scale": "0"}}
        assert _value_of(field, text, "STRING") == str(Decimal(number))
