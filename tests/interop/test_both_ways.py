"""merganser and its peers share tables: each reads what the others wrote and writes into what the others made.

In every test the clients take turns at random (the seed is in the test's name) on one table, upserting, deleting,
appending and overwriting; after every commit all of them must read the rows of a model that is a dict, or for append
tables a list. What a client is known not to do is said where it is left out.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from tests.seeds import seeds

from .engines import Engine, Fields, MerganserEngine, PeerEngine, TableShape
from .peers import Peer
from .random_rows import random_table, random_value
from .values import PaimonType, Row, arrow_type, assert_same_rows, canonical, rows_of

pytestmark = pytest.mark.peers

STEPS = 8
VALUES: Fields = (("v", "STRING"), ("n", "BIGINT"))

ATOMIC_TYPES: tuple[str, ...] = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(4, 2)",
    "DECIMAL(9, 9)",
    "DECIMAL(18, 4)",
    "DECIMAL(38, 10)",
    "CHAR(5)",
    "VARCHAR(20)",
    "STRING",
    "BINARY(4)",
    "VARBINARY(10)",
    "BYTES",
    "DATE",
    "TIMESTAMP(0)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP(9)",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE",
    "TIMESTAMP(6) WITH LOCAL TIME ZONE",
)
NESTED_TYPES: tuple[PaimonType, ...] = (
    {"type": "ARRAY", "element": "INT"},
    {"type": "ARRAY", "element": {"type": "ARRAY", "element": "BIGINT"}},
    {"type": "MAP", "key": "STRING NOT NULL", "value": "BIGINT"},
    {
        "type": "ROW",
        "fields": [
            {"name": "x", "type": "INT"},
            {"name": "y", "type": "STRING"},
            {"name": "z", "type": {"type": "ARRAY", "element": "DECIMAL(10, 2)"}},
        ],
    },
    {"type": "ARRAY", "element": {"type": "ROW", "fields": [{"name": "k", "type": "DATE"}]}},
)
KEYS: dict[str, tuple[str, ...]] = {
    "int": ("INT",),
    "bigint": ("BIGINT",),
    "string": ("STRING",),
    "composite": ("STRING", "BIGINT"),
    "compact_decimal": ("DECIMAL(10, 2)",),
    "wide_decimal": ("DECIMAL(25, 5)",),
    "timestamp_millis": ("TIMESTAMP(3)",),
    "timestamp_micros": ("TIMESTAMP(6)",),
    "date": ("DATE",),
    "four_types": ("SMALLINT", "DATE", "STRING", "BOOLEAN"),
}


# ── the clients and the turns they take ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def engines(peer: Peer, tmp_path: Path) -> list[Engine]:
    """merganser and one of its peers in one warehouse."""
    return [MerganserEngine(tmp_path), PeerEngine(peer, tmp_path)]


@pytest.fixture
def all_engines(pypaimon: Peer, rust: Peer, tmp_path: Path) -> list[Engine]:
    """merganser and all of its peers in one warehouse."""
    return [MerganserEngine(tmp_path), PeerEngine(pypaimon, tmp_path), PeerEngine(rust, tmp_path)]


def seeded(text: str) -> Random:
    """A random source that depends on a text alone (`hash` differs from process to process)."""
    return Random(zlib.crc32(text.encode()))


def key_fields(types: Sequence[str]) -> Fields:
    """Columns k0, k1, ... of the given types."""
    return tuple((f"k{i}", f"{paimon_type} NOT NULL") for i, paimon_type in enumerate(types))


def key_pool(random: Random, types: Sequence[PaimonType], count: int = 60) -> list[tuple[Any, ...]]:
    """Up to `count` different keys."""
    return list({tuple(random_value(random, paimon_type) for paimon_type in types): None for _ in range(count)})


class KeyModel:
    """What a key table holds: the newest row of each key."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys, self.by_key = tuple(keys), dict[str, Row]()

    def apply(self, rows: Sequence[Row], *, delete: bool) -> None:
        for row in rows:
            key = canonical([row[name] for name in self.keys])
            if delete:
                self.by_key.pop(key, None)
            else:
                self.by_key[key] = row

    def rows(self) -> list[Row]:
        return list(self.by_key.values())


def take_turns_on_a_key_table(
    engines: Sequence[Engine],
    shape: TableShape,
    random: Random,
    *,
    steps: int = STEPS,
    creators: Sequence[Engine] | None = None,
    writers: Sequence[Engine] | None = None,
    readers: Sequence[Engine] | None = None,
) -> None:
    """Let the clients upsert and delete at random, and compare all of them with the model after each commit."""
    keys, types = shape.primary_key, dict(shape.fields)
    pool = key_pool(random, [types[name] for name in keys])
    model = KeyModel(keys)
    creator = random.choice(list(creators or engines))
    creator.create("db.t", shape)
    history = [f"{creator.name} created"]
    for step in range(steps):
        # both sides write at least once, whatever the seed
        writer = (list(writers or engines) * 2)[step] if step < 2 else random.choice(list(writers or engines))
        chosen = random.choices(pool, k=random.randint(1, 25))  # with repetition: the last row of a key wins
        delete = writer.deletes and step > 1 and random.random() < 0.3
        if delete:
            chosen = list(dict.fromkeys(chosen))
        batch = random_table(random, shape.fields, keys, chosen)
        writer.write("db.t", batch, kinds=["-D"] * batch.num_rows if delete else None)
        model.apply(rows_of(batch, shape.fields), delete=delete)
        history.append(f"{writer.name} {'deleted' if delete else 'upserted'} {batch.num_rows}")
        compare(readers or engines, shape, model.rows(), history)


def take_turns_on_an_append_table(engines: Sequence[Engine], shape: TableShape, random: Random) -> None:
    """Let the clients append and overwrite at random, and compare all of them with the model after each commit."""
    held: list[Row] = []
    creator = random.choice(list(engines))
    creator.create("db.t", shape)
    history = [f"{creator.name} created"]
    for step in range(STEPS):
        writer = engines[step % len(engines)] if step < 2 else random.choice(list(engines))
        batch = random_table(random, shape.fields, (), [()] * random.randint(1, 25))
        overwrite = not shape.partition_by and step > 2 and random.random() < 0.25
        writer.write("db.t", batch, overwrite=overwrite)
        held = ([] if overwrite else held) + rows_of(batch, shape.fields)
        history.append(f"{writer.name} {'overwrote with' if overwrite else 'appended'} {batch.num_rows}")
        compare(engines, shape, held, history)


def compare(engines: Sequence[Engine], shape: TableShape, expected: Sequence[Row], history: Sequence[str]) -> None:
    """Every client must read the expected rows."""
    for engine in engines:
        assert_same_rows(engine.rows("db.t", shape), expected, f"{engine.name} reads, after: {'; '.join(history)}")


# ── key tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.campaign(1 / 12)
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", KEYS)
def test_clients_take_turns_on_a_key_table(engines: list[Engine], name: str, seed: int) -> None:
    columns = key_fields(KEYS[name])
    shape = TableShape((*columns, *VALUES), tuple(column for column, _ in columns), options={"bucket": "3"})
    take_turns_on_a_key_table(engines, shape, seeded(f"{name} {seed}"))


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("partition_types", [("STRING",), ("INT", "STRING"), ("DATE",)], ids="-".join)
def test_clients_take_turns_on_a_partitioned_key_table(
    engines: list[Engine], partition_types: tuple[str, ...], seed: int
) -> None:
    random = seeded(f"{partition_types} {seed}")
    parts = tuple((f"p{i}", f"{paimon_type} NOT NULL") for i, paimon_type in enumerate(partition_types))
    names = tuple(name for name, _ in parts)
    shape = TableShape((("k", "INT NOT NULL"), *parts, *VALUES), (*names, "k"), names, {"bucket": "2"})
    take_turns_on_a_key_table(engines, shape, random)


@pytest.mark.campaign(1 / 2)
def test_all_clients_take_turns_on_one_key_table(all_engines: list[Engine]) -> None:
    shape = TableShape((*key_fields(["BIGINT", "STRING"]), *VALUES), ("k0", "k1"), options={"bucket": "4"})
    take_turns_on_a_key_table(all_engines, shape, seeded("all"), steps=20)


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
def test_all_clients_take_turns_on_a_table_that_adds_buckets(
    all_engines: list[Engine], partitioned: bool, tmp_path: Path
) -> None:
    parts = (("p", "STRING NOT NULL"),) if partitioned else ()
    names = tuple(name for name, _ in parts)
    options = {"bucket": "-1", "dynamic-bucket.target-row-num": "9"}
    shape = TableShape((*key_fields(["BIGINT", "STRING"]), *parts, *VALUES), (*names, "k0", "k1"), names, options)
    random = seeded(f"dynamic {partitioned}")
    take_turns_on_a_key_table(all_engines, shape, random, steps=16, creators=all_engines[:1])
    table = mg.catalog(str(tmp_path)).table("db.t")
    assert partitioned or len(set(table.files().column("bucket").to_pylist())) > 3
    assert [found for found in table.check() if found.is_fault] == []


@pytest.mark.campaign(1 / 12)
@pytest.mark.parametrize("paimon_type", ATOMIC_TYPES)
def test_values_of_a_type_cross_in_a_key_table(engines: list[Engine], paimon_type: str) -> None:
    """Where pypaimon merges, it cuts timestamps to microseconds; what it writes itself is whole."""
    shape = TableShape((("k0", "INT NOT NULL"), ("v", paimon_type)), ("k0",), options={"bucket": "1"})
    readers = [e for e in engines if not (paimon_type == "TIMESTAMP(9)" and e.name == "pypaimon")]
    take_turns_on_a_key_table(engines, shape, seeded(paimon_type), steps=4, readers=readers)


@pytest.mark.parametrize("place", range(len(NESTED_TYPES)))
def test_nested_values_cross_in_a_key_table(engines: list[Engine], place: int) -> None:
    shape = TableShape((("k0", "INT NOT NULL"), ("v", NESTED_TYPES[place])), ("k0",), options={"bucket": "1"})
    take_turns_on_a_key_table(engines, shape, seeded(f"nested {place}"), steps=4)


def test_time_values_cross_in_a_key_table(engines: list[Engine]) -> None:
    """The SQL of pypaimon-rust has no TIME, so it never creates this table."""
    shape = TableShape((("k0", "INT NOT NULL"), ("v", "TIME(3)")), ("k0",), options={"bucket": "1"})
    take_turns_on_a_key_table(engines, shape, seeded("time"), steps=4, creators=engines[:1])


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_clients_take_turns_in_a_file_format(engines: list[Engine], file_format: str) -> None:
    """With ORC, pypaimon-rust only reads (it writes no zstd there), and fails on fractions of seconds before 1970."""
    fields: Fields = (
        ("k0", "INT NOT NULL"),
        ("a", "STRING"),
        ("b", "DOUBLE"),
        ("c", "DECIMAL(10, 2)"),
        ("d", "BOOLEAN"),
        ("e", "DATE"),
    )
    if file_format != "orc":
        fields = (*fields, ("f", "TIMESTAMP(3)"))
    shape = TableShape(fields, ("k0",), options={"bucket": "2", "file.format": file_format})
    writers = [e for e in engines if not (file_format == "orc" and e.name == "pypaimon-rust")]
    take_turns_on_a_key_table(engines, shape, seeded(file_format), writers=writers)


def test_a_lone_file_of_deletes_hides_its_keys_from_every_client(all_engines: list[Engine]) -> None:
    """A file whose delete count were 0 would be read as it stands, and the deleted rows would come back."""
    shape = TableShape((("k", "INT NOT NULL"), ("v", "STRING")), ("k",), options={"bucket": "1"})
    ours = all_engines[0]
    ours.create("db.t", shape)
    rows = pa.table({"k": pa.array([1, 2], pa.int32()), "v": pa.array(["a", "b"])})
    ours.write("db.t", rows, kinds=["-D", "+I"])
    compare(all_engines, shape, [{"k": 2, "v": "b"}], ["merganser deleted 1 and inserted 2"])


def test_clients_write_on_after_a_rescale(all_engines: list[Engine], tmp_path: Path) -> None:
    shape = TableShape((("k", "INT NOT NULL"), ("v", "STRING")), ("k",), options={"bucket": "2"})
    ours = all_engines[0]
    ours.create("db.t", shape)
    model: dict[int, str] = {}
    steps = []

    def write(engine: Engine, number: int) -> None:
        keys = list(range(3 * number, 3 * number + 12))
        engine.write("db.t", pa.table({"k": pa.array(keys, pa.int32()), "v": [f"{engine.name} {number}"] * 12}))
        model.update(dict.fromkeys(keys, f"{engine.name} {number}"))
        steps.append(f"{engine.name} wrote {keys[0]} to {keys[-1]}")

    for number, buckets in enumerate((5, 4, 1)):
        for place, engine in enumerate(all_engines):
            write(engine, 3 * number + place)
        mg.catalog(str(tmp_path)).table("db.t").rescale(buckets)
        steps.append(f"rescaled to {buckets}")
        compare(all_engines, shape, [{"k": k, "v": v} for k, v in model.items()], steps)
    for place, engine in enumerate(all_engines):
        write(engine, 9 + place)
    compare(all_engines, shape, [{"k": k, "v": v} for k, v in model.items()], steps)
    assert [found for found in mg.catalog(str(tmp_path)).table("db.t").check() if found.is_fault] == []


def test_rows_that_clients_leave_waiting_get_their_buckets(all_engines: list[Engine], tmp_path: Path) -> None:
    options = {"bucket": "-2", "postpone.default-bucket-num": "2"}
    shape = TableShape((("k", "INT NOT NULL"), ("v", "STRING")), ("k",), options=options)
    ours = all_engines[0]
    ours.create("db.t", shape)
    table = mg.catalog(str(tmp_path)).table("db.t")
    model: dict[int, str] = {}
    for number in range(3):
        for engine in all_engines:
            keys = list(range(2 * number, 2 * number + 6))
            rows = pa.table({"k": pa.array(keys, pa.int32()), "v": [f"{engine.name} {number}"] * 6})
            if engine is ours:
                with table.writer() as writer:
                    writer.write(rows)
                    writer.commit()
            else:
                engine.write("db.t", rows)
            model.update(dict.fromkeys(keys, f"{engine.name} {number}"))
        table.compact()
        steps = [f"all wrote and merganser compacted, round {number}"]
        compare(all_engines, shape, [{"k": k, "v": v} for k, v in model.items()], steps)
    assert [found for found in table.check() if found.is_fault] == []


# ── append tables ─────────────────────────────────────────────────────────────────────────────────────────────────────

APPEND_OPTIONS = {
    "unaware": {"bucket": "-1"},
    "bucketed": {"bucket": "3", "bucket-key": "a"},
    "bucketed by two": {"bucket": "2", "bucket-key": "a,b"},
}


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", APPEND_OPTIONS)
def test_clients_take_turns_on_an_append_table(engines: list[Engine], name: str, seed: int) -> None:
    fields: Fields = (("a", "INT"), ("b", "STRING"), ("c", "DECIMAL(10, 2)"), ("d", "TIMESTAMP(6)"))
    take_turns_on_an_append_table(engines, TableShape(fields, options=APPEND_OPTIONS[name]), seeded(f"{name} {seed}"))


@pytest.mark.parametrize("seed", seeds(1))
def test_clients_take_turns_on_a_partitioned_append_table(engines: list[Engine], seed: int) -> None:
    """With null partition values, which are the default directory."""
    fields: Fields = (("a", "INT"), ("p", "DATE"), ("q", "INT"), ("c", "DOUBLE"))
    shape = TableShape(fields, partition_by=("p", "q"), options={"bucket": "-1"})
    random = seeded(f"partitioned {seed}")
    take_turns_on_an_append_table(engines, shape, random)


def test_all_types_cross_in_one_append_table(engines: list[Engine]) -> None:
    fields = tuple((f"c{i}", paimon_type) for i, paimon_type in enumerate((*ATOMIC_TYPES, *NESTED_TYPES)))
    take_turns_on_an_append_table(engines, TableShape(fields, options={"bucket": "-1"}), seeded("all types"))


# ── pruned and filtered reads of files of others ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", seeds(2))
def test_filters_and_projections_hold_on_files_of_a_peer(peer: Peer, tmp_path: Path, seed: int) -> None:
    """Statistics that a peer wrote must not make us leave out a row, nor may its field ids or their absence."""
    import merganser

    random = seeded(f"filters {peer.kind.name} {seed}")
    fields: Fields = (("k", "INT NOT NULL"), ("p", "STRING NOT NULL"), ("v", "BIGINT"), ("s", "STRING"))
    shape = TableShape(fields, ("p", "k"), ("p",), {"bucket": "2"})
    engine = PeerEngine(peer, tmp_path)
    engine.create("db.t", shape)
    model = KeyModel(shape.primary_key)
    for _ in range(4):
        keys = [(random.choice("xyz"), random.randrange(50)) for _ in range(20)]
        columns = {
            "k": pa.array([k for _, k in keys], pa.int32()),
            "p": pa.array([p for p, _ in keys]),
            "v": pa.array([random.choice([None, random.randrange(100)]) for _ in keys], pa.int64()),
            "s": pa.array([random.choice([None, "a", "b" * 30]) for _ in keys], pa.string()),
        }
        engine.write("db.t", pa.table(columns))
        model.apply(rows_of(pa.table(columns)), delete=False)
    table = merganser.catalog(str(tmp_path)).table("db.t")
    tests: list[tuple[str, Any]] = [
        ("k = 7", lambda row: row["k"] == 7),
        ("k BETWEEN 10 AND 20 AND p = 'x'", lambda row: 10 <= row["k"] <= 20 and row["p"] == "x"),
        ("p <> 'y' AND v > 50", lambda row: row["p"] != "y" and (row["v"] or 0) > 50),
        ("v IS NULL", lambda row: row["v"] is None),
        ("s LIKE 'b%' OR k < 5", lambda row: (row["s"] or "").startswith("b") or row["k"] < 5),
    ]
    for where, holds in tests:
        found = rows_of(table.read(columns=["s", "k"], where=where).to_arrow())
        wanted = [{"s": row["s"], "k": row["k"]} for row in model.rows() if holds(row)]
        assert_same_rows(found, wanted, where)


# ── Spark ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spark
def test_clients_read_what_spark_wrote_and_spark_reads_what_they_wrote(
    pypaimon: Peer, rust: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from pyspark.sql import SparkSession

    import merganser
    import merganser.spark as ms

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    running = SparkSession.getActiveSession()
    spark = running or (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path / "spark"))
        .getOrCreate()
    )
    try:
        fields: Fields = (("k", "INT NOT NULL"), ("p", "STRING NOT NULL"), ("c", "DECIMAL(10, 2)"), ("d", "DATE"))
        shape = TableShape(fields, ("p", "k"), ("p",), {"bucket": "2"})
        warehouse = tmp_path / "warehouse"
        engines: list[Engine] = [
            MerganserEngine(warehouse),
            PeerEngine(pypaimon, warehouse),
            PeerEngine(rust, warehouse),
        ]
        engines[0].create("db.t", shape)
        table = merganser.catalog(str(warehouse)).table("db.t")
        random, model = seeded("spark"), KeyModel(shape.primary_key)
        history = []
        for writer in ("spark", "pypaimon", "pypaimon-rust", "spark"):
            keys = list({(random.choice("xyz"), random.randrange(40)): None for _ in range(25)})
            batch = random_table(random, fields, ("p", "k"), keys)
            if writer == "spark":
                ms.write(spark.createDataFrame(batch), table)
            else:
                next(engine for engine in engines if engine.name == writer).write("db.t", batch)
            model.apply(rows_of(batch, fields), delete=False)
            history.append(f"{writer} upserted {batch.num_rows}")
            compare(engines, shape, model.rows(), history)
            assert_same_rows(rows_of(ms.read(spark, table).toArrow(), fields), model.rows(), f"Spark, after {history}")
    finally:
        if running is None:
            spark.stop()


def test_random_values_fit_their_arrow_types() -> None:
    """The generator itself: every type has values, and Arrow takes them."""
    random = seeded("fit")
    for paimon_type in (*ATOMIC_TYPES, *NESTED_TYPES, "TIME(3)"):
        values = [random_value(random, paimon_type) for _ in range(50)]
        assert pa.array(values, arrow_type(paimon_type)).null_count == 0
