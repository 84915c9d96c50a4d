"""Keys of every type: each key of a table, and values near to it, are found as a read has them."""

from __future__ import annotations

import math
import random
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from tests.unit.lookup.compared import WAYS, answered, assert_same, handle, text, way

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
VALUES: dict[str, list[Any]] = {
    "TINYINT": [-128, -1, 0, 1, 127],
    "SMALLINT": [-(2**15), -1, 0, 2**15 - 1],
    "INT": [-INT_MAX - 1, -INT_MAX, -1, 0, INT_MAX - 1, INT_MAX],
    "BIGINT": [-LONG_MAX - 1, -LONG_MAX, -1, 0, 2**53, 2**53 + 1, LONG_MAX - 1, LONG_MAX],
    "FLOAT": [-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan],
    "DOUBLE": [-math.inf, -1.5, -0.0, 0.0, 1e308, math.inf, math.nan],
    "BOOLEAN": [True, False],
    "STRING": ["", "a", "ab", "a\0", "b", "zażółć", "\U0001f986", "x" * 300],
    "CHAR(3)": ["abc", "abd", "b  "],
    "VARBINARY(5)": [b"", b"\0", b"\0\0", b"a", b"\xff"],
    "DECIMAL(9, 2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("0.01"), Decimal("9999999.99")],
    "DECIMAL(30, 4)": [Decimal("-1.5000"), Decimal("0.0000"), Decimal(f"{10**25}.0001"), Decimal(f"{10**25}.0000")],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
    "TIME(3)": [time(0), time(0, 0, 0, 1000), time(23, 59, 59, 999000)],
    "TIMESTAMP(3)": [datetime(1969, 12, 31, 23, 59, 59, 999000), datetime(1970, 1, 1), datetime(2024, 2, 29, 1)],
    "TIMESTAMP(6)": [datetime(1900, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4), datetime(2024, 2, 29, 1, 2, 3, 5)],
}


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("buckets", [1, 3])
def test_keys_of_a_type_are_found(kind: str, buckets: int, tmp_path: Path) -> None:
    table = _table(tmp_path, {"k": kind, "v": "INT"}, ["k"], bucket=buckets)
    values = VALUES[kind]
    table.write([{"k": value, "v": 0} for value in values[::3]])
    table.write([{"k": value, "v": 1} for value in [*values[:1], *values[2:]]])
    _every_way(table, [{"k": value} for value in values], tmp_path)


def test_keys_of_several_columns_are_found(tmp_path: Path) -> None:
    kinds = {"a": "STRING", "b": "DECIMAL(9, 2)", "c": "DATE", "d": "DOUBLE"}
    table = _table(tmp_path, {**kinds, "v": "INT"}, list(kinds))
    rng = random.Random(1)
    for v in range(3):
        table.write(
            [{**{name: rng.choice(VALUES[kind][:3]) for name, kind in kinds.items()}, "v": v} for _ in "1234567"]
        )
    others = [{name: rng.choice(VALUES[kind][:3]) for name, kind in kinds.items()} for _ in range(20)]
    _every_way(table, others, tmp_path)


@pytest.mark.parametrize("key", [["p", "k"], ["k", "p", "j"], ["j", "q", "p"]])
def test_keys_of_partitions_are_found(key: list[str], tmp_path: Path) -> None:
    """The key of a table may begin with its partitions, end with them, or have little else."""
    kinds = {"p": "STRING", "q": "DATE", "k": "INT", "j": "STRING", "v": "INT"}
    table = _table(tmp_path, kinds, key, partition_by=[name for name in key if name in "pq"])
    rng = random.Random(2)
    draws = {"p": ["a", "b/c", "zażółć"], "q": VALUES["DATE"], "k": [1, 2, 3], "j": ["x", "y"], "v": [0]}

    def row() -> dict[str, Any]:
        return {name: rng.choice(values) for name, values in draws.items()}

    for v in range(3):
        table.write([{**row(), "v": v} for _ in range(6)])
    _every_way(table, [{**row(), "p": rng.choice(["a", "none"])} for _ in range(12)], tmp_path)


def test_a_key_without_its_partitions_is_found_in_the_partition_given(tmp_path: Path) -> None:
    """Other clients make such tables, too; each partition may have a row of the key."""
    table = _table(tmp_path, {"p": "STRING", "k": "INT", "v": "INT"}, ["k"], partition_by=["p"])
    rows = [{"p": p, "k": k, "v": ord(p) + k} for p in "ab" for k in (1, 2)]
    table.write(rows)
    for name in WAYS:
        with way(name):
            lookup = handle(table, name, tmp_path / "copies")
            assert lookup.lookup([{"k": 2, "p": "b"}, {"k": 1, "p": "a"}, {"k": 1, "p": "c"}]).to_pylist() == [
                rows[3],
                rows[0],
            ]
    with pytest.raises(InvalidInputError) as refused:
        table.lookup({"k": 1})
    assert str(refused.value).endswith(
        ": the key lacks column 'p', which says in which partition the row is. It is no part of the primary key, so "
        "each partition may have a row of the same key. Nothing was read. Give 'k', 'p'; read(where=...) finds the "
        "rows of a key in all partitions."
    )


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_prefixes_that_are_floats_are_compared_as_keys_are(kind: str, tmp_path: Path) -> None:
    columns = {"f": kind, "k": "INT", "v": "INT"}
    table = _table(tmp_path, columns, ["f", "k"], options={"bucket": "2", "bucket-key": "f"})
    table.write([{"f": value, "k": k, "v": 0} for value in VALUES[kind] for k in (1, 2)])
    for value in VALUES[kind]:
        found = table.lookup_prefix({"f": value})
        assert sorted(answered(found)) == [text({"f": value, "k": k, "v": 0}) for k in (1, 2)]
        assert table.lookup_prefix({"f": value}, columns=["v", "k"]).column_names == ["v", "k"]
    assert table.lookup_prefix({"f": 3.5}).num_rows == 0


def _table(path: Path, columns: dict[str, str], key: list[str], bucket: int = 2, **more: Any) -> mg.Table:
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("db")
    more.setdefault("options", {"bucket": str(bucket), "write-only": "true"})
    return catalog.create_table("db.t", columns, primary_key=key, **more)


def _every_way(table: mg.Table, keys: list[dict[str, Any]], path: Path) -> None:
    for name in WAYS:
        with way(name):
            assert_same(table, handle(table, name, path / "copies"), keys, random.Random(3))
