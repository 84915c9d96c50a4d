"""Merges of many overlapping files and writes of many partitions hold few files open, and close them after an error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import FormatError
from merganser.lsm import runs

FILES, ROWS = 70, 1_000
"""More rows than one window holds, so that the files are not read at once."""
LIMITED = """
import resource, sys
import merganser as mg
table = mg.catalog(sys.argv[1], options={"local.sync": "false"}).table("s.t")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
expected = int(sys.argv[2])
assert table.read().count() == expected
assert table.changes(2, 2, mode="diff").count() == 1
assert table.lookup([{"k": 0}, {"k": 1}]).num_rows == 2
assert next(table.stream()).num_rows
compacting = mg.catalog(sys.argv[1], options={"local.sync": "false"}).table("s.t")
compacting.compact(full=True)
assert len(compacting.files()) == 1
assert compacting.read().count() == expected
"""


MANY_PARTITIONS = """
import resource, sys
import pyarrow as pa
import merganser as mg
catalog = mg.catalog(sys.argv[1], options={"local.sync": "false"})
catalog.create_database("s")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
rows = pa.table({"p": pa.array(range(100), pa.int32()), "k": pa.array(range(100), pa.int64())})
columns = {"p": "INT", "k": "BIGINT"}
append = catalog.create_table("s.append", columns, partition_by=["p"])
queue = catalog.create_table("s.queue", columns, partition_by=["p"], options={"bucket": "1", "bucket-key": "k"})
small = {"write-buffer-size": "1 kb"}  # each batch is flushed, so that files stay open for the next
with append.with_options(small).writer() as one, queue.with_options(small).writer() as other:
    for _ in range(2):
        one.write(rows)
        other.write(rows)
    one.commit()
    other.commit()
for table in (append, queue):
    assert table.read().count() == 200
    assert table.read().to_arrow()["k"].to_pylist().count(7) == 2
    assert table.check() == ()
"""


def made(path: Path, **options: str) -> tuple[mg.Table, dict[int, str]]:
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("s")
    found = {"bucket": "1", "write-only": "true", "write-buffer-size": "1 kb"} | options
    table = catalog.create_table("s.t", {"k": "BIGINT", "v": "STRING"}, primary_key=["k"], options=found)
    keys = np.random.default_rng(7).integers(0, FILES * ROWS // 2, FILES * ROWS)
    keys[:2] = (0, 1)
    rows = pa.table({"k": keys, "v": [f"value {i}" for i in range(len(keys))]})
    table.write(rows.slice(i * ROWS, ROWS) for i in range(FILES))
    assert len(table.files()) == FILES
    table.write([{"k": -1, "v": "one more"}])
    return table, {-1: "one more"} | dict(zip(keys.tolist(), rows["v"].to_pylist(), strict=True))


def shown(table: mg.Table) -> dict[int, str]:
    rows = table.read().to_arrow()
    return dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
def test_merges_of_70_overlapping_files_work_with_a_limit_of_64_open_files(tmp_path: Path) -> None:
    _, rows = made(tmp_path)
    subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path), str(len(rows))], check=True)


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
def test_two_writers_of_100_partitions_work_with_a_limit_of_64_open_files(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", MANY_PARTITIONS, str(tmp_path)], check=True)


def open_files() -> list[str]:
    found = (Path("/proc/self/fd") / number for number in os.listdir("/proc/self/fd"))
    named = (os.readlink(each) for each in found if each.exists())
    # clients of Kafka that other tests began open and close sockets and pipes in threads of their own
    return sorted(name for name in named if not name.startswith(("socket:", "pipe:", "anon_inode:")))


def with_all_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runs, "OPEN_MAX", 10 * FILES)


def aside_in_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runs, "ASIDE_BYTES", 1 << 30)


def aside_on_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runs, "ASIDE_BYTES", 0)


@pytest.mark.parametrize("how", [with_all_open, aside_in_memory, aside_on_disk])
def test_rows_are_the_same_wherever_runs_wait(
    how: Callable[[pytest.MonkeyPatch], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    how(monkeypatch)
    table, rows = made(tmp_path / "warehouse")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "aside"))
    (tmp_path / "aside").mkdir()
    assert shown(table) == rows
    assert not list((tmp_path / "aside").iterdir())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="shows open files")
@pytest.mark.parametrize("which", [0, 40, FILES - 1])
def test_files_are_closed_and_room_on_the_disk_is_given_back_after_an_error(
    which: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside_on_disk(monkeypatch)
    table, _ = made(tmp_path / "warehouse")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "aside"))
    (tmp_path / "aside").mkdir()
    damaged = sorted((tmp_path / "warehouse").rglob("data-*.parquet"))[which]
    damaged.write_bytes(b"\0" * damaged.stat().st_size)
    before = open_files()
    with pytest.raises(FormatError, match=damaged.name):
        table.read().to_arrow()
    assert open_files() == before
    assert not list((tmp_path / "aside").iterdir())
