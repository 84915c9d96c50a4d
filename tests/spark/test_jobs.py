"""Jobs without Spark: what tasks do with the rows they are given, and how splits are packed."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import (
    ConflictError,
    FormatError,
    InvalidInputError,
    MerganserError,
    StorageError,
    UnsupportedError,
)
from merganser.meta.table_state import MetaReader
from merganser.spark import stream_sink
from merganser.spark.access import unwrapped
from merganser.spark.compaction import CompactTask
from merganser.spark.jobs import WriteTask
from merganser.spark.splits import packed
from merganser.upkeep.plan_compaction import CompactionRequest, plan_jobs
from merganser.write.begin import begin
from merganser.write.job import Outcome, WriteJob, messages_of
from merganser.write.transaction import Transaction

pytestmark = pytest.mark.spark


def job_for(table: mg.Table, identifier: int | None = None, **arguments: str) -> tuple[Transaction, WriteJob]:
    transaction = begin(table.definition, table.env, commit_user="job", identifier=identifier)
    return transaction, transaction.job(**arguments)


def test_tasks_of_a_replay_tell_the_time_of_its_clock(tmp_path: Path) -> None:
    now = datetime(2020, 2, 3, tzinfo=UTC)
    shop = mg.catalog(tmp_path, clock=lambda: now)
    shop.create_database("shop")
    table = shop.create_table("shop.t", schema={"id": "BIGINT"}, primary_key=["id"], options={"bucket": "1"})
    for _ in range(2):
        transaction, job = job_for(table)
        outcome = pickle.loads(pickle.dumps(job)).run([pa.table({"id": [1]})])
        assert times_of(outcome) == {now}
        commit(transaction, [outcome])
    state = MetaReader(table.definition.paths, table.env, table.name).latest()
    jobs = plan_jobs(table.definition, table.env, state, CompactionRequest(full=True))
    task = CompactTask(tuple(pickle.dumps(job) for job in jobs), pickle.loads(pickle.dumps(table.env)))
    (batch,) = task([pa.record_batch({"id": [0]})])
    assert times_of(pickle.loads(batch.column(0)[0].as_py())) == {now}


def times_of(outcome: Outcome) -> set[datetime]:
    times = [file.creation_time_ms for message in outcome.messages for file in message.added]
    assert times
    return {datetime.fromtimestamp((at or 0) / 1000, UTC) for at in times}


def commit(transaction: Transaction, outcomes: list[Outcome]) -> mg.Snapshot | None:
    return transaction.finish(messages_of(transaction.table, transaction.env, outcomes))


@pytest.mark.parametrize("buffer", ["1 kb", "256 mb"])
def test_rows_that_come_out_of_order_are_numbered_in_it(catalog: mg.Catalog, buffer: str) -> None:
    options = {"bucket": "2", "write-buffer-size": buffer}
    table = catalog.create_table("shop.t", schema={"id": "BIGINT", "n": "BIGINT"}, primary_key=["id"], options=options)
    for round_number in range(2):
        arrivals = [(part << 33) + row for part in range(5) for row in range(100)]
        random.Random(round_number).shuffle(arrivals)
        rows = pa.table({"id": [a % 37 for a in arrivals], "n": arrivals, "at": arrivals})
        transaction, job = job_for(table, arrival="at")
        outcome = pickle.loads(pickle.dumps(job)).run(rows.slice(start, 50) for start in range(0, 500, 50))
        assert outcome.refusal is None
        assert commit(transaction, [outcome]) is not None
        expected: dict[int, int] = {}
        for arrival in sorted(arrivals):
            expected[arrival % 37] = arrival
        assert {row["id"]: row["n"] for row in table.read().to_pylist()} == expected
    table.write([{"id": 3, "n": -1}])
    assert table.read(where="id = 3").to_pylist() == [{"id": 3, "n": -1}]


def test_a_refusal_is_returned_and_removes_the_files_of_all_tasks(catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.t", schema={"id": "BIGINT"}, primary_key=["id"], options={"bucket": "1"})
    transaction, job = job_for(table)
    written = job.run([pa.table({"id": [1, 2]})])
    refused = job.run([pa.table({"id": pa.array([None], pa.int64())})])
    assert isinstance(refused.refusal, InvalidInputError)
    assert len(written.messages[0].added) == 1
    (batch,) = WriteTask(job, ("id",))(iter(pa.table({"id": [3]}).to_batches()))
    assert pickle.loads(batch.column("message")[0].as_py()).messages
    with pytest.raises(InvalidInputError, match="key column 'id' is null"):
        commit(transaction, [written, refused])
    names = [entry.name for entry in table.env.storage.list(f"{table.path}/bucket-0")]
    assert written.messages[0].added[0].name not in names
    assert table.snapshots() == ()


def test_a_commit_that_a_twin_made_first_leaves_no_files_of_its_tasks(catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.t", schema={"id": "BIGINT"}, primary_key=["id"], options={"bucket": "1"})
    transaction, job = job_for(table, 4)
    outcome = job.run([pa.table({"id": [1, 2]})])
    twin = table.write([{"id": 1}, {"id": 2}], commit_user="job", identifier=4)
    assert commit(transaction, [outcome]) == twin
    names = [entry.name for entry in table.env.storage.list(f"{table.path}/bucket-0")]
    assert len(names) == 1
    assert outcome.messages[0].added[0].name not in names
    assert table.read().count() == 2


def test_splits_are_packed_largest_first_and_none_is_lost(catalog: mg.Catalog) -> None:
    table = catalog.create_table(
        "shop.t",
        schema={"p": "INT", "id": "BIGINT"},
        primary_key=["p", "id"],
        partition_by=["p"],
        options={"bucket": "1"},
    )
    table.write([{"p": i % 30, "id": j} for i in range(30) for j in range(i)])
    plan = table.read().plan()
    packs, splits = packed(plan, tasks_max=7), plan.splits
    assert len(packs) <= 7
    assert sorted(s.directory for pack in packs for s in pack) == sorted(s.directory for s in splits)
    assert packed(replace(plan, splits=()), tasks_max=7) == ()


ABORTED = "Job aborted\n...\nmerganser.errors.StorageError: cannot write 'x': full.\n\n\tat org.apache"
CONNECT = "[PYTHON_EXCEPTION] boom: merganser.errors.FormatError: cannot read 'y'\nSQLSTATE: 38000"


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (ABORTED, StorageError, "cannot write 'x': full."),
        (CONNECT, FormatError, "cannot read 'y'"),
        ("InvalidInputError: first\nmore\nConflictError: last", ConflictError, "last"),
        ("ModuleNotFoundError: No module named 'merganser'", UnsupportedError, "tasks cannot import merganser"),
        ("ImportError: PyArrow >= 18.0.0 must be installed; however", UnsupportedError, "tasks cannot import pyarrow"),
        ("ValueError: merganser is a duck", None, ""),
    ],
)
def test_our_errors_are_found_in_texts_of_spark(text: str, kind: type[MerganserError] | None, message: str) -> None:
    found = unwrapped(text, lambda: None)
    if kind is None:
        assert found is None
    else:
        assert type(found) is kind
        assert message in str(found)


def test_the_thread_beside_a_stream_compacts_and_expires(catalog: mg.Catalog) -> None:
    options = {"bucket": "1", "write-only": "true", "snapshot.num-retained.max": "3", "snapshot.num-retained.min": "1"}
    table = catalog.create_table("shop.beside", {"k": "INT"}, primary_key=["k"], options=options)
    for _ in range(8):
        table.write([{"k": 1}])
    request = stream_sink.request_of(
        table, pa.schema([("k", pa.int32())]), kinds=None, columns=None, complete=False, user=None,
        compaction="beside", checkpoint=None,
    )  # fmt: skip
    stream_sink._upkeep_beside(request)
    (thread,) = [
        found for (_, root), found in stream_sink._upkeeps.items() if root == table.definition.paths.metadata_root
    ]
    thread.join()
    snapshots = table.snapshots()
    assert snapshots[-1].commit_kind == "COMPACT"
    assert len(snapshots) == 3
    assert table.read().to_pylist() == [{"k": 1}]
