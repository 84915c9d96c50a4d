"""Tables with a log: what commits put into it, what streams get from it, and what happens if one of the two stops."""

from __future__ import annotations

import io
import itertools
import json
import queue
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import confluent_kafka as kafka
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.changes import drop_column, remove_option, set_option
from merganser.cli.main import main
from merganser.commit.log import NO_LOG
from merganser.commit.table_commit import TableCommit
from merganser.errors import (
    AlreadyExistsError,
    ConflictError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from merganser.log import commit_log, topics
from merganser.log import kafka as log_kafka
from merganser.log.mark import CONTROL_KEY, HEADER, SEQUENCE_HEADER, Mark, mark_from
from merganser.log.tail import LogTail
from merganser.log.uncommitted import flushed_from
from merganser.storage.env import Env
from merganser.stream.follow import TableStream
from tests.log.broker import Broker, client_threads, running
from tests.unit.serve.serving import TOKEN, Serving

pytestmark = pytest.mark.broker
_names = itertools.count()


@pytest.fixture
def warehouse(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(tmp_path / f"warehouse{next(_names)}-{time.time_ns()}")
    found.create_database("db")
    return found


def _table(catalog: mg.Catalog, broker: Broker, name: str = "t", key: str = "k", **options: str) -> mg.Table:
    told = {"bucket": "2", "log.system": "kafka", "kafka.bootstrap.servers": broker.address, **options}
    return catalog.create_table(f"db.{name}", {"k": "INT", "v": "STRING"}, key.split() if key else (), options=told)


def _records(table: mg.Table) -> list[dict[str, Any]]:
    """Return what a reader of the topic gets that is not ours, partition by partition."""
    servers, topic = table.options["kafka.bootstrap.servers"], table.options["kafka.topic"]
    consumer = kafka.Consumer({
        "bootstrap.servers": servers, "group.id": "a-reader", "isolation.level": "read_committed",
        "enable.partition.eof": True, "enable.auto.commit": False, "fetch.wait.max.ms": 10,
    })  # fmt: skip
    try:
        left = set(consumer.list_topics(topic, 10).topics[topic].partitions)
        consumer.assign([kafka.TopicPartition(topic, part, kafka.OFFSET_BEGINNING) for part in left])
        found: list[dict[str, Any]] = []
        while left:
            message = consumer.poll(10)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == kafka.KafkaError._PARTITION_EOF
                left.discard(message.partition())
                continue
            headers = dict(message.headers())
            mark, sequence = json.loads(headers[HEADER]), headers.get(SEQUENCE_HEADER)
            assert list(headers) == [HEADER] if sequence is None else [HEADER, SEQUENCE_HEADER]
            key, value = message.key(), message.value()
            found.append({
                "part": message.partition(), "offset": message.offset(), "snapshot": mark["snapshot"], "mark": mark,
                "key": None if key is None else key.decode(), "value": None if value is None else value.decode(),
                "sequence": None if sequence is None else sequence.decode(),
            })  # fmt: skip
        found.sort(key=lambda record: (record["part"], record["offset"]))
        return found
    finally:
        consumer.close()


@contextmanager
def _following(table: mg.Table, **how: Any) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Follow a table in a thread; gives a function that returns the rows of the next plan."""
    plans: queue.Queue[Any] = queue.Queue()
    stop = threading.Event()
    patient = table.with_options({"continuous.discovery-interval": "600 s"})  # so it is the log that tells
    stream = patient.stream(**how)

    def follow() -> None:
        try:
            for plan in stream:
                plans.put(plan)
                if stop.is_set():
                    return
        except BaseException as error:
            plans.put(error)

    def get() -> list[dict[str, Any]]:
        found = plans.get(timeout=20)
        if isinstance(found, BaseException):
            raise found
        return found.to_pylist()  # type: ignore[no-any-return]

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    _until_it_listens(stream)
    try:
        yield get
    finally:
        stop.set()
        stream.close()
        thread.join(20)


def _until_it_listens(stream: TableStream) -> None:
    until = time.monotonic() + 20
    while stream._waiting.looks and time.monotonic() < until:
        time.sleep(0.02)


@dataclass
class _Message:
    _key: bytes
    _value: bytes

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value


def _mark(snapshot: int, delta: str, *, back: bool = False) -> Mark:
    return Mark(snapshot, "base", delta, snapshot - 1, 0, 2, 0, "user", 1, ends=True, back=back)


def _branch(table: mg.Table) -> str:
    table.branches.create("side")
    return "side"


def _configure(broker: Broker, topic: str, policy: str) -> None:
    client = kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    change = kafka.admin.AlterConfigOpType.SET
    entry = kafka.admin.ConfigEntry("cleanup.policy", policy, incremental_operation=change)
    resource = kafka.admin.ConfigResource(kafka.admin.ResourceType.TOPIC, topic, incremental_configs=[entry])
    for answer in client.incremental_alter_configs([resource]).values():
        answer.result()


def _settings(broker: Broker, topic: str) -> dict[str, str]:
    """Return what the broker keeps of a topic, and for how long."""
    client = kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    resource = kafka.admin.ConfigResource(kafka.admin.ResourceType.TOPIC, topic)
    found = client.describe_configs([resource])[resource].result()
    return {key: found[key].value for key in ("cleanup.policy", "retention.ms", "retention.bytes")}


def _topics(broker: Broker) -> set[str]:
    client = kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    return set(client.list_topics(timeout=10).topics)


def _all_values(broker: Broker, topic: str) -> list[bytes]:
    """Return the values of all records that the broker serves, also of those that were not committed."""
    consumer = kafka.Consumer({
        "bootstrap.servers": broker.address, "group.id": "a-reader", "isolation.level": "read_uncommitted",
        "enable.partition.eof": True, "enable.auto.commit": False, "fetch.wait.max.ms": 10,
    })  # fmt: skip
    try:
        parts = set(consumer.list_topics(topic, 10).topics[topic].partitions)
        consumer.assign([kafka.TopicPartition(topic, part, kafka.OFFSET_BEGINNING) for part in parts])
        return [message.value() or b"" for message in commit_log._messages(consumer, parts)]
    finally:
        consumer.close()


def _row(kind: str, k: int, v: str | None) -> dict[str, Any]:
    return {"_row_kind": kind, "k": k, "v": v}


def test_commits_are_in_the_log_as_debezium_json_by_bucket_and_snapshots_say_where(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": k, "v": f"v{k}"} for k in range(20)], commit_user="job", identifier=4)
    table.write([{"k": 3, "v": "new"}, {"k": 4, "v": None}], kinds=["+I", "-D"])
    records = _records(table)
    by_key: dict[str, set[int]] = {}
    for record in records:
        by_key.setdefault(record["key"], set()).add(record["part"])
    assert len(by_key) == 20
    assert all(len(parts) == 1 for parts in by_key.values())
    first = [record for record in records if record["snapshot"] == 1]
    assert {json.loads(record["value"])["after"]["v"] for record in first} == {f"v{k}" for k in range(20)}
    assert {(record["mark"]["user"], record["mark"]["identifier"]) for record in first} == {("job", 4)}
    (three,) = [r for r in records if r["snapshot"] == 2 and r["key"] == '{"k":3}']
    assert json.loads(three["value"]) == {"before": None, "after": {"k": 3, "v": "new"}, "op": "c"}
    (four,) = [r for r in records if r["snapshot"] == 2 and r["key"] == '{"k":4}']
    assert four["value"] is None
    assert "newest record of snapshot" in _said("log", "offsets", table.path)
    for number in (1, 2):
        (snapshot,) = [one for one in table.snapshots() if one.id == number]
        for part, end in (snapshot.log_offsets or {}).items():
            offsets = [r["offset"] for r in records if r["part"] == part and r["snapshot"] <= number]
            assert end == max(offsets) + 1


@pytest.mark.parametrize(
    "options",
    [
        {"changelog-producer": "input", "log.changelog-mode": "upsert"},
        {"changelog-producer": "input"},
        {"changelog-producer": "lookup"},
        {"log.changelog-mode": "all", "bucket": "-1"},
    ],
)
def test_each_record_of_a_row_has_the_sequence_number_of_its_row(
    warehouse: mg.Catalog, broker: Broker, options: dict[str, str]
) -> None:
    table = _table(warehouse, broker, **options)
    table.write([{"k": k, "v": "a"} for k in range(9)])
    kinds = ["-U", "+U", "-D", "+I"]
    table.write([{"k": 3, "v": "a"}, {"k": 3, "v": "b"}, {"k": 4, "v": "a"}, {"k": 9, "v": "a"}], kinds=kinds)
    table.compact(full=True)
    upsert = options.get("log.changelog-mode") == "upsert"
    found, wanted = [], []
    for record in _records(table):
        image = {} if record["value"] is None else json.loads(record["value"])
        if record["key"] != CONTROL_KEY.decode():
            found.append((record["snapshot"], json.loads(record["key"])["k"], record["sequence"]))
            assert image or upsert
    for snapshot in table.snapshots():
        between = {"incremental-between": f"{snapshot.id - 1},{snapshot.id}"}
        numbered = table.with_options({"table-read.sequence-number.enabled": "true", **between})
        wanted += [
            (snapshot.id, row["k"], str(row["_SEQUENCE_NUMBER"]))
            for row in numbered.system("audit_log").to_pylist()
            if not upsert or row["rowkind"] != "-U"
        ]
    assert sorted(found) == sorted(wanted)
    assert len(found) == (12 if upsert else 13 if "changelog-producer" in options else 12)


def test_records_without_a_key_or_a_row_have_no_sequence_number(warehouse: mg.Catalog, broker: Broker) -> None:
    lines = _table(warehouse, broker, key="", **{"bucket-key": "k"})
    lines.write([{"k": 1, "v": "a"}])
    table = _table(warehouse, broker, name="keyed", bucket="1")
    table.write([{"k": 1, "v": "a"}], overwrite={})
    assert [record["sequence"] for record in (*_records(lines), *_records(table))] == [None, None]


def test_a_stream_gets_rows_from_the_log_and_the_same_as_from_the_files(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    with _following(table) as get, patch("merganser.stream.follow.TableStream._published") as files:
        assert get() == [_row("+I", 1, "a")]
        table.write([{"k": 1, "v": "b"}])
        assert get() == [_row("+I", 1, "b")]
        table.write([{"k": 2, "v": "c"}, {"k": 3, "v": "d"}])
        assert sorted(row["k"] for row in get()) == [2, 3]
        table.compact(full=True)
        table.delete("k = 1")
        assert get() == [_row("-D", 1, None)]
        assert not files.called


@pytest.mark.parametrize("how", ["close", "with", "end", "error", "last reference"])
def test_a_stream_that_ends_leaves_no_thread_of_its_client(warehouse: mg.Catalog, broker: Broker, how: str) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    before = client_threads()
    stream = table.stream(until=2 if how == "end" else None)
    assert next(stream).to_pylist() == [_row("+I", 1, "a")]
    writer = threading.Thread(target=lambda: (_until_it_listens(stream), table.write([{"k": 2, "v": "b"}])))
    writer.start()
    assert next(stream).to_pylist() == [_row("+I", 2, "b")]
    writer.join()
    assert len(client_threads()) > len(before)
    if how == "close":
        stream.close()
        stream.close()
    elif how == "with":
        with stream as same:
            assert same is stream
    elif how == "error":
        with patch.object(type(stream), "_awaited", side_effect=StorageError("no")), pytest.raises(StorageError):
            next(stream)
        assert client_threads() == before
        table.write([{"k": 3, "v": "c"}])
        assert next(stream).to_pylist() == [_row("+I", 3, "c")]
        stream.close()
    elif how == "last reference":
        del stream, writer
        assert client_threads() == before
        return
    assert list(stream) == []
    assert client_threads() == before


def test_another_thread_ends_a_stream_that_waits(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker).with_options({"continuous.discovery-interval": "600 s"})
    table.write([{"k": 1, "v": "a"}])
    before = client_threads()
    stream = table.stream(start="latest")
    got: list[Any] = []
    waits = threading.Thread(target=lambda: got.extend(stream))
    waits.start()
    _until_it_listens(stream)
    stream.close()
    waits.join(5)
    assert not waits.is_alive()
    assert got == []
    assert client_threads() == before


def test_an_option_of_the_client_holds_from_the_next_commit_on(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    table = table.alter([set_option("kafka.linger.ms", "1")])
    with patch.object(commit_log, "new_client", wraps=commit_log.new_client) as made:
        table.write([{"k": 1, "v": "b"}])
        table.write([{"k": 1, "v": "c"}])
    assert [each.args[1] for each in made.call_args_list].count(kafka.Producer) == 1


def test_a_row_that_is_too_large_for_the_log_is_refused_or_stays_in_the_files(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker)
    rows = [{"k": 1, "v": "a"}, {"k": 7, "v": secrets.token_hex(600_000)}, {"k": 3, "v": "c"}]
    large = r"has 1,200,[0-9]{3} bytes.*up to 1,000,000.*Nothing was committed"
    with pytest.raises(InvalidInputError, match=large) as refused:
        table.write(rows)
    assert type(refused.value) is InvalidInputError
    assert not table.snapshots()
    assert _records(table) == []
    table = table.alter([set_option("log.when-unavailable", "files-only")])
    table.write(rows)
    assert len(table.read(columns=["k"]).to_pylist()) == 3
    assert [record for record in _records(table) if record["key"]] == []
    table = table.alter([set_option("kafka.message.max.bytes", "2000000")])
    table.write(rows)
    assert {record["snapshot"] for record in _records(table) if record["key"] == '{"k":7}'} == {2}


@pytest.mark.campaign(1 / 3, first=2)
def test_the_log_of_a_broker_that_does_not_answer_is_shown_from_the_files(
    warehouse: mg.Catalog, capfd: pytest.CaptureFixture[str]
) -> None:
    with running() as own:
        table = _table(warehouse, own)
        table.write([{"k": 1, "v": "a"}])
        own.pause()
        since = time.monotonic()
        with pytest.raises(SystemExit) as ended:
            main(["log", "show", table.path])
        assert time.monotonic() - since < 10
        own.resume()
    said = capfd.readouterr()
    assert ended.value.code == 1
    assert table.options["kafka.topic"] in said.out
    assert "snapshot   1" in said.out
    assert "Kafka is asked at" in said.err


def test_lines_of_the_client_go_to_the_log_of_python(
    warehouse: mg.Catalog, broker: Broker, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "merganser")
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    with patch.dict(commit_log._logs, clear=True):  # the other process: its producer fences the first one
        table.write([{"k": 2, "v": "b"}])
    table.write([{"k": 3, "v": "c"}])
    assert "%" not in capfd.readouterr().err
    assert [one for one in caplog.records if one.name == "merganser.log.client" and "fenced" in one.getMessage()]


def test_commits_that_do_not_ask_a_broker_which_failed_do_not_put_off_the_next_that_asks() -> None:
    now, log = [100.0], commit_log._TableLog("topic")
    env: Any = SimpleNamespace(seconds=lambda: now[0])
    log.rest(env)
    for _ in range(2):
        now[0] += commit_log._REST_S / 2
        log.rest(env)
    assert log._rests_until == 100.0 + 2 * commit_log._REST_S  # the last one has asked again


@pytest.mark.parametrize("change", [("log.system", "none"), ("log.consistency", "transactional")])
def test_a_table_keeps_its_topics_if_the_broker_is_away_unless_it_goes_on_without_it(
    warehouse: mg.Catalog, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str]
) -> None:
    monkeypatch.setattr(log_kafka, "TIMEOUT_S", 1.0)
    monkeypatch.setattr(topics, "TIMEOUT_S", 1.0)
    with running() as own:
        table = _table(warehouse, own, **{"log.consistency": "eventual"})
        before = dict(table.options)
    said = r"The table and its files are as they were\..*also set 'log\.when-unavailable' = 'files-only'"
    with pytest.raises(StorageError, match=said):
        table.alter([set_option(*change)])
    assert dict(warehouse.table("db.t").options) == before
    with pytest.raises(StorageError, match=f"its topic '{before['kafka.topic']}.*may still be there: cannot delete"):
        table.alter([
            set_option(*change), set_option("log.consistency", "transactional"),
            set_option("log.when-unavailable", "files-only"),
        ])  # fmt: skip
    table = warehouse.table("db.t")
    assert table.options[change[0]] == change[1]
    if change[0] == "log.system":
        table.write([{"k": 1, "v": "a"}])


@pytest.mark.parametrize("options", [{"log.retention": "1 h"}, {"log.changelog-mode": "all"}])
def test_an_alter_that_the_broker_does_not_take_changes_nothing(
    warehouse: mg.Catalog, broker: Broker, options: dict[str, str]
) -> None:
    table = _table(warehouse, broker)
    failed = kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TRANSPORT))
    with (
        patch.object(topics.kafka.admin.AdminClient, "incremental_alter_configs", side_effect=failed),
        pytest.raises(StorageError, match="The table and its files are as they were"),
    ):
        table.alter([set_option(key, value) for key, value in options.items()])
    assert dict(warehouse.table("db.t").options) == dict(table.options)


@pytest.mark.parametrize("retention", ["0 s", "0", "999 us"])
def test_a_log_that_would_keep_no_record_is_refused(warehouse: mg.Catalog, broker: Broker, retention: str) -> None:
    with pytest.raises(InvalidInputError, match=f"'log.retention' = '{retention}' would let the log keep no record"):
        _table(warehouse, broker, "refused", **{"log.retention": retention})
    table = _table(warehouse, broker, **{"log.retention": "1 ms"})
    with pytest.raises(InvalidInputError, match="would let the log keep no record"):
        table.alter([set_option("log.retention", retention)])
    assert _settings(broker, table.options["kafka.topic"])["retention.ms"] == "1"


def test_commits_in_the_files_alone_are_said_to_be_named_and_not_sent(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, **{"log.when-unavailable": "files-only"})
    table.write([{"k": 1, "v": "a"}])
    away = StorageError("no answer")
    for with_rows in (False, True):
        with patch.object(commit_log._TableLog, "prepared", side_effect=away):
            table.write([{"k": 1, "v": "b"}])
        commit_log._logs.clear()
        if with_rows:
            with patch("merganser.commit.table_commit.log_of", return_value=NO_LOG):
                table.write([{"k": 1, "v": "c"}])
        shown, repaired = (_said("log", verb, table.path) for verb in ("show", "repair"))
        if with_rows:
            assert "2 snapshots;" in shown
            assert "sends the rows of 1 and the names of 1, whose rows stay in the files\n" in shown
            assert repaired == "sent 1 snapshot\nnamed 1 snapshot, whose rows stay in the files\n"
        else:
            assert "1 snapshot;" in shown
            assert "sends their names, since their rows stay in the files\n" in shown
            assert repaired == "named 1 snapshot, whose rows stay in the files\n"
        assert "lacks      nothing" in _said("log", "show", table.path)


def test_an_alter_that_is_refused_leaves_the_topic_as_it_was(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    before = _settings(broker, table.options["kafka.topic"])
    with pytest.raises(InvalidInputError, match="no column 'w'"):
        table.alter([set_option("log.retention", "1 h"), drop_column("w")])
    assert _settings(broker, table.options["kafka.topic"]) == before


def test_a_repair_gives_the_topic_the_settings_of_the_table(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, **{"log.changelog-mode": "all", "log.retention": "1 h"})
    topic = table.options["kafka.topic"]
    client = kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    wrong = {"cleanup.policy": "compact", "retention.ms": "5000000", "retention.bytes": "7000000"}
    entries = [
        kafka.admin.ConfigEntry(key, value, incremental_operation=kafka.admin.AlterConfigOpType.SET)
        for key, value in wrong.items()
    ]
    resource = kafka.admin.ConfigResource(kafka.admin.ResourceType.TOPIC, topic, incremental_configs=entries)
    next(iter(client.incremental_alter_configs([resource]).values())).result()
    assert _said("log", "repair", table.path) == "the log lacks nothing\n"
    assert _settings(broker, topic) == {
        "cleanup.policy": "delete", "retention.ms": "3600000", "retention.bytes": "7000000",
    }  # fmt: skip


def test_a_producer_changes_the_mode_and_so_the_clean_up(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    assert _settings(broker, table.options["kafka.topic"])["cleanup.policy"] == "compact,delete"
    table.alter([set_option("changelog-producer", "lookup")])
    assert _settings(broker, table.options["kafka.topic"])["cleanup.policy"] == "delete"


def test_the_option_that_names_the_topic_stays(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    with pytest.raises(InvalidInputError, match=r"names the topic of its log\. Nothing was changed"):
        table.alter([remove_option("kafka.topic")])
    table.write([{"k": 1, "v": "a"}])


def test_a_log_without_servers_is_refused_at_once(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    with pytest.raises(InvalidInputError, match=r"needs 'kafka\.bootstrap\.servers'"):
        table.alter([remove_option("kafka.bootstrap.servers")])
    plain = warehouse.create_table("db.plain", {"k": "INT"}, ["k"])
    with pytest.raises(InvalidInputError, match=r"needs 'kafka\.bootstrap\.servers'"):
        plain.alter([set_option("log.system", "kafka")])


def test_servers_that_do_not_answer_are_refused(
    warehouse: mg.Catalog, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_kafka, "TIMEOUT_S", 1.0)
    table = _table(warehouse, broker)
    with pytest.raises(StorageError, match="The table and its files are as they were"):
        table.alter([set_option("kafka.bootstrap.servers", "127.0.0.1:1")])
    table.write([{"k": 1, "v": "a"}])


def test_a_table_with_a_whole_changelog_has_all_kinds_in_its_log(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, **{"changelog-producer": "per-record"})
    table.write([{"k": 1, "v": "a"}])
    with _following(table, start="latest") as get:
        table.write([{"k": 1, "v": "b"}])
        assert get() == [_row("-U", 1, "a"), _row("+U", 1, "b")]
        table.delete("k = 1")
        assert get() == [_row("-D", 1, "b")]
    assert table.changes(2).to_pylist() == [_row("-U", 1, "a"), _row("+U", 1, "b"), _row("-D", 1, "b")]


@pytest.mark.parametrize("where", ["v = 'a'", "v IS NOT NULL", "k > 0 AND v = 'a'"])
def test_a_filter_sees_deletes_whose_keys_alone_are_in_the_log(
    warehouse: mg.Catalog, broker: Broker, where: str
) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    with _following(table, start="latest", where=where) as following:
        table.delete("k = 1")
        assert following() == [_row("-D", 1, "a")]
        table.write([{"k": 2, "v": "a"}])
        assert following() == [_row("+I", 2, "a")]


def test_a_filter_takes_no_delete_for_a_row_of_nulls(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    with _following(table, start="latest", where="v IS NULL") as following:
        table.delete("k = 1")
        table.write([{"k": 2, "v": None}])
        assert following() == [_row("+I", 2, None)]


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("mode", ["auto", "all", "upsert"])
def test_rows_that_readers_subtract_are_whole(warehouse: mg.Catalog, broker: Broker, mode: str) -> None:
    sums = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "log.changelog-mode": mode}
    told = {"bucket": "1", "log.system": "kafka", "kafka.bootstrap.servers": broker.address, **sums}
    table = warehouse.create_table("db.t", {"k": "INT", "n": "INT"}, ["k"], options=told)
    with _following(table, start="latest") as following:
        table.write([{"k": 1, "n": 7}], kinds=["+I"])
        table.write([{"k": 1, "n": 2}], kinds=["-U"])
        table.write([{"k": 1, "n": 4}], kinds=["-D"])
        rows = [{"_row_kind": kind, "k": 1, "n": n} for kind, n in (("+I", 7), ("-U", 2), ("-D", 4))]
        assert following() + following() + following() == rows
    if mode != "upsert":
        assert [json.loads(record["value"])["op"] for record in _records(table)] == ["c", "d", "d"]


def test_deletes_that_a_sequence_field_orders_are_whole(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, **{"sequence.field": "v"})
    with _following(table, start="latest") as following:
        table.write([{"k": 1, "v": "5"}])
        table.write([{"k": 1, "v": "4"}], kinds=["-D"])
        assert following() + following() == [_row("+I", 1, "5"), _row("-D", 1, "4")]
    assert [json.loads(record["value"])["op"] for record in _records(table)] == ["c", "d"]


def test_an_overwrite_is_read_from_the_files_and_the_log_says_so(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, **{"changelog-producer": "per-record"})
    table.write([{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
    with _following(table, start="latest") as get:
        table.write([{"k": 2, "v": "new"}], overwrite={})
        assert sorted((row["_row_kind"], row["k"]) for row in get()) == [("+U", 2), ("-D", 1), ("-U", 2)]
        table.write([{"k": 5, "v": "e"}])
        assert get() == [_row("+I", 5, "e")]


def _said(*command: str) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed), pytest.raises(SystemExit) as ended:
        main(list(command))
    assert ended.value.code == 0
    return printed.getvalue()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("kafka.compresion.type", "zstd", "compresion.type"),
        ("kafka.compression.type", "nonsense", "compression"),
        ("kafka.batch.size", "x", "batch.size"),
        ("kafka.transaction.timeout.ms", "0", "transaction.timeout.ms"),
        ("kafka.acks", "0", "the log decides it"),
        ("kafka.transactional.id", "mine", "the log decides it"),
    ],
)
def test_options_that_the_client_cannot_take_are_refused(
    warehouse: mg.Catalog, broker: Broker, option: str, value: str, said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        _table(warehouse, broker, "refused", **{option: value})
    assert warehouse.list_tables("db") == []
    table = _table(warehouse, broker, "refused")
    with pytest.raises(InvalidInputError, match=said):
        table.alter([set_option(option, value)])
    table.write([{"k": 1, "v": "a"}])
    warehouse.drop_table("db.refused")


def test_a_table_like_one_with_a_log_has_a_log_of_its_own(warehouse: mg.Catalog, broker: Broker) -> None:
    first = _table(warehouse, broker, "one")
    warehouse.sql("CREATE TABLE db.other LIKE db.one")
    text = warehouse.sql("SHOW CREATE TABLE db.one").to_pylist()[0]["createtab_stmt"]
    warehouse.sql(text.replace("`one`", "`third`"))
    second = warehouse.table("db.other")
    assert isinstance(second, mg.Table)
    assert second.options["kafka.topic"] != first.options["kafka.topic"]
    second.write([{"k": 1, "v": "a"}])
    assert len(_records(second)) >= 1
    assert _records(first) == []


def test_a_table_describes_its_log_without_a_broker(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, "described", **{"log.retention": "7 d"})
    table.write([{"k": k, "v": "a"} for k in range(4)])
    topic, ends = table.options["kafka.topic"], table.snapshots()[-1].log_offsets or {}
    there = mg.table(table.path).with_options({"kafka.bootstrap.servers": "127.0.0.1:1"})
    line = f"topic '{topic}' keeps records of 7 d; 2 partitions, in which snapshot 1 ends at {ends[0]}, {ends[1]}"
    assert f"log        {line}" in there.describe()
    table.branches.create("b")
    table.branch("b").write([{"k": 1, "v": "b"}])
    assert "log   " not in table.branch("b").describe()


def test_partitions_without_a_record_are_described_too(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, bucket="3")
    table.write([{"k": 1, "v": "a"}])
    (number, end), *_ = (table.snapshots()[-1].log_offsets or {}).items()
    ends = ", ".join(str(end if part == number else 0) for part in range(3))
    assert f"3 partitions, in which snapshot 1 ends at {ends}" in table.describe()


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("how", ["commit", "repair"])
def test_a_commit_of_a_process_that_stopped_before_the_log_showed_it_is_sent_by_the_next(
    warehouse: mg.Catalog, broker: Broker, how: str
) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    with patch.object(commit_log._TableLog, "show", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        table.write([{"k": 1, "v": "lost?"}])
    commit_log._logs.clear()  # as in another process
    assert [record["snapshot"] for record in _records(table)] == [1]
    assert "lacks      1 snapshot;" in _said("log", "show", table.path)
    if how == "repair":
        assert _said("log", "repair", table.path) == "sent 1 snapshot\n"
        assert "the log lacks nothing" in _said("log", "repair", table.path)
    table.write([{"k": 1, "v": "c"}])
    assert [(r["snapshot"], json.loads(r["value"])["after"]["v"]) for r in _records(table)] == [
        (1, "a"), (2, "lost?"), (3, "c"),
    ]  # fmt: skip


def test_a_commit_that_fails_leaves_nothing_in_the_log(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    with patch.object(TableCommit, "_create", side_effect=StorageError("no")), pytest.raises(StorageError):
        table.write([{"k": 1, "v": "never"}])
    table.write([{"k": 1, "v": "b"}])
    assert [json.loads(r["value"])["after"]["v"] for r in _records(table)] == ["a", "b"]


@pytest.mark.campaign(1 / 2)
def test_while_the_broker_is_down_writes_are_refused_or_go_on_in_the_files(warehouse: mg.Catalog) -> None:
    with (
        running() as own,
        patch.multiple(commit_log, TIMEOUT_S=1.0, _ASK_S=0.0),
        patch.object(log_kafka, "TIMEOUT_S", 1.0),
    ):
        strict = _table(warehouse, own, "strict")
        strict.write([{"k": 1, "v": "a"}])
        lenient = _table(warehouse, own, "lenient", **{"log.when-unavailable": "files-only"})
        lenient.write([{"k": 1, "v": "a"}])
        with _following(lenient, start="latest") as get:
            own.kill()
            with pytest.raises(StorageError, match="Kafka is asked at"):
                strict.write([{"k": 1, "v": "b"}])
            assert len(strict.snapshots()) == 1
            assert strict.read().to_pylist() == [{"k": 1, "v": "a"}]
            lenient.write([{"k": 1, "v": "b"}])
            assert lenient.read().to_pylist() == [{"k": 1, "v": "b"}]
            own.start()
            commit_log._logs.clear()
            lenient.write([{"k": 1, "v": "c"}])
            strict.write([{"k": 1, "v": "c"}])
            assert get() + get() == [_row("+I", 1, "b"), _row("+I", 1, "c")]
        assert [(r["snapshot"], r["mark"].get("files", False)) for r in _records(lenient) if r["part"] == 0][-2:] == [
            (2, True), (3, False),
        ]  # fmt: skip


def test_of_two_processes_each_sends_what_it_commits_once_and_in_order(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, bucket="1", **{"write-only": "true"})
    for n in range(6):
        table.write([{"k": n, "v": str(n)}])
        commit_log._logs.clear()  # the other process: its producer fences this one
    assert [record["snapshot"] for record in _records(table)] == [1, 2, 3, 4, 5, 6]


def test_a_process_that_writes_and_does_not_commit_lets_the_producer_of_the_committer_be(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    (log,) = (one for (_, _, topic), one in commit_log._logs.items() if topic == table.options["kafka.topic"])
    producer = log._producer
    with patch.dict(commit_log._logs, clear=True), table.writer() as task:  # as in a task of Spark
        task.write([{"k": 2, "v": "b"}])
    with patch.object(log, "forget", side_effect=AssertionError("the producer was fenced")):
        table.write([{"k": 3, "v": "c"}])
    assert log._producer is producer


def test_a_producer_that_was_fenced_in_the_middle_of_a_commit_sends_it_again(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker, bucket="1")
    table.write([{"k": 0, "v": "0"}])
    create, others = TableCommit._create, [True]

    def late(self: TableCommit, *given: Any) -> Any:
        if others:
            others.pop()
            fence = kafka.Producer({
                "bootstrap.servers": broker.address, "transactional.id": f"merganser-{table.options['kafka.topic']}",
            })  # fmt: skip
            fence.init_transactions(10)
        return create(self, *given)

    with patch.object(TableCommit, "_create", late):
        table.write([{"k": 1, "v": "1"}])
    table.write([{"k": 2, "v": "2"}])
    assert [record["snapshot"] for record in _records(table)] == [1, 2, 3]


def _fence(table: mg.Table) -> None:
    """Take over as the producer of a table, as another process does."""
    servers, topic = table.options["kafka.bootstrap.servers"], table.options["kafka.topic"]
    kafka.Producer({"bootstrap.servers": servers, "transactional.id": f"merganser-{topic}"}).init_transactions(10)


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("times", [1, 4])
def test_a_producer_that_is_fenced_while_it_sends_begins_again_as_often_as_others_take_over(
    warehouse: mg.Catalog, broker: Broker, times: int
) -> None:
    table = _table(warehouse, broker, bucket="4")
    table.write([{"k": k, "v": "a"} for k in range(20)])
    grow, left = commit_log._TableLog._grow, list(range(times))

    def fenced(self: commit_log._TableLog, *given: Any) -> None:
        grow(self, *given)
        if left:
            left.pop()
            _fence(table)

    with patch.object(commit_log._TableLog, "_grow", fenced):
        table.write([{"k": k, "v": "b"} for k in range(20)])
    assert not left
    assert [record["snapshot"] for record in _records(table) if record["mark"].get("ends") and record["part"] == 0] == [
        1, 2,
    ]  # fmt: skip


def test_a_new_producer_waits_until_no_transaction_hides_records(warehouse: mg.Catalog, broker: Broker) -> None:
    """Such as that of the producer before, if the broker restarts while it is being ended."""
    table = _table(warehouse, broker, bucket="1")
    table.write([{"k": 1, "v": "a"}])
    other = kafka.Producer({"bootstrap.servers": broker.address, "transactional.id": secrets.token_hex(4)})
    other.init_transactions(10)
    other.begin_transaction()
    other.produce(table.options["kafka.topic"], b"", CONTROL_KEY, 0)
    other.flush(10)
    commit_log._logs.clear()
    waits, asked = Env.sleep_ms, list[float]()

    def sleep_ms(self: Env, duration_ms: float) -> None:
        asked.append(duration_ms)
        if len(asked) == 3:
            other.abort_transaction(10)
        waits(self, duration_ms)

    with patch.object(Env, "sleep_ms", sleep_ms):
        table.write([{"k": 1, "v": "b"}])
    assert len(asked) >= 3
    assert [record["snapshot"] for record in _records(table)] == [1, 2]


def test_a_begin_that_was_interrupted_does_not_make_the_next_commit_send_all_again(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker, bucket="1")
    table.write([{"k": 1, "v": "a"}])
    commit_log._logs.clear()
    with patch.object(commit_log, "_searched", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        table.write([{"k": 1, "v": "b"}])
    table.write([{"k": 1, "v": "c"}])
    assert [record["snapshot"] for record in _records(table)] == [1, 2]


def test_partitions_that_another_process_added_are_used(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, bucket="1")
    table.write([{"k": k, "v": "a"} for k in range(8)])
    other = dict(commit_log._logs)  # a producer that knows of one partition
    commit_log._logs.clear()
    table.rescale(4)
    commit_log._logs.update(other)
    warehouse.table("db.t").write([{"k": k, "v": "b"} for k in range(8)])
    assert {r["part"] for r in _records(table) if r["snapshot"] == 3} == {0, 1, 2, 3}


def test_a_snapshot_that_the_log_lacks_and_that_has_expired_is_not_passed_over_in_silence(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker, bucket="1")
    table.write([{"k": 1, "v": "a"}])
    with _following(table, start="latest") as get:
        with patch("merganser.commit.table_commit.log_of", return_value=NO_LOG):  # as while the broker is away
            for v in "bcd":
                table.write([{"k": 1, "v": v}])
        table.expire(retain_max=1, retain_min=1, older_than="2100-01-01")
        table.write([{"k": 1, "v": "e"}])
        with pytest.raises(mg.errors.ExpiredError):
            get()


def test_a_stream_hears_of_commits_that_are_in_new_partitions_alone(warehouse: mg.Catalog, broker: Broker) -> None:
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "5"}
    table = _table(warehouse, broker, **options)
    table.write([{"k": k, "v": "a"} for k in range(5)])
    with _following(table, start="latest") as get:
        table.write([{"k": k, "v": "b"} for k in range(10, 15)])
        assert len(get()) == 5
    assert {r["part"] for r in _records(table) if r["snapshot"] == 2} == {1}


def test_after_a_rollback_the_log_says_so_and_goes_on_with_the_new_history(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker, bucket="1")
    for v in "abc":
        table.write([{"k": 1, "v": v}])
    with _following(table, start="latest") as get:
        table.rollback(1)
        table.write([{"k": 1, "v": "d"}])
        with pytest.raises(ConflictError, match="rolled back behind snapshot 3"):
            get()
    with _following(table) as get:
        assert get() == [_row("+I", 1, "d")]
        table.write([{"k": 1, "v": "e"}])
        assert get() == [_row("+I", 1, "e")]
    told = [(r["snapshot"], r["mark"].get("back", False)) for r in _records(table)]
    assert told == [(1, False), (2, False), (3, False), (1, True), (2, False), (3, False)]


def test_the_topic_comes_and_goes_with_the_table(warehouse: mg.Catalog, broker: Broker) -> None:
    client = kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    table = _table(warehouse, broker, bucket="3", **{"log.retention": "2 h"})
    topic = table.options["kafka.topic"]
    assert topic.endswith(".db.t")
    assert len(client.list_topics(topic).topics[topic].partitions) == 3
    resource = kafka.admin.ConfigResource(kafka.admin.ResourceType.TOPIC, topic)
    told = client.describe_configs([resource])[resource].result()
    assert (told["retention.ms"].value, told["cleanup.policy"].value) == ("7200000", "compact,delete")
    table.alter([set_option("log.retention", "3 h")])
    assert client.describe_configs([resource])[resource].result()["retention.ms"].value == "10800000"
    warehouse.drop_table("db.t")
    assert client.list_topics(timeout=10).topics.get(topic) is None
    _table(warehouse, broker)


def test_a_topic_that_was_deleted_is_made_again_by_a_repair(warehouse: mg.Catalog, broker: Broker) -> None:
    client = kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    table = _table(warehouse, broker, bucket="1")
    table.write([{"k": 1, "v": "a"}])
    client.delete_topics([table.options["kafka.topic"]])[table.options["kafka.topic"]].result()
    commit_log._logs.clear()
    with pytest.raises(ConflictError, match="merganser log repair"):
        table.write([{"k": 1, "v": "b"}])
    assert _said("log", "repair", table.path) == "sent 1 snapshot\n"
    table.write([{"k": 1, "v": "b"}])
    assert [record["snapshot"] for record in _records(table)] == [1, 2]


def test_a_table_of_a_server_has_the_topic_that_its_client_made(tmp_path: Path, broker: Broker) -> None:
    server = Serving(tmp_path / "warehouse", token=TOKEN, command="serve-catalog")
    try:
        told = {"warehouse": "warehouse", "token.provider": "bear", "token": TOKEN}
        catalog = mg.catalog(f"http://127.0.0.1:{server.port}", options=told)
        catalog.create_database("db")
        table = _table(catalog, broker)
        topic = table.options["kafka.topic"]
        with _following(table) as get:
            table.write([{"k": 1, "v": "a"}])
            assert get() == [_row("+I", 1, "a")]
        table = table.alter([set_option("log.retention", "1 h")])
        assert _settings(broker, topic)["retention.ms"] == "3600000"
        table = table.alter([set_option("log.system", "none")])
        assert "kafka.topic" not in table.options
        assert topic not in _topics(broker)
        table = table.alter([set_option("log.system", "kafka")])
        table.write([{"k": 2, "v": "b"}])
        assert [record["key"] for record in _records(table)] == ['{"k":2}']
        with pytest.raises(InvalidInputError, match=r"'kafka.topic' is 'mine'"):
            _table(catalog, broker, "named", **{"kafka.topic": "mine"})
        with pytest.raises(AlreadyExistsError):
            _table(catalog, broker)
        catalog.drop_table("db.t")
        assert not [each for each in _topics(broker) if each.startswith(topic)]
    finally:
        server.stop()


def test_a_topic_that_a_killed_create_has_left_is_left_alone_and_named(
    warehouse: mg.Catalog, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        patch.object(topics, "make_uncommitted_topic", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        _table(warehouse, broker)
    assert warehouse.list_tables("db") == []
    table = _table(warehouse, broker)
    (left,) = (one for one in _topics(broker) if table.options["kafka.topic"] == f"{one}-2")
    assert f"there is a topic '{left}' already, so the log of 'db.t' gets the topic '{left}-2'" in caplog.text
    warehouse.drop_table("db.t")
    assert [one for one in _topics(broker) if one.startswith(left)] == [left]


def test_a_topic_that_is_named_is_refused_and_no_table_is_made(warehouse: mg.Catalog, broker: Broker) -> None:
    with pytest.raises(InvalidInputError, match=r"'kafka.topic' is 'mine'"):
        _table(warehouse, broker, **{"kafka.topic": "mine"})
    with pytest.raises(NotFoundError):
        warehouse.table("db.t")


def test_a_table_under_the_old_name_of_another_has_a_topic_of_its_own(warehouse: mg.Catalog, broker: Broker) -> None:
    _table(warehouse, broker, bucket="1").write([{"k": 1, "v": "old"}])
    warehouse.rename_table("db.t", "db.renamed")
    renamed = warehouse.table("db.renamed")
    table = _table(warehouse, broker, bucket="1")
    assert table.options["kafka.topic"] == renamed.options["kafka.topic"] + "-2"
    table.write([{"k": 1, "v": "new"}])
    assert [json.loads(record["value"])["after"]["v"] for record in _records(table)] == ["new"]
    warehouse.drop_table("db.t")
    assert [json.loads(record["value"])["after"]["v"] for record in _records(renamed)] == ["old"]


def test_a_table_with_rows_gets_a_log_from_then_on_and_loses_it(warehouse: mg.Catalog, broker: Broker) -> None:
    client = kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    table = warehouse.create_table("db.t", {"k": "INT", "v": "STRING"}, ["k"], options={"bucket": "1"})
    table.write([{"k": 1, "v": "before"}])
    table = table.alter([set_option("log.system", "kafka"), set_option("kafka.bootstrap.servers", broker.address)])
    table.write([{"k": 1, "v": "after"}])
    topic = table.options["kafka.topic"]
    assert [json.loads(r["value"])["after"]["v"] for r in _records(table)] == ["after"]
    table = table.alter([remove_option("log.system")])
    assert "kafka.topic" not in table.options
    assert client.list_topics(timeout=10).topics.get(topic) is None
    table.write([{"k": 1, "v": "last"}])


def test_a_log_that_is_set_again_begins_with_the_next_commit(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, bucket="1")
    table.write([{"k": 1, "v": "on"}])
    topic = table.options["kafka.topic"]
    table = table.alter([set_option("log.system", "none")])
    for v in "abc":
        table.write([{"k": 1, "v": v}])
    table = table.alter([set_option("log.system", "kafka")])
    assert table.options["kafka.topic"] == topic
    assert "lacks      nothing" in _said("log", "show", table.path)
    table.write([{"k": 1, "v": "on again"}])
    assert [json.loads(record["value"])["after"]["v"] for record in _records(table)] == ["on again"]


def test_a_table_with_the_name_of_one_that_was_dropped_has_a_log_of_its_own_commits(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    for values in ("abc", "d"):
        table = _table(warehouse, broker, bucket="1")
        for v in values:
            table.write([{"k": 1, "v": v}])
        assert [json.loads(record["value"])["after"]["v"] for record in _records(table)] == list(values)
        warehouse.drop_table("db.t")


def test_a_handle_that_was_opened_before_follows_the_log_that_the_table_has(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    client = kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    stale = _table(warehouse, broker, bucket="1")
    topic = stale.options["kafka.topic"]
    with stale.writer() as writer:
        writer.write([{"k": 1, "v": "a"}])
        writer.commit()
        stale.alter([set_option("log.system", "none")])
        commit_log._logs.clear()  # as another process, which asks for the topic
        writer.write([{"k": 1, "v": "b"}])
        writer.commit()
        stale.write([{"k": 1, "v": "c"}])
        stale.delete("v = 'none'")
        assert stale.latest_snapshot().log_offsets is None
        assert client.list_topics(timeout=10).topics.get(topic) is None

        commit_log._logs.clear()
        warehouse.table("db.t").alter([set_option("log.system", "kafka")])
        writer.write([{"k": 1, "v": "d"}])
        writer.commit()
    stale.write([{"k": 1, "v": "e"}])
    now = warehouse.table("db.t")
    assert [json.loads(record["value"])["after"]["v"] for record in _records(now)] == ["d", "e"]


def test_a_clone_has_no_log_and_a_renamed_table_keeps_it(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, bucket="1")
    table.write([{"k": 1, "v": "a"}])
    other = warehouse.clone("db.t", "db.other")
    assert other.options.get("log.system", "none") == "none"
    other.write([{"k": 2, "v": "b"}])
    warehouse.rename_table("db.t", "db.renamed")
    renamed = warehouse.table("db.renamed")
    assert isinstance(renamed, mg.Table)
    renamed.write([{"k": 3, "v": "c"}])
    assert [record["snapshot"] for record in _records(renamed)] == [1, 2]


def test_a_clone_of_a_table_with_files_elsewhere_leaves_the_log_of_the_table_alone(
    warehouse: mg.Catalog, broker: Broker, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / "folder" / "a.parquet")
    options = {"log.system": "kafka", "kafka.bootstrap.servers": broker.address}
    table = warehouse.migrate(tmp_path / "folder", "db.t", how="keep", options=options)
    before = len(_records(table))
    assert before == 2
    clone = warehouse.clone("db.t", "db.other")
    assert len(clone.read().to_pylist()) == 2
    assert clone.latest_snapshot().log_offsets is None
    assert len(_records(table)) == before
    with pytest.raises(AlreadyExistsError):
        warehouse.migrate(tmp_path / "folder", "db.t", how="keep", options=options)


def _no_secret(text: str, *secrets: str) -> None:
    for secret in secrets:
        assert secret not in text


def test_secrets_of_a_catalog_are_given_to_each_client_and_shown_nowhere(
    warehouse: mg.Catalog, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "pass-4711"
    with pytest.raises(InvalidInputError, match="holds a secret"):
        _table(warehouse, broker, **{"kafka.sasl.password": secret})
    catalog = mg.catalog(warehouse.warehouse, options={"kafka.sasl.password": secret, "kafka.client.id": "ours"})
    with _told_clients() as told:
        servers = f"{broker.address},{broker.address}"  # streams of other tests may still make clients
        options = {"log.consistency": "eventual", "kafka.bootstrap.servers": servers}
        table = _table(catalog, broker, bucket="1", **options)
        with _following(catalog.table("db.t")) as get, catalog.table("db.t").writer() as writer:
            writer.write([{"k": 1, "v": "a"}])
            writer.flush()
            assert get() == [_row("+I", 1, "a")]
            writer.commit()
        table = catalog.alter_table("db.t", [set_option("log.retention", "3 h")])
        store = ("--store", f"kafka.sasl.password={secret}", "--store", "kafka.client.id=ours")
        said = [_said("log", verb, "db.t", "--warehouse", catalog.warehouse, *store) for verb in ("show", "repair")]
        said.append(_said("log", "offsets", table.path, *store))
        table.branches.create("side")
        assert table.branch("side").erase("k = 1").is_complete is False
        catalog.rename_table("db.t", "db.named")
        named = catalog.table("db.named")
        assert isinstance(named, mg.Table)
        named.alter([remove_option("log.consistency"), set_option("log.system", "none")])
        catalog.table("db.named").alter([set_option("log.system", "kafka")])
        catalog.drop_table("db.named")
    told = [settings for settings in told if settings["bootstrap.servers"] == servers]
    assert len(told) > 10
    assert {(settings.get("sasl.password"), settings.get("client.id")) for settings in told} == {(secret, "ours")}
    shown = [
        *said,
        repr(catalog),
        repr(table),
        repr(table.definition),
        str(table.options),
        (described := table.describe()),
        caplog.text,
    ]
    _no_secret("".join(shown), secret)
    assert "kafka.client.id = ours" in described
    assert "sasl.password" not in "".join(str(dict(one.options)) for one in [table.definition.schema])


def test_a_table_without_a_log_is_described_without_the_client_of_its_catalog(warehouse: mg.Catalog) -> None:
    catalog = mg.catalog(warehouse.warehouse, options={"kafka.client.id": "ours"})
    table = catalog.create_table("db.t", {"k": "INT"}, ["k"], options={"bucket": "1"})
    assert "kafka" not in table.describe()
    assert "bucket = 1" in table.describe()


@pytest.mark.parametrize(
    ("option", "value", "allowed"), [("log.format", "avro", "debezium-json"), ("log.key.format", "raw", "json")]
)
def test_forms_of_records_that_the_log_does_not_have_are_refused(
    warehouse: mg.Catalog, option: str, value: str, allowed: str
) -> None:
    refusal = f"'{option}' = '{value}': expected one of {allowed}"
    with pytest.raises(InvalidInputError, match=refusal):
        warehouse.create_table("db.t", {"k": "INT"}, ["k"], options={option: value})
    table = warehouse.create_table("db.t", {"k": "INT"}, ["k"], options={option: allowed})
    with pytest.raises(InvalidInputError, match=refusal):
        table.alter([set_option(option, value)])


def test_errors_of_the_client_cite_no_secret(warehouse: mg.Catalog, broker: Broker) -> None:
    options = {
        "kafka.sasl.mechanisms": "OAUTHBEARER", "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.oauthbearer.config": "principal=me scope=hush-4711",
        "kafka.enable.sasl.oauthbearer.unsecure.jwt": "x",
    }  # fmt: skip
    catalog = mg.catalog(warehouse.warehouse, options=options)
    with pytest.raises(InvalidInputError) as refused:
        _table(catalog, broker)
    _no_secret("".join(traceback.format_exception(refused.value)), "hush-4711")


@contextmanager
def _told_clients() -> Iterator[list[dict[str, Any]]]:
    """Note the settings of all clients that are made in the block."""
    told: list[dict[str, Any]] = []
    real = log_kafka.kafka

    class Noted:
        def __init__(self, inside: Any) -> None:
            self._inside = inside

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._inside, name)
            if name == "admin":
                return Noted(found)
            if name not in ("Producer", "Consumer", "AdminClient"):
                return found

            def made(settings: dict[str, Any], **how: Any) -> Any:
                told.append(dict(settings))
                return found(settings, **how)

            return made

    noted = Noted(real)
    names = ["kafka", "commit_log", "status", "tail", "topics", "uncommitted"]
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(patch(f"merganser.log.{name}.kafka", noted))
        yield told


def test_a_table_of_a_query_has_its_rows_in_the_log_or_there_is_none(warehouse: mg.Catalog, broker: Broker) -> None:
    client = kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    told = f"'bucket' = '1', 'log.system' = 'kafka', 'kafka.bootstrap.servers' = '{broker.address}'"
    warehouse.sql(f"CREATE TABLE db.made TBLPROPERTIES ({told}, 'primary-key' = 'k') AS SELECT 1 AS k, 'a' AS v")
    made = warehouse.table("db.made")
    assert isinstance(made, mg.Table)
    assert [record["key"] for record in _records(made)] == ['{"k":1}']
    with pytest.raises(mg.errors.MerganserError):
        warehouse.sql(f"CREATE TABLE db.bad TBLPROPERTIES ({told}) AS SELECT CAST('x' AS INT) AS k")
    assert not [topic for topic in client.list_topics(timeout=10).topics if topic.endswith("db.bad")]


@pytest.mark.spark
def test_commits_of_spark_are_in_the_log(spark: Any, warehouse: mg.Catalog, broker: Broker) -> None:
    import merganser.spark as ms

    table = _table(warehouse, broker, bucket="2")
    with _following(table, start="latest") as get:
        ms.write(spark.range(20).selectExpr("CAST(id AS INT) AS k", "'a' AS v"), table.path)
        found = get()
        assert sorted(row["k"] for row in found) == list(range(20))
    assert {record["snapshot"] for record in _records(table)} == {1}


@pytest.mark.parametrize("key", ["k", ""])
def test_buckets_that_are_added_get_partitions(warehouse: mg.Catalog, broker: Broker, key: str) -> None:
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "5"} if key else {"bucket": "-1"}
    table = _table(warehouse, broker, key=key, **options)
    for n in range(4):
        table.write([{"k": n * 10 + k, "v": "x"} for k in range(10)])
    assert sorted({record["snapshot"] for record in _records(table)}) == [1, 2, 3, 4]
    assert len(_records(table)) == 40


def test_a_rescaled_table_goes_on(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, bucket="1")
    table.write([{"k": k, "v": "a"} for k in range(8)])
    table.rescale(4)
    table = warehouse.table("db.t")
    table.write([{"k": k, "v": "b"} for k in range(8)])
    assert {r["part"] for r in _records(table) if r["snapshot"] == 3} == {0, 1, 2, 3}


def test_a_log_without_rows_of_its_own_for_pyarrow_tables_of_many_rows(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    rows = pa.table({"k": pa.array(range(50_000), pa.int32()), "v": pa.array([f"v{k}" for k in range(50_000)])})
    with _following(table, start="latest") as get:
        table.write(rows)
        found = get()
    assert sorted(row["k"] for row in found) == list(range(50_000))


def test_consumers_are_told_how_many_records_of_the_log_they_are_behind(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, bucket="1")
    ends = [_written(table, count) for count in (3, 2, 4)]
    for name, position in (("new", 1), ("second", 2), ("last", 3), ("ready", 4)):
        table.consumers.set(name, position)

    def behind() -> dict[str, Any]:
        return {row["consumer_id"]: row["lag_log_records"] for row in table.system("consumers").to_pylist()}

    assert behind() == {"new": ends[2], "second": ends[2] - ends[0], "last": ends[2] - ends[1], "ready": 0}
    assert ends[2] - ends[1] == 4 + 1  # the end of a transaction has an offset
    heading, *rows = _said("consumers", table.path).splitlines()
    assert "seconds behind  log records behind" in heading
    assert {row.split()[0]: row.split()[4] for row in rows} == {name: str(lag) for name, lag in behind().items()}
    table.expire(retain_max=1, retain_min=1, older_than=datetime.now(UTC) + timedelta(days=1))
    assert behind()["last"] == ends[2] - ends[1]
    for name in ("new", "second"):
        table.consumers.drop(name)
    table.expire(retain_max=1, retain_min=1, older_than=datetime.now(UTC) + timedelta(days=1))
    assert behind() == {"last": None, "ready": 0}
    assert "?" in next(row for row in _said("consumers", table.path).splitlines() if row.startswith("last"))


@pytest.mark.parametrize("how", ["another topic", "the same topic"])
def test_records_of_a_topic_that_was_made_again_are_all_behind(warehouse: mg.Catalog, broker: Broker, how: str) -> None:
    table = _table(warehouse, broker, bucket="1")
    _written(table, 9)
    _written(table, 9)
    table.consumers.set("reader", 3)
    table.expire(retain_max=1, retain_min=1, older_than=datetime.now(UTC) + timedelta(days=1))
    if how == "another topic":
        table = table.alter([set_option("log.system", "none")])
        table = table.alter([set_option("log.system", "kafka"), set_option("kafka.bootstrap.servers", broker.address)])
    else:
        topic, client = table.options["kafka.topic"], kafka.admin.AdminClient({"bootstrap.servers": broker.address})
        client.delete_topics([topic])[topic].result()
        commit_log._logs.clear()
        _said("log", "repair", table.path)
    end = _written(table, 2)
    (lag,) = (row["lag_log_records"] for row in table.system("consumers").to_pylist())
    assert lag == end


def test_a_table_without_a_log_says_nothing_of_records_that_a_consumer_is_behind(warehouse: mg.Catalog) -> None:
    table = warehouse.create_table("db.t", {"k": "INT"}, ["k"], options={"bucket": "1"})
    table.write([{"k": 1}])
    table.consumers.set("reader", 1)
    assert "log records behind" not in _said("consumers", table.path)


def _written(table: mg.Table, count: int) -> int:
    """Write rows into one bucket; return the offset behind them."""
    snapshot = table.write([{"k": k, "v": "a"} for k in range(count)])
    assert snapshot is not None
    return (snapshot.log_offsets or {})[0]


def test_a_log_whose_records_have_all_expired_is_not_sent_again(warehouse: mg.Catalog, broker: Broker) -> None:
    client = kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    table = _table(warehouse, broker, bucket="1", **{"log.retention": "2 h"})
    for v in "ab":
        table.write([{"k": 1, "v": v}])
    topic = table.options["kafka.topic"]
    end = kafka.TopicPartition(topic, 0, kafka.OFFSET_END)
    client.delete_records([end])[kafka.TopicPartition(topic, 0)].result()
    commit_log._logs.clear()
    assert "lacks      nothing" in _said("log", "show", table.path)
    table.write([{"k": 1, "v": "c"}])
    assert [record["snapshot"] for record in _records(table)] == [3]


def _produce(table: mg.Table, part: int, header: bytes | None, topic: str = "") -> None:
    """Write a record that is not ours into the topic of a table."""
    client = kafka.Producer({"bootstrap.servers": table.options["kafka.bootstrap.servers"]})
    client.produce(topic or table.options["kafka.topic"], b"y", b"x", part, headers=[(HEADER, header)])
    assert client.flush(10) == 0


_MARK = json.loads(_mark(9, "delta").to_bytes())
_HEADERS = [
    b"garbage", None, b"null", b"[]", b"\xff", b"[" * 100_000, json.dumps(_MARK | {"snapshot": "9"}).encode(),
    json.dumps(_MARK | {"base": None}).encode(),
]  # fmt: skip


@pytest.mark.parametrize("header", _HEADERS, ids=range(len(_HEADERS)))
def test_a_header_that_is_not_ours_is_an_error_of_the_format(header: bytes | None) -> None:
    for read in (mark_from, flushed_from):
        with pytest.raises(FormatError, match="has a damaged header"):
            read(header or b"")


@pytest.mark.parametrize("header", _HEADERS[:2], ids=["garbage", "null"])
def test_a_record_whose_header_cannot_be_read_is_skipped(
    warehouse: mg.Catalog, broker: Broker, caplog: pytest.LogCaptureFixture, header: bytes | None
) -> None:
    table = _table(warehouse, broker, bucket="2")
    table.write([{"k": 1, "v": "a"}])
    for part in (0, 1, 1):
        _produce(table, part, header)
    commit_log._logs.clear()  # as another process
    assert "lacks      nothing" in _said("log", "show", table.path)
    assert " 1\n" in _said("log", "offsets", table.path)
    assert _said("log", "repair", table.path) == "the log lacks nothing\n"
    with _following(table, start="latest") as get:
        _produce(table, 0, header)
        table.write([{"k": 1, "v": "b"}])
        assert get() == [_row("+I", 1, "b")]
        table.write([{"k": 1, "v": "c"}])
        assert get() == [_row("+I", 1, "c")]
    said = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    topic = table.options["kafka.topic"]
    assert [f"the topic '{topic}' is skipped" in text for text in said] == [True]


def test_a_header_that_cannot_be_read_among_rows_that_are_not_committed_is_skipped(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker, bucket="1", **{"log.consistency": "eventual"})
    beside = table.options["kafka.topic"] + ".uncommitted"
    with table.writer() as writer:
        writer.write([{"k": 1, "v": "a"}])
        writer.flush()
        _produce(table, 0, b"garbage", beside)  # the last record when the stream begins
        with _following(table) as get:
            assert get() == [_row("+I", 1, "a")]
            _produce(table, 0, b'{"write":1,"after":"","schema":0}', beside)
            writer.write([{"k": 2, "v": "b"}])
            writer.flush()
            assert get() == [_row("+I", 2, "b")]


@pytest.mark.parametrize(("damaged", "how"), [([0], "repair"), ([1], "commit"), ([0, 1], "repair")])
def test_a_commit_with_a_damaged_record_at_its_end_is_sent_again(
    warehouse: mg.Catalog, broker: Broker, damaged: list[int], how: str
) -> None:
    table = _table(warehouse, broker, bucket="2")
    table.write([{"k": k, "v": "a"} for k in range(9)])
    with _following(table, start="latest") as get:
        with _damaged_ends(damaged):
            table.write([{"k": k, "v": "b"} for k in range(9)])
        assert sorted(row["k"] for row in get()) == list(range(9))
    commit_log._logs.clear()  # as another process
    assert "lacks      1 snapshot" in _said("log", "show", table.path)
    if how == "repair":
        assert _said("log", "repair", table.path) == "sent 1 snapshot\n"
        assert _said("log", "repair", table.path) == "the log lacks nothing\n"
    table.write([{"k": k, "v": "c"} for k in range(9)])
    found = [json.loads(value)["after"] for value in _all_values(broker, table.options["kafka.topic"]) if value]
    assert sorted(row["v"] for row in found) == ["a"] * 9 + ["b"] * 18 + ["c"] * 9


@contextmanager
def _damaged_ends(parts: list[int]) -> Iterator[None]:
    """Damage the headers of the last records of commits in some partitions."""
    produce = commit_log._TableLog._produce

    def damaging(self: Any, part: int, key: Any, value: Any, headers: list[Any], delivered: Any = None) -> None:
        told = [(HEADER, b"damaged"), *headers[1:]] if part in parts and delivered else headers
        produce(self, part, key, value, told, delivered)

    with patch.object(commit_log._TableLog, "_produce", damaging):
        yield


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("stops", ["before the snapshot", "after the snapshot"])
def test_after_all_records_have_expired_a_commit_that_was_stopped_comes_again_alone(
    warehouse: mg.Catalog, broker: Broker, stops: str
) -> None:
    client = kafka.admin.AdminClient({"bootstrap.servers": broker.address})
    table = _table(warehouse, broker)
    for v in "ab":
        table.write([{"k": k, "v": v} for k in range(4)])
    ends = [kafka.TopicPartition(table.options["kafka.topic"], part, kafka.OFFSET_END) for part in range(2)]
    for answer in client.delete_records(ends).values():
        answer.result()
    place, method = (TableCommit, "_create") if stops == "before the snapshot" else (commit_log._TableLog, "show")
    with (
        patch.object(commit_log._TableLog, "abort"),  # nothing runs in a process that is killed
        patch.object(place, method, side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        table.write([{"k": 1, "v": "lost?"}])
    commit_log._logs.clear()
    sent = "sent 1 snapshot\n" if stops == "after the snapshot" else "the log lacks nothing\n"
    assert _said("log", "repair", table.path) == sent
    table.write([{"k": 1, "v": "c"}])
    again = ["c"] if stops == "before the snapshot" else ["lost?", "c"]
    assert [json.loads(record["value"])["after"]["v"] for record in _records(table)] == again


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("mode", ["upsert", "all", "eventual"])
def test_an_erasure_empties_the_topic_and_the_log_goes_on(warehouse: mg.Catalog, broker: Broker, mode: str) -> None:
    options = {"log.consistency": mode} if mode == "eventual" else {"log.changelog-mode": mode}
    table = _table(warehouse, broker, **options)
    topic = table.options["kafka.topic"]
    beside = [f"{topic}.uncommitted"] if mode == "eventual" else []
    if mode == "upsert":  # as topics of older versions
        _configure(broker, topic, "compact")
    with table.writer() as writer:
        for k in range(6):
            writer.write([{"k": k, "v": "person" if k == 3 else "x"}])
            if beside:
                writer.flush()
            writer.commit()
    assert all(any(b"person" in text for text in _all_values(broker, each)) for each in (topic, *beside))
    table.delete("k = 3")

    report = table.erase("k = 3")
    assert [(one.kind, one.name) for one in report.held if one.kind == "log"] == [("log", topic)]
    with _following(table, start="latest") as get:
        report = table.erase("k = 3", everywhere=True)
        assert (report.is_complete, [one.name for one in report.ended if one.kind == "log"]) == (True, [topic])
        assert {record["key"] for record in _records(table)} == {"merganser"}
        assert not [text for each in (topic, *beside) for text in _all_values(broker, each) if b"person" in text]
        assert table.erase("k = 3").is_complete

        commit_log._logs.clear()  # as another process, which has to find out what the log has
        table.write([{"k": 7, "v": "new"}])
        assert get() == [_row("+I", 7, "new")]
    newest = table.latest_snapshot().id
    assert [record["snapshot"] for record in _records(table) if record["key"] != "merganser"] == [newest]
    assert "the log lacks nothing" in _said("log", "repair", table.path)
    again = table.erase("k = 3", everywhere=True)
    assert (again.is_complete, [one.kind for one in again.ended].count("log")) == (True, 1)


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("stops", ["remove", "snapshot"])
def test_an_erasure_of_the_log_that_was_stopped_is_finished_by_the_next(
    warehouse: mg.Catalog, broker: Broker, stops: str
) -> None:
    """The process stops before the records go, or a writer stops between its snapshot and the log."""
    table = _table(warehouse, broker)
    for k in range(3):
        table.write([{"k": k, "v": "a"}])
    if stops == "remove":
        with (
            patch.object(commit_log, "remove_records", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            table.erase("k = 1", everywhere=True)
        commit_log._logs.clear()
        assert len([record for record in _records(table) if record["key"] == '{"k":2}']) == 1
    else:
        with (
            patch.object(commit_log._TableLog, "show", side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            table.write([{"k": 1, "v": "person"}])
        commit_log._logs.clear()
        assert [one.kind for one in table.erase("k = 1").held].count("log") == 1
    assert table.erase("k = 1", everywhere=True).is_complete
    assert not [text for text in _all_values(broker, table.options["kafka.topic"]) if text]
    table.write([{"k": 2, "v": "b"}])
    assert [record["key"] for record in _records(table) if record["key"] != "merganser"] == ['{"k":2}']


def test_a_report_says_that_the_topic_holds_rows_if_the_broker_does_not_answer(
    warehouse: mg.Catalog, broker: Broker
) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    with patch.object(commit_log, "remove_records", side_effect=StorageError("no answer")):
        report = table.erase("k = 1", everywhere=True)
    [held] = report.held
    assert (held.kind, held.name) == ("log", table.options["kafka.topic"])
    assert "no answer" in held.advice
    with patch.object(commit_log, "partition_count", side_effect=StorageError("no answer")):
        report = table.branch(_branch(table)).erase("k = 1")
    assert [one.kind for one in report.held].count("log") == 1


def test_records_of_two_histories_make_no_commit_together() -> None:
    tail = LogTail.__new__(LogTail)
    tail._commits, tail._went_back, tail.newest = {}, False, None
    old, new = _mark(6, "old"), _mark(6, "new")
    tail._take(1, old, [_Message(b"{}", b"old")])
    tail._take(1, _mark(5, "five", back=True), [_Message(CONTROL_KEY, b"")])
    tail._take(1, new, [_Message(b"{}", b"new")])
    tail._take(0, old, [_Message(b"{}", b"old")])  # of a partition that is read later
    assert tail.next(6) is None
    tail._take(0, _mark(5, "five", back=True), [_Message(CONTROL_KEY, b"")])
    tail._take(0, new, [_Message(b"{}", b"new")])
    commit = tail.next(6)
    assert commit is not None
    assert [values for _, values in commit.parts.values()] == [[b"new"], [b"new"]]
    assert tail.was_rolled_back()


def test_a_table_that_counts_equal_rows_has_a_log(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker, key="", **{"write-mode": "change-log"})
    with _following(table, start="latest") as get:
        table.write([{"k": 1, "v": "a"}, {"k": 1, "v": "a"}])
        assert get() == [_row("+I", 1, "a")] * 2
        table.write([{"k": 1, "v": "a"}], kinds=["-D"])
        assert get() == [_row("-D", 1, "a")]
    assert {record["key"] for record in _records(table)} == {None}


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("after", [-1, 0, 1, 3])
def test_a_start_from_a_time_gives_the_rows_that_it_gives_without_a_log(
    warehouse: mg.Catalog, broker: Broker, after: int
) -> None:
    logged = _table(warehouse, broker)
    plain = warehouse.create_table("db.plain", {"k": "INT", "v": "STRING"}, ["k"], options={"bucket": "2"})
    for n in range(4):
        for table in (logged, plain):
            table.write([{"k": n % 2, "v": str(n)}])
        time.sleep(0.005)
    told = {
        table.name: {
            "scan.timestamp-millis": str(table.snapshots()[0].time_millis - 1 if after < 0 else _end(table, after))
        }
        for table in (logged, plain)
    }
    with _following(logged, start="from-timestamp", **told[logged.name]) as get:
        for n in (4, 5):
            for table in (logged, plain):
                table.write([{"k": n, "v": str(n)}])
        wanted = [plan.to_pylist() for plan in plain.stream("from-timestamp", follow=False, **told[plain.name])]
        assert [get() for _ in wanted] == wanted
        assert len(wanted) == 5 - after


def _end(table: mg.Table, number: int) -> int:
    """Return a time after the snapshot of that place and before the next."""
    return table.snapshots()[number].time_millis + 1
