"""The clients read tables whose snapshots name changelog files, offsets of a log, a watermark and properties."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import merganser as mg
from merganser.commit.committable import Committable
from merganser.commit.table_commit import TableCommit
from merganser.meta.snapshot import Snapshot
from merganser.write.sequences import starting_sequences
from merganser.write.start import Start
from merganser.write.target import WriteTarget
from merganser.write.writer import table_writer
from tests.kit.builders import with_changelog

from .peers import Peer
from .values import arrow_schema, assert_same_rows

pytestmark = pytest.mark.peers

FIELDS = [("k", "INT NOT NULL"), ("v", "STRING")]


class _Log:
    """A log that gives offsets."""

    def check(self) -> None:
        pass

    def prepare(self, snapshot: Snapshot, previous: Snapshot | None) -> Snapshot:
        return replace(snapshot, log_offsets={0: 12, 1: 34})

    def publish(self, snapshot: Snapshot | None) -> None:
        pass

    def drop(self) -> None:
        pass


def test_the_clients_read_and_follow_a_snapshot_with_everything_a_commit_can_carry(peer: Peer, tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table("db.t", dict(FIELDS), primary_key=["k"], options={"bucket": "2"})
    rows = [{"k": k, "v": f"row {k}"} for k in range(20)]
    target = WriteTarget(table.definition)
    commits = TableCommit(table.definition, table.env)
    starts = starting_sequences(table.definition, commits.latest().live, overwrites=False)
    writer = table_writer(table.definition, table.env, Start(starts))
    writer.write(target.accepted(pa.Table.from_pylist(rows, arrow_schema(FIELDS)), None)[0])
    messages = with_changelog(table.definition, table.env, writer.finish())
    snapshot = commits.commit(
        Committable(messages, "user", 1, watermark=1_700_000_000_000, properties={"a": "b"}), log=_Log()
    )
    assert snapshot is not None
    assert snapshot.changelog_record_count == 20
    assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), rows)
    peer.write(tmp_path, "db.t", pa.Table.from_pylist([{"k": 3, "v": "theirs"}], arrow_schema(FIELDS)))
    rows[3]["v"] = "theirs"
    assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), rows)
    assert not [found for found in table.check() if found.is_fault]
    table.write([{"k": 4, "v": "ours"}])
    rows[4]["v"] = "ours"
    assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), rows)
