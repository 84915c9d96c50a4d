"""Where the sequence numbers of writers begin, as a value that travels to tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from merganser.commit.conflict import check_total_buckets
from merganser.meta.data_file import ADD, DataFile, ManifestEntry
from merganser.meta.live_files import BucketId, LiveFiles
from merganser.meta.table_def import TableDef


@dataclass(frozen=True, slots=True)
class StartingSequences:
    """The first free sequence number of every bucket of a state, as a value that travels to tasks.

    Attributes:
        table: the table's name, for messages.
        total: how many buckets rows are hashed over.
        first: by bucket; those not named begin at 0.
        others: buckets whose files were written with another number of buckets, where that matters.
    """

    table: str
    total: int
    first: Mapping[BucketId, int]
    others: LiveFiles

    def __call__(self, bucket: BucketId) -> int:
        """Return the first free sequence number of a bucket.

        Raises:
            InvalidInputError: the partition was written with another number of buckets.
        """
        if self.others.buckets:
            probe = ManifestEntry(ADD, bucket[0], bucket[1], self.total, _NO_FILE)
            check_total_buckets([probe], self.others, table=self.table)
        return self.first.get(bucket, 0)


def starting_sequences(table: TableDef, live: LiveFiles, *, overwrites: bool) -> StartingSequences:
    """Return where the sequence numbers of writers begin that start from a state."""
    others = {}
    if table.bucket > 0 and not overwrites:
        others = {bucket: files for bucket, files in live.buckets.items() if 0 < files.total_buckets != table.bucket}
    numbered = live.buckets if table.keyed or table.bucket > 0 else {}
    return StartingSequences(
        table.name, table.bucket, {bucket: live.next_sequence(bucket) for bucket in numbered}, LiveFiles(others)
    )


_NO_FILE = DataFile("", 0, 0, b"", b"", None, None, 0, 0, 0, 0)  # type: ignore[arg-type]
