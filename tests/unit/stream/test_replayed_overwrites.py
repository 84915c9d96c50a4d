"""Overwrites, truncates and dropped partitions of tables with a changelog: readers get what they changed, exactly."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import ExpiredError, InvalidInputError, UntrackedError
from merganser.meta.table_state import MetaReader
from merganser.scan.forms import columns_of
from merganser.scan.read import read_split
from merganser.scan.source import published_of
from merganser.scan.split import What
from merganser.stream.batches import Limits, Position, TableBatches, position_of

PRODUCERS = ["input", "lookup", "full-compaction", "per-record"]
FIRST = {"scan.snapshot-id": "1"}
_KINDS = {"insert": "+I", "update_before": "-U", "update_after": "+U", "delete": "-D"}
Row = dict[str, Any]


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    return catalog


def _table(catalog: mg.Catalog, producer: str, **options: str) -> mg.Table:
    given = {"bucket": "2", "changelog-producer": producer} | options
    return catalog.create_table(
        "db.t", {"p": "STRING", "k": "INT", "v": "INT"}, primary_key=["p", "k"], partition_by=["p"], options=given
    )


def _write(table: mg.Table, p: str, *pairs: tuple[int, int], **more: Any) -> None:
    table.write([{"p": p, "k": k, "v": v} for k, v in pairs], **more)


def _shown(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)


class _Copy:
    """A copy of a table that applies its changes: each row that goes is there, and none that comes."""

    def __init__(self) -> None:
        self.rows: dict[Any, Row] = {}

    def take(self, rows: Iterable[Row], kind: str = "_row_kind", *, strict: bool = True) -> None:
        for each in rows:
            row = {name: each[name] for name in ("p", "k", "v")}
            sign = _KINDS.get(each[kind], each[kind])
            if sign in ("-U", "-D"):
                gone = self.rows.pop(row["k"], None)
                assert not strict or gone == row
            else:
                assert not strict or row["k"] not in self.rows
                self.rows[row["k"]] = row

    def shown(self) -> list[Row]:
        return sorted(self.rows.values(), key=lambda row: row["k"])


class _Batches:
    """Follows a table by batches of random sizes, and forgets all but the position between them."""

    def __init__(self, table: mg.Table, rng: random.Random) -> None:
        self._table = table
        self._rng = rng
        self._at: Position | None = None

    def news(self) -> list[Row]:
        found: list[Row] = []
        while True:
            limits = Limits(files=self._rng.choice([1, 2, 5, None]))
            given = self._table.with_options({"scan.mode": "from-snapshot", **FIRST})
            fields = columns_of(What.CHANGED, given.definition)
            batches = TableBatches(
                given.definition, given.env, what=What.CHANGED, columns=fields, where=None, limits=limits
            )
            start = batches.start() if self._at is None else self._at
            end = batches.advance(start)
            if end == start:
                return found
            again = position_of(json.loads(json.dumps(end.to_json())), "t")
            assert again is not None
            turns = batches.turns(self._at, again)
            found += [row for turn in turns for part in turn for rows in part.read(given.env.storage) for row in rows.to_pylist()]  # fmt: skip  # noqa: E501
            self._at = again


def _of_tasks(table: mg.Table, rng: random.Random) -> list[Row]:
    """Return all changes as tasks read them that run in any order."""
    plan = table.changes(1).plan()
    groups = list(plan.groups or [(split,) for split in plan.splits])
    rng.shuffle(groups)
    splits = [split for group in groups for split in group]
    return [
        row for split in splits for rows in read_split(plan.job, split, table.env.storage) for row in rows.to_pylist()
    ]


_SHAPES: dict[str, dict[str, str]] = {
    "fixed": {},
    "fixed, few levels": {"bucket": "1", "num-levels": "2", "num-sorted-run.compaction-trigger": "1"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "3"},
    "moving": {"bucket": "-1", "dynamic-bucket.target-row-num": "3"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "compacted apart": {"write-only": "true"},
    "not lifted": {"overwrite-upgrade": "false", "write-only": "true", "write-buffer-size": "1 b"},
    "small files": {"target-file-row-num": "2", "source.split.target-size": "1 b"},
}


@pytest.mark.campaign(1 / 28)
@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update", "aggregation"])
def test_replayed_changes_make_every_published_state(
    engine: str, producer: str, shape: str, catalog: mg.Catalog
) -> None:
    rng = random.Random(f"{engine} {producer} {shape}")
    if shape == "vectors" and producer == "full-compaction":
        producer = "lookup"
    options = {"bucket": "2", "changelog-producer": producer, "merge-engine": engine, **_SHAPES[shape]}
    if engine == "aggregation":
        options["fields.v.aggregate-function"] = "sum"
    moves = shape == "moving"
    table = catalog.create_table(
        "db.t",
        {"p": "STRING", "k": "INT", "v": "INT"},
        primary_key=["k"] if moves else ["p", "k"],
        partition_by=["p"],
        options=options,
    )
    strict = producer != "input"
    ways = ("changes", "stream", "batches", "audit_log", "changelog")
    copies = {way: _Copy() for way in ways}
    stream = table.stream("from-snapshot", follow=False, **FIRST)
    batches = _Batches(table, rng)
    seen = 0
    for step in range(14):
        keys = rng.sample(range(12), rng.choice([0, 3, 8]))
        rows = [{"p": rng.choice("abc") if moves else "abc"[k % 3], "k": k, "v": rng.randrange(4)} for k in keys]
        match rng.choice(["write", "write", "all", "static", "dynamic", "truncate", "drop", "compact", "rescale"]):
            case "all":
                wide = {"bucket": str(rng.choice([1, 2, 3]))} if shape in ("fixed", "small files") else {}
                table.with_options(wide).write(rows, overwrite={})
            case "static" if not moves:
                table.write([row for row in rows if row["p"] == "a"], overwrite={"p": "a"})
            case "dynamic" if not moves:
                table.write(rows, overwrite="dynamic")
            case "truncate" if step % 3 == 0:
                table.truncate()
            case "drop":
                table.drop_partitions([{"p": rng.choice("abc")}])
            case "compact":
                table.compact(full=rng.random() < 0.6)
            case "rescale" if shape in ("fixed", "small files"):
                table.rescale(rng.choice([1, 2, 3]))
            case _:
                try:
                    table.write(rows)
                except InvalidInputError:  # the number of buckets is another one
                    table.rescale(int(table.options["bucket"]))
        latest = table.latest_snapshot()
        if latest is None or latest.id == seen:
            continue
        published = next(table.stream("from-snapshot-full", follow=False, **{"scan.snapshot-id": str(latest.id)}), None)
        expected = [] if published is None else published.drop_columns(["_row_kind"]).to_pylist()
        expected.sort(key=lambda row: row["k"])
        copies["changes"].take(table.changes(seen + 1).to_pylist(), strict=strict)
        copies["stream"].take([row for plan in stream for row in plan.to_pylist()], strict=strict)
        copies["batches"].take(batches.news(), strict=strict)
        ranged = table.with_options({"incremental-between": f"{seen},{latest.id}"})
        copies["audit_log"].take(ranged.system("audit_log").to_pylist(), "rowkind", strict=strict)
        logged = ranged.system("changelog").to_pylist()
        copies["changelog"].take(logged, "_change_type", strict=strict)
        if step % 4 == 3:
            copies["tasks"] = _Copy()
            copies["tasks"].take(_of_tasks(table, rng), strict=strict)
        else:
            copies.pop("tasks", None)
        whole = strict or engine == "deduplicate"
        for way, copy in copies.items():
            if whole:
                assert copy.shown() == expected, way
            else:  # rows as they were written, which are still to be merged
                assert copy.rows.keys() == {row["k"] for row in expected}, way
        seen = latest.id
    assert table.check() == ()


def _overwritten(catalog: mg.Catalog, producer: str = "input", **options: str) -> mg.Table:
    """Return a table whose third snapshot, or one after it, replaces partition a."""
    table = _table(catalog, producer, **options)
    _write(table, "a", (1, 10), (2, 20))
    _write(table, "b", (3, 30))
    _write(table, "a", (2, 25), (4, 40), overwrite={"p": "a"})
    return table


_DIFF = [("+I", "a", 4, 40), ("+U", "a", 2, 25), ("-D", "a", 1, 10), ("-U", "a", 2, 20)]


@pytest.mark.parametrize("producer", PRODUCERS)
def test_an_overwrite_comes_as_what_differs(catalog: mg.Catalog, producer: str) -> None:
    table = _overwritten(catalog, producer)
    number = next(s.id for s in table.snapshots() if s.commit_kind == "OVERWRITE")
    assert _shown(table.changes(number).to_pylist()) == _DIFF
    assert _shown(table.with_options({"incremental-between": f"{number - 1},{number}"}).read().to_pylist()) == [
        ("a", 2, 25),
        ("a", 4, 40),
    ]
    assert _shown(table.changes(number, columns=["v"], where="k = 2 AND p = 'a'").to_pylist()) == [
        ("+U", 25),
        ("-U", 20),
    ]
    assert table.changes(number, where="p = 'b'").plan().splits == ()
    assert table.changes(number, mode="delta").count() == 0


def test_only_what_was_replaced_is_read(catalog: mg.Catalog) -> None:
    table = _table(catalog, "input", bucket="1")
    table.write([{"p": p, "k": k, "v": 0} for p in "abc" for k in range(50)])
    table.write([{"p": "a", "k": 1, "v": 1}], overwrite="dynamic")
    assert {file.row_count for split in table.changes(2).plan().splits for file in split.files} == {50, 1}


@pytest.mark.parametrize("form", ["paimon", "fluss"])
def test_an_overwrite_has_offsets_and_pairs_of_rows(catalog: mg.Catalog, form: str) -> None:
    table = _overwritten(catalog).with_options({"incremental-between": "2,3", "binlog.columns": form})
    rows = table.system("binlog").to_pylist()
    if form == "paimon":
        assert _shown({**row, "p": row["p"][0]} for row in rows) == [
            ("+I", "a", [4], [40]),
            ("+U", "a", [2, 2], [20, 25]),
            ("-D", "a", [1], [10]),
        ]
        return
    assert sorted(row["_change_type"] for row in rows) == ["delete", "insert", "update"]
    assert {row["_log_offset"] >> 32 for row in rows} == {3}
    log = table.system("changelog", where="_log_offset >= 12884901888 AND k < 3").to_pylist()
    assert sorted((row["_change_type"], row["k"]) for row in log) == [
        ("delete", 1),
        ("update_after", 2),
        ("update_before", 2),
    ]
    offsets = [row["_log_offset"] for row in log if row["k"] == 2]
    assert offsets[1] == offsets[0] + 1
    assert {row["_commit_timestamp"] for row in log} == {row["_commit_timestamp"] for row in rows}


@pytest.mark.parametrize("way", ["option of the table", "option of the reader", "without tracking", "expired"])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_what_readers_do_not_get_of_an_overwrite_is_a_gap(catalog: mg.Catalog, producer: str, way: str) -> None:
    table = _table(catalog, producer, bucket="1")
    _write(table, "a", (1, 10))
    _write(table, "a", (1, 11), (2, 20))
    _write(table, "a", (2, 25), overwrite={"p": "a"}, changes=way != "without tracking")
    number = table.snapshots()[-1].id
    _write(table, "b", (3, 30))
    reason = "'streaming-read-overwrite' is 'false'"
    start = 1
    if way == "option of the table":
        table = table.alter([mg.changes.set_option("streaming-read-overwrite", "false")])
    elif way == "option of the reader":
        table = table.with_options({"streaming-read-overwrite": "false"})
    elif way == "without tracking":
        reason = "change tracking was off"
    else:
        kept = table.snapshots()[-1].id - number + 1
        table = table.with_options({"changelog.num-retained.max": "99", "changelog.num-retained.min": "99"})
        table.expire(retain_max=kept, retain_min=kept)
        reason = f"snapshot {number - 1}, which has the rows before it, has expired"
    with pytest.raises(UntrackedError, match=rf"snapshot {number} changed rows of partition p=a .*{reason}"):
        table.changes(start).to_arrow()
    other = {"where": "p = 'b'"}  # a filter that leaves out the partition
    assert [row["v"] for row in table.changes(start, **other).to_pylist()] == [30]
    between = {"incremental-between": f"{start - 1},{table.snapshots()[-1].id}"}
    if way != "expired":
        assert [row["v"] for row in table.with_options(between).read(**other).to_pylist()] == [30]
    skipped = table.changes(start, gaps="skip")
    assert {row["v"] for row in skipped.to_pylist()} == {10, 11, 20, 30}
    [gap] = skipped.gaps()
    assert (gap.snapshot, gap.partitions) == (number, ({"p": "a"},))
    assert table.changes(start, gaps="skip", **other).gaps() == ()
    assert _shown(gap.read().to_pylist()) == [("+I", "a", 2, 25)]
    marked = list(table.stream("from-snapshot", follow=False, gaps="mark", **FIRST))
    assert [each.snapshot for each in marked if isinstance(each, mg.Gap)] == [number]
    stream = table.stream("from-snapshot", follow=False, where="p = 'b'", **FIRST)
    assert [row["k"] for plan in stream for row in plan.to_pylist()] == [3]
    batches = _Batches(table, random.Random(0))
    with pytest.raises(UntrackedError, match=reason):
        batches.news()
    batches = _Batches(table.with_options({"change-tracking.gaps": "skip"}), random.Random(0))
    assert {row["v"] for row in batches.news()} == {10, 11, 20, 30}


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("way", ["overwrite", "dynamic", "truncate", "drop_partitions", "first"])
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("bucket", ["1", "-1"])
def test_an_overwrite_of_which_the_changelog_alone_is_kept_is_a_gap(
    catalog: mg.Catalog, producer: str, way: str, bucket: str
) -> None:
    table = _table(catalog, producer, bucket=bucket, **{"changelog.num-retained.max": "99"})
    if way != "first":
        _write(table, "a", (1, 10))
        _write(table, "a", (1, 11), (2, 20))
    match way:
        case "overwrite" | "first":
            _write(table, "a", (2, 25), overwrite={})
        case "dynamic":
            _write(table, "a", (2, 25), overwrite="dynamic")
        case "truncate":
            table.truncate()
        case _:
            table.drop_partitions([{"p": "a"}])
    number = max(one.id for one in table.snapshots() if one.commit_kind == "OVERWRITE")
    _write(table, "b", (3, 30))
    table = table.with_options({"changelog.num-retained.min": "99"})
    table.expire(retain_max=1, retain_min=1)
    assert table.snapshots()[0].id > number
    before = {row["v"] for row in table.changes(1, number - 1).to_pylist()} if number > 1 else set()
    reason = f"snapshot {number} changed rows and .*snapshot {max(1, number - 1)}, which has the rows.*Begin again with"
    for made in (table, table.with_options({"streaming-read-overwrite": "false"})):
        with pytest.raises(UntrackedError, match=reason if made is table else "'false'"):
            made.changes(1).to_arrow()
        skipped = made.changes(1, gaps="skip")
        assert {row["v"] for row in skipped.to_pylist()} >= before | {30}
        [gap] = skipped.gaps()
        assert (gap.snapshot, gap.partitions) == (number, ())
        with pytest.raises(ExpiredError):
            gap.read()
    marked = list(table.stream("from-snapshot", follow=False, gaps="mark", **FIRST))
    assert [each.snapshot for each in marked if isinstance(each, mg.Gap)] == [number]
    with pytest.raises(UntrackedError, match=reason):
        list(table.stream("from-snapshot", follow=False, **FIRST))
    with pytest.raises(UntrackedError, match=reason):
        _Batches(table, random.Random(0)).news()
    batches = _Batches(table.with_options({"change-tracking.gaps": "skip"}), random.Random(0))
    assert {row["v"] for row in batches.news()} >= before | {30}
    with pytest.raises(UntrackedError, match=reason):
        table.with_options({"incremental-between": f"0,{table.snapshots()[-1].id}"}).system("audit_log").to_arrow()


def test_a_consumer_keeps_the_rows_before_an_overwrite(catalog: mg.Catalog) -> None:
    table = _table(catalog, "input")
    _write(table, "a", (1, 10))
    list(table.stream(follow=False, consumer="c"))
    _write(table, "a", (2, 20), overwrite={})
    _write(table, "a", (3, 30))
    table.expire(retain_max=1, retain_min=1)
    assert [snapshot.id for snapshot in table.snapshots()] == [1, 2, 3]
    rows = [row for plan in table.stream(follow=False, consumer="c") for row in plan.to_pylist()]
    assert _shown(rows) == [("+I", "a", 2, 20), ("+I", "a", 3, 30), ("-D", "a", 1, 10)]
    table.expire(retain_max=1, retain_min=1)
    assert [snapshot.id for snapshot in table.snapshots()] == [3]


def test_a_stream_begins_behind_an_overwrite_whose_rows_before_have_expired(catalog: mg.Catalog) -> None:
    table = _table(catalog, "input")
    _write(table, "a", (1, 10))
    _write(table, "a", (2, 20), overwrite={})
    _write(table, "a", (3, 30))
    table.expire(retain_max=2, retain_min=2)
    with pytest.raises(UntrackedError):
        table.changes(2).to_arrow()
    plans = list(table.stream("from-snapshot", follow=False, **FIRST))
    assert [row["k"] for plan in plans for row in plan.to_pylist()] == [3]
    assert [row["k"] for row in table.system("changelog").to_pylist()] == [3]


def test_an_overwrite_that_expires_between_two_batches_is_no_silence(catalog: mg.Catalog) -> None:
    table = _table(catalog, "input", bucket="1", **{"target-file-row-num": "1"})
    _write(table, "a", (1, 10), (2, 20))
    table.write([{"p": p, "k": 3, "v": 30} for p in "ab"], overwrite={})
    given = table.with_options({"scan.mode": "from-snapshot", **FIRST})

    def batches(**options: str) -> TableBatches:
        chosen = given.with_options(options)
        fields = columns_of(What.CHANGED, chosen.definition)
        return TableBatches(
            chosen.definition, chosen.env, what=What.CHANGED, columns=fields, where=None, limits=Limits(files=1)
        )

    at = batches().start()
    while at.next < 2 or not at.files:
        at = batches().advance(at)
    _write(table, "a", (5, 5))
    table.expire(retain_max=2, retain_min=2)
    with pytest.raises(UntrackedError):
        batches().advance(at)
    with pytest.raises(ExpiredError):
        batches(**{"change-tracking.gaps": "skip"}).turns(None, at)


def test_rows_without_kinds_are_those_that_came(catalog: mg.Catalog) -> None:
    table = _overwritten(catalog)
    given = table.with_options({"scan.mode": "from-snapshot", "scan.snapshot-id": "3"})
    fields = columns_of(What.MERGED, given.definition)
    batches = TableBatches(given.definition, given.env, what=What.MERGED, columns=fields, where=None)
    turns = batches.turns(None, batches.advance(batches.start()))
    rows = [row for turn in turns for part in turn for rows in part.read(given.env.storage) for row in rows.to_pylist()]
    assert _shown(rows) == [("a", 2, 25), ("a", 4, 40)]


def test_with_full_compactions_the_rows_of_the_highest_level_are_published(catalog: mg.Catalog) -> None:
    """Other engines have levels between."""
    table = _overwritten(catalog, "full-compaction")
    state = MetaReader(table.definition.paths, table.env, "t").latest()
    file = next(iter(state.live)).file
    low, middle, high = (replace(file, level=level) for level in (0, 3, 5))
    assert published_of(table.definition, [low, middle, high]) == [high]
    assert published_of(table.definition, [low, middle]) == [middle]
    assert published_of(table.definition, [low]) == []


def test_a_counting_table_gives_what_an_overwrite_changed(catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "db.t", {"v": "INT"}, options={"bucket": "1", "write-mode": "change-log", "changelog-producer": "input"}
    )
    table.write([{"v": 1}, {"v": 1}, {"v": 2}])
    table.write([{"v": 1}, {"v": 3}], overwrite={})
    assert _shown(table.changes(2).to_pylist()) == [("+I", 3), ("-D", 1), ("-D", 2)]


def test_a_primary_key_that_is_given_to_rows_is_no_change(catalog: mg.Catalog) -> None:
    log = catalog.create_table("db.t", {"k": "INT NOT NULL", "v": "INT"})
    log.write([{"k": 1, "v": 1}])
    stream = log.stream("from-snapshot", follow=False, **FIRST)
    next(stream)
    options = {"changelog-producer": "lookup", "bucket": "1", "merge-engine": "deduplicate"}
    table = log.alter([mg.changes.set_primary_key(["k"]), *(mg.changes.set_option(*each) for each in options.items())])
    table.write([{"k": 1, "v": 2}])
    assert [row for plan in stream for row in _shown(plan.to_pylist())] == [("+U", 1, 2), ("-U", 1, 1)]


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_columns_added_since_are_null_in_the_rows_that_go(catalog: mg.Catalog, producer: str) -> None:
    table = _table(catalog, producer, bucket="1")
    _write(table, "a", (1, 10))
    table = table.alter([mg.changes.add_column("w", "INT")])
    number = table.write([{"p": "a", "k": 1, "v": 10, "w": 5}], overwrite={}).id  # type: ignore[union-attr]
    assert _shown(table.changes(number).to_pylist()) == [("+U", "a", 1, 10, 5), ("-U", "a", 1, 10, None)]
