"""Scans as datasets of Arrow, which is the form that DuckDB takes columns and filters out of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from merganser.errors import MerganserError


class Scanned(ds.InMemoryDataset):  # type: ignore[misc]
    """A reference to a table as DuckDB reads it: as often as it likes, with its own columns and filters on top.

    Attributes:
        error: of the scan, which DuckDB tells as one of its own.
    """

    def __init__(self, scan: Any) -> None:
        self._scan = scan
        self.error: MerganserError | None = None
        super().__init__(self._scan.schema.empty_table())

    def scanner(self, columns: Any = None, filter: Any = None, **more: Any) -> ds.Scanner:
        """Return a scan; DuckDB asks for columns and a filter, and does not apply the filter again."""
        reader = pa.RecordBatchReader.from_batches(self._scan.schema, self._batches())
        return ds.Scanner.from_batches(reader, columns=columns, filter=filter, use_threads=True)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        schema = self._scan.schema
        try:
            for batch in self._scan.to_batches():
                yield batch if batch.schema == schema else pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        except MerganserError as error:
            self.error = error
            raise
