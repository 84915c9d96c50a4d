"""Names that a call does not know are refused, with the nearest one that it knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from merganser.handle.system_table import TableView


@pytest.fixture
def table(tmp_path: Path) -> mg.Table:
    shop = mg.catalog(tmp_path)
    shop.create_database("s")
    found = shop.create_table("s.orders", {"id": "BIGINT"}, primary_key=["id"], options={"changelog-producer": "input"})
    assert isinstance(found, mg.Table)
    return found


CALLS: dict[str, tuple[Callable[[mg.Table], Any], str]] = {
    "an argument of stream": (lambda t: t.stream(folow=False), "unknown argument or option 'folow'.*'follow'"),
    "an option of stream": (lambda t: t.stream(**{"scan.mod": "latest"}), "'scan.mod'.*Did you mean 'scan.mode'"),
    "nothing similar": (lambda t: t.stream(zzz=1), "unknown argument or option 'zzz'. There is none"),
    "a view": (lambda t: TableView(t, "audit_log").stream(consumr="a"), "'consumr'.*'consumer'"),
    "a handle": (lambda t: t.with_options({"x-foo": "1"}), "unknown table option 'x-foo'"),
    "change records": (
        lambda t: t.write_changes([], "debezium-json", deadletters=None),
        "'deadletters'.*'dead_letters'",
    ),
    "records that are parsed": (lambda t: mg.cdc.parse([], "json", t, key=None), "'key'. Did you mean 'keys'"),
}


@pytest.mark.parametrize("call", CALLS)
def test_names_that_a_call_does_not_know_are_refused(table: mg.Table, call: str) -> None:
    run, said = CALLS[call]
    with pytest.raises(InvalidInputError, match=said):
        run(table)


def test_options_of_other_engines_are_no_mistakes(table: mg.Table) -> None:
    table.with_options({"flink.anything": "1", "commit.callbacks": "x", "fields.id.min": "1"})


def test_pythons_own_errors_name_the_table(table: mg.Table) -> None:
    with pytest.raises(TypeError, match=r"^Table\.lookup\(\)"):
        table.lookup(keyz=1)  # type: ignore[call-arg]


def test_types_have_their_article(table: mg.Table) -> None:
    with pytest.raises(InvalidInputError, match=r"cannot take rows from an int\. Give"):
        table.write(5)
