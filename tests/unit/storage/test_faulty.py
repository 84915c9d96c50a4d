"""Faults on purpose: what each leaves behind, and that every call gets its turn."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable

import pytest

from merganser.errors import AlreadyExistsError, InvalidInputError, MerganserError, NotFoundError, StorageError
from merganser.storage.memory import MemoryStorage
from merganser.storage.protocol import Storage
from tests.kit.faulty import Call, Fault, FaultyStorage, Outcome, Plan, Stopped, run_every


def fresh(*names: str) -> MemoryStorage:
    storage = MemoryStorage(str(uuid.uuid4()))
    for name in names:
        storage.create(name, b"0123456789")
    return storage


def names(storage: Storage, path: str = "/dir") -> list[str]:
    return sorted(entry.name for entry in storage.list(path))


def test_without_a_plan_it_counts_and_does_no_harm() -> None:
    faulty = FaultyStorage(fresh())
    faulty.create("/dir/a", b"1")
    sink = faulty.writer("/dir/b")
    sink.stream.write(b"22")
    assert (sink.size, sink.close()) == (2, 2)
    faulty.replace("/dir/c", b"3")
    assert (faulty.read("/dir/a"), faulty.open("/dir/b").read(), faulty.exists("/dir/c")) == (b"1", b"22", True)
    faulty.delete(["/dir/a"])
    faulty.move_tree("/dir", "/new")
    assert names(faulty, "/new") == ["b", "c"]
    faulty.delete_tree("/new")
    assert [call.verb for call in faulty.calls] == (
        ["create", "writer", "close", "replace", "read", "open", "exists", "delete", "move_tree", "list", "delete_tree"]
    )
    assert faulty.struck is None


def test_only_the_planned_calls_fail() -> None:
    faulty = FaultyStorage(fresh("/dir/a"), Plan(Fault.FAIL, 2, call_count=2))
    assert faulty.read("/dir/a")
    for _ in range(2):
        with pytest.raises(StorageError, match="made to fail"):
            faulty.read("/dir/a")
    assert faulty.read("/dir/a")
    assert faulty.struck == Call("read", "/dir/a", Fault.FAIL)


def test_calls_are_counted_by_verb_and_path() -> None:
    faulty = FaultyStorage(fresh(), Plan(Fault.FAIL, 2, verbs=frozenset({"create"}), path_part="snapshot"))
    for name in ("schema-0", "snapshot-1", "schema-1"):
        faulty.create(f"/dir/{name}", b"1")
        faulty.exists("/dir/snapshot-1")
    with pytest.raises(StorageError):
        faulty.create("/dir/snapshot-2", b"1")


def test_a_failed_call_does_nothing() -> None:
    inner = fresh("/dir/a")
    works: list[Callable[[FaultyStorage], object]] = [
        lambda s: s.create("/dir/b", b"1"),
        lambda s: s.replace("/dir/a", b"1"),
        lambda s: s.delete(["/dir/a"]),
        lambda s: s.delete_tree("/dir"),
        lambda s: s.move_tree("/dir", "/new"),
        lambda s: s.writer("/dir/c"),
    ]
    for work in works:
        with pytest.raises(StorageError):
            work(FaultyStorage(inner, Plan(Fault.FAIL, 1)))
    assert (names(inner), inner.read("/dir/a")) == (["a"], b"0123456789")


def test_a_lost_reply_has_done_its_work() -> None:
    inner = fresh("/dir/a")
    with pytest.raises(StorageError):
        FaultyStorage(inner, Plan(Fault.LOSE_REPLY, 1)).create("/dir/b", b"1")
    assert inner.read("/dir/b") == b"1"
    sink = FaultyStorage(inner, Plan(Fault.LOSE_REPLY, 2)).writer("/dir/c")
    sink.stream.write(b"1")
    with pytest.raises(StorageError):
        sink.close()
    assert inner.read("/dir/c") == b"1"


def test_an_error_is_a_reply_and_gets_lost_as_well() -> None:
    with pytest.raises(StorageError):
        FaultyStorage(fresh("/dir/a"), Plan(Fault.LOSE_REPLY, 1)).create("/dir/a", b"1")
    with pytest.raises(StorageError):
        FaultyStorage(fresh(), Plan(Fault.LOSE_REPLY, 1)).read("/dir/a")


def test_a_torn_sink_leaves_half_its_file() -> None:
    inner = fresh()
    sink = FaultyStorage(inner, Plan(Fault.TEAR, 2)).writer("/dir/a")
    sink.stream.write(b"0123456789")
    with pytest.raises(StorageError):
        sink.close()
    assert inner.read("/dir/a") == b"01234"


def test_a_torn_create_leaves_nothing_or_half_under_a_hidden_name() -> None:
    found = []
    for seed in (0, 1):
        inner = fresh()
        with pytest.raises(StorageError):
            FaultyStorage(inner, Plan(Fault.TEAR, 1, seed=seed)).create("/dir/a", b"0123456789")
        assert not inner.exists("/dir/a")
        found.append(names(inner))
    assert found == [[".a.1.tmp"], []]


def test_torn_deletes_remove_the_first_half() -> None:
    inner = fresh("/dir/a", "/dir/b", "/dir/c", "/dir/d")
    with pytest.raises(StorageError):
        FaultyStorage(inner, Plan(Fault.TEAR, 1)).delete(f"/dir/{name}" for name in "dcba")
    assert names(inner) == ["a", "b"]
    inner.create("/dir/deep/x", b"1")
    with pytest.raises(StorageError):
        FaultyStorage(inner, Plan(Fault.TEAR, 1)).delete_tree("/dir")
    assert names(inner) == ["deep"]


def test_a_stopped_process_makes_no_more_calls() -> None:
    inner = fresh("/dir/a")
    faulty = FaultyStorage(inner, Plan(Fault.STOP, 2))
    sink = faulty.writer("/dir/b")
    for work in (sink.close, sink.abort, lambda: faulty.delete(["/dir/a"]), lambda: faulty.exists("/dir/a")):
        with pytest.raises(Stopped):
            work()
    assert names(inner) == ["a"]


def test_nobody_handles_being_stopped_as_an_error() -> None:
    assert not issubclass(Stopped, Exception)


def test_an_abort_that_fails_raises_nothing() -> None:
    inner = fresh()
    sink = FaultyStorage(inner, Plan(Fault.FAIL, 3)).writer("/dir/a")
    sink.close()
    sink.abort()
    assert names(inner) == ["a"]


def test_a_pickled_copy_shares_the_count() -> None:
    faulty = FaultyStorage(fresh("/dir/a"), Plan(Fault.FAIL, 2))
    copy = pickle.loads(pickle.dumps(faulty))
    copy.read("/dir/a")
    with pytest.raises(StorageError):
        faulty.read("/dir/a")
    assert len(copy.calls) == 2


class TestRunEvery:
    def test_every_fault_gets_every_call(self) -> None:
        seen = []

        def work(storage: FaultyStorage) -> str:
            storage.create("/dir/a", b"1")
            storage.exists("/dir/a")
            storage.replace("/dir/a", b"2")
            return "done"

        def check(_: Storage, outcome: Outcome[str]) -> None:
            seen.append((outcome.plan.fault, outcome.struck.verb if outcome.struck else None))
            assert (outcome.result == "done") == (outcome.error is None) == (outcome.struck is None)

        assert run_every(fresh, work, check) == 16
        assert seen == [(fault, verb) for fault in Fault for verb in ("create", "exists", "replace", None)]

    def test_a_protocol_that_reads_back_survives_every_fault(self) -> None:
        def work(storage: FaultyStorage) -> bool:
            try:
                storage.create("/dir/snapshot-1", b"ours")
            except (AlreadyExistsError, StorageError):
                try:
                    return storage.read("/dir/snapshot-1") == b"ours"
                except NotFoundError:
                    return False
            return True

        def check(storage: Storage, outcome: Outcome[bool]) -> None:
            assert outcome.result is None or outcome.result == storage.exists("/dir/snapshot-1")

        assert run_every(fresh, work, check) > 4
        assert run_every(fresh, work, check, call_count=2) > 4

    def test_a_failed_check_says_where(self) -> None:
        def check(_: Storage, outcome: Outcome[None]) -> None:
            assert outcome.struck is None

        with pytest.raises(AssertionError) as caught:
            run_every(fresh, lambda s: s.replace("/dir/a", b"1"), check, faults=[Fault.LOSE_REPLY], seed=7)
        assert caught.value.__notes__ == ["fault lose-reply at call 1 (replace of '/dir/a'), 1 in a row, seed 7"]

    def test_an_error_that_is_not_ours_fails_the_run(self) -> None:
        def work(storage: FaultyStorage) -> None:
            try:
                storage.exists("/dir/a")
            except MerganserError as error:
                raise KeyError("bug") from error

        with pytest.raises(KeyError) as caught:
            run_every(fresh, work, lambda *_: None)
        assert "exists of '/dir/a'" in caught.value.__notes__[0]

    def test_work_without_end_is_noticed(self) -> None:
        def work(storage: FaultyStorage) -> None:
            while storage.struck is None:
                storage.exists("/dir/a")

        with pytest.raises(InvalidInputError, match="more than 50 calls"):
            run_every(fresh, work, lambda *_: None, runs_max=50)
