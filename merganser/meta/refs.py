"""Names for snapshots: the tags and the branches of a table.

A tag is a copy of a snapshot's file under a name; a branch is a directory with schemas, snapshots and tags of its own.
Neither copies data: manifests and data files lie once, in the table's directory, and stay while any snapshot, tag or
branch needs them. A fixed order on both sides keeps the files of a named snapshot::

    make a tag or branch      1 read the snapshot     2 make the name visible     3 check that the snapshot still exists
    delete its files          1 remove the snapshot (or tag)     2 list tags and branches     3 delete the other files

If the snapshot exists in step 3, the deletion has not begun and will list the new name. Otherwise the maker removes
the name again.

Format: sections "statistics, tags, branches, consumers" and "tags, branches, rollback".
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from merganser.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ExpiredError,
    FormatError,
    InvalidInputError,
    NotFoundError,
)
from merganser.meta.create_once import create_once
from merganser.meta.data_file import plain_name
from merganser.meta.schemas import SchemaStore
from merganser.meta.seal import sealed_json
from merganser.meta.snapshot import Snapshot, same_snapshot, snapshot_from_json
from merganser.meta.snapshots import SnapshotStore
from merganser.options.registry import did_you_mean
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths
from merganser.values import dataclass

MAIN: Final = "main"
"""The branch that is the table itself."""
_CREATED: Final = "tagCreateTime"
_RETAINED: Final = "tagTimeRetained"
_TAG: Final = "tag-"
_BRANCH: Final = "branch-"
_DROP: Final = "drop-"
_NUMERIC: Final = re.compile(r"[0-9]+")
_NAME_BYTES_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tag:
    """A snapshot that is kept by name.

    Attributes:
        name: the tag.
        snapshot: what it keeps. It need not be among the table's snapshots any more.
        create_time: when it was made, in UTC; None of tags that are kept for ever.
        time_retained: how long it is kept; None: for ever.
    """

    name: str
    snapshot: Snapshot
    create_time: datetime | None = None
    time_retained: timedelta | None = None

    @property
    def snapshot_id(self) -> int:
        """The id of its snapshot. After a rollback the table may have another snapshot of that id."""
        return self.snapshot.id

    @property
    def schema_id(self) -> int:
        """The schema of its snapshot."""
        return self.snapshot.schema_id

    @property
    def commit_time(self) -> datetime:
        """When its snapshot was committed, in UTC."""
        return self.snapshot.commit_time

    @property
    def record_count(self) -> int | None:
        """Physical rows of its snapshot (not yet merged)."""
        return self.snapshot.total_record_count

    @property
    def expire_time(self) -> datetime | None:
        """When it may be dropped; None: never by itself."""
        if self.create_time is None or self.time_retained is None:
            return None
        try:
            return self.create_time + self.time_retained
        except OverflowError:
            return None

    def __repr__(self) -> str:
        return f"Tag({self.name!r}, snapshot={self.snapshot.id})"


@dataclass(frozen=True, slots=True)
class TagStore:
    """Reads and makes the tags of one table or branch."""

    paths: TablePaths
    env: Env
    table_name: str

    def names(self) -> list[str]:
        """Return the names of all tags, sorted."""
        entries = self.env.storage.list(self.paths.tag_directory)
        return sorted(
            e.name.removeprefix(_TAG) for e in entries if not e.is_directory and e.name.startswith(_TAG) and e.name[4:]
        )

    def list(self) -> tuple[Tag, ...]:
        """Return all tags, by snapshot, then by name. One that is dropped meanwhile may be missing.

        Raises:
            FormatError: one of them is damaged; names its path.
        """
        found = self.env.map(self.get, self.names())
        return tuple(sorted((tag for tag in found if tag is not None), key=lambda tag: (tag.snapshot.id, tag.name)))

    def get(self, name: str) -> Tag | None:
        """Return a tag, or None."""
        path = self.paths.tag(name)
        try:
            data = self.env.storage.read(path)
        except NotFoundError:
            return None
        return _tag_from_json(name, data, path)

    def load(self, name: str) -> Tag:
        """Return a tag.

        Raises:
            NotFoundError: there is none of this name.
            InvalidInputError: no tag can have this name.
            FormatError: its file is damaged.
        """
        check_tag_name(name, what=f"cannot read '{self.table_name}'")
        tag = self.get(name)
        if tag is None:
            names = self.names()
            hint = did_you_mean(name, names) if names else f"It has none; tags.create('{name}') makes one."
            raise NotFoundError(
                f"table '{self.table_name}' has no tag '{name}'. {hint}", table=self.table_name, tag=name
            )
        return tag

    def create(self, tag: Tag, *, copied_from: str | None = None) -> None:
        """Make a tag; of racing creators of one name one wins. A lost reply is resolved by reading back.

        Args:
            copied_from: the tag that keeps the snapshot; None: it is among the table's snapshots.

        Raises:
            AlreadyExistsError: the name is taken; nothing was changed.
            ExpiredError: the snapshot was removed meanwhile, and its files with it; there is no such tag.
            StorageError: the store failed; nothing was changed.
            CommitUnknownError: the store failed and so did reading back: it may be there or not.
        """
        self._create(tag)
        if not self.keeps(tag.snapshot, copied_from):
            self.delete(tag.name)
            raise ExpiredError(
                f"cannot create tag '{tag.name}' of '{self.table_name}': snapshot {tag.snapshot.id} was removed "
                "meanwhile, by expiry or by a rollback. There is no such tag. Choose another snapshot.",
                table=self.table_name,
                tag=tag.name,
                snapshot=tag.snapshot.id,
            )

    def keeps(self, snapshot: Snapshot, tag: str | None) -> bool:
        """Return whether a snapshot is still there: among the table's, or kept by a tag."""
        if tag is None:
            found = SnapshotStore(self.paths, self.env, self.table_name).get(snapshot.id)
        else:
            kept = self.get(tag)
            found = None if kept is None else kept.snapshot
        return found is not None and same_snapshot(found, snapshot)

    def _create(self, tag: Tag) -> None:
        data = _tag_to_json(tag)
        # Tags of one snapshot that never expire are the same bytes, whichever process makes them. So of two processes
        # that make the same tag at once, the one that lost its reply may take the other's for its own: what it asked
        # for is there.
        made = create_once(self.env, self.paths.tag(tag.name), data, is_ours=lambda found, sent: sent and found == data)
        if made.unknown is not None:
            raise CommitUnknownError(
                f"cannot tell whether tag '{tag.name}' of '{self.table_name}' was made: {made.unknown} Look whether it "
                "is there, then try again.",
                table=self.table_name,
                tag=tag.name,
            ) from made.unknown
        if made.stored is None:
            raise AlreadyExistsError(
                f"cannot create tag '{tag.name}' of '{self.table_name}': there is one of this name. Nothing was "
                "changed. Drop it first, or choose another name.",
                table=self.table_name,
                tag=tag.name,
            )

    def replace(self, tag: Tag) -> None:
        """Make a tag of the newest snapshot, in the place of one of its name if there is one; its data stays."""
        self.env.storage.replace(self.paths.tag(tag.name), _tag_to_json(tag), durable=True)

    def delete(self, name: str) -> None:
        """Remove a tag's file, and its marker; its data stays."""
        self.env.storage.delete([self.paths.tag(name), self.paths.tag_marker(name)])

    def mark(self, name: str) -> None:
        """Write the marker file that says that a tag is complete."""
        now = self.env.now_ms()
        data = json.dumps({"creationTime": now, "modificationTime": now}).encode()
        self.env.storage.replace(self.paths.tag_marker(name), data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A line of snapshots beside the table's own, over the same data files.

    Attributes:
        name: the branch.
        create_time: when its first schema was stored there, in UTC.
    """

    name: str
    create_time: datetime


@dataclass(frozen=True, slots=True)
class BranchStore:
    """Finds the branches of one table; `main` is none of them."""

    paths: TablePaths
    env: Env
    table_name: str

    def names(self) -> list[str]:
        """Return the names of all branches, sorted. A directory without a schema is none."""
        found = self.env.storage.list(self.paths.branch_directory)
        names = sorted(e.name.removeprefix(_BRANCH) for e in found if e.is_directory and e.name.startswith(_BRANCH))
        there = self.env.map(self.exists, names)
        return [name for name, exists in zip(names, there, strict=True) if name and exists]

    def dropping(self) -> list[str]:
        """Return the names of the branches whose removal has begun and not ended, sorted."""
        found = self.env.storage.list(self.paths.branch_directory)
        return sorted(e.name.removeprefix(_DROP) for e in found if not e.is_directory and e.name.startswith(_DROP))

    def list(self) -> tuple[Branch, ...]:
        """Return all branches, by name."""
        return tuple(Branch(name=name, create_time=self._created(name)) for name in self.names())

    def exists(self, name: str) -> bool:
        """Return whether there is a branch of this name."""
        return SchemaStore(self.paths.of_branch(name), self.env).exists()

    def load(self, name: str) -> TablePaths:
        """Return the paths of a branch.

        Raises:
            InvalidInputError: no branch can have this name.
            NotFoundError: there is no such branch.
        """
        check_branch_name(name, what=f"cannot open a branch of '{self.table_name}'")
        if not self.exists(name):
            names = self.names()
            hint = did_you_mean(name, names) if names else f"It has none; branches.create('{name}') makes one."
            raise NotFoundError(
                f"table '{self.table_name}' has no branch '{name}'. {hint}",
                table=self.table_name,
                branch=name,
            )
        return self.paths.of_branch(name)

    def all_paths(self) -> tuple[TablePaths, ...]:
        """Return the paths of main and of all branches: everything from where shared files can be reached."""
        return (self.paths.of_branch(MAIN), *(self.paths.of_branch(name) for name in self.names()))

    def _created(self, name: str) -> datetime:
        entries = self.env.storage.list(self.paths.of_branch(name).schema_directory)
        oldest = min((e.modified_ms for e in entries if not e.is_directory), default=0)
        return datetime.fromtimestamp(oldest / 1000, UTC)


def check_tag_name(name: object, *, what: str) -> None:
    """Refuse what cannot be the name of a tag.

    Raises:
        InvalidInputError: blank, with a slash, or too long for a file name.
    """
    if not isinstance(name, str) or not _can_name_a_file(name):
        raise InvalidInputError(
            f"{what}: {name!r:.80} cannot be the name of a tag. It is text that is not blank, has no slash and is at "
            f"most {_NAME_BYTES_MAX} bytes long.",
            tag=name,
        )


def check_branch_name(name: object, *, what: str) -> None:
    """Refuse what cannot be the name of a branch other than main.

    Raises:
        InvalidInputError: blank, with a slash or a `$`, too long, a number, or "main".
    """
    if not isinstance(name, str) or not _can_name_a_file(name) or "$" in name or _NUMERIC.fullmatch(name):
        raise InvalidInputError(
            f"{what}: {name!r:.80} cannot be the name of a branch. It is text that is not blank, has no slash and no "
            f"'$', is no number and at most {_NAME_BYTES_MAX} bytes long.",
            branch=name,
        )
    if name == MAIN:
        raise InvalidInputError(f"{what}: '{MAIN}' is the table itself. Choose another name.", branch=name)


def _can_name_a_file(name: str) -> bool:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return False
    return plain_name(name.strip()) and plain_name(name) and "\\" not in name and size <= _NAME_BYTES_MAX


def _tag_to_json(tag: Tag) -> bytes:
    """Return the bytes of a tag's file: the snapshot's, and the times of a tag that expires."""
    data = tag.snapshot.to_json()
    if tag.create_time is None or tag.time_retained is None:
        return data
    at = tag.create_time.astimezone()  # local time, as other engines write and compare it
    parts = [at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond * 1000]
    while len(parts) > 5 and not parts[-1]:
        parts.pop()
    seconds, micros = divmod(tag.time_retained // timedelta(microseconds=1), 1_000_000)
    times = f',\n  "{_CREATED}": {json.dumps(parts)},\n  "{_RETAINED}": {seconds}.{micros * 1000:09d}\n}}'
    return sealed_json(data.removesuffix(b"\n}") + times.encode())


def _tag_from_json(name: str, data: bytes, path: str) -> Tag:
    snapshot = snapshot_from_json(data, path)
    created, retained = snapshot.unknown.get(_CREATED), snapshot.unknown.get(_RETAINED)
    rest = {key: value for key, value in snapshot.unknown.items() if key not in (_CREATED, _RETAINED)}
    return Tag(
        name=name,
        snapshot=replace(snapshot, unknown=rest),
        create_time=None if created is None else _local_time(created, path),
        time_retained=None if retained is None else _seconds(retained, path),
    )


def _local_time(value: Any, path: str) -> datetime:
    """Return the instant of `[year, month, day, hour, minute, second, nanosecond]`, local; the last may be missing."""
    if isinstance(value, list) and 3 <= len(value) <= 7 and all(type(part) is int for part in value):
        year, month, day, hour, minute, second, nano = [*value, 0, 0, 0, 0][:7]
        try:
            return datetime(year, month, day, hour, minute, second, nano // 1000).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise _damaged(path, _CREATED, value, "a local time such as [2026, 1, 31, 12, 0, 0, 0]")


def _seconds(value: Any, path: str) -> timedelta:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        try:
            return timedelta(seconds=value)
        except OverflowError:
            return timedelta.max
    raise _damaged(path, _RETAINED, value, "a number of seconds")


def _damaged(path: str, key: str, value: Any, expected: str) -> FormatError:
    return FormatError(
        f"cannot read the tag '{path}': '{key}' is {value!r:.80}, not {expected}. Restore the file, or drop the tag.",
        path=path,
    )
