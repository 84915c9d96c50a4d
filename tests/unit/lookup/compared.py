"""Lookups held against reads: the same keys at the same snapshot, each way in which files can be asked."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import merganser as mg
from merganser.lookup.lookup import Lookup

WAYS = {"memory": "auto", "copies": "all", "as they lie": "none", "asked often": "auto"}
"""(what answers, cache of the handle): the memory; copies on disk; files as they lie; first so, then copied."""

Row = dict[str, Any]
Rows = Sequence[Row]


@contextmanager
def way(name: str) -> Iterator[None]:
    """Let files be asked in one of `WAYS`, in batches and portions of a few rows."""
    with ExitStack() as stack:
        stack.enter_context(patch("merganser.lsm.held._READ_ROWS", 3))
        stack.enter_context(patch("merganser.lsm.stored_keys._READ_ROWS", 3))
        stack.enter_context(patch("merganser.lsm.lookup_copy._BATCH_BYTES", 150))
        if name != "memory":
            stack.enter_context(patch("merganser.lsm.held._SMALL_ROWS", -1))
        yield


def handle(table: mg.Table, name: str, directory: Path) -> Lookup:
    """Return a handle for a way, with its copies in a directory."""
    return table.with_options({"lookup.cache-directory": str(directory)}).lookups(cache=WAYS[name])


def by_key(table: mg.Table, rows: pa.Table) -> dict[str, Row]:
    """Return rows by key."""
    return {text({name: row[name] for name in table.primary_key}): row for row in rows.to_pylist()}


def text(value: object) -> str:
    """Return text that is equal for equal rows: NaN equals itself, and 0.0 does not equal -0.0."""
    return repr(value)


def expected(table: mg.Table, keys: Rows, **state: Any) -> list[str]:
    """Return what a read has for keys, in their order."""
    held = by_key(table, table.read(**state).to_arrow())
    return [text(held[text(key)]) for key in keys if text(key) in held]


def answered(rows: pa.Table) -> list[str]:
    """Return the rows of a lookup, to compare."""
    return [text(row) for row in rows.to_pylist()]


def assert_same(table: mg.Table, lookup: Lookup, keys: Rows, rng: random.Random) -> None:
    """Ask for all keys at once, for some of them twice and in any order, and for some one by one."""
    held = by_key(table, table.read().to_arrow())
    names = table.primary_key
    asked = [{name: key[name] for name in names} for key in [*held.values(), *keys]]
    asked += rng.sample(asked, len(asked) // 2)
    rng.shuffle(asked)
    wanted = [text(held[text(key)]) for key in asked if text(key) in held]
    found = lookup.lookup(asked)
    assert found.schema == table.read().schema
    assert answered(found) == wanted
    assert lookup.lookup([]).num_rows == 0
    for key in rng.sample(asked, min(4, len(asked))):
        alone = lookup.lookup(key)
        assert answered(alone) == [text(held[text(key)]) for _ in range(text(key) in held)], key
        assert alone.schema == found.schema
