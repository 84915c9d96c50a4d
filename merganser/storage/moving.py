"""Moving a table on a store without rename: file by file, so that a crash at any instant loses no data.

A directory is a table if it holds schemas. A directory that also holds the mark `schema/.moving` is a table only if it
holds the first schema, `schema-0`. A mover takes these steps::

    1  claim the target        create the mark there; only one of many movers succeeds
    2  copy all but schemas    the source is the table
    3  copy schemas            the first schema last: from here on both places are whole tables. Then check that the
                               target is whole: a user may have dropped it as the remains of a stopped move
    4  remove the schemas      set the mark at the source and remove the first schema first: now the target is the
                               table, and writers of the source fail
    5  copy new files          a writer may have committed to the source between 2 and 4
    6  remove the source       the mark last, so that the mark tells what a crash left behind
    7  remove the mark         of the target

A crash before the end of step 3 leaves the source as it was, and at the target some copies that are no table. A crash
after step 3 leaves a whole table at the target. To remove the remains at either place, drop the table of that name:
the copies share no files with the source. A directory of schemas moves in the same way.

A writer that checks its schema before step 4 and creates its snapshot after step 5 would lose a commit that it was told
of: the commit stays at the source, where no reader finds it. So directories that others may write to are not moved in
this way: a catalog refuses to rename a table on such a store, unless its caller says that nobody writes
(`Storage.moves_at_once`). All other moves are of directories that one process knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from merganser.errors import AlreadyExistsError, ConflictError, NotFoundError
from merganser.storage.protocol import Storage

MARK: Final = ".moving"
"""File beside schemas: a process is moving the table to or from this place, or was stopped during the move."""
_SCHEMA: Final = re.compile(r"(?:schema/)?schema-(\d+)", re.ASCII)
_SNAPSHOT: Final = re.compile(r"snapshot/snapshot-\d+", re.ASCII)


def move_by_copies(
    storage: Storage,
    source: str,
    target: str,
    *,
    below: Callable[[str], Iterable[str]],
    copy: Callable[[list[str]], None],
) -> None:
    """Move a tree, file by file.

    Args:
        storage: the store of both places.
        source: the directory to move.
        target: the new path of the directory.
        below: returns the paths of all files below a directory, relative to that directory.
        copy: copies files of the source in any order; takes paths as `below` returns them.

    Raises:
        AlreadyExistsError: the target exists, or another process is moving a table there; nothing was moved.
        NotFoundError: there is no such directory.
        ConflictError: another process removed copies, and the source is as it was; or other writers wrote to both
            source and target, and both are kept.
    """
    if storage.exists(target) or storage.list(target):
        raise _taken(source, target)
    found = _names(below(source))
    if not found:
        raise NotFoundError(f"cannot move '{source}': there is no such directory.", path=source)
    firsts, schemas, others = _apart(found)
    home = "schema/" if any(name.startswith("schema/") for name in found) else ""
    mark, claim = (f"{root}/{home}{MARK}" for root in (source, target))
    _claim(storage, source, target, claim)
    for names in (others, schemas, firsts):
        if names:
            copy(names)
    if lost := set(found).difference(below(target)):
        raise ConflictError(
            f"cannot move '{source}' to '{target}': another process removed {len(lost)} of the {len(found)} files "
            f"copied there (first: '{min(lost)}'). The source is as it was. Remove the target, then try again.",
            path=source,
            target=target,
        )
    storage.replace(mark, b"")
    for name in firsts + schemas:  # the newest last: a process that has opened the source goes on or fails
        storage.delete([f"{source}/{name}"])
    _, _, now = _apart(_names(below(source)))
    _copy_new(storage, source, target, [name for name in now if name not in found], copy)
    storage.delete(f"{source}/{name}" for name in now)
    storage.delete([mark])
    storage.delete([claim])


def _claim(storage: Storage, source: str, target: str, claim: str) -> None:
    """Claim the target. Of two movers, or of a mover and a process that creates a table there, at most one goes on."""
    try:
        storage.create(claim, b"")
    except AlreadyExistsError:
        raise _taken(source, target) from None
    directory = claim.rpartition("/")[0]
    beside = {entry.name for entry in storage.list(directory)} - {MARK}
    if directory != target:
        beside |= {entry.name for entry in storage.list(target)} - {directory.rpartition("/")[2]}
    if beside:
        storage.delete([claim])
        raise _taken(source, target)


def _copy_new(storage: Storage, source: str, target: str, names: list[str], copy: Callable[[list[str]], None]) -> None:
    """Copy the files that writers added during the copy, snapshots last."""
    snapshots = [name for name in names if _SNAPSHOT.fullmatch(name)]
    if both := [name for name in snapshots if storage.exists(f"{target}/{name}")]:
        raise ConflictError(
            f"cannot move all of '{source}' to '{target}': both have received a commit '{both[0]}' meanwhile. The "
            "target is the table, without that commit of the source. The files of the source were kept.",
            path=source,
            target=target,
        )
    for part in ([name for name in names if name not in snapshots], snapshots):
        if part:
            copy(part)


def _names(below: Iterable[str]) -> list[str]:
    return [name for name in below if name.rpartition("/")[2] != MARK]


def _apart(names: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the first schema of a table (or of a directory of schemas), its other schemas rising, and all else."""
    others, schemas = list[str](), list[tuple[int, str]]()
    for name in names:
        if (schema := _SCHEMA.fullmatch(name)) is not None:
            schemas.append((int(schema[1]), name))
        else:
            others.append(name)
    schemas.sort()
    return [name for number, name in schemas if not number], [name for number, name in schemas if number], others


def _taken(source: str, target: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"cannot move '{source}' to '{target}': the target exists. Nothing was moved.", path=target
    )
