"""The table handle: each method does what its line of the design says."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import InvalidInputError, NotFoundError
from merganser.meta.schemas import SchemaStore
from merganser.rules.create import create_schema
from merganser.storage.paths import TablePaths

FAST = {"local.sync": "false"}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path / "warehouse"), options=FAST)
    catalog.create_database("shop")
    return catalog


@pytest.fixture
def orders(catalog: mg.Catalog) -> mg.Table:
    return catalog.create_table(
        "shop.orders", {"id": "BIGINT", "state": "STRING"}, primary_key=["id"], options={"bucket": "1"}
    )


ROWS = [{"id": 1, "state": "new"}, {"id": 2, "state": None}]


def _forms() -> dict[str, Any]:
    table = pa.Table.from_pylist(ROWS)
    return {
        "list of dictionaries": ROWS,
        "Arrow table": table,
        "record batch": table.to_batches()[0],
        "reader": table.to_reader(),
        "list of tables": [table.slice(0, 1), table.slice(1)],
        "iterator of batches": iter(table.to_batches(max_chunksize=1)),
        "pandas": pd.DataFrame(ROWS),
        "Polars": pl.DataFrame(ROWS),
        "list of lists of dictionaries": [[ROWS[0]], [ROWS[1]]],
        "columns in another order": table.select(["state", "id"]),
        "narrower integers": table.set_column(0, "id", table.column("id").cast(pa.int8())),
        "large strings": table.set_column(1, "state", table.column("state").cast(pa.large_string())),
        "dictionary": table.set_column(1, "state", table.column("state").dictionary_encode()),
    }


@pytest.mark.parametrize("form", _forms())
def test_rows_are_taken_in_every_form(orders: mg.Table, form: str) -> None:
    snapshot = orders.write(_forms()[form])
    assert snapshot is not None
    assert snapshot.id == 1
    assert orders.read().to_pylist() == ROWS


def test_rows_are_given_in_every_form(orders: mg.Table) -> None:
    orders.write(ROWS)
    scan = orders.read()
    assert scan.to_arrow().to_pylist() == ROWS
    assert pa.Table.from_batches(scan.to_batches()).to_pylist() == ROWS
    assert scan.to_reader().read_all().to_pylist() == ROWS
    assert scan.to_pandas()["id"].tolist() == [1, 2]
    assert scan.to_polars().to_dicts() == ROWS
    assert pl.DataFrame(scan).to_dicts() == ROWS
    assert pa.table(scan).to_pylist() == ROWS
    assert scan.count() == 2


def test_an_upsert_replaces_and_a_delete_removes(orders: mg.Table) -> None:
    orders.write(ROWS)
    orders.write([{"id": 1, "state": "paid"}, {"id": 3, "state": "new"}])
    orders.write([{"id": 2, "state": "x", "op": "-D"}, {"id": 4, "state": "y", "op": "+U"}], kinds="op")
    assert orders.read().to_pylist() == [{"id": 1, "state": "paid"}, {"id": 3, "state": "new"}, {"id": 4, "state": "y"}]
    assert orders.read(snapshot=1).to_pylist() == ROWS


@pytest.mark.parametrize("kinds", [["+I", "-D"], pa.array(["+I", "-D"]), pd.Series(["+I", "-D"]), ("+I", "-D")])
def test_row_kinds_may_be_given_one_by_one(orders: mg.Table, kinds: Any) -> None:
    orders.write(ROWS, kinds=list(kinds) if isinstance(kinds, pd.Series) else kinds)
    assert orders.read().to_pylist() == ROWS[:1]


def test_columns_that_are_not_supplied_take_their_default_or_null(catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "shop.t",
        {"k": "INT", "a": "INT", "b": "DECIMAL(5, 1)"},
        primary_key=["k"],
        options={"bucket": "1", "fields.b.default-value": "2.5"},
    )
    table.write([{"k": 1}], columns=["k"])
    table.write([{"k": 2, "a": 7}], columns=["k", "a"])
    assert table.read().to_pylist() == [{"k": 1, "a": None, "b": Decimal("2.5")}, {"k": 2, "a": 7, "b": Decimal("2.5")}]


def test_an_overwrite_with_no_rows_clears_what_it_names(catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.t", {"p": "INT", "n": "INT"}, partition_by=["p"])
    for data in ([], pa.table({"p": pa.array([], pa.int32()), "n": pa.array([], pa.int32())}), iter(())):
        table.write([{"p": p, "n": 0} for p in (1, 2)], overwrite={})
        assert table.write(data, overwrite="dynamic") is None
        assert table.write(data, overwrite={"p": 1}) is not None
        assert table.read().to_pylist() == [{"p": 2, "n": 0}]
    assert table.truncate() is not None
    assert table.read().count() == 0


def test_a_writer_makes_a_commit_of_several_batches_and_drops_what_is_left(orders: mg.Table) -> None:
    with orders.writer(commit_user="job") as writer:
        writer.write(ROWS[:1])
        writer.write([{"op": "-D", **ROWS[1]}], kinds="op")
        first = writer.commit(identifier=1)
        assert writer.commit() is None
        writer.write([{"id": 9, "state": "lost"}])
    assert first is not None
    assert (first.commit_user, first.commit_identifier) == ("job", 1)
    assert orders.read().to_pylist() == ROWS[:1]


def test_a_writer_that_fails_drops_its_rows(orders: mg.Table) -> None:
    def fail() -> None:
        with orders.writer() as writer:
            writer.write(ROWS)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert orders.snapshots() == ()
    assert list(Path(orders.path).rglob("*.parquet")) == []


def test_a_table_tells_how_far_back_reads_can_go(tmp_path: Path) -> None:
    begun, hours = datetime(2026, 1, 1, tzinfo=UTC), 0
    catalog = mg.catalog(str(tmp_path), clock=lambda: begun + timedelta(hours=hours))
    catalog.create_database("db")
    options = {"snapshot.time-retained": "7 d", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "50"}
    table = catalog.create_table("db.t", {"k": "INT"}, options=options)
    assert "oldest" not in table.describe()
    for hours in (0, 1, 9 * 24):
        table.write([{"k": 1}])
        if not hours:
            table.tags.create("new-year")
    text = table.describe()
    assert "\noldest     snapshot 2, at 2026-01-01 01:00:00 UTC\n" in text
    assert "\nkept       snapshots of the last 7 d, and at least 1 and at most 50 at any age\n" in text
    assert "\ntags       'new-year' (snapshot 1, at 2026-01-01 00:00:00 UTC)" in text
    for day in range(3):
        table.tags.create(f"for {day} d", retain=f"{day + 1} d")
    assert table.describe().endswith(
        "\ntags       4, from 'new-year' (snapshot 1, at 2026-01-01 00:00:00 UTC) "
        "to 'for 2 d' (snapshot 3, at 2026-01-10 00:00:00 UTC, until 2026-01-13 00:00:00)"
    )
    usual = table.with_options({"snapshot.time-retained": "1 h", "write-only": "true"}).describe()
    assert "the last 1 h, and at least 1 and at most 50 at any age; writers expire none" in usual


def test_rows_are_loaded_from_files_in_the_order_of_their_paths(orders: mg.Table, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    for name, state in (("b", "second"), ("a", "first")):
        pq.write_table(pa.table({"state": [state], "id": [1]}), tmp_path / f"{name}.parquet")
    (tmp_path / "c.csv").write_text("id,state\n1,third\n5,x\n")
    orders.load(f"{tmp_path}/*.parquet")
    assert orders.read().to_pylist() == [{"id": 1, "state": "second"}]
    snapshot = orders.load(str(tmp_path / "c.csv"), commit_user="job", identifier=3)
    assert orders.read().to_pylist() == [{"id": 1, "state": "third"}, {"id": 5, "state": "x"}]
    assert orders.load(str(tmp_path / "c.csv"), commit_user="job", identifier=3) == snapshot


def test_a_table_tells_what_it_is(orders: mg.Table) -> None:
    assert "nothing was written yet" in orders.describe()
    orders.write(ROWS)
    text = orders.describe()
    for part in (
        "shop.orders",
        "id",
        "BIGINT NOT NULL",
        "bucket = 1",
        "snapshot   1",
        "2 rows, before merging",
        "1 file, 1 bucket",
    ):
        assert part in text
    assert (orders.primary_key, orders.partition_by) == (("id",), ())
    assert repr(orders) == f"Table('shop.orders', {orders.path!r})"
    assert [s.id for s in orders.snapshots()] == [1]
    assert orders.files().column_names[:3] == ["partition", "bucket", "file_path"]
    assert orders.files().num_rows == 1


@pytest.mark.parametrize("name", ["snapshots", "files", "schemas", "options", "manifests", "buckets"])
def test_system_tables_have_rows_filters_columns_and_limits(orders: mg.Table, name: str) -> None:
    empty = orders.system(name)
    columns = empty.schema.names
    orders.write(ROWS)
    orders.write(ROWS)
    found = orders.system(name)
    assert found.schema == empty.schema
    assert found.count() >= 1
    assert orders.system(name, limit=1).count() == 1
    assert orders.system(name, columns=columns[::-1]).schema.names == columns[::-1]
    assert orders.system(f"${name}").count() == found.count()
    assert "metadata only" in found.explain()


def test_system_tables_can_be_filtered(orders: mg.Table) -> None:
    orders.write(ROWS)
    orders.write(ROWS, overwrite={})
    assert orders.system("snapshots", where="commit_kind = 'OVERWRITE'", columns=["snapshot_id"]).to_pylist() == [
        {"snapshot_id": 2}
    ]
    assert orders.system("files", where="level > 0").count() == 1


def test_system_tables_of_one_snapshot_describe_the_one_that_options_choose(orders: mg.Table) -> None:
    names = ("files", "buckets", "manifests", "table_indexes")
    orders.write(ROWS)
    first = {name: orders.system(name).to_pylist() for name in names}
    orders.tags.create("first")
    orders.write(ROWS[:1], overwrite={})
    for option in ({"scan.snapshot-id": "1"}, {"scan.tag-name": "first"}):
        chosen = orders.with_options(option)
        assert {name: chosen.system(name).to_pylist() for name in names} == first
        assert chosen.files().num_rows == 1
        assert chosen.system("snapshots").count() == 2
    assert orders.files()["level"].to_pylist() != [0]
    with pytest.raises(NotFoundError, match="99"):
        orders.with_options({"scan.snapshot-id": "99"}).files()


def test_a_snapshot_has_the_columns_of_its_system_table(orders: mg.Table) -> None:
    snapshot = orders.write(ROWS)
    [row] = orders.system("snapshots").to_pylist()
    for name, value in row.items():
        assert getattr(snapshot, "id" if name == "snapshot_id" else name) == value


def test_dynamic_options_make_another_handle(orders: mg.Table) -> None:
    other = orders.with_options({"write-buffer-size": "1 mb"})
    assert other.options["write-buffer-size"] == "1 mb"
    assert "write-buffer-size" not in orders.options
    assert other.schema == orders.schema
    assert mg.table(orders.path, options={"write-buffer-size": "1 mb", "local.sync": "false"}).options == other.options


def test_handles_pickle_with_their_table(orders: mg.Table) -> None:
    import pickle

    orders.write(ROWS)
    again = pickle.loads(pickle.dumps(orders))
    assert again.read().to_pylist() == ROWS
    again.write([{"id": 3, "state": "x"}])
    assert orders.read().count() == 3


def test_json_files_hold_dates_and_times_as_text(catalog: mg.Catalog, tmp_path: Path) -> None:
    schema = {"id": "INT", "dt": "DATE", "at": "TIME(3)", "days": "ARRAY<DATE>", "r": "ROW<d DATE, n INT>"}
    table = catalog.create_table("shop.days", schema)
    (tmp_path / "in.json").write_text(
        '{"id": 1, "dt": "2026-01-31", "at": "10:00:00.250", "days": ["2026-02-01", null], "r": {"d": "2026-03-01"}}\n'
        '{"id": 2}\n'
    )
    table.load(str(tmp_path / "in.json"))
    assert sorted(table.read().to_pylist(), key=lambda row: row["id"]) == [
        {
            "id": 1,
            "dt": date(2026, 1, 31),
            "at": time(10, 0, 0, 250_000),
            "days": [date(2026, 2, 1), None],
            "r": {"d": date(2026, 3, 1), "n": None},
        },
        {"id": 2, "dt": None, "at": None, "days": None, "r": None},
    ]


@pytest.mark.parametrize(
    ("name", "good", "bad", "column", "value"),
    [
        ("in.json", '{"id": 1, "dt": "2026-01-31"}\n', '{"id": 2, "dt": "31.1.2026"}\n', "dt", "31.1.2026"),
        ("in.csv", "1,2026-01-31\n", "x,\n", "id", "x"),
    ],
)
def test_a_bad_line_far_into_a_file_names_the_file_and_the_value(
    catalog: mg.Catalog, tmp_path: Path, name: str, good: str, bad: str, column: str, value: str
) -> None:
    table = catalog.create_table("shop.days", {"id": "INT", "dt": "DATE"})
    (tmp_path / name).write_text(("id,dt\n" if name.endswith("csv") else "") + good * 200_000 + bad)
    with pytest.raises(InvalidInputError, match=f"cannot read the rows of '.*{name}'.* row 200001 ") as refused:
        table.load(str(tmp_path / name))
    found = refused.value.context
    assert (found["column"], found["row"], found["value"]) == (column, 200_000, value)
    assert table.latest_snapshot() is None


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        ("in.csv", "table.load(...)"),
        (Path("in.csv"), "table.load(...)"),
        (ROWS[0], "a list of dictionaries, one per row"),
        (pl.LazyFrame(ROWS), "collect()"),
        (5, "a pandas or Polars frame"),
    ],
)
def test_what_holds_no_rows_is_refused_with_what_does(orders: mg.Table, data: Any, advice: str) -> None:
    with pytest.raises(InvalidInputError, match=r"cannot take rows from an? ") as refused:
        orders.write(data)
    assert advice in str(refused.value)


@pytest.mark.parametrize("gone", ["dropped", "renamed"])
def test_a_table_that_is_gone_is_not_read_as_empty(catalog: mg.Catalog, orders: mg.Table, gone: str) -> None:
    orders.write(ROWS)
    if gone == "dropped":
        catalog.drop_table("shop.orders")
    else:
        catalog.rename_table("shop.orders", "shop.sales")
    for ask in (orders.read().count, orders.read().to_arrow, lambda: list(orders.read().to_batches())):
        with pytest.raises(NotFoundError, match=r"'shop.orders'.* was dropped or renamed since it was opened"):
            ask()


def test_a_name_where_a_path_belongs_is_told_from_a_path(orders: mg.Table) -> None:
    with pytest.raises(NotFoundError, match=r"table\('shop.orders'\) opens that"):
        mg.table("shop.orders")
    assert mg.table(orders.path).path == orders.path


def test_a_branch_or_system_table_behind_a_path_is_told_how_to_be_opened(orders: mg.Table) -> None:
    orders.branches.create("b")
    with pytest.raises(NotFoundError, match=r"\{'branch': 'b'\}"):
        mg.table(f"{orders.path}$branch_b")
    assert mg.table(orders.path, options={"branch": "b"}).name.endswith("$branch_b")
    with pytest.raises(NotFoundError, match=r"orders'\)\.system\('files'\)"):
        mg.table(f"{orders.path}$files")


def test_handles_are_shown_in_a_line(catalog: mg.Catalog, orders: mg.Table) -> None:
    assert repr(catalog) == f"Catalog({catalog.warehouse!r})"
    assert repr(mg.table(orders.path)) == f"Table({orders.path!r})"
    assert repr(orders.read()) == "Scan('shop.orders')"
    assert repr(catalog.table("shop.orders$files")) == "SystemTable('shop.orders$files')"
    assert repr(orders.system("files")) == "StoredRows('shop.orders$files')"
    assert repr(orders.schema) == "TableSchema(id=0, [id BIGINT NOT NULL, state STRING], primary_keys=['id'])"
    assert repr(orders.tags) == "Tags('shop.orders')"
    assert repr(orders.branches) == "Branches('shop.orders')"
    assert repr(orders.consumers) == "Consumers('shop.orders')"
    written = orders.write(ROWS, commit_user="job", identifier=7)
    assert written is not None
    assert repr(written) == (
        f"Snapshot(id=1, commit_kind='APPEND', commit_time='{written.commit_time:%Y-%m-%d %H:%M:%S} UTC', "
        f"total_record_count={len(ROWS)}, commit_user='job', commit_identifier=7)"
    )
    assert "identifier" not in repr(orders.write(ROWS))
    shown = repr(orders.read(columns=["id"], where="id > 1", snapshot=1, limit=5))
    assert shown == "Scan('shop.orders', columns=['id'], where='id > 1', snapshot=1, limit=5)"


def test_describe_says_that_equal_rows_are_counted(catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.sold", {"item": "STRING"}, options={"write-mode": "change-log"})
    assert "key        none: equal rows are counted\n" in table.describe()
    assert "cannot write it" not in table.describe()


@pytest.mark.parametrize("options", [{"deletion-vectors.enabled": "true"}, {"merge-engine": "first-row"}])
def test_rows_that_wait_for_a_compaction_are_spoken_of(catalog: mg.Catalog, options: dict[str, str]) -> None:
    more = {"bucket": "1", "write-only": "true"} | options
    table = catalog.create_table("shop.later", {"id": "INT"}, primary_key=["id"], options=more)
    table.write([{"id": 1}])
    assert table.read().count() == 0
    text = "1 file of level 0 will show once the table is compacted"
    assert f"unseen     {text}" in table.read().explain()
    assert f"note       {text}" in table.describe()
    table.compact()
    assert table.read().count() == 1
    assert "unseen" not in table.read().explain()
    assert "note" not in table.describe()


def test_describe_says_what_this_version_does_not_write(catalog: mg.Catalog) -> None:
    made = create_schema({"id": "INT"}, primary_key=["id"], options={"manifest.format": "orc"})
    paths = TablePaths(f"{catalog.warehouse}/shop.db/free")
    SchemaStore(paths, catalog.env).create(made)  # as another engine does
    table = catalog.table("shop.free")
    assert table.describe().endswith("note       this version cannot write it: 'manifest.format' other than avro")
