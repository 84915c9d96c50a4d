"""Texts of numbers -> integers, decimals and floats, exactly. A value that does not fit is bad, never rounded."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.parsing.cells import Cells
from merganser.parsing.json_scan import BOOLEAN, NUMBER, TEXT, Bools
from merganser.parsing.outcome import Read, read, spread, spread_bad
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type

_NUMBER: Final = r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_PARTS: Final = (
    r"^(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?:[eE](?P<up>[+-]?)0*(?P<power>[0-9]+))?$"
)
_WORDS: Final = ("NaN", "Infinity", "-Infinity")
_DIGITS_MAX: Final = 38
_POWER_MAX: Final = 100_000


def integers(cells: Cells, kind: t.DataType) -> Read:
    """Return whole numbers, written as such or as 7.0 or 1e1."""
    target = arrow_type(kind)
    at, texts, wrong = _numeric(cells)
    values = None
    try:
        values = texts.cast(target)  # hexadecimal text did not get here
        bad = np.zeros(len(texts), bool)
    except pa.ArrowInvalid:
        exact, bad = exactly(texts, 19, 0)
        low, high = (pa.scalar(Decimal(bound), exact.type) for bound in _bounds(target))
        outside = pc.or_(pc.less(exact, low), pc.greater(exact, high)).fill_null(False)
        bad = bad | np.asarray(outside)
        values = pc.if_else(pa.array(bad), pa.scalar(None, exact.type), exact).cast(target)
    return read(spread(values, at), spread_bad(bad, at) | wrong, f"is no {_name(kind)}")


def decimals(cells: Cells, kind: t.Decimal) -> Read:
    """Return decimals with all digits that are written."""
    target = arrow_type(kind)
    at, texts, wrong = _numeric(cells)
    values, bad = None, np.zeros(len(texts), bool)
    if _short(texts, _DIGITS_MAX - kind.scale):
        try:
            values = texts.cast(target)
        except pa.ArrowInvalid:
            values = None
    if values is None:
        digits, bad = exactly(texts, kind.precision, kind.scale)
        values = pa.Array.from_buffers(target, len(digits), digits.buffers(), offset=digits.offset)
    return read(spread(values, at), spread_bad(bad, at) | wrong, f"is no {_name(kind)}")


def floats(cells: Cells, kind: t.DataType) -> Read:
    """Return the nearest floats; NaN and the infinities only from text."""
    at, texts, wrong = _numeric(cells, _WORDS)
    values = texts.cast(arrow_type(kind))
    infinite = np.asarray(pc.is_inf(values))
    if infinite.any():
        infinite &= ~np.asarray(pc.is_in(texts, value_set=pa.array(_WORDS)))
    return read(spread(values, at), spread_bad(infinite, at) | wrong, f"is no {_name(kind)}")


def booleans(cells: Cells) -> Read:
    """Return truth values: true, false, 1 and 0, also as text."""
    yes = np.asarray(pc.is_in(cells.texts, value_set=pa.array(["true", "1"])))
    no = np.asarray(pc.is_in(cells.texts, value_set=pa.array(["false", "0"])))
    scalar = (cells.kinds == BOOLEAN) | (cells.kinds == NUMBER) | (cells.kinds == TEXT)
    known = scalar & (yes | no)
    return Read(pa.array(yes, mask=~known), ~known & ~cells.empty, "is no BOOLEAN")


def exactly(texts: pa.Array, precision: int, scale: int) -> tuple[pa.Array, Bools]:
    """Return numbers times 10^scale as decimal128(38, 0), and which have more digits than the precision or the scale.

    Args:
        texts: of numbers, blanks nowhere, no nulls.
        precision: digits that a value has at most.
        scale: digits behind the point.
    """
    parts = pc.extract_regex(texts, _PARTS)
    sign, whole, fraction, up, power = (
        pc.struct_field(parts, name).fill_null("") for name in ("sign", "whole", "fraction", "up", "power")
    )
    power = pc.if_else(
        pc.greater(pc.binary_length(power), 6), str(_POWER_MAX), pc.if_else(pc.equal(power, ""), "0", power)
    )
    tens = np.asarray(power.cast(pa.int64()))
    tens = np.where(np.asarray(pc.equal(up, "-")), -tens, tens) - np.asarray(pc.binary_length(fraction), dtype=np.int64)
    digits = pc.utf8_ltrim(pc.binary_join_element_wise(whole, fraction, ""), characters="0")
    kept = pc.utf8_rtrim(digits, characters="0")
    tens = tens + np.asarray(pc.binary_length(digits)) - np.asarray(pc.binary_length(kept))
    count = np.asarray(pc.binary_length(kept))
    zeros = tens + scale
    zero = count == 0
    bad = ~zero & ((zeros < 0) | (count + zeros > precision))
    zeros = np.where(bad | zero, 0, zeros)
    kept = pc.if_else(pa.array(bad | zero), "0", kept)
    padded = pc.binary_join_element_wise(
        pc.if_else(pc.equal(sign, "-"), "-", ""), kept, pc.binary_repeat("0", pa.array(zeros)), ""
    )
    values = padded.cast(pa.decimal128(_DIGITS_MAX, 0))
    return pc.if_else(pa.array(bad), pa.scalar(None, values.type), values), bad


def _numeric(cells: Cells, words: tuple[str, ...] = ()) -> tuple[Bools, pa.Array, Bools]:
    """Return which cells hold numbers, their texts, and which hold something else."""
    at = cells.kinds == NUMBER
    quoted = cells.kinds == TEXT
    if quoted.any():
        texts = cells.texts if quoted.all() else cells.texts.filter(pa.array(quoted))
        fits = np.asarray(pc.match_substring_regex(texts, _NUMBER))
        if words:
            fits = fits | np.asarray(pc.is_in(texts, value_set=pa.array(words)))
        at[np.flatnonzero(quoted)[fits]] = True
    return at, cells.texts if at.all() else cells.texts.filter(pa.array(at)), ~at & ~cells.empty


def _short(texts: pa.Array, most: int) -> bool:
    """Return whether no text is longer than the digits that Arrow's cast can shift without wrapping around."""
    longest = pc.max(pc.binary_length(texts)).as_py()
    return longest is None or (longest <= most and not pc.any(pc.match_substring_regex(texts, "[eE]")).as_py())


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    return -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1


def _name(kind: t.DataType) -> str:
    return str(kind.with_nullable(True))
