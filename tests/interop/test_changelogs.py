"""Changelogs both ways: the clients read what we publish, we read what they publish, commits of both make one log.

Rows are compared with their kinds, and the rows of a key in their order. What a client cannot do stands in a test of
its own, and in `docs/interop.md`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from .engines import KIND_FIELD, Fields, MerganserEngine, PeerEngine, TableShape
from .peers import Peer, PeerError
from .random_rows import random_table
from .values import Row, arrow_schema, assert_same_changes, assert_same_rows, rows_of

pytestmark = pytest.mark.peers

KEY = ("p", "k")
KIND = KIND_FIELD[0]
FIELDS: Fields = (
    ("p", "STRING NOT NULL"),
    ("k", "INT NOT NULL"),
    ("s", "INT"),
    ("v", "STRING"),
    ("d", "DECIMAL(10, 2)"),
    ("t", "DATE"),
    ("b", "BYTES"),
)
PRODUCERS = ("input", "lookup", "full-compaction", "per-record")
ALL_KINDS = ("+I", "-U", "+U", "-D")
ENGINES: Mapping[str, tuple[Mapping[str, str], Sequence[str]]] = {
    "deduplicate": ({}, ALL_KINDS),
    "ordered": ({"sequence.field": "s"}, ALL_KINDS),
    "partial-update": ({"merge-engine": "partial-update"}, ("+I", "+U")),
    "removing": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        ("+I", "+U", "-D"),
    ),
    "aggregation": ({"merge-engine": "aggregation", "fields.s.aggregate-function": "max"}, ("+I", "+U")),
    "first-row": ({"merge-engine": "first-row"}, ("+I",)),
    "vectors": ({"deletion-vectors.enabled": "true"}, ALL_KINDS),
}
"""The options of each kind of table, and the kinds of rows that it takes."""
REFUSED = {
    ("input", "first-row"),
    ("full-compaction", "first-row"),
    ("full-compaction", "vectors"),
    ("pypaimon", "removing"),
}
"""Producers, or clients, that do not go with a kind of table."""
COMMITS = 3


def seeded(text: str) -> Random:
    """A random source that depends on a text alone."""
    return Random(zlib.crc32(text.encode()))


def drawn_shape(
    random: Random, producer: str, engine: str, formats: Sequence[str] = ("parquet", "orc", "avro")
) -> TableShape:
    """A table with this producer, with partitions or without, and with changelog files of a drawn format."""
    options = {"bucket": str(random.randint(1, 3)), "changelog-producer": producer, **ENGINES[engine][0]}
    options["changelog-file.format"] = random.choice(formats)
    options["changelog-file.compression"] = random.choice(["none", "snappy", "zstd"])
    options["changelog-file.stats-mode"] = random.choice(["none", "full"])
    if random.random() < 0.3:
        options["changelog-file.prefix"] = "log-"
    if producer != "input" and random.random() < 0.5:
        options["changelog-producer.row-deduplicate"] = "true"
    return TableShape(FIELDS, KEY, ("p",) if random.random() < 0.5 else (), options)


def drawn_rows(random: Random, count: int, *, distinct: bool = False) -> pa.Table:
    """Rows of at most eight keys: they come again in later commits, and in this one unless they shall be distinct."""
    pool = [(part, number) for part in "ab" for number in range(4)]
    keys = random.sample(pool, min(count, 8)) if distinct else random.choices(pool, k=count)
    return random_table(random, FIELDS, KEY, keys)


def last_snapshot(ours: MerganserEngine, table: str) -> int:
    found = ours.table(table).latest_snapshot()
    return 0 if found is None else found.id


def replayed(changes: Sequence[Row]) -> list[Row]:
    """The table that changes from its first row on make; each must fit the row that is there."""
    state: dict[tuple[Any, ...], Row] = {}
    for change in changes:
        row = {name: value for name, value in change.items() if name != KIND}
        key = tuple(row[name] for name in KEY)
        there = state.pop(key, None)
        if change[KIND] in ("-U", "-D"):
            assert there == row, f"{change} takes {there}"
        else:
            assert there is None, f"{change} where {there} is"
            state[key] = row
    return list(state.values())


@pytest.fixture
def ours(tmp_path: Path) -> MerganserEngine:
    """merganser."""
    return MerganserEngine(tmp_path)


@pytest.fixture
def client(peer: Peer, tmp_path: Path) -> PeerEngine:
    """One of the clients."""
    return PeerEngine(peer, tmp_path)


@pytest.mark.campaign(1 / 5)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_a_client_reads_the_changes_that_we_publish(client: PeerEngine, ours: MerganserEngine, producer: str) -> None:
    random, compared = seeded(f"{client.name} {producer}"), 0
    for engine in ENGINES:
        if (producer, engine) in REFUSED or (client.name, engine) in REFUSED:
            continue
        table, shape = f"db.{engine.replace('-', '_')}", drawn_shape(random, producer, engine)
        ours.create(table, shape)
        for _ in range(COMMITS):
            rows = drawn_rows(random, random.randint(1, 9))
            ours.write(table, rows, kinds=random.choices(ENGINES[engine][1], k=rows.num_rows))
        overwritten = last_snapshot(ours, table) + 1
        ours.write(table, drawn_rows(random, 3), overwrite=True)
        assert ours.changes(table, shape, overwritten, overwritten)  # what it changed, which clients pass over
        last = last_snapshot(ours, table)
        for start in (1, random.randint(1, last)):
            parts = [(start, overwritten - 1), (max(start, overwritten + 1), last)]
            published = [row for first, end in parts if first <= end for row in ours.changes(table, shape, first, end)]
            compared += len(published)
            message = f"{engine}, snapshots {start} to {last}, {shape.options}"
            assert_same_changes(client.changes(table, shape, start, last), published, KEY, message)
    assert compared > 20


def test_we_read_the_changes_that_a_client_publishes(client: PeerEngine, ours: MerganserEngine) -> None:
    random = seeded(client.name)
    formats = ("parquet", "avro") if client.name == "pypaimon-rust" else ("parquet", "orc", "avro")
    for engine in ("deduplicate", "ordered", "partial-update", "aggregation"):
        table, shape = f"db.{engine.replace('-', '_')}", drawn_shape(random, "input", engine, formats)
        client.create(table, shape)
        for number in range(1, COMMITS + 1):
            rows, kinds = drawn_commit(random, client, engine)
            client.write(table, rows, kinds=kinds)
            message = f"{engine}, commit {number}, {shape.options}"
            expected = written(rows, kinds, engine)
            assert_same_changes(ours.changes(table, shape, number, number), expected, KEY, f"{message}: we read")
            assert_same_changes(client.changes(table, shape, number, number), expected, KEY, f"{message}: they read")


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_commits_of_a_client_and_ours_make_one_changelog(
    client: PeerEngine, ours: MerganserEngine, producer: str
) -> None:
    """The clients compact nothing: with `lookup` and `full-compaction` our next compaction publishes their rows."""
    random = seeded(f"both {client.name} {producer}")
    for engine in ("deduplicate", "ordered", "partial-update", "aggregation"):
        table, shape = f"db.{engine.replace('-', '_')}", drawn_shape(random, producer, engine, ("parquet", "avro"))
        random.choice([ours, client]).create(table, shape)
        expected: list[Row] = []
        for _ in range(5):
            writer = random.choice([ours, client, client])
            rows, kinds = drawn_commit(random, client, engine)
            writer.write(table, rows, kinds=kinds)
            expected += written(rows, kinds, engine)
        if producer != "input":
            ours.table(table).compact(full=True)
        last = last_snapshot(ours, table)
        published = ours.changes(table, shape, 1, last)
        message = f"{engine}, {shape.options}"
        assert_same_changes(client.changes(table, shape, 1, last), published, KEY, message)
        if producer == "input":
            assert_same_changes(published, expected, KEY, message)
        else:
            assert_same_rows(replayed(published), ours.rows(table, shape), message)


def drawn_commit(random: Random, client: PeerEngine, engine: str) -> tuple[pa.Table, Sequence[str] | None]:
    """Rows and kinds that this client takes: pypaimon takes no kinds, and publishes one row of a key in a commit."""
    if client.deletes:
        rows = drawn_rows(random, 7)
        return rows, random.choices(ENGINES[engine][1], k=rows.num_rows)
    return drawn_rows(random, 7, distinct=True), None


def written(rows: pa.Table, kinds: Sequence[str] | None, engine: str) -> list[Row]:
    """What `input` publishes of a commit: the rows as they came, or in the order of the sequence field."""
    plain = rows_of(rows, FIELDS)
    changes: list[Row] = [{KIND: kind, **row} for kind, row in zip(kinds or ["+I"] * len(plain), plain, strict=True)]
    return sorted(changes, key=_sequence) if engine == "ordered" else changes


def _sequence(row: Row) -> int:
    found = row["s"]
    return found if isinstance(found, int) else -(2**40)  # nulls come first


# ── what the clients cannot do ────────────────────────────────────────────────────────────────────────────────────────


def test_the_clients_publish_nothing_with_lookup_and_full_compaction(client: PeerEngine, ours: MerganserEngine) -> None:
    for producer in ("lookup", "full-compaction"):
        shape = TableShape(FIELDS, KEY, (), {"bucket": "1", "changelog-producer": producer})
        client.create(f"db.{producer.replace('-', '_')}", shape)
        client.write(f"db.{producer.replace('-', '_')}", _keyed("a"))
        snapshots = ours.table(f"db.{producer.replace('-', '_')}").snapshots()
        assert [found.changelog_record_count for found in snapshots] == [None]


def test_pypaimon_publishes_the_last_row_of_each_key_of_a_commit(pypaimon: Peer, ours: MerganserEngine) -> None:
    client = PeerEngine(pypaimon, ours.warehouse)
    shape = TableShape(FIELDS, KEY, (), {"bucket": "1", "changelog-producer": "input"})
    client.create("db.t", shape)
    client.write("db.t", pa.concat_tables([_keyed("a"), _keyed("b")]))
    assert [row["v"] for row in ours.changes("db.t", shape, 1, 1)] == ["b"]
    ours.write("db.t", pa.concat_tables([_keyed("a"), _keyed("b")]))
    assert [row["v"] for row in client.changes("db.t", shape, 2, 2)] == ["a", "b"]


def test_pypaimon_publishes_the_kinds_of_a_column(pypaimon: Peer, ours: MerganserEngine) -> None:
    """Its metadata says that no row of such a file is a retraction; we read the kinds all the same."""
    client = PeerEngine(pypaimon, ours.warehouse)
    options = {"bucket": "1", "changelog-producer": "input", "rowkind.field": "v"}
    shape = TableShape(FIELDS, KEY, (), options)
    client.create("db.t", shape)
    for kind in ALL_KINDS:
        client.write("db.t", _keyed(kind))
    assert [row[KIND] for row in ours.changes("db.t", shape, 1, 4)] == list(ALL_KINDS)
    assert [row[KIND] for row in client.changes("db.t", shape, 1, 4)] == list(ALL_KINDS)


def test_pypaimon_gives_files_instead_of_changes_when_more_than_ten_snapshots_wait(
    pypaimon: Peer, ours: MerganserEngine
) -> None:
    options = {"bucket": "1", "changelog-producer": "input", "write-only": "true"}
    ours.create("db.t", TableShape(FIELDS, KEY, (), options))
    for number in range(14):
        ours.write("db.t", _keyed("a"), kinds=["-D" if number % 2 else "+I"])
    asked = {"start": 2, "end": 14}
    told = pypaimon.changes(ours.warehouse, "db.t", **asked)["_row_kind"].to_pylist()
    assert told == ["-D", "+I"] * 6 + ["-D"]
    assert set(pypaimon.changes(ours.warehouse, "db.t", **asked, catch_up_after=10)["_row_kind"].to_pylist()) == {"+I"}


def test_pypaimon_has_no_audit_log_and_ignores_incremental_between(pypaimon: Peer, ours: MerganserEngine) -> None:
    ours.create("db.t", TableShape(FIELDS, KEY, (), {"bucket": "1", "changelog-producer": "input"}))
    for value in "abc":
        ours.write("db.t", _keyed(value))
    for name in ("audit_log", "binlog"):
        with pytest.raises(PeerError, match="does not exist"):
            pypaimon.read(ours.warehouse, f"db.t${name}")
    between = pypaimon.read(ours.warehouse, "db.t", options={"incremental-between": "1,2"})
    assert between["v"].to_pylist() == ["c"]
    times = {"incremental-between-timestamp": f"0,{10**14}"}
    found = pypaimon.read(ours.warehouse, "db.t", options=times)
    assert found["v"].to_pylist() == ["a", "b", "c"]
    assert "_row_kind" not in found.column_names


def test_rust_reads_the_state_of_the_audit_log_as_we_do(rust: Peer, ours: MerganserEngine) -> None:
    random = seeded("state")
    columns = (("rowkind", "STRING"), *FIELDS)
    for engine in ("deduplicate", "ordered", "partial-update", "aggregation"):
        table, shape = f"db.{engine.replace('-', '_')}", drawn_shape(random, random.choice(PRODUCERS), engine)
        ours.create(table, shape)
        for _ in range(COMMITS):
            rows = drawn_rows(random, 7)
            ours.write(table, rows, kinds=random.choices(ENGINES[engine][1], k=rows.num_rows))
        state = rows_of(ours.table(table).system("audit_log").to_arrow(), columns)
        seen = rust.sql(ours.warehouse, f"{table}$audit_log", "SELECT * FROM {table}")
        assert_same_rows(rows_of(seen, columns), state, f"{engine}, {shape.options}")


def test_rust_has_no_binlog_no_diff_and_no_incremental_options(rust: Peer, ours: MerganserEngine) -> None:
    ours.create("db.t", TableShape(FIELDS, KEY, (), {"bucket": "1", "changelog-producer": "input"}))
    ours.write("db.t", _keyed("a"))
    with pytest.raises(PeerError, match="not found"):
        rust.sql(ours.warehouse, "db.t$binlog", "SELECT * FROM {table}")
    with pytest.raises(PeerError, match="incremental mode 'diff'"):
        rust.changes(ours.warehouse, "db.t", 1, 1, mode="diff")
    for option, value in (("incremental-between", "0,1"), ("incremental-between-timestamp", "0,1")):
        with pytest.raises(PeerError, match=f"'{option}' is not supported"):
            rust.read(ours.warehouse, "db.t", options={option: value})


def test_the_clients_do_not_read_changelogs_that_outlive_their_snapshots(
    pypaimon: Peer, rust: Peer, ours: MerganserEngine
) -> None:
    kept = {"changelog.time-retained": "1 d", "changelog.num-retained.max": "20", "snapshot.time-retained": "1 ms"}
    shape = TableShape(FIELDS, KEY, (), {"bucket": "1", "changelog-producer": "input", **kept})
    ours.create("db.t", shape)
    for value in "abc":
        ours.write("db.t", _keyed(value))
    ours.table("db.t").expire(retain_min=1, retain_max=1)
    assert [row["v"] for row in ours.changes("db.t", shape, 1, 3)] == ["a", "b", "c"]
    for peer in (pypaimon, rust):
        assert peer.changes(ours.warehouse, "db.t", 3, 3)["v"].to_pylist() == ["c"]
    with pytest.raises(PeerError, match="TimeoutError"):  # it waits for the snapshot that has expired
        pypaimon.changes(ours.warehouse, "db.t", 1, 3, wait_seconds=0.2)
    with pytest.raises(PeerError, match="out of available range"):
        rust.changes(ours.warehouse, "db.t", 1, 3)


def test_the_clients_do_not_notice_commits_that_leave_changes_out(client: PeerEngine, ours: MerganserEngine) -> None:
    shape = TableShape(FIELDS, KEY, (), {"bucket": "1", "changelog-producer": "input"})
    ours.create("db.t", shape)
    for value in "abc":
        ours.table("db.t").write(_keyed(value), changes=value != "b")
    assert [row["v"] for row in client.changes("db.t", shape, 1, 3)] == ["a", "c"]


def test_a_record_log_has_the_rows_of_the_clients_as_they_came(client: PeerEngine, ours: MerganserEngine) -> None:
    shape = TableShape(FIELDS, KEY, (), {"bucket": "1", "changelog-producer": "per-record"})
    ours.create("db.t", shape)
    for writer, value in ((ours, "a"), (client, "b"), (ours, "c")):
        writer.write("db.t", _keyed(value))
    published = [(row[KIND], row["v"]) for row in client.changes("db.t", shape, 1, 3)]
    assert published == [("+I", "a"), ("+I", "b"), ("-U", "b"), ("+U", "c")]


def test_pypaimon_refuses_options_of_partial_update(pypaimon: Peer, ours: MerganserEngine) -> None:
    options = {"bucket": "1", "changelog-producer": "input", **ENGINES["removing"][0]}
    ours.create("db.t", TableShape(FIELDS, KEY, (), options))
    ours.write("db.t", _keyed("a"))
    with pytest.raises(PeerError, match="remove-record-on-delete"):
        pypaimon.changes(ours.warehouse, "db.t", 1, 1)


def _keyed(value: str) -> pa.Table:
    """One row of one key."""
    row = {"p": "a", "k": 1, "s": None, "v": value, "d": None, "t": None, "b": None}
    return pa.Table.from_pylist([row], arrow_schema(FIELDS))
