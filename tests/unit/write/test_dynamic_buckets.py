"""Buckets that are added as keys arrive: the index of keys, which bucket a key gets, and who may write when."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser.codec.hashing import row_hashes
from merganser.commit.committable import Committable
from merganser.commit.message import CommitMessage
from merganser.commit.table_commit import TableCommit
from merganser.errors import ConflictError, FormatError
from merganser.files.key_hashes import read_hashes
from merganser.merge.hashed_keys import KeyHashes
from merganser.meta.index_manifest import HASH, IndexEntry, write_index_manifest
from merganser.meta.snapshot import COMPACT
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import write as w
from merganser.storage.cache import Cache
from merganser.storage.mapped import Arrays
from merganser.write import key_buckets
from merganser.write.dynamic import DynamicBuckets
from merganser.write.filling import in_order
from merganser.write.key_index import KeyIndex, Run
from merganser.write.rejoining import Rejoining
from merganser.write.start import Start
from merganser.write.transaction import Transaction
from tests.golden.test_golden import TABLES, expected_of, newest_schema
from tests.interop.values import difference, rows_of
from tests.kit.builders import catalog_over, contents, memory_with

_names = itertools.count()


def _table(target: int = 5, columns: dict[str, str] | None = None, **how: Any) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"dynamic-{next(_names)}"))
    catalog.create_database("db")
    options = {"dynamic-bucket.target-row-num": str(target), **how.pop("options", {})}
    columns = columns or {"k": "BIGINT", "v": "STRING"}
    return catalog.create_table("db.t", columns, primary_key=["k"], options=options, **how)


def _rows(keys: range | list[int], value: str = "v") -> pa.Table:
    return pa.table({"k": pa.array(list(keys), pa.int64()), "v": [value] * len(keys)})


def _index(table: mg.Table) -> list[IndexEntry]:
    definition, env = table.definition, table.env
    snapshot = SnapshotStore(definition.paths, env, table.name).latest()
    found = MetaReader(definition.paths, env, table.name).index(snapshot)
    return sorted((entry for entry in found if entry.index_type == HASH), key=lambda entry: entry.bucket)


def _buckets(table: mg.Table) -> dict[int, set[int]]:
    """The key hashes of each bucket."""
    return {e.bucket: set(read_hashes(table.definition, table.env, e).tolist()) for e in _index(table)}


def _hashes(keys: range | list[int]) -> list[int]:
    table = _table()
    return row_hashes([pa.chunked_array([pa.array(list(keys), pa.int64())])], table.definition.key_types).tolist()


def test_new_keys_fill_one_bucket_after_the_other_in_the_order_they_come() -> None:
    table = _table(target=5)
    table.write(_rows(range(12)))
    found = _buckets(table)
    assert found == {i: set(_hashes(range(12))[5 * i : 5 * i + 5]) for i in range(3)}
    table.write(_rows(range(6, 20)))
    found = _buckets(table)
    assert {bucket: len(hashes) for bucket, hashes in found.items()} == {0: 5, 1: 5, 2: 5, 3: 5}
    assert found[2] == set(_hashes(range(10, 15)))
    assert table.read().count() == 20
    assert table.check() == ()


def test_files_say_minus_one_for_the_number_of_buckets() -> None:
    table = _table()
    table.write(_rows(range(7)))
    definition = table.definition
    snapshot = SnapshotStore(definition.paths, table.env, table.name).latest()
    state = MetaReader(definition.paths, table.env, table.name).state(snapshot)
    assert {entry.total_buckets for entry in state.live} == {-1}
    assert set(table.files().column("bucket").to_pylist()) == {0, 1}


def test_a_commit_that_adds_no_key_writes_no_index_file_and_one_that_does_only_those_of_its_buckets() -> None:
    table = _table(target=4)
    table.write(_rows(range(10)))
    before = [entry.name for entry in _index(table)]
    table.write(_rows(range(10), "again"))
    assert [entry.name for entry in _index(table)] == before
    table.write(_rows([3, 10]))
    assert [entry.name for entry in _index(table)][:2] == before[:2]
    assert _index(table)[2].name != before[2]
    files = contents(table.env.storage)
    assert {e.name for e in _index(table)} <= {path.rpartition("/")[2] for path in files if "/index/" in path}


def test_the_number_of_buckets_is_limited_and_the_smallest_grow_first() -> None:
    table = _table(target=3, options={"dynamic-bucket.max-buckets": "2"})
    table.write(_rows(range(4)))
    assert Counter({0: 3, 1: 1}) == {bucket: len(hashes) for bucket, hashes in _buckets(table).items()}
    table.write(_rows(range(21)))
    assert Counter({0: 11, 1: 10}) == {bucket: len(hashes) for bucket, hashes in _buckets(table).items()}
    assert table.read().count() == 21


def test_keys_of_one_hash_share_a_bucket() -> None:
    keys = np.random.default_rng(1).integers(0, 1 << 60, 300_000)
    table = _table(target=1_000)
    hashes = row_hashes([pa.chunked_array([pa.array(keys)])], table.definition.key_types)
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    pairs = [(int(keys[order[i]]), int(keys[order[i + 1]])) for i in same]
    assert len(pairs) == 5
    table.write(_rows([first for first, _ in pairs]))
    table.write(_rows(range(500_000, 502_000)))
    table.write(_rows([second for _, second in pairs], "second"))
    assert table.read().count() == 2 * len(pairs) + 2_000
    assert sum(map(len, _buckets(table).values())) == len(pairs) + 2_000
    assert table.lookup({"k": pairs[0][1]}).to_pylist()[0]["v"] == "second"
    assert table.check() == ()


def test_each_partition_has_buckets_of_its_own() -> None:
    catalog = catalog_over(memory_with({}, f"dynamic-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", "k BIGINT, v STRING, p STRING", ["p", "k"], ["p"], {"dynamic-bucket.target-row-num": "3"}
    )
    rows = [{"k": k % 10, "v": "x", "p": "ab"[k // 10]} for k in range(20)]
    random.Random(1).shuffle(rows)
    table.write(rows)
    assert Counter((e.partition, e.bucket) for e in _index(table)).most_common(1)[0][1] == 1
    assert [entry.row_count for entry in _index(table)] == [3, 3, 3, 3, 3, 3, 1, 1]
    table.write([{"k": 0, "v": "y", "p": "a"}])
    assert table.read(where="p = 'a' and k = 0").to_pylist() == [{"k": 0, "v": "y", "p": "a"}]
    assert table.check() == ()


def test_a_rollback_takes_the_buckets_of_its_keys_back() -> None:
    table = _table(target=4)
    table.write(_rows(range(4)))
    first = _index(table)
    table.write(_rows(range(12)))
    table.rollback(1)
    assert _index(table) == first
    table.write(_rows(range(20, 26)))
    assert _buckets(table) == {0: set(_hashes(range(4))), 1: set(_hashes(range(20, 24))), 2: set(_hashes([24, 25]))}
    assert table.read().count() == 10
    assert table.check() == ()


def test_an_overwrite_gives_its_keys_buckets_anew() -> None:
    table = _table(target=4)
    table.write(_rows(range(10)))
    table.write(_rows([9, 8, 7]), overwrite={})
    assert _buckets(table) == {0: set(_hashes([7, 8, 9]))}
    assert [entry.bucket for entry in _index(table)] == [0]
    assert table.read().count() == 3
    table.write(_rows(range(10)))
    assert table.read().count() == 10
    assert table.check() == ()


def test_an_overwrite_of_a_partition_leaves_the_index_of_others() -> None:
    catalog = catalog_over(memory_with({}, f"dynamic-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", "k BIGINT, v STRING, p STRING", ["p", "k"], ["p"], {"dynamic-bucket.target-row-num": "3"}
    )
    table.write([{"k": k, "v": "x", "p": p} for k in range(5) for p in "ab"])
    before = {e.name for e in _index(table)}
    table.write([{"k": 1, "v": "y", "p": "a"}], overwrite={"p": "a"})
    assert len({e.name for e in _index(table)} & before) == 2
    assert sorted(e.row_count for e in _index(table)) == [1, 2, 3]
    table.drop_partitions([{"p": "b"}])
    table.write([{"k": 1, "v": "z", "p": "b"}, {"k": 77, "v": "z", "p": "b"}])
    assert table.read(where="p = 'b'").count() == 2
    assert table.check() == ()


def test_deletes_and_compactions_keep_the_bucket_of_a_key() -> None:
    table = _table(target=4)
    table.write(_rows(range(8)))
    before = _buckets(table)
    table.write([{"k": k, "v": None, "op": "-D"} for k in range(8)], kinds="op")
    table.compact(full=True)
    assert table.read().count() == 0
    table.write(_rows(range(8)))
    assert _buckets(table) == before
    assert table.check() == ()


@pytest.fixture
def placed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows get their buckets when they come, as those of large writes do."""
    monkeypatch.setattr("merganser.write.buffer.SMALL_BYTES", 0)


def _named_files(table: mg.Table) -> bool:
    """Whether the store has no other index files than those of snapshots."""
    names = {path.rpartition("/")[2] for path in contents(table.env.storage) if "/index/" in path}
    definition = table.definition
    reader = MetaReader(definition.paths, table.env, table.name)
    return names == {entry.name for s in reader.snapshots.ids() for entry in reader.index(reader.snapshots.load(s))}


@pytest.mark.usefixtures("placed_at_once")
def test_new_keys_of_two_writers_at_once_join_where_their_buckets_agree() -> None:
    table = _table(target=4)
    table.write(_rows(range(3)))
    with table.writer() as one, table.writer() as other:
        one.write(_rows([0, 10, 11, 12], "one"))  # 10 to bucket 0, 11 and 12 to bucket 1
        other.write(_rows([1, 10, 21, 22, 23], "other"))  # 10 to bucket 0, the others to bucket 1
        one.commit()
        other.commit()
    assert _buckets(table) == {0: set(_hashes([0, 1, 2, 10])), 1: set(_hashes([11, 12, 21, 22, 23]))}
    assert {row["k"]: row["v"] for row in table.read().to_pylist()} == {
        **dict.fromkeys([0, 11, 12], "one"),
        **dict.fromkeys([1, 10, 21, 22, 23], "other"),
        2: "v",
    }
    assert table.check() == ()
    assert _named_files(table)


@pytest.mark.usefixtures("placed_at_once")
def test_a_commit_of_known_keys_follows_one_that_adds_keys_and_writes_no_index_file() -> None:
    table = _table(target=4)
    table.write(_rows(range(6)))
    with table.writer() as writer:
        writer.write(_rows(range(6), "again"))
        table.write(_rows(range(6, 11)))
        before = _index(table)
        writer.commit()
    assert _index(table) == before
    assert sorted(row["v"] for row in table.read().to_pylist()) == ["again"] * 6 + ["v"] * 5
    assert table.check() == ()


@pytest.mark.usefixtures("placed_at_once")
def test_a_new_key_that_another_commit_gave_another_bucket_is_refused_and_can_be_written_again() -> None:
    table = _table(target=4)
    table.write(_rows(range(3)))
    with table.writer() as one, table.writer() as other:
        one.write(_rows(range(3, 10)))
        other.write(_rows(range(6, 14)))
        one.commit()
        with pytest.raises(ConflictError, match=r"in 1 of the 1 partitions .* another bucket.* Write the rows again"):
            other.commit()
        assert table.read().count() == 10
        other.abort()
        assert _named_files(table)
        other.write(_rows(range(6, 14), "other"))
        other.commit()
    assert table.read().count() == 14
    assert table.read(where="k = 7").to_pylist() == [{"k": 7, "v": "other"}]
    assert table.check() == ()
    assert _named_files(table)


@pytest.mark.usefixtures("placed_at_once")
@pytest.mark.parametrize("how", ["overwrite", "rollback"])
def test_known_keys_of_a_writer_are_not_believed_after_an_overwrite_or_a_rollback(how: str) -> None:
    table = _table(target=4)
    table.write(_rows(range(3)))
    table.write(_rows(range(12)))
    with table.writer() as writer:
        writer.write(_rows(range(12), "again"))
        if how == "overwrite":
            table.write(_rows(range(11, -1, -1), "new"), overwrite={})
        else:
            table.rollback(1)
            table.write(_rows(range(11, 2, -1)))
        with pytest.raises(ConflictError, match="replaced the keys"):
            writer.commit()
    assert table.read().count() == 12
    assert table.check() == ()


@pytest.mark.usefixtures("placed_at_once")
def test_a_call_that_holds_its_rows_writes_them_again_if_another_commit_gave_their_keys_other_buckets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = _table(target=4)
    table.write(_rows(range(3)))
    finish, meant = Transaction.finish, [_rows(range(20, 30), "first")]

    def overtaken(self: Transaction, messages: Any, **how: Any) -> Any:
        while meant:
            table.write(meant.pop())
        return finish(self, messages, **how)

    monkeypatch.setattr(Transaction, "finish", overtaken)
    snapshot = table.write(_rows(range(29, 19, -1), "second"), commit_user="job", identifier=1)
    assert snapshot is not None
    assert [s.commit_user for s in table.snapshots()].count("job") == 1
    assert sorted(row["v"] for row in table.read().to_pylist()) == ["second"] * 10 + ["v"] * 3
    meant.append(_rows(range(40, 50), "first"))
    with pytest.raises(ConflictError, match="another bucket"):  # rows that came from an iterator are gone
        table.write(iter([_rows(range(49, 39, -1), "second")]))
    assert table.check() == ()
    assert _named_files(table)


@pytest.mark.campaign(1 / 3)
@pytest.mark.usefixtures("placed_at_once")
@pytest.mark.parametrize("seed", range(6))
def test_writers_that_overlap_at_random_leave_the_rows_of_their_commits_in_order(seed: int) -> None:
    """Writers of new and known keys begin and commit at random, beside overwrites, rollbacks and compactions."""
    rng = random.Random(seed)
    table = _table(target=rng.choice([2, 3, 5, 50]), options={"write-only": "true"})
    table.write(_rows(range(4), "0"))
    states = [dict.fromkeys(range(4), "0")]
    ids = [1]
    open_writers: list[tuple[mg.Writer, dict[int, str]]] = []
    refused = joined = 0
    for step in range(60):
        what = rng.random()
        if what < 0.45 and len(open_writers) < 4:
            rows = dict.fromkeys(rng.sample(range(rng.choice([8, 40])), rng.randrange(1, 7)), f"{seed} {step}")
            writer = table.writer()
            writer.write(_rows(list(rows), f"{seed} {step}"))
            open_writers.append((writer, rows))
        elif what < 0.9 and open_writers:
            writer, rows = open_writers.pop(rng.randrange(len(open_writers)))
            with writer:
                try:
                    snapshot = writer.commit()
                except ConflictError:
                    refused += 1
                    continue
                joined += 1
            assert snapshot is not None
            ids.append(snapshot.id)
            states.append(states[-1] | rows)
        elif what < 0.93:
            table.compact(full=True)
        elif what < 0.96:
            rows = dict.fromkeys(rng.sample(range(20), 5), f"over {step}")
            snapshot = table.write(_rows(list(rows), f"over {step}"), overwrite={})
            assert snapshot is not None
            ids.append(snapshot.id)
            states.append(rows)
        elif len(ids) > 1:
            back = rng.randrange(max(0, len(ids) - 3), len(ids))
            table.rollback(ids[back])
            ids, states = ids[: back + 1], states[: back + 1]
    for writer, _ in open_writers:
        writer.abort()
    assert {row["k"]: row["v"] for row in table.read().to_pylist()} == states[-1]
    assert table.check() == ()
    assert joined > 5
    assert refused < joined or table.definition.options.get(w.DYNAMIC_BUCKET_TARGET_ROW_NUM) < 10


def test_two_writers_of_known_keys_do_not_meet() -> None:
    table = _table(target=4)
    table.write(_rows(range(10)))
    with table.writer() as one, table.writer() as other:
        one.write(_rows(range(5), "one"))
        other.write(_rows(range(5, 10), "other"))
        one.commit()
        other.commit()
    assert sorted(row["v"] for row in table.read().to_pylist()) == ["one"] * 5 + ["other"] * 5


def test_small_commits_of_many_threads_wait_for_their_turn() -> None:
    table = _table(target=7)

    def write(number: int) -> None:
        for i in range(3):
            table.write(_rows(range(20 * number + 3 * i, 20 * number + 3 * i + 10)))

    table.env.map(write, range(4))
    assert table.read().count() == 4 * 16
    assert sum(map(len, _buckets(table).values())) == 4 * 16
    assert table.check() == ()


@pytest.mark.parametrize("name", ["dyn_java", "dyn_py", "dyn_rust", "legacy_dyn", "mixed_dyn", "dyn_part_java"])
def test_a_table_of_another_implementation_is_written_on(name: str, tmp_path: Path) -> None:
    shutil.copytree(TABLES / name, tmp_path / name)
    table = mg.table(str(tmp_path / name))
    before = _index(table)
    rows = table.read().to_arrow()
    table.write(rows)  # every key is known
    assert _index(table) == before
    found = rows_of(table.read().to_arrow(), newest_schema(name)["fields"])
    assert difference(found, expected_of(name)["rows"]) is None
    key = table.definition.key[0]
    first = rows.slice(0, 1).to_pylist()[0]
    new = [{**first, key: type(first[key])(10_000 + i)} for i in range(20)]
    table.write(pa.Table.from_pylist(new, rows.schema))
    assert table.read().count() == rows.num_rows + 20
    assert {(e.partition, e.bucket) for e in before} <= {(e.partition, e.bucket) for e in _index(table)}
    assert [found for found in table.check() if found.is_fault] == []


def test_a_key_in_the_indexes_of_two_buckets_is_found_and_no_row_of_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_buckets, "_cache", Cache())
    table = _table(target=4)
    table.write(_rows(range(8)))
    first, second = _index(table)
    before = _buckets(table)
    storage = table.env.storage
    paths = {path.rpartition("/")[2]: path for path in contents(storage) if "/index/" in path}
    storage.replace(paths[second.name], storage.read(paths[first.name]))
    (manifest,) = [path for path in contents(storage) if "/index-manifest-" in path]
    bare = [replace(entry, checksum=None) for entry in (first, second)]  # as other engines write it
    storage.replace(manifest, write_index_manifest(bare, compression="zstd"))
    monkeypatch.setattr(key_buckets, "_cache", Cache())  # as another process
    again = catalog_over(memory_with(contents(storage), f"dynamic-{next(_names)}")).table("db.t")
    with pytest.raises(FormatError, match=r"buckets 0 and 1 .* both have the key hash"):
        again.write(_rows([1]))
    assert any("4 key hashes twice" in finding.problem for finding in again.check())
    assert again.repair().indexes == 1  # the other one is what the rows say
    assert _buckets(again) == before
    again.write(_rows([1]))


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda data: data[:-4], r"12 bytes, and 4 keys take 16"),
        (lambda data: bytes([data[0] ^ 4]) + data[1:], "do not have the checksum"),
        (lambda data: None, "it is missing"),
    ],
)
def test_a_damaged_index_stops_writes_and_not_reads_and_a_repair_builds_it_from_the_rows(
    monkeypatch: pytest.MonkeyPatch, harm: Callable[[bytes], bytes | None], why: str
) -> None:
    table = _table(target=4)
    table.write(_rows(range(8)))
    table.write(_rows([1, 5]), kinds=["-D", "-D"])
    before = _buckets(table)
    storage = table.env.storage
    path = next(p for p in contents(storage) if p.endswith(_index(table)[0].name))
    harmed = harm(storage.read(path))
    left = {name: data for name, data in contents(storage).items() if name != path}
    if harmed is not None:
        left[path] = harmed
    monkeypatch.setattr(key_buckets, "_cache", Cache())  # as another process
    again = catalog_over(memory_with(left, f"dynamic-{next(_names)}")).table("db.t")
    with pytest.raises(FormatError, match=why) as refused:
        again.write(_rows([1]))
    assert "table.repair()" in str(refused.value)
    assert again.read().count() == 6
    found = [one for one in again.check() if one.path.endswith(path.rpartition("/")[2])]
    assert {one.code for one in found} == {"index"}
    assert "`merganser repair`" in found[0].advice
    assert again.repair().indexes == 1
    assert _buckets(again) == before
    assert again.repair().indexes == 0
    again.write(_rows(range(10)))
    assert again.read().count() == 10
    assert {one.snapshot for one in again.check()} <= {1, 2}


def test_new_keys_join_those_of_others_also_if_the_state_that_they_joined_expires_meanwhile() -> None:
    table, turns = _table(target=100), [1, 2]
    other = catalog_over(table.env.storage).table("db.t")
    table.write(_rows(range(8)))
    joined = Rejoining.__call__

    def late(self: Rejoining, state: TableState, messages: Sequence[CommitMessage]) -> Sequence[CommitMessage]:
        if turns:
            number = turns.pop() * 1000
            other.write(_rows([number]))
            other.expire(retain_max=1, retain_min=1, older_than="2200-01-01")
        return joined(self, state, messages)

    with patch.object(Rejoining, "__call__", late):
        table.write(_rows(range(20)))
    assert not turns
    assert {row["k"] for row in other.read().to_pylist()} == {*range(20), 1000, 2000}
    assert other.check() == ()


def test_a_repair_begins_anew_if_others_write_to_its_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(target=4)
    table.write(_rows(range(8)))
    storage = table.env.storage
    path = next(p for p in contents(storage) if p.endswith(_index(table)[0].name))
    kept = storage.read(path)
    storage.replace(path, kept[:-4])
    commit, todo = TableCommit.commit, [1]

    def late(self: TableCommit, change: Committable, **how: Any) -> Any:
        if todo and change.kind == COMPACT:
            todo.pop()
            table.write(_rows([0, 3, 20]))  # this process still knows the index
        return commit(self, change, **how)

    monkeypatch.setattr(TableCommit, "commit", late)
    other = catalog_over(storage).table("db.t")
    other.repair()
    monkeypatch.setattr(key_buckets, "_cache", Cache())
    other.write(_rows(range(8)))
    assert other.read().count() == 9
    assert {one.snapshot for one in other.check()} <= {1, 2}


def test_runs_of_keys_say_what_a_dict_says(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    env = _table().env
    for budget in (1 << 20, 64):
        arrays = Arrays(budget)
        known: dict[int, int] = {}
        keys = KeyIndex()
        for _ in range(40):
            new = [h for h in np.unique(rng.integers(-5_000, 5_000, rng.integers(1, 60))).tolist() if h not in known]
            places = rng.integers(0, 9, len(new)).astype(np.uint16)
            known |= dict(zip(new, places.tolist(), strict=True))
            keys = keys.with_run(Run(KeyHashes(np.array(new, np.int32)), places), arrays, env)
            asked = np.unique(rng.integers(-6_000, 6_000, 200)).astype(np.int32)
            assert keys.find(KeyHashes(asked)).tolist() == [known.get(h, -1) for h in asked.tolist()]
        assert len(keys) == len(known)
        assert len(keys.runs) < 12
        gone = keys.without({3, 4})
        assert len(gone) == sum(place not in (3, 4) for place in known.values())
        for bucket in range(9):
            assert set(keys.of(bucket).first.tolist()) == {h for h, place in known.items() if place == bucket}


def test_tasks_give_keys_buckets_of_their_own_and_one_that_has_all_keys_fills_one_after_the_other() -> None:
    table = _table(target=10)
    rows = _rows(range(100))
    of = np.abs(np.array(_hashes(range(100)))) % 3
    start = Start(lambda bucket: 0, assigners=3)
    for number in range(3):
        own = rows.filter(pa.array(of == number))
        task = DynamicBuckets(table.definition, table.env, start)
        placed = {group.bucket: len(group.rows) for group in task.assign(own)}
        assert {bucket % 3 for bucket in placed} == {number}
        assert max(placed.values()) <= 10
        assert sum(placed.values()) == own.num_rows
    every = DynamicBuckets(table.definition, table.env, start)
    assert Counter({g.bucket: len(g.rows) for g in every.assign(rows.slice(0, 9))}).total() == 9
    list(every.assign(rows))
    assert len(every.written_keys()) in (10, 11, 12)  # the first rows came before two of the assigners were known


def test_options_that_dynamic_buckets_take_are_checked() -> None:
    for key, value in (("target-row-num", "0"), ("initial-buckets", "0"), ("max-buckets", "-2"), ("max-buckets", "0")):
        with pytest.raises(mg.errors.InvalidInputError, match=key):
            _table(options={f"dynamic-bucket.{key}": value})


def test_golden_indexes_hold_the_hash_of_every_key() -> None:
    """The fixed point: indexes of another implementation have our hashes of its keys."""
    table = mg.table(str(TABLES / "dyn_java"))
    key = table.read().to_arrow().select(list(table.definition.key))
    hashes = row_hashes(key.columns, table.definition.key_types)
    assert set(hashes.tolist()) <= set().union(*_buckets(table).values())
    assert json.loads((TABLES / "dyn_java.expected.json").read_text())["row_count"] == len(hashes)


@pytest.mark.parametrize("buckets", [1, 3, 40])
@pytest.mark.parametrize("gaps", [1, 7])
def test_keys_that_come_earlier_get_the_buckets_that_are_filled_earlier(buckets: int, gaps: int) -> None:
    chance = np.random.default_rng(buckets)
    sizes = {bucket: 1 + int(chance.integers(9)) for bucket in chance.permutation(buckets).tolist()}
    count = sum(sizes.values())
    firsts = chance.choice(count * gaps, count, replace=False)
    expected = np.repeat(np.array(list(sizes)), list(sizes.values()))
    assert in_order(sizes, firsts)[np.argsort(firsts)].tolist() == expected.tolist()
