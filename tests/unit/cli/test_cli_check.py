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
    orders.compact(full=True)
    seen = run("doctor", "shop.orders")
    assert (seen.code, seen.out, seen.err) == (0, "'shop.orders' is in good shape\n", "")
    stray = next(Path(orders.path).rglob("*.parquet")).parent / "data-00000000-0000-0000-0000-000000000000-0.parquet"
    stray.write_bytes(b"x")
    os.utime(stray, (0, 0))
    seen = run("doctor", "shop.orders")
    assert seen.code == 0
    assert seen.out.startswith("orphans: 1 file (1 bytes) that no snapshot")
    assert "merganser orphans" in seen.out
    assert stray.exists()
    os.utime(stray)
    seen = run("doctor", "shop.orders")
    assert "is younger than a day" in seen.out
    limit = seen.out.partition("--older-than ")[2].partition(" ")[0]
    assert run("orphans", "shop.orders").out == ""
    assert run("orphans", "shop.orders", "--remove", "--older-than", limit).out == f"{stray}\n"
    assert run("doctor", "shop.orders").out == "'shop.orders' is in good shape\n"


def test_the_doctor_names_who_keeps_snapshots_from_expiry(run: Run, orders: mg.Table) -> None:
    few = [mg.changes.set_option(f"snapshot.num-retained.{which}", 1) for which in ("min", "max")]
    orders = orders.alter(few)
    orders.consumers.set("gone", next_snapshot=1)
    orders.compact(full=True)
    seen = run("doctor", "shop.orders").out
    assert "Consumer 'gone' reads snapshot 1 next" in seen
    assert "merganser consumer drop shop.orders gone" in seen
