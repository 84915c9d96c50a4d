"""Abandoned files: files of a commit that has certainly failed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from merganser.commit.message import CommitMessage
from merganser.errors import MerganserError
from merganser.files.masks import index_path
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.storage.paths import join


def remove_uncommitted(table: TableDef, env: Env, messages: Sequence[CommitMessage]) -> None:
    """Remove the new files of messages that are not committed. Best effort: else they are orphans.

    A file that only changed its level is another's, and stays.
    """
    paths = []
    for message in messages:
        kept = {file.name for file in message.removed}
        directory = table.bucket_directory(message.partition, message.bucket)
        gone = [*(file for file in message.added if file.name not in kept), *message.changelog]
        paths += [join(directory, name) for file in gone for name in file.names]
        paths += [index_path(table, entry) for entry in message.index_added]
    with contextlib.suppress(MerganserError):
        env.storage.delete(paths)
