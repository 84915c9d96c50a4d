"""Change tracking on and off: a commit that publishes nothing is a gap, and readers of changes are told."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.errors import InvalidInputError, UntrackedError

PRODUCERS = ["none", "input", "lookup", "full-compaction", "per-record"]
FIRST = {"scan.snapshot-id": "1"}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    return catalog


def _table(catalog: mg.Catalog, producer: str = "none", **options: str) -> mg.Table:
    given = {"bucket": "2", "changelog-producer": producer} | options
    return catalog.create_table(
        "db.t", {"p": "STRING", "k": "INT", "v": "INT"}, primary_key=["p", "k"], partition_by=["p"], options=given
    )


def _write(table: mg.Table, v: int, *keys: int, p: str = "a", **more: Any) -> None:
    table.write([{"p": p, "k": k, "v": v} for k in keys], **more)


def _rows(found: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in found.to_pylist())


@pytest.mark.parametrize("producer", PRODUCERS)
def test_readers_are_told_of_a_commit_that_published_nothing(catalog: mg.Catalog, producer: str) -> None:
    table = _table(catalog, producer)
    _write(table, 1, 1, 2)
    _write(table, 2, 1, changes=False)
    _write(table, 3, 2)
    number = {"lookup": 4, "full-compaction": 4}.get(producer, 2)
    with pytest.raises(UntrackedError, match=rf"snapshot {number} changed rows of partition p=a and published nothing"):
        table.changes().to_arrow()
    assert table.changes(number + 1).count()
    assert table.changes(mode="diff").count() == 2
    skipped = table.changes(gaps="skip")
    assert {row["v"] for row in skipped.to_pylist() if row["k"] == 1} == {1}
    [gap] = skipped.gaps()
    assert gap == mg.Gap(number, ({"p": "a"},), lambda: pa.table({}))
    assert _rows(gap.read()) == [("+I", "a", 1, 2), ("+I", "a", 2, 1)]
    stream = table.stream("from-snapshot", follow=False, **FIRST)
    next(stream)
    for _ in range(2):
        with pytest.raises(UntrackedError, match="hand it over as a Gap") as caught:
            next(stream)
    assert caught.value.context["snapshot"] == number
    assert caught.value.context["earliest"] == number + 1
    assert caught.value.context["partitions"] == ({"p": "a"},)
    marked = list(table.stream("from-snapshot", follow=False, gaps="mark", **FIRST))
    assert [isinstance(each, mg.Gap) for each in marked] == [False, True, False]
    assert not any(isinstance(each, mg.Gap) for each in table.stream(follow=False))


@pytest.mark.parametrize("way", ["write", "writer", "upsert", "load", "overwrite", "option"])
def test_every_way_of_writing_can_leave_changes_out(catalog: mg.Catalog, way: str) -> None:
    table = _table(catalog, "input")
    rows = [{"p": "a", "k": 1, "v": 1}]
    if way == "write":
        table.write(rows, changes=False)
    elif way == "writer":
        with table.writer(changes=False) as writer:
            writer.write(rows)
            writer.commit()
    elif way == "upsert":
        table.upsert(rows, changes=False)
    elif way == "load":
        path = Path(table.path).parent / "rows.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
        table.load(str(path), changes=False)
    elif way == "overwrite":
        table.write(rows, overwrite={"p": "a"}, changes=False)
    else:
        table.with_options({"change-tracking": "false"}).write(rows)
    assert table.snapshots()[0].changelog_record_count is None
    assert [gap.partitions for gap in table.changes(gaps="skip").gaps()] == [({"p": "a"},)]
    with pytest.raises(InvalidInputError, match="changes is 'no'"):
        table.write(rows, changes="no")  # type: ignore[arg-type]


def test_an_upsert_that_leaves_some_columns_out_can_leave_changes_out(catalog: mg.Catalog) -> None:
    table = _table(catalog, "per-record")
    _write(table, 1, 1)
    table.write([{"p": "a", "k": 1, "v": 5}], columns=["p", "k", "v"], changes=False)
    assert [gap.snapshot for gap in table.changes(gaps="skip").gaps()] == [2]


@pytest.mark.parametrize("producer", PRODUCERS)
def test_partitions_without_tracking_do_not_disturb_readers_of_others(catalog: mg.Catalog, producer: str) -> None:
    table = _table(catalog, producer, **{"change-tracking.off-partitions": "p=b; p=c"})
    for v in (1, 2):
        table.write([{"p": p, "k": 1, "v": v} for p in "abc"])
    newest = [row for row in table.changes(where="p = 'a'").to_pylist() if row["_row_kind"] in ("+I", "+U")]
    assert [row["v"] for row in newest] == [1, 2]
    for plan in table.stream("from-snapshot", follow=False, where="p = 'a'", **FIRST):
        assert set(plan.column("p").to_pylist()) == {"a"}
    with pytest.raises(UntrackedError, match="partition p=b and 1 more"):
        table.changes().to_arrow()
    with pytest.raises(UntrackedError, match="partition p=c"):
        table.changes(where="p = 'c'").to_arrow()
    assert {row["p"] for row in table.changes(gaps="skip").to_pylist()} == {"a"}
    assert {each["p"] for gap in table.changes(gaps="skip").gaps() for each in gap.partitions} == {"b", "c"}


@pytest.mark.parametrize("text", ["p", "p=", "=a", "dt=1"])
def test_partitions_that_cannot_be_are_refused(catalog: mg.Catalog, text: str) -> None:
    off = {"change-tracking.off-partitions": text}
    with pytest.raises(InvalidInputError, match=r"change-tracking\.off-partitions"):
        _table(catalog, **off)
    table = _table(catalog)
    with pytest.raises(InvalidInputError, match=r"change-tracking\.off-partitions"):
        table.alter([mg.changes.set_option(*each) for each in off.items()])
    with pytest.raises(InvalidInputError, match=r"change-tracking\.off-partitions"):
        _write(table.with_options(off), 1, 1)


def test_a_mark_is_of_one_snapshot_alone(catalog: mg.Catalog) -> None:
    table = _table(catalog)
    _write(table, 1, 1, changes=False)
    _write(table, 2, 1)
    marks = [(s.properties or {}).get("merganser.untracked") for s in table.snapshots()]
    assert marks[0] is not None
    assert marks[1] is None
    assert table.changes(2).count() == 1


def test_a_state_after_a_gap_is_no_gap(catalog: mg.Catalog) -> None:
    table = _table(catalog)
    _write(table, 1, 1, changes=False)
    stream = table.stream(follow=False)
    _write(table, 2, 1)
    assert [plan.num_rows for plan in stream] == [1, 1]


def test_a_consumer_goes_on_behind_a_gap_once_it_was_handed_over(catalog: mg.Catalog) -> None:
    table = _table(catalog, **{"change-tracking.off-partitions": "p=b"})
    table.write([{"p": p, "k": 1, "v": 1} for p in "ab"])
    _write(table, 2, 1)

    def follow(**more: Any) -> Any:
        return table.stream("from-snapshot", follow=False, consumer="c", **more, **FIRST)

    with pytest.raises(UntrackedError):
        next(follow())
    first = follow(gaps="mark")
    rows, gap = next(first), next(first)
    assert (_rows(rows), gap.snapshot) == ([("+I", "a", 1, 1)], 1)
    assert table.consumers.list()[0].next_snapshot == 1
    assert isinstance(list(follow(gaps="mark"))[1], mg.Gap)
    assert table.consumers.list()[0].next_snapshot == 3


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_a_compaction_publishes_all_if_rows_of_others_waited(catalog: mg.Catalog, producer: str) -> None:
    table = _table(catalog, producer, bucket="1")
    waiting = table.with_options({"write-only": "true"})
    _write(waiting, 1, 1)
    _write(table, 2, 2, changes=False)
    assert sorted({row["k"] for row in table.changes().to_pylist()}) == [1, 2]
    _write(waiting, 3, 3, changes=False)
    _write(waiting, 4, 4)
    table.compact(full=True)
    assert sorted({row["k"] for row in table.changes().to_pylist()}) == [1, 2, 3, 4]


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
@pytest.mark.parametrize("way", ["write", "overlapping", "option"])
def test_a_later_compaction_knows_what_a_writer_without_compactions_left_out(
    catalog: mg.Catalog, producer: str, way: str
) -> None:
    table = _table(catalog, producer, bucket="1")
    _write(table, 1, 1, 2)
    waiting = table.with_options({"write-only": "true"})
    if way == "option":
        _write(waiting.with_options({"change-tracking": "false"}), 2, 1)
    elif way == "write":
        _write(waiting, 2, 1, changes=False)
    else:  # gets other sequence numbers, and so another file
        with waiting.writer(changes=False) as first:
            first.session._transaction.take_turn = lambda: None  # type: ignore[method-assign]
            first.write([{"p": "a", "k": 1, "v": 2}])
            _write(waiting, 0, 3, changes=False)
            first.commit()
    _write(waiting, 3, 2, p="b")
    number = table.snapshots()[-1].id + 1
    mg.catalog(str(Path(table.path).parent.parent)).table("db.t").compact(full=True)
    found = table.changes(3, gaps="skip")
    assert _rows(found.to_arrow()) == [("+I", "b", 2, 3)]
    [gap] = found.gaps()
    assert (gap.snapshot, gap.partitions) == (number, ({"p": "a"},))
    assert ("+I", "a", 1, 2) in _rows(gap.read())


def test_levels_in_between_keep_the_mark_of_rows_that_nobody_is_to_publish(catalog: mg.Catalog) -> None:
    options = {"num-sorted-run.compaction-trigger": "2", "num-levels": "6", "write-only": "true"}
    table = _table(catalog, "full-compaction", bucket="1", **options)
    table.write([{"p": "a", "k": k, "v": random.getrandbits(31)} for k in range(20_000)])
    table.compact(full=True)
    for v in range(3):
        _write(table, v, 1, 2, changes=False)
    table.compact()
    assert {file["level"] for file in table.files().to_pylist()} == {4, 5}
    table.compact(full=True)
    assert [gap.snapshot for gap in table.changes(3, gaps="skip").gaps()] == [table.snapshots()[-1].id]
    assert table.changes(3, gaps="skip").count() == 0


def test_system_tables_of_changes_are_told_too(catalog: mg.Catalog) -> None:
    table = _table(catalog, "input")
    _write(table, 1, 1)
    _write(table, 2, 1, changes=False)
    for name in ("binlog", "audit_log", "changelog"):
        with pytest.raises(UntrackedError):
            table.with_options({"incremental-between": "0,2"}).system(name).to_arrow()
        stream = list(catalog.table(f"db.t${name}").stream("from-snapshot", follow=False, gaps="mark", **FIRST))
        assert [type(each).__name__ for each in stream] == ["Table", "Gap"]
    assert _rows(catalog.table("db.t$binlog").stream("from-snapshot", follow=False, **FIRST).__next__()) == [
        ("+I", ["a"], [1], [1])
    ]
    assert _rows(
        list(catalog.table("db.t$binlog").stream("from-snapshot", gaps="mark", follow=False, **FIRST))[1].read()
    )
    with pytest.raises(UntrackedError):
        table.with_options({"incremental-between": "0,2"}).read().to_arrow()


@pytest.mark.campaign(1 / 14)
@pytest.mark.parametrize("producer", ["lookup", "full-compaction", "per-record"])
@pytest.mark.parametrize("engine", ["deduplicate", "aggregation"])
@pytest.mark.parametrize("seed", range(4))
def test_a_replay_that_reads_again_at_gaps_is_the_table(
    catalog: mg.Catalog, producer: str, engine: str, seed: int
) -> None:
    """A reader that takes the rows behind each gap, and applies changes strictly otherwise, has every later state."""
    dice = random.Random(seed)
    options = {"merge-engine": engine, "change-tracking.off-partitions": "p=c"}
    if engine == "aggregation":
        options["fields.v.aggregate-function"] = "sum"
    table = _table(catalog, producer, **options)
    lazy = table.with_options({"write-only": "true"})
    stream = table.stream("from-snapshot", follow=False, gaps="mark", **FIRST)
    state: dict[tuple[str, int], int] = {}
    gaps = 0
    for _ in range(14):
        rows = [{"p": dice.choice("abc"), "k": dice.randrange(4), "v": dice.randrange(9)} for _ in range(5)]
        rows = list({(row["p"], row["k"]): row for row in rows}.values())
        kinds = ["-D" if engine == "deduplicate" and dice.random() < 0.3 else "+I" for _ in rows]
        writes = lazy if dice.random() < 0.2 else table
        writes.write(rows, kinds=kinds, changes=dice.random() < 0.6)
        if dice.random() < 0.2:
            table.compact(full=dice.random() < 0.5)
        for plan in stream:
            if isinstance(plan, mg.Gap):
                gaps += 1
                touched = {each["p"] for each in plan.partitions}
                state = {key: v for key, v in state.items() if key[0] not in touched}
                state |= {(row["p"], row["k"]): row["v"] for row in plan.read().to_pylist()}
                continue
            for row in plan.to_pylist():
                key = (row["p"], row["k"])
                if row["_row_kind"] in ("+I", "+U"):
                    state[key] = row["v"]
                else:
                    assert state.pop(key) == row["v"]
    table.compact(full=True)
    for plan in table.stream(
        "from-snapshot", follow=False, gaps="mark", **{"scan.snapshot-id": str(stream.next_snapshot)}
    ):
        if isinstance(plan, mg.Gap):
            touched = {each["p"] for each in plan.partitions}
            state = {key: v for key, v in state.items() if key[0] not in touched}
            state |= {(row["p"], row["k"]): row["v"] for row in plan.read().to_pylist()}
            continue
        for row in plan.to_pylist():
            state.pop((row["p"], row["k"]), None)
            if row["_row_kind"] in ("+I", "+U"):
                state[row["p"], row["k"]] = row["v"]
    assert state == {(row["p"], row["k"]): row["v"] for row in table.read().to_pylist()}
    assert gaps
