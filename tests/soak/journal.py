"""What a worker did, on disk before it goes on: the ledger that the table is held against at the end."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Journal:
    """The commits of one writer in one table: a line when one begins and one when it was acknowledged, both synced."""

    path: Path

    def begin(self, n: int) -> None:
        """Note that commit n is tried."""
        self._append(f"begin {n}\n", sync=True)

    def done(self, n: int) -> None:
        """Note that commit n was acknowledged."""
        self._append(f"done {n}\n", sync=True)

    def position(self) -> tuple[int, int]:
        """Return the last commit that was acknowledged and the last that was tried; a torn last line is none."""
        acknowledged = tried = 0
        if self.path.exists():
            for line in self.path.read_text().split("\n")[:-1]:
                word, _, number = line.partition(" ")
                if word == "done":
                    acknowledged = int(number)
                elif word == "begin":
                    tried = int(number)
        return acknowledged, max(tried, acknowledged)

    def _append(self, text: str, *, sync: bool) -> None:
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, text.encode())
            if sync:
                os.fsync(file)
        finally:
            os.close(file)


@dataclass(frozen=True)
class Events:
    """A line for everything that a worker did, to be counted."""

    path: Path

    def note(self, what: str) -> None:
        """Add one."""
        Journal(self.path)._append(what.replace("\n", " ") + "\n", sync=False)

    def counts(self) -> dict[str, int]:
        """Return how often each thing was done."""
        out: dict[str, int] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                out[line] = out.get(line, 0) + 1
        return out
