"""Other clients see our tags, branches, rollbacks and fast-forwards as we do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import merganser as mg

from .peers import Peer
from .values import rows_of

pytestmark = pytest.mark.peers

FIELDS = [("k", "INT NOT NULL"), ("v", "STRING")]


@pytest.fixture
def table(tmp_path: Path) -> mg.Table:
    """A table of three snapshots; snapshot n holds the keys 1 to n."""
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", dict(FIELDS), primary_key=["k"], options={"bucket": "1"})
    for k in (1, 2, 3):
        table.write([{"k": k, "v": "main"}])
    return table


def _keys(peer: Peer, warehouse: Path, name: str = "db.t", options: dict[str, str] | None = None) -> list[Any]:
    if peer.kind.name == "pypaimon-rust" and options:
        rows = peer.sql(warehouse, name, f"SELECT k FROM {{table}} VERSION AS OF '{options['scan.tag-name']}'")
    else:
        rows = peer.read(warehouse, name, columns=["k"], options=options or {})
    return sorted(row["k"] for row in rows_of(rows))


def test_a_client_reads_our_tags(peer: Peer, table: mg.Table, tmp_path: Path) -> None:
    table.tags.create("plain", snapshot=1)
    table.tags.create("for-a-while", snapshot=2, retain="3 d")
    table.expire(retain_max=1, retain_min=1)
    assert _keys(peer, tmp_path, options={"scan.tag-name": "plain"}) == [1]
    assert _keys(peer, tmp_path, options={"scan.tag-name": "for-a-while"}) == [1, 2]


def test_a_client_reads_our_branches(peer: Peer, table: mg.Table, tmp_path: Path) -> None:
    table.tags.create("v1", snapshot=2)
    table.branches.create("b", tag="v1")
    table.branch("b").write([{"k": 9, "v": "branch"}])
    assert _keys(peer, tmp_path, "db.t$branch_b") == [1, 2, 9]
    assert _keys(peer, tmp_path) == [1, 2, 3]


def test_a_client_goes_on_from_our_rollback_and_fast_forward(peer: Peer, table: mg.Table, tmp_path: Path) -> None:
    table.tags.create("v1", snapshot=2)
    table.branches.create("b", tag="v1")
    table.branch("b").write([{"k": 9, "v": "branch"}])
    table.rollback(snapshot=1)
    assert _keys(peer, tmp_path) == [1]
    peer.write(tmp_path, "db.t", mg.table(table.path).read(snapshot=1).to_arrow())
    assert peer.latest_snapshot(tmp_path, "db.t") == 2
    table.rollback(snapshot=1)
    table.write([{"k": 2, "v": "again"}])
    table.tags.create("v2")
    table.branches.create("c", tag="v2")
    table.branch("c").write([{"k": 9, "v": "branch"}])
    table.branches.fast_forward("c")
    assert _keys(peer, tmp_path) == [1, 2, 9]
    assert peer.latest_snapshot(tmp_path, "db.t") == 3
