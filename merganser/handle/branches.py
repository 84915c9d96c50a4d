"""`table.branches`: other lines of snapshots of the table, over the same data files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from merganser.meta.refs import Branch, BranchStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.values import dataclass


@dataclass(frozen=True)
class Branches:
    """The branches of one table. `table.branch(name)` opens a branch as a table."""

    definition: TableDef
    env: Env

    def create(self, name: str, tag: str | None = None) -> None:
        """Create a branch. It copies no data.

        Args:
            name: must not be blank, "main" or a number, and must not contain a slash or a `$`.
            tag: the branch starts from this tag; None: it starts empty, with the schemas of the table.

        Raises:
            AlreadyExistsError: a branch with this name exists; nothing was changed.
            NotFoundError: the tag does not exist.
            InvalidInputError: a branch cannot have this name.
        """
        from merganser.upkeep.branches import create_branch

        create_branch(self.definition, self.env, name, tag=tag)

    def list(self) -> tuple[Branch, ...]:
        """Return all branches but main, by name."""
        return BranchStore(self.definition.paths, self.env, self.definition.name).list()

    def fast_forward(self, name: str) -> Snapshot:
        """Replace main by a branch. Snapshots that main committed after the branch began are removed.

        Returns:
            The newest snapshot of main, which is now that of the branch. The branch stays.

        Raises:
            NotFoundError: the branch does not exist.
            InvalidInputError: the branch has no snapshot.
            FormatError: a snapshot of the branch, or the newest of main, is lost or damaged; nothing was changed.
                Restore its file, or repair the branch or main.
            ConflictError: main and branch do not fit together, and nothing was changed; or another process wrote to
                main. Stop its writers and repeat.
            StorageError: the store failed; main is at a state of main or of the branch. Repeat.
        """
        from merganser.upkeep.branches import fast_forward

        return fast_forward(self.definition, self.env, name)

    def drop(self, name: str) -> None:
        """Remove a branch and the files that nothing else needs.

        Raises:
            NotFoundError: the branch does not exist.
            FormatError, StorageError: the branch is gone, but some of its files were kept, as the message says. Remove
                them with `remove_orphans`.
        """
        from merganser.upkeep.branches import drop_branch

        drop_branch(self.definition, self.env, name)

    if not TYPE_CHECKING:  # a wrong name is to be found

        def __getattr__(self, name: str) -> Any:
            from merganser.edit.other_names import OF_BRANCHES, no_method

            raise no_method(self, name, OF_BRANCHES)

    def __repr__(self) -> str:
        return f"Branches({self.definition.name!r})"
