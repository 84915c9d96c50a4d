"""RowBuffer: received rows that are not written yet. WrittenBuckets: written files that no caller has taken yet."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.commit.message import CommitMessage
from merganser.errors import MerganserError
from merganser.meta.data_file import DataFile
from merganser.meta.live_files import BucketId
from merganser.meta.table_def import TableDef
from merganser.schema import row_kind
from merganser.schema.pieces import PIECE_BYTES_MAX
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.write.buckets import Assigner
from merganser.write.incoming import Prepared

SMALL_BYTES: Final = 1 << 20
"""So many bytes are few: they become a file in some hundredths of a second."""


class RowBuffer:
    """Rows in the order in which they came, up to a size."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._held_bytes = self._column_bytes = 0
        self._parts: list[Prepared] = []

    @property
    def is_empty(self) -> bool:
        """Whether it holds no rows."""
        return not self._parts

    @property
    def is_full(self) -> bool:
        """Whether its rows are to be written now."""
        return self._held_bytes >= self._size_bytes or self._column_bytes >= PIECE_BYTES_MAX // 2

    @property
    def is_small(self) -> bool:
        """Whether it holds rows, and few."""
        return 0 < self._held_bytes <= SMALL_BYTES

    def add(self, part: Prepared) -> None:
        """Take rows with their kinds and arrival."""
        self._parts.append(part)
        self._held_bytes += part[0].nbytes
        if self._size_bytes > PIECE_BYTES_MAX // 2:  # columns are flushed before they are too large for one array
            self._column_bytes += max((column.nbytes for column in part[0].columns), default=0)

    def taken(self) -> Prepared:
        """Return all rows as one, and hold none any more."""
        parts = self._parts
        self.clear()
        rows = pa.concat_tables([part[0] for part in parts])
        kinds = None
        if any(part[1] is not None for part in parts):
            kinds = pa.concat_arrays(
                [row_kind.inserts(part[0].num_rows) if part[1] is None else part[1] for part in parts]
            )
        arrivals = [part[2] for part in parts if part[2] is not None]
        return rows, kinds, np.concatenate(arrivals) if arrivals else None

    def clear(self) -> None:
        """Drop the rows."""
        self._parts, self._held_bytes, self._column_bytes = [], 0, 0


class WrittenBuckets:
    """The buckets of a table that a writer has written since it last handed out its changes.

    Args:
        starts: gives the first free sequence number of a bucket; asked once per bucket and commit. What was taken
            here is not taken again, whatever it says.
    """

    def __init__(self, table: TableDef, env: Env, starts: Callable[[BucketId], int]) -> None:
        self.starts = starts
        self._table = table
        self._env = env
        self._next: dict[BucketId, int] = {}
        self._used: dict[BucketId, int] = {}
        self._files: dict[BucketId, list[DataFile]] = {}
        self._published: dict[BucketId, list[DataFile]] = {}
        self._directories: dict[BucketId, str] = {}

    def directory(self, bucket: BucketId) -> str:
        """Return where files of a bucket lie."""
        found = self._directories.get(bucket)
        if found is None:
            found = self._directories[bucket] = self._table.bucket_directory(*bucket)
        return found

    def take_sequences(self, bucket: BucketId, count: int) -> int:
        """Take sequence numbers of a bucket; return the first.

        Raises:
            InvalidInputError: the bucket was written with another number of buckets.
        """
        start = self._next.get(bucket)
        if start is None:
            start = max(self.starts(bucket), self._used.get(bucket, 0))
        self._next[bucket] = start + count
        return start

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written since the last handing out."""
        return not self._next and not self._files and not self._published

    def keep(self, bucket: BucketId, files: Sequence[DataFile]) -> None:
        """Take files that are durable."""
        self._files.setdefault(bucket, []).extend(files)

    def publish(self, bucket: BucketId, files: Sequence[DataFile]) -> None:
        """Take changelog files that are durable."""
        self._published.setdefault(bucket, []).extend(files)

    def handed_out(self, assigner: Assigner) -> list[CommitMessage]:
        """Return the changes; their files are the caller's now.

        Args:
            assigner: has said where the rows belong.

        Raises:
            StorageError: the files of the assigner could not be written; nothing was handed out.
        """
        keys = assigner.written_keys()
        messages = []
        for bucket in sorted({*self._files, *self._published, *keys}):  # not in the order in which threads were ready
            files, published = tuple(self._files.get(bucket, ())), tuple(self._published.get(bucket, ()))
            new = keys.get(bucket)
            if files or published or new is not None:
                messages.append(
                    CommitMessage(
                        *bucket,
                        assigner.total_of(bucket[0]),
                        files,
                        index_added=() if new is None else (new.after,),
                        index_removed=() if new is None or new.before is None else (new.before,),
                        changelog=published,
                        keys=assigner.asked(bucket[0]),
                        after=assigner.after,
                    )
                )
        assigner.handed_out(messages)
        self._files, self._published = {}, {}
        self._used |= self._next
        self._next = {}
        return messages

    def remove(self) -> None:
        """Remove the files that were not handed out. Best effort: else it is orphans."""
        for bucket, files in (*self._files.items(), *self._published.items()):
            with contextlib.suppress(MerganserError):
                names = [name for file in files for name in file.names]
                self._env.storage.delete([join(self._directories[bucket], name) for name in names])
        self._files, self._published = {}, {}
