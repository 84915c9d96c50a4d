"""Random histories: readers that keep their own positions see every change once, in the order of each key."""

from __future__ import annotations

import copy
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import TrimmedDataError
from merganser.meta.followed import newest
from merganser.meta.shard_stream import stream_of
from merganser.shards.batches import Beginning, ShardBatches
from merganser.shards.pieces import records_of
from merganser.shards.records import Shape
from merganser.stream.batches import NOWHERE, UNLIMITED, Limits
from tests.seeds import seeds

W = [10, 2, 2, 1, 1, 4, 2, 1]
SHAPE = Shape(("p", "k", "v"), ("p", "k"))
PRODUCERS: list[dict[str, str]] = [
    {},
    {"changelog-producer": "lookup"},
    {"changelog-producer": "per-record"},
    {"bucket": "2"},
    {"bucket": "2", "changelog-producer": "lookup"},
    {"bucket": "4", "changelog-producer": "full-compaction"},
    {"bucket": "3", "changelog-producer": "per-record"},
    {"bucket": "2", "changelog-producer": "per-record", "deletion-vectors.enabled": "true"},
]


class Reader:
    """A program that follows the table by the rule: parents to their ends, then their children."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows: dict[tuple[str, int], int | None] = {}
        self.at: dict[str, str | None] = {}
        self.ends: dict[str, datetime | None] = {}
        self.seen: dict[tuple[str, int], int] = {}

    def go_on(self, table: Any, pages: int | None = None) -> None:
        """Read some pages, each of a shard that may be read; None: until there is nothing more."""
        idle: set[str] = set()
        for _ in range(10_000 if pages is None else pages):
            shards = {s.shard_id: s for s in table.shards()}
            ready = [
                s
                for s in shards.values()
                if self.at.get(s.shard_id, "") is not None
                and all(p not in shards or self.at.get(p, "") is None for p in s.parents)
            ]
            if pages is None:
                ready = [s for s in ready if s.shard_id not in idle]
            if not ready:
                return
            shard = self.rng.choice(ready)
            at = self.at.get(shard.shard_id)
            if at is None:
                at = table.shard_iterator(shard.shard_id, at="trim_horizon")
            got = table.records(at, limit=self.rng.choice([1, 2, 5, 1000]))
            again = table.records(at, limit=max(got.records.num_rows, 1))
            assert again.records.equals(got.records)
            for record in got.records.to_pylist():
                self.apply(record)
            self.at[shard.shard_id] = got.next_iterator
            if got.next_iterator is None:
                self.ends[shard.shard_id] = shard.closed_time
            if not got.may_have_more:
                idle.add(shard.shard_id)

    def is_taken_back(self, table: Any) -> bool:
        """Return whether a rollback took back what this program has read of a shard: its end, or all of it."""
        now = {one.shard_id: one.closed_time for one in table.shards()}
        return not self.at.keys() <= now.keys() or any(now[one] != ended for one, ended in self.ends.items())

    def apply(self, record: dict[str, Any]) -> None:
        """Take a record over, if it fits to what is known of its key."""
        key = (record["p"], record["k"])
        assert record["_sequence"] > self.seen.get(key, -1), "the order of a key"
        self.seen[key] = record["_sequence"]
        if record["_action"] == "PUT":
            assert key not in self.rows
            self.rows[key] = record["v"]
        elif record["_action"] == "UPDATE":
            assert key in self.rows
            if "v" in record["_changed"]:
                assert record["v"] != self.rows[key]
                self.rows[key] = record["v"]
        else:
            del self.rows[key]


class BatchReader(Reader):
    """An engine that keeps one position of all shards, and repeats batches."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.position: dict[str, Any] = dict(NOWHERE)

    def go_on(self, table: Any, pages: int | None = None) -> None:
        """Read some batches; None: until there is nothing more."""
        batches = self._batches(table)
        start = batches.position(self.position)
        for _ in range(10_000 if pages is None else pages):
            end = batches.advance(batches.start() if start is None else start)
            if end == start:
                return
            found = batches.shards(start, end)
            again = self._batches(table)
            value = json.loads(json.dumps(batches.value(end)))
            assert again.shards(start, again.position(value)) == found
            before: set[str] = set()
            for pieces in self.rng.sample(found, len(found)):  # tasks run in any order
                assert not before & set(pieces[0].shard.parents)
                before.add(pieces[0].shard.id)
                assert not {p[0].shard.id for p in found} & set(pieces[0].shard.parents)
                for records in records_of(pieces, SHAPE, batches.reader.empty, table.env.storage):
                    for record in records.to_pylist():
                        self.apply(record)
            self.position, start = value, end

    def _batches(self, table: Any) -> ShardBatches:
        definition = newest(table.definition, table.env)
        stream = stream_of(definition.schema.options, definition.branch)
        assert stream is not None
        fields = definition.schema.user_fields
        limits = self.rng.choice([UNLIMITED, Limits(rows=5), Limits(files=1)])
        return ShardBatches(definition, table.env, stream, columns=fields, beginning=Beginning(), limits=limits)


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("seed", seeds(7))
def test_readers_see_every_change_once(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    now = [datetime(2026, 1, 1, tzinfo=UTC)]

    def opened() -> Any:
        return mg.catalog(str(tmp_path), clock=lambda: now[0])

    opened().create_database("db")
    options = dict(PRODUCERS[seed % len(PRODUCERS)]) | {
        "num-sorted-run.compaction-trigger": "3",
        "dynamic-bucket.target-row-num": "6",
    }
    table = opened().create_table(
        "db.t", "p STRING, k INT, v INT, PRIMARY KEY (p, k)", partition_by=["p"], options=options
    )
    model: dict[tuple[str, int], int | None] = {}
    for _ in range(rng.randrange(3)):
        _write(table, rng, model)
    table.compact(full=True)  # compactions publish what commits changed: all that came before the stream
    began = dict(model)
    table.enable_stream("1 h")
    readers = [kind(random.Random(seed * 7 + i)) for i, kind in enumerate([Reader, Reader, BatchReader])]
    for reader in readers:
        reader.rows = dict(began)
    for _ in range(25):
        now[0] += timedelta(seconds=20)
        table = opened().table("db.t")
        steps = ["write", "compact", "rescale", "drop", "overwrite", "expire", "empty"]
        match rng.choices(steps, [10, 2, 2, 1, 1, 2, 2])[0]:
            case "write":
                _write(table, rng, model)
            case "compact":
                table.compact(full=rng.random() < 0.5)
            case "rescale" if table.definition.bucket > 0:  # it publishes what waits for a compaction
                buckets = rng.randrange(1, 6)
                if any(partition == "a" for partition, _ in model) and rng.random() < 0.3:
                    table.rescale(buckets, [{"p": "a"}])
                table.rescale(buckets)
            case "drop":
                gone = rng.choice("ab")
                table.drop_partitions([{"p": gone}])
                model = {key: value for key, value in model.items() if key[0] != gone}
            case "overwrite":
                row = {"p": "a", "k": rng.randrange(9), "v": rng.randrange(100)}
                table.write([row], overwrite={"p": "a"})
                model = {key: value for key, value in model.items() if key[0] != "a"} | {("a", row["k"]): row["v"]}
            case "expire":
                table.expire(retain_max=2)
            case "empty":  # its shards stay open, and it may get rows again with another number of buckets
                gone = rng.choice("ab")
                keys = [key for key in model if key[0] == gone]
                if keys:
                    table.write([{"p": p, "k": k, "v": None} for p, k in keys], kinds=["-D"] * len(keys))
                table.compact(full=True)
                model = {key: value for key, value in model.items() if key[0] != gone}
                if model and table.definition.bucket > 0 and rng.random() < 0.5:
                    table.rescale(rng.randrange(1, 6))
        for reader in readers:
            if rng.random() < 0.5:
                reader.go_on(opened().table("db.t"), rng.randrange(6))
    table = opened().table("db.t")
    table.compact(full=True)
    for reader in readers:
        reader.go_on(table)
        assert reader.rows == model
    assert {(row["p"], row["k"]): row["v"] for row in table.read().to_arrow().to_pylist()} == model


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("seed", seeds(4))
def test_readers_go_on_after_expiry_and_rollbacks_or_are_told(tmp_path: Path, seed: int) -> None:
    """What a reader has read up to the target of a rollback stands; if it has read more, it begins from a backup."""
    rng = random.Random(seed)
    now = [datetime(2026, 1, 1, tzinfo=UTC)]

    def tick() -> datetime:
        now[0] += timedelta(milliseconds=10)
        return now[0]

    def opened() -> Any:
        return mg.catalog(str(tmp_path), clock=tick)

    opened().create_database("db")
    options = dict(PRODUCERS[seed % len(PRODUCERS)]) | {"num-sorted-run.compaction-trigger": "3"}
    opened().create_table(
        "db.t", "p STRING, k INT, v INT, PRIMARY KEY (p, k)", partition_by=["p"], options=options
    ).enable_stream("1 h")
    models: dict[int, dict[tuple[str, int], int | None]] = {}
    model: dict[tuple[str, int], int | None] = {}
    readers = [kind(random.Random(seed * 7 + i)) for i, kind in enumerate([Reader, Reader, BatchReader])]
    backups = [{0: copy.deepcopy(reader)} for reader in readers]  # as of the newest snapshot that each may have read
    for step in range(30):
        table = opened().table("db.t")
        kept = [one.id for one in table.snapshots() if one.id in models]
        tags = [one for one in table.tags.list() if one.snapshot_id in models]
        target = None
        match rng.choices(["write", "compact", "rescale", "drop", "tag", "expire", "rollback", "to tag"], W)[0]:
            case "write":
                _write(table, rng, model)
            case "compact":
                table.compact(full=rng.random() < 0.5)
            case "rescale" if table.definition.bucket > 0:
                table.rescale(rng.randrange(1, 5))
            case "drop":
                gone = rng.choice("ab")
                table.drop_partitions([{"p": gone}])
                model = {key: value for key, value in model.items() if key[0] != gone}
            case "tag" if kept:
                table.tags.create(f"t{step}", snapshot=rng.choice(kept))
            case "expire":
                table.expire(retain_max=rng.randrange(1, 4))
            case "rollback" if kept:
                target = rng.choice(kept)
                table.rollback(target)
            case "to tag" if tags:
                tag = rng.choice(tags)
                target = tag.snapshot_id
                table.rollback(tag=tag.name)
        table = opened().table("db.t")
        if target is not None:
            model = dict(models[target])
            for i, reader in enumerate(readers):
                backups[i] = {upto: one for upto, one in backups[i].items() if upto <= target}
                try:
                    told = reader.is_taken_back(table)
                    reader.go_on(table)
                except TrimmedDataError:
                    told = True
                if told:
                    readers[i] = copy.deepcopy(backups[i][max(backups[i])])
        if (latest := table.latest_snapshot()) is None:
            continue
        models = {number: one for number, one in models.items() if number < latest.id} | {latest.id: dict(model)}
        for i, reader in enumerate(readers):
            if rng.random() < 0.5:
                reader.go_on(table, rng.randrange(8))
                backups[i][latest.id] = copy.deepcopy(reader)
    opened().table("db.t").compact(full=True)
    for reader in readers:
        reader.go_on(opened().table("db.t"))
        assert reader.rows == model


def _write(table: Any, rng: random.Random, model: dict[tuple[str, int], int | None]) -> None:
    rows = {(rng.choice("ab"), rng.randrange(12)): rng.choice([None, *range(20)]) for _ in range(rng.randrange(1, 7))}
    kinds = [rng.choice(["+I", "+I", "+I", "-D"]) for _ in rows]
    if rng.random() < 0.5:  # rows wait for a compaction of another process
        table = table.with_options({"write-only": "true"})
    table.write([{"p": p, "k": k, "v": v} for (p, k), v in rows.items()], kinds=kinds)
    for (key, value), kind in zip(rows.items(), kinds, strict=True):
        if kind == "-D":
            model.pop(key, None)
        else:
            model[key] = value
