"""Hooks of mkdocs: what differs between the pages as they are in the repository and as the site shows them."""

from __future__ import annotations

import re
from typing import Any

_FENCE = re.compile(r"^```(python|sh|sql) ([\w.]+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Show the name of a program above its code, and drop marks that only the tests read."""
    return _FENCE.sub(
        lambda found: f'```{found[1]} title="{found[2]}"' if "." in found[2] else f"```{found[1]}", markdown
    )
