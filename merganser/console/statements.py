"""Statements for the page of SQL: rows as a table, a chart or a file, plans, and what is asked before it runs."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.display import display_texts, is_number
from merganser.console import charts
from merganser.console.cells import cells_of
from merganser.console.page import Asked
from merganser.errors import InvalidInputError, MerganserError
from merganser.options.option import DURATION
from merganser.scan.export import write_rows
from merganser.serve.answers import Answer
from merganser.sql import statements as s
from merganser.sql.embedded import Embedded
from merganser.sql.engine import Relation
from merganser.sql.losses import loss
from merganser.sql.parse import parse
from merganser.sql.result import Result
from merganser.sql.session import Session
from merganser.sql.state import DEFAULT_DATABASE, MAX_ROWS, TIMEOUT, State

_SHOWN_MAX: Final = 500
_EXPORTED_MAX: Final = 1_000_000
_CHART_MAX: Final = 100
_SECONDS: Final = "60 s"
_KINDS: Final = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


class _Limited(Embedded):
    """Runs queries within the limits of the console, whatever SET says, until the client goes."""

    def __init__(self) -> None:
        super().__init__()
        self._is_over = False

    def cancel(self) -> None:
        """Stop the query that runs, and run no other."""
        self._is_over = True
        super().cancel()

    def query(self, state: State, *how: Any, **more: Any) -> Relation:
        """Return the rows of a query."""
        if self._is_over:
            raise InvalidInputError("the client has gone, so its queries were stopped.")
        limit = DURATION.parse(_SECONDS)
        if DURATION.parse(state.options.get(TIMEOUT, _SECONDS)) > limit:
            raise InvalidInputError(f"'{TIMEOUT}' is at most {_SECONDS} in the console. Nothing was run.")
        state.options.setdefault(TIMEOUT, _SECONDS)
        return super().query(state, *how, **more)

    def result(self, state: State, relation: Relation) -> pa.Table:
        """Return the rows of a file."""
        own = state.options.get(MAX_ROWS, "")
        state.options[MAX_ROWS] = str(min(int(own or _EXPORTED_MAX), _EXPORTED_MAX))
        return super().result(state, relation)


class _First(_Limited):
    """Reads the first rows of a result, and knows whether there are more."""

    cut = False

    def result(self, state: State, relation: Relation) -> pa.Table:
        """Return the first rows; the rest is not read."""
        batches, count = [], 0
        for batch in relation.rows:
            batches.append(batch)
            count += batch.num_rows
            if count > _SHOWN_MAX:
                self.cut = True
                break
        return pa.Table.from_batches(batches, relation.rows.schema).slice(0, _SHOWN_MAX)


def view(asked: Asked) -> Mapping[str, Any]:
    """Return the page before a statement has run."""
    return _context(asked, asked.text("statement"), asked.text("database"))


def act(asked: Asked, form: Mapping[str, str]) -> Mapping[str, Any]:
    """Run the statements of the form, and return the page with the rows of the last one, or a file of them."""
    text, database = form.get("statement", "").strip(), form.get("database", "")
    wanted = form.get("form", "table")
    context = _context(asked, text, database)
    if not text:
        return {**context, "fault": "There is no statement."}
    engine = _Limited() if wanted in _KINDS else _First()
    session = Session(asked.catalog, engine)
    try:
        _check_allowed(text, asked)
        if all(isinstance(each, s.READING) for each in parse(text)):
            asked.when_gone.append(engine.cancel)
        session.sql(f"SET '{TIMEOUT}' = '{_SECONDS}'")
        if database:
            session.run(s.Use((database,)))
        losses = [] if form.get("confirmed") else _losses(session, text)
        if losses:
            return {**context, "losses": losses, "form": wanted}
        if wanted in _KINDS:
            return {"answer": _file(session, text, wanted)}
        results = list(session.results(text))
        plan = _plan(session, text)
    except MerganserError as error:
        return {**context, "fault": error.message, "status": 400 if wanted in _KINDS else 200}
    if not results:
        return {**context, "fault": "There is no statement."}
    return {
        **context,
        **_shown(results[-1]),
        "cut": isinstance(engine, _First) and engine.cut,
        "plan": plan,
        "size_read": _size_read(plan),
    }


def _context(asked: Asked, text: str, database: str) -> dict[str, Any]:
    return {
        "statement": text,
        "databases": asked.catalog.list_databases(),
        "database": database or DEFAULT_DATABASE,
        "fault": None,
        "result": None,
        "losses": None,
        "shown_max": _SHOWN_MAX,
        "exported_max": _EXPORTED_MAX,
        "seconds_max": _SECONDS,
    }


def _check_allowed(text: str, asked: Asked) -> None:
    """Refuse statements that change something where that is not allowed, and those that read folders of the server.

    Raises:
        InvalidInputError: names the statement; nothing was run.
    """
    for statement in parse(text):
        if isinstance(statement, s.Call) and statement.procedure[-1].lower() == "migrate_folder":
            raise InvalidInputError(
                "cannot run 'migrate_folder' in the console: it takes files from any folder that the server can read. "
                "Nothing was run. Run `merganser migrate` on the machine of the folder."
            )
        if asked.may_change:
            continue
        if not isinstance(statement, s.READING):
            verb = statement.text.split(None, 1)[0].upper()[:20]
            raise InvalidInputError(
                f"cannot run {verb}: this console only reads, so SELECT, EXPLAIN, SHOW, DESCRIBE, USE and SET are "
                "allowed. Nothing was run. `merganser ui --allow-upkeep` with a token allows the others."
            )


def _losses(session: Session, text: str) -> list[str]:
    """Return what statements take away, as sentences."""
    told = []
    for statement in parse(text):
        if isinstance(statement, s.Use):
            session.run(statement)  # it says what later names mean
        else:
            told.append(loss(session.state, session.engine, statement))
    return [each for each in told if each is not None]


def _file(session: Session, text: str, form: str) -> Answer:
    result = session.execute(text)
    if not result.has_rows:
        raise InvalidInputError("the last statement gives no rows to write.")
    sink = io.BytesIO()
    write_rows(result.rows, form, sink, seen=lambda _: None)
    headers = {"content-disposition": f'attachment; filename="result.{form}"'}
    return Answer(sink.getvalue(), kind=_KINDS[form], headers=headers)


def _plan(session: Session, text: str) -> str | None:
    last = parse(text)[-1:]
    if not last or not isinstance(last[0], s.Query):
        return None
    plan: str = session.run(s.Explain(last[0])).rows[0][0].as_py()
    return plan


def _size_read(plan: str | None) -> int | None:
    """Return the bytes of the files that a plan reads; None: it does not say."""
    found = re.findall(r"^read +([\d,]+) bytes", plan or "", re.MULTILINE)
    return sum(int(size.replace(",", "")) for size in found) if found else None


def _shown(result: Result) -> dict[str, Any]:
    rows: pa.Table = result.rows
    numbers = [is_number(field.type) for field in rows.schema]
    return {
        "result": result,
        "names": [(field.name, str(field.type), number) for field, number in zip(rows.schema, numbers, strict=True)],
        "lines": cells_of(rows),
        "numbers": numbers,
        "text": _one_text(rows),
        "chart": _chart(rows, numbers),
        "counts": ", ".join(f"{count:,} rows {what}" for what, count in result.counts.items()),
    }


def _one_text(rows: pa.Table) -> str | None:
    """Return the text of EXPLAIN and SHOW CREATE TABLE: one value of several lines."""
    if rows.num_columns != 1 or rows.num_rows != 1:
        return None
    value = rows[0][0].as_py()
    return value if isinstance(value, str) and "\n" in value else None


def _chart(rows: pa.Table, numbers: list[bool]) -> Any:
    """Return a chart of the first column of numbers over the first column: a line over times, else bars."""
    if not 1 < rows.num_rows <= _CHART_MAX or rows.num_columns < 2 or not any(numbers[1:]):
        return None
    place = numbers.index(True, 1)
    values = pc.fill_null(rows[place].cast(pa.float64(), safe=False), 0.0).to_pylist()
    title = f"{rows.column_names[place]} by {rows.column_names[0]}"
    first = rows[0]
    if pa.types.is_timestamp(first.type) or pa.types.is_date(first.type):
        times: list[datetime | None] = first.cast(pa.timestamp("ms", "UTC"), safe=False).to_pylist()
        points = sorted((time, value) for time, value in zip(times, values, strict=True) if time is not None)
        return charts.line_chart(points, title=title) if len(points) > 1 else None
    texts = display_texts(first).to_pylist()
    return charts.bar_chart([(text or "null", v) for text, v in zip(texts, values, strict=True)], title=title)
