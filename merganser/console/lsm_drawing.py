"""The sorted runs of a bucket as SVG: a lane for each run, a rectangle for each file over its range of keys.

Keys of any type become places by rank: each distinct first or last key of a file is one step to the right. So a drawing
shows which files meet, not how far keys are apart. Rectangles are thicker for larger files. Of many files, neighbours
of a lane are drawn as one rectangle, so that a bucket of any size is drawn as fast.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from markupsafe import Markup

from merganser.lsm.levels import Ranks
from merganser.meta.data_file import DataFile
from merganser.progress.sizes import size_text
from merganser.values import dataclass

SHAPES_MAX: Final = 300
_LANES_MAX: Final = 40
_LANE: Final = 26
_BAND: Final = 20
_THIN: Final = 7
_COLOURS: Final = 6
_LETTER: Final = 6.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawing.

    Attributes:
        is_whole: whether each file has a rectangle of its own.
    """

    svg: Markup
    is_whole: bool


@dataclass(frozen=True, slots=True)
class _Lane:
    """Sorted runs that are drawn side by side, and what stands before them."""

    label: str
    level: int
    files: list[int]


def drawing(
    files: Sequence[DataFile],
    runs: Sequence[Sequence[int]],
    ranks: tuple[Ranks, Ranks],
    keys: Mapping[int, str],
    taken: Collection[str],
) -> Drawn:
    """Return the drawing of a bucket.

    Args:
        files: all of them.
        runs: sorted runs, newest first, as positions of files.
        ranks: int64[n] each, of the first and the last keys of the files among all of these keys.
        keys: by position of a file, its first and last key as text; files beyond those drawn alone may lack it.
        taken: names of the files that the next compaction takes.
    """
    low, high = ranks
    lanes = _lanes(files, runs)
    width = 100.0 / (int(high.max()) + 1)
    largest = max(file.size for file in files)
    side = round(max(len(lane.label) for lane in lanes) * _LETTER + 12)
    few = len(files) <= SHAPES_MAX
    shapes: list[Markup] = []
    labels: list[Markup] = []
    for row, lane in enumerate(lanes):
        y = row * _LANE
        labels.append(
            Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(side - 8, y + _LANE / 2 + 4, lane.label)
        )
        shapes.append(Markup('<line class="axis" x1="0" x2="100%" y1="{}" y2="{}"/>').format(y + _LANE, y + _LANE))
        ordered = sorted(lane.files, key=lambda i: int(low[i]))
        share = len(ordered) if few else max(1, SHAPES_MAX * len(ordered) // len(files))
        chunk = math.ceil(len(ordered) / share)
        for begin in range(0, len(ordered), chunk):
            some = ordered[begin : begin + chunk]
            first, last = int(low[some].min()), int(high[some].max())
            size = max(files[i].size for i in some)
            thick = _THIN + (_BAND - _THIN) * math.sqrt(size / (largest or 1))
            attributes = Markup(' id="at-{}" data-file="{}"').format(some[0], some[0]) if len(some) == 1 else ""
            shapes.append(
                Markup(
                    '<rect class="file level{}{}"{} x="{:.3f}%" width="{:.3f}%" y="{:.1f}" height="{:.1f}" rx="2">'
                    "<title>{}</title></rect>"
                ).format(
                    min(lane.level, _COLOURS - 1),
                    " taken" if any(files[i].name in taken for i in some) else "",
                    attributes,
                    first * width,
                    max((last - first + 1) * width, 0.15),
                    y + (_LANE - thick) / 2,
                    thick,
                    _told(files, some, keys),
                )
            )
    height = len(lanes) * _LANE + 1
    spoken = f"{len(files):,} files in {len(runs):,} sorted runs, newest run above, smallest key to the left"
    svg = Markup(
        '<div class="plot-body tree"><svg aria-hidden="true" width="{}" height="{}">{}</svg>'
        '<svg class="field" role="img" height="{}"><title>{}</title>{}</svg></div>'
    ).format(side, height, Markup("").join(labels), height, spoken, Markup("").join(shapes))
    return Drawn(svg, few)


def _lanes(files: Sequence[DataFile], runs: Sequence[Sequence[int]]) -> list[_Lane]:
    """Return a lane for each run; of many runs of level 0, neighbours share one."""
    young = [run for run in runs if files[run[0]].level == 0]
    old = [run for run in runs if files[run[0]].level]
    size = math.ceil(len(young) / max(1, _LANES_MAX - len(old))) if young else 1
    lanes = []
    for begin in range(0, len(young), size):
        some = young[begin : begin + size]
        label = f"level 0, {len(some)} runs" if len(some) > 1 else "level 0"
        lanes.append(_Lane(label, 0, [i for run in some for i in run]))
    size = math.ceil(len(old) / _LANES_MAX) if old else 1
    for begin in range(0, len(old), size):
        some = old[begin : begin + size]
        lanes.append(
            _Lane(f"level {files[some[0][0]].level}", files[some[0][0]].level, [i for run in some for i in run])
        )
    return lanes


def _told(files: Sequence[DataFile], some: Sequence[int], keys: Mapping[int, str]) -> str:
    rows, size = sum(files[i].row_count for i in some), sum(files[i].size for i in some)
    if len(some) > 1:
        return f"{len(some):,} files, {rows:,} rows, {size_text(size)}"
    file = files[some[0]]
    deletes = f", {file.delete_row_count:,} deletes" if file.delete_row_count else ""
    told = f"{file.name}\nlevel {file.level}, {rows:,} rows{deletes}, {size_text(size)}"
    told += f"\nsequence numbers {file.min_sequence:,} to {file.max_sequence:,}, schema {file.schema_id}"
    return told + (f"\nkeys {keys[some[0]]}" if some[0] in keys else "")
