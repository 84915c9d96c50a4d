"""Starts the processes of a soak, kills them at random moments, starts them again, and settles the account."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from merganser.errors import UnsupportedError
from tests.catalogs.databases import DISTURBED_S, Backends
from tests.soak.tables import TABLES, WRITERS, Judge, Replay
from tests.soak.workers import Place, commit, work

_LOSSES = 0.02
"""Share of the requests to a catalog that go wrong."""
ROLES = (("writer", WRITERS), ("compactor", 2), ("expirer", 1), ("reader", 2), ("follower", 2))


@dataclass
class Soak:
    """One run.

    Attributes:
        kills: how many processes are killed.
        seconds_max: it ends then, whatever was killed.
        pause_s: mean time between kills.
        roles: how many processes of each.
        backends: make the catalog that names the tables, and has locks for commits or makes them. Every fifth kill is
            one of the catalog.
    """

    kills: int
    seed: int
    seconds_max: float
    pause_s: float = 0.3
    roles: tuple[tuple[str, int], ...] = ROLES
    quiet: bool = False
    backends: Backends | None = None
    killed: Counter[str] = field(default_factory=Counter)
    numbers: dict[str, Any] = field(default_factory=dict)

    def run(self) -> list[str]:
        """Run it in a directory of its own. Return what is wrong; empty when nothing is."""
        with tempfile.TemporaryDirectory(prefix="merganser-soak-", ignore_cleanup_errors=True) as root:
            backend = self.backends and self.backends.emptied(f"soak_{self.seed}", Path(root))
            try:
                empty = Place(Path(root), (), backend)
                place = replace(empty, tables=_created(empty))
                if backend is not None:
                    backend.lose(_LOSSES, self.seed)
                start = time.perf_counter()
                problems = self._storm(place)
                self.numbers["seconds under load"] = round(time.perf_counter() - start, 1)
                if backend is not None:
                    backend.lose(0)
                return problems or self._settled(place)
            finally:
                if backend is not None:
                    backend.close()

    def _storm(self, place: Place) -> list[str]:
        rng = random.Random(self.seed)
        slots = [(role, number) for role, count in self.roles for number in range(count)]
        running = {slot: _started(place, slot, rng.randrange(1 << 30)) for slot in slots}
        end = time.perf_counter() + self.seconds_max
        said = time.perf_counter()
        try:
            while sum(self.killed.values()) < self.kills and time.perf_counter() < end:
                time.sleep(rng.expovariate(1 / self.pause_s))
                if failures := _failures(place):
                    return failures
                if (
                    place.backend is not None
                    and rng.random() < self.pause_s / DISTURBED_S
                    and (part := place.backend.disturb(rng))
                ):
                    self.killed[f"{part} of the catalog"] += 1
                    continue
                slot = rng.choice(slots)
                _kill(running.pop(slot))
                self.killed[slot[0]] += 1
                running[slot] = _started(place, slot, rng.randrange(1 << 30))
                if time.perf_counter() - said > 10 and not self.quiet:
                    said = time.perf_counter()
                    self._say(f"{sum(self.killed.values())} of {self.kills} killed, {_line(place)}")
        finally:
            for pid in running.values():
                _kill(pid)
        return _failures(place)

    def _settled(self, place: Place) -> list[str]:
        """Hold the tables against the journals, then try again what was not acknowledged, and hold them again."""
        problems = []
        for again in (False, True):
            for table in place.soak_tables():
                opened = place.open(table.name)
                positions = [place.journal(table.name, writer).position() for writer in range(WRITERS)]
                if again:
                    for writer, (done, tried) in enumerate(positions):
                        if tried > done:
                            commit(place, table, opened, writer, tried, random.Random(self.seed))
                    positions = [(tried, tried) for _, tried in positions]
                if table.later or table.publishes == "after":
                    opened.compact(full=True)
                rows = opened.read().to_pylist()
                if table.publishes:
                    problems += _replayed(opened, rows)
                judge = Judge(table)
                heads = judge.heads(rows)
                if why := judge.wrong(rows):
                    problems.append(why)
                for writer, (done, tried) in enumerate(positions):
                    if not done <= heads.get(writer, 0) <= tried:
                        problems.append(
                            f"{table.name}: writer {writer} was told that commits up to {done} stand and tried "
                            f"{tried}; the table has {heads.get(writer, 0)}"
                        )
                problems += [f"check: {finding}" for finding in opened.check()]
        self._count(place)
        return problems

    def _count(self, place: Place) -> None:
        for part in sorted({*self.killed} - {role for role, _ in self.roles}):
            self.numbers[f"{part} killed"] = self.killed[part]
        for role, _ in self.roles:
            self.numbers[f"{role}s killed"] = self.killed[role]
            for what, count in sorted(place.events(role).counts().items()):
                self.numbers[f"{role}: {what}"] = count
        for table in place.soak_tables():
            newest = place.open(table.name).latest_snapshot()
            self.numbers[f"snapshots of {table.name}"] = 0 if newest is None else newest.id

    def _say(self, text: str) -> None:
        print(text, flush=True)


def _replayed(table: Any, rows: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with the changelog from the first snapshot on, which has expired."""
    replay = Replay()
    if why := replay.wrong(table.changes(1).to_pylist()):
        return [f"changelog of {table.name}: {why}"]
    if replay.rows != {row["k"]: row for row in rows}:
        return [f"changelog of {table.name}: replayed, it is not the table"]
    return []


def _created(place: Place) -> tuple[str, ...]:
    """Make the tables, in a process of their own: what this one starts later must not inherit its threads."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            made_in = place.catalog()
            made_in.create_database("soak")
            made = []
            for table in TABLES:
                try:
                    table.create(made_in)
                    made.append(table.name)
                except UnsupportedError:
                    continue
            (place.root / "tables").write_text("\n".join(made))
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("the tables could not be made")
    return tuple((place.root / "tables").read_text().split("\n"))


def _started(place: Place, slot: tuple[str, int], seed: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        work(place, slot[0], slot[1], seed)
    finally:
        os._exit(1)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _failures(place: Place) -> list[str]:
    return [path.read_text() for path in sorted(place.root.glob("failure-*"))]


def _line(place: Place) -> str:
    commits = place.events("writer").counts().get("commit", 0)
    return f"{commits} commits, {place.events('reader').counts().get('read', 0)} reads judged"


def report(soak: Soak, problems: list[str]) -> int:
    """Print the numbers, and what is wrong; return the exit code."""
    for name, value in soak.numbers.items():
        print(f"{name:<42} {value:>10}")
    for problem in problems[:20]:
        print("WRONG", problem, file=sys.stderr)
    print(f"{'wrong':<42} {len(problems):>10}")
    return 1 if problems else 0
