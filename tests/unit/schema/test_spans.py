"""What buffers tell of text: judged by Arrow, whatever the values, their number and where their buffers begin."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merganser.schema import spans
from merganser.schema.spans import edges, is_ascii, leaves, offsets_rise, one_length

FORMS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
some_bytes = st.lists(st.binary(max_size=12), max_size=40)
short_alphabet = st.integers(1, 40).flatmap(
    lambda width: st.lists(
        st.lists(st.sampled_from(b"ab\x00\xff"), min_size=width, max_size=width).map(bytes), min_size=1
    )
)


@pytest.fixture(autouse=True)
def few_rows_to_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "_BLOCK_ROWS", 3)
    monkeypatch.setattr(spans, "_BLOCK_BYTES", 16)
    monkeypatch.setattr(spans, "FEW_ROWS", 1)
    monkeypatch.setattr(spans, "_FEW_HEADS", 2)


def _array(values: list[bytes], kind: pa.DataType) -> pa.Array:
    """Return the values as the form, text among them whatever the bytes, in the middle of a longer array."""
    large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    held = pa.array([b"\xffbefore", *values, b"behind\xff"], pa.large_binary() if large else pa.binary())
    return pa.Array.from_buffers(kind, len(held), held.buffers()).slice(1, len(values))


@settings(max_examples=200)
@given(some_bytes, st.sampled_from(FORMS))
def test_one_length_is_that_of_each_value(values: list[bytes], kind: pa.DataType) -> None:
    lengths = {len(value) for value in values}
    assert one_length(_array(values, kind)) == (lengths.pop() if len(lengths) == 1 and 0 not in lengths else None)


@pytest.mark.parametrize("texts", [["ab", "cd", "e", "fgh", "ij"], ["ab", "cd", "e", "fg", "hi", "jkl"]])
def test_lengths_that_only_add_up_alike_differ(texts: list[str]) -> None:
    assert one_length(pa.array(texts)) is None


@settings(max_examples=200)
@given(some_bytes, st.sampled_from(FORMS))
def test_ascii_is_what_has_no_byte_above_127(values: list[bytes], kind: pa.DataType) -> None:
    assert is_ascii(_array(values, kind)) == all(value.isascii() for value in values)


@pytest.mark.parametrize("size", [*range(1, 20), 40])
def test_a_high_byte_is_found_wherever_it_is(size: int) -> None:
    assert is_ascii(pa.array([b"a" * size]))
    for at in range(size):
        assert not is_ascii(pa.array([b"a" * at + b"\x80" + b"a" * (size - at - 1)]))


def _with_offsets(offsets: list[int]) -> pa.Array:
    """Return texts among five bytes, whatever the offsets."""
    ends = pa.py_buffer(np.array(offsets, np.int32))
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, ends, pa.py_buffer(b"abcde")])


@pytest.mark.parametrize(
    "offsets", [[0, 3, 2, 5], [0, 9, 3, 5], [0, -2, 3, 5], [0, 1, 2, 3, 2, 5], [0, 1, 2, 3, 4, 2, 5]]
)
def test_offsets_that_fall_do_so_at_every_depth(offsets: list[int]) -> None:
    texts = _with_offsets(offsets)
    lists = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    numbers = pa.Array.from_buffers(
        pa.list_(pa.int8()), len(texts), texts.buffers()[:2], children=[pa.array([1] * 9, pa.int8())]
    )
    extended = pa.ExtensionArray.from_storage(pa.opaque(pa.string(), "text", "me"), texts)
    for array in (texts, lists, pa.StructArray.from_arrays([texts], ["a"]), numbers, extended):
        assert not offsets_rise(array)


def test_offsets_are_those_of_the_slice() -> None:
    texts = _with_offsets([0, 3, 2, 4, 5])
    assert offsets_rise(texts[2:])
    nested = pa.StructArray.from_arrays([texts], ["a"])
    assert offsets_rise(nested[2:])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 4], pa.int32()), texts)
    assert offsets_rise(lists[2:])
    assert not offsets_rise(lists)


NESTED = [
    pa.list_(pa.string()),
    pa.large_list(pa.large_string()),
    pa.list_(pa.binary(), 2),
    pa.map_(pa.string(), pa.list_(pa.string())),
    pa.struct([("a", pa.string()), ("b", pa.list_(pa.int32()))]),
]


@pytest.mark.parametrize("kind", NESTED, ids=str)
def test_leaves_are_what_a_slice_reaches(kind: pa.DataType) -> None:
    values: list[object] = [["ab", "c"], ["", "de"], ["f", "g"], ["h", "i"]]
    if pa.types.is_map(kind):
        values = [[("a", ["b", "c"])], [], [("d", []), ("e", ["f"])], [("g", None)]]
    if pa.types.is_struct(kind):
        values = [{"a": "b", "b": [1, 2]}, {"a": "", "b": []}, {"a": "c", "b": [3]}, {"a": "d", "b": None}]
    whole = pa.array(values, kind)
    assert offsets_rise(whole)
    for start in range(5):
        for count in range(5 - start):
            part = whole.slice(start, count)
            alone = pa.array(part.to_pylist(), kind)
            assert [leaf.to_pylist() for leaf in leaves(part)] == [leaf.to_pylist() for leaf in leaves(alone)]


@settings(max_examples=300)
@given(short_alphabet, st.sampled_from(FORMS[2:]))
def test_the_smallest_and_largest_are_at_the_edges(values: list[bytes], kind: pa.DataType) -> None:
    found = edges(_array(values, kind))
    assert set(found.to_pylist()) <= set(values)
    assert pc.min_max(found.cast(pa.binary())).as_py() == {"min": min(values), "max": max(values)}


@pytest.mark.parametrize("shared", [0, 1, 6, 7, 8, 32, 40])
def test_edges_behind_what_all_values_share_are_found(shared: int) -> None:
    values = ["a" * shared + text for text in ("y", "x", "z", "y")]
    assert {"a" * shared + "x", "a" * shared + "z"} <= set(edges(pa.array(values)).to_pylist())


def test_a_null_is_no_edge() -> None:
    ends = pa.py_buffer(np.arange(4, dtype=np.int32))
    array = pa.Array.from_buffers(pa.string(), 3, [pa.py_buffer(b"\x02"), ends, pa.py_buffer(b"abc")])
    assert pc.min_max(edges(array)).as_py() == {"min": "b", "max": "b"}


def test_edges_of_many_values_are_few() -> None:
    codes = np.random.default_rng(3).integers(0, 10**15, 20_000)
    assert len(edges(pa.array([f"{code:016}" for code in codes]))) < 100
    for few_heads in ("same", "same-and-long"):
        texts = pa.array([few_heads, few_heads[::-1]] * 1_000)
        assert pc.min_max(edges(texts)).as_py() == pc.min_max(texts).as_py()
    assert len(edges(pa.array(["Y", "N"] * 1_000))) == 2
