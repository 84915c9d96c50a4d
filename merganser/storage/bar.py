"""A progress bar in a terminal. Loaded when the first one is drawn: Rich takes a tenth of a second."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


class Bar:
    """Title, share done, bytes, rate, steps and time left; it leaves no line behind.

    Work of so many steps and an unknown number of bytes, such as expiry, is counted in steps alone.
    """

    def __init__(self, stream: IO[str], title: str, size_bytes: int | None, steps: int | None) -> None:
        self._steps, self._in_steps = steps, size_bytes is None and steps is not None
        sizes = () if self._in_steps else (DownloadColumn(), TransferSpeedColumn())
        self._drawn = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *sizes,
            TextColumn("{task.fields[counted]}"),
            TimeRemainingColumn(),
            console=Console(file=stream),
            transient=True,
        )
        self._task = self._drawn.add_task(title, total=steps if self._in_steps else size_bytes, counted="")
        self._drawn.start()

    def update(self, done_bytes: int, done_steps: int) -> None:
        """Show how much is done."""
        counted = "" if self._steps is None else f"{done_steps:,} of {self._steps:,}"
        self._drawn.update(self._task, completed=done_steps if self._in_steps else done_bytes, counted=counted)

    def stop(self) -> None:
        """Take it off the screen."""
        self._drawn.stop()
