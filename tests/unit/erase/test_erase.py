"""Erasing rows: no byte under the table's directory tells of them, and the rows of others are what they were."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.commit.committable import Committable
from merganser.commit.message import CommitMessage
from merganser.commit.table_commit import TableCommit
from merganser.erase import endings, erasure
from merganser.erase.erasure import Erasing
from merganser.errors import ExpiredError, FormatError, InvalidInputError, NotFoundError
from merganser.meta.index_manifest import IndexEntry
from merganser.meta.shard_store import ShardStore
from merganser.meta.shard_stream import stream_of
from merganser.meta.snapshot import COMPACT
from merganser.meta.snapshots import SnapshotStore
from merganser.scan.gaps import Gap
from merganser.scan.read import read_split
from merganser.scan.split import What
from merganser.storage.protocol import Storage
from merganser.stream.batches import TableBatches
from tests.kit.builders import catalog_over, contents, memory_with
from tests.seeds import seeds
from tests.unit.erase.traces import traces

TOKEN = "qZx7"
SCHEMA = {"d": "STRING NOT NULL", "k": "STRING NOT NULL", "v": "STRING", "w": "STRING"}
_names = itertools.count()
Row = dict[str, Any]


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def table_of(options: dict[str, str], key: str = "", part: str = "") -> mg.Table:
    catalog = catalog_over(memory_with({}, f"erase-{next(_names)}"))
    catalog.create_database("db")
    return catalog.create_table("db.t", SCHEMA, primary_key=key.split(), partition_by=part.split(), options=options)


def opened(storage: Storage) -> mg.Table:
    table = catalog_over(storage).table("db.t")
    assert isinstance(table, mg.Table)
    return table


def row(k: str, v: str = "x", d: str = "a") -> Row:
    return {"d": d, "k": k, "v": v, "w": f"w-{k}"}


def mine(v: str, d: str = "a") -> Row:
    """Return a row of the person who is erased: each of its texts is one to look for."""
    return row(TOKEN, f"{TOKEN}-{v}", d)


def found(table: mg.Table, text: str = TOKEN) -> list[str]:
    return traces(contents(table.env.storage), text)


def rows_of(table: mg.Table) -> list[Row]:
    return sorted(table.read().to_pylist(), key=repr)


def others(rows: list[Row]) -> list[Row]:
    return [one for one in rows if one["k"] != TOKEN]


def sound(table: mg.Table) -> bool:
    return not [one for one in table.check() if one.is_fault]


INDEXES = {f"file-index.{kind}.columns": "k,v" for kind in ("bloom-filter", "bitmap", "range-bitmap")}
ENGINES = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "removing": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"},
    "first-row": {"merge-engine": "first-row"},
    "versioned": {"sequence.field": "v"},
}
KEYED = [
    *({**options, "bucket": "1", "case": name} for name, options in ENGINES.items()),
    *(
        {**ENGINES[engine], "bucket": "1", "changelog-producer": producer, "case": f"{engine}-{producer}"}
        for engine in ("deduplicate", "removing")
        for producer in ("input", "lookup", "full-compaction")
    ),
    {**ENGINES["first-row"], "bucket": "1", "changelog-producer": "lookup", "case": "first-row-lookup"},
    {**ENGINES["aggregation"], "bucket": "1", "changelog-producer": "lookup", "case": "aggregation-lookup"},
    {"bucket": "1", "deletion-vectors.enabled": "true", "case": "vectors"},
    {"bucket": "2", "file.format": "orc", "case": "orc"},
    {"bucket": "2", "file.format": "avro", "case": "avro"},
    {"bucket": "1", **INDEXES, "case": "indexes"},
    {"bucket": "1", "ignore-delete": "true", "case": "ignored-deletes"},
    {"bucket": "-1", "case": "dynamic"},
    {"bucket": "-2", "case": "postponed"},
]
APPEND = [
    {"case": "append"},
    {"bucket": "2", "bucket-key": "k", "case": "queue"},
    {"deletion-vectors.enabled": "true", "case": "append-vectors"},
    {**INDEXES, "file-index.in-manifest-threshold": "1 kb", "case": "append-indexes"},
    {"file.format": "orc", "case": "append-orc"},
]
CASES = [
    *(("v", options, "k", "") for options in KEYED),
    *(("k", options, "k", "") for options in KEYED[:2]),
    *(("v", options, "", "") for options in APPEND),
    ("d", {"bucket": "1", "case": "partitions"}, "d k", "d"),
    ("d", {"bucket": "1", "changelog-producer": "input", "case": "partitions-input"}, "d k", "d"),
    ("k", {"bucket": "1", "case": "partitions"}, "d k", "d"),
    ("d", {"bucket": "-1", "case": "moving"}, "k", "d"),
    ("d", {"bucket": "-1", "case": "dynamic-partitions"}, "d k", "d"),
    ("k", {"bucket": "-1", "case": "dynamic-partitions"}, "d k", "d"),
    ("d", {"deletion-vectors.enabled": "true", "case": "vectors-partitions"}, "", "d"),
    ("d", {"bucket": "2", "stream.enabled": "true", "case": "shards"}, "d k", "d"),
    ("k", {"bucket": "-1", "stream.enabled": "true", "case": "dynamic-shards"}, "d k", "d"),
    ("d", {"stream.enabled": "true", "case": "append-shards"}, "", "d"),
    ("d", {"case": "append-partitions"}, "", "d"),
    ("v", {"write-mode": "change-log", "bucket": "1", "case": "counting"}, "", ""),
]


@pytest.mark.campaign(1 / 10)
@pytest.mark.parametrize(
    ("by", "options", "key", "part"), [pytest.param(*one, id=f"{one[0]}-{one[1]['case']}") for one in CASES]
)
def test_no_byte_tells_of_an_erased_row(by: str, options: dict[str, str], key: str, part: str) -> None:
    """With `d`, the value of a partition is itself personal; with `v`, only an older version of the row has it."""
    options = {name: value for name, value in options.items() if name != "case"}
    table, own = table_of({"num-sorted-run.compaction-trigger": "3", **options}, key, part), TOKEN if by == "d" else "a"
    table.write([row("a"), row("zz")])
    table.tags.create("before")
    table.write([mine("old", own), row("b"), row("y")])
    table.tags.create("holding")
    table.branches.create("b1", tag="holding")
    table.branch("b1").write([row("b", "in the branch")])
    table.write([row("c"), mine("new", "a" if key == "k" else own) if key else row("c2")])
    table.compact(full=True)
    table.consumers.set("reader", next_snapshot=2)
    table.write([row("e")])
    if by == "k" and key == "k":
        table.delete(f"k = '{TOKEN}'")  # the row is gone already, its versions are not
    kept, in_branch = others(rows_of(table)), others(rows_of(table.branch("b1")))
    assert found(table)

    report = table.erase({"k": f"k = '{TOKEN}'", "v": f"v = '{TOKEN}-old'", "d": f"d = '{TOKEN}'"}[by], everywhere=True)

    assert found(table) == []
    assert report.is_complete, report
    assert rows_of(table) == kept
    assert rows_of(table.branch("b1")) == in_branch
    assert {one.name for one in report.ended if one.kind in ("tag", "consumer")} == {"holding", "reader"}
    assert [tag.name for tag in table.tags.list()] == ["before"]
    assert others(table.read(tag="before").to_pylist()) == [row("a"), row("zz")]
    assert sound(table)
    assert table.erase(f"k = '{TOKEN}'", everywhere=True).rewritten == ()
    table.write([row("f")])
    table.compact(full=True)
    assert row("f") in rows_of(table)


def _random_table(rng: random.Random) -> mg.Table:
    """Return a table of a random layout."""
    keyed, parted = rng.random() < 0.65, rng.random() < 0.6
    options = {"file.format": rng.choice(["parquet", "parquet", "orc", "avro"])}
    if rng.random() < 0.3:
        options |= INDEXES | rng.choice([{}, {"file-index.in-manifest-threshold": "1 kb"}])
    if rng.random() < 0.3:
        options |= {"metadata.stats-mode": rng.choice(["none", "counts", "truncate(2)", "full"])}
    moves = False
    if keyed:
        moves = parted and rng.random() < 0.2
        options |= {"bucket": "-1" if moves else rng.choice(["1", "2", "-1", "-1", "-2"])}
        engine = rng.choice(list(ENGINES))
        options |= {} if moves else ENGINES[engine]
        if options["bucket"] != "-2":
            options |= rng.choice([{}, {"changelog-producer": "lookup"}, {"deletion-vectors.enabled": "true"}])
            if engine == "first-row":
                options.pop("deletion-vectors.enabled", None)
            if engine == "deduplicate" and not moves:
                options |= rng.choice([{}, {"stream.enabled": "true"}])
                if "stream.enabled" in options:
                    options.pop("changelog-producer", None)
                    options.pop("deletion-vectors.enabled", None)
    else:
        options |= rng.choice([{}, {"deletion-vectors.enabled": "true"}, {"stream.enabled": "true"}])
        options |= rng.choice([{}, {"bucket": "2", "bucket-key": "k"}]) if "stream.enabled" not in options else {}
    options |= rng.choice([{}, {"write-only": "true"}, {"num-sorted-run.compaction-trigger": "2"}])
    key = "" if not keyed else "k" if moves or not parted else "d k"
    return table_of(options, key, "d" if parted else "")


@pytest.mark.parametrize("seed", seeds(12))
def test_no_file_tells_of_an_erased_row_after_a_random_history(seed: int) -> None:
    """Every file under the directory of the table is decoded, whatever its kind; see `traces`."""
    rng = random.Random(seed)
    table = _random_table(rng)
    own = rng.choice([TOKEN, "a"])
    for number in range(rng.randrange(3, 12)):
        match rng.choices(
            ["mine", "others", "compact", "delete", "overwrite", "expire", "tag", "branch", "reopen"],
            [4, 4, 2, 1, 1, 1, 1, 1, 1],
        )[0]:
            case "mine":
                table.write([mine(str(number), own), row(rng.choice("abc"))])
            case "others":
                table.write([row(rng.choice("abcdef"), f"x{number}", rng.choice("ab")) for _ in range(2)])
            case "compact":
                table.compact(full=True)
            case "delete":
                with contextlib.suppress(InvalidInputError):  # of an engine without a rule for deletes
                    table.delete(f"k = '{TOKEN}'")
            case "overwrite":
                table.write([row("b", f"over{number}")], overwrite={})
            case "expire":
                table.expire(retain_max=rng.randrange(1, 3), retain_min=1, older_than="2100-01-01")
            case "tag" if table.snapshots():
                table.tags.create(f"t{number}")
            case "branch" if table.tags.list() and "b" not in [one.name for one in table.branches.list()]:
                table.branches.create("b", tag=table.tags.list()[-1].name)
            case "reopen":
                table = opened(table.env.storage)
    where = rng.choice([f"k = '{TOKEN}'", f"v LIKE '{TOKEN}%'", f"w = 'w-{TOKEN}'"])
    kept = None
    if "deletion-vectors.enabled" in table.definition.options:
        table.compact(full=True)  # reads see the rows that wait
    if where.startswith("k"):
        kept = others(rows_of(table))
    report = table.erase(where, everywhere=True)
    assert report.is_complete, report
    assert found(table) == []
    assert kept is None or rows_of(table) == kept
    assert sound(table)
    again = table.erase(where, everywhere=True)
    assert (again.is_complete, again.rewritten, again.versions) == (True, (), 0)


def test_without_everywhere_the_report_says_what_holds_rows_and_streams_read_the_deletion() -> None:
    table = table_of({"bucket": "1", "changelog-producer": "input"}, "k")
    table.write([mine("old"), row("a")])
    table.tags.create("v1")
    table.branches.create("b1", tag="v1")
    table.consumers.set("reader", next_snapshot=2)

    report = table.erase(f"k = '{TOKEN}'")

    assert not report.is_complete
    assert {(one.kind, one.name, one.branch) for one in report.held} == {
        ("snapshot", "1", "main"),
        ("snapshot", "2", "main"),
        ("snapshot", "3", "main"),
        ("tag", "v1", "main"),
        ("consumer", "reader", "main"),
        ("snapshot", "1", "b1"),
        ("tag", "v1", "b1"),
    }
    assert all(one.advice for one in report.held)
    assert (report.rows, report.ended) == (1, ())
    assert rows_of(table) == [row("a")]
    changes = table.changes(start=2).to_pylist()
    assert [(one["_row_kind"], one["k"]) for one in changes] == [("-D", TOKEN)]
    assert mine("old") in rows_of(table.branch("b1"))

    last = table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert last.is_complete
    assert found(table) == []
    with pytest.raises(ExpiredError):
        table.changes(start=2).to_arrow()


def test_a_report_is_json_without_values_of_the_rows() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([mine("old"), row("a")])
    table.tags.create("v1")
    report = table.erase(f"k = '{TOKEN}'", everywhere=True, commit_user="privacy")
    stored = json.loads(report.to_json())
    assert (stored["is_complete"], stored["erased_by"], stored["rows"], stored["table"]) == (True, "privacy", 1, "db.t")
    assert {"kind": "tag", "name": "v1", "branch": "main", "advice": ""} in stored["ended"]
    assert stored["files_read"] >= 1
    assert report.to_json().count(TOKEN) == 1  # the filter
    assert "tag v1" in str(report)


def test_a_row_that_a_delete_cannot_remove_is_erased() -> None:
    options = {"merge-engine": "partial-update", "fields.w.sequence-group": "v", "bucket": "1"}
    table = table_of({**options, "partial-update.remove-record-on-sequence-group": "w"}, "k")
    table.write([{**mine("old"), "w": None}, row("a")])
    with pytest.raises(InvalidInputError, match="would not become"):
        table.delete(f"k = '{TOKEN}'")
    assert table.erase(f"k = '{TOKEN}'", everywhere=True).is_complete
    assert found(table) == []
    assert rows_of(table) == [row("a")]


def test_only_files_that_hold_rows_are_written_anew() -> None:
    table = table_of({"bucket": "4", "write-only": "true"}, "k")
    for i in range(4):
        table.write([row(f"{i}-{j}") for j in range(20)])
    before = set(table.files()["file_path"].to_pylist())
    table.write([mine("old")])
    report = table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert set(table.files()["file_path"].to_pylist()) == before
    assert len(report.rewritten) == 2  # the row, and its deletion


def test_statistics_of_files_that_are_gone_count() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([row("a")])
    table.tags.create("before")
    table.write([mine("old"), row("b")])
    table.compact(full=True)
    table.delete(f"k = '{TOKEN}'")
    table.compact(full=True)
    table.expire(retain_max=1, retain_min=1, older_than="2100-01-01")
    table.tags.create("after")
    assert found(table)  # in manifests alone
    table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert found(table) == []
    assert [tag.name for tag in table.tags.list()] == ["before"]


def test_statistics_of_gone_files_of_appended_rows_count() -> None:
    table = table_of({"write-only": "true"})
    table.write([mine("old"), row("b")])
    table.write([row("c")])
    table.with_options({"write-only": "false", "compaction.min.file-num": "2"}).compact(full=True)
    table.delete(f"k = '{TOKEN}'")
    table.tags.create("after")
    table.expire(retain_max=1, retain_min=1, older_than="2100-01-01")
    table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert found(table) == []
    assert rows_of(table) == [row("b"), row("c")]


def test_statistics_of_gone_files_count_for_a_filter_on_other_columns() -> None:
    """No stored version shows the key of a row that was overwritten and has expired."""
    table = table_of({"bucket": "1"}, "k")
    table.write([mine("old")])
    table.write([row("b")], overwrite={})
    table.expire(retain_max=1, retain_min=1, older_than="2100-01-01")
    assert found(table)
    assert not table.erase(f"v = '{TOKEN}-old'").is_complete
    assert table.erase(f"v = '{TOKEN}-old'", everywhere=True).is_complete
    assert found(table) == []
    assert rows_of(table) == [row("b")]


@pytest.mark.parametrize("where", [f"k = '{TOKEN}'", f"d = '{TOKEN}'", f"v = '{TOKEN}-old'"])
@pytest.mark.parametrize("kept", [False, True], ids=["erased", "deleted-first"])
def test_partitions_go_from_index_manifests(where: str, kept: bool) -> None:
    """Partitions without files stay in the index manifests of dynamic buckets after a delete."""
    table = table_of({"bucket": "-1"}, "d k", "d")
    table.write([row("a")])
    table.tags.create("before")
    table.write([mine("old", TOKEN)])
    table.tags.create("holding")
    if kept:
        table.delete(f"k = '{TOKEN}'")
        table.compact(full=True)
        table.tags.create("deleted")
    beside = opened(table.env.storage)
    beside.write([row("b")])
    held = table.erase(where)
    assert {"holding"} <= {one.name for one in held.held if one.kind == "tag"}
    assert table.erase(where, everywhere=True).is_complete
    assert found(table) == []
    assert [tag.name for tag in table.tags.list()] == ["before"]
    beside.write([row("c"), mine("new", TOKEN)])
    table.write([row("e"), row("b", "newer")])
    assert rows_of(table) == sorted([row("a"), row("b", "newer"), row("c"), row("e"), mine("new", TOKEN)], key=repr)
    assert sound(table)


def test_tags_do_not_end_later_for_files_that_were_read() -> None:
    """Files that a call removes are gone when it verifies: it has read them, so their statistics decide nothing."""
    table = table_of({"write-only": "true"})
    table.write([row("a"), row("zz")])
    table.write([row("b"), row("zy")])
    table.with_options({"write-only": "false", "compaction.min.file-num": "2"}).compact(full=True)
    table.tags.create("compacted")
    table.write([mine("old"), row("c")])
    report = table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert report.is_complete, report
    assert [tag.name for tag in table.tags.list()] == ["compacted"]
    assert found(table) == []


def test_changelogs_that_outlive_their_snapshots_end() -> None:
    clock = Clock()
    catalog = catalog_over(memory_with({}, f"erase-{next(_names)}"), clock=clock)
    catalog.create_database("db")
    options = {"bucket": "1", "changelog-producer": "input", "changelog.num-retained.max": "50"}
    options |= {"snapshot.num-retained.max": "2", "snapshot.num-retained.min": "1", "changelog.num-retained.min": "9"}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["k"], options=options)
    for i in range(6):
        table.write([mine(f"{i}") if i == 2 else row(f"a{i}")])
    table.expire(retain_max=2, retain_min=1, older_than="2100-01-01")
    assert any("/changelog/" in path for path in contents(table.env.storage))
    report = table.erase(f"v = '{TOKEN}-2'", everywhere=True)
    assert report.is_complete
    assert found(table) == []
    assert {one.kind for one in report.ended} == {"changelog", "snapshot"}


def test_rows_of_older_schemas_are_erased() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([{**mine("old"), "w": f"{TOKEN}-dropped"}, row("a")])
    catalog = catalog_over(table.env.storage)
    catalog.alter_table("db.t", [mg.changes.drop_column("w"), mg.changes.rename_column("v", "name")])
    catalog.alter_table("db.t", [mg.changes.add_column("w", "INT")])
    table = opened(catalog.env.storage)
    table.write([{"d": "a", "k": "b", "name": "x", "w": 1}])
    assert table.erase(f"name = '{TOKEN}-old'", everywhere=True).is_complete
    assert found(table) == []
    assert [one["k"] for one in rows_of(table)] == ["a", "b"]


def analyzed(table: mg.Table, text: str) -> mg.Table:
    """Return a table whose newest snapshot names statistics, as another engine writes them."""
    paths, env = table.definition.paths, table.env
    snapshot = table.snapshots()[-1]
    env.storage.create(paths.statistics("stat-1"), json.dumps({"snapshotId": snapshot.id, "max": text}).encode())
    env.storage.delete([paths.snapshot(snapshot.id)])
    SnapshotStore(paths, env, "db.t").create(replace(snapshot, statistics="stat-1"))
    return opened(env.storage)


def test_statistics_of_the_table_go() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([mine("old"), row("a")])
    table = analyzed(table, TOKEN)
    table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert found(table) == []


@pytest.mark.parametrize("where", [f"k = '{TOKEN}'", f"v = '{TOKEN}-old'"])
def test_statistics_of_a_snapshot_that_has_expired_count(where: str) -> None:
    table = table_of({"bucket": "1", "manifest.full-compaction-threshold-size": "1 b"}, "k")
    table.write([mine("old")])
    table = analyzed(table, TOKEN)
    table.write([row("a")], overwrite={})
    for number in range(3):
        table.write([row("a", str(number))])
    table.expire(retain_max=1, retain_min=1, older_than="2100-01-01")
    table.tags.create("after")
    assert [path.rpartition("/")[2] for path in found(table)] == ["stat-1"]
    assert ("tag", "after") in [(one.kind, one.name) for one in table.erase(where).held]
    assert table.erase(where, everywhere=True).is_complete
    assert found(table) == []


def test_index_files_of_unknown_types_are_held() -> None:
    table = table_of({}, "")
    table.write([mine("old"), row("a")])
    own = IndexEntry(b"\0" * 12, 0, "BTREE", "index-other-1", 4, 1)
    table.env.storage.create(f"{table.path}/index/index-other-1", b"else")
    message = CommitMessage(own.partition, own.bucket, -1, (), index_added=(own,))
    TableCommit(table.definition, table.env).commit(Committable((message,), "other", kind=COMPACT))
    report = opened(table.env.storage).erase(f"k = '{TOKEN}'", everywhere=True)
    assert [(one.kind, one.name) for one in report.held] == [("file", "index-other-1")]
    assert "'BTREE' is not known" in report.held[0].advice


def test_statistics_of_rows_that_were_read_do_not_count() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([row("a")])
    table = analyzed(table, "a")
    table.tags.create("kept")
    table.write([row("b")])
    assert table.erase(f"k = '{TOKEN}'").is_complete
    report = table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert (report.is_complete, report.ended) == (True, ())
    assert [tag.snapshot.statistics for tag in table.tags.list()] == ["stat-1"]


def test_files_that_no_snapshot_names_are_held_until_they_are_removed() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([row("a")])
    storage, files = table.env.storage, contents(table.env.storage)
    table.write([mine("old")])
    new = {path: data for path, data in contents(storage).items() if path not in files}
    table.rollback(snapshot=1)
    for path, data in new.items():
        if "/bucket-" in path or "/manifest/" in path:
            storage.replace(path, data)
    storage.replace(f"{table.path}/bucket-0/data-torn-0.parquet", b"torn")

    report = table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert {one.kind for one in report.held} == {"file"}
    assert "data-torn-0.parquet" in {one.name for one in report.held}
    assert all("or a rollback removed its snapshot" in one.advice for one in report.held)
    assert found(table)

    table.remove_orphans(older_than=datetime.now(UTC) + timedelta(days=1), dry_run=False)
    assert table.erase(f"k = '{TOKEN}'", everywhere=True).is_complete
    assert found(table) == []


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("name", [TOKEN, "other"])
def test_a_file_that_a_rollback_left_is_searched_in_the_types_it_was_written_with(name: str, file_format: str) -> None:
    catalog = catalog_over(memory_with({}, f"erase-types-{name}-{file_format}"))
    catalog.create_database("db")
    options = {"bucket": "1", "bucket-key": "k", "file.format": file_format}
    table = catalog.create_table("db.t", {"k": "STRING", "n": "BIGINT"}, options=options)
    table.write([{"k": "a", "n": 1}])
    table.write([{"k": name, "n": 2}])
    table.rollback(snapshot=1)
    table = table.alter([mg.changes.retype_column("n", "STRING")])
    assert table.erase(f"k = '{TOKEN}'", everywhere=True).is_complete == (name == "other")


@pytest.mark.parametrize("part", ["", "d"])
@pytest.mark.parametrize(("who", "parts"), [("b", ""), ("b", "/bucket-"), (TOKEN, "")])
def test_metadata_of_a_commit_that_is_being_made_is_read(who: str, parts: str, part: str) -> None:
    """Beside a writer there are always manifests that no snapshot names yet: they count by what they hold."""
    table = table_of({"bucket": "1"}, f"{part} k".strip(), part)
    table.write([mine("old"), row("a")])
    assert table.erase(f"k = '{TOKEN}'", everywhere=True).is_complete
    storage, files, before = table.env.storage, contents(table.env.storage), table.latest_snapshot()
    table.write([row("b") if who == "b" else mine("new", TOKEN)])
    new = {path: data for path, data in contents(storage).items() if path not in files}
    table.rollback(snapshot=before.id)
    table.remove_orphans(older_than=datetime.now(UTC) + timedelta(days=1), dry_run=False)

    def beside(*arguments: Any, **how: Any) -> Any:
        for path, data in new.items():
            if "/manifest/" in path or (parts and parts in path):
                storage.replace(path, data)
        return work(*arguments, **how)

    work = erasure.Erasing._verified
    with patch.object(Erasing, "_verified", beside):
        report = table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert report.is_complete == (who == "b")
    assert {one.name.split("-")[0] for one in report.held} <= {"manifest"}
    assert bool(found(table)) == (who != "b")
    assert sound(table)
    for path in new:
        if "/manifest/" in path:
            storage.replace(path, new[path][:-20])  # it is being written
    assert not table.erase(f"k = '{TOKEN}'", everywhere=True).is_complete


def test_what_a_rollback_or_a_fast_forward_leaves_is_held_until_it_is_removed() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([row("a")])
    table.tags.create("start")
    table.branches.create("b", tag="start")
    table.branch("b").write([row("b")])
    for undo in (lambda: table.rollback(tag="start"), lambda: table.branches.fast_forward("b")):
        table.write([mine("old")])
        undo()
        report = table.erase(f"k = '{TOKEN}'", everywhere=True)
        assert {one.kind for one in report.held} == {"file"}
        assert found(table)
        table.remove_orphans(older_than=datetime.now(UTC) + timedelta(days=1), dry_run=False)
        assert table.erase(f"k = '{TOKEN}'", everywhere=True).is_complete
        assert found(table) == []


def test_files_of_other_programs_are_neither_searched_nor_removed() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([mine("old"), row("a")])
    others = [f"{table.path}/{name}" for name in ("README", "bucket-0/notes.csv", "_tmp/rows.parquet", "index/junk")]
    for path in others:
        table.env.storage.create(path, TOKEN.encode())
    assert table.erase(f"k = '{TOKEN}'", everywhere=True).is_complete
    assert [path for path in others if table.env.storage.exists(path)] == others


def test_rows_that_others_add_afterwards_stay() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([mine("old"), row("a")])
    table.erase(f"k = '{TOKEN}'", everywhere=True)
    table.write([mine("again")])
    assert rows_of(table) == [row("a"), mine("again")]


@pytest.mark.parametrize("options", [{}, {"merganser.deletes": "refuse"}], ids=["no-filter", "refused"])
def test_an_erasure_is_refused_before_anything_is_written(options: dict[str, str]) -> None:
    table = table_of({"bucket": "1", **options}, "k")
    table.write([mine("old")])
    before = contents(table.env.storage)
    with pytest.raises(InvalidInputError, match=r"cannot erase rows of 'db.t'.*Nothing was written"):
        table.erase("true" if options else "  ", everywhere=True)
    assert contents(table.env.storage) == before


@pytest.mark.parametrize("everywhere", ["yes", 1, None])
def test_everywhere_is_true_or_false(everywhere: Any) -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([mine("old")])
    before = contents(table.env.storage)
    with pytest.raises(InvalidInputError, match=rf"everywhere is {everywhere!r}\. Give True or False"):
        table.erase(f"k = '{TOKEN}'", everywhere)
    assert contents(table.env.storage) == before


def test_a_report_of_a_table_without_files_says_so() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([mine("old")])
    assert "verified   the table has no data or changelog file" in str(table.erase(f"k = '{TOKEN}'", everywhere=True))


def test_directories_and_lookup_copies_on_a_disk_go(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path / "warehouse")
    catalog.create_database("db")
    options = {"bucket": "1", "lookup.cache-directory": str(tmp_path / "copies")}
    table = catalog.create_table("db.t", SCHEMA, primary_key=["d", "k"], partition_by=["d"], options=options)
    table.write([mine("old", TOKEN), row("a")])
    assert table.lookup([{"d": TOKEN, "k": TOKEN}]).num_rows == 1
    table.erase(f"d = '{TOKEN}'", everywhere=True)
    assert [path for path in tmp_path.rglob("*") if TOKEN in str(path)] == []
    assert traces({str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}, TOKEN) == []
    assert table.lookup([{"d": TOKEN, "k": TOKEN}]).num_rows == 0


def _writes(table: mg.Table) -> None:
    table.write([row("late")])


def _adds_a_version(table: mg.Table) -> None:
    table.write([mine("late"), row("late")])


def _compacts(table: mg.Table) -> None:
    table.write([row("late")])
    table.compact(full=True)


def _expires(table: mg.Table) -> None:
    table.write([row("late")])
    table.expire(retain_max=1, retain_min=1, older_than="2100-01-01")


def _tags(table: mg.Table) -> None:
    table.write([row("late")])
    table.tags.create("late", snapshot=1)


def _erases(table: mg.Table) -> None:
    table.write([row("late")])
    table.erase(f"k = '{TOKEN}'", everywhere=True)


STEPS = {"deleted": (Erasing, "_live_hits"), "rewritten": (Erasing, "_renew"), "noted": (endings, "end_holders")}


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("step", list(STEPS))
@pytest.mark.parametrize("other", [_writes, _adds_a_version, _compacts, _expires, _tags, _erases])
@pytest.mark.parametrize("key", ["k", ""], ids=["keyed", "append"])
def test_what_others_do_meanwhile_is_kept(step: str, other: Callable[[mg.Table], None], key: str) -> None:
    table = table_of({"bucket": "1", "bucket-key": "k"}, key)
    table.write([row("a"), mine("old")])
    table.write([row("b")])
    beside = opened(table.env.storage)
    where, name = STEPS[step]
    work, done = getattr(where, name), list[bool]()

    def overtaken(*arguments: Any) -> Any:
        if not done:
            done.append(True)
            other(beside)
        return work(*arguments)

    target = erasure if where is endings else where
    with patch.object(target, name, overtaken):
        report = table.erase(f"k = '{TOKEN}'", everywhere=True)

    assert done
    late = other is _adds_a_version and step != "deleted"
    assert others(rows_of(table)) == [row("a"), row("b"), row("late")]
    assert len(rows_of(table)) == 3 + late  # a row that came after the deletion is a new row
    assert sound(table)
    if not report.is_complete:
        assert {one.kind for one in report.held} <= {"tag", "snapshot"}
    again = table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert again.is_complete, again
    assert found(table) == []
    assert others(rows_of(table)) == rows_of(table) == [row("a"), row("b"), row("late")]


def test_files_may_expire_while_they_are_searched() -> None:
    table = table_of({"bucket": "1", "write-only": "true"}, "k")
    table.write([mine("old"), row("a")])
    table.write([row("b")])
    table.compact(full=True)
    look, looked = erasure.take_inventory, list[bool]()

    def taken(*arguments: Any) -> Any:
        inventory = look(*arguments)
        if not looked:
            looked.append(True)
            opened(table.env.storage).expire(retain_max=1, retain_min=1, older_than="2100-01-01")
        return inventory

    with patch.object(erasure, "take_inventory", taken):
        report = table.erase(f"v = '{TOKEN}-old'", everywhere=True)
    assert (report.is_complete, report.rows) == (True, 1)
    assert found(table) == []
    assert rows_of(table) == [row("a"), row("b")]


def test_streams_are_told_of_keys_that_come_meanwhile() -> None:
    table = table_of({"bucket": "1", "changelog-producer": "input"}, "k")
    table.write([mine("old"), row("a")])
    beside, work, done = opened(table.env.storage), Erasing._live_hits, list[bool]()

    def overtaken(*arguments: Any) -> Any:
        if not done:
            done.append(True)
            beside.write([row("other", f"{TOKEN}-old")])
        return work(*arguments)

    with patch.object(Erasing, "_live_hits", overtaken):
        assert table.erase(f"v = '{TOKEN}-old'").keys == 2
    changes = table.changes(start=2).to_pylist()
    assert [(one["_row_kind"], one["k"]) for one in changes] == [("-D", TOKEN), ("+I", "other"), ("-D", "other")]
    assert rows_of(table) == [row("a")]


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction"])
def test_streams_and_shards_go_on(producer: str) -> None:
    """A stream that has read the newest snapshot learns of the deletion, and goes on behind it."""
    options = {"bucket": "1", "changelog-producer": producer}
    table = table_of(options, "k")
    table.write([mine("old"), row("a")])
    if producer == "full-compaction":
        table.compact(full=True)
    table.erase(f"k = '{TOKEN}'")
    table.write([row("b")])
    if producer == "full-compaction":
        table.compact(full=True)
    state: dict[str, Row] = {}
    for part in table.stream(start="from-snapshot", follow=False, **{"scan.snapshot-id": "1"}):
        assert not isinstance(part, Gap)
        for one in part.to_pylist():
            kind = one.pop("_row_kind")
            state.pop(one["k"], None) if kind in ("-D", "-U") else state.update({one["k"]: one})
    assert sorted(state.values(), key=repr) == rows_of(table) == [row("a"), row("b")]


def test_shards_whose_records_are_all_gone_are_read_to_their_end() -> None:
    table = table_of({"stream.enabled": "true"})
    table.write([row("a"), row("b"), row("c")])
    for key in "ab":
        table.erase(f"k = '{key}'", everywhere=True)
    pages = [table.records(table.shard_iterator(shard.shard_id, at="trim_horizon")) for shard in table.shards()]
    assert [(page.records.num_rows, page.next_iterator is None) for page in pages] == [(0, True), (0, True), (0, False)]


@pytest.mark.parametrize("everywhere", [False, True])
def test_partitions_go_from_shards_that_end(everywhere: bool) -> None:
    table = table_of({"bucket": "1", "stream.enabled": "true"}, "d k", "d")
    table.write([mine("old", TOKEN), row("a")])
    beside = opened(table.env.storage)
    assert len(beside.shards()) == 2
    if not everywhere:
        store = ShardStore(table.definition, table.env, stream_of(table.definition.options, "main"))
        store.remember(table.snapshots()[-1])
        assert "shards-1" in [one.name for one in table.erase(f"k = '{TOKEN}'").held]
        [shard] = [one for one in table.shards() if one.partition["d"] == TOKEN]
        page = table.records(table.shard_iterator(shard.shard_id, at="trim_horizon"))
        assert page.records["_action"].to_pylist() == ["PUT", "DELETE"]
    assert table.erase(f"k = '{TOKEN}'", everywhere=True).is_complete
    assert found(table) == []

    for one in (table, beside, opened(table.env.storage)):
        assert [(each.partition, each.closed) for each in one.shards()] == [({"d": "a"}, False), ({}, True)]
        [gone] = [each.shard_id for each in one.shards() if each.closed]
        page = one.records(one.shard_iterator(gone, at="trim_horizon"))
        assert (page.records.num_rows, page.next_iterator) == (0, None)
    beside.write([mine("new", TOKEN), row("b")])
    for one in (table, beside, opened(table.env.storage)):
        assert [each.partition.get("d") for each in one.shards() if not each.closed] == ["a", TOKEN]
    assert sound(table)
    assert table.erase(f"k = '{TOKEN}'", everywhere=True).is_complete
    assert found(table) == []


def test_files_outside_of_the_table_are_reported_and_stay(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist([mine("old"), row("a")]), folder / "one.parquet")
    catalog = mg.catalog(tmp_path / "warehouse")
    catalog.create_database("db")
    table = catalog.migrate(folder, "db.t", how="keep")
    report = table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert [one.name for one in report.held] == [str(folder / "one.parquet")]
    assert (folder / "one.parquet").exists()
    assert rows_of(table) == [row("a")]


def test_the_removal_of_orphans_takes_a_note_that_was_never_whole() -> None:
    catalog = catalog_over(memory_with({}, "erase-orphans"))
    catalog.create_database("db")
    table = catalog.create_table("db.t", "k INT")
    path = f"{table.path}/erase/.erase-1.2.tmp"
    table.env.storage.replace(path, b'{"files": ["k=secret')
    late = datetime.now(UTC) + timedelta(days=1)
    assert table.remove_orphans(older_than=late, dry_run=False) == (path,)
    assert not table.env.storage.exists(path)


def other_name(branch: mg.Table) -> mg.Table:
    return branch.alter([mg.changes.rename_column("v", "note")])


def other_type(branch: mg.Table) -> mg.Table:
    return branch.alter([mg.changes.retype_column("n", "BIGINT")])


def dropped(branch: mg.Table) -> mg.Table:
    return branch.alter([mg.changes.drop_column("v")])


def another_of_its_name(branch: mg.Table) -> mg.Table:
    renamed = branch.alter([mg.changes.rename_column("v", "note")])
    return renamed.alter([mg.changes.add_column("v", "STRING")])


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize(
    ("alter", "column", "says"),
    [
        (other_name, "v", "has the column 'note' (STRING), which here is 'v' (STRING)"),
        (another_of_its_name, "v", "has the column 'note' (STRING), which here is 'v' (STRING)"),
        (other_type, "n", "has the column 'n' (BIGINT), which here is 'n' (INT)"),
        (dropped, "v", "has dropped the column 'v'"),
    ],
)
def test_a_branch_that_has_a_column_in_another_form_is_held(
    key: str, alter: Callable[[mg.Table], mg.Table], column: str, says: str
) -> None:
    table = table_of({"bucket": "1" if key else "-1"}, key).alter([mg.changes.add_column("n", "INT")])
    table.write([{**row("a"), "n": 1}])
    table.tags.create("fork")
    table.branches.create("b", tag="fork")
    table.branch("b").write([{**mine("there"), "n": 7}, {**row("c"), "n": 8}])
    branch = alter(table.branch("b"))
    if {"v", "note"} <= set(branch.schema.names):  # its own 'v' is another column
        branch.write([{**row("e", f"{TOKEN}-there"), "note": None, "n": 9}])
    before = rows_of(branch)
    where = "n = 7" if column == "n" else f"v = '{TOKEN}-there'"
    for everywhere in (False, True, True):
        report = table.erase(where, everywhere=everywhere)
        [held] = [one for one in report.held if one.kind == "branch"]
        assert (held.name, report.is_complete) == ("b", False)
        assert says in held.advice
    assert rows_of(table.branch("b")) == before, "a filter deletes no rows by a column that it does not mean"
    table.branches.drop("b")
    report = table.erase(where, everywhere=True)
    assert report.is_complete
    assert found(table) == []


def test_a_column_that_a_branch_never_had_is_none_of_its_rows() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([row("a")])
    table.tags.create("fork")
    table.branches.create("b", tag="fork")
    table.branch("b").alter([mg.changes.add_column("own", "STRING")])
    table = table.alter([mg.changes.add_column("x", "STRING")])
    table.write([{**mine("new"), "x": TOKEN}])
    assert table.erase(f"x = '{TOKEN}'", everywhere=True).is_complete
    assert found(table) == []
    assert [one["k"] for one in rows_of(table.branch("b"))] == ["a"]


def test_one_call_ends_a_tag_whose_statistics_tell_of_a_snapshot_that_it_ends() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([row("a")])
    table.analyze()
    table.write([row("b")])
    table.tags.create("later")
    table.write([mine("old")])
    report = table.erase(f"v = '{TOKEN}-old'", everywhere=True)
    assert (report.is_complete, report.held) == (True, ())
    assert found(table) == []


@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize(
    "where", [f"v = '{TOKEN}-there' OR x = 'y'", f"coalesce(x, 'none') = 'none' AND v LIKE '{TOKEN}%'"]
)
def test_columns_that_a_branch_never_had_are_null_in_its_rows(key: str, where: str) -> None:
    table = table_of({"bucket": "1" if key else "-1"}, key)
    table.write([row("a")])
    table.tags.create("fork")
    table.branches.create("b", tag="fork")
    table.branch("b").write([mine("there"), row("c")])
    table = table.alter([mg.changes.add_column("x", "STRING")])
    report = table.erase(where, everywhere=True)
    assert (report.is_complete, report.rows) == (True, 1)
    assert found(table) == []
    assert [one["k"] for one in rows_of(table.branch("b"))] == ["a", "c"]


@pytest.mark.parametrize("key", ["", "k"])
def test_a_column_that_was_dropped_and_added_again_is_the_one_of_its_name(key: str) -> None:
    table = table_of({"bucket": "1" if key else "-1"}, key)
    table.write([row("a")])
    table.tags.create("fork")
    table.branches.create("b", tag="fork")
    table.branch("b").write([mine("there"), row("c")])
    table = table.alter([mg.changes.drop_column("v")]).alter([mg.changes.add_column("v", "STRING")])
    assert table.erase(f"v = '{TOKEN}-there'", everywhere=True).is_complete
    assert found(table) == []
    assert [one["k"] for one in rows_of(table.branch("b"))] == ["a", "c"]


@pytest.mark.parametrize("where", [f"v = '{TOKEN}-there'", f"k = '{TOKEN}'"])
def test_a_branch_from_before_the_key_is_erased_by_the_key(where: str) -> None:
    table = table_of({"bucket": "-1"})
    table.write([row("a")])
    table.tags.create("fork")
    table.branches.create("b", tag="fork")
    table.branch("b").write([mine("there"), mine("once more"), row("c")])
    table = table.alter([mg.changes.set_primary_key(["k"]), mg.changes.set_option("bucket", "1")])
    report = table.erase(where, everywhere=True)
    assert report.is_complete
    assert found(table) == []
    assert [one["k"] for one in rows_of(table.branch("b"))] == ["a", "c"]


def test_a_branch_with_another_key_is_held() -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([row("a")])
    table.tags.create("fork")
    table.branches.create("b", tag="fork")
    table.branch("b").write([mine("there"), row("c")])
    table = table.alter([mg.changes.rename_column("k", "key")])
    report = table.erase(f"v = '{TOKEN}-there'", everywhere=True)
    [held] = report.held
    assert (held.kind, held.name) == ("branch", "b")
    assert "has the primary key (k), and here it is (key)" in held.advice
    report = table.branch("b").erase(f"v = '{TOKEN}-here'")
    assert [(one.kind, one.name) for one in report.held] == [("branch", "main")]
    assert report.held[0].advice.startswith("The table has the primary key (key), and here it is (k), so")
    assert "drop" not in report.held[0].advice
    table.branch("b").alter([mg.changes.rename_column("k", "key")])
    assert table.erase(f"v = '{TOKEN}-there'", everywhere=True).is_complete
    assert found(table) == []


def test_a_branch_that_got_a_key_by_itself_is_held() -> None:
    table = table_of({"bucket": "-1"})
    table.write([row("a")])
    table.tags.create("fork")
    table.branches.create("b", tag="fork")
    branch = table.branch("b").alter([mg.changes.set_primary_key(["k"]), mg.changes.set_option("bucket", "1")])
    branch.write([row(TOKEN, "before")])
    branch.write([mine("there")])
    report = table.erase(f"v = '{TOKEN}-there'", everywhere=True)
    [held] = report.held
    assert "has a primary key (k)" in held.advice
    assert len(rows_of(table.branch("b"))) == 2


def test_a_consumer_that_ended_is_told_when_it_starts_again() -> None:
    """The reader was not told of the deletion, so a start from the whole table would count rows twice."""
    table = table_of({"bucket": "1", "changelog-producer": "input"}, "k")
    table.write([mine("old"), row("a")])
    table.tags.create("v1")
    table.branches.create("b1", tag="v1")
    lines = [table, table.branch("b1")]
    for line in lines:
        line.consumers.set("job", next_snapshot=line.latest_snapshot().id)
        line.consumers.set("ahead", next_snapshot=line.latest_snapshot().id + 1)
        line.write([row("b")])
    report = table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert {(one.name, one.branch) for one in report.ended if one.kind == "consumer"} == {
        (name, branch) for name in ("job", "ahead") for branch in ("main", "b1")
    }
    for line in lines:
        named = replace(line.definition, options=line.definition.options.merged({"consumer-id": "job"}))
        fields = line.definition.schema.fields
        spark = TableBatches(named, line.env, what=What.CHANGED, columns=fields, where=None)
        for start in (
            partial(line.stream, consumer="job", follow=False),
            partial(line.stream, "from-snapshot", consumer="job", **{"scan.snapshot-id": "1"}),
            spark.start,
        ):
            with pytest.raises(ExpiredError, match=r"'job'.*erase.*ended the consumer.*drop\('job'\)"):
                start()
        assert line.consumers.list() == ()

        line.consumers.drop("job")
        assert [one.to_pylist() for one in line.stream(consumer="job", follow=False)] != []
        with pytest.raises(NotFoundError):
            line.consumers.drop("nobody")
        line.consumers.set("ahead", next_snapshot=line.latest_snapshot().id + 1)
        line.consumers.drop("ahead")
        assert next(line.stream(consumer="ahead", follow=False)).num_rows == 2


@pytest.mark.parametrize("decision", ["fresh", "clear", "recreated"])
def test_a_consumer_that_ended_may_begin_again(decision: str) -> None:
    table = table_of({"bucket": "1"}, "k")
    table.write([mine("old"), row("a")])
    table.consumers.set("job", next_snapshot=1)
    table.erase(f"k = '{TOKEN}'", everywhere=True)
    if decision == "fresh":
        ignoring = {"consumer.ignore-progress": "true"}
        assert [one.num_rows for one in table.stream(consumer="job", follow=False, **ignoring)] == [1]
        table.env.storage.delete([table.definition.paths.consumer("job")])  # as another engine lets it expire
    elif decision == "clear":
        catalog_over(table.env.storage).sql("CALL sys.clear_consumers('db.t')")
    else:
        table.consumers.set("job", next_snapshot=table.latest_snapshot().id + 1)
        table.env.storage.delete([table.definition.paths.consumer("job")])
    assert [one.num_rows for one in table.stream(consumer="job", follow=False)] == [1]


def test_errors_of_readers_that_were_not_told_name_the_erasure() -> None:
    table = table_of({"bucket": "1", "changelog-producer": "input", "stream.enabled": "true"}, "k")
    table.write([mine("old"), row("a")])
    stream = table.stream("from-snapshot", follow=False, **{"scan.snapshot-id": "1"})
    [shard] = table.shards()
    iterator = table.shard_iterator(shard.shard_id, at="trim_horizon")
    table.erase(f"k = '{TOKEN}'", everywhere=True)
    for read in (lambda: next(stream), lambda: table.records(iterator)):
        with pytest.raises(ExpiredError, match=r"erase\(..., everywhere=True\) at .* ended .*may not know") as told:
            read()
        assert "retention" not in told.value.message
        assert "time-retained" not in told.value.message


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_an_erasure_between_a_plan_and_its_read_is_named(producer: str) -> None:
    table = table_of({"bucket": "1", "changelog-producer": producer}, "k")
    table.write([mine("old"), row("a")])
    table.write([mine("new")])
    scans = [table.read(), table.changes(), table.changes(mode="diff"), table.changes(2, mode="diff")]
    plans = [(scan, scan.plan()) for scan in scans]
    batches = TableBatches(table.definition, table.env, what=What.CHANGED, columns=table.changes().columns, where=None)
    start = batches.start()
    at = batches.advance(start)
    behind = batches.advance(replace(at, state=None, first=1, next=1, after_ms=None))
    spans = [(None, at), (replace(at, state=None, first=1, next=1, after_ms=None), behind)]
    planned = [(batches.turns(*span), batches.needed(*span)) for span in spans]
    pinned = table.lookups()
    pinned.refresh(table.latest_snapshot().id)
    table.erase(f"k = '{TOKEN}'", everywhere=True)
    said = r"erase\(..., everywhere=True\) at .* UTC ended"
    for scan, plan in plans:
        with pytest.raises(ExpiredError, match=said), scan.unless_expired(plan.snapshot):
            [list(read_split(plan.job, split, table.env.storage)) for split in plan.splits]
    for turns, needed in planned:
        with pytest.raises(ExpiredError, match=said), needed.unless_expired():
            [list(part.read(table.env.storage)) for turn in turns for part in turn]
    with pytest.raises(ExpiredError, match=said):
        pinned.lookup([{"k": "a"}])
    with pytest.raises(ExpiredError, match=said):
        table.changes().to_arrow()
    with pytest.raises(ExpiredError, match=said):
        table.read(snapshot=1).to_arrow()


def test_a_missing_file_of_what_is_kept_is_no_expired_one() -> None:
    table = table_of({"bucket": "1", "changelog-producer": "input"}, "k")
    table.write([mine("old"), row("a")])
    batches = TableBatches(table.definition, table.env, what=What.CHANGED, columns=table.changes().columns, where=None)
    at = batches.advance(batches.start())
    turns = batches.turns(None, at)
    [file] = [path for path in contents(table.env.storage) if "/bucket-0/data-" in path]
    table.env.storage.delete([file])
    with pytest.raises(FormatError, match="it is missing"), batches.needed(None, at).unless_expired():
        [list(part.read(table.env.storage)) for turn in turns for part in turn]


def test_a_checkpoint_that_missed_an_erasure_does_not_revive_its_consumer() -> None:
    table = table_of({"bucket": "1", "consumer-id": "job"}, "k")
    table.write([mine("old"), row("a")])
    make = partial(TableBatches, table.definition, table.env, what=What.CHANGED, where=None)
    columns = table.changes().columns
    batches = make(columns=columns)
    at = batches.advance(batches.start())
    batches.keep(at)
    table.erase(f"k = '{TOKEN}'", everywhere=True)
    again = make(columns=columns)
    again.keep(at)
    assert table.consumers.list() == ()
    with pytest.raises(ExpiredError, match=r"Empty the table .* call consumers\.drop\('job'\) of '[^']+', and"):
        again.advance(at)
    with pytest.raises(ExpiredError, match="ended the consumer"):
        make(columns=columns).start()
    table.consumers.drop("job")
    assert make(columns=columns).start().state == table.latest_snapshot().id


@pytest.mark.parametrize("options", [{}, {"changelog-producer": "input"}, {"changelog-producer": "lookup"}])
def test_an_erasure_in_two_steps_spares_readers_of_the_snapshot_that_its_report_names(options: dict[str, str]) -> None:
    table = table_of({"bucket": "1", **options}, "k")
    table.write([mine("old"), row("a")])
    stream = table.stream("from-snapshot", follow=False, **{"scan.snapshot-id": "1"})
    report = table.erase(f"k = '{TOKEN}'")
    assert f"spares those that have read snapshot {report.snapshot}" in str(report)
    while stream.next_snapshot <= report.snapshot and next(stream, None) is not None:
        pass
    table.write([row("b")])
    last = table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert last.is_complete
    assert max(int(one.name) for one in last.ended if one.kind == "snapshot") <= report.snapshot
    assert "spares" not in str(last)
    assert [one["k"] for rows in stream for one in rows.to_pylist()] == ["b"]


@pytest.mark.parametrize(
    ("options", "versions"),
    [
        ({"bucket": "1"}, 2),
        ({"bucket": "1", "changelog-producer": "lookup"}, 2),
        ({"bucket": "1", "changelog-producer": "full-compaction"}, 1),  # a compaction took both
        ({"bucket": "1", "deletion-vectors.enabled": "true"}, 1),  # of the file; the deletion became a vector
    ],
)
def test_a_report_counts_the_versions_that_were_stored(options: dict[str, str], versions: int) -> None:
    table = table_of(options, "k")
    table.write([mine("old"), row("a")])
    report = table.erase(f"k = '{TOKEN}'", everywhere=True)
    assert (report.rows, report.versions) == (1, versions)
    assert report.rewritten
