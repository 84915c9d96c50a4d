"""The shard stream at the shell: enable it, list its shards, and show changes as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import typer

from merganser.cli.arguments import Store, TableName, Warehouse, Where

_SHOWN_ROWS: Final = 200
_STARTS: Final = ("latest", "latest-full")
"""Where `tail` can begin: the starts of a stream that need no option beside them."""


def enable(
    table: TableName,
    retention: Annotated[
        str, typer.Option("--retention", metavar="TIME", help="How long records can be read, such as '24 h'.")
    ] = "24 h",
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Keep every change of a table from now on as records, shard by shard."""
    from merganser.cli.render import counted
    from merganser.cli.target import table_of

    made = table_of(table, warehouse, store).enable_stream(retention)
    print(f"stream {made.stream_id}: {counted(len(made.shards), 'shard')}, records are kept for {made.retention}")


def disable(table: TableName, warehouse: Warehouse = None, store: Store = None) -> None:
    """Discard the stream of a table. Its positions are refused from then on; the rows stay."""
    from merganser.cli.target import table_of

    table_of(table, warehouse, store).disable_stream()


def list_shards(table: TableName, warehouse: Warehouse = None, store: Store = None) -> None:
    """Show the shards of the stream of a table.

    Parents are the shards that the keys of a shard were in before.
    """
    import pyarrow as pa

    from merganser.cli import render
    from merganser.cli.output import named_cells
    from merganser.cli.target import table_of

    shards = table_of(table, warehouse, store).shards()
    partitions = named_cells(pa.Table.from_pylist([dict(shard.partition) for shard in shards]), ", ")
    rows = [
        [
            shard.shard_id,
            partition,
            str(shard.bucket),
            "open" if shard.closed_by is None else f"closed by snapshot {shard.closed_by}",
            ", ".join(shard.parents),
        ]
        for shard, partition in zip(shards, partitions, strict=True)
    ]
    headings = ["shard", "partition", "bucket", "state", "parents"]
    render.list_of(rows, headings, right=["bucket"], none=f"the stream of '{table}' has no shards yet")


def list_followers(
    table: TableName,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            "--checkpoints",
            metavar="PLACE",
            help="Where the workers keep their leases, as they name it. Default: in the table.",
        ),
    ] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Show how far the followers of a table have come.

    Rows are stored rows that were not handled; an update that has the row before counts twice.
    """
    from merganser.cli import render
    from merganser.cli.target import table_of

    rows = [
        [
            one.shard_id,
            one.worker or "",
            "ended" if one.done else "waiting" if one.iterator is None else "read",
            f"{one.snapshots:,}",
            f"{one.rows:,}",
            f"{one.behind.total_seconds():.1f} s",
        ]
        for one in table_of(table, warehouse, store).followers(checkpoints)
    ]
    headings = ["shard", "worker", "state", "snapshots behind", "rows behind", "time behind"]
    right = ["snapshots behind", "rows behind", "time behind"]
    render.list_of(rows, headings, right=right, none=f"the stream of '{table}' has no shards yet")


def tail(
    table: TableName,
    start: Annotated[
        str,
        typer.Option("--from", metavar="START", help="latest: what comes from now on. latest-full: the rows first."),
    ] = "latest",
    where: Where = None,
    once: Annotated[bool, typer.Option("--once", help="End when all changes are shown that are there.")] = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Show the changes of a table as they come, until Ctrl-C. Of many changes at once, the first are shown."""
    if start not in _STARTS:
        raise typer.BadParameter(f"'{start}' is none. Give one of {', '.join(_STARTS)}.", param_hint="--from")
    from rich.text import Text

    from merganser.cli import render
    from merganser.cli.output import named_cells
    from merganser.cli.target import table_of
    from merganser.cli.until_stopped import until_stopped
    from merganser.options.read import CONTINUOUS_DISCOVERY_INTERVAL
    from merganser.scan.gaps import Gap
    from merganser.schema.table_schema import CHANGE_KIND

    colours = {"+I": "green", "-U": "dim", "+U": "yellow", "-D": "red"}
    console = render.stdout()
    with until_stopped():
        followed = table_of(table, warehouse, store)
        if not followed.definition.options.is_set(CONTINUOUS_DISCOVERY_INTERVAL):  # a person waits
            followed = followed.with_options({CONTINUOUS_DISCOVERY_INTERVAL.key: "1 s"})
        stream = followed.stream(start=start, follow=not once, where=where, gaps="mark")
        if not once:
            render.stderr().print(f"following '{table}' from '{start}'; Ctrl-C ends it", soft_wrap=True)
        with stream:
            for changes in stream:
                if isinstance(changes, Gap):
                    render.line(console, render.dim(f"snapshot {changes.snapshot} published no changes"))
                    continue
                shown = changes.slice(0, _SHOWN_ROWS)
                kinds = shown.column(CHANGE_KIND.name).to_pylist()
                for kind, text in zip(kinds, named_cells(shown.drop_columns([CHANGE_KIND.name]), "  "), strict=True):
                    render.line(console, Text(f"{kind} {text}", style=colours[kind]))
                left = changes.num_rows - _SHOWN_ROWS
                if left > 0:
                    render.line(console, render.dim(f"   and {render.counted(left, 'more change')}"))


_stream = typer.Typer(
    name="stream", help="The changes of a table, shard by shard.", rich_markup_mode=None, no_args_is_help=True
)
for _verb, _command in (
    ("enable", enable),
    ("disable", disable),
    ("shards", list_shards),
    ("followers", list_followers),
):
    _stream.command(_verb)(_command)

GROUPS: Final = (_stream,)


def reset_stream(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="Directory of the query.", show_default=False)
    ],
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Tables that the query reads, in its order; - for a source that is no table of merganser.",
            show_default=False,
        ),
    ],
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="TABLE", help="Table that the query writes: go on after its newest batch."),
    ] = None,
    start: Annotated[
        list[str] | None,
        typer.Option(
            "--start",
            metavar="POSITION",
            help="Instead of --table: the snapshot that was read last, latest or latest-full; trim_horizon for "
            "streams of records; - for where the query is. Once per source.",
        ),
    ] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Make a stopped query of Spark go on elsewhere.

    Such as after a rollback of one of its tables. Stop the query first. Spark and Java are not needed.
    """
    from merganser.cli.target import table_of
    from merganser.errors import InvalidInputError
    from merganser.spark.checkpoint_reset import check_choice, checkpoint_logs, reset_checkpoint

    action = f"cannot reset the stream of '{checkpoint:.200}'"
    starts = [_start(text) for text in start or ()] or None
    check_choice(table, starts, action)
    read = [None if name == "-" else table_of(name, warehouse, store) for name in sources]
    written = None if table is None else table_of(table, warehouse, store)
    beside = next((one for one in (written, *read) if one is not None), None)
    if beside is None:
        raise InvalidInputError(f"{action}: no table of merganser is named. Nothing was changed.")
    done = reset_checkpoint(checkpoint_logs(checkpoint, beside, action), read, table=written, start=starts)
    print(f"query {done.query} goes on with batch {done.next_batch}")
    if written is not None:
        print(f"{written.name} has {'no batch' if done.table_batch is None else f'batch {done.table_batch}'} of it")
    for source, after in zip(read, done.after, strict=True):
        if source is not None:
            print(f"{source.name} is read {'from its start' if after is None else f'after snapshot {after}'}")


def _start(text: str) -> int | str | None:
    return None if text == "-" else int(text) if text.isdigit() else text


COMMANDS: Final[tuple[tuple[str, Callable[..., None]], ...]] = (
    ("shards", list_shards),
    ("followers", list_followers),
    ("tail", tail),
    ("reset-stream", reset_stream),
)
