"""Random histories of tables of every merge engine, held against the oracle after every commit.

    python -m tests.oracle.engine_histories [--engine NAME] [--seeds FIRST:END] [--keep-going]

The invariant: what a table says is one function of the rows in the order of their commits. The oracle computes it from
the rows alone and knows of no files. So one seed draws, beside the table and its rows, all that must not change
results: how a commit is cut into flushes, compactions of any kind between commits, deletion vectors, windows, slices,
file sizes, formats, projections and filters.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import merganser as mg
from merganser.errors import ConflictError, InvalidInputError
from tests.oracle.drawn_tables import ENGINES, DrawnTable, drawn_table
from tests.oracle.engines import Change, CountingOracle, HistoryOracle, Row

WINDOWS = ("merganser.lsm.section.WINDOW_ROWS", "merganser.lsm.writer.SLICE_ROWS")
Filter = tuple[str, Callable[[Row], bool]]
"""(text of a filter, what it means)."""
KINDS = ["+I", "+I", "+I", "+I", "+U", "-U", "-U", "-D", "-D"]


class AppendOracle:
    """A table without a key: rows are kept as they come, and only additions are taken."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self.rows: list[Row] = []

    def refused(self, kind: str) -> bool:
        """Return whether rows of this kind cannot be written."""
        return kind in ("-U", "-D") and not self._dropped(kind)

    def flush(self, changes: Sequence[Change]) -> None:
        """Keep the rows whose kind is not dropped."""
        self.rows += [dict(row) for kind, row in changes if not self._dropped(self._kind(kind, row))]

    def visible(self) -> list[Row]:
        """Return the rows that a batch read gives, in no order."""
        return self.rows

    def _kind(self, kind: str, row: Row) -> str:
        return row[self.options["rowkind.field"]] if "rowkind.field" in self.options else kind

    def _dropped(self, kind: str) -> bool:
        if self.options.get("ignore-delete") == "true":
            return kind in ("-U", "-D")
        return self.options.get("ignore-update-before") == "true" and kind == "-U"


class CountingTable(AppendOracle):
    """A counting table with options that drop rows."""

    def __init__(self, drawn: DrawnTable) -> None:
        super().__init__(drawn.options)
        self.oracle = CountingOracle(list(drawn.columns))

    def refused(self, kind: str) -> bool:
        return False

    def flush(self, changes: Sequence[Change]) -> None:
        named = [(self._kind(kind, row), row) for kind, row in changes]
        self.oracle.flush([(kind, row) for kind, row in named if not self._dropped(kind)])

    def visible(self) -> list[Row]:
        return self.oracle.visible()


class History:
    """One table, one oracle, and what is done to both."""

    def __init__(self, engine: str, seed: int, path: Path) -> None:
        self.rng = random.Random(f"{engine} {seed}")
        self.drawn = drawn = drawn_table(engine, self.rng)
        self.vectors = self._vectors(random.Random(f"{engine} {seed} vectors"))
        self.path = path
        self.what = f"{engine}, seed {seed}"
        catalog = mg.catalog(str(path), options={"local.sync": "false"})
        catalog.create_database("db")
        key = [*drawn.partition, *drawn.key] if drawn.key else []
        self.table = catalog.create_table(
            "db.t", drawn.columns, primary_key=key, partition_by=drawn.partition, options=drawn.options
        )
        self.arrow = {field.name: field.type for field in self.table.read().schema}
        self.oracle: HistoryOracle | AppendOracle
        if engine == "counting":
            self.oracle = CountingTable(drawn)
        elif engine == "append":
            self.oracle = AppendOracle(drawn.options)
        else:
            types = {field.name: field.type for field in self.table.schema.fields}
            self.oracle = HistoryOracle(types, key, drawn.options)
        self.kinds = [kind for kind in KINDS if not self.oracle.refused(kind)]
        if random.Random(f"{engine} {seed} inline").random() < 0.5:
            self._write_only()
        self.overlaps = random.Random(f"{engine} {seed} overlaps")
        self.rescales = random.Random(f"{engine} {seed} rescales")
        self.clock = 0
        self.compared: Counter[str] = Counter()

    def run(self) -> None:
        """Write, read, and compare."""
        steps = self.rng.randrange(3, 9)
        for step in range(steps):
            self._commit()
            if self.table.definition.postpones:  # rows of writers wait for their buckets
                self.table.compact()
            if self.rng.random() < 0.3:
                self._compact()
            if (self.table.definition.bucket > 0 or self.table.definition.postpones) and self.rescales.random() < 0.2:
                self.table.rescale(self.rescales.choice([1, 2, 3, 4, 6]))
            self._same(self.table.read(), self.oracle.visible(), list(self.drawn.columns), f"step {step}")
            if self.rng.random() < 0.2:
                self._refusal()
        for _ in range(4):
            self._some_columns()
        findings = self.table.check()
        assert findings == (), f"{self.what}: {findings}"
        self.compared["keys"] = len(self.oracle.stored) if isinstance(self.oracle, HistoryOracle) else 0

    def _vectors(self, rng: random.Random) -> str | None:
        """Give the table deletion vectors, some of the time; level 0 compacted with each commit, or merged by reads."""
        if self.drawn.engine not in ("deduplicate", "partial-update", "aggregation") or rng.random() > 0.35:
            return None
        options = self.drawn.options
        options["deletion-vectors.enabled"] = "true"
        options["deletion-vectors.bitmap64"] = rng.choice(["true", "false"])
        options["deletion-vectors.merge-on-read"] = rng.choice(["true", "false"])
        return "read" if options["deletion-vectors.merge-on-read"] == "true" else "inline"

    def _write_only(self) -> None:
        """Let no write be followed by a compaction, but where rows are not visible without one."""
        if self.drawn.engine != "first-row" and self.vectors != "inline":
            self.table = self.table.with_options({"write-only": "true"})

    def _commit(self) -> None:
        rng = self.rng
        rows = [self._change() for _ in range(rng.choice([1, 3, 10, 40]))]
        parts = rng.randrange(1, 4)
        batches = [batch for i in range(parts) if (batch := rows[i::parts])]
        for _, row in (change for batch in batches for change in batch):
            self.clock += rng.choice([0, 1, 2]) if self.drawn.may_tie else 1
            self.drawn.rise(row, self.clock)
        if isinstance(self.oracle, HistoryOracle) and rng.random() < 0.08:
            spec = {"p": "a"} if self.drawn.partition else {}
            batches = [[c for c in batch if not spec or c[1]["p"] == "a"] for batch in batches]
            changes = [change for batch in batches for change in batch]
            self.table.write(self._arrow(changes), kinds="op", overwrite=spec)
            self.oracle.clear(spec)
            self.oracle.flush(changes)
            return
        if len(batches) > 1 and self.overlaps.random() < 0.25:
            self._overlapping(batches)
            return
        match rng.choice(["whole", "held", "buffered"]):
            case "whole":
                batches = [[change for batch in batches for change in batch]]
                self.table.write(self._arrow(batches[0]), kinds="op")
            case "held":
                with self.table.writer() as writer:
                    for batch in batches:
                        writer.write(self._arrow(batch), kinds="op")
                    writer.commit()
            case "buffered":
                with self.table.writer() as writer:
                    writer.write((self._arrow(batch) for batch in batches), kinds="op")
                    writer.commit()
        for batch in batches:
            self.oracle.flush(batch)

    def _overlapping(self, batches: list[list[Change]]) -> None:
        """Let each batch be a commit of its own writer; all begin before the first commits, and none is in order."""
        with ExitStack() as stack:
            writers = [(stack.enter_context(self.table.writer()), batch) for batch in batches]
            for writer, batch in writers:
                writer.write(self._arrow(batch), kinds="op")
            if not self.drawn.rising:
                self.overlaps.shuffle(writers)
            small = self.overlaps.choice([0, 1 << 20])  # rows get their numbers when they come, or at the commit
            with patch("merganser.write.buffer.SMALL_BYTES", small):
                for writer, batch in writers:
                    try:
                        writer.commit()
                    except ConflictError:  # another writer gave new keys their buckets first
                        assert self.table.definition.assigns_keys
                        writer.abort()
                        self.table.write(self._arrow(batch), kinds="op")
                    self.oracle.flush(batch)

    def _compact(self) -> None:
        """Put all runs together, or those that the rules pick."""
        self.table.compact(full=self.rng.random() < 0.4)

    def _change(self) -> Change:
        kind, row = self.rng.choice(self.kinds), self.drawn.row(self.rng)
        if "rk" in row:
            row["rk"] = kind
            kind = self.rng.choice(KINDS)  # has no meaning
        return kind, row

    def _arrow(self, changes: Sequence[Change]) -> pa.Table:
        columns: dict[str, Any] = {
            name: pa.array([row[name] for _, row in changes], kind) for name, kind in self.arrow.items()
        }
        return pa.table({**columns, "op": pa.array([kind for kind, _ in changes], pa.string())})

    def _refusal(self) -> None:
        """A kind that the table does not take is refused, and nothing of the write is there."""
        refused = [kind for kind in ("-U", "-D") if self.oracle.refused(kind)]
        if not refused or "rk" in self.drawn.columns:
            return
        rows = [("+I", self.drawn.row(self.rng)), (self.rng.choice(refused), self.drawn.row(self.rng))]
        before = self.table.latest_snapshot()
        try:
            self.table.write(self._arrow(rows), kinds="op")
        except InvalidInputError:
            assert self.table.latest_snapshot() == before, self.what
        else:
            raise AssertionError(f"{self.what}: {rows[1][0]} was taken")

    # reading

    def _some_columns(self) -> None:
        """Projections, filters, counts and limits give what the oracle gives."""
        rng, visible = self.rng, self.oracle.visible()
        names = list(self.drawn.columns)
        columns = rng.sample(names, rng.randrange(1, len(names) + 1))
        self._same(self.table.read(columns=columns), visible, columns, f"columns {columns}")
        text, holds = self._filter()
        expected = [row for row in visible if holds(row)]
        self._same(self.table.read(where=text), expected, names, f"where {text}")
        self._same(self.table.read(columns=columns, where=text), expected, columns, f"columns {columns} where {text}")
        assert self.table.read(where=text).count() == len(expected), f"{self.what}: count where {text}"
        assert self.table.read().count() == len(visible), f"{self.what}: count"
        limit = rng.choice([0, 1, 5])
        assert self.table.read(limit=limit).to_arrow().num_rows == min(limit, len(visible)), f"{self.what}: limit"

    def _filter(self) -> Filter:
        filters = [test for name, kind in self.drawn.columns.items() for test in _tests_of(name, kind)]
        (one, holds_one), (other, holds_other) = self.rng.sample(filters, 2)
        match self.rng.choice(["one", "one", "and", "or"]):
            case "and":
                return f"{one} AND {other}", lambda row: holds_one(row) and holds_other(row)
            case "or":
                return f"{one} OR {other}", lambda row: holds_one(row) or holds_other(row)
        return one, holds_one

    def _same(self, scan: Any, expected: Sequence[Row], columns: Sequence[str], what: str) -> None:
        found = Counter(_image(row, columns) for row in scan.to_pylist())
        wanted = Counter(_image(row, columns) for row in expected)
        self.compared["reads"] += 1
        self.compared["rows"] += wanted.total()
        assert found == wanted, (
            f"{self.what}, {what}, columns {list(columns)}\n  too many: {list((found - wanted).elements())}\n  "
            f"missing:  {list((wanted - found).elements())}\n  options:  {self.drawn.options}"
        )


def _image(row: Row, columns: Sequence[str]) -> str:
    return repr([_plain(row[name]) for name in columns])


def _plain(value: Any) -> Any:
    """Return a value without what has no meaning: the sign of a decimal zero, the order of collected elements."""
    if isinstance(value, Decimal):
        return value + 0
    if isinstance(value, list):
        return sorted(map(repr, value))
    return value


def _tests_of(name: str, kind: str) -> Iterator[Filter]:
    """Yield filters on one column."""

    def test(text: str, holds: Callable[[Any], bool]) -> Filter:
        return f"{name} {text}", lambda row: holds(row[name])

    yield test("IS NULL", lambda value: value is None)
    if kind in ("INT", "BIGINT", "DOUBLE"):
        yield test(">= 2", lambda value: value is not None and not value < 2)  # NaN is above everything
    if kind == "INT":
        yield test("< 1", lambda value: value is not None and value < 1)
    if kind == "STRING":
        yield test("= 'a'", lambda value: value == "a")


def run(engine: str, seed: int, path: Path) -> Counter[str]:
    """Run one history in an empty directory, and return what was compared: keys at its end, reads, and their rows.

    Raises:
        AssertionError: the table and the oracle differ; the message begins with the engine and the seed.
    """
    rows = random.Random(seed).choice([1, 2, 7, 200_000])
    with ExitStack() as stack:
        for name in WINDOWS:
            stack.enter_context(patch(name, rows))
        history = History(engine, seed, path)
        history.run()
        return history.compared


def main() -> int:
    """Run many histories and return the number of those that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.engine_histories")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="default: all")
    parser.add_argument("--seeds", default="0:1000", metavar="FIRST:END")
    parser.add_argument("--keep-going", action="store_true", help="do not end with the first failure")
    options = parser.parse_args()
    first, end = (int(text) for text in options.seeds.split(":"))
    failed, compared = 0, Counter[str]()
    for seed in range(first, end):
        for engine in options.engine or ENGINES:
            with tempfile.TemporaryDirectory() as path:
                try:
                    compared += run(engine, seed, Path(path))
                except Exception as error:
                    failed += 1
                    print(f"FAILED {engine} {seed}: {error}", flush=True)
                    if not options.keep_going:
                        traceback.print_exc()
                        return failed
    histories = (end - first) * len(options.engine or ENGINES)
    print(
        f"{histories:,} histories, {failed} failed; compared were {compared['keys']:,} keys and {compared['reads']:,} "
        f"reads of {compared['rows']:,} rows"
    )
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
