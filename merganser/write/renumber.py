"""Renumbering: new files get sequence numbers above those of the snapshot that their commit follows.

A writer numbers its rows from the newest snapshot that it knows when it begins. Another writer that begins before the
first has committed takes the same numbers. A merge orders the versions of a key by number, so the rows of both commits
would be mixed. Therefore each attempt to commit compares, bucket by bucket, the lowest number of the new files with
the highest of the live files. If they meet, all new files of the bucket get new numbers: all are raised by one offset,
so they keep their order among each other::

    live      0 ─── 99   100 ─── 149                   committed since the writer began
    ours                 100 ─ 119                     meets
    ours, new                       gap   1174 ─ 1193

The gap leaves room for what others commit while the files are written, so that the next attempt need not do it again.
It grows with every time, and it goes with the rows: a large commit takes longer, and leaves more room.

Files whose rows wait for their buckets have no numbers: their order is that of their creation times. So those in the
manifest are raised above those of live files that wait; the files themselves do not change.

A file of a key table is written again (`files/shift`), since its rows hold the numbers. The files of a table without a
key hold none: only their manifest entries change. The files as they were given are kept until the commit stands, since
a copy of the transaction may commit them.

Docs: decision 0029.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from merganser.commit.conflict import already_there
from merganser.commit.message import CommitMessage
from merganser.files.shift import shifted, stem
from merganser.meta.data_file import DataFile
from merganser.meta.followed import as_of
from merganser.meta.live_files import BucketId, LiveFiles
from merganser.meta.table_def import TableDef
from merganser.rules.facts import POSTPONE
from merganser.storage.env import Env

_GAP_MIN: Final = 1024
_GAP_GROWTH: Final = 4
_GROWTHS_MAX: Final = 8
"""A gap is at most 65,536 times the rows of the bucket: numbers last for longer than any table."""
_NUMBER_MAX: Final = 1 << 62
"""Gaps end here; above it numbers are given without one."""


class Renumbering:
    """The new files of one commit, over all of its attempts.

    Args:
        messages: what writers wrote; only their new files of level 0.
        made: takes the files that are written here, as soon as they are durable.
    """

    def __init__(self, table: TableDef, env: Env, messages: Sequence[CommitMessage], made: list[CommitMessage]) -> None:
        self._table = table
        self._env = env
        self._given = messages
        self._made = made
        self._messages = messages
        self._lowest: dict[BucketId, int] = {}
        self._rows: dict[BucketId, int] = {}
        for message in messages:
            bucket = (message.partition, message.bucket)
            for file in message.added if message.bucket >= 0 else ():  # rows that wait for a bucket have no number
                self._lowest[bucket] = min(file.min_sequence, self._lowest.get(bucket, file.min_sequence))
                self._rows[bucket] = self._rows.get(bucket, 0) + file.row_count
        self._first = dict(self._lowest)
        self._times = dict.fromkeys(self._lowest, 0)
        self._delays: dict[bytes, int] = {}

    def __call__(self, live: LiveFiles) -> Sequence[CommitMessage]:
        """Return the messages with all numbers above those of live files; the same as before if they are already.

        Time: that of the buckets of the commit; and of their new files, where numbers meet.

        Raises:
            ConflictError: the files are live already, by a copy of the transaction.
            StorageError, FormatError: new files could not be written, or those that were given not be read.
        """
        self._delay(live)
        late = [bucket for bucket, first in self._first.items() if first < live.next_sequence(bucket)]
        if not late:
            return self._messages
        self._check_not_live(live, frozenset(late))
        for bucket in late:
            free = live.next_sequence(bucket)
            gap = max(self._rows[bucket], _GAP_MIN) * _GAP_GROWTH ** min(self._times[bucket], _GROWTHS_MAX)
            self._times[bucket] += 1
            self._first[bucket] = free + gap if free + gap < _NUMBER_MAX else free
        self._messages = self._written(frozenset(late))
        return self._messages

    def _delay(self, live: LiveFiles) -> None:
        """Let files whose rows wait be younger than those that wait already, in the order they have."""
        late = dict(self._delays)
        for message in self._given:
            there = live.buckets.get((message.partition, POSTPONE)) if message.bucket == POSTPONE else None
            if there is not None and message.added:
                latest = max(entry.file.creation_time_ms or 0 for entry in there.entries)
                first = min(file.creation_time_ms or 0 for file in message.added)
                late[message.partition] = max(late.get(message.partition, 0), latest + 1 - first)
        if late == self._delays:
            return
        self._delays = late
        self._messages = [
            replace(message, added=tuple(_delayed(file, late.get(given.partition, 0)) for file in given.added))
            if given.bucket == POSTPONE
            else message
            for given, message in zip(self._given, self._messages, strict=True)
        ]

    def _check_not_live(self, live: LiveFiles, late: frozenset[BucketId]) -> None:
        """Refuse files that are live, or of which live files were made. Their own numbers would look like another's."""
        for message in self._given:
            bucket = live.buckets.get((message.partition, message.bucket))
            if bucket is None or (message.partition, message.bucket) not in late:
                continue
            stems = tuple(stem(self._table, file) for file in message.added)
            there = next((e.file.name for e in bucket.entries if e.file.name.startswith(stems)), None)
            if there is not None:
                name = next(file.name for file in message.added if there.startswith(stem(self._table, file)))
                raise already_there(self._table.name, name)

    def _written(self, late: frozenset[BucketId]) -> Sequence[CommitMessage]:
        """Return the messages, those of some buckets with their new numbers."""
        work = [
            (place, file)
            for place, message in enumerate(self._given)
            if (message.partition, message.bucket) in late
            for file in message.added
        ]
        added: dict[int, list[DataFile]] = {place: [] for place, _ in work}
        for (place, _), file in zip(work, self._env.map(self._raised, work), strict=True):
            added[place].append(file)
        return [
            replace(message, added=tuple(added[place])) if place in added else message
            for place, message in enumerate(self._messages)
        ]

    def _raised(self, item: tuple[int, DataFile]) -> DataFile:
        place, file = item
        message = self._given[place]
        bucket = (message.partition, message.bucket)
        offset = self._first[bucket] - self._lowest[bucket]
        if not self._table.keyed:
            return replace(file, min_sequence=file.min_sequence + offset, max_sequence=file.max_sequence + offset)
        table = as_of(self._table, self._env, file.schema_id)  # the rows of a commit may have got columns on the way
        made = shifted(table, self._env, table.bucket_directory(*bucket), file, offset)
        self._made.append(replace(message, added=(made,), changelog=()))
        return made


def _delayed(file: DataFile, by_ms: int) -> DataFile:
    return replace(file, creation_time_ms=(file.creation_time_ms or 0) + by_ms)
