"""Tables that take what Debezium recorded of real databases hold what the database holds, value by value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from tests.debezium import recordings
from tests.debezium.replica import apply, declare, make, sendable, unexplained

DEFAULTS: Final[Mapping[str, Mapping[str, str]]] = {"evolve": {"d1": "2020-01-01 00:00:00.5", "ee": "dé"}}
"""Defaults of columns that were added while the connectors ran."""


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path))
    found.create_database("s")
    return found


RECORDINGS: Final = [(folder, letter) for folder in recordings.FOLDERS for letter in recordings.letters(folder)]


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize(("folder", "letter"), RECORDINGS, ids=[letter for _, letter in RECORDINGS])
def test_declared_tables_hold_what_the_database_holds(catalog: mg.Catalog, folder: Path, letter: str) -> None:
    setting, records = recordings.setting(letter, folder), recordings.records(letter, folder)
    wrong = []
    for source in recordings.sources(folder).values():
        if not sendable(source, setting):
            continue
        table = declare(catalog, f"s.{source.topic}", source, setting)
        apply(table, source, records, setting)
        wrong += unexplained(source, table, records, setting, DEFAULTS)
    assert not wrong


SCHEMAS: Final = [(folder, letter) for folder, letter in RECORDINGS if recordings.setting(letter, folder).schemas]


@pytest.mark.parametrize(("folder", "letter"), SCHEMAS, ids=[letter for _, letter in SCHEMAS])
def test_tables_made_from_records_hold_what_the_database_holds(catalog: mg.Catalog, folder: Path, letter: str) -> None:
    setting, records = recordings.setting(letter, folder), recordings.records(letter, folder)
    wrong = []
    for source in recordings.sources(folder).values():
        if source.key:
            table = make(catalog, f"s.{source.topic}", source, records, setting)
            apply(table, source, records, setting)
            now = catalog.table(f"s.{source.topic}")  # with the columns that records brought
            wrong += unexplained(source, now, records, setting, DEFAULTS)
    assert not wrong


def test_a_flattened_update_of_a_table_without_a_key_is_refused(catalog: mg.Catalog) -> None:
    setting, source = recordings.setting("G"), recordings.sources()["nopk"]
    table = declare(catalog, "s.nopk", source, setting)
    with pytest.raises(InvalidInputError, match="missing-before: an update of a table without primary key"):
        apply(table, source, recordings.records("G"), setting)


def test_what_the_connector_changes_is_held_as_it_was_sent(catalog: mg.Catalog) -> None:
    """An enum label `with,comma`, and a column `ÜmLaut` whose name the connector garbles; docs/cdc.md tells both."""
    cases = (
        ("14_enum_comma", {"id": "DECIMAL(20, 0)", "en": "STRING"}, {"decimal": {"id": "base64"}}, "with\\,comma"),
        ("15_nonascii_column_name", {"Id": "INT", "ÜmLaut": "STRING"}, {}, None),
    )
    for name, columns, options, expected in cases:
        record = json.loads((recordings.HERE / "cases" / f"{name}.jsonl").read_text())
        table = catalog.create_table(f"s.t{name}", columns, primary_key=[next(iter(columns))], options={"bucket": "1"})
        table.write_changes([record["value"]], "debezium-json", keys=[record["key"]], **options)
        assert table.read().to_arrow().column(1).to_pylist() == [expected]
