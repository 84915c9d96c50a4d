"""ConsumerStore: named readers of a table, and how far each has come.

A consumer is one small file with the next snapshot it will read, swapped whole as it moves on. Snapshots from there
on are kept from expiry. A consumer that has not moved for long is given up by its file's age: that is what its table
asks for with an option, and its reader begins again as a new one does. An erasure ends a consumer without asking, so it
leaves a note, and the reader gets an error until somebody decides how it goes on.

Format: section "statistics, tags, branches, consumers".
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any, Final

from merganser.errors import ExpiredError, FormatError, InvalidInputError, NotFoundError
from merganser.meta.data_file import plain_name
from merganser.meta.erased import Ended, ended_at, note_ended
from merganser.options import upkeep as u
from merganser.options.option import Options
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths, join
from merganser.values import dataclass

_PREFIX: Final = "consumer-"
_ENDED: Final = "ended-"
_NAME_BYTES_MAX: Final = 200
_LONG_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A named reader.

    Attributes:
        id: its name.
        next_snapshot: the snapshot that it will read next; it and later ones are kept for it.
        modified: when it moved last, in UTC.
    """

    id: str
    next_snapshot: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class ConsumerStore:
    """Reads and writes the consumers of one table or branch."""

    paths: TablePaths
    env: Env
    table_name: str

    def list(self) -> tuple[Consumer, ...]:
        """Return all consumers, by name. One that is dropped meanwhile may be missing.

        Raises:
            FormatError: one of them is damaged; names its path.
        """
        entries = self.env.storage.list(self.paths.consumer_directory)
        named = sorted(
            (e.name.removeprefix(_PREFIX), e.modified_ms)
            for e in entries
            if not e.is_directory and e.name.startswith(_PREFIX) and len(e.name) > len(_PREFIX)
        )
        positions = self.env.map(lambda one: self.get(one[0]), named)
        return tuple(
            Consumer(id=name, next_snapshot=position, modified=datetime.fromtimestamp(modified_ms / 1000, UTC))
            for (name, modified_ms), position in zip(named, positions, strict=True)
            if position is not None
        )

    def get(self, consumer_id: str) -> int | None:
        """Return the snapshot that a consumer will read next, or None when there is no such consumer."""
        path = self.paths.consumer(consumer_id)
        try:
            data = self.env.storage.read(path)
        except NotFoundError:
            return None
        return _position(data, path)

    def set(self, consumer_id: str, next_snapshot: int) -> None:
        """Record where a consumer goes on: makes it, or moves it, forwards or back."""
        data = json.dumps({"nextSnapshot": next_snapshot}, indent=2).encode()
        self.env.storage.replace(self.paths.consumer(consumer_id), data, durable=True)

    def start(self, consumer_id: str) -> int | None:
        """Return the snapshot at which a reader that opens goes on. None if there is no such consumer.

        Raises:
            ExpiredError: an erasure ended the consumer before it had read which rows went.
        """
        found = self.get(consumer_id)
        ended = self.ended(consumer_id) if found is None else None
        if ended is not None:
            drop = f"consumers.drop('{consumer_id}')"
            raise ExpiredError(
                f"cannot follow '{self.table_name}' as consumer '{consumer_id}': {ended} ended the consumer, which had "
                f"not read snapshot {ended.snapshot}, so it may not know which rows are gone. Nothing was handed "
                f"over. Empty what this reader writes and call {drop}: the reader then begins again where its options "
                f"say. To do without the changes that it missed, call consumers.set('{consumer_id}', next_snapshot=n).",
                table=self.table_name,
                consumer=consumer_id,
                snapshot=ended.snapshot,
            )
        return found

    def begin(self, consumer_id: str, next_snapshot: int) -> None:
        """Record the first position of a reader that has opened, or of a person who decides. Forgets that it ended."""
        self.set(consumer_id, next_snapshot)
        self.env.storage.delete([self.paths.ended_consumer(consumer_id)])

    def ended(self, consumer_id: str) -> Ended | None:
        """Return what an erasure noted when it ended a consumer; None: it did not, or somebody has decided since."""
        return ended_at(self.env, self.paths.ended_consumer(consumer_id))

    def end(self, consumer: Consumer) -> None:
        """End a consumer for an erasure. The note comes first: a reader finds its position or the note."""
        note_ended(self.env, self.paths.ended_consumer(consumer.id), consumer.next_snapshot)
        self.env.storage.delete([self.paths.consumer(consumer.id)])

    def delete(self, consumer_id: str) -> None:
        """Forget a consumer, and that it ended. A missing one is fine."""
        self.env.storage.delete([self.paths.consumer(consumer_id), self.paths.ended_consumer(consumer_id)])

    def forget_ended(self) -> None:
        """Forget all consumers that ended."""
        directory = self.paths.consumer_directory
        notes = [join(directory, e.name) for e in self.env.storage.list(directory) if e.name.startswith(_ENDED)]
        self.env.storage.delete(notes)


def stays_known_ms(options: Options) -> float:
    """Return for how long a reader may leave its consumer untouched: upkeep drops it after three times as long."""
    expiry = options.get(u.CONSUMER_EXPIRATION_TIME)
    return math.inf if expiry is None else expiry.total_seconds() * 1000 / 3


def check_consumer_id(name: object, *, what: str) -> None:
    """Refuse what cannot be the name of a consumer.

    Raises:
        InvalidInputError: blank, with a slash, or too long for a file name.
    """
    if (
        not isinstance(name, str)
        or not plain_name(name.strip())
        or "/" in name
        or "\\" in name
        or len(name.encode("utf-8", "replace")) > _NAME_BYTES_MAX
    ):
        raise InvalidInputError(
            f"{what}: {name!r:.80} cannot be the name of a consumer. It is text that is not blank, has no slash and is "
            f"at most {_NAME_BYTES_MAX} bytes long.",
            consumer=name,
        )


def check_position(next_snapshot: object, *, what: str) -> None:
    """Refuse what is no snapshot id.

    Raises:
        InvalidInputError: not a whole number of 1 or more.
    """
    if not isinstance(next_snapshot, int) or isinstance(next_snapshot, bool) or not 1 <= next_snapshot <= _LONG_MAX:
        raise InvalidInputError(
            f"{what}: next_snapshot is {next_snapshot!r:.80}. It is the id of a snapshot, a whole number of 1 or more."
        )


def _position(data: bytes, path: str) -> int:
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from error
    found = value.get("nextSnapshot") if isinstance(value, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= _LONG_MAX:
        raise _damaged(path, f"'nextSnapshot' is {found!r:.80}, not the id of a snapshot")
    return found


def _damaged(path: str, why: str) -> FormatError:
    return FormatError(
        f"cannot read the consumer '{path}': {why}. Set it anew, or drop it.",
        path=path,
    )
