"""Values of dictionaries and frames: taken as they are, or refused with column, row and value."""

from __future__ import annotations

import datetime as dt
import enum
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import merganser as mg
from merganser.errors import InvalidInputError

NOW = dt.datetime(2020, 1, 2, 5)
ZONED = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
LTZ = "TIMESTAMP(6) WITH LOCAL TIME ZONE"


class Color(enum.Enum):
    RED = "red"


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    found.create_database("s")
    return found


def stored(catalog: mg.Catalog, kind: str, data: Any) -> list[Any]:
    table = catalog.create_table("s.t", {"k": "INT", "v": kind}, primary_key=["k"], options={"bucket": "1"})
    try:
        table.write(data)
    except InvalidInputError:
        assert table.latest_snapshot() is None
        raise
    return [row["v"] for row in table.read().to_pylist()]


def dicts(*values: Any) -> list[dict[str, Any]]:
    return [{"k": i, "v": value} for i, value in enumerate(values)]


NULLS: dict[str, Any] = {
    "INT": 1,
    "DOUBLE": 1.5,
    "STRING": "a",
    "TIMESTAMP(6)": NOW,
    "DATE": NOW.date(),
    "DECIMAL(10, 2)": Decimal("1.50"),
    "BOOLEAN": True,
    "BYTES": b"a",
    "ROW<x INT>": {"x": 1},
    "ARRAY<INT>": [1],
    "MAP<STRING, INT>": {"a": 1},
}


@pytest.mark.parametrize("kind", NULLS)
def test_missing_values_of_pandas_are_nulls(kind: str, catalog: mg.Catalog) -> None:
    found = stored(catalog, kind, dicts(NULLS[kind], pd.NaT, pd.NA, None))
    assert found[1:] == [None, None, None]
    assert found[0] == ([("a", 1)] if kind.startswith("MAP") else NULLS[kind])


TAKEN: dict[str, tuple[str, list[Any], list[Any]]] = {
    "missing in a list": ("ARRAY<INT>", [[1, pd.NA]], [[1, None]]),
    "missing in a row": ("ROW<x DATE>", [{"x": NOW.date()}, {"x": pd.NaT}], [{"x": NOW.date()}, {"x": None}]),
    "all missing": ("INT", [pd.NaT, pd.NA], [None, None]),
    "numpy": ("DOUBLE", [np.float32(1.5), np.int8(2)], [1.5, 2.0]),
    "large integers": ("DECIMAL(38, 0)", [2**100, Decimal(1)], [Decimal(2**100), Decimal(1)]),
    "nanoseconds": ("TIMESTAMP(9)", [pd.Timestamp(2020, 1, 1, nanosecond=7)], [pd.Timestamp(2020, 1, 1, nanosecond=7)]),
    "NaN": ("DOUBLE", [float("inf"), 1], [float("inf"), 1.0]),
    "bytes": ("BYTES", [memoryview(b"a"), bytearray(b"b")], [b"a", b"b"]),
}


@pytest.mark.parametrize("case", TAKEN)
def test_values_are_stored_as_they_are(case: str, catalog: mg.Catalog) -> None:
    kind, given, expected = TAKEN[case]
    assert stored(catalog, kind, dicts(*given)) == expected


REFUSED: dict[str, tuple[str, list[Any], str]] = {
    "NaN among moments": ("TIMESTAMP(6)", [NOW, float("nan")], r"row 2 of 2 .*nan \(float\) is no value of TIMESTAMP"),
    "decimal NaN": ("INT", [1, Decimal("NaN")], r"row 2 of 2 .*Decimal\('NaN'\) \(Decimal\) is no value of INT"),
    "infinity": ("DECIMAL(5, 2)", [Decimal("Infinity")], r"row 1 of 1 .*Infinity"),
    "number among moments": ("TIMESTAMP(6)", [NOW, 5], r"row 2 of 2 .*5 \(int\) is another kind .*\(datetime\)"),
    "number among dates": ("DATE", [NOW.date(), 5], r"row 2 of 2 .*5 \(int\) is another kind .*\(date\)"),
    "moment among dates": ("DATE", [NOW.date(), NOW], r"row 2 of 2 .*\(datetime\) is another kind .*\(date\)"),
    "number in a list of times": ("ARRAY<TIME>", [[dt.time(1), 5]], r"row 1 of 1 .*5 \(int\) is another kind"),
    "flag among numbers": ("DOUBLE", [1.5, True], r"row 2 of 2 .*True \(bool\) is another kind .*\(float\)"),
    "zone among wall clocks": ("TIMESTAMP(6)", [NOW, ZONED], r"row 2 of 2 .*has a time zone, and values before"),
    "wall clock among instants": (LTZ, [ZONED, NOW], r"row 2 of 2 .*has no zone, and values before it do"),
    "time with a zone": ("TIME", [dt.time(1, tzinfo=dt.UTC)], r"row 1 of 1 .*has a time zone, and TIME has none"),
    "enum": ("STRING", ["red", Color.RED], r"row 2 of 2 .*\(Color\) is nothing that a column holds"),
    "object": ("STRING", [None, Path("/a")], r"row 2 of 2 .*\(PosixPath\) is nothing that a column holds"),
    "two types": ("INT", [1, "a"], r"row 2 of 2 .*'a' \(str\) is another kind .*\(int\)"),
    "nested nanoseconds": ("ARRAY<TIMESTAMP(9)>", [[pd.Timestamp(2020, 1, 1, nanosecond=7)]], "has nanoseconds"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_values_are_refused_with_row_type_and_value(case: str, catalog: mg.Catalog) -> None:
    kind, given, message = REFUSED[case]
    with pytest.raises(InvalidInputError, match=message) as refused:
        stored(catalog, kind, dicts(*given))
    assert refused.value.context["column"] == "v"
    assert "Nothing was written" in str(refused.value)


def frame(values: Any) -> pd.DataFrame:
    return pd.DataFrame({"k": [0, 1], "v": values})


@pytest.mark.parametrize("kind", ["STRING", "INT", "TIMESTAMP(3)", "ROW<x INT>", "BOOLEAN"])
def test_a_pandas_column_of_nan_alone_is_null(kind: str, catalog: mg.Catalog) -> None:
    assert stored(catalog, kind, frame([np.nan, np.nan])) == [None, None]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NaT, pd.NA], ids=str)
@pytest.mark.parametrize("kind", ["MAP<STRING, INT>", "ARRAY<MAP<STRING, INT>>", "ROW<m MAP<STRING, INT>>"])
def test_a_missing_value_of_a_pandas_column_with_maps_is_null(kind: str, missing: Any, catalog: mg.Catalog) -> None:
    value = {"MAP": {"a": 1}, "ARRAY": [{"a": 1}], "ROW": {"m": {"a": 1}}}[kind.partition("<")[0]]
    found = stored(catalog, kind, frame(pd.Series([value, missing], dtype=object)))
    assert [found[0] is None, found[1]] == [False, None]


def test_a_pandas_value_that_is_no_map_is_refused(catalog: mg.Catalog) -> None:
    with pytest.raises(InvalidInputError, match=r"5 is no map\. Give a dictionary"):
        stored(catalog, "MAP<STRING, INT>", frame(pd.Series([{"a": 1}, 5], dtype=object)))


@pytest.mark.parametrize("values", [pd.period_range("2020", periods=2), pd.interval_range(0, 2)])
def test_types_of_pandas_alone_are_refused(values: Any, catalog: mg.Catalog) -> None:
    with pytest.raises(InvalidInputError, match=r"column 'v' of the pandas frame.*astype"):
        stored(catalog, "BIGINT", frame(values))


def test_integers_of_128_bits_of_polars_are_taken_or_refused(catalog: mg.Catalog) -> None:
    def of(value: int) -> pl.DataFrame:
        return pl.DataFrame({"k": [0], "v": pl.Series([value], dtype=pl.Int128)})

    assert stored(catalog, "DECIMAL(38, 0)", of(2**100)) == [Decimal(2**100)]
    with pytest.raises(InvalidInputError, match="at most 38 digits"):
        catalog.table("s.t").write(of(10**38))  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["BYTES", "STRING"])
def test_objects_of_polars_are_refused(kind: str, catalog: mg.Catalog) -> None:
    data = pl.DataFrame({"k": [0], "v": pl.Series([object()], dtype=pl.Object)})
    with pytest.raises(InvalidInputError, match=r"column 'v' of the Polars frame: it holds Python objects"):
        stored(catalog, kind, data)
