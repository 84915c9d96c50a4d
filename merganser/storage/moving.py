"""Moving a table's tree where there is no rename: file by file, so that a crash at any instant loses nothing.

A directory is a table while it holds schemas; one that also holds the mark `schema/.moving` only while the first of
them, `schema-0`, is there::

    1  claim the target        the mark is created there, which one of many movers manages
    2  copy all but schemas    the source is the table
    3  copy schemas            the first of them last: from here on the target is whole, and both are tables; that it
                               is whole is looked at, since somebody may have dropped what he took for a stopped move
    4  remove the schemas      the mark is set, the first of them goes first: the target is the table, and writers of
                               the source are refused
    5  copy what is new        of a writer that committed to the source between 2 and 4
    6  remove the source       its mark last, so that what a crash leaves is known for what it is
    7  remove the mark         of the target

A crash before 3 is done leaves the source as it was, and at the target copies that are no table. A crash after it
leaves the target whole. What is left at either place is removed by dropping the table of that name: copies share
nothing with what they were made from. A directory of schemas moves in the same way.

Left open: a writer of the source that looked at its schema before 4 and creates its snapshot after 5. Its commit
stays at the source, where nobody finds it, as when a table is dropped under a writer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from merganser.errors import AlreadyExistsError, ConflictError, NotFoundError
from merganser.storage.protocol import Storage

MARK: Final = ".moving"
"""File beside schemas: a process moves the table to or from this place, or was stopped while it did."""
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
        storage: its `create`, `exists`, `list` and `delete` are used.
        source: a directory.
        target: where it is to be.
        below: returns the paths of all files below a directory, without it.
        copy: copies files of the source, named as by `below`, in any order.

    Raises:
        AlreadyExistsError: the target exists, or somebody else is moving something there; nothing was moved.
        NotFoundError: there is no such directory.
        ConflictError: somebody removed copies, and the source was left as it is; or source and target were both
            written to, and both are kept.
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
            f"cannot move '{source}' to '{target}': {len(lost)} of the {len(found)} files copied there were removed by "
            f"somebody else (first: '{min(lost)}'). The source is as it was. Remove the target, then try again.",
            path=source,
            target=target,
        )
    storage.replace(mark, b"")
    for name in firsts + schemas:  # the newest last: whoever has opened the source goes on with it or fails
        storage.delete([f"{source}/{name}"])
    _, _, now = _apart(_names(below(source)))
    _copy_new(storage, source, target, [name for name in now if name not in found], copy)
    storage.delete(f"{source}/{name}" for name in now)
    storage.delete([mark])
    storage.delete([claim])


def _claim(storage: Storage, source: str, target: str, claim: str) -> None:
    """Claim the target; two movers, or one and somebody who makes a table there, do not both go on."""
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
    """Copy what was written while the tree was copied, snapshots last."""
    snapshots = [name for name in names if _SNAPSHOT.fullmatch(name)]
    if both := [name for name in snapshots if storage.exists(f"{target}/{name}")]:
        raise ConflictError(
            f"cannot move all of '{source}' to '{target}': '{both[0]}' was written to both meanwhile. The target is "
            "the table, without that commit of the source, whose files were kept.",
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
