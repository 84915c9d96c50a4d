"""The shards of a table's stream: which came from which, which are open, and how far workers have read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from merganser.console.page import Asked, Page
from merganser.console.pages.readers import followers_of
from merganser.meta.shard_stream import stream_of
from merganser.shards.followers import Follower
from merganser.shards.verbs import Shard
from merganser.values import dataclass

SHARDS_MAX: Final = 100
"""Maximum number of shards on a page."""
_BOX: Final = (168, 44)
"""Width and height of the drawing of a shard."""
_STEP: Final = (240, 58)
"""Distance between shards from left to right, and from top to bottom."""


@dataclass(frozen=True)
class Box:
    """A shard in the drawing.

    Attributes:
        x, y: of its upper left corner.
        name: its bucket, and its partition if the table has partitions.
        told: its state, and the rows that workers have not handled.
    """

    shard: Shard
    x: int
    y: int
    name: str
    told: str


@dataclass(frozen=True)
class Drawing:
    """The lineage of shards: parents to the left of their children.

    Attributes:
        edges: paths from parents to children.
    """

    boxes: list[Box]
    edges: list[str]
    width: int
    height: int


def view(asked: Asked) -> Mapping[str, Any]:
    """Return the shards, with the positions of workers."""
    table = asked.table
    definition = table.definition
    if stream_of(definition.options, definition.branch) is None:
        return {"table": table, "stream": None, "drawing": None, "followers": {}, "problem": "", "lines": []}
    stream = table.describe_stream(asked.text("from") or None, SHARDS_MAX)
    found, problem = followers_of(table)
    followers = {one.shard_id: one for one in found}
    return {
        "table": table,
        "stream": stream,
        "followers": followers,
        "problem": problem,
        "drawing": drawn(stream.shards, followers),
        "lines": [(shard, _name(shard), followers.get(shard.shard_id)) for shard in stream.shards],
    }


def drawn(shards: Sequence[Shard], followers: Mapping[str, Follower]) -> Drawing:
    """Return the drawing of shards. A shard lies one step right of the last of its parents that is drawn."""
    depth: dict[str, int] = {}
    for shard in shards:  # in the order in which they were opened: parents come first
        depth[shard.shard_id] = max((depth[one] + 1 for one in shard.parents if one in depth), default=0)
    rows: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for shard in sorted(shards, key=lambda one: (str(dict(one.partition)), one.bucket, one.opened)):
        column = depth[shard.shard_id]
        row = rows.get(column, 0)
        rows[column] = row + 1
        places[shard.shard_id] = (1 + column * _STEP[0], 1 + row * _STEP[1])
    boxes = [
        Box(shard, *places[shard.shard_id], _name(shard), _told(shard, followers.get(shard.shard_id)))
        for shard in shards
    ]
    edges = [
        _edge(places[parent], places[shard.shard_id])
        for shard in shards
        for parent in shard.parents
        if parent in places
    ]
    width = max((x for x, _ in places.values()), default=0) + _BOX[0] + 1
    height = max((y for _, y in places.values()), default=0) + _BOX[1] + 1
    return Drawing(boxes, edges, width, height)


def _edge(begin: tuple[int, int], end: tuple[int, int]) -> str:
    x1, y1 = begin[0] + _BOX[0], begin[1] + _BOX[1] // 2
    x2, y2 = end[0], end[1] + _BOX[1] // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"


def _name(shard: Shard) -> str:
    of = ", ".join(f"{key}={value}" for key, value in shard.partition.items())
    return f"{of}, bucket {shard.bucket}" if of else f"bucket {shard.bucket}"


def _told(shard: Shard, follower: Follower | None) -> str:
    state = "closed" if shard.closed else "open"
    if follower is None:
        return state
    if follower.done:
        return f"{state}, read to its end"
    return f"{state}, {follower.rows:,} rows to read" if follower.rows else f"{state}, all read"


PAGE: Final = Page("shards", "/t/{table}/shards", view, title="Shards", key="s")
