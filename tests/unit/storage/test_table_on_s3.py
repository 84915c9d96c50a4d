"""A whole table in an object store: the same calls, the same rows, one winner of every race."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.errors import NotFoundError, UnsupportedError

pytestmark = pytest.mark.s3


def _orders(bucket: Any, **options: str) -> Any:
    catalog = mg.catalog(f"{bucket.root}/warehouse", options=bucket.options)
    catalog.create_database("shop", if_not_exists=True)
    return catalog.create_table(
        "shop.orders",
        {"dt": "STRING", "id": "BIGINT", "amount": "DECIMAL(10, 2)", "note": "STRING"},
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "2", **options},
        if_not_exists=True,
    )


def _rows(n: int, note: str, start: int = 0) -> pa.Table:
    ids = list(range(start, start + n))
    return pa.table(
        {"dt": [f"2026-01-0{1 + i % 2}" for i in ids], "id": ids, "amount": [i / 4 for i in ids], "note": [note] * n}
    )


def test_upserts_deletes_and_overwrites_read_back(bucket: Any) -> None:
    orders = _orders(bucket)
    orders.write(_rows(100, "first"))
    orders.write(_rows(10, "second"))
    orders.write(_rows(5, "gone"), kinds=["-D"] * 5)
    again = mg.catalog(f"{bucket.root}/warehouse", options=bucket.options).table("shop.orders")
    found = {row["id"]: row["note"] for row in again.read().to_pylist()}
    assert found == {i: "second" if i < 10 else "first" for i in range(5, 100)}
    assert again.read(where="dt = '2026-01-01' and id < 20").count() == 7
    again.write(_rows(1, "only").slice(0, 1), overwrite={"dt": "2026-01-01"})
    assert again.read(where="dt = '2026-01-01'").to_pylist()[0]["note"] == "only"
    assert again.read(snapshot=1).count() == 100


def test_a_path_with_options_opens_the_table(bucket: Any) -> None:
    path = _orders(bucket).path
    table = mg.table(path, options=bucket.options)
    table.write(_rows(3, "x"))
    assert table.read().count() == 3
    assert "test-secret" not in repr(table) + table.describe()


@pytest.mark.campaign(1 / 3, first=2)
def test_writers_that_race_all_land_once(bucket: Any) -> None:
    _orders(bucket)

    def write(i: int) -> int:
        table = (
            mg.catalog(f"{bucket.root}/warehouse", options=bucket.options)
            .table("shop.orders")
            .with_options({"commit.max-retries": "50"})
        )
        snapshot = table.write(_rows(4, f"w{i}", start=i * 4))
        return int(snapshot.id)

    with ThreadPoolExecutor(6) as pool:
        ids = list(pool.map(write, range(12)))
    table = mg.catalog(f"{bucket.root}/warehouse", options=bucket.options).table("shop.orders")
    made = {snapshot.id: snapshot.commit_kind for snapshot in table.snapshots()}
    assert list(made) == list(range(1, len(made) + 1))
    assert sorted(ids) == [number for number, kind in made.items() if kind == "APPEND"]
    assert table.read().count() == 48
    assert table.check() == ()


def test_tables_are_listed_renamed_and_dropped(bucket: Any) -> None:
    _orders(bucket).write(_rows(3, "x"))
    catalog = mg.catalog(f"{bucket.root}/warehouse", options=bucket.options)
    with pytest.raises(UnsupportedError, match=r"could be lost\. Nothing was changed\."):
        catalog.rename_table("shop.orders", "shop.sales")
    assert catalog.list_tables("shop") == ["orders"]
    catalog.rename_table("shop.orders", "shop.sales", no_writers=True)
    assert catalog.list_tables("shop") == ["sales"]
    assert catalog.table("shop.sales").read().count() == 3
    catalog.drop_table("shop.sales")
    assert catalog.list_tables("shop") == []
    assert catalog.list_databases() == ["shop"]


def test_files_of_the_store_are_loaded(bucket: Any, tmp_path: Any) -> None:
    """Through the options of the table's store, and with options given where the table lies elsewhere."""
    catalog = mg.catalog(f"{bucket.root}/warehouse", options=bucket.options)
    catalog.create_database("shop")
    schema = {"id": "BIGINT", "note": "STRING"}
    table = catalog.create_table("shop.t", schema, primary_key=["id"], options={"bucket": "1"})
    storage = table.env.storage
    data = pa.table({"id": range(1000), "note": ["x" * 500] * 1000})
    sink = pa.BufferOutputStream()
    pq.write_table(data, sink, row_group_size=300)
    storage.create(f"{bucket.root}/in/a.parquet", sink.getvalue().to_pybytes())
    storage.create(f"{bucket.root}/in/deep/b.csv", b"id;note\n1;NA\n2;\n")
    storage.create(f"{bucket.root}/in/_SUCCESS", b"")
    table.load(f"{bucket.root}/in/*.parquet")
    table.load(f"{bucket.root}/in/**/*.csv", options={"csv.delimiter": ";"})
    found = {row["id"]: row["note"] for row in table.read().to_pylist()}
    assert (len(found), found[0], found[1], found[2]) == (1000, "x" * 500, "NA", None)
    local = mg.catalog(str(tmp_path))
    local.create_database("shop")
    copy = local.create_table("shop.t", schema)
    copy.load(f"{bucket.root}/in", options=bucket.options | {"csv.delimiter": ";"})
    assert copy.read().count() == 1002
    with pytest.raises(NotFoundError, match="no file matches"):
        copy.load(f"{bucket.root}/nothing/*.csv", options=bucket.options)


def test_folders_and_tables_become_tables(bucket: Any, tmp_path: Path) -> None:
    catalog = mg.catalog(f"{bucket.root}/warehouse", options=bucket.options)
    catalog.create_database("shop")
    for day in (1, 2):
        out = io.BytesIO()
        pq.write_table(pa.table({"id": [1, 2]}), out)
        catalog.env.storage.create(f"{bucket.root}/folder/day={day}/part-0.parquet", out.getvalue())
    rows = [{"id": i, "day": day} for day in (1, 2) for i in (1, 2)]
    for how in ("link", "keep", "copy"):
        table = catalog.migrate(f"{bucket.root}/folder", f"shop.{how}", how=how)
        assert sorted(table.read().to_pylist(), key=lambda row: (row["day"], row["id"])) == rows
        clone = catalog.clone(table, f"shop.clone_of_{how}")
        catalog.drop_table(f"shop.{how}")
        assert clone.read(where="day = 2").to_pylist() == rows[2:]
    assert len(catalog.env.storage.list(f"{bucket.root}/folder")) == 2
    home = mg.catalog(str(tmp_path / "w"))
    home.create_database("shop")
    near = home.migrate(f"{bucket.root}/folder", "shop.near", store=bucket.options)
    assert near.read().count() == 4
    assert catalog.clone(near, "shop.back").read(where="id = 1").count() == 2
