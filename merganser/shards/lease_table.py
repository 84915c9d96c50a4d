"""Leases in a table: a group of workers needs nothing but a warehouse that all of them see.

A row is the newest lease of a shard, and one more row of each stream names the workers. A change looks the rows up in
the newest snapshot, and commits the next ones if that snapshot's rows have the numbers before. The commit fails if
another one changed their buckets since (`commit.conflict.check_reads`), and the change begins again with the lookup. So
of two workers that change a lease one wins, and the other is told so, with and without locks.

Docs: decisions 0035 and 0054.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from merganser.commit.conflict import Reads
from merganser.commit.turns import in_rounds
from merganser.errors import FormatError, Overtaken, StreamParameterError
from merganser.lookup.lookup import shared_lookup
from merganser.meta.followed import for_writing
from merganser.meta.table_def import TableDef
from merganser.schema.arrow import arrow_schema
from merganser.shards.leases import Lease
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.buckets import FixedBuckets, partition_groups
from merganser.write.session import WriteSession

COLUMNS: Final = (
    "stream_id STRING, shard_id STRING, number BIGINT, worker STRING, until_ms BIGINT, iterator STRING, done BOOLEAN, "
    "PRIMARY KEY (stream_id, shard_id)"
)
"""The columns of a table of leases."""
_NAMES: Final = ("stream_id", "shard_id", "number", "worker", "until_ms", "iterator", "done")
_TYPES: Final = ("STRING", "STRING", "BIGINT", "STRING", "BIGINT", "STRING", "BOOLEAN")
_WORKERS: Final = "workers"


@dataclass(frozen=True)
class TableLeases:
    """The leases of the workers of one stream, in a table.

    Args:
        table: the table.
        env: where it lies.
        stream_id: the stream that is followed.
        action: beginning of messages.

    Raises:
        StreamParameterError: it is no table of leases.
    """

    table: TableDef
    env: Env
    stream_id: str
    action: str

    def __post_init__(self) -> None:
        schema = self.table.schema
        there = [(field.name, str(field.type.with_nullable(True))) for field in schema.user_fields]
        if (
            there != list(zip(_NAMES, _TYPES, strict=True))
            or tuple(schema.primary_keys) != _NAMES[:2]
            or schema.partition_keys
        ):
            raise StreamParameterError(
                f"{self.action}: '{self.table.name}' cannot keep leases, since it has other columns. Nothing was read. "
                f'Create a table for them: catalog.create_table("...", "{COLUMNS}").',
                table=self.table.name,
            )

    def read(self, shard_ids: Sequence[str]) -> dict[str, Lease]:
        """Return the newest lease of each shard; see `Leases`."""
        keys = self._keys(shard_ids)
        found = shared_lookup(self.table, self.env, waiting=True).rows_of(keys)[2]
        return {shard_id: Lease(shard_id) for shard_id in shard_ids} | _leases(found)

    def change(self, leases: Sequence[Lease]) -> list[bool]:
        """Store the next leases of shards in one commit; see `Leases`."""
        if not leases:
            return []
        table = for_writing(self.table, self.env)
        session = WriteSession(table, self.env, commit_user=None)
        try:
            round_ = partial(self._round, table, session, leases)
            return in_rounds(table, self.env, lambda _: round_(), session.abort, frozenset({Overtaken.ROWS}))
        finally:
            session.close()

    def come(self, worker: str, until_ms: int) -> None:
        """Say that a worker is there until some time."""
        self._note(worker, until_ms)

    def leave(self, worker: str) -> None:
        """Say that a worker has gone."""
        self._note(worker, None)

    def workers(self, now_ms: int) -> dict[str, int]:
        """Return the workers that are there; see `Leases`."""
        return {name: until for name, until in self._said()[1].items() if until > now_ms}

    def _said(self) -> tuple[Lease, dict[str, int]]:
        lease = self.read([_WORKERS])[_WORKERS]
        try:
            return lease, {} if lease.iterator is None else dict(json.loads(lease.iterator))
        except (ValueError, TypeError) as error:
            raise FormatError(f"{self.action}: the row of the workers in '{self.table.name}' is damaged.") from error

    def _note(self, worker: str, until_ms: int | None) -> None:
        while True:  # without a limit: whoever loses here has seen another worker's note stored
            lease, said = self._said()
            now = self.env.now_ms()
            said = {name: until for name, until in said.items() if until > now and name != worker}
            if until_ms is not None:
                said[worker] = until_ms
            (stored,) = self.change([lease.changed(iterator=json.dumps(said))])
            if stored:
                return

    def _round(self, table: TableDef, session: WriteSession, leases: Sequence[Lease]) -> list[bool]:
        """Change the leases that still are what the caller knows.

        Raises:
            ConflictError: another commit changed them meanwhile, and `overtaken` is ROWS; or the commit failed.
        """
        session.take_turn()
        keys = self._keys([lease.shard_id for lease in leases])
        snapshot, _, rows = shared_lookup(table, self.env, waiting=True).rows_of(keys)
        there = _leases(rows)
        wins = [lease.number == there.get(lease.shard_id, Lease("")).number + 1 for lease in leases]
        made = [lease for lease, win in zip(leases, wins, strict=True) if win]
        if not made:
            session.abort()
            return wins
        columns: list[list[Any]] = [
            [self.stream_id] * len(made),
            *([getattr(lease, name) for lease in made] for name in _NAMES[1:]),
        ]
        schema = arrow_schema(table.schema.user_fields)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        session.put((pa.Table.from_arrays(arrays, schema=schema), None, None), held=True)
        if table.assigns_keys:
            reads = Reads(snapshot, partitions=frozenset(one for one, _ in partition_groups(table, keys)))
        else:
            reads = Reads(snapshot, frozenset(group.id for group in FixedBuckets(table).assign(keys)))
        session.commit(None, reads)
        return wins

    def _keys(self, shard_ids: Sequence[str]) -> pa.Table:
        return pa.table({"stream_id": [self.stream_id] * len(shard_ids), "shard_id": pa.array(shard_ids, pa.string())})


def _leases(rows: pa.Table) -> dict[str, Lease]:
    values = (rows.column(name).to_pylist() for name in _NAMES[1:])
    return {row[0]: Lease(*row) for row in zip(*values, strict=True)}
