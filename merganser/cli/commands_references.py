"""Tags, branches, rollback and consumers: commands about snapshots with names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import typer

from merganser.cli.arguments import Store, TableName, Warehouse

_Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def create_tag(
    table: TableName,
    name: _Name,
    snapshot: Annotated[
        int | None,
        typer.Option("--snapshot", metavar="N", help="The snapshot to tag.  [default: the newest]", show_default=False),
    ] = None,
    retain: Annotated[
        str | None,
        typer.Option("--retain", metavar="TIME", help="How long to keep it, such as '3 d'.  [default: no limit]"),
    ] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Give a snapshot a name.

    The snapshot and its files then stay when it expires.
    """
    from merganser.cli.target import table_of

    tag = table_of(table, warehouse, store).tags.create(name, snapshot=snapshot, retain=retain)
    print(f"tag {tag.name}: snapshot {tag.snapshot_id}")


def list_tags(table: TableName, warehouse: Warehouse = None, store: Store = None) -> None:
    """Show the tags of a table, ordered by snapshot."""
    from merganser.cli import render
    from merganser.cli.target import table_of

    found = table_of(table, warehouse, store).tags.list()
    rows = [
        [
            tag.name,
            str(tag.snapshot_id),
            render.moment(tag.commit_time),
            render.count(tag.record_count),
            "" if tag.expire_time is None else render.moment(tag.expire_time),
        ]
        for tag in found
    ]
    headings = ["tag", "snapshot", "committed (UTC)", "rows stored", "kept until (UTC)"]
    render.list_of(rows, headings, right=("snapshot", "rows stored"), none=f"'{table}' has no tags")


def drop_tag(table: TableName, name: _Name, warehouse: Warehouse = None, store: Store = None) -> None:
    """Remove a tag and the files that only it needs."""
    from merganser.cli.target import table_of

    table_of(table, warehouse, store).tags.drop(name)


def create_branch(
    table: TableName,
    name: _Name,
    tag: Annotated[
        str | None,
        typer.Option(
            "--tag", metavar="TAG", help="The tag to start from.  [default: an empty branch]", show_default=False
        ),
    ] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Create a branch. It copies no data.

    A branch is a second line of snapshots of the table. Read and write it as 'database.table$branch_NAME'.
    """
    from merganser.cli.target import table_of

    opened = table_of(table, warehouse, store)
    opened.branches.create(name, tag=tag)
    newest = opened.branch(name).latest_snapshot()
    print(f"branch {name}: {'empty' if newest is None else f'snapshot {newest.id}'}")


def list_branches(table: TableName, warehouse: Warehouse = None, store: Store = None) -> None:
    """Show the branches of a table."""
    from merganser.cli import render
    from merganser.cli.target import table_of

    opened = table_of(table, warehouse, store)
    rows = []
    for branch in opened.branches.list():
        newest = opened.branch(branch.name).latest_snapshot()
        rows.append([branch.name, "" if newest is None else str(newest.id), render.moment(branch.create_time)])
    headings = ["branch", "snapshot", "made (UTC)"]
    render.list_of(rows, headings, right=("snapshot",), none=f"'{table}' has no branches")


def fast_forward(table: TableName, name: _Name, warehouse: Warehouse = None, store: Store = None) -> None:
    """Replace the table by a branch.

    Snapshots that the table committed after the branch began are removed.
    """
    from merganser.cli.target import table_of

    print(f"snapshot {table_of(table, warehouse, store).branches.fast_forward(name).id} is the newest")


def drop_branch(table: TableName, name: _Name, warehouse: Warehouse = None, store: Store = None) -> None:
    """Remove a branch, and the files that nothing else needs."""
    from merganser.cli.target import table_of

    table_of(table, warehouse, store).branches.drop(name)


def rollback(
    table: TableName,
    snapshot: Annotated[
        int | None, typer.Option("--snapshot", metavar="N", help="To this snapshot.", show_default=False)
    ] = None,
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="TAG", help="To the snapshot of this tag.", show_default=False)
    ] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Set a table back to a snapshot or tag. Later snapshots and their tags are removed for good.

    The command `orphans` removes their files.
    """
    from merganser.cli.render import counted
    from merganser.cli.target import table_of

    if (snapshot is None) == (tag is None):
        raise typer.BadParameter("give one of them.", param_hint="--snapshot, --tag")
    opened = table_of(table, warehouse, store)
    before, names = opened.latest_snapshot(), [tag.name for tag in opened.tags.list()]
    newest = opened.rollback(snapshot=snapshot, tag=tag)
    gone = [counted(before.id - newest.id, "later snapshot")] if before and before.id > newest.id else []
    kept = {tag.name for tag in opened.tags.list()}
    gone += [f"tag '{name}'" for name in names if name not in kept]
    print(f"snapshot {newest.id} is the newest" + (f"; gone: {', '.join(gone)}" if gone else ""))


def repair(table: TableName, warehouse: Warehouse = None, store: Store = None) -> None:
    """Repair a table that lost files.

    First try to restore the file. This command restores lost snapshots that a tag keeps, and gives up the others: the
    newest snapshot that is there becomes the newest of the table. Key indexes that are damaged are built anew from the
    rows, and files of the shard stream from the commits. It does nothing if no file is lost.
    """
    from merganser.cli.render import counted
    from merganser.cli.target import table_of

    done = table_of(table, warehouse, store).repair()
    told = ["the table has no snapshot" if done.newest is None else f"snapshot {done.newest.id} is the newest"]
    if done.restored:
        told.append(f"restored from tags: {', '.join(map(str, done.restored))}")
    if done.given_up is not None:
        first, last = done.given_up
        told.append(f"given up: {first}" if first == last else f"given up: {first} to {last}")
    if done.indexes:
        told.append(f"built anew: {counted(done.indexes, 'key index', 'key indexes')}")
    if done.shards:
        told.append(f"replaced: {counted(done.shards, 'file')} of the shard stream")
    print("; ".join(told if len(told) > 1 else [f"nothing is lost: {told[0]}"]))


def set_consumer(
    table: TableName,
    name: _Name,
    next_snapshot: Annotated[
        int, typer.Argument(metavar="SNAPSHOT", help="The snapshot that the consumer reads next.", show_default=False)
    ],
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Set the snapshot that a named reader reads next.

    This snapshot and later ones do not expire.
    """
    from merganser.cli.target import table_of

    table_of(table, warehouse, store).consumers.set(name, next_snapshot)
    print(f"consumer {name}: reads snapshot {next_snapshot} next")


def list_consumers(table: TableName, warehouse: Warehouse = None, store: Store = None) -> None:
    """Show how far the consumers of a table have come.

    That is the snapshot that each reads next, and how far it is behind. The seconds are those from the commit of the
    last snapshot that the consumer has read to the newest commit. If the table has a log, the records are those of the
    log between the two: a difference of offsets, as tools of Kafka show it, and ? if the older snapshot has expired.
    For JSON: merganser read 'shop.orders$consumers' --format json
    """
    from merganser.cli import render
    from merganser.cli.target import table_of
    from merganser.options.write import LOG_SYSTEM

    opened = table_of(table, warehouse, store)
    found = opened.system("consumers").to_pylist()
    has_log = opened.definition.options.get(LOG_SYSTEM) != "none"
    rows = [
        [
            consumer["consumer_id"],
            str(consumer["next_snapshot_id"]),
            render.count(consumer["lag_snapshots"]),
            f"{consumer['lag_seconds']:,.1f}",
            *([render.count(consumer["lag_log_records"]) or "?"] if has_log else []),
            render.moment(consumer["last_update_time"]),
        ]
        for consumer in found
    ]
    behind = ["snapshots behind", "seconds behind", *(["log records behind"] if has_log else [])]
    headings = ["consumer", "next snapshot", *behind, "moved (UTC)"]
    render.list_of(rows, headings, right=headings[1:-1], none=f"'{table}' has no consumers")


def drop_consumer(table: TableName, name: _Name, warehouse: Warehouse = None, store: Store = None) -> None:
    """Remove a consumer. Its snapshots can expire afterwards."""
    from merganser.cli.target import table_of

    table_of(table, warehouse, store).consumers.drop(name)


def _group(name: str, text: str, commands: dict[str, Callable[..., None]]) -> typer.Typer:
    made = typer.Typer(name=name, help=text, rich_markup_mode=None, no_args_is_help=True)
    for verb, command in commands.items():
        made.command(verb)(command)
    return made


GROUPS: Final = (
    _group(
        "tag",
        "Snapshots with a name, which do not expire.",
        {"create": create_tag, "list": list_tags, "drop": drop_tag},
    ),
    _group(
        "branch",
        "Other lines of snapshots of a table.",
        {"create": create_branch, "list": list_branches, "fast-forward": fast_forward, "drop": drop_branch},
    ),
    _group(
        "consumer",
        "Named readers and the snapshot that each reads next.",
        {"set": set_consumer, "list": list_consumers, "drop": drop_consumer},
    ),
)
COMMANDS: Final[tuple[tuple[str, Callable[..., None]], ...]] = (
    ("rollback", rollback),
    ("repair", repair),
    ("consumers", list_consumers),
)
