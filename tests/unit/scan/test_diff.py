"""Differences of two states: what they read and cost, where rows moved, and what is refused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg
from merganser.errors import ExpiredError, InvalidInputError, NotFoundError
from merganser.storage.local import LocalStorage


def _table(path: Path, key: tuple[str, ...] = ("k",), **options: str) -> mg.Table:
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"write-only": "true"} | {name.replace("__", "-"): text for name, text in options.items()}
    return catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=list(key), options=options)


@contextlib.contextmanager
def _data_files_read() -> Iterator[set[str]]:
    found: set[str] = set()

    def noted(name: str) -> Any:
        real = getattr(LocalStorage, name)

        def call(self: LocalStorage, path: str, *args: Any, **kwargs: Any) -> Any:
            if "data-" in path:
                found.add(Path(path).name)
            return real(self, path, *args, **kwargs)

        return patch.object(LocalStorage, name, call)

    with noted("open"), noted("read"):
        yield found


def _rows(low: int, high: int, v: int = 0) -> list[dict[str, int]]:
    return [{"k": k, "v": v} for k in range(low, high)]


def _names(table: mg.Table) -> set[str]:
    return {Path(path).name for path in table.files().column("file_path").to_pylist()}


def test_a_rescale_changes_no_row(tmp_path: Path) -> None:
    """The rows of one state then lie in several buckets, and keys of these take turns."""
    catalog = mg.catalog(tmp_path)
    catalog.create_database("db")
    columns, key = {"p": "INT", "k": "INT", "v": "INT"}, ["p", "k"]
    table = catalog.create_table("db.t", columns, key, ["p"], options={"bucket": "2"})
    rows = [{"p": p, "k": k, "v": k} for p in range(40) for k in range(p, p + 4 + p % 3)]
    table.write(rows)
    table.rescale(1)
    table = catalog.table("db.t")
    assert table.changes(2, 2, mode="diff").count() == 0
    table.write([row | {"v": row["v"] + (row["k"] % 2)} for row in rows])
    odd = sum(row["k"] % 2 for row in rows)
    assert table.changes(2, 3, mode="diff").count() == 2 * odd


def test_files_that_both_states_share_are_not_read(tmp_path: Path) -> None:
    table = _table(tmp_path, bucket="1", target__file__row__num="100")
    table.write(_rows(0, 1000))
    table.compact(full=True)
    shared = _names(table)
    assert len(shared) == 10
    table.write(_rows(250, 260, 1))
    with _data_files_read() as read:
        assert table.changes(3, 3, mode="diff").count() == 20
    assert len(read & shared) == 1
    assert len(read) == 2


def test_buckets_without_changes_are_not_read_after_a_compaction(tmp_path: Path) -> None:
    table = _table(tmp_path, bucket="4")
    table.write(_rows(0, 100))
    table.compact(full=True)
    before = _names(table)
    table.write(_rows(7, 8, 1))
    table.compact(full=True)
    with _data_files_read() as read:
        assert table.changes(3, mode="diff").count() == 2
    assert len(read & before) == 1
    assert len(read) == 2
    with _data_files_read() as read:
        assert table.changes(4, mode="diff").count() == 0
        assert table.changes(3, mode="diff", where="k = 8").count() == 0
    assert len(read & before) <= 1


def test_an_append_table_reads_new_files_alone(tmp_path: Path) -> None:
    table = _table(tmp_path, ())
    table.write(_rows(0, 10))
    table.write(_rows(0, 3))
    with _data_files_read() as read:
        assert table.changes(2, mode="diff").to_pylist() == [{"_row_kind": "+I", "k": k, "v": 0} for k in range(3)]
    assert len(read) == 1
    table.write(_rows(0, 1), overwrite={})
    assert table.changes(3, mode="diff", where="_row_kind = '-D'").count() == 12
    assert table.changes(3, mode="diff", where="_row_kind = '+I'").count() == 0


def test_columns_chosen_do_not_choose_changes(tmp_path: Path) -> None:
    table = _table(tmp_path, bucket="2")
    table.write(_rows(0, 4))
    table.write(_rows(0, 1, 5))
    changes = table.changes(2, mode="diff", columns=["k"])
    assert changes.to_pylist() == [{"_row_kind": "-U", "k": 0}, {"_row_kind": "+U", "k": 0}]
    assert table.changes(2, mode="diff", columns=[]).count() == 2
    assert "states compared: 1 split of 2 buckets" in changes.explain()


def test_rows_that_move_between_buckets_have_not_changed(tmp_path: Path) -> None:
    path = str(tmp_path / "db.db" / "t")
    table = _table(tmp_path, bucket="2")
    table.write(_rows(0, 50))
    schema = Path(path) / "schema" / "schema-0"
    stored = json.loads(schema.read_text())
    stored["options"]["bucket"] = "3"
    schema.write_text(json.dumps({key: value for key, value in stored.items() if key != "merganser.crc32"}))
    wider = mg.table(path, options={"local.sync": "false"})
    assert wider.options["bucket"] == "3"
    wider.write([*_rows(0, 48), *_rows(60, 61)], overwrite={})
    wider.write(_rows(3, 4, 9))
    found = sorted((row["_row_kind"], row["k"]) for row in wider.changes(2, mode="diff").to_pylist())
    assert found == [("+I", 60), ("+U", 3), ("-D", 48), ("-D", 49), ("-U", 3)]


def test_tags_keep_states_that_have_expired(tmp_path: Path) -> None:
    table = _table(tmp_path, bucket="1")
    for v in range(4):
        table.write(_rows(v, v + 2, v))
        if v in (0, 2):
            table.tags.create(f"at-{v}")
    table.expire(retain_max=1, retain_min=1)
    tagged = table.with_options({"incremental-between": "at-0,at-2"})
    assert sorted(row["k"] for row in tagged.read().to_pylist()) == [1, 2, 3]
    assert sorted((row["_row_kind"], row["k"]) for row in tagged.changes().to_pylist()) == [
        ("+I", 2),
        ("+I", 3),
        ("+U", 1),
        ("-U", 1),
    ]
    assert table.with_options({"incremental-between": "at-2,at-2"}).read().count() == 0
    with pytest.raises(ExpiredError, match="snapshot 1"):
        table.changes(2, mode="diff").to_arrow()
    with pytest.raises(NotFoundError):
        table.changes(2, 9, mode="diff").to_arrow()


def test_states_that_expire_while_they_are_compared(tmp_path: Path) -> None:
    table = _table(tmp_path, bucket="1")
    table.write(_rows(0, 5))
    table.write(_rows(0, 5, 1), overwrite={})
    changes = table.changes(2, mode="diff")
    plan = changes.plan()
    table.expire(retain_max=1, retain_min=1)
    with pytest.raises(ExpiredError, match=r"snapshot 1 .*expired"):
        list(changes._read(plan, plan.splits[0]))


def test_sequence_numbers_of_two_states_are_refused(tmp_path: Path) -> None:
    table = _table(tmp_path, bucket="1", **{"table-read.sequence-number.enabled": "true"})
    table.write(_rows(0, 5))
    table.write(_rows(0, 5, 1))
    diff = table.with_options({"incremental-between": "1,2", "incremental-between-scan-mode": "diff"})
    with pytest.raises(InvalidInputError, match="no sequence number"):
        diff.system("audit_log").to_arrow()
    assert diff.system("audit_log", columns=["rowkind"]).count() == 5


def test_automatic_tags(tmp_path: Path) -> None:
    table = _table(tmp_path, bucket="1")
    for day in (1, 2, 4):
        table.write(_rows(0, day, day))
        table.tags.create(f"2026-01-0{day}")
    table.tags.create("mine")

    def to(tag: str) -> list[int]:
        return sorted(row["k"] for row in table.with_options({"incremental-to-auto-tag": tag}).read().to_pylist())

    assert to("2026-01-04") == [0, 1, 2, 3]
    assert to("2026-01-02") == [0, 1]
    assert to("2026-01-01") == to("2026-01-03") == []
    with pytest.raises(NotFoundError, match="names such as '1970-01-01'"):
        to("mine")


def test_text_keys_are_looked_up_in_shared_files(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true"}
    table = catalog.create_table("db.t", {"k": "STRING", "v": "INT"}, primary_key=["k"], options=options)
    table.write([{"k": f"k{i:04}", "v": i} for i in range(5000)])
    table.compact(full=True)
    table.write([{"k": "k0007", "v": 0}, {"k": "k0008", "v": 8}, {"k": "k00", "v": 1}])
    table.write([{"k": "k4999", "v": 0}], kinds=["-D"])
    found = [tuple(row.values()) for row in table.changes(3, mode="diff").to_pylist()]
    assert found == [("+I", "k00", 1), ("-U", "k0007", 7), ("+U", "k0007", 0), ("-D", "k4999", 4999)]


def test_a_key_that_an_overwrite_gives_another_bucket_is_one_update(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"dynamic-bucket.target-row-num": "5"}
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)
    table.write(_rows(0, 12))
    table.write(_rows(0, 12, 1)[::-1], overwrite={})
    table.write(_rows(12, 13))
    found = table.changes(2, 3, mode="diff").to_pylist()
    assert [(row["_row_kind"], row["k"], row["v"]) for row in found] == [
        *(change for k in range(12) for change in (("-U", k, 0), ("+U", k, 1))),
        ("+I", 12, 0),
    ]
    assert len(table.changes(3, 3, mode="diff").plan().splits) == 1  # other buckets are not compared
