"""Rows of more bytes than one array of text holds are kept, gathered and compared in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import merganser as mg
from merganser.lsm.gather import Gather
from merganser.schema import pieces
from merganser.schema.same import same_rows

VALUES: dict[str, list[Any]] = {
    "k": list(range(8)),
    "text": ["x" * 200 * n if n != 3 else None for n in range(8)],
    "one": [{"a": n, "b": "y" * 300} if n != 4 else None for n in range(8)],
    "many": [["z" * 100] * n if n != 5 else None for n in range(8)],
    "pairs": [[("k", "v" * 100 * n)] if n != 6 else None for n in range(8)],
}
TYPES = pa.schema(
    {
        "k": pa.int64(),
        "text": pa.string(),
        "one": pa.struct({"a": pa.int32(), "b": pa.binary()}),
        "many": pa.list_(pa.string()),
        "pairs": pa.map_(pa.string(), pa.string()),
    }
)
ROWS = pa.table(
    {name: [value and {"a": value["a"], "b": value["b"].encode()} for value in values] if name == "one" else values
     for name, values in VALUES.items()}, TYPES
)  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(pieces, "PIECE_BYTES_MAX", 1_000)
    return 1_000


def chunked() -> pa.Table:
    return pa.concat_tables([ROWS.slice(0, 3), ROWS.slice(3, 1), ROWS.slice(4)])


@pytest.mark.parametrize("rows", [ROWS, chunked(), ROWS.slice(2, 5)], ids=["one chunk", "chunks", "slice"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 4, 0, 3, 3, 2, 1, 1, 1], [], [2] * 30])
def test_rows_are_gathered_in_pieces_that_one_array_holds(rows: pa.Table, order: list[int], small: int) -> None:
    at = np.array(order, np.int64)
    found = pieces.rows_at(rows, at)
    assert found.equals(rows.take(pa.array(at)))
    found.validate(full=True)
    chunks = [chunk for column in found.columns[1:] for chunk in column.chunks]
    assert all(chunk.nbytes <= small or len(chunk) == 1 for chunk in chunks)


def test_large_columns_stay_in_chunks_and_others_do_not(small: int) -> None:
    whole = pieces.in_one(chunked())
    assert whole.equals(ROWS)
    assert [column.num_chunks for column in whole.columns] == [1, 3, 3, 3, 3]
    assert Gather(whole).take(np.array([7, 0, 3])).equals(ROWS.take([7, 0, 3]))
    assert same_rows(ROWS, whole).all()
    other = ROWS.set_column(1, "text", pa.array(["x" * 200 * n for n in range(8)]))
    assert same_rows(chunked(), other).tolist() == [n != 3 for n in range(8)]


def test_slices_have_at_most_the_maximum_of_bytes_and_hold_each_row_once(small: int) -> None:
    found = list(pieces.pieces(chunked()))
    assert [n for start, count in found for n in range(start, start + count)] == list(range(8))
    assert all(not pieces.is_large(ROWS.slice(start, count)) for start, count in found)


def test_every_way_of_writing_takes_rows_beyond_the_maximum(small: int, tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("s")
    keyed = catalog.create_table("s.keyed", TYPES, primary_key=["k"], options={"bucket": "2"})
    plain = catalog.create_table("s.plain", TYPES)
    half, wanted = ROWS.slice(4), ROWS.to_pylist()
    keyed.write(chunked())
    plain.write(chunked())
    assert keyed.read().to_arrow().sort_by("k").to_pylist() == wanted
    found = keyed.upsert(pa.concat_tables([ROWS.slice(0, 2), half.set_column(1, "text", [["new"] * 4])]))
    assert (found.updated, found.unchanged) == (4, 2)
    assert found.changes is not None
    assert found.changes.num_rows == 8
    for table in (keyed, plain):
        table.merge(chunked(), on="target.k = source.k").when_matched_update().when_not_matched_insert().execute()
        assert table.read().to_arrow().sort_by("k").to_pylist() == wanted
        table.update("k > 3", {"text": "'new'"})
        table.compact(full=True)
        assert table.read(columns=["text"]).to_arrow().column(0).to_pylist().count("new") == 4
    keyed.upsert(chunked(), columns=ROWS.column_names)
    assert keyed.lookup(ROWS.select(["k"])).to_pylist() == wanted
