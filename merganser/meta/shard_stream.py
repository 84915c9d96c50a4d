"""ShardStream: that a table keeps a stream of shards, since when, and for how long.

The options of the table say it: `stream.enabled`, `stream.retention` and, written when the stream is enabled,
`merganser.stream` with its id. All snapshots of that schema and later ones belong to the stream. A stream that is
enabled again gets another id, and positions in the earlier one mean nothing.

Semantics: "Table Store Stream".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from typing import Any, Final

from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import INT_MAX, Options
from merganser.rules.compacting import PER_RECORD
from merganser.values import dataclass

_RESTORED: Final = (
    w.CHANGELOG_PRODUCER,
    w.ASKED_PRODUCER,
    u.CHANGELOG_TIME_RETAINED,
    u.CHANGELOG_NUM_RETAINED_MAX,
    u.CHANGELOG_NUM_RETAINED_MIN,
)
"""Options that a stream sets. Disabling it gives them back the texts that they had."""


_LONGER: Final = timedelta(seconds=1)
"""Changelogs that are kept for longer than snapshots, be it a little, do not expire with them."""


@dataclass(frozen=True, slots=True)
class ShardStream:
    """The stream of shards that a table keeps.

    Attributes:
        id: 32 hexadecimal digits.
        retention: how long records can be read after their commit.
        created_ms: when it was enabled, in epoch milliseconds.
        after: the newest snapshot when it was enabled; 0: there was none.
        schema_id: the first schema with the stream. Snapshots after `after` that name an older one are not in it.
        restores: the texts of options that the stream has replaced; None: an option was not set.
        branch: of the table. Another branch that has the schema, since it was made of this one, keeps no stream.
    """

    id: str
    retention: timedelta
    created_ms: int
    after: int
    schema_id: int
    restores: Mapping[str, str | None] = field(default_factory=dict)
    branch: str = "main"


def stream_of(options: Options, branch: str | None) -> ShardStream | None:
    """Return the stream that the options of a table name; None: the table keeps none.

    Args:
        branch: of the table; None: any, since only what the options say is wanted.
    """
    text = options.get(w.STREAM)
    if text is None or not options.get(w.STREAM_ENABLED):
        return None
    try:
        said: dict[str, Any] = json.loads(text)
        found = ShardStream(
            str(said["id"]),
            options.get(w.STREAM_RETENTION),
            int(said["created"]),
            int(said["after"]),
            int(said["schema"]),
            dict(said.get("restores", {})),
            str(said.get("branch", "main")),
        )
    except (ValueError, TypeError, KeyError):  # written by no release that we know
        return None
    return found if branch in (None, found.branch) else None


def with_stream(
    options: Options,
    *,
    id: str,
    retention: timedelta,
    created_ms: int,
    after: int,
    schema_id: int,
    keyed: bool,
    branch: str = "main",
) -> Options:
    """Return the options of a table that keeps a stream.

    Changelogs outlive their snapshots for as long as the stream needs. A table with a key that publishes nothing
    begins to log each record. So does one that counts its rows, of which those that come are all that changes.

    Args:
        keyed: the table has a key, or counts its rows.
    """
    given = dict(options.items())
    before = stream_of(options, None)
    wanted: dict[str, str] = {}
    if keyed and options.get(w.CHANGELOG_PRODUCER) == "none":
        wanted[w.CHANGELOG_PRODUCER.key] = "input"
        if options.get(w.WRITE_MODE) != "change-log":
            wanted[w.ASKED_PRODUCER.key] = PER_RECORD
    kept = options.get(u.CHANGELOG_TIME_RETAINED)
    least = max(options.get(u.SNAPSHOT_TIME_RETAINED) + _LONGER, retention)
    if kept is None or kept < least:
        wanted[u.CHANGELOG_TIME_RETAINED.key] = span_text(least)
    wanted[u.CHANGELOG_NUM_RETAINED_MAX.key] = str(INT_MAX)
    if not options.is_set(u.CHANGELOG_NUM_RETAINED_MIN):
        wanted[u.CHANGELOG_NUM_RETAINED_MIN.key] = "1"
    restores = dict(before.restores) if before else {key: given.get(key) for key in wanted}
    said = {"id": id, "created": created_ms, "after": after, "schema": schema_id, "restores": restores}
    if branch != "main":
        said["branch"] = branch
    return options.merged(
        {
            **wanted,
            w.STREAM_ENABLED.key: "true",
            w.STREAM_RETENTION.key: span_text(retention),
            w.STREAM.key: json.dumps(said, separators=(",", ":")),
        }
    )


def without_stream(options: Options, stream: ShardStream) -> Options:
    """Return the options of a table once its stream is disabled."""
    gone: dict[str, str | None] = {w.STREAM_ENABLED.key: None, w.STREAM_RETENTION.key: None, w.STREAM.key: None}
    return options.merged({**gone, **stream.restores})


def span_text(span: timedelta) -> str:
    """Return a duration as the text of an option, such as `24 h`."""
    millis = span // timedelta(milliseconds=1)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if millis % size == 0 and (unit != "d" or millis > 2 * size):
            return f"{millis // size} {unit}"
    return f"{millis} ms"
