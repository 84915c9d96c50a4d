"""A slice of the campaign of tests/faults/data_damage.py: flipped bits in data files, vectors and all metadata."""

from __future__ import annotations

import pytest

from tests.faults.data_damage import run, tables


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize(
    "name",
    ["parquet-zstd-keyed", "orc-none-keyed", "orc-zstd-append", "avro-none-append", "vectors-orc", "keys-parquet"],
)
def test_no_flipped_bit_is_believed_or_silent(name: str) -> None:
    report = run(name, tables()[name], 12, 5)
    assert not report.failures, "\n".join(report.failures)
    assert report.outcomes["named by both"] + report.outcomes["right rows, named by check"] >= 12
