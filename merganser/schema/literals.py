"""The text of a column's default -> its value.

Text is the value itself, without quotes. Lists are written `[a, b]`, maps `{k -> v}`, rows `{x, y}`, and `null`
inside them is null. An instant without a zone is UTC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.limits import too_long


def default_value(field: t.Field) -> pa.Scalar:
    """Return the default of a column as a scalar of its Arrow type: what the text of its default means.

    Raises:
        InvalidInputError: the text is not a literal of the type; names the column, the text and the type.
    """
    text = field.default or ""
    try:
        return value_of_text(text, field.type)
    except ValueError:
        raise InvalidInputError(
            f"cannot use '{text}' as the default of column '{field.name}': it is not a literal of type {field.type}.",
            column=field.name,
            value=text,
        ) from None


def value_of_text(text: str, kind: t.DataType) -> pa.Scalar:
    """Return what a text means as a value of a type, as a scalar of its Arrow type.

    Raises:
        ValueError: the text is not a literal of the type.
    """
    try:
        return _literal(text, kind)[0]
    except pa.ArrowNotImplementedError as error:
        raise ValueError(str(error)) from error


def repeated(value: pa.Scalar, count: int) -> pa.Array:
    """Return an array that has one value `count` times; Arrow cannot repeat a nested value zero times."""
    return pa.repeat(value, count) if count else pa.array([], value.type)


def _literal(text: str, kind: t.DataType) -> pa.Array:
    """Return an array of one value: what `text` means as a literal of the type."""
    target = arrow_type(kind)
    stripped = text.strip()
    if isinstance(kind, t.Time | t.Timestamp | t.LocalZonedTimestamp):
        # Arrow refuses digits beyond the unit of the type, also zeros
        stripped = re.sub(r"\.(\d*?)0+(?!\d)", lambda found: f".{found[1]}" if found[1] else "", stripped)
    match kind:
        case t.Char() | t.VarChar() | t.Binary() | t.VarBinary():
            value = pa.array([text]).cast(target)
            if too_long(value, kind):
                raise ValueError(text)
            return value
        case t.Time():
            return pa.array(["1970-01-01 " + stripped]).cast(pa.timestamp("ms")).cast(target)
        case t.LocalZonedTimestamp() if not re.search(r"(Z|[+-]\d\d:?\d\d)$", stripped):
            return pa.array([stripped]).cast(pa.timestamp(target.unit)).cast(pa.int64()).cast(target)
        case t.Array(element=element):
            values = [_inner_literal(part, element) for part in _parts(stripped, "[", "]")]
            return _one_list(values, arrow_type(element), target)
        case t.Map(key=key, value=value):
            pairs = [_pair(part) for part in _parts(stripped, "{", "}")]
            keys = _joined([_literal(left, key) for left, _ in pairs], arrow_type(key))
            values = _joined([_inner_literal(right, value) for _, right in pairs], arrow_type(value))
            return pa.MapArray.from_arrays(pa.array([0, len(pairs)], pa.int32()), keys, values, type=target)
        case t.Row(fields=fields):
            parts = _parts(stripped, "{", "}")
            if len(parts) != len(fields):
                raise ValueError(text)
            children = [_inner_literal(part, field.type) for part, field in zip(parts, fields, strict=True)]
            return pa.StructArray.from_arrays(children, fields=list(target))
        case t.Multiset() | t.Variant():
            raise ValueError(text)
    value = pa.array([stripped]).cast(target)
    if pa.types.is_floating(target) and pc.is_inf(value)[0].as_py() and any(char.isdigit() for char in stripped):
        raise ValueError(text)  # a number that is too large, and not the word
    return value


def _inner_literal(text: str, kind: t.DataType) -> pa.Array:
    if text == "null" and kind.nullable:
        return pa.nulls(1, arrow_type(kind))
    return _literal(text, kind)


def _joined(values: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(values) if values else pa.nulls(0, kind)


def _one_list(values: Sequence[pa.Array], element: pa.DataType, target: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), _joined(values, element), type=target)


def _pair(text: str) -> tuple[str, str]:
    key, arrow, value = text.partition("->")
    if not arrow:
        raise ValueError(text)
    return key.strip(), value.strip()


def _parts(text: str, opening: str, closing: str) -> list[str]:
    """Return what stands between the commas of a bracketed text, commas in inner brackets apart."""
    if len(text) < 2 or text[0] != opening or text[-1] != closing:
        raise ValueError(text)
    inner = text[1:-1].strip()
    if not inner:
        return []
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(inner):
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            parts.append(inner[begin:at].strip())
            begin = at + 1
    return [*parts, inner[begin:].strip()]
