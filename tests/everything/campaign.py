"""Histories by their seeds: run, repeated, and made shorter when they fail."""

from __future__ import annotations

import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.everything import by_sql, change_records, edits, records, schemas, verbs  # noqa: F401  their steps
from tests.everything.history import History, SkippedError, repeatable
from tests.everything.layouts import drawn_layout
from tests.everything.replica import DifferenceError
from tests.everything.steps import STEPS

LENGTHS = (8, 12, 20)
SPARK_LENGTHS = (5, 8)
BESIDE_QUERIES = ("widen", "rollback", "expire")
"""Steps that are drawn more often with Spark: its histories are short, and its queries have to go on behind these."""


@dataclass(frozen=True)
class Failure:
    """A history that fails.

    Attributes:
        steps: the places of the steps that are needed, in the plan of the seed.
        at: the place of the step after which it failed.
    """

    seed: int
    steps: tuple[int, ...]
    at: int
    error: BaseException
    log: tuple[str, ...]

    @property
    def kind(self) -> tuple[str, str]:
        what = self.error.what.split()[0] if isinstance(self.error, DifferenceError) else ""
        return type(self.error).__name__, what


def plan_of(seed: int, spark: bool) -> list[str]:
    """Return the verbs of the steps of a history."""
    rng = random.Random(f"{seed} plan")
    often = {name: each * (4 if spark and name in BESIDE_QUERIES else 1) for name, (_, each) in STEPS.items()}
    return ["write", *rng.choices(list(often), [*often.values()], k=rng.choice(SPARK_LENGTHS if spark else LENGTHS))]


def run(seed: int, steps: Sequence[int] | None = None, spark: Any = None) -> Failure | Counter[str]:
    """Run a history, or some steps of it; return how it failed, or what was compared."""
    plan = plan_of(seed, spark is not None)
    chosen = tuple(range(len(plan)) if steps is None else steps)
    log: list[str] = []
    at = -1
    with tempfile.TemporaryDirectory(prefix="everything-") as path, repeatable(str(seed)):
        try:
            history = _history(str(seed), Path(path), spark)
            for at in chosen:
                rng = random.Random(f"{seed} step {at}")
                history.tick(rng)
                try:
                    with by_sql.said(history, random.Random(f"{seed} sql {at}")):
                        STEPS[plan[at]][0](history, rng)
                except SkippedError:
                    log.append(f"{at} {plan[at]} (skipped)")
                    continue
                log.append(f"{at} {plan[at]}")
                history.compared[plan[at]] += 1
                history.settle()
                history.compare(random.Random(f"{seed} compare {at}"), last=at == chosen[-1])
                if at == chosen[-1] or random.Random(f"{seed} select {at}").random() < 0.4:
                    by_sql.selected(history, random.Random(f"{seed} query {at}"))
        except Exception as error:
            return Failure(seed, tuple(each for each in chosen if each <= at), at, error, tuple(log))
        return history.compared


def _history(seed: str, path: Path, spark: Any) -> History:
    if spark is None:
        return History(seed, path)
    from tests.everything.on_spark import SparkHistory

    return SparkHistory(seed, path, spark)


def shrunk(failure: Failure, spark: Any = None, tries: int = 120) -> Failure:
    """Return a failure of the same kind with steps left out, as long as it fails without them."""
    best, size = failure, max(1, len(failure.steps) // 2)
    while tries > 0:
        before = best
        for start in range(0, len(best.steps), size):
            if tries <= 0 or start >= len(best.steps):
                break
            steps = best.steps[:start] + best.steps[start + size :]
            tries -= 1
            found = run(best.seed, steps, spark)
            if isinstance(found, Failure) and found.kind == failure.kind:
                best = found
        if best is before or len(best.steps) == len(before.steps):
            if size == 1:
                break
            size = max(1, size // 2)
    return best


def report(failure: Failure, spark: Any = None) -> str:
    """Return what a failure is, and how to repeat it."""
    layout = drawn_layout(str(failure.seed), spark is not None)
    error = failure.error
    place = "".join(traceback.format_tb(error.__traceback__)[-4:])
    return "\n".join(
        [
            f"FAILED seed {failure.seed}: {type(error).__name__}: {error}",
            place,
            f"  layout: {layout.engine}, key {layout.primary_key}, partition {layout.drawn.partition}",
            f"  columns: {layout.drawn.columns}",
            f"  options: {layout.options}",
            f"  steps: {'; '.join(failure.log)}",
            f"  repeat: python -m tests.everything --seeds {failure.seed}{' --spark' if spark else ''} "
            f"--steps {','.join(map(str, failure.steps))}",
        ]
    )
