"""Rejoining: the new keys of a commit are joined with the keys that other commits have added since it began.

A writer gives new keys their buckets by the index files that it knows. Another writer may commit before it. Then each
attempt to commit compares, bucket by bucket, the index files that the writer asked with the live ones:

    asked     bucket 0 {a b c}
    ours      bucket 0 {a b c d e}                      two new keys
    live      bucket 0 {a b c f}     bucket 1 {g}       committed since the writer began
    joined    bucket 0 {a b c f d e}                    a new file, which replaces the live one

The buckets that the writer chose still hold if two things are true:

* a live file has all hashes of the one that was asked: index files only grow, but an overwrite or a rollback begins
  them anew;
* no new key lies in another bucket now.

Then new keys join the live ones in a new index file, and rows stay where they are. A commit without new keys needs no
file. If either is not true, rows would have to move: the messages stay as they are, and the commit is refused.

Format: section "HASH index". Docs: decision 0052.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, TypeAlias

import numpy as np

from merganser.codec.hashing import Hashes
from merganser.commit.message import CommitMessage
from merganser.errors import FormatError
from merganser.files.key_hashes import read_hashes, write_hashes
from merganser.meta.index_manifest import IndexEntry
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.storage.env import Env
from merganser.write.start import KeyFiles

_STATES_MAX: Final = 1_000
"""So many states back a commit looks for the index files that it asked."""

_Asked: TypeAlias = tuple[bytes, frozenset[str]]
"""A partition, and the names of the index files of it that were asked."""
_Files: TypeAlias = Mapping[int, IndexEntry]
"""Index files of a partition, by bucket."""


class Rejoining:
    """The new keys of one commit, over all of its attempts.

    Args:
        made: takes the index files that are written here, as soon as they are durable, and those that they replace.
    """

    def __init__(self, table: TableDef, env: Env, made: list[CommitMessage]) -> None:
        self._table = table
        self._env = env
        self._made = made
        self._given: Sequence[CommitMessage] = ()
        self._live: Mapping[bytes, frozenset[str]] = {}
        self._joined: Sequence[CommitMessage] = ()

    def __call__(self, state: TableState, messages: Sequence[CommitMessage]) -> Sequence[CommitMessage]:
        """Return messages whose keys have joined those of a state.

        The same object is returned as before if nothing differs, and `messages` if nothing needs to be done or if the
        buckets of keys do not hold any more.

        Time: that of the index files that changed since, and of the commit's own, if there are such.

        Raises:
            FormatError: a live index file is missing or damaged.
            StorageError: an index file could not be read or written.
        """
        reader = MetaReader(self._table.paths, self._env, self._table.name)
        files = KeyFiles.among(reader.index(state.snapshot))
        live = {message.partition: files.names(message.partition) for message in messages}
        if messages is self._given and live == self._live:
            return self._joined
        self._given, self._live = messages, live
        late = {(m.partition, m.keys) for m in messages if m.keys is not None and m.keys != live[m.partition]}
        self._joined = self._join(messages, late, reader, state.snapshot, files) if late else messages
        return self._joined

    def _join(
        self,
        messages: Sequence[CommitMessage],
        late: set[_Asked],
        reader: MetaReader,
        newest: Snapshot | None,
        files: KeyFiles,
    ) -> Sequence[CommitMessage]:
        asked = _files_of(late, reader, newest)
        if len(asked) < len(late):
            return messages
        joined = list(messages)
        for partition in {partition for partition, _ in late}:
            now = _by_bucket(files.of(partition))
            places = [place for place, message in enumerate(messages) if message.partition == partition]
            each = {place: asked.get((partition, messages[place].keys or frozenset()), now) for place in places}
            new = {place: self._new_keys(messages[place]) for place in places}
            if not self._hold([(messages[place].bucket, each[place], new[place]) for place in places], now):
                return messages
            for place in places:
                joined[place] = self._with_live(messages[place], new[place], now)
        return joined

    def _hold(self, places: Iterable[tuple[int, _Files, Hashes]], now: _Files) -> bool:
        """Return whether the buckets that were chosen for rows of a partition hold in the live index.

        Args:
            places: of each message its bucket, the index files that were asked, and the hashes of its new keys, rising.
        """
        for bucket, before, new in places:
            changed = [entry for number, entry in now.items() if before.get(number) != entry]
            for entry in changed:
                mine = entry.bucket == bucket
                if not mine and not len(new):
                    continue
                there = read_hashes(self._table, self._env, entry)
                there.sort(kind="stable")
                if mine and bucket in before and not self._grew(before[bucket], there):
                    return False
                if not mine and _among(new, there).any():
                    return False
            if bucket in before and bucket not in now:
                return False
        return True

    def _grew(self, before: IndexEntry, there: Hashes) -> bool:
        """Return whether sorted hashes have all those of an index file; not if that file is gone."""
        try:
            return bool(_among(read_hashes(self._table, self._env, before), there).all())
        except FormatError:  # it has expired
            return False

    def _new_keys(self, message: CommitMessage) -> Hashes:
        """Return the hashes of keys that a message adds to its bucket, rising."""
        after, before = (
            np.concatenate([np.empty(0, np.int32), *(read_hashes(self._table, self._env, entry) for entry in entries)])
            for entries in (message.index_added, message.index_removed)
        )
        after.sort(kind="stable")
        before.sort(kind="stable")
        return after[~_among(after, before)]

    def _with_live(self, message: CommitMessage, new: Hashes, now: _Files) -> CommitMessage:
        """Return a message of known keys and of new ones, which have joined those of the live index file."""
        names = frozenset(entry.name for entry in now.values())
        entry = now.get(message.bucket)
        if entry is None or not message.index_added or entry in message.index_removed:
            return replace(message, keys=names)
        whole = np.union1d(read_hashes(self._table, self._env, entry), new)
        added: tuple[IndexEntry, ...] = ()
        removed: tuple[IndexEntry, ...] = ()
        if len(whole) > entry.row_count:
            made = write_hashes(self._table, self._env, (message.partition, message.bucket), whole)
            added, removed = (made,), (entry,)
        self._made.append(replace(message, added=(), removed=(), changelog=(), index_added=message.index_added + added))
        return replace(message, keys=names, index_added=added, index_removed=removed)


def _files_of(late: set[_Asked], reader: MetaReader, newest: Snapshot | None) -> dict[_Asked, _Files]:
    """Return the index files that were asked, as far as a state is still there that has them."""
    found: dict[_Asked, _Files] = {one: {} for one in late if not one[1]}
    for snapshot in islice(reader.snapshots.from_newest(newest), _STATES_MAX):
        if len(found) == len(late):
            break
        files = KeyFiles.among(reader.index(snapshot))
        found |= {one: _by_bucket(files.of(one[0])) for one in late if files.names(one[0]) == one[1]}
    return found


def _by_bucket(entries: Iterable[IndexEntry]) -> _Files:
    return {entry.bucket: entry for entry in entries}


def _among(hashes: Hashes, there: Hashes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return of each hash whether it is among sorted ones, bool[n]."""
    at = np.searchsorted(there, hashes)
    at[at == len(there)] = 0
    return there[at] == hashes if len(there) else np.zeros(len(hashes), np.bool_)
