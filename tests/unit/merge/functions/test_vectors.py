"""The conformance vectors of aggregation, column by column: each commit folded, then what the commits left."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyroaring
import pytest

from merganser.errors import InvalidInputError
from merganser.merge.functions import bitmap64
from merganser.merge.functions.registry import function_for
from merganser.merge.groups import Groups
from merganser.options import write as w
from merganser.options.option import Options
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.types_text import parse_type

FILES = Path(__file__).parents[3] / "vectors"
NAMES = ("aggregation.json", "seed_examples.json")


def _cases() -> list[Any]:
    every = [case for name in NAMES for case in json.loads((FILES / name).read_text())]
    return [
        case
        for case in every
        if case.get("options", {}).get("merge-engine") == "aggregation"
        and all(step["op"] == "write" and "columns" not in step for step in case["steps"])
        and case["steps"]
        and ("expect_rows" in case or case.get("error_at") == "merge")
        and not any("remove-record" in key or "rowkind" in key or "sequence" in key for key in case["options"])
        and case["primary_key"] == [case["schema"][0][0]]
    ]


def _value(given: Any, kind: t.DataType) -> Any:
    """Return a JSON value as Arrow takes it."""
    match kind:
        case _ if given is None:
            return None
        case t.Decimal():
            return Decimal(given)
        case t.Float() | t.Double():
            return float(given)
        case t.VarBinary():
            return _bytes(given)
        case t.Array(element=element):
            return [_value(one, element) for one in given]
        case t.Map(key=key, value=item):
            return [(_value(k, key), _value(v, item)) for k, v in given["map"]]
        case t.Row(fields=fields):
            return {field.name: _value(one, field.type) for field, one in zip(fields, given, strict=True)}
    return given


def _bytes(given: dict[str, Any]) -> bytes:
    [(form, members)] = given.items()
    if form == "hex":
        return bytes.fromhex(members)
    if form == "rbm32":
        return bytes(pyroaring.BitMap(members).serialize())
    if form == "rbm64":
        return bitmap64.write(pyroaring.BitMap64(members))
    library = pytest.importorskip("datasketches")
    sketch = library.hll_sketch(12) if form == "hll_sketch" else library.update_theta_sketch()
    for member in members:
        sketch.update(member)
    return bytes(sketch.serialize_compact() if form == "hll_sketch" else sketch.compact().serialize())


def _shown(found: Any, wanted: Any) -> Any:
    """Return a value as the vector shows it: of bytes the members, of sketches as many members as they estimate."""
    if not isinstance(found, bytes):
        return found
    [(form, members)] = wanted.items()
    if form == "rbm32":
        return sorted(pyroaring.BitMap.deserialize(found))
    if form == "rbm64":
        return sorted(bitmap64.read(found))
    if form == "hex":
        return found.hex()
    library = pytest.importorskip("datasketches")
    kind = library.hll_sketch if form == "hll_sketch" else library.compact_theta_sketch
    return members[: round(kind.deserialize(found).get_estimate())]


def _array(values: list[Any], kind: t.DataType) -> pa.ChunkedArray:
    arrow = arrow_type(kind)
    if pa.types.is_temporal(arrow) and any(isinstance(value, str) for value in values):
        return pa.chunked_array([pa.array(values, pa.string()).cast(arrow)])
    return pa.chunked_array([pa.array(values, arrow)])


def _folded(case: Any, index: int) -> dict[Any, Any]:
    """Return the value of a column by key, as reading the table would give it."""
    name, text = case["schema"][index]
    kind, options = parse_type(text), Options(case["options"])
    function = options.get(w.AGGREGATE_FUNCTION.of(name)) or options.get("fields.default-aggregate-function")
    field, left = t.Field(index, name, kind), {}
    for step in case["steps"]:
        rows: dict[Any, list[tuple[str, Any]]] = {}
        for row_kind, *values in step["rows"]:
            rows.setdefault(values[0], []).append((row_kind, _value(values[index], kind)))
        new = _merge(field, function or "last_non_null_value", options, rows, stored=False)
        for key, one in new.items():
            left.setdefault(key, []).append(one)
    merged = _merge(field, function or "last_non_null_value", options, left, stored=True)
    return {key: value for key, (row_kind, value) in merged.items() if row_kind in ("+I", "+U")}


def _merge(
    field: t.Field, name: str, options: Options, rows: dict[Any, list[tuple[str, Any]]], *, stored: bool
) -> dict[Any, tuple[str, Any]]:
    flat = [row for group in rows.values() for row in group]
    sizes = [len(group) for group in rows.values()]
    additions = np.array([kind in ("+I", "+U") for kind, _ in flat])
    groups = Groups(np.arange(len(flat)), np.cumsum([0, *sizes[:-1]]), additions)
    folded = function_for(field, name, options, stored=stored).fold(_array([v for _, v in flat], field.type), groups)
    kinds = ["+I" if additions[s:e].any() else "-D" for s, e in zip(groups.starts, groups.ends, strict=True)]
    values = folded.to_pylist() if not pa.types.is_temporal(folded.type) else folded.cast(pa.string()).to_pylist()
    return dict(zip(rows, zip(kinds, values, strict=True), strict=True))


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["name"])
def test_columns_of_the_vectors(case: Any) -> None:
    columns = range(1, len(case["schema"]))
    if "expect_error" in case:
        with pytest.raises(InvalidInputError, match=case["expect_error"]):
            [_folded(case, index) for index in columns]
        return
    for index in columns:
        kind = parse_type(case["schema"][index][1])
        found = _folded(case, index)
        for row in case["expect_rows"]:
            wanted = row[index]
            if isinstance(found[row[0]], bytes):
                assert _shown(found[row[0]], wanted) == next(iter(wanted.values()))
                continue
            wanted = wanted if pa.types.is_temporal(arrow_type(kind)) else _value(wanted, kind)
            got = found[row[0]]
            if isinstance(got, str) and pa.types.is_temporal(arrow_type(kind)):
                got = got.replace(" ", "T")
            assert got == wanted
        assert len(found) == len(case["expect_rows"])
