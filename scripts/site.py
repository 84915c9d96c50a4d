"""Hooks of mkdocs: what differs between the pages as they are in the repository and as the site shows them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^```(python|sh|sql) ([\w.]+)$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """List each page of a folder whose name is in the navigation, the newest decision last."""
    docs = Path(config.docs_dir)
    for section in config.nav:
        for entries in section.values():
            for entry in entries if isinstance(entries, list) else []:
                for title, target in entry.items() if isinstance(entry, dict) else ():
                    if isinstance(target, str) and (docs / target).is_dir():
                        pages = sorted(
                            (docs / target).glob("*.md"), key=lambda page: (page.name != "README.md", page.name)
                        )
                        entry[title] = [page.relative_to(docs).as_posix() for page in pages]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Show the name of a program above its code, and drop marks that only the tests read."""
    return _FENCE.sub(
        lambda found: f'```{found[1]} title="{found[2]}"' if "." in found[2] else f"```{found[1]}", markdown
    )
