"""How the rows of a table lie in buckets: over how many, and in which one the rows of a key.

Two facts say over how many buckets keys are hashed. Each data file says it of its bucket (`total_buckets`), and the
option `bucket` says it of rows to come. They differ between the commit of a rescale and its option, in partitions that
a rescale left where they were, in tables that postpone buckets, and where another engine wrote. So

    readers       go by the files alone (`spread`)
    writers       go by the option, or by the files where partitions have numbers of their own (`Layout`). Where files
                  of the partition say another number, they are refused (`commit.conflict.check_total_buckets`)
    rescales      change the files first, and then the option (`upkeep.bucket_option`); `meta.lineage` finds them again

Format: section "bucketing".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merganser.codec.binary_row import encode_row
from merganser.codec.hashing import buckets, row_hash
from merganser.meta.live_files import BucketFiles, LiveFiles
from merganser.meta.schemas import SchemaStore
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env
from merganser.values import dataclass

_SCANS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Layout:
    """The number of buckets of each partition, where partitions have numbers of their own.

    Attributes:
        known: by partition.
        default: of the other partitions.
    """

    known: Mapping[bytes, int] = field(default_factory=dict)
    default: int = 1

    def of(self, partition: bytes) -> int:
        """Return the number of a partition."""
        return self.known.get(partition, self.default)

    @classmethod
    def among(cls, table: TableDef, live: LiveFiles) -> Layout:
        """Return the numbers of the partitions that have rows in buckets, and the table's for the others."""
        return cls(numbers_other_than(0, live), table.options.get(w.POSTPONE_DEFAULT_BUCKET_NUM) or 1)


def numbers_other_than(total: int, live: LiveFiles) -> dict[bytes, int]:
    """Return the numbers of buckets of the partitions whose rows are hashed over another number than `total`."""
    if not live.totals.keys() - {total}:
        return {}
    return {
        partition: files.total_buckets
        for (partition, bucket), files in live.buckets.items()
        if bucket >= 0 and 0 < files.total_buckets != total
    }


def options_since(table: TableDef, env: Env, schema_id: int, newest_id: int | None = None) -> list[int]:
    """Return the option `bucket` of a schema and of all later ones.

    Args:
        newest_id: of the newest schema; None: it is looked for.
    """
    schemas = SchemaStore(table.paths, env)
    newest_id = schemas.latest_id(schema_id) if newest_id is None else newest_id
    return [schemas.load(each).options.get(w.BUCKET) for each in range(schema_id, newest_id + 1)]


def spread(held: Iterable[BucketFiles]) -> int:
    """Return over how many buckets the keys of some buckets of a partition were hashed; 0: no rule says where one lies.

    None does where keys are assigned as they arrive, or where files of one partition say different numbers.
    """
    totals = {0 if files.is_mixed else files.total_buckets for files in held}
    return max(0, totals.pop()) if len(totals) == 1 else 0


def bucket_numbers(table: TableDef, rows: pa.Table, total: int | None = None) -> npt.NDArray[np.int32]:
    """Return the bucket of every row, int32[n].

    Args:
        rows: with the columns of the bucket key.
        total: the number of buckets; None: that of the table.
    """
    total = table.bucket if total is None else total
    if total <= 1:
        return np.zeros(rows.num_rows, np.int32)
    key = table.schema.bucket_key
    columns = [rows.column(name) for name in key]
    kinds = [table.schema.field(name).type for name in key]
    return buckets(columns, kinds, total, table.options.get(w.BUCKET_FUNCTION))


def bucket_number(table: TableDef, key: tuple[Any, ...], total: int) -> int | None:
    """Return the bucket of one key without making arrays of it; None: `bucket_numbers` has to say it."""
    if total <= 1:
        return 0
    if table.options.get(w.BUCKET_FUNCTION) != "default" or table.schema.bucket_key != table.key:
        return None
    return abs(row_hash(encode_row(key, table.key_types))) % total


def parted(numbers: npt.NDArray[np.signedinteger]) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Yield every number that occurs, rising, and the positions it stands at, rising. None is negative."""
    if not len(numbers):
        return
    highest = int(numbers.max())
    small = numbers.astype(np.uint8 if highest < 256 else np.uint16 if highest < 65_536 else np.int64)
    if highest < _SCANS_MAX:  # a few looks at all numbers are cheaper than a sort of them
        for number in range(highest + 1):
            members = np.flatnonzero(small == number)
            if len(members):
                yield number, members
        return
    order = np.argsort(small, kind="stable")  # a radix sort for the small types
    ordered = small[order]
    starts = np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        yield int(ordered[start]), order[start:end]
