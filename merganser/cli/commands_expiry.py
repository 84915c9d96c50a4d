"""Expiry and orphans: commands that remove files that nothing needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from merganser.cli.arguments import Store, TableName, Warehouse

_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be removed, and remove nothing.")]


def _count(what: str) -> Any:
    return typer.Option(metavar="N", help=what, show_default=False)


def expire(
    table: TableName,
    retain_max: Annotated[int | None, _count("Keep at most this many.  [default: the table's options]")] = None,
    retain_min: Annotated[int | None, _count("Keep at least this many.  [default: the table's options]")] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Remove snapshots whose successor is older than this, such as 2026-01-31T12:00 (UTC).  "
            "[default: the table's options]",
            show_default=False,
        ),
    ] = None,
    max_deletes: Annotated[int | None, _count("Remove at most this many.  [default: the table's options]")] = None,
    dry_run: _DryRun = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Remove old snapshots and the files that only they need."""
    from merganser.cli.render import counted, stderr
    from merganser.cli.target import table_of
    from merganser.meta.shard_stream import stream_of
    from merganser.options.upkeep import SNAPSHOT_EXPIRE_LIMIT
    from merganser.scan.source import takes_rows

    opened = table_of(table, warehouse, store)
    gone = opened.expire(
        retain_max=retain_max,
        retain_min=retain_min,
        older_than=older_than,
        max_deletes=max_deletes,
        dry_run=dry_run,
    )
    ids = f": {gone[0].id}" if gone else ""
    ids += f" to {gone[-1].id}" if len(gone) > 1 else ""
    print(f"{counted(len(gone), 'snapshot')} {'would expire' if dry_run else 'expired'}{ids}")
    stay = [snapshot for snapshot in opened.snapshots() if not gone or snapshot.id > gone[-1].id]
    kept = [snapshot.id for snapshot in stay]
    behind = [
        f"consumer '{consumer.id}' still has to read snapshot {consumer.next_snapshot}"
        for consumer in opened.consumers.list()
        if kept and consumer.next_snapshot <= kept[0]
    ]
    notes = [counted(len(kept), "snapshot") + (" stay" if len(kept) != 1 else " stays"), *behind]
    taken = kept[1] if len(kept) > 1 and takes_rows(opened.definition, stay[1], stay[0]) else None
    if taken is not None and stream_of(opened.definition.options, opened.definition.branch) is not None:
        notes.append(f"the shard stream needs the rows that snapshot {taken} took away, for its retention")
    limit = opened.options.get(SNAPSHOT_EXPIRE_LIMIT) if max_deletes is None else max_deletes
    if len(gone) == limit:
        notes.append(f"one run removes at most {limit:,}: run it again, or raise --max-deletes")
    stderr().print("; ".join(notes), soft_wrap=True)


def expire_partitions(
    table: TableName, dry_run: _DryRun = False, warehouse: Warehouse = None, store: Store = None
) -> None:
    """Drop partitions that are too old."""
    from merganser.cli.render import counted, stderr
    from merganser.cli.target import table_of

    gone = table_of(table, warehouse, store).expire_partitions(dry_run=dry_run)
    for spec in gone:
        print(", ".join(f"{name}={value}" for name, value in spec.items()))
    stderr().print(f"{counted(len(gone), 'partition')} {'would be dropped' if dry_run else 'dropped'}")


def orphans(
    table: TableName,
    remove: Annotated[bool, typer.Option("--remove", help="Remove them.  [default: only list them]")] = False,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Keep files newer than this, such as 2026-01-31T12:00 (UTC).  [default: a day ago]",
            show_default=False,
        ),
    ] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """List files that no metadata names.

    Interrupted work leaves such files.
    """
    from merganser.cli.render import counted, stderr
    from merganser.cli.target import table_of

    paths = table_of(table, warehouse, store).remove_orphans(older_than=older_than, dry_run=not remove)
    for path in paths:
        print(path)
    stderr().print(f"{counted(len(paths), 'orphan')}{' removed' if remove else ''}")


COMMANDS: Final[tuple[tuple[str, Callable[..., None]], ...]] = (
    ("expire", expire),
    ("expire-partitions", expire_partitions),
    ("orphans", orphans),
)
"""Name -> command, in the order in which they are shown."""
