"""Tables of every layout, drawn: merge engine, keys, buckets, partitions, formats, changelog, files."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from merganser.schema import types as t
from merganser.schema.types_text import parse_type
from tests.everything.values import KINDS, draw
from tests.oracle.drawn_tables import DrawnTable, choice, drawn_table

ENGINES = (
    ("deduplicate",) * 5
    + ("first-row", "partial-update", "partial-update", "aggregation", "aggregation")
    + (
        "counting",
        "append",
        "append",
        "append",
    )
)
"""Merge engines, and the two kinds of tables without a key, as often as they are drawn."""
_NOT_OF_SPARK = ("TIME(3)", "TIMESTAMP(9)")
VERSIONED = ("deduplicate", "partial-update", "aggregation")
"""The engines whose tables take deletion vectors."""


@dataclass
class Layout:
    """A table to create.

    Attributes:
        drawn: columns, values for them, key, partition, options.
        moves: whether the key lacks a partition column, and a row may bring a key to another partition.
        spark: Spark reads and writes the table.
    """

    drawn: DrawnTable
    moves: bool = False
    spark: bool = False

    def with_drawn(self, drawn: DrawnTable, *, moves: bool) -> Layout:
        """Return the layout of the same table once it was altered."""
        return replace(self, drawn=drawn, moves=moves)

    @property
    def engine(self) -> str:
        return self.drawn.engine

    @property
    def options(self) -> dict[str, str]:
        return self.drawn.options

    @property
    def producer(self) -> str:
        asked = self.options.get("merganser.changelog-producer")  # as the table stores it
        return asked or self.options.get("changelog-producer", "none")

    @property
    def vectors(self) -> bool:
        """Whether reads do not see rows before a compaction has taken them."""
        options = self.options
        hidden = options.get("deletion-vectors.enabled") == "true" and self.drawn.key
        return bool(hidden) and options.get("deletion-vectors.merge-on-read") != "true"

    @property
    def far(self) -> bool:
        """Whether the formats of the table hold times of all years."""
        return not any("orc" in text for text in self.options.values())

    def takes(self, kind: str) -> bool:
        """Return whether all formats of the table hold values of a type."""
        if self.spark and kind in _NOT_OF_SPARK:
            return False
        return kind != "TIMESTAMP(9)" or not any("avro" in text for text in self.options.values())

    @property
    def adds_only(self) -> bool:
        """Whether a delete may be forgotten that later rows would need: compactions that are published drop them."""
        ordered = any(name == "sequence.field" or name.endswith(".sequence-group") for name in self.options)
        return self.producer == "full-compaction" and (ordered or self.engine == "aggregation")

    @property
    def keeps(self) -> bool:
        """Whether changelogs outlive snapshots."""
        return "changelog.num-retained.max" in self.options

    @property
    def postpones(self) -> bool:
        return self.options.get("bucket") == "-2"

    @property
    def primary_key(self) -> list[str]:
        if not self.drawn.key:
            return []
        return list(self.drawn.key) if self.moves else [*self.drawn.partition, *self.drawn.key]


def drawn_layout(seed: str, spark: bool = False) -> Layout:
    """Return the layout of a seed.

    Args:
        spark: leave out types that Spark has not.
    """
    rng = random.Random(f"{seed} layout")
    layout = Layout(drawn_table(rng.choice(ENGINES), rng), spark=spark)
    _columns(layout, rng)
    if layout.engine == "append":
        layout.drawn.add("u", "BIGINT", lambda rng: rng.randrange(10**6))
    keys = random.Random(f"{seed} key")  # of its own, so that the rest of a history stays what it was
    if layout.engine == "deduplicate" and keys.random() < 0.2:
        _other_key(layout.drawn, keys)
    _versioned(layout, rng)
    _partitions(layout, rng)
    if len(layout.drawn.key) > 1 and int(layout.options["bucket"]) > 0 and keys.random() < 0.5:
        layout.options["bucket-key"] = ",".join(layout.drawn.key[: keys.randrange(1, len(layout.drawn.key))])
    _producer(layout, rng)
    _vectors(layout, rng)
    _stream(layout, rng)
    _files(layout, rng)
    if layout.moves and layout.engine == "deduplicate":  # refused: the old row of a key that moves would stay
        layout.options.pop("ignore-delete", None)
    if any("avro" in text for text in layout.options.values()):
        _without_nanoseconds(layout.drawn)
    if layout.producer == "full-compaction":
        _always_rising(layout)
    if rng.random() < 0.3:
        _odd_names(layout.drawn, rng)
    _tracking(layout, keys)
    _kept(layout, random.Random(f"{seed} kept"))
    return layout


def _columns(layout: Layout, rng: random.Random) -> None:
    """Add columns of any type that no rule looks at; nested ones have no order, so a counting table has none."""
    drawn = layout.drawn
    if drawn.engine in ("counting", "aggregation"):
        return
    drawn_kinds = [rng.choice([k for k in KINDS if layout.takes(k)]) for _ in range(rng.randrange(4))]
    if rng.random() < 0.3:  # the only type whose values depend on the zone of a session
        drawn_kinds.append(f"TIMESTAMP({rng.choice([3, 6])}) WITH LOCAL TIME ZONE")
    for i, kind in enumerate(drawn_kinds):
        parsed = parse_type(kind)
        drawn.add(f"x{i}", kind, lambda rng, parsed=parsed: draw(parsed, rng, far=layout.far))


def _other_key(drawn: DrawnTable, rng: random.Random) -> None:
    """Let a key column have a type that few keys have."""
    prices = (Decimal("-1.50"), Decimal("0.00"), Decimal("123456789012345678.90"))
    drawn.columns["k0"], drawn.draws["k0"] = rng.choice(
        [
            ("DECIMAL(20, 2)", choice(*prices)),
            ("DOUBLE", choice(-1.5, 0.0, 2.0**60, float("inf"), 1e-300)),
            ("TIMESTAMP(3)", choice(datetime(1969, 12, 31, 23, 59), datetime(2026, 1, 1))),
            ("SMALLINT", choice(-(2**15), 0, 7)),
        ]
    )


def _versioned(layout: Layout, rng: random.Random) -> None:
    """Let a version column of a deduplicate table say which row of a key stays."""
    drawn = layout.drawn
    if layout.engine == "deduplicate" and "sequence.field" not in drawn.options and rng.random() < 0.15:
        drawn.add("ver", rng.choice(["INT", "BIGINT"]), choice(None, *range(6)))
        drawn.options.pop("ignore-delete", None)
        drawn.options |= {"merge-engine": "versioned", "merge-engine.versioned.ver-column": "ver"}


def _odd_names(drawn: DrawnTable, rng: random.Random) -> None:
    """Give columns names that a parser, a frame or an option could take for something else."""
    odd = ["index", "select", "Order", "value", "key", "kind", "row", "null", "source", "K"]
    if not any("avro" in text for text in drawn.options.values()):
        odd += ["a b", "żółć", "x'y", "100%"]
    rng.shuffle(odd)
    names = {name: odd.pop() if odd and rng.random() < 0.5 else name for name in drawn.columns}

    def renamed(text: str) -> str:
        return ",".join(names.get(name, name) for name in text.split(","))

    options = {}
    for key, text in drawn.options.items():
        if key.startswith("fields.") and key != "fields.default-aggregate-function":
            of, _, what = key.removeprefix("fields.").rpartition(".")
            inner = {"nested-key", "nested-sequence-field", "ts-field", "aggregate-function", "list-agg-delimiter"}
            options[f"fields.{renamed(of)}.{what}"] = text if what in inner else renamed(text)
        else:
            named = key in _NAMING or key.startswith("partial-update.remove-record-on-sequence")
            options[key] = renamed(text) if named else text
    drawn.columns = {names[name]: kind for name, kind in drawn.columns.items()}
    drawn.draws = {names[name]: each for name, each in drawn.draws.items()}
    drawn.key = [names[name] for name in drawn.key]
    drawn.partition = [names[name] for name in drawn.partition]
    drawn.rising = [tuple(names[name] for name in order) for order in drawn.rising]
    drawn.options = options


_NAMING = (
    "sequence.field",
    "rowkind.field",
    "bucket-key",
    "file-index.bloom-filter.columns",
    "merge-engine.versioned.ver-column",
)


def _partitions(layout: Layout, rng: random.Random) -> None:
    """Give a partitioned table other partition values, or a second partition column."""
    drawn, engine = layout.drawn, layout.engine
    if not drawn.partition:
        return
    nulls: tuple[Any, ...] = () if drawn.key else (None,)
    match rng.choice(["text", "odd", "date", "number", "two"]):
        case "odd":
            drawn.draws["p"] = choice("a", "b c", "ż=%", "100%", *nulls)
        case "date":
            drawn.columns["p"] = "DATE"
            drawn.draws["p"] = choice(date(2026, 1, 31), date(1969, 12, 31), *nulls)
        case "number":
            drawn.columns["p"] = rng.choice(["INT", "BIGINT"])
            drawn.draws["p"] = choice(-1, 7, *nulls)
        case "two":
            drawn.add("p2", "INT", choice(0, 1, *nulls))
            drawn.partition.append("p2")
    ordered = "sequence.field" in drawn.options or drawn.options.get("merge-engine") == "versioned"
    if engine == "deduplicate" and not ordered and rng.random() < 0.3:
        layout.moves = True
        drawn.options.pop("postpone.target-row-num-per-bucket", None)
        drawn.options |= {"bucket": "-1", "dynamic-bucket.target-row-num": rng.choice(["1", "3", "20"])}


def _producer(layout: Layout, rng: random.Random) -> None:
    options = layout.options
    choices = {
        "first-row": ("none", "lookup", "lookup"),
        "append": ("none",),
        "counting": ("none", "input"),
    }.get(layout.engine, ("none", "none", "input", "lookup", "lookup", "per-record", "per-record", "full-compaction"))
    producer = rng.choice([each for each in choices if each != "per-record" or not layout.postpones])
    if producer != "none":
        options["changelog-producer"] = producer
    if producer in ("lookup", "per-record", "full-compaction") and rng.random() < 0.3:
        options["changelog-producer.row-deduplicate"] = "true"
    if producer != "none" and rng.random() < 0.3:
        options["changelog-file.format"] = rng.choice(["parquet", "orc", "avro"])


def _stream(layout: Layout, rng: random.Random) -> None:
    """Let some tables keep a shard stream, where their changes are complete."""
    if rng.random() > 0.25 or layout.engine == "counting":
        return
    if layout.engine == "append" or layout.producer in ("lookup", "full-compaction", "per-record"):
        layout.options.update({"stream.enabled": "true", "stream.retention": "365 d"})


def _tracking(layout: Layout, rng: random.Random) -> None:
    """Let some tables leave out the changes of a partition, or of what overwrites replace."""
    options, drawn = layout.options, layout.drawn
    name = drawn.partition[0] if drawn.partition else ""
    text = name.isascii() and name.isidentifier() and drawn.columns[name] == "STRING"  # as its directory is named
    if text and "stream.enabled" not in options and rng.random() < 0.25:
        options["change-tracking.off-partitions"] = f"{name}=a"
    if layout.producer != "none" and rng.random() < 0.2:
        options["streaming-read-overwrite"] = "false"


def _kept(layout: Layout, rng: random.Random) -> None:
    """Let the changelogs of some tables outlive their snapshots."""
    if (layout.producer != "none" or layout.engine == "append") and rng.random() < 0.4:
        layout.options["changelog.num-retained.max"] = "2000"
        if rng.random() < 0.3:
            layout.options["consumer.changelog-only"] = "true"


def _vectors(layout: Layout, rng: random.Random) -> None:
    options = layout.options
    if layout.producer in ("full-compaction",) or rng.random() > 0.35:
        return
    if layout.engine in VERSIONED and not layout.moves:
        options["deletion-vectors.enabled"] = "true"
        options["deletion-vectors.bitmap64"] = rng.choice(["true", "false"])
        options["deletion-vectors.merge-on-read"] = rng.choice(["true", "false"])
    if layout.engine == "append" and options["bucket"] == "-1":
        options["deletion-vectors.enabled"] = "true"


def _files(layout: Layout, rng: random.Random) -> None:
    """Draw options of files and metadata that promise to change no result."""
    options, drawn = layout.options, layout.drawn
    options |= {
        "data-file.thin-mode": rng.choice(["true", "false"]),
        "manifest.merge-min-count": rng.choice(["2", "3", "30"]),
        "manifest.full-compaction-threshold-size": rng.choice(["1 b", "16 mb"]),
        "target-file-size": rng.choice(["1 kb", "128 mb"]),
        "snapshot.num-retained.min": "100",
        "snapshot.num-retained.max": "1000",
    }
    if drawn.key and rng.random() < 0.3:
        options["file.format.per.level"] = rng.choice(["0:avro", "5:orc", "0:avro,5:orc", "0:orc"])
    if not drawn.key and rng.random() < 0.3:
        options["compaction.min.file-num"] = "2"
    indexed = [n for n, kind in drawn.columns.items() if _indexes(parse_type(kind)) and rng.random() < 0.2]
    if indexed and rng.random() < 0.6:
        options["file-index.bloom-filter.columns"] = ",".join(indexed)
        options["file-index.in-manifest-threshold"] = rng.choice(["1 b", "100 b", "1 kb"])
    if layout.engine == "deduplicate" and rng.random() < 0.2:
        options["write.merge-schema"] = "true"


def _always_rising(layout: Layout) -> None:
    """Let no row come late: compactions of a table that publishes full compactions drop all deletes."""
    drawn = layout.drawn
    groups = [name for name in drawn.options if name.endswith(".sequence-group")]
    orders = [tuple(name.removeprefix("fields.").removesuffix(".sequence-group").split(",")) for name in groups]
    if "sequence.field" in drawn.options:
        orders.append(tuple(drawn.options["sequence.field"].split(",")))
    drawn.rising += [order for order in orders if order not in drawn.rising]


def _without_nanoseconds(drawn: DrawnTable) -> None:
    """Avro has none."""
    for name, kind in drawn.columns.items():
        if kind == "TIMESTAMP(9)":
            drawn.columns[name] = "TIMESTAMP(6)"


def _indexes(kind: t.DataType) -> bool:
    return isinstance(kind, t.Int | t.BigInt | t.VarChar | t.Date)
