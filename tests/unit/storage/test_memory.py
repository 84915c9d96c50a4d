"""Files in memory, and to whom they belong."""

from __future__ import annotations

import pickle

import pytest

from merganser.errors import NotFoundError
from merganser.storage.memory import MemoryStorage


def test_storages_of_one_name_share_their_files(request: pytest.FixtureRequest) -> None:
    name = request.node.nodeid
    MemoryStorage(name).create("/file", b"1")
    assert MemoryStorage(name).read("/file") == b"1"
    assert pickle.loads(pickle.dumps(MemoryStorage(name))).read("/file") == b"1"


def test_storages_of_other_names_do_not(request: pytest.FixtureRequest) -> None:
    MemoryStorage(f"{request.node.nodeid}-1").create("/file", b"1")
    with pytest.raises(NotFoundError):
        MemoryStorage(f"{request.node.nodeid}-2").read("/file")


def test_a_cleared_name_is_empty(request: pytest.FixtureRequest) -> None:
    storage = MemoryStorage(request.node.nodeid)
    storage.create("/dir/file", b"1")
    storage.clear()
    assert storage.list("/dir") == []


def test_nobody_sees_a_sink_before_it_is_closed(request: pytest.FixtureRequest) -> None:
    storage = MemoryStorage(request.node.nodeid)
    sink = storage.writer("/file")
    sink.stream.write(b"1")
    assert not storage.exists("/file")
    sink.close()
    assert storage.exists("/file")


def test_what_was_given_may_change_afterwards(request: pytest.FixtureRequest) -> None:
    storage, data = MemoryStorage(request.node.nodeid), bytearray(b"before")
    storage.create("/file", data)  # type: ignore[arg-type]  # Arrow's buffers are no bytes either
    data[:] = b"after."
    assert storage.read("/file") == b"before"
