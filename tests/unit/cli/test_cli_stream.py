"""The shard stream at the shell."""

from __future__ import annotations

import merganser as mg
from tests.unit.cli.conftest import Run


def test_a_stream_is_enabled_listed_and_disabled(run: Run, orders: mg.Table) -> None:
    assert run("shards", "shop.orders").code == 1
    said = run("stream", "enable", "shop.orders", "--retention", "3 h")
    assert said.code == 0
    assert "records are kept for 3:00:00" in said.out
    heading, *rows = run("shards", "shop.orders").out.splitlines()
    assert heading.split() == ["shard", "partition", "bucket", "state", "parents"]
    assert len(rows) == len(mg.table(orders.path).shards())
    assert all(" open" in row for row in rows)
    assert run("stream", "shards", "shop.orders").out.splitlines() == [heading, *rows]
    assert run("stream", "disable", "shop.orders") == (0, "", "")
    assert "keeps no shard stream" in run("stream", "disable", "shop.orders").err
    assert "retention is 'soon'" in run("stream", "enable", "shop.orders", "--retention", "soon").err


def test_the_lag_of_followers_is_shown(run: Run, orders: mg.Table) -> None:
    orders.enable_stream()
    orders.write(orders.read(limit=2).to_arrow())
    heading, *rows = run("followers", "shop.orders").out.splitlines()
    assert " ".join(heading.split()) == "shard worker state snapshots behind rows behind time behind"
    assert len(rows) == len(orders.shards())
    assert any(" waiting " in row and " 1 " in row for row in rows)
    assert run("stream", "followers", "shop.orders", "--checkpoints", "shop.orders").code == 1


def test_changes_are_shown_as_they_come(run: Run, orders: mg.Table) -> None:
    shown = run("tail", "shop.orders", "--from", "latest-full", "--once")
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert len(lines) == orders.read().to_arrow().num_rows
    assert all(line.startswith("+I id=") for line in lines)
    assert run("tail", "shop.orders", "--once").out == ""
    assert run("tail", "shop.orders", "--from", "yesterday", "--once").code == 1
