"""Many small manifests -> few, so that commits and planning cost the same after thousands of commits.

Manifests fall into classes by the logarithm of their entry count, base `merge_min_count`. When the newest
manifests hold `merge_min_count` of one class, they become one of the next class: every entry is rewritten
once per class, so the cost of a commit grows with the logarithm of the table's age. Merging neighbours only
keeps an ADD before its DELETE; pairs within one merge cancel.

Once manifests that hold deletions, or are small, weigh `full_threshold_bytes`, all that can cancel is
cancelled (full merge). Pure: which manifests to merge is decided from their list records.

Format: section "manifest merging". The reference scans in order and merges up to a size; any grouping of
neighbours is legal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.manifest_list import ManifestFile


def merge_span(manifests: Sequence[ManifestFile], *, target_bytes: int, full_threshold_bytes: int, merge_min_count: int) -> tuple[int, int] | None:
    """Return the half-open range of manifests to merge into one, or None.

    Args:
        manifests: base then delta manifests of the newest snapshot, oldest first.
        target_bytes: manifests of this size or more are left alone, unless a full merge needs them.
        full_threshold_bytes: weight of small or dirty manifests that triggers a full merge.
        merge_min_count: how many of one class make a merge.
    """
    if len(manifests) < 2:
        return None
    dirty = sum(m.size for m in manifests if m.deleted or m.size < target_bytes)
    if any(m.deleted for m in manifests) and dirty >= full_threshold_bytes:
        return 0, len(manifests)
    classes = [_size_class(m, merge_min_count) for m in manifests]
    for limit in range(max(classes) + 1):
        start = len(manifests)
        while start and classes[start - 1] <= limit and manifests[start - 1].size < target_bytes:
            start -= 1
        if sum(1 for c in classes[start:] if c == limit) >= merge_min_count:
            return start, len(manifests)
    return None


def _size_class(manifest: ManifestFile, base: int) -> int:
    return int(math.log(max(1, manifest.added + manifest.deleted), max(2, base)))


def merged_entries(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Return entries in order, less every ADD with its DELETE. Unmatched DELETEs stay."""
    kept: dict[Any, ManifestEntry] = {}
    for entry in entries:
        identity = entry.identity
        found = kept.get(identity)
        if found is not None and found.kind == ADD and entry.kind != ADD:
            del kept[identity]
        elif found is not None:  # a DELETE, then the same file added anew: both matter to older manifests
            kept[(identity, entry.kind)] = entry
        else:
            kept[identity] = entry
    return list(kept.values())
