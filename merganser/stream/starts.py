"""Where a stream starts: the state that it begins with, if it does, and the snapshot whose changes come next.

Semantics: "start modes".
"""

from __future__ import annotations

import logging
from typing import Final

from merganser.errors import InvalidInputError
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.options import write as w
from merganser.rules.starts import scan_mode
from merganser.scan.forms import LOG_OFFSET, WITH_OFFSETS
from merganser.scan.overwrites import first_known
from merganser.scan.source import MadeSince, State
from merganser.scan.split import What
from merganser.scan.time_travel import compacted, epoch_ms
from merganser.storage.env import Env
from merganser.values import dataclass

_log = logging.getLogger(__name__)
_BATCH_ONLY: Final = ("latest-delta", "incremental")
_WITHOUT_STATE: Final = ("latest", "from-snapshot", "from-timestamp")


@dataclass(frozen=True, slots=True)
class Start:
    """A start that was found.

    Attributes:
        state: what the stream begins with; None: it begins with changes.
        next: the snapshot whose changes come next.
    """

    state: State | MadeSince | None
    next: int


def start_of(table: TableDef, env: Env, what: What, action: str) -> Start:
    """Return where the options of a table say that a stream starts.

    Args:
        what: the form of the changes.
        action: beginning of messages.

    Raises:
        InvalidInputError: an option that a stream does not have.
        NotFoundError, ExpiredError: there is no such start, or no longer.
    """
    check_start(table, what, action)
    return _Starts(table, env).found(scan_mode(table.options))


def check_start(table: TableDef, what: What, action: str) -> None:
    """Refuse starts that a stream does not have; arguments as of `start_of`.

    Raises:
        InvalidInputError: the options name one. Nothing was read.
    """
    mode = scan_mode(table.options)
    if what in WITH_OFFSETS:
        _check_published(table, mode, action)
    if mode in _BATCH_ONLY:
        raise InvalidInputError(f"{action}: the start '{mode}' is for reads that end. Nothing was read.")
    for option in (r.SCAN_TAG_NAME, r.SCAN_WATERMARK, r.SCAN_VERSION):
        if table.options.is_set(option):
            raise InvalidInputError(
                f"{action}: '{option.key}' is for reads that end. Nothing was read. Give 'scan.snapshot-id'.",
                option=option.key,
            )


def oldest_changes(table: TableDef, env: Env) -> int | None:
    """Return the oldest snapshot of which the changes are kept, perhaps without its state."""
    kept = ChangelogStore(table.paths, env).ids()[:1]
    own = SnapshotStore(table.paths, env, table.name).earliest_id()
    found = min((i for i in (own, *kept) if i is not None), default=None)
    return None if found is None else first_known(table, env, found)


class _Starts:
    def __init__(self, table: TableDef, env: Env) -> None:
        self._table = table
        self._env = env
        self._store = SnapshotStore(table.paths, env, table.name)

    def found(self, mode: str) -> Start:
        table, store = self._table, self._store
        options = table.options
        latest = store.latest()
        after = 1 if latest is None else latest.id + 1
        match mode:
            case "latest":
                return Start(None, after)
            case "from-snapshot":
                return Start(None, self._first_kept(options.get(r.SCAN_SNAPSHOT_ID) or 1))
            case "from-snapshot-full":
                chosen = store.load(options.get(r.SCAN_SNAPSHOT_ID) or 1)
                return Start(State(chosen), chosen.id + 1)
            case "from-timestamp":
                text = options.get(r.SCAN_TIMESTAMP)
                millis = epoch_ms(text) if text is not None else options.get(r.SCAN_TIMESTAMP_MILLIS) or 0
                return Start(None, self._first_since(millis, after))
            case "from-creation-timestamp":
                millis = options.get(r.SCAN_CREATION_TIME_MILLIS) or 0
                earliest = store.earliest_id()
                if latest is not None and earliest is not None:
                    first_time = store.load(earliest).time_millis
                    if first_time <= millis <= latest.time_millis:
                        return Start(None, self._first_since(millis, after))
                return Start(None if latest is None else MadeSince(millis, latest), after)
            case "from-file-creation-time":
                millis = options.get(r.SCAN_FILE_CREATION_TIME_MILLIS) or 0
                return Start(None if latest is None else MadeSince(millis, latest), after)
            case "compacted-full":
                found = compacted(options, store)
                return Start(None, 1) if found is None else Start(State(found), found.id + 1)
        return Start(None if latest is None else State(latest), after)

    def _first_kept(self, asked: int) -> int:
        """Return the snapshot asked for, or the oldest with changes after it. 1 stands for the oldest one."""
        oldest = oldest_changes(self._table, self._env) or 1
        if 1 < asked < oldest:
            _log.warning(
                "a stream of '%s' starts with snapshot %d, the oldest whose changes are kept: those of %d to %d have "
                "expired, and the stream leaves them out. Start from 'latest-full' if they are needed.",
                self._table.name,
                oldest,
                asked,
                oldest - 1,
            )
        return max(asked, oldest)

    def _first_since(self, millis: int, after: int) -> int:
        oldest = oldest_changes(self._table, self._env) or 1
        for kept in ChangelogStore(self._table.paths, self._env).list():
            if kept.time_millis >= millis:
                return max(kept.id, oldest)
        found = self._store.first(lambda one: one.time_millis >= millis)
        return after if found is None else max(found.id, oldest)


def _check_published(table: TableDef, mode: str, action: str) -> None:
    """Refuse to hand over rows that no snapshot published, in a form with offsets.

    Raises:
        InvalidInputError: nothing was read.
    """
    if mode not in _WITHOUT_STATE:
        raise InvalidInputError(
            f"{action}: the start '{mode}' begins with a state, and rows of a state have no '{LOG_OFFSET.name}'. "
            f"Nothing was read. Start with one of {', '.join(_WITHOUT_STATE)}."
        )
    if table.options.get(r.STREAMING_READ_OVERWRITE) and table.options.get(w.CHANGELOG_PRODUCER) == "none":
        raise InvalidInputError(
            f"{action}: '{r.STREAMING_READ_OVERWRITE.key}' hands over rows that an overwrite did not publish, so "
            f"they have no '{LOG_OFFSET.name}'. Nothing was read. Follow the table or its '$audit_log' with it.",
            option=r.STREAMING_READ_OVERWRITE.key,
        )
