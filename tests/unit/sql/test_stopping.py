"""Ends of queries that would run for hours: `sql.timeout`, `Session.cancel` and Ctrl-C stop all that has a query."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from merganser.sql.query import duck
from merganser.sql.query.bound import Reference
from merganser.sql.session import Session

_LONG = "SELECT sum(a.id * b.id) AS id, 1 AS v FROM range(1000000) a, range(1000000) b"
_STATEMENTS = {
    "select": _LONG,
    "update": f"UPDATE t SET v = 2 WHERE id IN (SELECT id FROM ({_LONG}))",
    "delete": f"DELETE FROM t WHERE id IN (SELECT id FROM ({_LONG}))",
    "insert": f"INSERT INTO t SELECT CAST(id AS INT), v FROM ({_LONG})",
    "overwrite": f"INSERT OVERWRITE t SELECT CAST(id AS INT), v FROM ({_LONG})",
    "merge": f"MERGE INTO t USING ({_LONG}) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "create": f"CREATE TABLE copy AS {_LONG}",
}
every_statement = pytest.mark.parametrize("statement", _STATEMENTS.values(), ids=_STATEMENTS)


@pytest.fixture(params=[", PRIMARY KEY (id) NOT ENFORCED", ""], ids=["keyed", "append"])
def session(tmp_path: Path, request: pytest.FixtureRequest) -> Session:
    made = mg.catalog(tmp_path).session()
    made.sql(f"CREATE DATABASE default; CREATE TABLE t (id INT, v INT{request.param}); INSERT INTO t VALUES (1, 1)")
    return made


def _check_unchanged(session: Session) -> None:
    assert session.sql("SELECT * FROM t").to_pylist() == [{"id": 1, "v": 1}]
    assert session.sql("SELECT count(*) AS n FROM t$snapshots").to_pylist() == [{"n": 1}]
    assert session.sql("SHOW TABLES")["tableName"].to_pylist() == ["t"]


@contextmanager
def _meanwhile(stop: Callable[[], object], *, again: bool) -> Iterator[None]:
    """Call a function while the block runs, from another thread: once, or again and again."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.2):
            stop()
            if not again:
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@every_statement
def test_a_limit_of_time_stops_the_query(session: Session, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_: str | None) -> str:
        sleep(0.3)  # the limit is over before the query begins, and DuckDB forgets an interrupt that comes then
        return "UTC"

    session.sql("SET sql.timeout = '200 ms'")
    with monkeypatch.context() as patch:
        patch.setattr(duck, "_zone", slow)
        with pytest.raises(InvalidInputError, match=r"stopped after 0\.2 s, the limit of 'sql\.timeout'") as stopped:
            session.sql(statement)
    assert statement == _LONG or "Nothing was " in str(stopped.value)
    session.sql("RESET")
    _check_unchanged(session)


@every_statement
def test_another_thread_stops_the_query(session: Session, statement: str) -> None:
    session.sql("SET sql.timeout = '50 s'")
    with _meanwhile(session.cancel, again=True), pytest.raises(InvalidInputError, match=r"the query was stopped\."):
        session.sql(statement)
    _check_unchanged(session)


@pytest.fixture
def keyboard() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, also where a shell started the tests in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@every_statement
@pytest.mark.usefixtures("keyboard")
def test_ctrl_c_stops_the_query(session: Session, statement: str) -> None:
    def press() -> None:  # again and again, as a person does
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), _meanwhile(press, again=True):
        session.sql(statement)
    _check_unchanged(session)


@pytest.mark.parametrize("query", ["SELECT id FROM t", "SELECT id + 1 FROM t"])
def test_a_query_that_reads_is_stopped(session: Session, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows_of = duck.rows_of

    def stopped(reference: Reference) -> object:
        session.cancel()
        session.cancel()
        return rows_of(reference)

    monkeypatch.setattr(duck, "rows_of", stopped)
    with pytest.raises(InvalidInputError, match=r"the query was stopped\."):
        session.sql(query)


def test_a_second_ctrl_c_does_not_leave_the_query_running(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, presses = duck.wait, iter([KeyboardInterrupt()])

    def pressed(futures: Any, timeout: float | None = None, *how: Any) -> Any:
        if timeout == duck._INTERRUPT_SECONDS and (press := next(presses, None)) is not None:
            raise press
        return waits(futures, timeout, *how)

    monkeypatch.setattr(duck, "wait", pressed)
    session.sql("SET sql.timeout = '200 ms'")
    with pytest.raises(InvalidInputError, match="stopped after"):
        session.sql(_LONG)
    assert next(presses, None) is None
    for thread in threading.enumerate():
        if thread.name == "merganser-query":
            thread.join(10)
            assert not thread.is_alive()
