"""Snapshot: one committed state of a table, as the JSON file that makes it real.

Keys this version does not know are kept and written back unchanged when a snapshot is carried on.

Format: section "snapshots, commits and lifecycle", snapshot version 3.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from merganser.errors import FormatError
from merganser.html.tables import caption_html, facts_html, note_html, rows_html, shown
from merganser.meta.commit_metrics import CommitMetrics
from merganser.meta.data_file import plain_name
from merganser.meta.row_counts import RowCounts, counts_in
from merganser.meta.seal import JSON_SEAL, check_json_seal, sealed_json
from merganser.values import dataclass

VERSION: Final = 3
BATCH_IDENTIFIER: Final = 9_223_372_036_854_775_807
"""Commit identifier of commits that are never repeated."""

APPEND: Final = "APPEND"
COMPACT: Final = "COMPACT"
OVERWRITE: Final = "OVERWRITE"
ANALYZE: Final = "ANALYZE"

_APART: Final = "merganser.apart"
"""Of a snapshot that only holds a place: the one above it does not follow from it. Other engines pass over the key."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Snapshot:
    """One committed state.

    Attributes:
        id: 1, 2, 3, ... without gaps.
        schema_id: the newest schema when it was committed.
        base_manifest_list: list of the manifests of everything before this commit.
        delta_manifest_list: list of the manifests of this commit alone.
        commit_user, commit_identifier: the committer, and which of the committer's commits this is.
        commit_kind: APPEND, COMPACT, OVERWRITE or ANALYZE.
        time_millis: epoch milliseconds of the commit.
        total_record_count: physical rows of all live files (not yet merged).
        delta_record_count: rows of files added minus rows of files removed.
        log_offsets: by partition of the log beside the table, the offset after the last row that the state holds.
        metrics: what the commit cost, of a snapshot that this process has just made; it is not stored.
        others: optional facts as in the file, see the format.
    """

    id: int
    schema_id: int
    base_manifest_list: str
    delta_manifest_list: str
    commit_user: str
    commit_identifier: int
    commit_kind: str
    time_millis: int
    total_record_count: int | None = None
    delta_record_count: int | None = None
    uuid: str | None = None
    base_manifest_list_size: int | None = None
    delta_manifest_list_size: int | None = None
    changelog_manifest_list: str | None = None
    changelog_manifest_list_size: int | None = None
    changelog_record_count: int | None = None
    index_manifest: str | None = None
    writer_version: str | None = None
    watermark: int | None = None
    statistics: str | None = None
    properties: Mapping[str, str] | None = None
    next_row_id: int | None = None
    operation: str | None = None
    log_offsets: Mapping[int, int] | None = None
    version: int = VERSION
    unknown: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    metrics: CommitMetrics | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        named = "" if self.commit_identifier == BATCH_IDENTIFIER else f", commit_identifier={self.commit_identifier}"
        return (
            f"Snapshot(id={self.id}, commit_kind={self.commit_kind!r}, "
            f"commit_time='{self.commit_time:%Y-%m-%d %H:%M:%S} UTC', "
            f"total_record_count={self.total_record_count}, commit_user={self.commit_user!r}{named})"
        )

    def _repr_html_(self) -> str:
        """Return the facts of the snapshot, for notebooks."""
        return shown(repr(self), lambda: (caption_html(f"snapshot {self.id}"), facts_html(self._facts())))

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "commit_kind", self.commit_kind
        yield "commit_time", f"{self.commit_time:%Y-%m-%d %H:%M:%S} UTC"
        for name in ("total_record_count", "delta_record_count", "changelog_record_count", "watermark"):
            if (number := getattr(self, name)) is not None:
                yield name, f"{number:,}"
        changed = {"inserted": self.rows_inserted, "updated": self.rows_updated, "deleted": self.rows_deleted}
        yield from ((f"rows_{verb}", f"{rows:,}") for verb, rows in changed.items() if rows is not None)
        yield "schema_id", str(self.schema_id)
        yield "commit_user", self.commit_user
        if self.commit_identifier != BATCH_IDENTIFIER:
            yield "commit_identifier", str(self.commit_identifier)
        if self.operation is not None:
            yield "operation", self.operation
        if self.metrics is not None:
            yield "metrics", ", ".join(f"{name} {seconds:.3f} s" for name, seconds in self.metrics.seconds.items())

    @property
    def commit_time(self) -> datetime:
        """When it was committed, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.time_millis)

    @property
    def is_apart(self) -> bool:
        """Whether it only holds a place, so that the snapshot above it may belong to another history."""
        return self.unknown.get(_APART) is True

    def apart(self) -> Snapshot:
        """Return it as one that only holds a place."""
        return replace(self, unknown={**self.unknown, _APART: True})

    @property
    def rows_inserted(self) -> int | None:
        """How many rows a merge inserted; None: the commit was no delete, update or merge."""
        return self._rows_changed.inserted

    @property
    def rows_updated(self) -> int | None:
        """How many rows an update or merge changed; None: as for `rows_inserted`."""
        return self._rows_changed.updated

    @property
    def rows_deleted(self) -> int | None:
        """How many rows a delete or merge removed; None: as for `rows_inserted`, or files went without being read."""
        return self._rows_changed.deleted

    @property
    def _rows_changed(self) -> RowCounts:
        return counts_in(self.properties, self.id) or RowCounts(None, None, None)

    def without_changelog(self) -> Snapshot:
        """Return it as one that made no changelog files."""
        return replace(
            self, changelog_manifest_list=None, changelog_manifest_list_size=None, changelog_record_count=None
        )

    def to_json(self) -> bytes:
        """Return the bytes of the snapshot file."""
        out: dict[str, Any] = {}
        for name, key in _KEYS.items():
            value = getattr(self, name)
            if value is not None:
                out[key] = dict(value) if isinstance(value, Mapping) else value
        out.update(self.unknown)
        return sealed_json(json.dumps(out, indent=2).encode())


_SHOWN: Final = 20


class Snapshots(tuple[Snapshot, ...]):
    """Snapshots of a table, oldest first. Notebooks show the newest of them as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return shown(repr(self), self._parts)

    def _parts(self) -> Sequence[str]:
        names = ("id", "commit_kind", "commit_time", "total_record_count", "delta_record_count", "commit_user")
        newest = self[-_SHOWN:]
        rows = pa.table({name: [getattr(one, name) for one in newest] for name in names})
        number = f"{len(self):,} snapshot{'' if len(self) == 1 else 's'}"
        more = f"; the newest {_SHOWN} are shown" if len(self) > _SHOWN else ""
        return rows_html(rows), note_html(f"{number}{more}")


_KEYS: Final[dict[str, str]] = {
    "version": "version",
    "uuid": "uuid",
    "id": "id",
    "schema_id": "schemaId",
    "base_manifest_list": "baseManifestList",
    "base_manifest_list_size": "baseManifestListSize",
    "delta_manifest_list": "deltaManifestList",
    "delta_manifest_list_size": "deltaManifestListSize",
    "changelog_manifest_list": "changelogManifestList",
    "changelog_manifest_list_size": "changelogManifestListSize",
    "index_manifest": "indexManifest",
    "commit_user": "commitUser",
    "writer_version": "writerVersion",
    "commit_identifier": "commitIdentifier",
    "commit_kind": "commitKind",
    "time_millis": "timeMillis",
    "log_offsets": "logOffsets",
    "total_record_count": "totalRecordCount",
    "delta_record_count": "deltaRecordCount",
    "changelog_record_count": "changelogRecordCount",
    "watermark": "watermark",
    "statistics": "statistics",
    "properties": "properties",
    "next_row_id": "nextRowId",
    "operation": "operation",
}
_REQUIRED: Final = frozenset(f.name for f in fields(Snapshot) if f.name in _KEYS) - {
    name for name in _KEYS if Snapshot.__dataclass_fields__[name].default is None
}
_TEXT: Final = frozenset(
    [
        "uuid",
        "base_manifest_list",
        "delta_manifest_list",
        "changelog_manifest_list",
        "index_manifest",
        "commit_user",
        "writer_version",
        "commit_kind",
        "statistics",
        "operation",
    ]
)
_FILES: Final = frozenset(
    ["base_manifest_list", "delta_manifest_list", "changelog_manifest_list", "index_manifest", "statistics"]
)
_COUNTS: Final = frozenset(
    [
        "id",
        "schema_id",
        "base_manifest_list_size",
        "delta_manifest_list_size",
        "changelog_manifest_list_size",
        "next_row_id",
    ]
)
_DIGITS: Final = re.compile(r"[0-9]{1,9}")
_LONG_MAX: Final = (1 << 63) - 1
_TIME_MAX: Final = 253_402_300_799_999
_PASSED_OVER: Final = frozenset({JSON_SEAL})
_OBJECTS: Final = frozenset(["properties", "log_offsets"])


def same_snapshot(a: Snapshot, b: Snapshot) -> bool:
    """Return whether two files hold one snapshot. Ids are used again after a rollback; names of lists are random.

    Attempts of one commit have one uuid and one delta list, and a base list each.
    """
    return (
        a.id == b.id and a.base_manifest_list == b.base_manifest_list and a.delta_manifest_list == b.delta_manifest_list
    )


@lru_cache(maxsize=64)
def snapshot_from_json(data: bytes, path: str) -> Snapshot:
    """Return the snapshot of a file's bytes. A commit reads the same snapshot three times.

    Raises:
        FormatError: not a snapshot of version 3; names the path and what is wrong.
    """
    check_json_seal(data, path)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise _damaged(path, "it is not a JSON object")
    if value.get("version") not in (None, VERSION):
        raise _damaged(path, f"its version is {value['version']!r:.40}, and only version {VERSION} is known")
    known: dict[str, Any] = {}
    for name, key in _KEYS.items():
        item = value.get(key)
        if item is None:
            if name in _REQUIRED and name != "version":
                raise _damaged(path, f"'{key}' is missing")
            continue
        expected: type = str if name in _TEXT else dict if name in _OBJECTS else int
        if not isinstance(item, expected) or isinstance(item, bool):
            raise _damaged(
                path,
                f"'{key}' is {item!r:.80}, not "
                f"{'text' if expected is str else 'an object' if expected is dict else 'a number'}",
            )
        if why := _impossible(name, item):
            raise _damaged(path, f"'{key}' is {item!r:.80}, {why}")
        known[name] = item
    offsets = {int(partition): offset for partition, offset in known.pop("log_offsets", {}).items()}
    if offsets:  # older releases of other writers keep an empty object, without a log
        known["log_offsets"] = offsets
    unknown = {key: item for key, item in value.items() if key not in _KEYS.values() and key not in _PASSED_OVER}
    return Snapshot(**known, unknown=unknown)


def _impossible(name: str, item: Any) -> str | None:
    """Return why a value cannot be, or None."""
    if name in _FILES and not plain_name(item):
        return "which is not a file name"
    if name in _COUNTS and not 0 <= item <= _LONG_MAX:
        return "which is no number of its kind"
    if name == "log_offsets" and not all(_DIGITS.fullmatch(part) and _is_long(at) for part, at in item.items()):
        return "which does not map partitions of a log to offsets"
    if isinstance(item, int) and not -_LONG_MAX - 1 <= item <= _LONG_MAX:
        return "which does not fit 64 bits"
    if name == "time_millis" and not 0 <= item <= _TIME_MAX:
        return "which is no time between 1970 and 9999"
    return None


def _is_long(value: Any) -> bool:
    return type(value) is int and -_LONG_MAX - 1 <= value <= _LONG_MAX


def _damaged(path: str, why: str) -> FormatError:
    return FormatError(
        f"cannot read the snapshot '{path}': {why}. Other snapshots stay readable. Restore the file, or roll back "
        "to an earlier snapshot.",
        path=path,
    )
