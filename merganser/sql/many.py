"""Many rows of parameters as one INSERT: parameters become columns, and the statement is bound and committed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from sqlglot import exp

from merganser.errors import InvalidInputError
from merganser.schema.arrow import arrow_type, fields_from_arrow
from merganser.schema.types import DataType, is_nested
from merganser.sql import statements as s
from merganser.sql.calls import with_session
from merganser.sql.embedded import Embedded
from merganser.sql.engine import Relation
from merganser.sql.parse import parse
from merganser.sql.query import Held, Source
from merganser.sql.result import Result
from merganser.sql.rows import insert, insert_columns, without_defaults
from merganser.sql.sources import Sources
from merganser.sql.state import State
from merganser.sql.unwritten import rows_of_values, unwritten

_ROWS: Final = "/parameters"
"""Name of the rows of parameters in the query. No table has it: names have no slash."""
_NUMBERS: Final = (int, float, Decimal, np.integer, np.floating)


@unwritten()
def insert_many(state: State, engine: Embedded, text: str, given: Sequence[Mapping[str, Any]]) -> Result | None:
    """Run `INSERT INTO t VALUES (:a, :b)` for all rows of parameters as one commit.

    Args:
        given: the parameters of each row; at least one row. Every row must have those that the text names.

    Returns:
        The result. None if the text is another statement, or one row of VALUES is not all of it; nothing was run.

    Raises:
        SqlSyntaxError: the text is not understood.
        InvalidInputError: a row lacks a parameter, or the values of a parameter have no common type. Nothing was
            written.
        MerganserError: as for INSERT.
    """
    places = {name: _place(i) for i, name in enumerate(given[0])}
    parsed = parse(text, places)
    statement = parsed[0] if len(parsed) == 1 else None
    items = _values(statement) if isinstance(statement, s.Insert) and not state.streaming else None
    if not isinstance(statement, s.Insert) or items is None:
        return None
    table = state.table(statement.name, statement.options)
    names = [f"col{i}" for i in range(len(items))]
    columns = insert_columns(state, table, statement, Relation(names, (), None, Sources(state)))
    targets = {
        items[c.source].name: c.field.type for c in columns if c.source is not None and _is_place(items[c.source])
    }
    asked = {column.name for item in items for column in item.find_all(exp.Column) if _is_place(column)}
    arrays = {
        place.name: _array(given, name, targets.get(place.name), f"cannot write to '{table.name}'")
        for name, place in places.items()
        if place.name in asked
    }
    rows = pa.table({_ROWS: pa.nulls(len(given), pa.int32())} | {k: v for k, v in arrays.items() if v is not None})
    source = Source(_ROWS, fields_from_arrow(rows.schema), (), lambda asked, where, limit: Held(rows.select(asked)))

    def with_nulls(node: exp.Expression) -> exp.Expression:
        return exp.Null() if _is_place(node) and arrays[node.name] is None else node

    listed = [
        exp.alias_(item.copy().transform(with_nulls), n, quoted=True) for item, n in zip(items, names, strict=True)
    ]
    query = exp.select(*listed).from_(exp.Table(this=exp.to_identifier(_ROWS, quoted=True)))
    relation = engine.query(state, with_session(state, without_defaults(query)), resolve=lambda node: source)
    return insert(state, engine, table, replace(statement, query=query), relation)


def _place(number: int) -> exp.Expression:
    """Return the column that stands for a parameter."""
    return exp.column(exp.to_identifier(f"p{number}", quoted=True), exp.to_identifier(_ROWS, quoted=True))


def _is_place(node: exp.Expression) -> bool:
    return isinstance(node, exp.Column) and node.table == _ROWS


def _values(statement: s.Insert) -> list[exp.Expression] | None:
    """Return the expressions of one row of VALUES; None for another query, and for expressions with a query inside."""
    if statement.by_name or any(value is not None for value in statement.partition.values()):
        return None
    rows = rows_of_values(statement.query)
    return None if rows is None or len(rows) != 1 else list(rows[0])


def _array(given: Sequence[Mapping[str, Any]], name: str, target: DataType | None, what: str) -> pa.Array | None:
    """Return the values of a parameter; None if all are null.

    Args:
        target: the type of the column that the parameter is written to as it is; values of nested types are made in it.

    Raises:
        InvalidInputError: a row has no value, or the values have no common type.
    """
    what = f"{what}: the parameter :{name}"
    try:
        cells = [row[name] for row in given]
    except KeyError:
        number = next(i for i, row in enumerate(given, 1) if name not in row)
        raise InvalidInputError(f"{what} has no value in row {number} of {len(given)}. Nothing was written.") from None
    kinds = {_kind(cell) for cell in cells} - {"None"}
    if len(kinds) > 1:
        raise InvalidInputError(
            f"{what} has values of different types: {', '.join(sorted(kinds))}. Nothing was written. Give "
            "values of one type."
        )
    if not kinds:
        return None
    nested = target is not None and is_nested(target)
    if {float, Decimal} <= {type(cell) for cell in cells}:
        cells = [None if cell is None else float(cell) for cell in cells]
    try:
        try:
            found = pa.array(cells, arrow_type(target) if nested and target is not None else None)
        except OverflowError:
            found = pa.array([None if cell is None else Decimal(cell) for cell in cells])
        return found.cast(pa.time32("ms")) if pa.types.is_time(found.type) else found
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InvalidInputError(f"{what}: {error}. Nothing was written.") from error


def _kind(cell: Any) -> str:
    """Return a name of the type of a value; values with the same one go into the same column.

    Arrow makes one of a date and a time of day with and without a zone, and of text and bytes.
    """
    match cell:
        case None:
            return "None"
        case bool():
            return "bool"
        case _ if isinstance(cell, _NUMBERS):
            return "number"
        case datetime():
            return "datetime without a zone" if cell.tzinfo is None else "datetime with a zone"
        case list() | tuple():
            return "list"
    return type(cell).__name__
