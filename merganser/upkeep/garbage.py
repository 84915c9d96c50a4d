"""Garbage: the files that only some metadata needed, removed together with that metadata.

Steps::

    1  list      the files that the metadata needs (`NeededFiles.line`); change nothing yet
    2  drop      remove the metadata, so that no reader finds it without its files
    3  list      the files that every line of the table needs now
    4  remove    those of step 1 that step 3 does not have

A process that names one of the files again, such as a new tag or branch, checks afterwards that its source is still
there. Step 3 comes after step 2, so one of the two sees the other. A crash after step 2 leaves files that no metadata
names; the removal of orphans finds them once they are old. A call that is to finish by being repeated keeps a note of
the files of step 1 until step 4 is done. No age protects a noted file: metadata has named it, so it is no running
writer's. Decision 0016.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from merganser.errors import NotFoundError
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.upkeep.expire_snapshots import remove_empty_directories, remove_files
from merganser.upkeep.needed_files import NeededFiles


def note_garbage(table: TableDef, env: Env, path: str, files: Collection[str]) -> frozenset[str]:
    """Note durably at a path the files that are to go; return them: files outside of the table stay."""
    prefix = f"{table.path}/"
    noted = frozenset(each for each in files if each.startswith(prefix))
    names = sorted(each.removeprefix(prefix) for each in noted)
    env.storage.replace(path, json.dumps({"files": names}).encode(), durable=True)
    return noted


def noted_garbage(table: TableDef, env: Env, path: str) -> frozenset[str] | None:
    """Return the files that are noted at a path; None: there is no note."""
    try:
        return frozenset(join(table.path, name) for name in json.loads(env.storage.read(path))["files"])
    except NotFoundError:
        return None


def remove_unneeded(table: TableDef, env: Env, paths: Collection[str]) -> tuple[str, ...]:
    """Remove those of some files that no snapshot, tag, branch or changelog needs; steps 3 and 4.

    Args:
        paths: files that metadata needed which is gone by now. No running writer has made them.

    Returns:
        The paths that were removed, sorted.

    Raises:
        FormatError: metadata is damaged or missing, so the files that it names are unknown; nothing was removed.
        StorageError: the store failed; some files may be removed, and nothing needs them.
    """
    needed = NeededFiles(table, env)
    left = set(paths)
    for line in needed.lines():
        if left:
            left -= needed.line(line)
    gone = tuple(sorted(left))
    remove_files(table, env, gone)
    remove_empty_directories(table, env, {path.rpartition("/")[0] for path in gone})
    return gone
