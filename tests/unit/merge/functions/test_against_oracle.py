"""Every aggregate function against the oracle, over random groups of every type that it takes."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from merganser.merge.groups import Groups
from merganser.rules.merging import FUNCTIONS
from merganser.schema import types as t

from .cases import NUMBERS, ROW, build, check, maybe, random_groups

INTEGERS = [t.TinyInt(), t.SmallInt(), t.Int(), t.BigInt()]
DECIMALS = [t.Decimal(4, 2), t.Decimal(18, 0), t.Decimal(18, 6), t.Decimal(30, 4), t.Decimal(38, 10), t.Decimal(38, 0)]
NUMERIC = [*INTEGERS, t.Float(), t.Double(), *DECIMALS]
ORDERED = [
    *NUMERIC, t.Boolean(), t.string(), t.Char(5), t.VarBinary(), t.Date(), t.Time(), t.Timestamp(3), t.Timestamp(9),
    t.LocalZonedTimestamp(6),
]  # fmt: skip
ARRAYS = [
    t.Array(element=t.Int()), t.Array(element=t.string()), t.Array(element=t.Double()), t.Array(element=ROW),
    t.Array(element=t.Decimal(20, 2)), t.Array(element=t.Array(element=t.Int())), t.Array(element=t.Timestamp(3)),
    t.Array(element=t.Map(key=t.string(nullable=False), value=t.Int())),
]  # fmt: skip
MAPS = [
    t.Map(key=t.Int(nullable=False), value=t.string()),
    t.Map(key=t.string(nullable=False), value=t.Array(element=t.Int())),
    t.Map(key=t.Double(nullable=False), value=ROW),
]  # fmt: skip
ROWS = t.Array(element=ROW)
EVERY = [*ORDERED, *ARRAYS[:4], MAPS[0], ROW]

Case = tuple[str, t.DataType, dict[str, str]]
CASES: list[Case] = [
    *[(name, kind, {}) for name in ("sum", "product") for kind in NUMERIC],
    *[("count", kind, {}) for kind in (t.Int(), t.BigInt())],
    *[(name, kind, {}) for name in ("max", "min") for kind in ORDERED],
    *[
        (name, kind, {})
        for name in ("last_value", "last_non_null_value", "first_value", "first_non_null_value", "primary-key")
        for kind in EVERY
    ],
    ("first_not_null_value", t.Int(), {}),
    ("bool_and", t.Boolean(), {}),
    ("bool_or", t.Boolean(), {}),
    *[("listagg", t.string(), {"list-agg-delimiter": d} | o)
      for d in (",", "; ", "") for o in ({}, {"distinct": "true"})],
    ("listagg", t.string(), {}),
    *[("collect", kind, o) for kind in ARRAYS for o in ({}, {"distinct": "true"})],
    *[("merge_map", kind, {}) for kind in MAPS],
    *[("merge_map_with_keytime", t.Map(key=key, value=ROW), o)
      for key in (t.Int(nullable=False), t.string(nullable=False)) for o in ({}, {"ts-field": "v"})],
    ("merge_map_with_keytime", t.Map(key=t.Int(nullable=False), value=NUMBERS), {"ts-field": "n"}),
    *[("nested_update", t.Array(element=row), o | limit)
      for row in (ROW, NUMBERS) for limit in ({}, {"count-limit": "2"})
      for o in ({}, {"nested-key": "id"}, {"nested-key": "id", "nested-key-null-strategy": "ignore"})],
    ("nested_update", ROWS, {"nested-key": "id,v", "nested-sequence-field": "ts"}),
    ("nested_update", t.Array(element=NUMBERS), {"nested-key": "id", "nested-sequence-field": "n,x"}),
    ("nested_update", ROWS, {"nested-key": "id", "nested-sequence-field": "ts", "count-limit": "1"}),
    ("nested_update", ROWS, {"nested-key": "id", "nested-key-null-strategy": "error"}),
    *[("nested_partial_update", ROWS, {"nested-key": "id", "nested-key-null-strategy": n})
      for n in ("merge", "ignore", "error")],
    ("nested_partial_update", t.Array(element=NUMBERS), {"nested-key": "id,n"}),
]  # fmt: skip


def _id(value: Any) -> str:
    return str(value).replace(" ", "")


@pytest.mark.campaign(1 / 12)
@pytest.mark.parametrize(("name", "kind", "options"), CASES, ids=_id)
@pytest.mark.parametrize("retractions", ["none", "some", "ignored"])
def test_kernel_gives_what_the_oracle_gives(
    name: str, kind: t.DataType, options: dict[str, str], retractions: str
) -> None:
    rng = random.Random(zlib.crc32(f"{name} {kind} {options} {retractions}".encode()))
    if retractions == "ignored":
        options = options | {"ignore-retract": "true"}
    for round_ in range(30):
        # Few rows leave a chance that no group is refused, so that values are compared too.
        count = rng.choice([0, 1, 2, 5, 8, 30, 120])
        nulls = rng.choice([0.0, 0.2, 0.6, 1.0 if round_ % 10 == 0 else 0.4])
        small = rng.random() < 0.6
        values = [maybe(kind, rng, nulls, small) for _ in range(count)]
        groups = random_groups(count, rng, retractions=retractions != "none", size_max=rng.choice([2, 4, 20]))
        check(name, kind, options, values, groups, rng)


@pytest.mark.parametrize("name", ["max", "min", "last_value", "first_non_null_value", "listagg"])
def test_large_strings_stay_large(name: str) -> None:
    rng = random.Random(7)
    for _ in range(20):
        values = [maybe(t.string(), rng, 0.3) for _ in range(40)]
        groups = random_groups(40, rng, retractions=False)
        check(name, t.string(), {}, values, groups, rng, pa.large_string())


@pytest.mark.parametrize("name", ["sum", "product"])
@pytest.mark.parametrize("kind", [t.Double(), t.Float(), t.BigInt(), t.Decimal(10, 2)], ids=str)
def test_many_and_long_groups_fold_from_left_to_right(name: str, kind: t.DataType) -> None:
    """More groups than are folded in rounds, and some much longer than the others."""
    rng = random.Random(11)
    sizes = [rng.choice([1, 2, 3, 5, 9]) for _ in range(1500)] + [700, 40]
    count = sum(sizes)
    values = [maybe(kind, rng, 0.1) for _ in range(count)]
    if name == "product":
        values = [None if v is None else v if i % 40 == 0 else type(v)(1) for i, v in enumerate(values)]
    starts = np.cumsum([0, *sizes[:-1]])
    check(name, kind, {}, values, Groups(np.array(rng.sample(range(count), count)), starts), rng)


def test_every_function_of_the_format_is_there() -> None:
    for name, rule in FUNCTIONS.items():
        kind = next(k for k in (*EVERY, *MAPS, *ARRAYS, t.Map(key=t.Int(), value=ROW)) if rule.accepts(k))
        function = build(name, kind, {})
        assert function.name == name


@pytest.mark.parametrize(("name", "kind", "options"), CASES, ids=_id)
def test_a_table_without_rows_folds_to_nothing(name: str, kind: t.DataType, options: dict[str, str]) -> None:
    rng = random.Random(1)
    check(name, kind, options, [], random_groups(0, rng, retractions=True), rng)
