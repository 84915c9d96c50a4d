"""Calls that cannot be answered: each is refused before anything is read; damage is told with its file."""

from __future__ import annotations

import pickle
import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import FormatError, InvalidInputError, NotFoundError
from tests.unit.lookup.compared import WAYS, answered, expected, handle, way


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"})
    found.create_database("db")
    return found


@pytest.fixture
def table(catalog: mg.Catalog) -> mg.Table:
    columns = {"p": "STRING", "k": "INT", "j": "STRING", "v": "INT"}
    options = {"bucket": "2", "bucket-key": "k", "write-only": "true"}
    found = catalog.create_table("db.t", columns, primary_key=["p", "k", "j"], partition_by=["p"], options=options)
    for v in range(2):
        found.write([{"p": p, "k": k, "j": j, "v": v} for p in "ab" for k in range(4) for j in "xy"])
    return found


GOOD = {"p": "a", "k": 1, "j": "x"}
BAD: list[tuple[Any, str]] = [
    ({"p": "a", "k": 1}, "lacks column 'j'"),
    ({}, "column"),
    ([{}], "column"),
    ([GOOD, {}], "column|null"),
    ([{}, GOOD], "column|null"),
    ([GOOD, {"p": "a", "k": 1}], "column 'j'|'j'"),
    ({**GOOD, "v": 1}, "column 'v' is no part of the key"),
    ({**GOOD, "K": 1}, "'K'"),
    ({**GOOD, "j": None}, "null"),
    ({**GOOD, "p": None}, "null"),
    ([GOOD, {**GOOD, "k": None}], "null"),
    ({**GOOD, "k": "one"}, "'k'"),
    ({**GOOD, "k": 1.5}, "'k'"),
    ({**GOOD, "k": 2**31}, "'k'"),
    ({**GOOD, "k": [1]}, "'k'"),
    (7, "7|int"),
    ("a", "str|'a'"),
    (None, "None"),
    ([7], "7|int"),
    (pa.table({"p": ["a"], "k": [1]}), "lacks column 'j'"),
    (pa.table({"p": ["a"], "k": [1], "j": ["x"]}).select([]), "lacks column 'p'"),
    (pd.DataFrame([GOOD]).set_index(["p", "k", "j"]), "lacks column 'p'"),
    (pa.table({"p": ["a"], "k": ["x"], "j": ["x"]}), "'k'"),
]


@pytest.mark.parametrize(("keys", "said"), BAD)
def test_what_is_no_key_is_refused_before_anything_is_read(keys: Any, said: str, table: mg.Table) -> None:
    lookup = table.lookups()
    reads = patch("merganser.lookup.lookup.Lookup._bucket", side_effect=AssertionError("read"))
    for call in (lookup.lookup, table.lookup):
        with reads, pytest.raises(InvalidInputError, match=said) as raised:
            call(keys)
        assert str(raised.value).startswith("cannot look up in 'db.t'")
        assert call(GOOD).num_rows == 1


@pytest.mark.parametrize("kind", ["INT", "BIGINT", "TINYINT"])
@pytest.mark.parametrize("value", [None, True, 1.0, 1.5, "1", 2**7, 2**70, -(2**70), Decimal("2.5")])
def test_one_number_is_taken_and_refused_as_many_are(kind: str, value: Any, catalog: mg.Catalog) -> None:
    """The short way of one key does not let through what the way of many refuses, nor the other way round."""
    table = catalog.create_table("db.n", {"k": kind, "v": "INT"}, primary_key=["k"], options={"bucket": "2"})
    table.write([{"k": k, "v": k} for k in range(4)])

    def outcome(keys: Any) -> Any:
        try:
            return table.lookup(keys).to_pylist()
        except InvalidInputError as error:
            return type(error)

    assert outcome({"k": value}) == outcome([{"k": value}])


def test_columns_that_are_none_are_refused(table: mg.Table) -> None:
    for columns, said in ((["w"], "'w'"), (["v", "v"], "'v'"), ("v", "v"), ([7], "7")):
        for _ in range(2):
            with pytest.raises(InvalidInputError, match=said):
                table.lookup(GOOD, columns=columns)  # type: ignore[arg-type]


def test_chosen_columns_come_in_their_order(table: mg.Table, tmp_path: Path) -> None:
    keys = [GOOD, {**GOOD, "p": "none"}, {**GOOD, "k": 3}, GOOD]
    for name in WAYS:
        with way(name):
            found = handle(table, name, tmp_path).lookup(keys, columns=["v", "p"])
            assert found.to_pylist() == [{"v": 1, "p": "a"}] * 3
            assert found.schema == table.read(columns=["v", "p"]).schema
            assert handle(table, name, tmp_path).lookup(keys, columns=[]).num_rows == 3
            assert handle(table, name, tmp_path).lookup(keys, columns=[]).num_columns == 0


def test_frames_and_tables_are_keys(table: mg.Table) -> None:
    rows = [GOOD, {"p": "b", "k": 3, "j": "y"}, {"p": "b", "k": 9, "j": "y"}]
    arrow = pa.Table.from_pylist(rows)
    wanted = expected(table, rows)
    assert len(wanted) == 2
    for keys in (rows, arrow, arrow.select(["j", "k", "p"]), arrow.to_batches()[0], arrow.to_pandas()):
        assert answered(table.lookup(keys)) == wanted


def test_a_table_without_a_key_is_refused(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.log", {"k": "INT"})
    for call in (lambda: table.lookup({"k": 1}), lambda: table.lookup_prefix({"k": 1}), table.lookups):
        with pytest.raises(InvalidInputError, match="no primary key"):
            call()


def test_arguments_of_a_handle_are_checked(table: mg.Table) -> None:
    for refresh in ("newest", True, 1.0, None):
        with pytest.raises(InvalidInputError, match="refresh is"):
            table.lookups(refresh=refresh)  # type: ignore[arg-type]
    for cache in ("some", None, ["all"]):
        with pytest.raises(InvalidInputError, match="cache is"):
            table.lookups(cache=cache)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError):
        table.lookups(refresh=99)
    lookup = table.lookups()
    with pytest.raises(NotFoundError):
        lookup.refresh(99)
    assert lookup.snapshot == 2
    assert lookup.lookup(GOOD).num_rows == 1


@pytest.mark.parametrize("keys", [[], (), iter([]), pd.DataFrame(), pa.table({}), pa.table({"p": []})])
def test_no_keys_have_no_rows(keys: Any, table: mg.Table) -> None:
    assert table.lookup(keys).equals(table.read().schema.empty_table())


@pytest.mark.parametrize("snapshot", ["1", True, 1.0])
def test_a_snapshot_that_is_no_number_is_refused(snapshot: Any, table: mg.Table) -> None:
    calls = (
        lambda: table.lookup(GOOD, snapshot=snapshot),
        lambda: table.lookup_prefix({"p": "a", "k": 1}, snapshot=snapshot),
        lambda: table.lookups(refresh=snapshot),
        lambda: table.lookups().refresh(snapshot),
    )
    for call in calls:
        with pytest.raises(InvalidInputError, match=re.escape(repr(snapshot))):
            call()


def test_a_handle_cannot_be_pickled(table: mg.Table) -> None:
    with pytest.raises(InvalidInputError, match=r"cannot pickle a handle for lookups in 'db\.t'"):
        pickle.dumps(table.lookups())
    assert pickle.loads(pickle.dumps(table)).lookup(GOOD).num_rows == 1


@pytest.mark.parametrize("below", ["", "/", "/copies", "/bucket-0/../x"])
def test_copies_in_the_directory_of_the_table_are_refused(below: str, table: mg.Table) -> None:
    inside = table.with_options({"lookup.cache-directory": table.path + below})
    for call in (inside.lookups, lambda: inside.lookup(GOOD)):
        with pytest.raises(InvalidInputError, match=r"'lookup\.cache-directory' is"):
            call()
    beside = table.with_options({"lookup.cache-directory": table.path + "-copies"})
    assert beside.lookup(GOOD).num_rows == 1


def test_prefixes_equal_a_filtered_read(table: mg.Table) -> None:
    lookup = table.lookups()
    for p in "abc":
        for k in range(-1, 5):
            found = table.lookup_prefix({"p": p, "k": k})
            assert lookup.lookup_prefix({"p": p, "k": k}).equals(found)
            wanted = table.read(where=f"p = '{p}' AND k = {k}").to_arrow()
            assert sorted(answered(found)) == sorted(answered(wanted))
            assert found.num_rows == (2 if p in "ab" and 0 <= k < 4 else 0)
    first = table.lookup_prefix({"k": 1, "p": "a"}, columns=["v"], snapshot=1)
    assert first.to_pylist() == [{"v": 0}, {"v": 0}]
    table.tags.create("first", snapshot=1)
    assert table.lookup_prefix({"k": 1, "p": "a"}, columns=["v"], tag="first").equals(first)


@pytest.mark.parametrize(
    "prefix",
    [
        {"p": "a"},
        {"k": 1},
        GOOD,
        {"p": "a", "j": "x"},
        {"p": "a", "k": None},
        {"p": "a", "k": "x"},
        {},
        None,
        "a",
        [GOOD],
    ],
)
def test_what_is_no_prefix_is_refused(prefix: Any, table: mg.Table) -> None:
    with pytest.raises(InvalidInputError, match=r"cannot look up a prefix in 'db\.t'"):
        table.lookup_prefix(prefix)


@pytest.mark.parametrize("key", ["k", "j", "k,j"])
def test_a_table_whose_buckets_follow_no_prefix_is_refused(key: str, catalog: mg.Catalog) -> None:
    options = {"bucket": "2", "bucket-key": key}
    table = catalog.create_table("db.n", {"k": "INT", "j": "INT"}, primary_key=["k", "j"], options=options)
    table.write([{"k": 1, "j": 1}])
    if key == "k":
        assert table.lookup_prefix({"k": 1}).num_rows == 1
        return
    with pytest.raises(InvalidInputError, match="may lie in any bucket"):
        table.lookup_prefix({"k": 1})


@pytest.mark.parametrize("harm", ["missing", "empty", "cut", "no parquet"])
@pytest.mark.parametrize("name", WAYS)
def test_a_damaged_file_is_named_and_other_keys_are_answered(
    harm: str, name: str, catalog: mg.Catalog, tmp_path: Path
) -> None:
    options = {"bucket": "2", "write-only": "true"}
    table = catalog.create_table("db.n", {"k": "INT", "v": "INT"}, primary_key=["k"], options=options)
    table.write([{"k": k, "v": 1} for k in range(20)])
    files = sorted(Path(table.path).rglob("data-*.parquet"))
    table.write([{"k": k, "v": 2} for k in range(100, 120)])
    every = [{"k": k} for k in [*range(20), *range(100, 120)]]
    wanted = expected(table, every)
    victim = next(file for file in files if "bucket-0" in str(file))
    whole = victim.read_bytes()
    if harm == "missing":
        victim.unlink()
    else:
        victim.write_bytes({"empty": b"", "cut": whole[:-9], "no parquet": b"x" * len(whole)}[harm])
    with way(name):
        lookup = handle(table, name, tmp_path / "copies")
        refused = []
        for key, row in zip(every, wanted, strict=True):
            try:
                assert answered(lookup.lookup(key)) == [row]
            except FormatError as error:
                assert victim.name in str(error)
                refused.append(key["k"])
        assert 0 < len(refused) < 20
        assert max(refused) < 100
        with pytest.raises(FormatError, match=victim.name):
            lookup.lookup(every)
        rest = [key for key in every if key["k"] not in refused]
        assert len(lookup.lookup(rest)) == len(rest)
        victim.write_bytes(whole)
        assert answered(lookup.lookup(every)) == wanted


def test_a_key_of_text_for_a_date_is_refused_with_the_value_to_give(catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "db.t", {"id": "INT", "day": "DATE"}, primary_key=["id", "day"], options={"bucket": "1"}
    )
    with pytest.raises(InvalidInputError, match=r"is string .* and DATE .* Cast it \(in Python: give datetime.date\)"):
        table.lookup({"id": 1, "day": "2026-10-03"})
    with pytest.raises(InvalidInputError, match=r"Nothing was written. Cast it \(in Python: give datetime.date\)"):
        table.write([{"id": 1, "day": "2026-10-03"}])
    with pytest.raises(InvalidInputError, match=r"Cast it \(in Python: give int\)"):
        table.lookup({"id": "1", "day": date(2026, 10, 3)})
