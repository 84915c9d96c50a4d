"""Manifests, lists, live files and states: what is written comes back, and what cannot be is refused."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

import merganser as mg
from merganser.codec.avro import write_records
from merganser.codec.stats import EMPTY_ROW, NO_STATS, SimpleStats
from merganser.errors import FormatError
from merganser.meta.data_file import ADD, DELETE, DataFile, ManifestEntry
from merganser.meta.live_files import EMPTY
from merganser.meta.manifest import read_manifest, write_manifest
from merganser.meta.manifest_list import ManifestFile, read_manifest_list, write_manifest_list
from merganser.meta.seal import sealed
from merganser.meta.table_state import MetaReader
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
FILE = DataFile(
    name="data-1-0.parquet",
    size=100,
    row_count=3,
    min_key=EMPTY_ROW,
    max_key=EMPTY_ROW,
    key_stats=NO_STATS,
    value_stats=SimpleStats(EMPTY_ROW, EMPTY_ROW, (None, 2)),
    min_sequence=0,
    max_sequence=2,
    schema_id=0,
    level=0,
    extra_files=("data-1-0.parquet.index",),
    creation_time_ms=1_700_000_000_123,
    delete_row_count=1,
    embedded_index=b"\x00\x01",
    source=1,
    value_stats_columns=("a", "b"),
    external_path="s3://other/x",
    first_row_id=5,
    write_columns=("a",),
    write_columns_sequences=(1, 2),
)
ENTRY = ManifestEntry(ADD, EMPTY_ROW, 0, 1, FILE)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "deflate", "none"])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_entries_survive_a_manifest(compression: str, count: int) -> None:
    bare = replace(
        ENTRY,
        kind=DELETE,
        file=replace(
            FILE,
            extra_files=(),
            creation_time_ms=None,
            delete_row_count=None,
            embedded_index=None,
            source=None,
            value_stats_columns=None,
            external_path=None,
            first_row_id=None,
            write_columns=None,
            write_columns_sequences=None,
            value_stats=SimpleStats(EMPTY_ROW, EMPTY_ROW, None),
        ),
    )
    entries = tuple(itertools.islice(itertools.cycle([ENTRY, bare]), count))
    assert read_manifest(write_manifest(entries, compression=compression), "p") == entries


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../x"},
        {"name": ""},
        {"name": "a/b"},
        {"extra_files": ("/etc/passwd",)},
        {"size": -1},
        {"row_count": -1},
        {"row_count": 0, "delete_row_count": 1},
        {"delete_row_count": -1},
        {"min_sequence": 3},
        {"level": -1},
        {"schema_id": -1},
    ],
)
def test_an_entry_that_cannot_be_is_refused_with_the_path(change: dict[str, Any]) -> None:
    data = write_manifest([ENTRY, replace(ENTRY, file=replace(FILE, **change))], compression="zstd")
    with pytest.raises(FormatError, match=r"'p'.*entry 2 of 2"):
        read_manifest(data, "p")


@pytest.mark.parametrize("extra", ["../x", "a/b"])
def test_the_name_that_leads_elsewhere_is_the_one_told(extra: str) -> None:
    entry = replace(ENTRY, file=replace(FILE, extra_files=("index", extra)))
    with pytest.raises(FormatError, match=f"file name '{extra}' leads elsewhere in entry 1 of 1"):
        read_manifest(write_manifest([entry], compression="zstd"), "p")


@pytest.mark.parametrize("sealed_too", [False, True])
@pytest.mark.parametrize(
    ("field", "kind", "value"),
    [
        ("_FILE_SIZE", "double", 1.5),
        ("_FILE_SIZE", "double", 1e300),
        ("_FILE_SIZE", "string", "5"),
        ("_FILE_SIZE", "string", "9" * 30),
        ("_FILE_SIZE", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 0}, Decimal(10**25)),
        ("_FILE_SIZE", {"type": "array", "items": "long"}, [1]),
        ("_FILE_SIZE", ["null", "long"], None),
        ("_FILE_NAME", ["null", "string"], None),
        ("_DELETE_ROW_COUNT", "string", ""),
        ("_LEVEL", ["null", "int"], None),
    ],
)
def test_fields_of_other_types_are_refused_with_the_path(
    field: str, kind: object, value: object, sealed_too: bool
) -> None:
    container = fastavro.reader(io.BytesIO(write_manifest([ENTRY], compression="none")))
    schema = json.loads(json.dumps(container.writer_schema))
    [entry] = container
    inner = next(part for part in schema["fields"] if part["name"] == "_FILE")["type"]["fields"]
    [changed] = [part for part in inner if part["name"] == field]
    changed.pop("default", None)
    changed["type"] = kind
    entry["_FILE"][field] = value
    data = write_records(fastavro.parse_schema(schema), [entry], compression="none")
    with pytest.raises(FormatError, match="'p'"):
        read_manifest(sealed(data) if sealed_too else data, "p")


@pytest.mark.parametrize(("bucket", "total"), [(-3, 1), (1, 1), (5, 4), (0, -3)])
def test_a_bucket_that_cannot_be_is_refused(bucket: int, total: int) -> None:
    with pytest.raises(FormatError, match=f"bucket {bucket} of {total}"):
        read_manifest(write_manifest([replace(ENTRY, bucket=bucket, total_buckets=total)], compression="zstd"), "p")


@pytest.mark.parametrize(("bucket", "total"), [(-2, -2), (0, -1), (7, -1), (3, 4)])
def test_buckets_of_every_kind_of_table_are_read(bucket: int, total: int) -> None:
    [found] = read_manifest(
        write_manifest([replace(ENTRY, bucket=bucket, total_buckets=total)], compression="zstd"), "p"
    )
    assert (found.bucket, found.total_buckets) == (bucket, total)


def test_manifests_survive_a_list() -> None:
    listed = ManifestFile("manifest-1-0", 10, 2, 1, NO_STATS, 0, 0, 3, 0, 5, None, None)
    for manifests in ((), (listed,), (listed, replace(listed, name="manifest-2-0", min_bucket=None))):
        assert read_manifest_list(write_manifest_list(manifests, compression="zstd"), "p") == manifests


@pytest.mark.parametrize("change", [{"name": "../m"}, {"size": -1}, {"added": -1}, {"deleted": -2}, {"schema_id": -1}])
def test_a_manifest_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    listed = replace(ManifestFile("m", 10, 2, 1, NO_STATS, 0), **change)
    with pytest.raises(FormatError, match="'p'"):
        read_manifest_list(write_manifest_list([listed], compression="zstd"), "p")


def test_a_list_is_no_manifest_and_a_manifest_no_list() -> None:
    with pytest.raises(FormatError, match="'p'"):
        read_manifest(write_manifest_list([ManifestFile("m", 1, 1, 0, NO_STATS, 0)], compression="zstd"), "p")
    with pytest.raises(FormatError, match="'p'"):
        read_manifest_list(write_manifest([ENTRY], compression="zstd"), "p")


# live files


def _named(name: str, kind: int = ADD, bucket: int = 0, sequence: int = 0) -> ManifestEntry:
    return ManifestEntry(kind, EMPTY_ROW, bucket, 2, replace(FILE, name=name, min_sequence=0, max_sequence=sequence))


def test_live_files_are_what_was_added_and_not_removed() -> None:
    live = EMPTY.apply([_named("a", sequence=9), _named("b", bucket=1), _named("c")], source="s")
    live = live.apply([_named("a", DELETE, sequence=9), _named("d", sequence=4)], source="s")
    assert [e.file.name for e in live] == ["c", "d", "b"]
    assert len(live) == 3
    assert live.next_sequence((EMPTY_ROW, 0)) == 5
    assert live.next_sequence((EMPTY_ROW, 7)) == 0


def test_a_bucket_without_files_is_gone() -> None:
    live = EMPTY.apply([_named("a"), _named("a", DELETE)], source="s")
    assert not live.buckets


@pytest.mark.parametrize(
    ("entries", "part"),
    [
        ([_named("a"), _named("a")], "add the file 'a' twice"),
        ([_named("a", DELETE)], "remove the file 'a', which they never added"),
        ([_named("a"), _named("a", DELETE), _named("a", DELETE)], "never added"),
    ],
)
def test_entries_that_contradict_each_other_are_damage(entries: list[ManifestEntry], part: str) -> None:
    with pytest.raises(FormatError, match=part) as caught:
        EMPTY.apply(entries, source="snapshot 3 of 't'", path="p")
    assert caught.value.context == {"file": "a", "path": "p"}


def test_a_file_added_again_after_many_commits_is_damage() -> None:
    live = EMPTY
    for number in range(300):
        live = live.apply([_named(f"f{number}", bucket=number % 2)], source="s")
    for number in (0, 1, 127, 128, 255, 256, 299):
        with pytest.raises(FormatError, match=f"add the file 'f{number}' twice"):
            live.apply([_named("new"), _named(f"f{number}", bucket=number % 2)], source="s")
    assert len(live.apply([_named("f0", bucket=1)], source="s")) == 301  # another bucket's file of the same name


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1)), max_size=6), max_size=30))
def test_states_carried_commit_by_commit_are_those_of_a_plain_replay(commits: list[list[tuple[int, int]]]) -> None:
    live = EMPTY
    there: dict[tuple[int, int], ManifestEntry] = {}
    for number, commit in enumerate(commits):
        entries = []
        for name, bucket in commit:  # what is there goes, what is not comes: as another file of the same name
            old = there.pop((bucket, name), None)
            if old is None:
                there[bucket, name] = _named(f"f{name}", bucket=bucket, sequence=number)
            entries.append(there[bucket, name] if old is None else replace(old, kind=DELETE))
        live = live.apply(entries, source="s")
        assert sorted(map(repr, live)) == sorted(map(repr, there.values()))
        for bucket in (0, 1):
            highest = max((e.file.max_sequence for (b, _), e in there.items() if b == bucket), default=-1)
            assert live.next_sequence((EMPTY_ROW, bucket)) == highest + 1


def test_a_state_is_not_changed_by_what_follows_it() -> None:
    first = EMPTY.apply([_named("a")], source="s")
    first.apply([_named("a", DELETE)], source="s")
    assert len(first) == 1
    assert len(EMPTY) == 0


# states


def _table() -> mg.Table:
    catalog = catalog_over(memory_with({}, f"states-{next(_names)}"))
    catalog.create_database("db")
    return catalog.create_table(
        "db.t", {"k": "INT"}, primary_key=["k"], options={"bucket": "1", "manifest.merge-min-count": "3"}
    )


def _fresh(table: mg.Table) -> MetaReader:
    return MetaReader(table.definition.paths, catalog_over(table.env.storage).env, table.name)


def test_a_state_carried_forward_equals_one_read_anew() -> None:
    table = _table()
    reader = _fresh(table)
    for number in range(12):
        table.write([{"k": number}], overwrite={} if number % 5 == 4 else None)
        if number % 3 == 0:
            carried = reader.latest()
            again = _fresh(table).latest()
            assert carried.snapshot == again.snapshot
            assert set(carried.live) == set(again.live)
            assert [e.file.name for e in carried.live] == [e.file.name for e in again.live]


def test_a_state_is_not_carried_over_a_rollback() -> None:
    table = _table()
    for number in range(4):
        table.write([{"k": number}])
    reader = _fresh(table)
    assert len(reader.latest().live) == 4
    paths = table.definition.paths
    table.env.storage.delete([paths.snapshot(3), paths.snapshot(4)])
    table.env.storage.replace(paths.latest_hint, b"2")
    other = catalog_over(table.env.storage).table("db.t")
    other.write([{"k": 70}, {"k": 71}])
    found = reader.latest()
    assert found.snapshot is not None
    assert found.snapshot.id == 3
    assert sorted(e.file.row_count for e in found.live) == [1, 1, 2]


def test_older_states_do_not_push_the_newest_out_of_memory() -> None:
    table = _table()
    for number in range(3):
        table.write([{"k": number}])
    reader = _fresh(table)
    newest = reader.latest()
    assert len(reader.state(reader.snapshots.load(1)).live) == 1
    assert reader.latest() is newest
