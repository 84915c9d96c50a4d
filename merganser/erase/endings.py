"""Endings: snapshots, tags and changelogs that hold erased rows end, and the files that only they needed go.

Steps::

    1  note      write `erase/erase-<id>`: the files that are to go; change nothing else yet
    2  end       consumers, then tags, then long-lived changelogs, then snapshots from the oldest up. What readers
                 miss is noted before: a reader that was not told of the deletion gets an error that says so
    3  remove    those of the noted files that no metadata needs any more (`upkeep.garbage`)
    4  forget    remove the note

Names go before their files, as for every expiry (decision 0016). A crash after step 2 leaves files that no metadata
names. They are younger than a day perhaps, so the removal of orphans would leave them for a possible writer. The note
says that they are none of a writer's: the next erasure finishes the removal (`finish`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from merganser.erase.inventory import Holder, Line
from merganser.erase.report import Holding
from merganser.meta.changelogs import ChangelogStore
from merganser.meta.consumers import ConsumerStore
from merganser.meta.erased import erasure_of, note_ended
from merganser.meta.refs import MAIN, TagStore
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.storage.paths import join
from merganser.upkeep.expire_snapshots import end_snapshots
from merganser.upkeep.garbage import note_garbage, noted_garbage, remove_unneeded

_DIRECTORY: Final = "erase"
_PREFIX: Final = "erase-"


def note(table: TableDef, env: Env, paths: Collection[str]) -> frozenset[str]:
    """Note the files that are to go, durably; return them: files outside of the table stay."""
    return note_garbage(table, env, join(table.path, _DIRECTORY, f"{_PREFIX}{env.new_id()}"), paths)


def finish(table: TableDef, env: Env, own: Collection[str] = ()) -> tuple[str, ...]:
    """Remove noted files that no metadata needs, of all notes, and forget the notes.

    What metadata still needs is noted again by the erasure that ends that metadata.

    Args:
        own: files that this erasure has noted: another one may have forgotten its note already.

    Returns:
        The paths that were removed.
    """
    directory = join(table.path, _DIRECTORY)
    notes = [join(directory, one.name) for one in env.storage.list(directory) if one.name.startswith(_PREFIX)]
    noted = set(own)
    for path in notes:
        noted |= noted_garbage(table, env, path) or set()  # another erasure may have finished it
    removed = remove_unneeded(table, env, noted) if noted else ()
    env.storage.delete(notes)
    env.storage.delete_empty([directory] if notes else [])
    return removed


def end_holders(line: Line, env: Env, manifests: Collection[str]) -> list[Holding]:
    """End what names one of some manifests; step 2. The newest snapshot names none of them.

    Snapshots have no gaps, so those below the last one that ends end too.

    Args:
        line: the table itself or a branch.
        manifests: names of the manifests that must go.

    Returns:
        What ended.
    """
    table, ended = line.table, list[Holding]()
    tags, changelogs = (_naming(line, kind, manifests) for kind in ("tag", "changelog"))
    snapshots, last = line.of_kind("snapshot"), _naming(line, "snapshot", manifests)
    gone = [one for one in snapshots if last and one.snapshot.id <= last[-1].snapshot.id]
    first_kept = max([0, *(one.snapshot.id for one in (*gone, *changelogs))]) + 1
    if first_kept > 1 and erasure_of(table.paths, env, first_kept - 1) is None:
        note_ended(env, table.paths.ended, first_kept - 1)
    for consumer in line.consumers:
        if consumer.next_snapshot < first_kept:
            ConsumerStore(table.paths, env, table.name).end(consumer)
            ended.append(Holding("consumer", consumer.id, table.branch))
    for tag in tags:
        TagStore(table.paths, env, table.name).delete(tag.name)
        ended.append(Holding("tag", tag.name, table.branch))
    last_changelog = max((one.snapshot.id for one in changelogs), default=0)
    for one in line.of_kind("changelog"):
        if one.snapshot.id <= max(last_changelog, gone[-1].snapshot.id if gone else 0):
            ChangelogStore(table.paths, env).delete(one.snapshot.id)
            ended.append(Holding("changelog", one.name, table.branch))
    stays = [one.snapshot for one in snapshots if gone and one.snapshot.id == gone[-1].snapshot.id + 1]
    if stays:
        done = end_snapshots(table, env, [*(one.snapshot for one in gone), *stays])
        ended += [Holding("snapshot", str(one.id), table.branch) for one in done]
    return ended


def holdings(line: Line, manifests: Collection[str]) -> list[Holding]:
    """Return what of a line names one of some manifests, and how to end it."""
    found = []
    where = "table" if line.table.branch == MAIN else f"table.branch('{line.table.branch}')"
    for holder in line.holders:
        if not holder.manifests.isdisjoint(manifests):
            advice = {
                "snapshot": f"{where}.expire(...) ends snapshots, erase(..., everywhere=True) all that hold rows.",
                "tag": f"{where}.tags.drop('{holder.name}') ends a tag.",
                "changelog": "Changelogs end with 'changelog.time-retained', or with erase(..., everywhere=True).",
            }[holder.kind]
            found.append(Holding(holder.kind, holder.name, line.table.branch, advice))
    last = max((int(one.name) for one in found if one.kind == "snapshot"), default=0)
    found += [
        Holding("consumer", one.id, line.table.branch, f"{where}.consumers.drop('{one.id}') lets its snapshots expire.")
        for one in line.consumers
        if one.next_snapshot <= last
    ]
    return found


def _naming(line: Line, kind: str, manifests: Collection[str]) -> list[Holder]:
    return [one for one in line.of_kind(kind) if not one.manifests.isdisjoint(manifests)]
