"""Tables without a key: a queue keeps the order of its rows per bucket, in batch and stream, through every upkeep."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

import merganser as mg
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()


def _table(**options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"queues-{next(_names)}"))
    catalog.create_database("db")
    schema = {"p": "STRING", "k": "INT", "n": "INT"}
    return catalog.create_table("db.t", schema, (), ["p"], options=options)


def _by_key(rows: list[dict[str, Any]]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for row in rows:
        found.setdefault((row["p"], row["k"]), []).append(row["n"])
    return found


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_a_key_come_in_the_order_they_were_written(seed: int) -> None:
    rng = random.Random(seed)
    options = {"bucket": "3", "bucket-key": "k", "write-buffer-size": rng.choice(["1 b", "256 mb"])}
    table = _table(**options, **{"compaction.min.file-num": "3", "target-file-row-num": rng.choice(["4", "100000"])})
    stream, streamed = table.stream("latest", follow=False), []
    expected: list[dict[str, Any]] = []
    number = itertools.count()
    for _ in range(8):
        rows = [
            {"p": rng.choice("ab"), "k": rng.randrange(6), "n": next(number)} for _ in range(rng.choice([1, 5, 20]))
        ]
        table.write(rows)
        expected += rows
        match rng.randrange(5):
            case 0:
                table.compact(full=True)
            case 1:
                table.compact()
            case 2:
                table.rescale(rng.choice([1, 2, 4, 6]))
        for plan in stream:
            streamed += plan.to_pylist()
        assert _by_key(table.read().to_pylist()) == _by_key(expected)
        assert _by_key(streamed) == _by_key(expected)
    whole: list[dict[str, Any]] = []
    for plan in table.stream("latest-full", follow=False):
        whole += plan.to_pylist()
    assert _by_key(whole) == _by_key(expected)
    assert table.check() == ()


def test_a_bucket_is_read_in_the_order_of_its_rows_whatever_their_keys_are() -> None:
    table = _table(**{"bucket": "1", "bucket-key": "k", "compaction.min.file-num": "3"})
    for i in range(10):
        table.write([{"p": "a", "k": (7 * i + j) % 5, "n": 10 * i + j} for j in range(10)])
    assert [row["n"] for row in table.read().to_pylist()] == list(range(100))
    assert table.files().num_rows < 10
    table.compact(full=True)
    assert [row["n"] for row in table.read().to_pylist()] == list(range(100))


def test_partitions_are_planned_in_the_order_of_their_values_if_asked() -> None:
    table = _table(bucket="-1")
    for number, p in enumerate("cab"):
        table.write([{"p": p, "k": 1, "n": number}])
    sorted_plan = table.with_options({"scan.plan-sort-partition": "true"})
    assert [row["p"] for row in sorted_plan.read().to_pylist()] == ["a", "b", "c"]
    (plan,) = sorted_plan.stream("latest-full", follow=False)
    assert [row["p"] for row in plan.to_pylist()] == ["a", "b", "c"]


@pytest.mark.parametrize("options", [{"bucket": "-1"}, {"bucket": "2", "bucket-key": "k"}])
def test_a_writer_that_goes_on_puts_its_small_files_together(options: dict[str, str]) -> None:
    table = _table(**options, **{"compaction.min.file-num": "4"})
    with table.writer() as writer:
        for i in range(40):
            writer.write([{"p": "a", "k": i % 2, "n": i}])
            writer.commit()
    assert sorted(row["n"] for row in table.read().to_pylist()) == list(range(40))
    assert table.files().num_rows <= 12, "a file is joined with others as often as it doubles"
    assert any(one.commit_kind == "COMPACT" for one in table.snapshots())
    assert table.check() == ()
