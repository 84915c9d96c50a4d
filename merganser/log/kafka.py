"""Kafka as the log uses it: settings of clients, topics, and errors in the words of merganser.

Options of a table that begin with `kafka.` go to the client as they are, without that beginning; see
https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from merganser.errors import InvalidInputError, StorageError
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.options.secrets import HIDDEN, is_secret

kafka: Any = None
"""The package of the client; None: it is not installed."""
with suppress(ImportError):
    kafka = importlib.import_module("confluent_kafka")
    importlib.import_module("confluent_kafka.admin")

_PREFIX: Final = "kafka."
MESSAGE_MAX_BYTES: Final = "kafka.message.max.bytes"
"""The option for the largest record. The topic of a table is told of it, too."""
_OURS: Final = frozenset(["bootstrap.servers", "topic"])
_DECIDED: Final = (
    "transactional.id", "enable.idempotence", "acks", "isolation.level", "group.id", "enable.auto.commit",
    "auto.offset.reset", "enable.partition.eof",
)  # fmt: skip
"""Settings that the log decides: with others it would lose rows, or show some twice."""
_CITED_MIN: Final = 4
"""Minimum length of the end of a secret that is hidden in a message."""
TIMEOUT_S: Final = 10.0
"""Maximum seconds that the broker may take to answer a request for metadata."""

_log = logging.getLogger("merganser.log.client")


def topic_of(table: TableDef) -> str:
    """Return the topic of a table with a log."""
    found: str | None = table.options.get(w.KAFKA_TOPIC)
    if not found:
        raise InvalidInputError(
            f"'{table.name}' has 'log.system' = 'kafka' and no 'kafka.topic', which is set when a table is created. "
            "Set 'log.system' with Table.alter, or create the table with it.",
            table=table.name,
        )
    return found


def client_settings(table: TableDef) -> dict[str, Any]:
    """Return what every client of the log of a table is told.

    Raises:
        InvalidInputError: the client is not installed.
    """
    if kafka is None:
        raise InvalidInputError(
            f"'{table.name}' has a log, and the client of Kafka is not installed. Install it: "
            "pip install 'merganser[kafka]'.",
            table=table.name,
        )
    own = {key: text for key, text in table.options.items() if key.startswith(_PREFIX)}
    told = {key.removeprefix(_PREFIX): text for key, text in own.items()}
    passed = {key: text for key, text in told.items() if key not in _OURS}
    return {"bootstrap.servers": table.options.get(w.KAFKA_BOOTSTRAP_SERVERS), "log_level": 2, **passed}


def check_client(table: TableDef) -> None:
    """Refuse options for the client that it does not take, or that the log decides. Asks no broker.

    Raises:
        InvalidInputError: names the option; nothing was changed.
    """
    settings = client_settings(table)
    for key in _DECIDED:
        if key in settings:
            raise InvalidInputError(
                f"'{table.name}' cannot have the option '{_PREFIX}{key}': the log decides it. Nothing was changed. "
                "Leave the option out.",
                option=_PREFIX + key,
            )
    new_client(table, kafka.Producer, {**settings, "transactional.id": "none", "enable.idempotence": True})
    new_client(table, kafka.Consumer, {**settings, "group.id": "none"}).close()


class _ClientLog:
    """Logger of the clients.

    What they say explains errors that merganser raises or logs itself, so it is no more than information. To them it is
    an emergency that another process took over.
    """

    def log(self, level: int, text: str, *args: Any) -> None:
        """Log a line."""
        _log.log(min(level, logging.INFO), text, *args)


def new_client(table: TableDef, kind: Callable[..., Any], settings: dict[str, Any]) -> Any:
    """Return a client. Its lines go to the logger `merganser.log.client`.

    Raises:
        InvalidInputError: it does not take the settings; nothing was changed.
    """
    try:
        return kind(settings, logger=_ClientLog())
    except (kafka.KafkaException, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"the client of Kafka does not take the options 'kafka.*' of '{table.name}': {_said(table, error)}. "
            "Nothing was changed. See https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md.",
            table=table.name,
        ) from None  # it may cite a secret


def admin_of(table: TableDef) -> Any:
    """Return a client that makes, changes and drops topics."""
    return new_client(table, kafka.admin.AdminClient, client_settings(table))


def partition_count(table: TableDef, client: Any, topic: str, wait_s: float | None = None) -> int:
    """Return the number of partitions of a topic; 0: there is no such topic.

    Args:
        client: any client of the broker.
        wait_s: maximum seconds that the broker may take to answer. None: `TIMEOUT_S`.

    Raises:
        StorageError: it did not.
    """
    with told(table, "ask for the topic"):
        known = client.list_topics(topic, timeout=wait_s or TIMEOUT_S).topics[topic]
        if known.error is not None:
            if known.error.code() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            raise kafka.KafkaException(known.error)
        return len(known.partitions)


def unavailable(table: TableDef, action: str, error: Any) -> StorageError:
    """Return the error of a broker that does not do what is asked.

    Args:
        action: what could not be done, such as "read its log".
    """
    servers = table.options.get(w.KAFKA_BOOTSTRAP_SERVERS)
    return StorageError(
        f"cannot {action} of '{table.name}': {_said(table, error)}. Kafka is asked at '{servers}' "
        f"('{w.KAFKA_BOOTSTRAP_SERVERS.key}'). The table and its files are as they were. Try again when the broker "
        "answers.",
        path=str(servers),
    )


@contextmanager
def told(table: TableDef, action: str) -> Iterator[None]:
    """Raise errors of the client as ours; see `unavailable`."""
    try:
        yield
    except kafka.KafkaException as error:
        raise unavailable(table, action, error) from error


def code_of(error: Any) -> int | None:
    """Return the code of an error of the client, or None."""
    given = error.args[0] if getattr(error, "args", None) else error
    return given.code() if hasattr(given, "code") else None


def _said(table: TableDef, error: Any) -> str:
    """Return what the client says, without a secret: it cites values, or the end of one that it cannot parse."""
    given = error.args[0] if getattr(error, "args", None) else error
    text = str(given.str()) if hasattr(given, "str") else str(given)
    for secret in (value for key, value in table.options.items() if key.startswith(_PREFIX) and is_secret(key)):
        for at in range(max(1, len(secret) - _CITED_MIN + 1)):
            text = text.replace(secret[at:], HIDDEN) if secret[at:] else text
    return text
