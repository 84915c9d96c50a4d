"""Rows of many bytes are checked and sorted in slices."""

from __future__ import annotations

import pyarrow as pa
import pytest

from merganser.ingest.rows import in_pieces


@pytest.mark.parametrize(("most", "pieces"), [(1 << 30, 1), (5_000, 4), (1, 8)])
def test_slices_have_at_most_so_many_bytes_and_hold_each_row_once(most: int, pieces: int) -> None:
    rows = pa.table({"k": list(range(8)), "v": ["x" * 2_000] * 8})
    kinds = pa.array([0, 1, 2, 3] * 2, pa.int8())
    found = list(in_pieces(rows, kinds, most))
    assert len(found) == pieces
    assert pa.concat_tables([piece for piece, _ in found]).equals(rows)
    assert pa.concat_arrays([part for _, part in found if part is not None]).equals(kinds)
    assert all(piece["v"].nbytes <= most or piece.num_rows == 1 for piece, _ in found)
