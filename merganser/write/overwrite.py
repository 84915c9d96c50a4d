"""Which files an overwrite removes, and where its new ones go.

An overwrite chooses the files anew from each newest state, so it also removes rows that were appended meanwhile.
Rows that wait for their buckets go, too: they were written before.

Format: section "overwrite".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from merganser.codec.binary_row import deserialize, deserialize_columns, serialize
from merganser.commit.message import CommitMessage
from merganser.lsm.levels import dense_ranks, sections, top_level
from merganser.meta.data_file import DELETE, DataFile, ManifestEntry
from merganser.meta.live_files import BucketId, LiveFiles
from merganser.meta.table_def import TableDef
from merganser.options import write as w

Selection = Callable[[LiveFiles], list[ManifestEntry]]


def of_partitions(partitions: Sequence[bytes]) -> Selection:
    """Return the choice of all files of some serialized partitions."""
    chosen = frozenset(partitions)
    return lambda live: _removals(live, lambda partition: partition in chosen)


def of_spec(table: TableDef, spec: Mapping[str, Any]) -> Selection:
    """Return the choice of all files of the partitions that have some stored values; {}: of the table."""
    names, kinds = (
        table.schema.partition_keys,
        dict(zip(table.schema.partition_keys, table.partition_types, strict=True)),
    )
    wanted = {name: serialize((value,), (kinds[name],)) for name, value in spec.items()}

    def matches(partition: bytes) -> bool:
        values = dict(zip(names, deserialize(partition, table.partition_types), strict=True))
        # As bytes, as partitions differ: NaN is one of them, and -0.0 is not 0.0.
        return all(serialize((values[name],), (kinds[name],)) == value for name, value in wanted.items())

    return lambda live: _removals(live, matches)


def _removals(live: LiveFiles, matches: Callable[[bytes], bool]) -> list[ManifestEntry]:
    decided: dict[bytes, bool] = {}
    out: list[ManifestEntry] = []
    for (partition, _), files in live.buckets.items():
        if partition not in decided:
            decided[partition] = matches(partition)
        if decided[partition]:
            out.extend(replace(entry, kind=DELETE) for entry in files.entries)
    return out


def upgraded(table: TableDef, messages: Sequence[CommitMessage]) -> list[CommitMessage]:
    """Return the messages of an overwrite with new files moved to the top level where that is right.

    The new files of all writers of a bucket are all its files. When their key ranges do not meet and they
    hold no retractions, they are a sorted run of the highest level as they stand, and are read without a merge.
    """
    if not table.keyed or not table.options.get(w.OVERWRITE_UPGRADE):
        return list(messages)
    top = top_level(table.options)
    buckets: dict[BucketId, list[DataFile]] = {}
    for message in messages:
        buckets.setdefault((message.partition, message.bucket), []).extend(message.added)
    lifted = {bucket for bucket, files in buckets.items() if bucket[1] >= 0 and _is_run(table, files)}
    return [
        replace(message, added=tuple(replace(file, level=top) for file in message.added))
        if (message.partition, message.bucket) in lifted
        else message
        for message in messages
    ]


def _is_run(table: TableDef, files: Sequence[DataFile]) -> bool:
    """Return whether files are a sorted run without retractions."""
    low = deserialize_columns([file.min_key for file in files], table.key_types)
    high = deserialize_columns([file.max_key for file in files], table.key_types)
    return all(file.delete_row_count == 0 for file in files) and len(sections(*dense_ranks(low, high))) == len(files)
