"""The verbs that keep a table in shape, as part of `Table`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from merganser.errors import FormatError, InvalidInputError, MerganserError, check_flags
from merganser.expr.setting import Setting
from merganser.handle.base import TableBase
from merganser.meta.followed import for_changing, newest
from merganser.meta.refs import BranchStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_state import MetaReader

if TYPE_CHECKING:
    from merganser.handle.branches import Branches
    from merganser.handle.consumers import Consumers
    from merganser.handle.tags import Tags
    from merganser.lsm.check import Finding
    from merganser.upkeep.advice import Advice, ShardLag
    from merganser.upkeep.expire_snapshots import HeldBack
    from merganser.upkeep.plan_compaction import CompactionRequest
    from merganser.upkeep.repair import Repaired


class UpkeepVerbs(TableBase):
    """Compaction, rescaling, checks, expiry, rollback, and what keeps snapshots: tags, branches, consumers."""

    def compact(
        self,
        full: bool = False,
        partitions: Iterable[Mapping[str, Any]] | None = None,
        where: str | Any | None = None,
        order_by: Sequence[str] | None = None,
        curve: str = "order",
    ) -> Snapshot | None:
        """Compact the table: join files, so that reads merge less. Reads return the same rows as before.

        Args:
            full: merge everything into the highest level, and rewrite files that have rows marked as deleted, or
                another format, compression or index than the options now ask for. Otherwise universal compaction picks
                what to merge, and picks nothing if a bucket has few sorted runs.
            partitions: compact only these, such as [{"dt": "2026-01-01"}]; a spec may name only some of the
                partition columns.
            where: compact only partitions that match this filter on partition columns.
            order_by: sort by these columns, so that filters on them read few files. This rewrites all rows of each
                partition. Only for tables without a primary key and with `bucket` = -1.
            curve: `order` sorts by the first column, then the next; `zorder` and `hilbert` help filters on any of
                the columns.

        Returns:
            The snapshot, or None if there was nothing to do, or if other compactions did it meanwhile.

        Raises:
            InvalidInputError: the partitions, columns or filter are invalid; nothing was changed.
            NotFoundError: the table has no such partition; nothing was changed.
            ConflictError: other commits changed the same files again and again; no row is lost.
            CommitUnknownError: the store lost the reply to the commit. Call it again.
            FormatError: a file is damaged or missing; nothing was changed.
            StorageError: the store failed; nothing was changed, or commits before are kept.
        """
        from merganser.write.distribute import compact_all

        request = self.compaction_request(full, partitions, where, order_by, curve)
        return compact_all(self.definition, self.env, request)

    def rescale(self, buckets: int, partitions: Iterable[Mapping[str, Any]] | None = None) -> Snapshot | None:
        """Move the rows to another number of buckets, and let later writers use it. Reads return the same rows.

        The rows move in one commit, which streams and changelogs pass over: no row changes. Rows that others write
        meanwhile are moved, too. A writer that was opened before and commits after it gets a ConflictError, and its
        rows can be written again. Killed at any point, the table is as before or moved; call it again.

        If `bucket` is -2, rows that wait get so many buckets first.

        Args:
            buckets: the number after.
            partitions: move only these, such as [{"dt": "2026-01-01"}]. The others keep their number and can be read;
                rows can be written to them once they are moved, too.

        Returns:
            The snapshot, or None if all rows lie in so many buckets already.

        Raises:
            InvalidInputError: the number or a partition is invalid, or the table has no fixed number of buckets;
                nothing was changed.
            NotFoundError: the table has no such partition; nothing was changed.
            ConflictError: other commits replaced the same files again and again; nothing was changed.
            FormatError: a file is damaged or missing; nothing was changed.
        """
        from merganser.write.distribute import rescale_all

        return rescale_all(self.definition, self.env, buckets, self.stored_specs(partitions, "rescale"))

    def check(self, quick: bool = False) -> tuple[Finding, ...]:
        """Check the table, its branches and its tags against their files. Nothing is written.

        Args:
            quick: read only metadata, and check that the data files exist. Otherwise read all rows too.

        Returns:
            The findings, each with the file, the reason and advice; empty if the table has no fault. The check goes
            on after a damaged file. A finding whose `is_fault` is false says that the check cannot tell: the rows of
            some data files have no checksum.
        """
        from merganser.shards.followers import check_leases
        from merganser.upkeep.check import check_table

        check_flags(f"cannot check '{self.name}'", quick=quick)
        return (*check_table(self.definition, self.env, quick=quick), *check_leases(self.definition, self.env))

    def advice(self) -> tuple[Advice, ...]:
        """Return what costs readers or writers of the table more than it need, with numbers and the command that helps.

        It looks at the newest snapshot, at consumers, and at workers of `follow` that keep their leases with the table.
        It reads no data file. Empty: the table is in good shape.
        """
        from merganser.files.masks import marked_rows
        from merganser.upkeep.advice import Facts, advice_for, drop_advice
        from merganser.upkeep.bucket_option import wanted_buckets
        from merganser.upkeep.outdated import outdated_files

        store = SnapshotStore(self.definition.paths, self.env, self.name)
        latest = self.latest_snapshot()
        branches = BranchStore(self.definition.paths, self.env, self.name)
        begun = tuple(drop_advice(self.definition, branches.dropping()))
        if latest is None:
            return begun
        reader = MetaReader(self.definition.paths, self.env, self.name)
        state, table = reader.state(latest), newest(self.definition, self.env)
        earliest = store.earliest_id() or latest.id
        oldest = store.get(earliest)
        facts = Facts(
            state.live,
            latest.id - earliest + 1,
            None if oldest is None else oldest.commit_time,
            self.env.clock(),
            wanted_buckets(self.definition, self.env, state),
            table.bucket,
            outdated_files(table, self.env, state.live),
            marked_rows(table, reader.index(latest)),
            self._held_back(),
            self._shard_lags(),
        )
        return (*begun, *advice_for(self.definition, facts))

    def _held_back(self) -> tuple[HeldBack, ...]:
        from merganser.upkeep.expire_snapshots import held_back

        with contextlib.suppress(FormatError):  # a damaged consumer is a finding of the check
            return held_back(self.definition, self.env)
        return ()

    def _shard_lags(self) -> list[ShardLag]:
        from merganser.shards.followers import followers_beside
        from merganser.upkeep.advice import ShardLag

        with contextlib.suppress(MerganserError):  # what is damaged, or trimmed, others say
            found = followers_beside(self.definition, self.env)
            return [ShardLag(one.shard_id, one.rows, one.behind) for one in found if not one.done]
        return []

    def expire(
        self,
        retain_max: int | None = None,
        retain_min: int | None = None,
        older_than: datetime | str | None = None,
        max_deletes: int | None = None,
        dry_run: bool = False,
    ) -> tuple[Snapshot, ...]:
        """Remove old snapshots and the files that only they need. Tags and branches stay readable.

        Args:
            retain_max, retain_min: the largest and smallest number of snapshots to keep; None:
                'snapshot.num-retained.max' and 'snapshot.num-retained.min'.
            older_than: a datetime or ISO text (UTC if it has no zone). Between the two numbers, a snapshot is removed
                if its successor is older than this; None: 'snapshot.time-retained' before now.
            max_deletes: the largest number of snapshots to remove; None: 'snapshot.expire.limit'.
            dry_run: change nothing.

        Returns:
            The snapshots that were removed, or with `dry_run` would be removed, oldest first. Snapshots that a
            consumer has not read yet are never among them.

        Raises:
            InvalidInputError: a number or the time is invalid; nothing was removed.
            FormatError: metadata is damaged, so it is unknown which files are needed; nothing was removed.
            StorageError: the store failed; the snapshots that still exist have all their files.
        """
        from merganser.scan.time_travel import epoch_ms
        from merganser.upkeep.expire_snapshots import expire
        from merganser.upkeep.retention import snapshot_retention

        check_flags(f"cannot expire snapshots of '{self.name}'", dry_run=dry_run)
        retention = snapshot_retention(
            self.definition.options,
            self.env.now_ms(),
            table=self.name,
            retain_max=retain_max,
            retain_min=retain_min,
            older_than_ms=None if older_than is None else epoch_ms(older_than),
            max_deletes=max_deletes,
        )
        return expire(self.definition, self.env, retention, dry_run=dry_run)

    def expire_partitions(self, dry_run: bool = False) -> tuple[Mapping[str, Any], ...]:
        """Drop the partitions that are older than 'partition.expiration-time'.

        Other options that start with 'partition.' say how to find the age.

        Returns:
            The values of the partitions that were dropped, or with `dry_run` would be dropped.

        Raises:
            InvalidInputError: the table has no partitions, or no 'partition.expiration-time'.
            UnsupportedError: the expiration strategy is a Java class.
            ConflictError: other writers committed again and again; some partitions may have been dropped.
        """
        from merganser.upkeep.expire_partitions import expire_partitions as expired_partitions
        from merganser.write.dropping import expire_partitions

        check_flags(f"cannot expire partitions of '{self.name}'", dry_run=dry_run)
        if dry_run:
            return expired_partitions(self.definition, self.env, None)
        return expire_partitions(self.definition, self.env)

    def remove_orphans(self, older_than: datetime | str | None = None, dry_run: bool = True) -> tuple[str, ...]:
        """List, or with `dry_run=False` remove, files that no snapshot, tag, branch or changelog names.

        Args:
            older_than: a datetime or ISO text (UTC if it has no zone). Newer files stay, because a writer may be
                about to commit them; None: a day ago.
            dry_run: change nothing.

        Returns:
            The paths that were removed, or with `dry_run` would be removed.

        Raises:
            FormatError: metadata is damaged, so it is unknown which files are needed; nothing was removed.
            StorageError: the store failed; only orphans were removed.
        """
        from merganser.scan.time_travel import epoch_ms
        from merganser.upkeep.orphans import DAY_MS, remove_orphans

        check_flags(f"cannot remove orphans of '{self.name}'", dry_run=dry_run)
        limit_ms = self.env.now_ms() - DAY_MS if older_than is None else epoch_ms(older_than)
        return remove_orphans(self.definition, self.env, older_than_ms=limit_ms, dry_run=dry_run)

    def compaction_request(
        self,
        full: bool = False,
        partitions: Iterable[Mapping[str, Any]] | None = None,
        where: str | Any | None = None,
        order_by: Sequence[str] | None = None,
        curve: str = "order",
        setting: Setting | None = None,
    ) -> CompactionRequest:
        """Return the checked request of a call of `compact`; its texts are in UTC unless a setting is given."""
        from merganser.expr.filters import to_predicate
        from merganser.lsm.clustering import checked_order
        from merganser.upkeep.plan_compaction import CompactionRequest

        check_flags(f"cannot compact '{self.name}'", full=full)
        setting = setting or self.setting("UTC")
        through = to_predicate(where, self.definition.schema.user_fields, setting=setting)
        if through is not None and not through.columns <= set(self.partition_by):
            other = sorted(through.columns - set(self.partition_by))[0]
            raise InvalidInputError(
                f"cannot compact '{self.name}': where uses '{other}', which is not a partition column. A compaction "
                "rewrites whole partitions, so where can only select partitions.",
                column=other,
            )
        request = CompactionRequest(full=full, where=through, order=checked_order(self.definition, order_by, curve))
        return replace(request, partitions=self.stored_specs(partitions, "compact"))

    def stored_specs(self, partitions: Iterable[Mapping[str, Any]] | None, action: str) -> list[dict[str, Any]] | None:
        """Return checked specs of partitions with stored values; None: all partitions.

        Args:
            action: what is done with them, for messages.

        Raises:
            InvalidInputError: no list, or a name or value that no partition has.
        """
        from merganser.write.target import WriteTarget

        if partitions is None:
            return None
        target = WriteTarget(self.definition, action=f"cannot {action} '{self.name}'")
        if isinstance(partitions, str | Mapping) or not isinstance(partitions, Iterable):
            raise InvalidInputError(
                f"cannot {action} '{self.name}': {partitions!r:.60} is not a list of partitions. Write "
                "[{'dt': '2026-01-01'}]."
            )
        return [target.stored_spec(spec) for spec in partitions]

    @property
    def tags(self) -> Tags:
        """The tags of the table: snapshots with a name, which do not expire."""
        from merganser.handle.tags import Tags

        return Tags(self.definition, self.env)

    @property
    def branches(self) -> Branches:
        """The branches of the table: other lines of snapshots over the same data files."""
        from merganser.handle.branches import Branches

        return Branches(self.definition, self.env)

    @property
    def consumers(self) -> Consumers:
        """The consumers of the table: named readers and the snapshot that each reads next."""
        from merganser.handle.consumers import Consumers

        return Consumers(self.definition, self.env)

    def rollback(self, snapshot: int | None = None, tag: str | None = None) -> Snapshot:
        """Set the table back to a snapshot or tag. Later snapshots and their tags are removed for good.

        First stop streams that follow the table, and writers if you can: commits during the rollback are removed too.
        Later commits use the numbers of removed snapshots again. A consumer past the snapshot goes back to the
        snapshot after it. If the compaction that publishes rows of the snapshot is removed, a warning is logged:
        `compact` publishes them.

        Returns:
            The snapshot that is now the newest.

        Raises:
            NotFoundError: the snapshot or tag does not exist; nothing was changed.
            ExpiredError: the snapshot has expired; nothing was changed.
            ConflictError: writers kept committing. Stop them and repeat.
            StorageError: the store failed; the table is at the target snapshot or a later one. Repeat.
        """
        from merganser.upkeep.rollback import roll_back

        return roll_back(self.definition, self.env, snapshot=snapshot, tag=tag)

    def analyze(self, columns: Sequence[str] | None = None) -> Snapshot | None:
        """Count rows and values, and commit the result as the statistics of the table, which engines plan by.

        All rows are read. `system("statistics")` shows the result. It holds no values of text.

        Args:
            columns: the columns to count values of; (): none, only rows and bytes. None: all.

        Returns:
            The new snapshot; None if the table has no snapshot.

        Raises:
            InvalidInputError: the table has no such column; nothing was changed.
            ConflictError: the schema was changed while rows were counted; nothing was changed.
            CommitUnknownError: the store lost the reply; the statistics may be there.
        """
        from merganser.upkeep.analyze import analyze, columns_to_analyze

        table = for_changing(self.definition, self.env, f"cannot analyze '{self.name}'")
        fields = columns_to_analyze(table, columns)
        latest = self.latest_snapshot()
        if latest is None:
            return None
        return analyze(table, self.env, latest, fields)

    def repair(self) -> Repaired:
        """Let the table go on after its newest snapshot, a key index or a file of its shard stream was lost.

        It does nothing if none was.

        First try to restore the file: what a repair gives up is lost for good. A lost snapshot that a tag keeps is
        restored. Otherwise the newest snapshot that is there becomes the newest of the table, and the next commit
        uses the number of the lost one. Key indexes that are missing, damaged or at odds with the rows are built anew
        from the rows, in a commit of their own. Files of the shard stream that are damaged are written anew as the
        commits say. If other files are lost and commits have expired, the shards begin anew.

        Returns:
            The newest snapshot, the ids that were restored from tags, those that were given up, how many key indexes
            were built, and how many files of the shard stream were replaced.

        Raises:
            FormatError: the metadata of the newest snapshot or the data files of a bucket without its index are
                damaged, too; nothing was changed.
            ConflictError: others wrote to a bucket without its index again and again. Repeat.
            StorageError: the store failed. Repeat.
        """
        from merganser.upkeep.repair import repair

        return repair(self.definition, self.env)
