"""Values of every type: drawn, turned into what a wider type holds, and compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from merganser.schema import types as t

Row = dict[str, Any]
LADDERS: tuple[tuple[str, ...], ...] = (
    ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(20, 0)", "STRING"),
    ("FLOAT", "DOUBLE"),
    ("DATE", "TIMESTAMP(3)", "TIMESTAMP(6)"),
    ("VARCHAR(6)", "VARCHAR(20)", "STRING"),
    ("DECIMAL(6, 2)", "DECIMAL(12, 4)"),
    ("BINARY(4)", "VARBINARY(9)"),
)
"""Types whose every step up keeps each value."""
NESTED = ("ROW<x INT, y VARCHAR(6)>", "ARRAY<ROW<u SMALLINT, v DATE>>", "MAP<STRING, ROW<w INT>>", "ARRAY<STRING>")
KINDS = (
    *dict.fromkeys(step for ladder in LADDERS for step in ladder),
    "BOOLEAN",
    "TIME(3)",
    "TIMESTAMP(9)",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    "BYTES",
    *NESTED,
)
FAR = {
    "SMALLINT": 300,
    "INT": 70_000,
    "BIGINT": 2**40,
    "DECIMAL(20, 0)": Decimal(10**19),
    "DOUBLE": 0.1,
    "VARCHAR(20)": "abcdefghij",
    "STRING": "abcdefghijklmnopqrstuvwxyz",
    "DECIMAL(12, 4)": Decimal("1234567.1234"),
    "VARBINARY(9)": b"abcdefgh",
}
"""Values that no narrower type of the ladder holds."""
_TEXTS = ("", "a", "b", "żó", "x'y", " ")
_TIMES = (datetime(1969, 12, 31, 23, 59), datetime(2024, 2, 29, 12, 30, 1), datetime(2400, 1, 1))


def draw(kind: t.DataType, rng: random.Random, nulls: float = 0.2, far: bool = False) -> Any:
    """Return a value of a type that every wider type of its ladder holds, too.

    Args:
        far: times may lie outside of the years that 64 bits of nanoseconds hold.
    """
    if kind.nullable and rng.random() < nulls:
        return None
    match kind:
        case t.Row(fields=fields):
            return {f.name: draw(f.type, rng, far=far) for f in fields}
        case t.Array(element=element):
            return [draw(element, rng, far=far) for _ in range(rng.randrange(3))]
        case t.Map(value=value):
            return [(key, draw(value, rng, far=far)) for key in sorted(rng.sample("abc", rng.randrange(3)))]
        case t.Boolean():
            return rng.random() < 0.5
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            return rng.randrange(-9, 10)
        case t.Float() | t.Double():
            return rng.choice([-1.5, -0.0, 0.0, 0.25, 3.0, float("nan"), float("inf")])
        case t.Decimal(precision=precision, scale=scale):
            digits = min(precision, 6) if scale != 4 else 6
            return Decimal(rng.randrange(-(10 ** (digits - 2)), 10 ** (digits - 2))).scaleb(-scale)
        case t.Date():
            return date(2024, 1, 1) + timedelta(days=rng.randrange(-20000, 5))
        case t.Time():
            return rng.choice([time(0, 0), time(13, 5, 9, 250_000), time(23, 59, 59, 999_000)])
        case t.Timestamp(precision=digits) | t.LocalZonedTimestamp(precision=digits):
            micros = {0: 0, 3: 250_000}.get(digits, 123_456)
            found = rng.choice(_TIMES if far and digits <= 6 else _TIMES[:2]).replace(
                microsecond=rng.choice([0, micros])
            )
            return found if isinstance(kind, t.Timestamp) else found.replace(tzinfo=UTC)
        case t.Binary(length=length):
            return rng.randbytes(length)
        case t.VarBinary():
            return rng.choice([b"", b"\x00\xff", b"abcd"])
        case t.VarChar() | t.Char():
            return rng.choice(_TEXTS)
    raise AssertionError(f"no values of {kind}")


def draw_wider(kind: t.DataType, rng: random.Random, far: bool = False) -> Any:
    """Return a value of a column whose type became this one: at times one that the type of before does not hold."""
    value = FAR.get(str(kind.with_nullable(True)))
    return draw(kind, rng, far=far) if value is None or rng.random() < 0.7 else value


def default_of(kind: t.DataType, rng: random.Random) -> tuple[Any, Any]:
    """Return a default of a column as it is given, and what nulls become."""
    kind = kind.with_nullable(True)
    match kind:
        case t.Binary(length=length):
            text = "abcdefgh"[:length]
            return text, text.encode()
        case t.VarBinary():
            return "żó", "żó".encode()
        case t.Time():
            value = draw(kind, rng, nulls=0)
            return value.isoformat(), value
        case t.Row() | t.Array() | t.Map():
            value = _plain_texts(draw(kind, rng, nulls=0))
            return _literal(value, kind), value
    value = draw(kind, rng, nulls=0)
    return value if rng.random() < 0.5 or isinstance(value, bool) else str(value), value


def _plain_texts(value: Any) -> Any:
    """Return a value whose texts have no blanks around them, since those are no part of a literal."""
    match value:
        case str():
            return value.strip() or "a"
        case dict():
            return {name: _plain_texts(each) for name, each in value.items()}
        case list() if value and isinstance(value[0], tuple):
            return [(key, _plain_texts(each)) for key, each in value]
        case list():
            return [_plain_texts(each) for each in value]
    return value


def _literal(value: Any, kind: t.DataType) -> str:
    match value, kind:
        case None, _:
            return "null"
        case _, t.Row(fields=fields):
            return "{" + ", ".join(_literal(value[f.name], f.type) for f in fields) + "}"
        case _, t.Map(value=inner):
            return "{" + ", ".join(f"{key} -> {_literal(each, inner)}" for key, each in value) + "}"
        case _, t.Array(element=inner):
            return "[" + ", ".join(_literal(each, inner) for each in value) + "]"
    return str(value)


def convert(value: Any, old: t.DataType, new: t.DataType) -> Any:
    """Return what a value reads as once the type of its column became another; members of rows go by their ids."""
    if value is None:
        return None
    match old, new:
        case t.Row(fields=olds), t.Row(fields=news):
            by_id = {f.id: f for f in olds}
            return {
                f.name: convert(value[by_id[f.id].name], by_id[f.id].type, f.type) if f.id in by_id else None
                for f in news
            }
        case t.Array(element=one), t.Array(element=other):
            return [convert(each, one, other) for each in value]
        case t.Map(value=one), t.Map(value=other):
            return [(key, convert(each, one, other)) for key, each in value]
        case _, t.VarChar():
            return value if isinstance(value, str) else str(value)
        case _, t.Decimal(scale=scale):
            return Decimal(value).quantize(Decimal(1).scaleb(-scale))
        case t.Date(), t.Timestamp():
            return datetime.combine(value, time())
    return value


def converter(old: tuple[t.Field, ...], new: tuple[t.Field, ...]) -> Callable[[Row], Row]:
    """Return how a row reads once its columns became others; columns go by their ids, and new ones are null."""
    by_id = {f.id: f for f in old}

    def converted(row: Mapping[str, Any]) -> Row:
        return {
            f.name: convert(row[by_id[f.id].name], by_id[f.id].type, f.type) if f.id in by_id else None for f in new
        }

    return converted


def plain(value: Any, *, unordered: bool = False) -> Any:
    """Return a value without what has no meaning: the sign of a decimal zero, the order of the entries of a map."""
    match value:
        case Decimal():
            return value + 0
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list() if value and isinstance(value[0], tuple):
            return sorted(((key, plain(each)) for key, each in value), key=repr)
        case list() if unordered:
            return sorted((plain(each) for each in value), key=repr)
        case list():
            return [plain(each) for each in value]
    return value


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def filters_of(name: str, kind: t.DataType) -> list[tuple[str, Callable[[Row], bool]]]:
    """Return filters on one column: their texts, and what they mean."""
    text = quoted(name)

    def test(rest: str, holds: Callable[[Any], bool]) -> tuple[str, Callable[[Row], bool]]:
        return f"{text} {rest}", lambda row: holds(row[name])

    def given(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
        return lambda value: value is not None and holds(value)

    found = [test("IS NULL", lambda value: value is None)]
    match kind:
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt() | t.Decimal():
            found += [test("< 1", given(lambda v: v < 1)), test("IN (1, 2, 5)", given(lambda v: v in (1, 2, 5)))]
            found += [test("= 3", given(lambda v: v == 3)), test("<> 3", given(lambda v: v != 3))]
        case t.Float() | t.Double():
            found += [test(">= 2", given(lambda v: not v < 2)), test("= 0", given(lambda v: v == 0))]
        case t.VarChar():
            found += [test("= 'a'", given(lambda v: v == "a")), test("LIKE 'a%'", given(lambda v: v.startswith("a")))]
            found += [test("> 'a'", given(lambda v: v.encode() > b"a")), test("<> ''", given(lambda v: v != ""))]
        case t.Date():
            found += [test("> DATE '2020-01-01'", given(lambda v: v > date(2020, 1, 1)))]
        case t.Timestamp():
            found += [
                test("<= TIMESTAMP '2024-02-29 12:30:01'", given(lambda v: v <= datetime(2024, 2, 29, 12, 30, 1)))
            ]
        case t.LocalZonedTimestamp():
            least = datetime(2024, 2, 29, 12, 30, 1, tzinfo=UTC)
            found += [
                test("< TIMESTAMP_LTZ '2024-02-29 12:30:01'", given(lambda v: v < least)),
                test("= TIMESTAMP_LTZ '2024-02-29 12:30:01'", given(lambda v: v == least)),
            ]
        case t.Boolean():
            found += [test("= true", given(lambda v: v))]
    return found
