"""ChangelogStore: changelogs that outlive their snapshots.

Where changelogs are kept longer than snapshots, expiry copies the file of a snapshot to `changelog/changelog-<id>`
before it removes it. The hints beside it are only places to start, as those of snapshots are; the directory decides.

Format: section "changelog lifecycle".
"""

from __future__ import annotations

import contextlib
import re
from typing import Final

from merganser.errors import MerganserError, NotFoundError
from merganser.meta.snapshot import Snapshot, snapshot_from_json
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths
from merganser.values import dataclass

_NAME: Final = re.compile(r"changelog-([1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class ChangelogStore:
    """Reads and writes the long-lived changelogs of one table or branch."""

    paths: TablePaths
    env: Env

    def ids(self) -> list[int]:
        """Return the ids of the snapshots whose changelogs are kept here, rising."""
        names = (e.name for e in self.env.storage.list(self.paths.changelog_directory) if not e.is_directory)
        return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))

    def get(self, snapshot_id: int) -> Snapshot | None:
        """Return the snapshot whose changelog is kept, or None.

        Raises:
            FormatError: its file is damaged; names the path.
        """
        path = self.paths.changelog(snapshot_id)
        try:
            return snapshot_from_json(self.env.storage.read(path), path)
        except NotFoundError:
            return None

    def list(self) -> tuple[Snapshot, ...]:
        """Return all of them, rising. One that expires meanwhile may be missing."""
        return tuple(found for found in self.env.fetch(self.get, self.ids()) if found is not None)

    def put(self, snapshot: Snapshot) -> None:
        """Keep the changelog of a snapshot; doing it again changes nothing."""
        self.env.storage.replace(self.paths.changelog(snapshot.id), snapshot.to_json(), durable=True)

    def delete(self, snapshot_id: int) -> None:
        """Remove the file of a changelog; what it names stays. A missing one is fine."""
        self.env.storage.delete([self.paths.changelog(snapshot_id)])

    def delete_above(self, newest: int) -> None:
        """Remove the files of changelogs whose snapshots are later than `newest`: others will get their numbers."""
        later = [number for number in self.ids() if number > newest]
        if later:
            self.env.storage.replace(self.paths.latest_changelog_hint, str(newest).encode())
        for number in reversed(later):
            self.delete(number)

    def write_hints(self, *, earliest: int | None = None, latest: int | None = None) -> None:
        """Move the hints. Best effort: readers do not rely on them."""
        for path, value in ((self.paths.earliest_changelog_hint, earliest), (self.paths.latest_changelog_hint, latest)):
            if value is not None:
                with contextlib.suppress(MerganserError):
                    self.env.storage.replace(path, str(value).encode())
