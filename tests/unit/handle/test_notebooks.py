"""What objects show in notebooks: the first rows, read from few files; and never an error."""

from __future__ import annotations

import itertools
import os
import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import merganser as mg
from merganser.sql.result import Result
from tests.kit.builders import catalog_over, memory_with
from tests.kit.faulty import FaultyStorage

_names = itertools.count()


def _said(shown: Any) -> str:
    """Return the text of the HTML of an object, with | for tags."""
    return re.sub(r"(<[^>]+>)+", "|", shown._repr_html_())


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage(memory_with({}, f"notebooks-{next(_names)}"))


@pytest.fixture
def catalog(storage: FaultyStorage) -> mg.Catalog:
    made = catalog_over(storage)
    made.create_database("db")
    return made


def _data_reads(storage: FaultyStorage, shown: Any) -> int:
    """Return how many data files are opened to show an object."""
    before = len(storage.calls)
    shown._repr_html_()
    return len({call.path for call in storage.calls[before:] if "/bucket-" in call.path})


def test_a_scan_shows_its_first_rows_and_reads_no_more_files_than_that_takes(
    catalog: mg.Catalog, storage: FaultyStorage
) -> None:
    table = catalog.create_table("db.t", "id BIGINT, name STRING", options={"write-only": "true"})
    for start in range(0, 80, 8):
        table.write([{"id": i, "name": f"n{i}"} for i in range(start, start + 8)])
    assert "|the first 20 rows; there are more|" in _said(table.read())
    assert _said(table.read()).count("|n") == 21  # and the name of the column
    assert _data_reads(storage, table.read()) == 3
    assert _data_reads(storage, table.read(limit=8)) == 1
    assert "|8 rows|" in _said(table.read(limit=8))
    assert _data_reads(storage, table.read(where="id >= 70")) == 2
    assert "|10 rows|" in _said(table.read(where="id >= 70"))
    assert "|db.t, snapshot 10, where " in _said(table.read(where="id >= 70"))
    assert "|0 rows|" in _said(table.read(where="id < 0"))


def test_a_filter_that_matches_little_does_not_read_a_large_table(
    catalog: mg.Catalog, storage: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("db.t", "id BIGINT, name STRING", options={"write-only": "true"})
    for _ in range(6):
        table.write([{"id": i, "name": f"n{i}"} for i in range(8)])
    monkeypatch.setattr("merganser.scan.first._BYTES_MAX", table.files().column("file_size_in_bytes")[0].as_py() * 3)
    rare = table.read(where="name LIKE '%7'")
    assert _data_reads(storage, rare) == 3
    assert "|3 rows in the files that were read for this; the others were not read. " in _said(rare)


def test_changes_show_their_kinds_in_order(catalog: mg.Catalog, storage: FaultyStorage) -> None:
    table = catalog.create_table(
        "db.t",
        "id BIGINT, n INT, PRIMARY KEY (id)",
        options={"bucket": "1", "changelog-producer": "input", "write-only": "true"},
    )
    for i in range(12):
        table.write([{"id": 1, "n": i, "op": "-U"}, {"id": 1, "n": i + 1, "op": "+U"}], kinds="op")
    changes = table.changes()
    assert "|_row_kind|id|n|-U|1|0|+U|1|1|-U|1|1|" in _said(changes)
    assert "|changes of db.t, snapshots 1 to the newest|" in _said(changes)
    assert changes._repr_html_().count("background:rgba(210") == 10
    assert _data_reads(storage, changes) == 11
    assert "|snapshot 2 to snapshot 3|" not in _said(table.changes(2, 3))
    assert "|2 rows|" in _said(table.changes(2, 3, mode="diff"))


def test_of_wide_tables_only_the_columns_that_are_shown_are_read(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.wide", ", ".join(f"c{i} INT" for i in range(120)))
    table.write([{f"c{i}": i for i in range(120)}])
    said = _said(table.read())
    assert "|49|" in said
    assert "|50|" not in said
    assert "|and 70 more columns|" in said
    assert "|the first 100 of 120 columns|" in _said(table)


def test_tables_show_their_definition_and_their_newest_snapshot(catalog: mg.Catalog, storage: FaultyStorage) -> None:
    table = catalog.create_table(
        "db.t",
        "`<b>` STRING COMMENT 'of <i>', dt STRING, PRIMARY KEY (`<b>`, dt)",
        partition_by=["dt"],
        options={"bucket": "3"},
        comment="a & b",
    )
    assert "|snapshot|none: nothing was written yet|" in _said(table)
    table.write([{"<b>": "x", "dt": "d"}])
    said = _said(table)
    for text in ("|db.t|", "|a &amp; b|", "|key|&lt;b&gt;, dt|", "|partitions|dt|", "|bucket|3|", "|of &lt;i&gt;|"):
        assert text in said
    assert "|snapshot|1, APPEND at " in said
    before = len(storage.calls)
    _said(table)
    assert not [call for call in storage.calls[before:] if "/manifest/" in call.path]


def test_snapshots_show_one_by_one_and_as_a_list(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.t", "id BIGINT", options={"write-only": "true"})
    for i in range(22):
        table.write([{"id": i}])
    found = table.snapshots()
    assert isinstance(found, tuple)
    assert found == tuple(found)
    assert repr(found[:1]) == f"({found[0]!r},)"
    said = _said(found)
    assert "|22 snapshots; the newest 20 are shown|" in said
    assert "|2|APPEND|" not in said
    assert "|3|APPEND|" in said
    assert "|22|APPEND|" in said
    assert "|commit_kind|APPEND|" in _said(found[0])


def test_catalogs_and_system_tables_and_results_show_what_they_have(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.t", "id BIGINT")
    snapshot = table.write([{"id": 1}])
    catalog.create_database("empty")
    assert "|database|tables|names|db|1|t|empty|0|" in _said(catalog)
    assert "|db.t$schemas|" in _said(catalog.table("db.t$schemas"))
    assert "|db.t$schemas|" in _said(table.system("schemas"))
    assert "|sys.tables|" in _said(catalog.table("sys.tables"))
    result = catalog.session().execute("SELECT id, '<' AS sign FROM db.t")
    assert "|SELECT id, &#x27;&lt;&#x27; AS sign FROM db.t|id|sign|1|&lt;|1 row|" in _said(result)
    assert "|1 row inserted, snapshot 2, " in _said(catalog.session().execute("INSERT INTO db.t VALUES (2)"))
    assert Result(rows=object(), snapshot=snapshot)._repr_html_() is None


def test_an_object_whose_table_is_gone_shows_its_text_and_the_reason(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.t", "id BIGINT")
    table.write([{"id": 1}])
    scan = table.read()
    catalog.drop_table("db.t")
    for shown in (table, scan):
        said = _said(shown)
        assert repr(shown).replace("'", "&#x27;") in said
        assert "NotFoundError: " in said


_CELLS = (
    "import merganser as mg, time\ncatalog = mg.catalog('warehouse'); catalog.create_database('db')\n"
    "table = catalog.create_table('db.t', 'id BIGINT, PRIMARY KEY (id)', options={'bucket': '1'})\n"
    "table.write([{'id': 1}])",
    "table",
    "table.read()",
    "catalog.drop_table('db.t')\ntable.read()",
    "from merganser.progress.work import Progress\n"
    "print('before')\n"
    "with Progress(shown_after=0).work('<compacting>', size_bytes=4 << 20, steps=400) as work:\n"
    "    for _ in range(400):\n"
    "        work.advance(10 << 10); time.sleep(0.003)\n"
    "print('after')",
)


def test_a_kernel_shows_objects_and_one_output_of_progress(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("MERGANSER_PROGRESS", raising=False)
    shown: list[str] = []

    class Client(NotebookClient):  # type: ignore[misc]
        def process_message(self, message: Any, *rest: Any) -> Any:
            if message["msg_type"] in ("display_data", "update_display_data"):
                shown.append(message["content"]["data"].get("text/html", ""))
            return super().process_message(message, *rest)

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in _CELLS])
    Client(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    snapshot, table, scan, gone, progress = (cell.outputs for cell in notebook.cells)
    assert "APPEND" in snapshot[0].data["text/html"]
    assert "db.t" in table[0].data["text/html"]
    assert "1 row" in scan[0].data["text/html"]
    assert "NotFoundError" in gone[0].data["text/html"]
    assert [one.output_type for one in progress] == ["stream", "display_data", "stream"]
    assert progress[1].data["text/html"] == ""  # it leaves nothing behind
    drawn = [page for page in shown if "&lt;compacting&gt;" in page]
    assert 2 <= len(drawn) <= 6  # not one for each of 400 steps
    assert "of 4.0 MB" in drawn[-1]
    assert " of 400" in drawn[-1]
