"""Removals by several sequence groups: found in few passes, however many there are of one key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from merganser.merge import partial_update
from merganser.merge.groups import Groups
from merganser.merge.partial_update import PartialUpdate, SequenceGroup
from merganser.schema import row_kind


def test_many_removals_of_one_key_are_found_in_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 20_000
    numbers = np.arange(count, dtype=np.int64)
    kinds = np.where(numbers % 2 == 1, row_kind.DELETE, row_kind.INSERT).astype(np.int8)
    rows = pa.table({"k": np.zeros(count, np.int32), "g": numbers, "h": numbers, "a": numbers, "b": numbers})
    engine = PartialUpdate(
        ("k",), {}, (SequenceGroup(("g",), ("a",), removes=True), SequenceGroup(("h",), ("b",), removes=True))
    )
    passes = []
    in_order = partial_update._in_order_of_any
    monkeypatch.setattr(partial_update, "_in_order_of_any", lambda *given: passes.append(1) or in_order(*given))
    folded = engine.fold(
        rows, Groups(numbers, np.zeros(1, np.int64), kinds == row_kind.INSERT), kinds, rows.column_names
    )
    assert folded.kinds is not None
    assert folded.kinds.tolist() == [row_kind.DELETE]
    assert len(passes) < 5
