"""The rows of the benchmarks of merge engines: five runs over the same keys, so that a key has some versions.

A run holds a key once. `partial` has ten value columns of which half the values are null, as joining several
sources makes them; `aggregates` has one column for each of sum, max and last value.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

RUNS = 5
KEYS_PER_ROW = 0.3
"""Distinct keys by rows in all: a key has three versions and a third on average."""
PARTIAL = {
    "k": "BIGINT NOT NULL",
    "a": "BIGINT",
    "b": "BIGINT",
    "c": "BIGINT",
    "d": "INT",
    "e": "INT",
    "f": "DOUBLE",
    "g": "DOUBLE",
    "h": "DOUBLE",
    "s": "STRING",
    "t": "STRING",
}
AGGREGATES = {"k": "BIGINT NOT NULL", "total": "BIGINT", "most": "DOUBLE", "last": "BIGINT"}
SHAPES = {"partial": PARTIAL, "aggregates": AGGREGATES}
ENGINES: dict[str, tuple[str, dict[str, str]]] = {
    "deduplicate, 10 columns": ("partial", {}),
    "partial-update": ("partial", {"merge-engine": "partial-update"}),
    "deduplicate, 3 columns": ("aggregates", {}),
    "aggregation": (
        "aggregates",
        {
            "merge-engine": "aggregation",
            "fields.total.aggregate-function": "sum",
            "fields.most.aggregate-function": "max",
            "fields.last.aggregate-function": "last_value",
        },
    ),
}
"""Each measured engine: the shape of its rows, and the options of its table."""


def arrow_schema(shape: str) -> pa.Schema:
    """The Arrow schema of a shape."""
    kinds = {"BIGINT": pa.int64(), "INT": pa.int32(), "DOUBLE": pa.float64(), "STRING": pa.string()}
    return pa.schema(
        [
            pa.field(name, kinds[text.removesuffix(" NOT NULL")], nullable=not text.endswith("NOT NULL"))
            for name, text in SHAPES[shape].items()
        ]
    )


def run_of(shape: str, rows: int, number: int, seed: int) -> pa.Table:
    """Run `number` of the five: a fifth of `rows`, keys in random order."""
    random = np.random.default_rng([seed, number])
    schema = arrow_schema(shape)
    count = rows // RUNS
    columns = [pa.array(random.choice(int(rows * KEYS_PER_ROW), count, replace=False))]
    for field in list(schema)[1:]:
        mask = random.random(count) < 0.5 if shape == "partial" else None
        columns.append(_values(field.type, count, mask, random))
    return pa.Table.from_arrays(columns, schema=schema)


def _values(kind: pa.DataType, count: int, mask: np.ndarray | None, random: np.random.Generator) -> pa.Array:
    if pa.types.is_floating(kind):
        return pa.array(random.normal(0, 1000, count), mask=mask)
    if pa.types.is_string(kind):
        words = pa.array([f"{i:07d}-{i * 7919 % 99991}" for i in range(20_000)])
        chosen = words.take(pa.array(random.integers(0, len(words), count)))
        return chosen if mask is None else pa.array(chosen, mask=None).filter(pa.array(~mask)).take(_places(mask))
    return pa.array(random.integers(0, 1_000_000, count).astype(kind.to_pandas_dtype()), mask=mask)


def _places(mask: np.ndarray) -> pa.Array:
    """Where each row finds its value among those that are not null; null for the others."""
    return pa.array(np.cumsum(~mask) - 1, mask=mask)
