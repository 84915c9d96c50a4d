"""Deletes and updates of tables without a key: which files change, and how."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg
from merganser.edit import change, merging
from merganser.errors import InvalidInputError
from merganser.storage.protocol import no_lock

COLUMNS = {"k": "INT", "a": "INT", "p": "STRING NOT NULL"}
VECTORS = {"deletion-vectors.enabled": "true"}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    found.create_database("db")
    return found


def made(catalog: mg.Catalog, partition_by: list[str] | None = None, **options: str) -> mg.Table:
    found = {"write-only": "true"} | {name.replace("_", "-"): value for name, value in options.items()}
    table = catalog.create_table("db.t", COLUMNS, partition_by=partition_by, options=found)
    for first in (0, 10, 20):
        table.write(rows_of(range(first, first + 10)))
    return table


def rows_of(keys: Any) -> list[dict[str, Any]]:
    return [{"k": k, "a": k, "p": "even" if k % 2 == 0 else "odd"} for k in keys]


def names(table: mg.Table) -> set[str]:
    return {Path(path).name for path in table.files()["file_path"].to_pylist()}


def keys(table: mg.Table) -> list[int]:
    return sorted(table.read(columns=["k"]).to_arrow()["k"].to_pylist())


def deleted(found: mg.Snapshot | None) -> int | None:
    assert found is not None
    assert found.commit_kind == "OVERWRITE"
    return found.rows_deleted


def test_only_files_with_matching_rows_are_written_anew_and_others_go_whole(catalog: mg.Catalog) -> None:
    table = made(catalog)
    before = names(table)
    assert deleted(table.delete("a BETWEEN 10 AND 21")) == 12
    assert keys(table) == [*range(10), *range(22, 30)]
    assert len(names(table)) == 2
    assert len(names(table) & before) == 1
    found = table.update("k < 3", {"a": "a * 100"})
    assert found is not None
    assert (found.rows_updated, found.commit_kind, found.operation) == (2, "OVERWRITE", "UPDATE")  # 0 stays 0
    assert [row["a"] for row in table.read(where="k < 4").to_pylist()] == [0, 100, 200, 3]
    assert table.update("k < 3", {"p": "p"}) is None
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") != before


def test_a_file_whose_rows_all_match_goes_without_being_read(catalog: mg.Catalog) -> None:
    table = made(catalog)
    for path in table.files()["file_path"].to_pylist()[:2]:
        Path(path).write_bytes(b"damaged")
    assert deleted(table.delete("k < 20")) == 20
    assert keys(table) == list(range(20, 30))


def test_vectors_mark_rows_and_no_file_is_written(catalog: mg.Catalog) -> None:
    table = made(catalog, **VECTORS)
    before = names(table)
    assert deleted(table.delete("a % 5 = 1 AND k < 20")) == 4
    assert names(table) == before
    assert deleted(table.delete("k IN (2, 6, 7, 12)")) == 3
    assert keys(table) == [0, 3, 4, 5, 7 + 1, 9, 10, 13, 14, 15, 17, 18, 19, *range(20, 30)]
    found = table.update("k BETWEEN 4 AND 10", {"a": "-1"})
    assert found is not None
    assert found.rows_updated == 5
    assert len(names(table) - before) == 1
    assert names(table) > before
    assert sorted(row["k"] for row in table.read(where="a = -1").to_pylist()) == [4, 5, 8, 9, 10]
    assert deleted(table.delete("k < 10")) == 6
    assert len(before - names(table)) == 1  # the first file has no row left
    table.with_options({"write-only": "false"}).compact(full=True)
    assert keys(table) == [10, 13, 14, 15, 17, 18, 19, *range(20, 30)]
    assert [found for found in table.check() if found.is_fault] == []


def test_a_full_compaction_writes_files_without_the_rows_that_vectors_mark(catalog: mg.Catalog) -> None:
    table = made(catalog, **{"deletion-vectors.enabled": "true", "target-file-size": "1 b"})
    table.delete("k = 3")
    assert table.compact() is None  # one row of ten is below 'compaction.delete-ratio-threshold'
    before = names(table)
    assert table.compact(full=True) is not None
    assert len(names(table) & before) == 2
    assert keys(table) == [k for k in range(30) if k != 3]
    assert table.compact(full=True) is None


def test_whole_partitions_are_dropped_unless_their_rows_are_to_be_published(catalog: mg.Catalog) -> None:
    table = made(catalog, ["p"])
    assert deleted(table.delete("p = 'odd'")) == 15
    assert keys(table) == list(range(0, 30, 2))
    assert table.delete("p = 'odd'") is None
    keyed = catalog.create_table("db.k", COLUMNS, primary_key=["p", "k"], partition_by=["p"], options={"bucket": "1"})
    keyed.write(rows_of(range(6)))
    dropped = keyed.delete("p LIKE 'o%'")
    assert dropped is not None
    assert (dropped.commit_kind, dropped.rows_deleted) == ("OVERWRITE", None)
    published = keyed.with_options({"delete.force-produce-changelog": "true"}).delete("p = 'even' AND true")
    assert published is not None
    assert (published.commit_kind, published.rows_deleted) == ("APPEND", 3)
    assert keyed.read().count() == 0
    assert keyed.delete("true") is not None
    assert len(keyed.files()) == 0


def test_rows_of_a_bucket_keep_their_order(catalog: mg.Catalog) -> None:
    table = made(catalog, **{"bucket": "1", "bucket-key": "k"})
    table.update("k IN (3, 13)", {"a": "-1"})
    table.delete("k IN (4, 5, 14)")
    assert table.read(columns=["k"]).to_arrow()["k"].to_pylist() == [k for k in range(30) if k not in (4, 5, 14)]
    table.write(rows_of([99]))
    table.with_options({"write-only": "false"}).compact(full=True)
    assert table.read(columns=["k"]).to_arrow()["k"].to_pylist()[-2:] == [29, 99]


def test_a_bad_value_leaves_nothing_behind(catalog: mg.Catalog) -> None:
    table = made(catalog, **VECTORS)
    before = names(table)
    for sets, said in (({"p": "IF(k = 25, NULL, p)"}, "'p' is null"), ({"a": "1 DIV (k - 25)"}, "zero")):
        with pytest.raises(InvalidInputError, match=r"cannot update 'db\.t'") as caught:
            table.update("k >= 0", sets)
        assert said in str(caught.value)
    assert names(table) == before
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") == ()


def _without_locks() -> Any:
    return patch("merganser.storage.local.LocalStorage.try_lock", lambda *_: no_lock)


Between = Callable[[Callable[[], object]], list[int]]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """Do something between the plan and the commit of the first round; return a list that counts the rounds."""

    def install(todo: Callable[[], object]) -> list[int]:
        rounds: list[int] = []
        rewriting = change.rewriting

        def planned(*arguments: Any) -> Any:
            found = rewriting(*arguments)
            rounds.append(1)
            if len(rounds) == 1:
                todo()
            return found

        monkeypatch.setattr(change, "rewriting", planned)
        return rounds

    return install


@pytest.mark.parametrize("options", [{}, VECTORS])
def test_a_change_goes_on_after_a_compaction_and_another_change(
    catalog: mg.Catalog, between: Between, options: dict[str, str]
) -> None:
    table = made(catalog, **options)

    def meanwhile() -> None:
        table.with_options({"write-only": "false"}).compact(full=True)
        table.update("k = 7", {"a": "-7"})

    rounds = between(meanwhile)
    with _without_locks():
        assert deleted(table.delete("a > 25 OR a IN (6, -7)")) == 6
    assert len(rounds) > 2
    assert keys(table) == [*range(6), *range(8, 26)]
    assert [found for found in table.check() if found.is_fault] == []


def test_changes_of_different_rows_of_a_file_both_hold(catalog: mg.Catalog, between: Between) -> None:
    table = made(catalog, **VECTORS)
    rounds = between(lambda: table.delete("k IN (1, 2)"))
    with _without_locks():
        table.delete("k IN (2, 3)")
    assert len(rounds) > 2
    assert keys(table) == [0, *range(4, 30)]


def test_rows_that_come_meanwhile_and_match_are_changed_and_others_do_not_conflict(
    catalog: mg.Catalog, between: Between
) -> None:
    table = made(catalog)
    rounds = between(lambda: table.write(rows_of([100])))
    with _without_locks():
        table.delete("k < 5")
        assert len(rounds) == 1
    rounds = between(lambda: table.write(rows_of([6])))
    with _without_locks():
        assert deleted(table.delete("k < 7")) == 3
    assert keys(table) == [*range(7, 30), 100]


@pytest.mark.parametrize("options", [{}, VECTORS, {"bucket": "1", "bucket-key": "k"}])
def test_rows_of_a_source_change_files_with_rows_that_meet_them(catalog: mg.Catalog, options: dict[str, str]) -> None:
    table = made(catalog, **options)
    before = names(table)
    source = [{"k": k, "v": -k} for k in (1, 2, 12, 40, 41)]
    merge = (
        table.merge(source, on="target.k = source.k")
        .when_matched_delete("source.k = 2")
        .when_matched_update({"a": "source.v"})
        .when_not_matched_insert({"k": "source.k", "a": "source.v", "p": "'new'"}, condition="source.k < 41")
    )
    found = merge.execute()
    assert found is not None
    assert (found.rows_inserted, found.rows_updated, found.rows_deleted, found.operation) == (1, 2, 1, "MERGE")
    assert len(names(table) & before) == (3 if options == VECTORS else 1)
    assert keys(table) == [k for k in range(30) if k != 2] + [40]
    assert sorted(row["k"] for row in table.read(where="a < 0").to_pylist()) == [1, 12, 40]
    if "bucket" in options:
        assert table.read(columns=["k"]).to_arrow()["k"].to_pylist() == keys(table)
    assert [each for each in table.check() if each.is_fault] == []


def test_a_merge_sees_rows_that_others_delete_meanwhile(catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(catalog, **VECTORS)
    rounds: list[int] = []
    new = merging.Merge._new_rows

    def made_new(self: merging.Merge, source: Any) -> Any:
        rounds.append(1)
        if len(rounds) == 1:
            table.delete("k = 5")
        return new(self, source)

    monkeypatch.setattr(merging.Merge, "_new_rows", made_new)
    merge = table.merge([{"k": 5}, {"k": 6}, {"k": 30}], on="target.k = source.k")
    with _without_locks():
        found = merge.when_not_matched_insert({"k": "k", "p": "'new'"}).execute()
    assert found is not None
    assert (found.rows_inserted, len(rounds)) == (2, 2)
    assert keys(table) == list(range(31))


def test_several_rows_of_a_source_for_one_row_are_refused(catalog: mg.Catalog) -> None:
    table = made(catalog, **VECTORS)
    before = names(table)
    merge = table.merge([{"k": 5}, {"k": 6}, {"k": 5}], on="target.k = source.k").when_matched_delete()
    with pytest.raises(InvalidInputError, match=r"1 row of the table .* \(k = 5\).*meets rows 1, 3 of the source"):
        merge.execute()
    assert names(table) == before
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") == ()


@pytest.mark.parametrize("options", [{}, {"bucket": "1", "bucket-key": "id"}, {"deletion-vectors.enabled": "true"}])
def test_an_update_that_looks_at_no_column_changes_all_rows(catalog: mg.Catalog, options: dict[str, str]) -> None:
    table = catalog.create_table("db.every", {"id": "INT", "v": "INT"}, options=options)
    table.write([{"id": 1, "v": 2}, {"id": 2, "v": 3}])
    assert table.update("true", {"v": "9"}).rows_updated == 2
    assert sorted(row["id"] for row in table.read(where="v = 9").to_pylist()) == [1, 2]


@pytest.mark.parametrize("marks", ["false", "true"])
def test_columns_that_choose_the_bucket_cannot_be_set(catalog: mg.Catalog, marks: str) -> None:
    options = {"bucket": "4", "bucket-key": "id", "deletion-vectors.enabled": marks}
    table = catalog.create_table("db.b", {"id": "INT", "v": "INT"}, options=options)
    table.write([{"id": i, "v": i} for i in range(20)])
    merge = table.merge([{"id": 100, "v": 3}], on="target.v = source.v")
    for call in (lambda: table.update("id < 9", {"id": "id + 100"}), lambda: merge.when_matched_update({"id": "0"})):
        with pytest.raises(mg.errors.InvalidInputError, match=r"column 'id' belongs to the bucket \(id\)"):
            call()
    merge = table.merge([{"id": 3, "v": -3}], on="target.id = source.id")
    assert merge.when_matched_update().execute().rows_updated == 1
    assert table.read(where="id = 3").to_pylist() == [{"id": 3, "v": -3}]
    assert table.check() == ()
    with pytest.raises(mg.errors.InvalidInputError, match="has the name of one that can be set"):
        table.merge([{"id": 3, "w": 1}], on="target.id = source.id").when_matched_update()
