"""Random histories of tables whose schemas change, held against the oracle after every step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.schema_histories import History
from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds(6))
def test_rows_stay_what_they_are_whatever_changes_around_them(seed: int, tmp_path: Path) -> None:
    History(seed, tmp_path).run()
