"""Build: a table made under a hidden name, and published by one rename.

    1  `.<table>.<id>.tmp` beside the place of the table gets schemas, files and one snapshot: an ordinary commit
    2  the directory is moved to its place, which must be free: here the table is there, with all of its rows

A process that is stopped before step 2 leaves a directory that nobody takes for a table; another call begins anew, and
what others left there a day ago is removed. The folder is only read. So no row is lost or there twice, whatever
happens, and of two processes that make one table, one does.

Where the store has no rename, step 2 copies file by file in the order of `storage.moving`, which promises the same.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from merganser.codec.binary_row import deserialize
from merganser.commit.message import CommitMessage
from merganser.errors import AlreadyExistsError, ConflictError, InvalidInputError, MerganserError, StorageError
from merganser.files.read import DataFileReader, FileToRead
from merganser.meta.schemas import SchemaStore
from merganser.meta.table_def import TableDef
from merganser.migrate.folder import Folder
from merganser.migrate.plan import Plan, PlannedFile
from merganser.options import write as w
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths, join
from merganser.upkeep.stored_values import check_values
from merganser.write.session import WriteSession
from merganser.write.target import WriteTarget
from merganser.write.transaction import Transaction, checked_user

_DAY_MS: Final = 86_400_000
_REMAINS: Final = re.compile(r"\..+\.[0-9a-f-]{36}\.tmp")
_BUCKET: Final = 0
_UNAWARE: Final = -1
_READ_ROWS: Final = 131_072
_PART_BYTES: Final = 16 * 1024 * 1024
QUIET: Final = {w.WRITE_ONLY.key: "true"}
"""How the first commit is made: nothing is compacted or expired after it."""


def table_with_files(
    plan: Plan, env: Env, root: str, *, name: str, keep: bool, what: str, dynamic: Mapping[str, str]
) -> None:
    """Make a table of the files of a folder, none of which is read.

    Args:
        root: where the table will be.
        name: of the table, for messages.
        keep: the files stay where they are, and the table names them by their paths. Else it gets files of its own,
            which the store makes of them (`Storage.copy`).
        what: beginning of messages.
        dynamic: options that hold for this call.

    Raises:
        InvalidInputError: the table keeps its rows in buckets, or its options name a format that cannot hold a value.
        ConflictError: files were replaced while this call ran; nothing was changed.
        AlreadyExistsError: there is a table now; nothing was changed.
    """
    if plan.schema.bucket != _UNAWARE:
        raise InvalidInputError(
            f"{what}: with 'bucket' = '{plan.schema.bucket}' rows lie in the buckets of their keys, so they are "
            "written anew. Nothing was changed. Pass how='copy', or leave the option out.",
            option=w.BUCKET.key,
        )
    with place(env, root, name) as aside:
        table = _defined(plan.versions, env, aside, name, {**dynamic, **QUIET})
        places = [one.source if keep else _place(table, one) for one in plan.files]
        if not keep:
            env.storage.copy(zip((one.source for one in plan.files), places, strict=True))
        _check_unchanged(plan, places, env, what)
        target = WriteTarget(table)
        made = Transaction(target, env, checked_user(target, env, None)).finish(_messages(plan, keep=keep))
        if made is not None:
            check_values(table, env, made, what=what)


def table_with_rows(plan: Plan, folder: Folder, env: Env, root: str, *, name: str, dynamic: Mapping[str, str]) -> None:
    """Make a table of the rows of a folder, which an ordinary write puts there, in bounded memory and one commit.

    Args:
        folder: where the files are.
        root: where the table will be.
        name: of the table, for messages.
        dynamic: options that hold for this call.

    Raises:
        InvalidInputError: a row does not fit the table, such as one whose key is null; names column, row and value.
        AlreadyExistsError: there is a table now. Nothing was changed in both cases.
    """
    size = sum(one.file.size for one in plan.files)
    with (
        place(env, root, name) as aside,
        env.progress.work(f"copying the rows of {folder.root}", size_bytes=size, steps=len(plan.files)) as work,
    ):
        session = WriteSession(_defined([replace(plan.schema, id=0)], env, aside, name, dynamic), env)
        try:
            for one in plan.files:
                for rows in _rows(one, plan, folder):
                    session.write(rows, None)
                work.advance(one.file.size)
            session.commit()
        except BaseException:
            session.abort()
            raise
        session.close()


def _rows(planned: PlannedFile, plan: Plan, folder: Folder) -> Iterator[pa.Table]:
    newest = plan.schema
    kinds = [newest.field(name).type for name in newest.partition_keys]
    constants = tuple(zip(newest.partition_keys, deserialize(planned.partition, kinds), strict=True))
    stored = plan.versions[planned.file.schema_id].fields
    target = FileToRead(planned.source, planned.file, stored, newest.id, constants=constants)
    reader = DataFileReader(folder.storage, target, columns=newest.fields, part_bytes=_PART_BYTES)
    with contextlib.closing(reader):
        while (rows := reader.read(_READ_ROWS)) is not None:
            yield rows


def _check_unchanged(plan: Plan, places: Sequence[str], env: Env, what: str) -> None:
    """Refuse files that another process has replaced since their footers were read.

    Args:
        places: where the files of the plan lie now.

    Raises:
        ConflictError: there is one.
    """
    directories = sorted({path.rpartition("/")[0] for path in places})
    sizes = {
        join(directory, entry.name): entry.size
        for directory, entries in zip(directories, env.fetch(env.storage.list, directories), strict=True)
        for entry in entries
    }
    for one, path in zip(plan.files, places, strict=True):
        if sizes.get(path) != one.file.size:
            raise ConflictError(
                f"{what}: '{one.source}' was replaced or removed meanwhile: it had {one.file.size:,} bytes. There is "
                "no table. Stop the writers of the folder, then call it again.",
                path=one.source,
            )


def _place(table: TableDef, planned: PlannedFile) -> str:
    return join(table.bucket_directory(planned.partition, _BUCKET), planned.file.name)


def _messages(plan: Plan, *, keep: bool) -> list[CommitMessage]:
    by_partition: dict[bytes, list[PlannedFile]] = {}
    for planned in plan.files:
        by_partition.setdefault(planned.partition, []).append(planned)
    return [
        CommitMessage(
            partition,
            _BUCKET,
            _UNAWARE,
            tuple(replace(one.file, external_path=one.source) if keep else one.file for one in files),
        )
        for partition, files in by_partition.items()
    ]


def _defined(versions: Sequence[TableSchema], env: Env, aside: str, name: str, dynamic: Mapping[str, str]) -> TableDef:
    """Return a new table with some schemas, by id.

    Args:
        dynamic: options that hold for the table that is returned.
    """
    paths = TablePaths(aside)
    for version in versions:
        SchemaStore(paths, env).create(version)
    schema = versions[-1]
    return TableDef(name=name, path=aside, schema=schema, options=schema.options.merged(dynamic))


@contextlib.contextmanager
def place(env: Env, root: str, name: str) -> Iterator[str]:
    """Give a hidden directory for a table that is being made; then publish it. After an error, nothing is left of it.

    Args:
        root: where the table will be.
        name: of the table, for messages.

    Raises:
        AlreadyExistsError: there is a table at its place now; nothing was changed.
    """
    database, _, own = root.rpartition("/")
    _remove_old(env, database)
    aside = join(database, f".{own}.{env.new_id()}.tmp")
    try:
        yield aside
        _publish(env, aside, root, name)
    except (MerganserError, KeyboardInterrupt):
        with contextlib.suppress(MerganserError):
            env.storage.delete_tree(aside)
        raise
    finally:
        env.cache.drop_prefix(aside)
        env.cache.drop_prefix(root)


def _publish(env: Env, aside: str, root: str, name: str) -> None:
    """Move a whole table to its place.

    Raises:
        AlreadyExistsError: there is something at its place.
        StorageError: the store failed; there is no table at its place.
    """
    ours = env.storage.read(TablePaths(aside).schema(0))  # no other file has its bytes (`meta.schemas`)
    try:
        env.storage.move_tree(aside, root)
    except AlreadyExistsError as error:
        raise AlreadyExistsError(
            f"cannot make the table '{name}': there is something at '{root}' now. Nothing was changed. Choose another "
            "name.",
            table=name,
            path=root,
        ) from error
    except StorageError:
        with contextlib.suppress(MerganserError):
            if env.storage.read(TablePaths(root).schema(0)) == ours:  # the reply was lost, or the rest of the copies
                env.storage.delete_tree(aside)
                return
        raise


def _remove_old(env: Env, database: str) -> None:
    """Remove what calls that were stopped have left in a database, a day ago or earlier. Best effort.

    A local disk sets tables that are dropped aside under such names, too, before it removes them.
    """
    with contextlib.suppress(MerganserError):
        for entry in env.storage.list(database):
            if not entry.is_directory or not _REMAINS.fullmatch(entry.name):
                continue
            aside = join(database, entry.name)
            if _is_older(env, aside, env.now_ms() - _DAY_MS):
                env.storage.delete_tree(aside)


def _is_older(env: Env, directory: str, than_ms: int) -> bool:
    """Return whether nothing below a directory was written at a time or later: who copies much writes for long."""
    return all(
        _is_older(env, join(directory, found.name), than_ms) if found.is_directory else found.modified_ms < than_ms
        for found in env.storage.list(directory)
    )
