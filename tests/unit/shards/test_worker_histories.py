"""Random histories of workers that follow a table, die and come back, while shards split, merge and expire."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.shards.follow import Batch, Worker
from merganser.shards.followers import leases_at
from merganser.shards.lease_table import COLUMNS
from tests.seeds import seeds


class Killed(BaseException):
    """The process ends here."""


class Results:
    """A store with transactions: what was handled once, next to the last record of each shard; and all that came."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.came: set[tuple[str, int]] = set()
        self.once: list[tuple[str, int, int, int]] = []
        self.last: dict[str, int] = {}

    def handle(self, batch: Batch) -> None:
        """Handle a batch; now and then the process dies before or after the transaction."""
        death = self.rng.random()
        shard = batch.shard.shard_id
        self.came |= {(shard, sequence) for sequence in batch.records.column("_sequence").to_pylist()}
        if death < 0.03:
            raise Killed
        for record in batch.after(self.last.get(shard)).to_pylist():
            self.once.append((shard, record["_sequence"], record["k"], record["v"]))
            self.last[shard] = record["_sequence"]
        if death > 0.97:
            raise Killed


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("seed", seeds(3))
def test_every_record_is_handled_once_and_in_order_of_its_key(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    now = [datetime(2026, 1, 1, tzinfo=UTC)]

    def opened() -> Any:
        return mg.catalog(str(tmp_path), clock=lambda: now[0]).table("db.t")

    catalog = mg.catalog(str(tmp_path), clock=lambda: now[0])
    catalog.create_database("db")
    options = {"bucket": str(rng.randrange(1, 5)), "stream.enabled": "true"}
    columns = "p STRING, k INT, v INT, PRIMARY KEY (p, k)"
    catalog.create_table("db.t", columns, partition_by=["p"], options=options)
    catalog.create_table("db.followers", COLUMNS, options={"bucket": "1"})
    checkpoints = ["db.followers", str(tmp_path / "group"), None][seed % 3]
    results = Results(rng)
    model: dict[tuple[str, int], int] = {}
    workers: dict[str, Worker] = {}
    made = 0

    def started() -> Worker:
        return worker_of(opened(), f"w{made}", results.handle, checkpoints, rng.choice([1, 3, 100]))

    def step(name: str) -> bool:
        try:
            return workers[name].step()
        except Killed:
            del workers[name]  # its leases stay until they run out
            return True

    for _ in range(50):
        now[0] += timedelta(seconds=rng.choice([0, 0, 1, 5]))
        steps = {"write": 6, "step": 30, "start": 3, "kill": 1, "rescale": 2, "overwrite": 2, "expire": 2, "wait": 1}
        match rng.choices(list(steps), list(steps.values()))[0]:
            case "write":
                rows = {(rng.choice("ab"), rng.randrange(8)): rng.randrange(99) for _ in range(rng.randrange(1, 6))}
                opened().write([{"p": p, "k": k, "v": v} for (p, k), v in rows.items()])
                model |= rows
            case "start" if len(workers) < 4:
                made += 1
                workers[f"w{made}"] = started()
            case "kill" if workers:
                del workers[rng.choice(list(workers))]
            case "rescale":
                opened().compact(full=True)
                opened().rescale(rng.randrange(1, 6))
            case "overwrite":
                opened().write([{"p": "a", "k": 1, "v": rng.randrange(99)}], overwrite={"p": "a"})
            case "expire":
                opened().expire(retain_max=1, retain_min=1)
            case "wait":
                now[0] += timedelta(seconds=11)
            case _ if workers:
                step(rng.choice(list(workers)))
    made += 1
    workers["last"] = started()
    idle = 0
    while idle < 20 * len(workers):
        now[0] += timedelta(seconds=1)
        before = len(results.came)
        name = rng.choice(list(workers))
        idle = 0 if step(name) or len(results.came) > before else idle + 1
        if not workers:
            made += 1
            workers["last"] = started()
    table = opened()
    wanted = {
        (shard.shard_id, sequence)
        for shard in table.shards()
        for sequence in table.records(table.shard_iterator(shard.shard_id, at="trim_horizon"), limit=100_000)
        .records.column("_sequence")
        .to_pylist()
    }
    assert results.came == wanted
    assert sorted(each[:2] for each in results.once) == sorted(wanted)
    last: dict[tuple[str, int], int] = {}
    for shard, sequence, key, _ in results.once:
        partition = next(s.partition["p"] for s in table.shards() if s.shard_id == shard)
        assert sequence > last.get((partition, key), -1)
        last[partition, key] = sequence
    found = table.followers(checkpoints)
    assert [one.shard_id for one in found] == [one.shard_id for one in table.shards()]
    assert all(one.snapshots == one.rows == 0 and not one.behind for one in found)
    assert [one.done for one in found] == [one.closed for one in table.shards()]


def worker_of(table: Any, name: str, handler: Any, checkpoints: str | None, limit: int = 1000) -> Worker:
    """Return a worker with a lease of ten seconds that is run step by step."""
    leases = partial(leases_at, table.definition, table.env, checkpoints=checkpoints, action="cannot follow")
    return Worker(
        table.definition, table.env, name, leases, handler,
        lease=timedelta(seconds=10), interval=timedelta(milliseconds=20), limit=limit,
        start="trim_horizon", before=False, full=False, gaps="error",
    )  # fmt: skip


def test_the_shards_of_a_dead_worker_are_taken_when_its_lease_ends(tmp_path: Path) -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    catalog = mg.catalog(str(tmp_path), clock=lambda: now[0])
    catalog.create_database("db")
    columns = "k INT, PRIMARY KEY (k)"
    table = catalog.create_table("db.t", columns, options={"bucket": "4", "stream.enabled": "true"})
    seen: dict[str, int] = {"dead": 0, "alive": 0}

    def handler(name: str, batch: Batch) -> None:
        seen[name] += batch.records.num_rows

    dead, alive = (worker_of(table, name, partial(handler, name), None) for name in seen)
    for worker in (dead, alive, dead, alive):
        worker.step()
        now[0] += timedelta(seconds=4)
    table.write([{"k": key} for key in range(40)])
    assert {one.worker for one in table.followers()} == {"dead", "alive"}
    while alive.step():
        pass
    assert 0 < seen["alive"] < 40
    (left,) = {(one.worker, one.until) for one in table.followers() if one.rows}
    assert left[0] == "dead"
    while now[0] < left[1]:  # it polls all the time
        now[0] += timedelta(milliseconds=250)
        while alive.step():
            pass
    now[0] = left[1] + timedelta(milliseconds=100)
    while alive.step():
        pass
    assert seen == {"dead": 0, "alive": 40}
    assert {one.worker for one in table.followers()} == {"alive"}


def counted(table: Any, counts: dict[str, int]) -> Any:
    """Return a handle whose calls of storage are counted."""
    storage = table.env.storage

    class Counting:
        def __getattr__(self, name: str) -> Any:
            inner = getattr(storage, name)
            if not callable(inner):
                return inner

            def call(*args: Any, **kwargs: Any) -> Any:
                counts[name] = counts.get(name, 0) + 1
                return inner(*args, **kwargs)

            return call

    return mg.Table(table.definition, type(table.env)(Counting(), table.env.clock, cache=table.env.cache))


@pytest.mark.parametrize("checkpoints", ["group", "db.followers"])
def test_a_poll_of_idle_shards_costs_the_same_however_many_there_are(tmp_path: Path, checkpoints: str) -> None:
    (few, one_of_few), (many, one_of_many) = (_costs(tmp_path / str(n), checkpoints, n) for n in (2, 64))
    assert few == many <= 16 * 5  # looks at the newest schema and snapshot
    assert one_of_many == one_of_few


def _costs(root: Path, checkpoints: str, buckets: int) -> tuple[int, int]:
    """Return how many calls of storage it takes to poll 16 times, and to handle a change of one shard."""
    now = datetime(2026, 1, 1, tzinfo=UTC)  # it stands still: no lease is to be renewed between the counts
    catalog = mg.catalog(str(root), clock=lambda: now)
    catalog.create_database("db")
    catalog.create_table("db.followers", COLUMNS, options={"write-only": "true"})  # now and then it would compact
    options = {"bucket": str(buckets), "stream.enabled": "true"}
    table = catalog.create_table("db.t", "k INT, v INT, PRIMARY KEY (k)", options=options)
    table.write([{"k": key, "v": 0} for key in range(200)])
    counts: dict[str, int] = {}
    handle = counted(table, counts)
    handled: list[int] = []
    at = str(root / checkpoints) if checkpoints == "group" else checkpoints
    worker = worker_of(handle, "w", lambda batch: handled.append(batch.records.num_rows), at)
    while worker.step():
        pass
    assert sum(handled) == 200
    counts.clear()
    for _ in range(16):
        assert not worker.step()
    idle = sum(counts.values())
    assert "list" not in counts
    table.write([{"k": 0, "v": 1}])
    counts.clear()
    worker.step()
    assert sum(handled) == 201
    return idle, sum(counts.values())
