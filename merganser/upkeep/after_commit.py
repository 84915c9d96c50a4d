"""What the writer of a commit does once the commit stands: the one place that every way of writing calls."""

from __future__ import annotations

from collections.abc import Sequence

from merganser.commit.message import CommitMessage
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.upkeep.compact_table import RunJobs, follow


def after_commit(
    table: TableDef,
    env: Env,
    messages: Sequence[CommitMessage],
    *,
    commit_user: str,
    identifier: int,
    run: RunJobs | None = None,
) -> None:
    """Do what is owed after a commit, unless the table is `write-only`. Nothing that fails here is a failure of it.

    Args:
        messages: what the commit changed.
        commit_user, identifier: of the commit; a compaction that goes with it has the same.
        run: where compactions run; None: on the threads of this process.
    """
    follow(table, env, messages, commit_user=commit_user, identifier=identifier, run=run)
