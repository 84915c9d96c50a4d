"""`table.tags`: snapshots with a name, which do not expire."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from merganser.meta.refs import Tag, TagStore
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.values import dataclass


@dataclass(frozen=True)
class Tags:
    """The tags of one table."""

    definition: TableDef
    env: Env

    def create(self, name: str, snapshot: int | None = None, retain: timedelta | str | None = None) -> Tag:
        """Give a snapshot a name. The snapshot and its files then stay when it expires.

        Args:
            name: must not be blank or contain a slash.
            snapshot: the number of the snapshot; None: the newest.
            retain: how long to keep the tag: a timedelta or text such as "3 d"; None: the table option
                'tag.default-time-retained', which by default keeps the tag without limit.

        Raises:
            AlreadyExistsError: a tag with this name exists; nothing was changed.
            NotFoundError: the snapshot does not exist; no tag was created.
            ExpiredError: the snapshot has expired; no tag was created.
            InvalidInputError: the name or the time is invalid.
            CommitUnknownError: the store lost the reply; check whether the tag exists.
        """
        from merganser.upkeep.tags import create_tag

        return create_tag(self.definition, self.env, name, snapshot=snapshot, retain=retain)

    def list(self) -> tuple[Tag, ...]:
        """Return all tags, ordered by snapshot, oldest first."""
        return TagStore(self.definition.paths, self.env, self.definition.name).list()

    def drop(self, name: str) -> None:
        """Remove a tag and the files that only it needs.

        Raises:
            NotFoundError: the tag does not exist.
        """
        from merganser.upkeep.tags import drop_tag

        drop_tag(self.definition, self.env, name)

    def rename(self, name: str, new_name: str) -> Tag:
        """Give a tag another name. The snapshot and the time that it is kept stay.

        Raises:
            NotFoundError: the tag does not exist.
            AlreadyExistsError: a tag with the new name exists.
            InvalidInputError: the new name is invalid. In all cases nothing was changed.
        """
        from merganser.upkeep.tags import rename_tag

        return rename_tag(self.definition, self.env, name, new_name)

    def replace(self, name: str, snapshot: int | None = None, retain: timedelta | str | None = None) -> Tag:
        """Let a tag name another snapshot; arguments as for `create`.

        Raises:
            NotFoundError: the tag or the snapshot does not exist; nothing was changed.
            ExpiredError, InvalidInputError: see `create`; nothing was changed.
        """
        from merganser.upkeep.tags import replace_tag

        return replace_tag(self.definition, self.env, name, snapshot=snapshot, retain=retain)

    if not TYPE_CHECKING:  # a wrong name is to be found

        def __getattr__(self, name: str) -> Any:
            from merganser.edit.other_names import OF_TAGS, no_method

            raise no_method(self, name, OF_TAGS)

    def __repr__(self) -> str:
        return f"Tags({self.definition.name!r})"
