"""The processes of a soak. Each works until it is killed; what it must not forget is in its journal."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas  # noqa: F401 - Arrow looks for it when it is first used, and every process that is forked would load it

from merganser import catalog
from merganser.errors import (
    CommitUnknownError,
    ConflictError,
    ExpiredError,
    FormatError,
    NotFoundError,
    StorageError,
)
from tests.catalogs.databases import Backend
from tests.soak.journal import Events, Journal
from tests.soak.tables import TABLES, Judge, Replay, SoakTable, arrow

_AWAY_S = 60.0
"""Maximum seconds that a catalog may take to answer again."""
_SLOW_S = 20.0
"""Seconds of a commit that is noted as a slow one."""


@dataclass(frozen=True)
class Place:
    """Where a soak lies.

    Attributes:
        root: its directory.
        tables: names of the tables that are there.
        backend: names the tables, and is killed at times; None: the file system names them.
    """

    root: Path
    tables: tuple[str, ...]
    backend: Backend | None = None

    @property
    def warehouse(self) -> str:
        """Where the tables lie."""
        return str(self.root / "warehouse")

    def soak_tables(self) -> list[SoakTable]:
        """Return the tables."""
        return [table for table in TABLES if table.name in self.tables]

    @property
    def away(self) -> tuple[type[Exception], ...]:
        """Errors that say that the catalog did not answer."""
        return (StorageError, CommitUnknownError) if self.backend else ()

    def open(self, name: str) -> Any:
        """Return a table, with nothing remembered. A catalog that does not answer is asked again."""
        end = time.monotonic() + _AWAY_S
        while True:
            try:
                return self.catalog().table(f"soak.{name}")
            except self.away:
                if time.monotonic() > end:
                    raise

    def catalog(self) -> Any:
        """Return the catalog, with nothing remembered."""
        options = {"local.sync": "false"}
        if self.backend is None:
            return catalog(self.warehouse, options=options)
        return catalog(self.backend.uri, options=options | self.backend.options(self.warehouse))

    def journal(self, table: str, writer: int) -> Journal:
        """Return the journal of a writer."""
        return Journal(self.root / f"journal-{table}-{writer}")

    def events(self, role: str) -> Events:
        """Return what workers of a role did."""
        return Events(self.root / f"events-{role}")

    def fail(self, why: str) -> None:
        """Say that something is wrong: the soak ends."""
        (self.root / f"failure-{time.time_ns()}").write_text(why)


def work(place: Place, role: str, number: int, seed: int) -> None:
    """Do what a role does, for ever."""
    rng = random.Random(seed)
    try:
        roles = {"writer": _write, "compactor": _compact, "expirer": _expire, "reader": _read, "follower": _follow}
        roles[role](place, number, rng)
    except BaseException as error:
        place.fail(f"{role} {number}: {type(error).__name__}: {error}")
        raise


def commit(place: Place, table: SoakTable, opened: Any, writer: int, n: int, rng: random.Random) -> None:
    """Make a writer's n-th commit, which may be there already."""
    rows = arrow(table.commit(writer, n))
    user = f"writer-{writer}"
    if table.merges:
        merge = opened.merge(rows, "target.k = source.k", commit_user=user, identifier=n)
        merge = merge.when_matched_delete("source.op = '-D'").when_matched_update()
        merge.when_not_matched_insert(condition="source.op <> '-D'").execute()
        return
    kinds: str | None = "op"
    if not table.keyed:
        rows, kinds = rows.drop_columns(["op"]), None
    if rng.random() < 0.5:
        opened.write(rows, kinds=kinds, commit_user=user, identifier=n)
        return
    with opened.writer(commit_user=user) as session:
        done, _ = session.session.applied(n)
        if not done:
            for start in range(0, rows.num_rows, 5):
                session.write(rows.slice(start, 5), kinds=kinds)
            session.commit(n)


def _write(place: Place, number: int, rng: random.Random) -> None:
    opened = {table.name: place.open(table.name) for table in place.soak_tables()}
    events = place.events("writer")
    while True:
        table = rng.choice(place.soak_tables())
        journal = place.journal(table.name, number)
        acknowledged, tried = journal.position()
        n = tried if tried > acknowledged else acknowledged + 1
        if n == tried:
            events.note("commit tried again")
        journal.begin(n)
        begun = time.monotonic()
        try:
            commit(place, table, opened[table.name], number, n, rng)
        except (ConflictError, CommitUnknownError, *place.away) as error:
            events.note(type(error).__name__)
            continue
        finally:
            if time.monotonic() - begun > _SLOW_S:
                events.note("slow commit")
        journal.done(n)
        events.note("commit")


def _compact(place: Place, number: int, rng: random.Random) -> None:
    events = place.events("compactor")
    while True:
        table = rng.choice(place.soak_tables())
        try:
            opened = place.open(table.name)
            if table.rescales and rng.random() < 0.2:
                opened.rescale(rng.choice([1, 2, 3, 4]))
                events.note("rescale")
            made = opened.compact(full=rng.random() < 0.3)
        except (ConflictError, *place.away) as error:
            events.note(type(error).__name__)
            continue
        events.note("nothing to compact" if made is None else "compaction")
        time.sleep(0.05)


def _expire(place: Place, number: int, rng: random.Random) -> None:
    events = place.events("expirer")
    while True:
        table = place.open(rng.choice(place.soak_tables()).name)
        removed = table.expire(retain_max=rng.choice([20, 40]), retain_min=5, older_than="2000-01-01")
        events.note("expiry" if removed else "nothing to expire")
        time.sleep(0.2)


def _read(place: Place, number: int, rng: random.Random) -> None:
    events = place.events("reader")
    judges = {table.name: Judge(table) for table in place.soak_tables()}
    last: dict[str, dict[int, int]] = {table.name: {} for table in place.soak_tables()}
    opened = {table.name: place.open(table.name) for table in place.soak_tables()}
    while True:
        name = rng.choice(place.soak_tables()).name
        table = opened[name] if rng.random() < 0.7 else place.open(name)
        latest = table.latest_snapshot()
        if latest is None:
            continue
        try:
            rows = table.read(snapshot=latest.id).to_pylist()
        except (ExpiredError, NotFoundError, FormatError) as error:
            if latest.id in [snapshot.id for snapshot in place.open(name).snapshots()]:
                place.fail(f"reader {number}: {error!r}")
                return
            events.note("snapshot expired meanwhile")
            continue
        if why := judges[name].wrong(rows):
            place.fail(f"reader {number}, snapshot {latest.id}: {why}")
            return
        heads = judges[name].heads(rows)
        back = {w: n for w, n in last[name].items() if heads.get(w, 0) < n}
        if back:
            place.fail(f"reader {number}, snapshot {latest.id} of {name}: heads went back from {back} to {heads}")
            return
        last[name] = heads
        events.note("read")


def _follow(place: Place, number: int, rng: random.Random) -> None:
    events = place.events("follower")
    table = rng.choice([table for table in place.soak_tables() if table.publishes])
    opened = place.open(table.name)
    stream, replay, begun = opened.stream(follow=False), Replay(), False
    while True:
        try:
            for plan in stream:
                begun = True
                if why := replay.wrong(plan.to_pylist()):
                    place.fail(f"follower {number} of {table.name}, before snapshot {stream.next_snapshot}: {why}")
                    return
                events.note("plan")
        except ExpiredError:
            if begun:
                raise
            stream = opened.stream(follow=False)
            continue
        if table.publishes == "with" and begun:
            try:
                rows = opened.read(snapshot=stream.next_snapshot - 1).to_pylist()
            except (ExpiredError, NotFoundError):
                continue
            if replay.rows != {row["k"]: row for row in rows}:
                place.fail(f"follower {number} of {table.name}: snapshot {stream.next_snapshot - 1} differs")
                return
            events.note("state held against the table")
