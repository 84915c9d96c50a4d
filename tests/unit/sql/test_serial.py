"""Statements whose query reads the table that they change are as if nobody else had written since they began."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import ConflictError, InvalidInputError
from merganser.sql.session import Session
from tests.unit.sql.between import LAYOUTS, OTHERS, STATEMENTS, committed_between, made


@pytest.fixture
def session(tmp_path: Path) -> Session:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("default")
    return catalog.session()


def _rows(session: Session) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in session.sql("SELECT k, n FROM t").to_pylist())


@pytest.mark.campaign(1 / 32)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("other", OTHERS)
def test_a_statement_is_computed_again_if_the_rows_that_its_query_read_have_changed(
    session: Session, layout: str, statement: str, other: str
) -> None:
    made(session.sql, layout)
    session.sql(f"{OTHERS[other]}; {STATEMENTS[statement]}")
    expected = _rows(session)
    made(session.sql, layout)
    with committed_between(lambda: session.sql(OTHERS[other])) as runs:
        session.sql(STATEMENTS[statement])
    assert _rows(session) == expected
    assert len(runs) == 2 or (statement, other) == ("lookup", "insert")


def test_what_the_query_did_not_read_is_no_conflict(session: Session) -> None:
    made(session.sql, "no-key")
    session.sql("INSERT INTO t VALUES (100, 1)")
    past = "INSERT INTO t SELECT k + 10, n FROM t VERSION AS OF 1 WHERE k = 1"
    part = "INSERT INTO t SELECT k, n + 1 FROM t WHERE k = 100"
    blind = "INSERT INTO t VALUES (5, 5)"
    with committed_between(lambda: session.sql("INSERT INTO t VALUES (4, 40)"), times=9) as runs:
        session.sql(f"{past}; {part}; {blind}")
    assert [None if read is None else read.snapshot.id for read in runs if read is None or read.snapshot] == [
        None, 4, None,
    ]  # fmt: skip
    made(session.sql, "key")
    session.sql("INSERT INTO t VALUES (1, 11)")
    with committed_between(lambda: session.sql("ALTER TABLE t COMPACT")) as runs:
        session.sql(STATEMENTS["in"])
    assert len(runs) == 1
    assert _rows(session) == [(1, 11), (2, 120), (3, 130)]


def test_rows_without_a_key_are_found_by_their_places(session: Session) -> None:
    session.sql("CREATE TABLE t (k INT, n INT, x DOUBLE); CREATE TABLE u (k INT); INSERT INTO u VALUES (1), (3)")
    session.sql("INSERT INTO t VALUES (1, NULL, 1.5), (1, NULL, 1.5), (1, 1, NULL), (2, NULL, NULL), (3, 3, 3)")
    result = session.execute("UPDATE t SET n = k * 10 + (SELECT max(k) FROM u) WHERE k IN (SELECT k FROM u)")
    assert result.counts == {"updated": 4}
    assert _rows(session) == [(1, 13), (1, 13), (1, 13), (2, None), (3, 33)]
    assert session.execute("DELETE FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)").counts == {"deleted": 1}
    session.sql("CREATE TABLE nested (k INT, tags ARRAY<INT>); INSERT INTO nested VALUES (1, array(7)), (2, NULL)")
    session.sql("DELETE FROM nested WHERE size(tags) IN (SELECT k FROM u)")
    assert session.sql("SELECT k FROM nested").to_pylist() == [{"k": 2}]


def test_an_option_that_there_is_not_is_unset_only_if_it_may_be_missing(session: Session) -> None:
    session.sql("CREATE TABLE t (k INT) TBLPROPERTIES ('team.owner' = 'x')")
    session.sql("ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('team.owner', 'team.ownr', 'bucket')")
    with pytest.raises(InvalidInputError, match=r"unknown table option 'bukcet'. Did you mean 'bucket'"):
        session.sql("ALTER TABLE t UNSET TBLPROPERTIES ('bukcet')")


def test_a_statement_gives_up_after_its_retries(session: Session) -> None:
    made(session.sql, "key")
    session.sql("ALTER TABLE t SET ('commit.max-retries' = '2', 'commit.max-retry-wait' = '1 ms')")
    with (
        committed_between(lambda: session.sql("UPDATE t SET n = n + 1 WHERE k = 2"), times=99) as runs,
        pytest.raises(ConflictError, match=r"snapshot \d+ .* changed bucket .* Nothing was changed"),
    ):
        session.sql(STATEMENTS["scalar"])
    assert len(runs) >= 3
    assert _rows(session) == [(1, 10), (2, 20 + len(runs)), (3, 30)]


def test_no_change_of_writers_beside_each_other_is_lost(session: Session, tmp_path: Path) -> None:
    made(session.sql, "key")

    def many(key: int) -> None:
        mine = mg.catalog(tmp_path).session()
        for _ in range(8):
            mine.sql(f"UPDATE t SET n = (SELECT max(n) + 1 FROM t) WHERE k = {key}")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(many, (1, 2, 3)))
    assert max(n for _, n in _rows(session)) == 30 + 24
