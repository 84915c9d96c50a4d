"""Tags, branches, rollback, expiry, consumers and orphans of one table, whoever asks for them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from tests.interop.engines import Engine
from tests.interop.random_rows import random_table
from tests.interop.test_both_ways import KeyModel
from tests.interop.values import Row, difference, rows_of

from .histories import THEY, THEY_FULL, THEY_MINOR, KeyTable
from .java_engine import JavaEngine

_DAY_MILLIS = 24 * 3600 * 1000
_FUTURE = timedelta(days=1)


class ReferencedTable(KeyTable):
    """A key table on which, after each turn, the same client also does something to what is kept of the past.

    Attributes:
        kept: what each snapshot of the table holds.
        tagged: of each tag, its snapshot and what it holds.
        branched: of each branch, the snapshot that it began with and what its snapshots hold.
    """

    def created(self) -> None:
        """Nothing is kept yet."""
        super().created()
        self.kept: dict[int, list[Row]] = {}
        self.tagged: dict[str, tuple[int, list[Row]]] = {}
        self.branched: dict[str, tuple[int, dict[int, list[Row]]]] = {}
        self.consumed: dict[str, int] = {}
        self.names = 0

    def compare(self) -> None:
        """After a turn, something else is done, and all that is kept reads as it did."""
        super().compare()
        self.seen.clear()
        self._note_new_snapshots()
        if not self.kept:
            return
        by_java = self.log[-1].startswith((THEY, THEY_FULL, THEY_MINOR))
        actions: list[Callable[[Engine], str | None]] = [
            self._tag,
            self._tag,
            self._drop_tag,
            self._branch,
            self._write_to_branch,
            self._drop_branch,
            self._fast_forward,
            self._roll_back,
            self._expire,
            self._consume,
        ]
        done = self.random.choice(actions)(self.world.java if by_java else self.world.ours)
        if done is not None:
            self.log.append(done)
        self._compare_what_is_kept()

    def _note_new_snapshots(self) -> None:
        for snapshot in self.table.snapshots():
            self.kept.setdefault(snapshot.id, self.model.rows())

    def _compare_what_is_kept(self) -> None:
        wrong = []
        ids = [snapshot.id for snapshot in self.table.snapshots()]
        if ids != sorted(self.kept):
            wrong.append(f"there are snapshots {ids}, expected {sorted(self.kept)}")
        tags = {name: snapshot for name, (snapshot, _) in self.tagged.items()}
        seen = {
            "tags, we say": ({tag.name: tag.snapshot.id for tag in self.table.tags.list()}, tags),
            "tags, Java says": (self.world.java.ask("tags", "db.t"), tags),
            "branches, we say": ([branch.name for branch in self.table.branches.list()], sorted(self.branched)),
            "branches, Java says": (sorted(self.world.java.ask("branches", "db.t")), sorted(self.branched)),
            "consumers, we say": ({c.id: c.next_snapshot for c in self.table.consumers.list()}, self.consumed),
            "consumers, Java says": (self.world.java.ask("consumers", "db.t"), self.consumed),
        }
        wrong += [f"{what}: {found}, expected {wanted}" for what, (found, wanted) in seen.items() if found != wanted]
        some = self.random.sample(sorted(self.kept), min(2, len(self.kept)))
        reads = [(f"snapshot {i}", {"scan.snapshot-id": str(i)}, self.kept[i]) for i in some]
        reads += [(f"tag {name}", {"scan.tag-name": name}, rows) for name, (_, rows) in self.tagged.items()]
        for what, options, rows in reads:
            ours = rows_of(self.table.with_options(options).read().to_arrow(), self.shape.fields)
            wrong += self._differences(what, ours, self.world.java.read("db.t", options=options), rows)
        for name, (_, snapshots) in self.branched.items():
            ours = rows_of(self.table.branch(name).read().to_arrow(), self.shape.fields)
            theirs = self.world.java.read(f"db.t$branch_{name}")
            wrong += self._differences(f"branch {name}", ours, theirs, snapshots[max(snapshots)])
        assert not wrong, "\n".join([f"after: {'; '.join(self.log)}", *wrong])

    @staticmethod
    def _differences(what: str, ours: list[Row], theirs: list[Row], wanted: list[Row]) -> list[str]:
        found = {"merganser": difference(ours, wanted), "java": difference(theirs, wanted)}
        return [f"{client} reads {what}: {words}" for client, words in found.items() if words is not None]

    def finish(self) -> None:
        """Orphans are removed by both, and nothing that is kept was one."""
        super().finish()
        self.table.remove_orphans(older_than=datetime.now(UTC) + _FUTURE, dry_run=False)
        self._compare_what_is_kept()
        self.world.java.ask(
            "remove_orphans", "db.t", older_than_millis=int(datetime.now().timestamp() * 1000) + _DAY_MILLIS
        )
        self.log.append("orphans removed")
        self._compare_what_is_kept()

    # what is done: each gives its words for the log, or None where there is nothing to do it to

    def _new_name(self, start: str) -> str:
        self.names += 1
        return f"{start}{self.names}"

    def _tag(self, engine: Engine) -> str | None:
        name, snapshot = self._new_name("tag"), self.random.choice(sorted(self.kept))
        if isinstance(engine, JavaEngine):
            engine.ask("create_tag", "db.t", tag=name, snapshot=snapshot)
        else:
            self.table.tags.create(name, snapshot=snapshot)
        self.tagged[name] = (snapshot, self.kept[snapshot])
        return f"{engine.name} tags {snapshot} as {name}"

    def _drop_tag(self, engine: Engine) -> str | None:
        began = {snapshot for snapshot, _ in self.branched.values()}
        free = [name for name, (snapshot, _) in self.tagged.items() if snapshot not in began]
        if not free:
            return None
        name = self.random.choice(free)
        if isinstance(engine, JavaEngine):
            engine.ask("delete_tag", "db.t", tag=name)
        else:
            self.table.tags.drop(name)
        del self.tagged[name]
        return f"{engine.name} drops {name}"

    def _branch(self, engine: Engine) -> str | None:
        # Java makes no branch of a tag whose snapshot has expired
        tags = [tag for tag, (snapshot, _) in self.tagged.items() if snapshot in self.kept]
        if not tags:
            return None
        name, tag = self._new_name("branch"), self.random.choice(tags)
        if isinstance(engine, JavaEngine):
            engine.ask("create_branch", "db.t", branch=name, tag=tag)
        else:
            self.table.branches.create(name, tag=tag)
        snapshot, rows = self.tagged[tag]
        self.branched[name] = (snapshot, {snapshot: rows})
        return f"{engine.name} branches {name} from {tag}"

    def _write_to_branch(self, engine: Engine) -> str | None:
        if not self.branched:
            return None
        name = self.random.choice(sorted(self.branched))
        _, snapshots = self.branched[name]
        model = KeyModel(self.shape.primary_key)
        model.apply(snapshots[max(snapshots)], delete=False)
        keys = self.random.choices(self.pool, k=5)
        rows = random_table(self.random, self.shape.fields, self.shape.primary_key, keys)
        if isinstance(engine, JavaEngine):
            engine.write(f"db.t$branch_{name}", rows)
        else:
            self.table.branch(name).write(rows)
        model.apply(rows_of(rows, self.shape.fields), delete=False)
        for snapshot in self.table.branch(name).snapshots():
            snapshots.setdefault(snapshot.id, model.rows())
        return f"{engine.name} writes to {name}"

    def _drop_branch(self, engine: Engine) -> str | None:
        if not self.branched:
            return None
        name = self.random.choice(sorted(self.branched))
        if isinstance(engine, JavaEngine):
            engine.ask("delete_branch", "db.t", branch=name)
        else:
            self.table.branches.drop(name)
        del self.branched[name]
        return f"{engine.name} drops {name}"

    def _fast_forward(self, engine: Engine) -> str | None:
        """Main becomes the branch; then all other branches would be of a past that is gone, so there is just one."""
        if len(self.branched) != 1:
            return None
        [(name, (began, snapshots))] = self.branched.items()
        if began not in self.kept:
            return None
        if isinstance(engine, JavaEngine):
            engine.ask("fast_forward", "db.t", branch=name)
        else:
            self.table.branches.fast_forward(name)
        self._forget_after(began)
        self.kept |= snapshots
        self._hold(snapshots[max(snapshots)])
        return f"{engine.name} fast-forwards to {name}"

    def _roll_back(self, engine: Engine) -> str | None:
        lowest = max((snapshot for snapshot, _ in self.branched.values()), default=0)
        targets = [snapshot for snapshot in self.kept if snapshot >= lowest]
        if not targets:
            return None
        snapshot = self.random.choice(targets)
        if isinstance(engine, JavaEngine):
            engine.ask("rollback", "db.t", snapshot=snapshot)
        else:
            self.table.rollback(snapshot=snapshot)
            # Java leaves a consumer where it is, beyond the newest snapshot; we put it back
            self.consumed = {name: min(following, snapshot + 1) for name, following in self.consumed.items()}
        self._forget_after(snapshot)
        self._hold(self.kept[snapshot])
        return f"{engine.name} rolls back to {snapshot}"

    def _forget_after(self, snapshot: int) -> None:
        self.kept = {number: rows for number, rows in self.kept.items() if number <= snapshot}
        self.tagged = {name: found for name, found in self.tagged.items() if found[0] <= snapshot}

    def _hold(self, rows: list[Row]) -> None:
        self.model = KeyModel(self.shape.primary_key)
        self.model.apply(rows, delete=False)

    def _expire(self, engine: Engine) -> str | None:
        retained = self.random.randint(1, 4)
        if isinstance(engine, JavaEngine):
            engine.ask("expire", "db.t", retain_max=retained, retain_min=1, older_than_millis=_DAY_MILLIS)
        else:
            self.table.expire(retain_max=retained, retain_min=1)
        first = max(self.kept) - retained + 1
        wanted = min(self.consumed.values(), default=first)
        self.kept = {number: rows for number, rows in self.kept.items() if number >= min(first, wanted)}
        return f"{engine.name} expires all but {retained}"

    def _consume(self, engine: Engine) -> str | None:
        """Set one consumer to where a reader could be now; the next time drop it."""
        if self.consumed:
            self.table.consumers.drop("reader")
            self.consumed.clear()
            return "the consumer is dropped"
        following = self.random.choice(sorted(self.kept))
        if isinstance(engine, JavaEngine):
            engine.ask("set_consumer", "db.t", consumer="reader", next_snapshot=following)
        else:
            self.table.consumers.set("reader", following)
        self.consumed["reader"] = following
        return f"{engine.name} consumes from {following}"
