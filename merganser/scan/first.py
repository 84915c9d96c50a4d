"""The first rows of a read, for people who look at it in a notebook: as few files are read as that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa

from merganser.scan.plan import Plan
from merganser.scan.rows import SHOWN_ROWS, First, joined, with_schema, without_columns
from merganser.scan.split import AnySplit, PublishedSplit, Split

_BYTES_MAX: Final = 64 << 20
"""Maximum bytes of files that are read, beside the first group of files. A filter may match few rows, and showing an
object must not read a whole table."""


def first_rows(
    caption: str,
    found: Plan,
    read: Callable[[AnySplit], Iterator[pa.Table]],
    schema: pa.Schema,
    *,
    limit: int | None,
    columns: int,
) -> First:
    """Return the first rows of a plan, read one group of files after the other.

    Args:
        caption: what is read.
        found: the plan.
        read: yields the rows of a split, and reads them when they are asked for.
        schema: of the rows.
        limit: maximum number of rows of the read; None: there is none.
        columns: number of columns of the read, of which the schema may have fewer.
    """
    most = SHOWN_ROWS + 1 if limit is None else min(limit, SHOWN_ROWS + 1)
    tables: list[pa.Table] = []
    rows = begun = 0
    whole = True
    for group in _groups(found):
        if rows >= most or (begun and begun + group.size_bytes > _BYTES_MAX):
            whole = rows >= most
            break
        begun += group.size_bytes
        for table in read(group):
            tables.append(with_schema(table, schema))
            rows += table.num_rows
            if rows >= most:
                break
    if not len(schema):
        return First(caption, without_columns(min(rows, most)), whole, columns)
    return First(caption, joined(tables).slice(0, most) if tables else schema.empty_table(), whole, columns)


def _groups(found: Plan) -> Iterator[AnySplit]:
    """Yield groups of files that can be read alone: files whose keys meet, or one file."""
    for split in found.splits:
        if isinstance(split, Split):
            yield from (replace(split, sections=(section,)) for section in split.sections)
        elif isinstance(split, PublishedSplit) and split.phase is None:
            files = zip(split.targets, split.origins, strict=True)
            yield from (replace(split, targets=(target,), origins=(origin,)) for target, origin in files)
        else:
            yield split
