"""Splits packed into tasks, and the job that reads one pack.

A task costs tens of milliseconds whatever it reads, so small splits share one; and tasks start in the order of
their packs, so the largest come first and the last ones to end are small.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from merganser.meta.snapshot import Snapshot
from merganser.scan.changes import Changes
from merganser.scan.plan import Plan
from merganser.scan.read import read_split
from merganser.scan.scan import Scan
from merganser.scan.split import AnySplit, ReadJob
from merganser.spark.types import spark_batches
from merganser.storage.protocol import Storage
from merganser.values import dataclass

_PACK_BYTES_MIN: Final = 8 << 20
_FILE_BYTES: Final = 1 << 20
"""What opening a file costs, in bytes that could be read meanwhile, about."""

Pack = tuple[AnySplit, ...]


def packed(plan: Plan, *, tasks_max: int) -> tuple[Pack, ...]:
    """Return the splits of a plan in at most `tasks_max` packs of about the same weight, the heaviest first.

    All splits of a group are in one pack, in their order.
    """
    groups = plan.groups or tuple((split,) for split in plan.splits)
    weights = [sum(weight_of(split.size_bytes, len(split.files)) for split in group) for group in groups]
    return tuple(tuple(split for i in pack for split in groups[i]) for pack in balanced(weights, tasks_max=tasks_max))


def weight_of(size_bytes: int, files: int) -> int:
    """Return what it takes to read files, in bytes."""
    return size_bytes + _FILE_BYTES * files


def balanced(weights: Sequence[int], *, tasks_max: int) -> list[list[int]]:
    """Return the positions of weights in at most `tasks_max` packs of about the same weight, the heaviest first."""
    count = max(1, min(len(weights), tasks_max, -(-sum(weights) // _PACK_BYTES_MIN)))
    packs: list[list[int]] = [[] for _ in range(count)]
    lightest = [(0, i) for i in range(count)]
    for i in sorted(range(len(weights)), key=lambda i: -weights[i]):
        weight, pack = heapq.heappop(lightest)
        packs[pack].append(i)
        heapq.heappush(lightest, (weight + weights[i], pack))
    return [packs[pack] for _, pack in sorted(lightest, key=lambda entry: -entry[0]) if packs[pack]]


def rows_of(
    job: ReadJob, pack: Pack, storage: Storage, schema: pa.Schema, *, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a pack in the form that Spark declared.

    Args:
        job: how splits are read.
        pack: the splits.
        storage: where their files lie.
        schema: from `types.arrow_schema_of`.
        limit: most rows to yield.
    """
    left = limit
    for split in pack:
        for table in read_split(job, split, storage):
            part = table if left is None else table.slice(0, left)
            yield from spark_batches(part, schema)
            if left is not None:
                left -= part.num_rows
                if left <= 0:
                    return


@dataclass(frozen=True, slots=True)
class ReadSplits:
    """Reads packs: the rows it is given are the numbers of the packs to read, times `step`.

    Attributes:
        scan, snapshot: what is read, which says whether a missing file has expired.
    """

    job: ReadJob
    packs: tuple[Pack, ...]
    scan: Scan | Changes
    snapshot: Snapshot | None
    schema: pa.Schema
    limit: int | None = None
    step: int = 1

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, as `mapInArrow` wants them."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with self.scan.unless_expired(self.snapshot):
                    pack = self.packs[number // self.step]
                    yield from rows_of(self.job, pack, self.scan.env.storage, self.schema, limit=self.limit)
