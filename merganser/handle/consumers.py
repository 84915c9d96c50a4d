"""`table.consumers`: named readers and the snapshot that each reads next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from merganser.errors import InvalidInputError, NotFoundError
from merganser.meta.consumers import Consumer, ConsumerStore, check_consumer_id, check_position
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.options.registry import did_you_mean
from merganser.storage.env import Env
from merganser.values import dataclass


@dataclass(frozen=True)
class Consumers:
    """The consumers of one table."""

    definition: TableDef
    env: Env

    def set(self, consumer_id: str, next_snapshot: int) -> None:
        """Store the snapshot that a consumer reads next. This snapshot and later ones do not expire.

        Args:
            consumer_id: the name of the consumer, which is created if it does not exist.
            next_snapshot: the number of the snapshot, at most that of the next one to come.

        Raises:
            InvalidInputError: the name or the number is invalid, or the number is beyond the next snapshot; nothing was
                changed.
        """
        what = f"cannot set a consumer of '{self.definition.name}'"
        check_consumer_id(consumer_id, what=what)
        check_position(next_snapshot, what=what)
        newest = SnapshotStore(self.definition.paths, self.env, self.definition.name).latest_id() or 0
        if next_snapshot > newest + 1:
            there = f"the newest snapshot is {newest}" if newest else "the table has no snapshots yet"
            lower = ", or a lower number" if newest else ""
            raise InvalidInputError(
                f"{what}: next_snapshot is {next_snapshot}, and {there}. The reader would get nothing of the snapshots "
                f"in between. Nothing was changed. Give {newest + 1} to read what comes from now on{lower}.",
                table=self.definition.name,
                consumer=consumer_id,
                newest=newest or None,
            )
        self._store.begin(consumer_id, next_snapshot)

    def list(self) -> tuple[Consumer, ...]:
        """Return all consumers, by name."""
        return self._store.list()

    def drop(self, consumer_id: str) -> None:
        """Remove a consumer. Its snapshots can expire afterwards, and a reader of this name begins as a new one does.

        A reader whose consumer `erase(..., everywhere=True)` has ended gets an `ExpiredError` until this call.

        Raises:
            NotFoundError: the consumer does not exist.
        """
        check_consumer_id(consumer_id, what=f"cannot drop a consumer of '{self.definition.name}'")
        exists = self.env.storage.exists(self.definition.paths.consumer(consumer_id))
        if not exists and self._store.ended(consumer_id) is None:
            names = [consumer.id for consumer in self.list()]
            hint = did_you_mean(consumer_id, names) if names else "It has none."
            raise NotFoundError(
                f"table '{self.definition.name}' has no consumer '{consumer_id}'. {hint}",
                table=self.definition.name,
                consumer=consumer_id,
            )
        self._store.delete(consumer_id)

    if not TYPE_CHECKING:  # a wrong name is to be found

        def __getattr__(self, name: str) -> Any:
            from merganser.edit.other_names import OF_CONSUMERS, no_method

            raise no_method(self, name, OF_CONSUMERS)

    def __repr__(self) -> str:
        return f"Consumers({self.definition.name!r})"

    @property
    def _store(self) -> ConsumerStore:
        return ConsumerStore(self.definition.paths, self.env, self.definition.name)
