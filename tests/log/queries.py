"""A streaming query without Spark's processes: what the source answers to Spark, and what tasks get of that."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import merganser as mg
from merganser.spark.stream_reader import StreamReader
from merganser.spark.stream_source import request_of
from merganser.spark.types import arrow_schema_of

Row = dict[str, Any]
Batch = tuple[dict[str, Any], dict[str, Any]]


class Requests:
    """A store that counts what it is asked.

    Attributes:
        names: of the requests.
    """

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._storage, name)
        if not callable(found):
            return found

        def counted(*given: Any, **named: Any) -> Any:
            self.names.append(name)
            return found(*given, **named)

        return counted


class Query:
    """A query that reads a table.

    Args:
        table: the table.
        offset: where an earlier query with the same checkpoint ended.
        how: `columns`, `where` and `kinds` as for `ms.read_stream`.

    Attributes:
        offset: after the last batch, as the checkpoint has it.
        batches: offsets of the batches that it has read.
        requests: to the store, by the process that plans.
    """

    def __init__(self, table: mg.Table, offset: dict[str, Any] | None = None, **how: Any) -> None:
        given: dict[str, Any] = {"columns": None, "where": None, "kinds": True, **how}
        request = request_of(table, None, setting=table.setting("UTC", False), parallelism=2, **given)
        self.requests = Requests(request.env.storage)
        self._schema = arrow_schema_of(request.schema)
        self._storage = request.env.storage
        self._reader = StreamReader(replace(request, env=replace(request.env, storage=self.requests)), self._schema)
        self.offset = self._reader.initialOffset() if offset is None else offset
        self.batches: list[Batch] = []

    @property
    def hears(self) -> bool:
        """Whether it listens to the log."""
        return self._reader._batches.hears

    @property
    def heard(self) -> int:
        """Number of snapshots that came from the log."""
        return self._reader._batches.heard

    def listen(self) -> list[Row]:
        """Read what is there until the query listens to the log; return the rows."""
        return self.until(lambda _: self.hears)

    def step(self) -> list[Row]:
        """Read the next batch, if there is one; return its rows."""
        end = json.loads(json.dumps(self._reader.latestOffset(self.offset)))
        self._reader.reportLatestOffset()
        if end == self.offset:
            return []
        rows = self.read(self.offset, end)
        self.batches.append((self.offset, end))
        self.offset = end
        return rows

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
        """Return the rows of a batch, task by task."""
        found: list[Row] = []
        for partition in self._reader.partitions(start, end):
            partition.storage = self._storage  # type: ignore[attr-defined]
            task = pickle.loads(pickle.dumps(partition))
            for batch in self._reader.read(task):
                found += batch.to_pylist()
        return found

    def until(self, done: Callable[[list[Row]], bool]) -> list[Row]:
        """Read batches until the rows are what is waited for, for at most 20 seconds; return the rows."""
        rows, end = list[Row](), time.monotonic() + 20
        while not done(rows):
            assert time.monotonic() < end, f"{rows} at {self.offset}"
            rows += self.step()
            time.sleep(0.005)
        return rows

    def take(self, count: int) -> list[Row]:
        """Read batches until there are so many rows; return them."""
        return self.until(lambda rows: len(rows) >= count)

    def stop(self) -> None:
        """Stop it."""
        self._reader.stop()
