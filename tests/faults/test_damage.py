"""Bytes that changed on the way, files cut short, files that are gone: a read gives right rows, or says which file is
at fault. It never gives wrong rows, never another error, and does not swell."""

from __future__ import annotations

import itertools
import random
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.codec.avro import write_records
from merganser.errors import ExpiredError, FormatError, NotFoundError
from merganser.meta.manifest import read_manifest
from merganser.meta.manifest_list import read_manifest_list
from merganser.meta.seal import check_seal, sealed, unsealed_json
from tests.kit.builders import WAREHOUSE, catalog_over, contents, memory_with

_names = itertools.count()
Files = dict[str, bytes]
SEED = 11


def _build(file_format: str = "parquet", keyed: bool = True) -> Files:
    catalog = catalog_over(memory_with({}, f"damage-{next(_names)}"))
    catalog.create_database("db")
    schema = {"p": "STRING", "k": "INT", "v": "STRING", "d": "DECIMAL(10, 2)", "t": "TIMESTAMP(3)"}
    how: dict[str, Any] = (
        {"primary_key": ["p", "k"], "options": {"bucket": "2", "file.format": file_format}} if keyed else {}
    )
    if not keyed:
        how = {"options": {"file.format": file_format}}
    table = catalog.create_table("db.t", schema, partition_by=["p"], **how)
    table.write([_row("a", k) for k in range(12)])
    if keyed:
        table.write([_row("a", 3) | {"v": "again"}, _row("a", 4)], kinds=["+U", "-D"])
    table.write([_row("b", 5)])
    return contents(catalog.env.storage)


def _row(p: str, k: int) -> dict[str, Any]:
    return {"p": p, "k": k, "v": f"value {k}", "d": Decimal(k) + Decimal("0.50"), "t": None}


def _read(files: Files, where: str | None = None) -> tuple[list[str], list[str]]:
    storage = memory_with(files, "damage-read")
    scan = catalog_over(storage).table("db.t").read(where=where)
    rows = scan.to_arrow()
    assert scan.count() == rows.num_rows
    return sorted(map(repr, rows.to_pylist())), rows.column_names


def _of(files: Files, part: str) -> list[str]:
    return sorted(path for path in files if part in path)


def _damaged(
    files: Files, path: str, positions: Iterator[int] | range | list[int], rng: random.Random
) -> Iterator[tuple[str, Files]]:
    data = files[path]
    for at in positions:
        flipped = data[at] ^ (1 << rng.randrange(8)) if rng.random() < 0.7 else rng.randrange(256)
        if flipped != data[at]:
            yield (
                f"byte {at} of {len(data)} is {flipped}",
                files | {path: data[:at] + bytes([flipped]) + data[at + 1 :]},
            )


def _cut(files: Files, path: str, rng: random.Random, count: int) -> Iterator[tuple[str, Files]]:
    data = files[path]
    for size in sorted({0, 1, len(data) // 2, len(data) - 1, *(rng.randrange(len(data)) for _ in range(count))}):
        yield f"cut to {size} of {len(data)} bytes", files | {path: data[:size]}


def _check(cases: Iterator[tuple[str, Files]], expected: Any, path: str, where: str | None = None) -> int:
    """Read every case; return how many gave an error."""
    errors = 0
    for what, files in cases:
        try:
            found = _read(files, where)
        except FormatError as error:
            errors += 1
            assert "path" in error.context, f"{path}: {what}: {error!r} names no path"
            assert str(error.context["path"]) in str(error), f"{path}: {what}: {error!r}"
        except BaseException as error:
            error.add_note(f"{path}: {what}")
            raise
        else:
            assert found == expected, f"{path}: {what}: wrong rows"
    return errors


@pytest.fixture(scope="module")
def keyed() -> Files:
    return _build()


@pytest.mark.parametrize("part", ["/snapshot/snapshot-3", "/schema/schema-0"])
def test_a_damaged_snapshot_or_schema_gives_the_right_rows_or_names_the_file(part: str, keyed: Files) -> None:
    rng = random.Random(SEED)
    [path] = _of(keyed, part)
    expected = _read(keyed)
    assert _check(_damaged(keyed, path, range(len(keyed[path])), rng), expected, path) > 100
    _check(_cut(keyed, path, rng, 30), expected, path)


@pytest.mark.filterwarnings("ignore::merganser.errors.LostSnapshotWarning")
def test_damaged_hints_change_nothing(keyed: Files) -> None:
    expected = _read(keyed)
    path = f"{WAREHOUSE}/db.db/t/snapshot/LATEST"
    for text in (b"", b"0", b"-1", b"99", b"2", b"3 ", b"x", b"\xff\xfe", b"9" * 4000, b"\xd9\xa3"):
        assert _read(keyed | {path: text}) == expected
        assert _read(keyed | {path.replace("LATEST", "EARLIEST"): text}) == expected


def test_every_flipped_byte_of_a_manifest_or_list_is_noticed(keyed: Files) -> None:
    rng = random.Random(SEED)
    for path in _of(keyed, "/manifest/"):
        decode: Any = read_manifest_list if "/manifest-list-" in path else read_manifest
        expected = decode(keyed[path], path)
        for what, files in _damaged(keyed, path, range(len(keyed[path])), rng):
            try:
                assert decode(files[path], path) == expected, f"{path}: {what}"
            except FormatError as error:
                assert path in str(error)
        for what, files in _cut(keyed, path, rng, 20):
            with pytest.raises(FormatError, match=re.escape(path)):
                decode(files[path], path)
            assert what


def test_a_damaged_manifest_gives_the_right_rows_or_names_the_file(keyed: Files) -> None:
    rng = random.Random(SEED)
    expected = _read(keyed)
    for path in _of(keyed, "/manifest/"):
        _check(_damaged(keyed, path, [rng.randrange(len(keyed[path])) for _ in range(12)], rng), expected, path)
        _check(_cut(keyed, path, rng, 3), expected, path)


def _unsealed(data: bytes) -> bytes:
    """Return a container file as writers make it that have no seal."""
    entry = data[5 : 5 + 25]
    assert b"merganser.crc32" in entry
    return data[:4] + bytes([data[4] - 2]) + data[5 + 25 :]


def test_a_damaged_manifest_without_a_seal_raises_no_other_error(keyed: Files) -> None:
    """Other writers leave no checksum: a flipped byte may make other values of it, but not another kind of error."""
    files = {path: _unsealed(data) if "/manifest/" in path else data for path, data in keyed.items()}
    files |= {
        path: re.sub(rb'"\w+ManifestListSize": \d+,', b"", data) for path, data in files.items() if "/snapshot-" in path
    }
    rng = random.Random(SEED)
    for path in _of(files, "/manifest/"):
        decode: Any = read_manifest_list if "/manifest-list-" in path else read_manifest
        decode(files[path], path)
        for what, damaged in _damaged(files, path, range(len(files[path])), rng):
            try:
                decode(damaged[path], path)
            except FormatError as error:
                assert path in str(error), what


def test_an_unsealed_manifest_is_read_as_it_is(keyed: Files) -> None:
    files = {path: _unsealed(data) if "/manifest/" in path else data for path, data in keyed.items()}
    for path in _of(files, "/manifest/manifest-"):
        if "/manifest-list-" not in path:
            assert read_manifest(files[path], path) == read_manifest(keyed[path], path)


def test_a_seal_covers_every_byte_and_only_itself_is_added() -> None:
    data = write_records(
        {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}, [{"n": 1}], compression="zstd"
    )
    with_seal = sealed(data)
    assert _unsealed(with_seal) == data
    check_seal(with_seal, "p")
    check_seal(data, "p")
    for at in (0, 4, 40, len(with_seal) - 1):
        with pytest.raises(FormatError, match="'p'"):
            check_seal(with_seal[:at] + bytes([with_seal[at] ^ 1]) + with_seal[at + 1 :], "p")


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("keyed_table", [True, False])
def test_a_data_file_cut_short_is_named(file_format: str, keyed_table: bool) -> None:
    files = _build(file_format, keyed_table)
    expected = _read(files)
    rng = random.Random(SEED)
    for path in _of(files, "/bucket-"):
        cases = list(_cut(files, path, rng, 2))
        assert _check(iter(cases), expected, path) == len(cases)


@pytest.mark.parametrize("where", [None, "k > 7 AND v <> 'x'"])
def test_a_damaged_parquet_file_gives_the_right_rows_or_names_the_file(where: str | None, keyed: Files) -> None:
    rng = random.Random(SEED)
    expected = _read(keyed, where)
    for path in _of(keyed, "/bucket-"):
        size = len(keyed[path])
        _check(_damaged(keyed, path, sorted(rng.randrange(size) for _ in range(20)), rng), expected, path, where)


@pytest.mark.parametrize("file_format", ["orc", "avro"])
def test_a_damaged_file_of_a_format_without_checksums_raises_no_other_error(file_format: str) -> None:
    files = _build(file_format)
    rng = random.Random(SEED)
    for path in _of(files, "/bucket-"):
        for what, damaged in _damaged(files, path, sorted(rng.randrange(len(files[path])) for _ in range(20)), rng):
            try:
                _read(damaged)
            except FormatError as error:
                assert path in str(error), what


def test_damage_does_not_cost_memory(keyed: Files) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng = random.Random(SEED + 1)
    for path in [*_of(keyed, "/manifest/")[:2], *_of(keyed, "/bucket-")[:1]]:
        for _, damaged in _damaged(keyed, path, [rng.randrange(len(keyed[path])) for _ in range(30)], rng):
            try:
                _read(damaged)
            except FormatError:
                continue
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


# files that are gone


def test_a_missing_file_is_named_by_every_read_that_needs_it(keyed: Files) -> None:
    latest = [p for p in _of(keyed, "/t/") if "snapshot" not in p and "/schema/" not in p]
    needed = 0
    for path in latest:
        files = {p: data for p, data in keyed.items() if p != path}
        try:
            _read(files)
        except FormatError as error:
            needed += 1
            assert error.context["path"] == path
            assert path in str(error)
    assert needed >= len(_of(keyed, "/bucket-")) + 4


def test_a_missing_schema_of_a_data_file_is_named(keyed: Files) -> None:
    [path] = _of(keyed, "/schema/schema-0")
    newer = unsealed_json(keyed[path]).replace(b'"id": 0,\n  "fields"', b'"id": 1,\n  "fields"')
    files = {p: data for p, data in keyed.items() if p != path} | {path.replace("schema-0", "schema-1"): newer}
    with pytest.raises(FormatError, match="schema-0") as caught:
        _read(files)
    assert caught.value.context["path"] == path


def test_a_table_that_lost_its_newest_schema_says_so(keyed: Files) -> None:
    [path] = _of(keyed, "/snapshot/snapshot-3")
    files = keyed | {path: unsealed_json(keyed[path]).replace(b'"schemaId": 0', b'"schemaId": 1')}
    with pytest.raises(FormatError, match="schema-1"):
        _read(files)


def test_a_schema_that_lost_its_key_is_not_taken_for_one_of_an_append_table(keyed: Files) -> None:
    [path] = _of(keyed, "/schema/schema-0")
    files = keyed | {path: re.sub(rb'"primaryKeys": \[[^]]*\]', b'"primaryKeys": []', unsealed_json(keyed[path]))}
    with pytest.raises(FormatError, match="sorted by a key"):
        _read(files)


def test_names_in_metadata_never_lead_out_of_the_table(keyed: Files) -> None:
    [path] = _of(keyed, "/snapshot/snapshot-3")
    for name in (b"../snapshot/snapshot-1", b"/etc/passwd", b"..", b""):
        files = keyed | {
            path: re.sub(
                rb'"baseManifestList": "[^"]*"', b'"baseManifestList": "' + name + b'"', unsealed_json(keyed[path])
            )
        }
        with pytest.raises(FormatError, match="not a file name"):
            _read(files)


def test_snapshots_that_never_were_that_expired_and_that_are_missing_are_told_apart(keyed: Files) -> None:
    kept = {p: data for p, data in keyed.items() if not p.endswith("/snapshot-1")}
    table = catalog_over(memory_with(kept, "damage-read")).table("db.t")
    with pytest.raises(NotFoundError, match="no snapshot 4: its snapshots are 2 to 3"):
        table.read(snapshot=4)
    with pytest.raises(NotFoundError):
        table.read(snapshot=0)
    with pytest.raises(ExpiredError, match="snapshots before 2 have expired"):
        table.read(snapshot=1)
    gap = {p: data for p, data in keyed.items() if not p.endswith("/snapshot-2")}
    table = catalog_over(memory_with(gap, "damage-read")).table("db.t")
    with pytest.raises(FormatError, match="snapshot-2"):
        table.read(snapshot=2)
    with pytest.raises(NotFoundError, match="no tag 'v1'"):
        table.read(tag="v1")


def test_other_partitions_stay_readable_when_a_data_file_is_gone(keyed: Files) -> None:
    files = {p: data for p, data in keyed.items() if "/p=a/" not in p}
    rows, _ = _read(files, "p = 'b'")
    assert len(rows) == 1
    with pytest.raises(FormatError, match="p=a"):
        _read(files)


def test_a_commit_after_damage_is_refused_and_older_snapshots_stay_readable(keyed: Files) -> None:
    [path] = _of(keyed, "/snapshot/snapshot-3")
    storage = memory_with(keyed | {path: b"{}"}, "damage-read")
    table = catalog_over(storage).table("db.t")
    before = contents(storage)
    with pytest.raises(FormatError, match="snapshot-3"):
        table.write([_row("b", 9)])
    assert contents(storage) == before
    assert table.read(snapshot=2).count() == 11


def test_a_file_of_another_table_under_a_right_name_is_noticed(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    for name, rows in (("a", 5), ("b", 6)):
        catalog.create_table(f"db.{name}", {"n": "INT"}).write(pa.table({"n": pa.array(range(rows), pa.int32())}))
    [ours], [other] = (list((tmp_path / "db.db" / name).glob("bucket-0/*.parquet")) for name in ("a", "b"))
    ours.write_bytes(other.read_bytes())
    with pytest.raises(FormatError, match=re.escape(str(ours))):
        catalog.table("db.a").read().to_pylist()


# a slice of the campaign of tests/faults/damage_sweep.py, in a process whose memory is bounded


@pytest.mark.slow
def test_a_sample_of_all_damage_to_metadata_gives_the_right_rows_or_names_the_file() -> None:
    found: Any = subprocess.run(
        [sys.executable, "-m", "tests.faults.damage_sweep", "--one-in", "5000", "--seed", str(SEED)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
