"""Compactions beside others: only what the others changed is done again, and in the end it is done."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.catalogs.catalog import Catalog
from merganser.commit.committable import Committable
from merganser.commit.table_commit import TableCommit
from merganser.errors import ConflictError, FormatError
from merganser.lsm.compact import CompactJob
from merganser.meta.snapshot import COMPACT
from merganser.meta.table_state import MetaReader
from merganser.upkeep.plan_compaction import CompactionRequest, plan_jobs
from tests.kit.builders import catalog_over, contents, memory_with

_names = itertools.count()


def _table(**options: str) -> mg.Table:
    return _filled(catalog_over(memory_with({}, f"races-{next(_names)}")), **options)


def _filled(catalog: Catalog, **options: str) -> mg.Table:
    catalog.create_database("db")
    every = {"bucket": "1", "write-only": "true", "commit.max-retries": "2"}
    table = catalog.create_table(
        "db.t",
        {"p": "STRING", "k": "INT", "v": "STRING"},
        primary_key=["p", "k"],
        partition_by=["p"],
        options=every | options,
    )
    for number in range(3):
        table.write([_row(k, f"{number}", p) for p in "ab" for k in range(number + 1)])
    return table


def _row(k: int, v: str = "", p: str = "a") -> dict[str, Any]:
    return {"p": p, "k": k, "v": v}


def _other(table: mg.Table) -> mg.Table:
    return catalog_over(table.env.storage).table("db.t")


def _rows(table: mg.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in _other(table).read().to_pylist())


def _before_commits(patch: pytest.MonkeyPatch, others: list[Callable[[], object]]) -> None:
    """Let somebody do something before each commit of a compaction, as long as there is something."""
    commit = TableCommit.commit

    def late(commits: TableCommit, change: Committable, **how: Any) -> Any:
        if change.kind == COMPACT and others:
            work = others.pop(0)
            waiting = others.copy()
            others.clear()  # what the other does is not disturbed itself
            work()
            others.extend(waiting)
        return commit(commits, change, **how)

    patch.setattr(TableCommit, "commit", late)


def _counted(patch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the partitions of the jobs that run from now on."""
    ran: list[bytes] = []
    run = CompactJob.run

    def counting(job: CompactJob, *how: Any) -> Any:
        ran.append(job.partition)
        return run(job, *how)

    patch.setattr(CompactJob, "run", counting)
    return ran


def _no_orphans(table: mg.Table) -> None:
    """Every data file in the storage was added by a snapshot."""
    other = _other(table)
    reader = MetaReader(other.definition.paths, other.env, other.name)
    added = {entry.file.name for snapshot in other.snapshots() for entry in reader.delta(snapshot)}
    assert added.issuperset(p.rsplit("/", 1)[-1] for p in contents(table.env.storage) if "/bucket-" in p)


def test_what_nobody_else_changed_is_committed_and_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    ran = _counted(monkeypatch)
    _before_commits(monkeypatch, [lambda: _other(table).write([_row(9, "over")], overwrite={"p": "a"})])
    assert table.compact(full=True) is not None
    assert len(ran) == len(set(ran)) == 2
    assert _rows(table) == [("a", 9, "over"), *(("b", k, "2") for k in range(3))]
    assert {(file["partition"], file["level"]) for file in _other(table).files().to_pylist()} == {
        ("{a}", 5),
        ("{b}", 5),
    }
    _no_orphans(table)


def test_what_others_changed_is_planned_again_from_what_they_made(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()

    def other() -> None:
        _other(table).compact(full=True, partitions=[{"p": "a"}])
        _other(table).write([_row(0, "newest")])

    before = _rows(table)
    ran = _counted(monkeypatch)
    _before_commits(monkeypatch, [other])
    table.compact(full=True)
    assert _rows(table) == [("a", 0, "newest"), *before[1:]]
    assert len(ran) == 4, "both partitions, the other's, and one again"
    assert {file["level"] for file in _other(table).files().to_pylist()} == {5}
    _no_orphans(table)
    assert _other(table).check() == ()


def test_a_compaction_gets_through_however_often_it_loses_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()

    def other(number: int) -> None:
        found = _other(table)
        found.write([_row(number, "other", p) for p in "ab"])
        found.compact(full=True)
        found.write([_row(number, "later", p) for p in "ab"])

    _before_commits(monkeypatch, [lambda number=number: other(number) for number in range(8)])
    assert table.compact(full=True) is not None
    assert _rows(table) == sorted((p, k, "later") for p in "ab" for k in range(8))
    assert {file["level"] for file in _other(table).files().to_pylist()} == {5}


def test_a_compaction_that_always_loses_to_others_ends_once_they_have_done_its_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = _table()
    lost: list[int] = []

    def other() -> None:
        lost.append(1)
        found = _other(table)
        found.write([_row(1, "other", p) for p in "ab"])
        found.compact(full=True)
        found.write([_row(1, "later", p) for p in "ab"])

    _before_commits(monkeypatch, [other] * 100)
    assert table.compact(full=True) is None
    assert len(lost) == 10
    _no_orphans(table)
    assert ("a", 1, "later") in _rows(table)


def test_a_compaction_that_always_loses_and_is_not_done_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    early = [f["file_path"].rsplit("/", 1)[-1] for f in table.files().to_pylist()]

    def other() -> None:
        """Replace what came after the first look, and nothing else."""
        found = _other(table)
        state = TableCommit(found.definition, found.env).latest()
        jobs = plan_jobs(found.definition, found.env, state, CompactionRequest(full=True))
        later = [replace(job, files=tuple(f for f in job.files if f.name not in early)) for job in jobs]
        done = [message for job in later if job.files for message in job.run(found.env)]
        TableCommit(found.definition, found.env).commit(
            Committable(done, commit_user="other", kind=COMPACT, allow_empty=True)
        )
        found.write([_row(1, "later", p) for p in "ab"])

    lost: list[Callable[[], object]] = [other] * 20
    table.write([_row(1, "some", p) for p in "ab"])
    _before_commits(monkeypatch, lost)
    with pytest.raises(ConflictError, match=r"cannot commit to 'db\.t'"):
        table.compact(full=True)
    assert len(lost) == 10
    _no_orphans(table)


@pytest.mark.parametrize("quick", [True, False])
def test_a_quick_compaction_that_has_lost_keeps_the_turn_until_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    monkeypatch.setattr("merganser.upkeep.compact_table._TURN_S", 60.0 if quick else -1.0)  # whatever the machine does
    table = _filled(mg.catalog(str(tmp_path)))
    directory = table.definition.paths.snapshot_directory
    free: list[bool] = []

    def other() -> None:
        release = table.env.storage.try_lock(directory)
        free.append(release is not None)
        if release is not None:
            release()
        if len(free) == 1:
            mg.table(table.path).compact(full=True)
            mg.table(table.path).write([_row(0, "later", p) for p in "ab"])

    _before_commits(monkeypatch, [other, other])
    assert table.compact(full=True) is not None
    assert free == [True, not quick]
    release = table.env.storage.try_lock(directory)
    assert release is not None
    release()
    assert {file["level"] for file in table.files().to_pylist()} == {5}


def test_files_that_vanish_because_others_replaced_them_are_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    run = CompactJob.run
    struck: list[CompactJob] = []

    def late(job: CompactJob, *how: Any) -> Any:
        if not struck:
            struck.append(job)
            _other(table).write([_row(9, "over", p) for p in "ab"], overwrite={})
            table.env.storage.delete([f"{job.directory}/{file.name}" for file in job.files])
        return run(job, *how)

    monkeypatch.setattr(CompactJob, "run", late)
    table.compact(full=True)
    assert _rows(table) == [("a", 9, "over"), ("b", 9, "over")]


def test_files_that_are_missing_although_they_are_live_are_damage() -> None:
    table = _table()
    lost = table.files().to_pylist()[0]["file_path"]
    table.env.storage.delete([path for path in contents(table.env.storage) if path.endswith(lost.rsplit("/", 1)[-1])])
    with pytest.raises(FormatError, match="metadata names it, but it is missing"):
        table.compact(full=True)
    _no_orphans(table)


def test_a_lost_race_for_snapshot_ids_costs_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    before = _rows(table)
    ran = _counted(monkeypatch)
    create, busy = TableCommit._create, [True] * 7

    def taken(commits: TableCommit, snapshot: Any, *rest: Any) -> Any:
        if snapshot.commit_kind == COMPACT and busy:
            busy.pop()
            _other(table).write([_row(0, f"{len(busy)}")])
        return create(commits, snapshot, *rest)

    monkeypatch.setattr(TableCommit, "_create", taken)
    assert table.compact(full=True) is not None
    assert not busy
    assert len(ran) == 2
    assert _rows(table) == [("a", 0, "0"), *before[1:]]
