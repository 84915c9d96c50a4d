"""Session: runs statements one after the other, and keeps what USE and SET say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from merganser.errors import InvalidInputError, MerganserError
from merganser.sql import define, rows, show
from merganser.sql import statements as s
from merganser.sql.advice import in_sql
from merganser.sql.embedded import Embedded
from merganser.sql.engine import Engine
from merganser.sql.parse import parse
from merganser.sql.places import point
from merganser.sql.procedures import call
from merganser.sql.result import Result
from merganser.sql.state import State

Run = Callable[[State, Engine, Any], Result]
_DEEP: Final = "an expression in it is nested too deeply. Divide it, or put a part of it into a subquery."


class Session:
    """Statements over one catalog.

    Args:
        catalog: of `merganser.catalog`.
        engine: what runs queries; None: this process.
    """

    def __init__(self, catalog: Any, engine: Engine | None = None) -> None:
        self.state = State(catalog)
        self.engine: Engine = engine or Embedded()

    def sql(self, text: str, parameters: Mapping[str, Any] | None = None) -> pa.Table:
        """Run statements, and return the rows of the last one as an Arrow table.

        Args:
            text: one statement, or several with semicolons between them. All are parsed before the first one runs.
            parameters: values for `:name` in the text.

        Returns:
            The rows; a table without columns for a statement that gives none.

        Raises:
            SqlSyntaxError: the text is not understood; nothing was run.
            MerganserError: a statement failed; those before it have run, and the message says which one it was.
        """
        return self.execute(text, parameters).rows

    def execute(self, text: str, parameters: Mapping[str, Any] | None = None) -> Result:
        """Run statements as `sql` does, and return what the last one gave: rows, snapshot, counts, time."""
        given = list(self.results(text, parameters))
        return given[-1] if given else Result()

    def results(
        self,
        text: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        before: Callable[[s.Statement], bool] | None = None,
    ) -> Iterator[Result]:
        """Run statements as `sql` does, and yield what each of them gave as soon as it has run.

        Args:
            before: called with each statement before it runs. If it returns False, this statement and those after it
                do not run.
        """
        try:
            parsed = self.parsed(text, parameters)
        except RecursionError:
            raise InvalidInputError(f"cannot parse the statement: {_DEEP} Nothing was run.") from None
        for number, statement in enumerate(parsed, 1):
            if before is not None and not before(statement):
                return
            try:
                result = self.run(statement)
            except MerganserError as error:
                error.message = in_sql(error.message)
                if len(parsed) > 1:
                    ran = "Nothing before it was run." if number == 1 else "The statements before it have run."
                    stop = "" if error.message.endswith((".", "?", "!")) else "."
                    error.message = f"statement {number} of {len(parsed)}: {error.message}{stop} {ran}"
                point(error, text, number)
                raise
            yield result

    def parsed(self, text: str, parameters: Mapping[str, Any] | None) -> tuple[s.Statement, ...]:
        """Return the statements of a text."""
        return parse(text, parameters)

    def cancel(self) -> None:
        """Stop the query that runs, if there is one. Other threads and signal handlers may call this.

        The statement raises InvalidInputError, and nothing of it is committed. A commit that has begun is not stopped.
        """
        self.engine.cancel()

    def run(self, statement: s.Statement) -> Result:
        """Run one statement that is parsed already.

        Raises:
            MerganserError: it failed.
        """
        begun = time.perf_counter()
        try:
            result = _RUNS[type(statement)](self.state, self.engine, statement)
        except RecursionError:  # while it is planned: nothing is written then
            raise InvalidInputError(f"cannot run the statement: {_DEEP}") from None
        changes = isinstance(statement, s.Insert | s.Update | s.Delete | s.Merge | s.Truncate)
        counts = result.counts
        if changes and not counts and result.snapshot is not None:
            of_snapshot = {
                verb: getattr(result.snapshot, f"rows_{verb}") for verb in ("inserted", "updated", "deleted")
            }
            counts = {verb: rows for verb, rows in of_snapshot.items() if rows}
        seconds = time.perf_counter() - begun
        return replace(result, counts=counts, changes=changes, seconds=seconds, statement=statement.text)


_RUNS: Final[dict[type[s.Statement], Run]] = {**define.RUNS, **rows.RUNS, **show.RUNS, s.Call: call}
