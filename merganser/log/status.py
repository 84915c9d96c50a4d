"""What a log holds, and what it lacks, for people; and the repair of it."""

from __future__ import annotations

from typing import Final

from merganser.commit.log import uncommitted_rows
from merganser.errors import InvalidInputError
from merganser.log.commit_log import Counts, last_marks, log_lacks, make_up
from merganser.log.contents import mode_of
from merganser.log.kafka import TIMEOUT_S, client_settings, kafka, new_client, partition_count, told, topic_of
from merganser.log.topics import repair_topics
from merganser.meta.followed import newest
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env
from merganser.values import dataclass

_ANSWER_S: Final = 3.0
"""Maximum seconds that the broker may take to answer: a person waits."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition of a log.

    Attributes:
        number: of the partition, which is that of its bucket.
        first, end: offsets of the oldest record that is kept, and behind the newest one.
        stored: the offset in the newest snapshot; None: it has none.
        snapshot: the snapshot of the newest record; None: there is no record.
    """

    number: int
    first: int
    end: int
    stored: int | None
    snapshot: int | None


@dataclass(frozen=True, slots=True)
class LogState:
    """What a broker says of a log.

    Attributes:
        partitions: in the order of their numbers.
        lacks: how many snapshots publish something that the log does not show, or name.
    """

    partitions: tuple[PartitionState, ...]
    lacks: Counts


@dataclass(frozen=True, slots=True)
class LogPlace:
    """What the files of a table say of its log.

    Attributes:
        servers, topic: where it is.
        mode: "upsert" or "all".
        retention: how long it keeps records, as text; None: as the broker says.
        newest: the newest snapshot of the table; None: there is none.
    """

    servers: str
    topic: str
    mode: str
    retention: str | None
    newest: int | None


def log_place(table: TableDef, env: Env) -> LogPlace:
    """Return what the files of a table say of its log. Asks no broker.

    Raises:
        InvalidInputError: the table has no log.
    """
    table = _logged(table, env, "show the log of")
    snapshot = SnapshotStore(table.paths, env, table.name).latest()
    return LogPlace(
        str(table.options.get(w.KAFKA_BOOTSTRAP_SERVERS)),
        topic_of(table),
        mode_of(table),
        table.options.get(w.LOG_RETENTION.key),
        None if snapshot is None else snapshot.id,
    )


def log_state(table: TableDef, env: Env) -> LogState:
    """Return what the log of a table holds.

    Raises:
        InvalidInputError: the table has no log.
        StorageError: the broker does not answer within `_ANSWER_S`.
    """
    table = _logged(table, env, "show the log of")
    topic = topic_of(table)
    snapshot = SnapshotStore(table.paths, env, table.name).latest()
    offsets = (snapshot.log_offsets if snapshot is not None else None) or {}
    consumer = new_client(table, kafka.Consumer, {**client_settings(table), "group.id": f"merganser-{topic}"})
    try:
        count = partition_count(table, consumer, topic, _ANSWER_S)
        with told(table, "read the log"):
            marks = last_marks(table, topic, count)
            parts = []
            for number in range(count):
                first, end = consumer.get_watermark_offsets(kafka.TopicPartition(topic, number), TIMEOUT_S)
                mark = marks.get(number)
                parts.append(
                    PartitionState(number, first, end, offsets.get(number), None if mark is None else mark.snapshot)
                )
    finally:
        consumer.close()
    return LogState(tuple(parts), log_lacks(table, env))


def repair_log(table: TableDef, env: Env) -> Counts:
    """Send what snapshots publish and the log lacks; return how many snapshots that were. Nothing is sent twice.

    A transaction that a stopped process left open is aborted. A topic that is gone is made again, and gets the
    settings that the options of the table say. Readers of an
    eventual log go back to the rows of the table: rows of writers that still run come again with their commit.

    Raises:
        InvalidInputError: the table has no log.
        StorageError: the broker does not answer.
    """
    table = _logged(table, env, "repair the log of")
    repair_topics(table, topic_of(table))
    sent = make_up(table, env)
    rows = uncommitted_rows(table, env)
    if rows is not None:
        rows.end("", committed=False)
    return sent


def _logged(table: TableDef, env: Env, action: str) -> TableDef:
    table = newest(table, env)
    if table.options.get(w.LOG_SYSTEM) == "none":
        raise InvalidInputError(
            f"cannot {action} '{table.name}': the table has no log. Give it one with 'log.system' = 'kafka'.",
            table=table.name,
        )
    return table
