"""Committable: what a commit makes of a table, and what it relies on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field

from merganser.commit.conflict import Reads
from merganser.commit.message import CommitMessage
from merganser.meta.data_file import ManifestEntry
from merganser.meta.live_files import LiveFiles
from merganser.meta.row_counts import RowEdit
from merganser.meta.snapshot import APPEND, BATCH_IDENTIFIER
from merganser.meta.table_state import TableState
from merganser.values import dataclass


@dataclass(frozen=True)
class Committable:
    """The content of a commit.

    Attributes:
        messages: changes by bucket; their files are durable.
        kind: commit kind when nothing is removed.
        commit_user: the name of the committer.
        identifier: which of the user's commits it is; BATCH_IDENTIFIER when it is never repeated.
        overwrites: chooses the files that an overwrite removes, from each newest state; None: no overwrite.
        adapt: returns the messages as they may follow a state, such as with sequence numbers above those of its files,
            and the same messages again for the same state. None: they may follow any state, as those of a compaction,
            which moves rows, and of an overwrite, which leaves nothing in its buckets.
        allow_empty: make a snapshot even of no change.
        uuid: identifies the snapshot of the change; None: every call makes a new one.
        since: an earlier call with the same uuid cannot have made a snapshot below this id; None: there was no call.
        safe: the last snapshot that needs no check in strict mode; negative or None: no snapshot needs one.
        seconds: the time that its writers spent on its files, by phase; see `CommitMetrics`.
        watermark: epoch milliseconds up to which its writers have seen event times. The watermark of a table never
            falls; a higher one is a change by itself.
        properties: texts that this snapshot and all later ones record; they replace texts of the same name.
        batch: what tells the rows of a stream's batch from others of the same number; see `committers`.
        reads: the rows that the change was made from; they must not have changed. None: it was made from no rows.
        computed_from: the rows that a query read which gave the change its rows; likewise.
        rescales: the rows of its partitions move to another number of buckets.
        rekeys: the rows of the table get the key of the newest schema, which was made for this change.
        edit: what it does to rows that it looked at; None: it looked at none.
        untracked: chooses, of the partitions of the change, those whose changes it does not publish; None: none.
        merges: whether it merges versions of rows; only of a compaction. False: each new file holds rows of one file
            that goes, as they are.
        statistics: name of the file with the statistics of the table, of rows in its schema, which must be the newest;
            None: those of the snapshot before stay.
        renews_manifests: all manifests are merged into new ones that name live files alone, and the statistics of the
            table are left out. So nothing of files that are gone is in the metadata of the snapshot.
    """

    messages: Sequence[CommitMessage]
    commit_user: str
    identifier: int = BATCH_IDENTIFIER
    kind: str = APPEND
    overwrites: Callable[[LiveFiles], list[ManifestEntry]] | None = None
    adapt: Callable[[TableState], Sequence[CommitMessage]] | None = None
    allow_empty: bool = False
    uuid: str | None = None
    since: int | None = None
    safe: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    batch: str | None = None
    reads: Reads | None = None
    computed_from: Reads | None = None
    edit: RowEdit | None = None
    untracked: Callable[[Collection[bytes]], Collection[bytes]] | None = None
    rescales: bool = False
    rekeys: bool = False
    merges: bool = True
    renews_manifests: bool = False
    statistics: str | None = None
