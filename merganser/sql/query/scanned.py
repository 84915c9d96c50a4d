"""Scans as datasets of Arrow, which is the form that DuckDB takes columns and filters out of.

DuckDB has instants of six digits of a second. Those of nine come without their zone, by the wall clock of UTC.
"""

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
        self._schema = pa.schema([field.with_type(_shown(field.type)) for field in scan.schema])
        self.error: MerganserError | None = None
        super().__init__(self._schema.empty_table())

    def scanner(self, columns: Any = None, filter: Any = None, **more: Any) -> ds.Scanner:
        """Return a scan; DuckDB asks for columns and a filter, and does not apply the filter again."""
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return ds.Scanner.from_batches(reader, columns=columns, filter=filter, use_threads=True)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._scan.to_batches():
                yield batch if batch.schema == self._schema else self._as_shown(batch)
        except MerganserError as error:
            self.error = error
            raise

    def _as_shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _shown(kind: pa.DataType) -> pa.DataType:
    """Return a type without the zone of instants of nine digits, also inside."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns") if kind.unit == "ns" else kind
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_shown(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = (field.with_type(_shown(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_shown(kind.value_type)))
    return kind
