"""The logs of a query in its checkpoint, as Spark writes them.

    metadata            {"id": the id of the query}
    offsets/<batch>     "v1", a line with watermark and settings, then a line per source: where the batch ends
    commits/<batch>     "v1", a line with the watermark after the batch: the sink has the batch
    state/              what operators such as aggregations remember from batch to batch

Spark writes `offsets/<n>` before batch n runs, and `commits/<n>` after it. A query that starts goes on where the newest
batch ends. It repeats this batch first if the batch has no commit. Spark removes the files of old batches.
"""

from __future__ import annotations

import json
from typing import Final

from merganser.errors import AlreadyExistsError, ConflictError, InvalidInputError, NotFoundError
from merganser.storage.paths import join
from merganser.storage.protocol import Storage
from merganser.values import dataclass

_VERSION: Final = "v1"
_FIRST_SOURCE: Final = 2
"""Lines before those of the sources: the version and the settings."""


@dataclass(frozen=True)
class QueryLogs:
    """The logs of one query.

    Attributes:
        storage: where the checkpoint is.
        directory: of the checkpoint.
        action: beginning of messages, such as "cannot reset the stream".
    """

    storage: Storage
    directory: str
    action: str

    def query(self) -> str:
        """Return the id of the query.

        Raises:
            NotFoundError: there is no checkpoint.
            InvalidInputError: the checkpoint is damaged, or the query has state.
        """
        try:
            metadata = self.storage.read(join(self.directory, "metadata"))
        except NotFoundError:
            raise NotFoundError(
                f"{self.action}: there is no checkpoint of Spark at '{self.directory}', since it has no file "
                "'metadata'. Nothing was changed. Give the directory that the query has as checkpointLocation; a path "
                "without a scheme is on the disk of this machine.",
                path=self.directory,
            ) from None
        try:
            found = json.loads(metadata)["id"]
        except (ValueError, KeyError, TypeError):
            found = None
        if not isinstance(found, str) or not found:
            raise InvalidInputError(
                f"{self.action}: the file 'metadata' in '{self.directory}' does not name a query. Nothing was changed.",
                path=self.directory,
            )
        if any(True for _ in self.storage.list(join(self.directory, "state"))):
            raise InvalidInputError(
                f"{self.action}: the query keeps state in '{self.directory}/state', such as that of an aggregation or "
                "a join of streams, and rows that were read are part of it. Nothing was changed. Empty the table that "
                "the query writes, and start the query with a new checkpoint.",
                path=self.directory,
            )
        return found

    def batches(self) -> list[int]:
        """Return the batches whose offsets are kept, in order."""
        return self._numbers("offsets")

    def done(self) -> list[int]:
        """Return the batches whose commits are kept, in order."""
        return self._numbers("commits")

    def offsets(self, batch: int) -> tuple[str, ...]:
        """Return the lines of the offsets of a batch.

        Raises:
            InvalidInputError: the file has a format that this version does not know.
        """
        lines = self.storage.read(self._path("offsets", batch)).decode().splitlines()
        if len(lines) <= _FIRST_SOURCE or lines[0] != _VERSION:
            raise InvalidInputError(
                f"{self.action}: '{self._path('offsets', batch)}' does not have the format '{_VERSION}' of Spark's "
                "offsets, but begins with "
                f"{lines[0] if lines else ''!r:.40}. Nothing was changed. Empty the table that the query writes, and "
                "start the query with a new checkpoint.",
                path=self.directory,
            )
        return tuple(lines)

    def raw_offsets(self, batch: int) -> bytes:
        """Return the bytes of the offsets of a batch."""
        return self.storage.read(self._path("offsets", batch))

    def continue_from(self, lines: tuple[str, ...], batch: int) -> int:
        """Make the query go on from offsets, with a batch number that it has never used.

        Two batches are noted that end at these offsets, the second as done. So none of them is run, and no source is
        asked for rows from the newest offsets back to these, which some sources refuse. The number of the next batch
        is higher than all earlier ones: a sink that knows the earlier batches does not take it for a repeated one.

        If this is stopped in between, the query either goes on as before or has a batch without rows. Repeat it.

        Args:
            lines: of the offsets.
            batch: whose watermark holds.

        Returns:
            The number of the next batch.

        Raises:
            ConflictError: another process wrote to the checkpoint in this moment.
        """
        kept = self.done()
        newest = max([*self.batches(), *kept])
        commit = next((number for number in reversed(kept) if number <= batch), None)
        if commit is not None:
            done = self.storage.read(self._path("commits", commit))
        else:
            watermark = json.loads(lines[1]).get("batchWatermarkMs", 0)
            done = f'{_VERSION}\n{{"nextBatchWatermarkMs":{watermark}}}'.encode()
        text = "\n".join(lines).encode()
        for log, number, data in (
            ("offsets", newest + 1, text),
            ("offsets", newest + 2, text),
            ("commits", newest + 2, done),
        ):
            try:
                self.storage.create(self._path(log, number), data)
            except AlreadyExistsError:
                raise ConflictError(
                    f"{self.action}: '{self._path(log, number)}' was written in this moment by another process. The "
                    "query still runs, or is reset by somebody else. Stop it, and repeat the call.",
                    path=self.directory,
                ) from None
        return newest + 3

    def _numbers(self, log: str) -> list[int]:
        names = (entry.name for entry in self.storage.list(join(self.directory, log)) if not entry.is_directory)
        return sorted(int(name) for name in names if name.isdecimal())

    def _path(self, log: str, batch: int) -> str:
        return join(self.directory, f"{log}/{batch}")


def sources_of(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the offsets of the sources, in the order of the query."""
    return lines[_FIRST_SOURCE:]


def with_sources(lines: tuple[str, ...], sources: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines of offsets with others of the sources."""
    return lines[:_FIRST_SOURCE] + sources
