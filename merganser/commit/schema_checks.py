"""Checks of a change against the schemas of its table, which others may have altered or dropped since it began.

A commit makes all of them before it creates its snapshot. It makes `check_rows` again after that, if a schema came in
between (`table_commit`, step 5).
"""

from __future__ import annotations

from collections.abc import Sequence

from merganser.commit.committable import Committable
from merganser.commit.conflict import check_new_partitions
from merganser.commit.message import CommitMessage
from merganser.errors import ConflictError, FormatError, InvalidInputError
from merganser.meta.data_file import DataFile
from merganser.meta.key_change import key_ids, replaced
from merganser.meta.layout import options_since
from merganser.meta.live_files import EMPTY
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import COMPACT
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import TableState
from merganser.options import write as w
from merganser.options.option import Options
from merganser.options.registry import sequence_groups
from merganser.rules.compacting import publishes_by_compaction
from merganser.rules.named_columns import renamed
from merganser.rules.option_changes import check_written_options
from merganser.schema.lossy import lossy_columns
from merganser.schema.nullability import tightened
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.values import dataclass


@dataclass(frozen=True)
class SchemaChecks:
    """Checks of changes to one table against its schemas.

    Attributes:
        table: as it was when the write began.
    """

    table: TableDef
    env: Env

    def check_there(self) -> None:
        """Refuse to commit to a table that was dropped, or dropped and made anew, since it was opened.

        Raises:
            ConflictError: nothing was changed.
        """
        schema = self.table.schema
        try:
            found = SchemaStore(self.table.paths, self.env).load(schema.id, fresh=True)
        except FormatError as error:
            raise ConflictError(
                f"cannot commit to '{self.table.name}': its schema {schema.id} is gone or damaged, so the table was "
                f"dropped or renamed since it was opened. Nothing was changed. ({error})",
                table=self.table.name,
            ) from error
        if found != schema:
            raise ConflictError(
                f"cannot commit to '{self.table.name}': {replaced(schema)} Nothing was changed. Open the table again.",
                table=self.table.name,
            )

    def check_rows(
        self,
        change: Committable,
        messages: Sequence[CommitMessage],
        state: TableState,
        now: TableSchema,
        newest_id: int,
    ) -> None:
        """Refuse rows that the table cannot hold, or stores in another way, by its newest schema.

        Args:
            change: what the rows belong to.
            messages: its files, as they are to be committed.
            state: the one that the change follows.
            now: the newest schema that is in force.
            newest_id: of the newest schema, in force or not.

        Raises:
            ConflictError: nothing was changed. With BUCKETS in `overtaken`, nothing but their number of buckets is in
                the way of the rows.
        """
        if change.kind != COMPACT:
            self._check_columns(now, messages)
        self._check_stored(now, is_first=state.snapshot is None, rekeys=change.rekeys)
        if not change.rescales:  # last: it is the only one whose rows may stay
            self._check_numbers(change, messages, state, newest_id)

    def _check_numbers(
        self, change: Committable, messages: Sequence[CommitMessage], state: TableState, newest_id: int
    ) -> None:
        """Refuse rows without others in their partitions that come with the number of buckets of an older schema.

        Raises:
            ConflictError: nothing was changed.
        """
        check_new_partitions(
            [entry for message in messages for entry in message.entries()],
            state.live if change.overwrites is None else EMPTY,  # an overwrite leaves nothing else
            lambda: options_since(self.table, self.env, self.table.schema.id, newest_id),
            table=self.table.name,
            snapshot=state.next_id - 1,
        )

    def _check_stored(self, now: TableSchema, *, is_first: bool, rekeys: bool) -> None:
        """Refuse rows that are stored as the table stored them when this write began, and no longer does.

        Args:
            is_first: they are the first rows, so that the table may have been altered as only empty tables may be.
            rekeys: they are to have the key of their own schema.

        Raises:
            ConflictError: nothing was changed.
        """
        schema, names = self.table.schema, {field.id: field.name for field in now.fields}
        if now.id == schema.id:
            return
        what = f"cannot commit to '{self.table.name}'"
        if _order_of(schema) != _order_of(now):
            raise ConflictError(
                f"{what}: the columns that say which row of a key is newer ('sequence.field', sequence groups) changed "
                "since this write began. Nothing was changed. Open the table again, and write the rows again.",
                table=self.table.name,
            )
        later = {field.name: names[field.id] for field in schema.fields if field.id in names}
        fact = "the primary key has"
        try:
            if is_first:
                check_written_options(renamed(self.table.options, later), now.options, what=what)
            if key_ids(schema) == key_ids(now) and not rekeys:
                return
        except InvalidInputError as error:
            fact = f"'{error.context['option']}' has"
        raise ConflictError(
            f"{what}: {fact} changed since this write began, and decides how rows are stored. Nothing was changed. "
            "Open the table again, and write the rows again.",
            table=self.table.name,
        )

    def _check_columns(self, now: TableSchema, messages: Sequence[CommitMessage]) -> None:
        """Refuse rows that the columns of the table cannot hold any more since the writer began.

        Readers turn values of the older schema into those of the newer one. This is right for rows that were there when
        the table was altered. Values of later rows would wrap, be rounded or be cut without a word.

        Raises:
            ConflictError: nothing was changed.
        """
        if now.id == self.table.schema.id or not any(message.added or message.changelog for message in messages):
            return
        fields = self.table.schema.user_fields
        for column, fact in lossy_columns(fields, now.user_fields):
            raise ConflictError(
                f"cannot commit to '{self.table.name}': since this write began with schema {self.table.schema.id}, "
                f"{fact} (schema {now.id}). Nothing was changed. Open the table again, and write the rows again.",
                table=self.table.name,
                column=column,
            )
        for way, inside in tightened(fields, now.user_fields):
            column = way[0].name
            known = len(way) == 1 and not inside
            for file in (file for message in messages for file in message.added):
                if not known or self._null_count(file, column) != 0:
                    raise ConflictError(
                        f"cannot commit to '{self.table.name}': column '{'.'.join(f.name for f in way)}' became NOT "
                        "NULL since this write began, and rows that were written may be null in it. Nothing was "
                        "changed. Open the table again, and write the rows again.",
                        table=self.table.name,
                        column=column,
                    )

    def _null_count(self, file: DataFile, column: str) -> int | None:
        """Return in how many rows of a new file a column is null, by its statistics; None: they do not say."""
        names = file.value_stats_columns or self.table.schema.names
        counts = file.value_stats.null_counts or ()
        return counts[names.index(column)] if column in names and len(counts) == len(names) else None

    def check_logs(self, now: Options, kind: str) -> None:
        """Refuse rows that are not published, where the table began to publish changes since the writer began.

        A compaction is refused only if compactions publish: it would move rows that nobody publishes any more.

        Raises:
            ConflictError: nothing was changed.
        """
        options, producer = self.table.options, now.get(w.CHANGELOG_PRODUCER)
        if not self.table.keyed or producer in ("none", options.get(w.CHANGELOG_PRODUCER)):
            return
        if kind == COMPACT and not publishes_by_compaction(now):
            return
        if now.get(w.STREAM) not in (None, options.get(w.STREAM)):
            fact = "a stream of its changes was enabled since this write began"
        elif options.get(w.CHANGELOG_PRODUCER) == self.table.schema.options.get(w.CHANGELOG_PRODUCER):
            fact = f"'{w.CHANGELOG_PRODUCER.key}' was set to '{producer}' since this write began"
        else:
            return  # a producer of its own
        raise ConflictError(
            f"cannot commit to '{self.table.name}': {fact}, and the write has logged no changes. Nothing was changed. "
            "Write the rows again.",
            table=self.table.name,
        )


def _order_of(schema: TableSchema) -> tuple[object, ...]:
    """Return what orders the versions of a key, columns by their ids: rows are folded by it, and by nothing else."""
    ids = {field.name: field.id for field in schema.fields}
    groups = {tuple(map(ids.get, ordering)) for ordering, _ in sequence_groups(schema.options)}
    fields = tuple(map(ids.get, schema.options.get(w.SEQUENCE_FIELD)))
    return fields, fields and schema.options.get(w.SEQUENCE_FIELD_SORT_ORDER), groups
