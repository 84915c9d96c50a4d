"""Texts of numbers -> integers, decimals and floats, exactly. A value that does not fit is bad, never rounded."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.parsing.cells import Cells
from merganser.parsing.json_scan import BOOLEAN, NUMBER, TEXT, Bools
from merganser.parsing.outcome import Read, read, spread, spread_bad, whys
from merganser.parsing.rules import Rules
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.spans import spans

_NUMBER: Final = r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_PARTS: Final = (
    r"^(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?:[eE](?P<up>[+-]?)0*(?P<power>[0-9]+))?$"
)
_NO_FINITE: Final = r"(?i)^(?:[+-]?inf(?:inity)?|nan)$"
_BLANKS: Final = " \t"
"""What may stand around a value that is no text."""
_DIGITS_MAX: Final = 38
_POWER_MAX: Final = 100_000
_NEW_TABLE: Final = "create a table with a wider one: a column that places rows keeps its type"


def integers(cells: Cells, kind: t.DataType, *, places: bool = False) -> Read:
    """Return whole numbers, written as such or as 7.0 or 1e1.

    Args:
        cells, kind: what is read, and the type of the column.
        places: the column places rows, so that it cannot get another type.
    """
    target = arrow_type(kind)
    at, texts = _scalars(cells)
    if not _has_byte(texts, b"x"):  # Arrow reads hexadecimal digits, too
        try:
            return read(spread(texts.cast(target), at), ~at & ~cells.empty, f"is no {_name(kind)}")
        except pa.ArrowInvalid:
            pass
    at, texts, wrong = _numeric(cells)
    exact, bad = exactly(texts, 19, 0)
    low, high = (pa.scalar(Decimal(bound), exact.type) for bound in _bounds(target))
    outside = np.asarray(pc.or_(pc.less(exact, low), pc.greater(exact, high)).fill_null(False))
    bad = bad | outside
    values = pc.if_else(pa.array(bad), pa.scalar(None, exact.type), exact).cast(target)
    advice = _NEW_TABLE if places else "widen this one with retype_column"
    wider = f"does not fit {_name(kind)}. If the column of the source became wider, {advice}"
    return read(
        spread(values, at),
        spread_bad(bad, at) | wrong,
        whys((spread_bad(outside, at), wider), otherwise=f"is no {_name(kind)}"),
    )


def decimals(cells: Cells, kind: t.Decimal, rules: Rules) -> Read:
    """Return decimals with all digits that are written."""
    target = arrow_type(kind)
    at, texts = _scalars(cells)
    if _short(texts, _DIGITS_MAX - kind.scale):
        try:
            return read(spread(texts.cast(target), at), ~at & ~cells.empty, f"is no {_name(kind)}")
        except pa.ArrowInvalid:
            pass
    at, texts, wrong = _numeric(cells)
    digits, bad = exactly(texts, kind.precision, kind.scale)
    values = pa.Array.from_buffers(target, len(digits), digits.buffers(), offset=digits.offset)
    bad = spread_bad(bad, at) | wrong
    if not bad.any():
        return Read(spread(values, at), bad, "")
    beyond = np.zeros(len(bad), bool)
    beyond[wrong] = (cells.kinds[wrong] == TEXT) & np.asarray(
        pc.match_substring_regex(pc.utf8_trim(cells.texts.filter(pa.array(wrong)), _BLANKS), _NO_FINITE)
    )
    if rules.beyond_null:
        bad = bad & ~beyond
    why = whys((beyond, BEYOND.format(f"beyond {_name(kind)}, which holds numbers")), otherwise=f"is no {_name(kind)}")
    return read(spread(values, at), bad, why)


BEYOND: Final = "is {}. Set out_of_range='null' to write null"
"""What is wrong with a value that its type does not have."""


def floats(cells: Cells, kind: t.DataType) -> Read:
    """Return the nearest floats; NaN and the infinities only from text."""
    target = arrow_type(kind)
    at, texts = _scalars(cells)
    values = None
    if not _has_byte(texts, b"n"):  # of the words, each of which has one
        try:
            values, wrong = texts.cast(target), ~at & ~cells.empty
            infinite = np.asarray(pc.is_inf(values))
        except pa.ArrowInvalid:
            values = None
    if values is None:
        at, texts, wrong = _numeric(cells, words=True)
        values = texts.cast(target)
        infinite = np.asarray(pc.is_inf(values))
        if infinite.any():
            infinite &= ~np.asarray(pc.match_substring_regex(texts, _NO_FINITE))
    return read(spread(values, at), spread_bad(infinite, at) | wrong, f"is no {_name(kind)}")


def booleans(cells: Cells) -> Read:
    """Return truth values: true and false in any case, 1 and 0, also as text."""
    texts = cells.texts

    def among(*words: str) -> Bools:
        return np.asarray(pc.is_in(texts, value_set=pa.array(words)))

    scalar = (cells.kinds == BOOLEAN) | (cells.kinds == NUMBER) | (cells.kinds == TEXT)
    yes, no = among("true", "1"), among("false", "0")
    if (scalar & ~(yes | no)).any():
        texts = pc.ascii_lower(pc.utf8_trim(texts, _BLANKS))
        yes, no = among("true", "1"), among("false", "0")
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


def trimmed(texts: pa.Array) -> pa.Array:
    """Return texts without the blanks around them."""
    return pc.utf8_trim(texts, _BLANKS) if _has_byte(texts, b" ") or _has_byte(texts, b"\t") else texts


def _scalars(cells: Cells) -> tuple[Bools, pa.Array]:
    """Return which cells are numbers or texts, and their texts."""
    at = (cells.kinds == NUMBER) | (cells.kinds == TEXT)
    return at, cells.texts if at.all() else cells.texts.filter(pa.array(at))


def _numeric(cells: Cells, *, words: bool = False) -> tuple[Bools, pa.Array, Bools]:
    """Return which cells hold numbers, their texts, and which hold something else.

    Args:
        cells: the cells.
        words: NaN and the infinities are numbers, too.
    """
    at = cells.kinds == NUMBER
    quoted = cells.kinds == TEXT
    held = cells.texts
    if quoted.any():
        held = trimmed(held)  # JSON's numbers have no blanks, and what else there is does not count
        texts = held if quoted.all() else held.filter(pa.array(quoted))
        fits = np.asarray(pc.match_substring_regex(texts, _NUMBER))
        if words and not fits.all():
            fits = fits | np.asarray(pc.match_substring_regex(texts, _NO_FINITE))
        at[np.flatnonzero(quoted)[fits]] = True
    return at, held if at.all() else held.filter(pa.array(at)), ~at & ~cells.empty


def _has_byte(texts: pa.Array, letter: bytes) -> bool:
    """Return whether a byte occurs in texts; a letter in either case."""
    offsets, held = spans(texts)
    data: Any = held[offsets[0] : offsets[-1]]
    wanted = letter[0]
    return bool(((data | 0x20) == wanted).any() if letter.isalpha() else (data == wanted).any())


def _short(texts: pa.Array, most: int) -> bool:
    """Return whether no text is longer than the digits that Arrow's cast can shift without wrapping around."""
    longest = pc.max(pc.binary_length(texts)).as_py()
    return longest is None or (longest <= most and not _has_byte(texts, b"e"))


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    return -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1


def _name(kind: t.DataType) -> str:
    return str(kind.with_nullable(True))
