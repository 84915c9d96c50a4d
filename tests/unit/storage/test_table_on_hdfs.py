"""A whole table in HDFS: the same calls, the same rows, one winner of every race."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.errors import AlreadyExistsError
from tests.hdfs import proxy as proxies
from tests.hdfs.cluster import Cluster, Folder

pytestmark = pytest.mark.hdfs


@pytest.fixture
def folder(hdfs: Cluster) -> Folder:
    return hdfs.folder()


def _orders(folder: Folder, **options: str) -> mg.Table:
    catalog = mg.catalog(f"{folder.root}/warehouse", options=folder.options)
    catalog.create_database("shop")
    return catalog.create_table(
        "shop.orders",
        {"dt": "STRING", "id": "BIGINT", "note": "STRING"},
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "1", **options},
    )


def _rows(ids: range, note: str) -> pa.Table:
    return pa.table({"dt": [f"2026-01-0{1 + i % 2}" for i in ids], "id": list(ids), "note": [note] * len(ids)})


def test_a_table_lives_from_its_creation_to_its_end(folder: Folder) -> None:
    orders = _orders(folder, **{"changelog-producer": "input"})
    orders.write(_rows(range(100), "first"))
    orders.upsert([{"dt": "2026-01-01", "id": 4, "note": "second"}])
    orders.compact(full=True)
    orders.write(_rows(range(2), "gone"), kinds=["-D"] * 2)
    catalog = mg.catalog(f"{folder.root}/warehouse", options=folder.options)
    again = catalog.table("shop.orders")
    found = {row["id"]: row["note"] for row in again.read().to_pylist()}
    assert found == {i: "second" if i == 4 else "first" for i in range(2, 100)}
    assert again.read(snapshot=1).count() == 100
    assert sorted(row["id"] for row in again.changes(3, 4).to_pylist()) == [0, 1]
    assert again.check() == ()
    catalog.rename_table("shop.orders", "shop.sales")
    assert catalog.list_tables("shop") == ["sales"]
    sales = catalog.table("shop.sales")
    sales.write(_rows(range(1, 2), "only"), overwrite={"dt": "2026-01-02"})
    assert sales.read(where="dt = '2026-01-02'").to_pylist()[0]["note"] == "only"
    assert sales.read().count() == 50
    catalog.create_table("shop.orders", {"id": "BIGINT"})
    with pytest.raises(AlreadyExistsError):
        catalog.rename_table("shop.sales", "shop.orders")
    for name in ("orders", "sales"):
        catalog.drop_table(f"shop.{name}")
    assert not any(entry.is_directory for entry in catalog.env.storage.list(f"{folder.root}/warehouse/shop.db"))
    assert catalog.list_databases() == ["shop"]


def test_files_of_hdfs_are_loaded_and_folders_become_tables(folder: Folder, tmp_path: Path) -> None:
    catalog = mg.catalog(f"{folder.root}/warehouse", options=folder.options)
    catalog.create_database("shop")
    for day in (1, 2):
        out = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [1, 2]}), out)
        catalog.env.storage.create(f"{folder.root}/in/day={day}/part-0.parquet", out.getvalue().to_pybytes())
    table = catalog.create_table("shop.t", {"id": "BIGINT", "day": "INT"})
    table.load(f"{folder.root}/in/day=*/*.parquet")
    assert table.read().count() == 4
    rows = [{"id": i, "day": day} for day in (1, 2) for i in (1, 2)]
    for how in ("link", "keep"):
        moved = catalog.migrate(f"{folder.root}/in", f"shop.{how}", how=how)
        assert sorted(moved.read().to_pylist(), key=lambda row: (row["day"], row["id"])) == rows
    home = mg.catalog(str(tmp_path))
    home.create_database("shop")
    assert home.migrate(f"{folder.root}/in", "shop.near", store=folder.options).read().count() == 4


def test_processes_that_race_all_commit_once(hdfs: Cluster, folder: Folder) -> None:
    """Each loses a reply now and then: no commit is lost, and none is there twice."""
    path = _orders(folder).path
    code = """if True:
        import os, sys
        import merganser as mg
        mg.Table  # what it needs is imported once
        path, address = sys.argv[1:]
        for writer in range(3):
            if not os.fork():
                table = mg.table(path, options={"hdfs.webhdfs.address": address, "hdfs.user": "tester"})
                table = table.with_options({"commit.max-retries": "50"})
                for i in range(2):
                    made = table.write([{"dt": "2026-01-01", "id": writer * 2 + i, "note": "x"}])
                    os.write(1, f"{made.id}\\n".encode())
                os._exit(0)
        sys.exit(max(os.wait()[1] for _ in range(3)))
    """
    with proxies.running(hdfs.addresses[0]) as proxy:
        proxy.ways["RENAME"] = ["", "", "", "lose", "", "", "", "refuse"] * 4
        command = [sys.executable, "-c", code, path, proxy.address]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    ids = list(map(int, ran.stdout.split()))
    table = mg.table(path, options=folder.options)
    made = {snapshot.id: snapshot.commit_kind for snapshot in table.snapshots()}
    assert list(made) == list(range(1, len(made) + 1))
    assert sorted(ids) == [number for number, kind in made.items() if kind == "APPEND"]
    assert sorted(row["id"] for row in table.read().to_pylist()) == list(range(6))
    assert table.check() == ()
