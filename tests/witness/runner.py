"""Histories and comparisons as tasks, done by processes that each have clients of their own."""

from __future__ import annotations

import fnmatch
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.util import Finalize
from pathlib import Path
from random import Random

from tests.interop.engines import MerganserEngine, PeerEngine
from tests.interop.peers import PYPAIMON, RUST, Peer

from .exact import COMPARISONS
from .histories import DIRECTIONS, World, turns_of
from .java_engine import JavaEngine, JavaProcess
from .kinds import KINDS

_FAILURE_CHARACTERS = 4000
COMPARED = "both store the same"
"""The direction of an exact comparison."""


@dataclass(frozen=True)
class Task:
    """One history or comparison."""

    kind: str
    direction: str
    seed: int

    @property
    def name(self) -> str:
        """What `--only` is matched with."""
        return f"{self.kind} / {self.direction}"


@dataclass(frozen=True)
class Outcome:
    """How a task went; `failure` is empty when it went well."""

    task: Task
    seconds: float
    failure: str


def tasks(seed: int, rounds: int, only: str | None) -> Iterator[Task]:
    """What is to do: the comparisons first, as one of them takes long."""
    every = [(kind, COMPARED) for kind in COMPARISONS] + [(kind, d) for kind in KINDS for d in DIRECTIONS]
    for number in range(rounds):
        for kind, direction in every:
            task = Task(kind, direction, seed + number)
            if only is None or fnmatch.fnmatch(task.name, only) or fnmatch.fnmatch(kind, only):
                yield task


class _Worker:
    """The clients of one process; those beside Java are started when they are first wanted."""

    def __init__(self, java_class_path: str, peers: bool) -> None:
        self._stack = ExitStack()
        self._java = self._stack.enter_context(JavaProcess(java_class_path))
        self._wants_peers = peers
        self._peers: list[Peer] | None = None

    def close(self) -> None:
        """End the clients."""
        self._stack.close()

    def run(self, task: Task) -> Outcome:
        """Do a task in a warehouse of its own."""
        started, failure = time.monotonic(), ""
        random = Random(f"{task.name} {task.seed}")
        warehouse = Path(tempfile.mkdtemp(prefix="merganser-witness-"))
        try:
            world = World(warehouse, MerganserEngine(warehouse), JavaEngine(self._java, warehouse), {})
            if task.direction == COMPARED:
                COMPARISONS[task.kind](world, random)
            else:
                if task.direction == "at random":
                    engines = [PeerEngine(peer, warehouse) for peer in self._other_clients()]
                    world = World(world.warehouse, world.ours, world.java, {engine.name: engine for engine in engines})
                KINDS[task.kind](world, random).take(turns_of(task.direction, random))
        except Exception as error:
            text = "".join(traceback.format_exception(error))[-_FAILURE_CHARACTERS:]
            failure = f"{text}\n  again: python -m tests.witness --only '{task.name}' --seed {task.seed}"
        shutil.rmtree(warehouse, ignore_errors=True)
        return Outcome(task, time.monotonic() - started, failure)

    def _other_clients(self) -> list[Peer]:
        if self._peers is None:
            kinds = (PYPAIMON, RUST) if self._wants_peers else ()
            self._peers = [self._stack.enter_context(Peer(kind)) for kind in kinds]
        return self._peers


_worker: _Worker | None = None


def _start(java_class_path: str, peers: bool) -> None:
    global _worker
    _worker = _Worker(java_class_path, peers)
    Finalize(_worker, _worker.close, exitpriority=10)


def _run(task: Task) -> Outcome:
    assert _worker is not None
    return _worker.run(task)


def run(todo: Sequence[Task], *, java_class_path: str, jobs: int, peers: bool) -> list[Outcome]:
    """Do all tasks, in processes, with a line of progress."""
    outcomes: list[Outcome] = []
    started = time.monotonic()
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _start, (java_class_path, peers))
    with pool:
        for future in as_completed([pool.submit(_run, task) for task in todo]):
            outcome = future.result()
            outcomes.append(outcome)
            failed = sum(bool(found.failure) for found in outcomes)
            line = f"{len(outcomes)}/{len(todo)}, {failed} failed, {time.monotonic() - started:.0f} s"
            if outcome.failure:
                print(f"FAILED {outcome.task.name}, seed {outcome.task.seed} ({line})", flush=True)
            elif sys.stderr.isatty():
                print(f"\r{line}: {outcome.task.name}".ljust(110)[:110], end="\r", file=sys.stderr, flush=True)
            elif len(outcomes) % 50 == 0:
                print(line, flush=True)
    return outcomes
