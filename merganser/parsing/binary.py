"""Texts that stand for bytes -> bytes, and bytes that stand for numbers -> texts of these."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from merganser.parsing.json_scan import Bools

_INTEGER_BYTES: Final = 16
"""Bytes of the largest integers that are read: those of a DECIMAL(38, 0)."""


def decoded(texts: pa.Array, form: str) -> tuple[pa.Array, Bools]:
    """Return the bytes that texts stand for, and which stand for none; null there.

    Args:
        texts: string[n] without nulls.
        form: base64, base64-url-safe, hex or latin1.
    """
    match form:
        case "latin1":
            return _latin1(texts)
        case "base64-url-safe":
            texts = pc.replace_substring(pc.replace_substring(texts, "-", "+"), "_", "/")
            missing = (4 - np.asarray(pc.binary_length(texts)) % 4) % 4
            if missing.any():  # the padding may be left out
                texts = pc.binary_join_element_wise(texts, pc.binary_repeat("=", pa.array(missing)), "")
    found = pl.from_arrow(texts)
    assert isinstance(found, pl.Series)
    values = found.str.decode("hex" if form == "hex" else "base64", strict=False).to_arrow().cast(pa.binary())
    return values, np.asarray(values.is_null())


def integers_of(values: pa.Array, *, little: bool = False, signed: bool = True) -> tuple[pa.Array, Bools]:
    """Return the integers that bytes hold as texts of digits, and which are too long for DECIMAL(38, 0).

    Args:
        values: binary[n]; null counts as too long. No bytes are 0.
        little: the lowest byte comes first.
        signed: two's complement.
    """
    size = np.asarray(pc.binary_length(values).fill_null(_INTEGER_BYTES + 1))
    bad = size > _INTEGER_BYTES
    kept = pc.if_else(pa.array(bad), b"", values).fill_null(b"")
    size = np.where(bad, 0, size)
    width = _INTEGER_BYTES
    starts = np.cumsum(np.concatenate(([0], size[:-1]))) if len(size) else np.zeros(0, np.int64)
    data = _data(kept)
    column = np.arange(width)[None, :]
    # byte j of a number, lowest first
    source = starts[:, None] + (column if little else size[:, None] - 1 - column)
    inside = column < size[:, None]
    bytes_ = np.where(inside, data[np.where(inside, source, 0)] if len(data) else np.uint8(0), np.uint8(0))
    if signed and len(data):
        first = data[np.where(size > 0, starts + (size - 1 if little else 0), 0)]
        negative = (size > 0) & (first > 0x7F)
        bytes_ = np.where(~inside & negative[:, None], np.uint8(0xFF), bytes_)
    numbers = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(size), [None, pa.py_buffer(np.ascontiguousarray(bytes_.astype(np.uint8)).tobytes())]
    )
    return numbers.cast(pa.string()), bad


def reversed_bytes(values: pa.Array) -> pa.Array:
    """Return bytes, each value from its end to its start; none is null."""
    size = np.asarray(pc.binary_length(values), dtype=np.int64)
    ends = np.cumsum(size)
    starts = ends - size
    data = _data(values)
    at = np.repeat(starts + ends - 1, size) - np.arange(int(size.sum()))
    bounds = np.concatenate(([0], ends)).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(size), [None, pa.py_buffer(bounds.tobytes()), pa.py_buffer(data[at].tobytes())]
    )


def _latin1(texts: pa.Array) -> tuple[pa.Array, Bools]:
    bad = np.asarray(pc.match_substring_regex(texts, r"[^\x{00}-\x{FF}]"))
    if bad.any():
        texts = pc.if_else(pa.array(bad), "", texts)
    values = texts.cast(pa.binary())
    data = _data(values)
    lead = data >= 0xC0
    if lead.any():
        # two bytes of UTF-8 are one character: its highest two bits are the lowest of the first byte
        follows = np.concatenate(([False], lead[:-1]))
        joined = np.where(follows, (np.concatenate(([0], data[:-1])).astype(np.uint8) & 3) << 6 | data & 0x3F, data)
        ends = np.cumsum(np.asarray(pc.binary_length(values), dtype=np.int64))
        before = np.concatenate(([0], np.cumsum(~lead)))
        bounds = before[np.concatenate(([0], ends))].astype(np.int32)
        values = pa.Array.from_buffers(
            pa.binary(),
            len(values),
            [None, pa.py_buffer(bounds.tobytes()), pa.py_buffer(joined[~lead].astype(np.uint8).tobytes())],
        )
    return (pc.if_else(pa.array(~bad), values, pa.scalar(None, pa.binary())) if bad.any() else values), bad


def _data(values: pa.Array) -> Any:
    """Return the bytes of an array without nulls, one value behind the other."""
    bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    if values.buffers()[2] is None or not len(values):
        return np.zeros(0, np.uint8)
    return np.frombuffer(values.buffers()[2], np.uint8)[bounds[0] : bounds[-1]]
