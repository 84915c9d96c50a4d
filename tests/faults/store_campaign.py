"""Histories on a store that fails at every n-th request: nothing is raised, lost, doubled or wrong.

    python -m tests.faults.store_campaign --seeds 20 --every 3
    python -m tests.faults.store_campaign --seeds 20 --every 3 --store hdfs

Each history writes, upserts, deletes, overwrites, reads, looks keys up, follows the changes, compacts and expires, one
step after the other, and compares the table with a dict. The store answers 503 and 500, loses replies before and after
it did what was asked, breaks off in the middle of a reply, and is slow (`tests.s3_server`, `tests.hdfs.proxy`).
"""

from __future__ import annotations

import argparse
import random
import time
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import merganser as mg
from tests import s3_server
from tests.hdfs import cluster as hdfs_cluster
from tests.hdfs import proxy as proxies
from tests.hdfs.cluster import Cluster
from tests.s3_server import new_bucket

_KEYS: Final = 30
_STEPS: Final = ("write", "write", "upsert", "delete", "overwrite", "compact", "expire", "reopen", "tag")
_LAYOUTS: Final[tuple[dict[str, str], ...]] = (
    {"bucket": "2"},
    {"bucket": "1", "changelog-producer": "lookup"},
    {"bucket": "1", "deletion-vectors.enabled": "true"},
    {"dynamic-bucket.target-row-num": "10"},
    {"bucket": "1", "file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b"},
)
_ALL: Final = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "3", "snapshot.time-retained": "1 ms"}


class History:
    """One table and the rows that it has to show."""

    def __init__(self, root: str, options: dict[str, str], seed: int) -> None:
        self._rng = random.Random(seed)
        self._catalog = mg.catalog(f"{root}/w", options=options)
        self._catalog.create_database("db", if_not_exists=True)
        self._rows: dict[int, str | None] = {}
        layout = {**_ALL, **_LAYOUTS[seed % len(_LAYOUTS)]}
        self.table = self._catalog.create_table("db.t", {"k": "INT", "v": "STRING"}, primary_key=["k"], options=layout)
        self._commits = 0
        self._followed: dict[int, str | None] = {}

    def step(self) -> None:
        """Take one step, and compare."""
        name = self._rng.choice(_STEPS)
        getattr(self, f"_{name}")()
        self.compare()
        if "changelog-producer" in self.table.options:
            self.follow()

    def compare(self) -> None:
        """Compare reads, lookups and the snapshot count with what was committed."""
        found = {row["k"]: row["v"] for row in self.table.read().to_pylist()}
        assert found == self._rows, f"{found} and not {self._rows}"
        asked = self._rng.sample(range(_KEYS), 5)
        looked_up = {row["k"]: row["v"] for row in self.table.lookup([{"k": k} for k in asked]).to_pylist()}
        assert looked_up == {k: self._rows[k] for k in asked if k in self._rows}

    def follow(self) -> None:
        """Read what was published since the last call, and compare the state that the changes make."""
        for plan in self.table.stream(follow=False, consumer="campaign"):
            for row in plan.to_pylist():
                if row["_row_kind"] in ("+I", "+U"):
                    self._followed[row["k"]] = row["v"]
                elif row["_row_kind"] == "-D":
                    del self._followed[row["k"]]
        assert self._followed == self._rows, f"{self._followed} and not {self._rows}"

    def finish(self) -> None:
        """Check the table as a whole."""
        findings = self.table.check()
        assert findings == (), findings

    def _drawn(self) -> list[dict[str, Any]]:
        keys = self._rng.sample(range(_KEYS), self._rng.randrange(1, 8))
        return [{"k": k, "v": self._rng.choice([None, "a", "b", f"{self._rng.random()}"])} for k in keys]

    def _write(self) -> None:
        rows = self._drawn()
        self._commits += 1
        self.table.write(rows, commit_user="campaign", identifier=self._commits)
        self._rows |= {row["k"]: row["v"] for row in rows}

    def _upsert(self) -> None:
        rows = self._drawn()
        self.table.upsert(rows)
        self._rows |= {row["k"]: row["v"] for row in rows}

    def _delete(self) -> None:
        at = self._rng.randrange(_KEYS)
        self.table.delete(f"k > {at}")
        self._rows = {k: v for k, v in self._rows.items() if k <= at}

    def _overwrite(self) -> None:
        if "changelog-producer" in self.table.options:  # it publishes no overwrites
            return
        rows = self._drawn()
        self.table.write(rows, overwrite={})
        self._rows = {row["k"]: row["v"] for row in rows}

    def _compact(self) -> None:
        self.table.compact(full=self._rng.random() < 0.5)

    def _expire(self) -> None:
        self.table.expire()

    def _reopen(self) -> None:
        self.table = self._catalog.table("db.t")

    def _tag(self) -> None:
        name = f"t{self._rng.randrange(1 << 30)}"
        if self.table.latest_snapshot() is not None:
            self.table.tags.create(name)
            assert {row["k"]: row["v"] for row in self.table.read(tag=name).to_pylist()} == self._rows
            self.table.tags.drop(name)


def run_on_s3(endpoint: str, *, seed: int, every: int, steps: int) -> None:
    """Run one history; see `_run`."""
    bucket = new_bucket(endpoint, flaky=(every, seed))
    _run(bucket.root, bucket.options, seed=seed, every=every, steps=steps)


def run_on_hdfs(cluster: Cluster, *, seed: int, every: int, steps: int) -> None:
    """Run one history; see `_run`. Requests to datanodes go wrong, too."""
    with proxies.running(cluster.addresses[0], flaky=(every, seed)) as proxy:
        folder = cluster.folder()
        options = {**folder.options, "hdfs.webhdfs.address": proxy.address}
        _run(folder.root, options, seed=seed, every=every, steps=steps)


def _run(root: str, options: dict[str, str], *, seed: int, every: int, steps: int) -> None:
    """Run one history; every `every`-th request of it goes wrong.

    Raises:
        Exception: what a step raised, with a note that names seed and step.
    """
    step = 0
    try:
        history = History(root, options, seed)
        while step < steps:
            step += 1
            history.step()
        history.finish()
    except BaseException as error:
        error.add_note(f"seed {seed}, step {step}, every {every}. request")
        raise


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.store_campaign")
    parser.add_argument("--store", choices=["s3", "hdfs"], default="s3")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--every", type=int, default=3, help="every so-manieth request goes wrong")
    parser.add_argument("--steps", type=int, default=15)
    chosen = parser.parse_args()
    with ExitStack() as ends:
        run = (
            partial(run_on_s3, ends.enter_context(s3_server.running()))
            if chosen.store == "s3"
            else partial(run_on_hdfs, ends.enter_context(hdfs_cluster.running()))
        )
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            began = time.perf_counter()
            run(seed=seed, every=chosen.every, steps=chosen.steps)
            print(f"seed {seed}: {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
