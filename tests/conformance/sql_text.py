"""Conditions and values of DELETE, UPDATE and MERGE steps as SQL text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.conformance.column_types import Type


def identifier(name: str) -> str:
    """Return a column name as SQL has it."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) else "`" + name.replace("`", "``") + "`"


def condition(where: Mapping[str, Any], types: Mapping[str, Type], *, prefix: str = "") -> str:
    """Return "every column equals its value"; of an empty map, a condition that all rows meet."""
    tests = []
    for name, value in where.items():
        column = prefix + identifier(name)
        tests.append(f"{column} IS NULL" if value is None else f"{column} = {literal(value, types.get(name))}")
    return " AND ".join(tests) or "TRUE"


def literal(value: Any, kind: Type | None) -> str:
    """Return a JSON value as an SQL literal of a column's type."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, dict) and "hex" in value:
        return f"X'{value['hex']}'"
    name = kind.name if kind is not None else ""
    if isinstance(value, str):
        quoted = "'" + value.replace("'", "''") + "'"
        match name:
            case "DECIMAL":
                return value
            case "DATE":
                return f"DATE {quoted}"
            case "TIMESTAMP" | "TIMESTAMP_LTZ":
                return f"{name} '{value.replace('T', ' ')}'"
            case "FLOAT" | "DOUBLE":
                return f"CAST({quoted} AS {name})"
        return quoted
    return str(value)
