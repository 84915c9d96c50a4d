"""What is given to `merganser.catalog` and `merganser.table` is what they need, or is refused by its name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError

SECRET = "hunter2"


@pytest.fixture
def table(tmp_path: Path) -> mg.Table:
    catalog = mg.catalog(tmp_path / "w", options={"local.sync": "false"})
    catalog.create_database("d")
    made: mg.Table = catalog.create_table("d.t", {"id": "INT NOT NULL", "v": "STRING"}, ["id"], options={"bucket": "1"})
    made.write([{"id": 1, "v": "a"}])
    return made


@pytest.mark.parametrize("door", [mg.catalog, mg.table])
@pytest.mark.parametrize("path", [None, 5, b"/tmp/x", ["w"], True])
def test_a_path_is_text_or_a_path(door: Callable[..., Any], path: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        door(path)
    assert f"{'warehouse' if door is mg.catalog else 'path'} is {path!r}" in str(caught.value)


def test_a_path_object_opens_what_its_text_opens(table: mg.Table) -> None:
    assert mg.table(Path(table.path)).read().count() == 1
    warehouse: os.PathLike[str] = Path(table.path).parents[1]
    assert mg.catalog(warehouse).table("d.t").read().count() == 1


@pytest.mark.parametrize("door", [mg.catalog, mg.table])
@pytest.mark.parametrize("options", [5, [SECRET], SECRET, {1: SECRET}])
def test_options_are_a_dict_of_texts_and_no_error_says_their_values(
    door: Callable[..., Any], options: Any, table: mg.Table
) -> None:
    with pytest.raises(InvalidInputError, match="options") as caught:
        door(table.path, options=options)
    assert SECRET not in str(caught.value) + repr(caught.value.context)


@pytest.mark.parametrize("door", [mg.catalog, mg.table])
@pytest.mark.parametrize("clock", [5, datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_clock_is_a_function(door: Callable[..., Any], clock: Any, table: mg.Table) -> None:
    with pytest.raises(InvalidInputError) as caught:
        door(table.path, clock=clock)
    assert f"clock is {clock!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"primary_key": [1]}, ("primary-key", "1")),
        ({"primary_key": 5}, ("primary_key", "5")),
        ({"partition_by": [None]}, ("partition", "None")),
        ({"partition_by": 5}, ("partition_by", "5")),
        ({"comment": 5}, ("comment", "5")),
        ({"options": 5}, ("options", "int")),
    ],
)
def test_an_argument_of_a_new_table_that_is_of_another_kind_is_refused(
    table: mg.Table, arguments: dict[str, Any], parts: tuple[str, ...]
) -> None:
    catalog = mg.catalog(Path(table.path).parents[1])
    with pytest.raises(InvalidInputError) as caught:
        catalog.create_table("d.new", {"id": "INT NOT NULL"}, **arguments)
    assert [part for part in parts if part not in str(caught.value)] == []
    assert catalog.list_tables("d") == ["t"]


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda t: t.load(None), ("files", "None")),
        (lambda t: t.load(["a.parquet"]), ("files", "['a.parquet']")),
        (lambda t: t.read(columns=5), ("columns", "5")),
        (lambda t: t.system("files", columns=5), ("columns", "5")),
        (lambda t: t.write([{"id": 1, "v": "a"}], columns=5), ("columns", "5")),
        (lambda t: t.drop_partitions(5), ("partitions", "5")),
        (lambda t: t.with_options(5), ("options", "int")),
    ],
)
def test_an_argument_of_another_kind_is_refused_by_its_name(
    table: mg.Table, call: Callable[[mg.Table], Any], parts: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call(table)
    assert [part for part in parts if part not in str(caught.value)] == []
    assert len(table.snapshots()) == 1


def test_files_are_loaded_by_a_path_object(table: mg.Table, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,v\n2,b\n")
    table.load(tmp_path / "in.csv")  # type: ignore[arg-type]
    assert table.read().count() == 2


@pytest.mark.parametrize("door", [mg.catalog, mg.table])
@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("cache.manifest.max-memroy", "cache.manifest.max-memory"),
        ("cach.manifest.max-memory", "cache.manifest.max-memory"),
        ("cache.max-memory", "cache.manifest.max-memory"),
        ("local.snyc", "local.sync"),
        ("s3.endpont", "s3.endpoint"),
        ("s3.access.key", "s3.access-key"),
        ("s3.accesskey", "s3.access-key"),
        ("S3.endpoint", "s3.endpoint"),
        ("gs.servicaccount", "gs.service-account"),
        ("az.acount-name", "az.account-name"),
        ("wharehouse", "warehouse"),
        ("lokk.enabled", "lock.enabled"),
        ("metastor", "metastore"),
        ("table-defaultt.bucket", "table-default.bucket"),
        ("table-storag.bucket", "table-storage.bucket"),
    ],
)
def test_a_misspelt_option_of_the_store_is_refused_with_the_name_that_was_meant(
    door: Callable[..., Any], key: str, meant: str, table: mg.Table
) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(f"unknown option '{key}'. Did you mean '{meant}")) as caught:
        door(table.path, options={key: SECRET})
    assert SECRET not in str(caught.value) + repr(caught.value.context)


def test_a_misspelt_option_of_a_table_is_refused_where_options_of_both_are_taken(table: mg.Table) -> None:
    with pytest.raises(InvalidInputError, match=r"unknown table option 'bukcet'\. Did you mean 'bucket'"):
        mg.table(table.path, options={"bukcet": "1"})


def test_two_warehouses_are_refused(table: mg.Table) -> None:
    root = table.path.rpartition("/")[0].rpartition("/")[0]
    assert mg.catalog(root, options={"warehouse": root, "metastore": "filesystem"}).list_databases() == ["d"]
    with pytest.raises(InvalidInputError, match="'warehouse' = '/other'"):
        mg.catalog(root, options={"warehouse": "/other"})
    with pytest.raises(InvalidInputError, match="'uri'"):
        mg.catalog(root, options={"uri": "jdbc:sqlite:x.db"})


@pytest.mark.parametrize("door", [mg.catalog, mg.table])
@pytest.mark.parametrize(
    "key",
    [
        *("fs.s3a.endpoint", "fs.s3a.access.key", "fs.oss.endpoint", "hadoop.fs.s3a.endpoint", "oss.endpoint"),
        *("s3.path.style.access", "s3.connection.maximum", "cache-enabled", "lock.enabled"),
        *("cache.expire-after-write", "cache.manifest.small-file-memory", "cache.snapshot.max-num-per-table"),
    ],
)
def test_options_of_other_engines_are_let_pass(door: Callable[..., Any], key: str, table: mg.Table) -> None:
    door(table.path, options={key: "1"})
