"""Small pictures as SVG, for pages of the docs: parts of a picture, and the frame around them.

A picture has a panel and two sets of colours, and takes the set that the reader's system asks for. Its texts stay
readable on a light page and on a dark one, since they stand on the panel. It has no script and names no other file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_STYLE = """\
svg { font: 12px system-ui, sans-serif; }
.panel { fill: #fbfbfa; stroke: #d8d8d4; } .frame { stroke: #b9b9b4; } text { fill: #333; } .soft { fill: #666; }
.head { font-weight: 600; } .line { fill: none; stroke: #00716a; stroke-width: 2; } .dot { fill: #00716a; }
.own { fill: #00716a; } .other { fill: #a9b7b6; } .limit { stroke: #d9541e; stroke-dasharray: 4 3; }
@media (prefers-color-scheme: dark) {
.panel { fill: #1b1f27; stroke: #3a404c; } .frame { stroke: #4d5461; } text { fill: #e3e3e0; } .soft { fill: #a3a9b3; }
.line { stroke: #4cc7bb; } .dot { fill: #4cc7bb; } .own { fill: #4cc7bb; } .other { fill: #5b6675; }
.limit { stroke: #ff8a5c; } }"""


def picture(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """A whole picture; `title` is what a reader without eyes gets."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="panel" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="6"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def text(x: float, y: float, content: str, kind: str = "", *, end: bool = False) -> str:
    """A text whose baseline begins at a place, or ends there."""
    anchor = ' text-anchor="end"' if end else ""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}{anchor}>{escape(content)}</text>'


def bar(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A bar that begins at the left."""
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def level(x: float, y: float, width: float, kind: str) -> str:
    """A horizontal line."""
    return f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{x + width:.1f}" y2="{y:.1f}"/>'


def line(points: Sequence[tuple[float, float]]) -> list[str]:
    """A line through points, with a dot at the last one."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    return [f'<polyline class="line" points="{path}"/>', f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>']
