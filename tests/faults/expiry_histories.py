"""Histories of writes, compactions, tags, branches, rollbacks and expiry, drawn from a seed.

After every step each snapshot, tag and branch reads as it did when it was made, also by a reader that starts anew, and
no file is there that nothing names, but for those that a rollback or a dropped branch leaves until orphans are removed.

    python -m tests.faults.expiry_histories --seeds 200 [--first 0] [--steps 60]
"""

from __future__ import annotations

import argparse
import itertools
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import merganser as mg
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
_FUTURE = "2100-01-01"
Rows = list[tuple[Any, ...]]


def run_history(seed: int, steps: int = 40) -> None:
    """Run one history; a failure names seed and step."""
    history = History(seed)
    for step in range(steps):
        name = history.random.choice(_STEPS)
        try:
            getattr(history, name)()
            history.check()
        except Exception as error:
            error.add_note(f"seed {seed}, step {step}: {name}")
            raise


_STEPS = (
    ["write"] * 8
    + ["compact", "compact_full", "overwrite", "truncate", "expire", "expire", "expire", "expire"]
    + ["tag", "tag", "drop_tag", "branch", "write_branch", "write_branch", "expire_branch", "drop_branch"]
    + ["rollback", "roll_back_to_tag", "fast_forward", "remove_orphans"]
)


@dataclass
class History:
    """A table, and what each of its snapshots, tags and branches must read as."""

    seed: int
    names: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.storage = memory_with({}, f"expiry-history-{next(_names)}")
        catalog = catalog_over(self.storage, clock=lambda: self.now)
        catalog.create_database("db")
        options = {
            "bucket": "2",
            "manifest.merge-min-count": str(self.random.choice([2, 4, 30])),
            "num-sorted-run.compaction-trigger": str(self.random.choice([2, 5])),
            "write-only": self.random.choice(["true", "false"]),
            "snapshot.num-retained.min": str(self.random.choice([1, 3, 10])),
            "snapshot.num-retained.max": str(self.random.choice([10, 15])),
            "snapshot.expire.limit": str(self.random.choice([1, 50])),
        }
        keyed = self.random.random() < 0.7
        catalog.create_table(
            "db.t",
            {"p": "STRING", "k": "INT", "v": "INT"},
            primary_key=["p", "k"] if keyed else None,
            partition_by=["p"],
            options=options if keyed else {**options, "bucket": "1", "bucket-key": "k"},
        )
        self.table = catalog.table("db.t")
        self.rows: dict[tuple[str, str], Rows] = {}
        """(line, list of the snapshot's own manifests) -> its rows."""
        self.leaves_orphans = False

    # steps

    def write(self, table: mg.Table | None = None) -> None:
        table = table or self.table
        rows = [
            {"p": self.random.choice("ab"), "k": self.random.randrange(8), "v": next(self.names)}
            for _ in range(self.random.randrange(1, 6))
        ]
        kinds = [self.random.choice(["+I", "+I", "-D"]) if table.primary_key else "+I" for _ in rows]
        self._tick()
        user, identifier = self.random.choice([(None, None), ("job", next(self.names))])
        table.write(rows, kinds=kinds, commit_user=user, identifier=identifier)

    def compact(self) -> None:
        self._tick()
        self.table.compact()

    def compact_full(self) -> None:
        self._tick()
        self.table.compact(full=True)

    def overwrite(self) -> None:
        self._tick()
        self.table.write([{"p": "a", "k": 1, "v": next(self.names)}], overwrite={"p": "a"})

    def truncate(self) -> None:
        self._tick()
        self.table.truncate()

    def expire(self, table: mg.Table | None = None) -> None:
        table = table or self.table
        least = self.random.randrange(1, 5)
        would = table.expire(retain_max=least + self.random.randrange(6), retain_min=least, dry_run=True)
        before = table.snapshots()
        gone = table.expire(
            retain_max=least + self.random.randrange(6),
            retain_min=least,
            older_than=self.now - timedelta(minutes=self.random.randrange(60)),
            max_deletes=self.random.choice([None, 2]),
        )
        assert table.snapshots() == before[len(gone) :]
        assert before[: len(would)] == would

    def tag(self) -> None:
        kept = self.table.snapshots()
        if kept:
            self.table.tags.create(f"t{next(self.names)}", snapshot=self.random.choice(kept).id)

    def drop_tag(self) -> None:
        tags = self.table.tags.list()
        if tags:
            self.table.tags.drop(self.random.choice(tags).name)

    def branch(self) -> None:
        tags = self.table.tags.list()
        if tags:
            tag = self.random.choice(tags)
            name = f"b{next(self.names)}"
            self.table.branches.create(name, tag=tag.name)

    def write_branch(self) -> None:
        table = self._any_branch()
        if table is not None:
            self.write(table)
            if self.random.random() < 0.5:
                table.compact(full=True)

    def expire_branch(self) -> None:
        table = self._any_branch()
        if table is not None:
            self.expire(table)

    def drop_branch(self) -> None:
        branches = self.table.branches.list()
        if branches:
            self.table.branches.drop(self.random.choice(branches).name)
            self.leaves_orphans = True

    def rollback(self) -> None:
        kept = self.table.snapshots()
        if kept:
            self.table.rollback(snapshot=self.random.choice(kept).id)
            self.leaves_orphans = True

    def roll_back_to_tag(self) -> None:
        tags = self.table.tags.list()
        if tags:
            try:
                self.table.rollback(tag=self.random.choice(tags).name)
            except mg.errors.ConflictError:
                return  # its number is that of another snapshot now
            self.leaves_orphans = True

    def fast_forward(self) -> None:
        branches = self.table.branches.list()
        if branches:
            try:
                self.table.branches.fast_forward(self.random.choice(branches).name)
            except mg.errors.ConflictError:
                return
            self.leaves_orphans = True

    def remove_orphans(self) -> None:
        self.table.remove_orphans(older_than=_FUTURE, dry_run=False)
        self.leaves_orphans = False

    # what must hold

    def check(self) -> None:
        """Compare everything that can be read with what it was when it was first seen."""
        anew = catalog_over(self.storage, clock=lambda: self.now).table("db.t")
        for table in (self.table, anew):
            for line in (table, *(table.branch(branch.name) for branch in table.branches.list())):
                for snapshot in line.snapshots():
                    self._same(snapshot, line.read(snapshot=snapshot.id))
                for tag in line.tags.list():
                    self._same(tag.snapshot, line.read(tag=tag.name))
        if not self.leaves_orphans:
            assert anew.remove_orphans(older_than=_FUTURE) == ()

    def _same(self, snapshot: Any, scan: Any) -> None:
        rows = sorted(tuple(row.values()) for row in scan.to_pylist())
        key = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
        assert self.rows.setdefault(key, rows) == rows, f"snapshot {snapshot.id}"

    def _any_branch(self) -> mg.Table | None:
        branches = self.table.branches.list()
        return self.table.branch(self.random.choice(branches).name) if branches else None

    def _tick(self) -> None:
        self.now += timedelta(minutes=self.random.randrange(20))


def main() -> None:
    """Run many histories."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    for seed in range(given.first, given.first + given.seeds):
        run_history(seed, given.steps)
    print(f"{given.seeds} histories of {given.steps} steps: all that was kept read as it did")


if __name__ == "__main__":
    main()
