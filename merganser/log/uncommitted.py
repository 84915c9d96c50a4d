"""Rows of an eventual log that are not committed yet: a topic beside the log, `<topic>.uncommitted`, of one partition.

A record is that of the log (`records`). Its header names the write, the snapshot that the write comes after, and the
schema. A record without a row says that a write has ended::

    write A  rows ──► write B  rows ──► write A  rows ──► write A  committed ──► write B  dropped

The log itself has rows after their commit alone, in transactions, as that of every table. So its readers see no row
that is never committed, a transaction that is open holds back no row of this topic, and the last record of a key in the
log is its row in the table. Records of this topic may come twice, or not at all: the commit brings their rows.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Literal

import pyarrow as pa

from merganser.log.contents import mode_of
from merganser.log.kafka import TIMEOUT_S, client_settings, code_of, kafka, new_client, topic_of, unavailable
from merganser.log.mark import CONTROL_KEY, DAMAGED, HEADER, damaged_header
from merganser.log.records import decode, encode
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.values import dataclass

_SUFFIX: Final = ".uncommitted"
_REST_S: Final = 10.0
"""Seconds after a failure in which rows are not sent: they come with their commit."""
_FULL_S: Final = 1.0
"""Seconds that rows wait for a place among those that the client has not sent yet."""
_END_S: Final = 1.0
"""Seconds in which the client sends that a write was dropped."""

_log = logging.getLogger(__name__)
_senders: dict[tuple[int, str, frozenset[tuple[str, Any]]], _Sender] = {}
_lock: Final = threading.Lock()


def uncommitted_topic(topic: str) -> str:
    """Return the name of the topic of rows that are not committed, beside the topic of a log."""
    return topic + _SUFFIX


@dataclass(frozen=True, slots=True)
class Flushed:
    """What every record says, in its header.

    Attributes:
        write: the name of the write; "": every write.
        after: the snapshot that its commit comes after; 0: none.
        schema: the schema of the row.
        end: how the write has ended; None: the record is a row.
    """

    write: str
    after: int = 0
    schema: int = 0
    end: Literal["committed", "dropped"] | None = None

    def to_bytes(self) -> bytes:
        """Return the value of the header."""
        told: dict[str, Any] = {"write": self.write, "after": self.after, "schema": self.schema}
        if self.end is not None:
            told["end"] = self.end
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


@lru_cache(maxsize=1024)
def flushed_from(data: bytes) -> Flushed:
    """Return what a header says.

    Raises:
        FormatError: it is damaged.
    """
    try:
        told = json.loads(data)
        found = Flushed(told["write"], told["after"], told["schema"], told.get("end"))
        if (type(found.write), type(found.after), type(found.schema)) != (str, int, int):
            raise TypeError("a value has another type")
    except DAMAGED as error:
        raise damaged_header(data) from error
    return found


@dataclass(frozen=True, slots=True)
class FlushedRows:
    """Records that follow each other and have one header.

    Attributes:
        told: the header.
        keys, values: those of the records; none if the write ends.
        time_ms: when the first was sent, in epoch milliseconds.
    """

    told: Flushed
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    time_ms: int

    def rows(self, schema: TableSchema) -> tuple[pa.Table, pa.Array]:
        """Return the rows in the columns of a schema, and their kinds, int8[n].

        Raises:
            FormatError: a record is damaged.
        """
        return decode(self.keys, self.values, schema)


def uncommitted_of(table: TableDef, env: Env) -> Uncommitted:
    """Return where rows of a table go before their commit; see `merganser.commit.log`."""
    topic = uncommitted_topic(topic_of(table))
    place = os.getpid(), topic, frozenset(client_settings(table).items())
    with _lock:
        sender = _senders.get(place)
        if sender is None:
            sender = _senders[place] = _Sender(table, topic)
    return Uncommitted(table, sender)


@dataclass(frozen=True)
class Uncommitted:
    """Sends rows of a table; see `merganser.commit.log.UncommittedRows`."""

    table: TableDef
    sender: _Sender

    def send(self, write: str, after: int, rows: pa.Table, kinds: pa.Array | None) -> None:
        """Send rows, and do not wait for it."""
        schema = self.table.schema
        made = encode(rows, kinds, schema.shown, mode_of(self.table))
        if made.values:
            self.sender.send(Flushed(write, after, schema.id), made.keys or (), made.values)

    def flush(self) -> None:
        """Wait until readers can see what was sent."""
        error = self.sender.flush()
        if error is not None and self.table.options.get(w.LOG_WHEN_UNAVAILABLE) != "files-only":
            raise unavailable(self.table, "show rows before their commit in the log", error)

    def end(self, write: str, *, committed: bool) -> None:
        """Tell readers that a write has ended."""
        self.sender.send(Flushed(write, end="committed" if committed else "dropped"), (CONTROL_KEY,), (b"",))
        if not committed:
            self.sender.flush(_END_S)


class _Sender:
    """The client that sends the rows of one table in this process. Threads share it."""

    def __init__(self, table: TableDef, topic: str) -> None:
        self._table, self._topic = table, topic
        self._failure: Any = None
        self._rests_until = 0.0
        self._settings = {
            "linger.ms": 0,
            "compression.type": "zstd",
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 128 * 1024,
            **client_settings(table),
            "enable.idempotence": True,
            "message.timeout.ms": int(TIMEOUT_S * 1000),
        }
        self._producer = new_client(table, kafka.Producer, self._settings)

    def send(self, told: Flushed, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        """Send records, and do not wait for it. After a failure they are left out for some time."""
        if time.monotonic() < self._rests_until:
            return
        if self._rests_until:  # a client that failed may have given up for good
            self._rests_until, self._producer = 0.0, new_client(self._table, kafka.Producer, self._settings)
        headers = [(HEADER, told.to_bytes())]
        try:
            for key, value in zip(keys, values, strict=True):
                self._produce(key, value, headers)
            self._producer.poll(0)
        except (kafka.KafkaException, BufferError) as error:
            self._failed(error)

    def _produce(self, key: bytes | None, value: bytes | None, headers: list[Any]) -> None:
        until = time.monotonic() + _FULL_S
        while True:
            try:
                self._producer.produce(self._topic, value, key, 0, headers=headers, on_delivery=self._delivered)
                return
            except BufferError:  # the broker is slower than we are
                if time.monotonic() > until:
                    raise
                self._producer.poll(0.05)
            except kafka.KafkaException as error:
                if code_of(error) != kafka.KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                return

    def flush(self, seconds: float = TIMEOUT_S) -> Any:
        """Wait until all is sent; return the error since the last call, or None."""
        left = self._producer.flush(seconds)
        if left and self._failure is None:
            self._failure = kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
        error, self._failure = self._failure, None
        return error

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed(error)

    def _failed(self, error: Any) -> None:
        if not self._rests_until:
            _log.warning("rows that are not committed are not sent to '%s': %s", self._topic, error)
        self._failure = error
        self._rests_until = time.monotonic() + _REST_S
