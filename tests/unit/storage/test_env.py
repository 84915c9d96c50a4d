"""Effects behind one door: clock, ids, and work side by side."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any

import pytest

from merganser.errors import InvalidInputError
from merganser.storage import env as env_module
from merganser.storage.env import Env
from merganser.storage.memory import MemoryStorage


def env(threads: int = 2) -> Env:
    return Env(MemoryStorage(), threads=threads)


class _Far(MemoryStorage):
    is_near = False


def far(threads: int = 2) -> Env:
    return Env(_Far(), threads=threads)


def test_the_time_is_in_epoch_milliseconds() -> None:
    moment = datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)
    assert Env(MemoryStorage(), clock=lambda: moment).now_ms() == 1_772_366_400_123


def test_a_clock_without_zone_is_read_as_utc() -> None:
    moment = datetime(2026, 3, 1, 12, 0, 0, 123_000)
    assert Env(MemoryStorage(), clock=lambda: moment).now_ms() == 1_772_366_400_123


def test_ids_are_fresh_uuids() -> None:
    ids = {env().new_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(str(uuid.UUID(text)) == text for text in ids)


def test_map_keeps_the_order() -> None:
    assert env().map(lambda i: i * i, range(50)) == [i * i for i in range(50)]
    assert env().map(lambda i: i, []) == []


def test_map_runs_side_by_side() -> None:
    meeting = threading.Barrier(4, timeout=20)
    assert sorted(env(threads=4).map(lambda _: meeting.wait(), range(4))) == [0, 1, 2, 3]


def test_map_raises_the_first_error_and_drops_what_has_not_begun() -> None:
    started, gate = [], threading.Event()

    def work(i: int) -> None:
        started.append(i)
        if i == 0:
            raise ValueError("first")
        gate.wait(0.2)

    with pytest.raises(ValueError, match="first"):
        env(threads=2).map(work, range(1000))
    gate.set()
    assert len(started) < 1000


def test_map_within_map_does_not_wait_for_itself() -> None:
    effects = env(threads=2)
    squares = effects.map(lambda i: sum(effects.map(lambda j: i * j, range(10))), range(20))
    assert squares == [45 * i for i in range(20)]


def test_two_envs_do_not_take_each_other_for_themselves() -> None:
    outer, inner = env(), env()
    here = outer.map(lambda _: inner.map(lambda _: threading.current_thread().name, range(2)), range(2))
    assert all(name.startswith("merganser") for names in here for name in names)
    outer_threads = set(outer.map(lambda _: threading.get_ident(), range(20)))
    both = outer.map(lambda _: inner.map(lambda _: threading.get_ident(), range(20)), range(2))
    assert not outer_threads & {ident for idents in both for ident in idents}


class _Door:
    """Something that opens when so many stand before it; counts who stands there at the same time."""

    def __init__(self, opens_at: int) -> None:
        self.opens_at = opens_at
        self.there = self.most = 0
        self._change = threading.Condition()

    def pass_through(self, item: int) -> int:
        with self._change:
            self.there += 1
            self.most = max(self.most, self.there)
            self._change.notify_all()
            assert self._change.wait_for(lambda: self.most >= self.opens_at, timeout=20)
            self.there -= 1
        return item * 10


def test_many_more_requests_are_under_way_than_there_are_threads() -> None:
    door = _Door(opens_at=12)
    assert far(threads=2).fetch(door.pass_through, range(40)) == [item * 10 for item in range(40)]
    assert 12 <= door.most <= 16


@pytest.mark.parametrize(("threads", "at_once", "most"), [(2, 3, 3), (2, 1, 1), (1, None, 1)])
def test_fewer_requests_are_under_way_when_asked(threads: int, at_once: int | None, most: int) -> None:
    door = _Door(opens_at=most)
    assert far(threads).fetch(door.pass_through, range(9), at_once=at_once) == [item * 10 for item in range(9)]
    assert door.most == most


def test_the_first_request_in_order_that_failed_is_the_one_told() -> None:
    started = []
    together = threading.Barrier(2)

    def ask(item: int) -> int:
        started.append(item)
        if item < 2:
            together.wait(20)
            raise ValueError(f"item {item}")
        return item

    with pytest.raises(ValueError, match="item 0"):
        far().fetch(ask, range(10_000), at_once=2)
    assert len(started) < 10_000


def test_an_interrupt_leaves_at_once_and_later_requests_overlap_again() -> None:
    shared = far()

    def interrupted(item: int) -> int:
        if item == 3:
            raise KeyboardInterrupt
        return item

    with pytest.raises(KeyboardInterrupt):
        shared.fetch(interrupted, range(9))
    door = _Door(opens_at=3)
    assert shared.fetch(door.pass_through, range(9), at_once=3) == [item * 10 for item in range(9)]
    assert door.most == 3


_CTRL_C_AT_A_START = """
import sys, threading, time
from merganser.storage.env import Env
from merganser.storage.memory import MemoryStorage

start = threading.Thread.start

def pressed(thread):
    start(thread)
    if threading.current_thread() is threading.main_thread() and thread.name.startswith(sys.argv[1]):
        threading.Thread.start = start
        raise KeyboardInterrupt

threading.Thread.start = pressed
env = Env(MemoryStorage(), threads=4)
try:
    getattr(env, sys.argv[2])(lambda _: time.sleep(0.05), range(8))
except KeyboardInterrupt:
    print("pressed")
"""


@pytest.mark.parametrize(
    ("name", "method"), [("merganser-starter", "map"), ("merganser-starter", "fetch"), ("merganser_", "map")]
)
def test_a_process_ends_after_an_interrupt_while_a_thread_starts(name: str, method: str) -> None:
    command = [sys.executable, "-c", _CTRL_C_AT_A_START, name, method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "pressed\n", "")


_WORK_AT_THE_END = """
import threading
from merganser.storage.env import Env
from merganser.storage.memory import MemoryStorage

def work():
    threading.main_thread().join()
    try:
        Env(MemoryStorage(), threads=4).map(str, range(8))
    except RuntimeError as error:
        print(error)

threading.Thread(target=work).start()
"""


def test_work_that_comes_when_the_process_ends_is_refused_to_its_caller_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WORK_AT_THE_END], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "cannot schedule new futures after interpreter shutdown\n"


def test_few_requests_that_end_at_once_are_made_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env_module, "_ALONE_SECONDS", 60)
    me = threading.get_ident()
    assert set(env().fetch(lambda _: threading.get_ident(), range(20))) == {me}


def test_requests_to_a_near_store_overlap_once_they_turn_out_to_be_slow() -> None:
    door = _Door(opens_at=3)

    def ask(item: int) -> int:
        if item == 0:
            time.sleep(2 * env_module._ALONE_SECONDS)
            return 0
        return door.pass_through(item)

    assert env().fetch(ask, range(9)) == [item * 10 for item in range(9)]
    assert door.most >= 3


def test_requests_that_make_requests_do_not_wait_for_themselves() -> None:
    shared = env()
    assert shared.fetch(lambda i: sum(shared.fetch(lambda j: i * j, range(20))), range(20)) == [
        190 * i for i in range(20)
    ]
    assert shared.map(lambda i: shared.fetch(abs, [-i, -i]), range(1, 4)) == [[1, 1], [2, 2], [3, 3]]


def test_gather_yields_everything_once() -> None:
    found = list(env(threads=3).gather(lambda i: range(i * 10, i * 10 + 10), range(20)))
    assert sorted(found) == list(range(200))
    assert list(env().gather(lambda i: [i, i], [7])) == [7, 7]


def test_gather_raises_what_a_worker_raised() -> None:
    def work(i: int) -> list[int]:
        if i == 5:
            raise ValueError("five")
        return [i]

    with pytest.raises(ValueError, match="five"):
        list(env().gather(work, range(1000)))


def test_leaving_gather_early_stops_its_workers() -> None:
    started = []

    def work(i: int) -> list[int]:
        started.append(i)
        return [i]

    results = env().gather(work, range(10_000), waiting_max=1)
    next(results)
    assert isinstance(results, Generator)
    results.close()
    assert len(started) < 10_000


def test_a_job_carries_the_storage_and_rebuilds_the_rest() -> None:
    original = Env(MemoryStorage("carried"), threads=7)
    original.map(lambda i: i, range(3))  # a pool is there and stays behind
    copy = pickle.loads(pickle.dumps(original))
    assert copy.storage == MemoryStorage("carried")
    assert copy.cache.get("x") is None
    assert copy.map(lambda i: i, range(3)) == [0, 1, 2]


def test_a_clock_that_was_given_travels_as_the_time_it_tells() -> None:
    ticks = iter([datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)])
    original = Env(MemoryStorage("timed"), lambda: next(ticks))  # neither pickles
    copy = pickle.loads(pickle.dumps(original))
    again = pickle.loads(pickle.dumps(copy))
    new_year_ms = datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000
    assert (copy.now_ms(), copy.now_ms(), again.now_ms()) == (new_year_ms,) * 3
    assert original.now_ms() == datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000


def test_the_clock_of_the_machine_goes_on_in_a_job() -> None:
    copy = pickle.loads(pickle.dumps(Env(MemoryStorage("timed"))))
    assert copy.clock is Env(MemoryStorage("timed")).clock


def test_a_forked_process_works_on_threads_of_its_own() -> None:
    shared = env()
    assert shared.map(abs, [-1, -2, -3]) == [1, 2, 3]  # there is a pool now, which a fork does not take along

    assert shared.fetch(abs, [-1, -2, -3]) == [1, 2, 3]

    def child() -> None:
        assert shared.fetch(abs, [-1, -2, -3]) == [1, 2, 3]
        assert shared.map(abs, [-1, -2, -3]) == [1, 2, 3]

    forked = multiprocessing.get_context("fork").Process(target=child)
    forked.start()
    forked.join(30)
    code = forked.exitcode
    forked.kill()
    assert code == 0


@pytest.mark.parametrize("moment", [datetime(1969, 12, 31, tzinfo=UTC), datetime(10, 1, 1), "now"])
def test_a_clock_that_tells_no_time_of_a_table_is_refused(moment: Any) -> None:
    with pytest.raises(InvalidInputError, match="the clock"):
        Env(MemoryStorage(), clock=lambda: moment).now_ms()


def test_what_is_made_ahead_comes_in_order_and_on_another_thread() -> None:
    made: list[int] = []

    def items() -> Generator[int, None, None]:
        for i in range(5):
            made.append(threading.get_ident())
            yield i

    assert list(env().ahead(items())) == list(range(5))
    assert set(made) != {threading.get_ident()}
    assert list(env(threads=1).ahead(items())) == list(range(5))
    assert made[-1] == threading.get_ident()


def test_leaving_what_is_made_ahead_stops_its_thread_and_an_error_there_is_raised_here() -> None:
    ended = threading.Event()

    def items() -> Generator[int, None, None]:
        try:
            yield from range(1_000)
            raise ValueError("made ahead")
        finally:
            ended.set()

    early = env().ahead(items())
    assert next(early) == 0
    early.close()  # type: ignore[attr-defined]
    assert ended.is_set()
    with pytest.raises(ValueError, match="made ahead"):
        list(env().ahead(items()))


def test_nothing_is_made_ahead_where_all_cores_have_work() -> None:
    effects = env(threads=2)

    def work(_: int) -> bool:
        return {threading.get_ident()} == set(effects.ahead(threading.get_ident() for _ in range(3)))

    assert effects.map(work, range(4)) == [True] * 4
