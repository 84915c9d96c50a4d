"""What buffers tell of text: judged by Arrow, whatever the values, their number and where their buffers begin."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merganser.schema import spans
from merganser.schema.spans import edges, is_sound_ascii, one_length

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


def test_lengths_that_only_add_up_alike_differ() -> None:
    assert one_length(pa.array(["ab", "cd", "e", "fgh", "ij"])) is None


@settings(max_examples=200)
@given(some_bytes, st.sampled_from(FORMS))
def test_ascii_is_what_has_no_byte_above_127(values: list[bytes], kind: pa.DataType) -> None:
    assert is_sound_ascii(_array(values, kind)) == all(value.isascii() for value in values)


@pytest.mark.parametrize("size", range(1, 20))
def test_a_high_byte_is_found_wherever_it_is(size: int) -> None:
    assert is_sound_ascii(pa.array([b"a" * size]))
    for at in range(size):
        assert not is_sound_ascii(pa.array([b"a" * at + b"\x80" + b"a" * (size - at - 1)]))


@pytest.mark.parametrize("offsets", [[0, 3, 2, 5], [0, 9, 3, 5], [0, -2, 3, 5], [0, 1, 2, 3, 2, 5], [3, 4, 5, 3]])
def test_offsets_that_fall_are_not_sound(offsets: list[int]) -> None:
    ends = pa.py_buffer(np.array(offsets, np.int32))
    array = pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, ends, pa.py_buffer(b"abcde")])
    assert not is_sound_ascii(array)


@settings(max_examples=300)
@given(short_alphabet, st.sampled_from(FORMS[2:]))
def test_the_smallest_and_largest_are_at_the_edges(values: list[bytes], kind: pa.DataType) -> None:
    array = _array(values, kind)
    found = edges(array, len(values[0]))
    assert set(found.to_pylist()) <= set(values)
    assert pc.min_max(found.cast(pa.binary())).as_py() == {"min": min(values), "max": max(values)}


def test_edges_of_many_values_are_few() -> None:
    texts = pa.array([f"customer-{number:08}" for number in range(20_000)])
    assert len(edges(texts, 17)) < 2_100
    assert edges(pa.array(["same"] * 1_000), 4).to_pylist() == ["same"]
