"""Deletes of tables whose merge engine has no rule for them: sections of files are compacted without the rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg
from merganser.edit import change
from merganser.errors import InvalidInputError
from merganser.storage.protocol import no_lock

SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "bucket": "1", "write-only": "true"}
PARTIAL = {"merge-engine": "partial-update", "bucket": "1"}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    found.create_database("db")
    return found


def made(catalog: mg.Catalog, options: dict[str, str]) -> mg.Table:
    return catalog.create_table("db.t", {"k": "INT", "v": "INT", "w": "INT"}, primary_key=["k"], options=options)


def rows_of(keys: range | list[int], v: int | None = 1) -> list[dict[str, Any]]:
    return [{"k": k, "v": v, "w": k} for k in keys]


def values(table: mg.Table) -> dict[int, int]:
    return {row["k"]: row["v"] for row in table.read().to_pylist()}


def names(table: mg.Table) -> dict[str, int]:
    """Return the live files and their levels."""
    return {Path(row["file_path"]).name: row["level"] for row in table.files().to_pylist()}


def faults(table: mg.Table) -> list[Any]:
    return [found for found in table.check() if found.is_fault]


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[int]]:
    """Do something between the plan and the commit of the first round; return a list that counts the rounds."""

    def install(todo: Callable[[], object]) -> list[int]:
        rounds: list[int] = []
        removals = change.removals

        def planned(*arguments: Any) -> Any:
            found = removals(*arguments)
            rounds.append(1)
            if len(rounds) == 1:
                with monkeypatch.context() as inner:
                    inner.setattr(change, "removals", removals)
                    todo()
            return found

        monkeypatch.setattr(change, "removals", planned)
        return rounds

    return install


Between = Callable[[Callable[[], object]], list[int]]


def _without_locks() -> Any:
    return patch("merganser.storage.local.LocalStorage.try_lock", lambda *_: no_lock)


def test_only_files_that_overlap_one_with_a_matching_row_are_rewritten(catalog: mg.Catalog) -> None:
    table = made(catalog, SUMS)
    for keys in (range(10), range(20, 30), range(3, 6), range(40, 50), range(60, 70), range(61, 62)):
        table.write(rows_of(keys))
    before = names(table)
    found = table.delete("v > 1 AND k <> 4")  # the sum of two files
    assert found is not None
    assert (found.operation, found.commit_kind, found.rows_deleted) == ("DELETE", "OVERWRITE", 3)
    after = names(table)
    assert len(before.keys() & after.keys()) == 2
    assert [level for name, level in after.items() if name not in before] == [5, 5]
    left = [0, 1, 2, 4, *range(6, 10), *range(20, 30), *range(40, 50), 60, *range(62, 70)]
    assert values(table) == {k: 1 + (k == 4) for k in left}
    assert table.delete("w = 20") is not None  # its files now lie between others of the highest level
    left.remove(20)
    assert table.delete("v > 2") is None
    table.write(rows_of([3, 4]))
    table.with_options({"write-only": "false"}).compact(full=True)
    assert values(table) == {k: 3 if k == 4 else 1 for k in [*left, 3]}
    assert faults(table) == []


def test_a_file_whose_rows_all_go_leaves_none(catalog: mg.Catalog) -> None:
    table = made(catalog, PARTIAL)
    table.write(rows_of(range(10)))
    assert table.delete("w >= 0") is not None
    assert names(table) == {}
    assert values(table) == {}
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") == ()


def test_rows_that_come_meanwhile_and_match_make_it_begin_again(catalog: mg.Catalog, between: Between) -> None:
    table = made(catalog, SUMS)
    table.write(rows_of(range(10)))
    rounds = between(lambda: table.write(rows_of([2], 9)))
    with _without_locks():
        found = table.delete("v < 5")
    assert found is not None
    assert (len(rounds), found.rows_deleted) == (2, 9)
    assert values(table) == {2: 10}
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") == ()


def test_a_sum_of_another_commit_is_kept_if_the_filter_names_other_keys(catalog: mg.Catalog, between: Between) -> None:
    table = made(catalog, SUMS)
    table.write(rows_of(range(10)))
    rounds = between(lambda: table.write(rows_of([8], 9)))
    with _without_locks():
        table.delete("k < 3 AND v > 0")
    assert len(rounds) == 1
    assert values(table) == {k: 10 if k == 8 else 1 for k in range(3, 10)}
    assert faults(table) == []


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_two_deletes_and_a_compaction_come_one_after_the_other(
    catalog: mg.Catalog, between: Between, vectors: str
) -> None:
    table = made(catalog, {**PARTIAL, "write-only": "true", "deletion-vectors.enabled": vectors})
    table.write(rows_of(range(10)))
    table.write(rows_of(range(5, 15), 7))

    def meanwhile() -> None:
        table.with_options({"write-only": "false"}).compact(full=True)
        table.delete("w = 0 AND v = 1")

    rounds = between(meanwhile)
    with _without_locks():
        found = table.delete("v = 7 OR w < 2")
    assert found is not None
    assert (len(rounds), found.rows_deleted) == (2, 11)
    assert values(table) == dict.fromkeys(range(2, 5), 1)
    assert faults(table) == []


def test_rows_that_wait_for_a_compaction_are_shown_as_whole_commits(catalog: mg.Catalog) -> None:
    options = {**PARTIAL, "bucket": "4", "write-only": "true", "deletion-vectors.enabled": "true"}
    table = made(catalog, options)
    table.write(rows_of(range(40)))
    assert values(table) == {}
    assert table.delete("w = 100 AND v = 1") is None
    assert values(table) == {}
    assert table.delete("k = 7") is not None
    assert sorted(values(table)) == [k for k in range(40) if k != 7]
    assert faults(table) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("changelog-producer", "lookup"),
        ("changelog-producer", "full-compaction"),
        ("delete.force-produce-changelog", "true"),
    ],
)
def test_a_table_that_publishes_its_changes_refuses_to_rewrite_files(
    catalog: mg.Catalog, option: str, value: str
) -> None:
    table = made(catalog, {**PARTIAL, option: value})
    table.write(rows_of(range(3)))
    with pytest.raises(InvalidInputError, match="publish no change") as caught:
        table.delete("v = 1")
    assert "'partial-update.remove-record-on-delete'" in str(caught.value)
    assert len(values(table)) == 3


def test_a_merge_deletes_no_row_by_rewriting_files(catalog: mg.Catalog) -> None:
    table = made(catalog, PARTIAL)
    table.write(rows_of(range(3)))
    merge = table.merge(rows_of([1]), on="target.k = source.k").when_matched_delete()
    with pytest.raises(InvalidInputError, match=r"has no rule .* call `delete`"):
        merge.execute()
    assert len(values(table)) == 3
