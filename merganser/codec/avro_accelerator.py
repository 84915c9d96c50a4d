"""polars-avro, the extra `[avro]`: containers of records -> Arrow batches, several times as fast as fastavro.

The public functions of polars-avro read through a lazy frame, whose first use costs a process 10 to 60 ms: as much as a
whole plan takes. So this module calls the reader below the frame in the versions that we tried (`_TRIED`), and the
public function in any other version. docs/decisions/0021.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

import pyarrow as pa

try:
    import polars_avro
except ImportError:  # the extra `[avro]` is not installed
    polars_avro = None

_TRIED: Final = ("0.13.",)
"""Beginnings of the versions whose inner reader has the interface that `_inner_batches` uses."""


def is_installed() -> bool:
    """Return whether there is an accelerator."""
    return polars_avro is not None


def batches(path: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of a container file, about so many at a time.

    It gets a file: Python objects it reads through a buffer of 4 MB, and to fill that with zeros takes longer than all
    the rest. The memory of a batch may be used again for the next one.

    Raises:
        Exception: what the library raises where it cannot read the file.
    """
    if version("polars-avro").startswith(_TRIED):
        return _inner_batches(path, rows)
    return iter(polars_avro.read_avro(path, batch_size=rows, glob=False).to_arrow().to_batches())


def _inner_batches(path: str, rows: int) -> Iterator[pa.RecordBatch]:
    for batch in polars_avro._avro_rs.AvroSource([path], False, False).batch_iter(rows, None):
        yield pa.record_batch(batch)
