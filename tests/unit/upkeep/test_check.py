"""A table is damaged in one way, and the check says which."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.codec.binary_row import serialize
from merganser.codec.deletion_vector import encode_vectors
from merganser.codec.stats import SimpleStats, decode_stats, encode_stats
from merganser.errors import StorageError
from merganser.lsm.check import KINDS, UNSURE, Finding
from merganser.meta.data_file import ADD, DELETE, DataFile, ManifestEntry
from merganser.meta.index_manifest import IndexEntry, VectorRange, read_index_manifest, write_index_manifest
from merganser.meta.manifest import read_manifest, write_manifest
from merganser.meta.manifest_list import ManifestFile, read_manifest_list, write_manifest_list
from merganser.meta.seal import unsealed_json
from merganser.schema import types as t
from merganser.storage.memory import MemoryStorage
from merganser.storage.protocol import Storage
from tests.kit.builders import WAREHOUSE, catalog_over, contents, memory_with
from tests.kit.faulty import Fault, Outcome, run_every

Files = dict[str, bytes]
ROOT = f"{WAREHOUSE}/db.db/t"
GOLDEN = Path(__file__).parents[2] / "golden" / "tables"
_names = itertools.count()


def _built(*, keyed: bool = True, options: dict[str, str] | None = None) -> Files:
    """Three commits in two partitions and two buckets, one of them with retractions; then a full compaction of
    partition "a", and one more commit."""
    catalog = catalog_over(memory_with({}, f"check-{next(_names)}"))
    catalog.create_database("db")
    schema = {"p": "STRING", "k": "INT", "v": "STRING", "n": "INT NOT NULL"}
    how: dict[str, Any] = {"options": {"write-only": "true"} | (options or {})}
    if keyed:
        how["primary_key"] = ["p", "k"]
        how["options"]["bucket"] = "2"
    table = catalog.create_table("db.t", schema, partition_by=["p"], **how)
    table.write([_row("a", k) for k in range(12)])
    table.write([_row("b", k) for k in range(4)] + [_row("a", k) for k in range(6)])
    table.compact(full=True, partitions=[{"p": "a"}])
    table.write([_row("a", 3), _row("a", 4)], kinds=["+U", "-D"] if keyed else None)
    return contents(catalog.env.storage)


def _row(p: str, k: int) -> dict[str, Any]:
    return {"p": p, "k": k, "v": None if k % 5 == 0 else f"value {k}", "n": k}


@pytest.fixture(scope="module")
def sound() -> Files:
    return _built()


def check(files: Files, *, quick: bool = False) -> tuple[Finding, ...]:
    return catalog_over(memory_with(files, "check")).table("db.t").check(quick=quick)


def faults(files: Files) -> list[Finding]:
    """What is wrong; other writers leave no checksums, of which the check tells too."""
    return [found for found in check(files) if found.is_fault]


def only(files: Files, code: str, *, quick: bool = False) -> Finding:
    """The one finding there is, which is of this code."""
    found = check(files, quick=quick)
    assert [f.code for f in found] == [code], "\n".join(map(str, found))
    assert found[0].path in str(found[0])
    assert found[0].advice == KINDS[code]
    return found[0]


def of(files: Files, part: str) -> list[str]:
    return sorted(path for path in files if part in path)


def manifests(files: Files) -> list[str]:
    return [path for path in of(files, "/manifest/manifest-") if "/manifest-list-" not in path]


def with_manifest(files: Files, path: str, entries: Iterable[ManifestEntry]) -> Files:
    """Put entries into a manifest; sizes in lists and snapshots follow, nothing else does."""
    data = write_manifest(entries, compression="zstd")
    out = files | {path: data}
    name = path.rpartition("/")[2]
    return with_lists(out, lambda m: replace(m, size=len(data)) if m.name == name else m)


def with_lists(files: Files, change: Callable[[ManifestFile], ManifestFile]) -> Files:
    """Change what lists say; the sizes that snapshots say of them follow."""
    out = dict(files)
    for path in of(files, "/manifest/manifest-list-"):
        old = read_manifest_list(files[path], path)
        new = tuple(map(change, old))
        if new != old:
            out[path] = write_manifest_list(new, compression="zstd")
    for path in of(files, "/snapshot/snapshot-"):
        value = json.loads(out[path])
        for key in ("baseManifestList", "deltaManifestList"):
            value[key + "Size"] = len(out[f"{ROOT}/manifest/{value[key]}"])
        out[path] = json.dumps(value).encode()
    return out


def with_file(files: Files, change: Callable[[DataFile], DataFile], where: Callable[[ManifestEntry], bool]) -> Files:
    """Change what manifests say of one data file."""
    [chosen] = {e.file.name for path in manifests(files) for e in entries_of(files, path) if e.kind == ADD and where(e)}
    for path in manifests(files):
        old = entries_of(files, path)
        new = [replace(e, file=change(e.file)) if e.file.name == chosen else e for e in old]
        if new != list(old):
            files = with_manifest(files, path, new)
    return files


def entries_of(files: Files, path: str) -> tuple[ManifestEntry, ...]:
    return read_manifest(files[path], path)


def with_snapshot(files: Files, number: int, **values: Any) -> Files:
    path = f"{ROOT}/snapshot/snapshot-{number}"
    value = json.loads(files[path]) | values
    return files | {path: json.dumps({k: v for k, v in value.items() if v is not None}).encode()}


def newest_with_retractions(entry: ManifestEntry) -> bool:
    return entry.file.delete_row_count == 1


def compacted(entry: ManifestEntry) -> bool:
    return entry.file.level > 0 and entry.bucket == 0


# sound tables


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_sound_table_has_no_findings(keyed: bool, file_format: str) -> None:
    files = _built(keyed=keyed, options={"file.format": file_format})
    assert check(files) == ()
    assert check(files, quick=True) == ()


def test_a_table_that_was_never_written_is_sound() -> None:
    catalog = catalog_over(memory_with({}, "check-empty"))
    catalog.create_database("db")
    assert catalog.create_table("db.t", {"n": "INT"}).check() == ()


def test_a_table_whose_manifests_were_merged_is_sound() -> None:
    catalog = catalog_over(memory_with({}, "check-many"))
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"n": "INT"}, options={"manifest.merge-min-count": "3"})
    for n in range(12):
        table.write([{"n": n}])
    table.compact(full=True)
    table.write([{"n": 12}])
    assert table.check() == ()


def test_older_schemas_and_renamed_keys_are_those_of_the_files(sound: Files) -> None:
    schema = json.loads(sound[f"{ROOT}/schema/schema-0"])
    schema["id"] = 1
    schema["fields"][1]["name"] = "key"
    schema["primaryKeys"] = ["p", "key"]
    files = sound | {f"{ROOT}/schema/schema-1": json.dumps(schema).encode()}
    assert check(files) == ()


def test_nothing_is_written(sound: Files) -> None:
    storage = memory_with(sound, "check-only-reads")
    catalog_over(storage).table("db.t").check()
    assert contents(storage) == sound


def test_a_store_that_fails_is_not_taken_for_damage(sound: Files) -> None:
    def verify(_: Storage, outcome: Outcome[tuple[Finding, ...]]) -> None:
        if outcome.result is None:
            assert isinstance(outcome.error, StorageError)
        else:
            assert {f.code for f in outcome.result} <= {"unreadable"}
            assert outcome.struck is None or outcome.result or outcome.struck.path.endswith(("LATEST", "EARLIEST"))

    runs = run_every(
        lambda: memory_with(sound, "check-faults"),
        lambda storage: catalog_over(storage).table("db.t").check(),
        verify,
        faults=[Fault.FAIL],
    )
    assert runs > 30


# snapshots and hints


def test_a_gap_between_snapshots_is_found(sound: Files) -> None:
    files = {p: data for p, data in sound.items() if not p.endswith("/snapshot-2")}
    assert "snapshots 2 to 2 are missing between 1 and 3" in only(files, "gap").problem


def test_the_oldest_snapshots_may_be_gone(sound: Files) -> None:
    files = {p: data for p, data in sound.items() if not p.endswith(("/snapshot-1", "/snapshot-2"))}
    assert check(files) == ()


def test_a_hint_beyond_the_newest_snapshot_is_found(sound: Files) -> None:
    path = f"{ROOT}/snapshot/EARLIEST"
    assert only(sound | {path: b"9"}, "hint").path == path
    path = f"{ROOT}/snapshot/LATEST"
    assert only(sound | {path: b"9"}, "lost").path == f"{ROOT}/snapshot/snapshot-9"
    assert check(sound | {path: b"2"}) == ()


@pytest.mark.parametrize("name", ["LATEST", "EARLIEST"])
@pytest.mark.parametrize("text", [b"rubbish", b"", b"0"])
def test_a_hint_that_is_no_number_is_found_and_the_next_writer_ends_it(name: str, text: bytes, sound: Files) -> None:
    path = f"{ROOT}/snapshot/{name}"
    found = only(sound | {path: text}, "hint", quick=True)
    assert (found.path, found.problem) == (path, f"it holds {text!r}, which is no number of a snapshot.")
    table = catalog_over(memory_with(sound | {path: text}, "hints")).table("db.t")
    table.write([_row("a", 1)])
    table.expire(retain_max=1, retain_min=1)
    assert table.check() == ()


def test_a_handle_that_is_open_checks_a_table_whose_schema_is_damaged(sound: Files) -> None:
    table = catalog_over(memory_with(sound, "schema")).table("db.t")
    [lost] = of(sound, "/p=b/bucket-0/")
    schema = table.definition.paths.schema(0)
    table.env.storage.replace(schema, b"{")
    table.env.storage.delete([lost])
    found = {(f.code, f.path) for f in table.check()}
    assert {("damaged", schema), ("missing", lost)} <= found
    assert {code for code, _ in found} == {"damaged", "missing", "unreadable"}  # the rows of the other files
    assert {(f.code, f.path) for f in table.check(quick=True)} == {("damaged", schema), ("missing", lost)}


def test_a_damaged_snapshot_hides_nothing_else(sound: Files) -> None:
    [lost] = of(sound, "/p=b/bucket-0/")
    files = {p: d for p, d in sound.items() if p != lost} | {f"{ROOT}/snapshot/snapshot-1": b"{}"}
    assert {f.code for f in check(files)} == {"damaged", "missing"}


def test_a_commit_that_is_applied_twice_is_found(sound: Files) -> None:
    files = with_snapshot(sound, 1, commitUser="u", commitIdentifier=7)
    files = with_snapshot(files, 4, commitUser="u", commitIdentifier=7)
    assert "applies commit 7 of 'u'" in only(files, "twice").problem


@pytest.mark.parametrize("key", ["totalRecordCount", "deltaRecordCount"])
def test_a_wrong_count_of_a_snapshot_is_found(sound: Files, key: str) -> None:
    found = only(with_snapshot(sound, 4, **{key: 99}), "count", quick=True)
    assert "says that there are 99 rows" in found.problem
    assert found.path.endswith("/snapshot-4")


def test_a_snapshot_of_a_schema_that_is_not_there_is_found(sound: Files) -> None:
    found = only(with_snapshot(sound, 4, schemaId=5), "missing", quick=True)
    assert found.path.endswith("/schema-5")


def test_a_damaged_schema_is_found(sound: Files) -> None:
    newer = unsealed_json(sound[f"{ROOT}/schema/schema-0"]).replace(b'"id": 0,\n  "fields"', b'"id": 1,\n  "fields"')
    files = sound | {f"{ROOT}/schema/schema-1": newer, f"{ROOT}/schema/schema-0": b"[]"}
    assert "damaged" in {f.code for f in check(files) if f.path.endswith("/schema-0")}


# lists and manifests


def test_a_base_list_that_does_not_say_what_the_snapshot_before_left_is_found(sound: Files) -> None:
    [third] = [json.loads(sound[f"{ROOT}/snapshot/snapshot-{n}"]) for n in (3,)]
    files = with_snapshot(sound, 4, baseManifestList=third["baseManifestList"], baseManifestListSize=None)
    codes = {f.code for f in check(files, quick=True)}
    assert "replay" in codes


def test_an_entry_that_removes_what_was_never_added_is_found(sound: Files) -> None:
    path = delta_manifest(sound, 4)
    first = entries_of(sound, path)[0]
    stray = replace(first, kind=DELETE, file=replace(first.file, name="data-never-0.parquet"))
    files = with_manifest(sound, path, [*entries_of(sound, path), stray])
    codes = [f.code for f in check(files, quick=True)]
    assert "replay" in codes
    assert "count" in codes, "the list says how many entries there are"


def delta_manifest(files: Files, number: int) -> str:
    name = json.loads(files[f"{ROOT}/snapshot/snapshot-{number}"])["deltaManifestList"]
    path = f"{ROOT}/manifest/{name}"
    [manifest] = read_manifest_list(files[path], path)
    return f"{ROOT}/manifest/{manifest.name}"


@pytest.mark.parametrize("part", ["/manifest/manifest-list-", "/manifest/manifest-"])
def test_a_missing_list_or_manifest_is_found(sound: Files, part: str) -> None:
    chosen = delta_manifest(sound, 4)
    if "list" in part:
        chosen = f"{ROOT}/manifest/" + json.loads(sound[f"{ROOT}/snapshot/snapshot-4"])["deltaManifestList"]
    files = {p: d for p, d in sound.items() if p != chosen}
    found = only(files, "missing", quick=True)
    assert (found.path, found.snapshot) == (chosen, 4)


def test_a_list_or_manifest_of_another_size_is_found(sound: Files) -> None:
    for path in (delta_manifest(sound, 4), f"{ROOT}/manifest/{_lists(sound, 4)[0]}"):
        found = check(sound | {path: sound[path] + b" "}, quick=True)
        assert {(f.code, f.path) for f in found} == {("damaged", path)}


def _lists(files: Files, number: int) -> tuple[str, str]:
    value = json.loads(files[f"{ROOT}/snapshot/snapshot-{number}"])
    return value["baseManifestList"], value["deltaManifestList"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"added": 7}, "its list says 7"),
        ({"deleted": 7}, "its list says 7"),
        ({"min_bucket": 1, "max_bucket": 1}, "buckets 1 to 1"),
        ({"min_level": 3, "max_level": 5}, "levels 3 to 5"),
        ({"partition_stats": SimpleStats(*[serialize(("x",), (t.VarChar(),))] * 2, (0,))}, "'x' to 'x'"),
    ],
)
def test_what_a_list_says_of_a_manifest_and_is_not_so_is_found(
    sound: Files, values: dict[str, Any], words: str
) -> None:
    name = delta_manifest(sound, 1).rpartition("/")[2]
    files = with_lists(sound, lambda m: replace(m, **values) if m.name == name else m)
    found = check(files, quick=True)
    assert {f.code for f in found} == {"count"}
    assert words in found[0].problem


# data files


def test_a_missing_data_file_is_found(sound: Files) -> None:
    for path in of(sound, "/bucket-"):
        found = only({p: d for p, d in sound.items() if p != path}, "missing", quick=True)
        assert found.path == path


def test_a_data_file_of_another_size_is_found(sound: Files) -> None:
    path = of(sound, "/bucket-")[0]
    assert only(sound | {path: sound[path] + b"x"}, "damaged", quick=True).path == path


class _Expiring(MemoryStorage):
    """Some files go as soon as the first snapshot has been read."""

    going: ClassVar[list[str]] = []

    def read(self, path: str) -> bytes:
        data = super().read(path)
        if path.endswith("/snapshot-1"):
            self.delete(self.going)
        return data


def test_a_file_that_went_with_all_its_snapshots_during_the_check_is_not_missing(sound: Files) -> None:
    memory_with(sound, "check-expiring")
    storage = _Expiring("check-expiring")
    _Expiring.going = [f"{ROOT}/snapshot/snapshot-{n}" for n in (1, 2, 3)]
    _Expiring.going += [path for path in of(sound, "/p=a/bucket-0/") if _level_0(sound, path)]
    assert len(_Expiring.going) > 3
    assert catalog_over(storage).table("db.t").check() == ()
    assert not storage.exists(f"{ROOT}/snapshot/snapshot-1")


@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        ({"delete_row_count": 0}, "count", "1 of its rows are retractions, and its manifest says 0"),
        ({"max_sequence": 999}, "bounds", "says 12 to 999"),
        ({"min_key": serialize((-1,), (t.Int(),))}, "bounds", "its first key is"),
        ({"max_key": serialize((99,), (t.Int(),))}, "bounds", "its last key is"),
    ],
)
def test_what_a_manifest_says_of_a_data_file_and_is_not_so_is_found(
    sound: Files, values: dict[str, Any], code: str, words: str
) -> None:
    files = with_file(sound, lambda f: replace(f, **values), newest_with_retractions)
    found = check(files)
    assert [f.code for f in found] == [code], "\n".join(map(str, found))
    assert words.replace("12", str(_sequence(sound))) in found[0].problem
    assert check(files, quick=True) == ()


def _sequence(files: Files) -> int:
    [file] = [e.file for p in manifests(files) for e in entries_of(files, p) if newest_with_retractions(e)]
    return file.min_sequence


def test_a_wrong_row_count_is_found(sound: Files) -> None:
    files = with_file(sound, lambda f: replace(f, row_count=f.row_count + 1), newest_with_retractions)
    assert {f.code for f in check(files)} == {"damaged", "count"}


def _stats(file: DataFile, kinds: Sequence[t.DataType], *, column: int, low: Any, high: Any, nulls: int) -> DataFile:
    every = list(decode_stats(file.value_stats, kinds))
    every[column] = replace(every[column], min=low, max=high, null_count=nulls)
    return replace(file, value_stats=encode_stats(every, kinds))


@pytest.mark.parametrize(
    ("column", "low", "high", "nulls", "words"),
    [
        (3, 100, 200, 0, "'n' say 100 to 200"),
        (3, -1, 200, 0, "'n' say -1 to 200"),
        (2, "x", "y", 0, "'v' say 'x' to 'y'"),
        (3, None, None, 1, "'n' say 1 nulls, and there are 0"),
    ],
)
def test_statistics_that_are_not_those_of_the_rows_are_found(
    sound: Files, column: int, low: Any, high: Any, nulls: int, words: str
) -> None:
    kinds = [t.VarChar(), t.Int(), t.VarChar(), t.Int()]
    files = with_file(
        sound,
        lambda f: _stats(f, kinds, column=column, low=low, high=high, nulls=nulls),
        newest_with_retractions,
    )
    assert words in only(files, "bounds").problem


def test_statistics_that_are_left_out_are_none(sound: Files) -> None:
    kinds = [t.VarChar(), t.Int(), t.VarChar(), t.Int()]
    files = with_file(
        sound, lambda f: _stats(f, kinds, column=3, low=None, high=None, nulls=0), newest_with_retractions
    )
    assert check(files) == ()


def with_rows(files: Files, change: Callable[[pa.Table], pa.Table], where: Callable[[ManifestEntry], bool]) -> Files:
    """Rewrite the rows of one data file in place; its size is said anew, and no checksum."""
    [name] = {e.file.name for p in manifests(files) for e in entries_of(files, p) if e.kind == ADD and where(e)}
    [path] = of(files, name)
    sink = pa.BufferOutputStream()
    rows = pq.read_table(pa.BufferReader(files[path])).replace_schema_metadata(None)  # or the footer's notes go along
    pq.write_table(change(rows), sink, write_page_checksum=True)
    data = sink.getvalue().to_pybytes()
    said = {"size": len(data), "checksum": None, "footer_checksum": None}
    return with_file(files | {path: data}, lambda f: replace(f, **said), where)


def taken(order: Callable[[int], list[int]]) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.take(pa.array(order(rows.num_rows), pa.int64()))


def test_rows_out_of_key_order_are_found(sound: Files) -> None:
    files = with_rows(sound, taken(lambda n: [0, 2, 1, *range(3, n)]), compacted)
    assert "row 2 has a smaller key than the row before it" in only(files, "order").problem


def test_a_key_that_is_there_twice_in_a_file_is_found(sound: Files) -> None:
    files = with_rows(sound, taken(lambda n: [0, 0, *range(2, n)]), compacted)
    found = check(files)
    assert "row 1 repeats the key of the row before it" in next(f for f in found if f.code == "order").problem


def with_column(name: str, change: Callable[[pa.ChunkedArray], pa.Array]) -> Callable[[pa.Table], pa.Table]:
    def changed(rows: pa.Table) -> pa.Table:
        at = rows.column_names.index(name)
        return rows.set_column(at, rows.schema.field(at), change(rows.column(at)))

    return changed


def test_a_row_of_another_partition_is_found(sound: Files) -> None:
    files = with_rows(sound, with_column("p", lambda c: pa.array(["a"] * (len(c) - 1) + ["z"], c.type)), compacted)
    assert any("p = 'z' lies in the partition p = 'a'" in f.problem for f in check(files) if f.code == "placement")


def test_a_row_of_another_bucket_is_found(sound: Files) -> None:
    [entry] = {e.file.name: e for p in manifests(sound) for e in entries_of(sound, p) if compacted(e)}.values()
    moved: Files = dict(sound)
    for path in manifests(sound):
        old = entries_of(moved, path)
        new = [replace(e, bucket=1) if e.file.name == entry.file.name else e for e in old]
        if new != list(old):
            moved = with_manifest(moved, path, new)
    [data] = of(sound, entry.file.name)
    moved[data.replace("bucket-0", "bucket-1")] = moved.pop(data)
    found = [f for f in check(moved) if f.code == "placement"]
    assert any(re.search(r"belongs to bucket 0 of 2, and the file is one of bucket 1", f.problem) for f in found)


def test_a_kind_that_is_none_is_found(sound: Files) -> None:
    files = with_rows(
        sound, with_column("_VALUE_KIND", lambda c: pa.array([8] + [0] * (len(c) - 1), c.type)), compacted
    )
    assert "8 is no kind of row" in only(files, "value").problem


def test_a_footer_that_notes_inserts_where_there_are_others_is_found(sound: Files) -> None:
    """pyarrow hands the pairs of a footer on, as the schema's, so the note outlives the change of a kind."""
    kinds = with_column("_VALUE_KIND", lambda c: pa.array([2] + [0] * (len(c) - 1), c.type))
    [name] = {e.file.name for p in manifests(sound) for e in entries_of(sound, p) if e.kind == ADD and compacted(e)}
    noted = {b"merganser.all-zero": b"_VALUE_KIND", b"merganser.file": name.encode()}
    files = with_rows(sound, lambda rows: kinds(rows).replace_schema_metadata(noted), compacted)
    assert "notes that all its rows are inserts, and 1 are not" in only(files, "value").problem
    table = catalog_over(memory_with(files, "noted")).table("db.t")
    assert table.read().to_arrow().num_rows == catalog_over(memory_with(sound, "sound")).table("db.t").read().count()


def test_a_key_column_that_is_not_what_the_column_is_is_found(sound: Files) -> None:
    files = with_rows(sound, with_column("_KEY_k", lambda c: pa.array([7] * len(c), c.type)), compacted)
    assert "'_KEY_k' is not what 'k' is" in only(files, "value").problem


def test_a_null_in_a_column_that_is_not_null_is_found(sound: Files) -> None:
    def nulled(rows: pa.Table) -> pa.Table:
        at = rows.column_names.index("n")
        values = pa.array([None, *rows.column(at).to_pylist()[1:]], pa.int32())
        return rows.set_column(at, pa.field("n", pa.int32()), values)

    found = check(with_rows(sound, nulled, compacted))
    assert any("'n' is NOT NULL and null in 1 of rows" in f.problem for f in found)


# buckets


def test_files_of_one_level_whose_keys_meet_are_found(sound: Files) -> None:
    top = max(e.file.level for path in manifests(sound) for e in entries_of(sound, path))
    files = with_file(sound, lambda f: replace(f, level=top), newest_with_retractions)
    found = check(files, quick=True)
    assert {f.code for f in found} == {"levels", "count"}, "its list says that level 0 is the highest"
    assert f"files of level {top} may not meet" in found[-1].problem


def test_files_of_a_partition_for_several_numbers_of_buckets_are_found(sound: Files) -> None:
    files = dict(sound)
    path = delta_manifest(sound, 4)
    files = with_manifest(files, path, [replace(e, total_buckets=4) for e in entries_of(sound, path)])
    assert any("were written for 2 and 4 buckets" in f.problem for f in check(files, quick=True))


# names, consumers


def test_damaged_tags_branches_and_consumers_are_found(sound: Files) -> None:
    for path in ("tag/tag-v1", "consumer/consumer-c", "branch/branch-b/schema/schema-0"):
        found = only(sound | {f"{ROOT}/{path}": b"{"}, "damaged")
        assert found.path.endswith(path)


def test_files_that_only_a_tag_needs_are_looked_at(sound: Files) -> None:
    first = sound[f"{ROOT}/snapshot/snapshot-1"]
    kept = {p: d for p, d in sound.items() if not p.endswith(("/snapshot-1", "/snapshot-2"))}
    kept[f"{ROOT}/tag/tag-v1"] = first
    assert check(kept) == ()
    [lost, *_] = [p for p in of(sound, "/p=a/bucket-0/") if _level_0(sound, p)]
    found = only({p: d for p, d in kept.items() if p != lost}, "missing")
    assert found.path == lost


def _level_0(files: Files, path: str) -> bool:
    name = json.loads(files[f"{ROOT}/snapshot/snapshot-1"])["deltaManifestList"]
    first = read_manifest_list(files[f"{ROOT}/manifest/{name}"], name)
    return any(e.file.name in path for m in first for e in entries_of(files, f"{ROOT}/manifest/{m.name}"))


# index files, of tables of other implementations


def golden(name: str) -> Files:
    root = GOLDEN / name
    return {f"{ROOT}/{p.relative_to(root).as_posix()}": p.read_bytes() for p in root.rglob("*") if p.is_file()}


def with_index(files: Files, change: Callable[[IndexEntry], IndexEntry]) -> Files:
    """Change every entry of the newest index manifest."""
    newest = max(of(files, "/snapshot/snapshot-"), key=lambda path: int(path.rpartition("-")[2]))
    path = f"{ROOT}/manifest/{json.loads(files[newest])['indexManifest']}"
    entries = [change(entry) for entry in read_index_manifest(files[path], path)]
    return files | {path: write_index_manifest(entries, compression="zstd")}


def _vectors(entry: IndexEntry, **values: Any) -> IndexEntry:
    return replace(entry, vectors=tuple(replace(vector, **values) for vector in entry.vectors))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: _vectors(e, cardinality=999), "positions, and metadata says 999"),
        (lambda e: _vectors(e, data_file="data-other-0.parquet"), "which is no live file of its bucket"),
        (lambda e: replace(e, row_count=9), "metadata says that it has 9 vectors"),
    ],
)
@pytest.mark.parametrize("name", ["dv_pk_java", "dv_append64_java", "dv_rust"])
def test_deletion_vectors_that_are_not_as_said_are_found(
    name: str, change: Callable[[IndexEntry], IndexEntry], words: str
) -> None:
    found = faults(with_index(golden(name), change))
    assert {f.code for f in found} == {"index"}
    assert words in found[0].problem


def test_a_vector_that_hides_rows_which_its_file_does_not_have_is_found() -> None:
    files = golden("dv_append_java")
    [path, *_] = of(files, "/index/")
    data, places = encode_vectors([np.array([1, 4_000_000])], bits64=False)
    place = VectorRange("", places[0].offset, places[0].length, 2)

    def far(entry: IndexEntry) -> IndexEntry:
        vectors = tuple(replace(place, data_file=v.data_file) for v in entry.vectors[:1])
        return replace(entry, size=len(data), row_count=1, vectors=vectors)

    found = check(with_index({p: data if p == path or "/index/" in p else d for p, d in files.items()}, far))
    assert any("hides row 4000000" in f.problem for f in found if f.code == "index")


def test_a_damaged_index_file_is_found() -> None:
    files = golden("dv_pk_java")
    for path in of(files, "/index/"):
        data = files[path]
        assert {f.code for f in check(files | {path: data[:-1] + bytes([data[-1] ^ 1])})} <= {"damaged"}
        assert {f.code for f in check(files | {path: data[:-1]}, quick=True)} <= {"damaged"}
    assert check({p: d for p, d in files.items() if "/index/" not in p}, quick=True)[0].code == "missing"


@pytest.mark.parametrize("name", ["dyn_java", "dyn_py", "dyn_rust"])
def test_a_key_that_is_not_in_the_index_of_its_dynamic_bucket_is_found(name: str) -> None:
    files = golden(name)
    damaged = {p: bytes(len(d)) if "/index/" in p else d for p, d in files.items()}
    found = faults(damaged)
    assert {f.code for f in found} == {"index"}
    assert any("is not in the index of its bucket" in f.problem for f in found)
    assert any("rows of one key may lie in two buckets" in f.problem for f in found)
    assert "and 1 keys take 4" in check(with_index(files, lambda e: replace(e, row_count=1)))[0].problem


@pytest.mark.parametrize("of_branch", [False, True])
def test_each_state_is_looked_at_with_its_own_key(of_branch: bool) -> None:
    catalog = catalog_over(memory_with({}, f"check-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT"})
    table.write([{"k": 1}, {"k": 2}])
    table.tags.create("t")
    table.branches.create("b", tag="t")
    keyed = table.branch("b") if of_branch else table
    keyed.alter([mg.changes.set_primary_key(["k"])])  # its buckets are made as keys arrive, and have key indexes
    assert [each.check() for each in (table, catalog.table("db.t"), table.branch("b"))] == [()] * 3
    files = contents(catalog.env.storage)
    schemas = [path for path in files if path.endswith("/schema/schema-1")]
    snapshots = {p: d for p, d in files.items() if not re.search(r"/snapshot/(snapshot-[23]|LATEST)$", p)}
    assert len(schemas) == 1
    assert check(snapshots) == ()  # killed between the schema with the key and the commit of its rows
    [index] = of(files, "/index/")
    assert {found.code for found in check(files | {index: bytes(len(files[index]))})} == {"index"}


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_files_without_checksums_are_no_fault_and_not_called_sound(file_format: str) -> None:
    """Another writer copied the manifests, and with them went what ours had noted."""
    files = _built(options={"file.format": file_format})
    assert check(files) == ()
    for path in manifests(files):
        entries = entries_of(files, path)
        bare = [replace(e, file=replace(e.file, checksum=None, footer_checksum=None)) for e in entries]
        files = with_manifest(files, path, bare)
    if file_format == "parquet":
        assert check(files) == (), "its pages have checksums of their own"
        return
    found = only(files, UNSURE)
    assert not found.is_fault
    assert "the check cannot tell" in found.problem
    assert check(files, quick=True) == ()


def test_every_kind_of_finding_is_explained() -> None:
    page = (Path(__file__).parents[3] / "docs" / "operations.md").read_text().split("## What a finding means")[1]
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(KINDS)
