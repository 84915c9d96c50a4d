"""CAST and the operators of arithmetic, as text for DuckDB with Spark's results (ANSI mode).

What DuckDB would round, Spark cuts off; text that is no number is an error, or null for TRY_CAST; a division by zero is
an error. The macros that the texts call are made with each connection.
"""

from __future__ import annotations

import re
from typing import Final

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.sql.query.intervals import cast_interval, computed
from merganser.sql.query.kinds import (
    BYTES,
    FLOATS,
    MOMENTS,
    ON_SPARK,
    TEXTS,
    WHOLE,
    Interval,
    Value,
    as_decimal,
    bounded,
    coarse,
    duck,
    is_fine,
    is_null,
    is_number,
    same,
    wider_of,
)

_TIME_DIGITS: Final = 3
"""Digits of seconds that times of day have here at most."""

_DAY: Final = r"\+?[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_LESS: Final = r"\+?[0-9]{4}(-[0-9]{1,2})?"
_HOUR: Final = "([01]?[0-9]|2[0-3])"
_SIXTY: Final = "[0-5]?[0-9]"
_CLOCK: Final = rf"{_HOUR}(:{_SIXTY}(:{_SIXTY}(\.[0-9]*)?)?)?"
_TO_SECONDS: Final = rf"{_DAY}[ T]{_HOUR}:{_SIXTY}:{_SIXTY}(\.[0-9]*)?"
_ZONE: Final = "Z|UTC|[+-]((0?[0-9]|1[0-7])(:[0-5]?[0-9])?|(0[0-9]|1[0-7])[0-5][0-9]|18(:?00)?)"
_ODD_YEAR: Final = "([+-]?[0-9]{5,7}|-[0-9]{4})"
_FLOAT_MAX: Final = "CAST('3.4028234663852886e38' AS DOUBLE)"
_FLOAT_END: Final = "CAST('3.4028235677973366e38' AS DOUBLE)"
"""Numbers from this one on are infinite as FLOAT."""
_WORDS: Final = ("epoch", "now", "today", "tomorrow", "yesterday")

_FAILING: Final = (
    # the quotient of whole numbers, rounded half up, away from zero
    """CREATE MACRO _quotient(n, d) AS CASE WHEN d = 0 AND n IS NOT NULL THEN error('division by zero') ELSE n // d
       + CASE WHEN abs(n % d) >= abs(d) - abs(n % d) AND n % d <> 0 THEN CASE WHEN (n < 0) = (d < 0) THEN 1 ELSE -1 END
         ELSE 0 END END""",
    """CREATE MACRO _divide(a, b) AS CASE WHEN b = 0 AND a IS NOT NULL THEN error('division by zero') ELSE a / b END""",
    """CREATE MACRO _div(a, b) AS CASE WHEN b = 0 AND a IS NOT NULL THEN error('division by zero') ELSE a // b END""",
    """CREATE MACRO _rest(a, b) AS CASE WHEN b = 0 AND a IS NOT NULL THEN error('division by zero') ELSE a % b END""",
    f"""CREATE MACRO _odd(s, kind) AS
       error('cannot cast ''' || s || ''' to ' || kind || ' in this process. {ON_SPARK}')""",
    """CREATE MACRO _bad(s, kind) AS error('cannot cast ''' || s || ''' to ' || kind)""",
)
_FAILS: Final = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\b(?P<call>_quotient|_divide|_div|_rest|_bad|_odd|_json_\w+|error)\("""
)
FAILED: Final = "merganser: "
"""What the texts of errors in windows begin with."""


def stable(text: str) -> str:
    """Return a text whose errors are those of a CAST: DuckDB takes no error() in ORDER BY and PARTITION BY of windows.

    Elsewhere error() is better, since DuckDB moves no filter over it.
    """
    return _FAILS.sub(lambda found: f"_stable_{found['call'].lstrip('_')}(" if found["call"] else found[0], text)


MACROS: Final = (
    f"""CREATE MACRO _stable_error(s) AS CASE WHEN CAST('{FAILED}' || s AS BOOLEAN) THEN NULL END""",
    *(stable(macro) for macro in _FAILING),
    *_FAILING,
    # the digits of a product of whole numbers up to 10^38: the last 38 ones, and those above
    """CREATE MACRO _upper_half(n) AS n // 10000000000000000000::HUGEINT""",
    """CREATE MACRO _lower_half(n) AS n % 10000000000000000000::HUGEINT""",
    """CREATE MACRO _product(n, d) AS list_transform(list_transform(list_transform(
       [{a: _upper_half(abs(n)), b: _lower_half(abs(n)), c: _upper_half(abs(d)), d: _lower_half(abs(d))}],
       lambda p: {high: p.a * p.c, low: p.b * p.d, one: p.b * p.c + _upper_half(p.b * p.d), other: p.a * p.d}),
       lambda p: {high: p.high + _upper_half(p.one), low: p.low, other: p.other + _lower_half(p.one)}),
       lambda p: {high: p.high + _upper_half(p.other),
                  low: _lower_half(p.other) * 10000000000000000000::HUGEINT + _lower_half(p.low)})[1]""",
    """CREATE MACRO _bare(s) AS trim(s, e' \\t\\n\\r')""",
    """CREATE MACRO _whole(s) AS regexp_full_match(trim(s, e' \\t\\n\\r'), '[+-]?[0-9]+')""",
    """CREATE MACRO _number(s) AS
       regexp_full_match(trim(s, e' \\t\\n\\r'), '[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?')""",
    """CREATE MACRO _real(s) AS regexp_full_match(trim(s, e' \\t\\n\\r'),
       '(?i)[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)(e[+-]?[0-9]+)?[df]?|nan|[+-]?(inf|infinity)')""",
    """CREATE MACRO _bare_real(s) AS regexp_replace(_bare(s), '([0-9.])[dDfF]$', '\\1')""",
    # dates and times as Spark reads them: a day or less of it, a time behind it, and a zone behind the seconds
    f"""CREATE MACRO _day(s) AS regexp_full_match(_bare(s), '{_DAY}([ T](?s:.*))?|{_LESS}')""",
    f"""CREATE MACRO _moment(s) AS
       regexp_full_match(_bare(s), '{_DAY}([ T]{_CLOCK})?|{_TO_SECONDS} *({_ZONE})|{_LESS}')""",
    f"""CREATE MACRO _zoned(s) AS regexp_full_match(_bare(s), '{_TO_SECONDS} *({_ZONE})')""",
    """CREATE MACRO _part(s, n) AS
       regexp_extract(s, '^\\+?([0-9]{4})(-([0-9]{1,2}))?(-([0-9]{1,2}))?', n)""",
    """CREATE MACRO _two(s) AS CASE WHEN s = '' THEN '01' ELSE lpad(s, 2, '0') END""",
    """CREATE MACRO _day_text(s) AS _part(s, 1) || '-' || _two(_part(s, 3)) || '-' || _two(_part(s, 5))""",
    """CREATE MACRO _clock(s) AS
       regexp_replace(regexp_extract(s, '[ T]([0-9:.]+)', 1), '(\\.[0-9]{6})[0-9]+', '\\1')""",
    """CREATE MACRO _wall(s) AS _day_text(s) || CASE WHEN _clock(s) = '' THEN ' 00:00:00'
       WHEN contains(_clock(s), ':') THEN ' ' || rtrim(_clock(s), '.') ELSE ' ' || _clock(s) || ':00:00' END""",
    """CREATE MACRO _minutes_of_zone(z) AS CASE WHEN z = '' THEN 0 ELSE CASE WHEN z[1] = '-' THEN -1 ELSE 1 END *
       (60 * CAST(regexp_extract(z, '^.([0-9]{1,2})', 1) AS INTEGER) + CAST('0' || regexp_extract(z, ':([0-9]+)$', 1) ||
       regexp_extract(z, '^.[0-9]{2}([0-9]{2})$', 1) AS INTEGER)) END""",
    """CREATE MACRO _of_zone(wall, s) AS make_timestamptz(
       epoch_us(wall) - 60000000::BIGINT * _minutes_of_zone(regexp_extract(_bare(s), '[+-][0-9:]+$')))""",
    # what Spark reads as well, and this process does not: other years, times without a day, zones with names
    f"""CREATE MACRO _odd_day(s) AS
       regexp_full_match(_bare(s), '{_ODD_YEAR}(-[0-9]{{1,2}}(-[0-9]{{1,2}}([ T](?s:.*))?)?)?')""",
    f"""CREATE MACRO _odd_moment(s) AS regexp_full_match(_bare(s),
       '{_ODD_YEAR}(-[0-9]{{1,2}}(-[0-9]{{1,2}}([ T](?s:.*))?)?)?|T?{_HOUR}:{_SIXTY}(?s:.*)|' ||
       '{_TO_SECONDS} *([A-Za-z]+/[A-Za-z0-9_/+-]+|(UTC|GMT|UT)([+-][0-9:]+)?|[A-Z]{{3}}|[+-][0-9]+:[0-9]+:[0-9]+)')""",
    """CREATE MACRO _odd_real(s) AS regexp_full_match(_bare(s), '(?i)[+-]?0x[0-9a-f.]+p[+-]?[0-9]+[df]?')""",
    # of the two instants of a wall clock that is set back, Spark takes the earlier one, DuckDB the later one
    """CREATE MACRO _earlier(c, x) AS CASE WHEN CAST(c - to_minutes(60) AS TIMESTAMP) = x THEN c - to_minutes(60)
       WHEN CAST(c - to_minutes(30) AS TIMESTAMP) = x THEN c - to_minutes(30)
       WHEN CAST(c - to_minutes(120) AS TIMESTAMP) = x THEN c - to_minutes(120) ELSE c END""",
    # times of nine digits of a second, and the six digits below and above them
    """CREATE MACRO _nine(x) AS make_timestamp_ns(epoch_us(x) * 1000)""",
    """CREATE MACRO _nine_text(s, x) AS make_timestamp_ns(epoch_us(x) * 1000 +
       coalesce(TRY_CAST(rpad(regexp_extract(s, '\\.[0-9]{6}([0-9]{1,3})', 1), 3, '0') AS BIGINT), 0))""",
    """CREATE MACRO _rest_of_nine(x) AS ((epoch_ns(x) % 1000) + 1000) % 1000""",
    """CREATE MACRO _micros_below(x) AS (epoch_ns(x) - _rest_of_nine(x)) // 1000""",
    """CREATE MACRO _micros_above(x) AS _micros_below(x) + CASE WHEN _rest_of_nine(x) > 0 THEN 1 ELSE 0 END""",
    """CREATE MACRO _instant(x) AS _earlier(CAST(x AS TIMESTAMPTZ), x)""",
    # an instant some days or months later by the wall clock: with the offset that it has, if the wall clock has it too
    """CREATE MACRO _at(x, wall) AS CASE
       WHEN epoch_us(wall) - epoch_us(CAST(x AS TIMESTAMP)) + epoch_us(x) = epoch_us(CAST(wall AS TIMESTAMPTZ))
       THEN CAST(wall AS TIMESTAMPTZ) ELSE _instant(wall) END""",
    """CREATE MACRO _moved(x, i) AS _at(x, CAST(x AS TIMESTAMP) + i)""",
    # whole months between wall clocks, as Java counts them: a day that has not come to its end is left out first
    """CREATE MACRO _day_of_months(x) AS (year(x) * 12 + month(x)) * 32 + day(x)""",
    """CREATE MACRO _months(a, b) AS (_day_of_months(CAST(b AS DATE) + CASE
       WHEN CAST(b AS DATE) > CAST(a AS DATE) AND CAST(b AS TIME) < CAST(a AS TIME) THEN -1
       WHEN CAST(b AS DATE) < CAST(a AS DATE) AND CAST(b AS TIME) > CAST(a AS TIME) THEN 1 ELSE 0 END)
       - _day_of_months(CAST(a AS DATE))) // 32""",
    # a DOUBLE as Java writes it: the fewest digits that name it, at least two, and of those the nearest ones
    """CREATE MACRO _digits(s) AS rtrim(ltrim(replace(regexp_replace(s, 'e.*', ''), '.', ''), '0'), '0')""",
    """CREATE MACRO _exponent(s) AS CASE
       WHEN contains(s, 'e') THEN CAST(regexp_extract(s, 'e([+-]?[0-9]+)', 1) AS INTEGER)
       WHEN starts_with(s, '0.') THEN -1 - length(regexp_extract(s, '^0\\.(0*)', 1))
       ELSE length(regexp_extract(s, '^[0-9]+')) - 1 END""",
    """CREATE MACRO _java(s) AS substring(_digits(s), 1, 1) || '.' ||
       CASE WHEN length(_digits(s)) > 1 THEN substring(_digits(s), 2) ELSE '0' END || 'E' || _exponent(s)""",
    """CREATE MACRO _shortest(x) AS CASE WHEN length(_digits(CAST(x AS VARCHAR))) = 1
       THEN printf('%.1e', CAST(x AS DOUBLE)) ELSE CAST(x AS VARCHAR) END""",
    """CREATE MACRO _double(x) AS CASE WHEN isnan(x) THEN 'NaN'
       WHEN isinf(x) THEN CASE WHEN x > 0 THEN 'Infinity' ELSE '-Infinity' END
       WHEN x = 0 OR (abs(x) >= 0.001 AND abs(x) < 10000000) THEN CAST(x AS VARCHAR)
       ELSE CASE WHEN x < 0 THEN '-' ELSE '' END || _java(_shortest(abs(x))) END""",
)


def cast(value: Value, kind: t.DataType, *, tries: bool = False) -> Value:
    """Return CAST(value AS kind), or TRY_CAST.

    Raises:
        InvalidInputError: values of one type cannot be cast to the other.
        UnsupportedError: DuckDB would do it otherwise than Spark.
    """
    given, kind = value.type, kind.with_nullable(True)
    text = _cast(value, given, kind, tries)
    return Value(text, kind, value.name)


def _cast(value: Value, given: t.DataType, kind: t.DataType, tries: bool) -> str:
    x, target = value.text, duck(kind)
    name = "TRY_CAST" if tries else "CAST"
    plain = f"{name}({x} AS {target})"
    if is_null(given):
        return f"CAST(NULL AS {target})"
    if same(given, kind):
        return x if isinstance(kind, (*TEXTS, *MOMENTS)) or duck(given) == target else plain
    if isinstance(given, MOMENTS) and is_fine(given):
        return _cast(Value(_below(x, given), coarse(given)), coarse(given), kind, tries)
    if isinstance(kind, MOMENTS) and is_fine(kind):
        made = _cast(value, given, coarse(kind), tries)
        return f"_nine_text({x}, {made})" if isinstance(given, TEXTS) else f"_nine({made})"
    match given, kind:
        case (Interval(), _):
            return cast_interval(x, given, kind, target, name) or _refuse(given, kind)
        case _ if isinstance(given, TEXTS):
            if value.is_text and isinstance(kind, (t.Date, *MOMENTS)) and x.strip("' ").lower() in _WORDS:
                raise UnsupportedError(
                    f"cannot cast {x} to {kind} in this process. Write current_date, current_timestamp or a DATE."
                )
            return _from_text(x, kind, target, tries)
        case _ if isinstance(kind, TEXTS):
            return _to_text(x, given)
        case _ if isinstance(kind, WHOLE) and isinstance(given, (*FLOATS, t.Decimal)):
            whole = (
                f"CASE WHEN isnan({x}) THEN NULL ELSE trunc({x}) END"
                if isinstance(given, FLOATS) and tries
                else f"trunc({x})"
            )
            return f"{name}({whole} AS {target})"
        case t.Time(), t.Time():
            return x if kind.precision >= given.precision else _of_precision(x, kind)
        case t.Double(), t.Float():  # what is too large becomes infinite
            return (
                f"CASE WHEN isnan({x}) OR abs({x}) < {_FLOAT_MAX} THEN CAST({x} AS FLOAT) "
                f"WHEN abs({x}) < {_FLOAT_END} THEN CAST(sign({x}) * {_FLOAT_MAX} AS FLOAT) "
                f"ELSE CAST(sign({x}) * CAST('inf' AS DOUBLE) AS FLOAT) END"
            )
        case _ if is_number(given) and is_number(kind):
            return plain
        case _ if isinstance(given, t.Boolean) and is_number(kind):
            return f"{name}(CAST({x} AS INTEGER) AS {target})"
        case _ if is_number(given) and isinstance(kind, t.Boolean):
            return f"({x} <> 0)"
        case _ if isinstance(given, t.Date | t.Timestamp) and isinstance(kind, t.LocalZonedTimestamp):
            return f"_instant(CAST({x} AS TIMESTAMP))"
        case _ if isinstance(given, (t.Date, *MOMENTS)) and isinstance(kind, (t.Date, *MOMENTS)):
            return plain
        case _ if isinstance(given, t.LocalZonedTimestamp) and isinstance(kind, (t.BigInt, t.Int)):
            return f"{name}(floor(epoch_us({x}) / 1000000) AS {target})"
        case _ if isinstance(kind, t.LocalZonedTimestamp) and isinstance(given, WHOLE):
            return f"make_timestamptz(CAST({x} AS BIGINT) * 1000000)"
        case _ if isinstance(kind, t.LocalZonedTimestamp) and isinstance(given, t.Double):
            return f"make_timestamptz({name}(trunc({x} * 1000000) AS BIGINT))"
        case _ if isinstance(kind, t.LocalZonedTimestamp) and isinstance(given, t.Decimal) and given.scale <= 6:
            return f"make_timestamptz({name}(CAST({x} AS DECIMAL(38,6)) * 1000000 AS BIGINT))"
        case _ if isinstance(given, t.LocalZonedTimestamp) and isinstance(kind, t.Double):
            return f"(epoch_us({x}) / CAST(1000000 AS DOUBLE))"
        case (t.Array(), t.Array()) | (t.Map(), t.Map()):
            return f"{name}({x} AS {target})" if _widens(given, kind) else _inside(x, given, kind, tries)
        case (t.Row(), t.Row()) if len(given.fields) == len(kind.fields):
            parts = [
                f"{quoted_field(g.name)}: "
                + _cast(Value(f"({x}).{quoted_field(f.name)}", f.type), f.type, g.type, tries)
                for f, g in zip(given.fields, kind.fields, strict=True)
            ]
            return f"CASE WHEN {x} IS NULL THEN NULL ELSE {{{', '.join(parts)}}} END"
        case _ if isinstance(given, BYTES) and isinstance(kind, BYTES):
            return x
    return _refuse(given, kind)


def _below(x: str, kind: t.DataType, which: str = "below") -> str:
    """Return a time of nine digits with six digits: the nearest one that is not later, or not earlier (`above`)."""
    zone = "tz" if isinstance(kind, t.LocalZonedTimestamp) else ""
    return f"make_timestamp{zone}(_micros_{which}({x}))"


def with_six_digits(value: Value) -> Value:
    """Return a value whose times have the six digits of a second that functions compute with."""
    return cast(value, coarse(value.type)) if is_fine(value.type) else value


def around(value: Value) -> tuple[Value, Value]:
    """Return a time of nine digits with six digits: the nearest ones that are not later, and not earlier."""
    kind = coarse(value.type)
    low, high = (Value(_below(value.text, kind, which), kind, value.name) for which in ("below", "above"))
    return low, high


def _inside(x: str, given: t.DataType, kind: t.DataType, tries: bool) -> str:
    """Return the cast of an ARRAY or a MAP: of each value inside of it."""
    one = f"_c{_depth(given)}"  # the lambdas inside have lower numbers
    match given, kind:
        case (t.Array(), t.Array()):
            inner = _cast(Value(one, given.element), given.element, kind.element, tries)
            return f"list_transform({x}, lambda {one}: {inner})"
        case (t.Map(), t.Map()):
            key = _cast(Value(f"({one}).key", given.key), given.key, kind.key, tries)
            item = _cast(Value(f"({one}).value", given.value), given.value, kind.value, tries)
            made = f"list_transform(map_entries({x}), lambda {one}: {{key: {key}, value: {item}}})"
            return f"CASE WHEN {x} IS NOT NULL THEN CAST(map_from_entries({made}) AS {duck(kind)}) END"
    return _refuse(given, kind)


def _depth(kind: t.DataType) -> int:
    match kind:
        case t.Array():
            return 1 + _depth(kind.element)
        case t.Map():
            return 1 + max(_depth(kind.key), _depth(kind.value))
        case t.Row():
            return 1 + max((_depth(f.type) for f in kind.fields), default=0)
    return 0


def _nested_text(x: str, given: t.DataType) -> str:
    one = f"_c{_depth(given)}"

    def shown(text: str, kind: t.DataType) -> str:
        return f"coalesce({_cast(Value(text, kind), kind, t.string(), False)}, 'null')"

    match given:
        case t.Row():
            parts = [shown(f"({x}).{quoted_field(f.name)}", f.type) for f in given.fields]
            inner = " || ', ' || ".join(parts)
            return f"CASE WHEN {x} IS NOT NULL THEN '{{' || {inner} || '}}' END"
        case t.Map():
            text = shown(f"({one}).key", given.key) + " || ' -> ' || " + shown(f"({one}).value", given.value)
            items, first, last = f"list_transform(map_entries({x}), lambda {one}: {text})", "{", "}"
        case t.Array():
            items, first, last = f"list_transform({x}, lambda {one}: {shown(one, given.element)})", "[", "]"
        case _:
            raise UnsupportedError(f"cannot cast {given} to STRING in this process. Run the statement on Spark.")
    joined = f"coalesce(array_to_string({items}, ', '), '')"
    return f"CASE WHEN {x} IS NOT NULL THEN '{first}' || {joined} || '{last}' END"


def quoted_field(name: str) -> str:
    """Return the name of a field as DuckDB takes it."""
    return '"' + name.replace('"', '""') + '"'


def _refuse(given: t.DataType, kind: t.DataType) -> str:
    raise InvalidInputError(f"cannot cast {given} to {kind}.")


def _widens(given: t.DataType, kind: t.DataType) -> bool:
    """Whether all values inside become values of another type that DuckDB makes of them just as Spark does."""
    match given, kind:
        case (t.Array(), t.Array()):
            return _widens(given.element, kind.element)
        case (t.Map(), t.Map()):
            return _widens(given.key, kind.key) and _widens(given.value, kind.value)
        case (t.Row(), t.Row()):
            names = [f.name for f in given.fields] == [f.name for f in kind.fields]
            return names and all(_widens(f.type, g.type) for f, g in zip(given.fields, kind.fields, strict=True))
    if is_null(given) or same(given, kind):
        return True
    wider = wider_of(Value("", given), Value("", kind))
    return is_number(given) and is_number(kind) and wider is not None and same(wider, kind)


def _from_text(x: str, kind: t.DataType, target: str, tries: bool) -> str:
    def checked(test: str, made: str, odd: str = "") -> str:
        otherwise = "NULL" if tries else f"_bad({x}, '{kind}')"
        more = f"WHEN {odd}({x}) THEN _odd({x}, '{kind}') " if odd else ""
        return f"CASE WHEN {x} IS NULL THEN NULL WHEN {test} THEN {made} {more}ELSE {otherwise} END"

    name = "TRY_CAST" if tries else "CAST"
    match kind:
        case _ if isinstance(kind, WHOLE):
            return checked(f"_whole({x})", f"{name}(trim({x}, e' \\t\\n\\r') AS {target})")
        case t.Decimal():
            return checked(f"_number({x})", f"{name}(trim({x}, e' \\t\\n\\r') AS {target})")
        case _ if isinstance(kind, FLOATS):
            return checked(f"_real({x})", f"{name}(_bare_real({x}) AS {target})", "_odd_real")
        case t.Boolean():
            yes, no = "('t', 'true', 'y', 'yes', '1')", "('f', 'false', 'n', 'no', '0')"
            word = f"lower(trim({x}))"
            return checked(f"{word} IN {yes} OR {word} IN {no}", f"{word} IN {yes}")
        case t.Date():
            return checked(f"_day({x})", f"{name}(_day_text(_bare({x})) AS DATE)", "_odd_day")
        case _ if isinstance(kind, MOMENTS):
            wall = f"{name}(_wall(_bare({x})) AS TIMESTAMP)"
            if isinstance(kind, t.LocalZonedTimestamp):
                wall = f"CASE WHEN _zoned({x}) THEN _of_zone({wall}, {x}) ELSE _instant({wall}) END"
            return checked(f"_moment({x})", wall, "_odd_moment")
        case t.Time():
            return _of_precision(f"{name}(trim({x}) AS TIME)", kind)
        case _ if isinstance(kind, BYTES):
            return f"encode({x})"
    return _refuse(t.string(), kind)


def _of_precision(x: str, kind: t.Time) -> str:
    """Return a time of day without the digits of seconds that its type does not store."""
    if kind.precision >= _TIME_DIGITS:
        return x
    return f"CAST(left(CAST({x} AS VARCHAR), {9 + kind.precision if kind.precision else 8}) AS TIME)"


def _to_text(x: str, given: t.DataType) -> str:
    match given:
        case t.Double():
            return f"_double({x})"
        case t.Float():
            return f"_double({x})"
        case _ if isinstance(given, BYTES):
            return f"decode({x})"
        case t.Decimal() if given.precision == given.scale:  # DuckDB leaves the 0 before the point out
            return f"regexp_replace(CAST({x} AS VARCHAR), '^(-?)\\.', '\\10.')"
        case t.LocalZonedTimestamp():
            return f"CAST(CAST({x} AS TIMESTAMP) AS VARCHAR)"
        case t.Array() | t.Map() | t.Row() | t.Multiset():
            return _nested_text(x, given)
    return f"CAST({x} AS VARCHAR)"


def to(value: Value, kind: t.DataType) -> str:
    """Return the text of a value in a type that it widens to."""
    return value.text if same(value.type, kind) and duck(value.type) == duck(kind) else cast(value, kind).text


def arithmetic(op: str, left: Value, right: Value) -> Value:
    """Return `left op right` for + - * / % DIV on numbers.

    Raises:
        InvalidInputError: a side is no number.
    """
    if isinstance(left.type, Interval) or isinstance(right.type, Interval):
        return computed(op, left, right)
    left, right = (_as_number(value, other) for value, other in ((left, right), (right, left)))
    for value in (left, right):
        if not is_number(value.type):
            raise InvalidInputError(f"cannot compute {op}: {value.name or value.text} is {value.type}, not a number.")
    name = f"({left.name} {op.lower() if op == 'DIV' else op} {right.name})"
    if isinstance(left.type, FLOATS) or isinstance(right.type, FLOATS):
        single = isinstance(left.type, t.Float) and isinstance(right.type, (t.Float, t.TinyInt, t.SmallInt))
        single = single or (isinstance(right.type, t.Float) and isinstance(left.type, (t.TinyInt, t.SmallInt)))
        kind: t.DataType = t.Float() if single and op != "/" else t.Double()
        a, b = to(left, kind), to(right, kind)
        if op == "DIV":
            raise InvalidInputError("cannot compute DIV of floating point numbers: it divides exact numbers only.")
        text = {"/": f"_divide({a}, {b})", "%": f"_rest({a}, {b})"}.get(op, f"({a} {op} {b})")
        return Value(text, kind, name)
    if isinstance(left.type, t.Decimal) or isinstance(right.type, t.Decimal):
        return _decimal(op, left, right, name)
    if op == "/":
        return Value(f"_divide({to(left, t.Double())}, {to(right, t.Double())})", t.Double(), name)
    if op == "DIV":
        return Value(f"_div({to(left, t.BigInt())}, {to(right, t.BigInt())})", t.BigInt(), name)
    wide = wider_of(left, right)
    assert wide is not None
    a, b = to(left, wide), to(right, wide)
    return Value(f"_rest({a}, {b})" if op == "%" else f"({a} {op} {b})", wide, name)


def _as_number(value: Value, other: Value) -> Value:
    """Return text and NULL as the number that the other side asks for."""
    if is_null(value.type):
        kind = other.type if is_number(other.type) else t.Int()
        return Value(f"CAST(NULL AS {duck(kind)})", kind, value.name or "NULL")
    if isinstance(value.type, TEXTS) and is_number(other.type):
        return cast(value, t.BigInt() if isinstance(other.type, WHOLE) else t.Double())
    return value


def _decimal(op: str, left: Value, right: Value, name: str) -> Value:
    first, second = as_decimal(left), as_decimal(right)
    whole = max(first.precision - first.scale, second.precision - second.scale)
    scale = max(first.scale, second.scale)
    a, b = f"CAST({left.text} AS {duck(first)})", f"CAST({right.text} AS {duck(second)})"
    match op:
        case "*":
            kind = bounded(first.precision + second.precision + 1, first.scale + second.scale)
            if first.scale + second.scale > kind.scale:
                places = first.scale + second.scale - kind.scale
                n, d = _unscaled(a, first), f"({_unscaled(b, second)})"
                if first.precision + min(second.precision, places) > 38:
                    return Value(scaled(_cut_product(n, d, places), kind), kind, name)
                lost = 10**places
                most, rest = f"{n} * ({d} // {lost}::HUGEINT)", f"{n} * ({d} % {lost}::HUGEINT)"
                return Value(scaled(f"({most} + _quotient({rest}, {lost}::HUGEINT))", kind), kind, name)
            digits = min(first.precision + second.precision, 38)  # else DuckDB multiplies in 64 bits, and overflows
            if digits > 18:
                a = f"CAST({a} AS DECIMAL({digits},{first.scale}))"
            return Value(f"CAST({a} * {b} AS {duck(kind)})", kind, name)
        case "/":
            scale = max(6, first.scale + second.precision + 1)
            kind = bounded(first.precision - first.scale + second.scale + scale, scale)
            shift = kind.scale + second.scale - first.scale
            numerator, denominator = _unscaled(a, first), _unscaled(b, second)
            if shift >= 0:
                numerator = f"({numerator} * {10**shift}::HUGEINT)"
            else:
                denominator = f"({denominator} * {10**-shift}::HUGEINT)"
            return Value(scaled(f"_quotient({numerator}, {denominator})", kind), kind, name)
        case "DIV":
            n, d = (_unscaled(f"CAST({x} AS DECIMAL(38,{scale}))", t.Decimal(38, scale)) for x in (a, b))
            return Value(f"CAST(_div({n}, {d}) AS BIGINT)", t.BigInt(), name)
        case "%":
            kind = bounded(min(first.precision - first.scale, second.precision - second.scale) + scale, scale)
            wide = duck(bounded(whole + scale, scale))
            return Value(f"CAST(_rest(CAST({a} AS {wide}), CAST({b} AS {wide})) AS {duck(kind)})", kind, name)
    kind = bounded(whole + scale + 1, scale)
    return Value(f"CAST(CAST({a} AS {duck(kind)}) {op} CAST({b} AS {duck(kind)}) AS {duck(kind)})", kind, name)


def _unscaled(text: str, kind: t.Decimal) -> str:
    """Return the digits of a DECIMAL as a whole number."""
    if kind.scale == 0:
        return f"CAST({text} AS HUGEINT)"
    if kind.precision + kind.scale < 38:
        wide = f"CAST({text} AS DECIMAL({max(kind.precision, 19)},{kind.scale}))"  # else DuckDB multiplies in 64 bits
        return f"CAST({wide} * {10**kind.scale}::DECIMAL({kind.scale + 1},0) AS HUGEINT)"
    return f"CAST(replace(CAST({text} AS VARCHAR), '.', '') AS HUGEINT)"


def _cut_product(n: str, d: str, places: int) -> str:
    """Return the product of whole numbers without its last decimal places, rounded half up. It may have 76 digits.

    Args:
        places: 1 to 39.
    """
    unit, half = f"{10 ** min(places, 38)}::HUGEINT", f"{5 * 10 ** (min(places, 38) - 1)}::HUGEINT"
    cut = f"_q.made.high * {10 ** max(38 - places, 0)}::HUGEINT + _q.made.low // {unit}"
    up = f"_q.made.low % {unit} >= {half}"
    if places == 39:
        cut, up = "_q.made.high // 10", "_q.made.high % 10 >= 5"
    sign = f"CASE WHEN ({n} < 0) <> ({d} < 0) THEN -1 ELSE 1 END"
    rounded = f"_q.sign * ({cut} + CASE WHEN {up} THEN 1 ELSE 0 END)"
    return f"list_transform([{{made: _product({n}, {d}), sign: {sign}}}], lambda _q: {rounded})[1]"


def scaled(text: str, kind: t.Decimal) -> str:
    """Return a whole number as the DECIMAL with these digits."""
    if kind.scale == 0:
        return f"CAST({text} AS {duck(kind)})"
    unit = "0." + "0" * (kind.scale - 1) + "1"
    return f"CAST(CAST({text} AS DECIMAL(38,0)) * {unit}::DECIMAL({kind.scale},{kind.scale}) AS {duck(kind)})"


def divided(total: str, count: str, given: t.Decimal) -> Value:
    """Return the average of DECIMALs: their sum divided by their number, with four more digits, as Spark has it."""
    kind = t.Decimal(min(given.precision + 4, 38), min(given.scale + 4, 38))
    unit = f"{10 ** (kind.scale - given.scale)}::HUGEINT"
    whole = _unscaled(f"CAST({total} AS DECIMAL(38,{given.scale}))", t.Decimal(38, given.scale))
    number = f"CAST({count} AS HUGEINT)"
    quotient = f"(({whole} // {number}) * {unit} + _quotient({whole} % {number} * {unit}, {number}))"
    return Value(f"CASE WHEN {count} = 0 THEN NULL ELSE {scaled(quotient, kind)} END", kind)
