"""Deletion vectors both ways: the clients see what we marked, and we take in what they wrote and deleted."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import merganser as mg

from .peers import Peer
from .values import Row, arrow_schema, assert_same_rows, rows_of

pytestmark = pytest.mark.peers

FIELDS = [("k", "INT NOT NULL"), ("v", "STRING"), ("n", "BIGINT")]


def _table(warehouse: Path, key: list[str], **options: str) -> mg.Table:
    catalog = mg.catalog(str(warehouse))
    catalog.create_database("db")
    options = {"bucket": "2", "deletion-vectors.enabled": "true", **options}
    return catalog.create_table("db.t", dict(FIELDS), primary_key=key, options=options)


def _row(k: int, v: str, rng: random.Random) -> Row:
    return {"k": k, "v": v + rng.randbytes(rng.choice([0, 20, 200])).hex(), "n": rng.randrange(100)}


def _marks(table: mg.Table) -> int:
    return sum(split.deleted or 0 for split in table.read().plan().splits)


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_the_clients_read_key_tables_that_we_marked(peer: Peer, engine: str, tmp_path: Path) -> None:
    rng = random.Random(f"{peer.kind.name} {engine}")
    bits64 = "true" if peer.kind.name == "pypaimon-rust" else "false"  # pypaimon reads the 32-bit form only
    table = _table(tmp_path, ["k"], **{"merge-engine": engine, "deletion-vectors.bitmap64": bits64})
    model: dict[int, Row] = {}
    marked = 0
    for step in range(6):
        for row in (rows := [_row(k, str(step), rng) for k in rng.sample(range(60), 40 if step == 0 else 7)]):
            model[row["k"]] = row
        table.write(pa.Table.from_pylist(rows, arrow_schema(FIELDS)))
        if engine == "deduplicate" and step:
            gone = rng.sample(sorted(model), 2)
            table.write(pa.Table.from_pylist([model.pop(k) for k in gone], arrow_schema(FIELDS)), kinds=["-D", "-D"])
        marked = max(marked, _marks(table))
        assert_same_rows(rows_of(table.read().to_arrow(), FIELDS), list(model.values()))
        assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), list(model.values()), f"step {step}")
    assert marked > 5
    table.compact(full=True)
    assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), list(model.values()))


def test_what_the_clients_write_is_taken_in_by_our_compaction(peer: Peer, tmp_path: Path) -> None:
    rng = random.Random(peer.kind.name)
    table = _table(tmp_path, ["k"])
    base = [_row(k, "ours", rng) for k in range(30)]
    table.write(pa.Table.from_pylist(base, arrow_schema(FIELDS)))
    model = {row["k"]: row for row in base}
    for step in range(3):
        rows = [_row(k, f"theirs {step}", rng) for k in rng.sample(range(40), 5)]
        peer.write(tmp_path, "db.t", pa.Table.from_pylist(rows, arrow_schema(FIELDS)))
        assert_same_rows(rows_of(table.read().to_arrow(), FIELDS), list(model.values()))  # not visible yet
        table.compact()
        model |= {row["k"]: row for row in rows}
        assert_same_rows(rows_of(table.read().to_arrow(), FIELDS), list(model.values()))
        assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), list(model.values()))
    assert not [found for found in table.check() if found.is_fault]


def test_the_clients_read_rows_that_we_deleted_from_tables_without_a_key(peer: Peer, tmp_path: Path) -> None:
    table = _table(tmp_path, [], bucket="-1", **{"write-only": "true"})
    rows: list[Row] = [{"k": k, "v": "x", "n": None} for k in range(12)]
    for part in (rows[:5], rows[5:]):
        table.write(pa.Table.from_pylist(part, arrow_schema(FIELDS)))
    table.delete("k IN (0, 3, 6, 11)")
    assert table.files().num_rows == 2
    left = [row for row in rows if row["k"] not in (0, 3, 6, 11)]
    assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), left)
    table.update("k % 5 = 2", {"v": "'new'", "n": "k * 2"})
    left = [{**row, "v": "new", "n": row["k"] * 2} if row["k"] % 5 == 2 else row for row in left]
    assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), left)
    table.delete("k < 5")
    left = [row for row in left if row["k"] >= 5]
    assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), left)
    table.compact(full=True)
    assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), left)


def test_the_clients_read_files_that_we_wrote_anew(peer: Peer, tmp_path: Path) -> None:
    table = _table(tmp_path, [], bucket="-1", **{"deletion-vectors.enabled": "false"})
    rows: list[Row] = [{"k": k, "v": "x", "n": k} for k in range(12)]
    for part in (rows[:5], rows[5:]):
        table.write(pa.Table.from_pylist(part, arrow_schema(FIELDS)))
    table.update("k IN (1, 2, 7)", {"n": "NULL"})
    table.delete("k > 9")
    left = [{**row, "n": None} if row["k"] in (1, 2, 7) else row for row in rows[:10]]
    assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), left)
    keyed = mg.catalog(str(tmp_path)).create_table("db.u", dict(FIELDS), primary_key=["k"], options={"bucket": "2"})
    keyed.write(pa.Table.from_pylist(rows, arrow_schema(FIELDS)))
    keyed.update("k IN (1, 2, 7)", {"n": "NULL"})
    keyed.delete("k > 9")
    assert_same_rows(peer.rows(tmp_path, "db.u", FIELDS), left)


def test_rows_that_rust_deletes_are_gone_for_us_and_their_vectors_survive_our_commits(
    rust: Peer, tmp_path: Path
) -> None:
    options = {"deletion-vectors.enabled": "true", "row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    rust.create_table(tmp_path, "db.t", FIELDS, options=options)
    rust.write(
        tmp_path, "db.t", pa.Table.from_pylist([{"k": k, "v": "x", "n": k} for k in range(9)], arrow_schema(FIELDS))
    )
    rust.sql(tmp_path, "db.t", "DELETE FROM {table} WHERE k IN (2, 5)")
    table = mg.table(str(tmp_path / "db.db" / "t"))
    assert sorted(table.read().to_arrow()["k"].to_pylist()) == [0, 1, 3, 4, 6, 7, 8]
    assert table.read().count() == 7
