"""Committers: the newest commit identifier of every user, recorded in each snapshot so that expiry does not lose it.

A commit with an identifier is applied once. The newest identifier of its user tells whether a commit was applied.
Older snapshots show this identifier only until they expire. So every snapshot of merganser records, as a property,
the newest identifier of each user up to and including itself::

    merganser.committers = {"job-7": [18, 44], "query-8": [3, 45, "5ac0..."]}    user: newest identifier, snapshot

Streams add a digest of what the batch of that identifier was made from: another batch may get the same number if the
progress of the stream is lost in part.

The users are ordered by their newest snapshot. A snapshot records at most `COMMITTERS_MAX` users and omits the user
that has not committed for the longest time.

Other engines ignore the property and do not copy it to their snapshots. merganser reads the property from its own
snapshots only, and reads later commits of other engines from their snapshots. Docs: decision 0017.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from merganser.errors import FormatError
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot

PROPERTY: Final = "merganser.committers"
COMMITTERS_MAX: Final = 100
WRITER: Final = "merganser-"
"""The start of the writer version in our snapshots."""


class Newest(NamedTuple):
    """What is known of a user's commits.

    Attributes:
        identifier: the newest one.
        snapshot: the newest one of the user.
        batch: tells the rows of this identifier from others of the same number; None: nobody said.
    """

    identifier: int
    snapshot: int
    batch: str | None = None


Committers: TypeAlias = dict[str, Newest]
"""By user; the user with the oldest snapshot first."""


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
        found = {str(user): Newest(*parts) for user, parts in value.items()}
        valid = all(type(n.identifier) is type(n.snapshot) is int for n in found.values())
        valid = valid and all(isinstance(n.batch, str | None) for n in found.values())
    except (ValueError, TypeError, AttributeError, RecursionError):
        valid = False
    if not valid:
        raise FormatError(
            f"cannot read the committers of the table: property '{PROPERTY}' of snapshot {snapshot.id} is "
            f"damaged: {text!r:.80}. Restore the file of the snapshot, or roll back to an earlier snapshot.",
            snapshot=snapshot.id,
        )
    return found


def followed_by(known: Mapping[str, Newest], snapshots: Iterable[Snapshot]) -> Committers:
    """Return the committers after some more snapshots, which come oldest first."""
    found = dict(known)
    for snapshot in snapshots:
        if snapshot.commit_identifier != BATCH_IDENTIFIER:
            found = after(found, snapshot.commit_user, snapshot.commit_identifier, snapshot.id)
    return found


def after(
    known: Mapping[str, Newest], user: str, identifier: int, snapshot_id: int, batch: str | None = None
) -> Committers:
    """Return what is known after one more commit. A compaction has the identifier of the write before it."""
    found = dict(known)
    newest = found.pop(user, None)
    if newest is not None and newest.identifier >= identifier:
        identifier, batch = newest.identifier, newest.batch
    found[user] = Newest(identifier, snapshot_id, batch)
    while len(found) > COMMITTERS_MAX:
        del found[next(iter(found))]
    return found


def properties(before: Mapping[str, str] | None, known: Committers | None) -> dict[str, str] | None:
    """Return the properties of a snapshot: those of the one before, and what is known now."""
    found = {key: text for key, text in (before or {}).items() if key != PROPERTY}
    if known:
        parts = {user: newest if newest.batch is not None else newest[:2] for user, newest in known.items()}
        found[PROPERTY] = json.dumps(parts, ensure_ascii=False)
    return found or None
