"""Sorted compaction of tables without a key: the same rows, in an order by which filters leave files out."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import InvalidInputError, StorageError
from merganser.lsm import clustering
from merganser.lsm.clustering import Order, interleaved, ordered, turned
from merganser.merge.keys import sorted_positions
from merganser.storage.env import Env
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
ROWS = 60_000


def _catalog() -> mg.Catalog:
    catalog = catalog_over(memory_with({}, f"clustering-{next(_names)}"))
    catalog.create_database("db")
    return catalog


def _events(**how: Any) -> mg.Table:
    options = {"bucket": "-1", "target-file-size": "20 kb", **how.pop("options", {})}
    schema = how.pop("schema", {"a": "BIGINT", "b": "INT", "s": "STRING"})
    return _catalog().create_table("db.t", schema, options=options, **how)


def _random_rows(seed: int = 7, rows: int = ROWS) -> pa.Table:
    chance = np.random.default_rng(seed)
    return pa.table(
        {
            "a": pa.array(chance.integers(0, 10**9, rows)),
            "b": pa.array(chance.integers(0, 10**6, rows), pa.int32()),
            "s": pa.array(chance.integers(0, 10**5, rows)).cast(pa.string()),
        }
    )


def _multiset(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True), key=repr)


def _files_read(table: mg.Table, where: str) -> int:
    return sum(len(split.files) for split in table.read(where=where).plan().splits)


@pytest.mark.parametrize("curve", ["order", "zorder", "hilbert"])
@pytest.mark.parametrize("buffer", ["256 mb", "300 kb"])
def test_sorting_changes_no_row_and_is_one_compaction(curve: str, buffer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "ROW_GROUP_ROWS", 1000)
    table = _events(options={"write-buffer-size": buffer})
    for seed in range(3):
        table.write(_random_rows(seed, 8_000))
    before = _multiset(table.read().to_arrow())
    snapshot = table.compact(order_by=["a", "b"], curve=curve)
    assert snapshot is not None
    assert (snapshot.id, snapshot.commit_kind) == (4, "COMPACT")
    assert _multiset(table.read().to_arrow()) == before
    assert table.check() == ()


def test_rows_lie_in_order_within_files_and_from_file_to_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "ROW_GROUP_ROWS", 1000)
    table = _events(options={"write-buffer-size": "300 kb", "target-file-row-num": "1000"})
    table.write(_random_rows())
    table.compact(order_by=["b", "a"])
    assert len(table.files()) == ROWS // 1000
    rows = table.read().to_arrow()  # splits are read side by side, files of one in turn
    found = list(zip(rows["b"].to_pylist(), rows["a"].to_pylist(), strict=True))
    stretches = [found[at : at + 1000] for at in range(0, ROWS, 1000)]
    assert all(stretch == sorted(stretch) for stretch in stretches)
    assert sorted(itertools.chain(*sorted(stretches))) == list(itertools.chain(*sorted(stretches)))


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_a_filter_on_either_column_of_a_curve_reads_few_files(curve: str) -> None:
    table = _events(options={"target-file-row-num": "1000"})
    table.write(_random_rows())
    assert _files_read(table, "b < 10000") == ROWS // 1000
    table.compact(order_by=["a", "b"], curve=curve)
    assert _files_read(table, "a < 10000000") <= 15
    assert _files_read(table, "b < 10000") <= 15
    assert "60 files in the snapshot" in " ".join(table.read(where="b < 10000").explain().split())


def test_plain_order_helps_its_first_column_most() -> None:
    table = _events(options={"target-file-row-num": "1000"})
    table.write(_random_rows())
    table.compact(order_by=["a", "b"])
    assert _files_read(table, "a < 10000000") == 1
    assert _files_read(table, "b < 10000") > 30


def test_hilbert_visits_neighbours_and_every_place_once() -> None:
    for count, bits in ((2, 4), (3, 3), (5, 2)):
        axes = [a.ravel().astype(np.int64) for a in np.meshgrid(*[np.arange(1 << bits)] * count)]
        place = interleaved(turned(axes, bits), bits)
        assert sorted(place.tolist()) == list(range(1 << (bits * count)))
        steps = sum(np.abs(np.diff(axis[np.argsort(place)])) for axis in axes)
        assert set(steps.tolist()) == {1}


def test_interleaving_takes_the_bits_of_columns_in_turn() -> None:
    [place] = interleaved([np.array([0b10]), np.array([0b01]), np.array([0b11])], 2).tolist()
    assert place == 0b101_011


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "number": (pa.int64(), [None, 3, -1, 3, 2**62, None, 0]),
    "float": (pa.float64(), [math.nan, None, -0.0, 0.0, math.inf, -math.inf, 1.5]),
    "text": (pa.string(), ["b", None, "", "a", "ä", "ab", "b"]),
    "flag": (pa.bool_(), [True, None, False, True, False, None, True]),
    "same": (pa.int32(), [7] * 7),
    "nothing": (pa.int32(), [None] * 7),
}


def _source(rows: pa.Table, step: int) -> clustering.Source:
    def tables(names: Sequence[str] | None) -> Generator[pa.Table, None, None]:
        for at in range(0, rows.num_rows, step):
            yield rows.slice(at, step) if names is None else rows.slice(at, step).select(list(names))

    return tables


@pytest.mark.parametrize("budget_bytes", [1, 2_000, 10**9])
@pytest.mark.parametrize("curve", clustering.CURVES)
@pytest.mark.parametrize("by", [["text"], ["float", "number"], ["flag", "text", "same"], ["nothing", "number"]])
def test_any_budget_gives_all_rows_and_plain_order_the_one_of_keys(
    by: list[str], curve: str, budget_bytes: int
) -> None:
    draw = random.Random(3)
    rows = pa.table({n: pa.array([draw.choice(v) for _ in range(300)], kind) for n, (kind, v) in VALUES.items()})
    rows = rows.append_column("row", pa.array(range(300)))
    order = Order(tuple(by), curve)
    found = list(
        ordered(_source(rows, 40), order, Env(memory_with({}, "unused")), size_bytes=9000, budget_bytes=budget_bytes)
    )
    merged = pa.concat_tables(found)
    assert sorted(merged["row"].to_pylist()) == list(range(300))
    if curve == "order":
        right = sorted_positions([rows[name] for name in by])[0].tolist()
        assert merged["row"].to_pylist() == right


@pytest.mark.parametrize("curve", clustering.CURVES)
@pytest.mark.parametrize("tables", [0, 2])
def test_no_rows_are_sorted_into_none(curve: str, tables: int) -> None:
    rows = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.int64())})

    def source(names: Sequence[str] | None) -> Generator[pa.Table, None, None]:
        yield from [rows if names is None else rows.select(list(names))] * tables

    env = Env(memory_with({}, "unused"))
    assert list(ordered(source, Order(("a", "b"), curve), env, size_bytes=1, budget_bytes=1)) == []


def test_rows_put_aside_leave_nothing_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = _random_rows(rows=5_000)
    tables = ordered(
        _source(rows, 500), Order(("a",)), Env(memory_with({}, "unused")), size_bytes=10**6, budget_bytes=20_000
    )
    next(tables)
    assert list(tmp_path.iterdir())
    tables.close()  # type: ignore[attr-defined]
    assert not list(tmp_path.iterdir())


def test_a_local_disk_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    table = _events(options={"write-buffer-size": "10 kb"})
    table.write(_random_rows(rows=5_000))
    with pytest.raises(StorageError, match=r"do not fit into memory.*TMPDIR"):
        table.compact(order_by=["a"])
    assert table.latest_snapshot().id == 1  # type: ignore[union-attr]
    assert table.read().count() == 5_000


def test_only_the_partitions_asked_for_are_sorted() -> None:
    table = _events(schema={"p": "STRING", "a": "INT"}, partition_by=["p"])
    table.write([{"p": p, "a": a} for p in "xyz" for a in (3, 1, 2)])

    def order(partition: str) -> list[int]:
        found: list[int] = table.read(columns=["a"], where=f"p = '{partition}'").to_arrow()["a"].to_pylist()
        return found

    table.compact(where="p > 'y'", order_by=["a"])
    assert [order(p) for p in "xyz"] == [[3, 1, 2], [3, 1, 2], [1, 2, 3]]
    table.compact(partitions=[{"p": "x"}], order_by=["a"])
    assert [order(p) for p in "xyz"] == [[1, 2, 3], [3, 1, 2], [1, 2, 3]]
    assert table.compact(where="p = 'none'", order_by=["a"]) is None


def test_where_chooses_partitions_of_a_table_with_a_key_too() -> None:
    table = _catalog().create_table(
        "db.t", {"p": "INT", "k": "INT"}, primary_key=["p", "k"], partition_by=["p"], options={"bucket": "1"}
    )
    for _ in range(2):
        table.write([{"p": p, "k": 1} for p in range(3)])
    table.compact(full=True, where="p <> 1")
    levels = {row["partition"]: row["level"] for row in table.files().to_pylist()}
    assert levels == {"{0}": 5, "{1}": 0, "{2}": 5}


@pytest.mark.parametrize(("where", "files"), [("1 = 1", 1), ("1 = 2", 2)])
def test_where_may_name_no_column_and_chooses_all_of_a_table_without_partitions_or_nothing(
    where: str, files: int
) -> None:
    table = _events()
    for _ in range(2):
        table.write(_random_rows(rows=10))
    table.compact(full=True, where=where)
    assert table.files().num_rows == files


def test_rows_added_meanwhile_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _events()
    table.write(_random_rows(rows=100))
    real = clustering.ordered

    def with_a_write_between(*args: Any, **how: Any) -> Iterator[pa.Table]:
        table.write([{"a": -1, "b": -1, "s": "late"}])
        yield from real(*args, **how)

    monkeypatch.setattr("merganser.lsm.compact.ordered", with_a_write_between)
    table.compact(order_by=["a"])
    assert table.read(where="s = 'late'").count() == 1
    assert table.read().count() == 101


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "curve": ({"order_by": ["a"], "curve": "z-order"}, r"no curve 'z-order'.*zorder"),
    "no columns": ({"curve": "hilbert"}, r"order_by names none"),
    "text": ({"order_by": "a"}, r"order_by is 'a'. Give a list"),
    "none": ({"order_by": []}, r"order_by is \[\]"),
    "unknown": ({"order_by": ["a", "bb"]}, r"names 'bb', which is no column. Choose from 'a', 'b'"),
    "twice": ({"order_by": ["a", "a"]}, r"names 'a' twice"),
    "no name": ({"order_by": [["a"]]}, r"names '\['a'\]', which is no column"),
    "nested": ({"order_by": ["r"]}, r"names 'r', a ARRAY<INT>"),
    "where": ({"where": "a > 1"}, r"where uses 'a', which is not a partition column"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_sorted_is_refused_before_anything_changes(case: str) -> None:
    how, message = REFUSED[case]
    table = _events(schema={"a": "INT", "b": "INT", "r": "ARRAY<INT>"})
    table.write([{"a": 1, "b": 1, "r": [1]}])
    with pytest.raises(InvalidInputError, match=rf"^cannot compact 'db\.t': .*{message}"):
        table.compact(**how)
    assert table.latest_snapshot().id == 1  # type: ignore[union-attr]


def test_tables_whose_rows_have_an_order_are_not_sorted_anew() -> None:
    keyed = _catalog().create_table("db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": "1"})
    with pytest.raises(InvalidInputError, match=r"tables without a key\. Files of this one are sorted by k"):
        keyed.compact(order_by=["k"])
    queue = _catalog().create_table("db.t", {"k": "INT"}, options={"bucket": "2", "bucket-key": "k"})
    with pytest.raises(InvalidInputError, match="'bucket' = '2', and keeps the rows of a bucket"):
        queue.compact(order_by=["k"])
