"""What a query becomes before it runs: the tables that it reads, and a text for DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import pyarrow as pa
from sqlglot import exp

from merganser.expr.build import conjunction
from merganser.expr.predicate import Predicate
from merganser.expr.setting import Setting
from merganser.schema import types as t
from merganser.values import dataclass


@dataclass(frozen=True)
class Source:
    """A table, a view or a system table that queries can read.

    Attributes:
        name: for messages.
        fields: its columns.
        key: the columns of its primary key; empty if it has none.
        open: takes columns, a filter and a limit, and returns a scan.
        lookup: takes a table of keys and columns, and returns the rows of these keys, or None to scan instead.
            None: there are no lookups.
    """

    name: str
    fields: Sequence[t.Field]
    key: tuple[str, ...]
    open: Callable[[Sequence[str], Predicate | None, int | None], Any]
    lookup: Callable[[pa.Table, Sequence[str]], pa.Table | None] | None = None


@dataclass(frozen=True)
class Stored:
    """A view that a catalog holds: a query in place of a table.

    Attributes:
        name: for messages.
        fields: the columns that it says it gives.
        tree: its query.
        resolve: what the tables in it mean.
        check: raises an error unless columns of these names and types can be those of `fields`.
    """

    name: str
    fields: Sequence[t.Field]
    tree: exp.Expression
    resolve: Callable[[exp.Table], Source | Stored]
    check: Callable[[Sequence[str], Sequence[t.DataType]], None]


@dataclass
class Reference:
    """One place in a query where a table is read.

    Attributes:
        view: the name by which the text of the query calls it.
        used: the columns that the query needs.
        filters: conditions on its columns alone that every row needed fulfils.
        limit: the most rows needed, if which ones does not matter.
    """

    source: Source
    view: str
    node: exp.Table
    used: set[str] = field(default_factory=set)
    filters: list[Predicate] = field(default_factory=list)
    limit: int | None = None

    @property
    def columns(self) -> list[str]:
        """The columns that the query needs, in the order of the table."""
        return [f.name for f in self.source.fields if f.name in self.used]

    @property
    def where(self) -> Predicate | None:
        """The filters as one."""
        if not self.filters:
            return None
        return Predicate(conjunction([predicate.expression for predicate in self.filters]))


@dataclass(frozen=True)
class BoundQuery:
    """A query whose names and types are known.

    Attributes:
        names, types: of the columns of the result.
        references: the tables that it reads.
        text: for DuckDB.
        setting: the time zone and the time of the query.
        plain: the columns, if the query reads columns of one table with conditions that the scan tests, and no more.
    """

    names: Sequence[str]
    types: Sequence[t.DataType]
    references: Sequence[Reference]
    text: str
    setting: Setting
    plain: Sequence[str] | None = None
