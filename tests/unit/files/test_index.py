"""File indexes of data files: where they lie, how long they live, and what they say of values."""

from __future__ import annotations

import itertools
import logging
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser.codec.file_index import ColumnIndex, decode_file_index, encode_file_index
from merganser.errors import InvalidInputError, StorageError
from merganser.files.index import ColumnFilter, Sought, column_filters
from merganser.meta.data_file import DataFile
from merganser.meta.table_state import MetaReader
from merganser.schema import types as t
from merganser.storage.protocol import Storage
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Fault, FaultyStorage, Plan

SCHEMA = {"k": "BIGINT", "s": "STRING", "f": "DOUBLE", "m": "MAP<STRING, INT>", "b": "BOOLEAN"}
BLOOM = "file-index.bloom-filter"
ALL = {f"{BLOOM}.columns": "k,s,f"}
BESIDE = {**ALL, "file-index.in-manifest-threshold": "1 b"}
_names = itertools.count()


def _table(options: dict[str, str], *, keyed: bool = False, storage: Storage | None = None) -> mg.Table:
    catalog = catalog_over(storage or memory_with({}, f"index-{next(_names)}"))
    catalog.create_database("db")
    how: dict[str, Any] = {"primary_key": ["k"]} if keyed else {}
    return catalog.create_table("db.t", SCHEMA, options={**({"bucket": "1"} if keyed else {}), **options}, **how)


def _rows(numbers: range) -> list[dict[str, Any]]:
    return [{"k": k, "s": f"name {k}" if k % 5 else None, "f": k / 4, "m": {"x": k}, "b": True} for k in numbers]


def _files(table: mg.Table) -> list[DataFile]:
    return [entry.file for entry in MetaReader(table.definition.paths, table.env, table.name).latest().live]


def _paths(table: mg.Table, ending: str = ".index") -> set[str]:
    return {path.rpartition("/")[2] for path in contents(table.env.storage) if path.endswith(ending)}


def _bucket(table: mg.Table) -> str:
    return table.definition.bucket_directory(b"\0" * 12, 0)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_every_data_file_has_an_index_of_its_rows(keyed: bool, file_format: str) -> None:
    table = _table({**ALL, "file.format": file_format, "target-file-row-num": "40"}, keyed=keyed)
    table.write(_rows(range(100)))
    files = _files(table)
    assert len(files) == 3
    for i, file in enumerate(sorted(files, key=lambda file: file.min_sequence)):
        filters = column_filters(table.env, _bucket(table), file)
        held = filters["k"].may_hold(Sought(pa.array(np.arange(100)), t.BigInt()))
        assert held[40 * i : 40 * (i + 1)].all()
        assert held.sum() < 70
        assert sorted(filters) == ["f", "k", "s"]


def test_a_small_index_lies_in_the_manifest_and_a_large_one_beside_its_file() -> None:
    table = _table(ALL)
    table.write(_rows(range(10)))
    table.write(_rows(range(10, 900)))
    small, large = sorted(_files(table), key=lambda file: file.row_count)
    assert small.embedded_index is not None
    assert (small.extra_files, large.embedded_index) == ((), None)
    assert large.extra_files == (f"{large.name}.index",)
    assert _paths(table) == set(large.extra_files)
    assert table.check() == ()


def test_compactions_write_indexes_and_expiry_removes_those_of_files_that_go() -> None:
    table = _table({**BESIDE, "write-only": "true"}, keyed=True)
    for first in range(0, 50, 10):
        table.write(_rows(range(first, first + 20)))
    before = _paths(table)
    table.compact()
    [file] = _files(table)
    assert (len(before), _paths(table)) == (5, before | {f"{file.name}.index"})
    assert file.level > 0
    assert column_filters(table.env, _bucket(table), file)["k"].may_hold(Sought(pa.array([3, 59]), t.BigInt())).all()
    table.expire(retain_min=1, retain_max=1)
    assert _paths(table) == {f"{file.name}.index"}
    assert table.check() == ()


def test_a_writer_that_stops_leaves_no_index() -> None:
    table = _table({**BESIDE, "target-file-row-num": "10"})
    with table.writer() as writer:
        writer.write(_rows(range(35)))
        writer.abort()
    assert _paths(table) == _paths(table, ".parquet") == set()


def test_an_index_that_cannot_be_written_leaves_nothing_behind() -> None:
    inner = memory_with({}, f"index-{next(_names)}")
    table = _table(BESIDE, storage=inner)
    plan = Plan(Fault.FAIL, 1, verbs=frozenset({"replace"}), path_part=".index")
    with pytest.raises(StorageError):
        catalog_over(FaultyStorage(inner, plan)).table("db.t").write(_rows(range(5)))
    assert _paths(table) == _paths(table, ".parquet") == set()


def test_a_file_with_new_numbers_has_an_index_of_its_own() -> None:
    table = _table({**BESIDE, "write-only": "true"}, keyed=True)
    first, second = table.writer(), table.writer()
    first.write(_rows(range(10)))
    second.write(_rows(range(5, 15)))
    first.commit()
    second.commit()
    files = _files(table)
    assert _paths(table) == {f"{file.name}.index" for file in files}
    assert all(column_filters(table.env, _bucket(table), file) for file in files)
    assert table.read(where="k = 7").count() == 1
    assert table.check() == ()


def test_orphaned_indexes_are_removed_and_needed_ones_kept() -> None:
    table = _table(BESIDE)
    table.write(_rows(range(5)))
    [kept] = _paths(table)
    table.env.storage.replace(f"{_bucket(table)}/data-lost-0.parquet.index", b"x")
    removed = table.remove_orphans(older_than=datetime(2200, 1, 1), dry_run=False)
    assert [path.rpartition("/")[2] for path in removed] == ["data-lost-0.parquet.index"]
    assert _paths(table) == {kept}


def test_values_are_found_whatever_their_sign_of_zero_and_nulls_always_are() -> None:
    table = _table({f"{BLOOM}.columns": "f"})
    table.write([{**row, "f": value} for row, value in zip(_rows(range(2)), (-0.0, float("nan")), strict=True)])
    [file] = _files(table)
    held = column_filters(table.env, _bucket(table), file)["f"]
    sought = Sought(pa.array([0.0, -0.0, float("nan"), None, 7.25]), t.Double())
    assert held.may_hold(sought).tolist() == [True, True, True, True, False]
    assert ColumnFilter(None).may_hold(sought).tolist() == [False, False, False, True, False]


@pytest.mark.parametrize("what", ["missing", "flipped", "cut", "empty", "unknown kind"])
def test_an_index_that_cannot_be_used_is_left_aside(what: str, caplog: pytest.LogCaptureFixture) -> None:
    table = _table(BESIDE)
    table.write(_rows(range(50)))
    [name] = _paths(table)
    path = f"{_bucket(table)}/{name}"
    data = table.env.storage.read(path)
    match what:
        case "missing":
            table.env.storage.delete([path])
        case "flipped":
            table.env.storage.replace(path, data[:-9] + bytes([data[-9] ^ 16]) + data[-8:])
        case "cut":
            table.env.storage.replace(path, data[:-9])
        case "empty":
            table.env.storage.replace(path, b"")
        case _:
            other = encode_file_index([ColumnIndex("k", "of-tomorrow", b"?")], checked=True)
            table.env.storage.replace(path, other)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert table.read(where="k = 17").to_arrow().num_rows == 1
    assert table.read(where="k IN (-1, 60) OR s = 'none'").count() == 0
    assert ("is not used" in caplog.text) == (what != "unknown kind")


def test_a_check_finds_an_index_that_is_damaged_or_denies_a_row() -> None:
    table = _table(BESIDE)
    table.write(_rows(range(50)))
    [name] = _paths(table)
    path = f"{_bucket(table)}/{name}"
    data = table.env.storage.read(path)
    table.env.storage.replace(path, data[:-1] + bytes([data[-1] ^ 1]))
    [finding] = table.check()
    assert (finding.code, finding.path, finding.is_fault) == ("damaged", path, True)
    held = decode_file_index(data, path=path)
    denying = [ColumnIndex(i.column, i.kind, i.body and i.body[:4] + bytes(len(i.body) - 4)) for i in held[:1]]
    table.env.storage.replace(path, encode_file_index([*denying, *held[1:]], checked=False))
    [finding] = table.check()
    assert "denies a value of column 'k'" in finding.problem
    table.env.storage.delete([path])
    [finding] = table.check()
    assert (finding.code, finding.path) == ("missing", path)


def test_a_filter_is_made_for_the_items_and_the_rate_that_are_told() -> None:
    table = _table({f"{BLOOM}.columns": "k,s", f"{BLOOM}.k.items": "1000", f"{BLOOM}.s.fpp": "0.001"})
    table.write(_rows(range(10)))
    [file] = _files(table)
    [beside] = file.extra_files
    k, s = decode_file_index(table.env.storage.read(f"{_bucket(table)}/{beside}"), path=beside)
    assert (k.body and len(k.body), s.body and len(s.body)) == (4 + 600, 4 + 15)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({f"{BLOOM}.columns": "b"}, "column 'b' cannot have a Bloom filter: it has the type BOOLEAN"),
        ({f"{BLOOM}.columns": "k,m"}, "column 'm' cannot have a Bloom filter: it has the type MAP"),
        ({f"{BLOOM}.columns": "m[x]"}, "not of single keys of a map"),
        ({f"{BLOOM}.columns": "kk"}, r"column 'kk' of .* is not found"),
        ({f"{BLOOM}.k.items": "5"}, f"'{BLOOM}.k.items' sets up a Bloom filter that the table does not have"),
        ({**ALL, f"{BLOOM}.k.items": "2000000000"}, "at most 2,147,483,647 bits"),
        ({**ALL, f"{BLOOM}.k.itms": "5"}, f"Did you mean '{BLOOM}.k.items'"),
        ({**ALL, f"{BLOOM}.kk.items": "5"}, "column 'kk' is not found in the table"),
        ({f"{BLOOM}.colums": "k"}, f"Did you mean '{BLOOM}.columns'"),
        ({**ALL, f"{BLOOM}.k.fpp": "1"}, "above 0 and below 1"),
    ],
)
def test_a_filter_that_cannot_be_is_refused_when_the_table_is_created(options: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        _table(options)
