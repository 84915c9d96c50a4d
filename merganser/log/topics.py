"""Topics: each table with a log has one, made and dropped with it.

An eventual log has a second one, of one partition, for rows that are not committed yet (`uncommitted`).

partitions   the number of buckets; one for tables without buckets, and more as buckets are added
name         <warehouse>.<database>.<table>, stored as 'kafka.topic'; if it is taken, with '-2' behind it, or '-3', ...
retention    'log.retention', else that of the broker
clean-up     in upsert mode the last record of each key stays; after 'log.retention' none does. An erasure removes all
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final

from merganser.commit.log import is_eventual
from merganser.errors import InvalidInputError, StorageError
from merganser.log.contents import mode_of
from merganser.log.kafka import (
    MESSAGE_MAX_BYTES,
    TIMEOUT_S,
    admin_of,
    check_client,
    code_of,
    kafka,
    partition_count,
    told,
)
from merganser.log.uncommitted import uncommitted_topic
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.schema.table_schema import TableSchema

_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST: Final = 249
_LOOK_S: Final = 0.02
_RETENTION: Final = "retention.ms"

_log = logging.getLogger(__name__)


def created(name: str, schema: TableSchema, warehouse: str, client: Mapping[str, str]) -> Mapping[str, str]:
    """Make the topic of a new table, or of one that gets a log, and return the option that names it.

    Args:
        name: `database.table`.
        client: options for the client beside those of the table; see `TableDef.unstored_client`.

    Raises:
        InvalidInputError: the options name a topic, or the client is not installed; nothing was changed.
        StorageError: the broker did not make it.
    """
    what = f"cannot create the log of '{name}'"
    if (given := schema.options.get(w.KAFKA_TOPIC)) is not None:
        raise InvalidInputError(
            f"{what}: '{w.KAFKA_TOPIC.key}' is '{given}', and the topic of a table is made with it. Nothing was "
            "changed. Leave the option out.",
            option=w.KAFKA_TOPIC.key,
        )
    table = TableDef(name, warehouse, schema, schema.options.merged(dict(client)))
    check_client(table)
    # A topic of the plain name may be that of a table that had the name and was renamed, so it is left alone.
    plain = next(_topic_names(name, warehouse))
    topic = next(topic for topic in _topic_names(name, warehouse) if make_topic(table, topic))
    if topic != plain:
        # Nothing in Kafka says whose it is: it has no place for a note that is written with the topic. So it is not
        # taken over, even if it is empty: a table of another warehouse may not have been written to yet.
        _log.warning(
            "there is a topic '%s' already, so the log of '%s' gets the topic '%s'. A table that was renamed may have "
            "the first one, or a table of another warehouse. If none has it, such as after a process that was killed "
            "while it made a table, delete it with a tool of Kafka.",
            plain,
            name,
            topic,
        )
    make_uncommitted_topic(table, topic)
    return {w.KAFKA_TOPIC.key: topic}


def make_topic(table: TableDef, topic: str) -> bool:
    """Make a topic as the options of a table say; return whether there was none.

    Raises:
        StorageError: the broker did not make it.
    """
    return _made(table, topic, max(1, table.bucket), _settings(table))


def make_uncommitted_topic(table: TableDef, topic: str) -> None:
    """Make the topic of rows that are not committed, beside the topic of a log, if the table shows such rows.

    Raises:
        StorageError: the broker did not make it.
    """
    if is_eventual(table):
        _made(table, uncommitted_topic(topic), 1, _retention(table))


def _made(table: TableDef, topic: str, partitions: int, settings: Mapping[str, str]) -> bool:
    admin = admin_of(table)  # it has to live until its answers have come
    new = kafka.admin.NewTopic(topic, partitions, -1, config=dict(settings))
    with told(table, "make the topic for the log"):
        try:
            admin.create_topics([new], request_timeout=TIMEOUT_S)[topic].result()
        except kafka.KafkaException as error:
            if code_of(error) != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
    with suppress(StorageError):  # then the first writer waits for it, or says so
        until = time.monotonic() + TIMEOUT_S
        while not partition_count(table, admin, topic) and time.monotonic() < until:
            admin.poll(_LOOK_S)  # the broker that made it tells others a little later
    return True


def dropped(name: str, schema: TableSchema, client: Mapping[str, str]) -> None:
    """Delete the topics of a table. A topic that is gone already is fine.

    Args:
        client: see `created`.

    Raises:
        StorageError: the broker did not delete it.
    """
    topic = schema.options.get(w.KAFKA_TOPIC)
    if topic is None:
        return
    table = TableDef(name, "", schema, schema.options.merged(dict(client)))
    _deleted(table, topic)
    if is_eventual(table):
        _deleted(table, uncommitted_topic(topic))


def _deleted(table: TableDef, topic: str) -> None:
    admin = admin_of(table)  # it has to live until its answers have come
    with told(table, "delete the topic of the log"):
        try:
            admin.delete_topics([topic], request_timeout=TIMEOUT_S)[topic].result()
        except kafka.KafkaException as error:
            if code_of(error) != kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


def check_answers(table: TableDef) -> None:
    """Raise an error if the broker that the options of a table name does not answer.

    Raises:
        StorageError: it does not.
    """
    partition_count(table, admin_of(table), str(table.options.get(w.KAFKA_TOPIC)))


def configure(before: TableDef, after: TableDef) -> None:
    """Let the topics be as the options of a table say, if they say something else than before.

    Raises:
        StorageError: the broker did not change them.
    """
    topic = after.options.get(w.KAFKA_TOPIC)
    if topic is None:
        return
    _configured(after, topic, _settings(before), _settings(after))
    if is_eventual(before) and is_eventual(after):
        _configured(after, uncommitted_topic(topic), _retention(before), _retention(after))


def delete_uncommitted_topic(table: TableDef) -> None:
    """Delete the topic of rows that are not committed. If there is none, that is fine.

    Raises:
        StorageError: the broker did not delete it.
    """
    _deleted(table, uncommitted_topic(str(table.options.get(w.KAFKA_TOPIC))))


def repair_topics(table: TableDef, topic: str) -> None:
    """Make the topics of a table again if they are gone, and let them be as its options say.

    Settings that no option of a table says stay as they are, except a clean-up that would remove rows from the log of
    a table in mode all.

    Raises:
        StorageError: the broker did not do it.
    """
    if not make_topic(table, topic):
        wanted = _settings(table)
        compacts = {} if "cleanup.policy" in wanted else {"cleanup.policy": "compact,delete"}
        _configured(table, topic, compacts, wanted)
    make_uncommitted_topic(table, topic)


def _configured(after: TableDef, topic: str, then: Mapping[str, str], now: Mapping[str, str]) -> None:
    entries = [
        kafka.admin.ConfigEntry(key, now.get(key), incremental_operation=_operation(key in now))
        for key in {*then, *now}
        if then.get(key) != now.get(key)
    ]
    if not entries:
        return
    resource = kafka.admin.ConfigResource(kafka.admin.ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = admin_of(after)
    with told(after, "alter the topic of the log"):
        for answer in admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S).values():
            answer.result()


def remove_records(table: TableDef, topic: str, before: Mapping[int, int]) -> None:
    """Remove the records of a log below an offset in each partition, and all rows that are not committed.

    Raises:
        StorageError: the broker did not remove them; some may be gone.
    """
    _configured(table, topic, {}, _settings(table))  # topics of older versions were only compacted
    parts = [kafka.TopicPartition(topic, part, offset) for part, offset in before.items()]
    if is_eventual(table):
        parts.append(kafka.TopicPartition(uncommitted_topic(topic), 0, kafka.OFFSET_END))
    admin = admin_of(table)  # it has to live until its answers have come
    with told(table, "remove records from the log"):
        for answer in admin.delete_records(parts, request_timeout=TIMEOUT_S).values():
            answer.result()


def _operation(is_set: bool) -> Any:
    operation = kafka.admin.AlterConfigOpType
    return operation.SET if is_set else operation.DELETE


def _retention(table: TableDef) -> dict[str, str]:
    """Return what the broker is told if the options of a table say how long records stay."""
    retention = table.options.get(w.LOG_RETENTION)
    return {} if retention is None else {_RETENTION: str(int(retention.total_seconds() * 1000))}


def _settings(table: TableDef) -> dict[str, str]:
    """Return what the broker is told of a topic."""
    found = _retention(table)
    if mode_of(table) == "upsert":
        # Kafka removes no records on request from a topic that is only compacted. With these it removes no others.
        found = found or {_RETENTION: "-1", "retention.bytes": "-1"}
        found["cleanup.policy"] = "compact,delete"
    if (largest := table.options.get(MESSAGE_MAX_BYTES)) is not None:
        found["max.message.bytes"] = str(largest)
    return found


def _topic_names(name: str, warehouse: str) -> Iterator[str]:
    """Yield the names that the topic of a table may have; what a topic cannot be called is written as `_` and its code.

    Raises:
        InvalidInputError: the next one would be too long.
    """
    catalog = warehouse.rstrip("/").rpartition("/")[2] or "merganser"
    plain = _OTHER.sub(lambda found: f"_{ord(found[0]):x}_", f"{catalog}.{name}")
    for number in count(1):
        topic = plain if number == 1 else f"{plain}-{number}"
        if len(uncommitted_topic(topic)) > _LONGEST:
            raise InvalidInputError(
                f"cannot create the log of '{name}': its topic would be called '{topic}', {len(topic)} characters, and "
                f"Kafka takes {_LONGEST} with '{uncommitted_topic('')}' behind it. Nothing was changed. "
                "Choose shorter names.",
                table=name,
            )
        yield topic
