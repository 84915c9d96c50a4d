"""What a check has found so far, and how a look at one file becomes a finding where it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import field
from typing import TypeVar

from merganser.errors import MerganserError, NotFoundError, StorageError, UnsupportedError
from merganser.lsm.check import Finding
from merganser.storage.env import Env
from merganser.values import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Holder:
    """A snapshot that needs what is looked at.

    Attributes:
        snapshot: its id.
        path: its file, or that of the tag or changelog it was read from.
    """

    snapshot: int
    path: str


@dataclass(slots=True)
class Findings:
    """Findings, each once, in the order they came. Threads may share it."""

    _found: dict[Finding, frozenset[str]] = field(default_factory=dict)
    _said: set[tuple[str, str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, finding: Finding, holders: frozenset[str] = frozenset()) -> None:
        """Note a finding.

        Args:
            holders: files of the snapshots that make it one. Once all of them are gone it is none: expiry removes
                snapshots and their files while a check goes on. Empty: it stays.
        """
        with self._lock:
            if (finding.path, finding.problem) not in self._said:
                self._said.add((finding.path, finding.problem))
                self._found[finding] = holders

    def note(self, code: str, path: str, problem: str, holder: Holder | None = None) -> None:
        """Note that something is wrong with a file."""
        number = None if holder is None else holder.snapshot
        self.add(Finding(code, path, problem, number), frozenset() if holder is None else frozenset([holder.path]))

    def tried(self, path: str, work: Callable[[], T], holder: Holder | None = None) -> T | None:
        """Return what `work` returns; None, with a finding, when it cannot be done."""
        try:
            return work()
        except NotFoundError:
            self.note("missing", path, "it is not there, and metadata names it.", holder)
        except MerganserError as error:
            self.note(code_of(error), path, str(error), holder)
        return None

    def standing(self, env: Env) -> tuple[Finding, ...]:
        """Return those that something there still needs."""
        exists = env.storage.exists
        with self._lock:
            return tuple(found for found, holders in self._found.items() if not holders or any(map(exists, holders)))


def code_of(error: MerganserError) -> str:
    """Return the code of a finding of which an error tells."""
    return "unreadable" if isinstance(error, StorageError | UnsupportedError) else "damaged"
