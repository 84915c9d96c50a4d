"""A slice of the campaign: a stream is killed right after a snapshot came to be, and goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from . import chain
from .campaign import Accounts, arrive, differences, run

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_stream_that_is_killed_after_a_commit_goes_on_without_loss_or_repeat(tmp_path: Path) -> None:
    rng = random.Random(7)
    chain.create(tmp_path)
    accounts: Accounts = {}
    arrive(tmp_path, rng, accounts, 2)
    assert not run(tmp_path, "create:1:after", 1)
    assert (tmp_path / "killed").read_text().startswith("create:1:after")
    arrive(tmp_path, rng, accounts, 1)
    assert run(tmp_path, None, 1)
    assert differences(tmp_path, accounts, 1) == []
