"""System tables of a catalog, in the database `sys`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError, MerganserError, NotFoundError, UnsupportedError


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    made = mg.catalog(tmp_path, {"table-default.bucket": "2"})
    made.create_database("shop")
    keyed = {"id": "INT", "dt": "STRING", "v": "STRING"}
    options = {"file-index.bloom-filter.columns": "v", "file-index.bloom-filter.v.items": "100"}
    orders = made.create_table("shop.orders", keyed, primary_key=["id", "dt"], partition_by=["dt"], options=options)
    made.create_table("shop.log", {"a": "INT"}, options={"bucket": "-1"})
    orders.write([{"id": 1, "dt": "a b", "v": "x"}, {"id": 2, "dt": "c", "v": None}, {"id": 3, "dt": "e=f", "v": "y"}])
    orders.write([{"id": 4, "dt": "c", "v": "z"}])
    return made


def _rows(catalog: mg.Catalog, name: str) -> list[dict[str, Any]]:
    return catalog.table(name).read().to_pylist()


def test_tables_and_partitions(catalog: mg.Catalog) -> None:
    log, orders = _rows(catalog, "sys.tables")
    assert list(orders) == [
        "database_name", "table_name", "table_type", "partitioned", "primary_key", "owner", "created_at", "created_by",
        "updated_at", "updated_by", "record_count", "file_size_in_bytes", "file_count", "last_file_creation_time",
    ]  # fmt: skip
    assert list(log.values()) == ["shop", "log", "table", False, False, *[None] * 9]
    files = catalog.table("shop.orders$files").read().to_arrow()
    size = sum(files["file_size_in_bytes"].to_pylist())
    assert list(orders.values())[:13] == ["shop", "orders", "table", True, True, *[None] * 5, 4, size, 4]
    found = {row["partition_name"]: row for row in _rows(catalog, "sys.partitions")}
    assert sorted(found) == ["dt=a b", "dt=c", "dt=e%3Df"]
    assert [found["dt=c"][key] for key in ("table_name", "recordCount", "fileCount", "done")] == ["orders", 2, 2, None]
    shown = catalog.sql("USE shop; SHOW PARTITIONS orders")["partition"].to_pylist()
    assert sorted(shown) == sorted(found)


def test_options_without_secrets(catalog: mg.Catalog) -> None:
    assert ("shop", "log", "bucket", "-1") in [tuple(row.values()) for row in _rows(catalog, "sys.all_table_options")]
    assert _rows(catalog, "sys.catalog_options") == [
        {"key": "table-default.bucket", "value": "2"}, {"key": "warehouse", "value": catalog.warehouse},
    ]  # fmt: skip


def test_file_indexes(catalog: mg.Catalog) -> None:
    found = catalog.sql("SELECT * FROM shop.orders$file_indexes WHERE partition = '{c}' ORDER BY file_path").to_pylist()
    facts = ("column_name", "index_type", "storage_type", "index_file_path", "is_empty")
    assert [tuple(row[key] for key in facts) for row in found] == [("v", "bloom-filter", "EMBEDDED", None, False)] * 2
    assert all(0 < row["index_size_in_bytes"] < row["index_container_size_in_bytes"] for row in found)
    old = catalog.table("shop.orders").with_options({"scan.snapshot-id": "1"})
    assert old.system("file_indexes").count() == 3
    catalog.table("shop.orders").alter([mg.changes.set_option("file-index.in-manifest-threshold", "1 B")])
    catalog.table("shop.orders").write([{"id": 9, "dt": "d", "v": "z"}])
    beside = catalog.table("shop.orders").system("file_indexes", where="partition = '{d}'").to_pylist()
    assert [row["storage_type"] for row in beside] == ["FILE"]
    assert Path(beside[0]["index_file_path"]).stat().st_size == beside[0]["index_container_size_in_bytes"]


def test_sql_reads_them_and_changes_nothing(catalog: mg.Catalog) -> None:
    session = catalog.session()
    query = "SELECT t.table_name, count(p.partition_name) AS n FROM sys.tables t LEFT JOIN sys.partitions p " \
            "USING (database_name, table_name) GROUP BY ALL ORDER BY 1"  # fmt: skip
    assert session.sql(query).to_pylist() == [{"table_name": "log", "n": 0}, {"table_name": "orders", "n": 3}]
    tables = ["all_table_options", "catalog_options", "partitions", "tables"]
    assert session.sql("SHOW TABLES IN sys")["tableName"].to_pylist() == tables == catalog.list_tables("sys")
    assert session.sql("USE sys; SELECT count(*) AS n FROM catalog_options").to_pylist() == [{"n": 2}]
    for text in ("INSERT INTO sys.tables SELECT * FROM sys.tables", "DROP TABLE sys.tables", "DROP DATABASE sys",
                 "CREATE TABLE sys.t (a INT)", "TRUNCATE TABLE sys.tables", "CREATE DATABASE sys",
                 "SELECT * FROM sys.tables VERSION AS OF 1", "SELECT * FROM sys.tables /*+ OPTIONS('a' = 'b') */",
                 "ALTER TABLE sys.tables SET ('bucket' = '1')"):  # fmt: skip
        with pytest.raises(MerganserError):
            session.sql(text)
    assert catalog.list_databases() == ["shop"]


def test_names_that_do_not_exist(catalog: mg.Catalog) -> None:
    with pytest.raises(NotFoundError, match=r"no system table 'sys.table'\. Did you mean 'tables'"):
        catalog.table("sys.table")
    with pytest.raises(NotFoundError, match=r"no table 'sys.table'\. Did you mean 'tables'"):
        catalog.sql("SELECT * FROM sys.table")
    with pytest.raises(InvalidInputError, match="system tables"):
        catalog.create_database("sys")
    with pytest.raises(UnsupportedError, match=r"cannot write 'sys.tables'.*Nothing was written\.$"):
        catalog.table("sys.tables").write([])  # type: ignore[union-attr]
    with pytest.raises(InvalidInputError, match="has no column 'table'"):
        catalog.table("sys.tables").read(columns=["table"]).to_arrow()
