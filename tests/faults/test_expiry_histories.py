"""Random histories with expiry: whatever is kept reads as it always did, and what nothing needs is gone.

More of them: `python -m tests.faults.expiry_histories --seeds 200`.
"""

from __future__ import annotations

import pytest

from tests.faults.expiry_histories import run_history
from tests.seeds import seeds


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("seed", seeds(6))
def test_what_is_kept_reads_as_it_did_and_nothing_dead_stays(seed: int) -> None:
    run_history(seed)
