"""Every storage call of a commit with changelog files, an index and a log beside it goes wrong once, in every way.

Whatever happens, the log and the table agree: rows that stand are shown, rows that do not were dropped, and of an
unknown outcome the repeat tells. What is left is sound, and a repeat is applied once.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from merganser.commit.committable import Committable
from merganser.commit.message import CommitMessage
from merganser.commit.table_commit import TableCommit
from merganser.errors import CommitUnknownError
from merganser.files.masks import index_path
from merganser.meta.index_manifest import IndexEntry
from merganser.meta.snapshot import Snapshot
from merganser.storage.protocol import Storage
from merganser.write.sequences import starting_sequences
from merganser.write.start import Start
from merganser.write.target import WriteTarget
from merganser.write.writer import table_writer
from tests.faults import run_some
from tests.kit.builders import catalog_over, contents, memory_with, with_changelog
from tests.kit.faulty import Outcome, Stopped

_names = itertools.count()
FUTURE = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass
class _Log:
    """Rows that wait, and rows that are visible."""

    waiting: bool = False
    visible: bool = False

    def check(self) -> None:
        pass

    def prepare(self, snapshot: Snapshot, previous: Snapshot | None) -> Snapshot:
        self.waiting = True
        return replace(snapshot, log_offsets={0: 42})

    def publish(self, snapshot: Snapshot | None) -> None:
        self.visible, self.waiting = True, False

    def drop(self) -> None:
        self.waiting = False


def _base(options: Mapping[str, str]) -> tuple[dict[str, bytes], list[CommitMessage]]:
    """Return a table with a commit, and messages of another whose files are there."""
    catalog = catalog_over(memory_with({}, f"wide-faults-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", {"k": "INT", "v": "INT"}, primary_key=["k"], options={"bucket": "2", "write-only": "true", **options}
    )
    table.write([{"k": k, "v": 0} for k in range(6)])
    commits = TableCommit(table.definition, table.env)
    starts = starting_sequences(table.definition, commits.latest().live, overwrites=False)
    writer = table_writer(table.definition, table.env, Start(starts))
    rows = pa.table({"k": pa.array(range(4, 9), pa.int32()), "v": pa.array([1] * 5, pa.int32())})
    writer.write(WriteTarget(table.definition).accepted(rows, None)[0])
    messages = with_changelog(table.definition, table.env, writer.finish())
    index = IndexEntry(messages[0].partition, messages[0].bucket, "BTREE", "index-tree", 8, 2)
    table.env.storage.create(index_path(table.definition, index), bytes(8))
    messages[0] = replace(messages[0], index_added=(index,))
    return contents(catalog.env.storage), messages


@pytest.mark.parametrize(
    "options", [{}, {"manifest.merge-min-count": "2", "manifest.full-compaction-threshold-size": "1 b"}]
)
def test_a_wide_commit_is_all_or_nothing_whichever_call_goes_wrong(options: Mapping[str, str]) -> None:
    files, messages = _base(options)
    log = _Log()

    def build() -> Storage:
        nonlocal log
        log = _Log()
        return memory_with(files, name)

    def work(storage: Storage) -> Snapshot | None:
        table = catalog_over(storage).table("db.t")
        change = Committable(messages, "job", 1, watermark=5, properties={"a": "b"})
        return TableCommit(table.definition, table.env).commit(change, log=log)

    def check(storage: Storage, outcome: Outcome[Snapshot | None]) -> None:
        table = catalog_over(storage).table("db.t")
        stands = len(table.snapshots()) == 2
        if outcome.error is None:
            assert stands
            assert (log.visible, log.waiting) == (True, False)
        elif not isinstance(outcome.error, CommitUnknownError | Stopped):
            assert not stands, f"{outcome.error!r} was raised, and the commit is there"
            assert (log.visible, log.waiting) == (False, False)
        assert all(storage.read(path) == data for path, data in files.items() if not path.endswith("/LATEST"))
        repeated = work(storage)
        assert repeated is not None
        assert log.visible
        assert not log.waiting
        assert repeated.log_offsets == {0: 42}
        assert (repeated.changelog_record_count, repeated.watermark) == (5, 5)
        table = catalog_over(storage).table("db.t")
        assert len(table.snapshots()) == 2
        table.remove_orphans(older_than=FUTURE, dry_run=False)
        assert table.check() == ()
        assert sorted((row["k"], row["v"]) for row in table.read().to_pylist()) == [(k, int(k >= 4)) for k in range(9)]

    name = f"wide-faults-{next(_names)}"
    assert run_some(build, lambda faulty: work(faulty), check) > 40
