"""WriteSession: rows checked, written into buckets, and published; batch by batch and commit by commit.

Both faces that write in this process use it (a call of `Table.write`, a `Writer`). Engines split it: their
tasks run `TableWriter`, their driver publishes the messages through `publish_messages`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.codec.binary_row import arrow_to_stored, serialize
from merganser.commit.conflict import check_total_buckets
from merganser.commit.message import CommitMessage, Committed
from merganser.commit.publish import Change, Publisher
from merganser.errors import CommitUnknownError, InvalidInputError, MerganserError
from merganser.lsm.abandoned import remove_files
from merganser.lsm.writer import TableWriter
from merganser.meta.data_file import ADD, DataFile, ManifestEntry
from merganser.meta.live_files import BucketId, LiveFiles
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.options.registry import did_you_mean
from merganser.rules.checks import check_can_write
from merganser.schema.arrow import arrow_type
from merganser.schema.conform import conform, fill_missing
from merganser.storage.env import Env
from merganser.upkeep.after_commit import after_commit
from merganser.upkeep.compact_table import RunJobs, catch_up
from merganser.write import overwrite as ow
from merganser.write.incoming import Arrival, Prepared, accepted


class WriteTarget:
    """What is written where: checks a call against its table, before any row is taken.

    Args:
        columns: the columns supplied; None: all.
        overwrite: a static spec, "dynamic", or None to append.
        action: beginning of messages; None: that the table cannot be written to.

    Raises:
        InvalidInputError: a spec or column that the table does not have.
        UnsupportedError: the table asks for something this version does not write.
    """

    def __init__(
        self,
        table: TableDef,
        *,
        columns: Sequence[str] | None = None,
        overwrite: Mapping[str, Any] | str | None = None,
        action: str | None = None,
    ) -> None:
        check_can_write(replace(table.schema, options=table.options), name=table.name)
        self.table = table
        self.action = action or f"cannot write to '{table.name}'"
        self.columns = self._checked_columns(columns)
        self.dynamic = False
        self.spec: dict[str, Any] | None = None
        if isinstance(overwrite, str):
            if overwrite != "dynamic":
                raise InvalidInputError(
                    f"{self.action}: overwrite is '{overwrite}'. Give \"dynamic\", a partition such as "
                    f"{{'dt': '2026-01-01'}}, or {{}} for the table."
                )
            self.dynamic = True
        elif isinstance(overwrite, Mapping):
            self.spec = self.stored_spec(overwrite, whole=" overwrite={} replaces it.")
        elif overwrite is not None:
            raise InvalidInputError(
                f'{self.action}: overwrite is a {type(overwrite).__name__}. Give "dynamic", a partition such as '
                f"{{'dt': '2026-01-01'}}, or {{}} for the table."
            )

    @property
    def overwrites(self) -> bool:
        """Whether a commit replaces what is there."""
        return self.dynamic or self.spec is not None

    def accepted(self, rows: pa.Table, kinds: pa.Array | None, arrival: Arrival | None = None) -> Prepared:
        """Return the rows to write, checked: exactly the table's columns and types, and kinds that it takes.

        Args:
            rows: the columns supplied, in types that convert without loss.
            kinds: int8, one per row; None: all inserts.
            arrival: int64, orders the rows; None: by position.

        Raises:
            InvalidInputError: names the column, the row and the value.
        """
        return accepted(self.table, self._conformed(rows), kinds, arrival, action=self.action)

    def _conformed(self, rows: pa.Table) -> pa.Table:
        table = self.table
        fields = table.schema.fields_with_defaults
        if self.columns is not None:
            extra = [name for name in rows.column_names if name not in self.columns]
            lacking = [name for name in self.columns if name not in rows.column_names]
            if extra or lacking:
                what = (
                    f"column '{extra[0]}' is in the data but not"
                    if extra
                    else f"column '{lacking[0]}' is missing from the data but"
                )
                raise InvalidInputError(
                    f"{self.action}: {what} among the columns given ({', '.join(self.columns)}).",
                    column=(extra or lacking)[0],
                )
            rows = fill_missing(rows, fields)
        rows = conform(
            rows,
            fields,
            action=self.action,
            not_null_names=() if table.options.get(w.PRIMARY_KEY_NULLABLE) else table.schema.primary_keys,
        )
        if self.spec:
            self._check_inside(rows)
        return rows

    def selection(self, messages: Sequence[CommitMessage]) -> ow.Selection | None:
        """Return which files a commit of these messages removes; None: it adds only."""
        if self.dynamic:
            return ow.of_partitions([message.partition for message in messages]) if messages else None
        return None if self.spec is None else ow.of_spec(self.table, self.spec)

    def stored_spec(self, spec: Mapping[str, Any], whole: str = "") -> dict[str, Any]:
        """Return a partition spec with stored values.

        Args:
            whole: how all of a table without partitions is named instead, as the end of a message.

        Raises:
            InvalidInputError: a name that is no partition column, or a value that is not of its type.
        """
        names = self.table.schema.partition_keys
        out = {}
        if not isinstance(spec, Mapping):
            raise InvalidInputError(
                f"{self.action}: {spec!r:.60} is not a partition. Write one as {{'dt': '2026-01-01'}}."
            )
        for name, value in spec.items():
            if name not in names:
                hint = did_you_mean(str(name), list(names)) if names else f"The table has no partitions.{whole}"
                raise InvalidInputError(
                    f"{self.action}: '{name}' is not a partition column. {hint}",
                    column=name,
                )
            kind = self.table.schema.field(name).type
            try:
                scalar = pa.scalar(value) if value is not None else pa.scalar(None)
                scalar = scalar.cast(arrow_type(kind))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise InvalidInputError(
                    f"{self.action}: {value!r} is not a value of partition column '{name}' {kind}.", column=name
                ) from error
            out[name] = arrow_to_stored(scalar, kind)
        return out

    def _checked_columns(self, columns: Sequence[str] | None) -> tuple[str, ...] | None:
        if columns is None:
            return None
        names = self.table.schema.shown.names
        if isinstance(columns, str):
            raise InvalidInputError(
                f"{self.action}: columns must be a list of names, not the text '{columns}'. Write "
                f"columns=['{columns}']."
            )
        if not isinstance(columns, Iterable):
            raise InvalidInputError(
                f"{self.action}: columns must be a list of names, not {columns!r:.100}. Write columns=['id']."
            )
        for i, name in enumerate(columns):
            if name not in names:
                raise InvalidInputError(
                    f"{self.action}: it has no column '{name}'. {did_you_mean(str(name), names)}", column=name
                )
            if name in columns[:i]:
                raise InvalidInputError(f"{self.action}: column '{name}' is named twice. Name it once.", column=name)
        for name in self.table.schema.shown.primary_keys:
            if name not in columns:
                raise InvalidInputError(
                    f"{self.action}: key column '{name}' is not among the columns given ({', '.join(columns)}). "
                    "Supply the whole key.",
                    column=name,
                )
        return tuple(columns)

    def _check_inside(self, rows: pa.Table) -> None:
        for name, value in (self.spec or {}).items():
            kind = self.table.schema.field(name).type
            column = rows.column(name)
            for chunk in column.unique().chunks if isinstance(column.unique(), pa.ChunkedArray) else [column.unique()]:
                for scalar in chunk:
                    if serialize((arrow_to_stored(scalar, kind),), (kind,)) != serialize((value,), (kind,)):
                        row = (
                            pc.index(column, scalar).as_py()
                            if scalar.is_valid
                            else pc.index(pc.is_null(column), True).as_py()
                        )
                        raise InvalidInputError(
                            f"{self.action}: row {row + 1} (counting from 1) has {name} = '{scalar.as_py()}', outside "
                            "the partition that is overwritten. Nothing was written.",
                            column=name,
                            row=row,
                        )


@dataclass(frozen=True, slots=True)
class StartingSequences:
    """The first free sequence number of every bucket of a state, as a value that travels to tasks.

    Attributes:
        table: the table's name, for messages.
        total: how many buckets rows are hashed over.
        first: by bucket; those not named begin at 0.
        others: buckets whose files were written with another number of buckets, where that matters.
    """

    table: str
    total: int
    first: Mapping[BucketId, int]
    others: LiveFiles

    def __call__(self, bucket: BucketId) -> int:
        """Return the first free sequence number of a bucket.

        Raises:
            InvalidInputError: the partition was written with another number of buckets.
        """
        if self.others.buckets:
            probe = ManifestEntry(ADD, bucket[0], bucket[1], self.total, _NO_FILE)
            check_total_buckets([probe], self.others, table=self.table)
        return self.first.get(bucket, 0)


def starting_sequences(table: TableDef, live: LiveFiles, *, overwrites: bool) -> StartingSequences:
    """Return where the sequence numbers of writers begin that start from a state."""
    others = {}
    if table.bucket > 0 and not overwrites:
        others = {bucket: files for bucket, files in live.buckets.items() if 0 < files.total_buckets != table.bucket}
    numbered = live.buckets if table.keyed or table.bucket > 0 else {}
    return StartingSequences(
        table.name, table.bucket, {bucket: live.next_sequence(bucket) for bucket in numbered}, LiveFiles(others)
    )


_NO_FILE = DataFile("", 0, 0, b"", b"", None, None, 0, 0, 0, 0)  # type: ignore[arg-type]


_NOTHING_MEASURED: Final[Mapping[str, float]] = {}


def publish_messages(
    target: WriteTarget,
    env: Env,
    messages: Sequence[CommitMessage],
    *,
    commit_user: str,
    identifier: int,
    uuid: str | None = None,
    since: int | None = None,
    safe: int | None = None,
    keep_files: bool = False,
    seconds: Mapping[str, float] = _NOTHING_MEASURED,
) -> Snapshot | None:
    """Make written files one commit; on a definite failure remove them. Its callers let `after_commit` come after.

    Args:
        uuid, since: of a caller that repeats a commit; see `Change`.
        safe: of a caller that commits more than once, its last commit; None: what the table's strict mode says.
        keep_files: leave the files of a commit that failed, for the caller to try again or to remove.
        seconds: what was spent on the files, by phase.

    Returns:
        The snapshot, or None when there was nothing to commit.

    Raises:
        ConflictError, InvalidInputError: nothing is visible, the files are gone unless they were to be kept.
        CommitUnknownError: the outcome is unknown, the files were kept.
    """
    table = target.table
    if target.overwrites:
        messages = ow.upgraded(table, messages)
    selection = target.selection(messages)
    options = table.options
    allow_empty = options.get(w.COMMIT_FORCE_CREATE_SNAPSHOT) or options.get(w.SNAPSHOT_IGNORE_EMPTY_COMMIT) is False
    if not messages and selection is None and not allow_empty:
        return None
    change = Change(
        messages=messages,
        commit_user=commit_user,
        identifier=identifier,
        overwrites=selection,
        allow_empty=allow_empty,
        uuid=uuid,
        since=since,
        safe=options.get(w.COMMIT_STRICT_LAST_SAFE_SNAPSHOT) if safe is None else safe,
        seconds=seconds,
    )
    try:
        return Publisher(table, env).commit(change)
    except CommitUnknownError:
        raise
    except MerganserError:  # after any other error, a bug, nothing is sure: orphans do no harm
        if not keep_files:
            remove_files(table, env, messages)
        raise


class WriteSession:
    """Writes and commits in this process.

    Args:
        commit_user: who commits; None: a fresh random name. What was chosen is `user`.
    """

    def __init__(
        self,
        table: TableDef,
        env: Env,
        *,
        commit_user: str | None = None,
        columns: Sequence[str] | None = None,
        overwrite: Mapping[str, Any] | str | None = None,
    ) -> None:
        self.table = table
        self.env = env
        self.target = WriteTarget(table, columns=columns, overwrite=overwrite)
        if commit_user is not None and (not isinstance(commit_user, str) or not commit_user.strip()):
            raise InvalidInputError(
                f"{self.target.action}: commit_user is {commit_user!r}. It is text that says who commits, or None."
            )
        self.user = commit_user or (table.options.get(w.COMMIT_USER_PREFIX) or "") + env.new_id()
        self._writer: TableWriter | None = None
        self._taking = False
        self._failed: list[CommitMessage] = []
        self._uuid = env.new_id()
        self._unknown_since: int | None = None
        self._safe = table.options.get(w.COMMIT_STRICT_LAST_SAFE_SNAPSHOT)
        self._torn = False
        self._closed = False
        self._seconds: dict[str, float] = {}

    def applied(self, identifier: int, *, run: RunJobs | None = None) -> tuple[bool, Snapshot | None]:
        """Return whether a commit of this user was applied already, and its snapshot if it is kept.

        Whoever made it may have been stopped before the compaction that makes its rows visible; it is made up for.

        Args:
            run: where that runs; None: on the threads of this process.
        """
        done, snapshot = Publisher(self.table, self.env).applied(self.user, identifier)
        if done:
            catch_up(self.table, self.env, run=run)
        return done, snapshot

    def write(self, rows: pa.Table, kinds: pa.Array | None, *, held: bool = False) -> None:
        """Take rows; see `TableWriter.write`. Rows that do not fit are refused before any of them is written."""
        self._check_usable()
        if not rows.num_columns and not rows.num_rows:
            return
        if self._unknown_since is not None:
            raise InvalidInputError(
                f"{self.target.action}: nobody knows yet whether the last commit of this writer was made. "
                "Call commit again with the same identifier, or leave the writer, before more rows come."
            )
        begun = self.env.seconds()
        prepared = self.target.accepted(rows, kinds)
        checked = self.env.seconds()
        self._spent("check", checked - begun)
        if not self._taking:  # rows that others committed since our last commit are older than those that come now
            live = Publisher(self.table, self.env).latest().live
            starts = starting_sequences(self.table, live, overwrites=self.target.overwrites)
            if self._writer is None:
                self._writer = TableWriter(self.table, self.env, starts)
            self._writer.next_sequence = starts
            self._taking = True
        assert self._writer is not None
        try:
            self._writer.write(prepared[0], prepared[1], held=held)
        except BaseException:
            self.give_up()
            raise
        self._spent("write", self.env.seconds() - checked)

    def commit(self, identifier: int = BATCH_IDENTIFIER) -> Snapshot | None:
        """Publish what was written since the last commit.

        When the commit fails the rows stay with the session: a repeat of this call commits them, once. When they
        cannot be written nothing of them can be committed any more.
        """
        self._check_usable()
        if self._writer is not None:
            begun = self.env.seconds()
            try:
                self._failed += self._writer.finish()
            except BaseException:
                self.give_up()
                raise
            self._spent("write", self.env.seconds() - begun)
        messages = self._failed
        try:
            snapshot = publish_messages(
                self.target,
                self.env,
                messages,
                commit_user=self.user,
                identifier=identifier,
                uuid=self._uuid,
                since=self._unknown_since,
                safe=self._safe,
                keep_files=True,
                seconds=self._seconds,
            )
        except CommitUnknownError as error:
            tried = error.context["snapshot"]
            self._unknown_since = tried if self._unknown_since is None else min(tried, self._unknown_since)
            raise
        except MerganserError:
            raise
        except BaseException:  # stopped at any instruction, perhaps with the snapshot made: its files must stay
            self._unknown_since = 1
            raise
        if self._unknown_since is None and (snapshot is None or snapshot.uuid != self._uuid):
            remove_files(self.table, self.env, messages)  # a twin of this commit was there first, with files of its own
        if self._safe is not None and snapshot is not None:
            self._safe = snapshot.id
        self._settle()  # before what follows: the commit stands, and nothing of it may be removed any more
        after_commit(self.table, self.env, Committed(messages, snapshot, self.user, identifier))
        return snapshot

    def give_up(self) -> None:
        """Commit nothing more before an abort: rows were taken in part.

        What was written of them and what was not cannot be told apart, so a commit would hold some of them.
        """
        self._torn = True

    def _check_usable(self) -> None:
        if self._closed:
            raise InvalidInputError(
                f"{self.target.action}: this writer is closed, and what it had not committed is dropped. Make another "
                "one with table.writer()."
            )
        if self._torn:
            raise InvalidInputError(
                f"{self.target.action}: an earlier write of this writer failed halfway, so a commit would hold a part "
                "of its rows. Nothing since its last commit is visible. Call abort(), then write all rows again."
            )

    def _settle(self) -> None:
        """Begin the next commit."""
        self._failed, self._uuid, self._unknown_since, self._taking = [], self.env.new_id(), None, False
        self._torn = False
        self._seconds = {}

    def _spent(self, phase: str, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds

    def drop(self, specs: Sequence[Mapping[str, Any]]) -> Snapshot | None:
        """Remove partitions as one commit."""
        if isinstance(specs, str | Mapping) or not isinstance(specs, Sequence):
            raise InvalidInputError(
                f"cannot drop partitions of '{self.table.name}': {specs!r:.60} is not a list of partitions. Write "
                f"[{{'dt': '2026-01-01'}}]."
            )
        stored = [self.target.stored_spec(spec) for spec in specs]
        choices = [ow.of_spec(self.table, spec) for spec in stored if spec]
        if len(choices) < len(stored):
            raise InvalidInputError(
                f"cannot drop partitions of '{self.table.name}': a spec is empty. Use truncate() to remove all rows."
            )

        def chosen(live: LiveFiles) -> list[ManifestEntry]:
            found = {entry.identity: entry for choice in choices for entry in choice(live)}
            return list(found.values())

        change = Change(messages=[], commit_user=self.user, overwrites=chosen, safe=self._safe)
        return Publisher(self.table, self.env).commit(change)

    def abort(self) -> None:
        """Drop what was not committed. Files of a commit of unknown outcome stay."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None
        if self._unknown_since is None:
            remove_files(self.table, self.env, self._failed)
        self._settle()

    def close(self, error: BaseException | None = None) -> None:
        """End the session; what was not committed is dropped."""
        self._closed = True
        self.abort()


def checked_identifier(identifier: int, commit_user: str | None) -> int:
    """Return the identifier of a commit.

    Raises:
        InvalidInputError: it is none, or nobody is named whose commit it is.
    """
    if commit_user is None:
        raise InvalidInputError(
            f"identifier {identifier} is given without commit_user. A commit is named by both: give commit_user too."
        )
    if not isinstance(identifier, int) or isinstance(identifier, bool) or not 0 <= identifier < BATCH_IDENTIFIER:
        raise InvalidInputError(
            f"identifier must be a whole number from 0 to {BATCH_IDENTIFIER - 1}, not {identifier!r}."
        )
    return identifier
