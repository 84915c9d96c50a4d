"""Rows that are the same, and their hashes, against Python."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from merganser.schema.same import same_rows
from merganser.schema.value_hashes import row_hashes

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
    pa.map_(pa.struct([("k", pa.float64())]), pa.map_(pa.string(), pa.float64())),
]


def _value(rng: random.Random, kind: pa.DataType, nullable: bool = True) -> Any:
    if nullable and rng.random() < 0.2:
        return None
    if pa.types.is_list(kind):
        return [_value(rng, kind.value_type) for _ in range(rng.randrange(3))]
    if pa.types.is_map(kind):
        keys = rng.sample("ab" if pa.types.is_string(kind.key_type) else [{"k": 0.0}, {"k": -0.0}], rng.randrange(3))
        return [(key, _value(rng, kind.item_type)) for key in keys]
    if pa.types.is_struct(kind):
        return {field.name: _value(rng, field.type, field.nullable) for field in kind}
    return rng.choice(_PLAIN[kind][not nullable :])


def _written(value: Any, kind: pa.DataType) -> str:
    """Return a value as text, with the entries of maps in one order."""
    if value is not None and pa.types.is_map(kind):
        return str(sorted((_written(key, kind.key_type), _written(item, kind.item_type)) for key, item in value))
    if value is not None and pa.types.is_list(kind):
        return str([_written(item, kind.value_type) for item in value])
    if value is not None and pa.types.is_struct(kind):
        return str([_written(value[field.name], field.type) for field in kind])
    return repr(value)


@pytest.mark.parametrize("kind", _TYPES, ids=str)
def test_rows_and_their_hashes_are_the_same_if_python_writes_them_alike(kind: pa.DataType) -> None:
    rng = random.Random(str(kind))
    a, b = ([_value(rng, kind) for _ in range(200)] for _ in range(2))
    b = [one if rng.random() < 0.5 else other for one, other in zip(a, b, strict=True)]
    if pa.types.is_map(kind):
        b = [value and value[::-1] for value in b]
    left = pa.table({"c": pa.chunked_array([pa.array(a[:77], kind), pa.array(a[77:], kind)])})
    right = pa.table({"c": pa.array([None, *b], kind).slice(1)})
    texts, others = ([_written(value, kind) for value in side["c"].to_pylist()] for side in (left, right))
    wanted = [one == other for one, other in zip(texts, others, strict=True)]
    assert same_rows(left, right).tolist() == wanted
    hashes = [*row_hashes(left, 0).tolist(), *row_hashes(right, 0).tolist()]
    assert len(set(hashes)) == len(set(texts + others)) == len(set(zip(hashes, texts + others, strict=True)))
    assert any(wanted)
    assert not all(wanted)


def test_no_rows_are_the_same_as_no_rows() -> None:
    nothing = pa.table({"c": pa.array([], pa.list_(pa.int32()))})
    assert same_rows(nothing, nothing).tolist() == []
