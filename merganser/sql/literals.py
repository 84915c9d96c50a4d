"""Values of literals: `'x'`, `-1.5`, `DATE '2026-01-31'`, `ARRAY('a', 'b')`, as Python values."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
from sqlglot import exp

from merganser.errors import InvalidInputError
from merganser.expr.names import spelled
from merganser.expr.setting import Setting
from merganser.expr.text import Dialect, parse_projection
from merganser.handle.table import Table


def value_of(tree: exp.Expression, setting: Setting, what: str) -> Any:
    """Return the Python value of an expression without columns.

    Raises:
        InvalidInputError: the expression has columns, or is not understood.
    """
    match tree:
        case exp.Literal() if tree.is_string:
            return tree.this
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(tree.this)
        case exp.Paren():
            return value_of(tree.this, setting, what)
        case exp.Cast() if isinstance(tree.this, exp.Array | exp.Anonymous):
            return value_of(tree.this, setting, what)
        case exp.Array():
            return [value_of(item, setting, what) for item in tree.expressions]
        case exp.Bracket() if isinstance(tree.this, exp.Column) and tree.this.name.upper() == "ARRAY":
            return [value_of(item, setting, what) for item in tree.expressions]
        case exp.Anonymous() if tree.name.lower() in ("array", "map", "named_struct", "row"):
            values = [value_of(item, setting, what) for item in tree.expressions]
            match tree.name.lower():
                case "array":
                    return values
                case "map":
                    return list(zip(values[::2], values[1::2], strict=True))
                case "row":
                    return {f"col{i}": value for i, value in enumerate(values, 1)}
            return dict(zip(values[::2], values[1::2], strict=True))
    if tree.find(exp.Column):
        raise InvalidInputError(f"{what}: {tree.sql('spark')!r:.80} is not a value. Give a literal.")
    projection = parse_projection(tree.sql(dialect=Dialect), (), setting=setting)
    return projection.evaluate(pa.table({"": pa.nulls(1)}))[0].as_py()


def spelled_spec(table: Table, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what PARTITION says, with the names of the partition columns as the table has them.

    Raises:
        InvalidInputError: a column is named twice.
    """
    names = spelled(spec, table.partition_by)
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InvalidInputError(
            f"cannot take the partition of '{table.name}': PARTITION names column '{twice}' twice.", column=twice
        )
    return dict(zip(names, spec.values(), strict=True))


def default_text(value: Any) -> str:
    """Return the text of a column's default as schema files have it; see `schema.literals`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict():
            return "{" + ", ".join(default_text(item) for item in value.values()) + "}"
        case list() if value and all(isinstance(item, tuple) for item in value):
            return "{" + ", ".join(f"{default_text(key)} -> {default_text(item)}" for key, item in value) + "}"
        case list():
            return "[" + ", ".join(default_text(item) for item in value) + "]"
        case datetime():
            return value.isoformat(" ")
    return str(value)
