"""Table: the handle of one table. Its methods call the layers below and decide nothing themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from merganser.cdc.records import letters_of, letters_user, parse_records
from merganser.edit.images import Upserted
from merganser.edit.upsert import Upsert
from merganser.errors import FormatError, InvalidInputError, NotFoundError
from merganser.expr.setting import Setting
from merganser.expr.text import to_predicate
from merganser.handle.branches import Branches
from merganser.handle.consumers import Consumers
from merganser.handle.shard_stream import StreamVerbs
from merganser.handle.tags import Tags
from merganser.ingest.rows import RowKinds, batches_of
from merganser.lookup.lookup import Lookup, shared_lookup
from merganser.lsm.check import Finding
from merganser.lsm.clustering import checked_order
from merganser.lsm.section import looks_up
from merganser.meta.refs import MAIN, BranchStore
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import read as r
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import Option, Options
from merganser.options.registry import IMMUTABLE_KEYS, did_you_mean, find_option, normalize_options
from merganser.options.secrets import shown
from merganser.rules.checks import FILE_OPTIONS, check_file_options, check_type
from merganser.rules.dialects import keeps_other_columns
from merganser.rules.gaps import unsupported_for_writing
from merganser.rules.merging import check_merge_rules
from merganser.rules.starts import check_scan_options, scan_mode
from merganser.scan.changes import Changes, changes_of, published
from merganser.scan.forms import columns_of
from merganser.scan.increments import increment_of
from merganser.scan.plan import unseen_files
from merganser.scan.rows import Rows, StoredRows, counted, waiting
from merganser.scan.scan import Scan, chosen_columns
from merganser.scan.source import Increment, Source, State
from merganser.scan.split import What
from merganser.scan.system_tables import OF_ONE_SNAPSHOT, check_system_name, system_table
from merganser.scan.time_travel import epoch_ms, resolve, source_of
from merganser.scan.views import VIEWS, checked_columns, view
from merganser.schema import row_kind
from merganser.schema.arrow import fields_from_arrow
from merganser.schema.table_schema import CHANGE_KIND, TableSchema
from merganser.storage.env import Env
from merganser.storage.paths import DROPPED, TablePaths
from merganser.stream.follow import TableStream, bounds_of
from merganser.upkeep.advice import Advice, Facts, advice_for
from merganser.upkeep.check import check_table
from merganser.upkeep.expire_partitions import expire_partitions as expired_partitions
from merganser.upkeep.expire_snapshots import expire
from merganser.upkeep.orphans import DAY_MS, remove_orphans
from merganser.upkeep.plan_compaction import CompactionRequest
from merganser.upkeep.repair import Repaired, repair
from merganser.upkeep.rescale import rescale
from merganser.upkeep.retention import snapshot_retention
from merganser.upkeep.rollback import roll_back
from merganser.write.distribute import compact_all
from merganser.write.dropping import drop_partitions, expire_partitions
from merganser.write.session import WriteSession
from merganser.write.target import WriteTarget
from merganser.write.transaction import checked_watermark

Overwrite = Mapping[str, Any] | str | None


@dataclass(frozen=True, slots=True)
class ChangesWritten:
    """What `write_changes` did.

    Attributes:
        snapshot: the commit; None if there were no rows, or if it is expired and was made by an earlier call.
        rows: rows written, old and new rows of updates apart.
        rejected: bad records, which are in the table of dead letters.
        skipped: records that say nothing about rows, by why.
    """

    snapshot: Snapshot | None
    rows: int
    rejected: int
    skipped: Mapping[str, int]


@dataclass(frozen=True)
class Table(StreamVerbs):
    """One table, to read, write and inspect. It is cheap to create and holds no open file.

    Get one from `Catalog.table`, `Catalog.create_table` or `merganser.table`.
    """

    definition: TableDef
    env: Env

    # facts

    @property
    def name(self) -> str:
        """`database.table`, or the path when it was opened by path."""
        return self.definition.name

    @property
    def path(self) -> str:
        """The directory of the table."""
        return self.definition.path

    @property
    def schema(self) -> TableSchema:
        """Columns, keys and stored options at the time the handle was created."""
        return self.definition.schema.shown

    @property
    def options(self) -> Options:
        """Options, including dynamic ones. The values of secrets are hidden."""
        return shown(self.definition.options)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Columns that identify a row; empty for append tables."""
        return self.schema.primary_keys

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Partition columns."""
        return self.schema.partition_keys

    def with_options(self, options: Mapping[str, Any]) -> Table:
        """Return the same table with dynamic options on top of its own.

        Raises:
            InvalidInputError: an option is misspelt or has an invalid value, or decides how data is stored and so
                can only be changed on the table itself.
        """
        texts = normalize_options(options, columns=self.schema.names)
        own = self.definition.options
        merged = own.merged(texts)
        whole: tuple[Option[Any], ...] = ()
        if merged.get(w.MERGE_ENGINE) in ("partial-update", "aggregation") and looks_up(merged) != looks_up(own):
            whole = (w.CHANGELOG_PRODUCER, u.FORCE_LOOKUP)  # rows above level 0 are whole rows, or are not
        if self.schema.options.get(w.CHANGELOG_PRODUCER) != "none":  # what others follow has to stay whole
            whole = (w.CHANGELOG_PRODUCER, w.ASKED_PRODUCER, w.CHANGELOG_IMAGE, *whole)
        for key in texts:
            if key in _READ_ARGUMENTS:
                raise InvalidInputError(
                    f"unknown table option '{key}'. Give it to read, as read({key}=...), or set "
                    f"'{_READ_ARGUMENTS[key].key}'.",
                    option=key,
                )
            option = find_option(key)
            if option is None or (option.key not in IMMUTABLE_KEYS and option not in (*_LAYOUT, *whole)):
                continue
            if merged.get(option) != self.schema.options.get(option):
                stored = self.schema.options.get(option.key)
                has = "does not set it" if stored is None else f"has '{stored}'"
                raise InvalidInputError(
                    f"cannot open '{self.name}' with '{key}' = '{texts[key]}': this option decides how data is stored, "
                    f"and the table {has}. It can only be changed on the table itself.",
                    option=key,
                    table=self.name,
                )
        for option in (w.IGNORE_DELETE, w.IGNORE_UPDATE_BEFORE):
            if self.schema.options.get(option) and not merged.get(option):
                raise InvalidInputError(
                    f"cannot open '{self.name}' with '{option.key}' = 'false': the table drops such rows, and a single "
                    "writer cannot keep them. Open it without this option.",
                    option=option.key,
                    table=self.name,
                )
        check_scan_options(merged, what=f"cannot read '{self.name}'")
        branch = merged.get(r.BRANCH)
        if r.BRANCH.key in texts and branch != self.definition.branch:
            return self.branch(branch).with_options({key: text for key, text in texts.items() if key != r.BRANCH.key})
        changed = {key for key, text in merged.items() if own.get(key) != text}
        if any(find_option(key) in FILE_OPTIONS for key in changed):
            check_file_options(merged, what=f"cannot open '{self.name}'")
        if any(key.startswith("fields.") or key == w.SEQUENCE_FIELD.key for key in changed):
            check_merge_rules(replace(self.definition.schema, options=merged), what=f"cannot open '{self.name}'")
        return replace(self, definition=replace(self.definition, options=merged))

    # reading

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: str | Any | None = None,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: datetime | str | None = None,
        limit: int | None = None,
        timezone: str = "UTC",
    ) -> Scan:
        """Return a lazy scan of the table.

        Args:
            columns: names of the columns to return, in this order; None: all.
            where: SQL text, a `pyarrow.compute` expression or a predicate; rows that do not match are dropped.
            snapshot, tag, timestamp: read an older state; give at most one of them. None: the newest snapshot. A
                timestamp is an aware datetime or ISO text, and selects the newest snapshot at or before this time.
            limit: the largest number of rows to return; which rows is not defined.
            timezone: the time zone of texts, in `where` and `timestamp`, that name none; and the zone in which
                `where` takes the date or the hour of a TIMESTAMP_LTZ.

        Raises:
            InvalidInputError: a column, the filter or the time is invalid.
            NotFoundError: the snapshot or tag does not exist.
            ExpiredError: the snapshot has expired.
            ConflictError: when rows are read: the columns were changed since this object was opened, and a newer value
                does not fit the type of before. Open the table again.
        """
        return self.scan(columns, where, snapshot, tag, timestamp, limit, self.setting(timezone))

    def changes(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        where: str | Any | None = None,
        timezone: str = "UTC",
        mode: str = "auto",
        gaps: str | None = None,
    ) -> Changes:
        """Return a lazy read of what snapshots published, in order, each row with its kind in `_row_kind`.

        If the table has a changelog producer, these are the rows of its changelog. Otherwise these are the rows that
        commits wrote, without old values. Compactions and overwrites publish nothing then.

        Args:
            start, end: ids of the first and the last snapshot, both included. None: from snapshot 1 on, and up to the
                newest snapshot. If the table was opened with an option such as 'incremental-between', and both are
                None, the option says which changes are read.
            columns: names of the columns to return after `_row_kind`; None: all.
            where: as for `read`; it may look at `_row_kind`.
            timezone: as for `read`.
            mode: "changelog": the rows of changelog files. "delta": the rows that commits wrote. "auto": the one or the
                other, as above. "diff": what the snapshots changed in all, from the state before the first to the state
                of the last: "+I", "-U" with the row before and "+U" with the row after, or "-D". Of a table without a
                key, "+I" and "-D". It needs no changelog, and reads only files that the two states do not share.

            gaps: what to do about commits that published no changes, since change tracking was off. "error": raise an
                error. "skip", "mark": go on without them; `gaps()` of the result names them. None: what the option
                'change-tracking.gaps' says, else "error".

        Raises:
            InvalidInputError: a column, the filter, an id or the mode is invalid; or the changelog is asked for, and
                the table has none.
            UntrackedError: a commit published no changes. Raised when a result is asked for.
            NotFoundError: the end is not there yet.
            ExpiredError: a snapshot has expired, and its changelog with it; `context["earliest"]` is the first that is
                kept. Raised when a result is asked for.
        """
        return self.marking(gaps).changes_between(start, end, columns, where, mode, self.setting(timezone))

    def marking(self, gaps: str | None) -> Table:
        """Return the table as readers of changes see it that do this about gaps; see `changes`."""
        return self if gaps is None else self.with_options({r.CHANGE_TRACKING_GAPS.key: gaps})

    def changes_between(
        self,
        start: int | None,
        end: int | None,
        columns: Sequence[str] | None,
        where: str | Any | None,
        mode: str,
        setting: Setting,
    ) -> Changes:
        """Return a lazy read of changes; see `changes`."""
        if start is None and end is None and mode == "auto" and scan_mode(self.definition.options) == "incremental":
            source = increment_of(self.definition.options, self._snapshots, setting.tzinfo)
        else:
            source = published(self.name, 1 if start is None else start, end, mode)
        fields = self.definition.schema.user_fields
        chosen = chosen_columns(self.definition, columns, fields)
        predicate = to_predicate(where, (CHANGE_KIND, *fields), setting=setting)
        return changes_of(self.definition, self.env, source, chosen, predicate)

    def stream(
        self,
        start: str | None = None,
        follow: bool = True,
        consumer: str | None = None,
        columns: Sequence[str] | None = None,
        where: str | Any | None = None,
        until: int | datetime | str | None = None,
        timezone: str = "UTC",
        gaps: str | None = None,
        **options: Any,
    ) -> TableStream:
        """Return an iterator that follows the table: first a state, then what each snapshot publishes.

        Each plan that has rows is one Arrow table, with the kinds of the rows in `_row_kind`. Rows of the state are
        "+I". See `changes` for what snapshots publish.

        Args:
            start: a start mode. "latest-full": the newest state, then changes. "latest": changes from now on.
                "from-snapshot": changes from 'scan.snapshot-id' on, "from-snapshot-full": that state first. Also
                "from-timestamp", "compacted-full", "from-file-creation-time", "from-creation-timestamp". None: what
                the options say, else "latest-full".
            follow: wait for new snapshots; if False, the iterator ends once it has caught up.
            consumer: the name under which the table keeps the position of this reader. The position is kept when the
                caller asks for the next plan; then it counts the last one as done. A reader of the same name goes on
                there, whatever `start` says. Snapshots that the reader has not read yet do not expire.
            columns: names of the columns to return after `_row_kind`; None: all, also those added later.
            where: as for `changes`.
            until: the last snapshot id, or the time of the last commit, to read; None: no end.
            timezone: as for `read`.
            gaps: what to do about commits that published no changes, since change tracking was off. "error": raise an
                error. "mark": hand over a `Gap` in their place. "skip": go on. None: what the option
                'change-tracking.gaps' says, else "error".
            options: further options for this reader, such as **{"scan.snapshot-id": "3"}.

        Raises:
            InvalidInputError: an argument or option has no meaning for a stream.
            NotFoundError, ExpiredError: there is no such start, or no longer.
            UntrackedError: a commit published no changes. Raised in its place.
        """
        given = dict(options)
        if gaps is not None:
            given[r.CHANGE_TRACKING_GAPS.key] = gaps
        if start is not None:
            given[r.SCAN_MODE.key] = start
        if columns is not None:
            columns = [field.name for field in chosen_columns(self.definition, columns)]
            columns.insert(0, CHANGE_KIND.name)
        return self.following(
            What.CHANGED, given, follow, consumer=consumer, columns=columns, where=where, until=until, timezone=timezone
        )

    def following(
        self,
        what: What,
        options: Mapping[str, Any],
        follow: bool,
        *,
        consumer: str | None,
        columns: Sequence[str] | None,
        where: str | Any | None,
        until: int | datetime | str | None,
        timezone: str,
    ) -> TableStream:
        """Return an iterator over changes in some form; see `stream`.

        Args:
            what: the form.
            options: where it starts among them.
            columns: names of columns of the form, in their order.
        """
        definition = (self.with_options(options) if options else self).definition
        check_scan_options(definition.options, what=f"cannot follow '{self.name}'")
        fields = checked_columns(what, definition)
        if columns is not None:
            columns = [field.name for field in chosen_columns(definition, columns, fields)]
        setting = self.setting(timezone)
        return TableStream(
            definition,
            self.env,
            follow=follow,
            consumer=consumer,
            what=what,
            columns=columns,
            where=lambda table: to_predicate(where, columns_of(what, table), setting=setting),
            bounds=bounds_of(definition, until, setting.tzinfo),
        )

    def lookup(self, keys: Any, columns: Sequence[str] | None = None, snapshot: int | None = None) -> pa.Table:
        """Return the rows of keys, in the order of the keys. A key without a row is left out.

        Calls of one process share what they opened. For many calls a handle of `lookups` is faster, since this method
        looks for a new snapshot each time.

        Args:
            keys: a dict such as {"id": 7}, a list of dicts, an Arrow table, or a frame: all columns of the primary key,
                and the partition columns that it lacks.
            columns: the columns to return; None: all.
            snapshot: the snapshot to look at; None: the newest one.

        Raises:
            InvalidInputError: the table has no key; a column is no part of the key or missing; a value is null or of
                another type. Nothing was read.
            NotFoundError: there never was such a snapshot.
            ExpiredError: the snapshot has expired.
            FormatError: a file that may hold one of the keys is damaged or missing. Other keys can be looked up.
            ConflictError: as when rows of `read` are read.
        """
        at = self._looked_at() if snapshot is None else snapshot
        return shared_lookup(self.definition, self.env, at).lookup(keys, columns)

    def lookup_prefix(
        self, prefix: Mapping[str, Any], columns: Sequence[str] | None = None, snapshot: int | None = None
    ) -> pa.Table:
        """Return all rows whose primary key begins with some values, in no order.

        The bucket key has to be the first columns of the primary key, without partition columns, and not all of them:
        then all these rows lie in one bucket.

        Args:
            prefix: exactly the columns of the bucket key and the partition columns, such as {"dt": "2026-01-01"}.
            columns, snapshot: as for `lookup`.

        Raises:
            InvalidInputError: the table has no such bucket key, or the prefix has other columns. Nothing was read.
        """
        at = self._looked_at() if snapshot is None else snapshot
        return shared_lookup(self.definition, self.env, at).lookup_prefix(prefix, columns)

    def lookups(self, refresh: str | int = "latest", cache: str = "auto") -> Lookup:
        """Return a handle for many lookups. It stays open, answers from one snapshot, and threads may share it.

        Args:
            refresh: "latest": begin with the newest snapshot, and move on at each call of `refresh()`. A snapshot id:
                stay there.
            cache: when a large file gets a lookup copy on the local disk. "auto": once it was asked often. "all": at
                its first lookup. "none": never.

        Raises:
            InvalidInputError: the table has no key, or an argument has another value.
            NotFoundError, ExpiredError: there is no such snapshot, or no longer.
        """
        if refresh != "latest" and (isinstance(refresh, bool) or not isinstance(refresh, int)):
            raise InvalidInputError(
                f"cannot look up in '{self.name}': refresh is {refresh!r:.50}. Give 'latest' or the id of a snapshot."
            )
        snapshot = self._looked_at() if isinstance(refresh, str) else refresh
        return Lookup(self.definition, self.env, snapshot=snapshot, cache=cache)

    def _looked_at(self) -> Snapshot | None:
        """Return the snapshot that the scan options select for lookups; None: the newest one.

        Raises:
            InvalidInputError: they select changes and not a state.
        """
        definition = self.definition
        if scan_mode(definition.options) != "incremental":
            source = source_of(definition.options, self._snapshots)
            if isinstance(source, State):
                return source.snapshot
        raise InvalidInputError(
            f"cannot look up in '{self.name}': its scan options select what changed, and lookups need a state of the "
            "table. Nothing was read. Open the table without 'scan.*' options, or give snapshot=..."
        )

    def setting(self, timezone: str, exact_names: bool = False) -> Setting:
        """Return what SQL text means besides its words; the time is that of the clock of the table."""
        return Setting(timezone, self.env.now_ms(), exact_names)

    def scan(
        self,
        columns: Sequence[str] | None,
        where: str | Any | None,
        snapshot: int | None,
        tag: str | None,
        timestamp: datetime | str | None,
        limit: int | None,
        setting: Setting,
    ) -> Scan:
        """Return a lazy scan of the table; see `read`."""
        definition = self.definition
        source: Source | Increment
        if snapshot is None and tag is None and timestamp is None:
            source = self._asked(setting)
        else:
            source = State(
                resolve(self._snapshots, snapshot=snapshot, tag=tag, timestamp=timestamp, zone=setting.tzinfo)
            )
        if source.snapshot is not None and source.snapshot.schema_id != definition.schema.id:
            definition = definition.with_schema(SchemaStore(definition.paths, self.env).load(source.snapshot.schema_id))
        _check_limit(limit, self.name)
        return Scan(
            definition,
            self.env,
            chosen_columns(definition, columns),
            to_predicate(where, definition.schema.user_fields, setting=setting),
            source,
            limit,
        )

    def _asked(self, setting: Setting) -> Source | Increment:
        """Return what the scan options select."""
        options = self.definition.options
        if scan_mode(options) == "incremental":
            return increment_of(options, self._snapshots, setting.tzinfo)
        return source_of(options, self._snapshots)

    def system(
        self,
        name: str,
        *,
        columns: Sequence[str] | None = None,
        where: Any = None,
        limit: int | None = None,
        timezone: str | Setting = "UTC",
    ) -> Rows:
        """Return the rows of a system table, such as `snapshots`, `files` or `schemas`; arguments as for `read`.

        `files`, `buckets`, `manifests` and `table_indexes` describe the snapshot that the scan options of this table
        choose, as `with_options({"scan.snapshot-id": "1"})` does; else the newest.
        `ro`, `audit_log`, `binlog` and `changelog` return rows of the table itself; see `scan.views`.

        Raises:
            NotFoundError: no system table has this name.
        """
        plain = str(name).removeprefix("$")
        setting = self.setting(timezone) if isinstance(timezone, str) else timezone
        if plain in VIEWS:
            return view(plain, self.read(limit=limit), columns, where, setting)
        check_system_name(self.definition, plain)
        _check_limit(limit, self.name)
        if isinstance(columns, str):
            raise InvalidInputError(
                f"columns must be a list of names, not the text '{columns}'. Write columns=['{columns}']."
            )
        if columns is not None and not isinstance(columns, Iterable):
            raise InvalidInputError(f"columns must be a list of names, not {columns!r:.100}. Write columns=['id'].")

        def rows() -> pa.Table:
            chosen = source_of(self.definition.options, self._snapshots) if plain in OF_ONE_SNAPSHOT else None
            snapshot = chosen.snapshot if isinstance(chosen, State) else None
            found = system_table(self.definition, self.env, plain, snapshot)
            if where is not None:
                fields = tuple(replace(f, id=i) for i, f in enumerate(fields_from_arrow(found.schema)))
                predicate = to_predicate(where, fields, setting=setting)
                found = found if predicate is None else predicate.apply(found)
            for column in columns or ():
                if column not in found.column_names:
                    hint = did_you_mean(str(column), found.column_names)
                    raise InvalidInputError(f"'{self.name}${plain}' has no column '{column}'. {hint}", column=column)
            if columns is not None:
                found = found.select(list(columns))
            return found if limit is None else found.slice(0, limit)

        return StoredRows(rows, f"{self.name}${plain}")

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return all snapshots that have not expired, oldest first."""
        store = self._snapshots
        return tuple(found for found in (store.get(i) for i in store.ids()) if found is not None)

    def latest_snapshot(self) -> Snapshot | None:
        """Return the newest snapshot, or None if nothing was written yet."""
        return self._snapshots.latest()

    def files(self) -> pa.Table:
        """Return the live data files of the snapshot that `system` describes, one row each, as `$files` has them."""
        return self.system("files").to_arrow()

    def describe(self) -> str:
        """Return a description of the table for people: columns, keys, options, size."""
        schema = self.schema
        latest = self.latest_snapshot()
        width = max(len(n) for n in schema.names)
        lines = [f"table      {self.name}"]
        if self.name != self.path:
            lines.append(f"path       {self.path}")
        if schema.comment:
            lines.append(f"comment    {schema.comment}")
        lines.append("columns")
        lines += [
            f"  {f.name:<{width}}  {f.type}{'  -- ' + f.description if f.description else ''}" for f in schema.fields
        ]
        unkeyed = "none: equal rows are counted" if self.definition.counting else "none: rows are appended"
        lines.append(f"key        {', '.join(schema.primary_keys) or unkeyed}")
        lines.append(f"partitions {', '.join(schema.partition_keys) or 'none'}")
        lines.append("options" if self.options else "options    none")
        lines += [f"  {key} = {value}" for key, value in sorted(self.options.items())]
        if latest is None:
            lines.append("snapshot   none: nothing was written yet")
        else:
            state = MetaReader(self.definition.paths, self.env, self.name).state(latest)
            size = sum(e.file.size for e in state.live)
            lines.append(f"snapshot   {latest.id}, {latest.commit_kind} at {latest.commit_time:%Y-%m-%d %H:%M:%S} UTC")
            lines.append(
                f"stored     {counted(latest.total_record_count or 0, 'row')}"
                f"{', before merging' if self.definition.keyed else ''}; {size:,} bytes in "
                f"{counted(len(state.live), 'file')}, {counted(len(state.live.buckets), 'bucket')}"
            )
            if unseen := unseen_files(self.definition, self.env, state.live):
                lines.append(f"note       {waiting(unseen)}")
        lines += [
            f"note       this version cannot write it: {gap.feature}"
            for gap in unsupported_for_writing(self.definition.schema)
        ]
        lines += [f"advice     {found}" for found in self.advice()]
        return "\n".join(lines)

    # writing

    def write(
        self,
        data: Any,
        kinds: Any = None,
        columns: Sequence[str] | None = None,
        overwrite: Overwrite = None,
        commit_user: str | None = None,
        identifier: int | None = None,
        watermark: int | datetime | None = None,
        changes: bool = True,
    ) -> Snapshot | None:
        """Write rows as one commit.

        Args:
            data: an Arrow table, batches or reader, a pandas or Polars frame, or a list or iterator of dictionaries.
            kinds: the kinds of the rows: the name of a column of `data`, which is not stored, or one of "+I", "-U",
                "+U", "-D" per row, in the order of the rows across all batches. None: all rows are inserts. An
                insert replaces an existing row with the same key.
            columns: the columns that `data` has; the others get their default or null. In a deduplicate table with the
                changelog producer per-record, they keep their values, as with `upsert`. None: all columns.
            overwrite: {"dt": "2026-01-01"} replaces this partition, {} the whole table, and "dynamic" the partitions
                that occur in `data`. None: replace nothing.
            commit_user, identifier: the name of the committer and the number of this commit. Use a larger identifier
                for each new commit. If it is not larger than the last one of this user, the commit was already
                applied, and nothing is written.
            watermark: the time up to which all rows by event time are there, as an aware datetime or epoch
                milliseconds. The watermark of a table never falls. A higher one is committed without rows, too. None:
                it stays as it is.
            changes: False: the commit publishes no changes, and readers of changes are told so. A compaction publishes
                them still if it cannot tell them from those of other commits.

        Returns:
            The snapshot, or None if there was nothing to commit.

        Raises:
            InvalidInputError: the rows do not fit the table; nothing was written.
            UnsupportedError: the table needs a feature that this version does not have; nothing was written.
            ConflictError: another commit changed the same files; nothing of this write is visible.
            CommitUnknownError: the store lost the reply; repeat with the same user and identifier.
        """
        if columns is not None and overwrite is None and self._looks_up_other_columns(columns):
            return self.upsert(
                data,
                kinds,
                columns,
                commit_user=commit_user,
                identifier=identifier,
                watermark=watermark,
                changes=changes,
            ).snapshot
        watermark = checked_watermark(watermark, f"cannot write to '{self.name}'")
        with Writer(self._session(columns, overwrite, commit_user, changes)) as writer:
            if identifier is not None:
                done, snapshot = writer.session.applied(identifier)
                if done:
                    return snapshot
            writer.write(data, kinds)
            return writer.commit(identifier, watermark)

    def upsert(
        self,
        data: Any,
        kinds: Any = None,
        columns: Sequence[str] | None = None,
        if_exists: str = "update",
        commit_user: str | None = None,
        identifier: int | None = None,
        watermark: int | datetime | None = None,
        changes: bool = True,
    ) -> Upserted:
        """Write rows by key as one commit, and return what became of them.

        `write` does not look at the rows that are there. `upsert` looks them up, and writes only what changes. If
        another commit changes one of the buckets meanwhile, `upsert` looks up again. So no change of others is lost,
        and the result is exact. All rows of the call are held in memory, together with the rows that they replace.

        Args:
            data: the rows; see `write`. Of several rows of one key the last one counts, after a delete too.
            kinds: the kinds of the rows; see `write`. A "-D" removes the row of its key. With `columns` it sets these
                columns to null, and removes the row if all its other columns are null.
            columns: the columns that `data` has: the whole key, the partition columns, and the columns to change. The
                other columns of a row keep their values; in a new row they get their default or null. Only for merge
                engine deduplicate. None: all columns.
            if_exists: "update" replaces the row of a key. "keep" leaves it as it is, so only new keys are written; of
                several rows of a new key the first one counts.
            commit_user, identifier: see `write`. A repeated call writes nothing and returns the result of the first.
            watermark, changes: see `write`.

        Returns:
            The snapshot, the numbers of keys inserted, updated, deleted and unchanged, the rows after the commit, and
            the changes with `_row_kind`. If no row changes, there is no commit. In a table with `sequence.field` or
            another merge engine, rows that change nothing may be written. Rows that wait for their compaction count
            as part of the table.

        Raises:
            InvalidInputError: the table has no key; the rows do not fit the table; a new row lacks a NOT NULL column.
                Nothing was written.
            UnsupportedError: the table needs a feature that this version does not have; nothing was written.
            ConflictError: other commits changed the rows again and again until `commit.max-retries` or
                `commit.timeout`; or the table has other columns since it was opened. Nothing of this call is visible.
            CommitUnknownError: the store lost the reply; repeat with the same user and identifier.
        """
        call = Upsert(
            self.definition, self.env, columns=columns, if_exists=if_exists, commit_user=commit_user, changes=changes
        )
        return call.run(data, kinds, identifier, watermark)

    def write_changes(
        self,
        records: Any,
        format: str,
        /,
        *,
        keys: Any = None,
        dead_letters: Table | None = None,
        commit_user: str | None = None,
        identifier: int | None = None,
        **options: Any,
    ) -> ChangesWritten:
        """Write the rows that change records stand for as one commit.

        Args:
            records, format, keys, options: see `merganser.cdc.parse`.
            dead_letters: a table with the columns of `merganser.cdc.DEAD_LETTERS` that bad records are written to
                first, in a commit of its own. None: one bad record makes the call fail.
            commit_user, identifier: see `write`. A repeated call writes no bad record twice: `commit_user` and the name
                of this table are the user of that commit.

        Returns:
            The snapshot, and how many records and rows there were.

        Raises:
            InvalidInputError: an option has no meaning; or a record is bad and there is no table for it; or the rows
                do not fit the table. Nothing was written, except maybe to `dead_letters`.
            UnsupportedError: the table has a column of a type that change records do not hold; nothing was written.
            ConflictError, CommitUnknownError: see `write`.
        """
        chosen = options if dead_letters is not None else {**options, "bad": "fail"}
        found = parse_records(records, format, self.schema.fields, self.primary_key, chosen, keys)
        if dead_letters is not None and found.rejected.num_rows:
            letters = letters_of(found.rejected, self.name, self.env.clock())
            dead_letters.write(letters, commit_user=letters_user(commit_user, self.name), identifier=identifier)
        snapshot = self.write(found.rows, row_kind.symbols(found.kinds), commit_user=commit_user, identifier=identifier)
        return ChangesWritten(snapshot, found.rows.num_rows, found.rejected.num_rows, dict(found.skipped))

    def writer(
        self,
        columns: Sequence[str] | None = None,
        overwrite: Overwrite = None,
        commit_user: str | None = None,
        changes: bool = True,
    ) -> Writer:
        """Return a writer for many batches and commits. It drops rows that are not committed when it is closed.

        If `bucket` is -2, its rows wait for their buckets until a compaction, as those of a stream.
        """
        return Writer(self._session(columns, overwrite, commit_user, changes, streams=True))

    def _session(
        self,
        columns: Sequence[str] | None,
        overwrite: Overwrite,
        commit_user: str | None,
        changes: bool,
        streams: bool = False,
    ) -> WriteSession:
        return WriteSession(
            self.definition,
            self.env,
            commit_user=commit_user,
            columns=columns,
            overwrite=overwrite,
            changes=changes,
            streams=streams,
        )

    def load(
        self,
        files: str,
        kinds: Any = None,
        columns: Sequence[str] | None = None,
        overwrite: Overwrite = None,
        commit_user: str | None = None,
        identifier: int | None = None,
        options: Mapping[str, str] | None = None,
        watermark: int | datetime | None = None,
        changes: bool = True,
    ) -> Snapshot | None:
        """Write the rows of files as one commit, by column name, in the order of the paths; memory is bounded.

        Args:
            files: a pattern such as "in/*.parquet" or "s3://bucket/in/*.csv". The extension gives the format:
                parquet, csv, json (one object per line) or arrow. Text is converted to the types of the table.
            kinds, columns, overwrite, commit_user, identifier: see `write`.
            options: the layout of CSV files, such as {"csv.delimiter": ";", "csv.null": ",NA"}, and options of the
                store of the files if it is not the store of the table. See `docs/files.md`.
            watermark, changes: see `write`.

        Raises:
            NotFoundError: no file matches.
            InvalidInputError: the rows do not fit the table; nothing was written.
            FormatError: a file is damaged, or its extension is wrong.
        """
        from merganser.ingest.files import rows_of_files  # noqa: PLC0415 - CSV and JSON readers, wanted by few

        watermark = checked_watermark(watermark, f"cannot write to '{self.name}'")
        with Writer(self._session(columns, overwrite, commit_user, changes)) as writer:
            if identifier is not None:
                done, snapshot = writer.session.applied(identifier)
                if done:
                    return snapshot
            found, rows = rows_of_files(files, self.definition, self.env.storage, kinds, columns, options)
            title = f"loading {self.name}"
            with self.env.progress.work(title, size_bytes=sum(found.sizes), steps=len(found.paths)) as work:

                def parts() -> Iterator[Iterator[pa.Table]]:
                    for path, size in zip(found.paths, found.sizes, strict=True):
                        yield rows.tables(rows.whole(path))
                        work.advance(size)

                writer.write_each(parts(), kinds)
            return writer.commit(identifier, watermark)

    def truncate(self) -> Snapshot | None:
        """Remove all rows as one commit."""
        return self.write(pa.schema([]).empty_table(), overwrite={})

    def drop_partitions(self, partitions: Iterable[Mapping[str, Any]]) -> Snapshot | None:
        """Remove all rows of some partitions as one commit. A spec may name only some of the partition columns."""
        if isinstance(partitions, Iterable) and not isinstance(partitions, str | Mapping):
            partitions = list(partitions)
        return drop_partitions(self.definition, self.env, partitions)  # type: ignore[arg-type]

    # upkeep

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
            full: merge everything into the highest level. Otherwise universal compaction picks what to merge, and
                picks nothing if a bucket has few sorted runs.
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
            FormatError: a file is damaged or missing; nothing was changed.
        """
        request = self.compaction_request(full, partitions, where, order_by, curve)
        return compact_all(self.definition, self.env, request)

    def rescale(self, buckets: int, partitions: Iterable[Mapping[str, Any]] | None = None) -> Snapshot | None:
        """Move the rows to another number of buckets, and let later writers use it. Reads return the same rows.

        The rows move in one commit, which streams and changelogs pass over: no row changes. Rows that others write
        meanwhile are moved, too. A writer that was opened before and commits after it gets a ConflictError, and its
        rows can be written again. Killed at any point, the table is as before or moved; call it again.

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
        return rescale(self.definition, self.env, buckets, self.stored_specs(partitions, "rescale"))

    def check(self, quick: bool = False) -> tuple[Finding, ...]:
        """Check the table, its branches and its tags against their files. Nothing is written.

        Args:
            quick: read only metadata, and check that the data files exist. Otherwise read all rows too.

        Returns:
            The findings, each with the file, the reason and advice; empty if the table has no fault. The check goes
            on after a damaged file. A finding whose `is_fault` is false says that the check cannot tell: the rows of
            some data files have no checksum.
        """
        return check_table(self.definition, self.env, quick=quick)

    def advice(self) -> tuple[Advice, ...]:
        """Return what costs readers or writers of the table more than it need, with numbers and the command that helps.

        It looks at the newest snapshot, and reads no data file. Empty: the table is in good shape.
        """
        store = SnapshotStore(self.definition.paths, self.env, self.name)
        latest = self.latest_snapshot()
        if latest is None:
            return ()
        state = MetaReader(self.definition.paths, self.env, self.name).state(latest)
        earliest = store.earliest_id() or latest.id
        oldest = store.get(earliest)
        facts = Facts(
            state.live, latest.id - earliest + 1, None if oldest is None else oldest.commit_time, self.env.clock()
        )
        return advice_for(self.definition, facts)

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
        return Tags(self.definition, self.env)

    @property
    def branches(self) -> Branches:
        """The branches of the table: other lines of snapshots over the same data files."""
        return Branches(self.definition, self.env)

    @property
    def consumers(self) -> Consumers:
        """The consumers of the table: named readers and the snapshot that each reads next."""
        return Consumers(self.definition, self.env)

    def branch(self, name: str) -> Table:
        """Return a branch as a table that you can read, write and tag. "main" is the table itself.

        Raises:
            NotFoundError: the branch does not exist.
        """
        plain = self.name.removesuffix(f"$branch_{self.definition.branch}")
        paths = self.definition.paths.of_branch(MAIN)
        if name != MAIN:
            paths = BranchStore(paths, self.env, plain).load(name)
        schema = SchemaStore(paths, self.env).latest()
        if schema is None:  # dropped since it was found
            raise NotFoundError(f"table '{plain}' no longer exists: it was dropped or renamed.", table=plain)
        stored = self.definition.schema.options
        dynamic = {key: text for key, text in self.definition.options.items() if stored.get(key) != text}
        dynamic.pop(r.BRANCH.key, None)
        return table_of(
            schema,
            self.path,
            self.env,
            name=plain if name == MAIN else f"{plain}$branch_{name}",
            options=dynamic,
            branch=name,
        )

    def rollback(self, snapshot: int | None = None, tag: str | None = None) -> Snapshot:
        """Set the table back to a snapshot or tag. Later snapshots and their tags are removed for good.

        First stop streams that follow the table, and writers if you can: commits during the rollback are removed too.
        Later commits use the numbers of removed snapshots again. A consumer past the snapshot goes back to the
        snapshot after it.

        Returns:
            The snapshot that is now the newest.

        Raises:
            NotFoundError: the snapshot or tag does not exist; nothing was changed.
            ExpiredError: the snapshot has expired; nothing was changed.
            ConflictError: writers kept committing. Stop them and repeat.
            StorageError: the store failed; the table is at the target snapshot or a later one. Repeat.
        """
        return roll_back(self.definition, self.env, snapshot=snapshot, tag=tag)

    def repair(self) -> Repaired:
        """Let the table go on after the file of its newest snapshot was lost; do nothing if none was.

        First try to restore the file: what a repair gives up is lost for good. A lost snapshot that a tag keeps is
        restored. Otherwise the newest snapshot that is there becomes the newest of the table, and the next commit
        uses the number of the lost one.

        Returns:
            The newest snapshot, the ids that were restored from tags, and those that were given up.

        Raises:
            FormatError: the metadata of the newest snapshot is damaged, too; nothing was changed.
            StorageError: the store failed. Repeat.
        """
        return repair(self.definition, self.env)

    @property
    def _snapshots(self) -> SnapshotStore:
        return MetaReader(self.definition.paths, self.env, self.name).snapshots

    def _looks_up_other_columns(self, columns: Sequence[str]) -> bool:
        options = self.definition.options
        own = {field.name for field in self.definition.schema.user_fields}
        engine = options.get(w.MERGE_ENGINE)
        return engine == "deduplicate" and keeps_other_columns(options) and not own.issubset(columns)

    def __repr__(self) -> str:
        return f"Table({self.path!r})" if self.name == self.path else f"Table({self.name!r}, {self.path!r})"


class Writer:
    """Writes batches and commits them. Use it in a `with` block, which drops rows that were not committed."""

    def __init__(self, session: WriteSession) -> None:
        self.session = session

    def write(self, data: Any, kinds: Any = None) -> None:
        """Take rows; see `Table.write`. Call `abort` after an error."""
        self.write_each((data,), kinds)

    def write_each(self, parts: Iterable[Any], kinds: Any = None) -> None:
        """Take the rows of several `data`, one after the other. A list of kinds covers the rows of all of them."""
        taken = False
        try:
            with self.session.env.progress.work(f"writing {self.session.table.name}") as work:
                of_rows = RowKinds(kinds, table=self.session.table.name)
                for data in parts:
                    for batch, held in batches_of(data, self.session.table.schema.fields):
                        rows, row_kinds = of_rows.split(batch, last=held)
                        self.session.write(rows, row_kinds, held=held)
                        taken = True
                        work.advance(rows.nbytes)
                of_rows.finish()
        except BaseException:
            if taken:
                self.session.give_up()
            raise

    def commit(self, identifier: int | None = None, watermark: int | datetime | None = None) -> Snapshot | None:
        """Commit the rows since the last commit as one snapshot. Return None if there was nothing to commit.

        Args:
            identifier, watermark: see `Table.write`.
        """
        return self.session.commit(identifier, watermark=watermark)

    def abort(self) -> None:
        """Drop the rows that were not committed."""
        self.session.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.close(error)


_LAYOUT = (w.BUCKET, w.PARTITION_DEFAULT_NAME, w.PARTITION_LEGACY_NAME, w.DELETION_VECTORS)
"""Options that can be changed on the table but not for one handle, because they decide where files are stored."""
_READ_ARGUMENTS = {"snapshot": r.SCAN_SNAPSHOT_ID, "tag": r.SCAN_TAG_NAME, "timestamp": r.SCAN_TIMESTAMP}
"""Arguments of `read`, and the option for each. As table options they would be ignored, so they are refused."""


def _check_limit(limit: int | None, table: str) -> None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise InvalidInputError(f"cannot read '{table}': limit must be a number of rows, 0 or more, not {limit!r}.")


def open_table(
    path: str, env: Env, *, name: str, options: Mapping[str, Any] | None = None, branch: str = "main"
) -> Table:
    """Return the table at a path.

    Raises:
        NotFoundError: there is no table; the message says how to create one.
        FormatError: there are snapshots but no schema.
    """
    paths = TablePaths(path, branch=branch)
    schema = SchemaStore(paths, env).latest()
    if schema is None:
        if branch == MAIN:
            _check_not_lost(paths, env, name)
        raise NotFoundError(
            f"there is no table at '{path}': it has no schema file. Create a table with catalog.create_table(...), or "
            "check the path.",
            path=path,
        )
    return table_of(schema, path, env, name=name, options=options, branch=branch)


def _check_not_lost(paths: TablePaths, env: Env, name: str) -> None:
    """Refuse a table whose schema files were lost. Accept one that does not exist, or is being dropped or moved.

    Raises:
        FormatError: there are snapshots but no schemas, and no drop or rename has left its mark.
    """
    snapshots = SnapshotStore(paths, env, name).ids()
    if not snapshots or SchemaStore(paths, env).is_marked():
        return
    names = {entry.name for entry in env.storage.list(paths.root)}
    if any(found.startswith(DROPPED) for found in names) or not SnapshotStore(paths, env, name).ids():
        return
    if SchemaStore(paths, env).exists():
        return  # another process created the table again in the meantime
    raise FormatError(
        f"cannot open '{name}': its schema files are missing ('{paths.schema(0)}' and later ones), but it has "
        f"snapshots up to {snapshots[-1]}. Restore the schema files from a backup; no row can be read without them.",
        path=paths.schema(0),
        table=name,
    )


def table_of(
    schema: TableSchema,
    path: str,
    env: Env,
    *,
    name: str,
    options: Mapping[str, Any] | None = None,
    branch: str = "main",
) -> Table:
    """Return the table at a path with this schema.

    Raises:
        InvalidInputError: the dynamic options do not fit the table.
        UnsupportedError: tables of this type do not store rows in this format.
    """
    check_type(schema.options, what=f"cannot open '{name}'", table=name)
    made = Table(TableDef(name=name, path=path, schema=schema, options=schema.options, branch=branch), env)
    return made.with_options(options) if options else made
