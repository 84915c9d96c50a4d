"""Texts that stand for bytes -> bytes, and bytes that stand for numbers -> texts of these."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.parsing.json_scan import Bools
from merganser.schema.lazy_polars import pl

_SHORT_BYTES: Final = 15
"""Maximum bytes of integers that Arrow's decimals of 38 digits hold, whatever the bytes are."""
_LIMBS_BYTES: Final = 64
"""Maximum bytes of integers that are multiplied out at once. The cost grows with the square of it."""
_LIMB: Final = 1 << 16
_GROUP_DIGITS: Final = 9
_GROUP: Final = 10**_GROUP_DIGITS
_HEX: Final = r"^(?:[0-9a-f]{2})+$"
_HEX_MIN: Final = 12
"""Minimum characters of hexadecimal text that is told from base64. One of 16 million other texts looks the same."""


def decoded(texts: pa.Array, form: str) -> tuple[pa.Array, Bools]:
    """Return the bytes that texts stand for, and which stand for none; null there.

    Args:
        texts: string[n] without nulls.
        form: base64, base64-url-safe, hex, latin1 or BASE64_UNSAID.
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


def looks_hexadecimal(texts: pa.Array) -> Bools:
    """Return which texts are hexadecimal in lower case, and too long to be so by chance."""
    long = np.asarray(pc.greater_equal(pc.binary_length(texts), _HEX_MIN))
    if long.any():
        long[long] = np.asarray(pc.match_substring_regex(texts.filter(pa.array(long)), _HEX))
    return long


def integers_of(values: pa.Array, *, little: bool = False, signed: bool = True) -> pa.Array:
    """Return the integers that bytes hold as texts of digits.

    Args:
        values: binary[n] without nulls. No bytes are 0.
        little: the lowest byte comes first.
        signed: two's complement.
    """
    size = np.asarray(pc.binary_length(values))
    long = size > _SHORT_BYTES
    if not long.any():
        return _short_integers(values, size, little, signed)
    found = _short_integers(pc.if_else(pa.array(long), b"", values), np.where(long, 0, size), little, signed)
    huge = size > _LIMBS_BYTES
    for at, make in ((long & ~huge, _long_integers), (huge, _huge_integers)):
        if at.any():
            found = pc.replace_with_mask(found, pa.array(at), make(values.filter(pa.array(at)), little, signed))
    return found


def _bytes_of(values: pa.Array, size: Any, width: int, little: bool, signed: bool) -> tuple[Any, Any]:
    """Return the bytes of integers, lowest first and extended to a width, uint8[n, width]; and which are negative."""
    starts = np.cumsum(np.concatenate(([0], size[:-1]))) if len(size) else np.zeros(0, np.int64)
    data = _data(values)
    column = np.arange(width)[None, :]
    source = starts[:, None] + (column if little else size[:, None] - 1 - column)
    inside = column < size[:, None]
    found = np.where(inside, data[np.where(inside, source, 0)] if len(data) else np.uint8(0), np.uint8(0))
    negative = np.zeros(len(size), bool)
    if signed and len(data):
        first = data[np.where(size > 0, starts + (size - 1 if little else 0), 0)]
        negative = (size > 0) & (first > 0x7F)
        found = np.where(~inside & negative[:, None], np.uint8(0xFF), found)
    return found.astype(np.uint8), negative


def _short_integers(values: pa.Array, size: Any, little: bool, signed: bool) -> pa.Array:
    found, _ = _bytes_of(values, size, _SHORT_BYTES + 1, little, signed)
    numbers = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(size), [None, pa.py_buffer(np.ascontiguousarray(found).tobytes())]
    )
    return numbers.cast(pa.string())


def _long_integers(values: pa.Array, little: bool, signed: bool) -> pa.Array:
    """Return integers of at most `_LIMBS_BYTES` bytes as texts: limbs times the digits of the powers of a limb."""
    size = np.asarray(pc.binary_length(values))
    width = -(-int(size.max()) // 2) * 2
    found, negative = _bytes_of(values, size, width, little, signed)
    limbs = np.ascontiguousarray(np.where(negative[:, None], ~found, found)).view("<u2").astype(np.int64)
    limbs[:, 0] += negative  # two's complement; a limb may be one too large here
    powers, groups = [_LIMB**i for i in range(limbs.shape[1])], 0
    while _GROUP**groups <= 2 * _LIMB ** limbs.shape[1]:
        groups += 1
    digits = np.array([[power // _GROUP**j % _GROUP for j in range(groups)] for power in powers], np.int64)
    sums = limbs @ digits
    for j in range(groups - 1):
        sums[:, j + 1] += sums[:, j] // _GROUP
        sums[:, j] %= _GROUP
    parts = [pc.utf8_lpad(pa.array(sums[:, j]).cast(pa.string()), _GROUP_DIGITS, "0") for j in reversed(range(groups))]
    plain = pc.utf8_ltrim(pc.binary_join_element_wise(*parts, ""), "0")
    plain = pc.if_else(pc.equal(plain, ""), "0", plain)
    return pc.binary_join_element_wise(pc.if_else(pa.array(negative), "-", ""), plain, "")


def _huge_integers(values: pa.Array, little: bool, signed: bool) -> pa.Array:
    """Return integers of any length as texts, one by one: of so long ones each is work for itself."""
    order: Any = "little" if little else "big"
    return pa.array(
        [str(Decimal(int.from_bytes(value, order, signed=signed))) for value in values.to_pylist()], pa.string()
    )


def reversed_bytes(values: pa.Array, least: int = 0) -> pa.Array:
    """Return bytes, each value from its end to its start; none is null.

    Args:
        values: binary[n].
        least: bytes that each value has at least: zeros are put in front.
    """
    size = np.asarray(pc.binary_length(values), dtype=np.int64)
    starts = np.cumsum(size) - size
    wide = np.maximum(size, least)
    ends = np.cumsum(wide)
    inside = np.arange(int(size.sum())) - np.repeat(starts, size)
    out = np.zeros(int(wide.sum()), np.uint8)
    out[np.repeat(ends - 1, size) - inside] = _data(values)
    bounds = np.concatenate(([0], ends)).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(size), [None, pa.py_buffer(bounds.tobytes()), pa.py_buffer(out)])


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
