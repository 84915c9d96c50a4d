"""Groups of splits that one task must read in order, since the changes of a key lie in several of them.

All changes of a key lie in its bucket. So the splits of a bucket form a group, in commit order. Buckets are joined into
one group if a split compares two states of several buckets, or if keys may have been assigned to other buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from merganser.meta.table_def import TableDef
from merganser.scan.phases import may_retract
from merganser.scan.split import AnySplit, DiffSplit, PublishedSplit, Split

SplitGroup: TypeAlias = tuple[AnySplit, ...]
_Place: TypeAlias = tuple[str, ...]
"""Names of the last directories of a path: those of the partition and the bucket, or of the partition alone."""


def are_ordered(table: TableDef, splits: Iterable[AnySplit]) -> bool:
    """Return whether a key may move between the buckets of the splits, so that all of them form one group."""
    if not table.moves_keys:
        return False
    for split in splits:
        if not isinstance(split, Split) and split.phase is not None:
            return True
        if isinstance(split, PublishedSplit) and any(may_retract(table, file) for file in split.files):
            return True
    return False


def groups_of(table: TableDef, splits: Sequence[AnySplit], reassigned: Iterable[bytes]) -> tuple[SplitGroup, ...]:
    """Return groups of splits that one task must read in order.

    Args:
        splits: the changes of some snapshots, in commit order. Splits with files of several buckets are divided.
        reassigned: serialized partitions whose keys may have been assigned to other buckets by one of the snapshots.

    Returns:
        The groups, ordered by their first split. Empty if each split can be read independently.
    """
    if are_ordered(table, splits):
        return (tuple(splits),)
    if not table.keyed:
        return ()
    depth = len(table.schema.partition_keys) + 1
    whole = {tuple(table.bucket_directory(partition, 0).split("/")[-depth:-1]) for partition in reassigned}

    def place_of(directory: str) -> _Place:
        names = tuple(directory.split("/")[-depth:])  # the last ones: the directory may lie outside of the table
        return names[:-1] if names[:-1] in whole else names

    parents: dict[_Place, _Place] = {}  # union-find over places

    def root_of(place: _Place) -> _Place:
        while (parent := parents.setdefault(place, place)) != place:
            place = parent
        return place

    parts: list[tuple[_Place, AnySplit]] = []
    for split in splits:
        if isinstance(split, DiffSplit):
            first, *others = [place_of(portion.directory) for portion in (*split.before, *split.after)]
            for other in others:
                parents[root_of(other)] = root_of(first)
            parts.append((first, split))
        elif isinstance(split, PublishedSplit):
            parts += _by_place(split, [place_of(target.path.rpartition("/")[0]) for target in split.targets])
    groups: dict[_Place, list[AnySplit]] = {}
    for place, part in parts:
        groups.setdefault(root_of(place), []).append(part)
    return tuple(map(tuple, groups.values()))


def _by_place(split: PublishedSplit, places: Sequence[_Place]) -> list[tuple[_Place, AnySplit]]:
    """Return the files of a split as one split per place, in their order."""
    positions: dict[_Place, list[int]] = {}
    for i, place in enumerate(places):
        positions.setdefault(place, []).append(i)
    return [
        (place, PublishedSplit(tuple(split.targets[i] for i in at), tuple(split.origins[i] for i in at)))
        for place, at in positions.items()
    ]
