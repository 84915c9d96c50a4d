"""Snapshots: the JSON file and the numbered store."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from merganser.errors import FormatError, NotFoundError
from merganser.meta.snapshot import Snapshot, snapshot_from_json
from merganser.meta.snapshots import SnapshotStore
from merganser.storage.paths import TablePaths
from tests.kit.builders import PatientEnv, catalog_over, memory_with

_names = itertools.count()
MINIMAL = Snapshot(
    id=1,
    schema_id=0,
    base_manifest_list="b",
    delta_manifest_list="d",
    commit_user="u",
    commit_identifier=1,
    commit_kind="APPEND",
    time_millis=1_700_000_000_123,
)


def _store() -> SnapshotStore:
    return SnapshotStore(TablePaths("memory://x/t"), PatientEnv(memory_with({}, f"snapshots-{next(_names)}")), "db.t")


def _json(**changes: Any) -> bytes:
    value = json.loads(MINIMAL.to_json()) | changes
    return json.dumps({key: item for key, item in value.items() if item != "absent"}).encode()


def test_a_snapshot_survives_its_file() -> None:
    full = replace(
        MINIMAL,
        uuid="x",
        watermark=-(2**63),
        properties={"k": "v"},
        total_record_count=0,
        statistics="s",
        operation="WRITE",
    )
    assert snapshot_from_json(full.to_json(), "p") == full
    assert full.commit_time == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)


def test_unknown_keys_are_kept_and_nulls_are_absent() -> None:
    found = snapshot_from_json(_json(future={"a": [1]}, changelogManifestList=None, logOffsets={"0": 1}), "p")
    assert found.unknown == {"future": {"a": [1]}}
    assert found.changelog_manifest_list is None
    assert json.loads(found.to_json())["future"] == {"a": [1]}
    assert b"changelogManifestList" not in found.to_json()


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"id": "absent"}, "'id' is missing"),
        ({"commitUser": "absent"}, "'commitUser' is missing"),
        ({"commitUser": 7}, "'commitUser' is 7, not text"),
        ({"id": "1"}, "'id' is '1', not a number"),
        ({"id": True}, "'id' is True, not a number"),
        ({"id": 1.5}, "'id' is 1.5"),
        ({"schemaId": -1}, "'schemaId' is -1"),
        ({"version": 4}, "version is 4"),
        ({"version": None}, None),
        ({"timeMillis": 2**62}, "no time"),
        ({"timeMillis": -1}, "no time"),
        ({"commitIdentifier": 2**63}, "64 bits"),
        ({"baseManifestList": "../x"}, "not a file name"),
        ({"indexManifest": "a/b"}, "not a file name"),
        ({"properties": "x"}, "not an object"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_key(changes: dict[str, Any], part: str | None) -> None:
    if part is None:
        assert snapshot_from_json(_json(**changes), "p").version == 3
        return
    with pytest.raises(FormatError, match=r"'p'") as caught:
        snapshot_from_json(_json(**changes), "p")
    assert part in str(caught.value)
    assert caught.value.context["path"] == "p"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"3", b"\xff", b"[" * 100_000])
def test_bytes_that_are_no_snapshot_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="'p'"):
        snapshot_from_json(data, "p")


def _fill(store: SnapshotStore, *ids: int) -> None:
    for number in ids:
        store.env.storage.replace(store.paths.snapshot(number), replace(MINIMAL, id=number).to_json())


@pytest.mark.parametrize(
    ("hint", "ids", "latest"),
    [
        (None, [], None),
        (b"3", [], None),
        (b"3", [1, 2, 3], 3),
        (b"2", [1, 2, 3], 3),
        (b"9", [1, 2, 3], 3),
        (b"", [4, 5], 5),
        (b"x", [4, 5], 5),
        (b"0", [1], 1),
        (b"-1", [1], 1),
    ],
)
def test_the_latest_hint_is_only_a_place_to_start(hint: bytes | None, ids: list[int], latest: int | None) -> None:
    store = _store()
    _fill(store, *ids)
    if hint is not None:
        store.env.storage.replace(store.paths.latest_hint, hint)
        store.env.storage.replace(store.paths.earliest_hint, hint)
    assert store.latest_id() == latest
    assert store.earliest_id() == (
        int(hint) if hint and hint.isdigit() and int(hint) in ids else min(ids, default=None)
    )
    assert (store.latest() and store.latest().id) == latest  # type: ignore[union-attr]


def test_other_files_in_the_directory_are_no_snapshots() -> None:
    store = _store()
    _fill(store, 2)
    for name in ("snapshot-x", ".snapshot-9.uuid.tmp", "snapshot-", "snapshot-3.bak", "LATEST", "snapshot--1"):
        store.env.storage.replace(f"{store.paths.snapshot_directory}/{name}", b"")
    assert store.ids() == [2]


def test_a_snapshot_under_the_name_of_another_is_refused() -> None:
    store = _store()
    store.env.storage.replace(store.paths.snapshot(5), MINIMAL.to_json())
    with pytest.raises(FormatError, match="its id is 1"):
        store.get(5)


def test_walking_back_ends_where_a_snapshot_is_gone() -> None:
    store = _store()
    _fill(store, 2, 4, 5, 6)
    assert [s.id for s in store.walk_back(6)] == [6, 5, 4]
    assert list(store.walk_back(0)) == []


def test_a_table_without_snapshots_says_so() -> None:
    with pytest.raises(NotFoundError, match="no snapshots yet"):
        _store().load(1)


@pytest.mark.parametrize("end", ["", "0", "007", "\u0663", "9.tmp", "-1"])
def test_only_names_as_writers_write_them_are_snapshots(end: str) -> None:
    store = _store()
    store.create(MINIMAL)
    store.env.storage.replace(f"memory://x/t/snapshot/snapshot-{end}", b"")
    assert store.ids() == [1]
    assert store.latest() == MINIMAL


def test_a_walk_back_reads_ahead_and_stops_at_what_is_missing_or_damaged_only_when_it_comes_there() -> None:
    store = _store()
    for number in range(3, 201):
        store.create(replace(MINIMAL, id=number))
    walk = [snapshot.id for snapshot in store.walk_back(200)]
    assert walk == list(range(200, 2, -1))
    store.env.storage.replace(store.paths.snapshot(190), b"damaged")
    ids = iter(store.walk_back(200))
    assert [next(ids).id for _ in range(10)] == list(range(200, 190, -1))
    with pytest.raises(FormatError, match="snapshot-190"):
        next(ids)


def test_a_process_that_knows_a_snapshot_passes_over_damage_below_the_newest_and_tells_of_the_newest() -> None:
    store = _store()
    store.create(MINIMAL)
    assert store.latest() == MINIMAL
    newest = replace(MINIMAL, id=2)
    SnapshotStore(store.paths, PatientEnv(store.env.storage), "db.t").create(newest)
    store.env.storage.replace(store.paths.snapshot(1), b"{damaged")
    assert store.latest() == newest
    store.env.storage.replace(store.paths.snapshot(1), MINIMAL.to_json())
    store._know(MINIMAL)
    store.env.storage.replace(store.paths.snapshot(2), b"{damaged")
    with pytest.raises(FormatError, match="snapshot-2"):
        store.latest()
    assert store.latest_id() == 2


def test_a_state_is_read_although_the_snapshot_that_a_process_knows_is_damaged() -> None:
    catalog = catalog_over(memory_with({}, f"snapshots-{next(_names)}"))
    catalog.create_database("db")
    writer = catalog.create_table("db.t", "k INT")
    writer.write([{"k": 1}])
    reader = catalog_over(catalog.env.storage).table("db.t")
    assert reader.read().count() == 1
    writer.write([{"k": 2}])
    catalog.env.storage.replace(writer.definition.paths.snapshot(1), b"{damaged")
    assert reader.read().count() == 2
