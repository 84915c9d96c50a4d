"""Errors of Spark in the words of merganser: without its plan, its advice about settings, and lines of our modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException

from merganser.errors import InvalidInputError, MerganserError, NotFoundError
from merganser.options.registry import closest, did_you_mean
from merganser.scan.rows import counted
from merganser.sql.built_in import BUILT_IN

_UNKNOWN_TABLE: Final = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "UNRESOLVABLE_TABLE_VALUED_FUNCTION")
_NAMES: Final = (
    ("UNRESOLVED_COLUMN", "objectName", "column"),
    ("UNRESOLVED_ROUTINE", "routineName", "function"),
    ("TABLE_OR_VIEW_NOT_FOUND", "relationName", "table"),
    ("UNRESOLVABLE_TABLE_VALUED_FUNCTION", "name", "function"),
)
"""Beginning of a condition of Spark, its parameter with a name, and what the name is of."""
_OF_COLUMN: Final = re.compile(r"cannot write column '(.+?)': cannot CAST '.*?\. Nothing was written\.", re.DOTALL)
"""What `fitting` raises."""
_ADVICE: Final = re.compile(r"\s*(?:Use `try_\w+`|If necessary,? set|Please check your syntax|You can set )[^\n]*")
_SAID: Final[Mapping[str, Callable[[Mapping[str, str]], str]]] = {
    "DIVIDE_BY_ZERO": lambda given: "division by zero",
    "CAST_INVALID_INPUT": lambda given: f"cannot cast {given['expression']} to {_bare(given['targetType'])}",
    "CAST_OVERFLOW": lambda given: (
        f"cannot cast {given['value'].rstrip('LSYD')} to {_bare(given['targetType'])}: the value does not fit the type"
    ),
    "NUMERIC_VALUE_OUT_OF_RANGE": lambda given: (
        f"cannot cast {given['value']} to DECIMAL({given['precision']}, {given['scale']}): the value does not fit the "
        "type"
    ),
    "UNSUPPORTED_TIME_TYPE": lambda given: (
        "Spark computes with TIME only if 'spark.sql.timeType.enabled' is true, which is a setting of its session. SET "
        "it first"
    ),
    "INVALID_INLINE_TABLE.NUM_COLUMNS_MISMATCH": lambda given: (
        f"row {int(given['rowIndex']) + 1} of VALUES has {counted(int(given['actualNumCols']), 'value')}, and the "
        f"first one has {given['expectedNumCols']}"
    ),
    "INVALID_INLINE_TABLE.INCOMPATIBLE_TYPES_IN_INLINE_TABLE": lambda given: (
        f"{_place(given['colName'])} of VALUES has rows of different types. CAST them to one"
    ),
    "INVALID_INLINE_TABLE.FAILED_SQL_EXPRESSION_EVALUATION": lambda given: (
        f"cannot compute {_bare(given['sqlExpr'])} in VALUES"
    ),
}
"""Our words, by the condition of Spark's error, from its parameters."""


@contextmanager
def spark_words(what: str, columns: Sequence[str] = ()) -> Iterator[None]:
    """Raise errors of Spark as merganser's.

    Args:
        what: could not be done.
        columns: names of columns that a query may have meant; Spark knows only those that it was given.
    """
    try:
        yield
    except MerganserError:
        raise
    except PySparkException as error:
        if (found := _OF_COLUMN.search(str(error))) is not None:
            raise InvalidInputError(found[0], column=found[1]) from error
        condition = _ask(error, "getCondition", "getErrorClass")
        if condition is None and not isinstance(error, AnalysisException):
            raise
        given = _ask(error, "getMessageParameters") or {}
        words = _said(condition or "", given) or _words(str(error))
        if condition is not None and condition.startswith("UNRESOLVED_COLUMN") and columns:
            name = (given.get("objectName") or "").split(".")[-1].strip("`")
            words = f"{words.partition(' Did you mean')[0]} {did_you_mean(name, sorted(set(columns)))}"
        if condition == "UNRESOLVED_ROUTINE":
            name = (given.get("routineName") or "").split(".")[-1].strip("`")
            near = closest(name, sorted(BUILT_IN))
            words = f"there is no function '{name}'." + (f" Did you mean '{near}'?" if near else "")
        kind = NotFoundError if condition in _UNKNOWN_TABLE else InvalidInputError
        raise kind(f"{what}: {words}", **_named(condition or "", given)) from error


def _named(condition: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the name that an error is about, by which `sql.places` finds its place in the statement."""
    for start, parameter, fact in _NAMES:
        if condition.startswith(start) and (name := given.get(parameter)):
            return {fact: name.replace("`", "")}
    return {}


def _said(condition: str, given: Mapping[str, str]) -> str | None:
    say = _SAID.get(condition) or _SAID.get(condition.partition(".")[0])
    try:
        return None if say is None else say(given) + "."
    except (KeyError, ValueError):  # another version of Spark has other parameters
        return None


def _bare(text: str) -> str:
    return text.strip('"')


def _place(column: str) -> str:
    """Return what messages call a column of VALUES, which Spark calls `col1`."""
    return re.sub(r"^`?col(\d+)`?$", r"value \1", column)


def _ask(error: PySparkException, *names: str) -> Any:
    """Return what the first of some methods gives, of those that this version of Spark has."""
    for name in names:
        if hasattr(error, name):
            return getattr(error, name)()
    return None


def _words(text: str) -> str:
    """Return what Spark says, without its plan, its advice, and where in its text or in our modules."""
    text = re.split(r"\n?== (?:SQL|DataFrame)|;\s*\n|\n\s*\n|\nJVM stacktrace", text)[0]
    text = re.sub(r"\s*SQLSTATE: \w+|; line \d+ pos \d+|\s*\(line \d+, pos \d+\)", "", text)
    text = _ADVICE.sub("", text)
    return re.sub(r"^\[[\w.]+\]\s*", "", text.strip()).replace("\n", " ").rstrip("; ")
