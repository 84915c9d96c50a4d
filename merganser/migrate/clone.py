"""Clone: another table with the state of one snapshot, in this warehouse or in another one.

    1  the files that the state of the snapshot needs are listed (`upkeep.needed_files`)
    2  they are copied under a hidden name, as they are: on one local disk they get second names, and take no room
    3  schemas and the snapshot follow, and one rename publishes the table (`migrate.build`)

The clone has one snapshot, with the number, the committers and the watermark that it has in the table. So a job that
goes on with the clone commits nothing twice, and the position of a stream at that snapshot is a position in the clone.
It shares no file with the table. Tags, branches, consumers and older snapshots are not cloned, and a shard stream of
the table does not go on in it.

Files outside of the directory of the table are named by their paths in manifests, which cannot be taken over. A table
with such files becomes files of its own in the clone, which an ordinary commit names.

Files may expire while they are copied; then the copy fails, and there is no clone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from merganser.commit.message import CommitMessage
from merganser.errors import ExpiredError, FormatError, NotFoundError, StorageError
from merganser.files.masks import index_path
from merganser.meta.next_schema import make_next_schema
from merganser.meta.refs import TagStore
from merganser.meta.schemas import SchemaStore
from merganser.meta.shard_stream import stream_of
from merganser.meta.snapshot import Snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.migrate.build import QUIET, place
from merganser.options import write as w
from merganser.options.option import Options
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.storage.guarded import files_of
from merganser.storage.local import LocalStorage
from merganser.storage.paths import TablePaths, join
from merganser.upkeep.needed_files import NeededFiles
from merganser.upkeep.shard_stream import disable
from merganser.write.target import WriteTarget
from merganser.write.transaction import Transaction, checked_user

_COPY_BYTES: Final = 4 << 20


def _without_log(schema: TableSchema) -> TableSchema:
    """Return the schema of a clone: the topic of a log is that of the table."""
    if schema.options.get(w.LOG_SYSTEM) == "none":
        return schema
    options = dict.fromkeys(
        option.key for option in (w.LOG_SYSTEM, w.KAFKA_TOPIC, w.LOG_CONSISTENCY, w.LOG_CHANGELOG_MODE)
    )
    return _with_options(schema, options)


def _with_options(schema: TableSchema, changes: Mapping[str, str | None]) -> TableSchema:
    return replace(schema, options=schema.options.merged(changes))


def clone(
    table: TableDef,
    source: Env,
    snapshot: Snapshot | None,
    env: Env,
    root: str,
    *,
    name: str,
    announce: Callable[[TableSchema], AbstractContextManager[TableSchema]],
) -> None:
    """Make a table with the state of a snapshot of another one.

    Args:
        table: the table, or a branch of it.
        source: the effects of the table.
        snapshot: of the table; None: it has none.
        env, root: the store of the clone, and where it will be there.
        name: of the clone, for messages.
        announce: tells listeners of the clone, whose schema it gets, and gives the schema with their options.

    Raises:
        AlreadyExistsError: there is a table now; nothing was changed.
        ExpiredError: files of the snapshot expired before they were copied; there is no clone.
        FormatError: metadata of the table, or a file of it, is damaged.
    """
    schemas = SchemaStore(table.paths, source)
    ids = [number for number in schemas.ids() if snapshot is None or number <= snapshot.schema_id]
    newest = SnapshotStore(table.paths, source, table.name).latest_id()
    if snapshot is not None and snapshot.id == newest:  # the table as it is, and not as it was
        ids = schemas.ids()
    own = _without_log(schemas.load(ids[-1]))
    with announce(own) as told, place(env, root, name) as aside:
        paths = TablePaths(aside)
        for number in ids:
            data = source.storage.read(table.paths.schema(number))
            env.storage.replace(paths.schema(number), data, durable=True)  # of a directory that is ours alone
        if snapshot is not None:
            try:
                _fill(table, source, snapshot, env, aside, name)
            except (NotFoundError, FormatError) as error:
                _refuse_expired(table, source, snapshot, error)
                raise
        made = SchemaStore(paths, env).load(ids[-1])
        then, now = made.options, told.options
        changes = {key: now.get(key) for key in {*then, *now} if then.get(key) != now.get(key)}
        definition = TableDef(name, aside, made, then)
        if stream_of(then, "main") is not None:
            disable(definition, env)
        if changes:
            make_next_schema(definition, env, lambda newest: _with_options(newest.schema, changes))


def _fill(table: TableDef, source: Env, snapshot: Snapshot, env: Env, aside: str, name: str) -> None:
    needed = NeededFiles(table, source)
    published, lists = needed.changelog(snapshot)
    files = {*needed.state(snapshot), *needed.metadata(snapshot), *published, *lists}
    inside = f"{table.path}/"
    if not all(path.startswith(inside) for path in files):
        _commit_own(table, source, snapshot, env, aside, name)
        return
    pairs = [(path, join(aside, path.removeprefix(inside))) for path in sorted(files)]
    _copy(source, env, pairs, title=f"cloning {table.name}")
    store = SnapshotStore(TablePaths(aside), env, name)
    store.create(replace(snapshot, log_offsets=None))  # they are those of the table's topic
    store.set_latest_hint(snapshot.id)


def _commit_own(table: TableDef, source: Env, snapshot: Snapshot, env: Env, aside: str, name: str) -> None:
    """Make files of the live ones and commit them, since manifests name some that lie outside of the table."""
    reader = MetaReader(table.paths, source, table.name)
    schema = SchemaStore(TablePaths(aside), env).load(snapshot.schema_id)
    made = TableDef(name, aside, schema, Options({**schema.options, **QUIET, w.LOG_SYSTEM.key: "none"}))
    needed, pairs, messages = NeededFiles(table, source), list[tuple[str, str]](), list[CommitMessage]()
    index = reader.index(snapshot)
    for (partition, bucket), held in reader.state(snapshot).live.buckets.items():
        directory = made.bucket_directory(partition, bucket)
        for entry in held.entries:
            names = entry.file.names
            pairs += zip(needed.data_paths(entry), (join(directory, each) for each in names), strict=True)
        own = [
            replace(entry, external_path=None)
            for entry in index
            if (entry.partition, entry.bucket) == (partition, bucket)
        ]
        messages.append(
            CommitMessage(
                partition,
                bucket,
                held.entries[0].total_buckets,
                tuple(replace(entry.file, external_path=None) for entry in held.entries),
                index_added=tuple(own),
            )
        )
    pairs += [(index_path(table, entry), index_path(made, replace(entry, external_path=None))) for entry in index]
    _copy(source, env, pairs, title=f"cloning {table.name}")
    target = WriteTarget(made)
    transaction = Transaction(target, env, checked_user(target, env, None))
    transaction.watermark = snapshot.watermark
    transaction.finish(messages)


def _copy(source: Env, env: Env, pairs: Sequence[tuple[str, str]], *, title: str) -> None:
    """Copy files, within the store or from one into another."""
    local = all(isinstance(files_of(one.storage), LocalStorage) for one in (source, env))
    with env.progress.work(title, steps=len(pairs)) as work:
        if local or source.storage == env.storage:
            env.storage.copy(pairs)
            return

        def across(pair: tuple[str, str]) -> None:
            sink = env.storage.writer(pair[1])
            try:
                with source.storage.open(pair[0]) as file:
                    size = file.size()
                    while data := file.read_buffer(_COPY_BYTES):
                        sink.stream.write(data)
                if (written := sink.close()) != size:
                    raise StorageError(
                        f"cannot copy '{pair[0]}': it has {size:,} bytes, and {written:,} were written.", path=pair[0]
                    )
            except BaseException:
                sink.abort()
                raise
            work.advance(size)

        env.fetch(across, pairs)


def _refuse_expired(table: TableDef, source: Env, snapshot: Snapshot, error: Exception) -> None:
    """Raise ExpiredError if the snapshot is not kept any more."""
    store = SnapshotStore(table.paths, source, table.name)
    found = store.get(snapshot.id)
    kept = any(tag.snapshot.uuid == snapshot.uuid for tag in TagStore(table.paths, source, table.name).list())
    if not kept and (found is None or found.uuid != snapshot.uuid):
        raise ExpiredError(
            f"cannot clone snapshot {snapshot.id} of '{table.name}': it expired while its files were copied. There is "
            f"no clone. Clone a newer one, or keep it with a tag first. ({error})",
            table=table.name,
            snapshot=snapshot.id,
        ) from error
