"""The same steps by the functions of `merganser.spark`: half of the calls of a history with Spark."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from merganser.schema import types as t
from tests.everything import by_sql
from tests.everything.following import Follower
from tests.everything.history import History
from tests.everything.model import image
from tests.everything.replica import DifferenceError
from tests.everything.values import Row, quoted
from tests.oracle.engines import Change


def session() -> Any:
    """Return a local session of Spark."""
    from pyspark.sql import SparkSession

    import merganser.spark as ms

    root = str(Path(__file__).parents[2])
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": root}
    builder = SparkSession.builder.master("local[2]").appName("everything")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    ms.register(found)
    return found


class SparkHistory(History):
    """A history whose calls are made by Spark, half of them."""

    def _by_spark(self, rng: random.Random) -> bool:
        return rng.random() < 0.6

    def _frame(self, rows: pa.Table) -> Any:
        frame = self.spark.createDataFrame(rows)
        plain = {f.name for f in rows.schema if pa.types.is_timestamp(f.type) and f.type.tz is None}
        columns = {name: frame[quoted(name)] for name in rows.column_names}
        return frame.select(
            *(each.cast("timestamp_ntz").alias(name) if name in plain else each for name, each in columns.items())
        )

    def drawn_follower(self, rng: random.Random, before: Follower | None = None) -> Follower | None:
        from tests.everything.following_on_spark import by_spark

        return by_spark(self, super().drawn_follower(rng, before), rng)

    def write(self, rng: random.Random, changes: Sequence[Change], how: Any = None, *, tracked: bool = True) -> None:
        import merganser.spark as ms
        from merganser.spark.staging import why_not_staged

        if not changes or not self._by_spark(rng):
            super().write(rng, changes, how, tracked=tracked)
        elif how is None and tracked and self.line is self.main and rng.random() < 0.4:
            self._stream(changes)
        else:
            options = {} if how is None else {"overwrite": how}
            frame = self._frame(self.arrow(changes))
            through = rng.choice(["auto", "auto", "files"])
            if why_not_staged(frame) is not None:  # such rows are refused
                through = "auto"
            ms.write(frame, self.table, kinds="op", through=through, changes=tracked, **options)

    def _stream(self, changes: Sequence[Change]) -> None:
        """Write rows as one batch of a stream."""
        import merganser.spark as ms

        rows = self._frame(self.arrow(changes))
        name = next(self.names)
        folder, checkpoint = self.path / f"stream-{name}", self.path / f"checkpoint-{name}"
        rows.coalesce(1).write.parquet(str(folder))
        source = self.spark.readStream.schema(rows.schema).parquet(str(folder))
        query = ms.write_stream(source, self.table, str(checkpoint), kinds="op", trigger="availableNow")
        query.awaitTermination()

    def delete(self, rng: random.Random, where: str) -> Any:
        import merganser.spark as ms

        return ms.delete(self.spark, self.table, where) if self._by_spark(rng) else super().delete(rng, where)

    def erase(self, rng: random.Random, where: str, *, everywhere: bool) -> Any:
        import merganser.spark as ms

        if self._by_spark(rng):
            return ms.erase(self.spark, self.table, where, everywhere)
        return super().erase(rng, where, everywhere=everywhere)

    def update(self, rng: random.Random, where: str, sets: dict[str, str]) -> Any:
        import merganser.spark as ms

        if self._by_spark(rng):
            return ms.update(self.spark, self.table, where, sets)
        return super().update(rng, where, sets)

    def merge(
        self,
        rng: random.Random,
        source: Sequence[Row],
        on: str,
        clauses: Any,
        done: Callable[[Callable[[], Any]], None],
    ) -> None:
        import merganser.spark as ms

        if not source or not self._by_spark(rng):
            super().merge(rng, source, on, clauses, done)
            return
        given = self.arrow([("+I", row) for row in source]).drop_columns(["op"])
        rows = self._frame(given)

        def call() -> Any:
            text = by_sql.merging(self, given, "rows_given", on, clauses) if self.says_sql else None
            if text is None:
                return clauses.of(ms.merge(self.spark, self.table, rows, on, alias=clauses.alias)).execute()
            self.compared["merges in SQL on Spark"] += 1
            rows.createOrReplaceTempView("rows_given")
            return by_sql.executed(self, ms.session(self.spark, self.catalog), text)

        done(call)

    def querying(self, rng: random.Random) -> tuple[Any, Callable[[t.Field], bool]]:
        import merganser.spark as ms

        if not self._by_spark(rng):
            return super().querying(rng)
        self.compared["queries on Spark"] += 1
        return ms.session(self.spark, self.catalog), lambda field: not self._differs(str(field.type))

    def compact(self, rng: random.Random, *, full: bool, partitions: Any = None) -> None:
        import merganser.spark as ms

        if self._by_spark(rng):
            ms.compact(self.spark, self.table, full=full, partitions=partitions)
        else:
            super().compact(rng, full=full, partitions=partitions)

    def rescale(self, rng: random.Random, buckets: int) -> None:
        import merganser.spark as ms

        if self._by_spark(rng):
            ms.rescale(self.spark, self.table, buckets)
        else:
            super().rescale(rng, buckets)

    def load(self, rng: random.Random, files: str, kinds: str | None) -> None:
        import merganser.spark as ms

        if self._by_spark(rng):
            ms.load(self.spark, files, self.table, kinds=kinds)
        else:
            super().load(rng, files, kinds)

    def write_changes(
        self, rng: random.Random, texts: Any, form: str, keys: Any, options: dict[str, Any], times: int = 1
    ) -> None:
        import merganser.spark as ms

        if not self._by_spark(rng) or self.line is not self.main:
            super().write_changes(rng, texts, form, keys, options, times)
            return
        numbers = list(range(len(texts)))
        columns = {"value": pa.array(texts, pa.string()), "n": numbers, "source": ["t"] * len(texts)}
        columns["key"] = pa.array(keys if keys else [None] * len(texts), pa.string())
        frame = self._frame(pa.table(columns))
        given = {"key": "key", "position": "n", "table_column": "source"}
        if rng.random() < 0.6:
            for _ in range(times):
                ms.cdc.write(frame, form, {"t": self.table}, **given, **options)
            return
        options = {name: value for name, value in options.items() if name != "identifier"}
        name = next(self.names)
        folder, checkpoint = self.path / f"records-{name}", str(self.path / f"checkpoint-{name}")
        frame.coalesce(1).write.parquet(str(folder))
        source = self.spark.readStream.schema(frame.schema).parquet(str(folder))
        for _ in range(times):  # a query that begins again has nothing left to do
            query = ms.cdc.write_stream(
                source, form, {"t": self.table}, checkpoint, trigger="availableNow", **given, **options
            )
            query.awaitTermination()

    def compare(self, rng: random.Random, last: bool) -> None:
        """Compare what Spark reads, too."""
        super().compare(rng, last)
        if last or rng.random() < 0.3:
            self._joined(rng)
        if not last and rng.random() < 0.6:
            return
        import merganser.spark as ms

        text, holds, names = self.drawn_filter(rng)
        rows = [row for row in self.model.visible() if holds(row)]
        kept = [f for f in self.line.fields if not self._differs(str(f.type))]
        columns = [f.name for f in kept]
        if any(self._differs(str(f.type)) for f in self.line.fields if f.name in names):
            return
        self.same(
            f"Spark where {text}", ms.read(self.spark, self.table, columns, text).toArrow(), rows, columns=columns
        )
        if len(self.line.states) >= 2:
            start, end = sorted(rng.sample(sorted(self.line.states), 2))
            if bool(self.line.states[start].model.key) != bool(self.model.key):
                return
            theirs = ms.changes(self.spark, self.table, start + 1, end, columns, mode="diff").toArrow().to_pylist()
            ours = self.table.changes(start + 1, end, columns, mode="diff").to_pylist()
            unordered = self.model.unordered()
            found, wanted = (
                Counter((row["_row_kind"], image(row, tuple(kept), unordered)) for row in each)
                for each in (theirs, ours)
            )
            if found != wanted:
                raise DifferenceError("Spark diff", f"{found - wanted} and not {wanted - found}")

    def replayed(self, rng: random.Random, start: int, end: int, rows: Sequence[Row]) -> None:
        """Read changes as a batch or by a query."""
        import merganser.spark as ms
        from tests.everything.following_on_spark import Queries

        if self._by_spark(rng):
            found = ms.changes(self.spark, self.table, start, end, gaps="skip").toArrow().to_pylist()
        else:
            found = []
            options = {"scan.mode": "from-snapshot", "scan.snapshot-id": str(start), "change-tracking.gaps": "skip"}
            Queries(self, **options).rows(self.table, found)
        kept = [f for f in self.model.fields if not self._differs(str(f.type))]
        if self._counted(found, kept) != self._counted(rows, kept):
            raise DifferenceError("changelogs", f"changes {start} to {end} by Spark are {found}, and not {rows}")
        self.compared["changelogs by Spark"] += 1

    def _joined(self, rng: random.Random) -> None:
        """Join rows with the rows of their keys, in a batch or a stream."""
        import merganser.spark as ms

        model, visible = self.model, self.model.visible()
        names = [*dict.fromkeys([*model.key, *model.partition])]
        kept = [f for f in self.line.fields if not self._differs(str(f.type)) and f.name not in names]
        if not model.key or not kept:
            return
        rows = [*rng.sample(visible, min(3, len(visible))), {name: self.drawn.draws[name](rng) for name in names}]
        schema = self.table.read().schema
        given = {
            f"_k{i}": pa.array([row[name] for row in rows], schema.field(name).type) for i, name in enumerate(names)
        }
        frame = self._frame(pa.table({**given, "_n": list(range(len(rows)))}))
        how, on = rng.choice(["left", "inner"]), {f"_k{i}": name for i, name in enumerate(names)}
        found: list[Row] = []
        asked = {"how": how, "columns": [f.name for f in kept], "shuffle": rng.random() < 0.5}
        if rng.random() < 0.7:
            found += ms.lookup_join(frame, self.table, on, **asked).toArrow().to_pylist()
        else:
            folder = self.path / f"keys-{next(self.names)}"
            frame.coalesce(1).write.parquet(str(folder))
            source = self.spark.readStream.schema(frame.schema).parquet(str(folder))
            joined = ms.lookup_join(source, self.table, on, **asked)
            query = joined.writeStream.foreachBatch(lambda batch, _: found.extend(batch.toArrow().to_pylist()))
            query.trigger(availableNow=True).start().awaitTermination()
        by_key = {tuple(map(repr, (row[name] for name in names))): row for row in visible}
        expected = []
        for number, row in enumerate(rows):
            partner = by_key.get(tuple(map(repr, (row[name] for name in names))))
            if partner is not None or how == "left":
                expected.append({"_n": number, **{f.name: partner and partner[f.name] for f in kept}})
        number = t.Field(-1, "_n", t.BigInt())
        self.same_rows(f"{how} join", found, expected, (number, *kept))
        self.compared["joins"] += 1

    def _counted(self, changes: Sequence[Row], fields: Sequence[t.Field]) -> Counter[tuple[str, str]]:
        unordered = self.model.unordered()
        return Counter((row["_row_kind"], image(row, tuple(fields), unordered)) for row in changes)

    def _differs(self, kind: str) -> bool:
        """Return whether Spark has values of another type for a column."""
        return kind.startswith("TIME(") or "TIMESTAMP(9)" in kind
