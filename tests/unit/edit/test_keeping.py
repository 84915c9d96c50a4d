"""`unavailable="keep"`: a value that was not sent is the one of the row before, and a NULL that was sent is NULL."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg
from merganser.edit.keeping import Keeping
from merganser.errors import ConflictError, InvalidInputError
from merganser.storage.protocol import no_lock

UNSENT = "__debezium_unavailable_value"
COLUMNS = {"k": "BIGINT", "a": "STRING NOT NULL", "b": "STRING", "n": "INT"}
Row = dict[str, Any]


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"})
    found.create_database("db")
    found.create_table("db.letters", mg.cdc.DEAD_LETTERS)
    return found


def made(catalog: mg.Catalog, **options: str) -> mg.Table:
    found = {name.replace("_", "-"): value for name, value in options.items()}
    return catalog.create_table("db.t", COLUMNS, primary_key=["k"], options=found)


def row(k: int, a: str | None, b: str | None, n: int | None = 0) -> Row:
    return {"k": k, "a": a, "b": b, "n": n}


def update(k: int, a: str | None, b: str | None, n: int | None = 0) -> str:
    return json.dumps({"op": "u", "before": None, "after": row(k, a, b, n)})


def insert(k: int, a: str | None, b: str | None, n: int | None = 0) -> str:
    return json.dumps({"op": "c", "after": row(k, a, b, n)})


def delete(k: int) -> str:
    return json.dumps({"op": "d", "before": {"k": k}})


def rows(table: mg.Table) -> list[Row]:
    return sorted(table.read().to_pylist(), key=lambda found: found["k"])


def test_a_null_that_was_sent_is_null_and_a_value_that_was_not_sent_is_that_of_the_row_before(
    catalog: mg.Catalog,
) -> None:
    table = made(catalog)
    table.write([row(1, "a1", "b1"), row(2, "a2", "b2")])
    found = table.write_changes(
        [update(1, UNSENT, None, 1), update(2, "x", UNSENT, None), update(2, UNSENT, UNSENT, 2)],
        "debezium-json",
        unavailable="keep",
    )
    assert rows(table) == [row(1, "a1", None, 1), row(2, "x", "b2", 2)]
    assert (found.rows, found.rejected) == (3, 0)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([insert(1, "a", UNSENT)], "unavailable: column b: .* before an insert"),
        ([update(9, "a", UNSENT)], "unavailable: column b: .* no row of this key"),
        ([delete(1), update(1, "a", UNSENT)], "unavailable: column b: .* no row of this key"),
        ([update(9, UNSENT, UNSENT)], "unavailable: column a: .* no row of this key"),
    ],
    ids=["insert", "unknown key", "deleted before", "two columns"],
)
def test_a_value_of_no_row_is_a_dead_letter_or_an_error_and_good_records_beside_it_are_written(
    catalog: mg.Catalog, records: list[str], reason: str
) -> None:
    table, letters = made(catalog), catalog.table("db.letters")
    table.write([row(1, "a1", "b1"), row(2, "a2", "b2")])
    with pytest.raises(InvalidInputError, match=reason):
        table.write_changes(records, "debezium-json", unavailable="keep")
    assert len(table.snapshots()) == 1
    for _ in range(2):  # a repeated call writes nothing twice
        table.write_changes(
            [*records, update(2, UNSENT, "y")],
            "debezium-json",
            unavailable="keep",
            dead_letters=letters,
            commit_user="job",
            identifier=1,
        )
    assert row(2, "a2", "y") in rows(table)
    found = letters.read().to_pylist()
    assert [(one["position"], one["text"]) for one in found] == [(len(records) - 1, records[-1].encode())]


def test_an_update_that_changes_the_key_takes_no_value_of_the_new_key(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write([row(1, "a1", "b1"), row(2, "a2", "b2")])
    record = json.dumps({"op": "u", "before": {"k": 1}, "after": row(2, "x", UNSENT)})
    with pytest.raises(InvalidInputError, match="changes the key"):
        table.write_changes([record], "debezium-json", unavailable="keep")
    assert rows(table) == [row(1, "a1", "b1"), row(2, "a2", "b2")]


def test_an_update_that_moves_a_row_to_another_computed_partition_takes_no_value_and_removes_no_row(
    catalog: mg.Catalog,
) -> None:
    columns = {"k": "BIGINT", "day": "DATE", "at": "TIMESTAMP(3)", "b": "STRING"}
    table = catalog.create_table("db.days", columns, primary_key=["k", "day"], partition_by=["day"])
    letters = catalog.table("db.letters")

    def write(op: str, before: Row | None, after: Row) -> None:
        record = json.dumps({"op": op, "before": before, "after": after})
        computed = {"day": "date(at)"}
        table.write_changes(
            [record], "debezium-json", keys=['{"k": 1}'], unavailable="keep", dead_letters=letters, computed=computed
        )

    write("c", None, {"k": 1, "at": "2026-01-01 10:00:00", "b": "b1"})
    for other in ("b", "other"):  # a row of the new key, of an earlier life, must not lend its value either
        before = {"k": 1, "at": "2026-01-01 10:00:00"}
        write("u", before, {"k": 1, "at": "2026-01-02 10:00:00", "b": UNSENT})
        assert table.read(columns=["b"], where="day = '2026-01-01'").to_pylist() == [{"b": "b1"}]
        if other == "b":
            write("c", None, {"k": 1, "at": "2026-01-02 09:00:00", "b": "other"})
    assert [reason.partition(",")[2] for reason in letters.read().to_arrow()["reason"].to_pylist()] == [
        " and the update changes the key. Let the source send whole rows (REPLICA IDENTITY FULL)"
    ] * 2


def test_a_flattened_row_without_an_operation_may_replace_one(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write([row(1, "a1", "b1")])
    table.write_changes([json.dumps(row(1, "x", UNSENT))], "debezium-flat", unavailable="keep")
    assert rows(table) == [row(1, "x", "b1")]


def test_records_of_one_call_count_in_the_order_of_the_sequence_field(catalog: mg.Catalog) -> None:
    table = made(catalog, **{"sequence.field": "n"})
    table.write([row(1, "a1", "b1", 1)])
    table.write_changes(
        [update(1, UNSENT, "b20", 20), update(1, "a10", UNSENT, 10)], "debezium-json", unavailable="keep"
    )
    assert rows(table) == [row(1, "a10", "b20", 20)]


def test_a_stored_null_stays_null_where_the_column_has_a_default(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write([row(1, "a1", None)])
    table = table.alter([mg.changes.set_default("b", "given")])
    table.write_changes([update(1, "x", UNSENT, 5), update(2, "y", None)], "debezium-json", unavailable="keep")
    assert rows(table) == [row(1, "x", None, 5), row(2, "y", "given")]


@pytest.mark.parametrize("options", [{}, {"sequence.field": "n"}], ids=str)
def test_a_null_that_was_sent_is_the_default_for_later_rows_of_the_call(
    catalog: mg.Catalog, options: dict[str, str]
) -> None:
    table = made(catalog, **options)
    table.write([row(1, "a1", "b1", 1)])
    table = table.alter([mg.changes.set_default("b", "given")])
    table.write_changes([update(1, "x", None, 5), update(1, "y", UNSENT, 6)], "debezium-json", unavailable="keep")
    assert rows(table) == [row(1, "y", "given", 6)]


def test_bad_records_fail_the_call_if_it_says_so_also_those_that_are_found_by_the_lookup(catalog: mg.Catalog) -> None:
    table, letters = made(catalog), catalog.table("db.letters")
    with pytest.raises(InvalidInputError, match="no row of this key"):
        table.write_changes(
            [update(9, "a", UNSENT)], "debezium-json", unavailable="keep", dead_letters=letters, bad="fail"
        )
    assert letters.snapshots() == ()


def test_a_column_that_is_computed_from_a_value_that_was_not_sent_is_refused(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write([row(1, "a1", "b1", 2)])
    with pytest.raises(InvalidInputError, match="column n is computed from it"):
        table.write_changes([update(1, UNSENT, "b")], "debezium-json", unavailable="keep", computed={"n": "length(a)"})


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"merge_engine": "partial-update"}, "unavailable='null'"),
        ({"merge_engine": "first-row"}, "whole rows"),
        ({"merge_engine": "aggregation"}, "whole rows"),
    ],
)
def test_tables_whose_engine_does_not_replace_rows_are_refused_with_a_way_out(
    catalog: mg.Catalog, options: dict[str, str], advice: str
) -> None:
    table = made(catalog, **options)
    with pytest.raises(InvalidInputError, match=advice):
        table.write_changes([update(1, "a", "b")], "debezium-json", unavailable="keep")
    assert table.snapshots() == ()


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "no locks"])
@pytest.mark.parametrize(
    ("between", "after"),
    [
        (lambda table: table.write([row(1, "other", "other")]), [row(1, "other", None, 5)]),
        (lambda table: table.delete("k = 1"), []),
        (lambda table: table.compact(full=True), [row(1, "a1", None, 5)]),
    ],
    ids=["write", "delete", "compaction"],
)
def test_a_commit_between_the_lookup_and_the_commit_is_seen(
    catalog: mg.Catalog, between: Callable[[mg.Table], Any], after: list[Row], locks: bool
) -> None:
    table = made(catalog)
    table.write([row(1, "a1", "b1")])
    filled, calls = Keeping._filled, []

    def overtaken(self: Keeping, *arguments: Any) -> Any:
        calls.append(None)
        found = filled(self, *arguments)
        if len(calls) == 1:
            with patch("merganser.storage.local.LocalStorage.try_lock", lambda *_: no_lock):
                between(catalog.table("db.t"))
        return found

    unlocked = patch("merganser.storage.local.LocalStorage.try_lock", lambda *_: no_lock)
    with patch.object(Keeping, "_filled", overtaken), nullcontext() if locks else unlocked:
        _keep(table, catalog)
    assert rows(table) == after
    assert catalog.table("db.letters").read().count() == (0 if after else 1)


def _keep(table: mg.Table, catalog: mg.Catalog) -> None:
    table.write_changes(
        [update(1, UNSENT, None, 5)], "debezium-json", unavailable="keep", dead_letters=catalog.table("db.letters")
    )


def test_a_bucket_that_changes_without_end_ends_in_a_conflict_and_nothing_is_left(catalog: mg.Catalog) -> None:
    table = made(catalog, bucket="1").with_options({"commit.max-retries": "2"})
    table.write([row(1, "a1", "b1")])
    filled = Keeping._filled

    def overtaken(self: Keeping, *arguments: Any) -> Any:
        found = filled(self, *arguments)
        with patch("merganser.storage.local.LocalStorage.try_lock", lambda *_: no_lock):
            catalog.table("db.t").write([row(1, "other", "other")])
        return found

    with patch.object(Keeping, "_filled", overtaken), pytest.raises(ConflictError):
        _keep(table, catalog)
    assert rows(table) == [row(1, "other", "other")]
    assert table.remove_orphans(older_than="2999-01-01", dry_run=True) == ()


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "2"},
        {"bucket": "2", "changelog_producer": "lookup", "deletion_vectors.enabled": "true"},
        {"dynamic_bucket.target_row_num": "3"},
        {"bucket": "1", "sequence.field": "n"},
        {"bucket": "-2"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("seed", range(2))
def test_random_records_give_the_rows_of_a_dictionary(catalog: mg.Catalog, options: dict[str, str], seed: int) -> None:
    draw = random.Random(seed)
    table, letters = made(catalog, **options), catalog.table("db.letters")
    wanted: dict[int, Row] = {}
    bad = 0
    for number in range(6):
        records = []
        for i in range(draw.randrange(1, 30)):
            k, n = draw.randrange(8), number * 100 + i
            match draw.choice(["insert", "update", "update", "update", "delete"]):
                case "insert":
                    wanted[k] = row(k, f"a{n}", draw.choice([None, f"b{n}"]), n)
                    records.append(insert(**wanted[k]))
                case "delete":
                    wanted.pop(k, None)
                    records.append(json.dumps({"op": "d", "before": {"k": k, "n": n}}))
                case _:
                    a, b = draw.choice([UNSENT, f"a{n}"]), draw.choice([UNSENT, UNSENT, None, f"b{n}"])
                    records.append(update(k, a, b, n))
                    if k not in wanted and UNSENT in (a, b):
                        bad += 1
                        continue
                    before = wanted.get(k, {})
                    wanted[k] = row(k, before.get("a") if a == UNSENT else a, before.get("b") if b == UNSENT else b, n)
        table.write_changes(
            records, "debezium-json", unavailable="keep", dead_letters=letters, commit_user="job", identifier=number
        )
        assert rows(table) == [wanted[k] for k in sorted(wanted)]
    assert letters.read().count() == bad
    assert [found for found in table.check() if found.is_fault] == []


@pytest.mark.parametrize("calls", [1, 2, 6])
def test_with_a_sequence_field_the_row_before_is_the_one_of_this_order(catalog: mg.Catalog, calls: int) -> None:
    table = catalog.create_table(
        "db.t", COLUMNS | {"at": "BIGINT"}, primary_key=["k"], options={"sequence.field": "at"}
    )

    def sent(a: str | None, b: str | None, n: int, lsn: int) -> str:
        return json.dumps({"op": "u", "after": row(1, a, b, n), "source": {"connector": "postgresql", "lsn": lsn}})

    table.write([row(1, "a", "b", 0) | {"at": 15}])
    # in the order of the log: 10 a=x (older than the stored row), 20 b=y, 30 a=z, 40 n=4 alone
    records = [sent(UNSENT, UNSENT, 4, 40), sent("x", "x", 1, 10), sent("z", UNSENT, 3, 30), sent(UNSENT, "y", 2, 20)]
    if calls > 1:
        records.sort(key=lambda text: json.loads(text)["source"]["lsn"])
    for start in range(0, len(records), -(-len(records) // calls)):
        part = records[start : start + -(-len(records) // calls)]
        found = table.write_changes(part, "debezium-json", unavailable="keep", metadata={"at": "position"})
        assert found.rejected == 0
    assert table.read().to_pylist() == [row(1, "z", "y", 4) | {"at": 40}]
    late = table.write_changes(
        [sent(UNSENT, "late", 9, 5)], "debezium-json", unavailable="keep", metadata={"at": "position"}
    )
    assert late.rejected == 0
    assert table.read().to_pylist() == [row(1, "z", "y", 4) | {"at": 40}]
