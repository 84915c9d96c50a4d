"""Every storage call of a write with new keys and new buckets goes wrong once, in every way.

The table is as it was or as it is after, its key index is sound, and a repeat is applied once.

Every byte of a key index file changes once: no writer believes it.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pyarrow as pa
import pytest

from merganser.catalogs.catalog import Catalog
from merganser.errors import CommitUnknownError, FormatError
from merganser.meta.index_manifest import read_index_manifest, write_index_manifest
from merganser.meta.snapshot import Snapshot
from merganser.storage.cache import Cache
from merganser.storage.protocol import Storage
from merganser.write import key_buckets
from merganser.write.begin import begin
from merganser.write.job import messages_of
from tests.faults import run_some
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import FaultyStorage, Outcome, Stopped

_names = itertools.count()
OLD = dict.fromkeys(range(5), 0)
NEW = dict.fromkeys(range(3, 11), 1)
OTHER = dict.fromkeys(range(9, 14), 2)


def _base(options: dict[str, str] | None = None) -> dict[str, bytes]:
    catalog = catalog_over(memory_with({}, f"dynamic-faults-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", "k INT, v INT", ["k"], options=options or {"dynamic-bucket.target-row-num": "3"}
    )
    table.write([{"k": k, "v": v} for k, v in OLD.items()])
    return contents(catalog.env.storage)


def _write(catalog: Catalog) -> Snapshot | None:
    rows = [{"k": k, "v": v} for k, v in NEW.items()]
    return catalog.table("db.t").write(rows, commit_user="job", identifier=1)


def _rows(storage: Storage) -> dict[int, int]:
    return {row["k"]: row["v"] for row in catalog_over(storage).table("db.t").read().to_pylist()}


def test_a_write_with_new_keys_is_all_or_nothing_whichever_call_goes_wrong() -> None:
    files = _base()

    def check(storage: Storage, outcome: Outcome[Snapshot | None]) -> None:
        found = _rows(storage)
        if outcome.error is None:
            assert found == OLD | NEW
        elif not isinstance(outcome.error, CommitUnknownError | Stopped):
            assert found == OLD
        assert found in (OLD, OLD | NEW)
        assert catalog_over(storage).table("db.t").check() == ()
        _write(catalog_over(storage))
        assert _rows(storage) == OLD | NEW
        table = catalog_over(storage).table("db.t")
        assert table.check() == ()
        assert len([s for s in table.snapshots() if s.commit_user == "job" and s.commit_kind == "APPEND"]) == 1

    runs = run_some(
        lambda: memory_with(files, f"dynamic-fault-{next(_names)}"), lambda store: _write(catalog_over(store)), check
    )
    assert runs > 50


def _overlapped(catalog: Catalog) -> Snapshot | None:
    """Write with new keys, while another commit adds some of them and others, on a storage where nothing goes wrong."""
    table, store = catalog.table("db.t"), catalog.env.storage
    transaction = begin(table.definition, table.env, commit_user="job", identifier=1)
    done, snapshot = transaction.applied()
    if done:
        return snapshot
    rows = pa.table({"k": pa.array(NEW, pa.int32()), "v": pa.array(NEW.values(), pa.int32())})
    messages = messages_of(transaction.table, transaction.env, [transaction.job().run([rows])])
    well = catalog_over(store.inner if isinstance(store, FaultyStorage) else store).table("db.t")
    well.write([{"k": k, "v": v} for k, v in OTHER.items()], commit_user="other", identifier=1)
    return transaction.finish(messages)


def test_a_write_whose_new_keys_join_those_of_another_is_all_or_nothing_whichever_call_goes_wrong() -> None:
    files = _base({"dynamic-bucket.target-row-num": "100"})

    def check(storage: Storage, outcome: Outcome[Snapshot | None]) -> None:
        found = _rows(storage)
        assert found in (OLD, OLD | OTHER, OLD | OTHER | NEW)
        if outcome.error is None:
            assert found == OLD | OTHER | NEW
        elif not isinstance(outcome.error, CommitUnknownError | Stopped):
            assert found != OLD | OTHER | NEW
        assert catalog_over(storage).table("db.t").check() == ()
        _overlapped(catalog_over(storage))
        assert _rows(storage) == OLD | OTHER | NEW
        table = catalog_over(storage).table("db.t")
        assert table.check() == ()
        named = {path.rpartition("/")[2] for path in contents(storage) if "/t/index/" in path}
        if outcome.error is None and (outcome.struck is None or outcome.struck.verb != "delete"):
            assert len(named) == 3  # of the table before, of the other commit, of the joined keys

    runs = run_some(
        lambda: memory_with(files, f"dynamic-fault-{next(_names)}"),
        lambda store: _overlapped(catalog_over(store)),
        check,
    )
    assert runs > 50


def test_a_changed_byte_of_a_key_index_file_stops_every_write_that_asks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    files = _base()
    rng = random.Random(5)
    indexes = [path for path in files if "/t/index/" in path]
    assert len(indexes) == 2
    for path in indexes:
        for at in range(len(files[path])):
            data = bytearray(files[path])
            data[at] ^= 1 << rng.randrange(8)
            monkeypatch.setattr(key_buckets, "_cache", Cache())  # as another process
            storage = memory_with(files | {path: bytes(data)}, f"dynamic-flip-{next(_names)}")
            with pytest.raises(FormatError, match="do not have the checksum") as refused:
                _write(catalog_over(storage))
            assert refused.value.context["path"] == path
            assert contents(storage) == files | {path: bytes(data)}


def test_a_key_index_without_a_checksum_is_asked_and_one_that_has_a_key_twice_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other engines note no checksums, and drop those of ours."""
    files = _base()
    (path,) = [path for path in files if "/index-manifest-" in path]
    bare = [replace(entry, checksum=None) for entry in read_index_manifest(files[path], path)]
    data = write_index_manifest(bare, compression="zstd")
    assert b"merganser.checksums" in files[path]
    assert b"merganser.checksums" not in data
    monkeypatch.setattr(key_buckets, "_cache", Cache())
    storage = memory_with(files | {path: data}, f"dynamic-bare-{next(_names)}")
    _write(catalog_over(storage))
    assert _rows(storage) == OLD | NEW
    assert catalog_over(storage).table("db.t").check() == ()
    monkeypatch.setattr(key_buckets, "_cache", Cache())
    index = max((path for path in files if "/t/index/" in path), key=lambda path: len(files[path]))
    twice = files | {path: data, index: files[index][:4] * 2 + files[index][8:]}
    storage = memory_with(twice, f"dynamic-twice-{next(_names)}")
    with pytest.raises(FormatError, match=r"index of bucket 0 of .* has twice the key hash"):
        _write(catalog_over(storage))
    assert contents(storage) == twice
