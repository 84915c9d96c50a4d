"""Every kind of table that merganser and Java share, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from tests.interop.engine_cases import CASES, PYPAIMON, RUST, EngineCase
from tests.interop.engines import Fields, TableShape
from tests.interop.test_both_ways import APPEND_OPTIONS, ATOMIC_TYPES, KEYS, NESTED_TYPES, VALUES, key_fields

from .histories import (
    AppendTable,
    CountingTable,
    DrawnEngineTable,
    EngineTable,
    EvolvedTable,
    KeyedLaterTable,
    KeyTable,
    MigratedTable,
    RescaledTable,
    RowKindTable,
    SharedTable,
    WaitingTable,
    World,
)
from .references import ReferencedTable

Kind = Callable[[World, Random], SharedTable]
"""Makes the history of a new table."""

_TIMES = ("TIME(0)", "TIME(3)")
_ALL_TYPES: Fields = tuple((f"c{i}", kind) for i, kind in enumerate((*ATOMIC_TYPES, *_TIMES, *NESTED_TYPES)))
_MICROS: Fields = tuple((name, kind) for name, kind in _ALL_TYPES if kind != "TIMESTAMP(9)")
TYPES_IN: Mapping[str, Fields] = {
    "parquet": _MICROS,
    "orc": tuple((name, kind) for name, kind in _MICROS if not str(kind).startswith(("TIMESTAMP", "CHAR"))),
    "avro": _MICROS,  # which has no nanoseconds
}
"""By file format. Nanoseconds in Parquet, and fractions of seconds before 1970 in ORC, are known differences;
of CHAR in ORC Java stores the bounds of padded values, which `check()` finds."""
_SIMPLE: Fields = (
    ("a", "STRING"),
    ("b", "DOUBLE"),
    ("c", "DECIMAL(10, 2)"),
    ("d", "BOOLEAN"),
    ("e", "DATE"),
    ("f", "TIMESTAMP(3)"),
)
_KEY_TYPES: Mapping[str, tuple[str, ...]] = {
    **KEYS,
    "tinyint and float": ("TINYINT", "FLOAT"),
    "double": ("DOUBLE",),
    "binary": ("VARBINARY(10)", "BINARY(4)"),
    "char and varchar": ("CHAR(5)", "VARCHAR(20)"),
    "zoned timestamp": ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    "time": ("TIME(3)",),
}
_PARTITIONS: Mapping[str, Fields] = {
    "texts": (("p", "STRING"),),
    "two": (("p", "INT"), ("q", "STRING")),
    "dates": (("p", "DATE"), ("q", "BOOLEAN")),
    "numbers": (("p", "BIGINT"), ("q", "DECIMAL(10, 2)")),
    "timestamps": (("p", "TIMESTAMP(3)"),),
}
_MASKS = {"deletion-vectors.enabled": "true"}
_MASKS_64 = {**_MASKS, "deletion-vectors.bitmap64": "true"}
_PEERS = (PYPAIMON, RUST)


def _engine(case: EngineCase, world: World, random: Random, *, spread: bool = False) -> SharedTable:
    others = [name for name in _PEERS if name not in case.refused]
    return EngineTable(world, case, random, others, spread=spread)


def _engine_with(case: EngineCase, options: Mapping[str, str], world: World, random: Random) -> SharedTable:
    return EngineTable(world, case, random, options=options)


def _keys(shape: TableShape, world: World, random: Random, *, others: tuple[str, ...] = ()) -> SharedTable:
    return KeyTable(world, shape, random, others)


def _key_shape(fields: Fields, options: Mapping[str, str]) -> TableShape:
    return TableShape((("k", "INT NOT NULL"), *fields), ("k",), (), {"bucket": "2", **options})


def _partitioned(partitions: Fields, options: Mapping[str, str] | None = None) -> TableShape:
    columns = tuple((name, f"{kind} NOT NULL") for name, kind in partitions)
    names = tuple(name for name, _ in partitions)
    return TableShape((*columns, ("k", "INT NOT NULL"), *VALUES), (*names, "k"), names, options or {"bucket": "2"})


def _append(shape: TableShape, world: World, random: Random, *, others: tuple[str, ...] = _PEERS) -> SharedTable:
    return AppendTable(world, shape, random, others)


def _migrated(how: str, world: World, random: Random, *, keyed: bool = False) -> SharedTable:
    return MigratedTable(world, random, how, keyed=keyed)


_ROW_KINDS = TableShape(
    (("k", "INT NOT NULL"), ("kind", "STRING"), *VALUES), ("k",), (), {"bucket": "2", "rowkind.field": "kind"}
)
_EVOLVED: Fields = (("a", "INT"), ("b", "STRING"), ("c", "DECIMAL(10, 2)"), ("d", "DATE"))
_APPENDED: Fields = (("a", "INT"), ("b", "STRING"), ("c", "DECIMAL(10, 2)"), ("d", "TIMESTAMP(6)"))
_POSTPONED = {"bucket": "-2", "postpone.default-bucket-num": "3"}
_DYNAMIC = {"bucket": "-1", "dynamic-bucket.target-row-num": "7"}
_WITH_MASKS = ("deduplicate", "deduplicate by sequence", "partial-update", "aggregation")
"""Without sequence groups: there Java folds lone versions too, when it looks for older ones."""

KINDS: Mapping[str, Kind] = {
    # merge engines
    **{name: partial(_engine, case) for name, case in CASES.items()},
    **{f"{name}, in partitions and buckets": partial(_engine, case, spread=True) for name, case in CASES.items()},
    "drawn deduplicate": lambda world, random: DrawnEngineTable(world, "deduplicate", random),
    "drawn partial-update": lambda world, random: DrawnEngineTable(world, "partial-update", random),
    "drawn aggregation": lambda world, random: DrawnEngineTable(world, "aggregation", random),
    "counting": CountingTable,
    "row kinds from a column": lambda world, random: RowKindTable(world, _ROW_KINDS, random),
    # keys, partitions, types, files
    **{
        f"keys: {name}": partial(
            _keys,
            TableShape((*key_fields(types), *VALUES), tuple(f"k{i}" for i in range(len(types))), (), {"bucket": "3"}),
        )
        for name, types in _KEY_TYPES.items()
    },
    **{f"partitions: {name}": partial(_keys, _partitioned(fields)) for name, fields in _PARTITIONS.items()},
    **{
        f"all types, {file_format}": partial(_keys, _key_shape(fields, {"file.format": file_format}))
        for file_format, fields in TYPES_IN.items()
    },
    "thin": partial(_keys, _key_shape(_SIMPLE, {"data-file.thin-mode": "true"}), others=_PEERS),
    "write-only": partial(_keys, _key_shape(_SIMPLE, {"write-only": "true"}), others=_PEERS),
    "few runs": partial(_keys, _key_shape(_SIMPLE, {"num-sorted-run.compaction-trigger": "2"}), others=_PEERS),
    "small files": partial(_keys, _key_shape(_SIMPLE, {"target-file-size": "1 kb"}), others=_PEERS),
    "no statistics": partial(_keys, _key_shape(_SIMPLE, {"metadata.stats-mode": "none"}), others=_PEERS),
    "file format by level": partial(_keys, _key_shape(_SIMPLE[:-1], {"file.format.per.level": "0:avro,5:orc"})),
    # buckets that are added as keys arrive
    "dynamic buckets": partial(_keys, _key_shape(_SIMPLE, _DYNAMIC), others=_PEERS),
    "dynamic buckets, few": partial(_keys, _key_shape(_SIMPLE, _DYNAMIC | {"dynamic-bucket.max-buckets": "2"})),
    "dynamic buckets, deletion vectors": partial(_keys, _key_shape(_SIMPLE, _DYNAMIC | _MASKS)),
    **{
        f"dynamic buckets, partitions: {name}": partial(_keys, _partitioned(fields, _DYNAMIC), others=_PEERS)
        for name, fields in list(_PARTITIONS.items())[:2]
    },
    # buckets that change in number, or come late
    "rescaled": lambda world, random: RescaledTable(world, _key_shape(_SIMPLE, {"bucket": "2"}), random, _PEERS),
    "rescaled, partitions": lambda world, random: RescaledTable(
        world, _partitioned(_PARTITIONS["two"], {"bucket": "2"}), random, _PEERS
    ),
    "postponed": lambda world, random: WaitingTable(world, _key_shape(_SIMPLE, _POSTPONED), random, _PEERS),
    "postponed, partitions": lambda world, random: WaitingTable(
        world, _partitioned(_PARTITIONS["texts"], _POSTPONED), random, _PEERS
    ),
    # schemas that change, a key that comes later, tables made of files
    "evolved": lambda world, random: EvolvedTable(world, _key_shape(_EVOLVED, {}), random, _PEERS),
    "evolved, orc": lambda world, random: EvolvedTable(world, _key_shape(_EVOLVED, {"file.format": "orc"}), random),
    "evolved, avro": lambda world, random: EvolvedTable(world, _key_shape(_EVOLVED, {"file.format": "avro"}), random),
    "key later": lambda world, random: KeyedLaterTable(
        world, TableShape((("k", "INT NOT NULL"), *_SIMPLE), options={"bucket": "-1"}), random, _PEERS
    ),
    **{f"migrated, {how}": partial(_migrated, how) for how in ("link", "keep", "copy")},
    "migrated, with a key": partial(_migrated, "copy", keyed=True),
    # deletion vectors
    **{f"deletion vectors, {name}": partial(_engine_with, CASES[name], _MASKS) for name in _WITH_MASKS},
    **{f"64-bit deletion vectors, {name}": partial(_engine_with, CASES[name], _MASKS_64) for name in _WITH_MASKS[:2]},
    "deletion vectors, types": partial(_keys, _key_shape(_MICROS, _MASKS)),
    # what is kept of the past
    "tags, branches, rollback, expiry": lambda world, random: ReferencedTable(world, _key_shape(VALUES, {}), random),
    # tables without a key
    **{
        f"append, {name}": partial(_append, TableShape(_APPENDED, options=options))
        for name, options in APPEND_OPTIONS.items()
    },
    **{
        f"append, partitions with nulls: {name}": partial(
            _append, TableShape((*fields, *VALUES), (), tuple(name for name, _ in fields), {"bucket": "-1"}), others=()
        )
        for name, fields in _PARTITIONS.items()
    },
    **{
        f"append, all types, {file_format}": partial(
            _append, TableShape(fields, options={"bucket": "-1", "file.format": file_format}), others=()
        )
        for file_format, fields in TYPES_IN.items()
    },
}
