"""Lines: splits of changes whose rows are right only in the order of the splits, so that one task reads them.

Changes of a key lie in its bucket. So the splits of a bucket are a line, from the first snapshot to the last. A commit
that compares two states, or that gives keys other buckets, makes one line of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from merganser.meta.table_def import TableDef
from merganser.scan.phases import may_retract
from merganser.scan.split import AnySplit, DiffSplit, PublishedSplit, Split

Line = tuple[AnySplit, ...]


def are_ordered(table: TableDef, splits: Iterable[AnySplit]) -> bool:
    """Return whether rows of several buckets must come in the order of the splits: keys may move between these."""
    if not table.moves_keys:
        return False
    for split in splits:
        if not isinstance(split, Split) and split.phase is not None:
            return True
        if isinstance(split, PublishedSplit) and any(may_retract(table, file) for file in split.files):
            return True
    return False


def lines_of(table: TableDef, splits: Sequence[AnySplit], moving: Iterable[bytes]) -> tuple[Line, ...]:
    """Return the lines of what some snapshots published, in the order of their first splits; none: all are apart.

    Args:
        splits: in the order of the snapshots; those of several buckets are torn.
        moving: partitions whose keys may have got other buckets meanwhile.
    """
    if are_ordered(table, splits):
        return (tuple(splits),)
    if not table.keyed:
        return ()
    depth = len(table.schema.partition_keys) + 1
    mixed = {tuple(table.bucket_directory(partition, 0).split("/")[-depth:-1]) for partition in moving}

    def place(directory: str) -> tuple[str, ...]:
        """Return partition and bucket of a directory, which may lie outside of the table; or a partition alone."""
        names = tuple(directory.split("/")[-depth:])
        return names[:-1] if names[:-1] in mixed else names

    leads: dict[tuple[str, ...], tuple[str, ...]] = {}  # place -> another of its line, up to one that is its own

    def first(one: tuple[str, ...]) -> tuple[str, ...]:
        while (other := leads.setdefault(one, one)) != one:
            one = other
        return one

    parts: list[tuple[tuple[str, ...], AnySplit]] = []
    for split in splits:
        if isinstance(split, DiffSplit):
            places = [place(portion.directory) for portion in (*split.before, *split.after)]
            for other in places[1:]:
                leads[first(other)] = first(places[0])
            parts.append((places[0], split))
        elif isinstance(split, PublishedSplit):
            torn: dict[tuple[str, ...], list[int]] = {}
            for i, target in enumerate(split.targets):
                torn.setdefault(place(target.path.rpartition("/")[0]), []).append(i)
            for where, at in torn.items():
                targets, origins = tuple(split.targets[i] for i in at), tuple(split.origins[i] for i in at)
                parts.append((where, PublishedSplit(targets, origins)))
    lines: dict[tuple[str, ...], list[AnySplit]] = {}
    for where, part in parts:
        lines.setdefault(first(where), []).append(part)
    return tuple(map(tuple, lines.values()))
