"""Report of an erasure: what was done, and what still holds rows. It can be kept as proof.

It holds no value of an erased row, only what the caller passed as the filter. Files are named without their
directories, since a directory may be named by a value of a partition column.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from merganser.scan.rows import counted
from merganser.values import dataclass

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Holding:
    """What holds, or held, erased rows.

    Attributes:
        kind: "snapshot", "tag", "changelog", "consumer"; "branch": one whose rows were not asked; "file": one that no
            snapshot names, or that lies outside of the table; "log": the topic of the table's log.
        name: its name, the number of a snapshot, the name of a file or of a topic.
        branch: the branch that it belongs to; "main" for the table itself.
        advice: how to end it.
    """

    kind: str
    name: str
    branch: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Erasure:
    """What `Table.erase` did.

    Attributes:
        table: name of the table.
        where: the filter, as the caller passed it.
        everywhere: whether snapshots, tags, changelogs and consumers that held rows were to end.
        erased_by: the commit user.
        started, finished: when, in UTC.
        snapshot: the newest snapshot of the table when it was verified; None: the table has none. Readers that have
            read it know of the deletion, and a later call with `everywhere` ends nothing that they need.
        rows: rows of the newest state that were deleted, in all branches; None: files were dropped unread.
        versions: stored rows of all kinds in the live files that others replaced: files that were written again
            without them, and those that a compaction of this call replaced, so that streams are told of the deletion.
        keys: how many keys the filter found; None: the filter itself says which versions are erased.
        rewritten: names of these files.
        removed: names of all files that were removed from the store.
        ended: what ended for the erasure.
        held: what still holds erased rows, or may hold some since it cannot be read. Empty: no file of the table holds
            one.
        files_read, rows_read, bytes_read: data and changelog files that the verification read: all that are there.
    """

    table: str
    where: str
    everywhere: bool
    erased_by: str
    started: datetime
    finished: datetime
    snapshot: int | None
    rows: int | None
    versions: int
    keys: int | None
    rewritten: tuple[str, ...]
    removed: tuple[str, ...]
    ended: tuple[Holding, ...]
    held: tuple[Holding, ...]
    files_read: int
    rows_read: int
    bytes_read: int

    @property
    def is_complete(self) -> bool:
        """Whether no file of the table holds an erased row any more."""
        return not self.held

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values of JSON; times are ISO text."""
        found = asdict(self)
        found["started"], found["finished"] = self.started.isoformat(), self.finished.isoformat()
        return {"is_complete": self.is_complete, **found}

    def to_json(self) -> str:
        """Return the report as JSON text, to be stored."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def __str__(self) -> str:
        """Return the report for people, some lines."""
        rows = "rows of whole files" if self.rows is None else counted(self.rows, "row")
        read = f"{counted(self.files_read, 'file')}, {counted(self.rows_read, 'stored row')}, {self.bytes_read:,} bytes"
        lines = [
            f"erased {rows} of {self.table} where {self.where}",
            f"files      {len(self.rewritten):,} written again, {len(self.removed):,} removed",
            f"verified   {read if self.files_read else 'the table has no data or changelog file'}",
        ]
        if self.ended:
            lines.append(f"ended      {_listed(self.ended)}")
        if self.held:
            lines.append(f"still held {_listed(self.held)}")
            lines += [f"           {advice}" for advice in dict.fromkeys(one.advice for one in self.held if one.advice)]
            if self.snapshot is not None and not self.everywhere:
                spared = f"those that have read snapshot {self.snapshot}"
                lines.append(f"readers    erase(..., everywhere=True) spares {spared}")
        else:
            lines.append("complete   no file of the table holds an erased row")
        return "\n".join(lines)

    def __repr__(self) -> str:
        state = "complete" if self.is_complete else f"held by {len(self.held)}"
        return f"Erasure({self.table!r}, rows={self.rows}, {state})"


def _listed(holdings: Sequence[Holding]) -> str:
    names = [
        f"{one.kind} {one.name}" + ("" if one.branch == "main" else f" of branch {one.branch}") for one in holdings
    ]
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
