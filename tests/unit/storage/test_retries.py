"""Retries: how many attempts, how long apart, until when, and after which errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from merganser.errors import ConflictError, NotFoundError, Overtaken, StorageError
from merganser.storage.retries import RACE, REREAD, STORE, Retries


@dataclass
class _Timing:
    """A clock that moves when somebody waits, and by `step_s` whenever work is done."""

    step_s: float = 0.0
    now_s: float = 100.0
    waits_ms: list[float] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(4))

    def seconds(self) -> float:
        return self.now_s

    def sleep_ms(self, duration_ms: float) -> None:
        self.waits_ms.append(duration_ms)
        self.now_s += duration_ms / 1000


def _failing(timing: _Timing, times: int, error: Exception) -> tuple[Callable[[], int], list[float]]:
    """Return work that fails some times and then returns how often it was called; and when it was called."""
    calls: list[float] = []

    def work() -> int:
        calls.append(timing.now_s)
        timing.now_s += timing.step_s
        if len(calls) <= times:
            raise error
        return len(calls)

    return work, calls


@pytest.mark.parametrize("policy", [RACE, REREAD])
def test_a_lost_race_is_tried_again_at_once(policy: Retries) -> None:
    timing = _Timing()
    work, _ = _failing(timing, policy.attempts - 1, ConflictError("lost"))
    assert policy.run(work, ConflictError, timing=timing) == policy.attempts
    assert timing.waits_ms == []


def test_the_error_of_the_last_attempt_is_raised() -> None:
    timing = _Timing()
    work, calls = _failing(timing, 99, ConflictError("lost"))
    with pytest.raises(ConflictError, match="lost"):
        Retries(attempts=3).run(work, ConflictError, timing=timing)
    assert len(calls) == 3


def test_other_errors_and_those_that_may_not_be_tried_again_are_raised_at_once() -> None:
    timing = _Timing()
    for error in (NotFoundError("no"), ConflictError("a column", overtaken=None)):
        work, calls = _failing(timing, 1, error)
        with pytest.raises(type(error)):
            RACE.run(work, ConflictError, lambda found: found.overtaken is Overtaken.SCHEMA, timing)
        assert len(calls) == 1
    work, _ = _failing(timing, 1, ConflictError("a schema", overtaken=Overtaken.SCHEMA))
    assert RACE.run(work, ConflictError, lambda found: found.overtaken is Overtaken.SCHEMA, timing) == 2


def test_waits_grow_up_to_a_limit_and_differ_by_a_quarter_at_most() -> None:
    timing = _Timing()
    work, _ = _failing(timing, 99, StorageError("busy"))
    with pytest.raises(StorageError):
        Retries(attempts=6, first_wait_ms=10, longest_wait_ms=500).run(work, StorageError, timing=timing)
    exact = [10, 40, 160, 500, 500]
    assert len(timing.waits_ms) == len(exact)
    assert all(0.75 * wait <= waited <= 1.25 * wait for waited, wait in zip(timing.waits_ms, exact, strict=True))
    assert len({waited / wait for waited, wait in zip(timing.waits_ms, exact, strict=True)}) == len(exact)


def test_nothing_is_tried_again_after_the_deadline() -> None:
    timing = _Timing(step_s=2.0)
    work, calls = _failing(timing, 99, StorageError("busy"))
    with pytest.raises(StorageError):
        Retries(attempts=50, first_wait_ms=100, growth=1, deadline_s=5).run(work, StorageError, timing=timing)
    assert len(calls) == 3
    assert calls[-1] < 105


def test_a_loop_is_told_which_attempt_is_the_last() -> None:
    timing = _Timing()
    assert [attempt.is_last for attempt in STORE.each(timing)] == [False] * (STORE.attempts - 1) + [True]
    late = _Timing(now_s=0.0)
    (attempt, *_) = Retries(attempts=2, deadline_s=1).each(late)
    assert not attempt.is_last
    late.now_s = 1.0
    assert attempt.is_last
