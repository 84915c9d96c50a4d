"""Starts writers and a reader, kills some of the writers at random moments, and judges every read and the end."""

from __future__ import annotations

import logging
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from merganser import catalog
from merganser.commit.table_commit import TableCommit
from merganser.errors import CommitUnknownError, ConflictError, MerganserError, StorageError
from merganser.meta.snapshot import COMPACT
from merganser.storage.protocol import Storage, no_lock
from merganser.write import buffer
from tests.catalogs.databases import DISTURBED_S, Backend, Backends
from tests.s3_server import Bucket
from tests.serial.workloads import WORKLOADS, Commit, Judge, by_key, changes_of
from tests.soak.journal import Events, Journal

FAST = {"local.sync": "false"}
_AWAY_S = 60.0
"""Maximum seconds that a catalog may take to answer again."""
_SLOW_S = 20.0
"""Seconds of a commit that is noted as a slow one."""


@dataclass(frozen=True)
class Place:
    """Where a run keeps its things.

    Attributes:
        directory: for what it notes, on the local disk.
        warehouse: of its table.
        options: of the warehouse.
    """

    directory: Path
    warehouse: str
    options: dict[str, str]

    def table(self) -> Any:
        """Open the table. A catalog that does not answer is asked again."""
        end = time.monotonic() + _AWAY_S
        while True:
            try:
                return catalog(self.warehouse, options=self.options).table("db.t")
            except StorageError:
                if time.monotonic() > end:
                    raise

    def failures(self) -> list[str]:
        """Return what went wrong in some process."""
        return [path.read_text() for path in sorted(self.directory.glob("failure-*"))]


@dataclass
class Found:
    """What a run found."""

    commits: int = 0
    per_writer: list[int] = field(default_factory=list)
    reads: int = 0
    killed: int = 0
    disturbed: Counter[str] = field(default_factory=Counter)
    events: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return the numbers."""
        told = {**self.events, **{f"times {part} killed": count for part, count in self.disturbed.items()}}
        events = ", ".join(f"{count} {what}" for what, count in sorted(told.items()))
        return (
            f"{self.commits} commits ({min(self.per_writer, default=0)} to {max(self.per_writer, default=0)} by a "
            f"writer), {self.reads} reads judged, {self.killed} killed; {events}"
        )


class Losing:
    """A storage that loses some replies: the call is done, and the caller is told that it failed."""

    def __init__(self, inner: Storage, rng: random.Random, share: float) -> None:
        self._inner = inner
        self._rng = rng
        self._share = share
        self.locks = True

    def try_lock(self, directory: str) -> Callable[[], None] | None:
        return self._inner.try_lock(directory) if self.locks else no_lock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, path: str, data: bytes) -> None:
        self._inner.create(path, data)
        self._lose(path)

    def delete(self, paths: Any) -> None:
        self._inner.delete(paths)
        self._lose("")

    def read(self, path: str) -> bytes:
        data = self._inner.read(path)
        self._lose(path)
        return data

    def _lose(self, path: str) -> None:
        if self._rng.random() < self._share:
            raise StorageError("the reply was lost", path=path)


def run(
    name: str,
    *,
    seconds: float,
    seed: int = 0,
    writers: int = 8,
    pause_s: float = 1.0,
    losses: float = 0.01,
    bucket: Bucket | None = None,
    backends: Backends | None = None,
    disturbed_s: float = DISTURBED_S,
) -> Found:
    """Run a workload in a directory of its own, or in a bucket.

    Args:
        pause_s: mean time between kills; 0: nobody is killed.
        losses: the share of calls to the store whose reply is lost, and of requests to a catalog that go wrong.
        backends: make the catalog that names the table, and has locks for commits or makes them. At times the
            catalog is killed.
        disturbed_s: mean time between kills of the catalog.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pandas", "tests.serial.driver"])
    found = Found()
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="merganser-serial-", ignore_cleanup_errors=True) as root:
        place = Place(Path(root), root, FAST) if bucket is None else Place(Path(root), bucket.root, bucket.options)
        backend: Backend | None = None
        if backends is not None:
            backend = backends.emptied(f"serial_{seed}_{name.replace('-', '_')}", Path(root))
            place = Place(Path(root), backend.uri, {**place.options, **backend.options(place.warehouse)})
        made_in = catalog(place.warehouse, options=place.options)
        made_in.create_database("db")
        WORKLOADS[name].create(made_in)
        if backend is not None:
            backend.lose(losses, seed)

        def started(writer: int) -> Any:
            process = context.Process(target=_write, args=(name, place, writer, rng.randrange(1 << 30), losses))
            process.start()
            return process

        running = [started(writer) for writer in range(writers)]
        reader = context.Process(target=_read, args=(name, place))
        reader.start()
        try:
            while not (place.table().latest_snapshot() or place.failures()):
                time.sleep(0.05)
            end = time.perf_counter() + seconds
            while time.perf_counter() < end and not place.failures():
                time.sleep(min(rng.expovariate(1 / pause_s) if pause_s else seconds, seconds))
                if pause_s and time.perf_counter() < end:
                    victim = rng.randrange(writers)
                    if backend is not None and rng.random() < pause_s / disturbed_s and (part := backend.disturb(rng)):
                        found.disturbed[part] += 1
                        continue
                    running[victim].kill()
                    running[victim].join()
                    running[victim] = started(victim)
                    found.killed += 1
        finally:
            for process in (*running, reader):
                process.kill()
                process.join()
        try:
            if backend is not None:
                backend.lose(0)
            found.problems = place.failures()
            _settle(name, place, writers, found)
        finally:
            if backend is not None:
                backend.close()
    return found


def _settle(name: str, place: Place, writers: int, found: Found) -> None:
    """Hold the end state against the commits, and the commits against what writers were told."""
    table = place.table()
    commits = _commits(table, 0, 1 << 60)
    found.commits = len(commits)
    found.per_writer = [sum(writer == one for one, _ in commits) for writer in range(writers)]
    found.events = Events(place.directory / "events").counts()
    found.reads = found.events.pop("read", 0)
    if len(set(commits)) < len(commits):
        found.problems.append(f"{name}: a commit was applied twice")
    for writer in range(writers):
        told, tried = Journal(place.directory / f"journal-{writer}").position()
        made = sorted(n for one, n in commits if one == writer)
        if made != list(range(1, len(made) + 1)) or not told <= len(made) <= tried:
            found.problems.append(f"{name}: writer {writer} was told {told} of {tried}; the table has {made[-3:]}")
    if why := Judge(name).wrong(commits, table.read().to_pylist()):
        found.problems.append(f"end: {why}")
    found.problems += [f"check: {finding}" for finding in table.check()]


def _commits(table: Any, after: int, up_to: int) -> list[Commit]:
    """Return the commits of some snapshots, in their order."""
    snapshots = TableCommit(table.definition, table.env).reader.snapshots
    found = []
    number = after + 1
    while number <= up_to and (snapshot := snapshots.get(number)) is not None:
        if snapshot.commit_kind != COMPACT:
            found.append((int(snapshot.commit_user), snapshot.commit_identifier))
        number += 1
    return found


def _write(name: str, place: Place, writer: int, seed: int, losses: float) -> None:
    """Commit for ever; after a failure, the same again."""
    logging.disable()  # of upkeep that lost a reply
    rng = random.Random(seed)
    table = place.table()
    table.env.storage = Losing(table.env.storage, rng, losses)
    if rng.random() < 0.5:  # as a writer on a store without locks
        table.env.storage.locks = False
        buffer.SMALL_BYTES = 0
    journal, events = Journal(place.directory / f"journal-{writer}"), Events(place.directory / "events")
    told, tried = journal.position()
    n = tried if tried > told else told + 1
    while True:
        journal.begin(n)
        begun = time.monotonic()
        try:
            _commit(name, table, (writer, n))
        except (ConflictError, CommitUnknownError, StorageError) as error:
            events.note(type(error).__name__)
            continue
        except BaseException as error:
            (place.directory / f"failure-{time.time_ns()}").write_text(f"{name}: writer {writer}: {error!r}")
            raise
        finally:
            if time.monotonic() - begun > _SLOW_S:
                events.note("slow commit")
        journal.done(n)
        n += 1


def _commit(name: str, table: Any, commit: Commit) -> None:
    """Make a commit, which may be there already."""
    workload, rows = WORKLOADS[name], []
    if workload.reads_first:
        newest = table.latest_snapshot()
        if newest is not None:
            rows = by_key(table.read(snapshot=newest.id).to_pylist())
        safe = 0 if newest is None else newest.id
        table = table.with_options({"commit.strict-mode.last-safe-snapshot": str(safe), "commit.max-retries": "0"})
    data = workload.arrow(changes_of(workload, name, commit, rows))
    if workload.merges_on:
        user, number = str(commit[0]), commit[1]
        merge = table.merge(data, on=workload.merges_on, commit_user=user, identifier=number)
        merge = merge.when_matched_update({"balance": "target.balance + source.balance"})
        merge.when_not_matched_insert({name: f"source.{name}" for name in workload.columns}).execute()
        return
    kinds: str | None = "op"
    if not workload.key:
        data, kinds = data.drop_columns(["op"]), None
    table.write(data, kinds=kinds, commit_user=str(commit[0]), identifier=commit[1])


def _read(name: str, place: Place) -> None:
    """Read for ever, and judge what was read."""
    events, judge = Events(place.directory / "events"), Judge(name)
    table = place.table()
    commits: list[Commit] = []
    seen = 0
    while True:
        try:
            newest = table.latest_snapshot()
            if newest is None:
                continue
            commits += _commits(table, seen, newest.id)
            seen = newest.id
            why = judge.wrong(commits, table.read(snapshot=newest.id).to_pylist())
        except MerganserError as error:
            why = repr(error)
        if why:
            (place.directory / f"failure-{time.time_ns()}").write_text(f"snapshot {seen}: {why}")
            return
        events.note("read")
        time.sleep(0.02)
