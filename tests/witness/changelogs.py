"""What both publish: the changes of the same commits, and each other's changelogs, row by row, in every form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

import pyarrow as pa

from tests.interop.engines import KIND_FIELD, Engine, Fields, TableShape
from tests.interop.peers import PeerError
from tests.interop.random_rows import random_table
from tests.interop.values import Json, Row, arrow_schema, assert_same_changes, assert_same_rows, canonical, rows_of

from .histories import World
from .kinds import TYPES_IN

_FIELDS: Fields = (("p", "STRING NOT NULL"), ("k", "INT NOT NULL"), ("s", "INT"), ("v", "INT"), ("w", "STRING"))
_KEY = ("p", "k")
_KIND = KIND_FIELD[0]
_ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "ordered": {"sequence.field": "s"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
    "vectors": {"deletion-vectors.enabled": "true"},
}
_COMMITS = 6


def _commit(random: Random, engine: str) -> tuple[pa.Table, list[str]]:
    """Rows of few keys, some of them twice, and their kinds.

    Two differences are chosen: late rows come back in Java once a delete is forgotten, and in partial-update the values
    of a delete show through the nulls of later rows. So these engines get no deletes.
    """
    pool = [(part, number) for part in "ab" for number in range(4)]
    rows = [
        {"p": part, "k": key, "s": random.randrange(9), "v": random.randrange(5), "w": random.choice(["a", "b", None])}
        for part, key in random.choices(pool, k=random.randint(1, 6))
    ]
    deletes = engine in ("deduplicate", "vectors")
    kinds = [random.choice(["+I", "+U", "-D"]) if deletes else "+I" for _ in rows]
    return pa.Table.from_pylist(rows, arrow_schema(_FIELDS)), kinds


def _newest(world: World, name: str) -> int:
    latest = world.ours.table(name).latest_snapshot()
    return 0 if latest is None else latest.id


def _shape(producer: str, engine: str, random: Random) -> TableShape:
    options = {"bucket": str(random.randint(1, 2)), "changelog-producer": producer} | dict(_ENGINES[engine])
    options["changelog-file.format"] = random.choice(["parquet", "orc", "avro"])
    if producer in ("lookup", "full-compaction") and random.random() < 0.5:
        options["changelog-producer.row-deduplicate"] = "true"
    if producer == "full-compaction":
        options["write-only"] = "true"
    return TableShape(_FIELDS, _KEY, ("p",) if random.random() < 0.5 else (), options)


def _compacted(world: World, name: str, engine: Engine) -> None:
    if engine is world.ours:
        world.ours.table(name).compact(full=True)
    else:
        world.java.compact(name, full=True)


def _table_name(start: str, producer: str, engine: str) -> str:
    return f"db.{start}_{producer}_{engine}".replace("-", "_")


def compare_changes(world: World, random: Random) -> None:
    """The same commits publish the same changes, whoever makes them; and each reads what the other has published."""
    for producer, engine in _combinations():
        shape = _shape(producer, engine, random)
        clients: dict[str, Engine] = {
            _table_name("ours", producer, engine): world.ours,
            _table_name("theirs", producer, engine): world.java,
        }
        for name, client in clients.items():
            client.create(name, shape)
        seen = dict.fromkeys(clients, 0)
        for number in range(_COMMITS):
            rows, kinds = _commit(random, engine)
            found: list[list[Row]] = []
            for name, client in clients.items():
                client.write(name, rows, kinds=kinds)
                if producer == "full-compaction" and number % 2:
                    _compacted(world, name, client)
                newest = _newest(world, name)
                found.append(world.ours.changes(name, shape, seen[name] + 1, newest))
                seen[name] = newest
            words = f"{producer}, {engine}, commit {number}: we publish"
            assert_same_changes(found[0], found[1], _KEY, words)
        for name in clients:
            _compare_forms(world, name, shape, random)


def compare_shared_changelogs(world: World, random: Random) -> None:
    """Commits of both in one table: the changelog, replayed from its first row on, is the table."""
    for producer, engine in _combinations():
        if producer == "input":
            continue
        name, shape = _table_name("shared", producer, engine), _shape(producer, engine, random)
        random.choice([world.ours, world.java]).create(name, shape)
        state: dict[str, Row] = {}
        seen = 0
        for number in range(_COMMITS):
            rows, kinds = _commit(random, engine)
            client = random.choice([world.ours, world.java])
            client.write(name, rows, kinds=kinds)
            if producer == "full-compaction":
                compactor = random.choice([world.ours, world.java])
                _compacted(world, name, compactor)
            newest = _newest(world, name)
            changes = world.ours.changes(name, shape, seen + 1, newest)
            words = f"{producer}, {engine}, commit {number} by {client.name}"
            theirs = world.java.changes(name, shape, seen + 1, newest)
            assert_same_changes(theirs, changes, _KEY, f"Java reads of {words}")
            _replay(changes, state, words)
            seen = newest
            assert_same_rows(list(state.values()), world.ours.rows(name, shape), words)
        _compare_forms(world, name, shape, random)


def _replay(changes: Sequence[Row], state: dict[str, Row], words: str) -> None:
    """Apply changes to a state; each must fit the row that is there."""
    for change in changes:
        kind, row = change[_KIND], {name: value for name, value in change.items() if name != _KIND}
        key = canonical([row[name] for name in _KEY])
        there = state.pop(key, None)
        assert (kind in ("+I", "+U")) == (there is None), f"{words}: {kind} {row}, and {there} is there"
        if there is None:
            state[key] = row
        else:
            assert there == row, f"{words}: {kind} {row} takes {there}"


def java_reads_what_each_row_changed(world: World, random: Random) -> None:
    """Our producer per-record is `input` to Java, which reads its changelog and follows it."""
    for engine in ("deduplicate", "ordered", "aggregation", "partial-update"):
        name, shape = _table_name("recorded", "per-record", engine), _shape("per-record", engine, random)
        world.ours.create(name, shape)
        for _ in range(_COMMITS):
            rows, kinds = _commit(random, engine)
            world.ours.write(name, rows, kinds=kinds)
        _compare_forms(world, name, shape, random)


def compare_forms_of_stored_rows(world: World, random: Random) -> None:
    """Without a producer, the system tables of both show the rows that commits stored, of commits of both."""
    for engine in _ENGINES:
        name, shape = _table_name("stored", "none", engine), _shape("none", engine, random)
        world.ours.create(name, shape)
        for _ in range(_COMMITS):
            rows, kinds = _commit(random, engine)
            random.choice([world.ours, world.java]).write(name, rows, kinds=kinds)
        _compare_forms(world, name, shape, random)


def compare_forms_of_types(world: World, random: Random) -> None:
    """Values of every type, in changelog files of every format, written by either side."""
    for file_format, types in TYPES_IN.items():
        fields: Fields = (("k", "INT NOT NULL"), *types)
        options = {"bucket": "1", "changelog-producer": "lookup", "changelog-file.format": file_format}
        shape = TableShape(fields, ("k",), (), options | {"file.format": file_format})
        for client in (world.ours, world.java):
            name = f"db.types_{file_format}_{client.name}"
            client.create(name, shape)
            for _ in range(3):
                keys = [(key,) for key in random.sample(range(6), 4)]
                kinds = random.choices(["+I", "+U", "-D"], k=4)
                client.write(name, random_table(random, fields, ("k",), keys), kinds=kinds)
            _compare_forms(world, name, shape, random)


# ── system tables ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _compare_forms(world: World, name: str, shape: TableShape, random: Random) -> None:
    """`$audit_log` and `$binlog` of a table are the same in Java and with us: of states, ranges and streams.

    The rows of a key come in their order, but for ranges of several snapshots in Java.
    """
    newest = _newest(world, name)
    later = random.randint(1, newest)
    for form, fields in _forms(shape).items():
        table = f"{name}${form}"
        words = f"Java reads of {table}"
        state = rows_of(world.ours.table(table).read().to_arrow(), fields)
        assert_same_rows(world.java.read(table), state, words)
        for mode in _modes(shape):
            for start, end in ((1, newest), (later, later)):
                options = {"incremental-between": f"{start - 1},{end}", "incremental-between-scan-mode": mode}
                ours = rows_of(world.ours.table(name).with_options(options).system(form).to_arrow(), fields)
                theirs = world.java.read(table, options=options)
                alike = assert_same_rows if start < end else partial(_assert_same_in_order, shape)
                alike(theirs, ours, f"{words}, {mode} of {start} to {end}")
        options = {"scan.snapshot-id": str(later)}
        streamed = world.ours.table(table).stream("from-snapshot", follow=False, **options)
        ours = [row for rows in streamed for row in rows_of(rows, fields)]
        _assert_same_in_order(shape, world.java.stream(table, later, newest), ours, f"{words}, a stream from {later}")


def _forms(shape: TableShape) -> Mapping[str, Fields]:
    """The columns of the system tables."""
    arrays: Fields = tuple((name, {"type": "ARRAY", "element": kind}) for name, kind in shape.fields)
    return {"audit_log": (("rowkind", "STRING"), *shape.fields), "binlog": (("rowkind", "STRING"), *arrays)}


def _modes(shape: TableShape) -> Sequence[str]:
    """What both read alike of a range: Java leaves out the files of level 0 where other batch reads leave them out."""
    hides = shape.options.get("merge-engine") == "first-row" or "deletion-vectors.enabled" in shape.options
    if not hides:
        return ("auto", "delta")
    return ("auto",) if shape.options["changelog-producer"] in ("lookup", "full-compaction") else ()


def _assert_same_in_order(shape: TableShape, actual: Sequence[Row], expected: Sequence[Row], message: str) -> None:
    keyed = [[{**row, "_key": _key_of(row, shape)} for row in rows] for rows in (actual, expected)]
    assert_same_changes(*keyed, ("_key",), message)


def _key_of(row: Row, shape: TableShape) -> Json:
    """The key of a row of a system table: the first value where the table has arrays of them."""
    values = [row[name] for name in shape.primary_key]
    return [value[0] if isinstance(value, list) else value for value in values]


def _combinations() -> list[tuple[str, str]]:
    every = [(producer, engine) for producer in ("input", "lookup", "full-compaction") for engine in _ENGINES]
    refused = {("input", "first-row"), ("full-compaction", "first-row"), ("full-compaction", "vectors")}
    return [pair for pair in every if pair not in refused]


# ── known differences ─────────────────────────────────────────────────────────────────────────────────────────────────


def java_shows_stored_kinds_in_diffs(world: World, random: Random) -> None:
    """A diff compares rows; Java compares their stored kinds as well and shows these, and has no `$binlog` of one."""
    shape = TableShape(_FIELDS, _KEY, (), {"bucket": "1", "write-only": "true"})
    world.ours.create("db.t", shape)
    _write_one_by_one(world, [("+I", 1, "a"), ("+I", 2, "a"), ("+I", 3, "a")])
    _write_one_by_one(world, [("+U", 1, "b"), ("-D", 2, "gone"), ("+U", 3, "a")])
    options = {"incremental-between": "3,6", "incremental-between-scan-mode": "diff"}
    found = world.ours.table("db.t").with_options(options).system("audit_log").to_arrow()
    ours, theirs = rows_of(found, _forms(shape)["audit_log"]), world.java.read("db.t$audit_log", options=options)
    assert _shown(ours) == [("+I", 1, "b"), ("-D", 2, "a")]
    assert sorted(_shown(theirs)) == [("+U", 1, "b"), ("+U", 3, "a"), ("-D", 2, "gone")], _shown(theirs)
    try:
        world.java.read("db.t$binlog", options=options)
    except PeerError as error:
        assert "IncrementalSplit cannot be cast" in str(error), error
    else:
        raise AssertionError("Java reads $binlog of a diff now: compare it")


def java_gives_ranges_out_of_order(world: World, random: Random) -> None:
    """A batch read of Java gives the changelog of the first snapshot of a range last; its streams keep the order."""
    options = {"bucket": "1", "changelog-producer": "input", "write-only": "true"}
    shape = TableShape(_FIELDS, _KEY, (), options)
    world.ours.create("db.t", shape)
    words = ["a", "b", "c", "d", "e", "f"]
    _write_one_by_one(world, [("+I", 1, word) for word in words])
    assert [row["w"] for row in world.ours.changes("db.t", shape, 1, 6)] == words
    assert [row["w"] for row in world.java.changes("db.t", shape, 1, 6)] == [*words[1:], "a"]
    assert [row["w"] for row in world.java.stream("db.t$audit_log", 1, 6)] == words


def java_leaves_level_0_out_of_changes(world: World, random: Random) -> None:
    """Where batch reads of Java skip files of level 0, they skip changes in such files, too; its streams do not."""
    for name, mode, options in (
        ("first_row", "delta", _ENGINES["first-row"]),
        ("marked", "changelog", _ENGINES["vectors"] | {"changelog-producer": "input"}),
    ):
        shape = TableShape(_FIELDS, _KEY, (), {"bucket": "1", **options})
        world.ours.create(f"db.{name}", shape)
        _write_one_by_one(world, [("+I", 1, "a")], f"db.{name}")
        between = {"incremental-between": "0,1", "incremental-between-scan-mode": mode}
        assert [row["w"] for row in world.ours.changes(f"db.{name}", shape, 1, 1)] == ["a"]
        assert world.java.read(f"db.{name}$audit_log", options=between) == [], "Java shows level 0 now: compare it"
        assert [row["w"] for row in world.java.stream(f"db.{name}$audit_log", 1, 1)] == ["a"]


def _write_one_by_one(world: World, changes: Sequence[tuple[str, int, str]], name: str = "db.t") -> None:
    """Let us make a commit of each change: its kind, key and text."""
    for kind, key, word in changes:
        row = {"p": "x", "k": key, "s": None, "v": None, "w": word}
        world.ours.write(name, pa.Table.from_pylist([row], arrow_schema(_FIELDS)), kinds=[kind])


def _shown(rows: Sequence[Row]) -> list[tuple[Json, ...]]:
    return [(row["rowkind"], row["k"], row["w"]) for row in rows]
