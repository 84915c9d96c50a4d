"""Values of JSON on their way into columns: of each its kind and its text, and which of them lies in which column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.parsing.json_scan import ABSENT, NULL, TEXT, Bools, Bytes, Children, Ints, unescaped
from merganser.schema import types as t
from merganser.schema.fitting import fitting
from merganser.values import dataclass

_BACKSLASH: Final = 0x5C

NO_TEXT: Final = 7
"""Kind of a string that holds half a surrogate pair, so it stands for no text."""

NOTHING: Final = -1
"""In place of the position of a cell: the image does not have the column."""
UNAVAILABLE: Final = -2
"""In place of the position of a cell: the source has a value, and does not say it."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Values, in any order.

    Attributes:
        kinds: uint8[n], kinds of `json_scan`, or NO_TEXT.
        texts: string[n]: the text that a string means, else the JSON of the value; empty where it is absent.
    """

    kinds: Bytes
    texts: pa.Array

    @classmethod
    def absent(cls, count: int) -> Cells:
        """Return cells without values."""
        return cls(np.full(count, ABSENT, np.uint8), pa.array([""] * count, pa.string()))

    def take(self, positions: npt.NDArray[np.integer]) -> Cells:
        """Return cells by position; ABSENT where the position is negative."""
        if not len(self.kinds):
            return Cells.absent(len(positions))
        gone = positions < 0
        if not gone.any():
            return Cells(self.kinds[positions], self.texts.take(pa.array(positions)))
        there = np.where(gone, 0, positions)
        kinds = np.where(gone, np.uint8(ABSENT), self.kinds[there])
        return Cells(kinds, self.texts.take(pa.array(there, mask=gone)).fill_null(""))

    def filter(self, mask: Bools) -> Cells:
        """Return the cells that a mask names."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    @property
    def empty(self) -> Bools:
        """Which are absent or null."""
        return self.kinds <= NULL


def cells_of(children: Children) -> Cells:
    """Return the values of children, strings as what they mean."""
    return cells(children.kinds, children.texts)


def cells(kinds: Bytes, texts: pa.Array) -> Cells:
    """Return values of kinds of `json_scan`, strings as what they mean."""
    quoted = kinds == TEXT
    data = texts.buffers()[2]
    if data is None or not quoted.any() or not (np.frombuffer(data, np.uint8) == _BACKSLASH).any():
        return Cells(kinds, texts)
    which = np.flatnonzero(quoted)
    meant, wrong = unescaped(texts.take(pa.array(which)))
    if wrong.any():
        kinds = kinds.copy()
        kinds[which[wrong]] = NO_TEXT
    place = np.arange(len(kinds))
    place[which] = len(kinds) + np.arange(len(which))
    return Cells(kinds, pa.concat_arrays([texts, meant]).take(pa.array(place)))


def joined(parts: Sequence[Cells]) -> Cells:
    """Return cells behind each other."""
    return Cells(np.concatenate([part.kinds for part in parts]), pa.concat_arrays([part.texts for part in parts]))


def places(children: Children, columns: int) -> Ints:
    """Return int64[n, columns]: the child of each text by wanted name, the last of equal ones; else NOTHING."""
    found = np.full((len(children.roots), columns), NOTHING, np.int64)
    found[children.parents, np.asarray(children.names, dtype=np.int64)] = np.arange(len(children.kinds))
    return found


def repeated(parents: Ints, names: Ints) -> Ints:
    """Return the texts that have a name more than once, each as often as it has one too many.

    Args:
        parents: the text of each member.
        names: a number that stands for the name of each.
    """
    order = np.lexsort((names, parents))
    again = (parents[order][1:] == parents[order][:-1]) & (names[order][1:] == names[order][:-1])
    return np.asarray(parents[order[1:][again]])


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type of Arrow is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def utf8(values: pa.Array) -> tuple[pa.Array, Bools]:
    """Return text or bytes as strings, null where they are no UTF-8, and which are not."""
    try:
        texts = values.cast(pa.string())
        if is_text(values.type):
            texts.validate(full=True)
        return texts, np.zeros(len(values), bool)
    except pa.ArrowInvalid:
        data = values.cast(pa.binary())
        held = pa.Array.from_buffers(pa.string(), len(data), data.buffers(), offset=data.offset)
        broken = ~fitting(held, t.VarChar()) & np.asarray(values.is_valid())
        return pc.if_else(pa.array(broken), pa.scalar(None, pa.binary()), data).cast(pa.string()), broken
