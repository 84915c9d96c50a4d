"""Random tables of every merge engine, with rows for them: what `histories` writes and reads."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

Draw = Callable[[random.Random], Any]
ENGINES = ("deduplicate", "first-row", "partial-update", "aggregation", "counting", "append")
TEXTS = ["", "a", "b", "abcdefgh", "zażółć", "\U0001f986 duck"]
ITEM = "ROW<id INT, v STRING, ts STRING>"


@dataclass
class DrawnTable:
    """A table to create, and values for its columns.

    Attributes:
        columns: SQL types.
        draws: values of each column, nulls included.
        rising: ordering columns, each tuple of which must not come late. A stored row has one place in the order, that
            of its newest version; so what a late row meets there depends on what was merged, unless no function minds.
    """

    engine: str
    columns: dict[str, str] = field(default_factory=dict)
    draws: dict[str, Draw] = field(default_factory=dict)
    key: list[str] = field(default_factory=list)
    partition: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    rising: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, name: str, kind: str, draw: Draw) -> None:
        self.columns[name], self.draws[name] = kind, draw

    def row(self, rng: random.Random) -> dict[str, Any]:
        return {name: draw(rng) for name, draw in self.draws.items()}

    @property
    def may_tie(self) -> bool:
        """Whether rows of equal clocks are in the order of their arrival."""
        by_kind = "row-kind-flag" in self.options.get("sequence.auto-padding", "")
        return not by_kind and all(len(names) == 1 for names in self.rising)

    def rise(self, row: dict[str, Any], clock: int) -> None:
        """Order a row after all rows of a lower clock, by every tuple of columns that has to rise."""
        sign = -1 if self.options.get("sequence.field.sort-order") == "descending" else 1
        for first, *others in self.rising:
            group = first not in self.options.get("sequence.field", "").split(",")
            if group and row[first] is None and all(row[name] is None for name in others):
                continue
            time = clock if group else sign * clock
            row[first] = _clock(self.columns[first], time)


def random_buckets(rng: random.Random) -> dict[str, str]:
    """Return options that let keys add buckets, for a third of the tables; else none."""
    if rng.random() < 0.65:
        return {}
    return {
        "bucket": "-1",
        "dynamic-bucket.target-row-num": rng.choice(["1", "3", "20"]),
        "dynamic-bucket.max-buckets": rng.choice(["-1", "2"]),
    }


def choice(*values: Any) -> Draw:
    return lambda rng: rng.choice(values)


def maybe(draw: Draw, nulls: float = 0.3) -> Draw:
    return lambda rng: None if rng.random() < nulls else draw(rng)


def several(draw: Draw) -> Draw:
    return lambda rng: [draw(rng) for _ in range(rng.choice([0, 1, 2, 3]))]


def _map(item: Draw) -> Draw:
    return lambda rng: [(key, item(rng)) for key in rng.sample("abcd", rng.choice([0, 1, 2, 3]))]


def _item(rng: random.Random) -> dict[str, Any]:
    return {"id": rng.choice([None, 1, 2, 3]), "v": rng.choice([None, "x", "y"]), "ts": rng.choice([None, "1", "2"])}


def _clock(kind: str, time: int) -> Any:
    """Return a value of an ordering column that sorts as a time does."""
    return f"{2 * 10**9 + time}" if kind == "STRING" else float(time) if kind == "DOUBLE" else time


WHOLE = choice(-3, -1, 0, 2, 5, 7)
QUARTERS = choice(-2.25, -0.5, 0.0, 0.75, 4.0)
FLOATS = choice(-1.5, -0.0, 0.0, 2.5, math.nan, math.inf)
PRICES = choice(Decimal("-1.50"), Decimal("0.00"), Decimal("0.25"), Decimal("99.99"))
TEXT = choice(*TEXTS)

Function = tuple[str, str, Draw, Mapping[str, tuple[str, ...]]]
"""(name, type of the column, values, options with the texts that they may have)."""

RETRACTING: list[Function] = [
    ("sum", "BIGINT", WHOLE, {}),
    ("sum", "DECIMAL(12, 2)", PRICES, {}),
    ("sum", "DOUBLE", QUARTERS, {}),
    ("product", "BIGINT", choice(1, 1, -1), {}),
    ("product", "DOUBLE", choice(1.0, -1.0, 2.0, 0.5), {}),
    ("count", "BIGINT", WHOLE, {}),
    ("last_value", "STRING", TEXT, {}),
    ("last_non_null_value", "DOUBLE", FLOATS, {}),
    ("collect", "ARRAY<INT>", several(maybe(WHOLE, 0.1)), {"distinct": ("true", "false")}),
    ("merge_map", "MAP<STRING, INT>", _map(maybe(WHOLE, 0.1)), {}),
    ("nested_update", f"ARRAY<{ITEM}>", several(_item), {"nested-key": ("id",), "nested-sequence-field": ("ts",)}),
]
ADDING: list[Function] = [
    ("nested_update", f"ARRAY<{ITEM}>", several(maybe(_item, 0.1)), {"count-limit": ("3",)}),
    ("max", "STRING", TEXT, {}),
    ("min", "DOUBLE", FLOATS, {}),
    ("max", "DATE", choice(date(1969, 12, 31), date(2024, 2, 29)), {}),
    ("first_value", "STRING", TEXT, {}),
    ("first_non_null_value", "INT", WHOLE, {}),
    ("bool_and", "BOOLEAN", choice(True, False), {}),
    ("bool_or", "BOOLEAN", choice(True, False), {}),
    ("listagg", "STRING", choice("", " ", "a", "b", "a;b"), {"list-agg-delimiter": (";", ","), "distinct": ("true",)}),
    ("merge_map_with_keytime", f"MAP<STRING, {ITEM}>", _map(_item), {"ts-field": ("ts",)}),
    ("nested_partial_update", f"ARRAY<{ITEM}>", several(_item), {"nested-key": ("id",)}),
]
ORDER_FREE = frozenset({"sum", "count", "max", "min", "bool_and", "bool_or"})
"""The functions to which a late row is a row like any other."""

KEYS: dict[str, Draw] = {
    "INT": choice(*range(-3, 4)),
    "STRING": choice(*TEXTS[:5], "x" * 20),
    "BIGINT": choice(-(2**63), 0, 1, 2**63 - 1),
    "DATE": choice(date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)),
    "BOOLEAN": choice(True, False),
}


def drawn_table(engine: str, rng: random.Random) -> DrawnTable:
    """Return a random table of an engine."""
    table = DrawnTable(engine)
    if engine != "append":
        kinds = rng.choice([["INT"], ["STRING"], ["INT", "STRING"], ["DATE", "BIGINT"], ["STRING", "BOOLEAN", "INT"]])
        for i, kind in enumerate(kinds):
            table.add(f"k{i}", kind, KEYS[kind])
            table.key.append(f"k{i}")
    if rng.random() < 0.4:
        table.add("p", "STRING", choice("a", "b/c"))
        table.partition.append("p")
    table.add("n", "INT", maybe(choice(*range(10))))
    table.add("v", "STRING", maybe(TEXT))
    table.options = {
        "bucket": str(rng.choice([1, 2, 3])),
        "write-buffer-size": rng.choice(["1 b", "256 mb"]),
        "target-file-row-num": str(rng.choice([3, 100_000])),
        "num-sorted-run.compaction-trigger": rng.choice(["2", "3", "5"]),
        "file.format": rng.choice(["parquet", "parquet", "parquet", "orc", "avro"]),
    }
    _RULES[engine](table, rng)
    if engine != "append":
        table.options |= random_buckets(rng)
    if table.options["bucket"] == "-1" and engine not in ("append", "counting") and rng.random() < 0.4:
        table.options |= {"bucket": "-2", "postpone.target-row-num-per-bucket": rng.choice(["1", "3", "20"])}
    _rising(table)
    names = list(table.columns)
    rng.shuffle(names)
    table.columns = {name: table.columns[name] for name in names}
    return table


def _rising(table: DrawnTable) -> None:
    """Find the orders in which no row may come late."""
    options, engine = table.options, table.options.get("merge-engine")
    default = options.get("fields.default-aggregate-function")
    functions = {name: options.get(f"fields.{name}.aggregate-function") or default for name in table.columns}
    order = tuple(name for name in options.get("sequence.field", "").split(",") if name)
    if engine == "partial-update":
        for option, protected in options.items():
            named = {functions[name] for name in protected.split(",")} if option.endswith(".sequence-group") else set()
            if not named <= ORDER_FREE | {"last_value", None}:
                table.rising.append(tuple(option.removeprefix("fields.").removesuffix(".sequence-group").split(",")))
        if order:
            table.rising.append(order)
    if engine == "aggregation" and order:
        others = [name for name in table.columns if name not in (*table.key, *table.partition, *order)]
        # A retraction that it ignores would move its value up in the order, past late rows.
        moved = any(functions[n] == "last_value" and f"fields.{n}.ignore-retract" in options for n in others)
        free = {functions[name] for name in others} <= ORDER_FREE | {"last_value"} and not moved
        # Of equal numbers a retraction counts as older than an addition, and the one record that a commit stores of its
        # rows is an addition: so which of two commits is the newer one depends on what else is in them.
        padded = "sequence.auto-padding" in options
        if not free or padded or "aggregation.remove-record-on-delete" in options:
            table.rising.append(order)


def _deduplicate(table: DrawnTable, rng: random.Random) -> None:
    _order(table, rng)
    _kinds(table, rng)


def _first_row(table: DrawnTable, rng: random.Random) -> None:
    table.options["merge-engine"] = "first-row"
    _kinds(table, rng)


def _order(table: DrawnTable, rng: random.Random) -> None:
    """Give the table an order of its own, most of the time."""
    fields = {"s1": ("INT", WHOLE), "s2": ("DOUBLE", FLOATS), "s3": ("STRING", TEXT)}
    chosen = rng.sample(list(fields), rng.choice([0, 1, 1, 2, 3]))
    for name in chosen:
        table.add(name, fields[name][0], maybe(fields[name][1], 0.2))
    if chosen:
        table.options["sequence.field"] = ",".join(chosen)
        if rng.random() < 0.3:
            table.options["sequence.field.sort-order"] = "descending"
        if rng.random() < 0.3:
            table.options["sequence.auto-padding"] = "row-kind-flag"


def _kinds(table: DrawnTable, rng: random.Random, *, ignore: bool = True) -> None:
    """Give the table options that change kinds, some of the time."""
    if ignore and rng.random() < 0.3:
        table.options["ignore-delete"] = "true"
    if rng.random() < 0.2:
        table.options["ignore-update-before"] = "true"
    if table.key and rng.random() < 0.15:
        table.add("rk", "STRING", choice("+I"))
        table.options["rowkind.field"] = "rk"


def _function(
    table: DrawnTable, name: str, rng: random.Random, *, retracting: bool, only: Collection[str] | None = None
) -> None:
    found = RETRACTING if retracting else RETRACTING + ADDING
    function, kind, draw, options = rng.choice([one for one in found if only is None or one[0] in only])
    table.add(name, kind, maybe(draw, 0.25))
    table.options[f"fields.{name}.aggregate-function"] = function
    chosen = [option for option in options if rng.random() < 0.5]
    if "aggregation.remove-record-on-delete" in table.options:
        chosen = [option for option in chosen if option != "count-limit"]
    if function == "nested_partial_update" or "nested-sequence-field" in chosen:
        chosen.append("nested-key")
    for option in dict.fromkeys(chosen):
        table.options[f"fields.{name}.{option}"] = rng.choice(options[option])
    if "count-limit" in chosen:  # counts what is merged together: what is taken back may make room, or come later
        table.options[f"fields.{name}.ignore-retract"] = "true"


def _aggregation(table: DrawnTable, rng: random.Random) -> None:
    table.options["merge-engine"] = "aggregation"
    if rng.random() < 0.5:
        _order(table, rng)
    removes = rng.random() < 0.35
    if removes:
        table.options["aggregation.remove-record-on-delete"] = "true"
    if rng.random() < 0.3:
        table.options["fields.default-aggregate-function"] = rng.choice(["last_value", "last_non_null_value"])
    style = rng.choice(["retracting", "retracting", "any"])
    free = "sequence.field" in table.options and not removes and rng.random() < 0.5
    if free:
        table.options["fields.default-aggregate-function"] = "last_value"
    only = ORDER_FREE | {"last_value"} if free else None
    for i in range(rng.randrange(2, 6)):
        _function(table, f"f{i}", rng, retracting=style == "retracting", only=only)
        ignores = not removes and rng.random() < (0.7 if style == "any" else 0.1)
        if ignores and not (free and table.options[f"fields.f{i}.aggregate-function"] == "last_value"):
            table.options[f"fields.f{i}.ignore-retract"] = "true"
    _kinds(table, rng)


def _partial_update(table: DrawnTable, rng: random.Random) -> None:
    table.options["merge-engine"] = "partial-update"
    if rng.random() < 0.2:
        _order(table, rng)
    groups = rng.choice([0, 1, 1, 2, 2, 3])
    if not groups:
        removes = rng.random() < 0.6
        if removes:
            table.options["partial-update.remove-record-on-delete"] = "true"
        _kinds(table, rng, ignore=not removes)
        return
    style = rng.choice(["retracting", "retracting", "any"])
    removing = []
    for i in range(groups):
        free = ORDER_FREE | {"last_value"} if rng.random() < 0.5 else None
        ordering = [f"g{i}"]
        table.add(f"g{i}", "INT", maybe(choice(*range(12)), 0.35))
        if rng.random() < 0.4:
            ordering.append(f"h{i}")
            table.add(f"h{i}", *rng.choice([("DOUBLE", maybe(FLOATS, 0.35)), ("STRING", maybe(TEXT, 0.35))]))
        protected = []
        for j in range(rng.randrange(1, 4)):
            name = f"c{i}{j}"
            protected.append(name)
            if rng.random() < 0.6:
                _function(table, name, rng, retracting=style == "retracting", only=free)
                # One row cannot say that a group has a new order and that these functions saw no value.
                exact = table.options[f"fields.{name}.aggregate-function"] not in ("last_value", "first_value")
                if exact and rng.random() < (0.7 if style == "any" else 0.1):
                    table.options[f"fields.{name}.ignore-retract"] = "true"
            else:
                table.add(name, "STRING", maybe(TEXT))
        table.options[f"fields.{','.join(ordering)}.sequence-group"] = ",".join(protected)
        if rng.random() < 0.3:
            removing.append(rng.choice(ordering))
    if rng.random() < 0.2:
        table.options["fields.default-aggregate-function"] = "last_non_null_value"
    if removing and rng.random() < 0.7:
        table.options["partial-update.remove-record-on-sequence-group"] = ",".join(removing)
        _kinds(table, rng, ignore=False)
    else:
        _kinds(table, rng)


def _counting(table: DrawnTable, rng: random.Random) -> None:
    table.options["write-mode"] = "change-log"
    table.draws["n"], table.draws["v"] = maybe(choice(1, 2)), maybe(choice("a", "b"))
    table.draws["k0"] = choice(*{table.draws["k0"](rng) for _ in range(2)})
    table.key.clear()
    if rng.random() < 0.3:
        _kinds(table, rng)


def _append(table: DrawnTable, rng: random.Random) -> None:
    if rng.random() < 0.5:
        table.options["bucket"] = "-1"
    else:
        table.options["bucket-key"] = "n"
    _kinds(table, rng)


_RULES: dict[str, Callable[[DrawnTable, random.Random], None]] = {
    "deduplicate": _deduplicate,
    "first-row": _first_row,
    "partial-update": _partial_update,
    "aggregation": _aggregation,
    "counting": _counting,
    "append": _append,
}
