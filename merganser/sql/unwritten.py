"""Errors of statements that change rows: they say that nothing was written, and which value of VALUES is at fault."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from sqlglot import exp

from merganser.errors import InvalidInputError, NotFoundError, UnsupportedError
from merganser.schema import types as t
from merganser.sql.dialect import Queries

_OF_QUERY: Final = ("cannot run the query: ", "cannot list in VALUES: ")
"""How errors begin that values of VALUES may cause."""
_VALUES_MAX: Final = 10_000
"""Maximum number of values in VALUES for which the value at fault is looked for: the query runs again a few times."""
_SHOWN: Final = 80
"""Maximum number of characters of a value in a message."""

Row = Sequence[exp.Expression]
Compute = Callable[[exp.Expression], Sequence[t.DataType]]


@contextmanager
def unwritten(still_true: str = "Nothing was written.") -> Iterator[None]:
    """Add what is still true to errors that do not say it."""
    try:
        yield
    except (InvalidInputError, NotFoundError, UnsupportedError) as error:
        if "Nothing " not in error.message:
            stop = "" if error.message.endswith((".", "?", "!")) else "."
            error.message = f"{error.message}{stop} {still_true}"
        raise


def rows_of_values(query: exp.Expression) -> list[Row] | None:
    """Return the rows of a query that is VALUES and nothing else; None if it is another one, or has queries inside."""
    from_ = query.args.get("from_")
    values = None if from_ is None else from_.this
    if not isinstance(values, exp.Values) or values.find(exp.Query) is not None:
        return None
    if query != exp.select("*").from_(values.copy()):
        return None
    return [list(row.expressions) if isinstance(row, exp.Tuple) else [row] for row in values.expressions]


def at_value(
    error: InvalidInputError, query: exp.Expression, columns: Sequence[str], compute: Compute
) -> InvalidInputError:
    """Return the error of the query of an INSERT with the place of the value that causes it, if it is one of VALUES.

    The first rows up to some number are computed again, in a binary search for the first row that fails.

    Args:
        columns: that the values are written to.
        compute: computes a query, and returns the types of its columns.
    """
    rows = rows_of_values(query)
    if rows is None or not error.message.startswith(_OF_QUERY) or sum(map(len, rows)) > _VALUES_MAX:
        return error
    if any(len(row) != len(columns) for row in rows):
        return error

    def why(tree: exp.Expression) -> InvalidInputError | None:
        try:
            compute(tree)
        except InvalidInputError as found:
            return found
        return None

    last = bisect_left(range(1, len(rows) + 1), True, key=lambda n: why(_values(rows[:n])) is not None)
    if last == len(rows):
        return error  # it does not fail again
    for i, column in enumerate(columns):
        above = [[row[i]] for row in rows[:last]]
        value = rows[last][i]
        if why(_values([*above, [value]])) is None:
            continue
        place = f"cannot write column '{column}': value {i + 1} of row {last + 1}"
        alone = why(_values([[value]]))
        if alone is not None:
            alone = why(exp.select(value.copy())) or alone  # has more to say
            fact = alone.message
            for start in _OF_QUERY:
                fact = fact.removeprefix(start)
            return InvalidInputError(f"{place}: {fact.rstrip('.')}. Nothing was written.", column=column)
        own, before = compute(_values([[value]]))[0], compute(_values(above))[0]
        text = value.sql(dialect=Queries)
        return InvalidInputError(
            f"{place} is {text[:_SHOWN]} ({own.with_nullable(True)}), and the values above it are "
            f"{before.with_nullable(True)}. Nothing was written. Give values of one type, or CAST them.",
            column=column,
        )
    return error


def _values(rows: Sequence[Row]) -> exp.Expression:
    made = [exp.Tuple(expressions=[value.copy() for value in row]) for row in rows]
    return exp.select("*").from_(exp.Values(expressions=made))
