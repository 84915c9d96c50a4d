"""Schemas changed at the shell."""

from __future__ import annotations

import merganser as mg

from .conftest import Run


def test_columns_and_options_are_changed_one_command_at_a_time(run: Run, orders: mg.Table) -> None:
    calls = [
        ("add-column", "amount", "DECIMAL(10, 2)", "--after", "id", "--default", "1.50", "--comment", "in euros"),
        ("rename-column", "note", "text"),
        ("retype-column", "amount", "DECIMAL(12, 2)"),
        ("move-column", "text", "--first"),
        ("add-column", "part", "ROW<x INT, y INT>"),
        ("drop-column", "part.x"),
        ("set-default", "amount", "2"),
        ("set-default", "amount", "-5"),
        ("set-default", "amount"),
        ("comment", "of the shop"),
        ("comment", "", "--column", "amount"),
        ("set-option", "snapshot.num-retained.max", "20"),
        ("remove-option", "snapshot.num-retained.max"),
    ]
    for i, (verb, *given) in enumerate(calls):
        assert run("alter", verb, "shop.orders", *given) == (0, f"schema {i + 1}\n", "")
    schema = mg.table(orders.path).schema
    assert schema.names[:3] == ("text", "id", "amount")
    assert (str(schema.field("amount").type), schema.field("amount").description) == ("DECIMAL(12, 2)", None)
    assert str(schema.field("part").type) == "ROW<y INT>"
    assert schema.comment == "of the shop"


def test_a_table_gets_a_primary_key(run: Run, orders: mg.Table) -> None:
    run("create-table", "shop.log", "-c", "id INT", "-c", "v INT")
    log = mg.table(orders.path.replace("orders", "log"))
    log.write([{"id": 1, "v": 1}, {"id": 1, "v": 2}])
    refused = run("alter", "set-primary-key", "shop.log", "id")
    assert refused.code == 1
    assert "2 rows share 1 value of the primary key (id): id = 1 (2 rows)" in refused.err
    assert run("alter", "set-primary-key", "shop.log", "id", "-o", "merge-engine=deduplicate").out == "schema 1\n"
    assert mg.table(log.path).read().to_pylist() == [{"id": 1, "v": 2}]


def test_an_option_that_there_is_not_is_not_removed(run: Run, orders: mg.Table) -> None:
    refused = run("alter", "remove-option", "shop.orders", "snapshot.time-retaind")
    assert refused.code == 1
    assert "unknown table option 'snapshot.time-retaind'. Did you mean 'snapshot.time-retained'?" in refused.err


def test_nullability_is_changed_and_refusals_say_why(run: Run, orders: mg.Table) -> None:
    refused = run("alter", "set-nullable", "shop.orders", "note", "false")
    assert refused.code == 1
    assert "cannot become NOT NULL" in refused.err
    run("alter", "set-option", "shop.orders", "alter-column-null-to-not-null.disabled", "false")
    assert run("alter", "set-nullable", "shop.orders", "note", "false").code == 0
    assert not mg.table(orders.path).schema.field("note").type.nullable
    assert run("alter", "set-nullable", "shop.orders", "note", "true").out == "schema 3\n"
