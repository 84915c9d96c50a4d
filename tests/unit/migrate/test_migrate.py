"""Folders of files become tables: which files, which columns, which partitions, and what is refused."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.errors import AlreadyExistsError, ConflictError, InvalidInputError, NotFoundError, UnsupportedError
from merganser.meta.schemas import SchemaStore

WAYS = ("link", "keep", "copy")


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    made = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"})
    made.create_database("db")
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "folder"


def put(path: Path, columns: Mapping[str, Any] | pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    if path.suffix == ".orc":
        orc.write_table(table, str(path))
    else:
        pq.write_table(table, str(path))


def rows(table: Any, **asked: Any) -> list[dict[str, Any]]:
    return sorted(table.read(**asked).to_pylist(), key=repr)


def columns(table: mg.Table) -> list[str]:
    return [f"{field.name} {field.type}" for field in table.schema.fields]


@pytest.mark.parametrize("how", WAYS)
def test_a_folder_becomes_a_table(catalog: mg.Catalog, folder: Path, how: str) -> None:
    put(folder / "b.parquet", {"id": [3], "name": ["c"]})
    put(folder / "a.parquet", {"id": [1, 2], "name": ["a", None]})
    table = catalog.migrate(folder, "db.t", how=how, comment="of files")
    assert table.read().to_pylist() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}, {"id": 3, "name": "c"}]
    assert columns(table) == ["id BIGINT", "name STRING"]
    assert (table.schema.comment, len(table.snapshots())) == ("of files", 1)
    table.write([{"id": 4, "name": "d"}])
    assert rows(catalog.table("db.t"), columns=["id"]) == [{"id": i} for i in (1, 2, 3, 4)]
    assert {found.code for found in table.check()} <= {"unsure"}
    assert sorted(path.name for path in folder.iterdir()) == ["a.parquet", "b.parquet"]


def test_links_take_no_more_room_and_outlive_the_folder(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "a.parquet", {"id": [1]})
    inode = os.stat(folder / "a.parquet").st_ino
    table = catalog.migrate(folder, "db.t")
    (path,) = table.files().column("file_path").to_pylist()
    assert path.startswith(table.path)
    assert os.stat(path).st_ino == inode
    (folder / "a.parquet").unlink()
    catalog.rename_table("db.t", "db.u")
    assert rows(catalog.table("db.u")) == [{"id": 1}]


def test_kept_files_stay_where_they_are_whatever_becomes_of_the_table(catalog: mg.Catalog, folder: Path) -> None:
    for i in range(3):
        put(folder / "deep" / f"{i}" / "part.parquet", {"id": [i]})
    table = catalog.migrate(folder, "db.t", how="keep")
    assert all(path.startswith(str(folder)) for path in table.files().column("file_path").to_pylist())
    assert len(set(table.files().column("file_path").to_pylist())) == 3
    table.delete("id = 1")
    assert rows(table) == [{"id": 0}, {"id": 2}]
    table.expire(retain_max=1, retain_min=1)
    table.remove_orphans(older_than="2999-01-01T00:00", dry_run=False)
    assert (rows(table), table.check(quick=True)) == ([{"id": 0}, {"id": 2}], ())
    assert len([path for path in table.files().column("file_path").to_pylist() if path.startswith(str(folder))]) == 2
    catalog.drop_table("db.t")
    assert len(list(folder.rglob("*.parquet"))) == 3


def test_directories_of_hive_become_partitions(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "dt=2024-01-01" / "place=a%2Fb" / "x.parquet", {"id": [1]})
    put(folder / "dt=2024-01-01" / "place=__HIVE_DEFAULT_PARTITION__" / "x.parquet", {"id": [2]})
    put(folder / "dt=__HIVE_DEFAULT_PARTITION__" / "place=c d" / "x.parquet", {"id": [3]})
    day = dt.date(2024, 1, 1)
    for how in WAYS:
        table = catalog.migrate(folder, f"db.{how}", how=how)
        assert columns(table) == ["id BIGINT", "dt DATE", "place STRING"]
        assert table.partition_by == ("dt", "place")
        assert rows(table) == [
            {"id": 1, "dt": day, "place": "a/b"},
            {"id": 2, "dt": day, "place": None},
            {"id": 3, "dt": None, "place": "c d"},
        ]
        assert rows(table, columns=["place"], where="dt is null or id = 1") == [{"place": "a/b"}, {"place": "c d"}]
        assert rows(table, columns=["dt"], where="place = 'a/b'") == [{"dt": day}]
        assert table.read(where="dt = DATE '2024-01-01'").count() == 2
        table.write([{"id": 4, "dt": day, "place": "a/b"}])
        table.compact(full=True)
        assert rows(table, where="place = 'a/b'") == [
            {"id": 1, "dt": day, "place": "a/b"},
            {"id": 4, "dt": day, "place": "a/b"},
        ]
        if how != "keep":
            assert os.path.isdir(f"{table.path}/dt=2024-01-01/place=a%2Fb")


def test_changes_and_updates_know_the_partitions_of_files_without_them(catalog: mg.Catalog, folder: Path) -> None:
    for day in (1, 2):
        put(folder / f"day={day}" / "x.parquet", {"id": [1, 2]})
    table = catalog.migrate(folder, "db.t")
    assert sorted((row["day"], row["id"]) for row in table.changes().to_pylist()) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    table.update("day = 2 and id = 1", {"id": "day * 10"})
    table.delete("day = 1 and id = 1")
    assert rows(table) == [{"id": 2, "day": 1}, {"id": 2, "day": 2}, {"id": 20, "day": 2}]


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-20", "0"], "INT"),
        (["1", "3000000000"], "BIGINT"),
        (["1", "01"], "STRING"),
        (["1", "99999999999999999999"], "STRING"),
        (["2024-02-29", "0001-01-01"], "DATE"),
        (["2024-02-29", "2023-02-29"], "STRING"),
        (["true", "false"], "STRING"),
        (["1.5"], "STRING"),
    ],
)
def test_a_partition_column_has_the_type_that_writes_all_its_texts_back(
    catalog: mg.Catalog, folder: Path, texts: list[str], kind: str
) -> None:
    for text in texts:
        put(folder / f"p={text}" / "x.parquet", {"id": [1]})
    table = catalog.migrate(folder, "db.t")
    assert str(table.schema.field("p").type) == kind
    assert sorted(str(row["p"]) for row in table.read().to_pylist()) == sorted(texts)


def test_types_can_be_given(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "p=01" / "x.parquet", {"a": pa.array([1], pa.int32()), "b": ["7"], "c": [1.5]})
    table = catalog.migrate(folder, "db.t", types={"p": "TINYINT", "a": "DECIMAL(12, 2)", "b": "INT"})
    assert rows(table) == [{"a": Decimal("1.00"), "b": 7, "c": 1.5, "p": 1}]
    with pytest.raises(InvalidInputError, match="'x', and no file and no directory has it"):
        catalog.migrate(folder, "db.u", types={"x": "INT"})
    with pytest.raises(InvalidInputError, match="that 'p' is '01', which does not fit BOOLEAN"):
        catalog.migrate(folder, "db.u", types={"p": "BOOLEAN"})
    with pytest.raises(UnsupportedError, match=r"'c'.*DOUBLE.*DATE"):
        catalog.migrate(folder, "db.u", types={"c": "DATE"})
    assert catalog.list_tables("db") == ["t"]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("VARCHAR(2)", "abc", None),
        ("DECIMAL(6, 2)", "1.555", None),
        ("INT", "1.50", None),
        ("FLOAT", "1e400", None),
        ("DATE", "2026-10-03 12:00", None),
        ("TIMESTAMP(3)", "2026-10-03 01:02:03.123456", None),
        ("DECIMAL(6, 2)", "1.50", Decimal("1.50")),
        ("TIMESTAMP(3)", "2026-10-03 01:02:03", dt.datetime(2026, 10, 3, 1, 2, 3)),
    ],
)
def test_a_directory_that_does_not_fit_a_given_type_is_refused(
    catalog: mg.Catalog, folder: Path, kind: str, text: str, value: object
) -> None:
    put(folder / f"p={text}" / "x.parquet", {"id": [1]})
    for how in WAYS:
        if value is None:
            with pytest.raises(InvalidInputError, match=r"does not fit .*Nothing was changed\. Give the column"):
                catalog.migrate(folder, f"db.{how}", how=how, types={"p": kind})
            assert catalog.list_tables("db") == []
        else:
            assert rows(catalog.migrate(folder, f"db.{how}", how=how, types={"p": kind})) == [{"id": 1, "p": value}]


def test_files_that_differ_share_the_smallest_columns_that_hold_all(catalog: mg.Catalog, folder: Path) -> None:
    inner = pa.struct([("x", pa.int32())])
    wide = pa.struct([("y", pa.string()), ("x", pa.int64())])
    put(
        folder / "1.parquet",
        {
            "n": pa.array([1], pa.int8()),
            "f": pa.array([0.5], pa.float32()),
            "d": pa.array([Decimal("1.5")], pa.decimal128(3, 1)),
            "t": pa.array([1], pa.timestamp("ms")),
            "r": pa.array([{"x": 1}], inner),
            "l": pa.array([[1]], pa.list_(pa.int32())),
        },
    )
    put(
        folder / "2.parquet",
        {
            "late": ["new"],
            "n": pa.array([2**40], pa.int64()),
            "f": pa.array([0.1], pa.float64()),
            "d": pa.array([Decimal("1234.25")], pa.decimal128(6, 2)),
            "t": pa.array([1], pa.timestamp("us")),
            "r": pa.array([{"x": 2**40, "y": "s"}], wide),
            "l": pa.array([[2**40]], pa.list_(pa.int64())),
        },
    )
    put(folder / "3.parquet", {"n": pa.array([3], pa.int16())})
    table = catalog.migrate(folder, "db.t")
    assert columns(table) == [
        "n BIGINT",
        "f DOUBLE",
        "d DECIMAL(6, 2)",
        "t TIMESTAMP(6)",
        "r ROW<x BIGINT, y STRING>",
        "l ARRAY<BIGINT>",
        "late STRING",
    ]
    assert [row["n"] for row in table.read().to_pylist()] == [1, 2**40, 3]
    first, second, third = table.read().to_pylist()
    assert (first["d"], first["r"], first["l"], first["late"]) == (Decimal("1.50"), {"x": 1, "y": None}, [1], None)
    assert (second["f"], second["r"], second["late"]) == (0.1, {"x": 2**40, "y": "s"}, "new")
    assert {name: value for name, value in third.items() if value is not None} == {"n": 3}
    assert len(table.system("schemas").to_pylist()) == 3
    for where, count in (("late = 'new'", 1), ("late is null", 2), ("late is not null", 1), ("n = 3", 2)):
        scan = table.read(where=where)
        assert f"in {count} file" in scan.explain(), where  # of another type, `n` has no statistics
        assert scan.count() == (1 if where == "n = 3" else count)
    table.write([first])
    table.compact(full=True)
    assert table.read(where="n = 1").count() == 2


def test_a_column_is_not_null_where_each_file_says_so(catalog: mg.Catalog, folder: Path) -> None:
    needed = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64(), nullable=False)])
    put(folder / "1.parquet", pa.table([[1], [1]], schema=needed))
    put(folder / "2.parquet", pa.table([[2], [None]], names=["a", "b"]).cast(pa.schema([needed[0], ("b", pa.int64())])))
    table = catalog.migrate(folder, "db.t")
    assert columns(table) == ["a BIGINT NOT NULL", "b BIGINT"]


def test_columns_that_no_type_holds_are_refused_with_both_files(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "1.parquet", {"a": [1], "b": ["x"]})
    put(folder / "2.parquet", {"a": [1], "b": [b"x"]})
    with pytest.raises(InvalidInputError, match=r"'b' is STRING in '.*1.parquet' and BYTES in '.*2.parquet'") as caught:
        catalog.migrate(folder, "db.t")
    assert caught.value.context["column"] == "b"
    assert catalog.list_tables("db") == []
    assert rows(catalog.migrate(folder, "db.t", types={"b": "STRING"})) == [{"a": 1, "b": "x"}] * 2


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1], pa.uint32()), "uint32"),
        (pa.array([1], pa.time64("us")), r"time64\[us\]"),
        (pa.array([None], pa.null()), "null"),
        (pa.array([1], pa.duration("s")), "duration"),
        (pa.array([{"x": 1}], pa.struct([("x", pa.uint8())])), "uint8"),
    ],
)
def test_values_that_data_files_do_not_hold_are_refused_with_their_column(
    catalog: mg.Catalog, folder: Path, values: pa.Array, kind: str
) -> None:
    put(folder / "1.parquet", {"a": [1], "b": values})
    with pytest.raises(UnsupportedError, match=f"'b.*' of '.*1.parquet' holds {kind}") as caught:
        catalog.migrate(folder, "db.t")
    assert caught.value.context["column"].startswith("b")


def test_hidden_files_are_passed_over(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "_part=1" / "a.parquet", {"id": [1]})
    for name in ("_SUCCESS", ".a.parquet.crc", "_temporary/0/x.parquet", ".hidden/y.parquet"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text("no file of rows")
    assert rows(catalog.migrate(folder, "db.t")) == [{"id": 1, "_part": 1}]


@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_names_need_not_say_the_format_and_files_of_zero_bytes_do_not_count(
    catalog: mg.Catalog, folder: Path, form: str
) -> None:
    put(folder / "p=1" / f"x.{form}", {"id": [1]})
    (folder / "p=1" / f"x.{form}").rename(folder / "p=1" / "000000_0")
    (folder / "p=1" / "000001_0").touch()
    (folder / "empty.csv").touch()
    with pytest.raises(InvalidInputError, match="format='orc'"):
        catalog.migrate(folder, "db.t")
    with pytest.raises(InvalidInputError, match="format is 'csv'"):
        catalog.migrate(folder, "db.t", format="csv")
    for how in WAYS:
        made = catalog.migrate(folder, f"db.{how}", how=how, format=form)
        assert rows(made, where="id = 1") == [{"id": 1, "p": 1}]
        made.compact(full=True)
        assert rows(made) == [{"id": 1, "p": 1}]


def test_what_is_no_data_file_is_refused(catalog: mg.Catalog, folder: Path) -> None:
    with pytest.raises(NotFoundError, match="no data files"):
        catalog.migrate(folder, "db.t")
    put(folder / "a.parquet", {"id": [1]})
    (folder / "b.csv").write_text("id\n1\n")
    with pytest.raises(InvalidInputError, match=r"b\.csv' is no data file"):
        catalog.migrate(folder, "db.t")
    (folder / "b.csv").rename(folder / "b.parquet")
    with pytest.raises(mg.errors.FormatError, match=r"b\.parquet"):
        catalog.migrate(folder, "db.t")
    assert catalog.list_tables("db") == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_delta_log/00000000000000000000.json", "Delta Lake"),
        ("metadata/v1.metadata.json", "Iceberg"),
        ("metadata/00000-5f3b1c8e-0000-0000-0000-000000000000.metadata.json", "Iceberg"),
        (".hoodie/hoodie.properties", "Hudi"),
        ("delta_0000001_0000001/bucket_00000", "Hive with transactions"),
    ],
)
def test_tables_of_other_formats_are_refused(catalog: mg.Catalog, folder: Path, name: str, kind: str) -> None:
    put(folder / "data" / "a.parquet", {"id": [1]})
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("{}")
    with pytest.raises(UnsupportedError, match=f"is a table of {kind}.*deleted.*Nothing was changed"):
        catalog.migrate(folder, "db.t")


def test_a_table_of_this_format_needs_no_migration(catalog: mg.Catalog) -> None:
    made = catalog.create_table("db.s", {"id": "INT"})
    made.write([{"id": 1}])
    with pytest.raises(UnsupportedError, match=r"merganser\.table"):
        catalog.migrate(made.path, "db.t")


def test_partitions_that_differ_are_refused(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "a=1" / "x.parquet", {"id": [1]})
    put(folder / "x.parquet", {"id": [1]})
    with pytest.raises(InvalidInputError, match="no directory of a partition"):
        catalog.migrate(folder, "db.t")


def test_a_partition_column_in_the_files_must_say_the_same(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "p=1" / "x.parquet", {"p": pa.array([1, 1], pa.int64()), "id": [1, 2]})
    table = catalog.migrate(folder, "db.t")
    assert columns(table) == ["p BIGINT", "id BIGINT"]
    assert rows(table, where="p = 1", columns=["id"]) == [{"id": 1}, {"id": 2}]
    put(folder / "p=2" / "x.parquet", {"p": pa.array([2, 3], pa.int64()), "id": [1, 2]})
    with pytest.raises(UnsupportedError, match="does not say that each value of it is 2"):
        catalog.migrate(folder, "db.u")


def test_statistics_of_footers_let_filters_skip_files(catalog: mg.Catalog, folder: Path) -> None:
    for i in range(4):
        put(
            folder / f"{i}.parquet",
            {"id": range(i * 10, i * 10 + 10), "s": [f"{i} as a long text"] * 10, "f": [0.5] * 10},
        )
    table = catalog.migrate(folder, "db.t")
    for where in ("id = 25", "s = '3 as a long text'"):
        assert "in 1 file," in table.read(where=where).explain()
    (stats,) = table.files().slice(0, 1).to_pylist()
    assert stats["record_count"] == 10
    assert stats["min_value_stats"] == "{id=0, s=0 as a long text, f=null}"
    assert stats["null_value_counts"] == "{id=0, s=0, f=0}"


FIXED = {"type": "fixed", "name": "code", "size": 2}
PRICE = {"type": "fixed", "name": "price", "size": 4, "logicalType": "decimal", "precision": 5, "scale": 2}
ENUM = {"type": "enum", "name": "colour", "symbols": ["RED", "BLUE"]}
UUID_TEXT = "c56a4180-65aa-42ec-a945-5fd21dec0538"
OF_AVRO = [
    (FIXED, b"ab", "BINARY(2)", "'fixed'"),
    (["null", FIXED], None, "BINARY(2)", "'fixed'"),
    ({"type": "array", "items": FIXED}, [b"ab"], "ARRAY<BINARY(2)>", "'fixed'"),
    (PRICE, Decimal("1.25"), "DECIMAL(5, 2)", "'fixed'"),
    (ENUM, "BLUE", "STRING", "'enum'"),
    ({"type": "map", "values": ENUM}, {"k": "RED"}, "MAP<STRING, STRING>", "'enum'"),
    ({"type": "string", "logicalType": "uuid"}, UUID_TEXT, "STRING", "'uuid'"),
    (["int", "null"], 5, "INT", "is a union that does not begin with null"),
    (
        {"type": "record", "name": "p", "fields": [{"name": "x", "type": ["int", "null"]}]},
        {"x": 5},
        "ROW<x INT>",
        "union",
    ),
]


@pytest.mark.parametrize(("kind", "value", "column", "why"), OF_AVRO, ids=[row[2] + row[3] for row in OF_AVRO])
def test_avro_that_other_engines_do_not_read_is_read_and_not_kept(
    catalog: mg.Catalog, folder: Path, kind: Any, value: Any, column: str, why: str
) -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}, {"name": "x", "type": kind}]}
    folder.mkdir()
    with open(folder / "a.avro", "wb") as out:
        fastavro.writer(out, fastavro.parse_schema(record), [{"id": 1, "x": value}])
    for how in ("link", "keep"):
        with pytest.raises(UnsupportedError, match=f"^cannot migrate .*column 'x' of .*{why}.*how='copy'"):
            catalog.migrate(folder, f"db.{how}", how=how)
    made = catalog.create_table("db.t", {"id": "INT", "x": column})
    made.load(str(folder))
    for table in (made, catalog.migrate(folder, "db.copy", how="copy")):
        (row,) = rows(table)
        assert (dict(row["x"]) if isinstance(value, dict) else row["x"]) == value


def test_orc_and_avro_files_are_read_beside_parquet(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "a.parquet", {"id": [1], "name": ["a"]})
    put(folder / "b.orc", {"id": [2], "name": ["b"]})
    part = {"type": "record", "name": "p", "fields": [{"name": "x", "type": "double"}]}
    kinds: list[dict[str, Any]] = [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "parts", "type": {"type": "array", "items": part}},
        {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
    ]  # fmt: skip
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    value = {"id": 3, "name": None, "at": noon, "tags": {"k": 1}, "parts": [{"x": 0.5}], "n": Decimal("1.25")}
    with open(folder / "c.avro", "wb") as out:
        fastavro.writer(out, fastavro.parse_schema({"type": "record", "name": "r", "fields": kinds}), [value])
    for how in WAYS:
        table = catalog.migrate(folder, f"db.{how}", how=how)
        assert columns(table) == [
            "id BIGINT",
            "name STRING",
            "at TIMESTAMP(6) WITH LOCAL TIME ZONE",
            "tags MAP<STRING NOT NULL, INT NOT NULL>",
            "parts ARRAY<ROW<x DOUBLE NOT NULL> NOT NULL>",
            "n DECIMAL(5, 2)",
        ]
        assert rows(table, columns=["id", "name"]) == [{"id": i, "name": n} for i, n in ((1, "a"), (2, "b"), (3, None))]
        (third,) = rows(table, where="id = 3")
        assert third | {"tags": dict(third["tags"])} == value


def test_a_key_makes_it_a_copy(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "p=1" / "1.parquet", {"id": [1, 2], "v": ["a", "b"]})
    put(folder / "p=1" / "2.parquet", {"id": [2, 3], "v": ["new", "c"]})
    table = catalog.migrate(folder, "db.t", primary_key=["p", "id"], options={"bucket": "2"})
    assert [(row["id"], row["v"]) for row in rows(table)] == [(1, "a"), (2, "new"), (3, "c")]
    assert (table.primary_key, table.check()) == (("p", "id"), ())
    with pytest.raises(InvalidInputError, match=r"how='keep'.*Pass how='copy'"):
        catalog.migrate(folder, "db.u", primary_key=["p", "id"], how="keep")
    put(folder / "p=1" / "3.parquet", {"id": pa.array([None], pa.int64()), "v": ["x"]})
    with pytest.raises(InvalidInputError, match="key column 'id' is null"):
        catalog.migrate(folder, "db.u", primary_key=["p", "id"])
    assert catalog.list_tables("db") == ["t"]
    assert [name for name in os.listdir(f"{catalog.warehouse}/db.db") if name.startswith(".") and "tmp" in name] == []


def test_rows_in_buckets_are_written_anew(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "1.parquet", {"id": [1, 2, 3]})
    options = {"bucket": "2", "bucket-key": "id"}
    with pytest.raises(InvalidInputError, match=r"'bucket' = '2'.*how='copy'"):
        catalog.migrate(folder, "db.t", options=options)
    assert catalog.migrate(folder, "db.t", how="copy", options=options).read().count() == 3


def test_a_name_that_is_taken_is_refused(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "1.parquet", {"id": [1]})
    catalog.create_table("db.t", {"id": "INT"})
    with pytest.raises(AlreadyExistsError, match="already exists"):
        catalog.migrate(folder, "db.t")
    (Path(catalog.warehouse) / "db.db" / "u").mkdir()
    (Path(catalog.warehouse) / "db.db" / "u" / "notes.txt").write_text("mine")
    with pytest.raises(AlreadyExistsError, match=r"notes\.txt"):
        catalog.migrate(folder, "db.u")
    with pytest.raises(NotFoundError, match="no database 'other'"):
        catalog.migrate(folder, "other.t")
    with pytest.raises(InvalidInputError, match="how is 'move'"):
        catalog.migrate(folder, "db.v", how="move")


def test_files_without_rows_give_their_columns(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "p=1" / "1.parquet", {"id": pa.array([], pa.int64()), "late": pa.array([], pa.string())})
    table = catalog.migrate(folder, "db.t")
    assert (table.read().count(), table.schema.names, table.snapshots()) == (0, ("id", "late", "p"), ())
    put(folder / "p=2" / "1.parquet", {"id": [1]})
    assert rows(catalog.migrate(folder, "db.u")) == [{"id": 1, "late": None, "p": 2}]


def test_times_of_spark_and_of_others_keep_their_meaning(catalog: mg.Catalog, folder: Path) -> None:
    noon = dt.datetime(2024, 1, 1, 12, 0, 0, 123456)
    table = pa.table({"id": [1], "at": pa.array([noon], pa.timestamp("us"))})
    folder.mkdir()
    pq.write_table(table, folder / "a.parquet", use_deprecated_int96_timestamps=True)
    made = catalog.migrate(folder, "db.hive")
    assert str(made.schema.field("at").type) == "TIMESTAMP(9)"
    assert made.read(where="id = 1").to_arrow().column("at").cast(pa.timestamp("us")).to_pylist() == [noon]
    made = catalog.migrate(folder, "db.coarse", how="copy", types={"at": "TIMESTAMP(6)"})
    assert [row["at"] for row in made.read().to_pylist()] == [noon]
    noted = '{"type":"struct","fields":[{"name":"id","type":"long"},{"name":"at","type":"timestamp"}]}'
    marked = table.replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": noted})
    pq.write_table(marked, folder / "a.parquet", use_deprecated_int96_timestamps=True)
    made = catalog.migrate(folder, "db.spark")
    assert str(made.schema.field("at").type) == "TIMESTAMP(6) WITH LOCAL TIME ZONE"
    assert [row["at"] for row in made.read().to_pylist()] == [noon.replace(tzinfo=dt.UTC)]


def test_old_remains_of_a_stopped_call_are_removed(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "1.parquet", {"id": [1]})
    home = Path(catalog.warehouse) / "db.db"
    for age, name in ((2 * 86_400, "t"), (2 * 86_400, "a.b"), (60, "t"), (60, "u")):
        left = home / f".{name}.{age:08}-0000-0000-0000-000000000000.tmp"
        (left / "schema").mkdir(parents=True)
        (left / "schema" / "schema-0").write_text("{}")
        os.utime(left / "schema" / "schema-0", (os.stat(home).st_mtime - age,) * 2)
    catalog.migrate(folder, "db.t")
    left = sorted(name for name in os.listdir(home) if name.endswith(".tmp"))
    assert left == [f".{name}.00000060-0000-0000-0000-000000000000.tmp" for name in ("t", "u")]
    assert catalog.list_tables("db") == ["t"]
    catalog.drop_table("db.t")
    catalog.drop_database("db")
    assert not home.exists()


def test_a_table_of_a_folder_gets_a_key_later(catalog: mg.Catalog, folder: Path) -> None:
    put(folder / "p=1" / "1.parquet", {"id": [1, 2], "v": ["a", "b"]})
    put(folder / "p=2" / "1.parquet", {"id": [1], "v": ["c"]})
    table = catalog.migrate(folder, "db.t").alter([mg.changes.set_primary_key(["p", "id"])])
    assert rows(table) == [{"id": 1, "v": "a", "p": 1}, {"id": 1, "v": "c", "p": 2}, {"id": 2, "v": "b", "p": 1}]


@pytest.mark.parametrize("how", ["link", "keep"])
def test_files_that_are_replaced_meanwhile_are_refused(
    catalog: mg.Catalog, folder: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder / "p=1" / "1.parquet", {"id": [1]})
    create = SchemaStore.create

    def create_late(store: SchemaStore, schema: Any) -> Any:
        put(folder / "p=1" / "1.parquet", {"id": range(1000)})
        return create(store, schema)

    monkeypatch.setattr(SchemaStore, "create", create_late)
    with pytest.raises(ConflictError, match=r"1\.parquet' was replaced or removed meanwhile"):
        catalog.migrate(folder, "db.t", how=how)
    monkeypatch.undo()
    assert catalog.list_tables("db") == []
    assert catalog.migrate(folder, "db.t", how=how).read().count() == 1000


def test_rows_are_clustered_by_a_column_of_their_partition(catalog: mg.Catalog, folder: Path) -> None:
    for i in range(4):
        put(folder / f"p={i % 2}" / f"{i}.parquet", {"id": [3 - i, i]})
    table = catalog.migrate(folder, "db.t")
    before = rows(table)
    table.compact(order_by=["id"])
    assert (rows(table), table.read(where="p = 1").count()) == (before, 4)
    assert {found.snapshot for found in table.check()} == {1}
