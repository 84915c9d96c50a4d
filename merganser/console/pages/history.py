"""The history of one key: what became of its row, commit by commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from merganser.console import cells
from merganser.console.page import Asked, Page
from merganser.errors import InvalidInputError
from merganser.handle.table import Table
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot
from merganser.scan.key_history import KeyHistory, Step, Version, changed_columns, key_condition, key_history
from merganser.schema import types as t
from merganser.values import dataclass

SECONDS: Final = 6.0
"""How long one request looks for older commits."""


@dataclass(frozen=True)
class Asking:
    """A field of the form.

    Attributes:
        name: of the parameter.
        error: what is wrong with the value; empty: nothing.
    """

    field: t.Field
    name: str
    text: str
    error: str = ""


@dataclass(frozen=True)
class Value:
    """A value of a step.

    Attributes:
        old, new: None where there was no row, or the table did not have the column.
    """

    name: str
    old: cells.Cell | None
    new: cells.Cell | None


@dataclass(frozen=True)
class Told:
    """A step as the page tells it.

    Attributes:
        by: who committed, in words.
        values: those that changed.
        others: the number of columns that did not.
    """

    step: Step
    by: str
    values: list[Value]
    others: int


def view(asked: Asked) -> Mapping[str, Any]:
    """Return the form, and the history of the key that is given."""
    table = asked.table
    fields = _fields(table)
    texts = [asked.query.get(f"k.{field.name}") for field in fields]
    nulls = [f"null.{field.name}" in asked.query for field in fields]
    shown: dict[str, Any] = {"table": table, "history": None, "told": [], "seconds": 0.0, "before": None}
    form = [Asking(f, f"k.{f.name}", text or "") for f, text in zip(fields, texts, strict=True)]
    if not fields or any(text is None and not null for text, null in zip(texts, nulls, strict=True)):
        return shown | {"form": form}
    wanted = {field.id: text for field, text in zip(fields, texts, strict=True)}
    try:
        key_condition(table.definition, wanted)
    except InvalidInputError as error:
        wrong = error.context.get("column")
        form = [Asking(f.field, f.name, f.text, error.message if f.field.name == wrong else "") for f in form]
        return shown | {"form": form}
    before = asked.number("before", least=1)
    start = table.latest_snapshot() if before is None else table.looked_at(snapshot=before)
    begun = table.env.seconds()
    history = key_history(table.definition, table.env, lambda made: key_condition(made, wanted), start, seconds=SECONDS)
    return shown | {
        "form": form,
        "history": history,
        "told": [_told(step) for step in history.steps],
        "before": before,
        "start": start,
        "now_row": _row_at_start(history),
        "first_row": [] if history.at_first is None else _values(None, history.at_first),
        "seconds": table.env.seconds() - begun,
    }


def _fields(table: Table) -> list[t.Field]:
    """Return the columns that say which row is meant."""
    definition = table.definition
    if not definition.keyed:
        return []
    names = definition.schema.primary_keys if definition.moves_keys else definition.row_key
    return [definition.schema.field(name) for name in names]


def _row_at_start(history: KeyHistory) -> bool:
    """Return whether the key has a row in the newest state that was looked at."""
    if history.steps and history.steps[0].tag is None:
        return history.steps[0].after is not None
    return history.at_first is not None


def _told(step: Step) -> Told:
    values = _values(step.before, step.after)
    if step.before is None or step.after is None:
        return Told(step, committer(step.snapshot), values, 0)
    changed = {field.name for field in changed_columns(step.before, step.after)}
    shown = [each for each in values if each.name in changed]
    return Told(step, committer(step.snapshot), shown, len(values) - len(shown))


def _values(before: Version | None, after: Version | None) -> list[Value]:
    there = after or before
    assert there is not None
    return [Value(field.name, _cell(before, field), _cell(after, field)) for field in there.fields]


def _cell(version: Version | None, field: t.Field) -> cells.Cell | None:
    column = None if version is None else version.column(field.id)
    return None if column is None else cells.cells_of(pa.table({"": column}))[0][0]


def committer(snapshot: Snapshot) -> str:
    """Return who made a commit, in words: its operation or kind, its user, and which of the user's commits it is."""
    what = (snapshot.operation or snapshot.commit_kind).lower()
    number = "" if snapshot.commit_identifier == BATCH_IDENTIFIER else f", commit {snapshot.commit_identifier:,}"
    return f"{what} by {snapshot.commit_user:.60}{number}"


PAGE: Final = Page("history", "/t/{table}/key", view, title="Key", key="y")
