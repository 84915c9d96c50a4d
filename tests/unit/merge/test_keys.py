"""Key order against `sorted` with the order of the format written out, for every key type."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merganser.merge.keys import KeyImages, count_at_most, integer_image, sorted_positions

FLOATS = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf])
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "tinyint": (pa.int8(), st.integers(-128, 127)),
    "smallint": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), FLOATS),
    "double": (pa.float64(), FLOATS | st.floats()),
    "boolean": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=6)),
    "binary": (pa.binary(), st.binary(max_size=6)),
    "decimal": (pa.decimal128(20, 3), st.integers(-(10**12), 10**12).map(lambda n: Decimal(n).scaleb(-3))),
    "date": (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    "time": (pa.time32("ms"), st.integers(0, 86_399_999)),
    "timestamp": (pa.timestamp("us"), st.integers(-(2**62), 2**62)),
    "timestamp_ltz": (pa.timestamp("ns", "UTC"), st.integers(-(2**62), 2**62)),
}
_AS_INTEGER = ("date", "time", "timestamp", "timestamp_ltz")


def _array(values: list[Any], kind: str) -> pa.ChunkedArray:
    arrow = KINDS[kind][0]
    if kind in _AS_INTEGER:
        whole = pa.int64() if pa.types.is_timestamp(arrow) else pa.int32()
        array = pa.array(values, whole).view(arrow)
    else:
        array = pa.array(values, arrow, from_pandas=False)
    half = len(values) // 2
    return pa.chunked_array([array[:half], array[half:]], arrow)


def _place(value: Any, kind: str) -> tuple[Any, ...]:
    """Return what Python orders as the format orders keys: nulls first, -0.0 below 0.0, one NaN on top."""
    if value is None:
        return (0,)
    if kind in ("float", "double"):
        if math.isnan(value):
            return (2,)
        code = "f" if kind == "float" else "d"
        [rounded] = struct.unpack(code, struct.pack(code, value))
        return (1, rounded, math.copysign(1, rounded))
    return (1, value.encode() if isinstance(value, str) else value)


def _columns(kinds: list[str], size: int, nulls: bool) -> st.SearchStrategy[list[list[Any]]]:
    def column(kind: str) -> st.SearchStrategy[list[Any]]:
        values = KINDS[kind][1]
        few = st.lists(values, min_size=1, max_size=4).flatmap(st.sampled_from)  # so that keys repeat
        value = st.none() | few | values if nulls else few | values
        return st.lists(value, min_size=size, max_size=size)

    return st.tuples(*(column(kind) for kind in kinds)).map(list)


@st.composite
def _rows(draw: Callable[[Any], Any], nulls: bool = True) -> tuple[list[str], list[list[Any]]]:
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    return kinds, draw(_columns(kinds, draw(st.integers(0, 30)), nulls))


@settings(max_examples=150, deadline=None)
@given(_rows())
def test_rows_come_in_key_order_and_ties_keep_their_order(rows: tuple[list[str], list[list[Any]]]) -> None:
    kinds, columns = rows
    places = [tuple(_place(v, k) for v, k in zip(row, kinds, strict=True)) for row in zip(*columns, strict=True)]
    positions, is_last = sorted_positions([_array(c, k) for c, k in zip(columns, kinds, strict=True)])
    expected = sorted(range(len(places)), key=places.__getitem__)
    assert positions.tolist() == expected
    ends = [i + 1 == len(expected) or places[expected[i]] != places[expected[i + 1]] for i in range(len(expected))]
    assert is_last.tolist() == ends


@settings(max_examples=80, deadline=None)
@given(_rows(), st.randoms(use_true_random=False))
def test_rows_of_one_key_come_in_the_order_of_their_tie(rows: tuple[list[str], list[list[Any]]], rng: Any) -> None:
    kinds, columns = rows
    count = len(columns[0])
    tie = np.array([rng.randrange(4) for _ in range(count)], np.int64)
    places = [tuple(_place(v, k) for v, k in zip(row, kinds, strict=True)) for row in zip(*columns, strict=True)]
    positions, _ = sorted_positions([_array(c, k) for c, k in zip(columns, kinds, strict=True)], tie)
    assert positions.tolist() == sorted(range(count), key=lambda i: (places[i], tie[i]))


@settings(max_examples=150, deadline=None)
@given(_rows(), st.integers(0, 30))
def test_the_rows_at_or_below_a_key_are_counted(rows: tuple[list[str], list[list[Any]]], at: int) -> None:
    kinds, columns = rows
    count = len(columns[0])
    if not count:
        return
    places = [tuple(_place(v, k) for v, k in zip(row, kinds, strict=True)) for row in zip(*columns, strict=True)]
    order = sorted(range(count), key=places.__getitem__)
    arrays = [_array([c[i] for i in order], k) for c, k in zip(columns, kinds, strict=True)]
    images = KeyImages([array.type for array in arrays])
    bound = places[order[at % count]]
    found = count_at_most(arrays, images.at(arrays, at % count), images)
    assert found == sum(1 for place in places if place <= bound)


def test_one_null_among_integers_does_not_change_how_keys_compare() -> None:
    with_null, without = (pa.chunked_array([pa.array(values, pa.int32())]) for values in ([None, 3, 5], [1, 2, 4]))
    images = KeyImages([pa.int32()])
    assert count_at_most([without], images.at([with_null], 0), images) == 0
    assert count_at_most([with_null], images.at([without], 2), images) == 2
    assert count_at_most([with_null], images.at([with_null], 0), images) == 1


def test_floats_have_an_image_with_one_nan_on_top_and_two_zeros() -> None:
    values = np.array([-np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan])
    image = integer_image(pa.chunked_array([pa.array(values)]))
    assert image is not None
    assert (np.diff(image.astype(object)) > 0).all()
    negative_nan = np.frombuffer(np.uint64(0xFFF8000000000001).tobytes(), np.float64)
    again = integer_image(pa.chunked_array([pa.array(negative_nan)]))
    assert again is not None
    assert again[0] == image[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_give_no_positions(kind: str) -> None:
    positions, is_last = sorted_positions([_array([], kind)])
    assert len(positions) == len(is_last) == 0
