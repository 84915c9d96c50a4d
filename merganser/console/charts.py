"""Charts as SVG, without a script: lines over time or numbers, columns in an order, and bars of names.

A chart is as wide as its place. Shapes are stretched, texts are not: places along the width are percentages, the
height and the labels of the values are pixels. What a point stands for is its `<title>`, which browsers show on hover.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, TypeAlias, cast

from markupsafe import Markup

from merganser.progress.sizes import size_text
from merganser.values import dataclass

Place: TypeAlias = datetime | float

_TOP: Final = 8
_BOTTOM: Final = 22
_DRAWN_MAX: Final = 600
_HITS_MAX: Final = 200
_POINTS_MAX: Final = 40
_BARS_MAX: Final = 40
_BAR: Final = 24
_NAME_MAX: Final = 28
_LETTER: Final = 6.4
_PLAIN_MAX: Final = 1e18
_DRAWABLE_MAX: Final = 1e300
_TICKS: Final = 4
_DAY: Final = 86_400
_SECONDS: Final = (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, _DAY, 2 * _DAY, 7 * _DAY)
_MONTHS: Final = (1, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 6000)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a `column_chart`.

    Attributes:
        label: below the column, if there is room.
        up, down: its height above and below the line of zero, neither negative.
        note: what it stands for.
        marked: whether it is shown as one to look at.
    """

    label: str
    up: float
    down: float = 0.0
    note: str = ""
    marked: bool = False


def line_chart(
    points: Sequence[tuple[datetime, float]] | Sequence[tuple[float, float]],
    *,
    title: str,
    unit: str = "",
    height: int = 170,
    steps: bool = False,
) -> Markup:
    """Return a line through points, in the order of their places; the values begin at zero.

    Args:
        points: places, all of them times or all of them numbers, and values. A time without a zone is in UTC. What
            is no finite number is left out.
        title: what is shown; it stands above the chart and is its name for screen readers.
        unit: "bytes", "s" or any other word behind the values.
        steps: a value holds until the next place, as the size of a table does.
    """
    found = sorted((_utc(place), float(value)) for place, value in points if _drawable(value) and _drawable(place))
    if not found:
        return _nothing(title)
    low, high = min(0.0, *(value for _, value in found)), max(0.0, *(value for _, value in found))
    scale = _Scale(low, high, unit, height)
    at, marks = _places([place for place, _ in found])
    drawn = _thinned([(x, value) for x, (_, value) in zip(at, found, strict=True)])
    path: list[str] = []
    for i, (x, value) in enumerate(drawn):
        y = scale.at(value)
        if i and steps:
            path.append(f"L{x:.2f} {scale.at(drawn[i - 1][1]):.2f}")
        path.append(f"{'L' if i else 'M'}{x:.2f} {y:.2f}")
    line, zero = "".join(path), scale.at(0.0)
    shapes = [
        _stretched(
            f'<path class="area" d="{line}L{drawn[-1][0]:.2f} {zero:.2f}L{drawn[0][0]:.2f} {zero:.2f}Z"/>'
            f'<path class="series" vector-effect="non-scaling-stroke" d="{line}"/>',
            height,
        )
    ]
    count = min(len(found), _HITS_MAX)
    picked = [i * len(found) // count for i in range(count)]
    edges = [0.0, *((at[a] + at[b]) / 2 for a, b in pairwise(picked)), 100.0]
    for i, (left, right) in zip(picked, pairwise(edges), strict=True):
        place, value = found[i]
        shapes.append(_hit(left, right, height, f"{_place_text(place)}: {value_text(value, unit, exact=True)}"))
        if count <= _POINTS_MAX:
            shapes.append(Markup(f'<circle class="point" cx="{at[i]:.2f}%" cy="{scale.at(value):.1f}" r="2.5"/>'))
    newest = value_text(found[-1][1], unit)
    spoken = f"{title}: {_place_text(found[0][0])} to {_place_text(found[-1][0])}, the last value is {newest}"
    return _figure(title, spoken, scale, marks, shapes, newest)


def column_chart(columns: Sequence[Column], *, title: str, unit: str = "", height: int = 140) -> Markup:
    """Return columns side by side, in their order, each with its note on hover.

    Args:
        columns: at most a few hundred, so that each can be seen.
        title: what is shown; it stands above the chart and is its name for screen readers.
        unit: "bytes", "s" or any other word behind the values.
    """
    if not columns:
        return _nothing(title)
    high, low = max(each.up for each in columns), -max(each.down for each in columns)
    scale = _Scale(low, high, unit, height)
    zero, width = scale.at(0.0), 100.0 / max(len(columns), 12)
    shapes = []
    for i, each in enumerate(columns):
        left = i * width
        for value, kind in ((each.up, "up marked" if each.marked else "up"), (-each.down, "down")):
            if value:
                top, end = sorted((scale.at(value), zero))
                shapes.append(
                    Markup(
                        f'<rect class="bar {kind}" x="{left + width * 0.1:.3f}%" width="{width * 0.8:.3f}%" '
                        f'y="{top:.2f}" height="{max(end - top, 1.0):.2f}"/>'
                    )
                )
        shapes.append(_hit(left, left + width, height, each.note or each.label))
    picked = sorted({round(i * (len(columns) - 1) / (_TICKS - 1)) for i in range(_TICKS)})
    if len(columns) < 12:
        picked = [0, len(columns) - 1] if len(columns) > 1 else [0]
    marks = [((i + 0.5) * width, columns[i].label) for i in picked]
    total = value_text(sum(each.up for each in columns), unit)
    spoken = f"{title}: {len(columns)} columns from {columns[0].label} to {columns[-1].label}, {total} in all"
    return _figure(title, spoken, scale, marks, shapes, "")


def bar_chart(bars: Sequence[tuple[str, float]], *, title: str, unit: str = "") -> Markup:
    """Return a bar from left to right for each name, in the order given; the first 40 are drawn.

    Args:
        bars: names and values; what is no finite number is left out.
        title: what is shown; it stands above the chart and is its name for screen readers.
        unit: "bytes", "s" or any other word behind the values.
    """
    found = [(name, float(value)) for name, value in bars if _drawable(value)]
    if not found:
        return _nothing(title)
    drawn = found[:_BARS_MAX]
    low, high = min(0.0, *(value for _, value in drawn)), max(0.0, *(value for _, value in drawn))
    width = (high - low) or 1.0
    names = [name if len(name) <= _NAME_MAX else name[: _NAME_MAX - 1] + "…" for name, _ in drawn]
    side = round(max(len(name) for name in names) * _LETTER + 12)
    labels, shapes = [], []
    for i, (name, value) in enumerate(drawn):
        y = i * _BAR
        left, right = ((min(value, 0.0) - low) / width * 78, (max(value, 0.0) - low) / width * 78)
        told = value_text(value, unit)
        labels.append(Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(side - 8, y + 16, names[i]))
        shapes.append(
            Markup(
                '<rect class="bar {}" x="{:.2f}%" width="{:.2f}%" y="{}" height="{}" rx="2">'
                '<title>{}: {}</title></rect><text x="{:.2f}%" dx="6" y="{}">{}</text>'
            ).format(
                "down" if value < 0 else "up",
                left,
                max(right - left, 0.3),
                y + 3,
                _BAR - 6,
                name,
                value_text(value, unit, exact=True),
                right,
                y + 16,
                told,
            )
        )
    more = f" (the first {len(drawn)} of {len(found):,})" if len(drawn) < len(found) else ""
    largest = max(drawn, key=lambda each: each[1])
    spoken = f"{title}{more}: the largest is {largest[0]} with {value_text(largest[1], unit)}"
    return Markup('<figure class="plot"><figcaption>{}</figcaption><div class="plot-body">{}{}</div></figure>').format(
        title + more, _side(side, len(drawn) * _BAR, labels), _field(spoken, len(drawn) * _BAR, shapes)
    )


def value_text(value: float, unit: str = "", *, exact: bool = False) -> str:
    """Return a value with its unit as a person reads it, such as 1.2M rows or 3.4 MB; exact: with all digits."""
    if unit == "bytes" and abs(value) < _PLAIN_MAX:
        return size_text(round(value)) if value >= 0 else f"-{size_text(round(-value))}"
    text = _number(value, exact=exact)
    return f"{text} {unit}" if unit else text


def _number(value: float, *, exact: bool) -> str:
    if exact or abs(value) < 10_000:
        if value == int(value) and abs(value) < 1e15:
            return f"{int(value):,}"
        return f"{value:,.{6 if exact else 3}g}"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return (
                f"{value / size:,.{3 if abs(value) < 1000 * size else 4}g}{letter}" if value < 1e16 else f"{value:.2g}"
            )
    return f"{value:.3g}"


class _Scale:
    """From values to pixels from the top, with the values that are marked."""

    def __init__(self, low: float, high: float, unit: str, height: int) -> None:
        if high - low < 1 / _DRAWABLE_MAX:
            high = low + 1.0
        step = _step((high - low) / 3, binary=unit == "bytes")
        self.low, self.high = math.floor(low / step) * step, math.ceil(high / step) * step
        self.ticks = [self.low + i * step for i in range(round((self.high - self.low) / step) + 1)]
        self.labels = [value_text(abs(tick) if tick == 0 else tick, unit) for tick in self.ticks]
        self.height = height

    def at(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return _TOP + (1 - part) * (self.height - _TOP - _BOTTOM)


def _step(least: float, *, binary: bool = False) -> float:
    """Return the smallest round number from `least` on."""
    if binary and least >= 1:
        base = 1024.0 ** math.floor(math.log(least, 1024))
        for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1024):
            if base * factor >= least:
                return base * factor
    base = 10.0 ** math.floor(math.log10(least))
    return next(base * factor for factor in (1, 2, 5, 10) if base * factor >= least * 0.999999)


def _places(places: Sequence[Place]) -> tuple[list[float], list[tuple[float, str]]]:
    """Return where places in rising order lie, in percent of the width, and which marks are drawn below."""
    first, last = places[0], places[-1]
    if isinstance(first, datetime):
        times = cast(Sequence[datetime], places)
        wide = (times[-1] - first).total_seconds()
        at = [(each - first).total_seconds() / wide * 100 if wide else 50.0 for each in times]
        found = _time_ticks(first, times[-1])
        if len(found) < 2:
            found = [(each, _moment(each)) for each in ((first, times[-1]) if wide else (first,))]
        return at, [((tick - first).total_seconds() / wide * 100 if wide else 50.0, text) for tick, text in found]
    numbers = cast(Sequence[float], places)
    wide = numbers[-1] - first
    if wide < 1 / _DRAWABLE_MAX:
        wide = 0.0
    at = [(each - first) / wide * 100 if wide else 50.0 for each in numbers]
    if not wide:
        return at, [(50.0, _number(first, exact=False))]
    step = _step(wide / _TICKS)
    begin = math.ceil(first / step)
    ticks = [(begin + i) * step for i in range(_TICKS + 2) if (begin + i) * step <= cast(float, last)]
    return at, [((tick - first) / wide * 100, _number(tick, exact=False)) for tick in ticks]


def _time_ticks(first: datetime, last: datetime) -> list[tuple[datetime, str]]:
    """Return round times between two, each with its text: as much of it as differs between them."""
    wide = (last - first).total_seconds()
    step = next((each for each in _SECONDS if wide / each < _TICKS), None)
    if step is not None:
        day = first.replace(hour=0, minute=0, second=0, microsecond=0)
        if step >= _DAY:
            day = first.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        begin = day + math.ceil((first - day).total_seconds() / step) * timedelta(seconds=step)
        found = [begin + i * timedelta(seconds=step) for i in range(_TICKS + 1)]
        form = "%Y-%m-%d" if step >= _DAY else "%H:%M" if step >= 60 else "%H:%M:%S"
        if step < _DAY and first.date() != last.date():
            form = "%m-%d %H:%M"
        return [(each, f"{each:{form}}") for each in found if first <= each <= last]
    months = next((each for each in _MONTHS if wide / (each * 30.4 * _DAY) <= _TICKS), _MONTHS[-1])
    at = (first.year * 12 + first.month - 1) // months * months
    ticks = []
    for number in range(at, at + months * (_TICKS + 2), months):
        if 12 <= number < 9999 * 12:
            ticks.append(datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC))
    form = "%Y" if months >= 12 else "%Y-%m"
    return [(each, f"{each:{form}}") for each in ticks if first <= each <= last]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return few points of many, which still show each peak."""
    if len(points) <= _DRAWN_MAX:
        return points
    size = math.ceil(len(points) / (_DRAWN_MAX // 4))
    kept: list[tuple[float, float]] = []
    for begin in range(0, len(points), size):
        some = points[begin : begin + size]
        low, high = min(some, key=lambda each: each[1]), max(some, key=lambda each: each[1])
        kept += sorted({some[0], low, high, some[-1]})
    return kept


def _figure(
    title: str, spoken: str, scale: _Scale, marks: list[tuple[float, str]], shapes: list[Markup], newest: str
) -> Markup:
    side = round(max(len(label) for label in scale.labels) * _LETTER + 12)
    labels, lines = [], []
    for tick, label in zip(scale.ticks, scale.labels, strict=True):
        y = scale.at(tick)
        kind = "axis zero" if tick == 0 else "axis"
        lines.append(Markup(f'<line class="{kind}" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'))
        labels.append(Markup(f'<text x="{side - 8}" y="{y + 4:.1f}" text-anchor="end">{{}}</text>').format(label))
    below = []
    for x, text in marks:
        anchor = "start" if x < 8 else "end" if x > 92 else "middle"
        below.append(
            Markup(f'<text x="{x:.2f}%" y="{scale.height - 5}" text-anchor="{anchor}">{{}}</text>').format(text)
        )
    return Markup(
        '<figure class="plot"><figcaption>{}{}</figcaption><div class="plot-body">{}{}</div></figure>'
    ).format(
        title,
        Markup(" <b>{}</b>").format(newest) if newest else "",
        _side(side, scale.height, labels),
        _field(spoken, scale.height, [*lines, *shapes, *below]),
    )


def _side(width: int, height: int, labels: list[Markup]) -> Markup:
    return Markup(f'<svg aria-hidden="true" width="{width}" height="{height}">{{}}</svg>').format(
        Markup("").join(labels)
    )


def _field(spoken: str, height: int, shapes: list[Markup]) -> Markup:
    return Markup(f'<svg class="field" role="img" height="{height}"><title>{{}}</title>{{}}</svg>').format(
        spoken, Markup("").join(shapes)
    )


def _stretched(shapes: str, height: int) -> Markup:
    """Return shapes whose places along the width are in percent; only numbers are in them."""
    return Markup(
        f'<svg viewBox="0 0 100 {height}" preserveAspectRatio="none" width="100%" height="{height}">{shapes}</svg>'
    )


def _hit(left: float, right: float, height: int, told: str) -> Markup:
    """Return what is hovered to be told of a point."""
    return Markup(
        f'<rect class="hit" x="{left:.3f}%" width="{right - left:.3f}%" y="{_TOP}" height="{height - _TOP - _BOTTOM}">'
        "<title>{}</title></rect>"
    ).format(told)


def _nothing(title: str) -> Markup:
    return Markup(
        '<figure class="plot"><figcaption>{}</figcaption><p class="empty">Nothing to draw yet.</p></figure>'
    ).format(title)


def _utc(place: Place) -> Place:
    if isinstance(place, datetime):
        return place.replace(tzinfo=UTC) if place.tzinfo is None else place.astimezone(UTC)
    return float(place)


def _drawable(value: Place) -> bool:
    return isinstance(value, datetime) or abs(value) < _DRAWABLE_MAX


def _moment(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}"


def _place_text(place: Place) -> str:
    return f"{_moment(place)} UTC" if isinstance(place, datetime) else _number(place, exact=True)
