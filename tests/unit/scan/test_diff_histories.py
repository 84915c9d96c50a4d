"""Random histories: the difference of any two snapshots is that of their rows, computed with plain dictionaries."""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg

SEEDS = range(*(int(number) for number in os.environ.get("MERGANSER_DIFF_SEEDS", "0:1").split(":")))
Row = dict[str, Any]

ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "ordered": {"sequence.field": "s"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "first-row": {"merge-engine": "first-row"},
    "looked up": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "changelog-producer": "lookup",
        "changelog-producer.row-deduplicate": "true",
    },
    "vectors": {"deletion-vectors.enabled": "true"},
    "vectors merged": {"deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "3"},
    "append": {},
    "append vectors": {"deletion-vectors.enabled": "true"},
    "counting": {"write-mode": "change-log"},
}
WITHOUT_KEY = ("append", "append vectors", "counting")


def _table(path: Path, engine: str, rng: random.Random) -> mg.Table:
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("db")
    keyed = engine not in WITHOUT_KEY
    options = {"target-file-row-num": rng.choice(["3", "1000"])}
    options["num-sorted-run.compaction-trigger"] = rng.choice(["2", "5"])
    options |= {"write-only": rng.choice(["true", "false"])} | ENGINES[engine]
    if keyed or engine == "counting":
        options.setdefault("bucket", rng.choice(["1", "2"]))
    columns = {"p": "STRING", "k": rng.choice(["INT", "DOUBLE", "BIGINT"]), "s": "INT", "v": "INT", "f": "DOUBLE"}
    return catalog.create_table(
        "db.t",
        columns | ({} if engine == "counting" else {"a": "ARRAY<STRING>", "m": "MAP<STRING, DOUBLE>"}),
        primary_key=["p", "k"] if keyed else [],
        partition_by=rng.choice([[], ["p"]]),
        options=options,
    )


def _rows(rng: random.Random, engine: str, count: int) -> list[Row]:
    rows = [
        {
            "p": rng.choice("ab"),
            "k": rng.randrange(4 if engine in WITHOUT_KEY else 30),
            "s": rng.randrange(9),
            "v": rng.choice([1, 2, 3]) if "aggregation" in ENGINES[engine].values() else rng.choice([None, 1]),
            "f": rng.choice([None, 0.0, -0.0, float("nan"), 1.5]),
            "a": rng.choice([None, [], ["x"], ["x", None]]),
            "m": rng.choice([None, [("x", 0.0), ("y", 1.0)], [("y", 1.0), ("x", 0.0)], [("x", -0.0), ("y", 1.0)]]),
        }
        for _ in range(count)
    ]
    return [{name: value for name, value in row.items() if engine != "counting" or name not in "am"} for row in rows]


def _step(rng: random.Random, engine: str, table: mg.Table) -> None:
    kinds = ("+I",) if engine.startswith(("append", "first-row")) else ("+I", "+I", "+U", "-D")
    roll = rng.random()
    if roll < 0.6:
        rows = _rows(rng, engine, rng.choice([1, 3, 40]))
        table.write(rows, kinds=[rng.choice(kinds) for _ in rows])
    elif roll < 0.7 and table.partition_by:
        overwrite: Any = rng.choice([{"p": "a"}, "dynamic", {}])
        rows = [row for row in _rows(rng, engine, 4) if overwrite != {"p": "a"} or row["p"] == "a"]
        table.write(rows, overwrite=overwrite)
    elif roll < 0.75:
        table.write(_rows(rng, engine, 3), overwrite={})
    elif roll < 0.8 and table.partition_by:
        table.drop_partitions([{"p": "a"}])
    else:
        table.compact(full=rng.random() < 0.5)


def _shown(row: Row) -> tuple[Any, ...]:
    """Return a row as text; the entries of a map have no order."""
    return tuple((name, repr(sorted(value) if name == "m" and value else value)) for name, value in row.items())


def _expected(before: list[Row], after: list[Row], key: tuple[str, ...]) -> Counter[tuple[str, Any]]:
    if not key:
        old, new = Counter(map(_shown, before)), Counter(map(_shown, after))
        found = {("-D", row): count for row, count in (old - new).items()}
        return Counter(found | {("+I", row): count for row, count in (new - old).items()})
    olds, news = ({tuple(row[name] for name in key): _shown(row) for row in rows} for rows in (before, after))
    changes: Counter[tuple[str, Any]] = Counter()
    for each in olds.keys() | news.keys():
        old, new = olds.get(each), news.get(each)
        if old == new:
            continue
        if old is not None:
            changes["-D" if new is None else "-U", old] += 1
        if new is not None:
            changes["+I" if old is None else "+U", new] += 1
    return changes


def _applied(before: list[Row], changes: list[Row], key: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    """Return the rows after changes are applied in their order, as a table with that key does."""
    if not key:
        return Counter(map(_shown, before)) + _kinds_of(changes, "+I") - _kinds_of(changes, "-D")
    rows = {tuple(row[name] for name in key): _shown(row) for row in before}
    for change in changes:
        kind, place = change.pop("_row_kind"), tuple(change[name] for name in key)
        if kind in ("-U", "-D"):
            del rows[place]
        elif kind in ("+I", "+U"):
            assert place not in rows
            rows[place] = _shown(change)
    return Counter(rows.values())


def _kinds_of(changes: list[Row], kind: str) -> Counter[tuple[Any, ...]]:
    rows = [
        {name: value for name, value in row.items() if name != "_row_kind"}
        for row in changes
        if row["_row_kind"] == kind
    ]
    return Counter(map(_shown, rows))


def _passes(row: dict[str, str]) -> bool:
    return row["p"] == "'a'" and float(row["k"]) < 15 and row["s"] != "None" and int(row["s"]) > 3


def _with_kinds(rows: list[Row], kind: str) -> Counter[tuple[str, Any]]:
    return Counter((row.pop(kind), _shown(row)) for row in rows)


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_difference_is_that_of_the_rows(engine: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"diff {engine} {seed}")
    table = _table(tmp_path, engine, rng)
    for _ in range(10):
        _step(rng, engine, table)
    snapshots = [snapshot.id for snapshot in table.snapshots()]
    states = {0: []} | {number: table.read(snapshot=number).to_pylist() for number in snapshots}
    for _ in range(5):
        start, end = sorted(rng.choices([0, *snapshots], k=2))
        wanted = _expected(states[start], states[end], table.primary_key)
        with contextlib.ExitStack() as stack:
            rows = rng.choice([2, 7, 65_536])
            stack.enter_context(patch("merganser.lsm.section.WINDOW_ROWS", rows))
            for name in ("WINDOW_ROWS", "LOOKED_UP_ROWS", "READ_ROWS"):
                stack.enter_context(patch(f"merganser.scan.diff.{name}", rows))
            stack.enter_context(patch("merganser.scan.diff.SHARED_MIN", rng.choice([0, 0.2, 2, 1e9])))
            found = table.changes(start + 1, end, mode="diff")
            assert _with_kinds(found.to_pylist(), "_row_kind") == wanted, (start, end)
            assert _applied(states[start], found.to_pylist(), table.primary_key) == Counter(map(_shown, states[end]))
            options = {"incremental-between": f"{start},{end}", "incremental-between-scan-mode": "diff"}
            shown = table.with_options(options)
            added = Counter({("+I", row): n for (kind, row), n in wanted.items() if kind in ("+I", "+U")})
            assert Counter(("+I", _shown(row)) for row in shown.read().to_pylist()) == added
            gone = Counter({each: n for each, n in wanted.items() if each[0] == "-D"})
            assert _with_kinds(shown.system("audit_log").to_pylist(), "rowkind") == added + gone
            where = "p = 'a' AND k < 15 AND s > 3"
            some = Counter({each: n for each, n in wanted.items() if _passes(dict(each[1]))})
            few = table.changes(start + 1, end, mode="diff", where=where)
            assert _with_kinds(few.to_pylist(), "_row_kind") == some
