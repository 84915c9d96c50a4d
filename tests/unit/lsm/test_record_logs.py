"""The producer per-record: random commits publish what their rows would, each committed by itself.

The oracle is a second table without a producer, into which every row goes as a commit of its own. The state of its key
before and after says what the row changed. Updates between equal rows are left out of both.
"""

from __future__ import annotations

import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg
from merganser.errors import ConflictError, InvalidInputError
from merganser.lsm.compact import CompactJob
from merganser.lsm.record_log import RecordLogJob
from merganser.meta.table_state import MetaReader
from tests.unit.lsm.test_changelog_histories import ENGINES, KINDS, SEEDS, Replay, Row

_ENGINES = ENGINES | {
    "max of late rows": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "max",
        "sequence.field": "s",
        "ignore-delete": "true",
    },
    "collect": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    | {"aggregation.remove-record-on-delete": "true"},
    "descending": {"sequence.field": "s", "sequence.field.sort-order": "descending"},
}


def _tables(path: Path, engine: str, rng: random.Random, **more: str) -> tuple[mg.Table, mg.Table]:
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": rng.choice(["1", "2"])} | _ENGINES[engine] | more
    options["num-sorted-run.compaction-trigger"] = rng.choice(["2", "5"])
    options["target-file-row-num"] = rng.choice(["3", "1000"])
    schema = {"p": "STRING", "k": "INT", "s": "INT", "v": "INT"}
    partitions = rng.choice([[], ["p"]])
    tables = [
        catalog.create_table(
            f"db.{name}", schema, primary_key=["p", "k"], partition_by=partitions, options=options | own
        )
        for name, own in (("log", {"changelog-producer": "per-record"}), ("oracle", {}))
    ]
    return tables[0], tables[1]


def _commit(rng: random.Random, engine: str) -> tuple[list[Row], list[str]]:
    keys = rng.choice([1, 3, 7])
    rows = [
        {"p": rng.choice("ab"), "k": rng.randrange(keys), "s": rng.randrange(9), "v": rng.choice([None, 1, 2, 3])}
        for _ in range(rng.randrange(1, 25))
    ]
    kinds = [rng.choice(KINDS.get(engine, ("+I", "+I", "+U", "-D"))) for _ in rows]
    if _ENGINES[engine].get("merge-engine") == "aggregation":
        for row in rows:
            row["v"] = row["v"] or 0
    return rows, kinds


def _by_key(changes: list[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """Return changes by key, in order, without updates between equal rows."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in changes:
        found.setdefault((row["p"], row["k"]), []).append(row)
    for key, rows in found.items():
        kept: list[Row] = []
        for row in rows:
            if kept and row["_row_kind"] == "+U" and kept[-1] == row | {"_row_kind": "-U"}:
                kept.pop()
            else:
                kept.append(row)
        found[key] = kept
    return {key: rows for key, rows in found.items() if rows}


def _changed(before: Row | None, after: Row | None) -> list[Row]:
    if before is None or after is None:
        return [row | {"_row_kind": kind} for row, kind in ((before, "-D"), (after, "+I")) if row is not None]
    return [before | {"_row_kind": "-U"}, after | {"_row_kind": "+U"}]


@pytest.mark.campaign(1 / 14)
@pytest.mark.parametrize("seed", SEEDS[:2] if range(4) == SEEDS else SEEDS)  # every row is a commit of the oracle
@pytest.mark.parametrize("engine", [engine for engine in _ENGINES if engine != "first-row"])
def test_every_row_of_a_commit_publishes_what_it_changes(engine: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"records {engine} {seed}")
    vectors = rng.random() < 0.3
    log, oracle = _tables(tmp_path, engine, rng, **({"deletion-vectors.enabled": "true"} if vectors else {}))
    replay, last = Replay(), 0
    state: dict[tuple[Any, ...], Row | None] = {}
    for _ in range(4):
        rows, kinds = _commit(rng, engine)
        window, prefix = rng.choice([2, 5, 65_536]), rng.choice([1, 40, 1 << 18])
        with (
            patch("merganser.lsm.record_log.WINDOW_ROWS", window),
            patch("merganser.lsm.record_log._PREFIX_ROWS", prefix),
            patch("merganser.lsm.record_log._ROUND_MIN", 1 if prefix < 50 else 16),
            patch("merganser.write.recording._HERE_ROWS", rng.choice([0, 100])),
        ):
            buffered = log.with_options({"write-buffer-size": rng.choice(["1 b", "64 mb"])})
            buffered.write(rows, kinds=kinds)
        expected: list[Row] = []
        for row, kind in zip(rows, kinds, strict=True):
            key = row["p"], row["k"]
            oracle.write([row], kinds=[kind])
            found = oracle.read(where=f"p = '{row['p']}' AND k = {row['k']}").to_pylist()
            after = found[0] if found else None
            expected += _changed(state.get(key), after)
            state[key] = after
        newest = max((snapshot.id for snapshot in log.snapshots()), default=last)
        changes = log.changes(last + 1, newest).to_pylist()
        assert _by_key(changes) == _by_key(expected), (rows, kinds)
        replay.take(changes)
        last = newest
        if rng.random() < 0.3:
            log.compact(full=rng.random() < 0.5)
            last = log.snapshots()[-1].id
    assert log.check() == ()
    if not vectors:
        assert sorted(map(str, replay.rows.values())) == sorted(map(str, log.read().to_pylist()))
    assert not list(Path(log.path).rglob("received-*")), "rows as they came are kept no longer than their commit"


_DEPENDING: dict[str, dict[str, str]] = {
    "partial": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    | {"sequence.field": "s"},
    "groups": {"merge-engine": "partial-update", "fields.s.sequence-group": "v,t,l"}
    | {"fields.t.aggregate-function": "listagg", "fields.l.aggregate-function": "collect"}
    | {"fields.v.aggregate-function": "last_non_null_value", "ignore-delete": "true"},
    "removing groups": {"merge-engine": "partial-update", "fields.s.sequence-group": "v,l"}
    | {"fields.l.aggregate-function": "collect", "fields.v.aggregate-function": "product"}
    | {"partial-update.remove-record-on-sequence-group": "s"},
    "late": {"merge-engine": "aggregation", "sequence.field": "s", "aggregation.remove-record-on-delete": "true"}
    | {"fields.t.aggregate-function": "listagg"},
    "sums": {"merge-engine": "aggregation", "fields.f.aggregate-function": "sum", "fields.d.aggregate-function": "sum"}
    | {"fields.l.aggregate-function": "collect", "fields.v.aggregate-function": "product"},
    "ordered sums": {"merge-engine": "aggregation", "fields.f.aggregate-function": "sum", "sequence.field": "s"}
    | {"fields.d.aggregate-function": "sum", "fields.l.aggregate-function": "collect"},
}
"""Tables in which a row depends on which of its versions were merged first."""


@pytest.mark.campaign(1 / 7)
@pytest.mark.parametrize("seed", SEEDS[:2] if range(4) == SEEDS else SEEDS)
@pytest.mark.parametrize("engine", _DEPENDING)
def test_the_changelog_is_the_table_even_if_rows_depend_on_what_was_merged_first(
    engine: str, seed: int, tmp_path: Path
) -> None:
    """Rows come in any order, in several commits and flushes; compactions run between and beside them."""
    rng = random.Random(f"depending {engine} {seed}")
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    vectors = {"deletion-vectors.enabled": "true"} if rng.random() < 0.2 else {}
    options = {"bucket": "1", "changelog-producer": "per-record"} | _DEPENDING[engine] | vectors
    options["num-sorted-run.compaction-trigger"] = rng.choice(["2", "5"])
    options["target-file-row-num"] = rng.choice(["3", "1000"])
    if rng.random() < 0.4:
        options |= {"lookup-wait": "false", "lookup-compact": "gentle"}
    schema = {"p": "STRING", "k": "INT", "s": "INT", "v": "INT", "t": "STRING", "l": "ARRAY<INT>"}
    table = catalog.create_table(
        "db.t", schema | {"f": "DOUBLE", "d": "DECIMAL(3, 1)"}, primary_key=["p", "k"], options=options
    )
    shown = table.with_options({"deletion-vectors.merge-on-read": "true"}) if vectors else table
    kinds_taken = {"groups": ("+I", "+U"), "late": ("+I", "+U", "-D")}.get(engine, ("+I", "+U", "-U", "-D"))

    def write() -> None:
        rows = [
            {"p": "a", "k": rng.randrange(4), "s": rng.randrange(9)}
            | {"v": rng.choice([None, 1, 2, 3]), "t": rng.choice([None, "x", "y"]), "f": rng.choice([None, 0.1, 1e16])}
            | {"l": [rng.randrange(3) for _ in range(rng.randrange(3))], "d": rng.choice([None, Decimal("60.1")])}
            for _ in range(rng.randrange(1, 12))
        ]
        kinds = [rng.choice(kinds_taken) for _ in rows]
        window, prefix = rng.choice([2, 5, 65_536]), rng.choice([1, 40, 1 << 18])
        own = {"write-buffer-size": rng.choice(["1 b", "64 mb"]), "write-only": rng.choice(["true", "true", "false"])}
        with (
            patch("merganser.lsm.record_log.WINDOW_ROWS", window),
            patch("merganser.lsm.record_log._PREFIX_ROWS", prefix),
            patch("merganser.lsm.record_log._ROUND_MIN", 1 if prefix < 50 else 16),
            patch("merganser.write.recording._HERE_ROWS", rng.choice([0, 100])),
        ):
            table.with_options(own).write(rows, kinds=kinds)

    run = CompactJob.run
    overtaken: list[int] = []

    def overtaken_run(job: CompactJob, *arguments: Any) -> Any:
        done = run(job, *arguments)
        if not overtaken:
            overtaken.append(1)
            write()
        return done

    if rng.random() < 0.7:  # a large file that compactions leave where it is
        large = [{"p": "a", "k": k, "s": 4, "v": 1, "t": rng.randbytes(100).hex()} for k in range(60)]
        large = [row | {"l": [1], "f": 0.1, "d": None} for row in large]
        table.write(large)
        table.compact(full=True)
    replay, last = Replay(), 0
    for _ in range(8):
        write()
        if rng.random() < 0.5:
            overtaken.clear()
            with patch.object(CompactJob, "run", overtaken_run if rng.random() < 0.5 else run):
                table.compact(full=rng.random() < 0.5)
        newest = max((snapshot.id for snapshot in table.snapshots()), default=last)
        replay.take(table.changes(last + 1, newest).to_pylist() if newest > last else [])
        last = newest
        assert sorted(map(str, replay.rows.values())) == sorted(map(str, shown.read().to_pylist()))
    assert table.check() == ()


def _table(path: Path, **options: str) -> mg.Table:
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("db")
    own = {"bucket": "1", "changelog-producer": "per-record"} | {
        key.replace("_", "-").replace("--", "."): value for key, value in options.items()
    }
    return catalog.create_table("db.t", {"k": "INT", "v": "INT", "w": "STRING"}, primary_key=["k"], options=own)


def _published(table: mg.Table, start: int = 1) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.changes(start).to_pylist()]


def test_a_pair_of_update_rows_is_one_update_and_equal_rows_are_published(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.write([{"k": 1, "v": 1, "w": "a"}])
    table.write(
        [
            {"k": 1, "v": 1, "w": "a"},
            {"k": 1, "v": 2, "w": "b"},
            {"k": 1, "v": 2, "w": "b"},
            {"k": 2, "v": 0, "w": "z"},
        ],
        kinds=["-U", "+U", "+I", "-D"],
    )
    assert _published(table, 2) == [
        ("-U", 1, 1, "a"),
        ("+U", 1, 2, "b"),
        ("-U", 1, 2, "b"),
        ("+U", 1, 2, "b"),
    ]
    deduplicated = table.with_options({"changelog-producer.row-deduplicate": "true"})
    deduplicated.write([{"k": 1, "v": 2, "w": "b"}])
    assert _published(table, 3) == []


def test_rows_that_come_late_by_the_sequence_field_publish_nothing(tmp_path: Path) -> None:
    table = _table(tmp_path, sequence__field="v")
    table.write([{"k": 1, "v": 5, "w": "a"}, {"k": 1, "v": 4, "w": "late"}, {"k": 1, "v": 5, "w": "b"}])
    table.write([{"k": 1, "v": 3, "w": "late"}], kinds=["-D"])
    assert _published(table) == [("+I", 1, 5, "a"), ("-U", 1, 5, "a"), ("+U", 1, 5, "b")]


def test_an_image_wal_has_no_rows_before(tmp_path: Path) -> None:
    table = _table(tmp_path, changelog__image="wal")
    table.write([{"k": 1, "v": 1, "w": "a"}, {"k": 1, "v": 2, "w": "b"}])
    table.write([{"k": 1, "v": 0, "w": None}, {"k": 7, "v": 0, "w": None}], kinds=["-D", "-D"])
    assert _published(table) == [("+U", 1, 1, "a"), ("+U", 1, 2, "b"), ("-D", 1, 2, "b")]
    ordered = _table(tmp_path / "ordered", changelog__image="wal", sequence__field="v")
    ordered.write([{"k": 1, "v": 1, "w": "a"}, {"k": 1, "v": 2, "w": "b"}, {"k": 1, "v": 1, "w": "late"}])
    assert _published(ordered) == [("+I", 1, 1, "a"), ("+U", 1, 2, "b")]
    deduplicated = table.with_options({"changelog-producer.row-deduplicate": "true"})
    deduplicated.write([{"k": k, "v": 1, "w": "a"} for k in (1, 1, 2)])
    deduplicated.write([{"k": 1, "v": 1, "w": "a"}, {"k": 2, "v": 2, "w": "a"}])
    assert _published(table, 3) == [("+I", 1, 1, "a"), ("+I", 2, 1, "a"), ("+U", 2, 2, "a")]


def test_rows_with_some_columns_leave_the_others_as_they_are(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.write([{"k": 1, "v": 1}], columns=["k", "v"])
    snapshot = table.write([{"k": 1, "w": "x"}], columns=["k", "w"], commit_user="me", identifier=7)
    assert snapshot is not None
    assert snapshot.id == 2
    again = table.write([{"k": 1, "w": "y"}], columns=["k", "w"], commit_user="me", identifier=7)
    assert again == snapshot
    assert _published(table) == [("+I", 1, 1, None), ("-U", 1, 1, None), ("+U", 1, 1, "x")]
    with pytest.raises(InvalidInputError, match=r"leaves the others as they are.*Table\.upsert"):
        table.writer(columns=["k", "w"])
    first = _table(tmp_path / "first", merge_engine="first-row")
    with pytest.raises(InvalidInputError, match="partial rows"):
        first.write([{"k": 1, "v": 1}], columns=["k", "v"])


def test_the_changes_follow_what_another_writer_committed_meanwhile(tmp_path: Path) -> None:
    """The changelog is made again if the bucket has changed, and no file of an earlier attempt is left."""
    table = _table(tmp_path)
    table.write([{"k": 1, "v": 1, "w": "a"}])
    jobs: list[int] = []
    run = RecordLogJob.run

    def overtaken(job: RecordLogJob, *arguments: Any) -> Any:
        done = run(job, *arguments)
        jobs.append(len(job.files))
        if len(jobs) == 1:
            with patch.object(RecordLogJob, "run", run):
                table.write([{"k": 1, "v": 2, "w": "other"}])
        return done

    with patch.object(RecordLogJob, "run", overtaken), table.writer() as writer:
        writer.session._transaction.take_turn = lambda: None  # type: ignore[method-assign]
        writer.write([{"k": 1, "v": 3, "w": "mine"}])
        writer.commit()
    assert jobs == [1, 2]
    assert _published(table, 2) == [
        ("-U", 1, 1, "a"),
        ("+U", 1, 2, "other"),
        ("-U", 1, 2, "other"),
        ("+U", 1, 3, "mine"),
    ]
    assert [finding for finding in table.check() if "orphan" in str(finding)] == []
    assert sorted(path.name for path in Path(table.path).rglob("changelog-*.parquet")) == sorted(
        entry.file.name
        for snapshot in table.snapshots()
        for entry in MetaReader(table.definition.paths, table.env, table.name).changelog(snapshot)
    )


def test_rows_of_a_newer_schema_are_published_whole_by_a_writer_that_was_opened_before(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.write([{"k": 1, "v": 1, "w": "a"}])
    directory = Path(table.path, "schema")
    schema = json.loads((directory / "schema-0").read_text())
    schema["id"], schema["highestFieldId"] = 1, schema["highestFieldId"] + 1
    schema["fields"][1]["type"] = "BIGINT"
    schema["fields"].append({"id": schema["highestFieldId"], "name": "x", "type": "STRING"})
    (directory / "schema-1").write_text(json.dumps(schema))
    newer = mg.catalog(str(tmp_path)).table("db.t")
    newer.write([{"k": 1, "v": 1 << 40, "w": "b", "x": "new"}])
    table.write([{"k": 1, "v": 2, "w": "c"}, {"k": 1, "v": 3, "w": "d"}])
    assert _published(newer, 3) == [
        ("-U", 1, 1 << 40, "b", "new"),
        ("+U", 1, 2, "c", None),
        ("-U", 1, 2, "c", None),
        ("+U", 1, 3, "d", None),
    ]


def test_rows_as_they_came_of_a_writer_that_was_stopped_are_orphans(tmp_path: Path) -> None:
    table = _table(tmp_path, merge_engine="partial-update")
    with (
        patch("merganser.write.transaction.Transaction._commit", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        table.write([{"k": 1, "v": 1, "w": "a"}])
    (received,) = Path(table.path).rglob("received-*")
    assert str(received) in table.remove_orphans(older_than="2999-01-01", dry_run=False)
    assert not received.exists()


def test_a_commit_that_fails_leaves_no_files_of_its_rows(tmp_path: Path) -> None:
    table = _table(tmp_path)
    before = sorted(path.name for path in Path(table.path).rglob("*.parquet"))
    with (
        patch("merganser.commit.table_commit.TableCommit._prepare", side_effect=ConflictError("another one was first")),
        pytest.raises(ConflictError),
    ):
        table.write([{"k": 1, "v": 3, "w": "mine"}])
    assert sorted(path.name for path in Path(table.path).rglob("*.parquet")) == before


def test_upserts_and_overwrites_give_what_they_change_and_compactions_nothing(tmp_path: Path) -> None:
    table = _table(tmp_path)
    table.write([{"k": 1, "v": 1, "w": "a"}])
    table.upsert([{"k": 1, "v": 2}, {"k": 2, "v": 2}], columns=["k", "v"])
    table.compact(full=True)
    table.write([{"k": 5, "v": 5, "w": "z"}], overwrite={})
    upserted = [("-U", 1, 1, "a"), ("+U", 1, 2, "a"), ("+I", 2, 2, None)]
    assert _published(table, 2) == [*upserted, ("-D", 1, 2, "a"), ("-D", 2, 2, None), ("+I", 5, 5, "z")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"merge-engine": "aggregation", "changelog.image": "wal"}, "'changelog.image' = 'wal'"),
        ({"merge-engine": "aggregation", "table.changelog.image": "wal"}, "'changelog.image' = 'wal'"),
        ({"write-mode": "change-log"}, "needs a primary key. Define one, or use input"),
        ({"bucket": "-1"}, "needs a primary key. Define one, or remove the option"),
    ],
)
def test_what_has_no_record_log_is_refused(options: dict[str, str], message: str, tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    key = ["k"] if "merge-engine" in options else []
    own = {"bucket": "1", "changelog-producer": "per-record"} | options
    with pytest.raises(InvalidInputError, match=message):
        catalog.create_table("db.t", {"k": "INT", "v": "INT"}, primary_key=key, options=own)


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}, False),
        ({"merge-engine": "aggregation", "fields.v.aggregate-function": "product"}, True),
        ({"merge-engine": "aggregation"}, False),
        ({"merge-engine": "aggregation", "sequence.field": "v"}, True),
        ({"merge-engine": "partial-update"}, False),
        ({"merge-engine": "partial-update", "sequence.field": "v"}, True),
        ({"merge-engine": "partial-update", "fields.v.sequence-group": "w"}, False),
        ({"sequence.field": "v"}, False),
    ],
)
def test_a_table_looks_up_in_compactions_where_these_could_change_what_is_published(
    options: dict[str, str], needed: bool, tmp_path: Path
) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    schema = {"k": "INT", "v": "INT", "w": "STRING"}
    own = {"bucket": "1", "changelog-producer": "per-record"} | options
    table = catalog.create_table("db.t", schema, primary_key=["k"], options=own)
    assert table.options.get("force-lookup") == ("true" if needed else None)
    refused = own | {"force-lookup": "false"}
    if needed:
        with pytest.raises(InvalidInputError, match=r"'per-record' needs 'force-lookup' here"):
            catalog.create_table("db.refused", schema, primary_key=["k"], options=refused)
    else:
        catalog.create_table("db.refused", schema, primary_key=["k"], options=refused)


def test_other_engines_see_the_producer_input(tmp_path: Path) -> None:
    table = _table(tmp_path)
    assert table.options["changelog-producer"] == "input"
    assert table.options["merganser.changelog-producer"] == "per-record"
    first = _table(tmp_path / "first", merge_engine="first-row")
    assert first.options["changelog-producer"] == "lookup"
    first.write([{"k": 1, "v": 1, "w": "a"}, {"k": 1, "v": 2, "w": "b"}])
    assert _published(first) == [("+I", 1, 1, "a")]
