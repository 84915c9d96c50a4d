"""The verbs that change rows by a condition, as part of `Table`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from merganser.expr.setting import Setting
from merganser.handle.base import TableBase
from merganser.meta.snapshot import Snapshot

if TYPE_CHECKING:
    from merganser.commit.conflict import Reads
    from merganser.edit.merging import Merge
    from merganser.erase.report import Erasure


def delete_computed(table: EditVerbs, keys: pa.Table, computed_from: Reads | None) -> Snapshot | None:
    """Delete the rows of keys that a query gives, if what it read of the table is as it was.

    Args:
        keys: the columns of the primary key.
        computed_from: what the query has read of the table. None: nothing.

    Raises:
        ConflictError: it has changed; `overtaken` is QUERY, and the query has to run again.
    """
    from merganser.edit.change import Change
    from merganser.edit.matching import with_keys

    definition, action = table.definition, f"cannot delete from '{table.name}'"
    where = with_keys(keys, definition, action)
    return Change(definition, table.env, where, None, action, computed_from=computed_from).done()


class EditVerbs(TableBase):
    """Deletes, updates and merges."""

    def delete(
        self,
        where: str | Any,
        *,
        commit_user: str | None = None,
        identifier: int | None = None,
        timezone: str = "UTC",
        changes: bool = True,
    ) -> Snapshot | None:
        """Remove rows as one commit.

        If another commit changes rows that the filter asks for, the call looks at the rows again. So the result is as
        if nobody else had written meanwhile.

        Args:
            where: the rows to remove: SQL text, a `pyarrow.compute` expression or a predicate.
                The text "true" takes every row.
            commit_user, identifier: see `write`. A repeated call changes nothing and returns the first one's snapshot.
            timezone: the time zone of texts in `where`; see `read`.
            changes: see `write`.

        Returns:
            The snapshot; its `rows_deleted` says how many rows were removed; None: files went unread. None if no row
            matches: there is no commit then, unless there is an identifier, which an empty commit takes note of.

        Raises:
            InvalidInputError: there is no filter, or it is invalid; the merge engine has no rule for deletes; or the
                handle was opened with an option that says where reads start. Nothing was written.
            ConflictError: other commits changed the rows again and again until `commit.max-retries` or
                `commit.timeout`; or a column that the call names is another one since the handle was opened. Nothing of
                this call is visible.
            CommitUnknownError: the store lost the reply; repeat with the same user and identifier.
        """
        from merganser.edit.asked import filter_of
        from merganser.edit.change import Change

        setting, action = self.setting(timezone), f"cannot delete from '{self.name}'"
        return Change(
            self.definition,
            self.env,
            filter_of(where, self.definition, action, setting),
            None,
            action,
            commit_user,
            identifier,
            changes,
        ).done()

    def erase(
        self,
        where: str | Any,
        everywhere: bool = False,
        *,
        commit_user: str | None = None,
        timezone: str = "UTC",
    ) -> Erasure:
        """Delete rows, and make sure that no file of the table holds them or an older version of them.

        In a table with a key, the filter finds keys: a key is erased if any stored version of its row matches, also
        one that a snapshot, tag or branch keeps. The deletion is a commit as of `delete`, which streams see. Then files
        that hold versions of the rows are written again. At the end, every file that is there is read. Rows that other
        writers add after the deletion stay.

        A call that was interrupted is repeated, and finishes the work. So is one after which something still holds
        rows: a call with `everywhere` after streams have read `report.snapshot` ends what still holds them.

        Args:
            where: the rows to erase; see `delete`.
            everywhere: also erase the rows in branches, and end all snapshots, tags, long-lived changelogs and
                consumers that hold rows. A stream that has not read past them then gets an ExpiredError. False: the
                report says what holds rows.
            commit_user: the name of the committer, for the report; None: a new random name.
            timezone: the time zone of texts in `where`; see `read`.

        Returns:
            The report. It says what was deleted, written again, removed and ended, what still holds rows, and what was
            read to verify it.

        Raises:
            InvalidInputError: there is no filter; it or `everywhere` is invalid; or the table refuses deletes. Nothing
                was written.
            ConflictError: other commits changed the rows again and again. Repeat the call.
            FormatError: metadata or a file is damaged. What was erased before stays erased.
            StorageError, CommitUnknownError: the store failed. Repeat the call.
        """
        from merganser.erase.erasure import erasing

        return erasing(self.definition, self.env, where, everywhere, commit_user, self.setting(timezone)).done()

    def update(
        self,
        where: str | Any,
        set: Mapping[str, str],
        *,
        commit_user: str | None = None,
        identifier: int | None = None,
        timezone: str = "UTC",
        changes: bool = True,
    ) -> Snapshot | None:
        """Give rows new values as one commit.

        Args:
            where, commit_user, identifier, changes: see `delete`.
            set: SQL text by column: {"amount": "0", "x": "x + 1"}. Each value is computed from the row as it was. Key
                and partition columns stay as they are.
            timezone: the time zone of texts in `where` and `set`, and the zone in which an instant has a date, a wall
                clock and a text where it is stored in a column of another type; see `read`.

        Returns:
            The snapshot; its `rows_updated` says how many rows are not what they were. None if no row changes; see
            `delete`.

        Raises:
            InvalidInputError: the filter or a value is invalid; a value does not fit its column; or the merge engine
                takes no new values. Nothing was written.
            ConflictError, CommitUnknownError: see `delete`.
        """
        from merganser.edit.asked import filter_of
        from merganser.edit.assign import assignments
        from merganser.edit.change import Change

        setting, action = self.setting(timezone), f"cannot update '{self.name}'"
        return Change(
            self.definition,
            self.env,
            filter_of(where, self.definition, action, setting),
            assignments(self.definition, set, action, setting),
            action,
            commit_user,
            identifier,
            changes,
        ).done()

    def merge(
        self,
        source: Any,
        on: str,
        *,
        alias: tuple[str, str] | None = None,
        commit_user: str | None = None,
        identifier: int | None = None,
        timezone: str = "UTC",
        changes: bool = True,
    ) -> Merge:
        """Return a merge of rows into the table; it is done by `execute`.

            orders.merge(rows, on="target.id = source.id")
                .when_matched_delete(condition="source.gone")
                .when_matched_update({"amount": "target.amount + source.amount"})
                .when_not_matched_insert()
                .execute()

        Args:
            source: the rows; see `write`. They are held in memory. An empty list has the columns of the table.
            on: SQL text: which row of the source belongs to which row of the table. It needs at least one equality of
                a column of the target with a value of the source. If the whole key is joined, rows are looked up by
                key; else the table is scanned. Columns are called `target.a` and `source.a`, or by two other names.
            alias: what SQL text calls the table and the source: ("t", "s") for `t.a` and `s.a`. None: that is found
                from `on`, where `target`, `source` and the name of the table are known, and of two other names the
                columns after them say whose they are. If both sides have all these columns, only `on` can use them.
            commit_user, identifier, timezone, changes: see `delete`.

        Raises:
            InvalidInputError: the source holds no rows; the condition is invalid; or the handle was opened with an
                option that says where reads start.
        """
        return self.merging(source, on, self.setting(timezone), commit_user, identifier, changes, alias=alias)

    def merging(
        self,
        source: Any,
        on: str,
        setting: Setting,
        commit_user: str | None,
        identifier: int | None,
        changes: bool,
        elsewhere: Callable[[Merge], Snapshot | None] | None = None,
        *,
        alias: tuple[str, str] | None = None,
        is_source: Callable[[Sequence[str]], bool] | None = None,
    ) -> Merge:
        """Return a merge of rows into the table; see `merge`.

        Args:
            setting: what SQL text means besides its words.
            elsewhere: does the merge when it is executed, with rows that it has; None: it is done in this process.
            is_source: see `found_names`.
        """
        from merganser.edit.asked import check_is_newest
        from merganser.edit.joined import joining
        from merganser.edit.merge_source import source_fields, source_of
        from merganser.edit.merging import Merge

        action = f"cannot merge into '{self.name}'"
        check_is_newest(self.definition, action)
        rows = source_of(source, self.definition, action)
        found = joining(on, self.definition, source_fields(rows.schema), action, setting, alias, is_source)
        return Merge(self.definition, self.env, rows, found, setting, commit_user, identifier, changes, elsewhere)
