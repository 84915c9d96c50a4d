"""The functions that queries may call in this process: names, arguments, the type in Spark, and the text for DuckDB.

A function that is not here is refused with the nearest name. One that DuckDB has under the same name and computes
otherwise is written out, or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.expr.patterns import Pattern, java_pattern
from merganser.expr.setting import Setting
from merganser.schema import types as t
from merganser.sql.query.casts import arithmetic, cast, divided, to
from merganser.sql.query.kinds import (
    BYTES,
    FLOATS,
    MOMENTS,
    ON_SPARK,
    TEXTS,
    WHOLE,
    Interval,
    Value,
    bounded,
    common,
    duck,
    is_null,
    is_number,
    quoted,
    string,
)
from merganser.sql.query.time_forms import Form, formatted, parsed, time_form
from merganser.values import dataclass

Make = Callable[[list[Value]], Value]


@dataclass(frozen=True)
class Function:
    """A function.

    Attributes:
        least, most: how many arguments it takes; `most` None: any number.
        make: the call of checked arguments.
    """

    least: int
    most: int | None
    make: Make


_KINDS: Final[dict[str, t.DataType]] = {
    "s": t.string(), "i": t.Int(), "l": t.BigInt(), "d": t.Double(), "b": t.Boolean(), "D": t.Date(),
    "T": t.Timestamp(6), "x": t.VarBinary(),
}  # fmt: skip
"""Letters for the kinds of arguments; `n` is a number, `a` anything, `m` a date or a moment."""


def taken(value: Value, letter: str, what: str) -> Value:
    """Return an argument as the type that a function takes.

    Raises:
        InvalidInputError: the type does not fit.
    """
    kind = value.type
    if letter == "a":
        return value
    if isinstance(kind, Interval):
        raise UnsupportedError(f"cannot call {what} with {kind} in this process. Run the statement on Spark.")
    if letter == "n":
        if is_null(kind):
            return cast(value, t.Double())
        if isinstance(kind, TEXTS):
            return cast(value, t.Double())
        if not is_number(kind):
            raise InvalidInputError(f"cannot call {what}: {value.name or value.text} is {kind}, not a number.")
        return value
    if letter == "m":
        if isinstance(kind, (t.Date, *MOMENTS)):
            return value
        return cast(value, t.Timestamp(6))
    wanted = _KINDS[letter]
    if type(kind) is type(wanted):
        return value
    if letter == "T" and isinstance(kind, t.LocalZonedTimestamp):
        return cast(value, wanted)
    if letter in "sx" and t.is_nested(kind):
        raise InvalidInputError(f"cannot call {what}: {value.name or value.text} is {kind}, not a STRING. CAST it.")
    if letter in "il" and isinstance(kind, (*FLOATS, t.Decimal)):
        raise InvalidInputError(f"cannot call {what}: {value.name or value.text} is {kind}, not a whole number.")
    if letter == "b" and not is_null(kind) and not isinstance(kind, TEXTS):
        raise InvalidInputError(f"cannot call {what}: {value.name or value.text} is {kind}, not BOOLEAN.")
    return cast(value, wanted)


def _text(name: str, letters: str, result: t.DataType | str, text: str, optional: int = 0) -> tuple[str, Function]:
    """Return a function whose text has the arguments in place of {0}, {1}, ...

    Args:
        letters: kinds of the arguments; the last `optional` ones may be left out.
        result: its type, or "0" for that of the first argument.
    """

    def make(values: list[Value]) -> Value:
        given = [taken(value, letter, name) for value, letter in zip(values, letters, strict=False)]
        kind = given[int(result)].type if isinstance(result, str) else result
        return Value(text.format(*(value.text for value in given)), kind)

    return name, Function(len(letters) - optional, len(letters), make)


def _own(name: str, least: int, most: int | None, make: Make) -> tuple[str, Function]:
    return name, Function(least, most, make)


# functions written out


def _coalesce(values: list[Value]) -> Value:
    kind = common(values, "call coalesce")
    return Value(f"coalesce({', '.join(to(value, kind) for value in values)})", kind)


def _extreme(name: str, sign: str) -> Make:
    def make(values: list[Value]) -> Value:
        kind = common(values, f"call {name}")
        refuse_nested(kind, name)
        if isinstance(kind, t.Float):  # of FLOATs, DuckDB gives 0.0 for -0.0
            wide = ", ".join(f"CAST({to(value, kind)} AS DOUBLE)" for value in values)
            return Value(f"CAST({name}({wide}) AS FLOAT)", kind)
        return Value(f"{name}({', '.join(to(value, kind) for value in values)})", kind)

    return make


def _if(values: list[Value]) -> Value:
    kind = common(values[1:], "call if")
    test = taken(values[0], "b", "if")
    return Value(f"CASE WHEN {test.text} THEN {to(values[1], kind)} ELSE {to(values[2], kind)} END", kind)


def _nullif(values: list[Value]) -> Value:
    kind = common(values, "call nullif")
    test = f"{to(values[0], kind)} = {to(values[1], kind)}"
    return Value(f"CASE WHEN {test} THEN NULL ELSE {values[0].text} END", values[0].type)


def _nvl2(values: list[Value]) -> Value:
    kind = common(values[1:], "call nvl2")
    return Value(
        f"CASE WHEN {values[0].text} IS NOT NULL THEN {to(values[1], kind)} ELSE {to(values[2], kind)} END", kind
    )


def _concat(values: list[Value]) -> Value:
    if values and all(isinstance(value.type, t.Array) for value in values):
        kind = common(values, "call concat")
        text = values[0].text
        for value in values[1:]:
            text = f"list_concat({text}, {to(value, kind)})"
        nulls = " OR ".join(f"{value.text} IS NULL" for value in values)
        return Value(f"CASE WHEN {nulls} THEN NULL ELSE {text} END", kind)
    if values and all(isinstance(value.type, BYTES) for value in values):
        return Value("(" + " || ".join(value.text for value in values) + ")", t.VarBinary())
    parts = [taken(value, "s", "concat").text for value in values]
    return Value(f"({' || '.join(parts)})" if parts else "''", t.string())


def _concat_ws(values: list[Value]) -> Value:
    parts = []
    for value in values[1:]:
        if isinstance(value.type, t.Array):
            raise UnsupportedError("cannot call concat_ws with an ARRAY in this process. Run the statement on Spark.")
        parts.append(taken(value, "s", "concat_ws").text)
    separator = taken(values[0], "s", "concat_ws").text
    if not parts:
        return Value(f"CASE WHEN {separator} IS NOT NULL THEN '' END", t.string())
    return Value(f"concat_ws({', '.join([separator, *parts])})", t.string())


def _round(values: list[Value]) -> Value:
    value = taken(values[0], "n", "round")
    digits = 0
    if len(values) > 1:
        text = values[1].text.strip("()")
        if not text.lstrip("-").isdigit():
            raise UnsupportedError("cannot call round with digits that are no literal in this process.")
        digits = int(text)
    kind = value.type
    if isinstance(kind, t.Decimal):
        scale = min(max(digits, 0), kind.scale)
        whole = kind.precision - kind.scale
        made = t.Decimal(min(38, max(whole + 1 + scale, 1 - digits)), scale)
        if digits < 0:
            unit = 10**-digits
            quotient = arithmetic("/", value, Value(str(unit), t.BigInt(), digits=len(str(unit))))
            rounded = f"round({quotient.text}, 0)"
            return Value(f"CAST(CAST({rounded} AS DECIMAL(38,0)) * {unit} AS {duck(made)})", made)
        return Value(f"CAST({value.text} AS {duck(made)})", made)
    if isinstance(kind, WHOLE):
        if digits >= 0:
            return value
        unit = 10**-digits
        wide = f"CAST({value.text} AS HUGEINT)"
        return Value(f"CAST(_quotient({wide}, {unit}::HUGEINT) * {unit} AS {duck(kind)})", kind)
    if digits <= 0:
        text = f"(sign({value.text}) * floor(abs({value.text}) / {10**-digits} + 0.5) * {10**-digits} + 0)"  # no -0.0
        return Value(f"CASE WHEN isfinite({value.text}) THEN {text} ELSE {value.text} END", kind)
    exact = f"CAST(CAST({value.text} AS VARCHAR) AS DECIMAL(38,{digits}))"
    finite = f"isfinite({value.text}) AND abs({value.text}) < 1e{37 - digits} AND abs({value.text}) > 1e-15"
    return Value(
        f"CASE WHEN {finite} THEN CAST({exact} AS {duck(kind)}) WHEN abs({value.text}) <= 1e-15 THEN 0 "
        f"ELSE {value.text} END",
        kind,
    )


def _whole(name: str) -> Make:
    def make(values: list[Value]) -> Value:
        if len(values) > 1:
            raise UnsupportedError(f"cannot call {name} with digits in this process. Run the statement on Spark.")
        value = taken(values[0], "n", name)
        kind = value.type
        if isinstance(kind, WHOLE):
            return Value(value.text, t.BigInt()) if not isinstance(kind, t.BigInt) else value
        if isinstance(kind, t.Decimal):
            if kind.scale == 0:
                return value
            made = bounded(kind.precision - kind.scale + 1, 0)
            return Value(f"CAST({name}({value.text}) AS {duck(made)})", made)
        return Value(f"CAST({name}({value.text}) AS BIGINT)", t.BigInt())

    return make


def _same_number(name: str) -> Make:
    def make(values: list[Value]) -> Value:
        value = values[0] if isinstance(values[0].type, Interval) else taken(values[0], "n", name)
        return Value(f"{name}({value.text})", value.type)

    return make


def _negative(values: list[Value]) -> Value:
    value = values[0] if isinstance(values[0].type, Interval) else taken(values[0], "n", "negative")
    return Value(f"(-{value.text})", value.type)


def _mod(values: list[Value]) -> Value:
    return arithmetic("%", values[0], values[1])


def _pmod(values: list[Value]) -> Value:
    rest = arithmetic("%", values[0], values[1])
    again = arithmetic("%", arithmetic("+", rest, values[1]), values[1])
    return Value(f"CASE WHEN {rest.text} < 0 THEN {to(again, rest.type)} ELSE {rest.text} END", rest.type)


def _length(values: list[Value]) -> Value:
    if isinstance(values[0].type, BYTES):
        return Value(f"CAST(octet_length({values[0].text}) AS INTEGER)", t.Int())
    return Value(f"CAST(length({taken(values[0], 's', 'length').text}) AS INTEGER)", t.Int())


def _refuse_bytes(value: Value, name: str) -> None:
    if isinstance(value.type, BYTES):
        raise UnsupportedError(f"cannot call {name} with BINARY in this process. Run the statement on Spark.")


def _bytes_in(name: str, unit: int) -> Make:
    def make(values: list[Value]) -> Value:
        x = values[0].text if isinstance(values[0].type, BYTES) else f"encode({taken(values[0], 's', name).text})"
        return Value(f"CAST(octet_length({x}) * {unit} AS INTEGER)", t.Int())

    return make


def _substring(values: list[Value]) -> Value:
    _refuse_bytes(values[0], "substring")
    s = taken(values[0], "s", "substring").text
    start = taken(values[1], "i", "substring").text
    first = f"CASE WHEN {start} > 0 THEN {start} WHEN {start} = 0 THEN 1 ELSE length({s}) + {start} + 1 END"
    if len(values) < 3:
        text = f"substring({s}, greatest({first}, 1))"
        return Value(f"CASE WHEN {start} IS NOT NULL THEN {text} END", t.string())  # greatest leaves nulls out
    length = taken(values[2], "i", "substring").text
    # what lies before the first character counts into the length
    end = f"(CASE WHEN {start} > 0 THEN {start} WHEN {start} = 0 THEN 1 ELSE length({s}) + {start} + 1 END + {length})"
    return Value(
        f"CASE WHEN {s} IS NULL OR {start} IS NULL OR {length} IS NULL THEN NULL "
        f"WHEN {length} <= 0 OR {end} <= 1 THEN '' "
        f"ELSE substring({s}, greatest({first}, 1), {end} - greatest({first}, 1)) END",
        t.string(),
    )


def _locate(values: list[Value]) -> Value:
    part, s = (taken(value, "s", "locate").text for value in values[:2])
    if len(values) == 2:
        return Value(f"CAST(instr({s}, {part}) AS INTEGER)", t.Int())
    start = taken(values[2], "i", "locate").text
    found = f"instr(substring({s}, {start}), {part})"
    known = f"{s} IS NOT NULL AND {part} IS NOT NULL"
    text = (
        f"CASE WHEN {start} IS NULL THEN 0 WHEN {start} < 1 THEN CASE WHEN {known} THEN 0 END "
        f"WHEN {part} = '' AND {known} THEN 1 WHEN {found} = 0 THEN 0 ELSE {found} + {start} - 1 END"
    )
    return Value(f"CAST({text} AS INTEGER)", t.Int())


def _pad(name: str) -> Make:
    def make(values: list[Value]) -> Value:
        _refuse_bytes(values[0], name)
        s, n = taken(values[0], "s", name).text, taken(values[1], "i", name).text
        size = f"CAST(greatest({n}, 0) AS INTEGER)"
        if len(values) < 3:
            return Value(f"CASE WHEN {n} IS NOT NULL THEN {name}({s}, {size}, ' ') END", t.string())
        fill = taken(values[2], "s", name).text
        # DuckDB refuses a fill that is empty, where Spark fills with nothing
        text = f"WHEN {fill} = '' THEN left({s}, {size}) ELSE {name}({s}, {size}, {fill})"
        return Value(f"CASE WHEN {n} IS NULL THEN NULL {text} END", t.string())  # greatest leaves nulls out

    return make


def _trim(name: str) -> Make:
    def make(values: list[Value]) -> Value:
        if len(values) == 2:  # trim(characters, text)
            return Value(f"{name}({taken(values[1], 's', name).text}, {taken(values[0], 's', name).text})", t.string())
        return Value(f"{name}({taken(values[0], 's', name).text}, ' ')", t.string())

    return make


def _btrim(values: list[Value]) -> Value:
    return _trim("trim")(values[::-1])


def _reverse(values: list[Value]) -> Value:
    if isinstance(values[0].type, t.Array):
        return Value(f"list_reverse({values[0].text})", values[0].type)
    letters = f"regexp_extract_all({taken(values[0], 's', 'reverse').text}, '(?s).')"  # by code points: reverse is not
    return Value(f"array_to_string(list_reverse({letters}), '')", t.string())


def _replace(values: list[Value]) -> Value:
    s, part, *rest = (taken(value, "s", "replace").text for value in values)
    new = rest[0] if rest else string("")
    text = f"WHEN {part} = '' AND {new} IS NOT NULL THEN {s} ELSE replace({s}, {part}, {new})"
    return Value(f"CASE {text} END", t.string())


def _overlay(values: list[Value]) -> Value:
    s, new, start = values[:3]
    _refuse_bytes(s, "overlay")
    s, new, start = (taken(value, letter, "overlay") for value, letter in zip(values, "ssi", strict=False))
    length = taken(values[3], "i", "overlay").text if len(values) > 3 else "-1"
    size = f"CASE WHEN {length} < 0 THEN length({new.text}) ELSE {length} END"
    before = _substring([s, Value("1", t.Int()), Value(f"({start.text} - 1)", t.Int())])
    after = _substring([s, Value(f"({start.text} + {size})", t.Int())])
    return Value(f"({before.text} || {new.text} || {after.text})", t.string())


def literal_text(value: Value, what: str) -> str:
    if not value.is_text:
        raise UnsupportedError(f"cannot call {what} with a pattern that is no literal in this process.")
    return value.text[1:-1].replace("''", "'")


def pattern(value: Value, what: str) -> Pattern:
    """Return a regular expression of Java as one of RE2.

    Raises:
        InvalidInputError: it is no regular expression.
        UnsupportedError: it is no literal, or RE2 lacks a part of it.
    """
    return java_pattern(literal_text(value, what), f"call {what}")


def matched(s: str, made: Pattern, text: str, what: str) -> str:
    """Return what a pattern gives for a text; an error if RE2 may find something else than Java there."""
    if made.unsure is None:
        return text
    why = f"cannot call {what} with this pattern in this process: the text ends with a line end, or has letters beyond "
    bad = f"error({string(why + 'ASCII. ' + ON_SPARK)})"
    return f"CASE WHEN regexp_matches({s}, {string(made.unsure)}) THEN {bad} ELSE {text} END"


def _split(values: list[Value]) -> Value:
    if len(values) > 2:
        raise UnsupportedError("cannot call split with a limit in this process. Run the statement on Spark.")
    s, made = taken(values[0], "s", "split").text, pattern(values[1], "split")
    if made.is_empty and made.text:
        raise _empty("split", made)
    text = matched(s, made, f"regexp_split_to_array({s}, {string(made.text)})", "split")
    return Value(f"CASE WHEN {s} = '' THEN [''] ELSE {text} END", t.Array(element=t.string()))


def _empty(what: str, made: Pattern) -> UnsupportedError:
    return UnsupportedError(
        f"cannot call {what} with the pattern '{made.text}' in this process: it matches the empty text. Run the "
        "statement on Spark."
    )


def _regexp_replace(values: list[Value]) -> Value:
    s = taken(values[0], "s", "regexp_replace").text
    made = pattern(values[1], "regexp_replace")
    replacement = literal_text(values[2], "regexp_replace")
    if "\\" in replacement:
        raise UnsupportedError("cannot call regexp_replace with a backslash in the replacement in this process.")
    if made.is_empty and made.text not in ("^", "$") and replacement:
        raise _empty("regexp_replace", made)
    text, at = "", 0
    while at < len(replacement):
        if replacement[at] == "$":
            number = replacement[at + 1 : at + 2]
            if not number.isdigit() or int(number) > made.groups:
                raise InvalidInputError(
                    f"cannot call regexp_replace: '{replacement[at : at + 2]}' in the replacement names no group of "
                    f"the pattern. It has {made.groups} groups."
                )
            text += "\\" + number
            at += 2
        else:
            text += replacement[at]
            at += 1
    first, start = "", 1
    if len(values) > 3:
        if values[3].digits is None or int(values[3].text.strip("()")) < 1:
            raise UnsupportedError(
                "cannot call regexp_replace with a start that is no positive literal in this process. Run it on Spark."
            )
        start = int(values[3].text)
        first = f"substring({s}, 1, {start - 1}) || "
    rest = s if start == 1 else f"substring({s}, {start})"
    replaced = f"({first}regexp_replace({rest}, {string(made.text)}, {string(text)}, 'g'))"
    return Value(matched(s, made, replaced, "regexp_replace"), t.string())


def _regexp_extract(values: list[Value]) -> Value:
    group = values[2] if len(values) > 2 else Value("1", t.Int(), digits=1)
    s, made = taken(values[0], "s", "regexp_extract").text, pattern(values[1], "regexp_extract")
    if group.digits is None:
        raise UnsupportedError("cannot call regexp_extract with a group that is no literal in this process.")
    if not 0 <= int(group.text.strip("()")) <= made.groups:
        raise InvalidInputError(
            f"cannot call regexp_extract: the pattern has no group {group.text}. It has {made.groups} groups."
        )
    text = f"regexp_extract({s}, {string(made.text)}, {group.text})"
    return Value(matched(s, made, text, "regexp_extract"), t.string())


def form_of(value: Value, what: str) -> Form:
    """Return a pattern of times."""
    return time_form(literal_text(value, what), f"call {what}")


def _shown(value: Value, what: str) -> Value:
    """Return the wall clock of a date or a moment taken as an instant: one that clocks skip is a later one."""
    instant = value if isinstance(value.type, TEXTS) else taken(value, "m", what)
    return cast(cast(instant, t.LocalZonedTimestamp(6)), t.Timestamp(6))


def _date_format(values: list[Value]) -> Value:
    moment = _shown(values[0], "date_format")
    return Value(formatted(moment.text, form_of(values[1], "date_format")), t.string())


def _to_date(values: list[Value]) -> Value:
    if len(values) == 1:
        return cast(values[0], t.Date())
    text, form = taken(values[0], "s", "to_date").text, form_of(values[1], "to_date")
    return Value(f"CAST({parsed(text, form)} AS DATE)", t.Date())


def _to_timestamp(zone: bool) -> Make:
    kind: t.DataType = t.LocalZonedTimestamp(6) if zone else t.Timestamp(6)

    def make(values: list[Value]) -> Value:
        if len(values) == 1:
            return cast(values[0], kind)
        text, form = taken(values[0], "s", "to_timestamp").text, form_of(values[1], "to_timestamp")
        return cast(Value(parsed(text, form), t.Timestamp(6)), kind)

    return make


def _days(sign: str) -> Make:
    def make(values: list[Value]) -> Value:
        day, n = taken(values[0], "D", "date_add"), taken(values[1], "i", "date_add")
        return Value(f"({day.text} {sign} {n.text})", t.Date())

    return make


def _add_months(values: list[Value]) -> Value:
    day, n = taken(values[0], "D", "add_months"), taken(values[1], "i", "add_months")
    return Value(f"CAST({day.text} + to_months({n.text}) AS DATE)", t.Date())


_UNITS: Final = {
    "YEAR": "year", "YYYY": "year", "YY": "year", "QUARTER": "quarter", "MONTH": "month", "MON": "month", "MM": "month",
    "WEEK": "week", "DAY": "day", "DD": "day", "HOUR": "hour", "MINUTE": "minute", "SECOND": "second",
    "MILLISECOND": "millisecond", "MICROSECOND": "microsecond",
}  # fmt: skip


def _date_trunc(values: list[Value]) -> Value:
    unit = _UNITS.get(literal_text(values[0], "date_trunc").upper())
    if unit is None:
        raise InvalidInputError(f"cannot call date_trunc: {values[0].text} is no unit.")
    kind = t.LocalZonedTimestamp(6)
    moment = cast(values[1], kind).text
    if unit in ("hour", "minute"):  # of two hours that a clock shows alike, the one of the moment
        return Value(f"_at({moment}, date_trunc('{unit}', CAST({moment} AS TIMESTAMP)))", kind)
    return Value(f"CAST(date_trunc('{unit}', {moment}) AS {duck(kind)})", kind)


def _trunc(values: list[Value]) -> Value:
    unit = _UNITS.get(literal_text(values[1], "trunc").upper())
    if unit not in ("year", "quarter", "month", "week"):
        raise InvalidInputError(f"cannot call trunc: {values[1].text} is no unit of dates.")
    return Value(f"CAST(date_trunc('{unit}', {taken(values[0], 'D', 'trunc').text}) AS DATE)", t.Date())


def part(name: str, value: Value) -> Value:
    """Return a part of a date, a moment or a time of day, such as year."""
    if isinstance(value.type, t.Time):
        if name not in ("hour", "minute", "second"):
            raise InvalidInputError(f"cannot call {name}: {value.name} is {value.type}, which has no {name}.")
        return Value(f"CAST({name}({value.text}) AS INTEGER)", t.Int())
    moment = cast(value, t.Timestamp(6)) if isinstance(value.type, t.LocalZonedTimestamp) else taken(value, "m", name)
    if name in ("isodow", "isoyear"):
        return Value(f"CAST({name}({moment.text}) AS INTEGER)", t.Int())
    names = {"dayofmonth": "day", "weekofyear": "week", "dayofyear": "dayofyear"}
    if name == "dayofweek":
        return Value(f"CAST(dayofweek({moment.text}) + 1 AS INTEGER)", t.Int())
    if name == "weekday":
        return Value(f"CAST(isodow({moment.text}) - 1 AS INTEGER)", t.Int())
    if name in ("hour", "minute", "second") and isinstance(value.type, (t.Date, *TEXTS)):
        moment = _shown(value, name)
    return Value(f"CAST({names.get(name, name)}({moment.text}) AS INTEGER)", t.Int())


def _size(values: list[Value]) -> Value:
    if isinstance(values[0].type, t.Map | t.Multiset):
        return Value(f"CAST(cardinality({values[0].text}) AS INTEGER)", t.Int())
    if is_null(values[0].type):
        return Value("CAST(NULL AS INTEGER)", t.Int())
    if not isinstance(values[0].type, t.Array):
        raise InvalidInputError(f"cannot call size: {values[0].name} is {values[0].type}, not an ARRAY or a MAP.")
    return Value(f"CAST(len({values[0].text}) AS INTEGER)", t.Int())


def _array(values: list[Value]) -> Value:
    kind = common(values, "make an ARRAY")
    return Value("[" + ", ".join(to(value, kind) for value in values) + "]", t.Array(element=kind))


def _map(values: list[Value]) -> Value:
    if len(values) % 2:
        raise InvalidInputError("cannot make a MAP: give keys and values in turns.")
    key, item = common(values[::2], "make a MAP"), common(values[1::2], "make a MAP")
    keys = ", ".join(to(value, key) for value in values[::2])
    items = ", ".join(to(value, item) for value in values[1::2])
    return Value(f"MAP([{keys}], [{items}])" if values else "MAP {}", t.Map(key=key, value=item))


def row_of(names: Sequence[str], values: Sequence[Value]) -> Value:
    """Return a ROW of values."""
    inner = ", ".join(
        f'"{name.replace(chr(34), chr(34) * 2)}": {v.text}' for name, v in zip(names, values, strict=True)
    )
    fields = tuple(t.Field(-1, name, value.type) for name, value in zip(names, values, strict=True))
    return Value("{" + inner + "}", t.Row(fields=fields))


def _named_struct(values: list[Value]) -> Value:
    names = [literal_text(value, "named_struct") for value in values[::2]]
    return row_of(names, values[1::2])


def _row(values: list[Value]) -> Value:
    return row_of([f"col{i}" for i in range(1, len(values) + 1)], values)


def _struct(values: list[Value]) -> Value:
    simple = [value.own or f"col{i}" for i, value in enumerate(values, 1)]
    return row_of(simple, values)


def sorted_by(text: str, kind: t.DataType, depth: int = 0) -> str:
    """Return what DuckDB sorts a value by: Spark has nulls inside of values first, DuckDB has them last."""
    match kind:
        case t.Row():
            parts = [(f"({text}).{quoted(f.name)}", f.type) for f in kind.fields]
            inner = ", ".join(f"{part} IS NOT NULL, {sorted_by(part, each, depth)}" for part, each in parts)
            return f"CASE WHEN {text} IS NOT NULL THEN row({inner}) END"
        case t.Array():
            one = f"_k{depth}"
            inner = sorted_by(one, kind.element, depth + 1)
            return f"list_transform({text}, lambda {one}: row({one} IS NOT NULL, {inner}))"
    return text


def sort_key(text: str, kind: t.DataType, direction: str) -> str:
    """Return an item of ORDER BY.

    Raises:
        InvalidInputError: values of the type have no order.
    """
    if isinstance(kind, t.Map | t.Multiset):
        raise InvalidInputError(f"cannot sort by {text}: {kind} has no order.")
    return sorted_by(text, kind) + direction


def refuse_nested(kind: t.DataType, what: str) -> None:
    if t.is_nested(kind):
        raise UnsupportedError(f"cannot call {what} with {kind} in this process. Run the statement on Spark.")


def common_elements(array: Value, items: Sequence[Value], what: str) -> tuple[t.DataType, list[str]]:
    """Return the element type of an ARRAY and further elements, and the texts of all in it.

    Raises:
        InvalidInputError: the types do not go together, or a bare NULL is among the elements.
    """
    element = element_of(array, what)
    for value in items:
        if is_null(value.type) and value.text:
            raise InvalidInputError(f"cannot call {what} with NULL: it has no type. Write CAST(NULL AS {element}).")
        mixed = isinstance(value.type, TEXTS) != isinstance(element, TEXTS)
        if what != "array_contains" and isinstance(value.type, t.Decimal) != isinstance(element, t.Decimal):
            mixed = True
        if isinstance(value.type, Interval) and isinstance(element, Interval):
            mixed = value.type != element.with_nullable(True)
        if mixed and not is_null(element):
            raise InvalidInputError(
                f"cannot call {what}: {array.name} is {array.type}, and {value.name} is {value.type}. CAST one of them."
            )
    kind = common([Value("", element, array.name), *items], f"call {what}")
    return kind, [to(array, t.Array(element=kind)), *(to(value, kind) if value.text else "" for value in items)]


def element_of(value: Value, what: str) -> t.DataType:
    if not isinstance(value.type, t.Array):
        raise InvalidInputError(f"cannot call {what}: {value.name or value.text} is {value.type}, not an ARRAY.")
    return value.type.element


def _array_contains(values: list[Value]) -> Value:
    _, (a, x) = common_elements(values[0], values[1:], "array_contains")
    found = f"list_contains({a}, {x})"
    unknown = f"len(list_filter({a}, lambda _e: _e IS NULL)) > 0"
    unknown += f" OR {x} IS NULL"
    return Value(f"CASE WHEN {found} THEN TRUE WHEN {unknown} THEN NULL ELSE {found} END", t.Boolean())


def _element_at(values: list[Value]) -> Value:
    kind = values[0].type
    if isinstance(kind, t.Map):
        return Value(f"({values[0].text})[{to(values[1], kind.key)}]", kind.value)
    element = element_of(values[0], "element_at")
    a, i = values[0].text, taken(values[1], "i", "element_at").text
    bad = "error('the index is outside of the ARRAY')"
    return Value(f"CASE WHEN {i} = 0 OR abs({i}) > len({a}) THEN {bad} ELSE ({a})[{i}] END", element)


def _sort_array(values: list[Value]) -> Value:
    refuse_nested(element_of(values[0], "sort_array"), "sort_array")
    a = values[0].text
    if len(values) == 1:
        return Value(f"list_sort({a}, 'ASC', 'NULLS FIRST')", values[0].type)
    up = f"list_sort({a}, 'ASC', 'NULLS FIRST')"
    way, down = taken(values[1], "b", "sort_array").text, f"list_sort({a}, 'DESC', 'NULLS LAST')"
    return Value(f"CASE WHEN {way} THEN {up} WHEN NOT {way} THEN {down} END", values[0].type)


def _sequence(values: list[Value]) -> Value:
    kind = common(values[:2], "call sequence")
    if not isinstance(kind, WHOLE):
        raise UnsupportedError("cannot call sequence of dates in this process. Run the statement on Spark.")
    a, b = to(values[0], t.BigInt()), to(values[1], t.BigInt())
    step = to(values[2], t.BigInt()) if len(values) > 2 else f"CASE WHEN {a} <= {b} THEN 1 ELSE -1 END"
    bad = f"({a} < {b} AND {step} <= 0) OR ({a} > {b} AND {step} >= 0)"
    made = f"CAST(generate_series({a}, {b}, {step}) AS {duck(kind)}[])"
    if len(values) > 2:  # of one number, whatever the step
        made = f"CASE WHEN {a} = {b} AND {step} = 0 THEN [CAST({a} AS {duck(kind)})] ELSE {made} END"
    text = f"CASE WHEN {bad} THEN error('the step of sequence does not lead from the start to the end') ELSE {made} END"
    return Value(text if len(values) > 2 else made, t.Array(element=kind))


def _array_position(values: list[Value]) -> Value:
    if is_null(values[1].type):
        return Value("CAST(NULL AS BIGINT)", t.BigInt())
    _, (a, x) = common_elements(values[0], values[1:], "array_position")
    text = f"CASE WHEN {a} IS NULL OR {x} IS NULL THEN NULL ELSE coalesce(list_position({a}, {x}), 0) END"
    return Value(f"CAST({text} AS BIGINT)", t.BigInt())


def _with_element(name: str, text: str) -> Make:
    def make(values: list[Value]) -> Value:
        kind, texts = common_elements(values[0], values[1:], name)
        return Value(f"CASE WHEN {texts[0]} IS NOT NULL THEN {text.format(*texts)} END", t.Array(element=kind))

    return make


def _of_array(name: str, text: str, result: str = "same") -> tuple[str, Function]:
    def make(values: list[Value]) -> Value:
        kind = element_of(values[0], name)
        if result == "element":
            refuse_nested(kind, name)
            if isinstance(kind, FLOATS):  # of 0.0 and -0.0, Spark keeps the first
                first = f"_a[list_position(_a, {text.format('_a')})]"
                return Value(f"list_transform([{values[0].text}], lambda _a: {first})[1]", kind)
        made = {"same": values[0].type, "element": kind, "int": t.Int()}[result]
        return Value(text.format(*(value.text for value in values)), made)

    count = 2 if "{1}" in text else 1
    return name, Function(count, count, make)


def _map_part(name: str, text: str) -> tuple[str, Function]:
    def make(values: list[Value]) -> Value:
        kind = values[0].type
        if not isinstance(kind, t.Map):
            raise InvalidInputError(f"cannot call {name}: {values[0].name or values[0].text} is {kind}, not a MAP.")
        return Value(text.format(values[0].text), t.Array(element=kind.key if name == "map_keys" else kind.value))

    return name, Function(1, 1, make)


def _hex(values: list[Value]) -> Value:
    value = values[0] if not isinstance(values[0].type, Interval) else taken(values[0], "s", "hex")
    if isinstance(value.type, WHOLE):
        return Value(f"printf('%X', CAST({value.text} AS BIGINT))", t.string())
    return Value(f"hex({value.text})", t.string())


def _sha2(values: list[Value]) -> Value:
    x, bits = taken(values[0], "x", "sha2").text, values[1]
    if is_null(bits.type):
        return Value("CAST(NULL AS VARCHAR)", t.string())
    if bits.digits is None:
        raise UnsupportedError("cannot call sha2 with bits that are no literal in this process. Run it on Spark.")
    number = int(bits.text.strip("()"))
    if number in (224, 384, 512):
        raise UnsupportedError(f"cannot call sha2 with {number} bits in this process: it has 256. Run it on Spark.")
    return Value(f"sha256({x})" if number in (0, 256) else "CAST(NULL AS VARCHAR)", t.string())


def _typeof(values: list[Value]) -> Value:
    name = string(type_name(values[0].type))
    # an aggregate stays in the text, since it makes one row of a group
    return Value(f"CASE WHEN TRUE THEN {name} ELSE CAST({values[0].text} AS VARCHAR) END", t.string())


def type_name(kind: t.DataType) -> str:
    """Return a type as Spark calls it."""
    match kind:
        case t.Array():
            return f"array<{type_name(kind.element)}>"
        case t.Map():
            return f"map<{type_name(kind.key)},{type_name(kind.value)}>"
        case t.Row():
            return f"struct<{','.join(f'{f.name}:{type_name(f.type)}' for f in kind.fields)}>"
        case t.Decimal():
            return f"decimal({kind.precision},{kind.scale})"
        case t.Timestamp():
            return "timestamp_ntz"
        case t.LocalZonedTimestamp():
            return "timestamp"
        case t.VarBinary() | t.Binary():
            return "binary"
        case Interval():
            return str(kind).lower()
        case _ if is_null(kind):
            return "void"
    if isinstance(kind, TEXTS):
        return "string"
    return str(kind.with_nullable(True)).lower()


def _power(values: list[Value]) -> Value:
    a, b = (cast(taken(value, "n", "power"), t.Double()).text for value in values)
    return Value(f"pow({a}, {b})", t.Double())


def _log(values: list[Value]) -> Value:
    numbers = [cast(taken(value, "n", "log"), t.Double()).text for value in values]
    if len(numbers) == 1:
        return Value(f"CASE WHEN {numbers[0]} <= 0 THEN NULL ELSE ln({numbers[0]}) END", t.Double())
    return Value(
        f"CASE WHEN {numbers[0]} <= 0 OR {numbers[1]} <= 0 THEN NULL ELSE ln({numbers[1]}) / ln({numbers[0]}) END",
        t.Double(),
    )


def _guarded(name: str, bad: str) -> tuple[str, Function]:
    def make(values: list[Value]) -> Value:
        x = cast(taken(values[0], "n", name), t.Double()).text
        return Value(f"CASE WHEN {bad.format(x)} THEN NULL ELSE {name}({x}) END", t.Double())

    return name, Function(1, 1, make)


def _sqrt(values: list[Value]) -> Value:
    x = cast(taken(values[0], "n", "sqrt"), t.Double()).text
    return Value(f"CASE WHEN {x} < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt({x}) END", t.Double())


def _real(name: str) -> tuple[str, Function]:
    def make(values: list[Value]) -> Value:
        return Value(f"{name}({cast(taken(values[0], 'n', name), t.Double()).text})", t.Double())

    return name, Function(1, 1, make)


def _cube_root(values: list[Value]) -> Value:
    x = cast(taken(values[0], "n", "cbrt"), t.Double()).text
    y = f"cbrt({x})"
    # A step of Newton: the last digit of the C library may be another one than Java's, so that cbrt(27) would not be 3.
    closer = f"{y} - ({y} - {x} / ({y} * {y})) / 3"
    return Value(f"CASE WHEN {y} = 0 OR NOT isfinite({y}) THEN {y} ELSE {closer} END", t.Double())


def _sign(values: list[Value]) -> Value:
    x = cast(taken(values[0], "n", "sign"), t.Double()).text
    return Value(f"CASE WHEN isnan({x}) OR {x} = 0 THEN {x} ELSE CAST(sign({x}) AS DOUBLE) END", t.Double())


def _isnull(text: str) -> Make:
    return lambda values: Value(text.format(values[0].text), t.Boolean())


def _months_between(values: list[Value]) -> Value:
    raise UnsupportedError("cannot call months_between in this process. Run the statement on Spark.")


def _search(name: str) -> tuple[str, Function]:
    return _text(
        name, "ss", t.Boolean(), {"startswith": "starts_with", "endswith": "ends_with"}.get(name, name) + "({0}, {1})"
    )


def _counted(name: str) -> tuple[str, Function]:
    text = f"CASE WHEN {{0}} IS NULL THEN NULL WHEN {{1}} <= 0 THEN '' ELSE {name}({{0}}, {{1}}) END"
    _, function = _text(name, "si", t.string(), text)

    def make(values: list[Value]) -> Value:
        if name == "left":
            _refuse_bytes(values[0], name)
        return function.make(values)

    return name, Function(2, 2, make)


SCALARS: Final[dict[str, Function]] = dict([
    _own("coalesce", 1, None, _coalesce), _own("nvl", 2, 2, _coalesce), _own("ifnull", 2, 2, _coalesce),
    _own("if", 3, 3, _if), _own("nullif", 2, 2, _nullif), _own("nvl2", 3, 3, _nvl2),
    _own("greatest", 2, None, _extreme("greatest", ">")), _own("least", 2, None, _extreme("least", "<")),
    _own("isnull", 1, 1, _isnull("({0} IS NULL)")), _own("isnotnull", 1, 1, _isnull("({0} IS NOT NULL)")),
    _text("isnan", "d", t.Boolean(), "coalesce(isnan({0}), FALSE)"),
    # text
    _text("upper", "s", t.string(), "_upper({0})"), _text("ucase", "s", t.string(), "_upper({0})"),
    _text("lower", "s", t.string(), "_lower({0})"), _text("lcase", "s", t.string(), "_lower({0})"),
    _own("length", 1, 1, _length), _own("len", 1, 1, _length),
    _own("char_length", 1, 1, _length), _own("character_length", 1, 1, _length),
    _own("substring", 2, 3, _substring), _own("substr", 2, 3, _substring),
    _own("concat", 0, None, _concat), _own("concat_ws", 1, None, _concat_ws),
    _own("trim", 1, 1, _trim("trim")), _own("btrim", 1, 2, _btrim), _own("overlay", 3, 4, _overlay),
    _own("ltrim", 1, 2, _trim("ltrim")), _own("rtrim", 1, 2, _trim("rtrim")),
    _own("replace", 2, 3, _replace),
    _own("lpad", 2, 3, _pad("lpad")), _own("rpad", 2, 3, _pad("rpad")),
    _text("instr", "ss", t.Int(), "CAST(instr({0}, {1}) AS INTEGER)"),
    _own("locate", 2, 3, _locate), _own("position", 2, 3, _locate),
    _counted("left"),
    _counted("right"),
    _own("reverse", 1, 1, _reverse),
    _counted("repeat"),
    _text("ascii", "s", t.Int(), "CASE WHEN {0} = '' THEN 0 ELSE CAST(ord({0}) AS INTEGER) END"),
    _text("initcap", "s", t.string(), "_initcap({0})"),
    _search("startswith"), _search("endswith"), _search("contains"),
    _own("split", 2, 3, _split), _own("regexp_replace", 3, 4, _regexp_replace),
    _own("regexp_extract", 2, 3, _regexp_extract),
    _text("translate", "sss", t.string(), "translate({0}, {1}, {2})"),
    _text("space", "i", t.string(), "CASE WHEN {0} IS NOT NULL THEN repeat(' ', greatest({0}, 0)) END"),
    _text(
        "split_part", "ssi", t.string(), "CASE WHEN {0} IS NULL OR {1} IS NULL OR {2} IS NULL THEN NULL "
        "WHEN {2} = 0 THEN error('the index of split_part is 0: it begins at 1') "
        "WHEN {1} = '' AND {2} NOT IN (1, -1) THEN '' WHEN {1} = '' THEN {0} ELSE split_part({0}, {1}, {2}) END",
    ),
    _text("levenshtein", "ss", t.Int(), "CAST(levenshtein({0}, {1}) AS INTEGER)"),
    _text("md5", "x", t.string(), "md5({0})"), _own("sha2", 2, 2, _sha2),
    _own("hex", 1, 1, _hex), _text(
        "unhex", "s", t.VarBinary(), "CASE WHEN regexp_full_match({0}, '[0-9A-Fa-f]*') THEN unhex({0}) END"
    ),
    _text("base64", "x", t.string(), "base64({0})"), _text("unbase64", "s", t.VarBinary(), "from_base64({0})"),
    _own("octet_length", 1, 1, _bytes_in("octet_length", 1)),
    _own("bit_length", 1, 1, _bytes_in("bit_length", 8)),
    _text("chr", "l", t.string(), "CASE WHEN {0} < 0 THEN '' ELSE chr(CAST({0} % 256 AS INTEGER)) END"),
    # numbers
    _own("abs", 1, 1, _same_number("abs")), _own("negative", 1, 1, _negative),
    _own("positive", 1, 1, lambda v: v[0]),
    _own("round", 1, 2, _round), _own("floor", 1, 2, _whole("floor")), _own("ceil", 1, 2, _whole("ceil")),
    _own("ceiling", 1, 2, _whole("ceil")), _own("mod", 2, 2, _mod), _own("pmod", 2, 2, _pmod),
    _own("power", 2, 2, _power), _own("pow", 2, 2, _power), _own("sqrt", 1, 1, _sqrt), _own("sign", 1, 1, _sign),
    _own("signum", 1, 1, _sign), _real("exp"), _real("sin"), _real("cos"), _real("tan"), _real("atan"),
    _own("cbrt", 1, 1, _cube_root),
    _real("degrees"), _real("radians"), _guarded("ln", "{0} <= 0"), _guarded("log2", "{0} <= 0"),
    _guarded("log10", "{0} <= 0"), _own("log", 1, 2, _log), _text("pi", "", t.Double(), "pi()"),
    _text("e", "", t.Double(), "exp(1.0::DOUBLE)"),
    _text("factorial", "i", t.BigInt(), "CASE WHEN {0} BETWEEN 0 AND 20 THEN CAST(factorial({0}) AS BIGINT) END"),
    _text("bit_count", "l", t.Int(), "CAST(bit_count({0}) AS INTEGER)"),
    # dates and times
    _own("to_date", 1, 2, _to_date), _own("date", 1, 1, _to_date), _own("to_timestamp", 1, 2, _to_timestamp(True)),
    _own("to_timestamp_ltz", 1, 2, _to_timestamp(True)), _own("to_timestamp_ntz", 1, 2, _to_timestamp(False)),
    _own("date_add", 2, 2, _days("+")), _own("dateadd", 2, 2, _days("+")), _own("date_sub", 2, 2, _days("-")),
    _text("datediff", "DD", t.Int(), "CAST(({0} - {1}) AS INTEGER)"),
    _text("date_diff", "DD", t.Int(), "CAST(({0} - {1}) AS INTEGER)"),
    _own("add_months", 2, 2, _add_months), _text("last_day", "D", t.Date(), "last_day({0})"),
    _text("make_date", "iii", t.Date(), "make_date({0}, {1}, {2})"),
    _own("date_trunc", 2, 2, _date_trunc), _own("trunc", 2, 2, _trunc), _own("date_format", 2, 2, _date_format),
    _text("unix_date", "D", t.Int(), "CAST(({0} - DATE '1970-01-01') AS INTEGER)"),
    _text("date_from_unix_date", "i", t.Date(), "(DATE '1970-01-01' + {0})"),
    _text("monthname", "D", t.string(), "strftime({0}, '%b')"),
    _text("dayname", "D", t.string(), "strftime({0}, '%a')"),
    *(
        _own(name, 1, 1, lambda v, name=name: part(name, v[0]))  # type: ignore[misc]
        for name in (
            "year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear", "weekofyear", "hour",
            "minute", "second",
        )
    ),
    _own("typeof", 1, 1, _typeof),
    # arrays, maps, rows
    _own("size", 1, 1, _size), _own("cardinality", 1, 1, _size), _own("array_size", 1, 1, _size),
    _own("array", 0, None, _array), _own("map", 0, None, _map), _own("named_struct", 2, None, _named_struct),
    _own("struct", 1, None, _struct), _own("row", 1, None, _row),
    _own("element_at", 2, 2, _element_at), _own("sort_array", 1, 2, _sort_array), _own("sequence", 2, 3, _sequence),
    _own("array_position", 2, 2, _array_position),
    _own("array_contains", 2, 2, _array_contains), _of_array(
        "array_distinct",
        "list_filter({0}, lambda _e, _i: CASE WHEN _e IS NULL THEN NOT list_contains(list_transform({0}[1:_i - 1], "
        "lambda _f: _f IS NULL), TRUE) ELSE list_position({0}, _e) = _i END)",
    ),
    _of_array("array_max", "list_max({0})", "element"), _of_array("array_min", "list_min({0})", "element"),
    _of_array("array_reverse", "list_reverse({0})"),
    _own("array_append", 2, 2, _with_element("array_append", "list_append({0}, {1})")),
    _own("array_prepend", 2, 2, _with_element("array_prepend", "list_prepend({1}, {0})")),
    _of_array("array_compact", "list_filter({0}, lambda _e: _e IS NOT NULL)"),
    _map_part("map_keys", "map_keys({0})"), _map_part("map_values", "map_values({0})"),
])  # fmt: skip
"""Functions of one row."""


# aggregates: their calls have marks, for DISTINCT behind the bracket, and for FILTER and OVER behind the call

INSIDE: Final = "\x01"
BEHIND: Final = "\x02"


def _over(name: str, *arguments: str) -> str:
    return f"{name}({INSIDE}{', '.join(arguments)}){BEHIND}"


def _sum(values: list[Value]) -> Value:
    if isinstance(values[0].type, Interval):
        return Value(f"CAST({_over('sum', values[0].text)} AS BIGINT)", values[0].type)
    value = taken(values[0], "n", "sum")
    kind = value.type
    if isinstance(kind, WHOLE):
        return Value(f"CAST({_over('sum', value.text)} AS BIGINT)", t.BigInt())
    if isinstance(kind, t.Decimal):
        made = t.Decimal(min(kind.precision + 10, 38), kind.scale)
        return Value(f"CAST({_over('sum', value.text)} AS {duck(made)})", made)
    return Value(_over("sum", to(value, t.Double())), t.Double())


def _avg(values: list[Value]) -> Value:
    if isinstance(values[0].type, Interval):
        total, count = _over("sum", values[0].text), _over("count", values[0].text)
        quotient = f"CAST(_quotient({total}, {count}::HUGEINT) AS BIGINT)"
        return Value(f"CASE WHEN {count} > 0 THEN {quotient} END", Interval())
    value = taken(values[0], "n", "avg")
    if isinstance(value.type, t.Decimal):
        return divided(_over("sum", value.text), _over("count", value.text), value.type)
    return Value(_over("avg", to(value, t.Double())), t.Double())


def _peak(name: str) -> Make:
    def make(values: list[Value]) -> Value:
        text, kind = values[0].text, values[0].type
        if t.is_nested(kind) and name in ("min", "max"):
            if isinstance(kind, t.Map | t.Multiset):
                raise InvalidInputError(f"cannot call {name}: {kind} has no order.")
            return Value(_over(f"arg_{name}", text, sorted_by(text, kind)), kind)
        if isinstance(kind, FLOATS) and name in ("min", "max"):
            # DuckDB answers min and max of a bare column from the bounds of its files. Those of floating point numbers
            # are no values of rows: they may leave NaN out, and have -0.0 in place of 0.0. And of 0.0 and -0.0, Spark
            # keeps the first, DuckDB the last, and of FLOATs 0.0.
            wide = f"CAST({text} AS DOUBLE)"
            return Value(f"CAST({_over(f'arg_{name}', wide, wide)} AS {duck(kind)})", kind)
        return Value(_over(name, text), kind)

    return make


def _corr(values: list[Value]) -> Value:
    x, y = (cast(taken(value, "n", "corr"), t.Double()).text for value in values)
    found, unknown = _over("corr", x, y), _over("bool_or", f"isnan({x} + {y})")
    return Value(f"CASE WHEN NOT isnan({found}) OR {unknown} THEN {found} END", t.Double())


def _count(values: list[Value]) -> Value:
    if len(values) == 1:
        return Value(_over("count", values[0].text), t.BigInt())
    known = " AND ".join(f"{value.text} IS NOT NULL" for value in values)
    return Value(_over("count", f"CASE WHEN {known} THEN 1 END"), t.BigInt())


def _count_if(values: list[Value]) -> Value:
    test = taken(values[0], "b", "count_if").text
    return Value(_over("count", f"CASE WHEN {test} THEN 1 END"), t.BigInt())


def _spread(name: str) -> tuple[str, Function]:
    theirs = {"stddev": "stddev_samp", "variance": "var_samp", "std": "stddev_samp"}.get(name, name)

    def make(values: list[Value]) -> Value:
        return Value(_over(theirs, cast(taken(values[0], "n", name), t.Double()).text), t.Double())

    return name, Function(1, 1, make)


def positive_zero(value: Value, *, nested: bool = True) -> Value:
    """Return a value with 0.0 in place of -0.0, as Spark has it in sets and keys of groups.

    Args:
        nested: also inside of ARRAYs, MAPs and ROWs.
    """
    if isinstance(value.type, FLOATS) or (nested and _holds_float(value.type)):
        return replace(value, text=_positive(value.text, value.type, 0))
    return value


def _holds_float(kind: t.DataType) -> bool:
    match kind:
        case t.Array():
            return _holds_float(kind.element)
        case t.Map():
            return _holds_float(kind.key) or _holds_float(kind.value)
        case t.Row():
            return any(_holds_float(f.type) for f in kind.fields)
    return isinstance(kind, FLOATS)


def _positive(x: str, kind: t.DataType, depth: int) -> str:
    one = f"_z{depth}"
    match kind:
        case t.Array() if _holds_float(kind):
            return f"list_transform({x}, lambda {one}: {_positive(one, kind.element, depth + 1)})"
        case t.Map() if _holds_float(kind):
            key, item = (_positive(f"({one}).{n}", k, depth + 1) for n, k in (("key", kind.key), ("value", kind.value)))
            made = f"list_transform(map_entries({x}), lambda {one}: {{key: {key}, value: {item}}})"
            return f"CASE WHEN {x} IS NOT NULL THEN CAST(map_from_entries({made}) AS {duck(kind)}) END"
        case t.Row() if _holds_float(kind):
            parts = [f"{quoted(f.name)}: {_positive(f'({x}).{quoted(f.name)}', f.type, depth)}" for f in kind.fields]
            return f"CASE WHEN {x} IS NOT NULL THEN {{{', '.join(parts)}}} END"
    return f"CAST({x} + 0 AS {duck(kind)})" if isinstance(kind, FLOATS) else x


def _collect(values: list[Value]) -> Value:
    known = f"list_filter({_over('list', values[0].text)}, lambda _e: _e IS NOT NULL)"
    return Value(f"coalesce({known}, [])", t.Array(element=values[0].type))


def _collect_set(values: list[Value]) -> Value:
    found = _collect([positive_zero(values[0])])
    return Value(f"list_distinct({found.text})", found.type)


def _by(name: str) -> Make:
    return lambda values: Value(_over(name, values[0].text, sorted_by(values[1].text, values[1].type)), values[0].type)


AGGREGATES: Final[dict[str, Function]] = dict([
    _own("count", 1, None, _count), _own("sum", 1, 1, _sum), _own("avg", 1, 1, _avg), _own("mean", 1, 1, _avg),
    _own("min", 1, 1, _peak("min")), _own("max", 1, 1, _peak("max")), _own("any_value", 1, 2, _peak("first")),
    _own("first", 1, 2, _peak("first")), _own("last", 1, 2, _peak("last")),
    _own("first_value", 1, 2, _peak("first")), _own("last_value", 1, 2, _peak("last")),
    _text("bool_and", "b", t.Boolean(), _over("bool_and", "{0}")),
    _text("every", "b", t.Boolean(), _over("bool_and", "{0}")),
    _text("bool_or", "b", t.Boolean(), _over("bool_or", "{0}")),
    _text("some", "b", t.Boolean(), _over("bool_or", "{0}")),
    _text("any", "b", t.Boolean(), _over("bool_or", "{0}")), _own("count_if", 1, 1, _count_if),
    *(_spread(name) for name in ("stddev", "std", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop")),
    _own("collect_list", 1, 1, _collect),
    _own("array_agg", 1, 1, _collect),
    _own("collect_set", 1, 1, _collect_set),
    _own("max_by", 2, 2, _by("arg_max_null")), _own("min_by", 2, 2, _by("arg_min_null")),
    _text("median", "d", t.Double(), _over("median", "{0}")),
    _own("corr", 2, 2, _corr),
])  # fmt: skip
"""Functions of the rows of a group."""


def _place(name: str) -> Make:
    return lambda values: Value(f"{name}({values[0].text})", values[0].type)


WINDOWS: Final[dict[str, Function]] = dict([
    _text("row_number", "", t.Int(), "row_number()"), _text("rank", "", t.Int(), "rank()"),
    _text("dense_rank", "", t.Int(), "dense_rank()"), _text("percent_rank", "", t.Double(), "percent_rank()"),
    _text("cume_dist", "", t.Double(), "cume_dist()"), _text("ntile", "i", t.Int(), "ntile({0})"),
    _own("first_value", 1, 2, _place("first_value")), _own("last_value", 1, 2, _place("last_value")),
    _own("first", 1, 2, _place("first_value")), _own("last", 1, 2, _place("last_value")),
    _own("any_value", 1, 2, _place("first_value")),
    _own("nth_value", 2, 2, lambda v: Value(f"nth_value({v[0].text}, {v[1].text})", v[0].type)),
    _own("lag", 1, 3, lambda v: _shifted("lag", v)), _own("lead", 1, 3, lambda v: _shifted("lead", v)),
])  # fmt: skip
"""Functions that need OVER."""


def _shifted(name: str, values: list[Value]) -> Value:
    kind = common([values[0], *values[2:]], f"call {name}")
    more = [values[1].text] if len(values) > 1 else ["1"]
    more += [to(value, kind) for value in values[2:]]
    return Value(f"{name}({', '.join([to(values[0], kind), *more])})", kind)


def now_functions(setting: Setting) -> dict[str, Value]:
    """Return the functions that say when the query runs."""
    micros = (setting.now_ms or 0) * 1000
    moment = Value(f"make_timestamptz({micros})", t.LocalZonedTimestamp(6))
    day = Value(f"CAST({moment.text} AS DATE)", t.Date())
    wall = Value(f"CAST({moment.text} AS TIMESTAMP)", t.Timestamp(6))
    zone = Value(string(setting.zone or "UTC"), t.string(), is_text=True)
    return {
        "current_timestamp": moment, "now": moment, "current_date": day, "curdate": day, "localtimestamp": wall,
        "current_timezone": zone,
    }  # fmt: skip
