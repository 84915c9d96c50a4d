"""The rows of the campaign: lines of orders, and rounds of changes to them; needs pyarrow and numpy alone.

| column | values |
|---|---|
| order_id, line | the key: orders have one to seven lines |
| product | one of 5,000 texts |
| quantity | 1 to 9 |
| price | decimal(10, 2) |
| status | `new`, and another one after each change |
| updated_at | timestamp in microseconds, an hour later with each round |
| note | three words out of a thousand, null in one of five rows |

Each line has a number, its id, and each change of it the number of the round, its version. The values of a row are a
function of both, so a state of the table is an array of versions, and what a read must return is computed from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.data import decimals

SCHEMA = pa.schema(
    [
        pa.field("order_id", pa.int64(), nullable=False),
        pa.field("line", pa.int32(), nullable=False),
        pa.field("product", pa.string()),
        pa.field("quantity", pa.int32()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("status", pa.string()),
        pa.field("updated_at", pa.timestamp("us")),
        pa.field("note", pa.string()),
    ]
)
COLUMNS = {
    "order_id": "BIGINT NOT NULL",
    "line": "INT NOT NULL",
    "product": "STRING",
    "quantity": "INT",
    "price": "DECIMAL(10, 2)",
    "status": "STRING",
    "updated_at": "TIMESTAMP(6)",
    "note": "STRING",
}
KEY = ("order_id", "line")
BEGIN = 1_767_225_600_000_000
_HOUR = 3_600_000_000
_PRODUCTS = pa.array([f"product-{number:04d}" for number in range(5_000)])
_STATES = pa.array(["new", "paid", "packed", "shipped", "returned"])
_WORDS = pa.array([f"word{number * 7919 % 1000:03d}" for number in range(1_000)])
_NEW_SHARE, _HOT_SHARE, _DELETE_SHARE = 0.3, 0.3, 0.05
_HOT_SHARE_OF_LINES = 0.001
"""Share of the lines that are hot: three of ten changes of a round go to them."""
Digest = list[int]
"""Sums over the rows: 1, order_id, line, quantity, price in cents, number of the product, 1 if shipped, 1 if there is a
note, microseconds since the first hour, and order_id times quantity, which ties values to their keys."""
SUMS = 10


@dataclass(slots=True)
class Lines:
    """All lines that there will ever be, by id, and the version of each; -1: the table has no such row."""

    orders: np.ndarray
    lines: np.ndarray
    versions: np.ndarray
    used: int
    """Lines from here on are new ones of later rounds."""
    hot: np.ndarray
    """Ids of the lines that are changed all the time, the first of them most of all; they lie all over the keys."""

    def table(self, ids: np.ndarray) -> pa.Table:
        """The rows of ids as they are now."""
        versions = self.versions[ids]
        hashes = _mixed(ids.astype(np.uint64) * np.uint64(1_000_003) + versions.astype(np.uint64))
        words = [_taken(_WORDS, (hashes >> np.uint64(shift)) % np.uint64(1_000)) for shift in (5, 17, 29)]
        note = pc.binary_join_element_wise(*words, " ")
        state = np.where(versions == 0, 0, 1 + (hashes >> np.uint64(40)) % np.uint64(4))
        times = BEGIN + versions.astype(np.int64) * _HOUR + (hashes % np.uint64(_HOUR)).astype(np.int64)
        columns = [
            pa.array(self.orders[ids]),
            pa.array(self.lines[ids]),
            _taken(_PRODUCTS, hashes % np.uint64(5_000)),
            pa.array((1 + (hashes >> np.uint64(11)) % np.uint64(9)).astype(np.int32)),
            decimals((99 + (hashes >> np.uint64(20)) % np.uint64(500_000)).astype(np.int64), 10),
            _taken(_STATES, state),
            pa.array(times).cast(pa.timestamp("us")),
            pc.if_else(pa.array((hashes >> np.uint64(50)) % np.uint64(5) == 0), None, note),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)

    def keys(self, ids: np.ndarray) -> pa.Table:
        """The keys of ids."""
        schema = pa.schema([SCHEMA.field(name) for name in KEY])
        return pa.Table.from_arrays([pa.array(self.orders[ids]), pa.array(self.lines[ids])], schema=schema)

    def live(self) -> np.ndarray:
        """The ids of the rows that there are."""
        return np.flatnonzero(self.versions[: self.used] >= 0)

    def digest(self, ids: np.ndarray) -> Digest:
        """What a read of these rows must come to."""
        parts = [digest(self.table(ids[start : start + (1 << 20)])) for start in range(0, len(ids), 1 << 20)]
        return sums(parts)


def lines_of(rows: int, rounds: int, seed: int) -> Lines:
    """A table of about `rows` lines, all in version 0, and the lines that the rounds will add."""
    random = np.random.default_rng(seed)
    counts = random.integers(1, 8, rows // 3 + 10)
    counts = counts[: np.searchsorted(np.cumsum(counts), rows + rounds * changes_of(rows)) + 1]
    orders = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    lines = np.arange(len(orders)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
    versions = np.full(len(orders), -1, dtype=np.int16)
    versions[:rows] = 0
    hot = np.linspace(0, rows - 1, max(20, int(rows * _HOT_SHARE_OF_LINES)), dtype=np.int64)
    return Lines(orders, lines.astype(np.int32), versions, rows, hot)


def changes_of(rows: int) -> int:
    """The number of changes in a round: one of 200 rows."""
    return max(20, rows // 200)


def changed(
    lines: Lines, round_number: int, changes: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Apply one round; returns the ids that are written and those that are deleted, each id at most once.

    New lines follow those before. Of the other changes, some go to few hot lines, and some to lines of any age. A line
    that was deleted may come back.
    """
    new = np.arange(lines.used, lines.used + int(changes * _NEW_SHARE))
    hot = lines.hot[(random.pareto(1.2, int(changes * _HOT_SHARE)) * 5).astype(np.int64) % len(lines.hot)]
    deleted = random.choice(lines.live(), int(changes * _DELETE_SHARE), replace=False)
    late = random.integers(0, lines.used, changes - len(new) - len(hot) - len(deleted))
    written = np.setdiff1d(np.concatenate([new, hot, late]), deleted)
    lines.used += len(new)
    lines.versions[written] = round_number
    lines.versions[deleted] = -1
    return random.permutation(written), deleted


def digest(table: pa.Table) -> Digest:
    """What rows come to."""
    if table.num_rows == 0:
        return [0] * SUMS
    quantity = table["quantity"].cast(pa.int64())
    price = pc.sum(table["price"].cast(pa.decimal128(38, 2))).as_py() or Decimal(0)
    product = pc.utf8_slice_codeunits(table["product"].cast(pa.string()), len("product-")).cast(pa.int64())
    times = table["updated_at"].cast(pa.timestamp("us"), safe=False).cast(pa.int64())
    return [
        table.num_rows,
        pc.sum(table["order_id"]).as_py(),
        pc.sum(table["line"].cast(pa.int64())).as_py(),
        pc.sum(quantity).as_py(),
        int(price * 100),
        pc.sum(product).as_py(),
        pc.sum(pc.equal(table["status"], "shipped")).as_py(),
        table.num_rows - table["note"].null_count,
        pc.sum(pc.subtract(times, BEGIN)).as_py(),
        pc.sum(pc.multiply(table["order_id"], quantity)).as_py(),
    ]


def sums(parts: list[Digest]) -> Digest:
    """What the rows of all parts come to."""
    return [sum(column) for column in zip([0] * SUMS, *parts, strict=True)]


def _taken(values: pa.Array, places: np.ndarray) -> pa.Array:
    return values.take(pa.array(places.astype(np.int32)))


def _mixed(values: np.ndarray) -> np.ndarray:
    """Splitmix64: neighbours get values that look random."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
