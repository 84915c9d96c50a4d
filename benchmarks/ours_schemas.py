"""The tables of `schemas.py`, through the public surface only."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import merganser as mg
from merganser import changes as c

from . import ours
from .data import few, load

CHANGES: tuple[tuple[c.Change, ...], ...] = (
    (),
    (c.add_column("added", "INT", after="k"),),
    (c.rename_column("label", "kind"), c.move_column("day", first=True)),
    (c.retype_column("i32", "BIGINT"),),
    (c.drop_column("flag"), c.add_column("later", "STRING")),
)
"""What makes each of the five schemas of the one before it."""


def warm_up() -> None:
    """Take each kind of table through a few rows."""
    with tempfile.TemporaryDirectory() as directory:
        for schemas in (1, len(CHANGES)):
            path = f"{directory}/db.db/t{schemas}"
            _create(path, ["k"])
            _write(path, few(20, 40, 1), schemas)
            ours.scan(path)()


def make(table: str, base: str, schemas: int, primary_key: Sequence[str]) -> Callable[[], int]:
    """Write a fifth of the base after each change; with one schema, all of it after the last."""
    _create(table, primary_key)
    rows = load(base)

    def action() -> int:
        _write(table, rows, schemas)
        return int(rows.num_rows)

    return action


scan = ours.scan


def _create(table: str, primary_key: Sequence[str]) -> None:
    path = Path(table)
    catalog = mg.catalog(str(path.parent.parent))
    catalog.create_database("db", if_not_exists=True)
    options = {"write-only": "true", "bucket": "4" if primary_key else "-1"}
    catalog.create_table(f"db.{path.name}", dict(ours.FIELDS), list(primary_key), options=options)


def _write(table: str, rows: object, schemas: int) -> None:
    """Write the same five parts of some rows; what a column is called, or whether it is there, is by the schema."""
    parts = len(CHANGES)
    target = mg.table(table)
    if schemas == 1:
        target = target.alter([change for changes in CHANGES for change in changes])
    for i, changes in enumerate(CHANGES):
        if schemas > 1 and changes:
            target = target.alter(changes)
        names = {field.name for field in target.schema.fields}
        part = rows.slice(i * rows.num_rows // parts, rows.num_rows // parts)  # type: ignore[attr-defined]
        if "kind" in names:
            part = part.rename_columns(["kind" if name == "label" else name for name in part.column_names])
        part = part.select([name for name in part.column_names if name in names])
        target.write(part, columns=part.column_names)
