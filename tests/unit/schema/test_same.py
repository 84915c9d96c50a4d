"""Rows that are the same, against Python."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from merganser.schema.same import same_rows

_PLAIN: dict[pa.DataType, list[Any]] = {
    pa.int32(): [None, 0, 1],
    pa.float64(): [None, 0.0, -0.0, 1.5, float("nan"), float("inf")],
    pa.float32(): [None, 0.0, -0.0, float("nan")],
    pa.string(): [None, "", "a", "b"],
    pa.binary(): [None, b"", b"a"],
    pa.bool_(): [None, True, False],
    pa.timestamp("us"): [None, 0, 1],
}
_TYPES = [
    *_PLAIN,
    pa.list_(pa.float64()),
    pa.map_(pa.string(), pa.int32()),
    pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.list_(pa.string()))]),
    pa.list_(pa.struct([("a", pa.map_(pa.string(), pa.list_(pa.float32())))])),
]


def _value(rng: random.Random, kind: pa.DataType, nullable: bool = True) -> Any:
    if nullable and rng.random() < 0.2:
        return None
    if pa.types.is_list(kind):
        return [_value(rng, kind.value_type) for _ in range(rng.randrange(3))]
    if pa.types.is_map(kind):
        return [(key, _value(rng, kind.item_type)) for key in rng.sample("ab", rng.randrange(3))]
    if pa.types.is_struct(kind):
        return {field.name: _value(rng, field.type, field.nullable) for field in kind}
    return rng.choice(_PLAIN[kind][not nullable :])


@pytest.mark.parametrize("kind", _TYPES, ids=str)
def test_rows_are_the_same_if_python_writes_them_alike(kind: pa.DataType) -> None:
    rng = random.Random(str(kind))
    a, b = ([_value(rng, kind) for _ in range(200)] for _ in range(2))
    b = [one if rng.random() < 0.5 else other for one, other in zip(a, b, strict=True)]
    left = pa.table({"c": pa.chunked_array([pa.array(a[:77], kind), pa.array(a[77:], kind)])})
    right = pa.table({"c": pa.array([None, *b], kind).slice(1)})
    pairs = zip(left["c"].to_pylist(), right["c"].to_pylist(), strict=True)
    wanted = [repr(one) == repr(other) for one, other in pairs]
    assert same_rows(left, right).tolist() == wanted
    assert any(wanted)
    assert not all(wanted)


def test_no_rows_are_the_same_as_no_rows() -> None:
    nothing = pa.table({"c": pa.array([], pa.list_(pa.int32()))})
    assert same_rows(nothing, nothing).tolist() == []
