"""Avro container files -> columns, over polars-avro: an accelerator that may be absent.

Reads ten times as many manifest entries a second as the reader that is always there, and refuses some files
(a root schema that is a union, as one client writes it). So `read_columns` answers None whenever it is not sure,
damaged bytes included, and the caller reads again the slow way, which names what is wrong.
"""

from __future__ import annotations

import io
from typing import Any

try:
    import polars as pl
    import polars_avro
except ImportError:  # the extra `[avro]` is not installed
    polars_avro = None

_BYTES_MIN = 16_384
"""Below, a file is read faster the slow way."""


def read_columns(data: bytes) -> dict[str, list[Any]] | None:
    """Return the columns of a container file by dotted name (`_FILE._FILE_NAME`), or None to read it another way.

    Timestamps are epoch numbers. Every column has as many values as there are records.
    """
    if polars_avro is None or len(data) < _BYTES_MIN:
        return None
    try:
        frame = polars_avro.read_avro(io.BytesIO(data))
        return _flattened("", frame) if frame.height else None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return None


def _flattened(prefix: str, frame: pl.DataFrame) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for column in frame.get_columns():
        if isinstance(column.dtype, pl.Struct):
            out |= _flattened(f"{prefix}{column.name}.", column.struct.unnest())
        else:
            out[prefix + column.name] = (column.to_physical() if column.dtype.is_temporal() else column).to_list()
    return out
