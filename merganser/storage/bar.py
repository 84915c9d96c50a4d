"""A progress bar in a terminal. Loaded when the first one is drawn: Rich takes a tenth of a second."""

from __future__ import annotations

from typing import IO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


class Bar:
    """Title, share done, bytes, rate, steps and time left; it leaves no line behind."""

    def __init__(self, stream: IO[str], title: str, size_bytes: int | None) -> None:
        self._drawn = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TextColumn("{task.fields[counted]}"),
            TimeRemainingColumn(),
            console=Console(file=stream),
            transient=True,
        )
        self._task = self._drawn.add_task(title, total=size_bytes, counted="")
        self._drawn.start()

    def update(self, done_bytes: int, counted: str) -> None:
        """Show how much is done."""
        self._drawn.update(self._task, completed=done_bytes, counted=counted)

    def stop(self) -> None:
        """Take it off the screen."""
        self._drawn.stop()
