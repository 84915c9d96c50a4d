"""The log beside the files: what it holds, and its repair."""

from __future__ import annotations

from typing import Final

import typer

from merganser.cli.arguments import Store, TableName, Warehouse


def show(table: TableName, warehouse: Warehouse = None, store: Store = None) -> None:
    """Show the log of a table: where it is, what it keeps, and what it lacks.

    If the broker does not answer, the command shows what the files say, and ends with an error.
    """
    from merganser.cli.target import table_of
    from merganser.log.status import log_place, log_state
    from merganser.scan.rows import counted

    opened = table_of(table, warehouse, store)
    place = log_place(opened.definition, opened.env)
    print(f"topic      {place.topic}")
    print(f"servers    {place.servers}")
    print(f"mode       {place.mode}")
    print(f"retention  {place.retention or 'as the broker says'}")
    print(f"snapshot   {place.newest or 'none'}", flush=True)
    found = log_state(opened.definition, opened.env)
    records = sum(part.end - part.first for part in found.partitions)
    print(f"offsets    {records:,} in {counted(len(found.partitions), 'partition')}")
    rows, names = found.lacks.with_rows, found.lacks.in_files
    sends = (
        "them"
        if not names
        else f"the rows of {rows:,} and the names of {names:,}, whose rows stay in the files"
        if rows
        else "their names, since their rows stay in the files"
    )
    all_ = counted(rows + names, "snapshot")
    print(f"lacks      {f'{all_}; `merganser log repair {table}` sends {sends}' if rows + names else 'nothing'}")


def offsets(table: TableName, warehouse: Warehouse = None, store: Store = None) -> None:
    """Show the partitions of the log of a table: the offsets of what is kept, and the offset in the newest snapshot."""
    from merganser.cli import render
    from merganser.cli.target import table_of
    from merganser.log.status import log_state

    opened = table_of(table, warehouse, store)
    rows = [
        [
            str(part.number),
            render.count(part.first),
            render.count(part.end),
            "" if part.stored is None else render.count(part.stored),
            "" if part.snapshot is None else render.count(part.snapshot),
        ]
        for part in log_state(opened.definition, opened.env).partitions
    ]
    headings = ["partition", "first", "end", "in the snapshot", "newest record of snapshot"]
    render.list_of(rows, headings, right=headings, none=f"the log of '{table}' has no partitions")


def repair(table: TableName, warehouse: Warehouse = None, store: Store = None) -> None:
    """Send what snapshots publish and the log lacks, such as after a crash.

    Writers do so at their next commit, too. Nothing is sent twice. With 'log.consistency' = 'eventual', streams take
    back rows that are not committed.
    """
    from merganser.cli.target import table_of
    from merganser.commit.log import is_eventual
    from merganser.log.status import repair_log
    from merganser.meta.followed import newest
    from merganser.scan.rows import counted

    opened = table_of(table, warehouse, store)
    sent = repair_log(opened.definition, opened.env)
    if sent.with_rows:
        print(f"sent {counted(sent.with_rows, 'snapshot')}")
    if sent.in_files:
        print(f"named {counted(sent.in_files, 'snapshot')}, whose rows stay in the files")
    if not (sent.with_rows or sent.in_files):
        print("the log lacks nothing")
    if is_eventual(newest(opened.definition, opened.env)):
        print("streams take back rows that are not committed")


def _group() -> typer.Typer:
    made = typer.Typer(
        name="log", help="The log of a table, beside its files.", rich_markup_mode=None, no_args_is_help=True
    )
    for verb, command in (("show", show), ("offsets", offsets), ("repair", repair)):
        made.command(verb)(command)
    return made


GROUPS: Final = (_group(),)
