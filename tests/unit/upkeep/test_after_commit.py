"""Maintenance after a commit: what fails there fails no write."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest

import merganser as mg
from merganser import changes as c
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
OPTIONS = {"bucket": "1", "snapshot.expire.execution-mode": "async"}


def _written(table: mg.Table) -> Any:
    with table.writer() as writer:
        writer.write([{"k": 7, "v": "a"}])
        return writer.commit()


WRITES: dict[str, Callable[[mg.Table], Any]] = {
    "write": lambda table: table.write([{"k": 7, "v": "a"}]),
    "writer": _written,
    "upsert": lambda table: table.upsert([{"k": 7, "v": "a"}]),
    "update": lambda table: table.update("k = 1", {"v": "'a'"}),
    "delete": lambda table: table.delete("k = 1"),
    "truncate": lambda table: table.truncate(),
    "changes": lambda table: table.write_changes(['{"op":"c","after":{"k":7,"v":"a"}}'], "debezium-json"),
    "primary key": lambda table: table.alter([c.set_primary_key(["k"])]),
}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("failing", ["submit", "compact_after"])
def test_a_write_succeeds_although_the_maintenance_after_it_fails(
    how: str, failing: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = catalog_over(memory_with({}, f"after-commit-{next(_names)}"))
    catalog.create_database("db")
    key = [] if how == "primary key" else ["k"]
    table = catalog.create_table(
        "db.t",
        {"k": "INT NOT NULL", "v": "STRING"},
        primary_key=key,
        options=OPTIONS if key else {**OPTIONS, "bucket": "-1"},
    )
    table.write([{"k": 1, "v": "x"}])

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("can't start new thread")

    if failing == "submit":
        monkeypatch.setattr(type(table.env), "submit", fails)
    else:
        monkeypatch.setattr("merganser.upkeep.after_commit.compact_after", fails)
    with caplog.at_level(logging.WARNING):
        WRITES[how](table)
    assert "is committed" in caplog.text
    assert "can't start new thread" in caplog.text
    assert catalog.table("db.t").latest_snapshot().id > 1
