"""Mark: what every record of the log says of its commit, in the header `merganser`. `sequence` is that of its row."""

from __future__ import annotations

import json
import logging
from functools import lru_cache
from typing import Any, Final

from merganser.errors import FormatError
from merganser.meta.snapshot import Snapshot
from merganser.values import dataclass

HEADER: Final = "merganser"
SEQUENCE_HEADER: Final = "sequence"
"""Header with the sequence number of a row of a table with a primary key, as ASCII digits."""
CONTROL_KEY: Final = b"merganser"
"""Key of records without a row. Keys of rows are JSON objects."""
DAMAGED: Final = (ValueError, TypeError, KeyError, RecursionError)
"""Errors of a header that is not ours, or is damaged."""

_log = logging.getLogger(__name__)
_warned: Final[set[str]] = set()
"""Topics with a record that was skipped with a warning in this process."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The commit of a record.

    Attributes:
        snapshot: the snapshot that publishes the row.
        base, delta: names of its lists, by which it is known: ids are used again after a rollback.
        after: the snapshot before it that published something; 0: none is known. Those in between published nothing.
        schema: the schema of the row.
        parts: how many partitions of the log have records of the commit.
        ends: it is the last record of the commit in its partition.
        back: the table was rolled back to this snapshot.
        files: the changes of the snapshot are in the files alone, such as those of an overwrite.
        shortened: the mode is upsert and the snapshot has rows of kind -U or -D, so the files have more than the log.
        time_ms: when the commit was made, in epoch milliseconds.
        watermark: that of the snapshot.
        user, identifier: the committer, and which of the committer's commits it is.
    """

    snapshot: int
    base: str
    delta: str
    after: int
    schema: int
    parts: int
    time_ms: int
    user: str
    identifier: int
    ends: bool = False
    files: bool = False
    back: bool = False
    watermark: int | None = None
    shortened: bool = False

    def to_bytes(self) -> bytes:
        """Return the value of the header."""
        told: dict[str, Any] = {
            "snapshot": self.snapshot,
            "base": self.base,
            "delta": self.delta,
            "after": self.after,
            "schema": self.schema,
            "parts": self.parts,
            "time": self.time_ms,
            "user": self.user,
            "identifier": self.identifier,
        }
        if self.watermark is not None:
            told["watermark"] = self.watermark
        told |= {name: True for name in ("ends", "files", "back", "shortened") if getattr(self, name)}
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()

    def shown(self) -> Snapshot:
        """Return the snapshot as far as the log tells of it."""
        return Snapshot(
            id=self.snapshot,
            schema_id=self.schema,
            base_manifest_list=self.base,
            delta_manifest_list=self.delta,
            commit_user=self.user,
            commit_identifier=self.identifier,
            commit_kind="APPEND",
            time_millis=self.time_ms,
            watermark=self.watermark,
        )


@lru_cache(maxsize=64)
def mark_from(data: bytes) -> Mark:
    """Return the mark in a header.

    Raises:
        FormatError: it is damaged.
    """
    try:
        told = json.loads(data)
        found = Mark(
            told["snapshot"],
            told["base"],
            told["delta"],
            told["after"],
            told["schema"],
            told["parts"],
            told["time"],
            told["user"],
            told["identifier"],
            told.get("ends", False),
            told.get("files", False),
            told.get("back", False),
            told.get("watermark"),
            told.get("shortened", False),
        )
        numbers = found.snapshot, found.after, found.schema, found.parts, found.time_ms, found.identifier
        texts = found.base, found.delta, found.user
        if not all(isinstance(one, int) for one in numbers) or not all(isinstance(one, str) for one in texts):
            raise TypeError("a value has another type")
    except DAMAGED as error:
        raise damaged_header(data) from error
    return found


def damaged_header(data: bytes | None) -> FormatError:
    """Return the error of a header that cannot be read."""
    return FormatError(f"a record of the log has a damaged header: {(data or b'')[:200]!r}")


def header_of(message: Any) -> bytes | None:
    """Return the header of a record of ours. None if the record has none, so it is of somebody else."""
    for name, value in message.headers() or ():
        if name == HEADER:
            return value or b""
    return None


def warn_of_skipped(message: Any, error: FormatError) -> None:
    """Warn that a record is skipped since its header cannot be read. Warns once per topic in a process."""
    topic = message.topic()
    if topic not in _warned:
        _warned.add(topic)
        _log.warning(
            "record %d in partition %d of the topic '%s' is skipped, and so are others like it: %s. It is of another "
            "program, or damaged. Rows come from the files instead.",
            message.offset(),
            message.partition(),
            topic,
            error.message,
        )
