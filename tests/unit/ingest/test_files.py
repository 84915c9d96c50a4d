"""Files of rows: patterns on disk and in stores, portions, Parquet of other writers, Arrow files, damage."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.errors import FormatError, InvalidInputError, NotFoundError, UnsupportedError
from merganser.ingest.file_options import FORMATS, FileOptions, file_options
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
    paths += ["_temporary/0/c.csv", "x/.hidden/d.csv"]
    storage = MemoryStorage(tmp_path.name) if kind == "store" else LocalStorage()
    root = f"memory://{tmp_path.name}/in" if kind == "store" else f"{tmp_path}/in"
    for path in paths:
        storage.create(f"{root}/{path}", b"1")
    assert _names(f"{root}/*.csv", storage) == ["a.csv", "b.csv"]
    shown = ["a.csv", "b.csv", "w[1]/f.csv", "x/c.csv", "x/e.json", "x/y/d.csv"]
    assert [_names(each, storage) for each in (root, f"{root}/")] == [shown, shown]
    assert _names(f"{root}/x*", storage) == ["x/c.csv", "x/e.json", "x/y/d.csv"]
    assert _names(f"{root}/**/[cd].*", storage) == ["x/c.csv", "x/y/d.csv"]
    assert _names(f"{root}/x/c.csv", storage) == ["x/c.csv"]
    assert _names(f"{root}/*/*.csv", storage) == ["w[1]/f.csv", "x/c.csv"]
    assert _names(f"{root}/**/*.csv", storage) == ["a.csv", "b.csv", "w[1]/f.csv", "x/c.csv", "x/y/d.csv"]
    assert _names(f"{root}/x/[ce].*", storage) == ["x/c.csv", "x/e.json"]
    with pytest.raises(NotFoundError, match="no file matches"):
        _names(f"{root}/*.orc", storage)


def _written(path: Path, data: pa.Table, form: str) -> None:
    """Write rows in a format, whatever the name of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    match form:
        case "parquet":
            pq.write_table(data, path)
        case "orc":
            orc.write_table(data, str(path))
        case "arrow":
            with pa.ipc.new_file(path, data.schema) as out:
                out.write_table(data)
        case "csv":
            pa_csv.write_csv(data, path)
        case "json":
            path.write_text("".join(json.dumps(row) + "\n" for row in data.to_pylist()))
        case "avro":
            fields = [{"name": name, "type": ["null", "long"]} for name in data.column_names]
            with path.open("wb") as file:
                fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, data.to_pylist())


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["disk", "store"])
def test_a_directory_has_the_rows_of_its_partitions_and_of_files_with_bytes(
    kind: str, form: str, tmp_path: Path
) -> None:
    """Names as Hive and Hadoop give them: without an extension, empty, hidden, half copied."""
    folder = tmp_path / "in"
    for i, day in enumerate(["day=2024-01-01/at=a%2Fb", "day=2024-01-01/at=", "day=__HIVE_DEFAULT_PARTITION__/at=c"]):
        _written(folder / day / "000000_0", pa.table({"v": [i, None]}), form)
        (folder / day / "000001_0").touch()
        for name in ("_SUCCESS", ".000000_0.crc", "000002_0._COPYING_"):
            (folder / day / name).write_text("no rows")
    (folder / "empty.csv").touch()
    table = _table({"v": "BIGINT", "day": "DATE", "at": "STRING"}, tmp_path.name)
    place = str(folder)
    if kind == "store":
        place = f"memory://{tmp_path.name}/in"
        for path in folder.rglob("*"):
            if path.is_file():
                table.env.storage.create(f"{place}/{path.relative_to(folder)}", path.read_bytes())
    table.load(place, options={"format": form})
    first = date(2024, 1, 1)
    assert [(row["v"], row["day"], row["at"]) for row in table.read(columns=["v", "day", "at"]).to_pylist()] == [
        *((value, first, "") for value in (1, None)),
        *((value, first, "a/b") for value in (0, None)),
        *((value, None, "c") for value in (2, None)),
    ]


def test_what_directories_say_must_fit_and_be_said_by_all(tmp_path: Path) -> None:
    table = _table({"v": "BIGINT", "n": "INT"}, tmp_path.name)
    _written(tmp_path / "n=1" / "a.parquet", pa.table({"v": [1], "n": [7]}), "parquet")
    table.load(tmp_path)
    table.load(tmp_path / "*" / "*.parquet")
    table.load(tmp_path, partitions=False)
    assert [row["n"] for row in table.read().to_pylist()] == [1, 1, 7]
    (tmp_path / "n=x").mkdir()
    (tmp_path / "n=1" / "a.parquet").rename(tmp_path / "n=x" / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"says that 'n' is 'x', which does not fit INT\. Nothing"):
        table.load(tmp_path)
    (tmp_path / "b.csv").write_text("v\n1\n")
    with pytest.raises(InvalidInputError, match=r"b.csv' lies in no directory of a partition"):
        table.load(tmp_path)
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(UnsupportedError, match="is a table of Delta Lake"):
        table.load(tmp_path)
    with pytest.raises(NotFoundError, match="no file lies in it"):
        table.load(tmp_path / "_delta_log")
    assert table.read().count() == 3


def _of_days(root: Path) -> dict[str, list[int]]:
    """Write files in directories of days; return patterns, with the keys of the rows that they name."""
    for day in (1, 2):
        _written(root / "in" / f"day=2026-01-0{day}" / "h=1" / "a.parquet", pa.table({"k": [day]}), "parquet")
    _written(root / "in" / "_temporary" / "day=2026-01-03" / "h=1" / "a.parquet", pa.table({"k": [3]}), "parquet")
    both = ["in", "in/", "in/**", "in/**/*.parquet", "in/*/*/*.parquet", "in/day=*", "in/day=*/h=1/*.parquet"]
    one = ["in/day=2026-01-01", "in/day=2026-01-01/h=1", "in/day=2026-01-01/h=1/a.parquet", "in/*01"]
    return {pattern: [1, 2] for pattern in both} | {pattern: [1] for pattern in one}


def test_directories_of_patterns_say_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for i, (pattern, keys) in enumerate(_of_days(tmp_path).items()):
        for j, place in enumerate((pattern, str(tmp_path / pattern))):
            table = _table({"day": "DATE", "k": "INT", "h": "STRING"}, f"{tmp_path.name}-{i}-{j}")
            table.load(place)
            assert table.read().to_pylist() == [{"day": date(2026, 1, k), "k": k, "h": "1"} for k in keys], place


def test_a_column_of_directories_that_the_table_lacks_is_refused(tmp_path: Path) -> None:
    _of_days(tmp_path)
    table = _table({"k": "INT", "h": "INT"}, tmp_path.name)
    with pytest.raises(InvalidInputError, match=r"say a column 'day', which the table lacks.*partitions=False"):
        table.load(tmp_path / "in")
    table.load(tmp_path / "in" / "day=2026-01-01" / "*")  # above the first wildcard
    assert table.read().to_pylist() == [{"k": 1, "h": 1}]


@pytest.mark.parametrize(
    ("kind", "text", "fits"),
    [
        ("INT", "1.50", False),
        ("INT", "1e3", True),
        ("DECIMAL(6, 2)", "1.555", False),
        ("DECIMAL(6, 2)", "1.5", True),
        ("VARCHAR(2)", "abc", False),
        ("CHAR(2)", "a", True),
        ("DATE", "2026-10-03 12:00", False),
        ("DATE", "2026-10-3", False),
        ("BOOLEAN", "yes", False),
        ("FLOAT", "1e400", False),
        ("DOUBLE", "NaN", True),
        ("TIMESTAMP(3)", "2026-10-03 01:02:03.123456", False),
        ("TIMESTAMP(3)", "2026-10-03 01:02:03", True),
        ("TIMESTAMP_LTZ(3)", "2026-10-03 01:02:03", True),
        ("TIMESTAMP_LTZ(3)", "1767258000000", True),
        ("TIME(0)", "10:30:00", True),
    ],
)
def test_a_directory_says_what_the_text_of_a_field_says(tmp_path: Path, kind: str, text: str, fits: bool) -> None:
    _written(tmp_path / f"p={text}" / "a.parquet", pa.table({"v": [1]}), "parquet")
    (tmp_path / "a.csv").write_text(f'v,p\n1,"{text}"\n')
    found = []
    for i, files in enumerate((tmp_path / "p=*", tmp_path / "a.csv")):
        table = _table({"v": "BIGINT", "p": kind}, f"{tmp_path.name}-{i}")
        if fits:
            table.load(files, time_zone="Europe/Vienna", time_unit="ms")
            found.append(repr(table.read().to_pylist()))
        else:
            with pytest.raises(InvalidInputError, match="Nothing was written") as caught:
                table.load(files)
            found.append(table.snapshots())
            assert caught.value.context["path"] == str(tmp_path / (f"p={text}/a.parquet" if i == 0 else "a.csv"))
    assert found[0] == found[1]


def test_directories_of_bytes_hold_their_text_and_all_are_judged_first(tmp_path: Path) -> None:
    for text in ("ab", "c", "%FF%C3%A9"):
        _written(tmp_path / f"p={text}" / "a.parquet", pa.table({"v": [1]}), "parquet")
    table = _table({"v": "BIGINT", "p": "VARBINARY(2)"}, tmp_path.name)
    table.load(tmp_path / "p=[a-c]*")
    assert [row["p"] for row in table.read().to_pylist()] == [b"ab", b"c"]
    with pytest.raises(InvalidInputError, match=r"directory of .*'ab', which does not fit ARRAY<INT>"):
        _table({"v": "BIGINT", "p": "ARRAY<INT>"}, f"{tmp_path.name}-a").load(tmp_path / "p=ab")
    (tmp_path / "p=ab" / "a.parquet").write_bytes(b"no file of rows")
    with pytest.raises(InvalidInputError, match=r"directory of '.*%FF%C3%A9/a.parquet' says .* VARBINARY\(2\)\. Not"):
        table.load(tmp_path)


def test_files_of_zero_bytes_alone_commit_nothing(tmp_path: Path) -> None:
    table = _table({"v": "BIGINT"}, tmp_path.name)
    for name in ("a.parquet", "b.csv", "c.orc"):
        (tmp_path / name).touch()
    assert table.load(f"{tmp_path}/*") is None
    assert table.load(tmp_path) is None
    below = tmp_path / "below" / "day=1"
    below.mkdir(parents=True)
    (below / "_SUCCESS").touch()
    with pytest.raises(NotFoundError, match="no file lies in it"):
        table.load(tmp_path / "below")
    (below / "a.csv").touch()
    assert table.load(tmp_path / "below") is None
    with pytest.raises(InvalidInputError, match="'format' is 'xlsx'"):
        table.load(f"{tmp_path}/*", options={"format": "xlsx"})


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


NEAR = [datetime(1969, 12, 31, 23, 59, 59, 1), None, datetime(2026, 1, 2, 3, 4, 5)]
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


@pytest.mark.parametrize("values", [[NEAR, None], []], ids=["rows", "no row"])
@pytest.mark.parametrize("kind", [pa.list_(pa.timestamp("us")), pa.large_list(pa.timestamp("us"))], ids=str)
def test_int96_times_lie_in_lists_of_any_width(kind: pa.DataType, values: list[Any], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for given, name in ((kind, "s.loaded"), (pa.list_(pa.timestamp("us"), 3), "s.fixed")):
        path = _int96(tmp_path / "in" / "a.parquet", pa.table({"at": pa.array(values, given)}))
        catalog = mg.catalog(str(tmp_path / name))
        catalog.create_database("s")
        table = catalog.create_table(name, {"at": "ARRAY<TIMESTAMP(6)>"})
        table.load(path)
        copied = catalog.migrate(str(tmp_path / "in"), "s.copied", how="copy")
        assert [row["at"] for row in table.read().to_pylist()] == values
        assert [row["at"] for row in copied.read().to_pylist()] == values


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
    with pytest.raises(InvalidInputError, match=r"one of parquet, .*arrow. Nothing was written.*option 'format'"):
        _table({"n": "INT"}, tmp_path.name).load(str(tmp_path / "a.xlsx"))


def test_keys_of_a_store_stand_in_no_repr() -> None:
    said = file_options({"s3.secret-access-key": "hidden", "csv.delimiter": ";"}, action="cannot load")
    assert said.store == {"s3.secret-access-key": "hidden"}
    assert "hidden" not in repr(said)
