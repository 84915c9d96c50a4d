"""Table: the handle of one table. Its methods call the layers below and decide nothing themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from merganser.changes import Change, RemoveOption, SetOption
from merganser.errors import FormatError, NotFoundError
from merganser.handle.editing import EditVerbs
from merganser.handle.reading import ReadVerbs
from merganser.handle.shard_stream import StreamVerbs
from merganser.handle.upkeep import UpkeepVerbs
from merganser.handle.writing import WriteVerbs
from merganser.meta.followed import current_schema
from merganser.meta.refs import MAIN
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import write as w
from merganser.rules.checks import check_type
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.storage.paths import DROPPED, TablePaths
from merganser.values import dataclass

_COLUMNS_SHOWN: Final = 100
"""Maximum number of columns that a notebook shows."""


@dataclass(frozen=True, repr=False)
class Table(ReadVerbs, WriteVerbs, EditVerbs, UpkeepVerbs, StreamVerbs):
    """One table, to read, write and inspect. It is cheap to create and holds no open file.

    Get one from `Catalog.table`, `Catalog.create_table` or `merganser.table`.
    """

    def alter(self, changes: Iterable[Change]) -> Table:
        """Change columns, options and descriptions of the table in one step, and return the table as it is then.

        This object keeps its columns. It goes on reading and writing: rows that it writes have null in columns that
        were added, and the other columns are found again, whatever their names are now.

        A primary key for a table with rows writes all rows anew; see `merganser.changes.set_primary_key`.

        Args:
            changes: of `merganser.changes`, made one after the other, such as
                [merganser.changes.add_column("note", "STRING"), merganser.changes.rename_column("n", "amount")].

        Raises:
            InvalidInputError: the table may not be changed so; names the column or option and the reason.
            ConflictError: others changed the same columns or options at the same time.
            UnsupportedError: this version could not write or read the table then. In all three cases, nothing was
                changed.
        """
        from merganser.edit.primary_key import is_rekeying, set_primary_key
        from merganser.rules.alter import checked_changes
        from merganser.upkeep.alter import alter

        changes = checked_changes(changes, f"cannot alter '{self.name}'")
        make = set_primary_key if is_rekeying(self.definition, self.env, changes) else alter
        if self.definition.branch == MAIN and any(map(self._is_of_log, changes)):
            from merganser.log.altering import altered_with_log

            work = partial(make, self.definition, self.env)
            return replace(self, definition=altered_with_log(self.definition, self.env, changes, work))
        return replace(self, definition=make(self.definition, self.env, changes))

    def _is_of_log(self, change: Change) -> bool:
        """Return whether a change has to do with the log of the table: with its options, or with the kinds it has."""
        from merganser.rules.compacting import COUNTS_NEWEST

        if not isinstance(change, SetOption | RemoveOption):
            return False
        own = change.key.startswith(("log.", "kafka."))
        return own or (change.key in COUNTS_NEWEST and self.options.get(w.LOG_SYSTEM) != "none")

    if not TYPE_CHECKING:  # a wrong name is to be found

        def __getattr__(self, name: str) -> Any:
            from merganser.edit.other_names import OF_TABLE, no_method

            raise no_method(self, name, OF_TABLE)

    def describe(self) -> str:
        """Return a description of the table for people: columns, keys, options, size, and how far back reads can go."""
        from merganser.rules.gaps import unsupported_for_writing
        from merganser.scan.plan import unseen_files
        from merganser.scan.rows import counted, waiting
        from merganser.upkeep.history import history_of

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
        lines.append(f"key        {self._key_text}")
        lines.append(f"partitions {', '.join(schema.partition_keys) or 'none'}")
        options = self._options_set
        lines.append("options" if options else "options    none")
        lines += [f"  {key} = {value}" for key, value in options]
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
            lines += [f"{name:<11}{text}" for name, text in history_of(self.definition, self.env, latest)]
            if unseen := unseen_files(self.definition, self.env, state.live):
                lines.append(f"note       {waiting(unseen, postponed=self.definition.postpones)}")
        lines += [
            f"note       this version cannot write it: {gap.feature}"
            for gap in unsupported_for_writing(self.definition.schema)
        ]
        lines += [f"advice     {found}" for found in self.advice()]
        return "\n".join(lines)

    @property
    def _key_text(self) -> str:
        unkeyed = "none: equal rows are counted" if self.definition.counting else "none: rows are appended"
        return ", ".join(self.schema.primary_keys) or unkeyed

    @property
    def _options_set(self) -> list[tuple[str, str]]:
        hidden = self.definition.unstored_client if self.options.get(w.LOG_SYSTEM) == "none" else {}  # of its catalog
        return sorted((key, value) for key, value in self.options.items() if key not in hidden)

    def _repr_html_(self) -> str:
        """Return columns, keys, options and the newest snapshot, for notebooks. No manifest is read."""
        from merganser.html.tables import shown

        return shown(repr(self), self._parts)

    def _parts(self) -> Iterator[str]:
        from merganser.html.tables import caption_html, facts_html, note_html, rows_html
        from merganser.scan.scan import check_is_there

        schema, latest = self.schema, self.latest_snapshot()
        if latest is None:
            check_is_there(self.definition, self.env, latest, f"cannot show '{self.name}'")
        yield caption_html(self.name)
        facts = [("path", self.path)] if self.name != self.path else []
        facts += [("comment", schema.comment)] if schema.comment else []
        facts += [("key", self._key_text), ("partitions", ", ".join(schema.partition_keys) or "none")]
        facts += [("snapshot", "none: nothing was written yet" if latest is None else _said_of(latest))]
        yield facts_html(facts)
        fields = schema.fields[:_COLUMNS_SHOWN]
        columns = {
            "column": [field.name for field in fields],
            "type": [str(field.type) for field in fields],
            "comment": [field.description or "" for field in fields],
        }
        described = any(columns["comment"])
        yield rows_html(pa.table(columns) if described else pa.table(columns).drop_columns("comment"))
        if len(fields) < len(schema.fields):
            yield note_html(f"the first {len(fields)} of {len(schema.fields):,} columns")
        if options := self._options_set:
            yield facts_html(options)


def _said_of(latest: Snapshot) -> str:
    from merganser.scan.rows import counted

    rows = "" if latest.total_record_count is None else f", {counted(latest.total_record_count, 'stored row')}"
    return f"{latest.id:,}, {latest.commit_kind} at {latest.commit_time:%Y-%m-%d %H:%M:%S} UTC{rows}"


for _verbs in Table.__mro__:
    for _verb in vars(_verbs).values():
        if isinstance(_verb, FunctionType) and not _verb.__name__.startswith("_"):
            _verb.__qualname__ = f"Table.{_verb.__name__}"  # Python's own errors about arguments show it


def open_table(
    path: str, env: Env, *, name: str, options: Mapping[str, Any] | None = None, branch: str = "main"
) -> Table:
    """Return the table at a path.

    Raises:
        NotFoundError: there is no table; the message says how to create one.
        FormatError: there are snapshots but no schema.
    """
    paths = TablePaths(path, branch=branch)
    schema, _ = env.beside(partial(current_schema, paths, env, name), SnapshotStore(paths, env, name).note_hint)
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
