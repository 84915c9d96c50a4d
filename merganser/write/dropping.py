"""Whole partitions out of a table, each call as commits of their own: by name, or by age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from merganser.errors import InvalidInputError
from merganser.meta.data_file import ManifestEntry
from merganser.meta.live_files import LiveFiles
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.upkeep import expire_partitions as by_age
from merganser.write import overwrite as ow
from merganser.write.begin import begin
from merganser.write.target import WriteTarget
from merganser.write.transaction import Transaction


def drop_partitions(table: TableDef, env: Env, specs: Sequence[Mapping[str, Any]]) -> Snapshot | None:
    """Remove all rows of partitions as one commit; a spec may name some partition columns only.

    Raises:
        InvalidInputError: there is no list of specs, or one that names no partitions of the table.
        ConflictError: lost a race for good; nothing was removed.
    """
    action = f"cannot drop partitions of '{table.name}'"
    if isinstance(specs, str | Mapping) or not isinstance(specs, Sequence):
        raise InvalidInputError(f"{action}: {specs!r:.60} is not a list of partitions. Write [{{'dt': '2026-01-01'}}].")
    transaction = begin(table, env)
    stored = [transaction.target.stored_spec(spec, action=action) for spec in specs]
    choices = [ow.of_spec(table, spec) for spec in stored if spec]
    if len(choices) < len(stored):
        raise InvalidInputError(f"{action}: a spec is empty. Use truncate() to remove all rows.")

    def chosen(live: LiveFiles) -> list[ManifestEntry]:
        found = {entry.identity: entry for choice in choices for entry in choice(live)}
        return list(found.values())

    return transaction.finish([], removes=chosen)


def expire_partitions(table: TableDef, env: Env) -> tuple[Mapping[str, Any], ...]:
    """Drop the partitions that are older than the table's options allow; see `upkeep.expire_partitions`."""
    target, user = WriteTarget(table), env.new_id()

    def drop(chosen: ow.Selection) -> None:
        Transaction(target, env, user).finish([], removes=chosen)

    return by_age.expire_partitions(table, env, drop)
