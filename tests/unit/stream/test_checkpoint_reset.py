"""Resets of checkpoints, without Spark: a small engine keeps the logs as Spark does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.cli.main import main
from merganser.errors import ConflictError, ExpiredError, InvalidInputError, NotFoundError, StorageError
from merganser.meta.shard_stream import stream_of
from merganser.scan.split import What
from merganser.shards.batches import Beginning, ShardBatches
from merganser.spark.checkpoint import Checkpoint
from merganser.spark.checkpoint_reset import check_choice, checkpoint_logs, reset_checkpoint
from merganser.spark.query_logs import QueryLogs
from merganser.storage.local import LocalStorage
from merganser.stream.batches import NOWHERE, TableBatches

QUERY = "5d0a1f38-0000-4000-8000-000000000001"


class Engine:
    """Copies a table to another one, batch by batch, with the logs of Spark."""

    def __init__(self, place: Path) -> None:
        self.place = place / "checkpoint"
        catalog = mg.catalog(place / "warehouse")
        catalog.create_database("db")
        self.source, self.copy = (
            catalog.create_table(f"db.{name}", schema={"id": "INT"}, options={"bucket": "-1"})
            for name in ("source", "copy")
        )
        for log in ("offsets", "commits"):
            (self.place / log).mkdir(parents=True)
        (self.place / "metadata").write_text(json.dumps({"id": QUERY}))

    def put(self, *ids: int) -> None:
        self.source.write([{"id": i} for i in ids])

    def log(self, log: str) -> list[int]:
        return sorted(int(one.name) for one in (self.place / log).iterdir())

    def offset(self, batch: int) -> dict[str, Any]:
        lines = (self.place / "offsets" / str(batch)).read_text().splitlines()
        return dict(json.loads(lines[2]))

    def run(self) -> None:
        """Run as many batches as there are, one at least if the newest one has no commit."""
        table = self.source
        batches = TableBatches(
            table.definition, table.env, what=What.MERGED, columns=table.schema.user_fields, where=None
        )
        while True:
            known = self.log("offsets")
            repeat = bool(known) and known[-1] not in self.log("commits")
            number = known[-1] if repeat else (known[-1] + 1 if known else 0)
            start = batches.position(self.offset(number - 1) if number else NOWHERE)
            if repeat:
                end = batches.position(self.offset(number))
            else:
                end = batches.advance(batches.start() if start is None else start)
                if end == start:
                    return
                lines = ["v1", '{"batchWatermarkMs":7}', json.dumps(batches.value(end))]
                (self.place / "offsets" / str(number)).write_text("\n".join(lines))
            assert end is not None
            rows = [
                row
                for turn in batches.turns(start, end)
                for part in turn
                for found in part.read(table.env.storage)
                for row in found.to_pylist()
            ]
            if rows:
                self.copy.write(rows, commit_user=QUERY, identifier=number)
                Checkpoint(LocalStorage(), str(self.place)).note_table(self.copy.definition)
            (self.place / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":7}')

    def logs(self) -> QueryLogs:
        return checkpoint_logs(self.place, self.source, "cannot reset")

    def reset(self, **how: Any) -> Any:
        return reset_checkpoint(self.logs(), [self.source], **{"table": None, "start": None, **how})

    def same(self) -> bool:
        found, wanted = (sorted(row["id"] for row in one.read().to_pylist()) for one in (self.copy, self.source))
        return found == wanted


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    made = Engine(tmp_path)
    for i in range(3):
        made.put(i)
        made.run()
    assert made.same()
    return made


def test_each_batch_that_a_rollback_of_the_copy_removed_is_written_again_once(engine: Engine) -> None:
    for snapshot in (2, 1):
        engine.copy.rollback(snapshot=snapshot)
        found = engine.reset(table=engine.copy)
        assert (found.table_batch, found.after) == (snapshot - 1, (snapshot,))
        engine.run()
        assert engine.same()


def test_a_reset_that_changes_nothing_keeps_the_rows(engine: Engine) -> None:
    assert engine.reset(table=engine.copy).next_batch == 5
    engine.put(3)
    engine.run()
    assert engine.same()
    assert engine.log("offsets") == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_batch_without_a_commit_is_judged_by_the_copy(engine: Engine, *, ahead: bool) -> None:
    """A kill came before the commit of batch 2 was noted; the copy has it, or has not."""
    (engine.place / "commits" / "2").unlink()
    if not ahead:
        engine.copy.rollback(snapshot=2)
    with pytest.raises(InvalidInputError, match="batch 2 was begun and is not noted as done"):
        engine.reset(start=[None])
    assert engine.reset(table=engine.copy).table_batch == (2 if ahead else 1)
    engine.run()
    assert engine.same()


def test_a_copy_without_an_earlier_snapshot_has_to_be_emptied(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    engine.put(1)
    engine.put(2)
    engine.run()
    engine.source.rollback(snapshot=1)
    with pytest.raises(ConflictError, match=r"No snapshot of 'db.copy' without such rows is kept: empty the table"):
        engine.reset(table=engine.copy)


def test_a_copy_that_has_no_batch_yet_begins_with_the_newest_state(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    engine.copy.write([], watermark=1)  # a snapshot before the first batch
    engine.put(1)
    engine.run()
    engine.put(2)
    engine.run()
    engine.source.rollback(snapshot=1)
    engine.put(3)
    with pytest.raises(ConflictError, match=r"Roll 'db.copy' back with table.rollback") as refused:
        engine.reset(table=engine.copy)
    assert refused.value.context["snapshot"] == 2
    engine.copy.rollback(snapshot=1)
    assert engine.reset(table=engine.copy).after == (None,)
    engine.run()
    assert engine.same()


def test_the_error_names_the_snapshot_to_roll_back_to(engine: Engine) -> None:
    engine.source.rollback(snapshot=2)
    engine.put(30)
    with pytest.raises(ConflictError, match=r"ms\.reset_stream\(spark, checkpoint, '.*source', table=\.\.\.\)"):
        engine.run()
    with pytest.raises(ConflictError, match=r"newest batch .* is 2, .* table\.rollback\(snapshot=2\)"):
        engine.reset(table=engine.copy)
    assert engine.log("offsets") == [0, 1, 2]
    engine.copy.rollback(snapshot=2)
    assert engine.reset(table=engine.copy).after == (2,)
    engine.run()
    assert engine.same()


@pytest.mark.parametrize("files", [0, 1, 2])
def test_a_reset_that_was_killed_is_repeated(engine: Engine, files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.copy.rollback(snapshot=1)
    made: list[str] = []
    create = LocalStorage.create

    def killed(self: LocalStorage, path: str, data: bytes) -> None:
        if len(made) == files:
            raise StorageError("killed")
        made.append(path)
        create(self, path, data)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "create", killed)
        with pytest.raises(StorageError):
            engine.reset(table=engine.copy)
    assert len(made) == files
    engine.reset(table=engine.copy)
    engine.run()
    assert engine.same()


@pytest.mark.parametrize(("start", "rows"), [(1, [1, 2]), ("latest", []), ("latest-full", [0, 1, 2]), (0, [0, 1, 2])])
def test_a_start_says_where_to_go_on(engine: Engine, start: int | str, rows: list[int]) -> None:
    engine.copy.write([], overwrite={})
    assert engine.reset(start=start).after == ({"latest": 3, "latest-full": None}.get(str(start), start),)
    engine.run()
    assert sorted(row["id"] for row in engine.copy.read().to_pylist()) == rows


def test_a_stream_of_records_goes_back_to_a_batch_or_a_start(tmp_path: Path) -> None:
    engine = Engine(tmp_path)
    table = mg.catalog(tmp_path / "warehouse").create_table(
        "db.keyed",
        schema={"id": "INT"},
        primary_key=["id"],
        options={"bucket": "1", "changelog-producer": "input"},
    )
    table.enable_stream()
    table = mg.catalog(tmp_path / "warehouse").table("db.keyed")
    stream = stream_of(table.schema.options, None)
    assert stream is not None

    def batches() -> ShardBatches:
        columns = table.schema.user_fields
        return ShardBatches(table.definition, table.env, stream, columns=columns, beginning=Beginning())

    for batch in range(3):
        table.write([{"id": batch}])
        at = batches().start() if not batch else batches().position(engine.offset(batch - 1))
        assert at is not None
        lines = ["v1", "{}", json.dumps(batches().value(batches().advance(at)))]
        (engine.place / "offsets" / str(batch)).write_text("\n".join(lines))
        (engine.place / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        engine.copy.write([{"id": batch}], commit_user=QUERY, identifier=batch)

    table.rollback(snapshot=table.snapshots()[-2].id)
    at = batches().position(engine.offset(2))
    assert at is not None
    with pytest.raises(mg.errors.TrimmedDataError, match=r"ms\.reset_stream\(spark, checkpoint, '.*keyed'"):
        batches().advance(at)
    with pytest.raises(ConflictError, match=r"Roll 'db.copy' back with table.rollback\(snapshot=2\)"):
        reset_checkpoint(engine.logs(), [table], table=engine.copy, start=None)
    engine.copy.rollback(snapshot=2)
    found = reset_checkpoint(engine.logs(), [table], table=engine.copy, start=None)
    assert found.table_batch == 1
    assert engine.offset(found.next_batch - 1) == engine.offset(1)
    with pytest.raises(InvalidInputError, match="'latest' or 'trim_horizon'"):
        reset_checkpoint(engine.logs(), [table], table=None, start="latest-full")
    for start, wanted in (("trim_horizon", (0,)), ("latest", (2,)), (1, (1,))):
        assert reset_checkpoint(engine.logs(), [table], table=None, start=start).after == wanted
        again = batches().position(engine.offset(engine.log("offsets")[-1]))
        assert again is not None
        assert batches().advance(again).next == 3


def test_what_does_not_fit_is_refused_and_changes_nothing(engine: Engine, tmp_path: Path) -> None:
    before = {one: one.read_bytes() for one in engine.place.rglob("*") if one.is_file()}
    with pytest.raises(NotFoundError, match="there is no snapshot 4"):
        engine.reset(start=4)
    with pytest.raises(InvalidInputError, match="'latest' or 'latest-full'"):
        engine.reset(start="earliest")
    with pytest.raises(InvalidInputError, match="start has 2 positions"):
        engine.reset(start=[1, 2])
    with pytest.raises(InvalidInputError, match=r"neither the checkpoint nor the snapshots of 'db.source'"):
        engine.reset(table=engine.source)
    with pytest.raises(InvalidInputError, match="2 sources are named, and the query has 1"):
        reset_checkpoint(engine.logs(), [engine.source, None], table=engine.copy, start=None)
    with pytest.raises(InvalidInputError, match="source 0 of the query reads a table"):
        reset_checkpoint(engine.logs(), [None], table=engine.copy, start=None)
    for both in ({}, {"table": engine.copy, "start": 1}):
        with pytest.raises(InvalidInputError, match="either table="):
            check_choice(both.get("table"), both.get("start"), "cannot reset")
    with pytest.raises(NotFoundError, match="no checkpoint of Spark"):
        checkpoint_logs(tmp_path, engine.source, "cannot reset").query()
    with pytest.raises(InvalidInputError, match=r"no storage for 'ftp:'.*Copy the whole checkpoint"):
        checkpoint_logs("ftp://there/checkpoint", engine.source, "cannot reset")
    assert {one: one.read_bytes() for one in engine.place.rglob("*") if one.is_file()} == before


def test_checkpoints_that_cannot_be_reset_are_refused(engine: Engine) -> None:
    (engine.place / "state" / "0").mkdir(parents=True)
    with pytest.raises(InvalidInputError, match=r"the query keeps state"):
        engine.reset(start="latest")
    (engine.place / "state" / "0").rmdir()
    newest = engine.place / "offsets" / "2"
    text = newest.read_text()
    newest.write_text(text.replace("v1", "v2"))
    with pytest.raises(InvalidInputError, match="does not have the format 'v1'"):
        engine.reset(start="latest")
    newest.write_text(text)
    (engine.place / "offsets" / "0").unlink()
    engine.copy.rollback(snapshot=1)
    with pytest.raises(ConflictError, match="keeps the offsets of batches from 1 on"):
        engine.reset(table=engine.copy)
    (engine.place / "metadata").write_text("{}")
    with pytest.raises(InvalidInputError, match="does not name a query"):
        engine.reset(start="latest")


def test_a_checkpoint_older_than_the_table_is_refused(engine: Engine) -> None:
    for log in ("offsets", "commits"):
        (engine.place / log / "2").unlink()
    with pytest.raises(ConflictError, match="the checkpoint is older than the table"):
        engine.reset(table=engine.copy)


def test_changes_that_have_expired_are_no_start(engine: Engine) -> None:
    engine.source.expire(retain_max=1, retain_min=1, older_than=None)
    with pytest.raises(ExpiredError):
        engine.reset(start=0)


def test_a_query_behind_expired_changes_goes_on_where_the_error_says(engine: Engine) -> None:
    for i in range(3, 7):
        engine.put(i)
    engine.source.expire(retain_max=2, retain_min=2, older_than=None)
    with pytest.raises(ExpiredError, match=r"ms\.reset_stream\(spark, checkpoint, '.*source', start=6\)"):
        engine.run()
    assert engine.reset(start=6).after == (6,)
    engine.run()
    assert sorted(row["id"] for row in engine.copy.read().to_pylist()) == [0, 1, 2, 5, 6]


def test_the_command_line_resets_a_query(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> tuple[int | str | None, str]:
        with pytest.raises(SystemExit) as ended:
            main(["reset-stream", str(engine.place), *arguments])
        return ended.value.code, "".join(capsys.readouterr())

    source, copy = engine.source.path, engine.copy.path
    code, said = run(source)
    assert code == 1
    assert "give either --table, the table that the query writes, or --start." in said
    engine.copy.rollback(snapshot=2)
    code, said = run(source, "--table", copy)
    assert (code, said.splitlines()) == (
        0,
        [f"query {QUERY} goes on with batch 5", f"{copy} has batch 1 of it", f"{source} is read after snapshot 2"],
    )
    engine.run()
    assert engine.same()
    assert run(source, "--start", "2")[0] == 0
    assert engine.offset(engine.log("offsets")[-1]) != engine.offset(0)
    code, said = run("-", source, "--start", "-", "--start", "-")
    assert code == 1
    assert "order of the query, with - for those that are no tables" in " ".join(said.split())
    assert run("-", "--start", "-")[0] == 1
