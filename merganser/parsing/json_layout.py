"""Objects of JSON that one writer wrote: all have the same members in the same order, and no blanks between them.

A writer that puts the values of a row between the same names each time leaves texts that need no search for tokens:

    {"id":7,"name":"x","note":null}
    ^^^^^^  where the text begins there is the first name
          ^ its value: a string ends at the next quote, any other value in front of the name that has the next quote
           ^^^^^^^^  behind it the next name, byte for byte, and so on to the end

So only quotes are looked for, and names are compared eight bytes at a time. What fits is JSON, and means what `scan`
says it means; what does not fit may be anything. Texts with escapes and values that hold others do not fit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.parsing.cells import Cells
from merganser.parsing.json_scan import KINDS, MASKS, TEXT, Bools, Ints, Padded
from merganser.schema.spans import spans

_QUOTE, _BACKSLASH, _CLOSE = b'"\\}'
_WORD: Final = 8


def laid_out(texts: pa.Array, names: Sequence[str], wanted: Sequence[str]) -> tuple[Bools, dict[str, Cells]]:
    """Return which texts are objects of such a layout, and the values of those, by name.

    Args:
        texts: string[n] without nulls, valid UTF-8.
        names: of all members, in their order, each once.
        wanted: those of them whose values are returned.

    Returns:
        bool[n], and as many cells of each wanted name as texts fit.
    """
    literals = [json.dumps(name, ensure_ascii=False).encode() for name in names]
    none = np.zeros(len(texts), bool)
    if not len(texts) or not names or any(b"\\" in literal for literal in literals):
        return none, {}
    literals = [(b"," if i else b"{") + literal + b":" for i, literal in enumerate(literals)]
    offsets, held = spans(texts)
    body = held[offsets[0] : offsets[-1]]
    room = bytes(max(map(len, literals)) + 2 * _WORD)  # where the names of a text that breaks off are looked for
    data = Padded(body.data, room)
    bounds = offsets.astype(np.int64) - int(offsets[0])
    fits, members = _walk(data, len(body), bounds, literals)
    rows = np.flatnonzero(fits)
    for starts, ends, quoted in members:
        at = rows[~quoted[rows]]
        fits[at[~data.are_scalars(starts[at], ends[at])]] = False
        rows = rows if fits[rows].all() else np.flatnonzero(fits)
    if not len(rows):
        return none, {}
    cells = {}
    for name, (starts, ends, quoted) in zip(names, members, strict=True):
        if name in wanted:
            if len(rows) < len(fits):
                starts, ends, quoted = starts[rows], ends[rows], quoted[rows]
            kinds = KINDS[data.data[starts]]
            kinds[quoted] = TEXT
            cells[name] = Cells(kinds, data.strings(starts, ends))
    return fits, cells


_Member = tuple[Ints, Ints, Bools]
"""Where the value of each text begins and ends, without its quotes, and whether it has some."""


def _walk(data: Padded, size: int, bounds: Ints, literals: Sequence[bytes]) -> tuple[Bools, list[_Member]]:
    """Return which texts have the names where they should be, and where their values are.

    A text that does not fit is walked through to the end of all, and never beyond the padding.

    Args:
        data: the texts behind each other, without a gap.
        size: bytes of them.
        bounds: where each text begins, and where the last one ends.
        literals: the names, with what stands in front of and behind them.
    """
    body = data.data[:size]
    fits = np.ones(len(bounds) - 1, bool)
    refused = body < 0x20
    refused |= body == _BACKSLASH
    if refused.any():
        fits[np.searchsorted(bounds, np.flatnonzero(refused), side="right") - 1] = False
    found = np.flatnonzero(body == _QUOTE)
    quotes = np.concatenate([found, np.full(4 * len(literals) + 1, size)])  # a member has four at most
    upcoming = np.searchsorted(found, bounds[:-1])
    at, ends = bounds[:-1], bounds[1:] - 1
    members = list[_Member]()
    for i, literal in enumerate(literals):
        fits &= _are(data, at, literal)
        if i == 0 and not fits.any():
            return fits, members
        upcoming = upcoming + 2
        begin = at + len(literal)
        quoted = data.data[begin] == _QUOTE
        behind = quotes[upcoming] - 1 if i + 1 < len(literals) else ends
        if quoted.any():
            closing = quotes[upcoming + 1]
            behind = closing if quoted.all() else np.where(quoted, closing, behind)
            begin = begin + quoted
            upcoming = upcoming + 2 * quoted
        fits &= begin <= behind  # not so where the walk has left a text that breaks off
        members.append((begin, behind, quoted))
        at = behind + quoted
    return fits & (at == ends) & (data.data[ends] == _CLOSE), members


def _are(data: Padded, at: Ints, literal: bytes) -> Bools:
    """Return at which places a literal stands."""
    alike = np.ones(len(at), bool)
    last = max(len(literal) - _WORD, 0)
    for start in dict.fromkeys([*range(0, last, _WORD), last]):
        part = literal[start : start + _WORD]
        words = data.words[at + start]
        if len(part) < _WORD:
            words &= MASKS[len(part)]
        alike &= words == np.uint64(int.from_bytes(part, "little"))
    return alike
