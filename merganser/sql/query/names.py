"""Names of columns that a query gives no name: an expression as Spark writes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

LAMBDA: Final = "namedlambdavariable()"
"""What a parameter of a lambda is called."""
_COMPARED: Final = (
    "lambdafunction((IF(((x IS NULL) AND (x IS NULL)), 0, (IF((x IS NULL), 1, (IF((x IS NULL), -1, (IF((x < x), -1, "
    "(IF((x > x), 1, 0)))))))))), x, x)"
).replace("x", LAMBDA)
_UPPER: Final = (
    "acos", "asin", "atan", "atan2", "cbrt", "cos", "cosh", "degrees", "e", "exp", "log10", "log2", "pi", "radians",
    "signum", "sin", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
_OTHER: Final = {
    "ceil": "CEIL", "ceiling": "ceiling", "floor": "FLOOR", "power": "POWER", "rank": "RANK",
    "dense_rank": "DENSE_RANK", "percent_rank": "PERCENT_RANK", "array_agg": "collect_list", "dateadd": "date_add",
}  # fmt: skip
_DEFAULTS: Final[dict[str, tuple[int, str]]] = {
    "round": (1, "0"), "bround": (1, "0"), "substring": (2, "2147483647"), "substr": (2, "2147483647"),
    "lpad": (2, " "), "rpad": (2, " "), "locate": (2, "1"), "position": (2, "1"), "split": (2, "-1"),
    "regexp_replace": (3, "1"), "replace": (2, ""), "overlay": (3, "-1"), "regexp_extract": (2, "1"),
    "from_unixtime": (1, "yyyy-MM-dd HH:mm:ss"), "unix_timestamp": (1, "yyyy-MM-dd HH:mm:ss"),
    "to_unix_timestamp": (1, "yyyy-MM-dd HH:mm:ss"), "sort_array": (1, "true"),
}  # fmt: skip
"""The arguments that a call is written with although it has fewer."""
_FORMS: Final[dict[str, Callable[[Sequence[str]], str]]] = {
    "isnull": lambda a: f"({a[0]} IS NULL)",
    "isnotnull": lambda a: f"({a[0]} IS NOT NULL)",
    "if": lambda a: f"(IF({a[0]}, {a[1]}, {a[2]}))",
    "array_sort": lambda a: f"array_sort({a[0]}, {_COMPARED})",
    "date": lambda a: f"CAST({a[0]} AS DATE)",
    "datepart": lambda a: f"datepart({a[0]} FROM {a[1]})",
    "positive": lambda a: f"(+ {a[0]})",
    "log": lambda a: f"LOG({', '.join(a if len(a) > 1 else ['E()', *a])})",
    "ltrim": lambda a: f"ltrim({a[0]})" if len(a) == 1 else f"TRIM(LEADING {a[0]} FROM {a[1]})",
    "rtrim": lambda a: f"rtrim({a[0]})" if len(a) == 1 else f"TRIM(TRAILING {a[0]} FROM {a[1]})",
}


def called(name: str, arguments: Sequence[str]) -> str:
    """Return the name of a call.

    Args:
        name: the function, in lower case.
        arguments: their names.
    """
    if name in _FORMS:
        return _FORMS[name](arguments)
    count, more = _DEFAULTS.get(name, (-1, ""))
    shown = [*arguments, more] if len(arguments) == count else arguments
    word = name.upper() if name in _UPPER else _OTHER.get(name, name)
    return f"{word}({', '.join(shown)})"


def real(number: float) -> str:
    """Return a literal DOUBLE as Java writes it."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    digits, _, exponent = f"{number:e}".partition("e")
    digits = repr(abs(number)).partition("e")[0].replace(".", "").strip("0") or "0"
    if len(digits) == 1:
        digits, _, exponent = f"{abs(number):.1e}".replace(".", "").partition("e")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{int(exponent)}"


def exact(text: str) -> str:
    """Return a literal DECIMAL as Java writes it."""
    whole, _, decimals = text.lstrip("-").partition(".")
    digits = (whole + decimals).lstrip("0") or "0"
    exponent = len(digits) - 1 - len(decimals)
    if exponent >= -6:
        return text
    return f"{'-' if text[0] == '-' else ''}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}E{exponent}"


def moment(text: str) -> str:
    """Return the text of a literal time as Spark shows it; one with a zone stays as it is."""
    found = re.fullmatch(
        r"(\d{4}-\d{1,2}-\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(\.\d{1,6})?)?)?", text.strip()
    )
    if found is None:
        return text
    clock = ":".join((part or "0").zfill(2) for part in found.groups()[1:4])
    return f"{day(found[1])} {clock}{(found[5] or '').rstrip('0').rstrip('.')}"


def day(text: str) -> str:
    """Return the text of a literal DATE as Spark shows it."""
    parts = text.strip().split("-")
    return "-".join(part.zfill(2) for part in parts) if len(parts) == 3 else text


def frame(name: str, arguments: Sequence[str], ordered: bool) -> str:
    """Return the frame of a window function that has none in the text."""
    if name in ("lag", "lead"):
        offset = arguments[1] if len(arguments) > 1 else "1"
        away = offset if name == "lead" else offset[1:] if offset.startswith("-") else f"-{offset}"
        return f"ROWS BETWEEN {away} FOLLOWING AND {away} FOLLOWING"
    if name in ("row_number", "rank", "dense_rank", "percent_rank", "ntile"):
        return "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    if ordered or name == "cume_dist":
        return "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    return "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
