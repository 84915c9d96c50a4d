"""Tables with a shard stream that other engines write to: their rows are read, or refused, never passed over."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import merganser as mg

from .peers import Peer

pytestmark = pytest.mark.peers
_ROWS = pa.table({"k": pa.array([7, 8], pa.int32()), "v": pa.array(["a", "b"])})


def test_rows_that_a_peer_adds_to_a_keyed_table_are_records_as_it_logged_them(pypaimon: Peer, tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT", "v": "STRING"}, ["k"], options={"bucket": "1"})
    table.enable_stream()
    at = table.shard_iterator(table.shards()[0].shard_id)
    table.write([{"k": 7, "v": "x"}])
    pypaimon.write(tmp_path, "db.t", _ROWS)
    table.write([{"k": 8, "v": "y"}])
    found = [tuple(row.values()) for row in table.records(at).records.select(["_action", "k", "v"]).to_pylist()]
    assert found == [("PUT", 7, "x"), ("PUT", 7, "a"), ("PUT", 8, "b"), ("UPDATE", 8, "y")]


def test_rows_that_a_peer_adds_to_a_table_without_a_key_are_records(pypaimon: Peer, tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT", "v": "STRING"}, options={"bucket": "-1"})
    table.enable_stream()
    pypaimon.write(tmp_path, "db.t", _ROWS)
    (shard,) = table.shards()
    found = table.records(table.shard_iterator(shard.shard_id, at="trim_horizon")).records
    assert found.select(["_action", "k", "v"]).to_pylist() == [
        {"_action": "PUT", "k": 7, "v": "a"},
        {"_action": "PUT", "k": 8, "v": "b"},
    ]
