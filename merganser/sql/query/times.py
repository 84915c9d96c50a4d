"""Functions of dates and times beside those of `functions`, and arithmetic that gives null in place of an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.sql.query.casts import arithmetic, cast, scaled, stable
from merganser.sql.query.functions import Function, form_of, literal_text, part, taken
from merganser.sql.query.intervals import MICROS, extracted_from
from merganser.sql.query.kinds import MOMENTS, TEXTS, WHOLE, Interval, Value, duck, is_null, string
from merganser.sql.query.time_forms import formatted, parsed

_LTZ: Final = t.LocalZonedTimestamp(6)
_SECONDS: Final = Value("'yyyy-MM-dd HH:mm:ss'", t.string(), is_text=True)
_PARTS: Final[dict[str, tuple[str, ...]]] = {
    "year": ("YEAR", "Y", "YEARS", "YR", "YRS"), "isoyear": ("YEAROFWEEK",), "quarter": ("QUARTER", "QTR"),
    "month": ("MONTH", "MON", "MONS", "MONTHS"), "weekofyear": ("WEEK", "W", "WEEKS"), "day": ("DAY", "D", "DAYS"),
    "dayofweek": ("DAYOFWEEK", "DOW"), "isodow": ("DAYOFWEEK_ISO", "DOW_ISO"), "dayofyear": ("DOY",),
    "hour": ("HOUR", "H", "HOURS", "HR", "HRS"), "minute": ("MINUTE", "M", "MIN", "MINS", "MINUTES"),
    "second": ("SECOND", "S", "SEC", "SECONDS", "SECS"),
}  # fmt: skip
_ADDED: Final = {
    "YEAR": "to_months({} * 12)", "QUARTER": "to_months({} * 3)", "MONTH": "to_months({})",
    "WEEK": "to_days({} * 7)", "DAY": "to_days({})", "DAYOFYEAR": "to_days({})", "HOUR": "to_hours({})",
    "MINUTE": "to_minutes({})", "SECOND": "to_seconds({})", "MILLISECOND": "to_milliseconds({})",
    "MICROSECOND": "to_microseconds({})",
}  # fmt: skip
_MICROS: Final = {
    "WEEK": 604_800_000_000, "DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000,
    "MILLISECOND": 1_000, "MICROSECOND": 1,
}  # fmt: skip
CALENDAR: Final = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR")
"""Units that are counted by the wall clock."""
_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
ADDS: Final = ("dateadd", "date_add", "timestampadd")
DIFFS: Final = ("datediff", "date_diff", "timestampdiff")


def extracted(unit: str, value: Value) -> Value:
    """Return a part of a date or a moment by the name that EXTRACT takes.

    Raises:
        InvalidInputError: there is no such part.
    """
    name = next((name for name, words in _PARTS.items() if unit.upper() in words), None)
    if name is None:
        raise InvalidInputError(f"cannot extract {unit} from {value.name}: there is no such part of a time.")
    if isinstance(value.type, Interval):
        return extracted_from(name, value)
    if name != "second":
        return part(name, value)
    if isinstance(value.type, t.Time):
        kind = t.Decimal(2 + value.type.precision, value.type.precision)
        unit = 10 ** (6 - value.type.precision)
        return Value(scaled(f"CAST(microsecond({value.text}) // {unit} AS BIGINT)", kind), kind)
    moment = cast(taken(value, "m", "extract"), t.Timestamp(6)).text
    kind = t.Decimal(8, 6)
    return Value(scaled(f"CAST(microsecond({moment}) AS BIGINT)", kind), kind)


def added(unit: str, count: Value, value: Value) -> Value:
    """Return timestampadd(unit, count, value): a DATE becomes a TIMESTAMP_LTZ."""
    if unit not in _ADDED:
        raise InvalidInputError(f"cannot add '{unit}': it is no unit of time.")
    moment = value if isinstance(value.type, MOMENTS) else cast(value, _LTZ)
    kind = moment.type
    interval = _ADDED[unit].format(taken(count, "i", "timestampadd").text)
    name = f"timestampadd({unit}, {count.name}, {value.name})"
    if isinstance(kind, t.LocalZonedTimestamp) and unit in CALENDAR:
        return Value(f"_moved({moment.text}, {interval})", kind, name)
    return Value(f"CAST({moment.text} + {interval} AS {duck(kind)})", kind, name)


def difference(unit: str, start: Value, end: Value) -> Value:
    """Return timestampdiff(unit, start, end): whole units between the wall clocks."""
    a, b = (cast(cast(value, _LTZ), t.Timestamp(6)).text for value in (start, end))
    name = f"timestampdiff({unit}, {start.name}, {end.name})"
    if unit in _MICROS:
        text = f"(epoch_us({b}) - epoch_us({a})) // {_MICROS[unit]}"
    elif unit in _MONTHS:
        text = f"_months({a}, {b}) // {_MONTHS[unit]}"
    else:
        raise InvalidInputError(f"cannot count '{unit}': it is no unit of time.")
    return Value(f"CAST({text} AS BIGINT)", t.BigInt(), name)


def subtracted(left: Value, right: Value, *, tries: bool = False) -> Value | None:
    """Return the difference of two times as an interval; None if the sides are no times.

    It is that of the wall clocks. Text and NULL take the type of the other side.

    Args:
        tries: text that is no time is null, not an error.
    """
    a, b = left.type, right.type
    if isinstance(a, t.Time) and isinstance(b, t.Time):
        text = f"(epoch_us({left.text}) - epoch_us({right.text}))"
        return Value(text, Interval(first=1), f"{left.name} - {right.name}")
    times = (t.Date, *MOMENTS)
    if not isinstance(a, times) and not isinstance(b, times):
        return None
    if not all(isinstance(kind, (*times, *TEXTS)) or is_null(kind) for kind in (a, b)):
        return None
    name = f"({left.name} - {right.name})"
    if not any(isinstance(kind, MOMENTS) for kind in (a, b)):
        days = " - ".join(cast(value, t.Date(), tries=tries).text for value in (left, right))
        return Value(f"(CAST({days} AS BIGINT) * {MICROS[0]})", Interval(last=0), name)
    zoned = any(isinstance(kind, t.LocalZonedTimestamp) for kind in (a, b))
    walls = [
        cast(cast(value, _LTZ, tries=tries), t.Timestamp(6))
        if zoned and not isinstance(value.type, t.Timestamp)
        else cast(value, t.Timestamp(6), tries=tries)
        for value in (left, right)
    ]
    return Value(f"({' - '.join(f'epoch_us({wall.text})' for wall in walls)})", Interval(), name)


def moved(op: str, moment: Value, interval: Value) -> Value:
    """Return a date or a time plus or minus an interval. Days are counted by the wall clock, the rest is not."""
    kind, n = moment.type, interval.text
    name = f"{moment.name} {op} {interval.name}"
    if isinstance(kind, t.Date) and isinstance(interval.type, Interval) and interval.type.last == 0:
        days = f"extractansiintervaldays({interval.name})"
        name = f"date_add({moment.name}, {days if op == '+' else f'(- {days})'})"
        return Value(f"({moment.text} {op} CAST({n} // {MICROS[0]} AS INTEGER))", kind, name)
    if isinstance(kind, t.Timestamp):
        return Value(f"({moment.text} {op} to_microseconds({n}))", kind, name)
    sign = "-" if op == "-" else ""
    days = f"to_days(CAST({sign}({n} // {MICROS[0]}) AS INTEGER))"
    text = f"(_moved({cast(moment, _LTZ).text}, {days}) {op} to_microseconds({n} % {MICROS[0]}))"
    return Value(text, _LTZ, name)


def _date_part(values: list[Value]) -> Value:
    return extracted(literal_text(values[0], "date_part"), values[1])


def _from_unixtime(values: list[Value]) -> Value:
    seconds = taken(values[0], "l", "from_unixtime").text
    form = form_of(values[1] if len(values) > 1 else _SECONDS, "from_unixtime")
    moment = f"CAST(make_timestamptz({seconds} * 1000000) AS TIMESTAMP)"
    bad = f"{seconds} NOT BETWEEN -62135510400 AND 253402214399"
    return Value(
        f"CASE WHEN {bad} THEN error('the time lies outside of the years 1 to 9999') "
        f"ELSE {formatted(moment, form)} END",
        t.string(),
    )


def _unix_timestamp(values: list[Value]) -> Value:
    value = values[0]
    if isinstance(value.type, TEXTS) or is_null(value.type):
        form = form_of(values[1] if len(values) > 1 else _SECONDS, "unix_timestamp")
        text = parsed(taken(value, "s", "unix_timestamp").text, form)
        moment = cast(Value(text, t.Timestamp(6)), _LTZ).text
    elif isinstance(value.type, t.Timestamp):
        moment = value.text  # as if its wall clock were that of UTC
    elif isinstance(value.type, t.Date | t.LocalZonedTimestamp):
        moment = cast(value, _LTZ).text
    else:
        raise InvalidInputError(f"cannot call unix_timestamp: {value.name} is {value.type}, not a time.")
    return Value(f"(epoch_us({moment}) // 1000000)", t.BigInt())  # cut off, as Spark does it, also before 1970


def _floored(micros: str, unit: int) -> str:
    whole = f"(({micros} - (({micros} % {unit}) + {unit}) % {unit}) // {unit})"
    return f"CAST({whole} AS BIGINT)"


def _timestamp_of(name: str, unit: int) -> tuple[str, Function]:
    def make(values: list[Value]) -> Value:
        value = taken(values[0], "n", name)
        if not isinstance(value.type, WHOLE) and unit != 1_000_000:
            raise InvalidInputError(f"cannot call {name}: {value.name} is {value.type}, not a whole number.")
        if isinstance(value.type, WHOLE):
            micros = f"CAST({value.text} AS BIGINT) * {unit}"
        elif isinstance(value.type, t.Decimal):
            micros = f"CAST(trunc(CAST({value.text} AS DECIMAL(38,6)) * {unit}) AS BIGINT)"
        else:
            raise UnsupportedError(f"cannot call {name} with {value.type} in this process. Run the statement on Spark.")
        return Value(f"make_timestamptz({micros})", _LTZ)

    return name, Function(1, 1, make)


def _unix(name: str, unit: int) -> tuple[str, Function]:
    def make(values: list[Value]) -> Value:
        moment = cast(taken(values[0], "m", name), _LTZ).text
        return Value(_floored(f"epoch_us({moment})", unit), t.BigInt())

    return name, Function(1, 1, make)


def _tried(op: str) -> Callable[[list[Value]], Value]:
    """Return arithmetic that is null where it would fail. Errors inside of its sides stay errors, as in Spark."""

    def make(values: list[Value]) -> Value:
        left, right = values
        if op == "-" and (found := subtracted(left, right, tries=True)) is not None:
            return found
        if isinstance(left.type, t.Date) and isinstance(right.type, WHOLE) and op in "+-":
            kind: t.DataType = t.Date()
            sides = [left, cast(right, t.Int())]
            text = f"_p.a {op} _p.b"
        elif op in "/%":  # TRY takes no expression that calls error()
            zero = Value(f"nullif({right.text}, 0)", right.type, right.name, right.digits)
            return arithmetic(op, left, right if is_null(right.type) else zero)
        else:
            sides = [left, right]
            inner = [Value(f"_p.{n}", v.type, v.name, v.digits) for n, v in zip("ab", values, strict=True)]
            made = arithmetic(op, *inner)
            kind, text = made.type, made.text
        a, b = (f"CAST({v.text} AS {duck(v.type)})" for v in sides)
        return Value(
            f"list_transform([{{a: {a}, b: {b}}}], lambda _p: TRY(CAST({stable(text)} AS {duck(kind)})))[1]", kind
        )

    return make


def _simple(name: str, text: str, letters: str, kind: t.DataType) -> tuple[str, Function]:
    def make(values: list[Value]) -> Value:
        given = [taken(value, letter, name).text for value, letter in zip(values, letters, strict=True)]
        return Value(text.format(*given), kind)

    return name, Function(len(letters), len(letters), make)


_NAN: Final = f"CAST({string('NaN')} AS DOUBLE)"
TIMES: Final[dict[str, Function]] = dict([
    ("date_part", Function(2, 2, _date_part)), ("datepart", Function(2, 2, _date_part)),
    ("from_unixtime", Function(1, 2, _from_unixtime)), ("unix_timestamp", Function(1, 2, _unix_timestamp)),
    ("to_unix_timestamp", Function(1, 2, _unix_timestamp)), _timestamp_of("timestamp_seconds", 1_000_000),
    _timestamp_of("timestamp_millis", 1_000), _timestamp_of("timestamp_micros", 1), _unix("unix_seconds", 1_000_000),
    _unix("unix_millis", 1_000), _unix("unix_micros", 1), ("try_add", Function(2, 2, _tried("+"))),
    ("try_subtract", Function(2, 2, _tried("-"))), ("try_multiply", Function(2, 2, _tried("*"))),
    ("try_divide", Function(2, 2, _tried("/"))), ("try_mod", Function(2, 2, _tried("%"))),
    _simple("asin", f"CASE WHEN abs({{0}}) > 1 THEN {_NAN} ELSE asin({{0}}) END", "d", t.Double()),
    _simple("acos", f"CASE WHEN abs({{0}}) > 1 THEN {_NAN} ELSE acos({{0}}) END", "d", t.Double()),
    _simple("sinh", "sinh({0})", "d", t.Double()), _simple("cosh", "cosh({0})", "d", t.Double()),
    _simple("tanh", "tanh({0})", "d", t.Double()), _simple("atan2", "atan2({0}, {1})", "dd", t.Double()),
    _simple("sha1", "sha1({0})", "x", t.string()), _simple("sha", "sha1({0})", "x", t.string()),
])  # fmt: skip
