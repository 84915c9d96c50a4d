"""The next schema of a table: `altered` makes it of the newest one and a list of changes.

Changes are made in their order, and the result is judged as a whole, as a definition is (`create`): an option may name
a column that a later change of the list adds. What a change may not do whatever follows is refused at once: files are
sorted, placed and hashed by key, partition and bucket columns, and the order of rows comes from sequence columns.

Ids: what is added takes the next id that no schema had, so files that are there never show their values under it.

Format: "evolution rules".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from itertools import groupby
from typing import Any, Final, NoReturn, TypeAlias

from merganser import changes as c
from merganser.errors import InvalidInputError, a_type
from merganser.options import write as w
from merganser.options.option import Option
from merganser.options.registry import check_asked, closest, did_you_mean, find_option, normalize_options
from merganser.options.secrets import check_no_secrets
from merganser.rules.create import checked_definition, not_null, reserved_name
from merganser.rules.dialects import translated
from merganser.rules.facts import listed, refuse
from merganser.rules.named_columns import (
    broken_by,
    broken_inside,
    columns_ordering,
    naming,
    naming_inside,
    renamed,
    renamed_inside,
)
from merganser.rules.option_changes import check_option_changes
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from merganser.schema.casts import can_read_as, is_implicit, keeps_order
from merganser.schema.literals import default_value
from merganser.schema.table_schema import TableSchema
from merganser.schema.types_text import UNNUMBERED, number_fields, parse_type

_CHANGES: Final = (
    c.AddColumn, c.DropColumn, c.RenameColumn, c.RetypeColumn, c.SetNullable, c.SetDefault, c.MoveColumn,
    c.CommentColumn, c.SetOption, c.RemoveOption, c.SetPrimaryKey, c.SetComment,
)  # fmt: skip
_CONTEXT: Final = (w.MERGE_ENGINE, w.CHANGELOG_PRODUCER, w.ASKED_PRODUCER)
"""Options that say what words of others mean together with them."""

_Fields: TypeAlias = tuple[t.Field, ...]
_Edit: TypeAlias = Callable[[_Fields, int], _Fields]
"""Siblings and the position of one of them -> the siblings after a change."""


def altered(
    schema: TableSchema, changes: Iterable[c.Change], *, written: bool, what: str, rewritten: bool = False
) -> TableSchema:
    """Return the schema that follows another one; the same if the changes change nothing.

    Args:
        schema: the newest schema of the table.
        changes: see `merganser.changes`.
        written: the table has, or had, a snapshot.
        what: beginning of messages, such as "cannot alter 'db.orders'".
        rewritten: the rows that are there are written anew with the schema, so that it may store them otherwise.

    Returns:
        A schema with the next id, and the time of `schema`.

    Raises:
        InvalidInputError: a change that the table may not have; names the column or option and the reason.
        UnsupportedError: a type whose values merganser neither reads nor writes.
    """
    changes = checked_changes(changes, what)
    state = _Alteration(schema, written, what, rewritten=rewritten)
    for is_set, run in groupby(changes, key=lambda change: isinstance(change, c.SetOption)):
        if is_set:
            state.set_options({change.key: change.value for change in run if isinstance(change, c.SetOption)})
        else:
            for change in run:
                state.make(change)
    made = state.made()
    return schema if made == schema else replace(made, id=schema.id + 1)


def checked_changes(changes: Any, what: str) -> tuple[c.Change, ...]:
    """Return changes as a user gave them.

    Raises:
        InvalidInputError: they are none.
    """
    if isinstance(changes, _CHANGES):
        return (changes,)
    how = "Give a list such as [merganser.changes.add_column('note', 'STRING')]."
    if not isinstance(changes, Iterable) or isinstance(changes, str | Mapping):
        refuse(what, f"the changes are {changes!r:.100}, {a_type(changes)}. {how}")
    found = tuple(changes)
    for change in found:
        if not isinstance(change, _CHANGES):
            refuse(what, f"{change!r:.100} is {a_type(change)}, and no change of a schema. {how}")
        if isinstance(change, c.SetPrimaryKey):
            _check_key(change.columns, what)
        for name in ("name", "new_name", "key"):
            given = getattr(change, name, "x")
            if not isinstance(given, str) or not given.strip():
                of = type(change).__name__
                refuse(what, f"the {name} of {of} is {given!r:.100}. Give the name of a column or option as text.")
    if not found:
        refuse(what, f"there are no changes. {how}")
    return found


def _check_key(columns: Any, what: str) -> None:
    """Refuse what is no list of names of columns."""
    if isinstance(columns, str):
        refuse(what, f"the columns of the primary key are one text, '{columns}'. Give a list such as ['{columns}'].")
    if not isinstance(columns, tuple) or not columns:
        found = "has no columns" if columns == () else f"is {columns!r:.100}, {a_type(columns)}"
        refuse(what, f"the primary key {found}. Give a list such as merganser.changes.set_primary_key(['id']).")
    for name in columns:
        if not isinstance(name, str):
            refuse(what, f"the columns of the primary key hold {name!r:.100}, {a_type(name)}. Give names.")


def touched(schema: TableSchema, changes: Iterable[c.Change]) -> dict[tuple[str, str], object]:
    """Return what changes look at and change, and what it is in a schema.

    Another schema in which all of this is the same may be changed in their stead.

    Returns:
        By kind and name: the column at the top, the text of an option, or the description of the table; None: there
        is none.
    """
    fields = {field.name: field for field in schema.user_fields}
    found: dict[tuple[str, str], object] = {}
    for change in changes:
        match change:
            case c.SetOption(key=key) | c.RemoveOption(key=key):
                option = find_option(key.strip())
                found["option", key] = schema.options.get(key if option is None else option)
            case c.SetPrimaryKey():
                found["key", ""] = schema.primary_keys
            case c.SetComment():
                found["comment", ""] = schema.comment
            case _:
                names = [change.name, getattr(change, "new_name", None)]
                names.append(getattr(getattr(change, "place", None), "after", None))
                for name in names:
                    if isinstance(name, str):
                        top = _top(name, fields)
                        found["column", top] = fields.get(top)
    return found


def _top(path: str, names: Iterable[str]) -> str:
    """Return the column at the top that a path leads through; the path itself if there is none."""
    inside = [name for name in names if path == name or path.startswith(name + ".")]
    return max(inside, key=len, default=path)


class _Alteration:
    """A schema in the making."""

    def __init__(self, schema: TableSchema, written: bool, what: str, *, rewritten: bool) -> None:
        self._before = schema
        self._written = written and not rewritten
        self._rewritten = rewritten
        self._what = what
        self._fields = schema.user_fields
        self._options = schema.options
        self._were = schema.options  # under the names that columns get
        self._keys = schema.primary_keys
        self._comment = schema.comment
        self._highest = schema.highest_field_id
        self._defaults_given: set[int] = set()

    def made(self) -> TableSchema:
        """Return the schema, judged as a whole."""
        before, what = self._before, self._what
        for column in self._columns(before.user_fields) - self._columns(self._fields):
            if keys := naming(self._options, column):
                self._refuse(
                    f"column '{column}' is named by {listed(keys)}, and the table would have no such column. Change "
                    f"or remove {'these options' if len(keys) > 1 else 'this option'} in the same call: "
                    f"merganser.changes.remove_option('{keys[0]}').",
                    column=column,
                    option=keys[0],
                )
        check_option_changes(self._were, self._options, written=self._written, rewritten=self._rewritten, what=what)
        fields = self._fields
        if self._keys and not before.counting and not self._options.get(w.PRIMARY_KEY_NULLABLE):
            fields = not_null(fields, self._keys)
        made = replace(
            before,
            fields=(*fields, before.fields[-1]) if before.counting else fields,
            highest_field_id=self._highest,
            primary_keys=self._keys,
            options=self._options,
            comment=self._comment,
        )
        self._check_places(made)
        return made if made == before else checked_definition(made, written=self._written, what=what)

    def _check_places(self, made: TableSchema) -> None:
        """Refuse to keep the text of a default whose values would go to other fields: those of a ROW have no names."""
        before = {field.id: field for field in self._before.fields_with_defaults}
        for field in made.fields_with_defaults:
            old = before.get(field.id)
            if old is None or field.default is None or field.id in self._defaults_given:
                continue
            if [inner.id for inner in t.nested_fields(old.type)] != [inner.id for inner in t.nested_fields(field.type)]:
                self._refuse(
                    f"column '{field.name}' has the default '{field.default}', whose values go by the places of the "
                    f"fields of {old.type}, and these would be other ones. Set the default again in the same call, "
                    f"after the other changes: merganser.changes.set_default('{field.name}', ...), or None for none.",
                    column=field.name,
                )

    def make(self, change: c.Change) -> None:
        """Make one change that is no option set."""
        match change:
            case c.AddColumn():
                self._add(change)
            case c.DropColumn(name=name):
                self._drop(name)
            case c.RenameColumn(name=name, new_name=new):
                self._rename(name, new)
            case c.RetypeColumn(name=name, type=kind):
                self._retype(name, kind)
            case c.SetNullable(name=name, nullable=nullable):
                self._set_nullable(name, nullable)
            case c.SetDefault(name=name, value=value):
                self._set_default(name, value)
            case c.MoveColumn(name=name, place=place):
                self._move(name, place)
            case c.CommentColumn(name=name, text=text):
                self._check_text(text, f"the description of column '{name}'")
                self._edit(name, lambda all_, i: _with(all_, i, replace(all_[i], description=text)), slots=False)
            case c.RemoveOption(key=key):
                self._remove_option(key.strip())
            case c.SetPrimaryKey(columns=columns):
                self._set_key(columns)
            case c.SetComment(text=text):
                self._check_text(text, "the description of the table")
                self._comment = text

    # options

    def set_options(self, given: Mapping[str, Any]) -> None:
        """Set options that follow each other; words of others are translated together."""
        check_no_secrets(given, what=self._what)
        given = {key.strip(): value for key, value in given.items()}
        known: dict[str, Any] = {}
        for option in _CONTEXT:
            key = self._options.key_of(option)
            if key is not None and not any(find_option(name) == option for name in given):
                known[key] = self._options[key]
        if w.CHANGELOG_PRODUCER.key in given:
            known.pop(w.ASKED_PRODUCER.key, None)  # what is asked for now counts
            self._options = self._options.merged({w.ASKED_PRODUCER.key: None})
        if w.MERGE_ENGINE.key in given:
            self._options = self._options.merged({w.ASKED_ENGINE.key: None})
        texts = normalize_options(translated({**known, **given}, what=self._what))
        key = texts.pop(w.PRIMARY_KEY.key, None)
        if w.PARTITION.parse(texts.get(w.PARTITION.key, "")) == self._before.partition_keys:
            texts.pop(w.PARTITION.key, None)
        for text in texts:
            if (named := find_option(text)) is not None:
                self._options = self._options.merged(dict.fromkeys(self._spellings(named)))
        self._options = self._options.merged(texts)
        if key is not None:
            self._set_key(w.PRIMARY_KEY.parse(key))

    def _remove_option(self, key: str) -> None:
        option = find_option(key)
        if option == w.PRIMARY_KEY:
            return self._set_key(())
        if option is None and key not in self._options:
            if meant := closest(key, self._options):
                self._refuse(f"it has no option '{key}'. Did you mean '{meant}'?", option=key, meant=meant)
            check_asked([key], action=f"{self._what}: ")
        keys = (key,) if option is None else self._spellings(option)
        self._options = self._options.merged(dict.fromkeys(keys))

    def _spellings(self, option: Option[Any]) -> tuple[str, ...]:
        return (option.key, *option.aliases)

    def _set_key(self, key: tuple[str, ...]) -> None:
        """Give a table another primary key: one without rows, or without a key if its rows are written anew."""
        if key == self._keys:
            return
        if self._before.counting:
            self._refuse_counting("have a primary key", key[0] if key else "")
        if self._rewritten and self._options.get(w.STREAM_ENABLED):
            self._refuse("its shard stream has records of rows without a key. Disable the stream first.")
        if self._written or (self._rewritten and self._keys):
            how = "Create another table with the new key, and copy the rows."
            if not self._keys:
                how = f"merganser.changes.set_primary_key({list(key)}) writes the rows anew."
            self._refuse(
                f"the primary key cannot change from {_columns(self._keys)} to {_columns(key)}, since the table has "
                f"rows, or had some: files are sorted by it, and keys may repeat. {how}",
                option=w.PRIMARY_KEY.key,
            )
        names = [field.name for field in self._fields]
        for column in key:
            if column not in names:
                self._refuse(f"primary key column '{column}' is no column. {did_you_mean(column, names)}")
        if len(set(key)) < len(key):
            self._refuse(f"primary key columns contain duplicates: {listed(key)}. Name each once.")
        self._keys = key

    # columns

    def _add(self, change: c.AddColumn) -> None:
        if self._before.counting:
            self._refuse_counting("have another column", change.name)
        parent, _, name = change.name.rpartition(".")
        if reason := None if parent else reserved_name(name):
            self._refuse(f"the column name '{name}' is not allowed: {reason}. Choose another name.", column=name)
        if not name.strip():
            self._refuse(f"'{change.name}' ends without a name. Write 'row.field'.", column=change.name)
        kind = self._type(change.type, change.name)
        if not kind.nullable:
            self._refuse(
                f"column '{change.name}' is to be NOT NULL, and the rows that are there have no value for it. Add it "
                "nullable. A default holds for rows that are written from then on.",
                column=change.name,
            )
        self._check_text(change.comment, f"the description of column '{change.name}'")
        if parent and change.default is not None:
            self._refuse(f"'{change.name}' lies inside a column, and only columns have defaults.", column=change.name)
        default = None if change.default is None else self._literal(change.default)
        made = self._numbered(t.Field(UNNUMBERED, name, kind, change.comment, default))
        if default is not None:
            default_value(made)
        if parent:
            self._edit(parent, lambda all_, i: _with(all_, i, self._with_member(all_[i], made, change)), slots=True)
        else:
            self._fields = self._placed(self._fields, made, self._own_place(change.place))

    def _own_place(self, place: c.Place) -> c.Place:
        """Return where a column goes that was given no place."""
        partition = self._before.partition_keys
        if place == c.Place() and self._options.get(w.ADD_COLUMN_BEFORE_PARTITION) and partition:
            at = next(i for i, field in enumerate(self._fields) if field.name in partition)
            return c.Place(after=self._fields[at - 1].name) if at else c.Place(first=True)
        return place

    def _with_member(self, field: t.Field, made: t.Field, change: c.AddColumn) -> t.Field:
        """Return a field whose ROW, or the ROW in its elements or values, has one field more."""

        def within(kind: t.DataType) -> t.DataType:
            match kind:
                case t.Row():
                    return replace(kind, fields=self._placed(kind.fields, made, change.place, change.name))
                case t.Array():
                    return replace(kind, element=within(kind.element))
                case t.Map():
                    return replace(kind, value=within(kind.value))
            self._refuse(
                f"'{change.name}' cannot be added, since '{field.name}' has the type {field.type} and no fields. Only "
                "a ROW has fields.",
                column=change.name,
            )

        return replace(field, type=within(field.type))

    def _placed(self, siblings: _Fields, made: t.Field, place: c.Place, path: str = "") -> _Fields:
        """Return siblings and one more, where it was asked to be."""
        path = path or made.name
        names = [field.name for field in siblings]
        if made.name in names:
            self._refuse(f"column '{path}' exists already, with the type {siblings[names.index(made.name)].type}.")
        if place.after is not None and place.first:
            self._refuse(f"column '{path}' is to be first and after '{place.after}'. Give one of them.", column=path)
        if place.first:
            return (made, *siblings)
        if place.after is None:
            return (*siblings, made)
        before = str(place.after).removeprefix(path[: -len(made.name)])
        if before == made.name:
            self._refuse(f"column '{path}' cannot stand after itself.", column=path)
        if before not in names:
            self._refuse(f"there is no column '{place.after}' to stand after. {did_you_mean(before, names)}")
        at = names.index(before) + 1
        return (*siblings[:at], made, *siblings[at:])

    def _drop(self, name: str) -> None:
        if self._before.counting:
            self._refuse_counting("lose a column", name)
        self._check_no_key(name, "be dropped")

        def drop(siblings: _Fields, i: int) -> _Fields:
            if len(siblings) == 1:
                self._refuse(f"'{name}' is the last one, and something must be left.", column=name)
            return siblings[:i] + siblings[i + 1 :]

        self._check_inside(name, "dropped")
        self._edit(name, drop, slots=False)

    def _check_inside(self, path: str, done: str) -> None:
        """Refuse what options that name a field inside a column do not allow."""
        column = _top(path, (field.name for field in self._fields))
        field = path.rpartition(".")[2]
        if column != path and (keys := naming_inside(self._options, column, field)):
            self._refuse(
                f"'{path}' cannot be {done}: '{keys[0]}' names it. Change or remove this option first.", column=path
            )

    def _rename(self, name: str, new: str) -> None:
        if name in self._before.partition_keys:
            self._refuse(
                f"partition column '{name}' cannot be renamed: the directories of partitions have its name.",
                column=name,
            )
        if "." in new:
            self._refuse(f"'{new}' is no new name: a dot leads into a ROW. Give the name alone.", column=name)
        nested = name not in {field.name for field in self._fields}
        if reason := None if nested else reserved_name(new):
            self._refuse(f"the column name '{new}' is not allowed: {reason}. Choose another name.", column=new)

        def rename(siblings: _Fields, i: int) -> _Fields:
            if new != siblings[i].name and new in {field.name for field in siblings}:
                self._refuse(f"'{name}' cannot be renamed to '{new}': a column of this name exists.", column=new)
            return _with(siblings, i, replace(siblings[i], name=new))

        self._edit(name, rename, slots=False)
        if nested:
            column = _top(name, (field.name for field in self._fields))
            old = name.rpartition(".")[2]
            self._check_nameable(name, new, broken_inside(self._options, column, old, new))
            self._options = renamed_inside(self._options, column, old, new)
        else:
            self._check_nameable(name, new, broken_by(self._options, name, new))
            self._options = renamed(self._options, {name: new})
            self._were = renamed(self._were, {name: new})
            self._keys = tuple(new if key == name else key for key in self._keys)

    def _check_nameable(self, name: str, new: str, keys: tuple[str, ...]) -> None:
        """Refuse a new name that options which name the column cannot hold."""
        if keys:
            self._refuse(
                f"'{name}' cannot be renamed to '{new}': {listed(keys)} {'name' if len(keys) > 1 else 'names'} it, and "
                "options separate names by commas and drop blanks around them. Choose another name, or remove "
                f"{'these options' if len(keys) > 1 else 'this option'} first.",
                column=name,
                option=keys[0],
            )

    def _retype(self, name: str, given: str | t.DataType) -> None:
        kind = self._type(given, name)
        if self._before.counting:
            self._refuse_counting("have a column of another type", name)

        def retype(siblings: _Fields, i: int) -> _Fields:
            old = siblings[i]
            made = replace(old, type=self._retyped(old.type, kind, name))
            if made.type.with_nullable(True) != old.type.with_nullable(True):
                self._check_no_key(name, "have another type")
                self._check_order(name, old.type, made.type)
            elif made.type.nullable != old.type.nullable:
                self._check_no_key(name, "have another nullability")
            return _with(siblings, i, made)

        self._edit(name, retype, slots=True)

    def _retyped(self, old: t.DataType, new: t.DataType, path: str) -> t.DataType:
        """Return the type that a column gets: the fields of ROWs keep their ids, found by name."""
        if old.nullable and not new.nullable:
            self._check_not_null(path)
        nullable = old.nullable and new.nullable
        match old, new:
            case t.Row(), t.Row():
                members = {field.name: field for field in old.fields}
                return t.Row(
                    fields=tuple(self._member(members.get(field.name), field, path) for field in new.fields),
                    nullable=nullable,
                )
            case t.Array(), t.Array():
                return t.Array(element=self._retyped(old.element, new.element, path + ".element"), nullable=nullable)
            case t.Map(), t.Map() if str(old.key.with_nullable(True)) == str(new.key.with_nullable(True)):
                value = self._retyped(old.value, new.value, path + ".value")
                return t.Map(key=old.key, value=value, nullable=nullable)
        if str(old.with_nullable(True)) == str(new.with_nullable(True)):
            return old.with_nullable(nullable)
        if not can_read_as(old, new):
            self._refuse(
                f"column '{path}' is {old} and cannot become {new}: such values are not turned into each other "
                "without losing information. Add a column of this type, and fill it from the other one.",
                column=path,
            )
        if self._options.get(w.DISABLE_EXPLICIT_TYPE_CASTING) and not is_implicit(old, new):
            self._refuse(
                f"column '{path}' is {old} and cannot become {new}, which may lose information: "
                f"'{w.DISABLE_EXPLICIT_TYPE_CASTING.key}' is 'true'. Choose a type that holds every value.",
                column=path,
                option=w.DISABLE_EXPLICIT_TYPE_CASTING.key,
            )
        return new.with_nullable(nullable)

    def _member(self, old: t.Field | None, new: t.Field, path: str) -> t.Field:
        """Return a field of a ROW that gets another type: it keeps its id, or is new."""
        if old is not None:
            kind = self._retyped(old.type, new.type, f"{path}.{new.name}")
            return replace(old, type=kind, description=new.description or old.description)
        if not new.type.nullable:
            self._refuse(f"'{path}.{new.name}' is new and cannot be NOT NULL: rows that are there have no value.")
        return self._numbered(new)

    def _check_order(self, name: str, old: t.DataType, new: t.DataType) -> None:
        """Refuse another type of a column that places or orders rows that are there."""
        if not self._written:
            return
        if name in self._options.get(w.BUCKET_KEY):
            self._refuse(
                f"bucket key column '{name}' cannot become {new}: the hash of its values, which are {old}, chose the "
                "buckets of the rows that are there.",
                column=name,
            )
        if name in columns_ordering(self._options) and not keeps_order(old, new):
            self._refuse(
                f"column '{name}' cannot become {new}: it says which row of a key is newer, and its values, which are "
                f"{old}, may have another order then. Choose a type that holds every value in the same order.",
                column=name,
            )

    def _set_nullable(self, name: str, nullable: bool) -> None:
        if not isinstance(nullable, bool):
            self._refuse(f"nullable is {nullable!r:.50} for column '{name}'. Give True or False.", column=name)

        def set_nullable(siblings: _Fields, i: int) -> _Fields:
            field = siblings[i]
            if field.type.nullable == nullable:
                return siblings
            self._check_no_key(name, "have another nullability")
            if not nullable:
                self._check_not_null(name)
            return _with(siblings, i, replace(field, type=field.type.with_nullable(nullable)))

        self._edit(name, set_nullable, slots=True)

    def _check_not_null(self, name: str) -> None:
        if self._options.get(w.NULL_TO_NOT_NULL_DISABLED):
            self._refuse(
                f"column '{name}' is nullable and cannot become NOT NULL: rows that are there may be null. Set "
                f"'{w.NULL_TO_NOT_NULL_DISABLED.key}' = 'false' if none of them is.",
                column=name,
                option=w.NULL_TO_NOT_NULL_DISABLED.key,
            )

    def _set_default(self, name: str, value: Any) -> None:
        def set_default(siblings: _Fields, i: int) -> _Fields:
            if siblings is not self._fields:
                self._refuse(f"'{name}' lies inside a column, and only columns have defaults.", column=name)
            made = replace(siblings[i], default=None if value is None else self._literal(value))
            if made.default is not None:
                default_value(made)
            self._defaults_given.add(made.id)
            return _with(siblings, i, made)

        self._edit(name, set_default, slots=False)
        option = w.DEFAULT_VALUE.of(name)
        self._options = self._options.merged(dict.fromkeys(self._spellings(option)))  # an older form of the same

    def _literal(self, value: Any) -> str:
        """Return the text of a default."""
        match value:
            case str():
                return value
            case bool():
                return "true" if value else "false"
            case datetime():
                return value.isoformat(" ")
            case int() | float() | Decimal() | date() | time():
                return str(value)
        self._refuse(
            f"the default {value!r:.100} is {a_type(value)}. Give a number, a time, True, False or text: "
            "arrays are written '[a, b]', maps '{k -> v}', rows '{x, y}'."
        )

    def _move(self, name: str, place: c.Place) -> None:
        def move(siblings: _Fields, i: int) -> _Fields:
            return self._placed(siblings[:i] + siblings[i + 1 :], siblings[i], place, name)

        self._edit(name, move, slots=False)

    # inside

    def _edit(self, path: str, edit: _Edit, *, slots: bool) -> None:
        """Change the column or nested field at a path.

        Args:
            slots: the elements of an ARRAY and the values of a MAP may be changed as if they were fields.
        """
        found = _edited(self._fields, path, self._of_fields(path, edit, slots))
        if found is None:
            column = _top(path, (field.name for field in self._fields))
            names = [field.name for field in self._fields]
            known = did_you_mean(path, names) if column == path else f"Column '{column}' is {self._kind(column)}."
            self._refuse(f"there is no column '{path}'. {known}", column=path)
        self._fields = found

    def _of_fields(self, path: str, edit: _Edit, slots: bool) -> _Edit:
        """Return an edit that refuses elements and values unless they may be changed as fields are."""

        def checked(siblings: _Fields, i: int) -> _Fields:
            if siblings[i].id == UNNUMBERED and not slots:
                self._refuse(f"'{path}' is no field of a ROW: of elements and values only the type changes.")
            return edit(siblings, i)

        return checked

    def _kind(self, column: str) -> t.DataType:
        return next(field.type for field in self._fields if field.name == column)

    def _numbered(self, field: t.Field) -> t.Field:
        """Return a field with an id that no schema had."""
        (made,), following = number_fields((field,), self._highest + 1)
        self._highest = following - 1
        return made

    def _type(self, given: str | t.DataType, column: str) -> t.DataType:
        if not isinstance(given, str | t.DataType):
            self._refuse(f"the type of column '{column}' is {given!r:.100}. Give text such as 'BIGINT'.", column=column)
        try:
            kind = parse_type(given, definition=True) if isinstance(given, str) else given
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{self._what}: column '{column}': {error.message}", column=column, type=given
            ) from error
        arrow_type(kind)  # refuses types whose values no column of ours can hold
        return kind

    def _check_no_key(self, name: str, done: str) -> None:
        for role, columns in (("primary key", self._keys), ("partition", self._before.partition_keys)):
            if name in columns:
                why = "files are sorted by it" if role == "primary key" else "directories are named by its values"
                self._refuse(f"{role} column '{name}' cannot {done}: {why}.", column=name)

    def _check_text(self, text: Any, of: str) -> None:
        if text is not None and not isinstance(text, str):
            self._refuse(f"{of} is {text!r:.100}, {a_type(text)}. Give text, or None.")

    def _refuse_counting(self, done: str, column: str) -> NoReturn:
        self._refuse(
            f"the table counts equal rows ('write-mode' = 'change-log'), so the whole row is its key, and it cannot "
            f"{done}. Create another table, and copy the rows.",
            column=column,
        )

    def _refuse(self, why: str, **context: Any) -> NoReturn:
        refuse(self._what, f"{why} Nothing was changed.", **context)

    def _columns(self, fields: _Fields) -> set[str]:
        return {field.name for field in fields}


def _with(siblings: _Fields, i: int, made: t.Field) -> _Fields:
    return (*siblings[:i], made, *siblings[i + 1 :])


def _edited(fields: _Fields, path: str, edit: _Edit) -> _Fields | None:
    """Return fields with an edit at a path; None: there is no such field."""
    names = [field.name for field in fields]
    if path in names:
        return edit(fields, names.index(path))
    for i, field in enumerate(fields):
        if path.startswith(field.name + "."):
            kind = _edited_type(field.type, path[len(field.name) + 1 :], edit)
            if kind is not None:
                return _with(fields, i, replace(field, type=kind))
    return None


def _edited_type(kind: t.DataType, path: str, edit: _Edit) -> t.DataType | None:
    """Return a type with an edit at a path inside it; None: there is no such field."""
    match kind:
        case t.Row(fields=fields):
            found = _edited(fields, path, edit)
            return None if found is None else replace(kind, fields=found)
        case t.Array(element=element):
            made = _edited_slot(element, "element", path, edit)
            return None if made is None else replace(kind, element=made)
        case t.Map(value=value):
            made = _edited_slot(value, "value", path, edit)
            return None if made is None else replace(kind, value=made)
    return None


def _edited_slot(kind: t.DataType, name: str, path: str, edit: _Edit) -> t.DataType | None:
    """Return the type of elements or values with an edit; their name may be left out on the way to a field."""
    if path == name:
        return edit((t.Field(UNNUMBERED, name, kind),), 0)[0].type
    return _edited_type(kind, path.removeprefix(name + "."), edit)


def _columns(key: Sequence[str]) -> str:
    return listed(key) if key else "none"
