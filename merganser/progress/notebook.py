"""Progress in a notebook: one output of the cell, which is replaced as work goes on and emptied at the end.

Rich itself would need `ipywidgets` for that, and prints nothing without it.
"""

from __future__ import annotations

import threading
from typing import Final

from IPython.display import HTML, display
from rich.progress import Progress
from rich.table import Table

_EVERY_SECONDS: Final = 0.5
"""Seconds between two updates: each is a message to the browser, and is kept until the browser has drawn it."""


class Output:
    """Shows the tasks of a `Progress` of Rich, which is not started itself.

    Args:
        drawn: what is shown.
    """

    def __init__(self, drawn: Progress) -> None:
        self._drawn = drawn
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._refresh, name="merganser-notebook", daemon=True)

    def start(self) -> None:
        """Make the output, and go on updating it."""
        self._handle = display(self._table(), display_id=True)
        self._thread.start()

    def stop(self) -> None:
        """Empty the output."""
        self._over.set()
        self._thread.join()
        self._handle.update(HTML(""))

    def _table(self) -> Table:
        return self._drawn.make_tasks_table(self._drawn.tasks)

    def _refresh(self) -> None:
        while not self._over.wait(_EVERY_SECONDS):
            self._handle.update(self._table())
