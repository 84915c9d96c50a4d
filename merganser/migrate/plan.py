"""Plan: a folder as the table that it will be, before anything is written.

    footers of all files  -> columns, row counts and statistics, side by side
    columns               -> one schema for the rows of all, and an older version for each set of columns that differs
    directories           -> partition values, in types that are given, or that all values have

A plan is made from names and footers: of a Parquet or ORC file a few requests, whatever its size (an Avro file has no
footer, and is read). Whatever does not fit is refused here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Final

from merganser.codec.binary_row import arrow_to_stored, serialize
from merganser.codec.data_format import open_reader
from merganser.codec.stats import EMPTY_ROW, NO_STATS, ColumnStats
from merganser.codec.stored import Stored
from merganser.errors import InvalidInputError, UnsupportedError
from merganser.files.layout import file_layout
from merganser.files.write import stored_stats
from merganser.ingest.folders import value_of
from merganser.meta.data_file import SOURCE_APPEND, DataFile
from merganser.meta.table_def import TableDef
from merganser.migrate.columns import Union, as_version, columns_of
from merganser.migrate.folder import Folder, FolderFile
from merganser.migrate.statistics import stats_of
from merganser.parsing.rules import Rules
from merganser.schema import types as t
from merganser.schema.evolve import Evolution
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.storage.protocol import Storage
from merganser.values import dataclass

_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_RULES: Final = Rules(files=True)
"""How texts of directories are read: wall clocks are those of UTC."""
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file with rows, as a table has it.

    Attributes:
        source: where it lies in the folder.
        partition: serialized row of its partition values.
        file: what manifests say of it; it has the name that the table gives it.
    """

    source: str
    partition: bytes
    file: DataFile


@dataclass(frozen=True, slots=True)
class Plan:
    """A folder as a table.

    Attributes:
        versions: the schemas of the table, by id; the last is the newest.
        files: ordered by path; files without rows are left out.
    """

    versions: tuple[TableSchema, ...]
    files: tuple[PlannedFile, ...]

    @property
    def schema(self) -> TableSchema:
        """The newest schema."""
        return self.versions[-1]


@dataclass(frozen=True, slots=True)
class _Said:
    """What a file says of itself.

    Attributes:
        stats: by column, of a file with rows.
    """

    fields: tuple[t.Field, ...]
    rows: int
    stats: Mapping[str, ColumnStats | None]


def plan_of(
    folder: Folder,
    env: Env,
    *,
    define: Callable[[Sequence[t.Field], Sequence[str]], TableSchema],
    types: Mapping[str, t.DataType],
    copied: bool,
    what: str,
) -> Plan:
    """Return the table that a folder becomes.

    Args:
        env: whose threads read footers.
        define: returns the schema of a table of some columns and partition columns, or refuses it.
        types: of some columns, where files and directories do not say the type that is wanted.
        copied: the rows are written to files of the table, so that other engines need not read those of the folder.
        what: beginning of messages, such as "cannot migrate '/data/orders'".

    Raises:
        InvalidInputError: the files do not make one table; names the column and the file.
        UnsupportedError: a column is stored as no table stores it; names the column and the file.
        FormatError: a file is damaged.
    """
    with env.progress.work(f"reading the footers of {folder.root}", steps=len(folder.files)) as work:
        known: dict[str, tuple[t.Field, ...]] = {}

        def ask(file: FolderFile) -> _Said:
            found = _said(folder.storage, file, known, copied, what)
            work.advance(0)
            return found

        said = env.fetch(ask, folder.files)
    union = Union(what)
    for file, one in zip(folder.files, said, strict=True):
        union.add(one.fields, file.path, types)
    partition_kinds = _partition_kinds(folder, union, types)
    _check_given(types, (*union.fields, *partition_kinds), what)
    fields = [_as_given(field, types, what) for field in union.fields.values()]
    fields += [t.Field(0, name, kind) for name, kind in partition_kinds.items() if name not in union.fields]
    newest = define(fields, folder.partition_by)
    by_name = {field.name: field for field in newest.fields}
    of_partition = [by_name[name] for name in folder.partition_by]
    shapes: dict[tuple[t.Field, ...], int] = {}
    shape_of = []
    made: dict[int, tuple[t.Field, ...]] = {}  # by the columns of files, which alike files share
    for file, one in zip(folder.files, said, strict=True):
        if (shape := made.get(id(one.fields))) is None:
            extra = [field for field in of_partition if field.name not in {own.name for own in one.fields}]
            shape = made[id(one.fields)] = as_version((*one.fields, *extra), newest.fields)
            _check_readable(newest, shape, file.path, what)
        shape_of.append(shape)
        shapes.setdefault(shape, len(shapes))
    older = [shape for shape in shapes if shape != newest.fields]
    versions = tuple(replace(newest, id=i, fields=shape) for i, shape in enumerate((*older, newest.fields)))
    ids = {version.fields: version.id for version in versions}
    values = _Values(of_partition, what)
    run, planned = env.new_id(), list[PlannedFile]()
    layouts = {v.id: file_layout(TableDef("", "", v, v.options)) for v in versions}
    for file, one, shape in zip(folder.files, said, shape_of, strict=True):
        if not one.rows:
            continue
        partition = values.of(file)
        layout = layouts[ids[shape]]
        stats, columns = stored_stats(layout, _all_stats(layout.value_fields, one, partition, file, what))
        data_file = DataFile(
            name=f"{layout.prefix}{run}-{len(planned)}.{file.format}",
            size=file.size,
            row_count=one.rows,
            min_key=EMPTY_ROW,
            max_key=EMPTY_ROW,
            key_stats=NO_STATS,
            value_stats=stats,
            min_sequence=0,
            max_sequence=one.rows - 1,
            schema_id=ids[shape],
            level=0,
            creation_time_ms=file.modified_ms or env.now_ms(),
            delete_row_count=0,
            source=SOURCE_APPEND,
            value_stats_columns=columns,
        )
        kinds = [field.type for field in of_partition]
        planned.append(PlannedFile(file.path, serialize(list(partition.values()), kinds), data_file))
    return Plan(versions, tuple(planned))


def _said(storage: Storage, file: FolderFile, known: dict[str, tuple[t.Field, ...]], copied: bool, what: str) -> _Said:
    """Return what a file says; `known` holds the columns of files before, by their schemas, since most are alike."""
    opened = storage.open(file.path)
    try:
        reader = open_reader(opened, file.format, file.path, file.size)
    except BaseException:
        opened.close()
        raise
    with contextlib.closing(reader):
        with _naming(file.path, what):
            schema = reader.own_schema()
        text = schema.to_string(show_schema_metadata=False)
        if text not in known:
            known[text] = columns_of(schema, path=file.path, copied=copied, what=what)
        fields = known[text]
        with _naming(file.path, what):
            reader.check_values()
        found = stats_of(reader, fields) if reader.row_count else ()
        return _Said(fields, reader.row_count, dict(zip((f.name for f in fields), found, strict=False)))


@contextlib.contextmanager
def _naming(path: str, what: str) -> Iterator[None]:
    """Let refusals of a file begin with what was asked for."""
    try:
        yield
    except UnsupportedError as error:
        column = str(error.context["column"])
        raise UnsupportedError(f"{what}: {error.message} Nothing was changed.", column=column, path=path) from None


# types


def _check_given(types: Mapping[str, t.DataType], names: Sequence[str], what: str) -> None:
    for name in types:
        if name not in names:
            raise InvalidInputError(
                f"{what}: types names the column '{name}', and no file and no directory has it. They have "
                f"{', '.join(map(repr, names[:3]))} ({len(names)} in all). Nothing was changed.",
                column=name,
            )


def _as_given(field: t.Field, types: Mapping[str, t.DataType], what: str) -> t.Field:
    kind = types.get(field.name)
    if kind is None:
        return field
    if not kind.nullable and field.type.nullable:
        raise InvalidInputError(
            f"{what}: column '{field.name}' may be null in the files, and types says {kind}. Nothing was changed. Give "
            f"{kind.with_nullable(True)}.",
            column=field.name,
        )
    return replace(field, type=kind.with_nullable(field.type.nullable))


def _partition_kinds(folder: Folder, union: Union, types: Mapping[str, t.DataType]) -> dict[str, t.DataType]:
    """Return the types of the partition columns: given, or those of the files, or what all texts are."""
    kinds: dict[str, t.DataType] = {}
    for i, name in enumerate(folder.partition_by):
        if name in types:
            kinds[name] = types[name]
        elif name in union.fields:
            kinds[name] = union.fields[name].type
        else:
            kinds[name] = inferred({text for file in folder.files if (text := file.partition[i][1]) is not None})
    return kinds


def inferred(texts: set[str]) -> t.DataType:
    """Return the type of the texts of a partition column: INT, BIGINT or DATE if each is written as one; else STRING.

    Each is exactly the text of its value: `01` is no number, since it would become `1`.
    """
    if texts and all(map(_WHOLE.fullmatch, texts)):
        numbers = [int(text) for text in texts]
        for bits, kind in ((31, t.Int()), (63, t.BigInt())):
            if -(1 << bits) <= min(numbers) and max(numbers) < 1 << bits:
                return kind
    if texts and all(map(_is_date, texts)):
        return t.Date()
    return t.string()


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _check_readable(newest: TableSchema, shape: Sequence[t.Field], path: str, what: str) -> None:
    try:
        Evolution.plan(newest.fields, shape, name=path)
    except UnsupportedError as error:
        column = str(error.context["column"])
        raise UnsupportedError(f"{what}: {error.message} Nothing was changed.", column=column, path=path) from None


# values


class _Values:
    """The partition values of directories, in the types of their columns."""

    def __init__(self, fields: Sequence[t.Field], what: str) -> None:
        self._fields = fields
        self._what = what
        self._known: dict[tuple[str, str | None], Stored] = {}

    def of(self, file: FolderFile) -> dict[str, Stored]:
        """Return the stored value of each partition column of a file.

        Raises:
            InvalidInputError: a text is no value of its column.
        """
        return {
            field.name: self._value(field, text, file)
            for field, (_, text) in zip(self._fields, file.partition, strict=True)
        }

    def _value(self, field: t.Field, text: str | None, file: FolderFile) -> Stored:
        if (field.name, text) not in self._known:
            found = value_of(
                text,
                field.name,
                field.type,
                _RULES,
                path=file.path,
                what=f"{self._what}: the",
                end=f"Nothing was changed. Give the column another type, as in types={{'{field.name}': 'STRING'}}.",
            )
            self._known[field.name, text] = arrow_to_stored(found[0], field.type.with_nullable(True))
        return self._known[field.name, text]


def _all_stats(
    fields: Sequence[t.Field], said: _Said, partition: Mapping[str, Stored], file: FolderFile, what: str
) -> list[ColumnStats | None]:
    """Return the statistics of all columns of a file, those of its partition among them.

    Raises:
        UnsupportedError: the file has a column of its partition, and it is not sure that the value is that of the
            directory in every row.
    """
    found: list[ColumnStats | None] = []
    for field in fields:
        if field.name not in partition:
            found.append(said.stats[field.name])
            continue
        value = partition[field.name]
        own = ColumnStats(value, value, said.rows if value is None else 0, no_values=value is None)
        if field.name in said.stats and said.stats[field.name] != own:
            raise UnsupportedError(
                f"{what}: '{file.path}' has a column '{field.name}' of its own, and its footer does not say that each "
                f"value of it is {value!r}, as the directory says. Nothing was changed. Write the rows with "
                "table.load('.../*/*.parquet'): of a pattern of files it takes the values of the files.",
                column=field.name,
                path=file.path,
            )
        found.append(own)
    return found
