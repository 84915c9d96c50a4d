"""Values that a later step of the table could not write: they are refused before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser.errors import InvalidInputError

_FAR = datetime(9999, 12, 31)
_NEAR = datetime(2026, 1, 1)

_NAMES_ORC: dict[str, dict[str, str]] = {
    "level": {"deletion-vectors.enabled": "true", "file.format.per.level": "5:orc", "bucket": "1"},
    "changelog": {"changelog-producer": "lookup", "changelog-file.format": "orc", "bucket": "1"},
    "all files": {"file.format": "orc", "bucket": "1"},
}
_VERBS: dict[str, Callable[[mg.Table], object]] = {
    "write": lambda t: t.write([{"id": 0, "t": _FAR, "r": None}]),
    "overwrite": lambda t: t.write([{"id": 0, "t": _FAR, "r": None}], overwrite={}),
    "some columns": lambda t: t.write([{"id": 0, "t": _FAR}], columns=["id", "t"]),
    "upsert": lambda t: t.upsert([{"id": 1, "t": _FAR, "r": None}]),
    "upsert of columns": lambda t: t.upsert([{"id": 1, "t": _FAR}], columns=["id", "t"]),
    "update": lambda t: t.update("id = 1", {"t": "TIMESTAMP '9999-12-31 00:00:00'"}),
    "merge": lambda t: (
        t.merge([{"id": 1, "t": _FAR}], on="target.id = source.id").when_matched_update({"t": "source.t"}).execute()
    ),
    "insert of a merge": lambda t: (
        t.merge([{"id": 3, "t": _FAR}], on="target.id = source.id").when_not_matched_insert(None).execute()
    ),
    "nested": lambda t: t.write([{"id": 0, "t": None, "r": {"m": [("a", [_NEAR, _FAR])]}}], columns=["id", "t", "r"]),
    "change records": lambda t: t.write_changes(
        [json.dumps({"op": "c", "before": None, "after": {"id": 1, "t": "9999-12-31 00:00:00"}})],
        "debezium-json",
    ),
}


def _table(path: Path, options: dict[str, str], kind: str = "TIMESTAMP(6)", key: bool = True) -> mg.Table:
    catalog = mg.catalog(str(path))
    catalog.create_database("s")
    columns = {"id": "INT", "t": kind, "r": "ROW<m MAP<STRING, ARRAY<TIMESTAMP(3)>>>"}
    return catalog.create_table("s.t", columns, primary_key=["id"] if key else [], options=options)


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("verb", _VERBS)
@pytest.mark.parametrize("named", _NAMES_ORC)
def test_a_timestamp_that_a_later_file_cannot_hold_is_refused(named: str, verb: str, tmp_path: Path) -> None:
    table = _table(tmp_path, _NAMES_ORC[named])
    table.write([{"id": 1, "t": _NEAR}], columns=["id", "t"])
    before = len(table.snapshots())
    with pytest.raises(
        InvalidInputError, match=r"column '?[tr]'?:? .*outside the years 1677 to 2262.*(Nothing was written|No row)"
    ):
        _VERBS[verb](table)
    assert len(table.snapshots()) == before
    assert table.read(columns=["id", "t"]).to_pylist() == [{"id": 1, "t": _NEAR}]


@pytest.mark.parametrize(
    ("kind", "value", "key", "change"),
    [
        ("TIMESTAMP(6)", _FAR, True, mg.changes.set_option("file.format", "orc")),
        ("TIMESTAMP(6)", _FAR, False, mg.changes.set_option("file.format.per.level", "5:orc")),
        ("TIMESTAMP(6)", datetime(1, 1, 1), True, mg.changes.set_option("changelog-file.format", "orc")),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", _FAR.astimezone(), True, mg.changes.set_option("file.format", "orc")),
        ("ARRAY<TIMESTAMP(3)>", [_NEAR, _FAR], True, mg.changes.set_option("file.format", "orc")),
    ],
)
def test_a_format_that_cannot_hold_what_is_there_is_refused(
    kind: str, value: Any, key: bool, change: mg.changes.Change, tmp_path: Path
) -> None:
    table = _table(tmp_path, {"bucket": "1"} if key else {}, kind, key)
    catalog = mg.catalog(str(tmp_path))
    table.write([{"id": 1, "t": value}], columns=["id", "t"])
    with pytest.raises(InvalidInputError, match=r"column 't' of a row is .*1677 to 2262.* Nothing was changed"):
        catalog.alter_table("s.t", [change])
    near = [_NEAR] if kind.startswith("ARRAY") else _NEAR.astimezone() if "ZONE" in kind else _NEAR
    table.write([{"id": 1, "t": near}], columns=["id", "t"], overwrite={})
    catalog.alter_table("s.t", [change])


def test_a_type_or_a_default_that_brings_such_values_is_refused(tmp_path: Path) -> None:
    table = _table(tmp_path, _NAMES_ORC["all files"], "DATE")
    catalog = mg.catalog(str(tmp_path))
    table.write([{"id": 1, "t": _FAR.date()}], columns=["id", "t"])
    catalog.alter_table("s.t", [mg.changes.add_column("v", "TIMESTAMP(6)")])
    far = "9999-12-31 00:00:00"
    for change in (
        mg.changes.retype_column("t", "TIMESTAMP(6)"),
        mg.changes.add_column("u", "TIMESTAMP(6)", default=far),
        mg.changes.set_default("v", far),
        mg.changes.set_option("fields.v.default-value", far),
    ):
        with pytest.raises(InvalidInputError, match=r"column '[tuv]' .*1677 to 2262.*Nothing was changed"):
            catalog.alter_table("s.t", [change])


@pytest.mark.parametrize("verb", ["write", "overwrite", "upsert", "update", "merge", "change records"])
def test_a_handle_that_was_opened_before_the_format_changed_writes_no_such_value_either(
    verb: str, tmp_path: Path
) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    schema = {"id": "INT", "t": "TIMESTAMP(6)", "r": "ROW<m MAP<STRING, ARRAY<TIMESTAMP(6)>>>"}
    table = catalog.create_table("db.t", schema=schema, primary_key=["id"])
    table.write([{"id": i, "t": _NEAR, "r": None} for i in range(3)])
    catalog.table("db.t").alter([mg.changes.set_option("file.format", "orc")])
    with pytest.raises(InvalidInputError, match="ORC files"):
        _VERBS[verb](table)
    assert len(table.snapshots()) == 1
    table.write([{"id": 9, "t": _NEAR, "r": None}])
    assert table.files()["file_format"].to_pylist().count("orc") == 1


def test_change_records_with_such_values_are_bad_records(tmp_path: Path) -> None:
    """A delete removes its row, whatever the values are that it carries."""
    table = _table(tmp_path, _NAMES_ORC["level"])
    letters = mg.catalog(str(tmp_path)).create_table("s.letters", mg.cdc.DEAD_LETTERS)
    table.write([{"id": i, "t": _NEAR} for i in (4, 5)], columns=["id", "t"])
    far, near = "9999-12-31 00:00:00", "2026-01-01 00:00:00"
    rows = [
        {"id": 1, "t": near, "r": None},
        {"id": 2, "t": far, "r": None},
        {"id": 3, "t": near, "r": {"m": {"a": [far]}}},
    ]
    records = [json.dumps({"op": "c", "before": None, "after": row}) for row in rows]
    records.append(json.dumps({"op": "d", "before": {"id": 5, "t": far, "r": None}, "after": None}))
    written = table.write_changes(records, "debezium-json", dead_letters=letters)
    assert (written.rows, written.rejected) == (2, 2)
    reasons = [row["reason"] for row in letters.read().to_pylist()]
    assert [reason[:20] for reason in reasons] == ["bad-value: column t:", "bad-value: column r:"]
    assert all("outside the years 1677 to 2262" in reason for reason in reasons)
    assert {row["id"] for row in table.read().to_pylist()} == {1, 4}


def test_files_with_such_values_are_refused(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path / "warehouse"))
    catalog.create_database("s")
    source = tmp_path / "in"
    source.mkdir()
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int32()), "t": [_NEAR, _FAR]}), source / "a.parquet")
    for how in ("copy", "link"):
        with pytest.raises(InvalidInputError, match=r"column 't'.*1677 to 2262"):
            catalog.migrate(str(source), "s.m", how=how, options={"file.format": "orc"})
    table = catalog.create_table("s.l", {"id": "INT", "t": "TIMESTAMP(6)"}, options={"file.format": "orc"})
    with pytest.raises(InvalidInputError, match=r"column 't'.*1677 to 2262.*Nothing was written"):
        table.load(str(source))
    assert (catalog.list_tables("s"), table.snapshots()) == (["l"], ())


@pytest.mark.parametrize("key", [True, False])
def test_a_rollback_to_such_values_is_refused(key: bool, tmp_path: Path) -> None:
    table = _table(tmp_path, {"bucket": "1"} if key else {}, key=key)
    table.write([{"id": 1, "t": _FAR}], columns=["id", "t"])
    table.write([{"id": 1, "t": _NEAR}], columns=["id", "t"], overwrite={})
    catalog = mg.catalog(str(tmp_path))
    catalog.alter_table("s.t", [mg.changes.set_option("file.format", "orc")])
    with pytest.raises(InvalidInputError, match=r"roll back 's.t': column 't'.*1677 to 2262.*Nothing was changed"):
        catalog.table("s.t").rollback(1)
    catalog.alter_table("s.t", [mg.changes.set_option("file.format", "parquet")])
    catalog.table("s.t").rollback(1)


def test_pending_rows_without_a_bucket_count_among_the_values(tmp_path: Path) -> None:
    table = _table(tmp_path, {"bucket": "-2", "postpone.batch-write-fixed-bucket": "false"})
    catalog = mg.catalog(str(tmp_path))
    table.write([{"id": 1, "t": _FAR}], columns=["id", "t"])
    with pytest.raises(InvalidInputError, match=r"column 't' of a row is .*1677 to 2262.* Nothing was changed"):
        catalog.alter_table("s.t", [mg.changes.set_option("file.format", "orc")])
    table.compact()
    assert table.read(columns=["id", "t"]).to_pylist() == [{"id": 1, "t": _FAR}]
