"""ShardStore: the shards of a stream as of the newest snapshot, and the files that remember them.

`stream/<stream id>/shards-<n>` holds the shards as of snapshot n, as one Arrow file. It only remembers what the
commits say: a process that lacks it goes through them again. So writers of the same file write the same shards, and a
file may be lost. It is needed where snapshots expire: expiry writes one before it removes what commits added. Commits
write one now and then, so that nobody has to go through many.

A file says which snapshot it belongs to. After a rollback other snapshots get the same numbers, and the file does not
count.
"""

from __future__ import annotations

import contextlib
import io
import re
import threading
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from merganser.errors import FormatError, NotFoundError
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.schemas import SchemaStore
from merganser.meta.shard_stream import ShardStream
from merganser.meta.shards import Shard, Shards
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import write as w
from merganser.storage.env import Env
from merganser.storage.paths import join

REMEMBERED_EVERY: Final = 64
"""After so many commits a process that went through them remembers what it found."""
_AT_ONCE: Final = 512
_NAME: Final = re.compile(r"shards-(0|[1-9][0-9]{0,18})")
_SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()),
        ("partition", pa.binary()),
        ("bucket", pa.int32()),
        ("total", pa.int32()),
        ("opened", pa.int64()),
        ("parents", pa.list_(pa.string())),
        ("closed", pa.int64()),
        ("closed_ms", pa.int64()),
    ]
)
_HEAD: Final = b"snapshot"


@dataclass
class _Known:
    """What this process knows of the shards of a stream."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    shards: Shards | None = None
    head: str = ""
    remembered: int = -1


@dataclass(frozen=True)
class ShardStore:
    """The shards of one stream of a table."""

    table: TableDef
    env: Env
    stream: ShardStream

    @property
    def lock(self) -> threading.RLock:
        """Held by callers of `up_to` for as long as they look at what it returned."""
        return self._known().lock

    def up_to(self, newest: Snapshot | None) -> Shards:
        """Return the shards as of a snapshot, the newest that the caller knows; perhaps as of a later one.

        Raises:
            FormatError: metadata is damaged or missing.
        """
        known = self._known()
        with known.lock:
            upto = self.stream.after if newest is None else newest.id
            shards = known.shards
            if shards is not None and shards.head < upto and not self._stands(shards.head, known.head):
                shards = None  # a rollback: other snapshots have these numbers now
            if shards is not None and shards.head > upto and not self._stands(shards.head, known.head):
                shards = None
            if shards is None:
                shards = self._remembered(upto)
                known.shards, known.remembered = shards, shards.head
                known.head = self._identity_of(shards.head)
            if shards.head < upto:
                self._go_on(known, shards, upto)
            return shards

    def remember(self, newest: Snapshot | None = None) -> None:
        """Write what is known, for processes that come later; remove what it replaces."""
        known = self._known()
        with known.lock:
            shards = self.up_to(newest)
            if known.remembered == shards.head:
                return
            horizon = self.env.now_ms() - self.stream.retention.total_seconds() * 1000
            shards.trim(int(horizon))
            directory = self.table.paths.stream(self.stream.id)
            self.env.storage.replace(
                join(directory, f"shards-{shards.head}"), _written(shards, known.head), durable=True
            )
            known.remembered = shards.head
            earliest = MetaReader(self.table.paths, self.env, self.table.name).snapshots.earliest_id() or 1
            numbers = self._numbers()
            needed = max((n for n in numbers if n < earliest), default=None)  # a rollback goes back no further
            self.env.storage.delete(
                join(directory, f"shards-{n}")
                for n in numbers
                if n != shards.head and needed is not None and n < needed
            )

    def forget(self) -> None:
        """Remove the files of a stream that was disabled."""
        self.env.storage.delete_tree(self.table.paths.stream(self.stream.id))

    def _known(self) -> _Known:
        key = ("shards", self.table.paths.metadata_root, self.stream.id)
        found: _Known | None = self.env.cache.get(key)
        if found is None:
            found = _Known()
            self.env.cache.put(key, found, 1000)
        return found

    def _numbers(self) -> list[int]:
        directory = self.table.paths.stream(self.stream.id)
        names = (entry.name for entry in self.env.storage.list(directory) if not entry.is_directory)
        return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))

    def _remembered(self, upto: int) -> Shards:
        """Return the newest shards that are remembered and still hold; else those in which the stream began."""
        directory = self.table.paths.stream(self.stream.id)
        for number in reversed(self._numbers()):
            if number > upto:
                continue
            with contextlib.suppress(NotFoundError, FormatError):
                path = join(directory, f"shards-{number}")
                shards, head = _read(self.env.storage.read(path), path, number)
                if self._stands(number, head):
                    return shards
        return self._begun()

    def _begun(self) -> Shards:
        """Return the shards of the snapshot in which the stream began, or of the oldest one that is there still."""
        reader = MetaReader(self.table.paths, self.env, self.table.name)
        earliest = reader.snapshots.earliest_id()
        number = max(self.stream.after, 0 if earliest in (None, 1) else earliest)
        shards = Shards(number)
        bucket = SchemaStore(self.table.paths, self.env).load(self.stream.schema_id).options.get(w.BUCKET)
        fixed = bucket if bucket > 0 else None if self.table.keyed else 0
        snapshot = reader.snapshots.get(number) if number else None
        buckets: list[tuple[tuple[bytes, int], int]] = []
        if snapshot is not None:
            live = reader.state(snapshot).live
            buckets = [(place, files.total_buckets) for place, files in live.buckets.items()]
        shards.begin(buckets, fixed=None if self.table.schema.partition_keys else fixed)
        return shards

    def _go_on(self, known: _Known, shards: Shards, upto: int) -> None:
        reader = MetaReader(self.table.paths, self.env, self.table.name)
        changelogs = ChangelogStore(self.table.paths, self.env)
        for begin in range(shards.head + 1, upto + 1, _AT_ONCE):
            ids = range(begin, min(begin + _AT_ONCE, upto + 1))
            found = self.env.fetch(reader.snapshots.get, ids)
            there = [one for one in found if one is not None]
            lists = reader.delta_lists(there)
            entries = iter(reader.entries_of_each([each for manifests in lists for each in manifests]))
            for snapshot, manifests in zip(there, lists, strict=True):
                shards.apply(snapshot, [entry for _ in manifests for entry in next(entries)])
                known.head = _identity(snapshot)
            if len(there) < len(ids):  # they have expired without being remembered: the state says what is open
                self._catch_up(known, shards, reader, changelogs, upto)
                return

    def _catch_up(
        self, known: _Known, shards: Shards, reader: MetaReader, changelogs: ChangelogStore, upto: int
    ) -> None:
        """Open what the newest state has, where commits in between are gone."""
        newest = reader.snapshots.get(upto) or changelogs.get(upto)
        if newest is None:
            raise FormatError(
                f"cannot find the shards of '{self.table.name}': snapshot {upto} is missing.", snapshot=upto
            )
        live = reader.state(newest).live
        entries = [entry for files in live.buckets.values() for entry in files.entries[-1:]]
        shards.apply(newest, entries)
        known.head = _identity(newest)

    def _stands(self, number: int, head: str) -> bool:
        """Return whether the snapshot is still the same, or has expired."""
        return self._identity_of(number) in (head, "")

    def _identity_of(self, number: int) -> str:
        reader = MetaReader(self.table.paths, self.env, self.table.name)
        found = reader.snapshots.get(number) if number else None
        return "" if found is None else _identity(found)


def _identity(snapshot: Snapshot) -> str:
    return f"{snapshot.time_millis} {snapshot.delta_manifest_list}"


def _written(shards: Shards, head: str) -> bytes:
    every = shards.list()
    columns = {name: [getattr(shard, name) for shard in every] for name in _SCHEMA.names}
    table = pa.table(columns, schema=_SCHEMA.with_metadata({_HEAD: head.encode()}))
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _read(data: bytes, path: str, number: int) -> tuple[Shards, str]:
    try:
        table = pa.ipc.open_file(io.BytesIO(data)).read_all()
        rows = zip(*(table.column(name).to_pylist() for name in _SCHEMA.names), strict=True)
        every = [Shard(i, p, b, t, o, tuple(above), c, ms) for i, p, b, t, o, above, c, ms in rows]
        return Shards(number, every), (table.schema.metadata or {}).get(_HEAD, b"").decode()
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        raise FormatError(f"cannot read '{path}': {error}", path=path) from error
