"""The results of the campaign as tables and pictures; functions of the documents that the command makes.

Steps are compared by CPU seconds, and tables have the wall seconds beside them: other work on the machine changes wall
seconds by factors, and CPU seconds by little.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import drawing

from . import steps

FILE = Path(__file__).resolve().parent / "results.json"
Document = Mapping[str, Any]
GROUPS = {"embedded": "In one Python process", "spark": "Through Spark, local[2]"}
_OWN = "merganser"
_COLUMNS = 3
_WIDTH, _MARGIN, _NAME, _VALUE, _BAR = 268.0, 16.0, 104.0, 48.0, 15.0
_CUT = 4.0
"""A bar is cut at this many times the median of its panel, so that one slow contender does not flatten the others."""
_Measure = Callable[[Mapping[str, Any]], float | None]


def published() -> list[Document]:
    """The documents of the results file, the one with the fewest rows first."""
    found = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    return sorted(found, key=lambda document: int(document["rows"]))


# measures


def _step(phase: str, name: str = "cpu_seconds") -> _Measure:
    def measure(contender: Mapping[str, Any]) -> float | None:
        cost = contender["phases"].get(phase)
        known = cost is not None and phase not in contender["errors"] and phase not in contender["unsupported"]
        return float(cost[name]) if known else None

    return measure


def _total(name: str, unit: float = 1.0) -> _Measure:
    written = _step(steps.CHANGES, name)

    def measure(contender: Mapping[str, Any]) -> float | None:
        found = written(contender)
        return None if found is None else found / unit

    return measure


def _size(name: str) -> _Measure:
    return lambda contender: contender[name] / 1e6 if name in contender else None


def _steps(rounds: int) -> dict[str, str]:
    """The steps, by title."""
    reads = rounds // steps.workload.READ_EVERY
    return {
        "load": steps.LOAD,
        f"{rounds} rounds of changes": steps.CHANGES,
        f"read all rows, {reads} times": steps.READ,
        f"read a key range, {reads} times": steps.RANGE,
        f"look up {steps.workload.LOOKUPS} keys": steps.LOOKUPS,
        "follow: second table": steps.FEED,
        "compact": steps.COMPACT,
        "read all, compacted": steps.READ_COMPACTED,
        "read range, compacted": steps.RANGE_COMPACTED,
    }


def _measures(rounds: int) -> dict[str, _Measure]:
    """What is compared, by title; the steps come first."""
    return {
        **{title: _step(phase) for title, phase in _steps(rounds).items()},
        "MB written by changes": _total("written_bytes", 1e6),
        "files written by changes": _total("written_files"),
        "peak memory, MB": _size("peak_bytes"),
        "MB on disk after changes": _size("disk_bytes"),
    }


_PANELS = 12
"""How many of the measures the picture shows."""
_BRIEF = (0, 1, 9, 2, 4, 5, 6, 7, 11)
"""Places of the measures that the README shows."""


def short(value: float) -> str:
    """A number with as many digits as say something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


# tables


def text_of(document: Document) -> str:
    """All tables, as Markdown; a step that a contender lacks has a dash, and the reasons follow."""
    return "\n\n".join(
        f"**{title}**\n\n{table_of(document, group)}" for group, title in GROUPS.items() if _names(document, group)
    )


def sections(documents: Sequence[Document]) -> str:
    """The results of all sizes for the page, with pictures."""
    parts: list[str] = []
    for document in documents:
        parts.append(f"### {document['rows']:,} lines")
        for group, title in GROUPS.items():
            if _names(document, group):
                parts.append(f"**{title}**")
                parts.append(f"![{title}: each step by contender](assets/{picture_name(document, group)})")
                parts.append(table_of(document, group))
    return "\n\n".join(parts)


def brief(documents: Sequence[Document], groups: Sequence[str] = tuple(GROUPS)) -> str:
    """The tables of the README: of each group, the document with the most contenders, and the most rows of those."""
    parts: list[str] = []
    for group in groups:
        document = max(documents, key=lambda each: (len(_names(each, group)), each["rows"]), default=None)
        if document is not None and _names(document, group):
            titles = list(_measures(document["rounds"]))
            chosen = [titles[place] for place in _BRIEF]
            heading = f"{GROUPS[group]}, CPU seconds (wall seconds)"
            parts.append(_table(document, group, heading, chosen))
    return "\n\n".join(parts)


def table_of(document: Document, group: str) -> str:
    """The table of a group, with why some contenders lack a step."""
    reasons: dict[str, list[str]] = {}
    for name in _names(document, group):
        contender = document["contenders"][name]
        for phase, why in (contender["unsupported"] | contender["errors"]).items():
            reasons.setdefault(f"{_label(name)}: {why}", []).append(phase)
    notes = [f"- {', '.join(phases)}: {said}." for said, phases in reasons.items()]
    table = _table(document, group, "CPU seconds (wall seconds)", list(_measures(document["rounds"])))
    return "\n".join([table, *(["", *notes] if notes else [])])


def _table(document: Document, group: str, heading: str, titles: Sequence[str]) -> str:
    measures, phases = _measures(document["rounds"]), _steps(document["rounds"])
    contenders = [(name, document["contenders"][name]) for name in _names(document, group)]
    heads = [f"{_label(name)} {each['version']}".strip() for name, each in contenders]
    lines = [_row([heading, *heads]), _row(["---", *["---:"] * len(contenders)])]
    for title in titles:
        values = [measures[title](each) for _, each in contenders]
        known = [value for value in values if value is not None]
        best = min(known) if len(known) > 1 else None
        wall = _step(phases[title], "seconds") if title in phases else None
        cells = [
            _cell(value, best, wall(each) if wall else None)
            for value, (_, each) in zip(values, contenders, strict=True)
        ]
        lines.append(_row([title, *cells]))
    return "\n".join(lines)


def _names(document: Document, group: str) -> list[str]:
    return [name for name, each in document["contenders"].items() if each["group"] == group]


def _label(name: str) -> str:
    return name.removesuffix(" (Spark)")


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: float | None, best: float | None, wall: float | None) -> str:
    if value is None:
        return "–"
    shown = f"**{short(value)}**" if value == best else short(value)
    return shown if wall is None else f"{shown} ({short(wall)})"


# pictures


def pictures(documents: Sequence[Document]) -> dict[str, str]:
    """All pictures of the page, by file name."""
    return {
        picture_name(document, group): picture(document, group)
        for document in documents
        for group in GROUPS
        if _names(document, group)
    }


def picture_name(document: Document, group: str) -> str:
    """The file of a picture."""
    return f"campaign-{group}-{document['rows']}.svg"


def picture(document: Document, group: str) -> str:
    """A panel of bars for each step, and for bytes, files and memory."""
    contenders = {name: document["contenders"][name] for name in _names(document, group)}
    measures = list(_measures(document["rounds"]).items())[:_PANELS]
    height = len(contenders) * (_BAR + 3) + 34
    parts: list[str] = []
    for number, (title, measure) in enumerate(measures):
        x = _MARGIN + number % _COLUMNS * (_WIDTH + _MARGIN)
        y = _MARGIN + number // _COLUMNS * height
        unit = "" if number >= len(steps.PHASES) else ", CPU s"
        parts += _panel(x, y, title + unit, {name: measure(each) for name, each in contenders.items()})
    y = _MARGIN + -(-len(measures) // _COLUMNS) * height
    said = f"{GROUPS[group]}: {document['rows']:,} lines, {document['rounds']} rounds. Shorter is better."
    parts.append(drawing.text(_MARGIN, y + 4, f"{said} Longer bars are cut, marked ›.", "soft"))
    width = _COLUMNS * (_WIDTH + _MARGIN) + _MARGIN
    return drawing.picture(width, y + 18, "CPU seconds of each step, and bytes, files and memory, by contender", parts)


def _panel(x: float, y: float, title: str, found: Mapping[str, float | None]) -> list[str]:
    known = [value for value in found.values() if value is not None]
    most = min(max(known), _CUT * statistics.median(known)) if known else 1.0
    room = _WIDTH - _NAME - _VALUE
    parts = [drawing.text(x, y + 10, title, "head")]
    for number, (name, value) in enumerate(found.items()):
        top = y + 18 + number * (_BAR + 3)
        parts.append(drawing.text(x + _NAME - 6, top + 12, _label(name), "soft", end=True))
        if value is None:
            parts.append(drawing.text(x + _NAME, top + 12, "–", "soft"))
            continue
        length = max(1.0, min(value, most) / (most or 1.0) * room)
        mark = " ›" if value > most else ""
        parts.append(drawing.bar(x + _NAME, top, length, _BAR, "own" if name.startswith(_OWN) else "other"))
        parts.append(drawing.text(x + _NAME + length + 4, top + 12, short(value) + mark))
    return parts
