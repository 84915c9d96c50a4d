"""Tables of every merge engine and order, with small pools of values, and what each client cannot do with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

from .engines import Fields, TableShape
from .values import PaimonType, type_text

INTS: PaimonType = {"type": "ARRAY", "element": "INT"}
COUNTS: PaimonType = {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"}
PYPAIMON, RUST, JAVA = "pypaimon", "pypaimon-rust", "java"
KEYS = range(8)
ADDS = ("+I", "+I", "+I", "+U")
ALL_KINDS = (*ADDS, "-U", "-D", "-D")

_POOLS: Mapping[str, tuple[Any, ...]] = {
    "INT": (-3, -1, 0, 2, 5, 7),
    "BIGINT": (-(2**40), -1, 0, 3, 2**33),
    "DOUBLE": (-2.25, -0.5, 0.0, 0.75, 4.0),
    "DECIMAL(10, 2)": (Decimal("-1.50"), Decimal("0.00"), Decimal("0.25"), Decimal("99.99")),
    "STRING": ("", " ", "a", "b", "héllo", "longer than inline"),
    "BOOLEAN": (True, False),
    "DATE": (date(1969, 12, 31), date(2024, 2, 29), date(2030, 1, 1)),
    "TIMESTAMP(3)": (datetime(1969, 12, 31, 23, 59), datetime(2024, 2, 29, 1, 2, 3, 4000), datetime(2024, 3, 1)),
    "TIMESTAMP(6)": (datetime(1969, 12, 31, 23, 59), datetime(2024, 2, 29, 1, 2, 3, 4), datetime(2024, 3, 1)),
    "ARRAY<INT>": ([], [1], [2, 2], [3, None, 1]),
    "MAP<STRING NOT NULL, INT>": ([], [("a", 1)], [("a", 2), ("b", None)], [("c", 3)]),
}


@dataclass(frozen=True, slots=True)
class EngineCase:
    """One kind of table.

    Attributes:
        values: columns beside the key, an INT `k`.
        kinds: row kinds that are written, by clients that can.
        refused: by client, words of its refusal to read or write such a table.
        refused_merges: by client, words of its refusal while retractions of the table are stored.
        blanks_differ: clients that answer differently what `listagg` makes of texts that are empty or white space.
    """

    name: str
    values: Fields
    options: Mapping[str, str]
    kinds: tuple[str, ...] = ADDS
    refused: Mapping[str, str] = field(default_factory=dict)
    refused_merges: Mapping[str, str] = field(default_factory=dict)
    blanks_differ: tuple[str, ...] = ()

    @property
    def shape(self) -> TableShape:
        """The table to make: one bucket, so that a test knows which files meet."""
        return TableShape((("k", "INT NOT NULL"), *self.values), ("k",), (), {"bucket": "1", **self.options})

    @property
    def engine(self) -> str:
        """The merge engine that the format knows."""
        engine = self.options.get("merge-engine", "deduplicate")
        return "deduplicate" if engine == "versioned" else engine

    @property
    def removes(self) -> bool:
        """Whether a -D removes a row that versions are folded into."""
        return any(".remove-record-on-" in option for option in self.options)

    @property
    def ordering(self) -> frozenset[str]:
        """Columns that order a sequence group."""
        groups = [option for option in self.options if option.endswith(".sequence-group")]
        return frozenset(name for option in groups for name in option.split(".")[1].split(","))

    def changes(
        self, random: Random, kinds: Sequence[str], there: set[int], *, blanks: bool = True, spread: bool = False
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Rows of one commit and their kinds, with keys that come again, but where retractions are folded.

        Which row a retraction leaves where there was none, and what one takes back that is the first of its flush,
        is answered differently by the clients; so it takes back from a row that is there, in a commit of its own.

        Args:
            random: what is drawn from.
            kinds: to choose from.
            there: keys of rows that are there.
            blanks: whether texts may be empty or white space.
            spread: the table is one of `spread_out`.
        """
        keys = random.choices(KEYS, k=random.randrange(3, 12))
        if self.engine == "deduplicate" or set(kinds) <= set(ADDS):
            rows = [self.row(random, key, blanks=blanks, spread=spread) for key in keys]
            return rows, random.choices(kinds, k=len(keys))
        keys = list(dict.fromkeys(keys))
        chosen = [random.choice(kinds if key in there else ADDS) for key in keys]
        rows = [self.row(random, key, blanks=blanks, spread=spread) for key in keys]
        if self.removes:  # for some, values of a delete shine through what comes later
            for row, kind in zip(rows, chosen, strict=True):
                if kind == "-D":
                    row |= {name: None for name, _ in self.values if name not in self.ordering}
        return rows, chosen

    def row(self, random: Random, key: int, *, blanks: bool = True, spread: bool = False) -> dict[str, Any]:
        """A row of a key, without texts that are empty or white space if need be."""
        row = {"k": key} | {name: _value(random, paimon_type, blanks) for name, paimon_type in self.values}
        return row | ({"p": "xy"[key % 2]} if spread else {})


def spread_out(shape: TableShape) -> TableShape:
    """The same table with two partitions, of three buckets each."""
    fields = (("p", "STRING NOT NULL"), *shape.fields)
    return TableShape(fields, ("p", "k"), ("p",), {**shape.options, "bucket": "3"})


def _value(random: Random, paimon_type: PaimonType, blanks: bool) -> Any:
    pool = _POOLS[type_text(paimon_type)]
    if not blanks:
        pool = tuple(value for value in pool if not isinstance(value, str) or value.strip())
    return None if random.random() < 0.3 else random.choice(pool)


_GROUPS: Fields = (
    ("g", "INT"),
    ("a", "STRING"),
    ("n", "BIGINT"),
    ("g1", "DATE"),
    ("g2", "INT"),
    ("b", "DOUBLE"),
    ("l", "STRING"),
    ("free", "STRING"),
)
_GROUP_OPTIONS = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "a,n",
    "fields.n.aggregate-function": "sum",
    "fields.g1,g2.sequence-group": "b,l",
}
_AGGREGATES: Fields = (
    ("sum_int", "INT"),
    ("sum_bigint", "BIGINT"),
    ("sum_double", "DOUBLE"),
    ("sum_decimal", "DECIMAL(10, 2)"),
    ("greatest", "STRING"),
    ("greatest_time", "TIMESTAMP(6)"),
    ("least", "DOUBLE"),
    ("least_date", "DATE"),
    ("newest", "STRING"),
    ("newest_there", "INT"),
    ("oldest", "STRING"),
    ("oldest_there", "INT"),
    ("texts", "STRING"),
    ("numbers", INTS),
    ("some", "BOOLEAN"),
    ("all", "BOOLEAN"),
)
_AGGREGATE_OPTIONS = {"merge-engine": "aggregation"} | {
    f"fields.{name}.aggregate-function": function
    for name, function in {
        "sum_int": "sum",
        "sum_bigint": "sum",
        "sum_double": "sum",
        "sum_decimal": "sum",
        "greatest": "max",
        "greatest_time": "max",
        "least": "min",
        "least_date": "min",
        "newest": "last_value",
        "newest_there": "last_non_null_value",
        "oldest": "first_value",
        "oldest_there": "first_non_null_value",
        "texts": "listagg",
        "numbers": "collect",
        "some": "bool_or",
        "all": "bool_and",
    }.items()
}
_RETRACTABLE: Fields = (
    ("total", "BIGINT"),
    ("price", "DECIMAL(10, 2)"),
    ("newest", "STRING"),
    ("there", "INT"),
    ("numbers", INTS),
)
_RETRACTABLE_OPTIONS = {
    "merge-engine": "aggregation",
    "fields.total.aggregate-function": "sum",
    "fields.price.aggregate-function": "sum",
    "fields.newest.aggregate-function": "last_value",
    "fields.numbers.aggregate-function": "collect",
}
_BLANKS = (PYPAIMON, JAVA)
"""pypaimon merges lone versions too, and makes null of a blank one; the released Java joins blank texts like others."""
_NO_GROUPS = {PYPAIMON: "does not yet implement: .*sequence-group"}
_PLAIN: Fields = (("a", "STRING"), ("b", "BIGINT"), ("c", INTS))
_ORDERED: Fields = (("s", "BIGINT"), *_PLAIN)

CASES = {
    case.name: case
    for case in (
        EngineCase("deduplicate", _PLAIN, {}, ALL_KINDS),
        EngineCase("deduplicate by sequence", _ORDERED, {"sequence.field": "s"}, ALL_KINDS),
        EngineCase(
            "deduplicate by two, descending",
            (("s", "TIMESTAMP(3)"), ("t", "STRING"), ("v", "INT")),
            {"sequence.field": "s,t", "sequence.field.sort-order": "descending"},
            ALL_KINDS,
        ),
        EngineCase("deduplicate, deletes ignored", _PLAIN, {"ignore-delete": "true"}, ALL_KINDS),
        EngineCase("versioned", _ORDERED, {"merge-engine": "versioned", "merge-engine.versioned.ver-column": "s"}),
        EngineCase("partial-update", _PLAIN, {"merge-engine": "partial-update"}),
        EngineCase("partial-update by sequence", _ORDERED, {"merge-engine": "partial-update", "sequence.field": "s"}),
        EngineCase("sequence groups", _GROUPS, _GROUP_OPTIONS, ALL_KINDS, _NO_GROUPS),
        EngineCase(
            "sequence groups with listagg",
            _GROUPS,
            {**_GROUP_OPTIONS, "fields.l.aggregate-function": "listagg"},
            refused=_NO_GROUPS,
            # a blank text beside nulls alone: we keep the first to touch the group as it is; Java joins blank texts too
            blanks_differ=(RUST, JAVA),
        ),
        EngineCase(
            "sequence groups, deletes ignored",
            _GROUPS,
            {**_GROUP_OPTIONS, "ignore-delete": "true"},
            ALL_KINDS,
            {PYPAIMON: "does not yet implement: .*ignore-delete"},
        ),
        EngineCase(
            "sequence groups that remove",
            _GROUPS,
            {**_GROUP_OPTIONS, "partial-update.remove-record-on-sequence-group": "g"},
            (*ADDS, "-D"),
            _NO_GROUPS,
        ),
        EngineCase(
            "partial-update that removes",
            _PLAIN,
            {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
            (*ADDS, "-D"),
            {PYPAIMON: "does not yet implement: partial-update.remove-record-on-delete"},
        ),
        EngineCase("aggregation", _AGGREGATES, _AGGREGATE_OPTIONS, blanks_differ=_BLANKS),
        EngineCase(
            "aggregation by sequence",
            (("s", "INT"), *_AGGREGATES),
            {**_AGGREGATE_OPTIONS, "sequence.field": "s"},
            blanks_differ=_BLANKS,
        ),
        EngineCase(
            "aggregation of maps",
            (("entries", COUNTS),),
            {"merge-engine": "aggregation", "fields.entries.aggregate-function": "merge_map"},
            refused={PYPAIMON: "must be dict|expecting a tuple"},
        ),
        EngineCase(
            "aggregation that takes back",
            _RETRACTABLE,
            _RETRACTABLE_OPTIONS,
            ALL_KINDS,
            refused_merges={PYPAIMON: "received a -[DU] row"},
        ),
        EngineCase(
            "aggregation that removes",
            _RETRACTABLE,
            {**_RETRACTABLE_OPTIONS, "aggregation.remove-record-on-delete": "true"},
            (*ADDS, "-D"),
            {PYPAIMON: "does not yet implement: aggregation.remove-record-on-delete"},
        ),
        EngineCase("first-row", _PLAIN, {"merge-engine": "first-row"}),
        EngineCase(
            "first-row, deletes ignored", _PLAIN, {"merge-engine": "first-row", "ignore-delete": "true"}, ALL_KINDS
        ),
    )
}
