"""CommitMessage: what one writer changed in one bucket. Pickles; travels from tasks to the committer.

Committed: the messages that became a commit, for what comes after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merganser.meta.data_file import ADD, DELETE, DataFile, ManifestEntry
from merganser.meta.index_manifest import IndexEntry
from merganser.meta.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """Files added to and removed from one bucket of one partition, and its index files likewise.

    Attributes:
        partition: serialized row of the partition values.
        total_buckets: number of buckets the rows were hashed over; -1 for unaware buckets.
        added: new files, already durable.
        removed: live files that these changes replace.
        index_added: new index files, already durable.
        index_removed: live index files that these changes replace.
    """

    partition: bytes
    bucket: int
    total_buckets: int
    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...] = ()
    index_added: tuple[IndexEntry, ...] = ()
    index_removed: tuple[IndexEntry, ...] = ()

    def entries(self) -> list[ManifestEntry]:
        """Return the manifest entries: removals first, so that an upgrade reads as delete and add."""
        of = [(DELETE, file) for file in self.removed] + [(ADD, file) for file in self.added]
        return [ManifestEntry(kind, self.partition, self.bucket, self.total_buckets, file) for kind, file in of]


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that stands.

    Attributes:
        messages: what it changed.
        snapshot: the one it made; None: that is not kept any more, so the newest holds it.
        commit_user, identifier: whose commit it is, and which of them.
    """

    messages: Sequence[CommitMessage]
    snapshot: Snapshot | None
    commit_user: str
    identifier: int
