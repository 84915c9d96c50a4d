"""What orders the rows of a key: positions of every kind of source, and records that lack what orders them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import ConflictError, InvalidInputError
from tests.unit.cdc.test_meaning import Make, make  # noqa: F401  a fixture


def _lsn(commit: int, change: int | None = None, serial: int | None = None) -> dict[str, Any]:
    names = {"commit_lsn": commit, "change_lsn": change}
    found = {name: None if n is None else f"00000027:{n:08x}:0005" for name, n in names.items()}
    return found | {"event_serial_no": serial}


SOURCES: dict[str, list[dict[str, Any]]] = {
    "postgresql": [{"lsn": n} for n in (7, 98532, 1000230)],
    "mysql": [{"file": f"binlog.{n}", "pos": pos} for n, pos in ((999, 79444), (999, 105641), (1000, 4))],
    "cassandra": [{"file": f"CommitLog-6-{n}.log", "pos": pos} for n, pos in ((9, 79444), (9, 105641), (10, 4))],
    "oracle": [
        {"scn": "98532"},  # of the first copy
        {"scn": "98000", "commit_scn": "98540", "rs_id": " 0x000013.0000fc5a.0010 ", "ssn": 9},
        {"scn": "98000", "commit_scn": "98540", "rs_id": " 0x000013.0000fc5a.0010 ", "ssn": 10},
        {"scn": "98539", "commit_scn": "98540", "rs_id": " 0x000013.0000fc5b.0010 ", "ssn": 0},
        {"scn": "1000230", "commit_scn": "1000240", "rs_id": " 0x000014.0000fc5b.0010 ", "ssn": 0},
    ],
    "informix": [{"commit_lsn": c, "change_lsn": n} for c, n in (("98532", "98530"), ("1000230", "98531"))],
    "sqlserver": [_lsn(4), _lsn(5, 1, 9), _lsn(5, 1, 10), _lsn(5, 2, 1), _lsn(16, 3, 1)],
    "db2": [_lsn(4), _lsn(5, 1), _lsn(5, 2), _lsn(16, 3)],
}


def _flat(source: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {prefix + name: value for name, value in source.items()}


@pytest.mark.parametrize("connector", SOURCES)
def test_positions_of_each_source_sort_as_its_log_does(make: Make, connector: str) -> None:  # noqa: F811
    table = make({"id": "BIGINT", "at": "STRING"}, options={"sequence.field": "at"})
    sources = [{"connector": connector} | source for source in SOURCES[connector]]
    forms = {
        "debezium-json": [{"op": "c", "after": {"id": 1}, "source": source} for source in sources],
        "debezium-flat": [{"id": 1} | _flat(source, "__source_") for source in sources],
    }
    forms["debezium-flattened"] = [{"id": 1} | _flat(source, "__") for source in sources]
    told = []
    for name, records in forms.items():
        parsed = mg.cdc.parse([*map(json.dumps, records)], name, table, metadata={"at": "position"})
        assert parsed.rejected.to_pylist() == []
        told.append(parsed.rows["at"].to_pylist())
    assert told[0] == sorted(set(told[0]))
    assert told == [told[0]] * 3


def test_columns_of_sequence_groups_and_computed_ones_hold_positions_that_sort(make: Make) -> None:  # noqa: F811
    columns = {"id": "BIGINT", "v": "STRING", "p": "STRING", "at": "STRING"}
    grouped = {"fields.at.sequence-group": "v"}
    cases = [
        ({"merge-engine": "partial-update", **grouped}, {"metadata": {"at": "position"}}),
        ({"sequence.field": "at"}, {"metadata": {"p": "position"}, "computed": {"at": "p"}}),
        ({"sequence.field": "n"}, {"metadata": {"p": "position"}, "computed": {"n": "cast(p as bigint)"}}),
    ]
    for number, (options, told) in enumerate(cases):
        table = make(columns | {"n": "BIGINT"}, options=options, name=f"t{number}")
        for lsn, value in ((1000230, "new"), (98532, "old")):
            record = {"op": "u", "after": {"id": 1, "v": value}, "source": {"connector": "postgresql", "lsn": lsn}}
            table.write_changes([json.dumps(record)], "debezium-json", **told)
        assert table.read(columns=["v"]).to_pylist() == [{"v": "new"}]


@pytest.mark.parametrize(
    ("format_", "record", "name", "reason"),
    [
        ("debezium-json", {"op": "c", "after": {"id": 1}, "source": {"ord": 1}}, "position", "the record"),
        ("debezium-json", {"op": "c", "after": {"id": 1}}, "source_ts", "the record does not say"),
        ("debezium-flat", {"id": 1, "__deleted": "true"}, "position", "the record does not say"),
        ("debezium-flat", None, "position", "tombstone='ignore'"),
        ("canal-json", {"type": "INSERT", "data": [{"id": "1"}]}, "position", "the record does not say"),
        ("maxwell-json", {"type": "delete", "data": {"id": 1}}, "position", "the record does not say"),
        ("ogg-json", {"op_type": "I", "after": {"id": 1}}, "position", "the record does not say"),
        (
            "debezium-json", {"op": "c", "after": {"id": 1}, "source": {"gtid": "a set:1-5"}}, "gtid",
            "'a set:1-5' is no position whose order is known",
        ),
    ],
)  # fmt: skip
def test_a_record_without_the_metadata_that_orders_its_row_is_bad(
    make: Make, format_: str, record: dict[str, Any] | None, name: str, reason: str  # noqa: F811
) -> None:  # fmt: skip
    text = None if record is None else json.dumps(record)
    grouped = {"merge-engine": "aggregation", "fields.v.aggregate-function": "last_value"}
    for number, options in enumerate(({"sequence.field": "at"}, {"sequence.field": "at", **grouped})):
        table = make({"id": "BIGINT", "v": "STRING", "at": "STRING"}, options=options, name=f"t{number}")
        found = mg.cdc.parse([text], format_, table, keys=['{"id": 1}'], metadata={"at": name})
        (said,) = found.rejected["reason"].to_pylist()
        assert said.startswith("missing-order: column at: it orders the rows of a key")
        assert reason in said


def test_a_delete_that_lacks_what_orders_it_is_bad_and_an_old_row_that_no_column_takes_is_left_out(
    make: Make,  # noqa: F811
) -> None:
    table = make({"id": "INT", "n": "INT", "s": "INT"}, options={"sequence.field": "s"})
    grouped = {"merge-engine": "partial-update", "fields.s.sequence-group": "n"}
    removing = {**grouped, "partial-update.remove-record-on-sequence-group": "s"}
    group = make({"id": "INT", "n": "INT", "s": "INT"}, options=removing, name="g")
    for one in (table, group):
        for value, reason in (("xx", "bad-value: column s: 'xx'"), (None, "missing-before: column s")):
            old = {"id": 1, "n": 3} | ({} if value is None else {"s": value})
            found = mg.cdc.parse([json.dumps({"op": "d", "before": old})], "debezium-json", one)
            assert found.rejected["reason"][0].as_py().startswith(reason)
    strict = make({"id": "INT", "t": "TIMESTAMP(3)", "n": "INT NOT NULL", "s": "INT"}, name="strict")
    good = {"id": 1, "t": "2026-01-01 00:00:00", "n": 1, "s": 1}
    records = [
        json.dumps({"op": "u", "before": good | wrong, "after": good})
        for wrong in ({"t": "infinity"}, {"n": None}, {"n": 1 << 40}, {"s": "xx"}, {"t": "infinity", "n": None})
    ]
    found = mg.cdc.parse(records, "debezium-json", strict)
    assert found.rejected.to_pylist() == []
    assert found.kinds.to_pylist() == [2] * 5
    plain = make({"id": "INT", "t": "TIMESTAMP(3)"}, key=(), name="plain")
    moved = {"op": "u", "before": {"id": 1, "t": "infinity"}, "after": {"id": 1, "t": None}}
    assert mg.cdc.parse([json.dumps(moved)], "debezium-json", plain).rejected.num_rows == 1


def _reasons(
    table: mg.Table, *records: dict[str, Any] | None, format_: str = "debezium-json", **more: Any
) -> list[str]:
    texts = [None if record is None else json.dumps(record) for record in records]
    found = mg.cdc.parse(texts, format_, table, **more)
    return [reason.split(":")[0] for reason in found.rejected["reason"].to_pylist()]


@pytest.mark.parametrize("bucket", ["2", "-2"])
def test_a_table_that_does_not_find_its_keys_in_other_partitions_needs_the_old_partition(
    make: Make, bucket: str  # noqa: F811
) -> None:  # fmt: skip
    table = make({"id": "INT", "p": "STRING", "v": "INT"}, partition_by=["p"], options={"bucket": bucket})
    new = {"id": 1, "p": "y", "v": 2}
    bad = [{"op": "d", "before": {"id": 1}}, {"op": "u", "before": None, "after": new}]
    filled = {"op": "d", "before": {"id": 1, "p": "", "v": 0}, "source": {"connector": "postgresql"}}
    assert _reasons(table, *bad, filled, keys=['{"id": 1}'] * 3) == ["missing-before"] * 3
    assert _reasons(table, new, None, format_="json", keys=['{"id": 1}'] * 2) == ["missing-before"] * 2
    assert _reasons(table, new | {"__op": "u"}, format_="debezium-flat") == ["missing-before"]
    moved = [{"op": "u", "before": new | {"p": old}, "after": new} for old in ("x", None, "y")]
    gone = {"op": "d", "before": new | {"p": None}}
    found = mg.cdc.parse(
        [*map(json.dumps, [*moved, gone, {"op": "c", "after": new | {"p": None}}])], "debezium-json", table
    )
    assert found.kinds.to_pylist() == [3, 0, 3, 0, 1, 2, 3, 0]
    anywhere = make({"id": "INT", "p": "STRING", "v": "INT"}, partition_by=["p"], name="anywhere")
    assert _reasons(anywhere, *bad) == []


def test_aggregates_that_take_old_values_back_need_whole_old_rows(make: Make) -> None:  # noqa: F811
    columns = {"id": "INT", "v": "INT"}
    engine = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table = make(columns, options=engine)
    bad: list[dict[str, Any]] = [
        {"op": "d", "before": {"id": 1}},
        {"op": "u", "before": None, "after": {"id": 1, "v": 5}},
        {"op": "d", "before": {"id": 1, "v": 0}, "source": {"connector": "postgresql"}},
        {"op": "d", "before": {"id": 1, "v": "__debezium_unavailable_value"}},
        {"op": "d", "before": {"id": 1, "v": "xx"}},
        {"op": "u", "before": {"id": 1, "v": "xx"}, "after": {"id": 1, "v": 5}},
    ]
    assert _reasons(table, *bad, keys=['{"id": 1}'] * 6) == ["missing-before"] * 4 + ["bad-value"] * 2
    table.write([{"id": 1, "v": 3}])
    whole = [
        {"op": "u", "before": {"id": 1, "v": 3}, "after": {"id": 1, "v": 5}},
        {"op": "c", "after": {"id": 2, "v": 1}},
    ]
    table.write_changes([*map(json.dumps, whole)], "debezium-json")
    assert table.read().to_pylist() == [{"id": 1, "v": 5}, {"id": 2, "v": 1}]
    newest = make(columns, options={**engine, "fields.v.aggregate-function": "last_value"}, name="newest")
    assert _reasons(newest, *bad[:2]) == []


def test_a_value_that_becomes_null_does_not_order_a_row(make: Make) -> None:  # noqa: F811
    table = make({"id": "INT", "d": "DATE"}, options={"sequence.field": "d"})
    given = {"out_of_range": "null", "zero_dates": "null"}
    records = [{"op": "u", "after": {"id": 1, "d": day}} for day in ("infinity", "0000-00-00", "2026-01-01", None)]
    assert _reasons(table, *records, **given) == ["missing-order"] * 2
    old = {"op": "u", "before": {"id": 1, "d": "infinity"}, "after": {"id": 1, "d": "2026-01-01"}}
    assert _reasons(table, old, **given) == []


def _order_by_at(option: str) -> Any:
    is_group = option == "sequence-group"
    return mg.changes.set_option("fields.at.sequence-group" if is_group else option, "name" if is_group else "at")


def _record(lsn: int, name: str) -> str:
    source = {"connector": "postgresql", "lsn": lsn}
    return json.dumps({"op": "u", "before": None, "after": {"id": 1, "name": name}, "source": source})


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("sequence.field", {"bucket": "1"}),
        ("sequence.field", {"bucket": "-2"}),
        ("sequence-group", {"bucket": "1", "merge-engine": "partial-update"}),
    ],
)
def test_stored_positions_order_no_versions_that_are_not_merged_yet(
    option: str, options: dict[str, str], tmp_path: Path
) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    columns = {"id": "INT", "name": "STRING", "at": "STRING"}
    table = catalog.create_table("db.t", columns, primary_key=["id"], options=options | {"write-only": "true"})
    told: dict[str, Any] = {"metadata": {"at": "position"}}
    for lsn, name in ((98532, "a"), (1000230, "b")):
        table.write_changes([_record(lsn, name)], "debezium-json", **told)
    old, change = catalog.table("db.t"), [_order_by_at(option)]
    with pytest.raises(InvalidInputError, match="'1000230' comes after '98532' there, and before it as text"):
        table.alter(change)
    table.with_options({"write-only": "false"}).compact(full=True)
    table = table.alter(change)
    assert table.read().to_pylist() == [{"id": 1, "name": "b", "at": "1000230"}]
    with pytest.raises(ConflictError, match="which row of a key is newer"):
        old.write_changes([_record(2000000, "c")], "debezium-json", **told)
    table.write_changes([_record(1000240, "d")], "debezium-json", **told)
    assert table.read().to_pylist() == [{"id": 1, "name": "d", "at": "h1000240"}]


@pytest.mark.parametrize("values", [("098532", "100023"), ("2026-01-02", "2026-10-01"), ("x10", "x9"), (None, "7")])
def test_texts_that_sort_or_are_no_positions_may_order_rows_later(
    values: tuple[str | None, ...], tmp_path: Path
) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", {"id": "INT", "at": "STRING"}, primary_key=["id"], options={"write-only": "true"}
    )
    for value in values:
        table.write([{"id": 1, "at": value}])
    table = table.alter([mg.changes.set_option("sequence.field", "at")])
    assert table.read().to_pylist() == [{"id": 1, "at": max(values, key=lambda text: text or "")}]
