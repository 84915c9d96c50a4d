"""`merganser check`: nothing to say of a sound table, a line and code 1 for what is wrong."""

from __future__ import annotations

from pathlib import Path

import merganser as mg

from .conftest import Run


def test_a_sound_table_ends_with_0(run: Run, orders: mg.Table) -> None:
    checked = run("check", "shop.orders")
    assert (checked.code, checked.out) == (0, "")
    assert "is sound" in checked.err
    assert run("check", orders.path, "--quick").code == 0


def test_what_is_wrong_is_printed_and_ends_with_1(run: Run, orders: mg.Table) -> None:
    lost = next(Path(orders.path).rglob("*.parquet"))
    lost.unlink()
    checked = run("check", "shop.orders", "--quick")
    assert checked.code == 1
    assert checked.out.count("\n") == 1
    assert f"'{lost}': it is not there" in checked.out
    assert "roll back" in checked.out
