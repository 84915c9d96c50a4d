"""merganser and its peers share tables of every merge engine and order.

A history is a list of turns on one table: who writes a commit, and where we compact. After every turn each client must
read what an oracle says, which keeps the versions of each key and folds them row by row. What a client cannot do with
a table stands in `engine_cases`, and that it still says so is a test of its own, as is every known difference.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import merganser
from tests.oracle.engines import Row
from tests.seeds import seeds

from .engine_cases import ADDS, CASES, KEYS, PYPAIMON, RUST, EngineCase, spread_out
from .engines import Engine, Fields, MerganserEngine, PeerEngine, TableShape
from .layered_oracle import BucketOracles
from .peers import Peer, PeerError
from .values import arrow_schema, assert_same_rows, rows_of

pytestmark = pytest.mark.peers

FIXTURES = {PYPAIMON: "pypaimon", RUST: "rust"}
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
        self,
        case: EngineCase,
        ours: MerganserEngine,
        peers: Sequence[PeerEngine],
        random: Random,
        *,
        theirs: bool,
        spread: bool = False,
    ) -> None:
        """Make the table.

        Args:
            case: what kind of table.
            ours, peers: the clients.
            random: what is drawn from.
            theirs: a peer makes the table.
            spread: the table has partitions and several buckets.
        """
        self.case, self.random, self.ours, self.peers, self.spread = case, random, ours, peers, spread
        self.shape = spread_out(case.shape) if spread else case.shape
        self.blanks = not any(peer.name in case.blanks_differ for peer in peers)
        creator: Engine = ours
        if theirs and self.shape.options.get("merge-engine") != "versioned":  # a name of ours for deduplicate
            creator = random.choice(list(peers))
        creator.create("db.t", self.shape)
        self.log = [f"{creator.name} created"]
        self.table = ours.table("db.t")
        self.oracles = BucketOracles(self.table)

    def take(self, turns: Sequence[str]) -> None:
        """Take turns, and compare all clients after each."""
        for turn in turns:
            if turn == FULL:
                self._compact(self.table, turn)
            elif turn == PARTIAL:  # with so few runs allowed that some are put together and others stay
                self._compact(self.table.with_options({"num-sorted-run.compaction-trigger": "3"}), turn)
            else:
                self._write(self.ours if turn == WE else self.random.choice(list(self.peers)))
            self.compare()

    def _compact(self, table: merganser.Table, turn: str) -> None:
        table.compact(full=turn == FULL)
        self.oracles.compacted(ours=True)
        self.log.append(turn)

    def _write(self, writer: Engine) -> None:
        kinds = self.case.kinds if writer.deletes else ("+I",)
        there = {row["k"] for row in self.oracles.visible()}
        rows, row_kinds = self.case.changes(self.random, kinds, there, blanks=self.blanks, spread=self.spread)
        arrow = pa.Table.from_pylist(rows, arrow_schema(self.shape.fields))
        writer.write("db.t", arrow, kinds=row_kinds if writer.deletes else None)
        self.oracles.flush(arrow, list(zip(row_kinds, arrow.to_pylist(), strict=True)), ours=writer is self.ours)
        self.log.append(f"{writer.name} wrote {' '.join(row_kinds)}")

    def compare(self) -> None:
        """Every client must read the rows of the oracle."""
        rows = pa.Table.from_pylist(self.oracles.visible(), arrow_schema(self.shape.fields))
        expected = rows_of(rows, self.shape.fields)
        engines: list[Engine] = [self.ours, *self.peers]
        for engine in engines:
            if engine.name in self.case.refused_merges and self.oracles.holds_retractions:
                continue  # see `test_pypaimon_reads_what_was_taken_back_once_we_compacted_it`
            assert_same_rows(
                engine.rows("db.t", self.shape), expected, f"{engine.name} reads, after: {'; '.join(self.log)}"
            )


@pytest.fixture
def ours(tmp_path: Path) -> MerganserEngine:
    """merganser, in the warehouse of the test."""
    return MerganserEngine(tmp_path)


@pytest.fixture
def client(request: pytest.FixtureRequest, ours: MerganserEngine) -> PeerEngine:
    """The client that the test names, in the same warehouse."""
    return PeerEngine(request.getfixturevalue(FIXTURES[request.param]), ours.warehouse)


def pairs(*, refused: bool) -> list[tuple[str, str]]:
    """Clients and the cases that they do, or do not, work on."""
    return [(name, case.name) for name in FIXTURES for case in CASES.values() if (name in case.refused) == refused]


# ── histories ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.campaign(1 / 28)
@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize(("client", "name"), pairs(refused=False), indirect=["client"])
def test_clients_share_a_table_of_an_engine(client: PeerEngine, ours: MerganserEngine, name: str, turns: str) -> None:
    theirs = TURNS[turns][0] == THEY
    History(CASES[name], ours, [client], seeded(f"{name} {turns}"), theirs=theirs).take(TURNS[turns])


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("name", CASES)
def test_all_clients_take_turns_on_a_table_of_an_engine(
    pypaimon: Peer, rust: Peer, ours: MerganserEngine, name: str, seed: int
) -> None:
    """Those that do not refuse it; the second time in partitions and buckets."""
    case, random = CASES[name], seeded(f"{name} {seed}")
    peers = [PeerEngine(peer, ours.warehouse) for peer in (pypaimon, rust) if peer.kind.name not in case.refused]
    history = History(case, ours, peers, random, theirs=random.random() < 0.5, spread=seed == 1)
    compactions = [FULL, PARTIAL, PARTIAL]
    history.take([random.choice([WE, WE, THEY, THEY, THEY, random.choice(compactions)]) for _ in range(10)])


# ── counting tables ───────────────────────────────────────────────────────────────────────────────────────────────────

COUNTED: Fields = (("a", "INT"), ("b", "STRING"), ("d", "DATE"))


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("client", FIXTURES, indirect=True)
def test_a_client_shares_a_counting_table_as_the_aggregation_table_it_is(
    client: PeerEngine, ours: MerganserEngine, seed: int
) -> None:
    """It sees each row once with how often it is there, and adds to that; a count of 0 is there until we compact."""
    random = seeded(f"counting {seed}")
    stored = TableShape((*COUNTED, ("_VALUE_COUNT", "BIGINT NOT NULL")))
    ours.create("db.t", TableShape(COUNTED, options={"write-mode": "change-log", "bucket": "1"}))
    table = ours.table("db.t")
    draw = EngineCase("counted rows", COUNTED[1:], {})
    counts: Counter[tuple[Any, ...]] = Counter()
    for step in range(10):
        rows = [draw.row(random, 0) | {"a": random.choice([None, 1, 2])} for _ in range(random.randrange(1, 20))]
        tuples = [tuple(row[name] for name, _ in COUNTED) for row in rows]
        arrow = pa.table([pa.array(c) for c in zip(*tuples, strict=True)], schema=arrow_schema(COUNTED))
        if step % 2:
            numbers = [random.choice([-2, -1, 0, 1, 3]) for _ in rows]
            column = pa.array(numbers, pa.int64())
            client.write("db.t", arrow.append_column(arrow_schema(stored.fields).field(3), column))
        else:
            kinds = [random.choice(["+I", "+U", "-U", "-D"]) for _ in rows]
            numbers = [1 if kind in ADDS else -1 for kind in kinds]
            ours.write("db.t", arrow, kinds=kinds)
        for row, number in zip(tuples, numbers, strict=True):
            counts[row] += number
        if step in (3, 7):
            table.compact(full=True)
            counts = Counter({row: number for row, number in counts.items() if number})
        repeated = [row for row, number in counts.items() for _ in range(number)]
        assert_same_rows(ours.rows("db.t", TableShape(COUNTED)), _counted(repeated, COUNTED), f"our rows, step {step}")
        with_counts = _counted([(*row, number) for row, number in counts.items()], stored.fields)
        assert_same_rows(client.rows("db.t", stored), with_counts, f"rows of {client.name}, step {step}")


def _counted(rows: Sequence[tuple[Any, ...]], fields: Fields) -> list[Row]:
    names = [name for name, _ in fields]
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], arrow_schema(fields))
    return rows_of(table, fields)


# ── what clients lack, and where they differ ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("client", "name"), pairs(refused=True), indirect=["client"])
def test_a_client_says_what_it_lacks(client: PeerEngine, ours: MerganserEngine, name: str) -> None:
    """Were it to learn it, the case belongs into the histories."""
    case, random = CASES[name], seeded(name)
    ours.create("db.t", case.shape)
    rows = pa.Table.from_pylist([case.row(random, key) for key in KEYS], arrow_schema(case.shape.fields))
    twice = pa.concat_tables([rows, rows])

    def write_and_read() -> None:
        client.write("db.t", twice)
        client.rows("db.t", case.shape)

    with pytest.raises(PeerError, match=case.refused[client.name]):
        write_and_read()
    ours.write("db.t", rows)
    assert len(ours.rows("db.t", case.shape)) == len(KEYS)


def test_pypaimon_reads_what_was_taken_back_once_we_compacted_it(pypaimon: Peer, ours: MerganserEngine) -> None:
    """It has no retractions in aggregation tables, and says so where it meets one."""
    client, case = PeerEngine(pypaimon, ours.warehouse), CASES["aggregation that takes back"]
    ours.create("db.t", case.shape)
    random = seeded("taken back")
    rows = pa.Table.from_pylist([case.row(random, key) for key in KEYS], arrow_schema(case.shape.fields))
    ours.write("db.t", rows)
    ours.write("db.t", rows.slice(2), kinds=["-D", "-U"] * 3)
    with pytest.raises(PeerError, match=case.refused_merges[client.name]):
        client.rows("db.t", case.shape)
    ours.table("db.t").compact(full=True)
    assert_same_rows(client.rows("db.t", case.shape), ours.rows("db.t", case.shape))


def test_pypaimon_makes_null_of_a_lone_blank_text_as_we_do(pypaimon: Peer, ours: MerganserEngine) -> None:
    """It calls the merge function for lone versions too, when a commit has several rows."""
    options = {"bucket": "1", "merge-engine": "aggregation", "fields.l.aggregate-function": "listagg"}
    shape = TableShape((("k", "INT NOT NULL"), ("l", "STRING")), ("k",), (), options)
    rows = pa.Table.from_pylist([{"k": 1, "l": " "}, {"k": 2, "l": "a"}], arrow_schema(shape.fields))
    ours.create("db.t", shape)
    PeerEngine(pypaimon, ours.warehouse).write("db.t", rows)
    assert_same_rows(ours.rows("db.t", shape), [{"k": 1, "l": None}, {"k": 2, "l": "a"}])
    ours.write("db.t", rows, overwrite=True)
    assert_same_rows(ours.rows("db.t", shape), [{"k": 1, "l": None}, {"k": 2, "l": "a"}])


@dataclass(frozen=True, slots=True)
class Difference:
    """A table on which a client and we read different rows, knowingly.

    Attributes:
        values: columns beside the key `k`, which is 1.
        commits: who writes (we, or they), and for each row its kind and values.
        ours, theirs: what is read: a row, None for no row, or the words of a refusal.
        compacted: what both read after our full compaction, or the words of our refusal to do it.
    """

    client: str
    values: Fields
    options: Mapping[str, str]
    commits: Sequence[tuple[str, Sequence[tuple[Any, ...]]]]
    ours: tuple[Any, ...] | str | None
    theirs: tuple[Any, ...] | str | None
    compacted: tuple[Any, ...] | str | None


_SUM = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}
_SUM_IN_GROUP = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "n",
    "fields.n.aggregate-function": "sum",
}
_REMOVING = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
_N: Fields = (("n", "INT"),)
_TOO_MUCH = [(WE, [("+I", 2**31 - 1)]), (WE, [("+I", 1)])]
DIFFERENCES = {
    "pypaimon-rust wraps a sum that overflows": Difference(
        RUST, _N, _SUM, _TOO_MUCH, "overflow", (-(2**31),), "overflow"
    ),
    "pypaimon refuses a sum that overflows, as we do": Difference(
        PYPAIMON, _N, _SUM, _TOO_MUCH, "overflow", "int overflow", "overflow"
    ),
    "pypaimon-rust stores a sum that wrapped, which is a value like others": Difference(
        RUST, _N, _SUM, [(THEY, [("+I", 2**31 - 1), ("+I", 1)])], (-(2**31),), (-(2**31),), (-(2**31),)
    ),
    "pypaimon-rust shows a key that was only taken back, when it merges": Difference(
        RUST, _N, _SUM, [(WE, [("-D", 4)]), (WE, [("-D", 4)])], None, (-8,), None
    ),
    "pypaimon-rust makes a row of retractions that share a flush": Difference(
        RUST, _N, _SUM, [(THEY, [("-D", 4), ("-D", 5)])], (-9,), (-9,), (-9,)
    ),
    "pypaimon-rust loses a retraction that is the first of a flush in a sequence group": Difference(
        RUST,
        (("g", "INT"), ("n", "INT")),
        _SUM_IN_GROUP,
        [(THEY, [("+I", 1, 10)]), (THEY, [("-U", 2, 10), ("+U", 2, 25)])],
        (2, 35),
        (2, 35),
        (2, 35),
    ),
    "we keep a retraction that is the first of a flush in a sequence group": Difference(
        RUST,
        (("g", "INT"), ("n", "INT")),
        _SUM_IN_GROUP,
        [(WE, [("+I", 1, 10)]), (WE, [("-U", 2, 10), ("+U", 2, 25)])],
        (2, 25),
        (2, 25),
        (2, 25),
    ),
    "pypaimon-rust lets values of a delete shine through what comes later": Difference(
        RUST,
        (("a", "INT"), ("b", "INT")),
        _REMOVING,
        [(WE, [("+I", 1, 2)]), (WE, [("-D", 1, 2)]), (WE, [("+I", None, 7)])],
        (None, 7),
        (1, 7),
        (None, 7),
    ),
}


@pytest.mark.parametrize(
    ("client", "what"), [(found.client, what) for what, found in DIFFERENCES.items()], indirect=["client"]
)
def test_a_known_difference_is_as_it_was(client: PeerEngine, ours: MerganserEngine, what: str) -> None:
    found = DIFFERENCES[what]
    shape = TableShape((("k", "INT NOT NULL"), *found.values), ("k",), (), {"bucket": "1", **found.options})
    ours.create("db.t", shape)
    for writer, rows in found.commits:
        columns = zip(*[(1, *values) for _, *values in rows], strict=True)
        arrow = pa.table([pa.array(column) for column in columns], names=[name for name, _ in shape.fields])
        engine: Engine = ours if writer == WE else client
        kinds = [kind for kind, *_ in rows] if engine.deletes else None
        engine.write("db.t", arrow.cast(arrow_schema(shape.fields)), kinds=kinds)
    assert _seen(ours, shape, found.ours) == found.ours
    assert _seen(client, shape, found.theirs) == found.theirs
    table = ours.table("db.t")
    if isinstance(found.compacted, str):
        with pytest.raises(merganser.errors.InvalidInputError, match=found.compacted):
            table.compact(full=True)
        return
    table.compact(full=True)
    assert _seen(ours, shape, found.compacted) == found.compacted
    assert _seen(client, shape, found.compacted) == found.compacted


def _seen(engine: Engine, shape: TableShape, expected: tuple[Any, ...] | str | None) -> tuple[Any, ...] | str | None:
    """The values of the one row, None without one; `expected` itself where it is a refusal that came."""
    if isinstance(expected, str):
        with pytest.raises((PeerError, merganser.errors.InvalidInputError), match=expected):
            engine.rows("db.t", shape)
        return expected
    rows = engine.rows("db.t", shape)
    assert len(rows) <= 1
    return tuple(rows[0][name] for name, _ in shape.fields[1:]) if rows else None
