"""Shards of tables whose keys move between partitions: records of all shards by number are the history of each key."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from tests.seeds import seeds


def read(table: Any, rng: random.Random | None = None) -> list[dict[str, Any]]:
    """Return the records of all shards, read in pages that end anywhere, or at once."""
    found: list[dict[str, Any]] = []
    for shard in table.shards():
        at: str | None = table.shard_iterator(shard.shard_id, at="trim_horizon")
        while at is not None:
            page = table.records(at, limit=1000 if rng is None else rng.choice([1, 2, 7]), full=True)
            found += page.records.to_pylist()
            at = page.next_iterator
            if not page.may_have_more:
                break
    return found


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("producer", ["none", "input", "per-record", "lookup", "full-compaction"])
@pytest.mark.parametrize("seed", seeds(2))
def test_a_reader_by_key_that_takes_all_shards_in_the_order_of_sequence_has_the_table(
    tmp_path: Path, producer: str, seed: int
) -> None:
    rng = random.Random(f"{producer} {seed}")
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    options = {"changelog-producer": producer, "stream.enabled": "true", "dynamic-bucket.target-row-num": "3"}
    options["target-file-row-num"] = rng.choice(["3", "100000"])
    options["write-only"] = "true"
    table = catalog.create_table("db.t", "k INT, p STRING, v INT", ["k"], ["p"], options)
    for _ in range(6):
        given = [(rng.randrange(9), rng.choice("abc"), rng.randrange(9)) for _ in range(rng.choice([2, 6, 25]))]
        kinds = ["-D" if rng.random() < 0.2 else "+I" for _ in given]
        columns = [pa.array(column) for column in zip(*given, strict=True)]
        table.write(pa.table(columns, names=["k", "p", "v"]), kinds=kinds)
        if producer in ("lookup", "full-compaction") and rng.random() < 0.7:
            table.with_options({"write-only": "false"}).compact(full=True)
    if producer in ("lookup", "full-compaction"):
        table.with_options({"write-only": "false"}).compact(full=True)
    records = read(table)
    assert read(table, rng) == records
    assert read(catalog.table("db.t"), rng) == records
    rows: dict[int, tuple[str, int]] = {}
    for record in sorted(records, key=lambda record: record["_sequence"]):
        if record["_action"] == "DELETE":
            rows.pop(record["k"], None)
        else:
            rows[record["k"]] = (record["p"], record["v"])
    assert rows == {row["k"]: (row["p"], row["v"]) for row in table.read().to_pylist()}
