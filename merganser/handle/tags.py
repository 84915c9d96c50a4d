"""`table.tags`: snapshots that are kept by name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from merganser.meta.refs import Tag, TagStore
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.upkeep.tags import create_tag, drop_tag


@dataclass(frozen=True)
class Tags:
    """The tags of one table."""

    definition: TableDef
    env: Env

    def create(self, name: str, snapshot: int | None = None, retain: timedelta | str | None = None) -> Tag:
        """Keep a snapshot under a name: it and its files stay when it expires.

        Args:
            name: not blank, without a slash.
            snapshot: its id; None: the newest.
            retain: how long the tag is kept: a timedelta or text such as "3 d"; None: as the table's option
                'tag.default-time-retained' says, else for ever.

        Raises:
            AlreadyExistsError: there is a tag of this name; nothing was changed.
            NotFoundError, ExpiredError: no such snapshot, or no longer; there is no such tag.
            InvalidInputError: a name or time that has no meaning.
            CommitUnknownError: the store lost the reply; look whether the tag is there.
        """
        return create_tag(self.definition, self.env, name, snapshot=snapshot, retain=retain)

    def list(self) -> tuple[Tag, ...]:
        """Return all tags, the one of the oldest snapshot first."""
        return TagStore(self.definition.paths, self.env, self.definition.name).list()

    def drop(self, name: str) -> None:
        """Remove a tag, and the files that were kept for it alone.

        Raises:
            NotFoundError: there is no such tag.
        """
        drop_tag(self.definition, self.env, name)

    def __repr__(self) -> str:
        return f"Tags({self.definition.name!r})"
