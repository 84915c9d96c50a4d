"""Rows of a local Parquet file that a filter may let through, with values decoded for those rows alone.

pyarrow always decodes a whole column. Polars decodes the columns of the filter first, and the other columns only for
the rows that are left. This module returns a superset of the wanted rows, and the caller applies the filter exactly. So
the module omits every condition that may have another meaning in Polars. As in `parquet_many`, it accepts only types
that both libraries understand alike, and verifies checksums first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from merganser.codec.parquet_footer import Chunks
from merganser.codec.parquet_pages import Kept, is_alike, is_literal, polars_is_here, undamaged
from merganser.codec.physical import exact_table
from merganser.schema import types as t
from merganser.schema.lazy_polars import pl


def read_where(
    path: str, metadata: pq.FileMetaData, chunks: Chunks, groups: range, columns: Sequence[t.Field], kept: Kept
) -> pa.Table | None:  # fmt: skip
    """Return the rows of neighbouring row groups for which a condition is true.

    Args:
        path: of a file on this machine.
        metadata: its footer.
        chunks: what it says of columns.
        groups: the row groups.
        columns: fields looked up by name, at least one, as for `FileReader.read`.
        kept: the condition, on the file's columns.

    Returns:
        The rows in the exact types of the fields; None: they have to be read in another way.
    """
    names = metadata.schema.names
    if (
        not polars_is_here()
        or len(set(names)) != len(names)
        or not all(field.name in names and is_literal(field.name) for field in columns)
    ):
        return None
    leaves = [names.index(field.name) for field in columns]
    try:
        schema = metadata.schema.to_arrow_schema()
        kinds = [metadata.schema.column(leaf).physical_type for leaf in leaves]
        if schema.names != names or not all(
            is_alike(schema.field(leaf).type, kind) for leaf, kind in zip(leaves, kinds, strict=True)
        ):
            return None
        if not undamaged_leaves(path, chunks, groups, leaves):
            return None
        before = sum(metadata.row_group(i).num_rows for i in range(groups.start))
        rows = sum(metadata.row_group(i).num_rows for i in groups)
        frame = pl.scan_parquet(path, use_statistics=False, glob=False, hive_partitioning=False)
        chosen = frame.select([field.name for field in columns]).slice(before, rows).filter(kept).collect()
        table = chosen.rechunk().to_arrow()
        return exact_table(table.columns, columns, rows=table.num_rows, path=path)
    except (Exception, pl.exceptions.PanicException):
        return None


def undamaged_leaves(path: str, chunks: Chunks, groups: range, leaves: Sequence[int]) -> bool:
    """Return whether the pages of some columns are as their checksums say, in some row groups of a local file."""
    stretches = []
    for number in groups:
        for leaf in leaves:
            chunk = chunks.of(number, leaf)
            dictionary, first = chunk.dictionary_page_offset, chunk.data_page_offset
            start = first if dictionary is None else dictionary
            stretches.append((start, start + chunk.total_compressed_size))
    with pa.memory_map(path) as file:
        return undamaged(memoryview(file.read_buffer()), np.array(stretches, np.int64))
