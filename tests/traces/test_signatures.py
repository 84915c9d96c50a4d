"""The public surface changes on purpose only. After such a change: `python -m tests.traces`."""

from __future__ import annotations

from .signatures import signatures
from .test_traces import HERE


def test_the_public_surface_is_what_it_was() -> None:
    assert signatures() == (HERE / "signatures.txt").read_text(encoding="utf-8")
