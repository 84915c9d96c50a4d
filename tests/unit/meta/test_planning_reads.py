"""How metadata is read: in few rounds, side by side, once, and held within a bound that is counted honestly."""

from __future__ import annotations

import itertools
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import merganser as mg
from merganser.codec.stats import EMPTY_ROW, SimpleStats
from merganser.errors import FormatError, InvalidInputError
from merganser.meta.data_file import ADD, DataFile, ManifestEntry
from merganser.meta.live_files import EMPTY
from merganser.meta.manifest import read_manifests, write_manifest
from merganser.meta.table_state import MetaReader
from merganser.storage.cache import Cache, weight_of
from merganser.storage.env import Env
from merganser.storage.memory import MemoryStorage
from tests.kit.builders import catalog_over, memory_with

_numbers = itertools.count()
MANIFESTS = 20


class Watched:
    """A storage that notes what is read, and holds reads of manifests until so many have come. It is far away."""

    is_near = False

    def __init__(self, inner: MemoryStorage, opens_at: int = 0) -> None:
        self.inner = inner
        self.read_paths: list[str] = []
        self.there = self.most = self.come = 0
        self._opens_at = opens_at
        self._change = threading.Condition()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, path: str) -> bytes:
        with self._change:
            self.read_paths.append(path)
            if "/manifest/manifest-" in path and "-list-" not in path:
                self.come += 1
                self.there += 1
                self.most = max(self.most, self.there)
                self._change.notify_all()
                assert self._change.wait_for(lambda: self.come >= self._opens_at, timeout=20)
                self.there -= 1
        return self.inner.read(path)

    def metadata_read(self) -> list[str]:
        return [path for path in self.read_paths if "/manifest/" in path]


def _table(commits: int = MANIFESTS, **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"planning-{next(_numbers)}"))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": "1", "write-only": "true"} | options
    )
    for number in range(commits):
        table.write([{"k": number}])
    return table


def _reader(table: mg.Table, storage: Any) -> MetaReader:
    return MetaReader(table.definition.paths, Env(storage, threads=2), table.name)


def test_a_cold_state_asks_for_its_manifests_side_by_side() -> None:
    table = _table()
    storage = Watched(table.env.storage, opens_at=16)
    assert len(_reader(table, storage).latest().live) == MANIFESTS
    assert storage.most == 16


def test_a_state_carried_over_many_snapshots_asks_for_their_manifests_side_by_side() -> None:
    table = _table(commits=1)
    storage = Watched(table.env.storage)
    reader = _reader(table, storage)
    reader.latest()
    for number in range(MANIFESTS):
        table.write([{"k": 100 + number}])
    storage.come, storage._opens_at = 0, 16
    storage.read_paths.clear()
    assert len(reader.latest().live) == MANIFESTS + 1
    assert storage.most == 16
    assert len(storage.metadata_read()) == 2 * MANIFESTS  # a list and a manifest of each, and no base list


def test_a_table_may_limit_how_many_manifests_are_read_at_a_time() -> None:
    table = _table()
    storage = Watched(table.env.storage)
    opened = catalog_over(storage).table("db.t").with_options({"scan.manifest.parallelism": "1"})
    opened.env.threads = 2
    assert opened.read().count() == MANIFESTS
    assert storage.most == 1


def test_nothing_is_read_twice() -> None:
    table = _table()
    storage = Watched(table.env.storage)
    reader = _reader(table, storage)
    reader.latest()
    assert len(storage.metadata_read()) == len(set(storage.metadata_read())) == MANIFESTS + 2
    storage.read_paths.clear()
    reader.latest()
    assert storage.metadata_read() == []
    reader.state(reader.snapshots.load(MANIFESTS - 1))  # an older one: its manifests are known, its lists are not
    assert len(storage.metadata_read()) == 2


def test_a_state_that_does_not_fit_in_memory_is_read_anew_and_right() -> None:
    table = _table()
    storage = Watched(table.env.storage)
    reader = MetaReader(table.definition.paths, Env(storage, cache=Cache(weight_max=4000)), table.name)
    for _ in range(2):
        storage.read_paths.clear()
        assert len(reader.latest().live) == MANIFESTS
        assert len(storage.metadata_read()) >= MANIFESTS
    table.write([{"k": 1000}])
    assert len(reader.latest().live) == MANIFESTS + 1


def test_very_many_manifests_are_decoded_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    sizes = []

    def noting(files: Any) -> Any:
        sizes.append(len(files))
        return read_manifests(files)

    monkeypatch.setattr("merganser.meta.table_state.read_manifests", noting)
    monkeypatch.setattr("merganser.meta.table_state._BATCH_BYTES", 8000)
    assert len(_reader(table, table.env.storage).latest().live) == MANIFESTS
    assert sum(sizes) == MANIFESTS
    assert 1 < len(sizes) < MANIFESTS


def test_ids_used_again_after_a_rollback_give_the_new_state_to_a_reader_many_steps_behind() -> None:
    table = _table(commits=3)
    reader = _reader(table, table.env.storage)
    reader.latest()
    paths = table.definition.paths
    table.env.storage.delete([paths.snapshot(2), paths.snapshot(3)])
    table.env.storage.replace(paths.latest_hint, b"1")
    other = catalog_over(table.env.storage).table("db.t")
    for number in range(5):
        other.write([{"k": 50 + 2 * number}, {"k": 51 + 2 * number}])
    found = reader.latest()
    assert found.snapshot is not None
    assert found.snapshot.id == 6
    assert sorted(e.file.row_count for e in found.live) == [1, 2, 2, 2, 2, 2]


# manifests read together


def _entry(number: int, *, width: int = 10) -> ManifestEntry:
    key = number.to_bytes(20, "big")
    stats = SimpleStats(key * 5, key * 5, tuple([0] * width))
    file = DataFile(
        f"data-{number:032d}-0.parquet", 10**6 + number, 10**4, key, key, stats, stats, number, number, 0, 0,
        creation_time_ms=1_700_000_000_000 + number,
    )  # fmt: skip
    return ManifestEntry(ADD, EMPTY_ROW, number % 4, 4, file)


def _manifest(first: int, count: int) -> bytes:
    return write_manifest([_entry(i) for i in range(first, first + count)], compression="zstd")


def test_manifests_read_together_keep_their_entries_apart() -> None:
    files = [(_manifest(0, 3), "a"), (_manifest(3, 500), "b"), (write_manifest([], compression="zstd"), "c")]
    files.append((_manifest(503, 1), "d"))
    expected = [tuple(_entry(i) for i in range(a, b)) for a, b in ((0, 3), (3, 503), (0, 0), (503, 504))]
    assert read_manifests(files) == expected


@pytest.mark.parametrize("count", [2, 500])
def test_a_bad_manifest_among_many_is_the_one_named(count: int) -> None:
    bad = write_manifest([_entry(1), _entry(2)], compression="zstd").replace(b"merganser.crc32", b"mergansen.crc32")
    wrong = ManifestEntry(ADD, EMPTY_ROW, 9, 4, _entry(3).file)
    impossible = write_manifest([_entry(1), wrong], compression="zstd")
    good = _manifest(0, count)
    with pytest.raises(FormatError, match=r"'b'.*bucket 9 of 4.*entry 2 of 2"):
        read_manifests([(good, "a"), (impossible, "b"), (good, "c")])
    at = len(bad) - 40
    with pytest.raises(FormatError, match="'b'"):
        read_manifests([(good, "a"), (bad[:at] + b"\xff\xff\xff\xff" + bad[at + 4 :], "b"), (good, "c")])


# what is counted is what is held


def _held(make: Callable[[], Any]) -> tuple[int, Any]:
    """Return the bytes of memory that a value holds, and the value."""
    make()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    value = make()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return held, value


@pytest.mark.parametrize("count", [4, 120, 3000])
def test_manifests_weigh_the_memory_they_take(count: int) -> None:
    files = [(_manifest(count * i, count), "p") for i in range(max(1, 800 // count))]
    held, found = _held(lambda: [read_manifests([file])[0] for file in files])
    assert 0.8 * held <= sum(map(weight_of, found)) <= 1.6 * held


def test_a_state_weighs_its_files_even_if_no_manifest_is_kept() -> None:
    files = [(_manifest(0, 3000), "p")]
    held, live = _held(lambda: EMPTY.apply(read_manifests(files)[0], source="s"))
    cache = Cache(weight_max=10**9)
    table = _table(commits=0)
    reader = MetaReader(table.definition.paths, Env(table.env.storage, cache=cache), table.name)
    snapshot = _table(commits=1).snapshots()[0]
    reader.keep(type(reader.state(None))(snapshot, live))
    assert 0.8 * held <= cache.weight <= 1.6 * held


def test_the_limit_of_the_memory_is_an_option(tmp_path: Any) -> None:
    catalog = mg.catalog(str(tmp_path), {"cache.manifest.max-memory": "2 kb"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": "1"})
    opened = mg.table(table.path, {"cache.manifest.max-memory": "2 kb"})
    for number in range(5):
        opened.write([{"k": number}])
        assert opened.env.cache.weight <= 2048
    assert "cache.manifest.max-memory" not in opened.options
    assert table.read().count() == 5
    with pytest.raises(InvalidInputError, match=r"cache\.manifest\.max-memory"):
        mg.table(table.path, {"cache.manifest.max-memory": "much"})


@pytest.fixture(autouse=True)
def _no_trace_is_left() -> Iterator[None]:
    yield
    tracemalloc.stop()


def test_a_state_is_carried_on_past_snapshots_that_expire_while_it_is() -> None:
    """What an expiring snapshot between names is gone, and the one that is asked for names files that all stand."""
    table = _table(2)
    reader = _reader(table, table.env.storage)
    reader.latest()
    for number in range(2, 6):
        table.write([{"k": number}])
    between = table.snapshots()[3]
    table.env.storage.delete([reader.paths.manifest(between.delta_manifest_list)])
    state = reader.latest()
    assert state.snapshot is not None
    assert state.snapshot.id == 6
    assert len(list(state.live)) == 6
