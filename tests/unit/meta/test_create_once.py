"""A file that one of racing writers makes: who made it is told right, whatever the store answers."""

from __future__ import annotations

import itertools

import pytest

from merganser.errors import AlreadyExistsError, FormatError, StorageError, UnsupportedError
from merganser.meta.create_once import Created, create_once
from tests.kit.builders import PatientEnv, memory_with
from tests.kit.faulty import FaultyStorage

PATH = "db.db/t/schema/schema-0"
OURS, THEIRS = b"ours", b"theirs"
_names = itertools.count()


class _Scripted(FaultyStorage):
    """A store whose creates go as they are told.

    Args:
        creates: "made"; "failed" and nothing made; "sure", the same, and the store says so; "lost": made, without a
            reply; "doubled": made, and the create that was sent again says that the file is there; "refused": the store
            has no such verb.
        unreadable: until after this many creates reads fail.
        there: the file that another writer made before.
    """

    def __init__(self, *creates: str, unreadable: int = 0, there: bytes | None = None) -> None:
        super().__init__(memory_with({} if there is None else {PATH: there}, f"create-once-{next(_names)}"))
        self.creates, self.unreadable, self.sent = creates, unreadable, 0

    def create(self, path: str, data: bytes) -> None:
        how = self.creates[self.sent]
        self.sent += 1
        if how == "refused":
            raise UnsupportedError("the store cannot create a file only if it is absent", path=path)
        if how == "failed":
            raise StorageError(f"the network was down at call {self.sent}", path=path)
        if how == "sure":
            raise StorageError(f"the disk was full at call {self.sent}", path=path, changed=False)
        self.inner.create(path, data)
        if how == "lost":
            raise StorageError("the reply was lost", path=path)
        if how == "doubled":
            raise AlreadyExistsError("it is there", path=path)

    def read(self, path: str) -> bytes:
        if self.sent <= self.unreadable:
            raise StorageError("the network is down", path=path)
        return self.inner.read(path)


def _create(store: _Scripted, *, by_bytes: bool = True) -> Created:
    return create_once(PatientEnv(store), PATH, OURS, is_ours=lambda found, sent: found == OURS and (sent or by_bytes))


def test_a_file_that_is_made_at_once_is_ours_and_is_not_read() -> None:
    store = _Scripted("made", unreadable=9)
    assert _create(store) == Created(stored=OURS)


@pytest.mark.parametrize("creates", [("lost",), ("doubled",), ("failed", "made"), ("failed", "failed", "lost")])
def test_a_file_is_ours_whatever_happened_to_the_replies(creates: tuple[str, ...]) -> None:
    store = _Scripted(*creates)
    assert _create(store) == Created(stored=OURS)
    assert store.sent == len(creates)


@pytest.mark.parametrize("creates", [("made",), ("lost",), ("failed", "made")])
def test_a_file_of_another_writer_is_theirs_and_stays(creates: tuple[str, ...]) -> None:
    store = _Scripted(*creates, there=THEIRS)
    assert _create(store) == Created()
    assert store.inner.read(PATH) == THEIRS


def test_equal_bytes_are_ours_only_if_one_of_our_creates_may_have_arrived() -> None:
    assert _create(_Scripted("made", there=OURS), by_bytes=False) == Created()
    assert _create(_Scripted("lost"), by_bytes=False) == Created(stored=OURS)


def test_a_lost_reply_is_remembered_when_a_later_create_finds_the_file() -> None:
    store = _Scripted("lost", "made", unreadable=1)
    assert _create(store, by_bytes=False) == Created(stored=OURS)
    assert store.sent == 2


def test_nobody_can_tell_while_the_file_cannot_be_read() -> None:
    made = _create(_Scripted("lost", *["made"] * 4, unreadable=5))
    assert made.stored is None
    assert isinstance(made.unknown, AlreadyExistsError)
    made = _create(_Scripted(*["failed"] * 5))
    assert str(made.unknown) == "the network was down at call 5"


def test_a_failure_that_changed_nothing_is_tried_again_and_is_no_doubt() -> None:
    assert _create(_Scripted("sure", "made")) == Created(stored=OURS)
    with pytest.raises(StorageError, match="the disk was full at call 5"):
        _create(_Scripted(*["sure"] * 5, unreadable=9))
    made = _create(_Scripted("lost", *["sure"] * 4, unreadable=9))
    assert str(made.unknown) == "the reply was lost"


def test_a_file_of_which_nobody_can_tell_whose_it_is_is_unknown() -> None:
    def damaged(found: bytes, sent: bool) -> bool:
        raise FormatError("not a snapshot", path=PATH)

    made = create_once(PatientEnv(store := _Scripted(*["made"] * 5, there=b"{")), PATH, OURS, is_ours=damaged)
    assert isinstance(made.unknown, AlreadyExistsError)
    assert store.sent == 5


def test_a_store_that_cannot_promise_one_winner_is_asked_once() -> None:
    store = _Scripted("refused")
    with pytest.raises(UnsupportedError):
        _create(store)
    assert store.sent == 1
