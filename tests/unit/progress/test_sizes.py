"""Numbers of bytes as a person reads them."""

from __future__ import annotations

import pytest

from merganser.progress.sizes import size_text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (0, "0 bytes"),
        (1023, "1,023 bytes"),
        (1536, "1.5 KB"),
        (1 << 20, "1.0 MB"),
        ((1 << 20) - 1, "1.0 MB"),
        (3 << 40, "3.0 TB"),
    ],
)
def test_sizes_are_for_people(given: int, shown: str) -> None:
    assert size_text(given) == shown
