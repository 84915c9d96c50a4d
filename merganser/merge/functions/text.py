"""listagg: texts joined by a delimiter. Nulls and blank texts add nothing.

The first text is taken whole, blanks within it and repeated tokens too. With `distinct`, later texts are split by the
delimiter, and tokens that are blank or there already add nothing.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.merge.functions.equality import codes
from merganser.merge.functions.function import Traits, refuse_retractions
from merganser.merge.functions.segments import apart, empty, taken, validity
from merganser.merge.groups import Groups, Mask, Positions
from merganser.merge.keys import sorted_positions
from merganser.schema import types as t
from merganser.schema.blank import BLANKS
from merganser.schema.spans import spans
from merganser.values import dataclass

_BLANK: Final = rf"\A[{re.escape(''.join(sorted(BLANKS)))}]*\z"


@dataclass(frozen=True, slots=True)
class ListAgg(Traits):
    """The texts of a group, joined.

    Attributes:
        column: the column.
        delimiter: stands between two texts.
        distinct: keep each token once.
    """

    rewrites: ClassVar[bool] = True
    column: t.Field
    delimiter: str = ","
    distinct: bool = False
    name: str = "listagg"
    retracts: bool = False

    def fold(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        refuse_retractions(groups, self.column, self.name)
        if not groups.count:
            return empty(column.type)
        return apart(column, groups, self._joined)

    def _joined(self, column: pa.ChunkedArray, groups: Groups) -> pa.Array:
        texts = _not_large(taken(column, groups.positions))
        kept = ~blank(texts)
        group_of = groups.group_of
        if not kept.all():
            texts_kept, group_of = texts.filter(pa.array(kept)), group_of[kept]
        else:
            texts_kept = texts
        tokens, group_of = self._tokens(texts_kept, group_of)
        sizes = np.bincount(group_of, minlength=groups.count)
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
        some = offsets[1:] > offsets[:-1]
        mask = None if some.all() else pa.array(~some)
        lists = pa.ListArray.from_arrays(pa.array(offsets), tokens, mask=mask)
        return pc.binary_join(lists, self.delimiter).cast(column.type)

    def _tokens(self, texts: pa.Array, group_of: Positions) -> tuple[pa.Array, Positions]:
        """Return what is to be joined, with its groups: the texts, or with `distinct` their tokens that stay."""
        if not self.distinct or not self.delimiter or not len(texts):  # no delimiter, no tokens to tell apart
            return texts, group_of
        split = pc.split_pattern(texts, self.delimiter)
        counts = np.diff(split.offsets.to_numpy())
        tokens = split.flatten()
        text_of = np.repeat(np.arange(len(texts)), counts)
        of_first = _changes(group_of)[text_of]
        code, count = codes(tokens)
        new = _first_occurrences(group_of[text_of] * count + code)
        kept = of_first | (new & ~blank(tokens))
        return tokens.filter(pa.array(kept)), group_of[text_of][kept]


def blank(texts: pa.Array) -> Mask:
    """Return bool[n]: which texts are null, or white space only."""
    offsets, data = spans(texts)
    lengths = np.diff(offsets)
    out: Mask = lengths == 0
    if data.size:
        head = data[np.minimum(offsets[:-1], data.size - 1)]
        unclear = ~out & ((head <= 0x20) | (head >= 0x80))  # any other first character is no white space
        rows = np.flatnonzero(unclear)
        if len(rows):
            matches = pc.match_substring_regex(texts.take(pa.array(rows)), _BLANK)
            out[rows] = matches.fill_null(True).to_numpy(zero_copy_only=False)
    valid = validity(texts)
    return out if valid is None else out | ~valid


def _not_large(texts: pa.Array) -> pa.Array:
    """Return the texts as plain strings, which is what Arrow joins."""
    return texts if pa.types.is_string(texts.type) else texts.cast(pa.string())


def _changes(ordered: Positions) -> Mask:
    """Return which values differ from the one before."""
    return np.concatenate(([True], ordered[1:] != ordered[:-1]))


def _first_occurrences(identities: Positions) -> Mask:
    """Return which values occur for the first time."""
    order, is_last = sorted_positions([pa.chunked_array([pa.array(identities)])])
    out = np.zeros(len(identities), np.bool_)
    out[order[np.concatenate(([True], is_last[:-1]))]] = True
    return out
