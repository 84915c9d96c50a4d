"""The verbs that read, as part of `Table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from merganser.errors import InvalidInputError, check_flags
from merganser.expr.setting import Setting
from merganser.handle.base import TableBase
from merganser.meta.followed import as_of, with_key_of
from merganser.meta.snapshot import Snapshot, Snapshots
from merganser.options import read as r
from merganser.options.registry import arguments_of, check_asked
from merganser.rules.starts import check_scan_options, scan_mode
from merganser.schema.table_schema import CHANGE_KIND

if TYPE_CHECKING:
    from merganser.lookup.lookup import Lookup
    from merganser.scan.changes import Changes
    from merganser.scan.rows import Rows
    from merganser.scan.scan import Scan
    from merganser.scan.source import Increment, Source
    from merganser.scan.split import What
    from merganser.stream.follow import TableStream


class ReadVerbs(TableBase):
    """Reads, changes, streams, lookups and system tables."""

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

        If the table has a changelog producer, these are the rows of its changelog, and of an overwrite, a truncate or a
        dropped partition the rows that it changed. Otherwise these are the rows that commits wrote, without old values.
        Compactions and overwrites publish nothing then.

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

            gaps: what to do about commits whose changes are not known, such as those without change tracking. "error":
                raise an error. "skip", "mark": go on without them; `gaps()` of the result names them. None: what the
                option 'change-tracking.gaps' says, else "error".

        Raises:
            InvalidInputError: a column, the filter, an id or the mode is invalid; or the changelog is asked for, and
                the table has none.
            UntrackedError: a commit published no changes. Raised when a result is asked for.
            NotFoundError: the end is not there yet.
            ExpiredError: a snapshot has expired, and its changelog with it; `context["earliest"]` is the first that is
                kept. Raised when a result is asked for.
        """
        return self.marking(gaps).changes_between(start, end, columns, where, mode, self.setting(timezone))

    def marking(self, gaps: str | None) -> Self:
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
        from merganser.expr.filters import to_predicate
        from merganser.scan.changes import changes_of, published
        from merganser.scan.increments import increment_of
        from merganser.scan.scan import chosen_columns
        from merganser.scan.source import Published

        if start is None and end is None and mode == "auto" and scan_mode(self.definition.options) == "incremental":
            source = increment_of(self.definition.options, self._snapshots, setting.tzinfo)
        else:
            source = published(self.name, 1 if start is None else start, end, mode)
        last = self._snapshots.get(source.last) if isinstance(source, Published) and source.last else None
        definition = self.definition if last is None else with_key_of(self.definition, self.env, last)
        fields = definition.schema.user_fields
        chosen = chosen_columns(definition, columns, fields)
        predicate = to_predicate(where, (CHANGE_KIND, *fields), setting=setting)
        return changes_of(definition, self.env, source, chosen, predicate)

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
        "+I". See `changes` for what snapshots publish. `close`, or the end of a `with` block, ends the iterator and its
        client of the log, if the table has a log.

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
            gaps: what to do about commits whose changes are not known, such as those without change tracking. "error":
                raise an error. "mark": hand over a `Gap` in their place. "skip": go on. None: what the option
                'change-tracking.gaps' says, else "error".
            options: further options for this reader, such as **{"scan.snapshot-id": "3"}.

        Raises:
            InvalidInputError: an argument or option has no meaning for a stream.
            NotFoundError, ExpiredError: there is no such start, or no longer.
            UntrackedError: a commit published no changes. Raised in its place.
        """
        from merganser.scan.scan import chosen_columns
        from merganser.scan.split import What

        check_asked(options, arguments_of(self.stream))
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
        from merganser.expr.filters import to_predicate
        from merganser.scan.forms import columns_of
        from merganser.scan.scan import chosen_columns
        from merganser.scan.views import checked_columns
        from merganser.stream.follow import TableStream, bounds_of

        check_flags(f"cannot follow '{self.name}'", follow=follow)
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

    def lookup(
        self,
        keys: Any,
        columns: Sequence[str] | None = None,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: datetime | str | None = None,
    ) -> pa.Table:
        """Return the rows of keys, in the order of the keys. A key without a row is left out.

        Calls of one process share what they opened. For many calls a handle of `lookups` is faster, since this method
        looks for a new snapshot each time.

        Args:
            keys: a dict such as {"id": 7}, a list of dicts, an Arrow table, or a frame: all columns of the primary key.
                Give the partition columns that it lacks, too; if keys move between partitions, all of them or none.
            columns: the columns to return; None: all.
            snapshot, tag, timestamp: look at an older state; give at most one of them. None: the newest snapshot. A
                timestamp is an aware datetime or ISO text, in UTC if it names no offset, and selects the newest
                snapshot at or before this time. Rows have the columns of that time, as for `read`.

        Raises:
            InvalidInputError: the table has no key; a column is no part of the key or missing; a value is null or of
                another type; two states are given, or the time is invalid. Nothing was read.
            NotFoundError: the snapshot or tag does not exist, or the first snapshot is later than the time.
            ExpiredError: the snapshot has expired.
            FormatError: a file that may hold one of the keys is damaged or missing. Other keys can be looked up.
            ConflictError: as when rows of `read` are read.
        """
        from merganser.lookup.lookup import shared_lookup

        at = self.looked_at(snapshot, tag, timestamp)
        return shared_lookup(self.definition, self.env, at).lookup(keys, columns)

    def lookup_prefix(
        self,
        prefix: Mapping[str, Any],
        columns: Sequence[str] | None = None,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: datetime | str | None = None,
    ) -> pa.Table:
        """Return all rows whose primary key begins with some values, in no order.

        The bucket key has to be the first columns of the primary key, without partition columns, and not all of them:
        then all these rows lie in one bucket.

        Args:
            prefix: exactly the columns of the bucket key and the partition columns, such as {"dt": "2026-01-01"}.
            columns, snapshot, tag, timestamp: as for `lookup`.

        Raises:
            InvalidInputError: the table has no such bucket key, or the prefix has other columns; two states are given,
                or the time is invalid. Nothing was read.
            NotFoundError, ExpiredError: as for `lookup`.
        """
        from merganser.lookup.lookup import shared_lookup

        at = self.looked_at(snapshot, tag, timestamp)
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
        from merganser.lookup.lookup import Lookup

        if refresh != "latest" and (isinstance(refresh, bool) or not isinstance(refresh, int)):
            raise InvalidInputError(
                f"cannot look up in '{self.name}': refresh is {refresh!r:.50}. Give 'latest' or the id of a snapshot."
            )
        snapshot = self.looked_at() if isinstance(refresh, str) else refresh
        return Lookup(self.definition, self.env, snapshot=snapshot, cache=cache)

    def looked_at(
        self,
        snapshot: int | None = None,
        tag: str | None = None,
        timestamp: datetime | str | None = None,
        zone: tzinfo = UTC,
    ) -> Snapshot | None:
        """Return the snapshot to look up in: the given one, else that of the scan options; None: the newest one.

        Args:
            snapshot, tag, timestamp: as for `lookup`.
            zone: the time zone of a text that names none.

        Raises:
            InvalidInputError: two are given, or the time is invalid, or the scan options select changes, not a state.
            NotFoundError, ExpiredError: as for `lookup`.
        """
        from merganser.scan.source import State
        from merganser.scan.time_travel import resolve, source_of

        definition = self.definition
        if snapshot is not None or tag is not None or timestamp is not None:
            return resolve(self._snapshots, snapshot=snapshot, tag=tag, timestamp=timestamp, zone=zone)
        if scan_mode(definition.options) != "incremental":
            source = source_of(definition.options, self._snapshots)
            if isinstance(source, State):
                return source.snapshot
        raise InvalidInputError(
            f"cannot look up in '{self.name}': its scan options select what changed, and lookups need a state of the "
            "table. Nothing was read. Open the table without 'scan.*' options, or give snapshot=, tag= or timestamp=."
        )

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
        from merganser.expr.filters import to_predicate
        from merganser.scan.rows import check_asked_rows
        from merganser.scan.scan import Scan, chosen_columns
        from merganser.scan.source import State
        from merganser.scan.time_travel import resolve

        definition = self.definition
        source: Source | Increment
        if snapshot is None and tag is None and timestamp is None:
            source = self._asked(setting)
        else:
            source = State(
                resolve(self._snapshots, snapshot=snapshot, tag=tag, timestamp=timestamp, zone=setting.tzinfo)
            )
        if source.snapshot is not None:
            definition = as_of(definition, self.env, source.snapshot.schema_id)
        check_asked_rows(self.name, None, limit)
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
        from merganser.scan.increments import increment_of
        from merganser.scan.time_travel import source_of

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
        from merganser.scan.rows import StoredRows, asked_rows, check_asked_rows
        from merganser.scan.source import State
        from merganser.scan.system_tables import OF_ONE_SNAPSHOT, check_system_name, system_table
        from merganser.scan.time_travel import source_of
        from merganser.scan.views import VIEWS, view

        plain = str(name).removeprefix("$")
        setting = self.setting(timezone) if isinstance(timezone, str) else timezone
        if plain in VIEWS:
            return view(plain, self.read(limit=limit), columns, where, setting)
        check_system_name(self.definition, plain)
        check_asked_rows(self.name, columns, limit)

        def rows() -> pa.Table:
            chosen = source_of(self.definition.options, self._snapshots) if plain in OF_ONE_SNAPSHOT else None
            snapshot = chosen.snapshot if isinstance(chosen, State) else None
            found = system_table(self.definition, self.env, plain, snapshot)
            return asked_rows(found, f"{self.name}${plain}", columns, where, limit, setting)

        return StoredRows(rows, f"{self.name}${plain}")

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return all snapshots that have not expired, oldest first."""
        store = self._snapshots
        return Snapshots(found for found in (store.get(i) for i in store.ids()) if found is not None)

    def files(self) -> pa.Table:
        """Return the live data files of the snapshot that `system` describes, one row each, as `$files` has them."""
        return self.system("files").to_arrow()
