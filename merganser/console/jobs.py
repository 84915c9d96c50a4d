"""Work on tables that takes long: it goes on while the page that began it is left, and any page shows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from threading import Lock, Thread
from typing import Final

from merganser.errors import MerganserError
from merganser.values import dataclass

_KEPT: Final = 50


@dataclass
class Job:
    """One piece of work.

    Attributes:
        what: what it does, as a person says it.
        ended: None: it is at work.
        said: what became of it.
        failed: whether it raised an error, which `said` then tells.
    """

    table: str
    what: str
    begun: datetime
    ended: datetime | None = None
    said: str = ""
    failed: bool = False


class Jobs:
    """The newest jobs of this server. At most one works on a table at a time."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._jobs: deque[Job] = deque(maxlen=_KEPT)
        self._lock = Lock()

    def of(self, table: str) -> list[Job]:
        """Return the jobs of a table, newest first."""
        with self._lock:
            return [job for job in reversed(self._jobs) if job.table == table]

    def begin(self, table: str, what: str, work: Callable[[], str]) -> Job | None:
        """Begin a job in a thread, unless one works on the table; `work` returns what became of it."""
        with self._lock:
            if any(job.table == table and job.ended is None for job in self._jobs):
                return None
            job = Job(table, what, self._clock())
            self._jobs.append(job)
        Thread(target=self._run, args=(job, work), name="merganser-upkeep", daemon=True).start()
        return job

    def _run(self, job: Job, work: Callable[[], str]) -> None:
        try:
            job.said = work()
        except MerganserError as error:
            job.said, job.failed = error.message, True
        except Exception as error:
            job.said, job.failed = f"{type(error).__name__}: {error}", True
        job.ended = self._clock()
