"""What merganser reads in the checkpoint of a Spark query, and the notes that it keeps there.

    <checkpoint>/offsets/<batch>     Spark's; the second line has the watermark
    <checkpoint>/offsets/.0.*.tmp    Spark's: the first batch, until it is renamed
    <checkpoint>/merganser/<table>   ours: which table of this place the query has written to

A query that goes on from a checkpoint writes the batches that follow. So a table that was dropped and made anew lacks
the rows of all earlier batches, and nothing else would tell. Spark leaves files alone that it does not know. A store
that cannot be read or written takes nothing from a query but this check.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from functools import partial
from typing import Final

from merganser.errors import ConflictError, MerganserError
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.storage.protocol import Storage
from merganser.values import dataclass

_FIRST_SCHEMA: Final = 0
_UNFINISHED: Final = re.compile(r"\.{1,2}0\.[0-9a-f-]+\.tmp(\.crc)?")
"""Names of Spark's notes of batch 0, and of their checksums, before they are renamed."""


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of a query.

    Attributes:
        storage: the one of the table.
        directory: as Spark names it.
    """

    storage: Storage
    directory: str

    def offsets(self, batch: int) -> bytes | None:
        """Return what Spark keeps of the offsets of a batch; None: it cannot be read."""
        return self._read(f"offsets/{batch}")

    def clear_first_batch(self) -> None:
        """Remove the files of a first batch that Spark was about to note when it was killed.

        Spark writes a note under another name and renames it. A query without a batch does not start if there is any
        file in this directory, these ones included (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY), though it has done
        nothing yet.
        """
        with contextlib.suppress(MerganserError, OSError):
            names = [entry.name for entry in self.storage.list(self._path("offsets"))]
            if names and all(_UNFINISHED.fullmatch(name) for name in names):
                self.storage.delete(self._path(f"offsets/{name}") for name in names)

    def check_table(self, table: TableDef, env: Env, action: str) -> bool:
        """Refuse a table that was made anew since the query wrote to the one at its place.

        Args:
            env: sends the requests side by side.

        Returns:
            Whether the table is noted.

        Raises:
            ConflictError: it was.
        """
        before, now = env.beside(partial(self._noted, table), partial(self._made, table))
        if before is None:
            return False
        if now is not None and before != now:
            raise ConflictError(
                f"{action}: the table was dropped and made anew since this query wrote to it, so the rows of the "
                "earlier batches are not there. Nothing of this batch was written. Start the query with a new "
                f"checkpoint to load them again. To go on without them, remove '{self._path(self._note(table))}'.",
                table=table.name,
            )
        return True

    def note_table(self, table: TableDef) -> None:
        """Note that the query has written to a table."""
        place = table.paths.metadata_root
        now = self._made(table)
        if now is None:
            return
        with contextlib.suppress(MerganserError, OSError):
            note = json.dumps({"table": place, "made": now}).encode()
            self.storage.replace(self._path(self._note(table)), note, durable=True)

    def tables(self) -> list[str]:
        """Return the places of the tables that the query has written to, as far as that is noted."""
        found = []
        with contextlib.suppress(MerganserError, OSError):
            for entry in self.storage.list(self._path("merganser")):
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    found.append(str(json.loads(self._read(f"merganser/{entry.name}") or b"")["table"]))
        return found

    def _noted(self, table: TableDef) -> str | None:
        data = self._read(self._note(table))
        return None if data is None else _made_of(data)

    @staticmethod
    def _note(table: TableDef) -> str:
        return f"merganser/{hashlib.blake2b(table.paths.metadata_root.encode(), digest_size=8).hexdigest()}"

    def _made(self, table: TableDef) -> str | None:
        """Return what no other table of this place has in common with it; None: it cannot be read."""
        try:
            first = self.storage.read(table.paths.schema(_FIRST_SCHEMA))
        except (MerganserError, OSError):
            return None
        return hashlib.blake2b(first, digest_size=8).hexdigest()

    def _read(self, name: str) -> bytes | None:
        try:
            return self.storage.read(self._path(name))
        except (MerganserError, OSError):
            return None

    def _path(self, name: str) -> str:
        path = self.directory.removeprefix("file:").rstrip("/")
        return join("/" + path.lstrip("/") if self.directory.startswith("file:") else path, name)


def watermark_of(offsets: bytes | None) -> int | None:
    """Return the watermark of a batch from its offsets; None: there is none."""
    try:
        found = json.loads((offsets or b"").splitlines()[1]).get("batchWatermarkMs")
    except (ValueError, IndexError, AttributeError):
        return None
    return found if isinstance(found, int) and found > 0 else None


def _made_of(note: bytes) -> str | None:
    """Return what a note says of its table; None: it is none of ours."""
    try:
        found = json.loads(note)["made"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None
