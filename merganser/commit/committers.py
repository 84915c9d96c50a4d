"""Who has committed, and how far: carried from snapshot to snapshot, so that it outlives the snapshots that show it.

A commit with an identifier is applied once, and whether it was applied is told by the newest identifier of its user.
The chain of snapshots shows that for as long as it is kept. So every snapshot of ours carries, as a property, what
it knows of all users at its own time, itself included::

    merganser.committers = {"job-7": [18, 44], "job-8": [3, 45]}    user: newest identifier, snapshot

Ordered by their newest snapshot, and at most `COMMITTERS_MAX`: the user that has been silent longest is left out.

Other engines ignore the property and do not carry it on. What it says is taken from snapshots of ours only, and what
others committed since is taken from the chain. Docs: decision 0017.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from merganser.errors import FormatError
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot

PROPERTY: Final = "merganser.committers"
COMMITTERS_MAX: Final = 100
WRITER: Final = "merganser-"
"""The start of the writer version in our snapshots."""

Committers: TypeAlias = dict[str, tuple[int, int]]
"""User -> newest identifier, and the newest snapshot of the user; the longest silent first."""


def is_ours(snapshot: Snapshot) -> bool:
    """Return whether merganser wrote a snapshot, and not another engine that took over its properties."""
    return (snapshot.writer_version or "").startswith(WRITER)


def carried(snapshot: Snapshot) -> Committers | None:
    """Return what a snapshot carries; None when it carries nothing, or was not written by us.

    Raises:
        FormatError: the property does not hold what we write.
    """
    text = (snapshot.properties or {}).get(PROPERTY)
    if text is None or not is_ours(snapshot):
        return None
    try:
        value = json.loads(text)
        found = {str(user): (number, snapshot_id) for user, (number, snapshot_id) in value.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        found = {"": (None, None)}
    if not all(type(part) is int for parts in found.values() for part in parts):
        raise FormatError(
            f"cannot tell who has committed to the table: property '{PROPERTY}' of snapshot {snapshot.id} is "
            f"{text!r:.80}, which is not what was written. Restore the snapshot's file, or roll back to an earlier "
            "one.",
            snapshot=snapshot.id,
        )
    return found


def followed_by(known: Mapping[str, tuple[int, int]], snapshots: Iterable[Snapshot]) -> Committers:
    """Return what is known after some more snapshots, oldest first."""
    found = dict(known)
    for snapshot in snapshots:
        if snapshot.commit_identifier != BATCH_IDENTIFIER:
            found = after(found, snapshot.commit_user, snapshot.commit_identifier, snapshot.id)
    return found


def after(known: Mapping[str, tuple[int, int]], user: str, identifier: int, snapshot_id: int) -> Committers:
    """Return what is known after one more commit."""
    found = dict(known)
    newest, _ = found.pop(user, (identifier, 0))
    found[user] = (max(newest, identifier), snapshot_id)
    while len(found) > COMMITTERS_MAX:
        del found[next(iter(found))]
    return found


def properties(before: Mapping[str, str] | None, known: Committers | None) -> dict[str, str] | None:
    """Return the properties of a snapshot: those of the one before, and what is known now."""
    found = {key: text for key, text in (before or {}).items() if key != PROPERTY}
    if known:
        found[PROPERTY] = json.dumps(known, ensure_ascii=False)
    return found or None
