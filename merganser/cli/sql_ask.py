"""The question before a statement that drops, overwrites or removes something, for a person at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def at_terminal() -> bool:
    """Return whether a person reads the output and can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def agreed(session: Any, statement: Any, ask: Callable[[str], str] = input) -> bool:
    """Say what a statement takes away, if it does, and return whether it may run."""
    from merganser.sql.losses import loss

    lost = loss(session.state, session.engine, statement)
    if lost is None:
        return True
    print(lost)
    try:
        answer = ask("Run it? [y/N] ")
    except (EOFError, KeyboardInterrupt):
        answer = ""
        print()
    if answer.strip().lower() in ("y", "yes"):
        return True
    print("Stopped before this statement.")
    return False
