"""Many small manifests -> few, so that commits and planning cost the same after thousands of commits.

Manifests fall into classes by the logarithm of their entry count, base `merge_min_count`. When the newest
manifests hold `merge_min_count` of one class, they become one of the next class: every entry is rewritten
once per class, so the cost of a commit grows with the logarithm of the table's age. Where commits of all sizes
alternate no class fills up at the end of the list; then the number of manifests decides, as many for each class.
Merging neighbours only keeps an ADD before its DELETE; pairs within one merge cancel.

What weighs half of `target_bytes` is large enough and is not merged again: merged manifests roll at about the
target, and were those a little below it taken for small, every commit would write them all anew.

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


def merge_span(
    manifests: Sequence[ManifestFile], *, target_bytes: int, full_threshold_bytes: int, merge_min_count: int
) -> tuple[int, int] | None:
    """Return the half-open range of manifests to merge into one, or None.

    Args:
        manifests: base then delta manifests of the newest snapshot, oldest first.
        target_bytes: manifests of half this size or more are left alone, unless a full merge needs them.
        full_threshold_bytes: weight of small or dirty manifests that triggers a full merge.
        merge_min_count: how many of one class make a merge.
    """
    count = len(manifests)
    if count < 2:
        return None
    small = [2 * m.size < target_bytes for m in manifests]
    dirty = sum(m.size for m, is_small in zip(manifests, small, strict=True) if is_small or m.deleted)
    if any(m.deleted for m in manifests) and dirty >= full_threshold_bytes:
        return 0, count
    classes = [_size_class(m, merge_min_count) for m in manifests]
    for limit in range(max(classes) + 1):
        start = count
        while start and classes[start - 1] <= limit and small[start - 1]:
            start -= 1
        full = sum(1 for c in classes[start:] if c == limit) >= merge_min_count
        if count - start >= 2 and (full or count - start >= merge_min_count * (limit + 1)):
            return start, count
    return None


def _size_class(manifest: ManifestFile, base: int) -> int:
    return int(math.log(max(1, manifest.added + manifest.deleted), max(2, base)))


def merged_entries(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Return entries in order, less every ADD with the DELETE that follows it. Unmatched DELETEs stay."""
    kept: dict[int, ManifestEntry] = {}
    places: dict[Any, list[int]] = {}  # of each file, where its entries stand that are kept
    for place, entry in enumerate(entries):
        of_file = places.setdefault(entry.identity, [])
        if entry.kind != ADD and of_file and kept[of_file[-1]].kind == ADD:
            del kept[of_file.pop()]
        else:
            kept[place] = entry
            of_file.append(place)
    return list(kept.values())
