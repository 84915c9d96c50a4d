"""The shard stream at the shell."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

import merganser as mg
from tests.unit.cli.conftest import Run


def test_a_stream_is_enabled_listed_and_disabled(run: Run, orders: mg.Table) -> None:
    assert run("shards", "shop.orders").code == 1
    said = run("stream", "enable", "shop.orders", "--retention", "3 h")
    assert said.code == 0
    assert "records are kept for 3:00:00" in said.out
    one = mg.catalog(orders.path.rpartition("/shop.db/")[0]).create_table(
        "shop.one", "k INT, PRIMARY KEY (k)", options={"bucket": "1"}
    )
    assert ": 1 shard, " in run("stream", "enable", one.name).out
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
    for start in ("yesterday", "from-snapshot", "compacted-full"):
        refused = run("tail", "shop.orders", "--from", start, "--once")
        assert refused.code == 2
        assert f"'{start}' is none. Give one of latest, latest-full." in " ".join(refused.err.split())
    assert run("followers", "shop.orders", "--checkpoints", "d.nope").code == 1


def _tail(orders: mg.Table, stdout: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "merganser", "tail", orders.path, "--from", "latest-full"]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=os.environ | {"TERM": "xterm-256color"})


def _said(orders: mg.Table) -> bytes:
    return f"following '{orders.path}' from 'latest-full'; Ctrl-C ends it\n".encode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_on_a_terminal_kinds_have_colours_and_a_signal_ends_it(orders: mg.Table, number: int) -> None:
    ours, theirs = pty.openpty()
    tailing = _tail(orders, theirs)
    shown = _read(ours, b"+I")
    orders.write([orders.read().to_pylist()[0]], kinds=["-D"])
    shown += _read(ours, b"-D")
    assert b"\x1b[32m+I" in shown
    assert b"\x1b[31m-D" in shown
    tailing.send_signal(number)
    assert (tailing.wait(20), tailing.communicate()[1]) == (0, _said(orders))
    os.close(ours)
    os.close(theirs)


def test_it_ends_when_the_reader_of_its_output_has_gone_away(orders: mg.Table) -> None:
    ours, theirs = os.pipe()
    tailing = _tail(orders, theirs)
    os.close(theirs)
    assert b"+I" in _read(ours, b"+I")
    os.close(ours)
    assert tailing.wait(20) in (0, 1)  # 1: it was writing at that moment, as other commands end
    assert tailing.communicate()[1] == _said(orders)


def _read(source: int, wanted: bytes) -> bytes:
    found, until = b"", time.monotonic() + 30
    while wanted not in found:
        assert select.select([source], [], [], max(0.0, until - time.monotonic()))[0], found
        found += os.read(source, 65536)
    return found
