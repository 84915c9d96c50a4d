"""The producer of a log: each commit sends its changes in one Kafka transaction, in the order of snapshots.

    prepare   begin a transaction, send the records of the snapshot, wait until the broker has stored them
    publish   commit the transaction: readers see the records
    drop      abort the transaction

The transactional id is derived from the topic, so Kafka allows one active producer per table. A new producer fences the
previous one, and the broker aborts the open transaction of the previous one. Before a producer sends snapshot n, it
sends the snapshots below n that the log lacks. The last record of each partition tells which snapshot the log has.

A process may stop at any instruction:

    before the snapshot is created        the transaction is aborted, by the next producer or after its timeout
    between the snapshot and `publish`    likewise; then the next producer sends the snapshot again from its files
    a producer is fenced during a commit  it starts again, checks if its snapshot is in the log, and sends it if not

A snapshot is sent again only if its transaction was aborted, so the log has each snapshot once.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import repeat
from typing import Any, Final, TypeAlias

import pyarrow as pa

from merganser.commit.log import CommitLog, is_eventual
from merganser.errors import ConflictError, FormatError, InvalidInputError, MerganserError, StorageError
from merganser.log.contents import FILES_ONLY, Contents, contents_of, is_files_only, mode_of
from merganser.log.kafka import (
    MESSAGE_MAX_BYTES,
    TIMEOUT_S,
    admin_of,
    client_settings,
    code_of,
    kafka,
    new_client,
    partition_count,
    told,
    topic_of,
    unavailable,
)
from merganser.log.mark import CONTROL_KEY, HEADER, SEQUENCE_HEADER, Mark, header_of, mark_from, warn_of_skipped
from merganser.log.records import Records, encode
from merganser.log.topics import remove_records
from merganser.log.uncommitted import uncommitted_topic
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot, same_snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.schema.row_kind import SYMBOLS
from merganser.schema.table_schema import CHANGE_KIND, SEQUENCE_NUMBER
from merganser.storage.env import Env
from merganser.values import dataclass

_SEND_S: Final = 60.0
"""Maximum seconds of retries with new producers, and of the search for the last records."""
_RECORD_BYTES_MAX: Final = 1_000_000
"""Maximum bytes of a record that the client sends if no option says otherwise."""
_ASK_S: Final = 5.0
"""Seconds since the last answer of the broker after which a write first checks that the broker answers."""
_REST_S: Final = 10.0
"""Seconds without requests after a failure, if 'log.when-unavailable' is 'files-only': each request waits for its
timeout."""
_REST_MAX_MS: Final = 500.0
"""Maximum wait in milliseconds before a fenced process starts a new producer."""
_OPEN_MS: Final = 20.0
"""Milliseconds between two checks for open transactions."""
_PROBE: Final = 16
"""Offsets before the end of a partition that are searched first for its last record."""
_WIDER: Final = 8
"""Factor by which each further search is wider."""

_Header: TypeAlias = tuple[str, bytes]
_Record: TypeAlias = tuple[bytes | None, bytes | None, list[_Header]]

_log = logging.getLogger(__name__)
_logs: dict[tuple[int, str, str], _TableLog] = {}
_lock: Final = threading.Lock()


def log_of(table: TableDef, env: Env) -> CommitLog:
    """Return the log of one commit to a table; see `merganser.commit.log`."""
    return _commit_of(table, env)


def _commit_of(table: TableDef, env: Env) -> _Commit:
    topic = topic_of(table)
    place = os.getpid(), str(table.options.get(w.KAFKA_BOOTSTRAP_SERVERS)), topic
    with _lock:
        log = _logs.get(place)
        if log is None:
            log = _logs[place] = _TableLog(topic)
    return _Commit(table, env, log)


@dataclass
class _Commit:
    """The log during one commit; see `CommitLog`."""

    table: TableDef
    env: Env
    log: _TableLog
    _held: bool = False
    _prepared: Snapshot | None = None

    def check(self) -> None:
        """Raise an error if the broker does not answer, unless 'log.when-unavailable' is 'files-only'."""
        if self._takes_files or not self.log.lock.acquire(blocking=False):
            return
        try:
            self.log.ask(self.table, self.env)
        finally:
            self.log.lock.release()

    def prepare(self, snapshot: Snapshot, previous: Snapshot | None) -> Snapshot:
        """Send the changes of a snapshot in a transaction that stays open."""
        self.drop()
        self.log.lock.acquire()
        self._held = True
        try:
            self.log.check_awake(self.table, self.env)
            offsets = self._with_a_producer(lambda: self.log.prepared(self.table, self.env, snapshot, previous))
        except (StorageError, InvalidInputError) as error:
            if not self._takes_files or not (isinstance(error, StorageError) or _is_too_large(error)):
                raise
            self._release()
            if isinstance(error, StorageError):
                self.log.rest(self.env)
            _log.warning("snapshot %d of '%s' is in the files alone: %s", snapshot.id, self.table.name, error.message)
            return replace(snapshot, properties={**(snapshot.properties or {}), FILES_ONLY: str(snapshot.id)})
        self._prepared = snapshot
        return replace(snapshot, log_offsets={**(snapshot.log_offsets or {}), **offsets} or None)

    def publish(self, snapshot: Snapshot | None) -> None:
        """Commit the transaction, or send the snapshot again if it was aborted."""
        prepared, self._prepared = self._prepared, None
        if snapshot is not None and is_files_only(snapshot):
            return
        if not self._held:
            self.log.lock.acquire()
            self._held = True
        try:
            if prepared is not None and snapshot is not None and same_snapshot(prepared, snapshot):
                try:
                    self.log.show(prepared)
                    return
                except kafka.KafkaException:
                    self.log.forget()
            self._with_a_producer(lambda: self.log.catch_up(self.table, self.env))
        finally:
            self._release()

    def make_up(self) -> Counts:
        """Send the snapshots that the log lacks; return their numbers."""
        with self.log.lock:
            self.log.forget()
            sent: Counts = self._with_a_producer(lambda: self.log.catch_up(self.table, self.env))
        return sent

    def empty(self) -> None:
        """Remove all records from the topic."""
        with self.log.lock:
            self.log.forget()  # a new producer ends what a stopped process has left open
            self._with_a_producer(lambda: self.log.empty(self.table, self.env))

    def drop(self) -> None:
        """Abort the open transaction."""
        if self._prepared is not None:
            self._prepared = None
            self.log.abort()
        self._release()

    @property
    def _takes_files(self) -> bool:
        return bool(self.table.options.get(w.LOG_WHEN_UNAVAILABLE) == "files-only")

    def _release(self) -> None:
        if self._held:
            self._held = False
            self.log.lock.release()

    def _with_a_producer(self, work: Callable[[], Any]) -> Any:
        """Run `work` and return its result. Retry with a new producer if this one was fenced or failed.

        Raises:
            StorageError: the broker failed twice, or other producers fenced this process for `_SEND_S`.
        """
        failed, rest_ms, until = False, 0.0, time.monotonic() + _SEND_S
        while True:
            try:
                return work()
            except kafka.KafkaException as error:
                self.log.forget()
                taken_over = code_of(error) in _taken_over()
                if time.monotonic() > until or (failed and not taken_over):
                    raise unavailable(self.table, "write the log", error) from error
                failed |= not taken_over
                self.env.sleep_ms(self.env.random.uniform(0, rest_ms))  # so that of several processes one gets through
                rest_ms = min(2 * rest_ms + 50, _REST_MAX_MS)
            except BaseException:
                self.log.abort()
                raise


class _TableLog:
    """The log of a table in this process.

    Attributes:
        lock: held by one commit from the beginning of its transaction to the end.
    """

    def __init__(self, topic: str) -> None:
        self.lock = threading.Lock()
        self._topic = topic
        self._producer: Any = None
        self._settings: dict[str, Any] = {}  # of the producer, as far as options of the table say them
        self._schema = -1  # the newest schema of a commit
        self._since = -1  # the schema that gave the table this log: a later log may have a topic of the same name
        self._through: Snapshot | None = None  # the log has the changes of all snapshots up to this one
        self._published = 0  # the newest snapshot with records in the log
        self._partitions = 0
        self._open = False
        self._answered = -math.inf
        self._rests_until = -math.inf

    def ask(self, table: TableDef, env: Env) -> None:
        """Check that the broker answers and has the topic, unless it did within `_ASK_S`.

        No producer begins for that: it would fence that of the process that commits, and tasks ask too.
        """
        if env.seconds() - self._answered > _ASK_S:
            self._counted(table, admin_of(table) if self._producer is None else self._producer)
            self._answered = env.seconds()

    def rest(self, env: Env) -> None:
        """Send no requests for `_REST_S`. Commits within this time do not make it longer."""
        if env.seconds() >= self._rests_until:
            self._rests_until = env.seconds() + _REST_S

    def check_awake(self, table: TableDef, env: Env) -> None:
        """Raise an error within `_REST_S` of a failure.

        Raises:
            StorageError: the broker failed a moment ago.
        """
        if env.seconds() < self._rests_until:
            raise unavailable(table, "write the log", "it did not answer a moment ago")

    # one transaction

    def prepared(self, table: TableDef, env: Env, snapshot: Snapshot, previous: Snapshot | None) -> dict[int, int]:
        """Send the changes of a snapshot in a transaction that stays open; return the end offset of each partition."""
        if previous is None and self._through is not None:
            self.forget()  # of a table that was dropped; its topic had the same name
        self._begin(table, env)
        through = self._through
        if previous is None or through is None or not same_snapshot(previous, through):
            self.catch_up(table, env, end=snapshot.id - 1)
        return self._sent(contents_of(table, env, snapshot), env, snapshot)

    def show(self, snapshot: Snapshot) -> None:
        """Commit the transaction of a snapshot."""
        if self._open:
            _serving(self._producer.commit_transaction, TIMEOUT_S)
            self._open = False
            self._published = snapshot.id
        self._through = snapshot

    def abort(self) -> None:
        """Abort the transaction. If that fails, the next producer causes it."""
        if not self._open:
            return
        self._open = False
        try:
            _serving(self._producer.abort_transaction, TIMEOUT_S)
        except kafka.KafkaException:
            self.forget()

    def forget(self) -> None:
        """Drop a producer that was fenced or failed. The next one causes its open transaction to be aborted."""
        self._producer, self._open, self._through = None, False, None

    def _begin(self, table: TableDef, env: Env) -> None:
        """Start a producer if there is none, and find out which snapshot the log has."""
        settings = client_settings(table)
        if table.schema.id != self._schema:
            since = _logged_since(table, env)
            if since != self._since:
                self.forget()
            self._schema, self._since = table.schema.id, since
        if self._producer is not None and settings == self._settings:
            return
        self.forget()
        producer = new_client(
            table,
            kafka.Producer,
            {
                "linger.ms": 0,
                "compression.type": "zstd",
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 128 * 1024,
                **settings,
                "transactional.id": f"merganser-{self._topic}",
                "enable.idempotence": True,
            },
        )
        partitions = self._counted(table, producer)
        producer.init_transactions(_SEND_S)
        _await_end_of_transactions(table, env, self._topic, partitions)
        self._through = _through(table, env, self._topic, partitions)
        self._published = 0 if self._through is None else self._through.id
        # At last: a producer is one that knows what the log has. Else a begin that was interrupted sends all again.
        self._producer, self._settings, self._partitions, self._answered = producer, settings, partitions, env.seconds()

    def _counted(self, table: TableDef, client: Any) -> int:
        """Return the number of partitions of the topic.

        Raises:
            ConflictError: there is no topic.
        """
        partitions = partition_count(table, client, self._topic)
        if not partitions:
            raise ConflictError(
                f"cannot write the log of '{table.name}': there is no topic '{self._topic}' any more. Nothing was "
                "committed. Make it again with `merganser log repair`, or set 'log.system' = 'none'.",
                table=table.name,
            )
        return partitions

    def _sent(self, contents: Contents, env: Env, snapshot: Snapshot) -> dict[int, int]:
        """Send contents in a transaction that stays open; return the end offset of each partition."""
        if contents.is_empty:
            return {}
        table = contents.table
        parts = range(self._partitions) if contents.in_files else contents.buckets
        mark = Mark(
            snapshot.id,
            snapshot.base_manifest_list,
            snapshot.delta_manifest_list,
            self._published,
            snapshot.schema_id,
            len(parts),
            snapshot.time_millis,
            snapshot.commit_user,
            snapshot.commit_identifier,
            files=contents.in_files,
            watermark=snapshot.watermark,
            shortened=contents.shortened,
        )
        if contents.in_files:
            return self._sent_records(table, env, mark, {part: iter(()) for part in parts})
        return self._sent_records(
            table, env, mark, {bucket: map(partial(_records, table), contents.rows(env, bucket)) for bucket in parts}
        )

    def _sent_records(
        self,
        table: TableDef,
        env: Env,
        mark: Mark,
        parts: dict[int, Iterator[Records]],
    ) -> dict[int, int]:
        """Send the records of each partition in a transaction; return the end offset of each partition."""
        self._grow(table, env, max(parts) + 1)
        self._producer.begin_transaction()
        self._open = True
        ends: dict[int, int] = {}
        failures: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                ends[message.partition()] = message.offset() + 1
            else:
                failures.append(error)

        told, last = (HEADER, mark.to_bytes()), (HEADER, replace(mark, ends=True).to_bytes())
        produce, topic = self._producer.produce, self._topic
        for part, batches in parts.items():
            waiting: _Record | None = None
            for records in batches:
                _serving(self._producer.poll, 0)  # the client keeps a record until its delivery was told
                for record in _with_headers(records, told):
                    if waiting is not None:
                        key, value, headers = waiting
                        try:  # this loop is half of the time of a commit
                            produce(topic, value, key, part, headers=headers)
                        except (kafka.KafkaException, BufferError):
                            self._produce(part, key, value, headers)  # waits, or says why the record is refused
                    waiting = record
            # The files of a partition may hold no record, such as -U rows alone in mode upsert.
            key, value, headers = waiting or (CONTROL_KEY, b"", [told])
            self._produce(part, key, value, [last, *headers[1:]], delivered)
        self._flush()
        if failures:
            raise kafka.KafkaException(failures[0])
        if len(ends) < len(parts):
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
        return ends

    def _flush(self) -> None:
        """Wait until the broker has stored all records; raise an error if it stores none for `TIMEOUT_S`."""
        left, since = len(self._producer), time.monotonic()
        while left:
            now = _serving(self._producer.flush, 0.5)
            if now < left:
                left, since = now, time.monotonic()
            elif time.monotonic() - since > TIMEOUT_S:
                raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))

    def _produce(
        self, part: int, key: bytes | None, value: bytes | None, headers: list[Any], delivered: Any = None
    ) -> None:
        how = {} if delivered is None else {"on_delivery": delivered}
        while True:
            try:
                self._producer.produce(self._topic, value, key, part, headers=headers, **how)
                return
            except kafka.KafkaException as error:
                if code_of(error) != kafka.KafkaError.MSG_SIZE_TOO_LARGE:
                    raise
                size = len(key or b"") + len(value or b"")
                limit = int(self._settings.get("message.max.bytes", _RECORD_BYTES_MAX))
                raise InvalidInputError(
                    f"cannot write the log '{self._topic}': the record of a row has {size:,} bytes, and the client "
                    f"sends up to {limit:,}. The key of the row is {(key or b'')[:100]!r}. Nothing was committed. Set "
                    f"'{MESSAGE_MAX_BYTES}' of the table to more. Or set 'log.when-unavailable' = 'files-only': then "
                    "commits with such rows are in the files alone.",
                    topic=self._topic,
                    size=size,
                    limit=limit,
                ) from error
            except BufferError:  # the broker is slower than we are
                _serving(self._producer.poll, 0.1)

    def _grow(self, table: TableDef, env: Env, partitions: int) -> None:
        """Add partitions until the topic has this number: dynamic buckets and rescales add buckets."""
        if partitions <= self._partitions:
            return
        with told(table, "add partitions to the log"):
            admin = admin_of(table)  # it has to live until its answer has come
            new = kafka.admin.NewPartitions(self._topic, partitions)
            try:
                admin.create_partitions([new], request_timeout=TIMEOUT_S)[self._topic].result()
            except kafka.KafkaException as error:
                if code_of(error) != kafka.KafkaError.INVALID_PARTITIONS:  # another process has added them
                    raise
            until = time.monotonic() + TIMEOUT_S
            while (found := partition_count(table, self._producer, self._topic)) < partitions:
                if time.monotonic() > until:
                    raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
                env.sleep_ms(10)
        self._partitions = found

    # what the log lacks

    def catch_up(self, table: TableDef, env: Env, end: int | None = None) -> Counts:
        """Send each snapshot that the log lacks in a transaction of its own; return how many had changes.

        Args:
            end: id of the last snapshot to send. None for the newest.
        """
        self._begin(table, env)
        store = SnapshotStore(table.paths, env, table.name)
        newest = store.latest_id() or 0 if end is None else end
        through = self._still_there(table, env, store, self._through)
        start = _first_logged(table, env, store) if through is None else through.id + 1
        in_files: list[bool] = []
        for number, snapshot, contents in _contents_from(table, env, start, newest):
            if snapshot is None or contents is None:
                # Nobody knows what it published. So the next record does not say that this was nothing, and readers
                # that come to it ask the files, which say that it has expired.
                self._published = number
                continue
            self._sent(contents, env, snapshot)
            self.show(snapshot)
            in_files += [] if contents.is_empty else [contents.in_files]
        return _counts(in_files)

    def empty(self, table: TableDef, env: Env) -> None:
        """Remove all records from the topic, so that it holds no row. The log goes on behind them.

        A record without a row goes before, and stays. So the next producer finds what the log has, also if this process
        stops after any request. Readers take from the files what was removed before they had it.
        """
        self.catch_up(table, env)
        ends = self._tell(table, env, self._through)
        remove_records(table, self._topic, {part: end - 1 for part, end in ends.items()})

    def _still_there(
        self, table: TableDef, env: Env, store: SnapshotStore, through: Snapshot | None
    ) -> Snapshot | None:
        """Return the newest snapshot that both the table and the log have; write a record if there was a rollback."""
        if through is None:
            return None
        now = store.get(through.id)
        if now is not None and same_snapshot(now, through):
            return through
        newest = store.latest_id() or 0
        if now is None and newest > through.id:
            return through  # it has expired
        kept = last_marks(
            table,
            self._topic,
            self._partitions,
            lambda mark: (one := store.get(mark.snapshot)) is not None and same_snapshot(one, mark.shown()),
        )
        newest_kept = max(kept.values(), key=lambda mark: mark.snapshot, default=None)
        found = None if newest_kept is None else newest_kept.shown()
        self._tell(table, env, found)
        return found

    def _tell(self, table: TableDef, env: Env, through: Snapshot | None) -> dict[int, int]:
        """Write a record without a row into each partition: the log ends with this snapshot; None: before the first.

        Readers look at the files then, and the next producer finds what the log has.

        Returns:
            The offset behind the record in each partition.
        """
        mark = Mark(0, "", "", 0, table.schema.id, self._partitions, env.now_ms(), "", 0, back=True)
        if through is not None:
            mark = Mark(
                through.id,
                through.base_manifest_list,
                through.delta_manifest_list,
                through.id,
                through.schema_id,
                self._partitions,
                through.time_millis,
                through.commit_user,
                through.commit_identifier,
                back=True,
                watermark=through.watermark,
            )
        ends = self._sent_records(table, env, mark, {part: iter(()) for part in range(self._partitions)})
        self.show(mark.shown())
        return ends


def _contents_from(
    table: TableDef, env: Env, first: int, last: int
) -> Iterator[tuple[int, Snapshot | None, Contents | None]]:
    """Yield the id, the snapshot and its contents for each id in a range. Both are None for an expired snapshot."""
    store, changelogs = SnapshotStore(table.paths, env, table.name), ChangelogStore(table.paths, env)
    for number in range(first, last + 1):
        snapshot = store.get(number) or changelogs.get(number)
        yield number, snapshot, None if snapshot is None else contents_of(table, env, snapshot)


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of snapshots with changes.

    Attributes:
        with_rows: those whose rows are in the log, or should be.
        in_files: those whose rows are in the files alone. The log names them.
    """

    with_rows: int
    in_files: int


def _counts(in_files: list[bool]) -> Counts:
    """Count snapshots, by whether their rows are in the files alone."""
    return Counts(in_files.count(False), in_files.count(True))


def make_up(table: TableDef, env: Env) -> Counts:
    """Send the snapshots that the log lacks; return how many had changes.

    Raises:
        StorageError: the broker does not answer.
    """
    return _commit_of(table, env).make_up()


def empty_log(table: TableDef, env: Env) -> None:
    """Remove the rows from the topic of a table: all records, whether readers have them or not. The log goes on.

    Raises:
        StorageError: the broker does not answer, or does not remove records; some or all are still there.
    """
    _commit_of(table, env).empty()


def log_holds_rows(table: TableDef) -> bool:
    """Return whether the topic of a table holds a record with a row, or a delete of one, or one that was not committed.

    Raises:
        StorageError: the broker does not answer.
    """
    topic = topic_of(table)
    topics = [topic, uncommitted_topic(topic)] if is_eventual(table) else [topic]
    return any(_holds_rows(table, each) for each in topics)


def _holds_rows(table: TableDef, topic: str) -> bool:
    consumer = _reading(table, topic, "read_uncommitted")  # what was aborted is there, too
    try:
        with told(table, "read the log"):
            partitions = partition_count(table, consumer, topic)
            consumer.assign([kafka.TopicPartition(topic, part, kafka.OFFSET_BEGINNING) for part in range(partitions)])
            return any(message.key() != CONTROL_KEY for message in _messages(consumer, range(partitions)))
    finally:
        consumer.close()


def log_lacks(table: TableDef, env: Env) -> Counts:
    """Return the numbers of snapshots with changes that the log lacks."""
    topic = topic_of(table)
    store = SnapshotStore(table.paths, env, table.name)
    with told(table, "read the log"):
        through = _through(table, env, topic, partition_count(table, admin := admin_of(table), topic))
        del admin
    start = _first_logged(table, env, store) if through is None else through.id + 1
    found = _contents_from(table, env, start, store.latest_id() or 0)
    return _counts([one.in_files for _, _, one in found if one is not None and not one.is_empty])


def _is_too_large(error: MerganserError) -> bool:
    """Return whether an error is that of a record which is larger than the client sends."""
    return "size" in error.context


def _serving(call: Callable[[float], Any], seconds: float) -> Any:
    """Call a method of the client that also runs delivery callbacks.

    Raises:
        KafkaException: the producer failed. A fenced producer sets an error and then runs callbacks; CPython reports
            that as SystemError.
    """
    try:
        return call(seconds)
    except SystemError as error:
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._FATAL)) from error


def _records(table: TableDef, rows: pa.Table) -> Records:
    """Return the records of rows; see `Contents.rows`."""
    kinds = rows.column(CHANGE_KIND.name)
    codes = pa.compute.index_in(kinds, pa.array(SYMBOLS)).combine_chunks().cast(pa.int8())
    sequences = rows.column(SEQUENCE_NUMBER.name) if SEQUENCE_NUMBER.name in rows.column_names else None
    return encode(rows, codes, table.schema.shown, mode_of(table), sequences)


def _with_headers(records: Records, told: _Header) -> Iterator[_Record]:
    """Yield the key, the value and the headers of each record.

    Args:
        told: the header that all have.
    """
    shared = [told]
    keys = repeat(None) if records.keys is None else records.keys
    if records.sequences is None:
        return zip(keys, records.values, repeat(shared), strict=False)
    headers = map(list, zip(repeat(told), zip(repeat(SEQUENCE_HEADER), records.sequences, strict=False), strict=False))
    return zip(keys, records.values, headers, strict=True)


@cache
def _taken_over() -> frozenset[int]:
    """Return the codes of errors that mean that another producer has fenced this one."""
    error = kafka.KafkaError
    ours = error._FENCED, error._FATAL, error._STATE, error._PURGE_QUEUE, error._PURGE_INFLIGHT
    theirs = error.PRODUCER_FENCED, error.INVALID_PRODUCER_EPOCH, error.INVALID_TXN_STATE, error.CONCURRENT_TRANSACTIONS
    return frozenset((*ours, *theirs))


def _first_logged(table: TableDef, env: Env, store: SnapshotStore) -> int:
    """Return the id of the first snapshot since the table has a log."""
    since = _logged_since(table, env)
    if not since:
        return store.earliest_id() or 1
    found = store.first(lambda one: one.schema_id >= since)
    return (store.latest_id() or 0) + 1 if found is None else found.id


def _logged_since(table: TableDef, env: Env) -> int:
    """Return the id of the schema that gave the table its log."""
    schemas = SchemaStore(table.paths, env)
    since = table.schema.id
    while since and schemas.load(since - 1).options.get(w.LOG_SYSTEM) != "none":
        since -= 1
    return since


def last_marks(
    table: TableDef, topic: str, partitions: int, wanted: Callable[[Mark], bool] = lambda _: True
) -> dict[int, Mark]:
    """Return the mark of the last record of each partition that satisfies `wanted`.

    Raises:
        StorageError: the broker does not answer.
    """
    return _searched(table, topic, partitions, wanted).last


def _await_end_of_transactions(table: TableDef, env: Env, topic: str, partitions: int) -> None:
    """Wait until no transaction is open in the topic.

    The start of a producer ends the transaction of the previous producer. Records that are still hidden from a consumer
    with read_committed could belong to a snapshot that was sent already, and it must not be sent a second time.

    Raises:
        KafkaException: one is still open after `_SEND_S`.
    """
    every, committed = (_reading(table, topic, level) for level in ("read_uncommitted", "read_committed"))
    try:
        until = time.monotonic() + _SEND_S
        for part in (kafka.TopicPartition(topic, number) for number in range(partitions)):
            _, end = every.get_watermark_offsets(part, TIMEOUT_S)
            while committed.get_watermark_offsets(part, TIMEOUT_S)[1] < end:
                if time.monotonic() > until:
                    raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
                env.sleep_ms(_OPEN_MS)
    finally:
        every.close()
        committed.close()


def _through(table: TableDef, env: Env, topic: str, partitions: int) -> Snapshot | None:
    """Return the newest snapshot whose changes the log has, or had until they expired. None: it has had none."""
    found = _searched(table, topic, partitions, lambda _: True)
    bounds = found.bounds
    if found.last:
        return _whole(table, env, found)
    if not any(low for low, _ in bounds.values()):
        return None
    # Retention has removed all committed records. Offsets that are left belong to aborted transactions, such as that of
    # a killed process. A snapshot whose records end there is sent again. One whose records have expired is not.
    store = SnapshotStore(table.paths, env, table.name)
    for number in range(store.latest_id() or 0, 0, -1):
        snapshot = store.get(number)
        if snapshot is None:
            return None
        ends = ((bounds.get(part, (0, 0)), end) for part, end in (snapshot.log_offsets or {}).items())
        if all(end <= low or end > high for (low, high), end in ends):  # above: of an older topic of the table
            return snapshot
    return None


def _whole(table: TableDef, env: Env, found: _Ends) -> Snapshot | None:
    """Return the newest snapshot that the log has; if a record of it may be damaged, the one before, if any."""
    newest = max(found.last.values(), key=lambda mark: mark.snapshot)
    shown = newest.shown()
    has = {part for part, mark in found.last.items() if mark.ends and same_snapshot(mark.shown(), shown)}
    if len(has) >= newest.parts or found.skipped <= has:
        return shown
    # A partition lacks the end of the commit and has a damaged record there. If that was another program's, and the
    # end has expired, the commit comes a second time: readers of ours leave it out, and others lose nothing.
    before = newest.snapshot - 1
    if not before:
        return None
    return SnapshotStore(table.paths, env, table.name).get(before) or replace(shown, id=before)


@dataclass(frozen=True)
class _Ends:
    """The ends of the partitions of a topic.

    Attributes:
        last: by partition, the mark of the last record that was searched for.
        bounds: the first offset that is kept, and the end of each partition.
        skipped: partitions with a record behind that one whose header cannot be read.
    """

    last: dict[int, Mark]
    bounds: dict[int, tuple[int, int]]
    skipped: set[int]


def _searched(table: TableDef, topic: str, partitions: int, wanted: Callable[[Mark], bool]) -> _Ends:
    """Search each partition from its end for the last record whose mark satisfies `wanted`."""
    consumer = _reading(table, topic, "read_committed")
    try:
        found: dict[int, Mark] = {}
        skipped: set[int] = set()
        bounds = {
            part: consumer.get_watermark_offsets(kafka.TopicPartition(topic, part), TIMEOUT_S)
            for part in range(partitions)
        }
        width = _PROBE
        searched = {part: high for part, (_, high) in bounds.items()}
        while todo := {part for part, (low, _) in bounds.items() if part not in found and searched[part] > low}:
            starts = {part: max(bounds[part][0], bounds[part][1] - width) for part in todo}
            consumer.assign([kafka.TopicPartition(topic, part, at) for part, at in starts.items()])
            for part, mark in _marks(consumer, todo):
                if mark is None:
                    skipped.add(part)
                elif wanted(mark):
                    found[part] = mark
                    skipped.discard(part)
            searched |= starts
            width *= _WIDER
        return _Ends(found, bounds, skipped)
    finally:
        consumer.close()


def _reading(table: TableDef, topic: str, isolation: str) -> Any:
    """Return a consumer that reads to the end of partitions and keeps no position."""
    return new_client(
        table,
        kafka.Consumer,
        {
            **client_settings(table),
            "group.id": f"merganser-{topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # the end of a partition is told with the answer to a fetch
            "isolation.level": isolation,
        },
    )


def _marks(consumer: Any, parts: Iterable[int]) -> Iterator[tuple[int, Mark | None]]:
    """Yield partition and mark of all records of ours up to the end of each partition. None: it cannot be read."""
    for message in _messages(consumer, parts):
        header = header_of(message)
        if header is None:
            continue
        try:
            mark = mark_from(header)
        except FormatError as error:
            warn_of_skipped(message, error)
            yield message.partition(), None
        else:
            yield message.partition(), mark


def _messages(consumer: Any, parts: Iterable[int]) -> Iterator[Any]:
    """Yield all records up to the end of each partition."""
    left = set(parts)
    until = time.monotonic() + _SEND_S
    while left:
        first = consumer.poll(1.0)  # `consume` would wait for the full number
        messages = [] if first is None else [first, *consumer.consume(1000, 0)]
        for message in messages:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == kafka.KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise kafka.KafkaException(error)
        if not messages and time.monotonic() > until:
            raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
