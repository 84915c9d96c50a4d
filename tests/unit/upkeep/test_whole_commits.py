"""Tables whose rows show with a compaction: each snapshot shows a commit whole, or nothing of it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest

import merganser as mg
from merganser.commit.committable import Committable
from merganser.commit.message import CommitMessage
from merganser.commit.table_commit import TableCommit
from merganser.errors import ConflictError, MerganserError, StorageError
from merganser.lsm.compact import CompactJob
from merganser.meta.snapshot import COMPACT
from merganser.upkeep import compact_table
from merganser.upkeep.compact_table import compact
from merganser.upkeep.plan_compaction import CompactionRequest, plan_jobs
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
ENGINES = [{"merge-engine": "first-row"}, {"deletion-vectors.enabled": "true"}]


def _table(options: dict[str, str]) -> mg.Table:
    """Return a table with a bucket in each partition."""
    catalog = catalog_over(memory_with({}, f"whole-{next(_names)}"))
    catalog.create_database("db")
    return catalog.create_table(
        "db.t",
        {"p": "STRING", "k": "INT", "tag": "STRING"},
        primary_key=["p", "k"],
        partition_by=["p"],
        options={"bucket": "1", **options},
    )


def _write(table: mg.Table, tag: str, *, to: str, wait: bool = True, first: int = 0) -> None:
    """Write a row to each of some partitions; with `wait` nothing compacts after it."""
    chosen = table.with_options({"write-only": "true"}) if wait else table
    chosen.write([{"p": p, "k": first, "tag": tag} for p in to])


def _shown(table: mg.Table) -> list[dict[str, int]]:
    """Return how many rows of each commit every snapshot shows."""
    return [Counter(r["tag"] for r in table.read(snapshot=s.id).to_pylist()) for s in table.snapshots()]


def _run(jobs: Sequence[CompactJob], table: mg.Table) -> list[CommitMessage]:
    return [message for job in jobs for message in job.run(table.env)]


@pytest.mark.parametrize("options", ENGINES, ids=str)
def test_the_compaction_after_a_commit_takes_the_rows_of_others_that_wait(options: dict[str, str]) -> None:
    table = _table(options)
    _write(table, "early", to="abc")
    _write(table, "late", to="a", wait=False, first=1)
    assert _shown(table) == [{}, {}, {"early": 3, "late": 1}]
    assert [snapshot.commit_kind for snapshot in table.snapshots()] == ["APPEND", "APPEND", "COMPACT"]


@pytest.mark.parametrize("options", ENGINES, ids=str)
def test_gentle_compactions_show_whole_commits_too(options: dict[str, str]) -> None:
    table = _table({**options, "lookup-compact": "gentle", "lookup-compact.max-interval": "3"})
    _write(table, "wide", to="abc", wait=False)
    _write(table, "one", to="a", wait=False, first=1)
    assert _shown(table)[-1] == {}
    for number in range(2, 6):
        _write(table, f"one {number}", to="a", wait=False, first=number)
    shown = [found["wide"] for found in _shown(table)]
    assert set(shown) == {0, 3}


def _overtaken(options: dict[str, str]) -> tuple[mg.Table, list[CommitMessage]]:
    """Return a table of two commits, and the result of a compaction that another process planned between the two."""
    table = _table(options)
    _write(table, "first", to="a")
    state = TableCommit(table.definition, table.env).latest()
    early = _run(plan_jobs(table.definition, table.env, state, CompactionRequest(push_level_0=True)), table)
    _write(table, "second", to="ab", first=1)
    return table, early


@pytest.mark.parametrize("options", ENGINES, ids=str)
def test_a_compaction_that_lost_some_buckets_shows_no_part_of_a_commit(options: dict[str, str]) -> None:
    table, early = _overtaken(options)
    ran: list[int] = []

    def run(jobs: Sequence[CompactJob]) -> list[CommitMessage]:
        """Let the other compaction commit before this one does."""
        ran.append(len(jobs))
        if len(ran) == 1:
            TableCommit(table.definition, table.env).commit(Committable(early, commit_user="other", kind=COMPACT))
        return _run(jobs, table)

    compact(table.definition, table.env, CompactionRequest(push_level_0=True), run=run)
    assert ran == [2, 1], "what still fits is not done again"
    assert _shown(table) == [{}, {}, {"first": 1}, {"first": 1, "second": 2}]
    assert table.check() == ()
    assert table.remove_orphans(older_than="2999-01-01") == ()


@pytest.mark.parametrize("options", ENGINES, ids=str)
def test_what_was_kept_is_done_again_once_newer_rows_wait_there(options: dict[str, str]) -> None:
    table, early = _overtaken(options)
    ran: list[int] = []

    def run(jobs: Sequence[CompactJob]) -> list[CommitMessage]:
        ran.append(len(jobs))
        if len(ran) == 1:
            TableCommit(table.definition, table.env).commit(Committable(early, commit_user="other", kind=COMPACT))
            _write(table, "third", to="ab", first=2)
        return _run(jobs, table)

    compact(table.definition, table.env, CompactionRequest(push_level_0=True), run=run)
    assert ran == [2, 2]
    assert _shown(table)[-1] == {"first": 1, "second": 2, "third": 2}
    assert all(found.get("second", 0) in (0, 2) and found.get("third", 0) in (0, 2) for found in _shown(table))
    assert table.check() == ()


@pytest.mark.parametrize("options", ENGINES, ids=str)
def test_a_compaction_that_always_loses_shows_nothing_and_leaves_nothing_behind(options: dict[str, str]) -> None:
    table = _table(options)
    numbers = itertools.count()

    def prepare() -> list[CommitMessage]:
        """Return the result of a compaction that another process planned before the newest commit."""
        number = next(numbers)
        _write(table, f"one {number}", to="a", first=2 * number)
        jobs = plan_jobs(
            table.definition,
            table.env,
            TableCommit(table.definition, table.env).latest(),
            CompactionRequest(partitions=[{"p": "a"}], push_level_0=True),
        )
        early = _run(jobs, table)
        _write(table, f"two {number}", to="ab", first=2 * number + 1)
        return early

    others = [prepare()]

    def run(jobs: Sequence[CompactJob]) -> list[CommitMessage]:
        done = _run(jobs, table)
        TableCommit(table.definition, table.env).commit(Committable(others.pop(), commit_user="other", kind=COMPACT))
        others.append(prepare())
        return done

    with pytest.raises(ConflictError):
        compact(table.definition, table.env, CompactionRequest(push_level_0=True), run=run)
    assert {snapshot.commit_user for snapshot in table.snapshots() if snapshot.commit_kind == "COMPACT"} == {"other"}
    left = {path.rpartition("/")[2] for path in table.remove_orphans(older_than="2999-01-01") if "/data-" in path}
    assert left == {file.name for message in others[0] for file in message.added}
    table.compact()
    assert table.read().count() == 3 * next(numbers)
    assert table.check() == ()


def test_a_request_for_a_partition_shows_its_rows_alone() -> None:
    table = _table(ENGINES[0])
    _write(table, "wide", to="abc")
    table.compact(partitions=[{"p": "a"}])
    assert _shown(table)[-1] == {"wide": 1}


@pytest.mark.parametrize("options", ENGINES, ids=str)
def test_a_full_compaction_is_done_even_if_another_one_has_shown_the_rows(options: dict[str, str]) -> None:
    table = _table(options)
    waits = table.with_options({"write-only": "true"})
    waits.write([{"p": "a", "k": k, "tag": f"old {k * 2654435761 % 2**32}"} for k in range(1000)])
    table.compact(full=True)
    _write(table, "new", to="a", first=1000)
    ran: list[int] = []

    def run(jobs: Sequence[CompactJob]) -> list[CommitMessage]:
        done = _run(jobs, table)
        ran.append(len(jobs))
        if len(ran) == 1:
            compact(table.definition, table.env, CompactionRequest(push_level_0=True, inline=True))
            assert len(set(table.files()["level"].to_pylist())) == 2
        return done

    compact(table.definition, table.env, CompactionRequest(full=True, inline=True), run=run)
    assert ran == [1, 1]
    assert table.files()["level"].to_pylist() == [5]
    assert table.read().count() == 1001


def test_an_error_between_two_rounds_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(ENGINES[0])
    _write(table, "first", to="a")
    state = TableCommit(table.definition, table.env).latest()
    early = _run(plan_jobs(table.definition, table.env, state, CompactionRequest(push_level_0=True)), table)
    _write(table, "second", to="ab", first=1)
    _write(table, "third", to="b", first=2)  # two files become one

    def fail(*_: object) -> None:
        raise StorageError("the store is away")

    def run(jobs: Sequence[CompactJob]) -> list[CommitMessage]:
        """Let a result be kept for the next round, which cannot plan."""
        TableCommit(table.definition, table.env).commit(Committable(early, commit_user="other", kind=COMPACT))
        monkeypatch.setattr(compact_table, "plan_jobs", fail)
        return _run(jobs, table)

    with pytest.raises(StorageError):
        compact(table.definition, table.env, CompactionRequest(push_level_0=True), run=run)
    assert [path for path in table.remove_orphans(older_than="2999-01-01") if "/data-" in path] == []
    assert _shown(table)[-1] == {"first": 1}


def test_a_bucket_that_cannot_be_merged_does_not_hide_the_rows_of_others(caplog: pytest.LogCaptureFixture) -> None:
    catalog = catalog_over(memory_with({}, f"whole-{next(_names)}"))
    catalog.create_database("db")
    options = {
        "bucket": "1",
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "deletion-vectors.enabled": "true",
    }
    table = catalog.create_table(
        "db.t", {"p": "STRING", "k": "INT", "v": "TINYINT"}, primary_key=["p", "k"], partition_by=["p"], options=options
    )
    for number in range(2):
        table.write([{"p": "a", "k": 0, "v": 100}])  # 200 is no TINYINT
        table.write([{"p": p, "k": number, "v": 1} for p in "bc"])
    assert Counter(row["p"] for row in table.read().to_pylist()) == {"a": 1, "b": 2, "c": 2}
    assert "bucket 0 of 'db.t' cannot be compacted" in caplog.text
    with pytest.raises(MerganserError, match="overflow"):
        table.compact()
