"""polars-avro, the extra `[avro]`: containers of records -> Arrow batches, several times as fast as fastavro.

The public functions of polars-avro read through a lazy frame, whose first use costs a process 10 to 60 ms: as much as a
whole plan takes. So this module calls the reader below the frame in the versions that we tried (`_TRIED`), and the
public function in any other version. docs/decisions/0021.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final

import pyarrow as pa

_TRIED: Final = ("0.13.",)
"""Beginnings of the versions whose inner reader has the interface that `_inner_batches` uses."""
_NAME: Final = "polars_avro"
_BYTES_MIN: Final = 16_384
"""Below, fastavro is faster: polars-avro takes a while to begin."""
_IMPORT_BYTES: Final = 262_144
"""fastavro takes longer for so much than a process needs to import polars-avro and Polars (150 ms)."""

_seen_bytes = 0
"""What this process has read without the accelerator since it could have had it."""


def pays(size: int) -> bool:
    """Return whether to read a container of so many bytes with the accelerator.

    It is imported once a process has read so much without it that the import has paid off.
    """
    global _seen_bytes
    if size < _BYTES_MIN:
        return False
    if _NAME in sys.modules:
        return True
    _seen_bytes += size
    return _seen_bytes >= _IMPORT_BYTES and find_spec(_NAME) is not None


def batches(path: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of a container file, about so many at a time.

    It gets a file: Python objects it reads through a buffer of 4 MB, and to fill that with zeros takes longer than all
    the rest. The memory of a batch may be used again for the next one.

    Raises:
        Exception: what the library raises where it cannot read the file.
    """
    import polars_avro  # noqa: PLC0415 - see `pays`

    if version("polars-avro").startswith(_TRIED):
        return _inner_batches(polars_avro, path, rows)
    return iter(polars_avro.read_avro(path, batch_size=rows, glob=False).to_arrow().to_batches())


def _inner_batches(library: Any, path: str, rows: int) -> Iterator[pa.RecordBatch]:
    for batch in library._avro_rs.AvroSource([path], False, False).batch_iter(rows, None):
        yield pa.record_batch(batch)
