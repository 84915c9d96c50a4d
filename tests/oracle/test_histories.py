"""Random histories of key tables, held against the oracle after every commit.

A history draws its table (key types, partitions, buckets, file format, buffer and file sizes: all options that
promise not to change results) and its commits from one seed, which a failure prints.
"""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.merge import sort_merge
from merganser.testing.oracle import DeduplicateOracle
from tests.oracle.drawn_tables import random_buckets
from tests.seeds import seeds

TEXTS = ["", "a", "abcdefg", "abcdefgh", "zażółć", "\U0001f986 duck", "x" * 40]
KEYS: dict[str, list[Any]] = {
    "INT": list(range(-20, 20)),
    "BIGINT": [-(2**63), -1, 0, 1, 2**40, 2**63 - 1, *range(10, 30)],
    "STRING": TEXTS,
    "DATE": [date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
    "DECIMAL(20, 2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("123456789012345678.90")],
    "BOOLEAN": [True, False],
    "DOUBLE": [-1.5, 0.0, 2.0**60, float("inf"), 1e-300],
}


def _history(seed: int, path: Path) -> None:
    rng = random.Random(seed)
    kinds = rng.sample(list(KEYS), rng.choice([1, 1, 2, 3]))
    key = [f"k{i}" for i in range(len(kinds))]
    partition = ["p"] if rng.random() < 0.5 else []
    schema = {**dict(zip(key, kinds, strict=True)), "v": "STRING", "n": "INT", **({"p": "STRING"} if partition else {})}
    order = list(schema)
    rng.shuffle(order)
    options = {
        "bucket": str(rng.choice([1, 2, 5])),
        "file.format": rng.choice(["parquet", "parquet", "orc", "avro"]),
        "write-buffer-size": rng.choice(["1 kb", "256 mb"]),
        "target-file-size": rng.choice(["1 kb", "128 mb"]),
        "target-file-row-num": str(rng.choice([3, 100_000])),
        "data-file.thin-mode": rng.choice(["true", "false"]),
        "manifest.merge-min-count": rng.choice(["2", "3", "30"]),
        "manifest.full-compaction-threshold-size": rng.choice(["1 b", "16 mb"]),
        "overwrite-upgrade": rng.choice(["true", "false"]),
    }
    upkeep = random.Random(f"{seed} upkeep")  # of its own, so that the rest of a history stays what it was
    options |= {
        "write-only": upkeep.choice(["true", "false", "false"]),
        "num-sorted-run.compaction-trigger": str(upkeep.randrange(2, 6)),
    }
    options |= random_buckets(random.Random(f"{seed} buckets"))
    indexes = random.Random(f"{seed} file indexes")
    if filtered := [n for n in schema if schema[n][:7] not in ("DECIMAL", "BOOLEAN") and indexes.random() < 0.3]:
        options |= {
            "file-index.bloom-filter.columns": ",".join(filtered),
            "file-index.in-manifest-threshold": indexes.choice(["1 b", "100 b", "1 kb"]),
        }
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t",
        {name: schema[name] for name in order},
        primary_key=[*partition, *key],
        partition_by=partition,
        options=options,
    )
    oracle = DeduplicateOracle(key=[*partition, *key], partition=partition)

    def row() -> dict[str, Any]:
        out = {name: rng.choice(KEYS[kind]) for name, kind in zip(key, kinds, strict=True)}
        out |= {"v": rng.choice([None, *TEXTS]), "n": rng.choice([None, rng.randrange(100)])}
        return out | ({"p": rng.choice(["a", "b/c", ""])} if partition else {})

    arrow = {name: table.read().schema.field(name).type for name in order}

    def batch(rows: list[tuple[str, dict[str, Any]]]) -> pa.Table:
        columns: dict[str, Any] = {name: pa.array([r[name] for _, r in rows], arrow[name]) for name in order}
        return pa.table({**columns, "op": pa.array([kind for kind, _ in rows], pa.string())})

    states: dict[int, list[dict[str, Any]]] = {}
    for step in range(rng.randrange(3, 9)):
        rows = [(rng.choice(["+I", "+I", "+U", "-U", "-D"]), row()) for _ in range(rng.choice([0, 1, 5, 40]))]
        match rng.random():
            case x if x < 0.7:
                parts = max(1, rng.randrange(4))
                with table.writer() as writer:
                    for i in range(parts):
                        writer.write(batch(rows[i::parts]), kinds="op")
                    snapshot = writer.commit()
                oracle.write([r for i in range(parts) for r in rows[i::parts]])
            case x if x < 0.8 and partition:
                snapshot = table.write(batch(rows), kinds="op", overwrite="dynamic")
                oracle.overwrite_dynamic(rows)
            case x if x < 0.9 and partition:
                inside = [r for r in rows if r[1]["p"] == "a"]
                snapshot = table.write(batch(inside), kinds="op", overwrite={"p": "a"})
                oracle.overwrite({"p": "a"}, inside)
            case _:
                snapshot = table.write(batch(rows), kinds="op", overwrite={})
                oracle.overwrite({}, rows)
        if snapshot is not None:
            states[snapshot.id] = oracle.visible()
        if rng.random() < 0.3:
            table = mg.catalog(str(path), options={"local.sync": "false"}).table("db.t")
        _same(table.read(), oracle.visible(), order, f"seed {seed}, step {step}")
    _pinned(table, oracle, states, order, rng, seed)
    assert table.check() == (), f"seed {seed}"


def _pinned(
    table: Any,
    oracle: DeduplicateOracle,
    states: dict[int, list[dict[str, Any]]],
    order: list[str],
    rng: random.Random,
    seed: int,
) -> None:
    """Filters, projections and old snapshots give what the oracle gives."""
    visible = oracle.visible()
    low = rng.randrange(100)
    expected = [r for r in visible if r["n"] is not None and r["n"] >= low]
    _same(table.read(where=f"n >= {low}"), expected, order, f"seed {seed}, filter")
    _same(table.read(columns=["v"], where=f"n >= {low}"), expected, ["v"], f"seed {seed}, filter and column")
    assert table.read().count() == len(visible), f"seed {seed}"
    assert table.read(limit=3).to_arrow().num_rows == min(3, len(visible)), f"seed {seed}"
    batches = list(table.read().to_batches())
    assert sum(b.num_rows for b in batches) == len(visible), f"seed {seed}"
    assert [s.id for s in table.snapshots() if s.commit_kind != "COMPACT"] == list(states), f"seed {seed}"
    for snapshot, rows in list(states.items())[:: max(1, len(states) // 3)]:
        _same(table.read(snapshot=snapshot), rows, order, f"seed {seed}, snapshot {snapshot}")


def _same(scan: Any, expected: list[dict[str, Any]], columns: list[str], message: str) -> None:
    found = sorted(repr([row[name] for name in columns]) for row in scan.to_pylist())
    wanted = sorted(repr([row[name] for name in columns]) for row in expected)
    assert found == wanted, message


@pytest.mark.parametrize("seed", seeds(10))
def test_a_random_history_reads_as_the_oracle_says(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("merganser.lsm.section.WINDOW_ROWS", random.Random(seed).choice([1, 7, 400_000]))
    _history(seed, tmp_path)


def test_the_oracle_hides_a_key_whose_newest_row_retracts() -> None:
    oracle = DeduplicateOracle(key=["k"])
    oracle.write([("+I", {"k": 1, "v": "a"}), ("+I", {"k": 2, "v": "b"})])
    oracle.write([("-D", {"k": 1, "v": None})])
    assert oracle.visible() == [{"k": 2, "v": "b"}]


def test_windows_are_bounded_by_rows() -> None:
    assert sort_merge.WINDOW_ROWS <= 1_000_000
