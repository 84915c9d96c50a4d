"""The commits of a table: a timeline, what they wrote, and a drawing of its tags and branches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from merganser.console.charts import Column, column_chart
from merganser.console.history import BranchFacts, Line, Refs, Step, refs_of
from merganser.console.html import moment
from merganser.console.page import Asked, Page, Paged, paged
from merganser.meta.refs import MAIN
from merganser.meta.snapshot import BATCH_IDENTIFIER, Snapshot
from merganser.progress.sizes import size_text
from merganser.values import dataclass

_DRAWN: Final = 200
_ROWS_MAX: Final = 150
_NAMES_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Commit:
    """One line of the timeline.

    Attributes:
        step: what it changed; None: its manifests cannot be read.
        before: the id of the snapshot before; None: it has expired, or there was none.
        identifier: of the commit; None: it is never repeated.
    """

    snapshot: Snapshot
    step: Step | None
    tags: tuple[str, ...]
    before: int | None
    identifier: int | None


@dataclass(frozen=True, slots=True)
class Point:
    """One row of the drawing of tags and branches: a snapshot of main, a branch, or snapshots that have no name.

    Attributes:
        kind: "snapshot", "branch", "gap", or "loose" of a branch that leaves from no snapshot that is kept.
        above, below: whether the line of main goes on there; a gap of snapshots that have expired is dashed.
        joins: for a branch, whether another branch of the same snapshot is drawn above it; for a snapshot, whether a
            branch leaves from it.
    """

    kind: str
    above: bool = True
    below: bool = True
    joins: bool = False
    snapshot: Snapshot | None = None
    branch: BranchFacts | None = None
    count: int = 0
    tags: tuple[str, ...] = ()
    is_newest: bool = False
    expired: bool = False


def view(asked: Asked) -> Mapping[str, Any]:
    """Return the commits of a page, what is drawn of the newest, and the tags and branches."""
    table = asked.table
    line = Line(asked, table)
    found = paged(line.ids, asked)
    tags = _tags_by_id(line)
    snapshots = line.snapshots(found.lines)
    commits = [
        Commit(
            snapshot,
            step,
            tags.get(snapshot.id, ()),
            snapshot.id - 1 if snapshot.id - 1 in line else None,
            None if snapshot.commit_identifier == BATCH_IDENTIFIER else snapshot.commit_identifier,
        )
        for snapshot, step in zip(snapshots, line.steps(snapshots), strict=True)
    ]
    refs = refs_of(asked, table)
    points = _points(refs)
    plain = table.name.removesuffix(f"$branch_{table.definition.branch}")
    return {
        "commits": Paged(commits, found.number, found.total),
        "charts": _charts(line),
        "points": points[:_ROWS_MAX],
        "points_left": max(0, len(points) - _ROWS_MAX),
        "refs": refs,
        "branch": table.definition.branch,
        "main": MAIN,
        "plain": plain,
        "quote": quote,
        "names_max": _NAMES_MAX,
    }


def _tags_by_id(line: Line) -> dict[int, tuple[str, ...]]:
    found: dict[int, list[str]] = defaultdict(list)
    for tag in line.tags:
        found[tag.snapshot_id].append(tag.name)
    return {number: tuple(names) for number, names in found.items()}


def _charts(line: Line) -> list[str]:
    newest = line.snapshots(line.ids[:_DRAWN])[::-1]
    rows, sizes = [], []
    for snapshot, step in zip(newest, line.steps(newest), strict=True):
        if step is not None:
            label, told = f"#{snapshot.id}", f"snapshot {snapshot.id}, {moment(snapshot.commit_time)} UTC"
            rows.append(
                Column(label, step.rows_in, step.rows_out, f"{told}: +{step.rows_in:,} −{step.rows_out:,} rows")
            )
            sizes.append(Column(label, step.bytes_in, 0, f"{told}: {size_text(step.bytes_in)} written"))
    of = f"of the newest {len(rows)} commits" if len(rows) < len(line.ids) else "of each commit"
    return [
        column_chart(rows, title=f"Stored rows in (up) and out (down) {of}"),
        column_chart(sizes, title=f"Bytes written {of}", unit="bytes"),
    ]


def _points(refs: Refs) -> list[Point]:
    """Return the rows of the drawing, newest first; branches stand above the snapshot that they leave from."""
    main = refs.main
    tagged, at = _tags_by_id(main), {tag.snapshot_id: tag.snapshot for tag in refs.tags}
    leaving: dict[int | None, list[BranchFacts]] = defaultdict(list)
    for branch in refs.branches:
        leaving[branch.fork].append(branch)
    ends = {main.ids[0], main.ids[-1]} if main.ids else set()
    wanted = sorted({*ends, *tagged, *(fork for fork in leaving if fork is not None)}, reverse=True)
    at |= {each.id: each for each in main.snapshots([number for number in wanted if number in main])}
    wanted = [number for number in wanted if number in at]
    newest = main.ids[0] if main.ids else None
    points = []
    for i, number in enumerate(wanted):
        if i:
            hidden = wanted[i - 1] - number - 1
            if hidden:
                points.append(Point("gap", count=hidden, expired=wanted[i - 1] - 1 not in main))
        here = leaving.pop(number, [])
        points += [Point("branch", above=i > 0, joins=j > 0, branch=branch) for j, branch in enumerate(here)]
        points.append(
            Point(
                "snapshot",
                above=i > 0 or bool(here),
                below=i < len(wanted) - 1,
                joins=bool(here),
                snapshot=at[number],
                tags=tagged.get(number, ()),
                is_newest=number == newest,
            )
        )
    loose = [branch for found in leaving.values() for branch in found]
    return points + [Point("loose", above=False, below=False, branch=branch) for branch in loose]


PAGE: Final = Page("commits", "/t/{table}/commits", view, title="Commits", key="c")
