"""BucketJob: work on some buckets of a partition, as a value that pickles; a thread or a task of an engine runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from merganser.commit.message import CommitMessage
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env


class BucketJob(Protocol):
    """Files of a bucket in, files out."""

    @property
    def table(self) -> TableDef:
        """The table of the bucket."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that it reads."""
        ...

    def run(self, env: Env, advance: Callable[[int], None] = lambda _: None) -> tuple[CommitMessage, ...]:
        """Do it. New files are durable; empty when nothing had to change.

        Args:
            advance: may be told how many bytes more, about, of `size_bytes` are done.
        """
        ...
