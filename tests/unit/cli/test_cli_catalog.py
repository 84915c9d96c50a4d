"""Databases and tables: made, listed, renamed, described, removed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.meta.schemas import SchemaStore
from merganser.meta.seal import unsealed_json
from merganser.rules.create import create_schema
from merganser.storage.paths import TablePaths

from .conftest import Run


def test_a_table_is_made_as_told(run: Run, tmp_path: Path) -> None:
    assert run("create-database", "shop").code == 0
    made = run(
        "create-table", "shop.t", "-c", "id BIGINT", "-c", "amount DECIMAL(10, 2)", "--column", "`my dt` STRING",
        "-k", "id,my dt", "--partition-by", "my dt", "-o", "bucket=3", "--comment", "what for",
    )  # fmt: skip
    assert made.out.strip() == str(tmp_path / "warehouse/shop.db/t")
    table = mg.table(made.out.strip())
    assert list(table.schema.names) == ["id", "amount", "my dt"]
    assert (table.primary_key, table.partition_by) == (("id", "my dt"), ("my dt",))
    assert (dict(table.options), table.schema.comment) == ({"bucket": "3"}, "what for")


def test_databases_and_tables_are_listed_in_order(run: Run) -> None:
    for name in ("b", "a"):
        run("create-database", name)
        run("create-table", f"{name}.t", "-c", "x INT")
    assert run("databases").out == "a\nb\n"
    assert run("tables", "a").out == "t\n"


def test_an_empty_warehouse_has_no_databases(run: Run) -> None:
    assert run("databases") == (0, "", "")


def test_a_table_gets_another_name(run: Run, orders: mg.Table) -> None:
    assert run("rename", "shop.orders", "shop.sales").code == 0
    assert run("tables", "shop").out == "sales\n"


def test_tables_and_databases_are_removed(run: Run, orders: mg.Table) -> None:
    assert run("drop-database", "shop").code == 1
    assert run("drop-table", "shop.orders").code == 0
    assert run("drop-table", "shop.orders", "--if-exists").code == 0
    assert run("drop-database", "shop").code == 0
    assert run("databases").out == ""


def test_a_database_goes_with_its_tables_when_told_so(run: Run, orders: mg.Table) -> None:
    assert run("drop-database", "shop", "--cascade").code == 0


def test_describe_shows_what_a_table_is(run: Run, orders: mg.Table) -> None:
    out = run("describe", "shop.orders").out
    assert "comment     Orders of the shop\n" in out
    assert "key         id, dt\n" in out
    assert "buckets     1 per partition, by id\n" in out
    assert "snapshot    2, APPEND at " in out
    assert "rows        5 stored, before merging\n" in out
    assert "in 4 files, 2 buckets of 2 partitions\n" in out
    assert "oldest      snapshot 1, at " in out
    assert "kept        snapshots of the last 1 h, and at least 10 at any age\n" in out
    assert "tags        none\n" in out
    assert "dt      STRING NOT NULL  key, partition\n" in out
    assert out.endswith("option  value\nbucket  1\n")


def test_describe_knows_a_table_that_was_never_written(run: Run) -> None:
    run("create-database", "d")
    run("create-table", "d.t", "-c", "x INT")
    out = run("describe", "d.t").out
    assert "key         none: rows are appended\n" in out
    assert "snapshot    none: nothing was written yet\n" in out


def test_describe_says_that_equal_rows_are_counted(run: Run) -> None:
    run("create-database", "d")
    assert run("create-table", "d.t", "-c", "x INT", "-o", "write-mode=change-log").err == ""
    out = run("describe", "d.t").out
    assert "key         none: equal rows are counted\n" in out
    assert "does not" not in out


def test_a_table_that_cannot_be_written_here_is_not_made(run: Run) -> None:
    run("create-database", "d")
    made = run("create-table", "d.t", "-c", "x INT", "-k", "x", "-o", "manifest.format=orc")
    assert made.code == 1
    assert "does not write tables with 'manifest.format' other than avro. Nothing was changed." in made.err
    assert run("tables", "d").out == ""


def test_describe_says_what_this_version_cannot_do(run: Run) -> None:
    run("create-database", "d")
    made = create_schema({"x": "INT"}, primary_key=["x"], options={"bucket": "1", "manifest.format": "orc"})
    paths = TablePaths(str(Path("warehouse/d.db/t").absolute()))
    SchemaStore(paths, mg.catalog("warehouse").env).create(made)  # as another engine does
    assert "cannot write it: 'manifest.format'" in run("describe", "d.t").out


def test_a_secret_is_no_table_option_and_describe_hides_those_of_other_engines(run: Run) -> None:
    run("create-database", "d")
    made = run("create-table", "d.t", "-c", "x INT", "-o", "fs.s3.secret-key=hush")
    assert made.code
    assert "'fs.s3.secret-key'" in made.err
    assert "--store" in made.err
    assert "hush" not in made.out + made.err

    run("create-table", "d.t", "-c", "x INT", "-o", "owner=ada")
    schema = Path("warehouse/d.db/t/schema/schema-0")
    text = unsealed_json(schema.read_bytes()).decode()
    schema.write_text(text.replace('"owner": "ada"', '"owner": "ada", "fs.s3.secret-key": "hush"'))
    for name in ("d.t$options", "d.t$schemas"):
        out = run("read", name, "-f", "json").out
        assert "***" in out
        assert "hush" not in out
    out = run("describe", "d.t").out
    assert "hush" not in out
    assert "***" in out
    assert "ada" in out


def test_a_table_is_found_by_its_path(run: Run, orders: mg.Table) -> None:
    assert run("describe", "warehouse/shop.db/orders").out == run("describe", orders.path).out
    assert (
        run("read", "warehouse/shop.db/orders$snapshots", "-f", "csv", "-c", "snapshot_id").out
        == '"snapshot_id"\n1\n2\n'
    )


def test_the_warehouse_comes_from_the_environment(run: Run, orders: mg.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setenv("MERGANSER_WAREHOUSE", str(Path(orders.path).parents[1]))
    assert run("tables", "shop").out == "orders\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["create-table", "d.t", "-c", "x"],
        ["create-table", "d.t"],
        ["create-table", "d.t", "-c", "x INT", "-o", "bucket"],
        ["tables"],
        ["nonsense"],
        ["read", "d.t", "--limit", "-1"],
        ["read", "d.t", "--format", "xml"],
        ["write", "d.t", "f.csv", "--partition", "dt=a"],
    ],
)
def test_bad_usage_ends_with_2(run: Run, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: " in ran.err


def test_a_folder_becomes_a_table_and_a_table_another_one(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in" / "p=1").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "in" / "p=1" / "x.parquet")
    run("create-database", "shop")
    made = run("migrate", str(tmp_path / "in"), "shop.t", "-t", "p=STRING", "--how", "keep", "--comment", "of files")
    assert made.out.strip() == str(tmp_path / "warehouse/shop.db/t")
    assert mg.table(made.out.strip()).read(where="p = '1'").count() == 2
    refused = run("migrate", str(tmp_path / "in"), "shop.u", "-k", "id", "--how", "link")
    assert (refused.code, "Pass --how copy, or leave it out." in refused.err) == (1, True)
    assert run("migrate", str(tmp_path / "in"), "shop.u", "-k", "id,p", "-o", "bucket=1").code == 0
    assert run("create-database", "b", "-w", str(tmp_path / "other")).code == 0
    cloned = run("clone", "shop.u", "b.u", "--to", str(tmp_path / "other"), "--snapshot", "1")
    assert cloned.out.strip() == str(tmp_path / "other/b.db/u")
    assert mg.table(cloned.out.strip()).primary_key == ("id", "p")
