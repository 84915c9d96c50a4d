"""Deletion vectors as bytes: the worked examples of the format, and damage that is told."""

from __future__ import annotations

import numpy as np
import pytest

from merganser.codec.deletion_vector import decode_vector, encode_vectors
from merganser.errors import FormatError

RUN_32 = "01 00000013 5e43f2d0 3b300000 01 0000 0300 0100 0300 0300 dad4a125"
ARRAY_32 = "01 0000001a 5e43f2d0 3a300000 01000000 0000 0200 10000000 0200 0300 0400 6c1dd204"
ARRAY_64 = "01 00000026 d1d33964 0100000000000000 00000000 3a300000 01000000 0000 0200 10000000 0200 0300 0400 c5111ed6"
EXAMPLES = [(RUN_32, [3, 4, 5, 6], 19), (ARRAY_32, [2, 3, 4], 26), (ARRAY_64, [2, 3, 4], 46)]


def _positions(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(("text", "positions", "length"), EXAMPLES)
def test_the_examples_of_the_format_are_read(text: str, positions: list[int], length: int) -> None:
    data = bytes.fromhex(text)
    assert decode_vector(data[1:], length=length, path="index-0", offset=1).tolist() == positions


def test_a_run_is_written_as_in_the_example_of_the_format() -> None:
    data, places = encode_vectors([_positions(3, 4, 5, 6)], bits64=False)
    assert data == bytes.fromhex(RUN_32)
    assert (places[0].offset, places[0].length, places[0].cardinality) == (1, 19, 4)


def test_the_length_of_the_64_bit_form_counts_its_frame() -> None:
    data, places = encode_vectors([_positions(0, 2, 9)], bits64=True)
    assert places[0].length == len(data) - 1


@pytest.mark.parametrize("bits64", [False, True])
def test_vectors_of_a_file_come_back_each_from_its_place(bits64: bool) -> None:
    rng = np.random.default_rng(3)
    vectors = [np.unique(rng.integers(0, top, count)) for top, count in ((9, 4), (2**31 - 1, 5000), (70_000, 60_000))]
    data, places = encode_vectors(vectors, bits64=bits64)
    for vector, place in zip(vectors, places, strict=True):
        found = decode_vector(data[place.offset :], length=place.length, path="index-0", offset=place.offset)
        assert np.array_equal(found, vector)
        assert found.dtype == np.int64
        assert place.cardinality == len(vector)


def test_positions_above_32_bits_list_every_high_half() -> None:
    far = _positions(3, (2 << 32) + 1)
    data, places = encode_vectors([far], bits64=True)
    assert data[9:17] == (3).to_bytes(8, "little")
    assert decode_vector(data[1:], length=places[0].length, path="index-0", offset=1).tolist() == far.tolist()


def test_the_32_bit_form_refuses_what_it_cannot_hold() -> None:
    with pytest.raises(ValueError, match="64-bit"):
        encode_vectors([_positions(1 << 32)], bits64=False)


@pytest.mark.parametrize(("text", "positions", "length"), EXAMPLES)
def test_every_flipped_byte_is_told_with_path_and_offset(text: str, positions: list[int], length: int) -> None:
    data = bytes.fromhex(text)
    for at in range(1, len(data)):
        for bits in (0x01, 0x80, 0xFF):
            spoilt = data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]
            with pytest.raises(FormatError) as caught:
                decode_vector(spoilt[1:], length=length, path="index-7", offset=1)
            assert caught.value.context == {"path": "index-7", "offset": 1}


@pytest.mark.parametrize(("text", "positions", "length"), EXAMPLES)
def test_a_vector_cut_short_is_told(text: str, positions: list[int], length: int) -> None:
    data = bytes.fromhex(text)[1:]
    for end in range(len(data)):
        with pytest.raises(FormatError):
            decode_vector(data[:end], length=length, path="index-7", offset=1)


def test_a_length_other_than_that_of_the_metadata_is_told() -> None:
    with pytest.raises(FormatError, match="metadata says 20"):
        decode_vector(bytes.fromhex(RUN_32)[1:], length=20, path="index-7", offset=1)
