"""Data files: layouts, rolling, statistics, and reading them back column by column."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser.codec.parquet import ParquetFileReader
from merganser.errors import FormatError, InvalidInputError, StorageError, UnsupportedError
from merganser.expr.filters import to_predicate
from merganser.files import read
from merganser.files.layout import file_layout
from merganser.files.read import DataFileReader, FileToRead
from merganser.files.write import RollingWriter
from merganser.meta.data_file import DataFile
from merganser.meta.table_state import MetaReader
from merganser.schema.table_schema import POSITION
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Fault, FaultyStorage, Plan

_names = itertools.count()


def _table(**options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"files-{next(_names)}"))
    catalog.create_database("db")
    schema = {"k": "INT", "s": "STRING", "f": "DOUBLE", "a": "ARRAY<INT>"}
    return catalog.create_table("db.t", schema, primary_key=["k"], options={"bucket": "1", **options})


def _rows(table: mg.Table, *keys: int) -> pa.Table:
    columns: dict[str, Any] = {
        "k": list(keys),
        "s": [f"text {k}" for k in keys],
        "f": [k / 2 for k in keys],
        "a": [[k] for k in keys],
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in table.read().schema], schema=table.read().schema)


def _file(table: mg.Table) -> tuple[DataFile, str]:
    [entry] = MetaReader(table.definition.paths, table.env, table.name).latest().live
    return entry.file, f"{table.path}/bucket-0/{entry.file.name}"


def _reader(table: mg.Table, **how: Any) -> DataFileReader:
    file, path = _file(table)
    fields = table.schema.fields
    return DataFileReader(
        table.env.storage, FileToRead(path, file, fields, 0), columns=how.pop("columns", fields), **how
    )


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("thin", ["true", "false"])
def test_files_of_every_layout_are_read_back(file_format: str, thin: str) -> None:
    table = _table(**{"file.format": file_format, "data-file.thin-mode": thin})
    table.write(_rows(table, 3, 1, 2), kinds=["+I", "-D", "+U"])
    names = [f.name for f in file_layout(table.definition).fields]
    assert names == [*([] if thin == "true" else ["_KEY_k"]), "_SEQUENCE_NUMBER", "_VALUE_KIND", "k", "s", "f", "a"]
    reader = _reader(table, sequence=True, kind=True)
    found = reader.read(100)
    assert found is not None
    assert found.column("k").to_pylist() == [1, 2, 3]
    assert found.column("_SEQUENCE_NUMBER").to_pylist() == [1, 2, 0]
    assert found.column("_VALUE_KIND").to_pylist() == [3, 2, 0]
    assert reader.read(100) is None
    reader.close()


@pytest.mark.parametrize("kind", ["+I", "+U", "-D"])
@pytest.mark.parametrize("said", [0, 1, None])
def test_kinds_are_those_of_the_file_whatever_the_manifest_says_of_retractions(kind: str, said: int | None) -> None:
    table = _table()
    table.write(_rows(table, 1, 2, 3), kinds=["+I", "+I", kind])
    file, path = _file(table)
    target = FileToRead(path, replace(file, delete_row_count=said), table.schema.fields, 0)
    reader = DataFileReader(table.env.storage, target, columns=table.schema.fields[:1], kind=True)
    found = reader.read(100)
    assert found is not None
    assert found.schema.field("_VALUE_KIND").type == pa.int8()
    assert found.column("_VALUE_KIND").to_pylist() == [0, 0, {"+I": 0, "+U": 2, "-D": 3}[kind]]
    reader.close()


@pytest.mark.parametrize("kinds", [None, ["+I", "+I", "+I"], ["+I", "+I", "+U"], ["-D", "+I", "+I"]])
def test_kinds_are_not_read_where_the_footer_notes_that_all_rows_are_inserts(kinds: list[str] | None) -> None:
    table = _table()
    table.write(_rows(table, 1, 2, 3), kinds=kinds)
    reader = _reader(table, kind=True)
    assert reader.noted_inserts == (kinds is None or set(kinds) == {"+I"})
    plain = _reader(table, kind=True, notes=False)
    for one in (reader, plain):
        found = one.read(100)
        assert found is not None
        held = found.column("_VALUE_KIND")
        assert held.type == pa.int8()
        assert held.to_pylist() == [{"+I": 0, "+U": 2, "-D": 3}[kind] for kind in kinds or ["+I"] * 3]
        one.close()


def test_file_names_tell_format_and_compression() -> None:
    for options, end in (
        ({}, ".parquet"),
        ({"file.format": "orc"}, ".orc"),
        ({"file.suffix.include.compression": "true"}, ".zst.parquet"),
        ({"file.suffix.include.compression": "true", "file.compression": "none"}, ".parquet"),
        ({"file.suffix.include.compression": "true", "file.compression": "gzip"}, ".gz.parquet"),
    ):
        table = _table(**options, **{"data-file.prefix": "part-"})
        table.write(_rows(table, 1))
        name = _file(table)[0].name
        assert name.startswith("part-")
        assert name.endswith(end)
        assert table.read().count() == 1


def test_a_new_file_begins_at_the_target() -> None:
    table = _table(**{"target-file-row-num": "4"})
    layout = file_layout(table.definition)
    writer = RollingWriter(table=table.definition, env=table.env, directory=f"{table.path}/bucket-0", layout=layout)
    for at in range(0, 10, 2):
        writer.write(_rows(table, at, at + 1), sequences=pa.array([at, at + 1]))
    files = writer.close()
    assert [(f.row_count, f.min_sequence, f.max_sequence) for f in files] == [(4, 0, 3), (4, 4, 7), (2, 8, 9)]
    assert len({f.name for f in files}) == 3
    writer.abort()
    assert not any("/bucket-0/" in path for path in contents(table.env.storage))


def test_statistics_are_kept_as_the_options_say() -> None:
    table = _table(
        **{"metadata.stats-mode": "counts", "fields.s.stats-mode": "truncate(3)", "fields.f.stats-mode": "none"}
    )
    table.write(_rows(table, 1, 2))
    [row] = table.files().to_pylist()
    assert row["min_value_stats"] == "{k=null, s=tex}"
    assert row["max_value_stats"] == "{k=null, s=tey}"
    assert row["null_value_counts"] == "{k=0, s=0}"
    assert (row["min_key"], row["max_key"]) == ("[1]", "[2]")
    assert table.read(where="s = 'text 2'").count() == 1


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(1)", "full"])
@pytest.mark.parametrize("dense", ["true", "false"])
def test_no_mode_of_statistics_changes_what_is_read(mode: str, dense: str) -> None:
    table = _table(**{"metadata.stats-mode": mode, "metadata.stats-dense-store": dense})
    table.write(_rows(table, *range(5)), overwrite={})
    table.write(_rows(table, 3, 9))
    assert table.read(where="k >= 3 AND s > 'text 3'").count() == 2
    assert table.read(where="f = 1.5").count() == 1
    assert table.files().num_rows == 2


def test_only_the_columns_asked_for_come_back_in_their_order() -> None:
    table = _table()
    table.write(_rows(table, 1, 2))
    fields = {f.name: f for f in table.schema.fields}
    found = _reader(table, columns=[fields["a"], fields["k"]]).read(10)
    assert found is not None
    assert found.column_names == ["a", "k"]


def test_stretches_hold_at_least_one_group_and_about_the_rows_asked() -> None:
    table = _table(**{"file.format": "avro"})
    table.write(pa.concat_tables([_rows(table, *range(10_000))]))
    reader = _reader(table, columns=table.schema.fields[:1])
    sizes = []
    while (part := reader.read(1)) is not None:
        sizes.append(part.num_rows)
    assert sum(sizes) == 10_000
    assert max(sizes) <= 4096
    assert _reader(table).rows == 10_000


def test_a_filter_on_groups_leaves_out_only_what_cannot_match() -> None:
    table = _table(**{"file.block-size": "1 kb"})
    table.write(_rows(table, *range(4000)))
    where = to_predicate("k >= 3990", table.schema.fields)
    reader = _reader(table, groups_filter=where)
    kept = []
    while (part := reader.read(10_000)) is not None:
        kept += part.column("k").to_pylist()
    assert set(range(3990, 4000)) <= set(kept)
    reader.close()


def test_a_filter_that_raises_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = mg.catalog(tmp_path)
    shop.create_database("db")
    options = {"bucket": "1", "file.block-size": "1 kb"}
    table = shop.create_table("db.t", {"k": "INT"}, primary_key=["k"], options=options)
    table.write(pa.table({"k": pa.array(range(4000), pa.int32())}))

    def fails(*_: object) -> None:
        raise InvalidInputError("a filter without meaning")

    monkeypatch.setattr(read, "may_match_many", fails)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(InvalidInputError, match="without meaning") as caught:
        _reader(table, groups_filter=to_predicate("k >= 3990", table.schema.fields))
    assert set(os.listdir("/proc/self/fd")) == before, caught


@pytest.mark.parametrize("change", [{"size": 1}, {"row_count": 1}, {"name": "x"}])
def test_a_file_that_differs_from_its_entry_is_refused_and_closed(change: dict[str, Any]) -> None:
    table = _table()
    table.write(_rows(table, 1, 2))
    file, path = _file(table)
    with pytest.raises(FormatError, match="bucket-0") as caught:
        DataFileReader(
            table.env.storage,
            FileToRead(path, replace(file, **change), table.schema.fields, 0),
            columns=table.schema.fields,
        )
    assert caught.value.context["path"] == path


def test_a_failing_store_removes_the_file_and_its_error_is_the_one_told() -> None:
    table = _table()
    before = contents(table.env.storage)
    table.env.storage = FaultyStorage(table.env.storage, Plan(Fault.TEAR, 1, 1, frozenset({"close"})))
    with pytest.raises(StorageError, match="close"):
        table.write(_rows(table, 1))
    assert contents(table.env.storage.inner) == before


def test_no_file_has_more_rows_than_the_target_however_the_rows_come() -> None:
    table = _table(**{"target-file-row-num": "4"})
    layout = file_layout(table.definition)
    writer = RollingWriter(table=table.definition, env=table.env, directory=f"{table.path}/bucket-0", layout=layout)
    for start, end in ((0, 3), (3, 14), (14, 15)):
        writer.write(_rows(table, *range(start, end)), sequences=pa.array(range(start, end), pa.int64()))
    files = writer.close()
    assert [(f.row_count, f.min_sequence, f.max_sequence) for f in files] == [
        (4, 0, 3), (4, 4, 7), (4, 8, 11), (3, 12, 14)
    ]  # fmt: skip
    table.write(_rows(table, *range(100)))
    assert max(table.files().column("record_count").to_pylist()) == 4
    assert table.read().count() == 100


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_a_dropped_file_is_given_up_by_its_format_too(file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(**{"file.format": file_format})
    given_up = []
    layout = file_layout(table.definition)
    writer = RollingWriter(table=table.definition, env=table.env, directory=f"{table.path}/bucket-0", layout=layout)
    writer.write(_rows(table, 1), sequences=pa.array([1]))
    assert writer._open is not None
    inner = writer._open._writer
    monkeypatch.setattr(inner, "abort", lambda: given_up.append(True), raising=True)
    writer.abort()
    assert given_up == [True]
    assert not any("/bucket-0/" in path for path in contents(table.env.storage))


def test_a_file_whose_format_cannot_be_opened_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT"})

    def refuse(*_: object) -> None:
        raise UnsupportedError("no such format")

    monkeypatch.setattr("merganser.files.write.open_writer", refuse)
    with pytest.raises(UnsupportedError):
        table.write([{"k": 1}])
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [".merganser", "schema-0"]


@pytest.mark.parametrize("text", ["many", "one"])
def test_a_large_row_group_is_read_in_parts_of_about_the_size_asked(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "WHOLE_BYTES", 0)
    table = _table()
    rows = _rows(table, *range(5_000))
    texts = [f"{k:05}" * 200 if text == "many" else "x" * 1_000 for k in range(5_000)]  # told by pages, or a dictionary
    table.write(rows.set_column(1, "s", pa.array(texts)))
    whole = _reader(table, kind=True, positions=True)
    expected = whole.read(5_000)
    assert expected is not None
    assert expected.num_rows == 5_000
    reader = _reader(table, kind=True, positions=True, part_bytes=20_000)
    parts = list(iter(lambda: reader.read(5_000), None))
    assert pa.concat_tables(parts).equals(expected)
    if text == "many":
        assert max(part.nbytes for part in parts) <= 60_000


def test_a_small_row_group_is_read_whole_whatever_the_size_asked() -> None:
    table = _table()
    table.write(_rows(table, *range(5_000)))
    part = _reader(table, part_bytes=1_000).read(1)
    assert part is not None
    assert part.num_rows == 5_000


def test_rows_of_a_part_are_masked_as_those_of_a_whole_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "WHOLE_BYTES", 0)
    table = _table()
    table.write(_rows(table, *range(1_000)))
    only = np.array([0, 499, 500, 999])
    reader = _reader(table, only=only, positions=True, part_bytes=1_000)
    found = pa.concat_tables(list(iter(lambda: reader.read(1), None)))
    assert found["k"].to_pylist() == found[POSITION.name].to_pylist() == only.tolist()


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("parts", [None, 2_000])
@pytest.mark.parametrize(
    "text",
    ["k IN (3, 900, 901, 3999)", "k = 5 OR s = 'text 2500'", "f > 1999 AND k < 4000", "k >= 0", "k < 0", "s IS NULL",
     "k % 7 = 0 AND f > 100", "k IN (0, 400, 800, 1200, 1600, 2000, 2400, 2800, 3200, 3600)"],
)  # fmt: skip
def test_a_filter_on_rows_leaves_out_exactly_what_it_does_not_keep(
    file_format: str, parts: int | None, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "WHOLE_BYTES", 0)
    table = _table(**{"file.format": file_format, "file.block-size": "1 kb"})
    table.write(_rows(table, *range(4000)))
    where = to_predicate(text, table.schema.fields)
    assert where is not None
    only = np.arange(1, 4000, 3)
    for how in ({}, {"only": only}):
        whole = _reader(table, kind=True, sequence=True, positions=True, **how)
        every = where.apply(pa.concat_tables(list(iter(lambda: whole.read(1_000), None))))  # noqa: B023
        reader = _reader(
            table, kind=True, sequence=True, positions=True, rows_filter=where, part_bytes=parts,
            columns=[f for f in table.schema.fields if f.name != "a"], **how,
        )  # fmt: skip
        found = pa.concat_tables(list(iter(lambda: reader.read(700), None)))  # noqa: B023
        assert found.equals(every.drop_columns(["a"])), how


def test_other_columns_are_read_only_of_groups_with_a_row_of_the_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(**{"file.block-size": "1 kb"})
    table.write(_rows(table, *range(4000)))
    asked: list[tuple[int, tuple[str, ...]]] = []
    plain = ParquetFileReader.read

    def noted(self: ParquetFileReader, groups: Any, columns: Any) -> pa.Table:
        asked.extend((group, tuple(f.name for f in columns)) for group in groups or range(len(self.group_rows)))
        return plain(self, groups, columns)

    monkeypatch.setattr(ParquetFileReader, "read", noted)
    reader = _reader(table, rows_filter=to_predicate("k = 2", table.schema.fields))
    found = pa.concat_tables(list(iter(lambda: reader.read(100), None)))
    assert found["s"].to_pylist() == ["text 2"]
    groups = len({group for group, _ in asked})
    assert groups > 20
    assert [names for _, names in asked].count(("k",)) == groups
    assert [(group, names) for group, names in asked if names != ("k",)] == [(0, ("s", "f", "a"))]


def test_columns_of_a_filter_that_leaves_out_no_group_are_not_read_apart_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = _table(**{"file.block-size": "1 kb"})
    table.write(_rows(table, *range(4000)))
    calls: list[int] = []
    plain = ParquetFileReader.read

    def noted(self: ParquetFileReader, groups: Any, columns: Any) -> pa.Table:
        calls.append(len(columns))
        return plain(self, groups, columns)

    monkeypatch.setattr(ParquetFileReader, "read", noted)
    reader = _reader(table, rows_filter=to_predicate("k >= 0", table.schema.fields))
    assert sum(part.num_rows for part in iter(lambda: reader.read(1), None)) == 4000
    assert calls[:8] == [1, 3] * 4
    assert set(calls[8:]) == {4}
