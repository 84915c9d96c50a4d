"""Recorded files of other writers: tables have the rows that the writers' own readers gave, or refuse them by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import merganser as mg

from .__main__ import RECORDED, form_of, in_short
from .compare import WAYS, outcome

OUTCOMES: dict[str, dict[str, list[str]]] = json.loads((RECORDED / "outcomes.json").read_text())


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    made = mg.catalog(str(tmp_path / "w"), options={"local.sync": "false"})
    made.create_database("db")
    return made


@pytest.mark.parametrize("writer", OUTCOMES)
def test_files_become_the_rows_that_their_writer_reads_or_are_refused(catalog: mg.Catalog, writer: str) -> None:
    found = {}
    for i, name in enumerate(OUTCOMES[writer]):
        ways = {w: outcome(catalog, f"db.t{i}_{w}", RECORDED / writer / name, w, form_of(name)) for w in WAYS}
        assert not [text for text in ways.values() if text.startswith("WRONG")], (name, ways)
        found[name] = list(in_short(ways))
    assert found == OUTCOMES[writer]
