"""A warehouse with one table, and a way to run commands in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import merganser as mg
from merganser.cli.main import main


class Ran(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command line in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MERGANSER_WAREHOUSE", raising=False)
    monkeypatch.delenv("MERGANSER_DEBUG", raising=False)

    def command(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    return command


@pytest.fixture
def orders(tmp_path: Path) -> mg.Table:
    """Return `shop.orders` with two snapshots: three rows, then one deleted and one changed."""
    catalog = mg.catalog(str(tmp_path / "warehouse"))
    catalog.create_database("shop")
    table: mg.Table = catalog.create_table(
        "shop.orders",
        schema={"id": "BIGINT", "dt": "STRING", "note": "STRING", "tags": "ARRAY<STRING>"},
        primary_key=["id", "dt"],
        partition_by=["dt"],
        options={"bucket": "1"},
        comment="Orders of the shop",
    )
    table.write(
        [
            {"id": 1, "dt": "a", "note": "one", "tags": ["x", "y"]},
            {"id": 2, "dt": "a", "note": None, "tags": None},
            {"id": 3, "dt": "b", "note": "three", "tags": []},
        ]
    )
    table.write(
        [
            {"id": 2, "dt": "a", "note": "two", "tags": None, "op": "+U"},
            {"id": 3, "dt": "b", "note": "three", "tags": [], "op": "-D"},
        ],
        kinds="op",
    )
    return table
