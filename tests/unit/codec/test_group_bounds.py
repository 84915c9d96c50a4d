"""Bounds of row groups that a Parquet footer notes: found, equal to the statistics, not trusted when damaged."""

from __future__ import annotations

import json
from typing import Any

import file_samples as samples
import pyarrow as pa
import pytest

from merganser.codec import group_bounds, parquet_footer
from merganser.codec.parquet_footer import read_footer
from merganser.schema import types as t
from merganser.schema.types_text import parse_type

SORTED: dict[str, list[Any]] = {
    "INT": [None, -5, -1, 0, 7, 9],
    "BIGINT": [-(2**63), -1, 0, 1, 2, 2**63 - 1],
    "STRING": [None, "", "a", "b", "zz", "é"],
    "DATE": [None, -1, 0, 1, 2, 3],
    "TIMESTAMP(3)": [-5, -1, 0, 1, 2, 3],
    "TIMESTAMP_LTZ(6)": [-5, -1, 0, 1, 2, 3],
    "VARBINARY(9)": [b"", b"\x00", b"\x01", b"a", b"b", b"\xff"],
}


def noting(kind: str, values: list[Any], **options: Any) -> tuple[t.Field, bytes]:
    field = t.Field(0, "k", parse_type(kind))
    rows = samples.table((field,), [values])
    return field, samples.written("parquet", (field,), rows, row_group_rows=2, sorted_by="k", **options)


@pytest.mark.parametrize("kind", SORTED)
def test_noted_bounds_are_those_of_the_statistics(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    field, data = noting(kind, SORTED[kind])
    values = SORTED[kind]
    assert samples.opened("parquet", data).group_bounds(field) == (values[0::2], values[1::2], [None] * 3)
    monkeypatch.setattr(group_bounds, "decode", lambda *_: None)
    statistics = samples.opened("parquet", data).group_bounds(field)
    assert statistics is not None
    lowest_of_known = [low if low is not None else high for low, high in zip(values[0::2], values[1::2], strict=True)]
    assert statistics[:2] == (lowest_of_known, values[1::2])


def test_noted_bounds_spare_the_walk_through_the_footer(monkeypatch: pytest.MonkeyPatch) -> None:
    field, data = noting("INT", SORTED["INT"])
    monkeypatch.setattr(parquet_footer.Chunks, "statistics", lambda *_: pytest.fail("the footer was walked through"))
    assert samples.opened("parquet", data).group_bounds(field) is not None


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "BOOLEAN"])
def test_types_whose_order_differs_are_not_noted(kind: str) -> None:
    _, data = noting(kind, [None] * 6)
    assert group_bounds.KEY.encode() not in data


def test_long_bounds_are_not_noted() -> None:
    _, data = noting("STRING", ["a" * 300, "b" * 300, "c" * 300])
    assert group_bounds.KEY.encode() not in data


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"column": "k"}', "flipped", "fewer"])
def test_damaged_notes_are_left_alone(damage: str) -> None:
    field, data = noting("INT", SORTED["INT"])
    metadata = parquet_footer.parsed(read_footer(pa.BufferReader(data))).metadata
    assert metadata is not None
    noted = json.loads(metadata[group_bounds.KEY.encode()])
    if damage == "flipped":
        damage = json.dumps(noted | {"crc": noted["crc"] ^ 1})
    elif damage == "fewer":
        damage = json.dumps(noted | {"sizes": noted["sizes"][:-1]})
    assert group_bounds.decode({group_bounds.KEY.encode(): damage.encode()}, field, 3) is None
    assert group_bounds.decode(metadata, field, 3) is not None
    assert group_bounds.decode(metadata, t.Field(0, "other", t.Int()), 3) is None
    assert group_bounds.decode(metadata, t.Field(0, "k", t.VarChar(9)), 3) is None
    assert group_bounds.decode(None, field, 3) is None
