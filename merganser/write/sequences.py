"""The first sequence numbers of writers.

In the process that holds the live files a writer asks them, bucket by bucket. To tasks travel two columns: keys of
all buckets, sorted, and the first free numbers, of few bytes each. A key is 64 bits of a hash. Of two buckets with one
key both get the larger number, which is free in either, so a clash leaves a gap and nothing worse.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from merganser.commit.conflict import Totals, check_total_buckets
from merganser.meta.data_file import ADD, DataFile, ManifestEntry
from merganser.meta.layout import numbers_other_than
from merganser.meta.live_files import EMPTY, BucketId, LiveFiles
from merganser.meta.table_def import TableDef
from merganser.values import dataclass

_BUCKET_STEP: Final = 0x9E3779B97F4A7C15
"""What the keys of neighbouring buckets differ by; odd, and near no small multiple of a power of two."""
_KEY_MASK: Final = (1 << 64) - 1


class _Known(Totals, Protocol):
    """The facts about the buckets of a state: its live files, or columns of them."""

    def next_sequence(self, bucket: BucketId) -> int:
        """Return the first sequence number a new writer of the bucket may use."""


@dataclass(frozen=True, slots=True)
class StartingSequences:
    """The first free sequence number of every bucket of a state; pickled, it is a few columns.

    Attributes:
        table: the table's name, for messages.
        total: how many buckets rows are hashed over, if files of a partition must agree; else 0.
        known: the buckets of the state; those that it does not know begin at 0.
        overtaken: the table had this number of buckets when the writer began, and has another one now.
    """

    table: str
    total: int
    known: _Known
    overtaken: bool = False

    def __call__(self, bucket: BucketId) -> int:
        """Return the first free sequence number of a bucket.

        Raises:
            InvalidInputError: the partition was written with another number of buckets.
            ConflictError: the same, and the writer was overtaken.
        """
        if self.total > 0:
            wanted = [ManifestEntry(ADD, *bucket, self.total, _NO_FILE)]
            check_total_buckets(wanted, self.known, table=self.table, overtaken=self.overtaken)
        return self.known.next_sequence(bucket)

    def __reduce__(self) -> tuple[Callable[..., StartingSequences], tuple[Any, ...]]:
        known = _Columns.of(self.known, self.total) if isinstance(self.known, LiveFiles) else self.known
        return StartingSequences, (self.table, self.total, known, self.overtaken)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The buckets of a state as columns.

    Attributes:
        keys: of the buckets, rising.
        firsts: the first free sequence number of each.
        totals: by partition, the number of buckets its files were written with where that is another one.
    """

    keys: npt.NDArray[np.uint64]
    firsts: npt.NDArray[np.integer[Any]]
    totals: Mapping[bytes, int]

    @classmethod
    def of(cls, live: LiveFiles, total: int) -> _Columns:
        """Return the columns of live files; `total` as of `StartingSequences`."""
        buckets = live.buckets.merged()
        hashes = {partition: _hash(partition) for partition in {partition for partition, _ in buckets}}
        owners = np.fromiter((hashes[partition] for partition, _ in buckets), np.uint64, len(buckets))
        numbers = np.fromiter((bucket for _, bucket in buckets), np.int64, len(buckets)).astype(np.uint64)
        firsts = np.fromiter((files.max_sequence + 1 for files in buckets.values()), np.int64, len(buckets))
        keys = owners + numbers * np.uint64(_BUCKET_STEP)
        order = np.lexsort((firsts, keys))
        small = np.result_type(*(np.min_scalar_type(end) for end in (firsts.min(initial=0), firsts.max(initial=0))))
        others = numbers_other_than(total, live) if total > 0 else {}
        return cls(keys[order], firsts[order].astype(small), others)

    def next_sequence(self, bucket: BucketId) -> int:
        key = np.uint64((_hash(bucket[0]) + bucket[1] * _BUCKET_STEP) & _KEY_MASK)
        at = int(np.searchsorted(self.keys, key, side="right")) - 1  # of equal keys the last has the largest number
        return int(self.firsts[at]) if at >= 0 and self.keys[at] == key else 0

    def other_total(self, partition: bytes, total: int) -> int | None:
        other = self.totals.get(partition)
        return None if other == total else other


def starting_sequences(
    table: TableDef, live: LiveFiles, *, overwrites: bool, overtaken: bool = False
) -> StartingSequences:
    """Return where the sequence numbers of writers begin that start from a state. Time: that of no bucket.

    Args:
        overtaken: see `StartingSequences`.
    """
    total = 0 if overwrites else max(table.bucket, 0)
    return StartingSequences(table.name, total, live if is_numbered(table) else EMPTY, overtaken)


def is_numbered(table: TableDef) -> bool:
    """Return whether the rows of a bucket have an order, so that its files are numbered one after the other."""
    return table.keyed or table.bucket > 0


def _hash(partition: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(partition, digest_size=8).digest())


_NO_FILE = DataFile("", 0, 0, b"", b"", None, None, 0, 0, 0, 0)  # type: ignore[arg-type]
