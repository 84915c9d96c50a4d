"""Every storage call of a statement of SQL goes wrong once, in every way. The tables are as before or after the whole
statement, of a script after some of its statements, and a repeat works."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from merganser.errors import CommitUnknownError, NotFoundError
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Outcome, Stopped

_names = itertools.count()
_SCRIPT = (
    "INSERT INTO db.t VALUES (9, 9)",
    "UPDATE db.t SET a = (SELECT max(a) + 1 FROM db.t) WHERE k = 1",
    "DELETE FROM db.t WHERE k IN (SELECT k FROM db.t WHERE a < 3)",
)
_STATEMENTS = {
    "overwrite": ("INSERT OVERWRITE db.t SELECT k, a + 1 FROM db.t WHERE a > 1",),
    "merge": (
        "MERGE INTO db.t USING (SELECT k + 1 AS k, a FROM db.t WHERE a > 1) AS s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET a = s.a * 10 WHEN NOT MATCHED THEN INSERT (k, a) VALUES (s.k, s.a)",
    ),
    "script": _SCRIPT,
    "places": (
        "UPDATE db.p SET a = (SELECT max(q.a) FROM db.p AS q) + k WHERE k IN (SELECT k FROM db.p WHERE a > 0)",
        "DELETE FROM db.p WHERE element_at(array(k), 1) = 2 OR a = (SELECT min(a) FROM db.p)",
    ),
}
_TABLES = {"places": "db.p"}
"""Tables of statements that do not change `db.t`."""


def _base() -> dict[str, bytes]:
    catalog = catalog_over(memory_with({}, f"sql-faults-{next(_names)}"))
    catalog.create_database("db")
    catalog.sql(
        "CREATE TABLE db.t (k INT, a INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '1');"
        "INSERT INTO db.t VALUES (0, 0), (1, 1), (2, 2), (3, 3);"
        "CREATE TABLE db.p (k INT, a INT);"
        "INSERT INTO db.p VALUES (0, 0), (1, 1), (2, 2), (2, 2); INSERT INTO db.p VALUES (3, 3), (2, 2)"
    )
    return contents(catalog.env.storage)


def _rows(storage: Storage, table: str = "db.t") -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in catalog_over(storage).table(table).read().to_pylist())


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("kind", _STATEMENTS)
def test_a_statement_is_all_or_nothing_whichever_call_goes_wrong(kind: str) -> None:
    files, texts, table = _base(), _STATEMENTS[kind], _TABLES.get(kind, "db.t")
    states = []
    for count in range(len(texts) + 1):
        storage = memory_with(files, f"sql-faults-{next(_names)}")
        catalog_over(storage).sql(";".join(texts[:count]) or "SELECT 1")
        states.append(_rows(storage, table))
    assert len({repr(state) for state in states}) == len(states)

    def check(storage: Storage, outcome: Outcome[None]) -> None:
        found = _rows(storage, table)
        assert found in states
        if outcome.error is None:
            assert found == states[-1]
        elif not isinstance(outcome.error, CommitUnknownError | Stopped):
            assert found != states[-1], f"{outcome.error!r} was raised, and the commit is there"
        left = texts[states.index(found) :]
        catalog_over(storage).sql(";".join(left) or "SELECT 1")
        assert _rows(storage, table) == states[-1]
        if isinstance(outcome.error, Stopped):
            assert [found for found in catalog_over(storage).table(table).check() if found.is_fault] == []

    name = f"sql-faults-{next(_names)}"
    runs = run_some(
        lambda: memory_with(files, name), lambda faulty: catalog_over(faulty).sql(";".join(texts)) and None, check
    )
    assert runs > 40


def test_a_table_of_a_query_is_whole_or_empty_or_not_there_whichever_call_goes_wrong() -> None:
    files, wanted = _base(), [(0, 0), (1, 10), (2, 20), (3, 30)]
    text = "CREATE TABLE db.u AS SELECT k, a * 10 AS a FROM db.t"

    def check(storage: Storage, outcome: Outcome[None]) -> None:
        try:
            found = _rows(storage, "db.u")
        except NotFoundError:
            found = None
        assert found in (None, [], wanted)
        if outcome.error is None:
            assert found == wanted
        elif found == []:  # the process or the store ended before the table could be dropped again
            assert not isinstance(outcome.error, CommitUnknownError)
        assert _rows(storage) == [(0, 0), (1, 1), (2, 2), (3, 3)]
        catalog_over(storage).sql(f"DROP TABLE IF EXISTS db.u; {text}")
        assert _rows(storage, "db.u") == wanted

    name = f"sql-faults-{next(_names)}"
    runs = run_some(lambda: memory_with(files, name), lambda faulty: catalog_over(faulty).sql(text) and None, check)
    assert runs > 40
