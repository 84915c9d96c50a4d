"""Scans: pruning never loses a row, splits say what is read, counts come from metadata where that is exact."""

from __future__ import annotations

import itertools
import pickle
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import merganser as mg
from merganser.errors import FormatError, UnsupportedError
from merganser.lsm import section
from merganser.scan.read import read_split
from merganser.scan.rows import StoredRows
from merganser.scan.time_travel import epoch_ms
from tests.kit.builders import catalog_over, memory_with
from tests.kit.faulty import FaultyStorage

_names = itertools.count()


def _catalog(clock: Any = None) -> mg.Catalog:
    catalog = catalog_over(memory_with({}, f"scan-{next(_names)}"), clock=clock)
    catalog.create_database("db")
    return catalog


SCHEMA = {"p": "STRING", "k": "INT", "s": "STRING", "n": "BIGINT", "f": "DOUBLE", "d": "DECIMAL(10, 2)", "b": "BOOLEAN"}


def _row(rng: random.Random) -> dict[str, Any]:
    return {
        "p": rng.choice(["a", "b", ""]),
        "k": rng.randrange(30),
        "s": rng.choice([None, "", "abc", "x" * 20 + rng.choice("ab"), "\U0001f986"]),
        "n": rng.choice([None, rng.randrange(-100, 100)]),
        "f": rng.choice([None, 0.0, -0.0, 1.5, float("nan"), float("inf")]),
        "d": None,
        "b": rng.choice([None, True, False]),
    }


FILTERS = [
    "k = 7",
    "k > 20",
    "k IN (1, 2, 29)",
    "p = 'a'",
    "p <> 'a' AND k < 5",
    "p = 'a' OR k = 3",
    "n IS NULL",
    "n >= 50",
    "s LIKE 'x%'",
    "s = 'xxxxxxxxxxxxxxxxxxxxb'",
    "s > 'abc'",
    "f = 0",
    "f > 1",
    "NOT (f > 1)",
    "b",
    "b IS NOT TRUE",
    "k = 7 AND p = 'b' AND n < 0",
    "k BETWEEN 5 AND 9 AND s IS NOT NULL",
    "n % 2 = 0",
    "p = ''",
    "1 = 0",
    "1 = 1",
    "true AND n < 0",
]


def _fill(table: mg.Table, seed: int) -> None:
    rng = random.Random(seed)
    kinds = ["+I", "+I", "+U", "-D"] if table.primary_key else ["+I"]
    schema = table.read().schema
    for _ in range(4):
        rows = [_row(rng) for _ in range(12)]
        columns = [pa.array([row[f.name] for row in rows], f.type) for f in schema]
        table.write(pa.table(columns, names=schema.names), kinds=[rng.choice(kinds) for _ in rows])


def _plain(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("shape", ["keyed", "keyed in one bucket", "append", "append with buckets"])
def test_pruning_never_loses_a_row(seed: int, shape: str) -> None:
    options = {"target-file-row-num": "4", "manifest.merge-min-count": "3"}
    how: dict[str, Any] = {
        "keyed": {"primary_key": ["p", "k"], "partition_by": ["p"], "options": {"bucket": "3", **options}},
        "keyed in one bucket": {"primary_key": ["k", "p"], "options": {"bucket": "1", **options}},
        "append": {"partition_by": ["p"], "options": options},
        "append with buckets": {"options": {"bucket": "2", "bucket-key": "k", **options}},
    }[shape]
    table = _catalog().create_table("db.t", SCHEMA, **how)
    _fill(table, seed)
    whole = table.read().to_arrow()
    for where in FILTERS:
        expected = _plain(table.read(where=where).where.apply(whole))  # type: ignore[union-attr]
        scan = table.read(where=where)
        assert _plain(scan.to_arrow()) == expected, where
        assert scan.count() == len(expected), where
        assert _plain(pa.Table.from_batches(scan.to_batches(), scan.schema)) == expected, where
        only = table.read(columns=["s"], where=where).to_arrow()
        assert only.column_names == ["s"]
        assert only.num_rows == len(expected), where
        assert table.read(where=where, limit=2).to_arrow().num_rows == min(2, len(expected)), where


def _files_read(table: mg.Table, where: Any) -> int:
    return sum(len(split.files) for split in table.read(where=where).plan().splits)


@pytest.mark.parametrize(
    "where", ["true", "1 = 1", "'a' = 'a'", "null IS NULL", "coalesce(null, true)", pc.scalar(True)]
)
@pytest.mark.parametrize("shape", ["merged", "retracted", "append", "masked"])
def test_a_filter_without_columns_lets_all_rows_through_or_none(shape: str, where: Any) -> None:
    key = None if shape == "append" else ["k"]
    options = {"bucket": "1", "deletion-vectors.enabled": "true"} if shape == "masked" else {"bucket": "1"}
    if shape == "append":
        options["bucket-key"] = "k"
    table = _catalog().create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=key, options=options)
    table.write([{"k": 1, "v": 1}, {"k": 2, "v": 2}], kinds=["+I", "-D"] if shape == "retracted" else None)
    if shape in ("merged", "masked"):
        table.write([{"k": 1, "v": 3}])
    every = table.read().to_pylist()
    assert every
    assert table.read(where=where).to_pylist() == every
    assert table.read(where=where).count() == len(every)
    assert table.read(columns=["v"], where=where).to_pylist() == [{"v": row["v"]} for row in every]
    assert table.read(columns=[], where=where).to_arrow().num_rows == len(every)
    assert table.read(where=where, limit=1).to_pylist() == every[:1]
    assert table.read(where="1 = 0").count() == table.read(where="null = 1").count() == 0


def test_files_are_left_out_by_partition_bucket_key_and_statistics() -> None:
    catalog = _catalog()
    table = catalog.create_table(
        "db.t",
        {"p": "INT", "k": "INT", "v": "INT"},
        primary_key=["p", "k"],
        partition_by=["p"],
        options={"bucket": "4", "write-only": "true"},
    )
    table.write([{"p": p, "k": k, "v": k} for p in range(3) for k in range(100)])
    assert _files_read(table, None) == 12
    assert _files_read(table, "p = 1") == 4
    assert _files_read(table, "p = 1 AND k = 5") == 1
    assert _files_read(table, pc.field("k") == 5) == 3
    assert _files_read(table, "p = 9") == 0
    assert _files_read(table, "v > 1000") == 0
    append = catalog.create_table("db.a", {"n": "INT"}, options={"write-only": "true"})
    for n in range(5):
        append.write([{"n": n}])
    assert _files_read(append, "n >= 3") == 2
    assert "after keys and statistics" in append.read(where="n >= 3").explain()


def test_statistics_of_rows_that_others_shadow_do_not_hide_the_shadow() -> None:
    """The newest version of a key may fail a filter that an older one passes, and is still needed."""
    table = _catalog().create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options={"bucket": "1"})
    table.write([{"k": 1, "v": 10}, {"k": 2, "v": 10}])
    table.write([{"k": 1, "v": 99}])
    table.write([{"k": 2, "v": 0}], kinds=["-D"])
    assert table.read(where="v = 10").to_pylist() == []
    assert table.read(where="v < 50").count() == 0


def test_splits_are_raw_only_where_nothing_needs_a_merge() -> None:
    table = _catalog().create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options={"bucket": "1"})
    table.write([{"k": k, "v": 0} for k in range(10)])
    table.write([{"k": k, "v": 0} for k in range(20, 30)])
    assert [split.raw for split in table.read().plan().splits] == [True]
    table.write([{"k": 25, "v": 1}])
    plan = table.read().plan()
    assert sorted((split.raw, len(split.files)) for split in plan.splits) == [(False, 2), (True, 1)]
    table.write([{"k": 5, "v": 1}], kinds=["-D"])
    assert all(not split.raw for split in table.read().plan().splits)
    again = pickle.loads(pickle.dumps(table.read().plan()))
    rows = [
        row
        for split in again.splits
        for part in read_split(again.job, split, table.env.storage)
        for row in part.to_pylist()
    ]
    assert len(rows) == 19


def test_a_lone_file_of_retractions_shows_none_of_them() -> None:
    table = _catalog().create_table("db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": "1"})
    table.write([{"k": 1}, {"k": 2}], kinds=["-D", "+I"])
    assert table.read().to_pylist() == [{"k": 2}]
    assert table.read().count() == 1


def test_splits_are_packed_to_about_their_target_size() -> None:
    table = _catalog().create_table("db.t", {"n": "INT"}, options={"write-only": "true"})
    for n in range(10):
        table.write([{"n": n}])
    sizes = [file.size for split in table.read().plan().splits for file in split.files]
    packed = table.with_options({"source.split.target-size": str(3 * max(sizes))}).read().plan().splits
    assert [len(split.files) for split in packed] == [3, 3, 3, 1]


def _reads(catalog: mg.Catalog, call: Any) -> list[str]:
    faulty = FaultyStorage(catalog.env.storage)
    call(catalog_over(faulty).table("db.t"))
    return [call.path for call in faulty.calls if call.verb in ("open", "read") and "/bucket-" in call.path]


def test_counts_come_from_metadata_where_that_is_exact() -> None:
    catalog = _catalog()
    append = catalog.create_table("db.t", {"n": "INT"})
    append.write([{"n": n} for n in range(7)])
    assert _reads(catalog, lambda t: t.read().count()) == []
    assert append.read(limit=3).count() == 3
    assert append.read(where="n > 3").count() == 3
    assert append.read(columns=[]).count() == 7
    catalog.drop_table("db.t")
    keyed = catalog.create_table("db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": "1"})
    keyed.write([{"k": k} for k in range(7)], overwrite={})
    assert _reads(catalog, lambda t: t.read().count()) == []
    keyed.write([{"k": 3}])
    assert len(_reads(catalog, lambda t: t.read().count())) == 2
    assert keyed.read().count() == 7


def test_a_scan_reads_nothing_before_a_result_is_asked_for() -> None:
    catalog = _catalog()
    catalog.create_table("db.t", {"n": "INT"}).write([{"n": 1}])
    table = catalog.table("db.t")
    faulty = FaultyStorage(table.env.storage)
    table.env.storage = faulty
    scan = table.read(where="n = 1", columns=["n"])
    assert scan.schema == pa.schema([("n", pa.int32())])
    assert faulty.calls == ()
    assert scan.to_pylist() == [{"n": 1}]


def test_a_scan_without_a_snapshot_follows_the_table_and_one_with_a_snapshot_does_not() -> None:
    table = _catalog().create_table("db.t", {"n": "INT"})
    table.write([{"n": 1}])
    newest, pinned = table.read(), table.read(snapshot=1)
    table.write([{"n": 2}])
    assert (newest.count(), pinned.count()) == (2, 1)
    assert table.with_options({"scan.snapshot-id": "1"}).read().count() == 1


def test_an_empty_table_gives_its_columns() -> None:
    table = _catalog().create_table("db.t", {"n": "INT", "m": "MAP<STRING, INT>"})
    for scan in (table.read(), table.read(where="n = 1"), table.read(limit=0)):
        assert scan.to_arrow().schema == scan.schema
        assert (scan.count(), list(scan.to_batches()), scan.to_pylist()) == (0, [], [])
    assert "none: the table is empty" in table.read().explain()


@pytest.mark.parametrize("limit", [0, 1, 5, 12, 100])
def test_a_limit_gives_that_many_rows(limit: int) -> None:
    table = _catalog().create_table("db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": "2"})
    table.write([{"k": k} for k in range(12)])
    table.write([{"k": k} for k in range(0, 12, 2)])
    scan = table.read(limit=limit)
    assert scan.to_arrow().num_rows == scan.count() == min(limit, 12)
    assert sum(batch.num_rows for batch in scan.to_batches()) == min(limit, 12)


def test_windows_are_sized_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section, "WINDOW_BYTES", 1)
    table = _catalog().create_table("db.t", {"k": "INT", "v": "STRING"}, primary_key=["k"], options={"bucket": "1"})
    for _ in range(3):
        table.write([{"k": k, "v": "x" * 10} for k in range(300)])
    assert table.read().count() == 300


def test_a_data_file_that_is_not_what_its_manifest_says_is_refused() -> None:
    table = _catalog().create_table("db.t", {"n": "INT"})
    table.write([{"n": 1}])
    plan = table.read().plan()
    [split] = plan.splits
    [file] = split.files
    for wrong in (replace(file, row_count=2), replace(file, size=file.size + 1), replace(file, name="no-extension")):
        damaged = replace(split, sections=((wrong,),))
        with pytest.raises(FormatError, match=wrong.name):
            list(read_split(plan.job, damaged, table.env.storage))
    with pytest.raises(FormatError, match="schema 7"):
        list(read_split(plan.job, replace(split, sections=((replace(file, schema_id=7),),)), table.env.storage))


# as of


def test_a_time_is_exact_to_the_millisecond() -> None:
    start = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for ms in range(0, 1000, 7):
        assert epoch_ms(start + timedelta(milliseconds=ms)) == 1_769_860_800_000 + ms
    assert epoch_ms("2026-01-31T12:00:00.001") == 1_769_860_800_001
    assert epoch_ms("2026-01-31T13:00:00+01:00") == 1_769_860_800_000
    assert epoch_ms("1969-12-31T23:59:59.999Z") == -1


def test_a_snapshot_whose_time_is_the_one_asked_for_counts() -> None:
    times = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=n * 37 + 1) for n in range(9)]
    now = [times[0]]
    table = _catalog(lambda: now[0]).create_table("db.t", {"n": "INT"}, options={"write-only": "true"})
    for n, time in enumerate(times):
        now[0] = time
        table.write([{"n": n}])
    for n, time in enumerate(times):
        assert table.read(timestamp=time).count() == n + 1
        assert table.read(timestamp=(time + timedelta(milliseconds=1)).isoformat()).count() == n + 1
        if n:
            assert table.read(timestamp=time - timedelta(milliseconds=1)).count() == n
        found = table.snapshots()[n]
        assert table.read(timestamp=found.commit_time).snapshot == found
        assert table.with_options({"scan.timestamp-millis": str(found.time_millis)}).read().count() == n + 1


def test_dates_of_other_programs_that_python_does_not_have_are_named_and_stay_in_arrow() -> None:
    far = pa.table({"d": pa.array([2_932_897], pa.int32()).cast(pa.date32())})
    rows = StoredRows(lambda: far, "far")
    with pytest.raises(UnsupportedError, match=r"outside of the years 1 to 9999.* Use to_arrow\(\)"):
        rows.to_pylist()
    assert rows.to_arrow() is far
