"""Tables that take what Debezium recorded of a real PostgreSQL hold what the database holds, value by value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

import merganser as mg
from tests.debezium import recordings
from tests.debezium.replica import apply, declare, unexplained

DEFAULTS: Final[Mapping[str, Mapping[str, str]]] = {"evolve": {"d1": "2020-01-01 00:00:00.5", "ee": "dé"}}
"""Defaults of columns that were added while the connectors ran."""

REFUSED: Final = {
    ("*", "toast"): "values that the source did not send",
    ("G", "nopk"): "updates of a table without a key in a flattened stream",
}
"""Tables whose records are refused."""


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path))
    found.create_database("s")
    return found


@pytest.mark.parametrize("letter", recordings.letters())
def test_declared_tables_hold_what_the_database_holds(catalog: mg.Catalog, letter: str) -> None:
    setting, records = recordings.setting(letter), recordings.records(letter)
    wrong = []
    for source in recordings.sources().values():
        if REFUSED.keys() & {(letter, source.name), ("*", source.name)}:
            continue
        table = declare(catalog, f"s.{source.topic}", source, setting)
        apply(table, source, records, setting)
        wrong += unexplained(source, table, records, setting, DEFAULTS)
    assert not wrong
