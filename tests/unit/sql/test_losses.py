"""What a statement takes away is told before it runs, and nothing is changed by telling it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.sql.losses import loss
from merganser.sql.parse import parse


@pytest.fixture
def session(tmp_path: Path) -> Any:
    session = mg.catalog(str(tmp_path)).session()
    session.sql(
        """
        CREATE DATABASE shop; USE shop;
        CREATE TABLE t (id INT, dt STRING, PRIMARY KEY (id, dt) NOT ENFORCED) PARTITIONED BY (dt);
        CREATE TABLE empty (id INT);
        INSERT INTO t VALUES (1, 'a'), (2, 'a'); INSERT INTO t VALUES (3, 'b'); INSERT INTO t VALUES (4, 'c');
        ALTER TABLE t CREATE TAG first AS OF VERSION 1;
        CALL sys.reset_consumer('t', 'dashboard', 2);
        """
    )
    return session


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("DROP DATABASE shop CASCADE", "Drops the database shop with 2 tables, 4 stored rows: empty, t."),
        ("DROP DATABASE shop", None),
        ("DROP TABLE t", "Drops the table shop.t: 4 stored rows, 3 snapshots, 1 tag."),
        ("DROP TABLE IF EXISTS nothing", None),
        ("TRUNCATE TABLE t", "Removes all rows of shop.t: 4 stored rows."),
        ("TRUNCATE TABLE t PARTITION (dt = 'a')", "Removes all rows of 1 partition of shop.t: 2 stored rows."),
        ("TRUNCATE TABLE empty", None),
        ("DELETE FROM t", "Removes all rows of shop.t: 4 stored rows."),
        ("DELETE FROM t WHERE (true)", "Removes all rows of shop.t: 4 stored rows."),
        ("DELETE FROM t WHERE id = 1", None),
        ("DELETE FROM t WHERE false", None),
        ("INSERT INTO t VALUES (5, 'a')", None),
        (
            "INSERT OVERWRITE t VALUES (5, 'a')",
            "Replaces rows of shop.t: the partitions that it writes, of all the 4 stored rows.",
        ),
        (
            "ALTER TABLE t DROP PARTITION (dt = 'a'), PARTITION (dt = 'b')",
            "Drops 2 partitions of shop.t: 3 stored rows.",
        ),
        ("ALTER TABLE empty DROP COLUMN id", "Drops the column id of shop.empty, which has 0 stored rows."),
        ("ALTER TABLE t DELETE TAG first", "Deletes the tag first of shop.t."),
        ("CALL sys.delete_tag('t', 'first')", "Deletes the tag first of shop.t."),
        (
            "CALL sys.rollback('t', 'first')",
            "Sets shop.t back to snapshot 1; snapshots 2 to 3 are removed for good, and their tags.",
        ),
        ("CALL sys.rollback('t', 3)", None),
        ("CALL sys.rollback('t', 'none')", None),
        ("CALL sys.expire_snapshots(table => 't', retain_max => 1, retain_min => 1)", "Expires 1 snapshot of t."),
        ("CALL sys.expire_snapshots(table => 't', retain_max => 3, retain_min => 3)", None),
        ("CALL sys.remove_orphan_files('t')", None),
        ("CALL sys.erase('t', 'id = 1')", "Removes rows of shop.t from every file that holds them, where id = 1."),
        ("CALL sys.clear_consumers('t')", "Removes the consumer dashboard of shop.t."),
        ("CALL sys.compact('t')", None),
        ("SELECT * FROM t", None),
    ],
)
def test_what_goes_is_told(session: Any, text: str, told: str | None) -> None:
    assert loss(session.state, session.engine, parse(text)[0]) == told
    assert session.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 4}]
    assert session.sql("SELECT count(*) AS n FROM t$snapshots").to_pylist() == [{"n": 3}]
