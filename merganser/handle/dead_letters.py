"""Bad records of one write, on their way to the table of dead letters."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.meta.snapshot import Snapshot


class _Table(Protocol):
    def write(
        self, data: pa.Table, *, commit_user: str | None = None, identifier: int | None = None
    ) -> Snapshot | None: ...


class DeadLetters:
    """Writes the bad records of one write to a table of dead letters, before the commit of the write.

    Args:
        letters: this table; None: a bad record makes the write fail.
        table: the name of the table that the records were meant for.
        time: the current time.
        user, identifier: of the commit of the write, so that a repetition writes no letter twice.

    Attributes:
        count: how many letters there were so far.
    """

    def __init__(
        self, letters: _Table | None, table: str, time: datetime, user: str | None, identifier: int | None
    ) -> None:
        self._letters = letters
        self._table = table
        self._time = time
        self._user = user
        self._identifier = identifier
        self.count = 0

    def bury(self, rejected: pa.Table, *, of: str = "") -> None:
        """Write bad records as one commit.

        Args:
            rejected: as in `cdc.Parsed`.
            of: tells this commit of the write from others.

        Raises:
            InvalidInputError: there is no table for them; nothing was written.
        """
        from merganser.cdc.records import letters_of, letters_user

        if not rejected.num_rows:
            return
        if self._letters is None:
            record = rejected.column("record")[0]
            raise InvalidInputError(
                f"cannot write change records to '{self._table}': {rejected.num_rows} of them cannot be written"
                f"{f', first record {record}' if record.is_valid else ''}: {rejected.column('reason')[0]}. Nothing was "
                "written. Give dead_letters= for such records, or repair them at their source.",
                record=record.as_py(),
            )
        rows = letters_of(rejected, self._table, self._time)
        user = letters_user(self._user, self._table + of)
        snapshot = self._letters.write(rows, commit_user=user, identifier=self._identifier)
        self.count += rejected.num_rows
        # An earlier attempt of the write may have found other stored rows, and so other bad records.
        if snapshot is not None and snapshot.delta_record_count != rows.num_rows:
            self._letters.write(rows)
