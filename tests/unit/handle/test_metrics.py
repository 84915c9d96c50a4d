"""Every commit says what it cost: on the snapshot it returns, in the log, and in the totals of the process."""

from __future__ import annotations

import logging
from pathlib import Path
from unittest.mock import patch

import pytest

import merganser as mg
from merganser.meta.snapshot import snapshot_from_json
from merganser.storage.env import Env


def made(tmp_path: Path, **options: str) -> mg.Table:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("shop", if_not_exists=True)
    return catalog.create_table(
        "shop.orders",
        schema={"id": "BIGINT", "v": "STRING"},
        primary_key=["id"],
        options={"bucket": "2", "write-only": "true"} | options,
    )


def test_a_commit_returns_what_it_added(tmp_path: Path) -> None:
    table = made(tmp_path)
    snapshot = table.write([{"id": i, "v": "x"} for i in range(100)])
    assert snapshot is not None
    metrics = snapshot.metrics
    assert metrics is not None
    files = table.files()
    assert (metrics.table, metrics.snapshot_id, metrics.kind) == ("shop.orders", 1, "APPEND")
    assert (metrics.rows_added, metrics.files_added, metrics.buckets) == (100, files.num_rows, 2)
    assert metrics.bytes_added == sum(files.column("file_size_in_bytes").to_pylist())
    assert (metrics.rows_removed, metrics.files_removed, metrics.bytes_removed, metrics.attempts) == (0, 0, 0, 1)
    assert list(metrics.seconds) == ["check", "write", "manifests", "publish"]
    assert all(seconds > 0 for seconds in metrics.seconds.values())


def test_phases_begin_anew_with_every_commit_of_a_writer(tmp_path: Path) -> None:
    """A clock that moves by one second whenever it is asked: so many questions, so many seconds."""
    table = made(tmp_path)
    ticks = iter(range(1_000_000))
    with patch.object(Env, "seconds", lambda _: float(next(ticks))), table.writer() as writer:
        spent = []
        for batches in (3, 1):
            for _ in range(batches):
                writer.write([{"id": 1, "v": "x"}])
            snapshot = writer.commit()
            assert snapshot is not None
            assert snapshot.metrics is not None
            spent.append(snapshot.metrics.seconds)
    assert spent[0]["check"] == 3 * spent[1]["check"]
    assert spent[0]["write"] > spent[1]["write"]


def test_a_compaction_says_what_it_took_out(tmp_path: Path) -> None:
    table = made(tmp_path)
    for _ in range(3):
        table.write([{"id": i, "v": "x"} for i in range(100)])
    before = table.files()
    snapshot = table.compact(full=True)
    assert snapshot is not None
    metrics = snapshot.metrics
    assert metrics is not None
    assert (metrics.kind, metrics.rows_added, metrics.rows_removed) == ("COMPACT", 100, 300)
    assert metrics.files_removed == before.num_rows
    assert metrics.seconds["compact"] > 0


def test_metrics_are_neither_stored_nor_compared(tmp_path: Path) -> None:
    table = made(tmp_path)
    returned = table.write([{"id": 1, "v": "x"}])
    kept = table.latest_snapshot()
    assert returned is not None
    assert kept == returned
    assert snapshot_from_json(returned.to_json(), "snapshot-1").metrics is None
    assert b"metrics" not in returned.to_json()


def test_every_commit_is_one_log_record_with_the_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = made(tmp_path)
    with caplog.at_level(logging.INFO, logger="merganser"):
        snapshot = table.write([{"id": 1, "v": "x"}])
    assert snapshot is not None
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert record.__dict__["merganser"] == snapshot.metrics
    assert record.getMessage().startswith("APPEND snapshot 1 of 'shop.orders': 1 file (1 row, ")


def test_expired_snapshots_are_one_log_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = made(tmp_path)
    for _ in range(3):
        table.write([{"id": 1, "v": "x"}])
    caplog.clear()  # a library of an earlier test may have raised the root logger's level
    with caplog.at_level(logging.INFO, logger="merganser"):
        table.expire(retain_max=1, retain_min=1, dry_run=True)
        table.expire(retain_max=1, retain_min=1)
    assert [record.getMessage() for record in caplog.records] == ["expired snapshots 1 to 2 of 'shop.orders'"]


def test_totals_are_open_metrics_text(tmp_path: Path) -> None:
    table = made(tmp_path)
    before = _counter("rows_added", table.name)
    table.write([{"id": i, "v": "x"} for i in range(7)])
    assert _counter("rows_added", table.name) == before + 7
    text = mg.metrics()
    assert text.endswith("# EOF\n")
    assert "# TYPE merganser_commits counter" in text
    assert 'merganser_commit_phase_seconds_total{table="shop.orders",kind="APPEND",phase="publish"} ' in text


def _counter(name: str, table: str) -> float:
    start = f'merganser_{name}_total{{table="{table}",kind="APPEND"}} '
    return sum(float(line[len(start) :]) for line in mg.metrics().splitlines() if line.startswith(start))
