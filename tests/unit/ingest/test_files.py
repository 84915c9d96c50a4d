"""Files of rows: patterns on disk and in stores, portions, Parquet of other writers, Arrow files, damage."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.errors import FormatError, InvalidInputError, NotFoundError
from merganser.ingest.file_options import FileOptions, file_options
from merganser.ingest.files import Portion, RowFiles, found_files, rows_of_files
from merganser.storage.local import LocalStorage
from merganser.storage.memory import MemoryStorage

LOCAL = RowFiles(LocalStorage(), ())


def _all(files: RowFiles, path: str) -> pa.Table:
    return pa.concat_tables(files.tables(files.whole(path)))


def _table(schema: dict[str, str], name: str) -> mg.Table:
    catalog = mg.catalog(f"memory://{name}/w")
    catalog.create_database("d", if_not_exists=True)
    return catalog.create_table("d.t", schema)


# patterns


def _names(pattern: str, storage: Any) -> list[str]:
    return [path.rpartition("/in/")[2] for path in found_files(pattern, FileOptions(), storage).paths]


@pytest.mark.parametrize("kind", ["disk", "store"])
def test_patterns_name_files_in_the_order_of_their_paths(kind: str, tmp_path: Path) -> None:
    paths = ["b.csv", "a.csv", "_SUCCESS", ".a.csv.crc", "x/c.csv", "x/y/d.csv", "x/e.json", "w[1]/f.csv"]
    storage = MemoryStorage(tmp_path.name) if kind == "store" else LocalStorage()
    root = f"memory://{tmp_path.name}/in" if kind == "store" else f"{tmp_path}/in"
    for path in paths:
        storage.create(f"{root}/{path}", b"1")
    assert _names(f"{root}/*.csv", storage) == ["a.csv", "b.csv"]
    assert _names(root, storage) == ["a.csv", "b.csv"]
    assert _names(f"{root}/x/c.csv", storage) == ["x/c.csv"]
    assert _names(f"{root}/*/*.csv", storage) == ["w[1]/f.csv", "x/c.csv"]
    assert _names(f"{root}/**/*.csv", storage) == ["a.csv", "b.csv", "w[1]/f.csv", "x/c.csv", "x/y/d.csv"]
    assert _names(f"{root}/x/[ce].*", storage) == ["x/c.csv", "x/e.json"]
    with pytest.raises(NotFoundError, match="no file matches"):
        _names(f"{root}/*.orc", storage)


def test_a_file_url_is_a_local_path(tmp_path: Path) -> None:
    (tmp_path / "a b.csv").write_text("v\n1\n")
    table = _table({"v": "INT"}, tmp_path.name)
    table.load((tmp_path / "a b.csv").as_uri())
    assert table.read().to_pylist() == [{"v": 1}]


def test_what_reads_files_pickles(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("v;w\n1;x\n")
    table = _table({"v": "INT", "w": "STRING"}, tmp_path.name)
    options = {"csv.delimiter": ";"}
    found, rows = rows_of_files(f"{tmp_path}/*", table.definition, table.env.storage, None, None, options)
    again = pickle.loads(pickle.dumps(rows))
    assert _all(again, found.paths[0]).to_pylist() == [{"v": 1, "w": "x"}]


# portions


def test_portions_are_row_groups_and_record_batches_with_their_rows(tmp_path: Path) -> None:
    data = pa.table({"s": ["x" * 100] * 25, "n": range(25)})
    pq.write_table(data, tmp_path / "a.parquet", row_group_size=10)
    with pa.ipc.new_file(tmp_path / "a.arrow", data.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
        out.write_table(data, max_chunksize=10)
    for name in ("a.parquet", "a.arrow"):
        path = str(tmp_path / name)
        portions = LOCAL.portions(path)
        assert [(p.groups, p.rows) for p in portions] == [((0, 1), 10), ((1, 2), 10), ((2, 3), 5)]
        assert pa.concat_tables(LOCAL.tables(portions[1])).equals(data.slice(10, 10))
        both = portions[1].joined(portions[2])
        assert both is not None
        assert (both.groups, both.rows) == ((1, 3), 15)
        assert pa.concat_tables(LOCAL.tables(both)).equals(data.slice(10))
        assert portions[0].joined(portions[2]) is None
        assert _all(LOCAL, path).equals(data)
        assert LOCAL.schema(path) == data.schema


def test_text_has_at_most_as_many_rows_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("v\n\n\n1")
    rows = RowFiles(LocalStorage(), _table({"v": "INT"}, tmp_path.name).schema.fields)
    assert LOCAL.portions(str(path)) == [Portion(str(path), None, 5, 5)]
    assert _all(rows, str(path)).to_pylist() == [{"v": None}, {"v": None}, {"v": 1}]


# Parquet


FAR = [datetime(1500, 1, 1, 0, 0, 0, 1), None, datetime(9999, 12, 31, 23, 59, 59, 999999)]


def _int96(path: Path, data: pa.Table, noted: dict[str, Any] | None = None) -> str:
    with pq.ParquetWriter(path, data.schema, use_deprecated_int96_timestamps=True, store_schema=noted is None) as out:
        out.write_table(data, row_group_size=2)
        if noted is not None:
            fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in noted.items()]
            text = json.dumps({"type": "struct", "fields": fields})
            out.add_key_value_metadata({"org.apache.spark.sql.parquet.row.metadata": text})
    return str(path)


@pytest.mark.parametrize("other", [True, False])
def test_int96_times_are_right_in_every_year(other: bool, tmp_path: Path) -> None:
    data = pa.table({"at": pa.array(FAR, pa.timestamp("us"))} | ({"n": [1, 2, 3]} if other else {}))
    path = _int96(tmp_path / "a.parquet", data)
    table = _table({"at": "TIMESTAMP(6)"} | ({"n": "INT"} if other else {}), tmp_path.name)
    table.load(path)
    assert [row["at"] for row in table.read().to_pylist()] == FAR


def test_int96_times_keep_their_nanoseconds(tmp_path: Path) -> None:
    path = _int96(tmp_path / "a.parquet", pa.table({"at": pa.array([1_577_836_800_000_000_001], pa.timestamp("ns"))}))
    table = _table({"at": "TIMESTAMP(9)"}, tmp_path.name)
    table.load(path)
    assert table.read().to_arrow().column("at").cast(pa.int64()).to_pylist() == [1_577_836_800_000_000_001]
    coarse = _table({"at": "TIMESTAMP(6)"}, tmp_path.name + "2")
    with pytest.raises(InvalidInputError, match="column 'at'"):
        coarse.load(path)


def test_instants_of_spark_are_instants_at_any_depth(tmp_path: Path) -> None:
    at = pa.timestamp("us")
    data = pa.table(
        {
            "at": pa.array(FAR, at),
            "many": pa.array([FAR, None, []], pa.list_(pa.field("element", at))),
            "r": pa.array([{"at": FAR[0], "n": 1}, None, {"at": None, "n": 2}]),
            "m": pa.array([[("a", FAR[0])], None, []], pa.map_(pa.string(), at)),
        }
    )
    inner = {"type": "struct", "fields": [{"name": "at", "type": "timestamp"}, {"name": "n", "type": "long"}]}
    noted = {
        "at": "timestamp",
        "many": {"type": "array", "elementType": "timestamp", "containsNull": True},
        "r": inner,
        "m": {"type": "map", "keyType": "string", "valueType": "timestamp", "valueContainsNull": True},
    }
    path = _int96(tmp_path / "a.parquet", data, noted)
    zoned = "TIMESTAMP(6) WITH LOCAL TIME ZONE"
    schema = {"at": zoned, "many": f"ARRAY<{zoned}>", "r": f"ROW<at {zoned}, n BIGINT>", "m": f"MAP<STRING, {zoned}>"}
    table = _table(schema, tmp_path.name)
    table.load(path)
    utc = [None if moment is None else moment.replace(tzinfo=UTC) for moment in FAR]
    found = table.read().to_pylist()
    assert [row["at"] for row in found] == utc
    assert [row["many"] for row in found] == [utc, None, []]
    assert [row["r"] for row in found] == [{"at": utc[0], "n": 1}, None, {"at": None, "n": 2}]
    assert [row["m"] for row in found] == [[("a", utc[0])], None, []]


# damage


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "b.parquet", "b.arrow"])
def test_damaged_files_are_named(name: str, tmp_path: Path) -> None:
    data = pa.table({"n": pa.array(range(10_000), pa.int64())})
    pq.write_table(data, tmp_path / "b.parquet", write_page_checksum=True, use_dictionary=False, compression="none")
    with pa.ipc.new_file(tmp_path / "b.arrow", data.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
        out.write_table(data)
    path = tmp_path / name
    if name.startswith("a"):
        path.write_bytes(b"this is no such file")
    else:
        held = bytearray(path.read_bytes())
        held[100:-400] = bytes(len(held) - 500)
        path.write_bytes(held)
    table = _table({"n": "BIGINT"}, tmp_path.name)
    with pytest.raises(FormatError, match=name.replace(".", r"\.")) as refused:
        table.load(str(path))
    assert refused.value.context["path"] == str(path)
    assert table.latest_snapshot() is None


def test_a_format_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"x")
    with pytest.raises(InvalidInputError, match="parquet, csv, json and arrow files, not 'xlsx'"):
        _table({"n": "INT"}, tmp_path.name).load(str(tmp_path / "a.xlsx"))


def test_keys_of_a_store_stand_in_no_repr() -> None:
    said = file_options({"s3.secret-access-key": "hidden", "csv.delimiter": ";"}, action="cannot load")
    assert said.store == {"s3.secret-access-key": "hidden"}
    assert "hidden" not in repr(said)
