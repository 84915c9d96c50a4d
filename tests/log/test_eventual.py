"""Tables with an eventual log: rows are seen when they are flushed, and readers come to what the table has."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

import merganser as mg
from tests.log.broker import Broker
from tests.log.test_log import _following, _row

pytestmark = pytest.mark.broker
_names = itertools.count()


@pytest.fixture
def warehouse(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(tmp_path / f"eventual{next(_names)}-{time.time_ns()}")
    found.create_database("db")
    return found


def _table(catalog: mg.Catalog, broker: Broker, **options: str) -> mg.Table:
    told = {"bucket": "2", "log.system": "kafka", "kafka.bootstrap.servers": broker.address}
    told |= {"log.consistency": "eventual", **options}
    return catalog.create_table("db.t", {"k": "INT", "v": "STRING"}, ["k"], options=told)


def test_a_stream_gets_flushed_rows_before_their_commit_and_once(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}])
    with _following(table) as get, table.writer() as writer:
        assert get() == [_row("+I", 1, "a")]
        writer.write([{"k": 1, "v": "b"}, {"k": 2, "v": "c"}])
        writer.flush()
        assert get() == [_row("-U", 1, "a"), _row("+U", 1, "b"), _row("+I", 2, "c")]
        assert table.read(where="k = 2").to_pylist() == []
        writer.commit()
        writer.write([{"k": 3, "v": "d"}])
        writer.flush()
        assert get() == [_row("+I", 3, "d")]


def test_rows_that_are_never_committed_are_taken_back(warehouse: mg.Catalog, broker: Broker) -> None:
    table = _table(warehouse, broker)
    table.write([{"k": 1, "v": "a"}, {"k": 3, "v": "c"}])
    with _following(table, start="latest") as get:
        with table.writer() as writer:
            writer.write([{"k": 1, "v": "b"}, {"k": 2, "v": "b"}, {"k": 3, "v": "c"}], kinds=["+I", "+I", "-D"])
            writer.flush()
            assert get() == [_row("-U", 1, "a"), _row("+U", 1, "b"), _row("+I", 2, "b"), _row("-D", 3, "c")]
        assert get() == [_row("-U", 1, "b"), _row("+U", 1, "a"), _row("-D", 2, "b"), _row("+I", 3, "c")]
