"""Bounds of the sort column of every row group, as a key-value pair of a Parquet footer.

A read of a key range has to find the row groups to read in every file. The statistics in the footer tell, but the
reader has to parse them from bytes one by one (`parquet_footer`), for all columns: in a table of many small files that
was half the time of the read. If rows are in the order of a column, the ends of each row group are its bounds. So the
writer records them in one value with a checksum, and a reader that knows this value parses no statistics. Other engines
ignore the value. If it is absent or damaged, the reader uses the statistics.

The value is JSON: `column`; `bounds`, base64 of one serialized row (smallest, largest) per row group, end to end;
`sizes`, bytes of each; `crc`, the CRC-32 of all.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from merganser.codec.binary_row import deserialize, serialize
from merganser.codec.stored import Stored
from merganser.errors import FormatError
from merganser.schema import types as t

KEY: Final = "merganser.group-bounds"
_TYPES: Final = (
    *(t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Decimal, t.Date, t.Time, t.Timestamp, t.LocalZonedTimestamp),
    *(t.Char, t.VarChar, t.Binary, t.VarBinary),
)
_ROW_BYTES_MAX: Final = 256

Bounds = tuple[list[Stored], list[Stored]]
"""Smallest and largest value of every row group; None: a null, which sorts first."""


def can_note(kind: t.DataType) -> bool:
    """Return whether the order of the format is the order of filters for this type: not for floats."""
    return isinstance(kind, _TYPES)


def encode(column: str, kind: t.DataType, lows: Sequence[Stored], highs: Sequence[Stored]) -> str | None:
    """Return the value of the pair; None when the bounds are too long to be worth their bytes."""
    rows = [serialize(ends, (kind, kind)) for ends in zip(lows, highs, strict=True)]
    if any(len(row) > _ROW_BYTES_MAX for row in rows):
        return None
    joined = b"".join(rows)
    return json.dumps(
        {
            "column": column,
            "sizes": [len(row) for row in rows],
            "bounds": base64.b64encode(joined).decode(),
            "crc": zlib.crc32(joined),
        }
    )


def decode(metadata: Mapping[bytes, bytes] | None, field: t.Field, groups: int) -> Bounds | None:
    """Return the bounds that a footer notes of a column; None when it notes none that can be trusted.

    Args:
        metadata: key-value pairs of the footer.
        field: the column, as the file knows it.
        groups: number of row groups.
    """
    value = (metadata or {}).get(KEY.encode())
    if value is None:
        return None
    try:
        noted: dict[str, Any] = json.loads(value)
        if noted["column"] != field.name or len(noted["sizes"]) != groups:
            return None
        joined = base64.b64decode(noted["bounds"], validate=True)
        if zlib.crc32(joined) != noted["crc"] or len(joined) != sum(noted["sizes"]):
            return None
        rows, at = [], 0
        for size in noted["sizes"]:
            rows.append(deserialize(joined[at : at + size], (field.type, field.type)))
            at += size
    except (ValueError, KeyError, TypeError, FormatError):
        return None
    return [row[0] for row in rows], [row[1] for row in rows]
