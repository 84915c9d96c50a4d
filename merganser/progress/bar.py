"""A progress bar in a terminal or a notebook. Loaded when the first one is drawn: Rich takes a tenth of a second."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from merganser.progress.sizes import size_text
from merganser.progress.work import in_notebook

if TYPE_CHECKING:
    from merganser.progress.notebook import Output


class _Bytes(ProgressColumn):
    """Bytes done, of all where that is known, and how many a second."""

    def render(self, task: Task) -> Text:
        done = size_text(int(task.completed))
        of_all = "" if task.total is None else f" of {size_text(int(task.total))}"
        rate = "" if task.speed is None else f", {size_text(int(task.speed))}/s"
        return Text(done + of_all + rate)


class _Time(ProgressColumn):
    """Time left; while that is not known, time taken, which shows that it lives."""

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        seconds, what = (task.elapsed or 0, "so far") if left is None else (left, "left")
        return Text(f"{timedelta(seconds=int(seconds))} {what}")


class Bar:
    """Title, share done, bytes, rate, steps and time left; it leaves no line behind.

    Work of so many steps and an unknown number of bytes, such as expiry, is counted in steps alone.
    """

    def __init__(self, stream: IO[str], title: str, size_bytes: int | None, steps: int | None) -> None:
        self._steps, self._in_steps = steps, size_bytes is None and steps is not None
        sizes = () if self._in_steps else (_Bytes(Column(no_wrap=True)),)
        self._drawn = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *sizes,
            TextColumn("{task.fields[counted]}"),
            _Time(Column(no_wrap=True)),
            console=Console(file=stream),
            transient=True,
        )
        self._task = self._drawn.add_task(title, total=steps if self._in_steps else size_bytes, counted="")
        self._screen = _screen(self._drawn)
        self._screen.start()

    def update(self, done_bytes: int, done_steps: int) -> None:
        """Show how much is done."""
        counted = "" if self._steps is None else f"{done_steps:,} of {self._steps:,}"
        self._drawn.update(self._task, completed=done_steps if self._in_steps else done_bytes, counted=counted)

    def stop(self) -> None:
        """Take it off the screen."""
        self._screen.stop()


def _screen(drawn: Progress) -> Progress | Output:
    """Return what shows progress where this process runs."""
    if not in_notebook():
        return drawn
    from merganser.progress.notebook import Output  # noqa: PLC0415 - IPython, which a kernel has

    return Output(drawn)


class Lines:
    """A title, what is said and the time so far, for each of several streams; they leave no line behind."""

    def __init__(self, stream: IO[str]) -> None:
        self._drawn = Progress(
            TextColumn("{task.description}", markup=False, style="bold"),
            TextColumn("{task.fields[said]}", markup=False),
            _Time(Column(no_wrap=True)),
            console=Console(file=stream),
            transient=True,
            refresh_per_second=2,
        )
        self._tasks: dict[int, TaskID] = {}
        self._drawn.start()

    def update(self, said: Mapping[int, tuple[str, str]]) -> None:
        """Show what is said of each stream, by its number, after its title."""
        for number in self._tasks.keys() - said.keys():
            self._drawn.remove_task(self._tasks.pop(number))
        for number, (title, text) in said.items():
            if number in self._tasks:
                self._drawn.update(self._tasks[number], said=text)
            else:
                self._tasks[number] = self._drawn.add_task(title, total=None, said=text)

    def stop(self) -> None:
        """Take them off the screen."""
        self._drawn.stop()
