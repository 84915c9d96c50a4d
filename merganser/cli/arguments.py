"""Options and arguments that several commands share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

FORMATS: Final = ("csv", "json", "parquet")

Warehouse = Annotated[
    str | None,
    typer.Option(
        "--warehouse",
        "-w",
        "--catalog",
        metavar="DIR",
        envvar="MERGANSER_WAREHOUSE",
        help="Directory or URL of the warehouse, address or name of a catalog.  [default: ./warehouse]",
        show_default=False,
    ),
]
Store = Annotated[
    list[str] | None,
    typer.Option(
        "--store",
        metavar="KEY=VALUE",
        help="Option of the store, such as s3.endpoint=http://localhost:9000. Repeatable.",
    ),
]
TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="database.table, or the path of a table.", show_default=False)
]
Where = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="Filter, such as \"amount > 10 and dt = '2026-01-01'\".")
]
Snapshot = Annotated[
    int | None,
    typer.Option("--snapshot", metavar="N", help="Read this snapshot.", show_default=False),
]
Tag = Annotated[
    str | None, typer.Option("--tag", metavar="TAG", help="Read the snapshot of this tag.", show_default=False)
]
Timestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        metavar="TIME",
        help="Read the newest snapshot at or before this time, such as 2026-01-01T12:00 (UTC).",
        show_default=False,
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns", "-c", metavar="A,B", help="Columns to read, in this order. Write a name with commas in backticks."
    ),
]


def pairs(texts: Sequence[str] | None, option: str) -> Mapping[str, str]:
    """Return KEY=VALUE texts of a repeated option as a mapping."""
    found = {}
    for text in texts or ():
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise typer.BadParameter(f"'{text}' is not KEY=VALUE.", param_hint=option)
        found[key.strip()] = value
    return found


def format_of_path(path: str) -> str | None:
    """Return the format that a file's extension names, or None."""
    extension = os.path.splitext(path)[1].removeprefix(".").lower()
    return {"jsonl": "json", "ndjson": "json"}.get(extension, extension if extension in FORMATS else None)
