"""Statements of SQL as values: what the parser makes, and the session runs. Names are as written, in parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from sqlglot import exp

from merganser.schema import types as t
from merganser.values import dataclass

Name: TypeAlias = tuple[str, ...]
"""Parts of a dotted name: catalog, database, table; the first ones may be left out."""
Spec: TypeAlias = Mapping[str, Any]
"""Values of partition columns."""


@dataclass(frozen=True, slots=True)
class Statement:
    """Base of all statements.

    Attributes:
        text: the statement as written.
    """

    text: str = field(kw_only=True, default="")


@dataclass(frozen=True, slots=True)
class ColumnDef:
    """A column of CREATE TABLE or ALTER TABLE."""

    name: str
    type: t.DataType
    default: exp.Expression | None = None
    comment: str | None = None
    after: str | None = None
    first: bool = False


# databases


@dataclass(frozen=True, slots=True)
class CreateDatabase(Statement):
    """CREATE DATABASE."""

    name: Name
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropDatabase(Statement):
    """DROP DATABASE."""

    name: Name
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class Use(Statement):
    """USE: the database of names without one."""

    name: Name


# views and functions


@dataclass(frozen=True, slots=True)
class CreateView(Statement):
    """CREATE VIEW, or ALTER VIEW ... AS.

    Attributes:
        columns: names and comments; None: those of the query.
        query_text: the query as written.
        must_exist: ALTER VIEW, which keeps comment and options.
    """

    name: Name
    columns: tuple[tuple[str, str | None], ...] | None
    query: exp.Expression
    query_text: str
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    replace: bool = False
    if_not_exists: bool = False
    must_exist: bool = False


@dataclass(frozen=True, slots=True)
class AlterView(Statement):
    """ALTER VIEW ... SET and UNSET TBLPROPERTIES."""

    name: Name
    options: Mapping[str, str]
    removed: tuple[str, ...] = ()
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameView(Statement):
    """ALTER VIEW ... RENAME TO."""

    name: Name
    new_name: Name


@dataclass(frozen=True, slots=True)
class DropView(Statement):
    """DROP VIEW."""

    name: Name
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CreateFunction(Statement):
    """CREATE FUNCTION ... RETURN.

    Attributes:
        returns: None: the type of the expression.
        expression: its text.
    """

    name: Name
    parameters: tuple[ColumnDef, ...]
    returns: t.DataType | None
    expression: str
    comment: str | None
    deterministic: bool
    replace: bool
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class DropFunction(Statement):
    """DROP FUNCTION."""

    name: Name
    if_exists: bool


# tables


@dataclass(frozen=True, slots=True)
class CreateTable(Statement):
    """CREATE TABLE with columns, LIKE another table, or AS a query."""

    name: Name
    if_not_exists: bool
    columns: tuple[ColumnDef, ...]
    primary_key: tuple[str, ...] | None
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    comment: str | None
    like: Name | None = None
    like_options: bool = True
    query: exp.Expression | None = None


@dataclass(frozen=True, slots=True)
class DropTable(Statement):
    """DROP TABLE."""

    name: Name
    if_exists: bool


@dataclass(frozen=True, slots=True)
class RenameTable(Statement):
    """ALTER TABLE ... RENAME TO."""

    name: Name
    new_name: Name


@dataclass(frozen=True, slots=True)
class AddColumns(Statement):
    """ALTER TABLE ... ADD COLUMNS."""

    name: Name
    columns: tuple[ColumnDef, ...]


@dataclass(frozen=True, slots=True)
class DropColumns(Statement):
    """ALTER TABLE ... DROP COLUMNS."""

    name: Name
    columns: tuple[str, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class RenameColumn(Statement):
    """ALTER TABLE ... RENAME COLUMN."""

    name: Name
    column: str
    new_name: str


@dataclass(frozen=True, slots=True)
class AlterColumn(Statement):
    """Change one column; what is None, or left out, stays.

    Attributes:
        with_nullability: the type says NOT NULL or not, too (MODIFY).
        default: an expression, or `Null` for DROP DEFAULT.
    """

    name: Name
    column: str
    type: t.DataType | None = None
    with_nullability: bool = False
    nullable: bool | None = None
    default: exp.Expression | None = None
    drop_default: bool = False
    comment: str | None = None
    after: str | None = None
    first: bool = False


@dataclass(frozen=True, slots=True)
class SetOptions(Statement):
    """ALTER TABLE ... SET, of a table or a partition."""

    name: Name
    options: Mapping[str, str]
    partition: Spec | None = None


@dataclass(frozen=True, slots=True)
class ResetOptions(Statement):
    """ALTER TABLE ... RESET."""

    name: Name
    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class AddPrimaryKey(Statement):
    """ALTER TABLE ... ADD PRIMARY KEY."""

    name: Name
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DropPartitions(Statement):
    """ALTER TABLE ... DROP PARTITION."""

    name: Name
    partitions: tuple[Spec, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Compact(Statement):
    """ALTER TABLE ... COMPACT."""

    name: Name
    partition: Spec | None


@dataclass(frozen=True, slots=True)
class ClusterInto(Statement):
    """ALTER TABLE ... CLUSTERED INTO n BUCKETS."""

    name: Name
    buckets: int
    partition: Spec | None


@dataclass(frozen=True, slots=True)
class CreateTag(Statement):
    """ALTER TABLE ... CREATE TAG or REPLACE TAG."""

    name: Name
    tag: str
    snapshot: int | None
    retain: str | None
    if_not_exists: bool
    replace: bool
    must_exist: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTags(Statement):
    """ALTER TABLE ... DELETE TAG."""

    name: Name
    tags: tuple[str, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class RenameTag(Statement):
    """ALTER TABLE ... RENAME TAG."""

    name: Name
    tag: str
    new_name: str


@dataclass(frozen=True, slots=True)
class Truncate(Statement):
    """TRUNCATE TABLE, or one partition of it."""

    name: Name
    partition: Spec | None


@dataclass(frozen=True, slots=True)
class Analyze(Statement):
    """ANALYZE TABLE.

    Attributes:
        columns: None: rows and bytes alone; empty: all columns.
    """

    name: Name
    columns: tuple[str, ...] | None


# rows


@dataclass(frozen=True, slots=True)
class Query(Statement):
    """SELECT, VALUES, and set operations of them."""

    tree: exp.Expression


@dataclass(frozen=True, slots=True)
class Insert(Statement):
    """INSERT INTO or OVERWRITE.

    Attributes:
        partition: column -> value, or None for a column of the query.
    """

    name: Name
    options: Mapping[str, str]
    query: exp.Expression
    columns: tuple[str, ...] | None
    partition: Mapping[str, exp.Expression | None]
    overwrite: bool
    by_name: bool


@dataclass(frozen=True, slots=True)
class Delete(Statement):
    """DELETE FROM.

    Attributes:
        common: a WITH before the statement.
    """

    name: Name
    alias: str | None
    where: exp.Expression | None
    common: exp.Expression | None = None


@dataclass(frozen=True, slots=True)
class Update(Statement):
    """UPDATE.

    Attributes:
        common: a WITH before the statement.
    """

    name: Name
    alias: str | None
    assignments: tuple[tuple[Name, exp.Expression], ...]
    where: exp.Expression | None
    common: exp.Expression | None = None


@dataclass(frozen=True, slots=True)
class Clause:
    """A WHEN of MERGE.

    Attributes:
        matched: True, False (by target), or None for "not matched by source".
        assignments: None: all columns (`*`); empty: DELETE.
    """

    matched: bool | None
    condition: exp.Expression | None
    action: str
    assignments: tuple[tuple[Name, exp.Expression], ...] | None


@dataclass(frozen=True, slots=True)
class Merge(Statement):
    """MERGE INTO."""

    name: Name
    alias: str | None
    source: exp.Expression
    source_alias: str
    on: exp.Expression
    clauses: tuple[Clause, ...]


# session and what is there


@dataclass(frozen=True, slots=True)
class SetOption(Statement):
    """SET: all options without a key, one of them without a value."""

    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class Reset(Statement):
    """RESET: one option, or all of them."""

    key: str | None


@dataclass(frozen=True, slots=True)
class Call(Statement):
    """CALL of a procedure."""

    procedure: Name
    positional: tuple[Any, ...]
    named: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """EXPLAIN of another statement."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class Describe(Statement):
    """DESCRIBE of a table or a column."""

    name: Name
    column: str | None
    extended: bool


@dataclass(frozen=True, slots=True)
class DescribeDetail(Statement):
    """DESCRIBE DETAIL of a table or a partition."""

    name: Name
    partition: Spec | None


@dataclass(frozen=True, slots=True)
class ShowDatabases(Statement):
    """SHOW DATABASES."""

    pattern: str | None


@dataclass(frozen=True, slots=True)
class ShowTables(Statement):
    """SHOW TABLES."""

    database: Name | None
    pattern: str | None


@dataclass(frozen=True, slots=True)
class ShowStored(Statement):
    """SHOW VIEWS, and SHOW FUNCTIONS.

    Attributes:
        what: VIEWS or FUNCTIONS.
    """

    what: str
    database: Name | None
    pattern: str | None


@dataclass(frozen=True, slots=True)
class DescribeFunction(Statement):
    """DESCRIBE FUNCTION."""

    name: Name
    extended: bool


@dataclass(frozen=True, slots=True)
class Show(Statement):
    """SHOW of something of one table: PARTITIONS, COLUMNS, TAGS, BRANCHES, TBLPROPERTIES, CREATE TABLE."""

    what: str
    name: Name
    partition: Spec | None = None
    key: str | None = None


READING: Final = (
    Query, Explain, Describe, DescribeDetail, DescribeFunction, Show, ShowDatabases, ShowStored, ShowTables, Use,
    SetOption, Reset,
)  # fmt: skip
"""Statements that change no table: they read, or change the session alone."""
