"""The ratios that `quick.py` recorded: one line of JSON per run, how two runs differ, and the picture of all of them.

Everything here is a function of texts and values. `benchmarks/history.jsonl` has the records, oldest first; the picture
of them in the docs is written by `make docs` and by a run that records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from . import drawing

FILE = Path(__file__).resolve().parent / "history.jsonl"
WORSE = 1.25
"""A ratio that grew by more than this factor since the last record is reported."""
_COLUMNS = 2
_WIDTH, _HEIGHT = 360.0, 84.0
_MARGIN, _HEAD, _PLOT = 16.0, 18.0, 44.0


@dataclass(frozen=True, slots=True)
class Record:
    """One run.

    Attributes:
        commit: its short hash; with "+" if files differed from it.
        date: the day of the run.
        rows: rows of the base. Only runs of the same size are compared.
        ratios: median seconds of each workload divided by those of its floor.
        fastest: the same of the fastest runs.
    """

    commit: str
    date: str
    rows: int
    ratios: Mapping[str, float]
    fastest: Mapping[str, float]


def parsed(text: str) -> list[Record]:
    """The records of a file, oldest first."""
    return [Record(**json.loads(line)) for line in text.splitlines() if line.strip()]


def line_of(record: Record) -> str:
    """A record as a line of the file."""
    rounded = {
        measure: {name: round(ratio, 3) for name, ratio in getattr(record, measure).items()}
        for measure in ("ratios", "fastest")
    }
    return json.dumps(asdict(record) | rounded) + "\n"


def last_of(records: Sequence[Record], rows: int) -> Record | None:
    """The newest record of a size."""
    return next((record for record in reversed(records) if record.rows == rows), None)


def worse(before: Record, now: Record, factor: float = WORSE) -> dict[str, float]:
    """How many times larger the ratios are that grew by more than `factor`, of the medians and of the fastest runs.

    Other work on the machine makes some runs slow, and so a median, but seldom all runs. What is given is the smaller
    growth of the two. Workloads that one of the records lacks do not count.
    """
    grown = {
        name: min(ratio / before.ratios[name], now.fastest[name] / before.fastest[name])
        for name, ratio in now.ratios.items()
        if name in before.ratios
    }
    return {name: growth for name, growth in grown.items() if growth > factor}


def picture(records: Sequence[Record]) -> str:
    """A small chart for each workload of the newest record, over all records of that size."""
    kept = [record for record in records if records and record.rows == records[-1].rows]
    names = list(kept[-1].ratios) if kept else []
    lines = -(-len(names) // _COLUMNS)
    parts: list[str] = []
    for number, name in enumerate(names):
        x = _MARGIN + number % _COLUMNS * (_WIDTH + _MARGIN)
        y = _MARGIN + number // _COLUMNS * _HEIGHT
        parts += _chart(x, y, name, [record.ratios.get(name) for record in kept])
    if kept:
        span = kept[-1].date if len(kept) == 1 else f"{kept[0].date} to {kept[-1].date}"
        bottom = _MARGIN + lines * _HEIGHT + 6
        runs = "one run" if len(kept) == 1 else f"{len(kept)} runs"
        said = f"{span}, {runs} with {kept[-1].rows:,} rows. The dashed line is the floor."
        parts.append(drawing.text(_MARGIN, bottom, said, "soft"))
    width = _COLUMNS * (_WIDTH + _MARGIN) + _MARGIN
    return drawing.picture(width, _MARGIN + lines * _HEIGHT + 20, "Seconds of each workload over its floor", parts)


def _chart(x: float, y: float, name: str, ratios: Sequence[float | None]) -> list[str]:
    """The name, the last ratio, and the line of the ratios from zero up; a record without the workload has no point."""
    top = max(1.0, *(ratio for ratio in ratios if ratio is not None)) * 1.08
    bottom = y + _HEAD + _PLOT

    def height(ratio: float) -> float:
        return bottom - ratio / top * _PLOT

    step = _WIDTH / max(1, len(ratios) - 1)
    points = [(x + number * step, height(ratio)) for number, ratio in enumerate(ratios) if ratio is not None]
    if len(points) == 1:
        points = [(x, points[0][1]), (x + _WIDTH, points[0][1])]
    return [
        drawing.text(x, y + 10, name, "head"),
        drawing.text(x + _WIDTH, y + 10, f"{ratios[-1] or 0:.2f} x", end=True),
        drawing.level(x, bottom, _WIDTH, "frame"),
        drawing.level(x, height(1.0), _WIDTH, "limit"),
        *drawing.line(points),
    ]
