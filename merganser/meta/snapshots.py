"""SnapshotStore: the numbered states of one table.

Hints may be stale, empty or wrong, so they are only a place to start: a latest hint counts when the file
after it is absent and its own file is there; an earliest hint counts when its file exists. Otherwise the
directory is listed.

A latest hint may lag, and never runs ahead: every writer creates a snapshot before it moves the hint, and a process
that removes the newest moves the hint back first. So a hint ahead of the newest file says that a file was lost
(decision 0031).

Format: sections "hint files" and "atomic publication".
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import Final

from merganser.errors import (
    CommitUnknownError,
    ExpiredError,
    FormatError,
    LostSnapshotWarning,
    MerganserError,
    NotFoundError,
    SnapshotExistsError,
)
from merganser.meta.create_once import create_once
from merganser.meta.erased import erasure_of
from merganser.meta.snapshot import Snapshot, same_snapshot, snapshot_from_json
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths
from merganser.values import dataclass

_NAME = re.compile(r"snapshot-([1-9][0-9]{0,18})")
"""As writers write it: what only looks like it (`snapshot-007`) names no snapshot."""
_AHEAD_MAX = 64
GUARD: Final = "rollback-to-"
"""How the name of the tag begins that a rollback makes of its target until it ends."""

_LOST_ADVICE: Final = (
    "Restore the file. If you cannot, {table}.repair() restores what a tag keeps and gives up the rest, and writes go "
    "on from the newest snapshot that is there."
)
_SETTLED_MS: Final = 200
"""How long a writer that met a rollback, or the rollback, may take to put the hint right."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A latest hint that names a snapshot whose file is not there.

    Attributes:
        newest: the newest snapshot that is there, if any.
        hint: the one that the hint names.
    """

    newest: int | None
    hint: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at the store found.

    Attributes:
        newest: the newest snapshot; None: there is none, or it was not read.
        follows: a snapshot that was there when `newest` had been read, the same one or an older one of its history;
            None: it is not known.
        between: the snapshots between the two, rising.
    """

    newest: Snapshot | None
    follows: Snapshot | None = None
    between: tuple[Snapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class SnapshotStore:
    """Reads and creates the snapshots of one table or branch."""

    paths: TablePaths
    env: Env
    table_name: str

    def get(self, snapshot_id: int) -> Snapshot | None:
        """Return a snapshot, or None when there is no such file."""
        path = self.paths.snapshot(snapshot_id)
        try:
            data = self.env.storage.read(path)
        except NotFoundError:
            return None
        return self._parsed(snapshot_id, data)

    def _parsed(self, snapshot_id: int, data: bytes) -> Snapshot:
        path = self.paths.snapshot(snapshot_id)
        found = snapshot_from_json(data, path)
        if found.id != snapshot_id:
            raise FormatError(
                f"cannot read the snapshot '{path}': it says that its id is {found.id}. Restore the file.", path=path
            )
        return found

    def load(self, snapshot_id: int) -> Snapshot:
        """Return a snapshot.

        Raises:
            NotFoundError: there never was such a snapshot.
            ExpiredError: it has been removed by expiry; names the oldest that is kept.
            FormatError: it lies between kept snapshots, but its file is gone or damaged.
        """
        found = self.get(snapshot_id)
        if found is not None:
            return found
        earliest, latest = self.earliest_id(), self.latest_id()
        if earliest is None or latest is None or snapshot_id > latest or snapshot_id < 1:
            kept = "the table has no snapshots yet"
            if latest is not None:
                kept = (
                    f"its only one is {latest}" if earliest == latest else f"its snapshots are {earliest} to {latest}"
                )
            raise NotFoundError(
                f"table '{self.table_name}' has no snapshot {snapshot_id}: {kept}.",
                table=self.table_name,
                snapshot=snapshot_id,
            )
        if snapshot_id < earliest:
            erasure = erasure_of(self.paths, self.env, snapshot_id)
            why, longer = f"{erasure} ended it", ""
            if erasure is None:
                why = f"snapshots before {earliest} have expired"
                longer = ", and raise 'snapshot.time-retained' to keep more from now on"
            raise ExpiredError(
                f"cannot read snapshot {snapshot_id} of '{self.table_name}': {why}. Read {earliest} or a later one, "
                f"or a tag{longer}.",
                table=self.table_name,
                snapshot=snapshot_id,
            )
        path = self.paths.snapshot(snapshot_id)
        raise FormatError(
            f"cannot read snapshot {snapshot_id} of '{self.table_name}': '{path}' is missing, though snapshots "
            f"{earliest} to "
            f"{latest} should be there. Restore the file, or read another snapshot.",
            path=path,
        )

    def latest(self, *, to_commit: bool = False) -> Snapshot | None:
        """Return the newest snapshot, or None of a table that has none.

        Args:
            to_commit: the caller will commit on it, which a lost newest snapshot forbids; else it makes a warning.

        Raises:
            FormatError: the newest snapshot is lost.
        """
        return self.look(to_commit=to_commit).newest

    def look(self, *, to_commit: bool = False, meanwhile: Callable[[Sequence[Snapshot]], None] | None = None) -> Seen:
        """Return the newest snapshot, and what it was seen to follow. As `latest`.

        Args:
            meanwhile: is called with snapshots that are new to this process and mostly all that are, while the store is
                asked whether they are.
        """
        hint, latest, seen = self._look(meanwhile)
        if hint is not None and hint > (latest or 0) and (lost := self.lost(latest)) is not None:
            if to_commit:
                raise self.lost_error(lost, f"cannot write to '{self.table_name}'")
            self._warn(lost)
        if latest is not None and seen.newest is None:
            # Between the listing and the read a rollback may have removed it: look once more.
            seen = Seen(self.get(latest) or self.load(self._listed(newest=True) or latest))
        if seen.newest is not None:
            self._know(seen.newest)
        return seen

    def latest_id(self) -> int | None:
        """Return the id of the newest snapshot, or None."""
        return self._look(None)[1]

    def _look(self, meanwhile: Callable[[Sequence[Snapshot]], None] | None) -> tuple[int | None, int | None, Seen]:
        """Return what the latest hint says, the id of the newest snapshot, and that snapshot if it was read.

        A snapshot that this process knows is the newest while it is there and the next one is not. Both are asked for
        at once, the known one since a rollback may have removed it. The order of the replies does not matter: a
        rollback removes the newest first and an expiry never does, so at some moment of the round it was the newest.
        If this process knows none, it begins with the one that a hint has named before, in the same way.
        """
        known = self.env.cache.get(self._known_key)
        start = self.env.cache.get(self._hint_key) if known is None else known.id
        if start is not None:
            with contextlib.suppress(FormatError):  # one is damaged: the hint, or the list, says which is the newest
                asks = (self.latest_hint, partial(self.get, start), partial(self.get, start + 1))
                hint, kept, above = self.env.beside(*asks)
                if kept is not None and (known is None or same_snapshot(kept, known)):
                    seen = Seen(kept, kept) if above is None else self._above(kept, above, hint, meanwhile)
                    if seen.newest is not None:
                        return hint, seen.newest.id, seen
        hint = self.latest_hint()
        if hint:
            with contextlib.suppress(FormatError):
                found, above = self.env.fetch(self.get, (hint, hint + 1))
                if found is not None and above is None:
                    return hint, hint, Seen(found)
        return hint, self._listed(newest=True), Seen(None)

    def _above(
        self, known: Snapshot, above: Snapshot, hint: int | None, meanwhile: Callable[[Sequence[Snapshot]], None] | None
    ) -> Seen:
        """Return the newest snapshot where there is one above the known one; the hint mostly names it.

        Each round asks for the known one, too. The last round finds no later one, so it does so after the newest was
        read, and all are of one history. If they are not, there is no newest in the result.
        """
        steps, new = [above], [above]
        ahead = 1 if hint is None else min(max(1, hint + 1 - above.id), _AHEAD_MAX)
        while True:
            ids = (known.id, *range(steps[-1].id + 1, steps[-1].id + 1 + ahead))
            asks = []
            if meanwhile is not None and new and (hint is None or new[-1].id >= hint):
                asks, new = [partial(meanwhile, new)], []
            kept, *found = self.env.beside(*(partial(self.get, number) for number in ids), *asks)[: len(ids)]
            if kept is None or not same_snapshot(kept, known):
                return Seen(None)
            there = [one for one in takewhile(lambda one: one is not None, found) if one is not None]
            if not there:
                return Seen(steps[-1], kept, tuple(steps[:-1]))
            steps += there
            new += there
            ahead = min(2 * ahead, _AHEAD_MAX) if len(there) == ahead else 1

    @property
    def _known_key(self) -> tuple[str, str]:
        return ("newest", self.paths.metadata_root)

    @property
    def _hint_key(self) -> tuple[str, str]:
        return ("noted hint", self.paths.metadata_root)

    def note_hint(self) -> None:
        """Read the hint for the first look of this process to begin with. It takes one request less in a row then."""
        if self.env.cache.get(self._known_key) is not None:
            return
        with contextlib.suppress(MerganserError):  # the look says what is wrong
            hint = self.latest_hint()
            if hint:
                self.env.cache.put(self._hint_key, hint, 100)

    def _know(self, newest: Snapshot) -> None:
        """Remember where the next look begins."""
        self.env.cache.put(self._known_key, newest, 1000)

    def lost(self, newest: int | None) -> Lost | None:
        """Return what the latest hint says that is lost; None if nothing is. Time: one read if all is well.

        What looks like a loss may be a rollback that goes on: it is asked for again, after a moment, and where there is
        the guard of a rollback, or the table is being dropped, it counts for nothing.

        Args:
            newest: the newest snapshot that is there.
        """
        hint = self._hint(self.paths.latest_hint)
        if not hint or hint <= (newest or 0) or self.env.storage.exists(self.paths.snapshot(hint)):
            return None
        found = Lost(newest, hint)
        if self.env.cache.get(self._lost_key) == found:
            return found
        self.env.sleep_ms(_SETTLED_MS)
        newest, hint = self._listed(newest=True), self._hint(self.paths.latest_hint)
        if not hint or hint <= (newest or 0):
            return None
        names = {entry.name for entry in self.env.storage.list(self.paths.tag_directory)}
        if any(name.startswith(f"tag-{GUARD}") for name in names) or not self.env.storage.list(
            self.paths.schema_directory
        ):
            return None
        return Lost(newest, hint)

    @property
    def _lost_key(self) -> tuple[str, str]:
        return ("lost", self.paths.metadata_root)

    def lost_error(
        self, lost: Lost, what: str, *, why: str = "That would destroy what is left of it", table: str = "table"
    ) -> FormatError:
        """Return the refusal to do something while the newest snapshot is lost.

        Args:
            why: the reason of the refusal.
            table: what to repair, as Python names it.
        """
        return FormatError(
            f"{what}: {self._lost_fact(lost)}. {why}. Nothing was changed. {_LOST_ADVICE.format(table=table)}",
            path=self.paths.snapshot(lost.hint),
            table=self.table_name,
            snapshot=lost.hint,
        )

    def _warn(self, lost: Lost) -> None:
        if self.env.cache.get(self._lost_key) != lost:
            self.env.cache.put(self._lost_key, lost, 100)
            told = f"'{self.table_name}' is read as it was before: {self._lost_fact(lost)}. Writers refuse."
            advice = _LOST_ADVICE.format(table="table")
            warnings.warn(f"{told} {advice}", LostSnapshotWarning, stacklevel=2)

    def _lost_fact(self, lost: Lost) -> str:
        there = "no snapshot is there" if lost.newest is None else f"the newest that is there is {lost.newest}"
        hint, path = self.paths.latest_hint, self.paths.snapshot(lost.hint)
        return f"'{hint}' names snapshot {lost.hint}, and {there}, so '{path}' is lost"

    def forget_lost(self) -> None:
        """Forget that a snapshot was lost, after a repair."""
        self.env.cache.drop(self._lost_key)

    def latest_hint(self) -> int | None:
        """Return the id that the hint names; None: there is no hint. It may lag behind. Time: one small read."""
        return self._hint(self.paths.latest_hint)

    def earliest_id(self) -> int | None:
        """Return the id of the oldest snapshot that is kept, or None."""
        hint = self._hint(self.paths.earliest_hint)
        if hint is not None and self.env.storage.exists(self.paths.snapshot(hint)):
            return hint
        return self._listed(newest=False)

    def ids(self) -> list[int]:
        """Return the ids of all snapshot files, rising."""
        names = (e.name for e in self.env.storage.list(self.paths.snapshot_directory) if not e.is_directory)
        return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))

    def from_newest(self, newest: Snapshot | None) -> Iterator[Snapshot]:
        """Yield a snapshot and those before it, downwards, until one is not there; nothing for None."""
        if newest is not None:
            yield newest
            yield from self.walk_back(newest.id - 1)

    def walk_back(self, snapshot_id: int) -> Iterator[Snapshot]:
        """Yield snapshots from `snapshot_id` downwards, until one is not there.

        Chains may be long and stores slow, so the more a caller takes, the more are read ahead, side by side.
        """

        def found_or_why(number: int) -> Snapshot | MerganserError | None:
            try:
                return self.get(number)
            except MerganserError as error:  # of one that the caller perhaps never takes
                return error

        ahead = 1
        while snapshot_id >= 1:
            for found in self.env.fetch(found_or_why, range(snapshot_id, max(0, snapshot_id - ahead), -1)):
                if isinstance(found, MerganserError):
                    raise found
                if found is None:
                    return
                yield found
            snapshot_id -= ahead
            ahead = min(2 * ahead, _AHEAD_MAX)

    def first(self, reached: Callable[[Snapshot], bool], *, above: int = 0) -> Snapshot | None:
        """Return the first snapshot of which something holds that goes on holding, or None.

        Args:
            above: only snapshots with higher ids.

        Raises:
            FormatError, ExpiredError: a snapshot in between is missing or damaged, or expires just now.
        """
        earliest, latest = self.earliest_id(), self.latest_id()
        low, high = max(earliest or 0, above + 1), latest or 0
        if earliest is None or low > high or not reached(self.load(high)):
            return None
        while low < high:
            middle = (low + high) // 2
            if reached(self.load(middle)):
                high = middle
            else:
                low = middle + 1
        return self.load(low)

    def create(self, snapshot: Snapshot) -> Snapshot:
        """Make `snapshot` the next state of the table: the commit point.

        Every file it names must already be durable. `snapshot-<id>` is created only if absent, so of two
        writers holding the same id exactly one goes on:

        * crash before the create: no reader can reach the new files; orphans remain.
        * crash after it: the commit stands. The hint may lag, and readers probe on.
        * reply lost: we read the file back. Our uuid means success, another's a lost race. While it cannot be
          read, nothing is known, whatever the store said.

        Returns:
            The snapshot as it is stored: an earlier attempt of the same uuid, when that one arrived.

        Raises:
            SnapshotExistsError: another writer owns this id; nothing changed. Check conflicts against it,
                then try the next id with the same files.
            StorageError: the store failed; nothing changed.
            CommitUnknownError: the read-back failed as well. Delete nothing: the snapshot may stand. Repeat
                with the same commit identifier. Context: `snapshot` and `uuid` of the attempt.

        Format: snapshot version 3. Time: one create, plus one read if the reply is lost.
        """
        path = self.paths.snapshot(snapshot.id)
        data = snapshot.to_json()
        made = create_once(
            self.env, path, data, is_ours=lambda found, _: self._parsed(snapshot.id, found).uuid == snapshot.uuid
        )
        if made.unknown is not None:
            raise CommitUnknownError(
                f"cannot tell whether snapshot {snapshot.id} of '{self.table_name}' was committed: {made.unknown} "
                f"Its files were kept. Repeat the write with commit user '{snapshot.commit_user}' and identifier "
                f"{snapshot.commit_identifier}; it will not be applied twice.",
                table=self.table_name,
                snapshot=snapshot.id,
                uuid=snapshot.uuid,
            ) from made.unknown
        if made.stored is None:
            raise SnapshotExistsError(
                f"snapshot {snapshot.id} of '{self.table_name}' was created by another writer. "
                "Nothing of this commit is visible.",
                table=self.table_name,
                snapshot=snapshot.id,
            )
        stored = snapshot if made.stored == data else self._parsed(snapshot.id, made.stored)
        self._know(stored)
        return stored

    def write_latest_hint(self, snapshot_id: int) -> None:
        """Point the hint at a snapshot. Best effort: readers do not rely on it, and the commit stands."""
        with contextlib.suppress(MerganserError):
            self.env.storage.replace(self.paths.latest_hint, str(snapshot_id).encode())

    def rolled_back(self, previous: Snapshot) -> bool:
        """Return whether a rollback has taken away what a snapshot was made on top of.

        Its file is then another one, or it is gone while an older snapshot is still there. Expiry goes from the oldest
        on, one by one, so what it has removed has nothing below. Time: one read.
        """
        found = self.get(previous.id)
        if found is not None:
            return not same_snapshot(found, previous)
        return any(number < previous.id for number in self.ids())

    def is_missing_below(self, end: int, number: int) -> bool:
        """Return whether a snapshot below `end` was removed, not expired: an older one is there, or it was the first.

        Another first one may also have come and expired. Time: one read, or a list.
        """
        if number >= end - 1 or self.get(number) is not None:
            return False
        return number == 1 or any(other < number for other in self.ids())

    def replace(self, snapshot: Snapshot) -> None:
        """Put a snapshot in the place of another one of its id.

        Raises:
            StorageError: it may be there or not.
        """
        self.env.storage.replace(self.paths.snapshot(snapshot.id), snapshot.to_json(), durable=True)

    def delete(self, snapshot_id: int) -> None:
        """Remove the file of a snapshot; what it names stays. A missing one is fine."""
        self.env.storage.delete([self.paths.snapshot(snapshot_id)])

    def hint_may_move(self, snapshot_id: int) -> bool:
        """Return whether the hint may be pointed at a new snapshot. Not if it names a later one, or cannot be read.

        A later one is there if others committed on top, or if the id had been used before and expired. The hint must
        not lead readers to such a snapshot.
        """
        with contextlib.suppress(MerganserError):
            hint = self.latest_hint()
            return hint is None or hint < snapshot_id
        return False

    def set_latest_hint(self, snapshot_id: int) -> None:
        """Point the hint at a snapshot, for sure: readers of other engines believe it while no later snapshot is there.

        Raises:
            StorageError: it may not have moved.
        """
        self.env.storage.replace(self.paths.latest_hint, str(snapshot_id).encode())

    def set_earliest_hint(self, snapshot_id: int) -> None:
        """Point the hint at the oldest snapshot that is kept.

        Raises:
            StorageError: it may not have moved.
        """
        self.env.storage.replace(self.paths.earliest_hint, str(snapshot_id).encode())

    def _hint(self, path: str) -> int | None:
        try:
            text = self.env.storage.read(path)
        except NotFoundError:
            return None
        return int(text) if text.isdigit() and len(text) < 20 else None

    def _listed(self, *, newest: bool) -> int | None:
        ids = self.ids()
        return (ids[-1] if newest else ids[0]) if ids else None
