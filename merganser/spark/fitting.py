"""Numbers of a query that do not fit the column of a table they are written to: an error that names the column."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

from pyspark.sql import functions as f
from pyspark.sql import types as s

_WHOLE: Final = {s.ByteType: 3, s.ShortType: 5, s.IntegerType: 10, s.LongType: 19}
"""Most digits of a whole number, by its type."""
_SHOWN: Final = 80
"""Most characters of a value in a message."""


def fitted(item: Any, given: s.DataType, wanted: s.DataType, column: str) -> Any:
    """Return CAST(item AS wanted), in which a number that does not fit is an error in our words.

    Spark's own error names neither the column nor what is still true, and advises settings that statements do not have.

    Args:
        given: the type of the item, which may be cast to the wanted one.
        wanted: the type to store, also of nested values.
        column: that is written.
    """
    cast = item.cast(wanted)
    bad = _first_bad(item, given, wanted)
    if bad is None:
        return cast
    text = f.concat(f.lit(f"cannot write column '{column}': cannot CAST '"), bad, f.lit(". Nothing was written."))
    return f.when(bad.isNotNull(), f.raise_error(text)).otherwise(cast)


def _first_bad(item: Any, given: s.DataType, wanted: s.DataType) -> Any:
    """Return the first value that does not fit, as text with its type, or null; None if all values of the type fit."""
    match given, wanted:
        case s.ArrayType(), s.ArrayType():
            return _first_of(item, given.elementType, wanted.elementType)
        case s.MapType(), s.MapType():
            keys = _first_of(f.map_keys(item), given.keyType, wanted.keyType)
            return _either([keys, _first_of(f.map_values(item), given.valueType, wanted.valueType)])
        case s.StructType(), s.StructType():
            fields = zip(given.fields, wanted.fields, strict=False)
            return _either([_first_bad(item.getField(a.name), a.dataType, b.dataType) for a, b in fields])
    if not _may_overflow(given, wanted):
        return None
    name = wanted.simpleString().upper().replace(",", ", ")
    shown = f.concat(
        f.substring(item.cast("string"), 1, _SHOWN), f.lit(f"' AS {name}: the value does not fit the type")
    )
    return f.when(item.isNotNull() & item.try_cast(wanted).isNull(), shown)


def _first_of(items: Any, given: s.DataType, wanted: s.DataType) -> Any:
    """Return the first value of an array that does not fit, likewise."""
    if _first_bad(f.lit(None), given, wanted) is None:
        return None
    texts = f.transform(items, lambda value: _first_bad(value, given, wanted))
    return f.get(f.filter(texts, lambda text: text.isNotNull()), 0)


def _either(texts: list[Any]) -> Any:
    found = [text for text in texts if text is not None]
    return reduce(f.coalesce, found) if found else None


def _may_overflow(given: s.DataType, wanted: s.DataType) -> bool:
    """Return whether a cast to a whole number or a DECIMAL may fail."""
    if not isinstance(wanted, (*_WHOLE, s.DecimalType)) or isinstance(given, s.NullType | s.StringType):
        return False
    if isinstance(given, (s.FloatType, s.DoubleType)):
        return True
    digits = given.precision - given.scale if isinstance(given, s.DecimalType) else _WHOLE.get(type(given), 39)
    if isinstance(wanted, s.DecimalType):
        rounds = isinstance(given, s.DecimalType) and given.scale > wanted.scale
        return bool(digits + rounds > wanted.precision - wanted.scale)
    return isinstance(given, s.DecimalType) or digits > _WHOLE[type(wanted)]
