"""Rows picked from a table are those that Arrow picks, whatever the columns and where their buffers begin."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest

from merganser.lsm.gather import Gather
from merganser.schema import spans

ROWS = 1_000


def _columns() -> dict[str, pa.Array]:
    chance = np.random.default_rng(7)
    numbers = chance.integers(-(10**6), 10**6, ROWS)
    null = chance.random(ROWS) < 0.3
    texts = [f"{number % 997:03}" for number in numbers]
    return {
        "whole": pa.array(numbers),
        "nulls": pa.array(numbers, mask=null),
        "small": pa.array((numbers % 100).astype(np.int8), mask=null),
        "flags": pa.array(numbers > 0, mask=null),
        "prices": pa.array([decimal.Decimal(int(n)).scaleb(-2) for n in numbers], pa.decimal128(12, 2), mask=null),
        "days": pa.array((numbers % 9_999).astype(np.int32), mask=null).cast(pa.date32()),
        "times": pa.array(numbers, pa.timestamp("us", "UTC"), mask=null),
        "codes": pa.array(texts),
        "large codes": pa.array(texts, pa.large_string()),
        "keys": pa.array([text.encode() for text in texts]),
        "one text differs": pa.array([*texts[:-2], "ab", "abcd"]),
        "empty texts": pa.array([""] * ROWS),
        "umlauts": pa.array(["ä" if number % 2 else "éé" for number in numbers]),
        "null texts": pa.array(texts, mask=null),
        "lists": pa.array([[int(n), None] if n % 3 else None for n in numbers], pa.list_(pa.int64())),
        "structs": pa.array([{"a": int(n)} if n % 5 else None for n in numbers]),
        "nothing": pa.nulls(ROWS),
    }


@pytest.mark.parametrize("part", [(0, ROWS), (13, 801), (ROWS - 1, 1), (5, 0)])
@pytest.mark.parametrize("name", sorted(_columns()))
def test_it_picks_what_arrow_picks(name: str, part: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "_BLOCK_ROWS", 64)
    table = pa.table({"c": _columns()[name]}).slice(*part)
    positions = np.random.default_rng(1).integers(0, max(1, part[1]), 2 * part[1])
    picker = Gather(table)
    for at in (positions, positions[:1], positions[:0]):
        found = picker.take(at)
        found.validate(full=True)
        assert found.equals(table.take(pa.array(at)))
        assert found.schema == table.schema


def test_it_picks_from_columns_in_several_pieces() -> None:
    table = pa.concat_tables([pa.table(_columns())] * 2)
    at = np.arange(2 * ROWS)[::-7]
    assert Gather(table).take(at).equals(table.take(pa.array(at)))


def test_a_position_that_is_not_there_is_refused() -> None:
    for name in ("whole", "nulls", "codes"):
        with pytest.raises(pa.ArrowIndexError):
            Gather(pa.table({"c": _columns()[name]})).take(np.array([ROWS]))
