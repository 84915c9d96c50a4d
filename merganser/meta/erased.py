"""What `erase(everywhere=True)` ended, noted for readers that come later: they learn why they cannot go on.

    erase/ended            the newest snapshot that ended; it and all before it are gone, with their changelogs
    consumer/ended-<id>    a consumer that ended, with the snapshot that it would have read next (`meta.consumers`)

A branch has both in its own directory. Other engines read neither.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

from merganser.errors import NotFoundError
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths
from merganser.values import dataclass

KINDER_ERASURE: Final = (
    "An erasure spares readers if erase is first called without everywhere, and again with it once they have read the "
    "snapshot that its report names."
)


@dataclass(frozen=True, slots=True)
class Ended:
    """What an erasure ended.

    Attributes:
        snapshot: the newest snapshot that ended, or the one that a consumer would have read next.
        at: when, in UTC.
    """

    snapshot: int
    at: datetime

    def __str__(self) -> str:
        return f"erase(..., everywhere=True) at {self.at:%Y-%m-%d %H:%M:%S} UTC"


def note_ended(env: Env, path: str, snapshot: int) -> None:
    """Note durably at a path what ends now."""
    env.storage.replace(path, json.dumps({"snapshot": snapshot, "time": env.now_ms()}).encode(), durable=True)


def ended_at(env: Env, path: str) -> Ended | None:
    """Return what is noted at a path. None if nothing is, or the note is damaged: it only explains an error."""
    try:
        value: Any = json.loads(env.storage.read(path))
        return Ended(int(value["snapshot"]), datetime.fromtimestamp(int(value["time"]) / 1000, UTC))
    except (NotFoundError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def erasure_of(paths: TablePaths, env: Env, snapshot: int) -> Ended | None:
    """Return the erasure that ended a snapshot which is gone. None if it expired, or was rolled back."""
    found = ended_at(env, paths.ended)
    return found if found is not None and snapshot <= found.snapshot else None
