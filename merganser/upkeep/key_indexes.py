"""Key indexes built anew from the rows, where buckets are added as keys arrive and an index file is not to be trusted.

A bucket needs one index file with the hash of each key that has a row in it, and no hash may be in two. Rows that take
a key back count, too. A key without any row is forgotten: as a new key it may go to another bucket.

Format: section "HASH index".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from merganser.codec.hashing import Hashes, row_hashes
from merganser.commit.committable import Committable
from merganser.commit.conflict import Reads
from merganser.commit.message import CommitMessage
from merganser.commit.table_commit import TableCommit
from merganser.errors import CommitUnknownError, ConflictError, FormatError, MerganserError
from merganser.files.key_hashes import read_hashes, write_hashes
from merganser.lsm.abandoned import remove_uncommitted
from merganser.lsm.section import SectionReader
from merganser.meta.data_file import DataFile
from merganser.meta.followed import columns_of, newest
from merganser.meta.index_manifest import HASH, IndexEntry
from merganser.meta.live_files import BucketId
from merganser.meta.snapshot import BATCH_IDENTIFIER, COMPACT
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.storage.env import Env
from merganser.storage.retries import RACE


def build_key_indexes(table: TableDef, env: Env) -> int:
    """Build the key indexes anew that are missing, damaged or at odds with the rows; return how many.

    One commit of the kind COMPACT replaces them. Time: of an index with a checksum, that of reading it.

    Raises:
        FormatError: a data file is damaged, too; nothing was changed.
        ConflictError: others wrote to the same buckets again and again; nothing was changed.
    """
    if not table.indexes_keys:
        return 0
    for attempt in RACE.each():
        commits = TableCommit(table, env)
        state = commits.latest()
        commits = TableCommit(newest(table, env), env)
        messages: list[CommitMessage] = []
        try:
            for message in _built(commits, state):
                messages.append(message)
            if not messages:
                return 0
            buckets = frozenset((message.partition, message.bucket) for message in messages)
            reads = Reads(state.snapshot, buckets)
            commits.commit(Committable(messages, env.new_id(), BATCH_IDENTIFIER, COMPACT, reads=reads))
            return len(messages)
        except CommitUnknownError:
            raise
        except MerganserError as error:
            remove_uncommitted(table, env, messages)
            if not isinstance(error, ConflictError) or attempt.is_last:
                raise
    raise AssertionError("the last attempt returns or raises")


def _built(commits: TableCommit, state: TableState) -> Iterator[CommitMessage]:
    """Yield the new index of each bucket that needs one; its file is durable."""
    table, env = commits.table, commits.env
    indexes: dict[BucketId, list[IndexEntry]] = {}
    for entry in commits.reader.index(state.snapshot):
        if entry.index_type == HASH:
            indexes.setdefault((entry.partition, entry.bucket), []).append(entry)
    held = sorted(bucket for bucket, files in state.live.buckets.items() if files.entries and bucket[1] >= 0)
    for _, of_partition in groupby(held, key=lambda bucket: bucket[0]):
        buckets = list(of_partition)
        found = env.map(lambda bucket: _stored(table, env, indexes.get(bucket, ())), buckets)
        stored = dict(zip(buckets, found, strict=True))
        shared = _shared(stored)
        for bucket in buckets:
            known, entries = stored[bucket], indexes.get(bucket, [])
            if known is not None and bucket not in shared and entries[0].checksum is not None:
                continue
            files = state.live.buckets[bucket]
            hashes = _of_rows(table, env, bucket, [entry.file for entry in files.entries])
            has_all = known is not None and bool(np.isin(hashes, known).all())
            if known is not None and has_all and not (bucket in shared and len(hashes) < len(known)):
                continue
            made = write_hashes(table, env, bucket, hashes)
            yield CommitMessage(*bucket, files.total_buckets, (), index_added=(made,), index_removed=tuple(entries))


def _stored(table: TableDef, env: Env, entries: Sequence[IndexEntry]) -> Hashes | None:
    """Return the hashes of the only index of a bucket; None: there is none, or it cannot be trusted."""
    if len(entries) != 1:
        return None
    try:
        hashes = read_hashes(table, env, entries[0])
    except FormatError:
        return None
    hashes.sort()
    return None if (hashes[1:] == hashes[:-1]).any() else hashes


def _shared(stored: Mapping[BucketId, Hashes | None]) -> set[BucketId]:
    """Return the buckets whose indexes have a hash that another one of the partition has, too."""
    known = [(bucket, hashes) for bucket, hashes in stored.items() if hashes is not None]
    if len(known) < 2:
        return set()
    every = np.sort(np.concatenate([hashes for _, hashes in known]))
    twice = every[1:][every[1:] == every[:-1]]
    return {bucket for bucket, hashes in known if len(twice) and np.isin(twice, hashes).any()}


def _of_rows(table: TableDef, env: Env, bucket: BucketId, files: Sequence[DataFile]) -> Hashes:
    """Return the hashes of the keys of a bucket, rising and each once."""
    fields = columns_of(table, env, (file.schema_id for file in files))
    reader = SectionReader(table, table.bucket_directory(*bucket), bucket[0], fields, env.storage)
    keys = [table.schema.field(name) for name in table.key]

    def of_file(file: DataFile) -> Hashes:
        parts = [
            row_hashes([rows.column(name) for name in table.key], table.key_types) for rows in reader.plain(file, keys)
        ]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int32)

    return np.unique(np.concatenate(env.map(of_file, files)))
