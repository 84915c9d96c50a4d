"""TableBase: what a handle is made of, and how one is made of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Self

from merganser.errors import InvalidInputError, NotFoundError
from merganser.expr.setting import Setting
from merganser.meta.followed import current_schema
from merganser.meta.refs import MAIN, BranchStore
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import read as r
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import Option, Options
from merganser.options.registry import IMMUTABLE_KEYS, check_asked, find_option, normalize_options
from merganser.options.secrets import shown
from merganser.rules.checks import FILE_OPTIONS, check_file_options, check_type
from merganser.rules.facts import BUCKETS_MAX
from merganser.rules.merging import check_merge_rules
from merganser.rules.starts import check_scan_options
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.values import dataclass

_OF_MODULES: Final = frozenset(
    {
        "changes_between",
        "compaction_request",
        "definition",
        "env",
        "following",
        "looked_at",
        "marking",
        "merging",
        "scan",
        "setting",
        "stored_specs",
    }
)
"""What other modules of merganser use of a table, and no page explains."""


@dataclass(frozen=True)
class TableBase:
    """A table as its options show it. `Table` adds the verbs."""

    definition: TableDef
    env: Env

    def __dir__(self) -> list[str]:
        """Return what a user of the table is shown: completion offers what the docs explain."""
        return sorted({*super().__dir__()} - _OF_MODULES)

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

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """Return the same table with dynamic options on top of its own.

        Raises:
            InvalidInputError: an option is misspelt or has an invalid value, or decides how data is stored and so
                can only be changed on the table itself.
        """
        from merganser.rules.compacting import looks_up

        texts = normalize_options(options, columns=self.schema.names)
        check_asked([key for key in texts if key not in READ_ARGUMENTS])
        own = self.definition.options
        merged = own.merged(texts)
        whole: tuple[Option[Any], ...] = ()
        if merged.get(w.MERGE_ENGINE) in ("partial-update", "aggregation") and looks_up(merged) != looks_up(own):
            whole = (w.CHANGELOG_PRODUCER, u.FORCE_LOOKUP)  # rows above level 0 are whole rows, or are not
        if self.schema.options.get(w.CHANGELOG_PRODUCER) != "none":  # what others follow has to stay whole
            whole = (w.CHANGELOG_PRODUCER, w.ASKED_PRODUCER, w.CHANGELOG_IMAGE, *whole)
        if self.schema.options.get(w.STREAM_ENABLED):  # so do the records of its shard stream
            whole = (u.CHANGELOG_TIME_RETAINED, u.CHANGELOG_NUM_RETAINED_MAX, u.CHANGELOG_NUM_RETAINED_MIN, *whole)
        for key in texts:
            if key in READ_ARGUMENTS:
                raise InvalidInputError(
                    f"unknown table option '{key}'. Give it to read, as read({key}=...), or set "
                    f"'{READ_ARGUMENTS[key].key}'.",
                    option=key,
                )
            option = find_option(key)
            if option is None or (option.key not in IMMUTABLE_KEYS and option not in (*_LAYOUT, *whole)):
                continue
            if option is w.BUCKET and min(merged.get(w.BUCKET), self.schema.options.get(w.BUCKET)) > 0:
                if merged.get(w.BUCKET) > BUCKETS_MAX:
                    raise InvalidInputError(
                        f"cannot open '{self.name}' with '{key}' = '{texts[key]}': a partition has {BUCKETS_MAX} "
                        "buckets at most.",
                        option=key,
                        table=self.name,
                    )
                continue  # a write with overwrite= moves partitions; others are refused by a partition's own number
            if merged.get(option) != self.schema.options.get(option):
                stored = self.schema.options.get(option.key)
                has = "did not set it" if stored is None else f"had '{stored}'"
                raise InvalidInputError(
                    f"cannot open '{self.name}' with '{key}' = '{texts[key]}': this option decides how data is stored, "
                    f"and the table {has} when this handle was opened. It can only be changed on the table itself.",
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

    def branch(self, name: str) -> Self:
        """Return a branch as a table that you can read, write and tag. "main" is the table itself.

        Raises:
            NotFoundError: the branch does not exist.
        """
        plain = self.name.removesuffix(f"$branch_{self.definition.branch}")
        paths = self.definition.paths.of_branch(MAIN)
        if name != MAIN:
            paths = BranchStore(paths, self.env, plain).load(name)
        schema = current_schema(paths, self.env, plain)
        if schema is None:  # dropped since it was found
            raise NotFoundError(f"table '{plain}' no longer exists: it was dropped or renamed.", table=plain)
        stored = self.definition.schema.options
        dynamic = {key: text for key, text in self.definition.options.items() if stored.get(key) != text}
        dynamic.pop(r.BRANCH.key, None)
        definition = TableDef(
            name=plain if name == MAIN else f"{plain}$branch_{name}",
            path=self.path,
            schema=schema,
            options=schema.options,
            branch=name,
        )
        check_type(schema.options, what=f"cannot open '{definition.name}'", table=definition.name)
        made = replace(self, definition=definition)
        return made.with_options(dynamic) if dynamic else made

    def latest_snapshot(self) -> Snapshot | None:
        """Return the newest snapshot, or None if nothing was written yet."""
        return self._snapshots.latest()

    def setting(self, timezone: str, exact_names: bool = False) -> Setting:
        """Return what SQL text means besides its words; the time is that of the clock of the table."""
        return Setting(timezone, self.env.now_ms(), exact_names)

    def _take_over(self, made: TableDef) -> None:
        """Go on with the schema that a verb of this handle has made."""
        object.__setattr__(self, "definition", made)

    @property
    def _snapshots(self) -> SnapshotStore:
        return MetaReader(self.definition.paths, self.env, self.name).snapshots

    def __repr__(self) -> str:
        return f"Table({self.path!r})" if self.name == self.path else f"Table({self.name!r}, {self.path!r})"


_LAYOUT = (
    w.BUCKET,
    w.PARTITION_DEFAULT_NAME,
    w.PARTITION_LEGACY_NAME,
    w.DELETION_VECTORS,
    w.STREAM,
    w.STREAM_ENABLED,
    w.STREAM_RETENTION,
)
"""Options that can be changed on the table but not for one handle, because they decide which files are stored, and
where; of `bucket` this holds unless both are numbers of buckets."""
READ_ARGUMENTS = {"snapshot": r.SCAN_SNAPSHOT_ID, "tag": r.SCAN_TAG_NAME, "timestamp": r.SCAN_TIMESTAMP}
"""Arguments of `read`, and the option for each. As table options they would be ignored, so they are refused."""
