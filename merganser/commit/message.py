"""CommitMessage: the changes of one writer in one bucket. It pickles, and tasks send it to the committer.

Committed: the messages of a commit that stands, for the work after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import merganser
from merganser.commit.packed import (
    VERSION,
    VERSION_WITH_KEYS,
    Packed,
    check_version,
    pack_files,
    pack_indexes,
    unpack_files,
    unpack_indexes,
)
from merganser.meta.data_file import ADD, DELETE, DataFile, ManifestEntry
from merganser.meta.index_manifest import IndexEntry
from merganser.meta.snapshot import Snapshot
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """Files added to and removed from one bucket of one partition, and its changelog and index files likewise.

    Its pickle carries a version (`packed`): another release of merganser reads it, or says why it does not.

    Attributes:
        partition: serialized row of the partition values.
        total_buckets: number of buckets the rows were hashed over; -1 for unaware buckets.
        added: new files, already durable.
        removed: live files that these changes replace.
        index_added: new index files of any kind, already durable; one of kind HASH replaces that of the bucket.
        index_removed: live index files that these changes replace.
        changelog: new changelog files, already durable; they are part of the snapshot, not of the table's state.
        keys: the names of the index files that said in which buckets of the partition the keys of the rows lie; None:
            no index says it.
        after: the version of the rows of the table that said in which partitions and buckets the keys lie; None: none
            were asked.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...] = ()
    index_added: tuple[IndexEntry, ...] = ()
    index_removed: tuple[IndexEntry, ...] = ()
    changelog: tuple[DataFile, ...] = ()
    keys: frozenset[str] | None = None
    after: str | None = None

    def entries(self) -> list[ManifestEntry]:
        """Return the manifest entries: removals first, so that an upgrade reads as delete and add."""
        of = [(DELETE, file) for file in self.removed] + [(ADD, file) for file in self.added]
        return [ManifestEntry(kind, self.partition, self.bucket, self.total_buckets, file) for kind, file in of]

    def changelog_entries(self) -> list[ManifestEntry]:
        """Return the manifest entries of the changelog files."""
        return [ManifestEntry(ADD, self.partition, self.bucket, self.total_buckets, file) for file in self.changelog]

    def __reduce__(self) -> tuple[Callable[..., CommitMessage], Packed]:
        return _unpacked, (
            VERSION if self.keys is None and self.after is None else VERSION_WITH_KEYS,
            merganser.__version__,
            self.partition,
            self.bucket,
            self.total_buckets,
            pack_files(self.added),
            pack_files(self.removed),
            pack_indexes(self.index_added),
            pack_indexes(self.index_removed),
            pack_files(self.changelog),
            *self._asked(),
        )

    def _asked(self) -> tuple[Any, ...]:
        if self.keys is None and self.after is None:
            return ()
        return (None if self.keys is None else tuple(sorted(self.keys))), self.after


def _unpacked(version: int, release: str, *values: Any) -> CommitMessage:
    check_version(version, release)
    partition, bucket, total_buckets, added, removed, index_added, index_removed, changelog, *asked = values
    return CommitMessage(
        partition,
        bucket,
        total_buckets,
        unpack_files(added),
        unpack_files(removed),
        unpack_indexes(index_added),
        unpack_indexes(index_removed),
        unpack_files(changelog),
        frozenset(asked[0]) if asked and asked[0] is not None else None,
        asked[1] if asked else None,
    )


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that stands.

    Attributes:
        messages: what it changed.
        snapshot: the one it made; None: that is not kept any more, so the newest holds it.
        commit_user, identifier: the committer, and which of the committer's commits it is.
    """

    messages: Sequence[CommitMessage]
    snapshot: Snapshot | None
    commit_user: str
    identifier: int
