"""The workers of a table from outside: where they keep their leases, and how far they are behind."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from merganser.errors import (
    FormatError,
    MerganserError,
    NotFoundError,
    StorageError,
    StreamParameterError,
    TrimmedDataError,
)
from merganser.lsm.check import Finding
from merganser.meta.refs import MAIN, BranchStore
from merganser.meta.schemas import SchemaStore
from merganser.meta.shard_stream import stream_of
from merganser.meta.table_def import TableDef
from merganser.shards.iterator import Place, place_of
from merganser.shards.lease_table import COLUMNS, TableLeases
from merganser.shards.leases import FileLeases, Lease, Leases
from merganser.shards.verbs import Verbs
from merganser.storage.env import Env
from merganser.storage.open import storage_for
from merganser.storage.paths import TablePaths, join
from merganser.upkeep.findings import Findings
from merganser.values import dataclass

_NAME: Final = re.compile(r"(\w[^./\\]*)\.([^./\\]+)")
_FOLLOWERS: Final = "followers"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Follower:
    """How far a group of workers has come in one shard.

    Attributes:
        shard_id: the shard.
        worker: which worker reads it; None: nobody does now.
        until: when others may take it, if the worker is not heard of; None: nobody reads it.
        iterator: the position behind the last records that were handled; None: it was not begun.
        done: it was read to its end.
        snapshots: how many snapshots have records of the shard that were not handled.
        rows: how many stored rows these are; an update that has the row before counts twice.
        behind: how long ago the first of them was committed; zero: all were handled.
    """

    shard_id: str
    worker: str | None
    until: datetime | None
    iterator: str | None
    done: bool
    snapshots: int
    rows: int
    behind: timedelta


def leases_at(
    table: TableDef,
    env: Env,
    stream_id: str,
    *,
    checkpoints: tuple[TableDef, Env] | str | None,
    action: str,
) -> Leases:
    """Return the leases of the workers of a stream.

    Args:
        checkpoints: a table with the environment that reads it; the path of a table, or its name as `database.table`
            if it lies beside `table` in a warehouse; another path or URL; None: in the directory of `table`.
        action: beginning of messages.

    Raises:
        StreamParameterError: it is none of these, or a table with other columns.
        NotFoundError: it looks like `database.table`, and there is no such table.
    """
    if checkpoints is None:
        return FileLeases(env, join(table.paths.stream(stream_id), _FOLLOWERS))
    if isinstance(checkpoints, tuple):
        return TableLeases(*checkpoints, stream_id, action)
    if not isinstance(checkpoints, str) or not checkpoints:
        raise StreamParameterError(
            f"{action}: checkpoints is {checkpoints!r:.60}. Give a table, its path or name, or a directory.",
            table=table.name,
        )
    database, _, _ = table.path.rpartition("/")
    if named := _NAME.fullmatch(checkpoints):
        beside = join(join(database.rpartition("/")[0], f"{named[1]}.db"), named[2])
        found = _table_at(beside, env, checkpoints) if database.endswith(".db") else None
        if found is None:
            raise NotFoundError(
                f"{action}: checkpoints is '{checkpoints}', and there is no such table beside '{table.name}'. Nothing "
                f"was read. Create it: catalog.create_table('{checkpoints}', \"{COLUMNS}\"). If a directory is meant, "
                f"write it with a slash: './{checkpoints}'.",
                table=checkpoints,
            )
        return TableLeases(found, env, stream_id, action)
    storage, path = storage_for(checkpoints)
    own = replace(env, storage=storage)
    if (found := _table_at(path, own, path)) is not None:
        return TableLeases(found, own, stream_id, action)
    return FileLeases(own, join(path, stream_id))


def check_leases(table: TableDef, env: Env) -> tuple[Finding, ...]:
    """Return what is wrong with the leases that workers keep in the directory of a table or of its branches."""
    findings = Findings()
    env = Env(env.storage, env.clock)
    try:
        for branch in (MAIN, *BranchStore(table.paths, env, table.name).names()):
            line = replace(table, branch=branch)
            schema = SchemaStore(line.paths, env).latest()
            stream = None if schema is None else stream_of(schema.options, branch)
            if stream is not None:
                _look_at(findings, env, join(line.paths.stream(stream.id), _FOLLOWERS), stream.id)
    except StorageError as error:
        findings.note("unreadable", table.path, str(error))
    except MerganserError:  # what is damaged here is a finding of the table
        pass
    return findings.standing(env)


def _look_at(findings: Findings, env: Env, path: str, stream_id: str) -> None:
    leases = FileLeases(env, path)
    for shard_id in leases.shard_ids():
        problem = file = ""
        try:
            lease = leases.read([shard_id])[shard_id]
            file = join(join(path, shard_id), str(lease.number))
            if lease.iterator is not None:
                place_of(lease.iterator, table=path, stream_id=stream_id)
        except FormatError as error:
            file, problem = error.context["path"], f"it cannot be read: {error.__cause__}."
        except TrimmedDataError:
            problem = "its position is damaged, or of another stream."
        if problem:
            findings.add(Finding("lease", file, problem), frozenset([file]))


def followers(verbs: Verbs, leases: Leases) -> tuple[Follower, ...]:
    """Return how far a group has come, shard by shard."""
    reader, now = verbs.reader, verbs.env.now_ms()
    newest = reader.newest()
    shards = verbs.stored()
    known = leases.read([shard.id for shard in shards])
    first = reader.first_kept()
    places = {
        shard.id: _place(verbs, known[shard.id], max(first, shard.opened))
        for shard in shards
        if not known[shard.id].done
    }
    counts: dict[str, tuple[int, int, int]] = {}
    low = max(first, min((place.snapshot for place in places.values()), default=first))
    for number in range(low, 0 if newest is None else newest.id + 1):
        for piece in reader.pieces_of(number, newest):
            place = places.get(piece.shard.id)
            if place is None or number < place.snapshot:
                continue
            snapshots, rows, since_ms = counts.get(piece.shard.id, (0, 0, piece.time_ms))
            left = piece.rows - (place.row if number == place.snapshot else 0)
            counts[piece.shard.id] = snapshots + 1, rows + max(left, 0), since_ms
    found = []
    for shard in shards:
        lease = known[shard.id]
        held = lease.worker is not None and lease.until_ms > now
        snapshots, rows, since_ms = counts.get(shard.id, (0, 0, now))
        found.append(
            Follower(
                shard.id,
                lease.worker if held else None,
                _EPOCH + timedelta(milliseconds=lease.until_ms) if held else None,
                lease.iterator,
                lease.done,
                snapshots,
                rows,
                timedelta(milliseconds=max(now - since_ms, 0)),
            )
        )
    return tuple(found)


def followers_beside(table: TableDef, env: Env) -> tuple[Follower, ...]:
    """Return the followers that keep their leases in the directory of the table; none if it has no such group.

    Raises:
        MerganserError: as for `Table.followers`.
    """
    stream = stream_of(table.options, table.branch)
    if stream is None:
        return ()
    leases = FileLeases(env, join(table.paths.stream(stream.id), _FOLLOWERS))
    return (
        followers(Verbs(table, env, f"cannot show the followers of '{table.name}'"), leases)
        if leases.shard_ids()
        else ()
    )


def _place(verbs: Verbs, lease: Lease, first: int) -> Place:
    """Return where a group goes on in a shard; a position that is trimmed counts as the oldest that is kept."""
    begin = Place(verbs.stream.id, lease.shard_id, first)
    if lease.iterator is None:
        return begin
    try:
        place = verbs.place_of(lease.iterator)
    except TrimmedDataError:
        return begin
    return max(place, begin, key=lambda one: (one.snapshot, one.row))


def _table_at(path: str, env: Env, name: str) -> TableDef | None:
    schema = SchemaStore(TablePaths(path), env).latest()
    return None if schema is None else TableDef(name, path, schema, schema.options)
