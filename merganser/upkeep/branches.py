"""Branches: create, drop and fast-forward.

`create_branch` builds a branch under a hidden name and renames it in one step. So no reader sees an incomplete branch,
and one of two creators wins. A branch shares manifests and data files with main; `meta.refs` explains why none of them
is removed meanwhile.

A crash may follow each step of a removal, and the same call, or one that creates a branch of the name, finishes it::

    1  note        write `branch/drop-<name>`: the files that the branch needs
    2  drop        remove its directory, which a store may first set aside
    3  remove      those of the noted files that nothing else needs, and directories that were set aside
    4  forget      remove the note

A crash may follow each step of a fast-forward, and the same call finishes the work::

    1  check       find the fork, the newest snapshot that both have; refuse a branch that does not fit or is damaged
    2  main back   roll main back to the fork, if main has later snapshots
    3  schemas     replace the schemas after the fork's by those of the branch, before a snapshot needs them
    4  snapshots   create those of the branch in rising order, over no existing file: the newest is always a state of
                   the branch. If both share no snapshot, long-lived changelogs of main go first. If the branch was
                   made empty, its first snapshot replaces the one that main kept. Until then the kept snapshot says
                   that those above do not follow from it, so no reader combines them
    5  tags        copy those of the branch

A reader of main sees a state of main, then a state of the branch, and always a whole state. If main has no snapshot
after the fork, the fast-forward removes nothing. If a writer of main takes an id meanwhile, the fast-forward fails:
main is then at a state of the branch, with that commit on top.

Format: section "statistics, tags, branches, consumers". Decision 0015.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

from merganser.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    FormatError,
    InvalidInputError,
    MerganserError,
    NotFoundError,
    SnapshotExistsError,
    StorageError,
)
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.create_once import create_once
from merganser.meta.refs import BranchStore, Tag, TagStore, check_branch_name
from merganser.meta.schemas import SchemaStore
from merganser.meta.snapshot import Snapshot, same_snapshot
from merganser.meta.snapshots import SnapshotStore
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options.registry import did_you_mean
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths, join
from merganser.upkeep.garbage import note_garbage, noted_garbage, remove_unneeded
from merganser.upkeep.needed_files import NeededFiles
from merganser.upkeep.rollback import guarded, take_back


def create_branch(table: TableDef, env: Env, name: str, *, tag: str | None = None) -> None:
    """Make a branch: empty, with the schemas of the table, or at a tag's snapshot.

    Raises:
        InvalidInputError: no branch can have this name.
        NotFoundError: there is no such tag.
        AlreadyExistsError: there is such a branch; nothing was changed.
        ExpiredError: the tag was dropped meanwhile; there is no such branch.
        StorageError: the store failed; there may be such a branch.
    """
    what = f"cannot create branch '{name}' of '{table.name}'"
    check_branch_name(name, what=what)
    tags = TagStore(table.paths, env, table.name)
    kept = None if tag is None else tags.load(tag)
    home = table.paths.of_branch(name)
    aside = join(table.paths.branch_directory, f".new-branch-{name}.{env.new_id()}.tmp")
    if env.storage.list(home.metadata_root):
        raise _taken(table, name, what)
    _finish_dropping(table, env, name)
    try:
        _build(table, env, kept, aside)
        try:
            env.storage.move_tree(aside, home.metadata_root)
        except AlreadyExistsError:
            raise _taken(table, name, what) from None
    except MerganserError:
        with contextlib.suppress(MerganserError):
            env.storage.delete_tree(aside)
        raise
    env.cache.drop_prefix(home.metadata_root)
    if kept is not None and not tags.keeps(kept.snapshot, kept.name):
        env.storage.delete_tree(home.metadata_root)
        raise ExpiredError(
            f"{what}: tag '{tag}' was dropped meanwhile. There is no such branch.", table=table.name, tag=tag
        )


def drop_branch(table: TableDef, env: Env, name: str) -> None:
    """Remove a branch, and the files that nothing else needs.

    Raises:
        NotFoundError: there is no such branch.
        FormatError, StorageError: the branch is gone, and some files were kept. If the message does not say that the
            branch is gone, nothing was changed.
    """
    check_branch_name(name, what=f"cannot drop a branch of '{table.name}'")
    home = table.paths.of_branch(name)
    noted = noted_garbage(table, env, table.paths.dropping(name))
    exists = bool(env.storage.list(home.metadata_root))  # what is left of a removal that was stopped is removed, too
    if not exists and noted is None:
        names = BranchStore(table.paths, env, table.name).names()
        hint = did_you_mean(name, names) if names else "The table has none."
        raise NotFoundError(
            f"cannot drop branch '{name}' of '{table.name}': there is none of this name. Nothing was changed. {hint}",
            table=table.name,
            branch=name,
        )
    if exists:
        try:
            reached = NeededFiles(table, env).line(home)
        except FormatError:  # what it kept is not known; its files go as those that nothing names
            reached = frozenset()
        note_garbage(table, env, table.paths.dropping(name), reached | (noted or frozenset()))
        env.storage.delete_tree(home.metadata_root)
        env.cache.drop_prefix(home.metadata_root)
    try:
        _finish_dropping(table, env, name)
    except (FormatError, StorageError) as error:
        raise type(error)(
            f"branch '{name}' of '{table.name}' is gone, but not all files that it alone kept: {error} Drop it again "
            "to remove the rest, or wait until they are removed with the orphans.",
            table=table.name,
            branch=name,
        ) from error


def _finish_dropping(table: TableDef, env: Env, name: str) -> None:
    """Remove what a dropped branch left: its metadata that was set aside, and the files that it alone needed."""
    note, directory = table.paths.dropping(name), table.paths.branch_directory
    noted = noted_garbage(table, env, note)
    if noted is None:
        return
    aside = re.compile(rf"\.branch-{re.escape(name)}\.[0-9a-f-]{{36}}\.tmp")
    for entry in env.storage.list(directory):
        if aside.fullmatch(entry.name):
            env.storage.delete_tree(join(directory, entry.name))
    remove_unneeded(table, env, noted)
    env.storage.delete([note])


def fast_forward(table: TableDef, env: Env, name: str) -> Snapshot:
    """Put a branch in the place of main: its schemas, its snapshots since the fork, and its tags.

    Returns:
        The newest snapshot of main, which is that of the branch.

    Raises:
        InvalidInputError: the branch has no snapshot.
        NotFoundError: there is no such branch.
        FormatError: a snapshot of the branch, or the newest of the table, is lost or damaged; nothing was changed.
        ConflictError: branch and table do not fit, and nothing was changed; or another writer committed to the table
            meanwhile: stop the writers and repeat.
        StorageError: the store failed; the table is at a state of its own or of the branch. Repeat.
    """
    what = f"cannot fast-forward '{table.name}' to branch '{name}'"
    main = table.paths.of_branch("main")
    branch = BranchStore(main, env, table.name).load(name)
    theirs = SnapshotStore(branch, env, f"{table.name}$branch_{name}")
    ours = SnapshotStore(main, env, table.name)
    _refuse_lost(ours, theirs, name, what)
    newest = theirs.latest()
    if newest is None:
        raise InvalidInputError(f"{what}: the branch has no snapshot yet. Write to it first.", branch=name)
    MetaReader(branch, env, theirs.table_name).state(newest)  # for a state that cannot be read nothing is given up
    fork = _fork(ours, theirs, what)
    first = theirs.ids()[0]
    common = fork is not None and (found := theirs.get(fork.id)) is not None and same_snapshot(found, fork)
    kept = 0 if fork is None else fork.id if common else min(fork.id, first - 1)
    # All are read before anything is given up for them.
    numbers = range(fork.id + 1 if fork else first, newest.id + 1)
    _, *taken = [theirs.load(number) for number in (first, *numbers)]
    tags = _new_tags(main, branch, env, kept, table, what)
    keep = _schemas_kept(main, branch, env, what)
    if fork is not None and (ours.latest_id() or 0) > fork.id:
        with guarded(table, env, fork):
            take_back(table, env, fork)
    _replace_schemas(main, branch, env, keep)
    if not common:
        ChangelogStore(main, env).delete_above(0)  # they lead to the snapshots that go
    if fork is not None and not common:
        # The branch does not follow from older snapshots: its first snapshot is the oldest of the table now.
        ours.replace(fork.apart())
        for number in [number for number in ours.ids() if number < fork.id]:
            ours.delete(number)
        for tag in TagStore(main, env, table.name).list():
            if tag.snapshot.id > kept:
                TagStore(main, env, table.name).delete(tag.name)
    for wanted in taken:
        number = wanted.id
        try:
            ours.create(wanted)
        except SnapshotExistsError as error:
            raise ConflictError(
                f"{what}: another writer committed snapshot {number} of the table meanwhile. The table is at a "
                "state of the branch with that commit on top. Stop its writers, then repeat; the commit is then lost.",
                table=table.name,
                branch=name,
                snapshot=number,
            ) from error
        if theirs.get(number) is None:  # looked after it is named here: see `meta.refs`
            ours.delete(number)
            raise ConflictError(
                f"{what}: its snapshot {number} expired meanwhile. The table is at one of its states, or of the "
                "branch's, and the branch is as it was. Stop what expires it, then repeat; where the branch cannot "
                "follow the table any more, read it and write its rows with overwrite={}.",
                table=table.name,
                branch=name,
                snapshot=number,
            )
    _replace_first(ours, theirs, first)
    if fork is not None and not common and fork.id < first:
        ours.delete(fork.id)
    ours.set_latest_hint(newest.id)
    for tag in tags:
        with contextlib.suppress(AlreadyExistsError):
            TagStore(main, env, table.name).create(tag)
    env.cache.drop_prefix(main.metadata_root)
    return newest


def _build(table: TableDef, env: Env, kept: Tag | None, aside: str) -> None:
    """Write the metadata of a new branch into a directory that is ours alone."""

    def put(kind: str, name: str, data: bytes) -> None:
        env.storage.replace(join(aside, kind, name), data, durable=True)

    newest = SchemaStore(table.paths, env).ids()[-1] if kept is None else kept.snapshot.schema_id
    for schema_id in range(newest + 1):
        put("schema", f"schema-{schema_id}", env.storage.read(table.paths.schema(schema_id)))
    if kept is not None:
        put("snapshot", f"snapshot-{kept.snapshot.id}", kept.snapshot.to_json())
        put("tag", f"tag-{kept.name}", env.storage.read(table.paths.tag(kept.name)))


def _refuse_lost(ours: SnapshotStore, theirs: SnapshotStore, name: str, what: str) -> None:
    """Raise FormatError if the newest snapshot of the branch, or of the table, is lost: decision 0031."""
    lost = theirs.lost(theirs.latest_id())
    if lost is not None:
        why = "The table would take a part of the branch for all of it"
        raise theirs.lost_error(lost, what, why=why, table=f"table.branch('{name}')")
    lost = ours.lost(ours.latest_id())
    if lost is not None:
        raise ours.lost_error(lost, what)


def _taken(table: TableDef, name: str, what: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"{what}: there is one of this name, or what is left of one that was dropped halfway. Nothing was changed. "
        f"Choose another name, or branches.drop('{name}') first.",
        table=table.name,
        branch=name,
    )


def _fork(ours: SnapshotStore, theirs: SnapshotStore, what: str) -> Snapshot | None:
    """Return the newest snapshot of the table that stays; None if the table has none.

    This is the newest snapshot that both have. A branch that was made empty shares none with the table. Then the
    snapshot of the table with the branch's first number stays until the other snapshots of the branch exist, so that
    the table never looks empty.

    Raises:
        ConflictError: the snapshot numbers of table and branch leave a gap.
    """
    mine, of_branch = ours.ids(), theirs.ids()
    for number in sorted(set(mine) & set(of_branch), reverse=True):
        found, other = ours.get(number), theirs.get(number)
        if found is not None and other is not None and same_snapshot(found, other):
            return found
    if not mine:
        return None
    for number in (of_branch[0], of_branch[0] - 1):
        if number in mine:
            return ours.load(number)
    raise ConflictError(
        f"{what}: the table has snapshots {mine[0]} to {mine[-1]} and the branch {of_branch[0]} to {of_branch[-1]}, "
        "which cannot follow them. Nothing was changed. Read the branch, and write its rows with overwrite={}.",
        table=ours.table_name,
    )


def _replace_first(ours: SnapshotStore, theirs: SnapshotStore, first: int) -> None:
    """Replace the snapshot that the table kept until now by the first snapshot of the branch."""
    found, wanted = ours.get(first), theirs.load(first)
    if found is not None and not same_snapshot(found, wanted):
        ours.replace(wanted)


def _new_tags(main: TablePaths, branch: TablePaths, env: Env, fork: int, table: TableDef, what: str) -> Sequence[Tag]:
    """Return the branch's tags that the table lacks.

    Raises:
        ConflictError: a tag that stays and a different tag of the branch have the same name.
    """
    mine = {tag.name: tag for tag in TagStore(main, env, table.name).list() if tag.snapshot.id <= fork}
    theirs = TagStore(branch, env, table.name).list()
    for tag in theirs:
        if tag.name in mine and not same_snapshot(tag.snapshot, mine[tag.name].snapshot):
            raise ConflictError(
                f"{what}: tag '{tag.name}' of the table keeps another snapshot than that of the branch. Nothing was "
                "changed. Drop one of them.",
                table=table.name,
                tag=tag.name,
            )
    return [tag for tag in theirs if tag.name not in mine]


def _schemas_kept(main: TablePaths, branch: TablePaths, env: Env, what: str) -> int:
    """Return the number of schemas, from the first on, that both have.

    Raises:
        ConflictError: the first schemas differ.
    """
    ours, theirs = SchemaStore(main, env), SchemaStore(branch, env)
    keep = 0
    for schema_id in theirs.ids():
        path = main.schema(schema_id)
        if not env.storage.exists(path) or ours.load(schema_id, fresh=True) != theirs.load(schema_id, fresh=True):
            break
        keep = schema_id + 1
    if not keep:
        raise ConflictError(f"{what}: they do not begin with the same schema. Nothing was changed.")
    return keep


def _replace_schemas(main: TablePaths, branch: TablePaths, env: Env, keep: int) -> None:
    """Replace the schemas of main from number `keep` on; remove the newest first, so that no gap arises."""
    for schema_id in reversed(SchemaStore(main, env).ids()):
        if schema_id >= keep:
            env.storage.delete([main.schema(schema_id)])
            env.cache.drop(main.schema(schema_id))
    for schema_id in SchemaStore(branch, env).ids():
        if schema_id >= keep:
            _put_schema(main.schema(schema_id), env.storage.read(branch.schema(schema_id)), env)


def _put_schema(path: str, data: bytes, env: Env) -> None:
    """Make a schema file unless there is one.

    Raises:
        StorageError, AlreadyExistsError: it is not known whether it is there.
    """
    made = create_once(env, path, data, is_ours=lambda found, _: found == data)
    if made.unknown is not None:
        raise made.unknown
