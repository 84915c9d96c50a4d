"""Conditions and new values as SQL text and as Python: what deletes and updates are held against."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import merganser as mg
from merganser.edit.merging import Merge

Row = dict[str, Any]
COLUMNS = {"p": "STRING", "k": "INT", "a": "INT", "b": "STRING", "n": "BIGINT NOT NULL"}
SOURCE = pa.schema([("p", pa.string()), ("k", pa.int64()), ("a", pa.int32()), ("b", pa.string()), ("n", pa.int64())])
SYMBOLS = {"+I": 1, "+U": 1, "-U": -1, "-D": -1}


def row(rng: random.Random, keys: int = 30) -> Row:
    """Return a row; some values are null."""
    k = rng.randrange(keys)
    return {
        "p": "xyz"[k % 3],  # so that a key lies in one partition
        "k": k,
        "a": rng.choice([None, *range(-5, 6)]),
        "b": rng.choice([None, "", "red", "blue"]),
        "n": rng.randrange(1000),
    }


@dataclass(frozen=True)
class Condition:
    """A filter, and the rows that it lets through."""

    sql: str
    holds: Callable[[Row], bool]


def condition(rng: random.Random) -> Condition:
    """Draw a filter: by value, by key, by partition, by all of them."""
    low, keys, part = rng.randrange(-5, 6), rng.sample(range(35), rng.choice([1, 3, 20])), rng.choice("xyz")
    listed = ", ".join(map(str, keys))
    return rng.choice(
        [
            Condition(f"a < {low}", lambda row: row["a"] is not None and row["a"] < low),
            Condition("a IS NULL AND b <> 'red'", lambda row: row["a"] is None and row["b"] not in (None, "red")),
            Condition(f"k IN ({listed})", lambda row: row["k"] in keys),
            Condition(f"p = '{part}' AND k IN ({listed})", lambda row: row["p"] == part and row["k"] in keys),
            Condition(f"p = '{part}' AND n % 2 = 0", lambda row: row["p"] == part and row["n"] % 2 == 0),
            Condition(f"k > {keys[0]} OR b = 'blue'", lambda row: row["k"] > keys[0] or row["b"] == "blue"),
            Condition(f"p = '{part}'", lambda row: row["p"] == part),
        ]
    )


def assignment(rng: random.Random, *, nulls: bool = True) -> tuple[dict[str, str], Callable[[Row], Row]]:
    """Draw new values, and what they make of a row.

    Args:
        nulls: some values are null.
    """
    number = rng.randrange(100)
    whole: list[tuple[dict[str, str], Callable[[Row], Row]]] = [
        ({"n": f"n + {number}"}, lambda row: {**row, "n": row["n"] + number}),
        ({"b": "'new'", "n": "k"}, lambda row: {**row, "b": "new", "n": row["k"]}),
        ({"n": "n"}, lambda row: row),
    ]
    some: list[tuple[dict[str, str], Callable[[Row], Row]]] = [
        ({"a": "NULL"}, lambda row: {**row, "a": None}),
        ({"a": "n % 7", "b": "concat(b, p)"}, lambda row: {**row, "a": row["n"] % 7, "b": _joined(row["b"], row["p"])}),
    ]
    return rng.choice(whole + some if nulls else whole)


@dataclass(frozen=True)
class Merging:
    """A merge: its condition, its clauses, and what it makes of rows."""

    on: str
    matched: list[tuple[str, str | None]]
    inserts: str | None
    drops_others: bool
    rows: list[Row]

    @property
    def deletes(self) -> bool:
        """Whether a clause of it is a delete."""
        return self.drops_others or any(verb == "delete" for verb, _ in self.matched)

    def run(self, table: mg.Table) -> mg.Snapshot | None:
        """Do it."""
        return self.of(table.merge(pa.Table.from_pylist(self.rows, SOURCE), on=self.on)).execute()

    def of(self, merge: Merge) -> Merge:
        """Return a merge with the clauses."""
        for verb, condition in self.matched:
            if verb == "delete":
                merge = merge.when_matched_delete(condition)
            else:
                merge = merge.when_matched_update({"n": "target.n + source.n", "b": "concat(source.b, 'm')"}, condition)
        if self.inserts is not None:
            merge = merge.when_not_matched_insert(condition=self.inserts)
        if self.drops_others:
            merge = merge.when_not_matched_by_source_delete("target.a < 0")
        return merge

    def applied(self, rows: list[Row]) -> tuple[list[Row], tuple[int, int, int]]:
        """Return the rows after it, and how many were inserted, updated and deleted."""
        by_key = {row["k"]: row for row in self.rows}
        after, met, updated, deleted = [], set(), 0, 0
        for row in rows:
            other = by_key.get(row["k"])
            if other is None or ("n %" in self.on and other["n"] % 2):
                gone = self.drops_others and row["a"] is not None and row["a"] < 0
                deleted += gone
                after += [] if gone else [row]
                continue
            met.add(row["k"])
            for verb, condition in self.matched:
                if condition is None or other["n"] > 500:
                    if verb == "update":
                        changed = {**row, "n": row["n"] + other["n"], "b": other["b"] + "m"}
                        updated += changed != row
                        after.append(changed)
                    else:
                        deleted += 1
                    break
            else:
                after.append(row)
        new = [row for row in self.rows if row["k"] not in met and row["n"] < 900] if self.inserts else []
        return after + new, (len(new), updated, deleted)


def merging(rng: random.Random) -> Merging:
    """Draw a merge, whose source has each key once."""
    rows = {one["k"]: {**one, "b": one["b"] or "-"} for one in (row(rng, 40) for _ in range(rng.choice([1, 5, 20])))}
    on, inserts = rng.choice(["target.k = source.k", "target.p = source.p AND source.k = target.k"]), "source.n < 900"
    insert = rng.random() < 0.7
    if not insert and rng.random() < 0.5:
        on += " AND source.n % 2 = 0"
    clauses: list[tuple[str, str | None]] = []
    for _ in range(rng.choice([0, 1, 2])):
        clauses.append((rng.choice(["update", "update", "delete"]), rng.choice([None, "source.n > 500"])))
    drops = rng.random() < 0.3 or not (clauses or insert)
    return Merging(on, clauses, inserts if insert else None, drops, list(rows.values()))


def _joined(first: str | None, second: str) -> str | None:
    return None if first is None else first + second


def replayed(changes: list[Row]) -> list[Row]:
    """Return the rows that changes leave, each as often as it is there."""
    found: dict[str, int] = {}
    rows: dict[str, Row] = {}
    for change in changes:
        kept = {name: value for name, value in change.items() if name != "_row_kind"}
        rows[repr(kept)] = kept
        found[repr(kept)] = found.get(repr(kept), 0) + SYMBOLS[change["_row_kind"]]
    assert not [text for text, count in found.items() if count < 0]
    return [rows[text] for text, count in found.items() for _ in range(count)]
