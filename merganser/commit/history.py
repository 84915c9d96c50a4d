"""History: whether a change is already part of the table, and which committers the next snapshot records.

The identifiers of one commit user rise. By the format's rule a commit is applied already if its identifier is at or
below the newest identifier of its user. Snapshots of merganser record the newest identifier of every user
(`committers`). Where other engines have committed since, this module reads the chain of snapshots. Every question
names the snapshot where the chain ends: the snapshot that the commit is going to follow, never "the newest". So a
commit finds a twin that was committed just before it.

Format: section "commitUser and replay". Docs: decision 0017.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import Final

from merganser.commit import committers
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot
from merganser.meta.table_state import MetaReader, TableState
from merganser.values import dataclass

_FOREIGN_MAX: Final = 100
"""Most commits of other engines in a row that a commit without an identifier reads."""


@dataclass(frozen=True, slots=True)
class History:
    """The commits of one table or branch."""

    reader: MetaReader

    def find(self, commit_user: str, identifier: int, latest: Snapshot | None) -> tuple[bool, Snapshot | None]:
        """Return whether a commit was applied up to a snapshot, and the snapshot it made if that is still kept."""
        if identifier == BATCH_IDENTIFIER or latest is None:
            return False, None
        newest = self.newest_of(commit_user, latest)
        if newest is None or newest.identifier < identifier:
            return False, None
        found = None
        for snapshot in self.reader.snapshots.walk_back(newest.snapshot):
            if snapshot.commit_user == commit_user:
                if snapshot.commit_identifier == identifier:
                    found = snapshot  # keep walking: APPEND comes before the COMPACT of the same commit
                elif snapshot.commit_identifier < identifier:
                    break
        return True, found

    def find_uuid(self, uuid: str | None, state: TableState, *, since: int) -> Snapshot | None:
        """Return the snapshot of a uuid, from snapshot `since` on up to a state; None if it is not there."""
        for found in self.reader.newest_first(state):
            if found.id < since:
                break
            if found.uuid == uuid:
                return found
        return None

    def newest_of(self, commit_user: str, latest: Snapshot) -> committers.Newest | None:
        """Return the newest commit of a user; its snapshot may have expired."""
        known = self._committers(latest)
        if commit_user in known or len(known) < committers.COMMITTERS_MAX:
            return known.get(commit_user)
        for snapshot in chain([latest], self.reader.snapshots.walk_back(latest.id - 1)):  # a full record omits some
            # A batch commit of the same user has no rising identifier.
            if snapshot.commit_user == commit_user and snapshot.commit_identifier != BATCH_IDENTIFIER:
                known = committers.carried(snapshot) or {}
                return known.get(commit_user, committers.Newest(snapshot.commit_identifier, snapshot.id))
        return None

    def committers_after(
        self, snapshot: Snapshot, previous: Snapshot | None, batch: str | None = None
    ) -> committers.Committers | None:
        """Return the committers that a new snapshot records; None: no commit had an identifier.

        `batch` tells the rows of a stream's batch from others of the same number; None: nobody says.

        A commit without an identifier reads only the commits of other engines since the last snapshot of merganser,
        and at most `_FOREIGN_MAX` of them. If there are more, it records nothing: the snapshots themselves still
        show those committers while the table keeps them.
        """
        if snapshot.commit_identifier != BATCH_IDENTIFIER:
            known = {} if previous is None else self._committers(previous)
            return committers.after(known, snapshot.commit_user, snapshot.commit_identifier, snapshot.id, batch)
        if previous is None:
            return None
        carried = committers.carried(previous)
        if carried is not None or committers.is_ours(previous):
            return carried
        others = list(islice(self.reader.snapshots.walk_back(previous.id), _FOREIGN_MAX))
        at = next((i for i, one in enumerate(others) if committers.is_ours(one)), len(others))
        if at == _FOREIGN_MAX:
            return None
        below = committers.carried(others[at]) if at < len(others) else None
        return committers.followed_by(below or {}, reversed(others[:at])) or None

    def _committers(self, latest: Snapshot) -> committers.Committers:
        """Return the committers up to a snapshot. The cache keeps them, so a writer reads the chain once."""
        cache, key = self.reader.env.cache, ("committers", self.reader.paths.metadata_root)
        seen: tuple[Snapshot, committers.Committers] | None = cache.get(key)
        since: list[Snapshot] = []
        known: committers.Committers = {}
        for snapshot in chain([latest], self.reader.snapshots.walk_back(latest.id - 1)):
            carried = committers.carried(snapshot)
            if carried is not None:
                known = carried
                break
            if seen is not None and snapshot == seen[0]:  # the same chain from here down
                known = seen[1]
                break
            since.append(snapshot)
        known = committers.followed_by(known, reversed(since))
        cache.put(key, (latest, known), 1000)
        return known
