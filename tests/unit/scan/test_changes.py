"""`Table.changes`: what snapshots published, in their order, from changelog files or from the files of commits."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg
from merganser.storage.local import LocalStorage

KINDS = ("+I", "-U", "+U", "-D")
Row = dict[str, Any]


def _table(path: Path, key: tuple[str, ...] = ("k",), **options: str) -> mg.Table:
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = ({"bucket": "2"} if key else {}) | {name.replace("__", "-"): text for name, text in options.items()}
    columns = {"k": "INT", "p": "STRING", "v": "INT"}
    partitions = [name for name in key if name == "p"]
    return catalog.create_table("db.t", columns, primary_key=list(key), partition_by=partitions, options=options)


def _rows(rng: random.Random, count: int) -> tuple[list[Row], list[str]]:
    rows = [{"k": rng.randrange(8), "p": rng.choice("ab"), "v": rng.randrange(100)} for _ in range(count)]
    return rows, [rng.choice(KINDS) for _ in rows]


def _by_key(changes: list[Row], key: tuple[str, ...]) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in changes:
        found.setdefault(tuple(row[name] for name in key), []).append(row)
    return found


@pytest.mark.parametrize("format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("seed", range(3))
def test_the_producer_input_publishes_the_rows_as_they_came(seed: int, format: str, tmp_path: Path) -> None:
    """Whatever flushes, compactions and merges make of them: per key every row with its kind, in order."""
    rng = random.Random(f"{seed} {format}")
    key = ("p", "k") if seed % 2 else ("k",)
    engine = rng.choice([{"merge-engine": "deduplicate"}, {"merge-engine": "partial-update", "ignore-delete": "true"}])
    own = {"changelog-file.format": rng.choice(["parquet", "avro"])} if format == "orc" else {}
    options = {"changelog-producer": "input", "file.format": format, "write-buffer-size": "64 kb"} | engine | own
    table = _table(tmp_path, key, **options)
    expected: list[list[Row]] = []
    for _ in range(5):
        rows, kinds = _rows(rng, rng.randrange(1, 40))
        with patch("merganser.lsm.writer.SLICE_ROWS", 7):
            if table.write(rows, kinds=kinds) is None:
                continue
        dropped = ("-U", "-D") if "ignore-delete" in engine else ()
        expected.append(
            [{"_row_kind": kind, **row} for kind, row in zip(kinds, rows, strict=True) if kind not in dropped]
        )
        if rng.random() < 0.3:
            table.compact(full=True)
    snapshots = [snapshot.id for snapshot in table.snapshots() if snapshot.commit_kind == "APPEND"]
    assert len(snapshots) == len(expected)
    for snapshot, rows in zip(snapshots, expected, strict=True):
        changes = table.changes(snapshot, snapshot).to_pylist()
        assert _by_key(changes, key) == _by_key(rows, key)
    assert table.changes().to_arrow().num_rows == sum(len(rows) for rows in expected)
    assert table.check() == ()
    names = {Path(file).name for file in map(str, tmp_path.rglob("*")) if "changelog-" in file}
    assert names
    assert {Path(name).suffix for name in names} == {f".{own.get('changelog-file.format', format)}"}


@pytest.mark.parametrize("seed", range(3))
def test_without_a_producer_changes_are_what_commits_added(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    table = _table(tmp_path)
    expected: list[dict[int, tuple[str, Row]]] = []
    for _ in range(6):
        rows, kinds = _rows(rng, 20)
        table.write(rows, kinds=kinds)
        expected.append({row["k"]: (kind, row) for kind, row in zip(kinds, rows, strict=True)})
        if rng.random() < 0.5:
            table.compact(full=rng.random() < 0.5)
    appended = [snapshot.id for snapshot in table.snapshots() if snapshot.commit_kind == "APPEND"]
    for snapshot, wanted in zip(appended, expected, strict=True):
        found = {row["k"]: (row.pop("_row_kind"), row) for row in table.changes(snapshot, snapshot).to_pylist()}
        assert found == wanted


def test_tables_without_a_key_publish_inserts_and_counts(tmp_path: Path) -> None:
    table = _table(tmp_path / "plain", ())
    table.write([{"k": 1, "p": "a", "v": 1}, {"k": 1, "p": "a", "v": 1}])
    table.write([{"k": 2, "p": "a", "v": None}])
    assert [(row["_row_kind"], row["k"]) for row in table.changes().to_pylist()] == [("+I", 1), ("+I", 1), ("+I", 2)]
    counting = _table(tmp_path / "counting", (), **{"write-mode": "change-log", "bucket": "1"})
    counting.write([{"k": 1, "p": "a", "v": 1}] * 3)
    counting.write([{"k": 1, "p": "a", "v": 1}] * 2, kinds=["-D", "-D"])
    assert [row["_row_kind"] for row in counting.changes().to_pylist()] == ["+I", "+I", "+I", "-D", "-D"]
    assert counting.changes(where="_row_kind = '-D'").count() == 2


def test_columns_and_filters(tmp_path: Path) -> None:
    table = _table(tmp_path, ("p", "k"), **{"changelog-producer": "input"})
    table.write([{"k": k, "p": p, "v": 10 * k} for k in range(10) for p in "ab"])
    table.write([{"k": 1, "p": "a", "v": 10}, {"k": 1, "p": "a", "v": 11}], kinds=["-U", "+U"])
    changes = table.changes(columns=["v"], where="p = 'a' AND k <= 1")
    assert changes.schema.names == ["_row_kind", "v"]
    assert sorted(changes.to_pylist(), key=lambda row: (row["v"], row["_row_kind"])) == [
        {"_row_kind": "+I", "v": 0},
        {"_row_kind": "+I", "v": 10},
        {"_row_kind": "-U", "v": 10},
        {"_row_kind": "+U", "v": 11},
    ]
    assert table.changes(2, where="_row_kind = '-U' AND v < 100").to_pylist() == [
        {"_row_kind": "-U", "k": 1, "p": "a", "v": 10}
    ]
    assert table.changes(2, columns=[]).to_pylist() == [{"_row_kind": "-U"}, {"_row_kind": "+U"}]
    assert sum(batch.num_rows for batch in table.changes().to_batches()) == 22
    assert "2 files" in table.changes(where="p = 'b'").explain()


def test_overwrites_write_no_changelog(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"changelog-producer": "input"})
    table.write([{"k": 1, "p": "a", "v": 1}])
    table.write([{"k": 2, "p": "a", "v": 1}], overwrite={})
    assert [(row["_row_kind"], row["k"]) for row in table.changes(2).to_pylist()] == [("-D", 1), ("+I", 2)]
    assert [snapshot.changelog_record_count for snapshot in table.snapshots()] == [1, None]


def test_the_range_of_snapshots(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"write-only": "true"})
    assert table.changes().to_pylist() == []
    for v in range(3):
        table.write([{"k": 1, "p": "a", "v": v}])
    changes = table.changes(2)
    assert [row["v"] for row in changes.to_pylist()] == [1, 2]
    table.write([{"k": 1, "p": "a", "v": 3}])
    assert [row["v"] for row in changes.to_pylist()] == [1, 2, 3]
    assert [row["v"] for row in table.changes(2, 3).to_pylist()] == [1, 2]
    assert table.changes(5).to_pylist() == []
    with pytest.raises(mg.errors.NotFoundError, match="snapshot 5 is not there yet, the newest is 4"):
        table.changes(1, 5).to_arrow()
    with pytest.raises(mg.errors.NotFoundError, match="start with snapshot 6 and end with 4"):
        table.changes(6).to_arrow()
    for wrong in (0, -1, "1", True, 1.5):
        with pytest.raises(mg.errors.InvalidInputError, match="start is"):
            table.changes(wrong)  # type: ignore[arg-type]
    with pytest.raises(mg.errors.InvalidInputError, match="no column 'w'"):
        table.changes(columns=["w"])


@pytest.mark.parametrize("producer", ["none", "input"])
def test_expired_changes_are_refused_unless_changelogs_outlive_snapshots(producer: str, tmp_path: Path) -> None:
    options = {"changelog-producer": producer, "write-only": "true", "snapshot.num-retained.min": "1"}
    options["snapshot.num-retained.max"] = "2"
    for longer in (False, True):
        more = {"changelog.num-retained.min": "10", "changelog.num-retained.max": "10"} if longer else {}
        table = _table(tmp_path / str(longer), **options | more)
        for v in range(5):
            table.write([{"k": 1, "p": "a", "v": v}])
        table.expire()
        assert [snapshot.id for snapshot in table.snapshots()] == [4, 5]
        assert [row["v"] for row in table.changes(4).to_pylist()] == [3, 4]
        if longer:
            assert [row["v"] for row in table.changes(2).to_pylist()] == [1, 2, 3, 4]
        else:
            with pytest.raises(mg.errors.ExpiredError, match=r"snapshot 2 has expired.*from snapshot 4 on") as caught:
                table.changes(2).to_arrow()
            assert caught.value.context["earliest"] == 4
        assert table.check() == ()


def test_changes_that_expire_while_they_are_read_are_said_to_have_expired(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"changelog-producer": "input", "write-only": "true"})
    for v in range(3):
        table.write([{"k": 1, "p": "a", "v": v}])
    batches = table.changes().to_batches()
    changes = table.changes()
    plan = changes.plan()
    table.expire(retain_max=1, retain_min=1)
    with pytest.raises(mg.errors.ExpiredError, match="snapshot 1 has expired"):
        list(changes._read(plan, plan.splits[0]))
    with pytest.raises(mg.errors.ExpiredError):
        next(batches)


def test_a_damaged_changelog_file_is_named(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"changelog-producer": "input", "bucket": "1"})
    table.write([{"k": 1, "p": "a", "v": 1}])
    (path,) = tmp_path.rglob("changelog-*.parquet")
    path.unlink()
    with pytest.raises(mg.errors.FormatError, match=path.name):
        table.changes().to_arrow()
    assert [finding for finding in table.check() if path.name in str(finding)]
    assert table.read().count() == 1


def test_a_write_that_fails_or_is_dropped_leaves_no_changelog_file(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"changelog-producer": "input"})
    with table.writer() as writer:
        writer.write([{"k": k, "p": "a", "v": 1} for k in range(10)])
        writer.session._writer.finish()  # type: ignore[union-attr]
        assert list(tmp_path.rglob("changelog-*.parquet"))
    with (
        patch.object(LocalStorage, "replace", side_effect=mg.errors.StorageError("full")),
        pytest.raises(mg.errors.StorageError),
    ):
        table.write([{"k": k, "p": "a", "v": 1} for k in range(10)])
    table.remove_orphans(older_than="2100-01-01", dry_run=False)
    assert list(tmp_path.rglob("changelog-*.parquet")) == []
    table.write([{"k": 1, "p": "a", "v": 1}])
    assert table.changes().count() == 1


def test_a_table_with_a_column_of_the_name_of_kinds_has_no_changes(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    with pytest.raises(mg.errors.InvalidInputError, match="readers of changes add a column of this name"):
        catalog.create_table("db.t", {"_Row_Kind": "INT"})
    made = catalog.create_table("db.t", {"its_kinds": "INT"})
    schema = Path(made.path) / "schema" / "schema-0"  # as another engine may have made it
    made_by_others = json.loads(schema.read_text().replace("its_kinds", "_row_kind"))
    del made_by_others["merganser.crc32"]
    schema.write_text(json.dumps(made_by_others))
    with pytest.raises(mg.errors.InvalidInputError, match="a column '_row_kind'"):
        mg.table(made.path).changes()


def test_a_commit_whose_rows_get_other_numbers_keeps_its_changelog(tmp_path: Path) -> None:
    """Two writers overlap: the later commit writes its data files again, and not its changelog files."""
    table = _table(tmp_path, **{"changelog-producer": "input", "bucket": "1"})
    with patch("merganser.write.buffer.SMALL_BYTES", 0), table.writer() as one, table.writer() as other:
        one.write([{"k": 1, "p": "a", "v": 1}])
        other.write([{"k": 1, "p": "a", "v": 2}, {"k": 2, "p": "a", "v": 2}])
        one.commit()
        other.commit()
    assert [(row["k"], row["v"]) for row in table.changes().to_pylist()] == [(1, 1), (1, 2), (2, 2)]
    assert {row["k"]: row["v"] for row in table.read().to_pylist()} == {1: 2, 2: 2}
    assert table.check() == ()
