"""ShardStore: the shards of a stream as of the newest snapshot, and the files that remember them.

`stream/<stream id>/shards-<n>` holds the shards as of snapshot n, as one Arrow file. It only remembers what the
commits say: a process that lacks it goes through them again. So writers of the same file write the same shards, and a
file may be lost. It is needed where snapshots expire: expiry writes one before it removes what commits added. Commits
write one now and then, so that nobody has to go through many.

A file says which snapshot it belongs to. After a rollback other snapshots get the same numbers, and the file does not
count. So a rollback writes one as of its target before it removes snapshots and their files.
"""

from __future__ import annotations

import contextlib
import io
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

import pyarrow as pa

from merganser.errors import FormatError, NotFoundError
from merganser.meta.data_file import ManifestEntry
from merganser.meta.live_files import BucketFiles, BucketId, LiveFiles
from merganser.meta.schemas import SchemaStore
from merganser.meta.shard_stream import ShardStream
from merganser.meta.shards import Shard, Shards
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import write as w
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.storage.tuning import no_collection
from merganser.values import dataclass

REMEMBERED_EVERY: Final = 64
"""After so many commits a process that went through them remembers what it found,"""
_SHARDS_PER_COMMIT: Final = 1024
"""and where there are many shards, after one commit more for so many: so what a commit costs follows its changes."""
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
_PARENTS: Final = _SCHEMA.get_field_index("parents")
_HEAD: Final = b"snapshot"


@dataclass
class _Known:
    """What this process knows of the shards of a stream."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    shards: Shards | None = None
    head: str = ""
    remembered: int = -1


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at the files of a stream found.

    Attributes:
        bad: the problem of each file that is damaged, or says something else than the commits, by its path.
        forgotten: the oldest snapshot, if nothing says which shards there were when it was committed; None: it is
            known.
    """

    bad: Mapping[str, str]
    forgotten: int | None


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

        If a rollback has removed that snapshot, or it has expired, since the caller read it, the shards are those of
        the newest one that is there now.

        Raises:
            FormatError: metadata is damaged or missing.
        """
        known = self._known()
        with known.lock:
            while (found := self._reached(known, newest)) is None:
                newest = MetaReader(self.table.paths, self.env, self.table.name).snapshots.latest()
            return found

    def is_open(self, shard_id: str, newest: Snapshot) -> bool | None:
        """Return whether a shard is open as of a snapshot; None: not known without a look at the store, or a wait."""
        known = self._known()
        if not known.lock.acquire(blocking=False):
            return None
        try:
            shards = known.shards
            if shards is None or shards.head != newest.id or known.head != _identity(newest):
                return None
            shard = shards.get(shard_id)
            return shard is not None and shard.closed is None
        finally:
            known.lock.release()

    def remember(self, newest: Snapshot | None) -> None:
        """Write the shards as of the newest snapshot, for processes that come later."""
        known = self._known()
        with known.lock:
            self._remember(known, self.up_to(newest))

    def remember_now_and_then(self, newest: Snapshot) -> None:
        """Write the shards, if many commits have come since they were written last."""
        known = self._known()
        with known.lock:
            shards = self.up_to(newest)
            if shards.head - known.remembered >= max(REMEMBERED_EVERY, len(shards) // _SHARDS_PER_COMMIT):
                self._remember(known, shards)

    def remember_before(self, newest: Snapshot | None, gone: int) -> None:
        """Write the shards, unless there is a file of them from a snapshot on: earlier ones may expire then."""
        known = self._known()
        with known.lock:
            shards = self.up_to(newest)
            if known.remembered < gone or not self.env.storage.exists(self._path(known.remembered)):
                self._remember(known, shards)

    def remember_as_of(self, target: Snapshot) -> None:
        """Write the shards as of an earlier snapshot, before those that came later are removed.

        Later files, which do not count then, may be all that is left of the commits that have expired. Nothing is
        written if nobody knows which shards the snapshot had: they begin again.
        """
        found = self._as_of(target) if target.id >= max(self.stream.after, 1) else None
        if found is not None:
            self.env.storage.replace(self._path(target.id), _written(*found), durable=True)

    def forget_since(self, number: int) -> None:
        """Remove the files of a snapshot and of later ones: a rollback gives their numbers to others."""
        gone = [each for each in self._numbers() if each >= number]
        if gone:
            self.env.storage.delete([self._path(each) for each in gone])

    def _as_of(self, target: Snapshot) -> tuple[Shards, str] | None:
        """Return the shards as of a snapshot from an earlier file and the commits since, or else from a later file.

        Returns:
            None if neither says it.
        """
        reader = MetaReader(self.table.paths, self.env, self.table.name)
        with contextlib.suppress(FormatError):
            found = self._remembered(target.id)
            if found is None and (reader.snapshots.earliest_id() or 0) <= max(self.stream.after, 1):
                found = self._begun()
            known = _Known() if found is None else _Known(shards=found[0], head=found[1])
            while known.shards is not None and known.shards.head < target.id:
                if not self._apply_some(known, known.shards, target.id):
                    known.shards = None
            if known.shards is not None:
                return known.shards, known.head
        for number in self._numbers():  # from the oldest one: it has forgotten the least
            if number > target.id:
                with contextlib.suppress(NotFoundError, FormatError):
                    path = self._path(number)
                    shards, head = _read(self.env.storage.read(path), path, number)
                    if head and self._identity_of(number) == head:
                        return shards.as_of(target.id), _identity(target)
        return None

    def _remember(self, known: _Known, shards: Shards) -> None:
        """Write the shards, and remove files that nobody needs."""
        earliest = MetaReader(self.table.paths, self.env, self.table.name).snapshots.earliest_id() or 1
        shards.trim(int(self.env.now_ms() - self.stream.retention.total_seconds() * 1000), earliest)
        self.env.storage.replace(self._path(shards.head), _written(shards, known.head), durable=True)
        known.remembered = shards.head
        needless = _needless(self._numbers(), shards.head, earliest)
        if needless:
            self.env.storage.delete([self._path(number) for number in needless])

    def partitions(self) -> dict[str, frozenset[bytes] | None]:
        """Return the serialized partitions that each file names, by its path; None: the file cannot be read."""
        found: dict[str, frozenset[bytes] | None] = {}
        for number in self._numbers():
            path = self._path(number)
            try:
                shards, _ = _read(self.env.storage.read(path), path, number)
                found[path] = frozenset(one.partition for one in shards if one.partition)
            except NotFoundError:
                continue
            except FormatError:
                found[path] = None
        return found

    def remember_alone(self, newest: Snapshot) -> None:
        """Write the shards as of the newest snapshot, then remove the files of earlier ones."""
        known = self._known()
        with known.lock:
            shards = self.up_to(newest)
            self._remember(known, shards)
            self.env.storage.delete([self._path(number) for number in self._numbers() if number < shards.head])

    def look(self, newest: Snapshot | None) -> Looked:
        """Hold the files that remember shards against the commits. Costs one read of the lists of all commits.

        Raises:
            FormatError: the snapshots that are there cannot be read.
        """
        upto = self.stream.after if newest is None else newest.id
        earliest = MetaReader(self.table.paths, self.env, self.table.name).snapshots.earliest_id() or 0
        bad: dict[str, str] = {}
        known = _Known()
        if earliest <= max(self.stream.after, 1):
            known.shards, known.head = self._begun()
        for number in self._numbers():
            path = self._path(number)
            try:
                shards, head = _read(self.env.storage.read(path), path, number)
            except NotFoundError:
                continue
            except FormatError as error:
                bad[path] = f"it cannot be read: {error.__cause__}."
                continue
            if not earliest - 1 <= number <= upto or self._identity_of(number) not in (head, ""):
                continue  # expired or rolled back: nobody reads it
            if known.shards is not None and known.shards.head <= number:
                with contextlib.suppress(FormatError):  # what commits say is looked at by itself
                    while known.shards.head < number:
                        if not self._apply_some(known, known.shards, number):
                            self._pass_over(known, known.shards, number)
                    if problem := _difference(known.shards, shards):
                        bad[path] = problem
                        continue
            known = _Known(shards=shards, head=head)
        return Looked(bad, earliest if known.shards is None else None)

    def mend(self, newest: Snapshot | None) -> int:
        """Write the shards anew if files are damaged or lost; return how many files were.

        Raises:
            FormatError: the commits that say which shards there are cannot be read; nothing was changed.
        """
        looked = self.look(newest)
        count = len(looked.bad) or int(looked.forgotten is not None)
        if count:
            self.env.storage.delete(list(looked.bad))
            known = self._known()
            with known.lock:
                known.shards, known.head, known.remembered = None, "", -1
                self.remember(newest)
        return count

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

    def _path(self, number: int) -> str:
        return join(self.table.paths.stream(self.stream.id), f"shards-{number}")

    def _numbers(self) -> list[int]:
        directory = self.table.paths.stream(self.stream.id)
        names = (entry.name for entry in self.env.storage.list(directory) if not entry.is_directory)
        return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))

    def _holds(self, known: _Known, shards: Shards, newest: Snapshot | None) -> bool:
        """Return whether what is known is of this history: a rollback gives the numbers to other snapshots.

        Of a snapshot that has expired nothing can be said. Then a file says it, since expiry makes sure of one.
        """
        if newest is not None and newest.id == shards.head:
            return known.head == _identity(newest)
        return not shards.head or (known.head != "" and self._identity_of(shards.head) == known.head)

    def _start(self, known: _Known, upto: int) -> None:
        """Begin with the newest shards that are remembered and still hold; else with those of the stream's beginning.

        What this process knew counts as well if its snapshot has expired and the files have been lost.
        """
        found = self._remembered(upto)
        kept = known.shards
        newer = kept is not None and kept.head <= upto and (found is None or found[0].head < kept.head)
        if kept is not None and newer and known.head and not self._identity_of(kept.head):
            return
        if found is None:
            known.shards, known.head = self._begun()
            known.remembered = -1
            return
        known.shards, known.head = found
        known.remembered = known.shards.head

    def _remembered(self, upto: int) -> tuple[Shards, str] | None:
        for number in reversed(self._numbers()):
            if number > upto:
                continue
            with contextlib.suppress(NotFoundError, FormatError):
                path = self._path(number)
                shards, head = _read(self.env.storage.read(path), path, number)
                if self._identity_of(number) in (head, ""):
                    return shards, head
        return None

    def _begun(self) -> tuple[Shards, str]:
        """Return the shards of the snapshot in which the stream began, or of the oldest one that is there still."""
        reader = MetaReader(self.table.paths, self.env, self.table.name)
        earliest = reader.snapshots.earliest_id()
        number = max(self.stream.after, 0 if earliest in (None, 1) else earliest)
        shards = Shards(number, again=number != self.stream.after)
        bucket = SchemaStore(self.table.paths, self.env).load(self.stream.schema_id).options.get(w.BUCKET)
        fixed = bucket if bucket > 0 else None if self.table.keyed else 0
        snapshot = reader.snapshots.get(number) if number else None
        buckets: list[tuple[tuple[bytes, int], int]] = []
        if snapshot is not None:
            live = reader.state(snapshot).live
            buckets = [(place, files.total_buckets) for place, files in live.buckets.items()]
        shards.begin(buckets, fixed=None if self.table.schema.partition_keys else fixed)
        return shards, "" if snapshot is None else _identity(snapshot)

    def _reached(self, known: _Known, newest: Snapshot | None) -> Shards | None:
        """Return the shards as of a snapshot or a later one; None: it is no longer there, and no commits lead to it."""
        upto = self.stream.after if newest is None else newest.id
        if known.shards is None or not self._holds(known, known.shards, newest):
            self._start(known, upto)
            assert known.shards is not None
            if known.shards.head > max(upto, self.stream.after):  # they would begin again with another snapshot
                known.shards = None
                return None
        while known.shards.head < upto:
            if not self._apply_some(known, known.shards, upto):
                if newest is not None and self._identity_of(upto) != _identity(newest):
                    return None
                self._pass_over(known, known.shards, upto)
        return known.shards

    def _apply_some(self, known: _Known, shards: Shards, upto: int) -> bool:
        """Go through some of the commits up to a snapshot; False: the next one has expired."""
        reader = MetaReader(self.table.paths, self.env, self.table.name)
        ids = range(shards.head + 1, min(shards.head + _AT_ONCE, upto) + 1)
        there: list[Snapshot] = []
        for found in self.env.fetch(reader.snapshots.get, ids):
            if found is None:
                break
            there.append(found)
        try:
            lists = reader.delta_lists(there)
            entries = iter(reader.entries_of_each([each for manifests in lists for each in manifests]))
        except FormatError:
            if there and reader.snapshots.get(there[0].id) is not None:
                raise
            return False  # they have just expired
        states = _States(reader)
        for snapshot, manifests in zip(there, lists, strict=True):
            states.go_on(snapshot, [entry for _ in manifests for entry in next(entries)])
            try:
                shards.apply(snapshot, states.delta, states.buckets)
            except FormatError:
                if reader.snapshots.get(snapshot.id) is not None:
                    raise
                return snapshot is not there[0]  # it has just expired
            known.head = _identity(snapshot)
        return bool(there)

    def _pass_over(self, known: _Known, shards: Shards, upto: int) -> None:
        """Go on behind commits that have expired."""
        remembered = self._remembered(upto)
        if remembered is not None and remembered[0].head > shards.head:
            known.shards, known.head = remembered
            known.remembered = known.shards.head
            return
        # The files were lost, too. Which shards there were in between nobody knows: begin again, with other ids.
        begun, head = self._begun()
        if begun.head <= shards.head:
            missing = shards.head + 1
            raise FormatError(
                f"cannot find the shards of '{self.table.name}': snapshot {missing} is missing, though snapshot {upto} "
                "is there. Restore the file.",
                path=self.table.paths.snapshot(missing),
                snapshot=missing,
            )
        known.shards, known.head, known.remembered = begun, head, -1

    def _identity_of(self, number: int) -> str:
        reader = MetaReader(self.table.paths, self.env, self.table.name)
        found = reader.snapshots.get(number) if number else None
        return "" if found is None else _identity(found)


class _States:
    """The files after each of some commits that follow each other: read for the first one that is asked of."""

    def __init__(self, reader: MetaReader) -> None:
        self.delta: Sequence[ManifestEntry] = ()
        self._reader = reader
        self._snapshot: Snapshot | None = None
        self._live: LiveFiles | None = None

    def go_on(self, snapshot: Snapshot, delta: Sequence[ManifestEntry]) -> None:
        """Go on to the next commit, which added and removed some files."""
        self.delta = delta
        self._snapshot = snapshot
        if self._live is not None:
            self._live = self._live.apply(delta, source=f"snapshot {snapshot.id} of '{self._reader.table_name}'")

    def buckets(self) -> Mapping[BucketId, BucketFiles]:
        """Return the buckets that have files after the commit."""
        if self._live is None:
            self._live = self._reader.state(self._snapshot).live
        return self._live.buckets


def _difference(found: Shards, said: Shards) -> str:
    """Return what a file says of shards that the commits do not; "": nothing. It may leave out what was trimmed."""
    for shard in said:
        there = found.get(shard.id)
        if there is None or there._replace(parents=shard.parents) != shard:
            return f"it says of '{shard.id}' what the commits do not."
    for shard in found:
        if shard.closed is None and said.get(shard.id) is None:
            return f"it lacks the open shard '{shard.id}'."
    return ""


def _identity(snapshot: Snapshot) -> str:
    return f"{snapshot.time_millis} {snapshot.delta_manifest_list}"


def _needless(numbers: Sequence[int], head: int, earliest: int) -> list[int]:
    """Return the files that nobody needs: a rollback goes on from one that is about as far back as it goes.

    Args:
        numbers: of the files, rising.
        head: of the newest one.
        earliest: the oldest snapshot that is kept, which is as far as a rollback goes.
    """
    kept = {max((number for number in numbers if number < earliest), default=0)}
    distances: set[int] = set()
    for number in numbers:  # of all that are about as far back the oldest stays: it is the next one's further back
        distance = (head - number).bit_length()
        if number > head or (number >= earliest and distance not in distances):
            distances.add(distance)
            kept.add(number)
    return [number for number in numbers if number not in kept]


def _written(shards: Shards, head: str) -> bytes:
    with no_collection():
        columns = zip(*shards, strict=True) if len(shards) else [()] * len(_SCHEMA.names)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    table = pa.table(arrays, schema=_SCHEMA.with_metadata({_HEAD: head.encode()}))
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _read(data: bytes, path: str, number: int) -> tuple[Shards, str]:
    try:
        table = pa.ipc.open_file(io.BytesIO(data)).read_all()
        with no_collection():
            columns = [table.column(name).to_pylist() for name in _SCHEMA.names]
            columns[_PARENTS] = [tuple(each) for each in columns[_PARENTS]]
            return Shards(number, map(Shard, *columns)), (table.schema.metadata or {}).get(_HEAD, b"").decode()
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
        raise FormatError(f"cannot read '{path}': {error}", path=path) from error
