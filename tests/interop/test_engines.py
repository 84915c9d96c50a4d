"""merganser and its peers share tables of every merge engine and order.

A history is a list of turns on one table of one bucket: who writes a commit, and where we compact. After every turn
each client must read what an oracle says, which keeps the versions of each key and folds them row by row. What a
client cannot do with a table stands in `engine_cases`, and that it still says so is a test of its own.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import merganser
from merganser.testing.engines_oracle import Row

from .engine_cases import ADDS, CASES, EngineCase
from .engines import Engine, MerganserEngine, PeerEngine, TableShape
from .layered_oracle import LayeredOracle
from .peers import Peer, PeerError
from .values import arrow_schema, assert_same_rows, rows_of

pytestmark = pytest.mark.peers

KEYS = range(8)
WE, THEY, FULL, PARTIAL = "merganser", "peer", "full compaction", "partial compaction"
TURNS: Mapping[str, Sequence[str]] = {
    "we write, they read": (WE, WE, WE, FULL, WE),
    "they write, we read": (THEY, THEY, THEY, THEY),
    "we compact what they wrote, they go on": (THEY, THEY, WE, FULL, THEY, THEY, WE, FULL),
    "runs are put together": (WE, THEY, WE, PARTIAL, THEY, WE, PARTIAL, WE, THEY, PARTIAL, THEY),
}
"""What is done in turn; the peer makes the table where it writes first."""


def seeded(text: str) -> Random:
    """A random source that depends on a text alone."""
    return Random(zlib.crc32(text.encode()))


class History:
    """One table, its clients and its oracle."""

    def __init__(
        self, case: EngineCase, ours: MerganserEngine, peers: Sequence[PeerEngine], random: Random, *, theirs: bool
    ) -> None:
        self.case, self.random, self.peers = case, random, peers
        # one partial compaction puts a few runs together and leaves the others
        self.shape = replace(case.shape, options={**case.shape.options, "num-sorted-run.compaction-trigger": "3"})
        creator: Engine = ours
        if theirs and "versioned" not in self.shape.options.values():  # a name of ours; stored as another
            creator = random.choice(list(peers))
        creator.create("db.t", self.shape)
        self.log = [f"{creator.name} created"]
        self.ours = ours
        self.table = merganser.catalog(str(ours.warehouse)).table("db.t")
        self.oracle = LayeredOracle(
            {found.name: found.type for found in self.table.schema.fields}, ["k"], self.table.options
        )

    def take(self, turns: Sequence[str]) -> None:
        """Take turns, and compare all clients after each."""
        for turn in turns:
            if turn in (FULL, PARTIAL):
                self.table.compact(full=turn == FULL)
                self._settle(flushed=False)
                self.log.append(turn)
            else:
                self._write(self.ours if turn == WE else self.random.choice(list(self.peers)))
            self.compare()

    def _write(self, writer: Engine) -> None:
        kinds = self.case.kinds if writer.deletes else ("+I",)
        rows, row_kinds = self._changes(kinds)
        arrow = pa.Table.from_pylist(rows, arrow_schema(self.shape.fields))
        writer.write("db.t", arrow, kinds=row_kinds if writer.deletes else None)
        self.oracle.flush(list(zip(row_kinds, arrow.to_pylist(), strict=True)))
        self._settle(flushed=True)
        self.log.append(f"{writer.name} wrote {' '.join(row_kinds)}")

    def _changes(self, kinds: Sequence[str]) -> tuple[list[Row], list[str]]:
        """Rows and their kinds, with keys that come again, but where retractions are folded.

        Which row a retraction leaves where there was none, and what one takes back that is the first of its flush,
        is answered differently by the clients; so it takes back from a row that is there, in a commit of its own.
        """
        random = self.random
        keys = random.choices(KEYS, k=random.randrange(3, 12))
        if self.case.engine == "deduplicate" or set(kinds) <= set(ADDS):
            return [self.case.row(random, key) for key in keys], random.choices(kinds, k=len(keys))
        there = {row["k"] for row in self.oracle.visible()}
        keys = list(dict.fromkeys(keys))
        chosen = [random.choice(kinds if key in there else ADDS) for key in keys]
        rows = [self.case.row(random, key) for key in keys]
        if self.case.removes:  # values of a delete may shine through what comes later
            for row, kind in zip(rows, chosen, strict=True):
                if kind == "-D":
                    row |= {name: None for name, _ in self.case.values if name not in self.case.ordering}
        return rows, chosen

    def _settle(self, *, flushed: bool) -> None:
        levels = {row["file_path"]: row["level"] for row in self.table.files().to_pylist()}
        self.oracle.settle(levels, flushed=flushed)

    def compare(self) -> None:
        """Every client must read the rows of the oracle."""
        expected = self.expected()
        for engine in (self.ours, *self.peers):
            if engine.name in self.case.refused_merges and self._holds_retractions():
                continue  # see `test_a_client_says_what_it_lacks`
            assert_same_rows(
                engine.rows("db.t", self.shape), expected, f"{engine.name} reads, after: {'; '.join(self.log)}"
            )

    def expected(self) -> list[Row]:
        """The rows of the oracle, in the encoding of `values.py`."""
        rows = pa.Table.from_pylist(self.oracle.visible(), arrow_schema(self.shape.fields))
        return rows_of(rows, self.shape.fields)

    def _holds_retractions(self) -> bool:
        return any(not record.adds for records in self.oracle.stored.values() for record in records)


@pytest.fixture
def ours(tmp_path: Path) -> MerganserEngine:
    """merganser, in the warehouse of the test."""
    return MerganserEngine(tmp_path)


@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("name", CASES)
def test_clients_share_a_table_of_an_engine(peer: Peer, ours: MerganserEngine, name: str, turns: str) -> None:
    case = CASES[name]
    engine = PeerEngine(peer, ours.warehouse)
    if engine.name in case.refused:
        pytest.skip(f"{engine.name} refuses the table: {case.refused[engine.name]}")
    random = seeded(f"{name} {turns} {engine.name}")
    History(case, ours, [engine], random, theirs=TURNS[turns][0] == THEY).take(TURNS[turns])
