"""Statements in the console: what they show, what they may not do, and their files."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.progress.sizes import size_text
from merganser.serve.http import WORKERS
from tests.unit.serve.serving import TOKEN, Reply, Serving


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "warehouse"
    catalog = mg.catalog(path)
    catalog.create_database("shop")
    table = catalog.create_table("shop.items", {"id": "BIGINT", "name": "STRING", "n": "INT"}, ["id"])
    table.write([{"id": i, "name": f"<script>{i}", "n": i % 7} for i in range(1200)])
    return path


@pytest.fixture(scope="module")
def ui(warehouse: Path) -> Iterator[Serving]:
    serving = Serving(warehouse, command="ui")
    yield serving
    serving.kill()


def _run(ui: Serving, statement: str, **more: str) -> Reply:
    form = urlencode({"statement": statement, **more})
    return ui.ask("/sql", "POST", {"origin": f"http://127.0.0.1:{ui.port}"}, form)


def _text(reply: Reply) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", reply.body.decode()))


def test_rows_are_shown_with_their_plan_and_never_as_markup(ui: Serving) -> None:
    found = _run(ui, "SELECT id, name FROM shop.items WHERE id < 3 ORDER BY id")
    assert found.status == 200
    assert "<script>1" not in found.body.decode()
    assert [f"<script>{i}" in _text(found) for i in (1, 2, 3)] == [True, True, False]
    assert "snapshot   1" in _text(found)
    size = re.search(r"read +([\d,]+) bytes", _text(found))
    assert size is not None
    assert size_text(int(size[1].replace(",", ""))) in _text(found)


def test_the_first_rows_of_many_are_shown_and_files_hold_all(ui: Serving) -> None:
    statement = "SELECT id, n FROM items ORDER BY id"
    page = _run(ui, statement, database="shop")
    assert "500  rows of more" in _text(page) or "500 rows of more" in _text(page)
    assert page.body.count(b"<tr>") == 501
    parquet = _run(ui, statement, database="shop", form="parquet")
    assert pq.read_table(io.BytesIO(parquet.body)).column("id").to_pylist() == list(range(1200))
    text = _run(ui, statement, database="shop", form="csv")
    assert csv.read_csv(io.BytesIO(text.body)).column("n").to_pylist() == [i % 7 for i in range(1200)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM shop.items",
        "SELECT 1; DROP TABLE shop.items",
        "INSERT INTO shop.items VALUES (1, 'x', 2)",
        "CALL sys.compact('shop.items')",
        "CREATE TABLE shop.more (a INT)",
        "EXPLAIN SELECT 1; TRUNCATE TABLE shop.items",
    ],
)
def test_what_changes_something_is_not_run(ui: Serving, warehouse: Path, statement: str) -> None:
    assert "this console only reads" in _text(_run(ui, statement))
    catalog = mg.catalog(warehouse)
    assert catalog.list_tables("shop") == ["items"]
    assert [each.id for each in catalog.table("shop.items").snapshots()] == [1]


@pytest.mark.parametrize("statement", ["SELEC 1", "SELECT * FROM shop.nothing", "", ";", "SELECT '", "EXPLAIN"])
def test_an_error_is_told_beside_the_statement(ui: Serving, statement: str) -> None:
    found = _run(ui, statement)
    assert found.status == 200
    assert 'role="alert"' in found.body.decode()


def test_a_file_of_a_statement_that_fails_is_an_error_of_http(ui: Serving) -> None:
    for statement in ("SELECT nothing", "DROP TABLE shop.items", "USE shop"):
        found = _run(ui, statement, form="csv")
        assert (found.status, 'role="alert"' in found.body.decode()) == (400, True)


def test_set_raises_no_limit_of_the_console(ui: Serving) -> None:
    assert "at most 60 s" in _text(_run(ui, "SET 'sql.timeout' = '61 s'; SELECT 1"))
    assert "1 row" in _text(_run(ui, "SET 'sql.timeout' = '59 s'; SELECT 1"))
    many = "SELECT id FROM range(1000001)"
    for before in ("", "SET 'sql.max-rows' = '2000000'; ", "RESET 'sql.max-rows'; "):
        found = _run(ui, before + many, form="csv")
        assert (found.status, "more than 1000000 rows" in _text(found)) == (400, True)


_ENDLESS = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"


def test_statements_leave_threads_for_pages_and_end_with_their_clients(ui: Serving) -> None:
    connections = [ui.connect() for _ in range(WORKERS + 1)]
    for each in connections:
        form = urlencode({"statement": _ENDLESS})
        each.request("POST", "/sql", form, {"origin": f"http://127.0.0.1:{ui.port}"})
    assert b"shop.items" in ui.ask("/t/shop.items/data").body  # far sooner than the statements end
    for each in connections:
        each.close()
    assert b">7<" in _run(ui, "SELECT 3 + 4").body  # the connection waits 30 s, the statements would run for 60 s


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc/hostname"])
@pytest.mark.parametrize("function", ["read_csv", "read_text", "read_blob", "read_parquet", "csv_scan", "glob"])
def test_files_of_the_server_cannot_be_read(ui: Serving, function: str, path: str) -> None:
    assert 'role="alert"' in _run(ui, f"SELECT * FROM {function}('{path}')").body.decode()
    assert 'role="alert"' in _run(ui, f"SELECT * FROM '{path}'").body.decode()


def test_a_chart_is_drawn_of_few_groups(ui: Serving) -> None:
    found = _run(ui, "SELECT n, count(*) AS items FROM shop.items GROUP BY n ORDER BY n")
    assert b"<svg" in found.body
    assert "items by n" in _text(found)


def test_with_upkeep_statements_change_tables(warehouse: Path) -> None:
    serving = Serving(warehouse, "--allow-upkeep", token=TOKEN, command="ui")
    try:
        assert "rows inserted" in _text(_run(serving, "INSERT INTO shop.items VALUES (5000, 'new', 1)"))
        _run(serving, "CREATE TABLE shop.more (a INT); INSERT INTO shop.more VALUES (1), (2)")
        for form in ("table", "csv"):
            question = _text(_run(serving, "USE shop; DROP TABLE more", form=form))
            assert "Drops the table shop.more: 2 stored rows" in question
        assert mg.catalog(warehouse).list_tables("shop") == ["items", "more"]
        assert "Done." in _text(_run(serving, "USE shop; DROP TABLE more", confirmed="yes"))
        assert mg.catalog(warehouse).list_tables("shop") == ["items"]
        folder = f"CALL sys.migrate_folder('{warehouse}/shop.db/items/bucket-0', 'shop.taken')"
        assert "cannot run 'migrate_folder'" in _text(_run(serving, folder, confirmed="yes"))
        assert serving.ask("/sql", "POST", {"origin": "http://example.org"}, "statement=SELECT+1").status == 403
    finally:
        serving.kill()
    assert mg.catalog(warehouse).table("shop.items").read(where="id = 5000").to_pylist()[0]["name"] == "new"


@pytest.mark.parametrize("page", ["diff?from=1&to=2", "tree", "data", "changes"])
def test_pages_show_all_nine_digits_of_a_time(ui: Serving, warehouse: Path, page: str) -> None:
    catalog = mg.catalog(warehouse)
    if "times" not in catalog.list_tables("shop"):
        table = catalog.create_table("shop.times", {"at": "TIMESTAMP(9)", "n": "INT"}, ["at"], options={"bucket": "1"})
        for n in range(2):
            at = pa.array([1_767_225_600_000_000_001 + n], pa.timestamp("ns"))
            table.write(pa.table({"at": at, "n": pa.array([n], pa.int32())}))
    found = ui.ask(f"/t/shop.times/{page}")
    assert found.status == 200
    assert "2026-01-01 00:00:00.000000002" in _text(found)
