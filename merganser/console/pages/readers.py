"""Who reads the table: consumers with their lag and what they keep from expiry, and workers of the shard stream."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from merganser.console.page import Asked, Page, Paged, paged
from merganser.errors import FormatError, MerganserError
from merganser.handle.table import Table
from merganser.meta.consumers import Consumer
from merganser.meta.lag import Lag, lag_of, records_behind
from merganser.meta.shard_stream import stream_of
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.shards.followers import Follower
from merganser.upkeep.expire_snapshots import HeldBack, held_back
from merganser.values import dataclass

_SECONDS_HELD_HOLDS: Final = 10
"""Seconds for which the answer to what consumers keep is used again. Finding it reads the lists of these snapshots."""


@dataclass(frozen=True)
class Reader:
    """A consumer.

    Attributes:
        records: of a table with a log, how many records of the log it is behind; None: not known, or no log.
        held: what its position keeps from expiry; None: nothing.
    """

    consumer: Consumer
    lag: Lag
    records: int | None
    held: HeldBack | None

    @property
    def behind(self) -> timedelta:
        """From the commit of the last snapshot that it read to that of the newest one."""
        return timedelta(seconds=self.lag.seconds)


def view(asked: Asked) -> Mapping[str, Any]:
    """Return the readers of the table."""
    table = asked.table
    newest = table.latest_snapshot()
    readers, problem = Paged([], 1, 0), ""
    try:
        readers = _readers(asked, table, newest)
    except FormatError as error:  # a consumer is damaged
        problem = error.message
    followers, why = followers_of(table)
    return {
        "table": table,
        "newest": newest,
        "readers": readers,
        "problem": problem,
        "expires": table.options.get(u.CONSUMER_EXPIRATION_TIME),
        "has_log": table.options.get(w.LOG_SYSTEM) != "none",
        "followers": followers,
        "followers_problem": why,
    }


def _readers(asked: Asked, table: Table, newest: Snapshot | None) -> Paged:
    consumers = table.consumers.list()
    page = paged(sorted(consumers, key=lambda one: (one.next_snapshot, one.id)), asked)
    if not page.lines:
        return page
    moment = asked.catalog.env.clock().timestamp() // _SECONDS_HELD_HOLDS
    key = ("held", table.path, table.definition.branch, None if newest is None else newest.id, moment)
    held = asked.known.get(key, lambda: {one.consumer.id: one for one in held_back(table.definition, table.env)})
    store = SnapshotStore(table.definition.paths, table.env, table.name)

    def reader(one: Consumer) -> Reader:
        lag = lag_of(store, one.next_snapshot, newest)
        records = records_behind(table.definition, table.env, one.next_snapshot, newest)
        return Reader(one, lag, records, held.get(one.id))

    return Paged([reader(one) for one in page.lines], page.number, page.total, page.per_page)


def followers_of(table: Table) -> tuple[tuple[Follower, ...], str]:
    """Return the workers that keep their positions with the table, by shard, and why they are not known."""
    if stream_of(table.definition.options, table.definition.branch) is None:
        return (), ""
    try:
        found = table.followers()
    except MerganserError as error:
        return (), error.message
    has_begun = any(one.worker or one.iterator or one.done for one in found)
    return (found if has_begun else ()), ""


PAGE: Final = Page("readers", "/t/{table}/readers", view, title="Readers", key="r")
