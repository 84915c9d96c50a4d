"""Templates: how values become HTML."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final

import jinja2

from merganser.progress.sizes import size_text

STATIC: Final = ("console.css", "console.js", "icon.svg")
_KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def environment() -> jinja2.Environment:
    """Return the templates, with what they may call."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("merganser.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "size": size_text,
        "count": count,
        "moment": moment,
        "iso": iso,
        "ago": ago,
        "span": span,
        "cut": cut,
    }
    made.globals["static"] = {name: f"/static/{name}?v={_digest(name)}" for name in STATIC}
    return made


def render(template: str, context: Mapping[str, Any], part: str | None = None) -> bytes:
    """Return a page, or one block of it.

    Raises:
        KeyError: the page has no such block.
    """
    found = environment().get_template(f"{template}.html")
    if part is None:
        return found.render(context).encode()
    return "".join(found.blocks[part](found.new_context(dict(context)))).encode()


@cache
def static_file(name: str) -> tuple[bytes, str]:
    """Return a file of the console and its kind.

    Raises:
        KeyError: there is none of the name.
    """
    if name not in STATIC:
        raise KeyError(name)
    return files("merganser.console").joinpath("static", name).read_bytes(), _KINDS[name.rpartition(".")[2]]


def _digest(name: str) -> str:
    return hashlib.sha256(static_file(name)[0]).hexdigest()[:12]


def count(value: int | None) -> str:
    """Return a number such as 1,234,567, a dash for none."""
    return "–" if value is None else f"{value:,}"


def moment(value: datetime | None) -> str:
    """Return a time in UTC, to the second."""
    return "–" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def iso(value: datetime) -> str:
    """Return a time as the attribute of an element has it."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds")


def ago(value: datetime | None, now: datetime) -> str:
    """Return how long before another time one is, in its largest unit."""
    return "–" if value is None else span(now - value)


def span(passed: timedelta) -> str:
    """Return how long something took, in its largest unit."""
    seconds = max(0.0, passed.total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.0f} s"


def cut(text: str, most: int = 300) -> str:
    """Return a text, or the beginning of a long one."""
    return text if len(text) <= most else text[:most] + "…"
