"""Random change records, some of them damaged, against the oracle that reads them one by one."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.parsing import json_scan
from merganser.schema import types as t
from merganser.schema.row_kind import SYMBOLS
from merganser.schema.table_schema import TableSchema
from merganser.schema.types_text import parse_type
from tests.oracle.cdc import PLACEHOLDER, Bad, Target, rows_of

NAMES = ("id", "Id", "na.me", 'quo"te', "größe", "東京", "with space", "op", "data", "back\\slash", "a/b", "x")
TYPES = (
    "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(38, 10)", "DECIMAL(20, 0)",
    "BOOLEAN", "STRING", "VARCHAR(3)", "CHAR(2)", "BYTES", "VARBINARY(3)", "DATE", "TIME(3)", "TIME(0)",
    "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(0)", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "ARRAY<INT>", "ARRAY<STRING>",
    "MAP<STRING, INT>", "ROW<a INT, b ARRAY<STRING>>", "ARRAY<INT NOT NULL>", "INT NOT NULL",
)  # fmt: skip
TEXTS = (
    "", "a", "abcd", "äöü", "東京🚲", "null", "true", "1", "-7", "+5", "007", "7.0", "1e1", "1.5", ".5", "5.",
    "1e400", "NaN",
    "Infinity", "9223372036854775807", "9223372036854775808", "1" * 40, "0.1234567890", "12345678.90", "1e-9",
    "0x1F", " 1",
    "2024-05-01", "2024-02-30", "2024-05-01 10:30:00", "2024-05-01T10:30:00.250", "2024-05-01T10:30:00.250001Z",
    "2024-05-01:10:30:00", "2024-05-01 10:30:00+02:00", "2024-03-31 02:30:00", "2024-10-27 02:30:00", "0000-00-00",
    "0000-00-00 00:00:00", "2024-05-01 00:00:00", "2024-05-01Z", "10:30:00", "10:30:00.25", "25:00:00", "-12:00:00",
    "10:30:00Z", "1969-12-31 23:59:59.999999", "9999-12-31 23:59:59", "AP8Q", "AP8Q=", "b2s=", "ff00", "ÿ\x00", "a,b",
    "[1,2]", '["p", null]', '{"a":1}', '{"k":2, "k":3}', "[1,", "{}", "[]", 'q"uo\\te\n\t',
    "2024-05-01T10:30:00.1234567891",
    "2024-05-01T10:30Z", "2024-05-01 10:30:00 +02:00", "2024-05-01+02:00", "2024-05-01 02:00:00+02:00", " 10:30 ",
    "10:30:00+02:00", "infinity", "-infinity", "10000-01-01", "0000-05-01", "0044-03-15 BC", "24:00:00", "838:59:59",
    "TRUE", " false ", "7 ", "nan", "+INF", "deadbeefdeadbeef", "1714559400000", "0001-01-01T00:00:00+02:00",
    "9999-12-31T23:59:59Z", "[[1,2]]",
    PLACEHOLDER, "2024-05-01 10:30", "\u007f", "a" * 30, "1E+2", "00000000000000000001.50",
)  # fmt: skip
NUMBERS = (
    "0", "-0", "1", "7", "-128", "128", "32768", "2147483648", "9007199254740993", "9223372036854775807",
    "-9223372036854775808", "9223372036854775808", "18446744073709551615", "1" * 39, "7.0", "7.5", "1e1",
    "1E-1", "1e400",
    "-1e400", "0.1", "19844", "37800000", "1714559400000", "1714559400250001", "-1", "12.345", "99999999.99",
    "123456789.01",
    "1e37", "1.10", "0e99999", "1e-99999", "100000000000000000000000000000000000000", "3.4e38", "3.5e38",
)  # fmt: skip
NESTED = (
    "[]", "[1,2]", "[ 1 , null ]", '["a","b,c"]', "{}", '{"k":1}', '{"a":1,"b":["x"]}', '{"a": "2", "b": null}',
    '{"b":["\\u00e9\\"", 1.0]}', '[[1]]', '{"k":1,"k":2}', f'["{PLACEHOLDER}"]', f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}',
    '["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]', '[ "\\ud800" ]', '{"a":3,"c":{"d":[{}]}}',
)  # fmt: skip
FITTING = {
    "TINYINT": ["1", '"2"', "-7"], "SMALLINT": ["300"], "INT": ["70000", '"5"'], "BIGINT": ["9007199254740993"],
    "FLOAT": ["0.5", "1"], "DOUBLE": ["0.1", '"2.5"'], "DECIMAL(10, 2)": ['"9.90"', "5", "1.5"],
    "DECIMAL(38, 10)": ["1.25"], "DECIMAL(20, 0)": ["18446744073709551615"], "BOOLEAN": ["true", "0"],
    "STRING": ['"text"', '"\\ud83d\\ude80"', '"com,ma: [x]"'], "VARCHAR(3)": ['"abc"'], "CHAR(2)": ['"äö"'],
    "BYTES": ['""', '"b2s="'], "VARBINARY(3)": ['""'], "DATE": ['"2024-05-01"'], "TIME(3)": ['"10:30:00.25"'],
    "TIME(0)": ['"10:30:00"'], "TIMESTAMP(3)": ['"2024-05-01 10:30:00"'],
    "TIMESTAMP(6)": ['"2024-05-01T10:30:00.000001"'], "TIMESTAMP(0)": ['"2024-05-01 10:30:00"'],
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": ['"2024-05-01T10:30:00Z"', '"2024-10-27 02:30:00"'],
    "ARRAY<INT>": ["[1, null]", "[]"], "ARRAY<STRING>": ['["a", "b"]'], "MAP<STRING, INT>": ['{"k": 1}', "{}"],
    "ROW<a INT, b ARRAY<STRING>>": ['{"b": ["x"], "a": 1}'], "ARRAY<INT NOT NULL>": ["[1]"], "INT NOT NULL": ["3"],
}  # fmt: skip
FORMATS = (
    "debezium-json", "debezium-json", "debezium-json-schema", "debezium-flat", "canal-json", "maxwell-json",
    "ogg-json", "json",
)  # fmt: skip


class Drawn:
    """A table, options, and records for them."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        self.format = draw.choice(FORMATS)
        names = draw.sample(NAMES, draw.randrange(2, 8))
        kinds = [draw.choice(TYPES) for _ in names]
        self.key = tuple(draw.sample(names, draw.choice([0, 1, 1, 1, 2])))
        for name in self.key:
            kinds[names.index(name)] = draw.choice(["BIGINT", "INT", "STRING", "DECIMAL(10, 2)", "DATE"])
        self.texts = dict(zip(names, kinds, strict=True))
        fields = []
        for i, (name, text) in enumerate(self.texts.items()):
            kind = parse_type(text)
            fields.append(t.Field(i, name, kind.with_nullable(kind.nullable and name not in self.key)))
        self.fields = tuple(fields)
        self.options: dict[str, Any] = {}
        for option, values in (
            ("tombstone", ("ignore", "delete")),
            ("truncate", ("bad", "ignore")),
            ("unavailable", ("bad", "null")),
            ("missing", ("unavailable", "null")),
            ("binary", ("base64", "base64-url-safe", "hex", "latin1", {names[0]: "hex"})),
            ("decimal", ("text", "base64", {names[0]: "base64"})),
            ("time_unit", ("ms", "us", {names[0]: "s"})),
            ("time_zone", ("Europe/Berlin", "Asia/Shanghai", "+05:30")),
            ("zero_dates", ("bad", "null")),
            ("out_of_range", ("bad", "null")),
        ):
            if draw.random() < 0.25:
                self.options[option] = draw.choice(values)
        self.bad = draw.choice([0.0, 0.02, 0.2])
        """How likely a value is of any kind."""

    def target(self) -> Target:
        defaults: dict[str, Any] = {
            **({"binary": "latin1"} if self.format == "canal-json" else {}),
            "days": self.format.startswith("debezium"),
            "time_zone": "UTC",
        }
        zone = {"+05:30": "Asia/Kolkata"}.get(self.options.get("time_zone", ""), self.options.get("time_zone", "UTC"))
        return Target(self.format, self.fields, self.key, {**defaults, **self.options, "time_zone": zone})

    def table(self) -> Any:
        schema = TableSchema(0, self.fields, len(self.fields), primary_keys=self.key)
        return SimpleNamespace(schema=schema, primary_key=self.key)

    def value(self, name: str) -> str:
        draw = self.draw
        if draw.random() < 0.07:
            return "null"
        if draw.random() < self.bad:
            return draw.choice(
                [self.text(draw.choice(TEXTS)), draw.choice(NUMBERS), draw.choice(NESTED), "true", '"\\udc00"']
            )
        return self.text(PLACEHOLDER) if draw.random() < 0.01 else draw.choice(FITTING[self.texts[name]])

    def key_value(self, name: str) -> str:
        fitting = {
            "BIGINT": '"1"', "INT": "1", "STRING": '"k"', "DECIMAL(10, 2)": '"1.0"', "DATE": '"2024-05-01"',
        }  # fmt: skip
        others = {
            "BIGINT": "2", "INT": '"1"', "STRING": '"l"', "DECIMAL(10, 2)": "1", "DATE": '"2024-05-02"',
        }  # fmt: skip
        return self.draw.choice([fitting, others])[self.texts[name]]

    def text(self, value: str) -> str:
        return json.dumps(value, ensure_ascii=self.draw.random() < 0.3)

    def image(self) -> str:
        draw = self.draw
        if draw.random() < 0.02:
            return draw.choice(["[]", '"x"', "1", "true"])
        members = []
        for name in draw.sample(list(self.texts), len(self.texts)):
            if draw.random() < 0.92:
                value = self.key_value(name) if name in self.key and draw.random() < 0.9 else self.value(name)
                members.append((name, value))
            if self.format == "ogg-json" and draw.random() < 0.1:
                members.append((f"{name}_isMissing", draw.choice(["true", "false", '"true"', "null"])))
        if draw.random() < 0.2:
            members.append(("extra", draw.choice(NESTED)))
        if members and draw.random() < 0.05:
            members.append(draw.choice(members))
        return self.object(members)

    def object(self, members: list[tuple[str, str]]) -> str:
        colon, comma = self.draw.choice([(":", ","), (":", ","), (": ", ", "), (" :\n", "\t, ")])
        return "{" + comma.join(f"{self.text(name)}{colon}{value}" for name, value in members) + "}"

    def maybe(self, text: str, likely: float = 0.85) -> list[str]:
        return [text] if self.draw.random() < likely else self.draw.choice([[], ["null"]])

    def members(self, **given: list[str]) -> str:
        found = [(name, values[0]) for name, values in given.items() if values]
        self.draw.shuffle(found)
        return self.object(found)

    def record(self) -> str | None:
        draw = self.draw
        if draw.random() < 0.04:
            return draw.choice(
                [None, "null", "", "  ", "[]", "12", '{"schema":null,"payload":null}', "{}", '{"ts_ms":1}']
            )
        match self.format:
            case "debezium-json" | "debezium-json-schema":
                op = draw.choice(["c", "r", "u", "u", "u", "d", "d", "t", "m", "x", ""])
                likely = {"c": 0.1, "r": 0.1, "d": 0.9}.get(op, 0.8)
                made = self.members(
                    before=self.maybe(self.image(), likely),
                    after=self.maybe(self.image(), 0.05 if op == "d" else 0.95),
                    op=self.maybe(self.text(op), 0.97),
                    source=["{}"],
                    ts_ms=["1714564800456"],
                )
                if self.format == "debezium-json-schema" or draw.random() < 0.2:
                    made = self.members(schema=self.maybe('{"type":"struct"}'), payload=self.maybe(made, 0.97))
            case "debezium-flat":
                made = self.image()
                if made.startswith("{") and len(made) > 2 and draw.random() < 0.6:
                    marks = [
                        ("__deleted", draw.choice(['"true"', '"false"', "true", "null", '"x"'])),
                        ("__op", draw.choice(['"c"', '"u"', '"d"', '"t"', '"q"', "1", "null"])),
                    ]
                    made = made[:-1] + "," + self.object(draw.sample(marks, draw.randrange(1, 3)))[1:]
                if draw.random() < 0.2:
                    made = self.members(schema=["null"], payload=[made])
            case "canal-json":
                rows = draw.randrange(4)
                olds = rows if draw.random() < 0.95 else draw.randrange(4)
                made = self.members(
                    data=self.maybe("[" + ",".join(self.image() for _ in range(rows)) + "]", 0.93),
                    old=self.maybe(self.olds(olds), 0.6),
                    type=self.maybe(
                        self.text(draw.choice(["INSERT", "UPDATE", "UPDATE", "DELETE", "TRUNCATE", "ALTER", "X"])), 0.97
                    ),
                    isDdl=["true" if draw.random() < 0.03 else "false"],
                )
            case "maxwell-json":
                kind = draw.choice(["insert", "update", "update", "delete", "bootstrap-start", "table-alter", "x"])
                made = self.members(
                    data=self.maybe(self.image(), 0.95),
                    old=self.maybe(self.some(), 0.7 if kind == "update" else 0.05),
                    type=self.maybe(self.text(kind), 0.97),
                )
            case "ogg-json":
                op = draw.choice(["I", "U", "U", "D", "T", "X"])
                made = self.members(
                    before=self.maybe(self.image(), 0.1 if op == "I" else 0.9),
                    after=self.maybe(self.image(), 0.1 if op == "D" else 0.95),
                    op_type=self.maybe(self.text(op), 0.97),
                    table=['"S.T"'],
                )
            case _:
                made = self.image()
        if draw.random() < 0.04:
            at = draw.randrange(len(made) + 1)
            made = draw.choice(
                [made[:at], made[:at] + draw.choice('"\\{}[],:x\x1e\x01') + made[at:], made[:at] + made[at + 1 :]]
            )
        return made

    def olds(self, count: int) -> str:
        return "[" + ", ".join(self.some() for _ in range(count)) + "]"

    def some(self) -> str:
        """Return some columns, as `old` of Canal and Maxwell has them."""
        if self.draw.random() < 0.03:
            return self.draw.choice(["null", "1"])
        names = [name for name in self.texts if self.draw.random() < 0.3]
        return self.object([(n, self.key_value(n) if n in self.key else self.value(n)) for n in names])

    def message_key(self) -> str | None:
        draw = self.draw
        prefix = "pk." if self.format == "maxwell-json" else ""
        if not self.key or draw.random() < 0.2:
            return draw.choice([None, "not json", "null", "{}"])
        made = self.object([(prefix + name, self.key_value(name)) for name in self.key if draw.random() < 0.95])
        if draw.random() < 0.2:
            made = self.key_value(self.key[0])
        return self.members(schema=["null"], payload=[made]) if draw.random() < 0.2 else made


def as_py(scalar: pa.Scalar) -> Any:
    """Return a value as Python has it, or None for a date that Python does not know."""
    try:
        return scalar.as_py()
    except OverflowError:
        return None


def plain(value: Any) -> Any:
    """Return a value so that equal means equal: no NaN, no -0.0, maps without order."""
    if isinstance(value, float):
        return ("float", "NaN" if math.isnan(value) else value.hex())
    if isinstance(value, list) and value and all(isinstance(part, tuple) for part in value):
        return {name: plain(part) for name, part in value}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    return value


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("seed", range(40))
def test_random_records_give_what_the_oracle_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Drawn(seed)
    monkeypatch.setattr(json_scan, "_BLOCK_BYTES", drawn.draw.choice([500, 1 << 18]))
    records, keys = ([make() for _ in range(150)] for make in (drawn.record, drawn.message_key))
    found = mg.cdc.parse(pa.array(records, pa.string()), drawn.format, drawn.table(), keys=keys, **drawn.options)
    rows: dict[int, list[Any]] = {}
    columns = [[as_py(scalar) for scalar in column] for column in found.rows.columns]
    for i, (record, kind) in enumerate(zip(found.record.to_pylist(), found.kinds.to_pylist(), strict=True)):
        rows.setdefault(record, []).append((SYMBOLS[kind], [plain(column[i]) for column in columns]))
    bad = dict(zip(*(found.rejected.column(name).to_pylist() for name in ("record", "reason")), strict=True))
    silent = 0
    for i, (record, key) in enumerate(zip(records, keys, strict=True)):
        said = f"{drawn.format} {drawn.texts} key {drawn.key} {drawn.options}\n{record}\nkey {key}\n"
        said += f"found {rows.get(i)} {bad.get(i)}"
        try:
            expected = rows_of(record, key, drawn.target())
        except NotImplementedError:  # a date that Python does not know
            continue
        except Bad as reason:
            assert i in bad, f"{said}\nexpected {reason}"
            assert i not in rows
            code = bad[i].partition(":")[0]
            values = {"bad-value", "missing-key", "unavailable", "missing-before", "missing-after"}
            assert code == str(reason) or {code, str(reason)} <= values or drawn.format == "canal-json", said
            continue
        assert i not in bad, f"{said}\nexpected {expected}"
        assert rows.get(i, []) == [(kind, [plain(v) for v in row]) for kind, row in expected], (
            f"{said}\nexpected {expected}"
        )
        silent += not expected
    assert sum(found.skipped.values()) <= silent
