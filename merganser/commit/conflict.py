"""May these changes follow that state? Pure: entries in, an error or nothing out.

Format: section "conflict detection".
"""

from __future__ import annotations

from collections.abc import Sequence

from merganser.errors import ConflictError, InvalidInputError
from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.live_files import LiveFiles


def check_removals(changes: Sequence[ManifestEntry], live: LiveFiles, *, table: str, snapshot: int) -> None:
    """Refuse to remove files that are not live, and to add files that are.

    Raises:
        ConflictError: names how many and the first; nothing was changed.
    """
    removed = [entry for entry in changes if entry.kind != ADD]
    if not removed:
        return
    identities = {
        entry.identity
        for key in {(e.partition, e.bucket) for e in changes}
        if key in live.buckets
        for entry in live.buckets[key].entries
    }
    lost = [entry for entry in removed if entry.identity not in identities]
    if lost:
        raise ConflictError(
            f"cannot commit to '{table}': {len(lost)} of the {len(removed)} files this change replaces were "
            "removed up to snapshot "
            f"{snapshot} (first: '{lost[0].file.name}' in bucket {lost[0].bucket}). Nothing was changed. Plan the "
            f"change again from snapshot {snapshot}.",
            table=table,
            snapshot=snapshot,
        )


def check_total_buckets(changes: Sequence[ManifestEntry], live: LiveFiles, *, table: str) -> None:
    """Refuse rows hashed over another number of buckets than the files of their partition.

    Raises:
        InvalidInputError: names both numbers; nothing was changed.
    """
    wanted = {
        entry.partition: entry.total_buckets for entry in changes if entry.kind == ADD and entry.total_buckets > 0
    }
    if not wanted:
        return
    for (partition, bucket), files in live.buckets.items():
        total = wanted.get(partition)
        if total is not None and bucket >= 0 and files.total_buckets > 0 and files.total_buckets != total:
            raise InvalidInputError(
                f"cannot write to '{table}': its partition holds files of {files.total_buckets} buckets, and "
                f"'bucket' is now {total}. "
                f"Nothing was written. Overwrite the partition to move it to {total} buckets, or set 'bucket' back "
                f"to {files.total_buckets}.",
                table=table,
                buckets=files.total_buckets,
            )
