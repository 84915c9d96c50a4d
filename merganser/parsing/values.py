"""Cells -> a column of a type. What a cell may look like for which type is section "Values" of docs/cdc.md."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.parsing.binary import decoded, integers_of, reversed_bytes
from merganser.parsing.cells import NO_TEXT, Cells, cells_of, places
from merganser.parsing.json_scan import ARRAY, NUMBER, OBJECT, TEXT, Bools, compact, scan
from merganser.parsing.numbers import booleans, decimals, floats, integers
from merganser.parsing.outcome import Read, read, spread, spread_bad, whys
from merganser.parsing.rules import Encoding, Rules
from merganser.parsing.times import dates, times, timestamps
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type

_NO_TEXT_WHY: Final = "holds half a surrogate pair"


def column(given: Cells, kind: t.DataType, encoding: Encoding, rules: Rules, unit: str | None) -> Read:
    """Return cells as values of a type.

    Args:
        given: n cells.
        kind: the type of the column.
        encoding: what is known of the form of the values.
        rules: what the caller chose.
        unit: of integers that stand for times, if the caller chose one for this column.
    """
    given, undecoded = _decoded(given, kind, encoding, rules)
    found = _typed(given, kind, encoding, rules, unit)
    if undecoded.any():
        found = read(found.values, found.bad | undecoded, found.why)
    if (given.kinds == NO_TEXT).any():
        broken = given.kinds == NO_TEXT
        why = found.why if isinstance(found.why, pa.Array) else pa.array([found.why] * len(broken), pa.string())
        found = read(found.values, found.bad | broken, pc.if_else(pa.array(broken), _NO_TEXT_WHY, why))
    return found


def _typed(given: Cells, kind: t.DataType, encoding: Encoding, rules: Rules, unit: str | None) -> Read:
    match kind:
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            return integers(given, kind)
        case t.Float() | t.Double():
            return floats(given, kind)
        case t.Decimal():
            return decimals(given, kind)
        case t.Boolean():
            return booleans(given)
        case t.Char() | t.VarChar():
            return _texts(given, kind)
        case t.Binary() | t.VarBinary():
            return _binaries(given, kind, encoding, rules)
        case t.Date():
            return dates(given, kind, encoding, rules)
        case t.Time():
            return times(given, kind, encoding, rules, unit)
        case t.Timestamp() | t.LocalZonedTimestamp():
            return timestamps(given, kind, encoding, rules, unit)
        case t.Array():
            return _arrays(given, kind, encoding, rules, unit)
        case t.Map():
            return _maps(given, kind, encoding, rules, unit)
        case t.Row():
            return _rows(given, kind, encoding, rules, unit)
    raise AssertionError(kind)


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


def _texts(given: Cells, kind: t.Char | t.VarChar) -> Read:
    texts = given.texts
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
    form = "base64" if encoding.form in ("bytes", "bits", "geometry") else rules.binary
    values, wrong = decoded(given.texts.filter(pa.array(at)), form)
    if encoding.form == "bits":
        values = reversed_bytes(values.fill_null(b""))
    long = np.asarray(pc.greater(pc.binary_length(values), kind.length).fill_null(False))
    wrong_all, long_all = spread_bad(wrong, at), spread_bad(long, at)
    bad = (~at & ~given.empty) | wrong_all | long_all
    why = whys((long_all, f"does not fit {_name(kind)}"), otherwise=f"is no {_name(kind)} as {form}")
    return read(spread(values, at), bad, why)


# forms that a schema beside the values tells


def _decoded(given: Cells, kind: t.DataType, encoding: Encoding, rules: Rules) -> tuple[Cells, Bools]:
    """Return cells in the form that their type is read from without an encoding, and which are broken."""
    none = np.zeros(len(given.kinds), bool)
    match encoding.form:
        case "decimal":
            return _scaled(given, np.full(len(none), encoding.scale))
        case "" if rules.decimal == "base64" and isinstance(kind, t.Decimal):
            return _scaled(given, np.full(len(none), kind.scale))
        case "variable-decimal":
            return _variable(given)
        case "bits" if not isinstance(kind, t.Binary | t.VarBinary | t.Char | t.VarChar | t.Boolean):
            at = given.kinds == TEXT
            values, wrong = decoded(given.texts.filter(pa.array(at)), "base64")
            digits, long = integers_of(values, little=True, signed=False)
            return _replaced(given, at, NUMBER, digits), spread_bad(wrong | long, at)
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
    digits, long = integers_of(values)
    texts = _pointed(digits, scales[at])
    return _replaced(given, at, NUMBER, texts), spread_bad(wrong | long | empty, at)


def _pointed(digits: pa.Array, scales: np.ndarray) -> pa.Array:  # type: ignore[type-arg]
    """Return whole numbers divided by ten as often as their scales say."""
    plain = np.unique(scales).tolist() if len(scales) < 64 else list(dict.fromkeys(scales.tolist()))
    for scale in plain:
        if scale == 0:
            continue
        at = pa.array(scales == scale)
        few = digits.filter(at)
        if scale < 0 or scale > 64:
            few = pc.binary_join_element_wise(few, str(-scale), "e")
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


def _arrays(given: Cells, kind: t.Array, encoding: Encoding, rules: Rules, unit: str | None) -> Read:
    at, texts = _nested(given)
    found = scan(texts)
    wrong = found.roots != ARRAY
    kept = ~wrong[found.parents] if len(found.parents) else np.zeros(0, bool)
    inner = column(cells_of(found).filter(kept), kind.element, encoding.of("element"), rules, unit)
    parents = found.parents[kept]
    wrong[parents[inner.bad]] = True
    if not kind.element.nullable:
        wrong[parents[np.asarray(inner.values.is_null())]] = True
    counts = np.bincount(parents, minlength=len(texts))
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    values = pa.ListArray.from_arrays(offsets, inner.values, type=arrow_type(kind))
    return _outer(values, at, wrong, given, kind)


def _maps(given: Cells, kind: t.Map, encoding: Encoding, rules: Rules, unit: str | None) -> Read:
    at, texts = _nested(given)
    found = scan(texts)
    wrong = found.roots != OBJECT
    kept = ~wrong[found.parents] if len(found.parents) else np.zeros(0, bool)
    broken = np.asarray(found.names.is_null())
    wrong[found.parents[broken & kept]] = True
    kept &= ~broken
    chosen = np.flatnonzero(kept)
    chosen = chosen[_last_of_equal(found.parents[chosen], found.names.take(pa.array(chosen)))]
    parents = found.parents[chosen]
    names = Cells(np.full(len(chosen), TEXT, np.uint8), found.names.take(pa.array(chosen)))
    keys = column(names, kind.key, encoding.of("key"), rules, unit)
    items = column(cells_of(found).take(chosen), kind.value, encoding.of("value"), rules, unit)
    lost = keys.bad | items.bad | np.asarray(keys.values.is_null())
    if not kind.value.nullable:
        lost = lost | np.asarray(items.values.is_null())
    wrong[parents[lost]] = True
    good = ~wrong[parents] if len(parents) else np.zeros(0, bool)
    counts = np.bincount(parents[good], minlength=len(texts))
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
    entries = [values.filter(pa.array(good)) for values in (keys.values, items.values)]
    values = pa.MapArray.from_arrays(offsets, *entries, type=arrow_type(kind))
    return _outer(values, at, wrong, given, kind)


def _rows(given: Cells, kind: t.Row, encoding: Encoding, rules: Rules, unit: str | None) -> Read:
    at, texts = _nested(given)
    names = [field.name for field in kind.fields]
    found = scan(texts, pa.array(names, pa.string()))
    wrong = found.roots != OBJECT
    members, where = cells_of(found), places(found, len(names))
    children = []
    for i, field in enumerate(kind.fields):
        inner = column(members.take(where[:, i]), field.type, encoding.of(field.name), rules, unit)
        wrong = wrong | inner.bad
        if not field.type.nullable:
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
