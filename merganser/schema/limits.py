"""Limits of a type that its Arrow form does not carry: lengths of text and bytes, and nulls below the top."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from merganser.schema import types as t


def has_limits(kind: t.DataType) -> bool:
    """Return whether values of the type's Arrow form may still not fit it."""
    match kind:
        case t.Char() | t.Binary():
            return True
        case t.VarChar(length=length) | t.VarBinary(length=length):
            return length != t.LENGTH_MAX
        case t.Array(element=element):
            return not element.nullable or has_limits(element)
        case t.Row(fields=fields):
            return any(not field.type.nullable or has_limits(field.type) for field in fields)
    return isinstance(kind, t.Map | t.Multiset | t.Variant)


def too_long(array: pa.Array, kind: t.DataType) -> tuple[int, int, str] | None:
    """Return the first value that is longer than its type allows: index, length, and the unit of the length.

    Text is measured in characters (code points), binary in bytes. None when every value fits.
    """
    match kind:
        case t.Char(length=most) | t.VarChar(length=most):
            measure, unit = pc.utf8_length, "characters"
        case t.Binary(length=most) | t.VarBinary(length=most):
            measure, unit = pc.binary_length, "bytes"
        case _:
            return None
    if most == t.LENGTH_MAX:
        return None
    lengths = measure(array)
    longest = pc.max(lengths).as_py()
    if longest is None or longest <= most:
        return None
    index = pc.index(pc.greater(lengths, most), True).as_py()
    return index, lengths[index].as_py(), unit
