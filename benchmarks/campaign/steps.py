"""All steps of one contender of the campaign, in this process; runs in the contender's environment."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Measures, bytes_written, files_under
from benchmarks.processes import tree_cpu_seconds, tree_peak_bytes

from . import rows, workload
from .store import Store, UnsupportedError

LOAD, CHANGES, READ, RANGE = "load", "changes", "read all", "read key range"
LOOKUPS, FEED, COMPACT = "lookups", "change feed", "compact"
READ_COMPACTED, RANGE_COMPACTED = "read all, compacted", "read key range, compacted"
PHASES = (LOAD, CHANGES, READ, RANGE, LOOKUPS, FEED, COMPACT, READ_COMPACTED, RANGE_COMPACTED)
MEASURES = ("seconds", "cpu_seconds", "written_bytes", "written_files")

warm_up = lambda: None  # noqa: E731 - `run` goes through everything on small tables first


def run(
    module: str, warm: str, measured: str, home: str, limit_seconds: float, settings: dict[str, Any]
) -> Callable[[], Measures]:
    """Go through everything on the small workload, and return the same on the measured one.

    Args:
        module: has the `STORE`.
        warm: directory of the small workload.
        measured: directory of the other one.
        home: directory for the tables.
        limit_seconds: no round of changes begins after that many seconds of them.
        settings: what the store is told.

    Returns:
        A function that gives `phases` (name -> `MEASURES`), `unsupported` and `errors`
        (phase -> why), `wrong` (states that were read as other rows) and sizes.
    """
    kind: type[Store] = importlib.import_module(module).STORE
    place = Path(home)
    _Run(kind(place / "warm", settings), workload.opened(Path(warm)), "warm", limit_seconds).go_through()
    shutil.rmtree(place / "warm", ignore_errors=True)

    def action() -> Measures:
        done = _Run(kind(place / "measured", settings), workload.opened(Path(measured)), "lines", limit_seconds)
        return done.go_through()

    return action


class _Run:
    """One pass through the steps."""

    def __init__(self, store: Store, work: workload.Workload, table: str, limit_seconds: float) -> None:
        self.store, self.work, self.table, self.limit_seconds = store, work, table, limit_seconds
        self.follower = f"{table}_follower"
        self.phases: dict[str, dict[str, float]] = {}
        self.unsupported: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.wrong: list[str] = []
        self.sizes: dict[str, int] = {}

    def go_through(self) -> Measures:
        """Do every step; one that fails ends those that need it."""
        try:
            self._steps()
        except _StopError:
            pass
        finally:
            peak = tree_peak_bytes(os.getpid())
            self.store.close()
        return {
            "phases": self.phases,
            "unsupported": self.unsupported,
            "errors": self.errors,
            "wrong": self.wrong,
            "peak_bytes": peak,
            "rows": self.work.expected[f"all {self.work.rounds}"][0],
            **self.sizes,
        }

    def _steps(self) -> None:
        work, last = self.work, self.work.rounds
        self.store.create(self.table)
        for part in range(work.parts):
            new = self.store.input(work.base(part))
            self._cost(LOAD, lambda new=new: self.store.append(self.table, new), needed=True)
        since: Any = None
        for number in range(1, last + 1):
            self._stop_if_slow(number - 1)
            written, deleted = self.store.input(work.written(number)), self.store.input(work.deleted(number))
            self._cost(CHANGES, lambda w=written, d=deleted: self.store.change(self.table, w, d), needed=True)
            if number % workload.READ_EVERY == 0:
                found = self._read(READ, RANGE, number)
                if number == last - workload.READ_EVERY:
                    since = self._second_table(found)
        self.sizes["disk_bytes"] = self._disk_bytes()
        found = self._cost(LOOKUPS, lambda: self.store.look_up(self.table, work.keys))
        self._check("keys", LOOKUPS, found)
        self._cost(FEED, lambda: self.store.feed(self.table, self.follower, since))
        if self._did(FEED):
            self._check(f"all {last}", FEED, self.store.read(self.follower))
        self._cost(COMPACT, lambda: self.store.compact(self.table))
        if self._did(COMPACT):
            self._read(READ_COMPACTED, RANGE_COMPACTED, last)
            self.sizes["compacted_disk_bytes"] = self._disk_bytes()

    def _read(self, all_rows: str, some: str, number: int) -> Any:
        part = self._cost(some, lambda: self.store.read(self.table, self.work.key_range))
        self._check(f"range {number}", some, part)
        found = self._cost(all_rows, lambda: self.store.read(self.table))
        self._check(f"all {number}", all_rows, found)
        return found

    def _second_table(self, found: Any) -> Any:
        """Make the second table, as the first is now; returns the position after it."""
        try:
            self.store.copy(self.follower, found)
            return self.store.position(self.table)
        except Exception as error:
            self.errors[FEED] = _said(error)
            return None

    def _stop_if_slow(self, done: int) -> None:
        spent = self.phases[CHANGES]["seconds"] if done else 0.0
        if spent > self.limit_seconds:
            self.unsupported[CHANGES] = f"{done} of {self.work.rounds} rounds took {spent:.0f} s, and none followed"
            raise _StopError

    def _disk_bytes(self) -> int:
        return sum(size for size, _ in files_under(self.store.path(self.table)).values())

    def _did(self, phase: str) -> bool:
        return phase not in self.errors and phase not in self.unsupported

    def _cost(self, phase: str, work: Callable[[], Any], *, needed: bool = False) -> Any:
        """Do something and add what it cost to its phase; None if it failed now or before."""
        if not self._did(phase):
            return None
        before = files_under(self.store.home)
        os.sync()
        cpu, wall = tree_cpu_seconds(os.getpid()), time.perf_counter()
        try:
            found = work()
        except UnsupportedError as error:
            self.unsupported[phase] = str(error)
            return None
        except Exception as error:
            self.errors[phase] = _said(error)
            print(f"{self.table}: {phase}: {self.errors[phase]}", file=sys.stderr, flush=True)
            if needed:
                raise _StopError from error
            return None
        seconds, cpu = time.perf_counter() - wall, tree_cpu_seconds(os.getpid()) - cpu
        spent = self.phases.setdefault(phase, dict.fromkeys(MEASURES, 0.0))
        spent["seconds"] += seconds
        spent["cpu_seconds"] += cpu
        after = files_under(self.store.home)
        spent["written_bytes"] += bytes_written(before, after)
        spent["written_files"] += sum(before.get(path) != facts for path, facts in after.items())
        return found

    def _check(self, state: str, phase: str, found: Any) -> None:
        if found is None:
            return
        seen, wanted = self.store.digest(found), self.work.expected[state]
        if seen != wanted:
            self.wrong.append(f"{self.table}, {phase}, {state}: {_shown(seen)} instead of {_shown(wanted)}")


def _shown(found: rows.Digest) -> str:
    return " ".join(map(str, found))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


class _StopError(Exception):
    """A step failed or was too slow, and those after it need what it should have done."""
