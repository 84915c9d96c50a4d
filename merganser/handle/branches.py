"""`table.branches`: lines of snapshots beside the table's own, over the same data files."""

from __future__ import annotations

from dataclasses import dataclass

from merganser.meta.refs import Branch, BranchStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.upkeep.branches import create_branch, drop_branch, fast_forward


@dataclass(frozen=True)
class Branches:
    """The branches of one table. Get the table of one with `table.branch(name)`."""

    definition: TableDef
    env: Env

    def create(self, name: str, tag: str | None = None) -> None:
        """Make a branch. It copies no data.

        Args:
            name: not blank, not "main", no number, without a slash or a `$`.
            tag: where it begins; None: it begins empty, with the schemas of the table.

        Raises:
            AlreadyExistsError: there is a branch of this name; nothing was changed.
            NotFoundError: there is no such tag.
            InvalidInputError: no branch can have this name.
        """
        create_branch(self.definition, self.env, name, tag=tag)

    def list(self) -> tuple[Branch, ...]:
        """Return all branches but main, by name."""
        return BranchStore(self.definition.paths, self.env, self.definition.name).list()

    def fast_forward(self, name: str) -> Snapshot:
        """Put a branch in the place of main: what main committed since the branch was made is gone.

        Returns:
            The newest snapshot of main, which is that of the branch. The branch stays.

        Raises:
            NotFoundError: there is no such branch.
            InvalidInputError: it has no snapshot.
            ConflictError: the two do not fit, and nothing was changed; or somebody wrote to main meanwhile: stop
                its writers, and repeat.
            StorageError: main is at a state of its own or of the branch. Repeat.
        """
        return fast_forward(self.definition, self.env, name)

    def drop(self, name: str) -> None:
        """Remove a branch. Files that only it reached stay until orphans are removed.

        Raises:
            NotFoundError: there is no such branch.
        """
        drop_branch(self.definition, self.env, name)

    def __repr__(self) -> str:
        return f"Branches({self.definition.name!r})"
