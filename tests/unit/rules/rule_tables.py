"""One wide table with options of choice."""

from __future__ import annotations

from merganser.options.option import Options
from merganser.schema.table_schema import TableSchema
from merganser.schema.types import Field
from merganser.schema.types_text import parse_type

COLUMNS = {
    "k": "INT NOT NULL",
    "dt": "STRING",
    "a": "INT",
    "b": "BIGINT",
    "s": "STRING",
    "vc": "VARCHAR(5)",
    "arr": "ARRAY<INT>",
    "m": "MAP<STRING, INT>",
    "mt": "MAP<STRING, ROW<v INT, at STRING>>",
    "n": "ARRAY<ROW<id INT, v INT>>",
    "f": "BOOLEAN",
    "y": "BYTES",
    "ts": "TIMESTAMP(3)",
    "d": "DECIMAL(10, 2)",
}
KEYED = {"bucket": "1"}


def table(options=(), *, key=("k",), partition=()):
    fields = tuple(Field(i, name, parse_type(text)) for i, (name, text) in enumerate(COLUMNS.items()))
    return TableSchema(0, fields, len(fields) - 1, tuple(partition), tuple(key), Options(dict(options)))
