"""Texts of JSON -> their members or elements, as columns. No step looks at one text at a time.

A block of texts lies in memory as one run of bytes, a separator behind each text:

    bytes     {"id": 7, "tags": ["a:b"]}␞{"id": 8}␞
    tokens    the bytes { } [ ] : , " ␞ that do not stand inside a string         flatnonzero of a mask
    strings   a quote opens or closes; the parity of the quotes before a byte says which
    depth     opening minus closing brackets before a token
    members   the tokens of depth 1; a value lies between a colon and the next of them

Numbers, strings and nested values stay the bytes that they were, so nothing is rounded and no type is inferred.

`scan` accepts exactly what RFC 8259 calls JSON. What stands between two neighbouring tokens is nothing, a string or a
scalar, and a table says which of the three may stand between which tokens. A text that is not JSON gives no members
and is named in `faults`; it does not change what the other texts give. The separator is a control character, which JSON
does not allow anywhere, so a text that holds it is not JSON either.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from merganser.values import dataclass

ABSENT: Final = 0
NULL: Final = 1
TEXT: Final = 2
NUMBER: Final = 3
BOOLEAN: Final = 4
OBJECT: Final = 5
ARRAY: Final = 6

DEPTH_MAX: Final = 512
"""Brackets inside brackets that a text may have; every level costs a step over the block."""

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_SEPARATOR: Final = b"\x1e"
_END: Final = 0x1E
_PADDING: Final = bytes(8)
"""Behind the last byte, so that eight bytes can be read from everywhere."""
_BLOCK_BYTES: Final = 1 << 20
"""Bytes that are scanned at once: their tokens fit into the cache."""
_TRIMS_MAX: Final = 8

_QUOTE, _COMMA, _COLON, _BACKSLASH = b'",:\\'
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = b"{}[]"
_ESCAPED: Final = np.frombuffer(b'"\\/bfnrtu', np.uint8)


def _kinds_by_first_byte() -> Bytes:
    kinds = np.full(256, NUMBER, np.uint8)
    for byte, kind in zip(b'"{[ntf', (TEXT, OBJECT, ARRAY, NULL, BOOLEAN, BOOLEAN), strict=True):
        kinds[byte] = kind
    return kinds


KINDS: Final = _kinds_by_first_byte()
"""The kind of a value by its first byte; NUMBER for what begins no value."""

# What may stand between two tokens.
_NOTHING, _STRING, _SCALAR, _OTHER = range(4)
_CODES: Final = bytes.maketrans(b"{}[]:,\x1e", bytes(range(7)))
_COMMA_OF_ARRAY: Final = 7


def _grammar() -> bytes:
    """Return 256 bytes, 1 where it is allowed: token before * 32 + what stands between * 8 + token behind."""
    opened, closed, open_array, close_array, colon, comma, end, array_comma = range(8)
    allowed = np.zeros((8, 4, 8), bool)
    for before in (opened, comma):
        allowed[before, _STRING, colon] = True
    allowed[opened, _NOTHING, closed] = allowed[open_array, _NOTHING, close_array] = True
    # where a value stands: behind, and in front of
    for before, behind in (
        (colon, (comma, closed)),
        (open_array, (array_comma, close_array)),
        (array_comma, (array_comma, close_array)),
        (end, (end,)),
    ):
        for after in behind:
            allowed[before, _STRING : _SCALAR + 1, after] = True
        allowed[before, _NOTHING, [opened, open_array]] = True
    for before in (closed, close_array):
        allowed[before, _NOTHING, [closed, close_array, comma, array_comma, end]] = True
    allowed[end, _NOTHING, end] = True  # blank: the caller tells it from a value
    return allowed.tobytes()


_GRAMMAR: Final = _grammar()


@dataclass(frozen=True, slots=True)
class Children:
    """The members of the objects and the elements of the arrays among n texts.

    Attributes:
        faults: bool[n], whether a text is not JSON (a blank one is none either).
        roots: uint8[n], the kind of each text; ABSENT where it is blank or not JSON.
        parents: int64[m], rising: the text that each child lies in.
        names: the names of members, unescaped, null for one that is no text; empty for elements. With
            `wanted`, the positions of the names in it.
        kinds: uint8[m], the kind of each child.
        texts: string[m]: what stands between the quotes of a string, escapes and all; else the bytes of the value.
        counts: int64[n], how many children each text has, also such as were not wanted.
        inside: the members of those children that were to be looked into; its n is this m.
    """

    faults: Bools
    roots: Bytes
    parents: Ints
    names: pa.Array
    kinds: Bytes
    texts: pa.Array
    counts: Ints
    inside: Children | None = None


@dataclass(frozen=True, slots=True)
class Inside:
    """Which children to look into.

    Attributes:
        members: positions in the wanted names; those that are objects are looked into. None: all children, where no
            names are wanted.
        wanted: names of the members in them.
    """

    members: tuple[int, ...] | None
    wanted: pa.Array


def scan(
    texts: pa.Array, wanted: pa.Array | None = None, *, inside: Inside | None = None, trusted: bool = False
) -> Children:
    """Return the children of texts.

    Args:
        texts: string[n] without nulls, valid UTF-8.
        wanted: names of members; only these are returned, and elements never are.
        inside: children whose own members are returned too; of the children themselves then only the kind, and no
            text.
        trusted: the texts are values that `scan` gave, so they are JSON.
    """
    return _behind([_scan_block(block, wanted, inside, trusted) for block in _blocks(texts)])


def _behind(parts: Sequence[Children]) -> Children:
    """Return the children of texts that come behind each other."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part.roots) for part in parts)])
    inside = [part.inside for part in parts if part.inside is not None]
    return Children(
        np.concatenate([part.faults for part in parts]),
        np.concatenate([part.roots for part in parts]),
        np.concatenate([part.parents + start for part, start in zip(parts, starts[:-1], strict=True)]),
        pa.concat_arrays([part.names for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        pa.concat_arrays([part.texts for part in parts]),
        np.concatenate([part.counts for part in parts]),
        _behind(inside) if inside else None,
    )


def unescaped(texts: pa.Array) -> tuple[pa.Array, Bools]:
    """Return what strings of JSON mean, and bool[n]: which of them hold half a surrogate pair, so they mean no text.

    Args:
        texts: string[n] without nulls, what stands between the quotes.
    """
    wrong = np.zeros(len(texts), bool)
    escaped = pc.match_substring(texts, "\\")
    if not pc.any(escaped).as_py():
        return texts, wrong
    which = np.flatnonzero(escaped.to_numpy(zero_copy_only=False))
    few = texts.take(pa.array(which))
    halves = _lone_surrogates(few)
    if halves.any():
        wrong[which[halves]] = True
        few = pc.if_else(pa.array(halves), "", few)
    return pc.replace_with_mask(texts, escaped, _meaning(few)), wrong


def compact(texts: pa.Array) -> pa.Array:
    """Return JSON without the blanks between its parts."""
    blank = pc.match_substring_regex(texts, r"[ \t\r\n]")
    if not pc.any(blank).as_py():
        return texts
    without = pc.replace_substring_regex(texts.filter(blank), r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+', r"\1")
    return pc.replace_with_mask(texts, blank, without)


# strings

_PAIR: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF: Final = r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"


def _lone_surrogates(texts: pa.Array) -> Bools:
    # Escaped backslashes go first: '\\ud800' is six characters of text, and no half of a pair.
    maybe = pc.match_substring_regex(texts, _HALF)
    if not pc.any(maybe).as_py():
        return np.zeros(len(texts), bool)
    rest = pc.replace_substring_regex(pc.replace_substring(texts, r"\\", "/"), _PAIR, "")
    return np.asarray(pc.match_substring_regex(rest, _HALF))


def _meaning(texts: pa.Array) -> pa.Array:
    """Return what escaped strings mean: one file of JSON, a string a line, that Arrow's reader decodes."""
    lines = pc.binary_join_element_wise('{"":"', texts, '"}', "")
    data = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")[0].as_buffer()
    options = pj.ParseOptions(explicit_schema=pa.schema([("", pa.string())]), unexpected_field_behavior="ignore")
    read = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
    return pj.read_json(pa.BufferReader(data), read, options).column(0).combine_chunks()


# blocks


def _blocks(texts: pa.Array) -> list[pa.Array]:
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    if len(texts) == 0 or offsets[-1] - offsets[0] <= _BLOCK_BYTES:
        return [texts]
    ends = np.arange(int(offsets[0]) + _BLOCK_BYTES, int(offsets[-1]), _BLOCK_BYTES)
    cuts = [0, *dict.fromkeys(np.searchsorted(offsets, ends).tolist()), len(texts)]
    return [texts.slice(a, b - a) for a, b in pairwise(cuts) if b > a]


class _SpoilsError(Exception):
    """Some texts of a block would change what the texts behind them mean."""

    def __init__(self, texts: Ints) -> None:
        super().__init__()
        self.texts = texts


def _scan_block(texts: pa.Array, wanted: pa.Array | None, inside: Inside | None, trusted: bool) -> Children:
    faults = np.zeros(len(texts), bool)
    while True:
        try:
            return _Block(texts, faults, trusted).children(wanted, inside)
        except _SpoilsError as error:
            faults[error.texts] = True
            texts = pc.if_else(pa.array(faults), "", texts)


@dataclass(frozen=True, slots=True)
class _Level:
    """The tokens of one depth: those of one container after those of another.

    Attributes:
        tokens: their indices.
        opens: indices into `tokens` of the opening brackets.
        lengths: how many tokens each container has here, its brackets included.
        forms: the opening brackets.
    """

    tokens: Ints
    opens: Ints
    lengths: Ints
    forms: Bytes


class Padded:
    """Bytes of texts, with room behind them so that eight bytes can be read from everywhere.

    Attributes:
        buffer, data: the bytes.
        words: uint64 that begin at each of them.
    """

    def __init__(self, *parts: bytes | memoryview) -> None:
        self.buffer = pa.py_buffer(b"".join((*parts, _PADDING)))
        self.data = np.frombuffer(self.buffer, np.uint8)
        self.words = np.ndarray((len(self.data) - 7,), "<u8", self.buffer, strides=(1,))

    def are_scalars(self, starts: Ints, ends: Ints) -> Bools:
        """Return which stretches are a number, true, false or null."""
        length = ends - starts
        words = self.words[starts]
        first = np.minimum(length, 8)
        good = _digits((words & MASKS[first]) | _AFTER[first])
        longer = length > 8
        if longer.any():
            long = np.flatnonzero(longer)
            last = _digits(self.words[ends[long] - 8])
            if (length[long] > 16).any():
                more = np.maximum(ends[long] - 16, starts[long])
                last &= _digits(self.words[more])
            last &= length[long] <= 24
            good[long] &= last
        good &= (self.data[starts] != _ZERO) | (length == 1)
        good &= length > 0
        if not good.all():
            rest = np.flatnonzero(~good)
            size = length[rest]
            short = words[rest] & MASKS[np.minimum(size, 8)]
            found = (short == _WORD_NULL) | (short == _WORD_TRUE) | ((short == _WORD_FALSE) & (size == 5))
            good[rest[found]] = True
            rest = rest[~found]
            if len(rest):
                good[rest] = np.asarray(pc.match_substring_regex(self.strings(starts[rest], ends[rest]), _NUMBER))
        return np.asarray(good)

    def strings(self, starts: Ints, ends: Ints) -> pa.Array:
        """Return stretches that rise and do not overlap as strings."""
        bounds = np.empty(2 * len(starts), np.int32)
        bounds[::2] = starts
        bounds[1::2] = ends
        if not len(starts):
            return pa.array([], pa.string())
        pieces = pa.StringArray.from_buffers(len(bounds) - 1, pa.py_buffer(bounds), self.buffer)
        return pieces.take(pa.array(np.arange(0, len(bounds), 2)))


class _Block(Padded):
    """The tokens of some texts, a separator in front and behind each.

    Attributes:
        tokens: positions of all tokens outside of strings, and of the quotes.
        structure: indices into `tokens` of those that are no quotes.
        at: positions of these; what: their bytes.
        depth: brackets around each, its own included.
    """

    def __init__(self, texts: pa.Array, faults: Bools, trusted: bool) -> None:
        self.n = len(texts)
        self.texts = texts
        self.faults = faults
        ended = pc.binary_join_element_wise(texts, "", _SEPARATOR.decode())
        bounds = np.frombuffer(ended.buffers()[1], np.int32)
        body = ended.buffers()[2]
        body = b"" if body is None else memoryview(body)[bounds[ended.offset] : bounds[ended.offset + self.n]]
        super().__init__(_SEPARATOR, body)
        self.escapes = bool((self.data == _BACKSLASH).any())
        self._tokenize()
        self._nest()
        if not trusted:
            self._judge()

    # tokens

    def _tokenize(self) -> None:
        body = self.data[: -len(_PADDING)]
        if np.count_nonzero(body == _END) != self.n + 1:
            raise _SpoilsError(np.flatnonzero(np.asarray(pc.match_substring(self.texts, _SEPARATOR.decode()))))
        special = body < 0x20
        special |= body == _QUOTE
        special |= body == _COMMA
        special |= body == _COLON
        folded = body | 0x20  # { and [ fall together, } and ] too
        special |= folded == _OPEN_OBJECT
        special |= folded == _CLOSE_OBJECT
        if self.escapes:
            special[self._escaped_quotes()] = False
        at = np.flatnonzero(special)
        what = body.take(at)
        quotes = np.flatnonzero(what == _QUOTE)
        ends = np.flatnonzero(what == _END)
        before = np.searchsorted(quotes, ends) & 1
        if before.any():
            raise _SpoilsError(np.flatnonzero(before[1:] != before[:-1]))
        # the tokens between the quotes of a string are none
        inside = np.diff(quotes)[::2] - 1
        if inside.any():
            holding = np.flatnonzero(inside != 0)
            lengths = inside[holding]
            starts = quotes[2 * holding] + 1
            within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            outside = np.ones(len(at), bool)
            outside[np.repeat(starts, lengths) + within] = False
        else:
            outside = np.ones(len(at), bool)
        control = what < 0x20
        if np.count_nonzero(control) > self.n + 1:
            blanks = (what == 0x0A) | (what == 0x0D) | (what == 0x09)
            control[ends] = False
            self._fault(np.searchsorted(at[ends], at[control & ~(blanks & outside)]) - 1)
            outside &= ~control
        if not outside.all():
            at, what = at[outside], what[outside]
        self.tokens = at
        self.structure = np.flatnonzero(what != _QUOTE)
        self.at = at[self.structure]
        self.what = what[self.structure]

    def _escaped_quotes(self) -> Ints:
        slashes = np.flatnonzero(self.data[: -len(_PADDING)] == _BACKSLASH)
        first = np.ones(len(slashes), bool)
        np.not_equal(slashes[1:] - 1, slashes[:-1], out=first[1:])
        starts = np.maximum.accumulate(np.where(first, slashes, 0))
        escaped = slashes[(slashes - starts) & 1 == 0] + 1
        found = self.data[escaped]
        wrong = ~np.isin(found, _ESCAPED)
        digits = escaped[found == _ESCAPED[-1]]
        if len(digits):
            hexadecimal = np.ones(len(digits), bool)
            for i in range(1, 5):
                byte = self.data[digits + i]
                letter = (byte | 0x20) - np.uint8(0x61)
                hexadecimal &= ((byte - np.uint8(0x30)) < 10) | (letter < 6)
            wrong[np.flatnonzero(found == _ESCAPED[-1])[~hexadecimal]] = True
        if wrong.any():
            self._fault(np.searchsorted(np.flatnonzero(self.data[: -len(_PADDING)] == _END), escaped[wrong]) - 1)
        quotes: Ints = escaped[found == _QUOTE]
        return quotes

    # depth

    def _nest(self) -> None:
        folded = self.what | 0x20
        self.opens = folded == _OPEN_OBJECT
        self.closes = folded == _CLOSE_OBJECT
        height = np.cumsum(self.opens.view(np.int8) - self.closes.view(np.int8), dtype=np.int32)
        self.ends = np.flatnonzero(self.what == _END)
        at_ends = height[self.ends]
        if at_ends.any() or height.min() < 0:
            lowest = np.minimum.reduceat(height, self.ends[:-1])
            raise _SpoilsError(np.flatnonzero((at_ends[1:] != at_ends[:-1]) | (lowest < at_ends[:-1])))
        self.depth = height
        self.depth += self.closes
        if self.depth.max() > DEPTH_MAX:
            highest = np.maximum.reduceat(self.depth, self.ends[:-1])
            raise _SpoilsError(np.flatnonzero(highest > DEPTH_MAX))
        self.levels = [self._level(1)]

    def _level(self, depth: int) -> _Level:
        tokens = np.flatnonzero(self.depth == depth)
        opens = np.flatnonzero(self.opens[tokens])
        ends = np.empty(len(opens) + 1, np.int64)
        ends[:-1], ends[-1] = opens, len(tokens)
        return _Level(tokens, opens, ends[1:] - ends[:-1], self.what[tokens[opens]])

    # grammar

    def _judge(self) -> None:
        codes = np.frombuffer(bytearray(self.what.tobytes().translate(_CODES)), np.uint8)
        level, deepest = self.levels[0], int(self.depth.max())
        while True:
            wrong = self.what[level.tokens[level.opens + level.lengths - 1]] != level.forms + 2
            if wrong.any():
                self._fault_tokens(level.tokens[level.opens[wrong]])
            arrays = level.forms == _OPEN_ARRAY
            if arrays.any():
                inside = level.tokens[np.repeat(arrays, level.lengths)]
                codes[inside[self.what[inside] == _COMMA]] = _COMMA_OF_ARRAY
            if len(self.levels) >= deepest:
                break
            level = self._level(len(self.levels) + 1)
            self.levels.append(level)
        pairs = codes[:-1] << 5
        pairs |= codes[1:]
        pairs |= self._between() << 3
        allowed = pairs.tobytes().translate(_GRAMMAR)
        if b"\0" in allowed:
            self._fault_tokens(np.flatnonzero(np.frombuffer(allowed, np.uint8) == 0))

    def _between(self) -> Bytes:
        """Return what stands between neighbouring tokens: uint8[tokens - 1]."""
        quotes = np.diff(self.structure) - 1
        room = np.diff(self.at) - 1
        found = (quotes == 2).view(np.uint8)
        steps = np.diff(self.tokens)
        first = np.flatnonzero(found.view(bool))
        opening = self.structure[first] + 1
        loose = (steps[opening - 1] != 1) | (steps[opening + 1] != 1)
        if loose.any():
            gaps = first[loose]
            starts, ends = self._trimmed(self.at[gaps] + 1, self.at[gaps + 1])
            quoted = (starts == self.tokens[opening[loose]]) & (ends == self.tokens[opening[loose] + 1] + 1)
            found[gaps[~quoted]] = _OTHER
        if first.size * 2 != len(self.tokens) - len(self.at):
            found[(quotes != 0) & (quotes != 2)] = _OTHER
        scalars = np.flatnonzero((quotes == 0) & (room > 0))
        starts, ends = self._trimmed(self.at[scalars] + 1, self.at[scalars + 1])
        found[scalars] = np.where(ends == starts, _NOTHING, np.where(self.are_scalars(starts, ends), _SCALAR, _OTHER))
        return np.asarray(found)

    def _trimmed(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """Return stretches without the blanks at both ends; an empty one where all is blank."""
        starts, ends = starts.copy(), ends.copy()
        # no other bytes up to the blank stand outside of strings
        live = np.flatnonzero((self.data[starts] <= 0x20) & (starts < ends))
        for _ in range(_TRIMS_MAX):
            if not len(live):
                break
            starts[live] += 1
            live = live[(starts[live] < ends[live]) & (self.data[starts[live]] <= 0x20)]
        tail = np.flatnonzero((self.data[ends - 1] <= 0x20) & (starts < ends))
        for _ in range(_TRIMS_MAX):
            if not len(tail):
                break
            ends[tail] -= 1
            tail = tail[(starts[tail] < ends[tail]) & (self.data[ends[tail] - 1] <= 0x20)]
        if len(live) or len(tail):
            marks = np.flatnonzero((self.data > 0x20) | (self.data == _END))
            starts[live] = np.minimum(marks[np.searchsorted(marks, starts[live])], ends[live])
            tail = tail[starts[tail] < ends[tail]]
            ends[tail] = marks[np.searchsorted(marks, ends[tail]) - 1] + 1
        return starts, ends

    # faults

    def _fault_tokens(self, tokens: Ints) -> None:
        self._fault(np.searchsorted(self.ends, tokens, side="right") - 1)

    def _fault(self, texts: Ints) -> None:
        self.faults[texts] = True

    # children

    def children(self, wanted: pa.Array | None, inside: Inside | None) -> Children:
        level = self.levels[0]
        what = self.what[level.tokens]
        begins = what == _COLON
        arrays = level.forms == _OPEN_ARRAY
        if arrays.any():
            begins |= np.repeat(arrays, level.lengths) & ((what == _OPEN_ARRAY) | (what == _COMMA))
        first = np.flatnonzero(begins)
        tokens = level.tokens[first]
        parents = np.repeat(np.arange(self.n), np.diff(np.searchsorted(tokens, self.ends)))
        starts, ends = self._trimmed(self.at[tokens] + 1, self.at[level.tokens[first + 1]])
        kept = ends > starts  # an empty array has no element
        if self.faults.any():
            kept &= ~self.faults[parents]
        if not kept.all():
            tokens, parents, starts, ends = (x[kept] for x in (tokens, parents, starts, ends))
        counts = np.bincount(parents, minlength=self.n)
        names, found = self._names(tokens, starts, wanted)
        if found is not None:
            tokens, parents, starts, ends = (x[found] for x in (tokens, parents, starts, ends))
        kinds = KINDS[self.data[starts]]
        within = None
        if inside is not None:
            into = kinds == OBJECT
            if inside.members is not None:
                chosen = np.zeros(len(wanted or ()), bool)
                chosen[list(inside.members)] = True
                into &= chosen[np.asarray(names)]
            within = self._inside(tokens, into, kinds, inside.wanted)
            ends = np.where(into, starts, ends)
        texts = self._texts(starts, ends, kinds)
        return Children(self.faults, self._root_kinds(), parents, names, kinds, texts, counts, within)

    def _inside(self, tokens: Ints, into: Bools, kinds: Bytes, wanted: pa.Array) -> Children:
        """Return the members of some children.

        Args:
            tokens: the colon in front of each child.
            into: which of them are objects to look into.
            kinds: the kinds of all.
            wanted: names of members.
        """
        level = self.levels[1] if len(self.levels) > 1 else self._level(2)
        child = np.full(len(level.opens), -1)
        child[np.searchsorted(level.tokens[level.opens], tokens[into] + 1)] = np.flatnonzero(into)
        parents = np.repeat(child, level.lengths)
        first = np.flatnonzero((self.what[level.tokens] == _COLON) & (parents >= 0))
        parents, colons = parents[first], level.tokens[first]
        starts, ends = self._trimmed(self.at[colons] + 1, self.at[level.tokens[first + 1]])
        counts = np.bincount(parents, minlength=len(tokens))
        names, found = self._names(colons, starts, wanted)
        if found is not None:
            parents, starts, ends = parents[found], starts[found], ends[found]
        own = KINDS[self.data[starts]]
        return Children(np.zeros(len(tokens), bool), kinds, parents, names, own, self._texts(starts, ends, own), counts)

    def _texts(self, starts: Ints, ends: Ints, kinds: Bytes) -> pa.Array:
        quoted = kinds == TEXT
        return self.strings(starts + quoted, ends - quoted)

    def _names(self, tokens: Ints, starts: Ints, wanted: pa.Array | None) -> tuple[pa.Array, Ints | None]:
        """Return the names of children, or the positions in the wanted names with the children that have them.

        Args:
            tokens: what is in front of each child: the colon of a member, or else.
            starts: where each child begins.
        """
        member = self.what[tokens] == _COLON
        opening = self.tokens[self.structure[tokens] - 2] + 1
        closing = self.tokens[self.structure[tokens] - 1]
        if not member.all():
            opening, closing = np.where(member, opening, starts), np.where(member, closing, starts)
        names = self.strings(opening, closing)
        if self.escapes:
            names, halves = unescaped(names)
            if halves.any():
                names = pc.if_else(pa.array(halves), None, names)
        if wanted is not None:
            codes = pc.index_in(names, value_set=wanted)
            found = np.flatnonzero(np.asarray(codes.is_valid()) & member)
            return codes.take(pa.array(found)), found
        return names, None

    def _root_kinds(self) -> Bytes:
        ends = self.at[self.ends]
        starts, stops = self._trimmed(ends[:-1] + 1, ends[1:])
        return np.where((starts == stops) | self.faults, np.uint8(ABSENT), KINDS[self.data[starts]])


_ZERO: Final = 0x30
_NUMBER: Final = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
MASKS: Final = np.array([(1 << (8 * i)) - 1 for i in range(9)], np.uint64)
_ZEROS: Final = np.uint64(0x3030303030303030)
_AFTER: Final = _ZEROS & ~MASKS
_HIGH: Final = np.uint64(0xF0F0F0F0F0F0F0F0)
_SIXES: Final = np.uint64(0x0606060606060606)
_WORD_NULL, _WORD_TRUE, _WORD_FALSE = (np.uint64(int.from_bytes(w, "little")) for w in (b"null", b"true", b"false"))


def _digits(words: Any) -> Any:
    """Return which words of eight bytes are digits alone."""
    found = (words & _HIGH) == _ZEROS
    found &= ((words + _SIXES) & _HIGH) == _ZEROS
    return found
