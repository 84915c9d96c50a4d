"""A disk that is full, and a clock that jumps: what was committed stands, and work goes on when they are well again."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import MerganserError, StorageError
from tests.kit.builders import catalog_over, memory_with

ROWS = [{"k": k, "v": f"value {k}" * 20} for k in range(200)]


@contextlib.contextmanager
def disk_with(size_bytes: int) -> Iterator[None]:
    """No file can grow beyond so many bytes: what a full disk is to whoever writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_write_to_a_full_disk_fails_and_changes_nothing(tmp_path: Path, file_format: str, keyed: bool) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"file.format": file_format} | ({"bucket": "1"} if keyed else {})
    table = catalog.create_table(
        "db.t", {"k": "INT", "v": "STRING"}, primary_key=["k"] if keyed else [], options=options
    )
    table.write(ROWS[:100])
    failed = 0
    for size in (0, 1, 100, 500, 700, 1000, 1300, 1600, 2000, 2500, 3000):
        before = table.latest_snapshot()
        assert before is not None
        with disk_with(size):
            try:
                table.write(ROWS[100:])
            except StorageError as error:
                failed += 1
                assert table.latest_snapshot() == before
                if not size:  # the first file to fail is a data file, when what its buffer holds is written
                    assert "Make room or wait" in str(error)
    assert failed >= 5
    assert table.check() == ()
    fresh = mg.catalog(str(tmp_path)).table("db.t")
    fresh.write(ROWS[100:])
    assert {row["k"] for row in fresh.read().to_pylist()} == set(range(200))
    assert fresh.check() == ()
    assert not [p for p in tmp_path.rglob("*") if p.suffix == ".tmp"]


def test_a_compaction_on_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true"}
    table = catalog.create_table("db.t", {"k": "INT", "v": "STRING"}, primary_key=["k"], options=options)
    for part in (ROWS[:150], ROWS[50:]):
        table.write(part)
    files = table.files()
    for size in (0, 300, 900, 1500):
        with disk_with(size), pytest.raises(MerganserError):
            table.compact(full=True)
        assert table.files().equals(files)
    assert table.check() == ()
    assert table.compact(full=True) is not None
    assert table.read().count() == 200


class _Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.mark.parametrize("jump", [timedelta(seconds=-1), timedelta(days=-400), timedelta(days=4000)])
def test_a_clock_that_jumps_loses_nothing(jump: timedelta) -> None:
    clock = _Clock()
    catalog = catalog_over(memory_with({}, "clock"), clock=clock)
    catalog.create_database("db")
    options: dict[str, Any] = {
        "bucket": "1",
        "snapshot.num-retained.min": "1",
        "num-sorted-run.compaction-trigger": "3",
    }
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)
    for n in range(12):
        if n == 4:
            clock.now += jump
        if n == 8:
            clock.now -= jump
        clock.now += timedelta(seconds=10)
        table.write([{"k": n % 5, "v": n}], commit_user="u", identifier=n + 1)
        table.write([{"k": n % 5, "v": -1}], commit_user="u", identifier=n + 1)  # repeated: no second time
        table.compact()
        found = {row["k"]: row["v"] for row in table.read().to_pylist()}
        assert found == {m % 5: m for m in range(n + 1)}
    ids = [snapshot.id for snapshot in table.snapshots()]
    assert ids == list(range(ids[0], ids[-1] + 1))
    table.expire(older_than=clock.now - timedelta(minutes=1))
    assert {row["v"] for row in table.read().to_pylist()} == set(range(7, 12))
    assert table.check() == ()
