"""The snapshots of a table, and the files of one snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from merganser.cli import render
from merganser.handle.table import Table
from merganser.meta.data_file import ADD, ManifestEntry
from merganser.meta.live_files import BucketId
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot
from merganser.meta.table_state import MetaReader
from merganser.progress.sizes import size_text
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One snapshot and what it changed."""

    snapshot: Snapshot
    added: tuple[ManifestEntry, ...]
    removed: tuple[ManifestEntry, ...]


def steps(table: Table, snapshots: Sequence[Snapshot]) -> list[Step]:
    """Return what each snapshot changed, from the manifests of its own commit."""
    reader = MetaReader(table.definition.paths, table.env, table.name)
    found = []
    for snapshot in snapshots:
        entries = reader.delta(snapshot)
        found.append(
            Step(snapshot, tuple(e for e in entries if e.kind == ADD), tuple(e for e in entries if e.kind != ADD))
        )
    return found


def show_snapshots(table: Table, console: Console, *, limit: int, long: bool) -> None:
    """Print the newest snapshots, oldest of them first; `limit` 0 is all."""
    kept = table.snapshots()
    shown = kept[-limit:] if limit else kept
    if not shown:
        render.stderr().print(f"'{table.name}' has no snapshot: nothing was written yet", soft_wrap=True)
        return
    headings = ["id", "committed (UTC)", "kind", "rows", "files", "size", "rows stored"]
    if long:
        headings += ["schema", "identifier", "user"]
    rows = []
    for step in steps(table, shown):
        snapshot = step.snapshot
        row = [
            str(snapshot.id),
            render.moment(snapshot.commit_time),
            snapshot.commit_kind,
            _signed(sum(e.file.row_count for e in step.added), sum(e.file.row_count for e in step.removed)),
            _signed(len(step.added), len(step.removed)),
            f"+{size_text(sum(e.file.size for e in step.added))}",
            render.count(snapshot.total_record_count),
        ]
        if long:
            identifier = "" if snapshot.commit_identifier == BATCH_IDENTIFIER else str(snapshot.commit_identifier)
            row += [str(snapshot.schema_id), identifier, snapshot.commit_user]
        rows.append(row)
    right = ("id", "rows", "files", "size", "rows stored", "schema", "identifier")
    render.table(console, headings, rows, right=right, records=True)
    if len(shown) < len(kept):
        render.stderr().print(
            f"\nthe newest {len(shown)} of {render.counted(len(kept), 'snapshot')}; --limit 0 shows all"
        )


def show_files(table: Table, console: Console, *, snapshot: int | None, tag: str | None, timestamp: str | None) -> None:
    """Print the live files of a snapshot, tag or time, else the newest, under the directory of their bucket."""
    reader = MetaReader(table.definition.paths, table.env, table.name)
    asked = table.read(snapshot=snapshot, tag=tag, timestamp=timestamp).snapshot
    state = reader.state(asked or table.latest_snapshot())
    buckets = sorted(((_directory(table, bucket), bucket) for bucket in state.live.buckets), key=_natural)
    if not buckets:
        render.stderr().print(f"'{table.name}' has no data files", soft_wrap=True)
        return
    headings = ("level", "rows", "-D", "size", "file")
    for i, (directory, bucket) in enumerate(buckets):
        if i:
            console.print()
        entries = state.live.buckets[bucket].entries
        total = sum(e.file.row_count for e in entries)
        size = size_text(sum(e.file.size for e in entries))
        summary = f"{render.counted(len(entries), 'file')}, {render.counted(total, 'row')}, {size}"
        render.line(console, render.bold(directory), f"  {summary}")
        rows = [
            (
                str(e.file.level),
                render.count(e.file.row_count),
                render.count(e.file.delete_row_count or 0),
                size_text(e.file.size),
                e.file.external_path or e.file.name,
            )
            for e in sorted(entries, key=lambda e: (-e.file.level, e.file.max_sequence))
        ]
        render.table(console, headings, rows, right=headings[:-1])


def _directory(table: Table, bucket: BucketId) -> str:
    """Return the directory of a bucket below the table."""
    whole = table.definition.bucket_directory(*bucket)
    return whole.removeprefix(table.path).lstrip("/")


def _natural(item: tuple[str, BucketId]) -> list[tuple[bool, int, str]]:
    """Return a sort key that puts month=2 before month=10."""
    parts = item[0].replace("=", "/").replace("-", "/").split("/")
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _signed(added: int, removed: int) -> str:
    return f"+{added:,} -{removed:,}" if removed else f"+{added:,}"
