"""`$audit_log`, `$binlog` and `$changelog`: changes in other forms, of all producers, in batch reads and streams."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import InvalidInputError, NotFoundError

PRODUCERS = ["none", "input", "lookup", "full-compaction", "per-record"]
FLUSS = {"binlog.columns": "fluss"}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"})
    catalog.create_database("db")
    return catalog


def _table(catalog: mg.Catalog, producer: str = "input", **options: str) -> mg.Table:
    schema = {"k": "INT", "v": "STRING", "p": "INT"}
    given = {"bucket": "2", "changelog-producer": producer} | options
    return catalog.create_table("db.t", schema, primary_key=["k", "p"], partition_by=["p"], options=given)


def _write(table: mg.Table, *rows: tuple[str, int, str | None]) -> None:
    table.write([{"k": k, "v": v, "p": 0} for _, k, v in rows], kinds=[kind for kind, _, _ in rows])


def _updated(catalog: mg.Catalog, **options: str) -> mg.Table:
    table = _table(catalog, **options)
    _write(table, ("+I", 1, "a"))
    _write(table, ("-U", 1, "a"), ("+U", 1, "b"))
    _write(table, ("-D", 1, "b"))
    return table


def _rows(found: Any) -> list[tuple[Any, ...]]:
    plans = found if isinstance(found, list) else [found.to_arrow()]
    return [tuple(row.values()) for plan in plans for row in plan.to_pylist()]


ALL = {"incremental-between": "0,3"}
FROM_1 = {"start": "from-snapshot", "follow": False, "scan.snapshot-id": "1"}


# audit_log


def test_the_audit_log_of_changes_has_their_kinds_in_its_own_column(catalog: mg.Catalog) -> None:
    table = _updated(catalog)
    wanted = [("+I", 1, "a", 0), ("-U", 1, "a", 0), ("+U", 1, "b", 0), ("-D", 1, "b", 0)]
    assert _rows(table.with_options(ALL).system("audit_log")) == wanted
    log = catalog.table("db.t$audit_log")
    plans = list(log.stream(**FROM_1))
    assert [plan.num_rows for plan in plans] == [1, 2, 1]
    assert _rows(plans) == wanted
    assert plans[0].schema.names == ["rowkind", "k", "v", "p"]


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", ["changes", "audit_log", "changelog"])
def test_no_update_is_torn_between_two_batches(form: str, seed: int, catalog: mg.Catalog) -> None:
    rng = random.Random(f"torn {form} {seed}")
    options = {"changelog-file.format": rng.choice(["parquet", "avro"]), "target-file-row-num": rng.choice(["3", "9"])}
    table = _table(catalog, rng.choice(["input", "per-record", "lookup"]), **options)
    for _ in range(3):
        rows = [(k, str(rng.randrange(9))) for k in rng.sample(range(20), 12)]
        _write(table, *[(kind, k, v) for k, v in rows for kind in ("-U", "+U")])
    if form == "changes":
        found: Any = table.changes()
    else:
        found = table.with_options({"incremental-between": f"0,{table.snapshots()[-1].id}"}).system(form)
    whole = found.to_arrow()
    for size in (2, 3, 7):
        with patch("merganser.scan.forms.BATCH_ROWS", size), patch("merganser.scan.published._READ_ROWS", size):
            batches = list(found.to_batches())
        assert pa.Table.from_batches(batches).to_pylist() == whole.to_pylist()
        assert all(0 < batch.num_rows <= size for batch in batches)
        kinds = [[row[0][-6:] for row in _rows([batch])] for batch in batches]
        for earlier, later in itertools.pairwise(kinds):
            assert (earlier[-1], later[0]) not in (("-U", "+U"), ("before", "_after"))


def test_columns_and_filters_of_a_stream_are_those_of_the_view(catalog: mg.Catalog) -> None:
    _updated(catalog)
    log = catalog.table("db.t$audit_log")
    assert _rows(list(log.stream(columns=["v", "rowkind"], where="rowkind IN ('-U', '-D')", **FROM_1))) == [
        ("a", "-U"),
        ("b", "-D"),
    ]
    with pytest.raises(InvalidInputError, match="_row_kind"):
        log.stream(columns=["_row_kind"])
    with pytest.raises(InvalidInputError, match="_row_kind"):
        log.stream(where="_row_kind = '+I'")


def test_a_stream_begins_with_the_rows_of_a_state_as_inserts(catalog: mg.Catalog) -> None:
    table = _table(catalog, **{"table-read.sequence-number.enabled": "true", "write-only": "true"})
    _write(table, ("+I", 1, "a"), ("+I", 2, "a"))
    _write(table, ("+U", 1, "b"), ("-D", 2, "a"))
    log = catalog.table("db.t$audit_log").stream(follow=False)
    found = next(log)
    assert found.schema.names == ["rowkind", "_SEQUENCE_NUMBER", "k", "v", "p"]
    [(kind, number, *row)] = _rows([found])
    assert (kind, row, number > 0) == ("+I", [1, "b", 0], True)
    _write(table, ("+I", 3, "c"))
    assert [row[0] for row in _rows([next(log)])] == ["+I"]
    assert _rows(list(catalog.table("db.t$binlog").stream(follow=False, columns=["v"], where="rowkind = '+I'")))


def test_a_view_counts_its_own_rows(catalog: mg.Catalog) -> None:
    table = _table(catalog, "none")
    _write(table, ("+I", 1, "a"), ("+I", 2, "a"))
    _write(table, ("-D", 2, "a"))
    for name in ("audit_log", "binlog"):
        found = table.system(name)
        assert found.count() == found.to_arrow().num_rows == 2
    changes = table.with_options({"incremental-between": "0,2"})
    assert [changes.system(name).count() for name in ("audit_log", "binlog", "changelog")] == [3, 3, 3]


# binlog


def test_the_binlog_packs_an_update_into_one_row(catalog: mg.Catalog) -> None:
    table = _updated(catalog)
    wanted = [("+I", [1], ["a"], [0]), ("+U", [1, 1], ["a", "b"], [0, 0]), ("-D", [1], ["b"], [0])]
    assert _rows(table.with_options(ALL).system("binlog")) == wanted
    assert _rows(list(catalog.table("db.t$binlog").stream(**FROM_1))) == wanted
    found = table.with_options(ALL).system("binlog", columns=["v", "rowkind"], where="rowkind <> '-D'")
    assert _rows(found) == [(["a"], "+I"), (["a", "b"], "+U")]
    assert found.schema.field("v").type == pa.list_(table.read().schema.field("v").type)


def test_the_binlog_of_a_state_has_one_row_in_each_array(catalog: mg.Catalog) -> None:
    table = _table(catalog, "none")
    _write(table, ("+I", 1, "a"), ("+I", 2, None))
    assert sorted(_rows(table.system("binlog"))) == [("+I", [1], ["a"], [0]), ("+I", [2], [None], [0])]
    assert _rows(table.system("binlog", columns=[])) == [(), ()]


def test_a_lone_half_of_an_update_is_a_row_by_itself(catalog: mg.Catalog) -> None:
    table = _table(catalog, bucket="1")
    _write(table, ("-U", 1, "a"), ("-U", 2, "b"), ("+U", 3, "c"), ("-U", 4, "d"), ("+U", 4, "e"), ("+U", 5, "f"))
    _write(table, ("-U", 9, "x"))
    _write(table, ("+U", 9, "y"))
    wanted = [("-U", [1]), ("-U", [2]), ("+U", [3]), ("+U", [4, 4]), ("+U", [5]), ("-U", [9]), ("+U", [9])]
    found = table.with_options(ALL).system("binlog", columns=["rowkind", "k"])
    assert _rows(found) == wanted, "rows of two snapshots are no pair, though they are read together"
    sides = table.with_options(FLUSS).system("binlog", columns=["_change_type", "before", "after"]).to_pylist()
    assert [(row["before"] or {}).get("v") for row in sides] == ["a", "b", None, "d", None, "x", None]
    assert [(row["after"] or {}).get("v") for row in sides] == [None, None, "c", "e", "f", None, "y"]
    assert {row["_change_type"] for row in sides} == {"update"}


def test_differences_of_states_are_packed_too(catalog: mg.Catalog) -> None:
    table = _table(catalog, "none")
    _write(table, ("+I", 1, "a"), ("+I", 2, "b"))
    _write(table, ("+I", 1, "x"), ("-D", 2, "b"), ("+I", 3, "c"))
    found = table.with_options({"incremental-between": "1,2", "incremental-between-scan-mode": "diff"})
    assert sorted(_rows(found.system("binlog", columns=["rowkind", "v"]))) == [
        ("+I", ["c"]),
        ("+U", ["a", "x"]),
        ("-D", ["b"]),
    ]
    for name, options in (("changelog", {}), ("binlog", FLUSS)):
        with pytest.raises(InvalidInputError, match="has no offsets"):
            found.with_options(options).system(name).to_arrow()


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_an_update_that_lies_in_two_files_is_one_row(catalog: mg.Catalog, format: str) -> None:
    options = {"target-file-row-num": "7", "changelog-file.format": format, "changelog-file.stats-mode": "full"}
    table = _table(catalog, "lookup", bucket="1", **options)
    for value in "ab":
        _write(table, *(("+I", k, f"{value}{k}") for k in range(50)))
    change = {"incremental-between": "2,4"}
    found = table.with_options(change).system("binlog")
    assert "15 files" in found.explain()
    wanted = [[f"a{k}", f"b{k}"] for k in range(50)]
    assert [(row["rowkind"], row["v"]) for row in found.to_pylist()] == [("+U", each) for each in wanted]
    assert found.count() == 50
    assert table.with_options(change | FLUSS).system("binlog", where="_log_offset >= 17179869185").count() == 50


# as in Fluss


def test_the_changelog_has_types_offsets_and_times(catalog: mg.Catalog) -> None:
    table = _updated(catalog)
    log = catalog.table("db.t$changelog")
    found = log.read().to_arrow()
    assert found.schema.names == ["_change_type", "_log_offset", "_commit_timestamp", "k", "v", "p"]
    assert found.column("_change_type").to_pylist() == ["insert", "update_before", "update_after", "delete"]
    assert [divmod(offset, 1 << 32) for offset in found.column("_log_offset").to_pylist()] == [
        (1, 0),
        (2, 0),
        (2, 1),
        (3, 0),
    ]
    times = [snapshot.commit_time for snapshot in table.snapshots()]
    assert found.column("_commit_timestamp").to_pylist() == [times[0], times[1], times[1], times[2]]
    assert pa.concat_tables(list(log.stream(follow=False))).equals(found)
    assert pa.concat_tables(list(log.stream(**FROM_1))).equals(found)
    assert _rows(log.read(["v"], where="_change_type = 'delete'")) == [("b",)]
    assert _rows(log.read(["v"], where="_log_offset >= 8589934592 AND v = 'a'")) == [("a",)]
    after = datetime(2999, 1, 1, tzinfo=UTC).isoformat()
    assert log.read(where=f"_commit_timestamp > TIMESTAMP '{after}'").count() == 0


def test_the_binlog_as_in_fluss_has_the_rows_before_and_after(catalog: mg.Catalog) -> None:
    table = _updated(catalog).with_options(FLUSS)
    row = {"k": 1, "v": "a", "p": 0}
    found = table.system("binlog").to_pylist()
    assert [(each["_change_type"], each["_log_offset"] % 2**32, each["before"], each["after"]) for each in found] == [
        ("insert", 0, None, row),
        ("update", 1, row, row | {"v": "b"}),
        ("delete", 0, row | {"v": "b"}, None),
    ]
    assert table.with_options(ALL).system("binlog").to_pylist() == found
    assert [row["after"] for row in table.system("binlog", columns=["after"]).to_pylist()] == [
        each["after"] for each in found
    ]


def test_offsets_rise_in_every_bucket_and_filters_do_not_move_them(catalog: mg.Catalog) -> None:
    table = _table(catalog, "none", bucket="1", **{"write-only": "true"})
    schema = pa.schema([("k", pa.int32()), ("v", pa.string()), ("p", pa.int32())])
    for part in range(3):
        rows = [{"k": k, "v": f"{part}", "p": p} for p in (0, 1) for k in range(20)]
        table.write(pa.Table.from_pylist(rows, schema))
    every = table.system("changelog").to_pylist()
    for p in (0, 1):
        offsets = [row["_log_offset"] for row in every if row["p"] == p]
        assert offsets == sorted(set(offsets))
    some = table.system("changelog", where="k >= 15 AND p = 1 AND v = '2'").to_pylist()
    assert some == [row for row in every if row["k"] >= 15 and row["p"] == 1 and row["v"] == "2"]


def test_an_append_table_has_inserts_and_a_counting_table_shares_offsets(catalog: mg.Catalog) -> None:
    queue = catalog.create_table("db.q", {"v": "INT"}, options={"bucket": "-1"})
    queue.write([{"v": 1}, {"v": 2}])
    assert [row[0] for row in _rows(queue.system("changelog"))] == ["insert", "insert"]
    assert _rows(queue.system("binlog")) == [("+I", [1]), ("+I", [2])]
    counts = catalog.create_table("db.c", {"v": "INT"}, options={"bucket": "1", "write-mode": "change-log"})
    counts.write([{"v": 5}, {"v": 5}, {"v": 6}])
    found = counts.system("changelog", columns=["_change_type", "_log_offset", "v"])
    assert _rows(found) == [("insert", 1 << 32, 5), ("insert", 1 << 32, 5), ("insert", (1 << 32) + 1, 6)]


def test_a_log_shows_what_is_kept(catalog: mg.Catalog) -> None:
    table = _updated(catalog)
    table.expire(retain_max=1, retain_min=1)
    assert [row[0] for row in _rows(table.system("changelog"))] == ["delete"]
    assert _rows(list(catalog.table("db.t$changelog").stream(follow=False, columns=["v"]))) == [("b",)]


@pytest.mark.parametrize("producer", ["none", "input"])
def test_a_log_shows_what_is_kept_of_expired_snapshots(catalog: mg.Catalog, producer: str) -> None:
    options = {"snapshot.num-retained.max": "50", "changelog.num-retained.max": "60", "changelog-producer": producer}
    key = [] if producer == "none" else ["k"]
    table = catalog.create_table("db.t", {"k": "INT"}, primary_key=key, options=options)
    for k in range(3):
        table.write([{"k": k}])
    table.expire(retain_max=1, retain_min=1)
    assert _rows(table.system("changelog", columns=["k"])) == [(0,), (1,), (2,)]


@pytest.mark.parametrize("name", ["changelog", "binlog"])
def test_what_a_log_cannot_show_is_refused(catalog: mg.Catalog, name: str) -> None:
    table = _updated(catalog).with_options(FLUSS)
    log = type(catalog.table("db.t$changelog"))(table, name)
    with pytest.raises(InvalidInputError, match="it holds changes, not a state"):
        log.read(snapshot=1)
    for start in ("latest-full", "compacted-full", "from-creation-timestamp"):
        options = {"scan.creation-time-millis": "1"} if start.startswith("from") else {}
        with pytest.raises(InvalidInputError, match="begins with a state"):
            log.stream(start, **options)
    plain = catalog.create_table("db.plain", {"k": "INT"}, primary_key=["k"])
    log = type(log)(plain.with_options(FLUSS), name)
    with pytest.raises(InvalidInputError, match="that an overwrite did not publish"):
        log.stream(**{"streaming-read-overwrite": "true"})


def test_views_without_changes_and_columns_that_collide_are_refused(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.x", {"_log_offset": "INT", "before": "INT"}, options={"bucket": "-1"})
    with pytest.raises(InvalidInputError, match="_log_offset"):
        table.system("changelog")
    with pytest.raises(InvalidInputError, match="_log_offset"):
        catalog.table("db.x$changelog").stream()
    table.write([{"_log_offset": 1, "before": 1}])
    assert table.system("audit_log").count() == 1
    with pytest.raises(InvalidInputError, match="no changes"):
        catalog.table("db.x$ro").stream()
    with pytest.raises(NotFoundError, match="binlog"):
        table.system("binlogs")


# all producers


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("seed", range(3))
def test_all_forms_tell_the_same_changes(catalog: mg.Catalog, producer: str, seed: int) -> None:
    dice = random.Random(seed)
    table = _table(catalog, producer)
    state: dict[int, str] = {}
    for _ in range(6):
        rows: list[tuple[str, int, str | None]] = []
        for k in dice.sample(range(8), dice.randint(1, 6)):
            value = dice.choice("abc")
            if k in state and dice.random() < 0.3:
                rows.append(("-D", k, state.pop(k)))
            elif k in state:
                rows += [("-U", k, state[k]), ("+U", k, value)]
                state[k] = value
            else:
                rows.append(("+I", k, value))
                state[k] = value
        _write(table, *rows)
    table.compact(full=True)
    newest = table.snapshots()[-1].id
    every = table.with_options({"incremental-between": f"0,{newest}"})
    plain = [tuple(row.values()) for row in table.changes().to_pylist()]
    assert _rows(every.system("audit_log")) == plain
    unpacked: list[tuple[Any, ...]] = []
    for kind, *columns in _rows(every.system("binlog")):
        kinds = ["-U", "+U"] if len(columns[0]) == 2 else [kind]
        unpacked += [(each, *row) for each, row in zip(kinds, zip(*columns, strict=True), strict=True)]
    assert unpacked == plain
    logged = _rows(table.system("changelog"))
    names = {"insert": "+I", "update_before": "-U", "update_after": "+U", "delete": "-D"}
    assert [(names[kind], *row) for kind, _, _, *row in logged] == plain
    paired = table.with_options(FLUSS).system("binlog").to_pylist()
    sides = [each for row in paired for each in (row["before"], row["after"]) if each is not None]
    assert [tuple(each.values()) for each in sides] == [tuple(row) for _, *row in plain]
    assert {row["_log_offset"] for row in paired} <= {row[1] for row in logged}
    if producer in ("lookup", "per-record", "full-compaction"):
        assert not any(kind in ("-U", "+U") and len(k) == 1 for kind, k, _, _ in _rows(every.system("binlog")))
