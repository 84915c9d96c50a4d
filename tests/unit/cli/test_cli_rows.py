"""Rows out and in, and what a table is made of."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg

from .conftest import Run


def test_rows_are_shown_merged_and_aligned(run: Run, orders: mg.Table) -> None:
    assert run("read", "shop.orders").out == (
        'id  dt  note  tags\n 1  a   one   ["x","y"]\n 2  a   two   null\n'
    )  # fmt: skip


def test_columns_filter_and_limit_are_applied(run: Run, orders: mg.Table) -> None:
    assert run("read", "shop.orders", "--columns", "note,id", "--where", "id > 1").out == "note  id\ntwo    2\n"
    assert len(run("read", "shop.orders", "--limit", "1").out.splitlines()) == 2


def test_names_with_commas_are_given_in_backticks(run: Run) -> None:
    run("create-database", "d")
    run("create-table", "d.t", "-c", "`a,b` INT", "-c", "`c``d` INT", "--primary-key", "`a,b`")
    assert run("read", "d.t", "-c", "`c``d`, `a,b`", "-f", "csv").out == '"c`d","a,b"\n'


def test_an_older_snapshot_is_read(run: Run, orders: mg.Table) -> None:
    shown = run("read", "shop.orders", "-c", "id", "--snapshot", "1", "-f", "csv").out.splitlines()
    assert (shown[0], sorted(shown[1:])) == ('"id"', ["1", "2", "3"])


def test_no_rows_are_said_to_be_none(run: Run, orders: mg.Table) -> None:
    ran = run("read", "shop.orders", "--where", "id = 99")
    assert (ran.code, ran.out, ran.err) == (0, "id  dt  note  tags\n", "no rows\n")


def test_a_long_table_is_cut_and_says_so(run: Run, orders: mg.Table) -> None:
    orders.write(
        pa.table(
            {"id": range(100), "dt": ["c"] * 100, "note": [""] * 100, "tags": pa.nulls(100, pa.list_(pa.string()))}
        )
    )
    ran = run("read", "shop.orders")
    assert len(ran.out.splitlines()) == 51
    assert "the first 50 rows; there are more" in ran.err
    assert len(run("read", "shop.orders", "-n", "80").out.splitlines()) == 81


def test_what_would_break_a_line_is_escaped(run: Run, orders: mg.Table) -> None:
    orders.write([{"id": 1, "dt": "a", "note": "two\nlines\x1b[31m", "tags": None}])
    assert r"two\nlines\x1b[31m" in run("read", "shop.orders", "--where", "id = 1").out


def test_json_is_one_object_per_line(run: Run, orders: mg.Table) -> None:
    lines = run("read", "shop.orders", "--format", "json").out.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"id": 1, "dt": "a", "note": "one", "tags": ["x", "y"]},
        {"id": 2, "dt": "a", "note": "two", "tags": None},
    ]


def test_binary_is_base64_in_json(run: Run) -> None:
    run("create-database", "d")
    run("create-table", "d.t", "-c", "b BYTES")
    mg.table("warehouse/d.db/t").write([{"b": b"\x00\xff"}])
    assert run("read", "d.t", "-f", "json").out == '{"b":"AP8="}\n'
    assert run("read", "d.t").out == "b\nx'00ff'\n"


def test_nested_columns_are_refused_in_csv(run: Run, orders: mg.Table) -> None:
    ran = run("read", "shop.orders", "--format", "csv")
    assert ran.code == 1
    assert "column 'tags'" in ran.err


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_a_file_gets_the_form_of_its_name_and_can_be_written_back(run: Run, orders: mg.Table, form: str) -> None:
    columns = "id,dt,note" if form == "csv" else "id,dt,note,tags"
    ran = run("read", "shop.orders", "-c", columns, "--output", f"out.{form}")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("2 rows, ")
    assert not Path(f"out.{form}.part").exists()
    orders.truncate()
    back = run("write", "shop.orders", f"out.{form}", "--columns", columns)
    assert back.out.startswith("snapshot 4: 2 rows written, 1 file, ")
    assert orders.read(columns=["id", "note"]).to_pylist() == [{"id": 1, "note": "one"}, {"id": 2, "note": "two"}]


def test_a_failed_read_leaves_no_file(run: Run, orders: mg.Table) -> None:
    Path("out.csv").write_text("before")
    assert run("read", "shop.orders", "--output", "out.csv").code == 1  # csv has no form for tags
    assert Path("out.csv").read_text() == "before"
    assert not Path("out.csv.part").exists()


def test_an_output_without_a_form_is_refused(run: Run, orders: mg.Table) -> None:
    ran = run("read", "shop.orders", "--output", "out.txt")
    assert ran.code == 1
    assert "Add --format" in ran.err


def test_files_are_written_as_one_commit_with_their_kinds(run: Run, orders: mg.Table) -> None:
    Path("1.csv").write_text("id,dt,note,op\n7,a,seven,+I\n")
    Path("2.csv").write_text("id,dt,note,op\n7,a,,-D\n8,a,eight,+I\n")
    ran = run("write", "shop.orders", "1.csv", "2.csv", "--kinds", "op", "--columns", "id,dt,note")
    assert ran.out.startswith("snapshot 3: 3 rows written, 1 file, ")
    assert orders.read(columns=["id"], where="id > 5").to_pylist() == [{"id": 8}]


def test_overwriting_replaces_the_table_or_a_partition(run: Run, orders: mg.Table) -> None:
    pq.write_table(
        pa.table({"id": [9], "dt": ["b"], "note": ["nine"], "tags": pa.nulls(1, pa.list_(pa.string()))}), "n.parquet"
    )
    assert run("write", "shop.orders", "n.parquet", "--overwrite", "--partition", "dt=b").code == 0
    assert sorted(r["id"] for r in orders.read(columns=["id"]).to_pylist()) == [1, 2, 9]
    assert run("write", "shop.orders", "n.parquet", "--overwrite").code == 0
    assert orders.read(columns=["id"]).to_pylist() == [{"id": 9}]


def test_a_misspelt_file_is_found_before_anything_is_written(run: Run, orders: mg.Table) -> None:
    Path("1.csv").write_text("id,dt\n7,a\n")
    ran = run("write", "shop.orders", "1.csv", "2.csv", "--columns", "id,dt")
    assert ran.code == 1
    assert "no file matches '2.csv'" in ran.err
    assert len(orders.snapshots()) == 2


def test_files_without_rows_commit_nothing(run: Run, orders: mg.Table) -> None:
    Path("1.csv").write_text("id,dt\n")
    ran = run("write", "shop.orders", "1.csv", "--columns", "id,dt")
    assert (ran.code, ran.out) == (0, "nothing was committed: the files hold no rows\n")


def test_snapshots_say_what_each_changed(run: Run, orders: mg.Table) -> None:
    lines = run("snapshots", "shop.orders").out.splitlines()
    assert [line.split()[0] for line in lines] == ["id", "1", "2"]
    assert lines[1].split()[3:6] == ["APPEND", "+3", "+2"]
    orders.truncate()
    assert "OVERWRITE  +0 -5  +0 -4" in run("snapshots", "shop.orders").out
    ran = run("snapshots", "shop.orders", "--limit", "1")
    assert len(ran.out.splitlines()) == 2
    assert "the newest 1 of 3 snapshots" in ran.err


def test_who_committed_is_shown_when_asked(run: Run, orders: mg.Table) -> None:
    orders.write([{"id": 4, "dt": "a", "note": "", "tags": None}], commit_user="nightly", identifier=7)
    assert run("snapshots", "shop.orders", "--long", "-n", "1").out.splitlines()[-1].split()[-2:] == ["7", "nightly"]


def test_files_stand_under_their_bucket(run: Run, orders: mg.Table) -> None:
    lines = run("files", "shop.orders").out.splitlines()
    assert lines[0].startswith("dt=a/bucket-0  2 files, 3 rows, ")
    assert lines[1].split() == ["level", "rows", "-D", "size", "file"]
    assert (
        run("files", "shop.orders", "--snapshot", "1").out.splitlines()[0].startswith("dt=a/bucket-0  1 file, 2 rows, ")
    )


def test_explain_shows_what_pruning_leaves(run: Run, orders: mg.Table) -> None:
    out = run("explain", "shop.orders", "--where", "dt = 'b'").out
    assert "4 files in the snapshot" in out
    assert "2 after partitions" in out


def test_a_system_table_takes_no_snapshot(run: Run, orders: mg.Table) -> None:
    assert run("read", "shop.orders$files", "--snapshot", "1").code == 1
    assert run("describe", "shop.orders$files").code == 1


def test_compact_puts_files_together_and_says_what_became_of_them(run: Run, orders: mg.Table) -> None:
    before = orders.read().to_arrow().sort_by("id")
    few = run("compact", "shop.orders")
    assert (few.code, few.out) == (0, "nothing to compact; --full puts everything into one level\n")
    ran = run("compact", "shop.orders", "--full")
    assert ran.code == 0
    assert ran.out.startswith(f"snapshot {orders.latest_snapshot().id}: ")
    assert " became " in ran.out
    assert orders.read().to_arrow().sort_by("id").equals(before)
    assert run("compact", "shop.orders", "--full").out == "nothing to compact\n"
    nowhere = run("compact", "shop.orders", "--full", "--partition", "dt=z")
    assert (nowhere.code, nowhere.out) == (1, "")
    assert "it has no partition 'dt=z'" in nowhere.err
    assert run("compact", "shop.orders", "--full", "--where", "dt = 'z'").out == (
        "nothing to compact in the partitions that were chosen; `merganser files shop.orders` shows which partitions "
        "there are\n"
    )


def test_a_full_compaction_says_which_deletes_it_leaves_and_why(run: Run, tmp_path: Path) -> None:
    options = {"bucket": "1", "sequence.field": "n"}
    warehouse = mg.catalog(str(tmp_path / "warehouse"))
    warehouse.create_database("shop")
    table = warehouse.create_table("shop.late", "k INT, n INT", primary_key=["k"], options=options)
    table.write([{"k": 1, "n": 1}, {"k": 2, "n": 1}])
    table.delete("k = 1")
    left = "1 delete stays for 'tombstone.time-retained' (24 h), so that older rows that come late stay deleted; later"
    assert f"\n{left} full compactions remove them\n" in run("compact", "shop.late", "--full").out
    assert run("compact", "shop.late", "--full").out.startswith(f"nothing to compact; {left}")
    own = table.with_options({"tombstone.time-retained": "0 s"})
    assert own.compact(full=True) is not None
    assert run("compact", "shop.late", "--full").out == "nothing to compact\n"


def test_compact_refuses_a_partition_that_is_none(run: Run, orders: mg.Table) -> None:
    ran = run("compact", "shop.orders", "--full", "--partition", "gone=1")
    assert ran.code == 1
    assert "'gone' is not a partition column" in ran.err


def test_rescale_moves_rows_and_says_what_became_of_them(run: Run, orders: mg.Table) -> None:
    before = sorted(map(str, orders.read().to_pylist()))
    ran = run("rescale", "shop.orders", "3")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"snapshot {orders.latest_snapshot().id}: ")
    assert " became " in ran.out
    assert sorted(map(str, orders.read().to_pylist())) == before
    assert run("rescale", "shop.orders", "3").out == "nothing to move: all rows lie in 3 buckets\n"
    refused = run("rescale", "shop.orders", "0")
    assert (refused.code, refused.out) == (1, "")
    assert "whole number from 1 to 32767" in refused.err


def test_rows_are_deleted_and_updated_by_a_filter(run: Run, orders: mg.Table) -> None:
    ran = run("update", "shop.orders", "--where", "id > 1", "--set", "`note` = upper(note)")
    assert ran.out.startswith("1 row updated; snapshot ")
    assert run("read", "shop.orders", "-c", "note", "--where", "id = 2", "-f", "csv").out == '"note"\n"TWO"\n'
    assert run("delete", "shop.orders", "--where", "note = 'TWO'").out.startswith("1 row deleted; snapshot ")
    assert run("delete", "shop.orders", "--where", "note = 'TWO'").out == "no row changes; nothing was committed\n"
    assert run("delete", "shop.orders", "--where", "TRUE").code == 0
    assert run("read", "shop.orders").err == "no rows\n"
    assert "belongs to the primary key" in run("update", "shop.orders", "--where", "TRUE", "--set", "id=1").err


def test_rows_are_erased_and_the_report_is_kept(run: Run, orders: mg.Table) -> None:
    ran = run("erase", "shop.orders", "--where", "id = 1")
    assert (ran.code, ran.err) == (0, "--everywhere ends what still holds the rows\n")
    assert "still held snapshot 1" in ran.out
    assert "`merganser expire` ends snapshots, `merganser erase --everywhere` all that hold rows." in ran.out
    ran = run("erase", "shop.orders", "--where", "id = 1", "--everywhere", "--report", "proof.json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("complete   no file of the table holds an erased row\n")
    assert json.loads(Path("proof.json").read_text())["is_complete"] is True
    Path(orders.path, "dt=b", "bucket-0", "data-torn-0.parquet").write_bytes(b"torn")
    ran = run("erase", "shop.orders", "--where", "id = 1", "--everywhere")
    assert ran.code == 1
    assert "run `merganser orphans --older-than TIME --remove`, and repeat" in ran.out
    assert run("erase", "shop.orders", "--where", "id = 1", "--report", "no/where.json").code == 1


def test_the_row_of_a_key_is_looked_up(run: Run, orders: mg.Table, tmp_path: Path) -> None:
    shown = run("lookup", "shop.orders", "id=2", "dt=a")
    assert shown.out.splitlines()[1].split() == ["2", "a", "two", "null"]
    as_json = run("lookup", "shop.orders", "id=2", "dt=a", "--columns", "note", "--format", "json", "--snapshot", "1")
    assert as_json.out == '{"note":null}\n'
    assert run("lookup", "shop.orders", "id=9", "dt=a").err.strip() == "no rows"
    assert run("lookup", "shop.orders", "id=2", "dt=a", "-c", "id,note", "--output", "row.csv").code == 0
    assert (tmp_path / "row.csv").read_text() == '"id","note"\n2,"two"\n'


def test_a_key_that_cannot_be_looked_up_is_refused(run: Run, orders: mg.Table) -> None:
    assert "'two' is not a value of column 'id', which is BIGINT" in run("lookup", "shop.orders", "id=two", "dt=a").err
    assert "no column 'ids'. Did you mean 'id'?" in run("lookup", "shop.orders", "ids=2", "dt=a").err
    assert run("lookup", "shop.orders", "id=2").code == 1
    assert run("lookup", "shop.orders", "2").code == 2
    assert "is a system table" in run("lookup", "shop.orders$files", "id=2").err


def test_a_prefix_of_the_key_gives_all_its_rows(run: Run, tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path / "warehouse"))
    catalog.create_database("shop")
    lines = catalog.create_table(
        "shop.lines", "id INT, line INT, PRIMARY KEY (id, line)", options={"bucket": "2", "bucket-key": "id"}
    )
    lines.write([{"id": 1, "line": line} for line in (1, 2)] + [{"id": 2, "line": 1}])
    shown = run("lookup", "shop.lines", "id=1", "--prefix", "--format", "json")
    assert sorted(shown.out.splitlines()) == ['{"id":1,"line":1}', '{"id":1,"line":2}']


def test_statistics_are_counted(run: Run, orders: mg.Table) -> None:
    done = run("analyze", "shop.orders", "--columns", "note")
    assert done.out == "snapshot 3: statistics of 2 rows; `merganser read 'shop.orders$statistics'` shows them\n"
    counted = json.loads(run("read", "shop.orders$statistics", "--format", "json").out)
    assert list(json.loads(counted["colstat"])) == ["note"]
    assert run("analyze", "shop.orders", "--rows-only").code == 0
    assert run("analyze", "shop.orders", "--rows-only", "--columns", "note").code == 2
    assert "no column" in run("analyze", "shop.orders", "--columns", "nope").err
