"""Committers: the newest commit identifier of every user, recorded in each snapshot so that expiry does not lose it.

A commit with an identifier is applied once. The newest identifier of its user tells whether a commit was applied.
Older snapshots show this identifier only until they expire. So every snapshot of merganser records, as a property,
the newest identifier of each user up to and including itself::

    merganser.committers = {"job-7": [18, 44], "job-8": [3, 45]}    user: newest identifier, snapshot

The users are ordered by their newest snapshot. A snapshot records at most `COMMITTERS_MAX` users and omits the user
that has not committed for the longest time.

Other engines ignore the property and do not copy it to their snapshots. merganser reads the property from its own
snapshots only, and reads later commits of other engines from their snapshots. Docs: decision 0017.
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
"""User -> newest identifier, and the newest snapshot of the user; the user with the oldest snapshot first."""


def is_ours(snapshot: Snapshot) -> bool:
    """Return whether merganser wrote a snapshot; another engine may have copied its properties."""
    return (snapshot.writer_version or "").startswith(WRITER)


def carried(snapshot: Snapshot) -> Committers | None:
    """Return the committers that a snapshot records; None if it records none, or merganser did not write it.

    Raises:
        FormatError: the property is not in the form that merganser writes.
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
            f"cannot read the committers of the table: property '{PROPERTY}' of snapshot {snapshot.id} is "
            f"damaged: {text!r:.80}. Restore the file of the snapshot, or roll back to an earlier snapshot.",
            snapshot=snapshot.id,
        )
    return found


def followed_by(known: Mapping[str, tuple[int, int]], snapshots: Iterable[Snapshot]) -> Committers:
    """Return the committers after some more snapshots, which come oldest first."""
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
