"""`merganser check`: nothing to say of a sound table, a line and code 1 for what is wrong."""

from __future__ import annotations

import os
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


def test_the_doctor_says_what_could_be_better_and_changes_nothing(run: Run, orders: mg.Table) -> None:
    seen = run("doctor", "shop.orders")
    assert (seen.code, seen.out, seen.err) == (0, "'shop.orders' is in good shape\n", "")
    stray = next(Path(orders.path).rglob("*.parquet")).parent / "data-00000000-0000-0000-0000-000000000000-0.parquet"
    stray.write_bytes(b"x")
    os.utime(stray, (0, 0))
    seen = run("doctor", "shop.orders")
    assert seen.code == 0
    assert seen.out.startswith("orphans: 1 file that no snapshot needs")
    assert "merganser orphans" in seen.out
    assert stray.exists()
