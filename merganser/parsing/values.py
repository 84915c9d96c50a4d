"""Cells -> a column of a type. What a cell may look like for which type is section "Values" of docs/cdc.md."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.parsing.binary import decoded, integers_of, looks_hexadecimal, reversed_bytes
from merganser.parsing.cells import NO_TEXT, Cells, cells_of, joined, places, repeated
from merganser.parsing.json_scan import ARRAY, NULL, NUMBER, OBJECT, TEXT, Bools, Children, Ints, compact, scan
from merganser.parsing.numbers import booleans, decimals, floats, integers
from merganser.parsing.outcome import Read, read, spread, spread_bad, whys
from merganser.parsing.rules import BASE64_UNSAID, PLAIN, Encoding, Rules
from merganser.parsing.times import clock_texts, dates, times, timestamps
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type

_NO_TEXT_WHY: Final = "holds half a surrogate pair"
_SHOWN_MAX: Final = 60
_SCALE_MAX: Final = 20_000
"""Maximum digits behind the point of a number that is written out; PostgreSQL has up to 16,383."""
_PADDED_MAX: Final = 512
"""Maximum width of bit strings, in bits, to which shorter values are filled up with zeros. Debezium also tells a width
for strings that may be shorter, and 2147483647 for those without a limit. So wider ones stay as they are sent."""
_LOOKS_HEX: Final = "is read as base64 and looks like hexadecimal. Set binary='hex', or binary='base64' if it is base64"


def column(given: Cells, kind: t.DataType, encoding: Encoding, rules: Rules) -> Read:
    """Return cells as values of a type.

    Args:
        given: n cells.
        kind: the type of the column.
        encoding: what is known of the form of the values.
        rules: what the caller chose for the column.
    """
    sent = given.kinds
    given, undecoded = _decoded(given, kind, encoding, rules)
    found = _typed(given, kind, encoding, rules)
    if found.bad.any():
        number = (given.kinds == NUMBER) & (sent != NUMBER)
        if (found.bad & number).any():
            found = Read(found.values, found.bad, _which_number(given.texts, found.why, number))
    if undecoded.any():
        found = read(found.values, found.bad | undecoded, found.why)
    if (given.kinds == NO_TEXT).any():
        broken = given.kinds == NO_TEXT
        why = found.why if isinstance(found.why, pa.Array) else pa.array([found.why] * len(broken), pa.string())
        found = read(found.values, found.bad | broken, pc.if_else(pa.array(broken), _NO_TEXT_WHY, why))
    return found


def of_texts(given: pa.Array, kind: t.DataType, rules: Rules) -> Read:
    """Return texts as values of a type; null texts are null.

    Args:
        given: string[n].
        kind: the type of the column.
        rules: what the caller chose for the column.
    """
    kinds = np.where(np.asarray(given.is_null()), np.uint8(NULL), np.uint8(TEXT))
    return column(Cells(kinds, given.fill_null("")), kind, PLAIN, rules)


def _typed(given: Cells, kind: t.DataType, encoding: Encoding, rules: Rules) -> Read:
    match kind:
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            return integers(given, kind, places=rules.places)
        case t.Float() | t.Double():
            return floats(given, kind)
        case t.Decimal():
            return decimals(given, kind, rules)
        case t.Boolean():
            return booleans(given)
        case t.Char() | t.VarChar():
            return _texts(given, kind, encoding)
        case t.Binary() | t.VarBinary():
            return _binaries(given, kind, encoding, rules)
        case t.Date():
            return dates(given, kind, encoding, rules)
        case t.Time():
            return times(given, kind, encoding, rules)
        case t.Timestamp() | t.LocalZonedTimestamp():
            return timestamps(given, kind, encoding, rules)
        case t.Array():
            return _arrays(given, kind, encoding, rules)
        case t.Map():
            return _maps(given, kind, encoding, rules)
        case t.Row():
            return _rows(given, kind, encoding, rules)
    raise AssertionError(kind)


def _which_number(numbers: pa.Array, why: pa.Array | str, at: Bools) -> pa.Array:
    """Return reasons that begin with the number: a reason shows the value as it is sent, and that is base64.

    Args:
        at: for which values.
    """
    cut = pc.utf8_slice_codeunits(numbers, 0, _SHOWN_MAX)
    shown = pc.if_else(pc.equal(cut, numbers), cut, pc.binary_join_element_wise(cut, "...", ""))
    digits = pc.utf8_length(pc.replace_substring_regex(numbers, r"[^0-9]|^-?0\.0*", ""))
    told = pc.binary_join_element_wise(
        "is the number ", shown, " of ", digits.cast(pa.string()), " digits, which ", why, ""
    )
    return pc.if_else(pa.array(at), told, why)


def readable(kind: t.DataType) -> bool:
    """Return whether values of a type can be read from change records."""
    match kind:
        case t.Array(element=element):
            return readable(element)
        case t.Map(key=key, value=value):
            return readable(key) and readable(value)
        case t.Row(fields=fields):
            return all(readable(field.type) for field in fields)
    return isinstance(
        kind,
        t.TinyInt | t.SmallInt | t.Int | t.BigInt | t.Float | t.Double | t.Decimal | t.Boolean | t.Char | t.VarChar
        | t.Binary | t.VarBinary | t.Date | t.Time | t.Timestamp | t.LocalZonedTimestamp,
    )  # fmt: skip


# text and bytes


def _texts(given: Cells, kind: t.Char | t.VarChar, encoding: Encoding) -> Read:
    texts = given.texts
    if encoding.form == "clock":
        counted, clocks = clock_texts(given, encoding.unit or "us")
        texts = _put(texts, counted, clocks)
    elif encoding.form == "escaped":
        texts = pc.replace_substring(texts, "\\,", ",")
    nested = (given.kinds == OBJECT) | (given.kinds == ARRAY)
    if nested.any():
        texts = pc.replace_with_mask(texts, pa.array(nested), compact(texts.filter(pa.array(nested))))
    bad = np.zeros(len(texts), bool)
    if kind.length != t.LENGTH_MAX:
        bad = np.asarray(pc.greater(pc.utf8_length(texts), kind.length)) & ~given.empty
    empty = given.empty
    if empty.any():
        texts = pc.if_else(pa.array(empty), pa.scalar(None, pa.string()), texts)
    return read(texts, bad, f"does not fit {_name(kind)}")


def _binaries(given: Cells, kind: t.Binary | t.VarBinary, encoding: Encoding, rules: Rules) -> Read:
    at = given.kinds == TEXT
    form = "base64" if encoding.form in ("bytes", "bits", "geometry") else str(rules.binary)
    texts = given.texts.filter(pa.array(at))
    values, wrong = decoded(texts, form)
    if encoding.form == "bits":
        values = reversed_bytes(values.fill_null(b""), -(-encoding.bits // 8) if encoding.bits <= _PADDED_MAX else 0)
    hexadecimal = looks_hexadecimal(texts) if form == BASE64_UNSAID else np.zeros(len(texts), bool)
    wrong = wrong | hexadecimal
    long = np.asarray(pc.greater(pc.binary_length(values), kind.length).fill_null(False))
    wrong_all, long_all = spread_bad(wrong, at), spread_bad(long, at)
    bad = (~at & ~given.empty) | wrong_all | long_all
    why = whys(
        (spread_bad(hexadecimal, at), _LOOKS_HEX),
        (long_all, f"does not fit {_name(kind)}"),
        otherwise=f"is no {_name(kind)} as {'base64' if form == BASE64_UNSAID else form}",
    )
    return read(spread(values, at), bad, why)


# forms that a schema beside the values tells


def _decoded(given: Cells, kind: t.DataType, encoding: Encoding, rules: Rules) -> tuple[Cells, Bools]:
    """Return cells in the form that their type is read from without an encoding, and which are broken."""
    none = np.zeros(len(given.kinds), bool)
    match encoding.form:
        case "decimal":
            return _scaled(given, np.full(len(none), encoding.scale))
        case "" if isinstance(kind, t.Decimal):
            given, broken = _variable(given) if (given.kinds == OBJECT).any() else (given, none)
            if rules.decimal != "base64":
                return given, broken
            given, wrong = _scaled(given, np.full(len(none), kind.scale))
            return given, wrong | broken
        case "variable-decimal":
            return _variable(given)
        case "bits" if not isinstance(kind, t.Binary | t.VarBinary | t.Char | t.VarChar | t.Boolean):
            at = given.kinds == TEXT
            values, wrong = decoded(given.texts.filter(pa.array(at)), "base64")
            digits = integers_of(values.fill_null(b""), little=True, signed=False)
            return _replaced(given, at, NUMBER, digits), spread_bad(wrong, at)
        case "geometry" if isinstance(kind, t.Binary | t.VarBinary):
            at = given.kinds == OBJECT
            members = scan(given.texts.filter(pa.array(at)), pa.array(["wkb"]), trusted=True)
            parts = cells_of(members).take(places(members, 1)[:, 0])
            kinds = given.kinds.copy()
            kinds[at] = parts.kinds
            return Cells(kinds, _put(given.texts, at, parts.texts)), none
        case "set" if isinstance(kind, t.Array):
            return _split(given), none
        case "enum-index" | "set-mask":
            return _labelled(given, kind, encoding)
    return given, none


def _scaled(given: Cells, scales: np.ndarray) -> tuple[Cells, Bools]:  # type: ignore[type-arg]
    """Return base64 of whole numbers as numbers with so many digits behind the point."""
    at = given.kinds == TEXT
    values, wrong = decoded(given.texts.filter(pa.array(at)), "base64")
    empty = np.asarray(pc.equal(pc.binary_length(values), 0).fill_null(False))
    texts = _pointed(integers_of(values.fill_null(b"")), scales[at])
    return _replaced(given, at, NUMBER, texts), spread_bad(wrong | empty, at)


def _pointed(digits: pa.Array, scales: np.ndarray) -> pa.Array:  # type: ignore[type-arg]
    """Return whole numbers divided by ten as often as their scales say."""
    plain = np.unique(scales).tolist() if len(scales) < 64 else list(dict.fromkeys(scales.tolist()))
    for scale in plain:
        if scale == 0:
            continue
        at = pa.array(scales == scale)
        few = digits.filter(at)
        if abs(scale) > _SCALE_MAX:
            few = pc.binary_join_element_wise(few, str(-scale), "e")
        elif scale < 0:
            few = pc.if_else(pc.equal(few, "0"), "0", pc.binary_join_element_wise(few, "0" * -scale, ""))
        else:
            sign = pc.if_else(pc.starts_with(few, "-"), "-", "")
            padded = pc.utf8_lpad(pc.utf8_ltrim(few, characters="-"), width=scale + 1, padding="0")
            whole = pc.utf8_slice_codeunits(padded, start=0, stop=-scale)
            few = pc.binary_join_element_wise(sign, whole, ".", pc.utf8_slice_codeunits(padded, start=-scale), "")
        digits = pc.replace_with_mask(digits, at, few)
    return digits


def _variable(given: Cells) -> tuple[Cells, Bools]:
    """Return objects of a scale and the base64 of a whole number as numbers."""
    at = given.kinds == OBJECT
    members = scan(given.texts.filter(pa.array(at)), pa.array(["scale", "value"]), trusted=True)
    parts, where = cells_of(members), places(members, 2)
    scales = integers(parts.take(where[:, 0]), t.Int())
    value, wrong = _scaled(parts.take(where[:, 1]), np.asarray(scales.values.fill_null(0)))
    wrong = wrong | scales.bad | np.asarray(scales.values.is_null()) | (value.kinds != NUMBER)
    return _replaced(given, at, NUMBER, value.texts), spread_bad(wrong, at)


def _labelled(given: Cells, kind: t.DataType, encoding: Encoding) -> tuple[Cells, Bools]:
    """Return indices of enums and masks of sets as labels; what is no whole number is a label."""
    at = (given.kinds == TEXT) | (given.kinds == NUMBER)
    texts = given.texts.filter(pa.array(at))
    digits = np.asarray(pc.match_substring_regex(texts, r"^[0-9]{1,18}$"))
    numbers = np.asarray(pc.if_else(pa.array(digits), texts, "0").cast(pa.int64()))
    labels = pa.array(encoding.labels, pa.string())
    if encoding.form == "enum-index":
        bad = digits & (numbers > len(labels))
        # 0 is MySQL's mark of a label that was refused when it was written: the empty text
        chosen = pa.concat_arrays([pa.array([""]), labels]).take(pa.array(np.where(bad, 0, numbers)))
        return _replaced(given, at, TEXT, pc.if_else(pa.array(digits), chosen, texts)), spread_bad(bad, at)
    bad = digits & (numbers >> len(labels) != 0)
    named = pa.array([""] * len(texts), pa.string())
    for i, label in enumerate(encoding.labels):
        has = (numbers >> i) & 1 == 1
        glue = pc.if_else(pc.equal(named, ""), label, pc.binary_join_element_wise(named, label, ","))
        named = pc.if_else(pa.array(has), glue, named)
    masked = _replaced(given, at, TEXT, pc.if_else(pa.array(digits), named, texts))
    return (_split(masked) if isinstance(kind, t.Array) else masked), spread_bad(bad, at)


def _split(given: Cells) -> Cells:
    """Return labels joined by commas as arrays of JSON."""
    at = given.kinds == TEXT
    texts = given.texts.filter(pa.array(at))
    quoted = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    lists = pc.binary_join_element_wise('["', pc.replace_substring(quoted, ",", '","'), '"]', "")
    return _replaced(given, at, ARRAY, pc.if_else(pc.equal(texts, ""), "[]", lists))


def _replaced(given: Cells, at: Bools, kind: int, texts: pa.Array) -> Cells:
    return Cells(np.where(at, np.uint8(kind), given.kinds), _put(given.texts, at, texts))


def _put(texts: pa.Array, at: Bools, others: pa.Array) -> pa.Array:
    return pc.replace_with_mask(texts, pa.array(at), others) if at.any() else texts


# nested


def _arrays(given: Cells, kind: t.Array, encoding: Encoding, rules: Rules) -> Read:
    at, texts = _nested(given)
    found = scan(texts)
    wrong = found.roots != ARRAY
    kept = ~wrong[found.parents] if len(found.parents) else np.zeros(0, bool)
    inner = column(cells_of(found).filter(kept), kind.element, encoding.of("element"), rules)
    parents = found.parents[kept]
    wrong[parents[inner.bad]] = True
    if not kind.element.nullable and not rules.lacking:
        wrong[parents[np.asarray(inner.values.is_null())]] = True
    counts = np.bincount(parents, minlength=len(texts))
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    values = pa.ListArray.from_arrays(offsets, inner.values, type=arrow_type(kind))
    return _outer(values, at, wrong, given, kind)


def _maps(given: Cells, kind: t.Map, encoding: Encoding, rules: Rules) -> Read:
    at, texts = _nested(given)
    found = scan(texts)
    parents, keys_given, values_given, wrong = _entries(found, kind, rules)
    keys = column(keys_given, kind.key, encoding.of("key"), rules)
    items = column(values_given, kind.value, encoding.of("value"), rules)
    lost = keys.bad | items.bad | np.asarray(keys.values.is_null())
    if not kind.value.nullable and not rules.lacking:
        lost = lost | np.asarray(items.values.is_null())
    wrong[parents[lost]] = True
    good = ~wrong[parents] if len(parents) else np.zeros(0, bool)
    counts = np.bincount(parents[good], minlength=len(texts))
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    entries = [values.filter(pa.array(good)) for values in (keys.values, items.values)]
    values = pa.MapArray.from_arrays(offsets, *entries, type=arrow_type(kind))
    return _outer(values, at, wrong, given, kind)


def _entries(found: Children, kind: t.Map, rules: Rules) -> tuple[Ints, Cells, Cells, Bools]:
    """Return the entries of maps: the map of each, its key and its value; and which maps are none.

    A map is an object, or, if its keys are no text, a list of pairs, as Kafka Connect writes it. In files it is a list
    of `{"key": ..., "value": ...}`.
    """
    roots, parents, cells = found.roots, found.parents, cells_of(found)
    listed_too = rules.files or not isinstance(kind.key, t.Char | t.VarChar)
    wrong = ~(((roots == OBJECT) & (not rules.files)) | ((roots == ARRAY) & listed_too))
    kept = ~wrong[parents] if len(parents) else np.zeros(0, bool)
    of_object = kept & (roots[parents] == OBJECT) if len(parents) else kept
    broken = of_object & np.asarray(found.names.is_null()) if len(found.names) else of_object
    wrong[parents[broken]] = True
    plain = np.flatnonzero(of_object & ~broken)
    if len(plain):
        plain = plain[_last_of_equal(parents[plain], found.names.take(pa.array(plain)))]
        names = Cells(np.full(len(plain), TEXT, np.uint8), found.names.take(pa.array(plain)))
    else:
        names = Cells.absent(0)
    listed = np.flatnonzero(kept & ~of_object)
    of_list, keys, values, no_pairs = _pairs(cells.take(listed), rules)
    wrong[parents[listed[no_pairs]]] = True
    order = np.argsort(np.concatenate([parents[plain], parents[listed[of_list]]]), kind="stable")
    return (
        np.concatenate([parents[plain], parents[listed[of_list]]])[order],
        joined([names, keys]).take(order),
        joined([cells.take(plain), values]).take(order),
        wrong,
    )


def _pairs(elements: Cells, rules: Rules) -> tuple[Ints, Cells, Cells, Bools]:
    """Return which elements of lists are entries of maps, their keys and values, and which elements are none."""
    if rules.files:
        found = scan(elements.texts, pa.array(["key", "value"]), trusted=True)
        where = places(found, 2)
        good = (elements.kinds == OBJECT) & (where >= 0).all(axis=1) & (found.counts == 2)
    else:
        found = scan(elements.texts, trusted=True)
        good = (elements.kinds == ARRAY) & (found.counts == 2)
        first = np.cumsum(found.counts) - found.counts
        where = np.column_stack([first, first + 1])
    cells, which = cells_of(found), np.flatnonzero(good)
    return which, cells.take(where[which, 0]), cells.take(where[which, 1]), ~good


def _rows(given: Cells, kind: t.Row, encoding: Encoding, rules: Rules) -> Read:
    at, texts = _nested(given)
    names = [field.name for field in kind.fields]
    found = scan(texts, pa.array(names, pa.string()))
    wrong = found.roots != OBJECT
    if rules.files:
        wrong[repeated(found.parents, np.asarray(found.names, dtype=np.int64))] = True
    members, where = cells_of(found), places(found, len(names))
    children = []
    for i, field in enumerate(kind.fields):
        inner = column(members.take(where[:, i]), field.type, encoding.of(field.name), rules)
        wrong = wrong | inner.bad
        if not field.type.nullable and not rules.lacking:
            wrong = wrong | np.asarray(inner.values.is_null())
        children.append(inner.values)
    values = pa.StructArray.from_arrays(children, fields=list(arrow_type(kind)), mask=pa.array(wrong))
    return _outer(values, at, wrong, given, kind)


def _nested(given: Cells) -> tuple[Bools, pa.Array]:
    """Return which cells are nested values or text that may hold one, and their JSON."""
    at = (given.kinds == OBJECT) | (given.kinds == ARRAY) | (given.kinds == TEXT)
    return at, given.texts.filter(pa.array(at))


def _outer(values: pa.Array, at: Bools, wrong: Bools, given: Cells, kind: t.DataType) -> Read:
    place = np.where(at, np.cumsum(at) - 1, 0)
    gone = ~at
    gone[at] = wrong
    # taken, not masked: what bad values hold stays behind
    taken = values.take(pa.array(place, mask=gone)) if len(at) else values
    return Read(taken, spread_bad(wrong, at) | (~at & ~given.empty), f"is no {_name(kind)}")


def _last_of_equal(parents: np.ndarray, names: pa.Array) -> np.ndarray:  # type: ignore[type-arg]
    """Return the positions of pairs that no later pair equals, in order."""
    codes = np.asarray(names.dictionary_encode().indices, dtype=np.int64)
    order = np.lexsort((codes, parents))
    last = np.ones(len(order), bool)
    last[:-1] = (parents[order][1:] != parents[order][:-1]) | (codes[order][1:] != codes[order][:-1])
    return np.sort(order[last])


def _name(kind: t.DataType) -> str:
    return str(kind.with_nullable(True))
