"""The columns of a bucket: extended by what came, made anew for another history, and always those of its files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import merganser as mg
from merganser.meta.table_state import MetaReader
from merganser.scan import bucket_columns as module
from merganser.scan.bucket_columns import BucketColumns, bucket_columns
from merganser.storage.env import Env
from tests.kit.builders import catalog_over, memory_with


@pytest.fixture
def table() -> mg.Table:
    catalog = catalog_over(memory_with({}, "bucket-columns"))
    catalog.create_database("db")
    return catalog.create_table(
        "db.t",
        {"k": "INT", "s": "STRING"},
        primary_key=["k", "s"],
        options={"bucket": "1", "write-only": "true"},
    )


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many keys each call decoded."""
    sizes: list[int] = []
    real = module.deserialize_columns

    def counting(rows: Any, kinds: Any) -> Any:
        sizes.append(len(rows))
        return real(rows, kinds)

    monkeypatch.setattr(module, "deserialize_columns", counting)
    return sizes


def _columns(table: mg.Table, env: Env) -> BucketColumns:
    state = MetaReader(table.definition.paths, env, table.name).latest()
    [(bucket, files)] = state.live.buckets.items()
    found = bucket_columns(table.definition, env, bucket, files.entries)
    assert found.entries == files.entries
    return found


def _is_right(found: BucketColumns) -> bool:
    """Return whether the columns are those of the files."""
    return (
        found.files == tuple(entry.file for entry in found.entries)
        and found.sizes.tolist() == [file.size for file in found.files]
        and found.row_counts.tolist() == [file.row_count for file in found.files]
        and found.levels.tolist() == [file.level for file in found.files]
        and found.schemas_of(np.arange(len(found.files))) == {file.schema_id for file in found.files}
    )


def test_only_the_keys_of_new_files_are_decoded(table: mg.Table, decoded: list[int]) -> None:
    env = Env(table.env.storage)
    for number in range(5):
        table.write([{"k": number, "s": "a"}, {"k": number + 10, "s": "b"}])
    assert _is_right(_columns(table, env))
    table.write([{"k": 70, "s": "x"}])
    table.write([{"k": 71, "s": "y"}])
    found = _columns(table, env)
    assert decoded == [5, 5, 2, 2]
    assert _is_right(found)
    assert [column.to_pylist() for column in found.low] == [[0, 1, 2, 3, 4, 70, 71], ["a"] * 5 + ["x", "y"]]
    assert [column.to_pylist() for column in found.high] == [[10, 11, 12, 13, 14, 70, 71], ["b"] * 5 + ["x", "y"]]
    assert _columns(table, env) is found
    assert decoded == [5, 5, 2, 2]


def test_a_compaction_makes_them_anew(table: mg.Table, decoded: list[int]) -> None:
    env = Env(table.env.storage)
    for number in range(4):
        table.write([{"k": number, "s": "a"}])
    _columns(table, env)
    table.compact(full=True)
    table.write([{"k": 9, "s": "z"}])
    found = _columns(table, env)
    assert decoded == [4, 4, len(found.files), len(found.files)]
    assert _is_right(found)
    assert found.levels.tolist()[-1] == 0


def test_ids_used_again_after_a_rollback_show_the_new_files(table: mg.Table) -> None:
    env = Env(table.env.storage)
    for number in range(3):
        table.write([{"k": number, "s": "a"}])
    _columns(table, env)
    paths = table.definition.paths
    table.env.storage.delete([paths.snapshot(2), paths.snapshot(3)])
    table.env.storage.replace(paths.latest_hint, b"1")
    other = catalog_over(table.env.storage).table("db.t")
    other.write([{"k": 50, "s": "n"}])
    other.write([{"k": 60, "s": "n"}])
    found = _columns(table, env)
    assert _is_right(found)
    assert found.low[0].to_pylist() == [0, 50, 60]


def test_a_plan_after_one_commit_more_finds_its_rows(table: mg.Table) -> None:
    reader = catalog_over(table.env.storage).table("db.t")
    expected = set()
    for number in range(30):
        table.write([{"k": number % 7, "s": str(number % 3)}])
        expected.add((number % 7, str(number % 3)))
        if number % 10 == 9:
            table.compact(full=True)
        assert {(row["k"], row["s"]) for row in reader.read().to_pylist()} == expected
        assert reader.read(where=f"k = {number % 7}").count() == sum(1 for k, _ in expected if k == number % 7)
