"""Measure actions of several contenders in fresh processes, and show and keep what they cost.

A contender is a module with the actions as functions (`ours.py`, `floor.py`, `peer_rust.py`, ...) and the interpreter
to run it. `Bench.measure` runs one action of every contender in turn, `runs` times over, so that a machine that grows
slower slows everyone alike; what is reported is the median of the runs, of each measure for itself. Before every run
the disk's write queue is emptied, so that nobody pays for the one before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
Measures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contender:
    """Who is measured: a module with the actions, and how to find the interpreter that runs it."""

    name: str
    module: str
    interpreter: Callable[[], str] = lambda: sys.executable
    slow: bool = False
    """Measured once, whatever the number of runs."""


def _peer_interpreter(name: str) -> str:
    from tests.interop import peers  # the peers' environments are made by their tests' harness

    kind = peers.PYPAIMON if name == "pypaimon" else peers.RUST
    return str(peers.environment_of(kind))


FLOOR = Contender("floor", "benchmarks.floor")
MERGANSER = Contender("merganser", "benchmarks.ours")
RUST = Contender("pypaimon-rust", "benchmarks.peer_rust", lambda: _peer_interpreter("pypaimon-rust"))
PYPAIMON = Contender("pypaimon", "benchmarks.peer_pypaimon", lambda: _peer_interpreter("pypaimon"), slow=True)


@dataclass(frozen=True, slots=True)
class Result:
    """One action of one contender: the measures of each run."""

    action: str
    contender: str
    runs: tuple[Measures, ...]
    error: str | None = None

    def median(self, measure: str) -> float | None:
        """Median of one measure over the runs that have it."""
        found = [run[measure] for run in self.runs if run.get(measure) is not None]
        return statistics.median(found) if found else None


@dataclass(slots=True)
class Bench:
    """One benchmark run: its options, its directory, and the results so far."""

    name: str
    options: argparse.Namespace
    contenders: Sequence[Contender]
    results: list[Result] = field(default_factory=list)
    floors: dict[str, float | None] = field(default_factory=dict)
    """Seconds of the floor that each action is held against."""

    @property
    def work(self) -> Path:
        """The directory of cached data and of this run's tables."""
        return Path(self.options.work).resolve()

    def wanted(self, action: str) -> bool:
        """Whether `--only` leaves this action in."""
        return not self.options.only or any(action.startswith(prefix) for prefix in self.options.only)

    def measure(
        self,
        action: str,
        function: str | Callable[[Contender], str],
        arguments: Callable[[Contender], Mapping[str, Any]],
        *,
        before: Callable[[Contender], None] | None = None,
        after: Callable[[Contender, Measures], None] | None = None,
        only: Iterable[Contender] | None = None,
        beside: Sequence[Contender] = (),
        runs: int | None = None,
        floor: str | None = None,
    ) -> None:
        """Measure `function` of every contender and show the results.

        Args:
            action: the name it goes by in the table; skipped unless `--only` wants it.
            function: the function of the contenders' modules that prepares the action; may differ between them.
            arguments: the arguments of that function for a contender; must be JSON.
            before: called before each run, unmeasured, to make the tables the action needs.
            after: called after each run with its measures, which it may add to.
            only: the contenders that can do it; None for all.
            beside: taken in turn with them, whatever `--contenders` says.
            runs: how often; None for `--runs`, and once for a slow contender.
            floor: the action whose floor this one is held against; None for its own.
        """
        if not self.wanted(action):
            return
        allowed = None if only is None else set(only)
        taking_part = [contender for contender in self.contenders if allowed is None or contender in allowed]
        if not taking_part:
            return
        taking_part = [*beside, *taking_part]
        found: dict[str, list[Measures]] = {contender.name: [] for contender in taking_part}
        errors: dict[str, str] = {}
        for i in range(runs or self.options.runs):
            for contender in taking_part:
                if contender.name in errors or (contender.slow and i > 0):
                    continue
                try:
                    if before:
                        before(contender)
                    os.sync()
                    named = function if isinstance(function, str) else function(contender)
                    measures = run_child(contender, named, arguments(contender))
                    if after:
                        after(contender, measures)
                    found[contender.name].append(measures)
                except ActionFailedError as error:
                    errors[contender.name] = str(error)
                    print(f"{action}: {contender.name} failed: {error}", file=sys.stderr)
        block = [Result(action, c.name, tuple(found[c.name]), errors.get(c.name)) for c in taking_part]
        self.results += block
        self.floors[action] = self._floor_of(floor or action)
        print_block(action, block, self.floors[action])

    def _floor_of(self, action: str) -> float | None:
        """Median seconds of the floor in an action; None if it was not measured."""
        floors = [r.median("seconds") for r in self.results if r.contender == FLOOR.name and r.action == action]
        return floors[0] if floors else None

    def finish(self) -> None:
        """Keep the results as JSON if `--save` was given."""
        if self.options.save:
            RESULTS.mkdir(exist_ok=True)
            path = RESULTS / f"{self.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
            path.write_text(json.dumps(self._document(), indent=1) + "\n", encoding="utf-8")
            print(f"saved {path}")

    def _document(self) -> dict[str, Any]:
        settings = {key: value for key, value in vars(self.options).items() if key not in ("work", "save")}
        return {
            "benchmark": self.name,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "settings": settings,
            "results": [
                {
                    "action": result.action,
                    "contender": result.contender,
                    "median": {name: result.median(name) for name in numbers_of(result)},
                    "floor_seconds": self.floors.get(result.action),
                    "runs": list(result.runs),
                    "error": result.error,
                }
                for result in self.results
            ],
        }


class ActionFailedError(RuntimeError):
    """The child process of an action ended without a result."""


def run_child(contender: Contender, function: str, arguments: Mapping[str, Any]) -> Measures:
    """The measures of one action, run in a fresh process of the contender's interpreter.

    Raises:
        ActionFailedError: with the last lines of what the process said.
    """
    command = [contender.interpreter(), "-m", "benchmarks.child", contender.module, function]
    done = subprocess.run(command, cwd=ROOT, input=json.dumps(arguments), capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        raise ActionFailedError(done.stderr.strip()[-800:] or f"ended with {done.returncode}")
    measures: Measures = json.loads(done.stdout.strip().splitlines()[-1])
    return measures


# ── options and contenders ────────────────────────────────────────────────────────────────────────────────────────────


def parser(description: str, *, rows: int = 5_000_000) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--rows", type=int, default=rows, help=f"rows of the base (default {rows:,})")
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--runs", type=int, default=3, help="runs of each action; medians are reported (default 3)")
    options.add_argument("--only", action="append", metavar="ACTION", help="actions whose name begins so (repeatable)")
    options.add_argument("--contenders", help="comma-separated names; default: all")
    options.add_argument("--work", default=".bench", help="directory for data and tables (default .bench)")
    options.add_argument("--save", action="store_true", help="keep the results in benchmarks/results")
    return options


def start(name: str, options: argparse.Namespace, contenders: Sequence[Contender]) -> Bench:
    """A bench for the chosen contenders; makes the work directory, which git ignores.

    Raises:
        SystemExit: `--contenders` has a name that is none.
    """
    chosen = list(contenders)
    if options.contenders:
        names = [text.strip() for text in options.contenders.split(",")]
        known = {contender.name: contender for contender in contenders}
        unknown = [text for text in names if text not in known]
        if unknown:
            raise SystemExit(f"no contender {unknown[0]!r}; there are: {', '.join(known)}")
        chosen = [known[text] for text in names]
    bench = Bench(name, options, chosen)
    bench.work.mkdir(parents=True, exist_ok=True)
    (bench.work / ".gitignore").write_text("*\n", encoding="utf-8")
    for contender in chosen:
        contender.interpreter()  # makes a peer's environment now and not inside a measurement
    facts = machine()
    print(f"{name}: {facts['processor']}, {facts['cores']} cores, load {facts['load']}, Python {facts['python']}")
    return bench


def machine() -> dict[str, Any]:
    """What the numbers depend on: processor, memory, system, versions, commit, load before the run."""
    versions = {}
    for package in ("merganser", "polars", "pyarrow", "numpy", "pyspark"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
        "commit": commit.stdout.strip() if commit.returncode == 0 else None,
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


# ── tables on disk ────────────────────────────────────────────────────────────────────────────────────────────────────


class Tables:
    """The tables of one run of a benchmark, one warehouse for each contender, dropped at the end."""

    def __init__(self, work: Path) -> None:
        """Nothing is made before the first table."""
        self.directory = work / f"run-{uuid.uuid4().hex[:8]}"

    def path(self, contender: Contender, name: str) -> Path:
        """Where the table `db.<name>` of a contender lies."""
        return self.directory / contender.name / "db.db" / name

    def drop(self, contender: Contender, name: str) -> None:
        """Remove a table if it is there."""
        shutil.rmtree(self.path(contender, name), ignore_errors=True)

    def copy(self, contender: Contender, source: str, target: str) -> None:
        """Make `target` a copy of `source`, whatever it was."""
        self.drop(contender, target)
        shutil.copytree(self.path(contender, source), self.path(contender, target))

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.directory, ignore_errors=True)


def files_under(directory: Path) -> dict[str, tuple[int, int]]:
    """Size and modification time of every file below a directory."""
    found = {}
    for path in directory.rglob("*"):
        if path.is_file():
            status = path.stat()
            found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found


def bytes_written(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> int:
    """Bytes of the files that are new or changed."""
    return sum(entry[0] for path, entry in after.items() if before.get(path) != entry)


# ── the table for people ──────────────────────────────────────────────────────────────────────────────────────────────


def numbers_of(result: Result) -> list[str]:
    """The names of the measures that are single numbers."""
    return sorted({name for run in result.runs for name, value in run.items() if isinstance(value, int | float)})


def print_block(action: str, block: Sequence[Result], floor: float | None) -> None:
    """Print the results of one action."""
    header = ["", "seconds", "x floor", "cpu s", "rows/s", "peak MB", "written MB"]
    lines = [header]
    for result in block:
        seconds = result.median("seconds")
        if seconds is None:
            lines.append([result.contender, "failed", "", "", "", "", ""])
            continue
        rows, peak, written = (result.median(name) for name in ("rows", "peak_bytes", "written_bytes"))
        lines.append(
            [
                result.contender + ("" if len(result.runs) > 1 else " (1 run)"),
                _seconds_text(seconds),
                f"{seconds / floor:.2f}" if floor else "",
                f"{result.median('cpu_seconds') or 0:.2f}",
                f"{rows / seconds:,.0f}" if rows and seconds else "",
                f"{peak / 1e6:,.0f}" if peak else "",
                f"{written / 1e6:,.2f}" if written else "",
            ]
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    print(f"\n{action}")
    for line in lines:
        first, *rest = (
            text.rjust(width) if i else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(["", first, *rest]).rstrip(), flush=True)


def _seconds_text(seconds: float) -> str:
    return f"{seconds:.4f}" if seconds < 1 else f"{seconds:.2f}"
