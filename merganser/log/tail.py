"""Reader of the end of a log: records are assembled into commits, in the order of snapshots.

Kafka makes the records of a transaction visible at once, but a consumer receives them one partition after the other. A
commit is complete when its last record has arrived from each of its partitions.
"""

from __future__ import annotations

import math
import time
from dataclasses import field
from itertools import groupby
from typing import Any, Final

import pyarrow as pa

from merganser.errors import FormatError, StorageError
from merganser.log.kafka import TIMEOUT_S, client_settings, kafka, new_client, partition_count, told, topic_of
from merganser.log.mark import CONTROL_KEY, Mark, header_of, mark_from, warn_of_skipped
from merganser.log.records import changes_of
from merganser.log.uncommitted import Flushed, FlushedRows, flushed_from, uncommitted_topic
from merganser.meta.table_def import TableDef
from merganser.values import dataclass

_AT_ONCE: Final = 10_000
"""Maximum number of records that one poll takes from the client."""

_ASSIGN_S: Final = 1.0
"""Seconds between checks for new partitions while no records arrive."""
_ANSWER_S: Final = 2.0
"""Maximum seconds that the broker may take to answer such a check. A reader that cannot wait for records waits so long
once if the broker stops."""


@dataclass
class LogCommit:
    """The records of one commit.

    Attributes:
        mark: the header of its records.
        parts: keys and values of its records, by partition.
        ended: partitions whose last record has arrived.
        size_bytes: of keys and values.
    """

    mark: Mark
    parts: dict[int, tuple[list[bytes | None], list[bytes | None]]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    size_bytes: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether all records have arrived."""
        return len(self.ended) == self.mark.parts

    def rows(self, table: TableDef) -> pa.Table:
        """Return the rows; see `changes_of`.

        Raises:
            FormatError: a record is damaged.
        """
        keys = [key for part in sorted(self.parts) for key in self.parts[part][0]]
        values = [value for part in sorted(self.parts) for value in self.parts[part][1]]
        return changes_of(table, keys, values)


class LogTail:
    """Reader of the commits that a log shows from now on. Earlier commits are read from the files.

    Args:
        flushed_since_ms: also read the rows of an eventual log that are not committed, those that were sent from this
            time on, in epoch milliseconds. None: do not read them.

    Attributes:
        newest: the mark of the newest snapshot that the log has told of; None: of none yet.

    Raises:
        StorageError: the broker does not answer, or there is no topic.
    """

    def __init__(self, table: TableDef, flushed_since_ms: int | None = None) -> None:
        self.newest: Mark | None = None
        self._went_back = False
        self._table = table
        self._topic = topic_of(table)
        self._consumer = new_client(
            table,
            kafka.Consumer,
            {
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 1,
                "fetch.error.backoff.ms": 100,
                "topic.metadata.refresh.interval.ms": 5000,
                **client_settings(table),
                "group.id": f"merganser-{self._topic}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",  # of partitions that are new
            },
        )
        self._assigned, self._assigned_at = 0, -math.inf
        self._commits: dict[tuple[int, str, str], LogCommit] = {}  # by snapshot: after a rollback ids come again
        self._flushed: list[FlushedRows] = []
        self._flushed_topic = uncommitted_topic(self._topic)
        self._flushed_from: int | None = None  # offset up to which they were sent before the reader began
        try:
            self._assign()
            if flushed_since_ms is not None:
                self._assign_flushed(flushed_since_ms)
        except BaseException:
            self.close()
            raise

    def _assign_flushed(self, since_ms: int) -> None:
        with told(self._table, "read the log"):
            place = kafka.TopicPartition(self._flushed_topic, 0, since_ms)
            (found,) = self._consumer.offsets_for_times([place], TIMEOUT_S)
            if found.error is not None:
                raise kafka.KafkaException(found.error)
            first, end = self._consumer.get_watermark_offsets(place, TIMEOUT_S)
            start = max(first, found.offset) if found.offset >= 0 else end
            if start < end:
                self._flushed_from = end
            self._consumer.incremental_assign([kafka.TopicPartition(self._flushed_topic, 0, start)])

    def _assign(self) -> None:
        """Read from partitions that were added since the last call."""
        self._assigned_at = time.monotonic()
        count = partition_count(self._table, self._consumer, self._topic, _ANSWER_S if self._assigned else None)
        if not count:
            raise StorageError(
                f"cannot read the log of '{self._table.name}': there is no topic '{self._topic}'. The table and its "
                "files are as they were. Make the topic again with `merganser log repair`, or set 'log.system' = "
                "'none'.",
                path=self._topic,
            )
        new = [kafka.TopicPartition(self._topic, part) for part in range(self._assigned, count)]
        if not new:
            return
        with told(self._table, "read the log"):
            for each in new:
                # The end for readers of what is committed: a transaction that is open lies behind it.
                _, end = self._consumer.get_watermark_offsets(each, TIMEOUT_S)
                each.offset = kafka.OFFSET_BEGINNING if self._assigned else end
            self._consumer.incremental_assign(new)
        self._assigned = count

    def poll(self, seconds: float) -> bool:
        """Wait for records for at most `seconds`; return whether any arrived.

        Raises:
            StorageError: the broker does not answer, or the topic is gone.
        """
        with told(self._table, "read the log"):
            first = self._consumer.poll(seconds)  # `consume` would wait for more than one
            messages = [] if first is None else [first, *self._consumer.consume(_AT_ONCE, 0)]
            good = [message for message in messages if message.error() is None]
            for message in messages:
                error = message.error()
                if error is not None and not error.retriable() and error.code() != kafka.KafkaError._PARTITION_EOF:
                    raise kafka.KafkaException(error)
        if self._flushed_from is not None and any(
            message.topic() == self._flushed_topic and message.offset() >= self._flushed_from - 1 for message in good
        ):
            self._flushed_from = None
        said = [(message.topic(), message.partition(), header_of(message)) for message in good]
        at = 0
        for (topic, part, header), run in groupby(said):
            count = sum(1 for _ in run)
            if header is not None:
                self._take_any(topic, part, header, good[at : at + count])
            at += count
        # Records may lie in a partition that is new, and none in those that are read.
        if not good and (self._commits or time.monotonic() - self._assigned_at > _ASSIGN_S):
            self._assign()
        return bool(good)

    def _take_any(self, topic: str, part: int, header: bytes, messages: list[Any]) -> None:
        """Take records that follow each other and have one header. Skip them if the header cannot be read."""
        try:
            if topic == self._flushed_topic:
                self._take_flushed(flushed_from(header), messages)
            else:
                self._take(part, mark_from(header), messages)
        except FormatError as error:
            warn_of_skipped(messages[0], error)
            # It may be a record of ours that is damaged. The files have what it said, so readers look at them next.
            self._went_back |= topic != self._flushed_topic

    def _take_flushed(self, told: Flushed, messages: list[Any]) -> None:
        keys, values = ([], []) if told.end else zip(*((each.key(), each.value()) for each in messages), strict=True)
        self._flushed.append(FlushedRows(told, keys, values, messages[0].timestamp()[1]))

    @property
    def has_flushed(self) -> bool:
        """Whether there are rows for `flushed`."""
        return bool(self._flushed) and self._flushed_from is None

    def flushed(self) -> list[FlushedRows]:
        """Return the rows that are not committed and the ends of writes since the last call.

        Those that were sent before the reader began come in one call: most of their writes have ended since.
        """
        found, self._flushed = self._flushed, []
        return found

    def _take(self, part: int, mark: Mark, messages: list[Any]) -> None:
        if mark.back or self.newest is None or mark.snapshot > self.newest.snapshot:
            self.newest = mark
        if mark.back:
            self._went_back = True
            # Only what this partition had before: other partitions may have given records of the history that follows.
            self._commits = {
                key: one for key, one in self._commits.items() if key[0] <= mark.snapshot or part not in one.parts
            }
            return
        commit = self._commits.setdefault((mark.snapshot, mark.base, mark.delta), LogCommit(mark))
        keys, values = commit.parts.setdefault(part, ([], []))
        found = [(message.key(), message.value()) for message in messages]
        if found[-1][0] == CONTROL_KEY:
            found.pop()
        keys += [key for key, _ in found]
        values += [value for _, value in found]
        commit.size_bytes += sum(len(key or b"") + len(value or b"") for key, value in found)
        if mark.ends:
            commit.ended.add(part)

    def next(self, number: int) -> LogCommit | None:
        """Return the first commit at or after a snapshot id. None if it is incomplete or an earlier one is missing.

        Args:
            number: id of the next snapshot of the reader. Snapshots without changes have no commit in the log.
        """
        self._commits = {key: one for key, one in self._commits.items() if key[0] >= number}
        first = self._first()
        return first if first is not None and first.mark.after < number else None

    def lacks(self, number: int) -> bool:
        """Return whether the log has shown a later commit and the reader missed one before it; see `next`."""
        first = self._first()
        return first is not None and first.mark.after >= number

    def _first(self) -> LogCommit | None:
        """Return the first commit. None if it is incomplete, or if commits of two histories have its id."""
        if not self._commits:
            return None
        number = min(self._commits)[0]
        found = [one for key, one in self._commits.items() if key[0] == number]
        return found[0] if len(found) == 1 and found[0].is_whole else None

    @property
    def held_bytes(self) -> int:
        """Size of the records of commits that were not handed over yet."""
        return sum(one.size_bytes for one in self._commits.values())

    def was_rolled_back(self) -> bool:
        """Return whether the table was rolled back since the last call. True if a damaged record may have said so."""
        found, self._went_back = self._went_back, False
        return found

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()
