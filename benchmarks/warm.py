"""What every client may do before its clock starts: import, and once create, write, plan and read a table of its own.

Lazy imports and the first use of a thread pool would otherwise be charged to whichever action comes first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def warm_up(client: ModuleType) -> None:
    """Take a client's module through a table of twenty rows; a module that has a `warm_up` of its own does that."""
    own: Callable[[], None] | None = getattr(client, "warm_up", None)
    if own is not None:
        own()
        return
    with tempfile.TemporaryDirectory(prefix="merganser-warm-") as directory:
        table = str(Path(directory) / "db.db" / "t")
        _run(client.create_and_commit(table, rows=10, commits=2, key_space=1000))
        _run(client.scan(table, columns=["k", "f64"]))
        _run(client.scan(table, key_range=[0, 500]))
        _run(client.scan(table, value_below=500_000))
        _run(client.plan_cold(table))


def _run(action: Callable[[], Any]) -> None:
    action()
