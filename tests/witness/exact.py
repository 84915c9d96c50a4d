"""What both must store alike: not only rows, but which files are compacted, and what is written about them.

Two tables get the same commits, one by us, the other by Java; then what stands in their metadata is compared.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from functools import partial
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from merganser.lsm.pick import RunSize, pick
from merganser.options.option import Options
from tests.interop.engines import Engine, Fields, TableShape
from tests.interop.random_rows import random_table
from tests.interop.test_both_ways import KEYS, VALUES, key_fields, key_pool
from tests.interop.values import PaimonType, arrow_schema, assert_same_rows, rows_of

from .catalogs import compare_signatures, share_rest_catalog, share_sql_catalog, share_views
from .changelogs import (
    compare_changes,
    compare_forms_of_stored_rows,
    compare_forms_of_types,
    compare_shared_changelogs,
    java_gives_ranges_out_of_order,
    java_leaves_level_0_out_of_changes,
    java_reads_what_each_row_changed,
    java_shows_stored_kinds_in_diffs,
)
from .histories import World

Comparison = Callable[[World, Random], None]

_TREES = 4000
_STEPS = 10
_OURS_ALONE = {"merganser.crc32", "properties", "uuid", "writerVersion"}
"""Fields of snapshots that the released Java does not write: some are ours, some come with newer versions of it."""
_UNLIKE = {"timeMillis", "commitUser", "commitIdentifier"}
"""Fields of snapshots that are never the same twice."""
_NEWER = {"_WRITE_COLS_SEQUENCES"}
"""Fields of manifests that we write and the released Java does not know."""
_NAMES = {"name", "bytes"}
"""What differs between two files of the same rows."""


# ── compaction ────────────────────────────────────────────────────────────────────────────────────────────────────────


def compare_picks(world: World, random: Random) -> None:
    """The same runs of random trees are picked, into the same level.

    But for trees where a newer rule counts, which the released Java does not have: once a run was added for its size,
    larger ones of levels 0 and 1 are taken too.
    """
    trees = [_tree(random) for _ in range(_TREES)]
    theirs = world.java.process.request("picks", trees=trees)
    newer = 0
    for tree, expected in zip(trees, theirs, strict=True):
        runs = [RunSize(*run) for run in tree["runs"]]
        found = pick(runs, Options(tree["options"]), full=tree["full"], push_level_0=tree["push"])
        ours = None if found is None else [found.run_count, found.output_level]
        if ours != expected and _newer_rule_counts(tree):
            newer += 1
            continue
        assert ours == expected, f"we pick {ours}, Java {expected} of {tree}"
    assert newer < _TREES // 4, f"{newer} of {_TREES} trees differ by the newer rule"


def _newer_rule_counts(tree: Mapping[str, Any]) -> bool:
    ratio, held = int(tree["options"].get("compaction.size-ratio", "1")), 0
    for place, (level, size, _) in enumerate(tree["runs"]):
        if place > 1 and level <= 1 and held * (100 + ratio) < size * 100:
            return True
        held += size
    return False


def _tree(random: Random) -> dict[str, Any]:
    """A tree, newest run first: files of level 0, then levels upwards, some of them empty."""
    options = {"num-sorted-run.compaction-trigger": str(random.randint(1, 6))}
    if random.random() < 0.5:
        options["compaction.size-ratio"] = str(random.choice([0, 1, 20, 100]))
    if random.random() < 0.5:
        options["compaction.max-size-amplification-percent"] = str(random.choice([50, 100, 200, 1000]))
    if random.random() < 0.3:
        options["num-levels"] = str(random.randint(2, 8))
    if random.random() < 0.15:
        options["compaction.total-size-threshold"] = f"{random.choice([50, 2000])} b"
    if random.random() < 0.15:
        options["compaction.incremental-size-threshold"] = f"{random.choice([50, 500])} b"
    top = int(options.get("num-levels", int(options["num-sorted-run.compaction-trigger"]) + 1)) - 1
    levels = [0] * random.randint(0, 6)
    levels += sorted(random.sample(range(1, top + 1), random.randint(0, min(top, 4))))
    steep = random.choice([1, 3, 8]) / max(1, len(levels))
    sizes = [int(random.uniform(1, 10) * random.uniform(1, 10) ** (place * steep)) for place in range(len(levels))]
    runs = [[level, size, 1 if level == 0 else random.randint(1, 3)] for level, size in zip(levels, sizes, strict=True)]
    return {"runs": runs, "options": options, "full": random.random() < 0.15, "push": random.random() < 0.25}


# ── metadata ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Twins:
    """Two tables of one shape: db.ours and db.theirs."""

    def __init__(self, world: World, shape: TableShape) -> None:
        self.world, self.shape = world, shape
        self.engines: dict[str, Engine] = {"db.ours": world.ours, "db.theirs": world.java}
        for name, engine in self.engines.items():
            engine.create(name, shape)
        self.ours = world.ours.table("db.ours")

    def write(self, rows: pa.Table, kinds: list[str] | None, *, overwrite: bool = False) -> None:
        for name, engine in self.engines.items():
            engine.write(name, rows, kinds=kinds, overwrite=overwrite)

    def compact(self) -> None:
        self.ours.compact(full=True)
        self.world.java.compact("db.theirs", full=True)

    def directory(self, name: str) -> Path:
        return self.world.warehouse / "db.db" / name.removeprefix("db.")

    def files(self, name: str) -> list[dict[str, Any]]:
        """What the manifests say of each live file, but for names and sizes; read by Java on both sides."""
        found = [
            {key: value for key, value in file.items() if key not in _NAMES} for file in self.world.java.files(name)
        ]
        return sorted(found, key=lambda file: [file[key] for key in ("partition", "bucket", "level", "min_sequence")])

    def snapshots(self, name: str) -> dict[int, dict[str, Any]]:
        """The snapshot files by id, but for fields that are ours alone or never the same."""
        found = {}
        for path in self.directory(name).glob("snapshot/snapshot-*"):
            content = json.loads(path.read_text(encoding="utf-8"))
            found[content["id"]] = {
                key: _shape_of(key, value) for key, value in content.items() if key not in _OURS_ALONE
            }
        return found

    def data_file_count(self, name: str) -> int:
        return sum(1 for _ in self.directory(name).glob("**/bucket-*/data-*"))

    def compare(self, done: str) -> None:
        """Live files and snapshots are described alike, and as many data files are there."""
        pairs = list(zip_longest(self.files("db.ours"), self.files("db.theirs"), fillvalue={}))
        apart = [
            f"{key}: {our.get(key)}, Java {their.get(key)}"
            for our, their in pairs
            for key in {**our, **their}
            if our.get(key) != their.get(key)
        ]
        assert not apart, "\n  ".join([f"after {done}, live files differ:", *apart])
        ours, theirs = self.snapshots("db.ours"), self.snapshots("db.theirs")
        assert ours == theirs, f"after {done}, snapshots differ:\n  ours   {ours}\n  theirs {theirs}"
        counts = self.data_file_count("db.ours"), self.data_file_count("db.theirs")
        assert counts[0] == counts[1], f"after {done}, we keep {counts[0]} data files, Java {counts[1]}"


def _shape_of(key: str, value: Any) -> Any:
    """A value of a snapshot file, or what is fixed of one that names files or moments."""
    if key in _UNLIKE or key.endswith("ListSize"):
        return type(value).__name__
    return value.split("-")[0] if isinstance(value, str) and "List" in key else value


def compare_metadata(world: World, random: Random) -> None:
    """Upserts, deletes, overwrites and full compactions are described alike, file by file and snapshot by snapshot."""
    types = random.choice(list(KEYS.values()))
    columns = key_fields(types)
    partition: Fields = (("p", "STRING NOT NULL"),) if random.random() < 0.5 else ()
    key = (*(name for name, _ in partition), *(name for name, _ in columns))
    options = {"bucket": str(random.randint(1, 3)), "write-only": "true"}
    extra: Fields = (("c", "DECIMAL(10, 2)"), ("d", "DATE"), ("e", "INT"), ("f", "BOOLEAN"), ("g", "TIMESTAMP(6)"))
    shape = TableShape((*partition, *columns, *VALUES, *extra), key, tuple(name for name, _ in partition), options)
    twins = _Twins(world, shape)
    pool = key_pool(random, [dict(shape.fields)[name] for name in key], 30)
    for step in range(_STEPS):
        if step and random.random() < 0.25:
            twins.compact()
            twins.compare(f"step {step}, a full compaction")
            continue
        keys = random.choices(pool, k=random.randint(1, 20))
        kinds = ["-D"] * len(keys) if random.random() < 0.3 else None
        rows = random_table(random, shape.fields, key, keys)
        overwrite = bool(step) and kinds is None and not partition and random.random() < 0.1
        twins.write(rows, kinds, overwrite=overwrite)
        twins.compare(f"step {step}, {'an overwrite' if overwrite else 'a commit'}")


def compare_append_metadata(world: World, random: Random) -> None:
    """The same of commits to a table without a key. In few partitions: Java counts rows of a spilled buffer twice."""
    options = random.choice([{"bucket": "-1"}, {"bucket": "2", "bucket-key": "a"}]) | {"write-only": "true"}
    fields: Fields = (("a", "INT"), ("b", "STRING"), ("c", "DECIMAL(25, 5)"), ("d", "DATE"), ("p", "BOOLEAN"))
    twins = _Twins(world, TableShape(fields, (), random.choice([(), ("p",)]), options))
    for step in range(_STEPS):
        twins.write(random_table(random, fields, (), [()] * random.randint(1, 20)), None)
        twins.compare(f"step {step}, a commit")


def compare_expiry(world: World, random: Random) -> None:
    """After the same commits, tags and compactions, expiry leaves the same snapshots, and as many data files."""
    shape = TableShape((("k", "INT NOT NULL"), *VALUES), ("k",), (), {"bucket": "2", "write-only": "true"})
    twins, tags = _Twins(world, shape), 0
    for step in range(2 * _STEPS):
        rows = random_table(random, shape.fields, ("k",), [(key,) for key in random.choices(range(20), k=8)])
        twins.write(rows, None)
        if random.random() < 0.3:
            twins.compact()
        if random.random() < 0.25:
            tags += 1
            snapshot = random.choice([found.id for found in twins.ours.snapshots()])
            twins.ours.tags.create(f"tag{tags}", snapshot=snapshot)
            world.java.ask("create_tag", "db.theirs", tag=f"tag{tags}", snapshot=snapshot)
        elif tags and random.random() < 0.2:
            twins.ours.tags.drop(f"tag{tags}")
            world.java.ask("delete_tag", "db.theirs", tag=f"tag{tags}")
            tags -= 1
        if random.random() < 0.4:
            retained = random.randint(1, 5)
            twins.ours.expire(retain_max=retained, retain_min=1)
            world.java.ask("expire", "db.theirs", retain_max=retained, retain_min=1, older_than_millis=86_400_000)
        twins.compare(f"step {step}")


def compare_manifest_schemas(world: World, random: Random) -> None:
    """Manifests and lists hold the same fields, of the same types; the newer ones that we write stand last."""
    shape = TableShape((("k", "INT NOT NULL"), *VALUES), ("k",), (), {"bucket": "1", "write-only": "true"})
    twins = _Twins(world, shape)
    twins.write(random_table(random, shape.fields, ("k",), [(1,), (2,)]), None)
    for kind in ("manifest-list-", "manifest-"):
        ours, theirs = (_avro_schema(twins.directory(name), kind) for name in twins.engines)
        assert ours == theirs, f"{kind}: we write {ours}, Java {theirs}"


def _avro_schema(directory: Path, kind: str) -> Any:
    paths = [path for path in directory.glob(f"manifest/{kind}*") if kind != "manifest-" or "list" not in path.name]
    content = paths[0].read_bytes()
    return _without_newer(fastavro.reader(io.BytesIO(content)).writer_schema)


def _without_newer(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_newer(part) for part in schema if not (isinstance(part, dict) and part.get("name") in _NEWER)]
    if isinstance(schema, dict):
        return {key: _without_newer(value) for key, value in schema.items() if not key.startswith("__fastavro")}
    return schema


def compare_commits_of_a_user(world: World, random: Random) -> None:
    """What one client committed the other does not commit again; a watermark that one sets the other keeps."""
    shape = TableShape((("k", "INT NOT NULL"), ("v", "INT")), ("k",), (), {"bucket": "1", "write-only": "true"})
    world.ours.create("db.t", shape)
    table, expected = world.ours.table("db.t"), []
    for number in range(1, 9):
        row = {"k": number, "v": random.randrange(10)}
        rows = pa.table({name: pa.array([value], pa.int32()) for name, value in row.items()})
        first, second = (True, False) if random.random() < 0.5 else (False, True)
        for ours in (first, second):
            if ours:
                table.write(rows, commit_user="job", identifier=number)
            else:
                world.java.write("db.t", rows, user="job", identifier=number, once=True, watermark=1000 * number)
        expected.append(row)
        assert_same_rows(world.java.rows("db.t", shape), expected, f"Java reads, after {number} commits")
        snapshots = table.snapshots()
        assert [s.commit_identifier for s in snapshots] == list(range(1, number + 1)), snapshots
    directory = world.warehouse / "db.db" / "t" / "snapshot"
    watermark = None
    for number in range(1, 9):
        content = json.loads((directory / f"snapshot-{number}").read_text(encoding="utf-8"))
        by_java = "writerVersion" not in content
        watermark = 1000 * number if by_java else watermark
        assert content.get("watermark") == watermark, f"snapshot {number} has watermark {content.get('watermark')}"


def compare_reads_of_tombstones(world: World, random: Random) -> None:
    """Java shows no retraction that our compactions keep, and merges later rows with it."""
    fields = (("k", "INT NOT NULL"), ("s", "INT"), ("n", "BIGINT"))
    ordered = {"bucket": "1", "sequence.field": "s"}
    kinds = {
        "ordered": ordered,
        "marked": ordered | {"deletion-vectors.enabled": "true"},
        "sums": {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    }
    for name, options in kinds.items():
        shape = TableShape(fields, ("k",), (), options | {"file.format": random.choice(["parquet", "orc", "avro"])})
        world.ours.create(f"db.{name}", shape)
        table = world.ours.table(f"db.{name}")
        keys = range(random.randint(3, 30))
        table.write([{"k": k, "s": 1, "n": k} for k in keys if k % 2])
        table.write([{"k": k, "s": 9, "n": 5} for k in keys if k % 3 == 0], kinds=["-D" for k in keys if k % 3 == 0])
        table.compact(full=True)
        assert sum(row["deleteRowCount"] for row in table.files().to_pylist()), name
        for what in ("compacted", "with late rows"):
            rows = rows_of(table.read().to_arrow(), fields)
            assert_same_rows(world.java.rows(f"db.{name}", shape), rows, f"Java reads, {name}, {what}")
            table.write([{"k": k, "s": 5, "n": 70} for k in keys if k % 4 == 0])


# ── known differences ─────────────────────────────────────────────────────────────────────────────────────────────────


def java_misreads_our_nanoseconds(world: World, random: Random) -> None:
    """The released Java takes INT64 nanoseconds in Parquet for other units; newer Java, and all others, do not.

    Were it to learn it, TIMESTAMP(9) belongs into the kinds.
    """
    shape = TableShape((("k", "INT NOT NULL"), ("v", "TIMESTAMP(9)")), ("k",), (), {"bucket": "1"})
    rows = pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns"))})
    expected = [{"k": 1, "v": "2023-11-14T22:13:20.123456789"}]
    world.java.create("db.theirs", shape)
    world.java.write("db.theirs", rows)
    assert_same_rows(world.ours.rows("db.theirs", shape), expected, "we read Java's")
    world.ours.create("db.ours", shape)
    world.ours.write("db.ours", rows)
    assert_same_rows(world.ours.rows("db.ours", shape), expected, "we read ours")
    assert world.java.rows("db.ours", shape) != expected, "Java reads our nanoseconds now"


def java_loses_a_second_in_orc(world: World, random: Random) -> None:
    """Fractions of seconds before 1970 come back a second later from the ORC files of the released Java."""
    shape = TableShape(
        (("k", "INT NOT NULL"), ("v", "TIMESTAMP(3)")), ("k",), (), {"bucket": "1", "file.format": "orc"}
    )
    rows = pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([-333], pa.timestamp("ms"))})
    world.java.create("db.t", shape)
    world.java.write("db.t", rows)
    late = [{"k": 1, "v": "1970-01-01T00:00:00.667000000"}]
    assert_same_rows(world.java.rows("db.t", shape), late, "Java reads its own")
    assert_same_rows(world.ours.rows("db.t", shape), late, "we read what it stored")


def java_does_not_order_nan(world: World, random: Random) -> None:
    """Java merges keys by comparisons that take NaN for equal to anything, so it loses and doubles rows beside one."""
    shape = TableShape((("k", "DOUBLE NOT NULL"), ("v", "INT")), ("k",), (), {"bucket": "1", "write-only": "true"})
    world.ours.create("db.t", shape)
    commits = ([float("nan"), 1.0, float("inf")], [2.0, float("inf")], [float("nan"), 0.5])
    for number, keys in enumerate(commits):
        world.ours.write("db.t", pa.table({"k": keys, "v": pa.array([number] * len(keys), pa.int32())}))
    ours = world.ours.rows("db.t", shape)
    assert sorted(str(row["k"]) for row in ours) == ["0.5", "1.0", "2.0", "Infinity", "NaN"], ours
    assert world.java.rows("db.t", shape) != ours, "Java orders NaN now: the key kinds need not avoid it"
    world.ours.table("db.t").compact(full=True)
    assert_same_rows(world.java.rows("db.t", shape), ours, "Java reads it once nothing has to be merged")


def java_loses_bytes_in_filters(world: World, random: Random) -> None:
    """The released Java stores no bounds of bytes, and compares those of others as signed: a filter loses rows."""
    shape = TableShape((("k", "INT"), ("v", "BYTES")), options={"bucket": "-1"})
    values = [b"\x61", b"\xbc"]
    world.ours.create("db.t", shape)
    world.ours.write("db.t", pa.table({"k": pa.array([1, 2], pa.int32()), "v": pa.array(values)}))
    assert len(world.java.rows("db.t", shape)) == 2, "Java reads all rows"
    found = [world.java.read("db.t", where=[("equal", "v", [value.hex()])]) for value in values]
    assert found == [[], []], f"Java finds {found} now: histories may filter by bytes"
    table = world.ours.table("db.t")
    assert [table.read(where=pc.field("v") == value).count() for value in values] == [1, 1], "we find both"


def java_puts_late_elements_in_front(world: World, random: Random) -> None:
    """In a sequence group `collect` appends what a late row has; in Java it does not with `ignore-retract`."""
    options = {"bucket": "1", "merge-engine": "partial-update", "fields.g.sequence-group": "plain,kept"}
    options |= {f"fields.{name}.aggregate-function": "collect" for name in ("plain", "kept")}
    options |= {"fields.kept.ignore-retract": "true"}
    ints: PaimonType = {"type": "ARRAY", "element": "INT"}
    fields: Fields = (("k", "INT NOT NULL"), ("g", "INT"), ("plain", ints), ("kept", ints))
    shape = TableShape(fields, ("k",), (), options)
    world.ours.create("db.t", shape)
    for order, elements in ((8, [2]), (0, [7])):
        row = {"k": 1, "g": order, "plain": elements, "kept": elements}
        world.ours.write("db.t", pa.Table.from_pylist([row], arrow_schema(fields)))
    appended = {"k": 1, "g": 8, "plain": [2, 7], "kept": [2, 7]}
    assert_same_rows(world.ours.rows("db.t", shape), [appended], "we read")
    assert_same_rows(world.java.rows("db.t", shape), [appended | {"kept": [7, 2]}], "Java reads")


def java_loses_a_first_value_under_late_nulls(world: World, random: Random) -> None:
    """A late row without a value takes away the stored value of `first_non_null_value`; with us it does not."""
    options = {"bucket": "1", "merge-engine": "partial-update", "fields.g.sequence-group": "v"}
    options |= {"fields.v.aggregate-function": "first_non_null_value"}
    fields: Fields = (("k", "INT NOT NULL"), ("g", "INT"), ("v", "INT"))
    shape = TableShape(fields, ("k",), (), options)
    world.ours.create("db.t", shape)
    for order, value in ((8, 3), (0, None)):
        world.ours.write("db.t", pa.Table.from_pylist([{"k": 1, "g": order, "v": value}], arrow_schema(fields)))
    assert_same_rows(world.ours.rows("db.t", shape), [{"k": 1, "g": 8, "v": 3}], "we read")
    assert_same_rows(world.java.rows("db.t", shape), [{"k": 1, "g": 8, "v": None}], "Java reads")


def java_leaves_one_of_each_element_after_rows_outside_the_group(world: World, random: Random) -> None:
    """The first row of a group that Java wrote is kept as it is by us, doubles included; what we write has none."""
    options = {"bucket": "1", "merge-engine": "partial-update", "fields.g.sequence-group": "v"}
    options |= {"fields.v.aggregate-function": "collect", "fields.v.distinct": "true", "write-only": "true"}
    fields: Fields = (("k", "INT NOT NULL"), ("g", "INT"), ("v", {"type": "ARRAY", "element": "INT"}))
    shape = TableShape(fields, ("k",), (), options)
    world.java.create("db.t", shape)
    for order, elements in ((None, None), (1, [7, 7])):
        world.java.write("db.t", pa.Table.from_pylist([{"k": 1, "g": order, "v": elements}], arrow_schema(fields)))
    assert_same_rows(world.ours.rows("db.t", shape), [{"k": 1, "g": 1, "v": [7, 7]}], "we read")
    assert_same_rows(world.java.rows("db.t", shape), [{"k": 1, "g": 1, "v": [7]}], "Java reads")


def java_keeps_nested_rows_of_one_key_after_null(world: World, random: Random) -> None:
    """`nested_update` leaves one row of each nested key; in Java not where nothing was there before."""
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.v.aggregate-function": "nested_update"}
    field_id = {"name": "id", "type": "INT"}
    nested: PaimonType = {"type": "ARRAY", "element": {"type": "ROW", "fields": [field_id]}}
    fields: Fields = (("k", "INT NOT NULL"), ("v", nested))
    shape = TableShape(fields, ("k",), (), options | {"fields.v.nested-key": "id"})
    world.java.create("db.t", shape)
    for elements in (None, [{"id": 1}, {"id": 1}]):
        world.java.write("db.t", pa.Table.from_pylist([{"k": 1, "v": elements}], arrow_schema(fields)))
    assert_same_rows(world.ours.rows("db.t", shape), [{"k": 1, "v": [{"id": 1}]}], "we read")
    assert_same_rows(world.java.rows("db.t", shape), [{"k": 1, "v": [{"id": 1}, {"id": 1}]}], "Java reads")


COMPARISONS: Mapping[str, Comparison] = {
    "picks of universal compaction": compare_picks,
    "metadata of key tables": compare_metadata,
    "metadata of append tables": compare_append_metadata,
    "fields of manifests": compare_manifest_schemas,
    "what expiry leaves": compare_expiry,
    "identifiers and watermarks": compare_commits_of_a_user,
    "a catalog in SQLite": partial(share_sql_catalog, kind="sqlite"),
    "a catalog in PostgreSQL": partial(share_sql_catalog, kind="postgresql"),
    "a catalog in MariaDB": partial(share_sql_catalog, kind="mariadb"),
    "a catalog behind REST": share_rest_catalog,
    "views behind REST": share_views,
    "signatures of REST requests": compare_signatures,
    "reads of tombstones": compare_reads_of_tombstones,
    "changes of the same commits": compare_changes,
    "changes of commits of both": compare_shared_changelogs,
    "changes of each record": java_reads_what_each_row_changed,
    "changes without a producer": compare_forms_of_stored_rows,
    "changes of every type": compare_forms_of_types,
    "known: our TIMESTAMP(9) in Parquet": java_misreads_our_nanoseconds,
    "known: before 1970 in ORC": java_loses_a_second_in_orc,
    "known: NaN as a key": java_does_not_order_nan,
    "known: filters on BYTES": java_loses_bytes_in_filters,
    "known: late rows in collect with ignore-retract": java_puts_late_elements_in_front,
    "known: late nulls and first_non_null_value": java_loses_a_first_value_under_late_nulls,
    "known: doubles in the first row of a group": java_leaves_one_of_each_element_after_rows_outside_the_group,
    "known: kinds in diffs": java_shows_stored_kinds_in_diffs,
    "known: order of changes of a range": java_gives_ranges_out_of_order,
    "known: changes of level 0": java_leaves_level_0_out_of_changes,
    "known: nested rows of one key": java_keeps_nested_rows_of_one_key_after_null,
}
