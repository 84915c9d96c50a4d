"""The page of `merganser describe`."""

from __future__ import annotations

from collections.abc import Set

from rich.console import Console

from merganser.cli import render
from merganser.handle.table import Table
from merganser.meta.table_state import MetaReader
from merganser.progress.sizes import size_text
from merganser.rules.gaps import unsupported_for_reading, unsupported_for_writing
from merganser.scan.plan import unseen_files
from merganser.scan.rows import waiting
from merganser.upkeep.history import history_of


def show(table: Table, console: Console) -> None:
    """Print the facts, columns and options of a table."""
    schema = table.schema
    latest = table.latest_snapshot()
    state = MetaReader(table.definition.paths, table.env, table.name).state(latest)
    unkeyed = "equal rows are counted" if table.definition.counting else "rows are appended"
    facts = [("table", table.name)]
    if table.name != table.path:
        facts.append(("path", table.path))
    if schema.comment:
        facts.append(("comment", schema.comment))
    facts += [
        ("key", ", ".join(table.primary_key) or f"none: {unkeyed}"),
        ("partitions", ", ".join(table.partition_by) or "none"),
        ("buckets", _buckets(table, set(state.live.totals))),
        ("schema", str(schema.id)),
    ]
    if latest is None:
        facts.append(("snapshot", "none: nothing was written yet"))
    else:
        partitions = {partition for partition, _ in state.live.buckets}
        files = render.counted(len(state.live), "file")
        where = render.counted(len(state.live.buckets), "bucket")
        if table.partition_by:
            where += f" of {render.counted(len(partitions), 'partition')}"
        facts += [
            ("snapshot", f"{latest.id}, {latest.commit_kind} at {render.moment(latest.commit_time)} UTC"),
            (
                "rows",
                f"{render.count(latest.total_record_count or 0)} stored"
                + (", before merging" if table.definition.keyed else ""),
            ),
            ("size", f"{size_text(sum(entry.file.size for entry in state.live))} in {files}, {where}"),
            *history_of(table.definition, table.env, latest),
        ]
    if unseen := unseen_files(table.definition, table.env, state.live):
        facts.append(("note", waiting(unseen, postponed=table.definition.postpones)))
    facts += [("note", text) for text in _gaps(table)]
    facts += [("advice", str(found)) for found in table.advice()]
    render.facts(console, facts)
    console.print()
    _columns(table, console)
    if schema.options:
        console.print()
        render.table(console, ("option", "value"), sorted(schema.options.items()))


def _columns(table: Table, console: Console) -> None:
    rows = []
    for field in table.schema.fields:
        roles = [
            role
            for role, names in (("key", table.primary_key), ("partition", table.partition_by))
            if field.name in names
        ]
        rows.append((field.name, str(field.type), ", ".join(roles), field.default or "", field.description or ""))
    headings = ("column", "type", "role", "default", "comment")
    kept = [i for i, name in enumerate(headings) if i < 2 or any(row[i] for row in rows)]
    render.table(console, [headings[i] for i in kept], [[row[i] for i in kept] for row in rows])


def _buckets(table: Table, numbers: Set[int]) -> str:
    """Return how rows lie in buckets.

    Args:
        numbers: the numbers of buckets that live files were written with.
    """
    number = table.definition.bucket
    if number > 0:
        per = " per partition" if table.partition_by else ""
        others = sorted(numbers - {number})
        but = f"; rows that lie in {', '.join(map(str, others))} have to move before they change" if others else ""
        return f"{number}{per}, by {', '.join(table.definition.schema.bucket_key)}{but}"
    if number == -2:
        return "postponed"
    return "dynamic" if table.primary_key else "none: files are written side by side"


def _gaps(table: Table) -> list[str]:
    """Return notes on what this version cannot do with the table."""
    stored = table.definition.schema
    unread = unsupported_for_reading(stored, merge=table.definition.keyed)
    unwritten = unsupported_for_writing(stored)
    notes = []
    if unread:
        notes.append(f"this version cannot read it if files have to be merged: {unread[0].feature}")
    if unwritten:
        notes.append(f"this version cannot write it: {unwritten[0].feature}")
    return notes
