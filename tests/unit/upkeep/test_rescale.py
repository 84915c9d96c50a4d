"""Rescaling: rows move to another number of buckets; readers, streams and writers see no other change."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import merganser as mg
from merganser.changes import set_option
from merganser.commit.committable import Committable
from merganser.commit.table_commit import TableCommit
from merganser.commit.turns import Turn, take_turn
from merganser.errors import ConflictError, InvalidInputError, NotFoundError
from merganser.lsm.rescale import RescaleJob
from merganser.meta.lineage import moved, parents, rescales
from merganser.meta.table_state import MetaReader
from merganser.upkeep.bucket_option import set_buckets
from merganser.write import transaction
from merganser.write.begin import begin
from merganser.write.start import Start
from merganser.write.transaction import Transaction
from tests.kit.builders import catalog_over, contents, memory_with

_names = itertools.count()


def _table(
    key: tuple[str, ...] = ("p", "k"), partition: tuple[str, ...] = ("p",), buckets: int = 4, **options: str
) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"rescale-{next(_names)}"))
    catalog.create_database("db")
    schema = {"p": "STRING", "k": "INT", "v": "INT"}
    return catalog.create_table("db.t", schema, key, partition, options={"bucket": str(buckets), **options})


def _rows(keys: Any, v: int = 0, p: str = "a") -> list[dict[str, Any]]:
    return [{"p": p, "k": k, "v": v} for k in keys]


def _found(table: mg.Table) -> list[dict[str, Any]]:
    return sorted(table.read().to_pylist(), key=lambda row: (row["p"], row["k"]))


def _totals(table: mg.Table) -> dict[str, set[int]]:
    state = MetaReader(table.definition.paths, table.env, table.name).latest()
    found: dict[str, set[int]] = {}
    for entry in state.live:
        found.setdefault(table.definition.partition_directory(entry.partition)[-1], set()).add(entry.total_buckets)
    return found


def _reopened(table: mg.Table) -> mg.Table:
    return catalog_over(table.env.storage).table("db.t")


@contextmanager
def _before_rescales_commit(*steps: Callable[[], object]) -> Iterator[None]:
    """Run one step before each commit of a rescale, but of those that steps make."""
    todo, commit, inside = list(steps), TableCommit.commit, [False]

    def first(self: TableCommit, change: Committable, **how: Any) -> Any:
        if change.rescales and todo and not inside[0]:
            inside[0] = True
            todo.pop(0)()
            inside[0] = False
        return commit(self, change, **how)

    with patch.object(TableCommit, "commit", first):
        yield
    assert not todo


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize(("before", "after"), [(4, 8), (8, 4), (4, 6), (3, 5), (1, 4), (4, 1), (2, 300)])
@pytest.mark.parametrize("function", ["default", "mod"])
def test_rows_lie_in_the_buckets_of_the_new_number(before: int, after: int, function: str) -> None:
    table = _table(buckets=before, **{"write-only": "true", "bucket-function.type": function})
    for v in range(3):
        table.write(_rows(range(-100 * v, 200), v) + _rows(range(50), v, "b"))
    table.write(_rows(range(10)), kinds=["-D"] * 10)
    rows = _found(table)
    snapshot = table.rescale(after)
    assert snapshot is not None
    assert snapshot.commit_kind == "COMPACT"
    assert _found(table) == rows
    assert _totals(table) == {"a": {after}, "b": {after}}
    assert {file["level"] for file in table.files().to_pylist()} == {5}
    assert table.check() == ()
    assert _reopened(table).options["bucket"] == str(after)
    assert table.rescale(after) is None


def test_a_handle_from_before_writes_on() -> None:
    table = _table()
    table.write(_rows(range(20)))
    other = _reopened(table)
    table.rescale(8)
    for number, each in enumerate((table, other)):
        each.write(_rows([number], 9))
        each.upsert(_rows([number + 2], 9))
    assert [row["v"] for row in _found(table)][:5] == [9, 9, 9, 9, 0]
    assert _totals(table) == {"a": {8}}
    assert table.check() == ()


def test_some_partitions_move_and_the_others_can_be_read() -> None:
    table = _table()
    table.write(_rows(range(20)) + _rows(range(20), p="b"))
    rows = _found(table)
    table.rescale(2, [{"p": "a"}])
    assert _totals(table) == {"a": {2}, "b": {4}}
    assert _found(table) == rows
    table.write(_rows([1], 5))
    table.write(_rows([1], 5, "c"))
    with pytest.raises(
        InvalidInputError, match=r"has files of 4 buckets, and this write goes by 'bucket' = '2'.*rescale"
    ):
        table.write(_rows([1], 5, "b"))
    table.rescale(2)
    table.write(_rows([1], 5, "b"))
    assert _totals(table) == {"a": {2}, "b": {2}, "c": {2}}
    assert table.check() == ()


def test_a_writer_that_commits_after_it_is_told() -> None:
    table = _table()
    table.write(_rows(range(20)))
    with table.writer() as writer:
        writer.write(_rows(range(5), 7))
        table.rescale(8)
        with pytest.raises(ConflictError, match=r"into 4 buckets, and another commit .* to 8\. Nothing was changed"):
            writer.commit()

    def rows() -> Iterator[dict[str, Any]]:
        yield from _rows([1], 8)
        _reopened(table).rescale(6)
        yield from _rows([2], 8)

    with pytest.raises(ConflictError, match=r"8 buckets, and another .* to 6"):
        table.write(rows())
    table.rescale(8)
    with patch("merganser.write.buffer.SMALL_BYTES", 0), table.writer() as writer:
        writer.write(_rows(range(5), 7))
        table.rescale(4)
        with pytest.raises(ConflictError, match="moved their partition to 4"):
            writer.commit()
    assert {row["v"] for row in _found(table)} == {0}
    assert table.check() == ()


@pytest.mark.parametrize("keyed", [True, False])
def test_rows_that_others_write_meanwhile_move_too(keyed: bool) -> None:
    options = {"write-only": "true"} if keyed else {"write-only": "true", "bucket-key": "k"}
    table = _table(("p", "k") if keyed else (), **options)
    table.write(_rows(range(20)))
    begun: list[int] = []
    run = RescaleJob.run

    def counted(job: RescaleJob, *how: Any) -> Any:
        begun.append(sum(file.row_count for each in job.jobs for file in each.files))
        return run(job, *how)

    other = _reopened(table)
    with (
        patch.object(RescaleJob, "run", counted),
        _before_rescales_commit(
            lambda: other.write(_rows(range(5), 1)), lambda: other.write(_rows([3], 2) + _rows([1], 2, "new"))
        ),
    ):
        table.rescale(6)
    assert sum(begun) == 20 + 5 + 2, "what was done once is not done again"
    expected = [*_rows(range(20)), *_rows(range(5), 1), *_rows([3], 2), *_rows([1], 2, "new")]
    if keyed:
        expected = list({(row["p"], row["k"]): row for row in expected}.values())
    assert sorted(map(str, table.read().to_pylist())) == sorted(map(str, expected))
    assert _totals(table) == {"a": {6}, "w": {6}}
    assert table.check() == ()
    if not keyed:  # rows of one key keep their order
        assert [row["v"] for row in table.read(where="k = 3").to_pylist()] == [0, 1, 2]


def test_a_compaction_meanwhile_makes_it_begin_anew_and_leaves_no_file() -> None:
    table = _table(**{"write-only": "true"})
    for v in range(3):
        table.write(_rows(range(20), v) + _rows(range(20), v, "b"))
    rows, other = _found(table), _reopened(table)
    with _before_rescales_commit(lambda: other.compact(full=True, partitions=[{"p": "a"}])):
        table.rescale(8)
    assert _found(table) == rows
    assert table.check() == ()
    table.expire(retain_max=1, retain_min=1, older_than="2999-01-01")
    named = {row["file_path"].rpartition("/")[2] for row in table.system("files").to_pylist()}
    assert {path.rpartition("/")[2] for path in contents(table.env.storage) if "/bucket-" in path} == named


def test_it_gives_up_when_others_always_come_first() -> None:
    table = _table(**{"write-only": "true"})
    table.write(_rows(range(20)))
    rows, other = _found(table), _reopened(table)
    steps = [lambda: other.rescale(2), lambda: other.rescale(4)] * 5
    with _before_rescales_commit(*steps), pytest.raises(ConflictError):
        table.rescale(8)
    assert _found(table) == rows
    assert table.check() == ()


def test_what_it_cannot_do_is_refused() -> None:
    table = _table()
    table.write(_rows(range(3)))
    for number in (0, -1, True, 2.0, "8", 40_000):
        with pytest.raises(InvalidInputError, match="whole number from 1 to 32767"):
            table.rescale(number)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match=r"cannot rescale 'db\.t': it has no partition 'p=z'"):
        table.rescale(8, [{"p": "z"}])
    with pytest.raises(InvalidInputError, match="'q' is not a partition column"):
        table.rescale(8, [{"q": "z"}])
    with pytest.raises(InvalidInputError, match="not a list of partitions"):
        table.rescale(8, {"p": "a"})  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="adds buckets as keys arrive"):
        _table(buckets=-1).rescale(8)
    with pytest.raises(InvalidInputError, match="neither a key nor 'bucket-key'"):
        _table((), buckets=-1).rescale(8)
    assert _totals(table) == {"a": {4}}


def test_stopped_before_the_option_it_is_finished_by_the_next_writer() -> None:
    row = _rows([1], 5)
    writes: list[Callable[[mg.Table], object]] = [
        lambda table: _reopened(table).write(row),
        lambda table: table.write(row),
        lambda table: _reopened(table).upsert(row),
        lambda table: _reopened(table).update("k = 1", {"v": "5"}),
        lambda table: _reopened(table).update("v = 0", {"v": "5"}),
        lambda table: _reopened(table).delete("k = 1"),
        lambda table: _reopened(table).merge(row, "target.k = source.k").when_matched_update().execute(),
    ]
    for write in writes:
        table = _table()
        table.write(_rows(range(20)))
        with (
            patch("merganser.upkeep.rescale.set_buckets", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            table.rescale(6)
        assert _reopened(table).options["bucket"] == "4"
        assert table.check() == ()
        (said,) = _reopened(table).advice()
        assert "A rescale to 6 buckets was stopped before its end" in said.problem
        assert "`merganser rescale db.t 6`" in str(said)
        write(table)
        assert _reopened(table).options["bucket"] == "6"
        assert _totals(table) == {"a": {6}}
        assert _reopened(table).advice() == ()


def test_a_number_that_came_after_a_stopped_rescale_stays() -> None:
    table = _table()
    table.write(_rows(range(20)) + _rows(range(20), p="b"))
    with patch("merganser.upkeep.rescale.set_buckets", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        table.rescale(6)
    table.alter([set_option("bucket", "3")])
    (said,) = table.advice()
    assert "'bucket' is '3', and 2 of its partitions lie in another number of buckets (first: p=" in said.problem
    assert "`merganser rescale db.t 3`" in said.remedy
    with pytest.raises(InvalidInputError, match=r"files of 6 buckets.*'bucket' = '3'"):
        table.write(_rows([1], 5))
    assert _reopened(table).options["bucket"] == "3"
    table.rescale(3)
    table.write(_rows([1], 5))
    assert table.advice() == ()


def test_a_stopped_rescale_is_finished_although_the_one_before_it_set_its_number_late() -> None:
    table = _table()
    table.write(_rows(range(20)))
    with patch("merganser.upkeep.rescale.set_buckets", side_effect=KeyboardInterrupt):
        for buckets in (3, 6):
            with pytest.raises(KeyboardInterrupt):
                table.rescale(buckets)
    table.alter([set_option("bucket", "3")])
    _reopened(table).write(_rows([1], 5))
    assert _reopened(table).options["bucket"] == "6"
    assert _totals(table) == {"a": {6}}


@pytest.mark.parametrize("is_empty", [True, False])
def test_rows_that_came_with_the_old_number_move_before_the_option_is_set(is_empty: bool) -> None:
    table = _table()
    if not is_empty:
        table.write(_rows(range(20), p="a"))
    commits = [lambda: _reopened(table).write(_rows(range(20), p="b"))]

    def late(*given: Any) -> Turn:
        if commits:
            commits.pop()()
        return take_turn(*given)

    with (
        patch("merganser.upkeep.rescale.take_turn", late),
        patch("merganser.upkeep.rescale.set_buckets", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        table.rescale(6)
    assert _totals(table) == ({} if is_empty else {"a": {6}}) | {"b": {6}}
    _reopened(table).write(_rows([1], 5, p="b"))
    assert _reopened(table).options["bucket"] == "6"


def test_a_rescale_ends_although_others_write_new_partitions_again_and_again() -> None:
    table = _table()
    names = map(str, itertools.count())

    def late(*given: Any) -> Turn:
        if _reopened(table).options["bucket"] == "4":
            _reopened(table).write(_rows(range(3), p=next(names)))
        return take_turn(*given)

    with patch("merganser.upkeep.rescale.take_turn", late):
        table.rescale(6)
    assert _reopened(table).options["bucket"] == "6"
    assert set().union(*_totals(table).values()) == {6}


def test_rows_that_are_held_are_written_again_if_a_rescale_came_first() -> None:
    table = _table()
    table.write(_rows(range(20)))
    started, todo = Transaction.start, [lambda: _reopened(table).rescale(8)]

    def late(self: Transaction, *, assigners: int = 1) -> Start:
        if todo:
            todo.pop()()
        return started(self, assigners=assigners)

    with patch.object(Transaction, "start", late):
        table.write(_rows([1], 5))
    assert _totals(table) == {"a": {8}}
    assert table.read(where="k = 1").to_pylist() == _rows([1], 5)


def test_a_writer_that_begins_while_rescales_change_the_number_there_and_back_is_not_refused() -> None:
    table = _table()
    table.write(_rows(range(20)))
    begun, asked = begin(table.definition, table.env), transaction.is_overtaken
    _reopened(table).rescale(8)

    def back(*given: Any) -> bool:
        _reopened(table).rescale(4)
        return asked(*given)

    with patch.object(transaction, "is_overtaken", back):
        sequences = begun.start().sequences
    live = MetaReader(table.definition.paths, table.env, table.name).latest().live
    (partition,) = {entry.partition for entry in live}
    assert [sequences((partition, bucket)) > 0 for bucket in range(4)] == [True] * 4


@pytest.mark.parametrize("is_empty", [True, False])
def test_rows_of_a_new_partition_get_the_number_of_a_rescale_that_came_first(is_empty: bool) -> None:
    table = _table()
    if not is_empty:
        table.write(_rows(range(20)))
    with table.writer() as writer:
        writer.write(_rows(range(5), p="b"))
        _reopened(table).rescale(8)
        with pytest.raises(ConflictError, match=r"into 4 buckets, and another job has given the table 8 since") as told:
            writer.commit()
    assert told.value.context["buckets"] == 8
    begun, commit = [lambda: _reopened(table).rescale(6)], TableCommit.commit

    def late(self: TableCommit, change: Committable, **how: Any) -> Any:
        if begun and not change.rescales:
            begun.pop()()
        return commit(self, change, **how)

    with patch.object(TableCommit, "commit", late):
        table.write(_rows(range(5), p="b"))
    assert _totals(table) == ({} if is_empty else {"a": {6}}) | {"b": {6}}
    _reopened(table).write(_rows(range(9), p="b"))


@pytest.mark.parametrize("how", [{"p": "a"}, "dynamic", {}], ids=["a partition", "dynamic", "the table"])
def test_an_overwrite_that_began_before_a_rescale_gets_its_number(how: Any) -> None:
    table = _table()
    table.write(_rows(range(20)))
    with table.writer(overwrite=how) as writer:
        writer.write(_rows(range(5), 7))
        _reopened(table).rescale(8)
        with pytest.raises(ConflictError, match=r"into 4 buckets, and another job has given the table 8 since"):
            writer.commit()
    assert _found(table) == _rows(range(20))
    begun, commit = [lambda: _reopened(table).rescale(6)], TableCommit.commit

    def late(self: TableCommit, change: Committable, **how: Any) -> Any:
        if begun and not change.rescales:
            begun.pop()()
        return commit(self, change, **how)

    with patch.object(TableCommit, "commit", late):
        table.write(_rows(range(5), 3), overwrite=how)
    assert _totals(table) == {"a": {6}}
    _reopened(table).write(_rows([1], 5))


@pytest.mark.parametrize("seconds", [6, 3])
def test_of_two_rescales_at_a_time_the_one_that_commits_last_decides(seconds: int) -> None:
    table = _table()
    table.write(_rows(range(20)))
    between = [lambda: _reopened(table).rescale(seconds)]

    def late(*given: Any, **how: Any) -> bool:
        if between:
            between.pop()()
        return set_buckets(*given, **how)

    with patch("merganser.upkeep.rescale.set_buckets", late):
        first = table.rescale(8)
    assert first is not None
    assert _totals(table) == {"a": {seconds}}
    assert _reopened(table).options["bucket"] == str(seconds)
    assert len(list(rescales(MetaReader(table.definition.paths, table.env, table.name), table.latest_snapshot()))) == 2


def test_an_empty_table_gets_the_number() -> None:
    table = _table()
    assert table.rescale(8) is None
    table.write(_rows(range(3)))
    assert _totals(table) == {"a": {8}}


def test_the_lineage_names_every_rescale_that_is_kept() -> None:
    table = _table()
    table.write(_rows(range(40)) + _rows(range(40), p="b"))
    table.rescale(8)
    table.write(_rows([1], 1))
    table.rescale(6, [{"p": "a"}])
    table.write(_rows([1], 2))
    found = table.system("rescales").to_pylist()
    assert [(row["partition"], row["from_buckets"], row["to_buckets"]) for row in found] == [
        ("{a}", 8, 6),
        ("{a}", 4, 8),
        ("{b}", 4, 8),
    ]
    reader = MetaReader(table.definition.paths, table.env, table.name)
    for one in rescales(reader, table.latest_snapshot()):
        for before, after in one.partitions.values():
            was = {entry.bucket for entry in reader.delta(one.snapshot) if entry.kind}
            for bucket in range(after):
                assert was.issuperset(parents(bucket, before, after))
    assert list(parents(5, 4, 6)) == [1, 3]
    assert list(parents(5, 4, 8)) == [1]
    assert list(parents(1, 8, 4)) == [1, 5]
    assert moved([]) == {}


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction", "per-record"])
def test_streams_go_on_through_it(seed: int, producer: str, tmp_path: Path) -> None:
    """The changes of any start make the state of the table at any time, with rescales between."""
    rng = random.Random(f"{seed} {producer}")
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "2", "changelog-producer": producer}
    if producer == "full-compaction":
        options["full-compaction.delta-commits"] = "1"
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)
    streams: list[tuple[Any, dict[int, int]]] = []
    for _ in range(10):
        if rng.random() < 0.4:
            streams.append((table.stream(follow=False), {}))
        count = rng.randrange(1, 8)
        rows = {"k": [rng.randrange(6) for _ in range(count)], "v": [rng.randrange(100) for _ in range(count)]}
        table.write(pa.table(rows), kinds=[rng.choice(["+I", "+U", "-D"]) for _ in range(count)])
        if rng.random() < 0.4:
            table.rescale(rng.choice([1, 2, 3, 4, 6]))
        for stream, state in streams:
            for plan in stream:
                for row in plan.to_pylist():
                    if row["_row_kind"] in ("-D", "-U"):
                        state.pop(row["k"], None)
                    else:
                        state[row["k"]] = row["v"]
            assert state == {row["k"]: row["v"] for row in table.read().to_pylist()}


@pytest.mark.parametrize("when", ["before", "after"])
def test_stopped_at_its_commit_it_removes_no_file_that_a_snapshot_may_name(when: str) -> None:
    table = _table()
    table.write(_rows(range(20)))
    rows, commit = _found(table), TableCommit.commit

    def stopped(self: TableCommit, change: Committable, **how: Any) -> Any:
        if change.rescales and when == "after":
            commit(self, change, **how)
        if change.rescales:
            raise KeyboardInterrupt
        return commit(self, change, **how)

    with patch.object(TableCommit, "commit", stopped), pytest.raises(KeyboardInterrupt):
        table.rescale(8)
    again = _reopened(table)
    assert _found(again) == rows
    assert again.check() == ()
    again.rescale(8)
    again.write(_rows([1], 7))
    assert _totals(again) == {"a": {8}}
    assert again.check() == ()


def test_what_compactions_made_meanwhile_is_published_once() -> None:
    table = _table(buckets=8, **{"changelog-producer": "lookup", "write-only": "true"})
    table.write(_rows([1]))
    table.compact(full=True)
    stream = table.stream("latest", follow=False)
    other = _reopened(table)

    def meanwhile() -> None:  # in buckets that had no file
        other.write(_rows(range(2, 30), 3))
        other.compact(full=True)
        other.write(_rows(range(5), 4))

    with _before_rescales_commit(meanwhile):
        table.rescale(4)
    table.compact(full=True)
    state = {1: 0}
    for plan in stream:
        for row in plan.to_pylist():
            if row["_row_kind"] in ("+I", "+U"):
                assert row["k"] not in state, "each change comes once"
                state[row["k"]] = row["v"]
            else:
                assert state.pop(row["k"]) == row["v"]
    assert state == {row["k"]: row["v"] for row in table.read().to_pylist()}


def test_files_that_others_replaced_and_removed_are_no_damage() -> None:
    table = _table(**{"write-only": "true"})
    for v in range(3):
        table.write(_rows(range(20), v))
    rows, run, struck = _found(table), RescaleJob.run, []

    def late(job: RescaleJob, *how: Any) -> Any:
        if not struck:
            struck.append(job)
            other = _reopened(table)
            other.compact(full=True)
            other.expire(retain_max=1, retain_min=1, older_than="2999-01-01")
        return run(job, *how)

    with patch.object(RescaleJob, "run", late):
        table.rescale(8)
    assert _found(table) == rows
    assert table.check() == ()


@pytest.mark.parametrize("keyed", [True, False])
def test_an_overwrite_with_another_number_moves_its_partitions_and_no_other_write_mixes_numbers(keyed: bool) -> None:
    """Semantics: the option is changed, then partitions are overwritten one after the other."""
    how = {} if keyed else {"bucket-key": "k"}
    table = _table(("p", "k") if keyed else (), **how)
    table.write(_rows(range(20)) + _rows(range(20), p="b") + _rows(range(20), p="c"))
    wide = table.with_options({"bucket": "8"})
    for write in (wide.write, wide.upsert) if keyed else (wide.write,):
        with pytest.raises(InvalidInputError, match=r"files of 4 buckets.*'bucket' = '8'.*overwrite="):
            write(_rows([1], 5))
    with pytest.raises(InvalidInputError, match="outside the partition that is overwritten"):
        wide.write(_rows(range(3), 1) + _rows([1], p="b"), overwrite={"p": "a"})
    wide.write(_rows(range(30), 1), overwrite={"p": "a"})
    wide.write(_rows(range(10), 2, "b"), overwrite="dynamic")
    wide.write(_rows([7], 3, "d"))
    assert _totals(table) == {"a": {8}, "b": {8}, "c": {4}, "d": {8}}
    assert _found(table) == [
        *_rows(range(30), 1),
        *_rows(range(10), 2, "b"),
        *_rows(range(20), 0, "c"),
        *_rows([7], 3, "d"),
    ]
    assert table.read(where="p = 'a' and k = 17").count() == 1
    wide.write(_rows([29], 4))
    table.write(_rows([19], 4, "c"))
    with pytest.raises(InvalidInputError, match="files of 8 buckets"):
        table.write(_rows([29], 5))
    table.compact(full=True)
    assert table.check() == ()
    wide.write(_rows(range(5)), overwrite={})
    assert _totals(table) == {"a": {8}}


def test_a_writer_that_began_before_such_an_overwrite_is_told_and_one_that_comes_after_follows() -> None:
    table = _table()
    table.write(_rows(range(20)))
    wide = table.with_options({"bucket": "8"})
    with table.writer() as late, patch("merganser.write.buffer.SMALL_BYTES", 0):
        late.write(pa.Table.from_pylist(_rows([1], 9)))
        wide.write(_rows(range(20), 1), overwrite={"p": "a"})
        with pytest.raises(ConflictError, match=r"written into 4 buckets, and another commit .* to 8"):
            late.commit()
    with wide.writer(overwrite={"p": "a"}) as writer:
        writer.write(_rows(range(3), 2))
        wide.write(_rows([5], 3))  # an overwrite removes what came meanwhile
        writer.commit()
    assert _found(table) == _rows(range(3), 2)
    assert table.check() == ()


def test_a_partition_gets_at_most_32767_buckets() -> None:
    table = _table(buckets=32_767)
    with pytest.raises(InvalidInputError, match="32767 buckets at most"):
        table.with_options({"bucket": "32768"})
    with pytest.raises(InvalidInputError, match="32767"):
        table.rescale(32_768)


def test_only_numbers_of_buckets_can_be_opened_with_another_one() -> None:
    for before, after in (("4", "-1"), ("4", "-2"), ("-1", "4"), ("-2", "4"), ("4", "0")):
        table = _table(buckets=int(before))
        with pytest.raises(InvalidInputError, match="decides how data is stored"):
            table.with_options({"bucket": after})


def test_a_rollback_that_takes_rescales_back_leaves_the_table_writable() -> None:
    table = _table()
    first = table.write(_rows(range(20)))
    assert first is not None
    table.rescale(8)
    table.write(_rows([1], 1))
    table.rescale(3)
    table.write(_rows([2], 2))
    for target, number in ((3, 8), (first.id, 4)):
        table.rollback(target)
        assert _reopened(table).options["bucket"] == str(number)
        assert _totals(table) == {"a": {number}}
        for handle in (table, _reopened(table)):
            handle.write(_rows([3], 7))
        assert _totals(table) == {"a": {number}}
        assert table.check() == ()
    table.rescale(8)
    number = table.write(_rows([1], 1))
    assert number is not None
    table.write(_rows([1], 2))
    table.rollback(number.id)  # takes no rescale back
    assert _reopened(table).options["bucket"] == "8"


def test_the_option_is_altered_and_partitions_are_overwritten_with_their_own_rows_one_after_the_other() -> None:
    table = _table()
    table.write(_rows(range(20)) + _rows(range(20), p="b"))
    rows = _found(table)
    other = _reopened(table)
    table.alter([set_option("bucket", "8")])
    for handle in (_reopened(table), other):
        with pytest.raises(InvalidInputError, match="files of 4 buckets"):
            handle.write(_rows([1], 5))
    other.write(other.read(where="p = 'a'").to_arrow(), overwrite={"p": "a"})
    assert _totals(table) == {"a": {8}, "b": {4}}
    assert _found(table) == rows
    other.write(_rows([1], 5))
    other.write(other.read(where="p = 'b'").to_arrow(), overwrite="dynamic")
    assert _totals(table) == {"a": {8}, "b": {8}}
    assert table.check() == ()
