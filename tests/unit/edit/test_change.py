"""Deletes and updates by name: what they write, what is refused, and what comes between."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg
from merganser import changes as c
from merganser.commit.table_commit import TableCommit
from merganser.edit.change import Change
from merganser.errors import ConflictError, InvalidInputError
from merganser.storage.protocol import no_lock

COLUMNS = {"k": "INT", "a": "INT", "b": "VARCHAR(5)", "n": "INT NOT NULL"}
FIRST = [{"k": k, "a": k, "b": "x", "n": k} for k in range(6)]


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    found.create_database("db")
    return found


def made(catalog: mg.Catalog, columns: dict[str, str] | None = None, **options: str) -> mg.Table:
    found = {"bucket": "1"} | {name.replace("_", "-"): value for name, value in options.items()}
    return catalog.create_table("db.t", columns or COLUMNS, primary_key=["k"], options=found)


def by_key(table: mg.Table) -> dict[int, tuple[Any, ...]]:
    return {row["k"]: tuple(row.values())[1:] for row in table.read().to_pylist()}


def stored(table: mg.Table, snapshot: mg.Snapshot | None) -> list[tuple[Any, ...]]:
    assert snapshot is not None
    return [tuple(row.values()) for row in table.changes(snapshot.id, snapshot.id).to_arrow().to_pylist()]


def test_a_delete_writes_the_rows_that_go_and_an_update_those_that_come(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(FIRST)
    deleted = table.delete("a < 2")
    assert sorted(stored(table, deleted)) == [("-D", 0, 0, "x", 0), ("-D", 1, 1, "x", 1)]
    updated = table.update("k IN (2, 3, 77)", {"a": "a + n", "N": "0"})
    assert sorted(stored(table, updated)) == [("+U", 2, 4, "x", 0), ("+U", 3, 6, "x", 0)]
    assert deleted is not None
    assert updated is not None
    assert (deleted.operation, deleted.rows_deleted, deleted.rows_updated) == ("DELETE", 2, 0)
    assert (updated.operation, updated.rows_deleted, updated.rows_updated) == ("UPDATE", 0, 2)
    written = table.write([{"k": 1, "a": 1, "b": "x", "n": 1}])
    assert written is not None
    assert (written.rows_inserted, written.rows_updated, written.rows_deleted, written.operation) == (None,) * 4


def test_rows_that_are_as_they_shall_be_make_no_commit(catalog: mg.Catalog) -> None:
    table = made(catalog)
    assert table.delete("k = 1") is None
    table.write(FIRST)
    assert table.update("k < 3", {"b": "'x'"}) is None
    assert table.delete("k = 99") is None
    found = table.update("k < 3", {"a": "2"})
    assert found is not None
    assert found.rows_updated == 2
    assert len(table.snapshots()) == 2


def test_a_repeated_call_changes_nothing(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(FIRST)
    first = table.update("k = 1", {"a": "a + 1"}, commit_user="job", identifier=4)
    again = table.update("k = 1", {"a": "a + 1"}, commit_user="job", identifier=4)
    assert again == first
    assert again is not None
    assert again.rows_updated == 1
    assert by_key(table)[1] == (2, "x", 1)


def _append(catalog: mg.Catalog) -> mg.Table:
    return catalog.create_table("db.t", COLUMNS, partition_by=["b"], options={"deletion-vectors.enabled": "true"})


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.delete("n = 99", commit_user="job", identifier=4),
        lambda table: table.update("n = 99", {"a": "0"}, commit_user="job", identifier=4),
        lambda table: (
            table.merge([{"n": 99}], on="target.n = source.n", commit_user="job", identifier=4)
            .when_matched_update({"a": "0"})
            .execute()
        ),
        lambda table: table.delete("b = 'new'", commit_user="job", identifier=4),
    ],
    ids=["delete", "update", "merge", "partition"],
)
@pytest.mark.parametrize("of", [made, _append], ids=["keyed", "append"])
def test_a_call_that_changed_nothing_changes_nothing_when_it_is_repeated(
    catalog: mg.Catalog, of: Callable[[mg.Catalog], mg.Table], call: Callable[[mg.Table], mg.Snapshot | None]
) -> None:
    table = of(catalog)
    table.write(FIRST)
    first = call(table)
    assert first is not None
    assert (first.rows_updated, first.rows_deleted) == (0, 0)
    table.write([{"k": 9, "a": 1, "b": "new", "n": 99}])
    assert call(table) == first
    assert (9, 1, "new", 99) in [tuple(row.values()) for row in table.read().to_pylist()]
    assert table.check() == ()


def test_of_two_deletes_that_cross_the_second_counts_the_rows_that_the_first_left(catalog: mg.Catalog) -> None:
    table = _append(catalog)
    table.write(FIRST)
    first: list[mg.Snapshot | None] = []
    others = [lambda: first.append(table.delete("k < 2")), lambda: table.write(FIRST[:1])]
    create = TableCommit._create

    def crossed(self: TableCommit, *arguments: Any) -> mg.Snapshot:
        if arguments[0].operation == "DELETE" and others:
            others.pop(0)()
        return create(self, *arguments)

    with _without_locks(), patch.object(TableCommit, "_create", crossed):
        done = table.delete("b = 'x'")
    assert done is not None
    assert (first[0] and first[0].rows_deleted, done.rows_deleted) == (3, 4)
    assert table.read().to_pylist() == []


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ({"k": "1"}, "column 'k' belongs to the primary key"),
        ({"zz": "1"}, "unknown column 'zz'"),
        ({"a": 1}, "the value of column 'a' is 1"),
        ({"a": "1", "A": "2"}, "column 'a' is given twice"),
        ({}, "the columns to set are {}"),
        ({"a": "b"}, "cannot store 'b'"),
        ({"a": "2147483647 + n"}, "overflow"),
        ({"n": "NULL"}, "'n' is null"),
        ({"b": "'too long'"}, "column 'b'"),
    ],
)
def test_a_bad_value_is_refused_and_nothing_is_written(catalog: mg.Catalog, sets: dict[str, Any], said: str) -> None:
    table = made(catalog)
    table.write(FIRST)
    with pytest.raises(InvalidInputError) as caught:
        table.update("k > 0", sets)
    assert said in str(caught.value)
    assert "cannot update 'db.t'" in str(caught.value)
    assert by_key(table) == {k: (k, "x", k) for k in range(6)}
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") == ()


@pytest.mark.parametrize(
    ("options", "verb", "said"),
    [
        ({"merge_engine": "first-row"}, "delete", "merge engine first-row has no rule"),
        ({"merge_engine": "first-row"}, "update", "merge engine first-row keeps the row"),
        (
            {"merge_engine": "aggregation", "changelog_producer": "lookup"},
            "delete",
            "'aggregation.remove-record-on-delete'",
        ),
        ({"merge_engine": "aggregation"}, "update", "merge engine aggregation adds"),
        (
            {"merge_engine": "partial-update", "changelog_producer": "lookup"},
            "delete",
            "'partial-update.remove-record-on-delete'",
        ),
        ({"ignore_delete": "true"}, "delete", "'ignore-delete' drops every delete"),
        ({"merganser.deletes": "refuse"}, "delete", "'merganser.deletes' is 'refuse'"),
    ],
)
def test_what_an_engine_has_no_rule_for_is_refused(
    catalog: mg.Catalog, options: dict[str, str], verb: str, said: str
) -> None:
    table = made(catalog, **options)
    table.write(FIRST)
    with pytest.raises(InvalidInputError, match="Nothing was written") as caught:
        table.delete("k = 1") if verb == "delete" else table.update("k = 1", {"a": "0"})
    assert said in str(caught.value)
    assert len(table.snapshots()) <= 2  # with the compaction that makes first rows visible


def test_a_delete_of_an_aggregate_removes_the_row(catalog: mg.Catalog) -> None:
    sums = {"fields.a.aggregate-function": "sum", "fields.n.aggregate-function": "sum"}
    table = made(catalog, merge_engine="aggregation", **sums, **{"aggregation.remove-record-on-delete": "true"})
    table.write(FIRST)
    table.write(FIRST)
    found = table.delete("a > 4")
    assert found is not None
    assert found.rows_deleted == 3
    table.write(FIRST[3:4])
    assert by_key(table) == {0: (0, "x", 0), 1: (2, "x", 2), 2: (4, "x", 4), 3: (3, "x", 3)}


def test_a_column_of_a_sequence_group_is_updated_and_sums_stay(catalog: mg.Catalog) -> None:
    columns = {"k": "INT", "g": "INT", "v": "STRING", "s": "INT", "w": "STRING"}
    table = made(
        catalog,
        columns,
        merge_engine="partial-update",
        **{"fields.g.sequence-group": "v,s", "fields.s.aggregate-function": "sum"},
    )
    rows = [{"k": k, "g": g, "v": "a", "s": 5, "w": None} for k, g in ((1, 1), (1, 2), (2, None))]
    table.write(rows[:2])
    table.update("k = 1", {"w": "'new'"})
    assert by_key(table) == {1: (2, "a", 10, "new")}
    table.update("k = 1", {"v": "'b'"})
    assert by_key(table) == {1: (2, "b", 10, "new")}
    table.update("k = 1", {"g": "3", "v": "NULL"})
    assert by_key(table) == {1: (3, None, 10, "new")}
    with pytest.raises(InvalidInputError, match=r"1 row of 1 .*\(first: k = 1\).*keeps a value where the new one is"):
        table.update("k = 1", {"w": "NULL"})
    with pytest.raises(InvalidInputError, match="adds to aggregates"):
        table.update("k = 1", {"s": "1"})
    assert by_key(table) == {1: (3, None, 10, "new")}


@pytest.mark.parametrize("producer", ["none", "input", "lookup"])
def test_a_row_may_not_become_older_by_its_sequence_field(catalog: mg.Catalog, producer: str) -> None:
    table = made(catalog, **{"sequence.field": "n", "changelog-producer": producer})
    table.write(FIRST)
    table.update("k = 5", {"a": "50"})
    table.update("k = 4", {"n": "n + 1", "a": "40"})
    with pytest.raises(InvalidInputError, match=r"older by 'sequence\.field' = n loses"):
        table.update("k = 3", {"n": "0"})
    found = table.delete("k = 2")
    assert found is not None
    assert by_key(table) == {0: (0, "x", 0), 1: (1, "x", 1), 3: (3, "x", 3), 4: (40, "x", 5), 5: (50, "x", 5)}


def _without_locks() -> Any:
    return patch("merganser.storage.local.LocalStorage.try_lock", lambda *_: no_lock)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Callable[[], object]]], list[int]]:
    """Do things between the read and the commit of the first rounds; return a list that counts the rounds."""

    def install(todo: list[Callable[[], object]]) -> list[int]:
        rounds: list[int] = []
        write = Change._write

        def written(self: Change, *arguments: Any) -> None:
            if self.commit_user is None:
                rounds.append(1)
                if len(rounds) <= len(todo):
                    todo[len(rounds) - 1]()
            write(self, *arguments)

        monkeypatch.setattr(Change, "_write", written)
        return rounds

    return install


Between = Callable[[list[Callable[[], object]]], list[int]]


def test_two_updates_that_read_the_rows_of_each_other_come_one_after_the_other(
    catalog: mg.Catalog, between: Between
) -> None:
    table = made(catalog)
    table.write([{"k": k, "a": k % 2, "b": "x", "n": 0} for k in range(6)])
    rounds = between([lambda: table.update("a = 1", {"a": "0"}, commit_user="other")])
    with _without_locks():
        found = table.update("a = 0", {"a": "1"})
    assert found is not None
    assert len(rounds) == 2
    assert found.rows_updated == 6
    assert {row[0] for row in by_key(table).values()} == {1}
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") == ()


@pytest.mark.parametrize("where", ["k = 1", "a = 1"])
def test_a_commit_of_a_row_that_was_read_is_seen(catalog: mg.Catalog, between: Between, where: str) -> None:
    table = made(catalog)
    table.write(FIRST)
    rounds = between([lambda: table.write([{"k": 1, "a": 1, "b": "new", "n": 9}])])
    with _without_locks():
        table.update(where, {"n": "n + 1"})
    assert len(rounds) == 2
    assert by_key(table)[1] == (1, "new", 10)


def test_commits_of_keys_that_the_filter_cannot_mean_and_compactions_do_not_conflict(
    catalog: mg.Catalog, between: Between
) -> None:
    table = made(catalog, write_only="true")
    table.write(FIRST)

    def meanwhile() -> None:
        table.write([{"k": 100, "a": 1, "b": "x", "n": 1}])
        table.with_options({"write-only": "false"}).compact(full=True)

    rounds = between([meanwhile])
    with _without_locks():
        table.delete("k < 3 AND n >= 0")
    assert len(rounds) == 1
    assert sorted(by_key(table)) == [3, 4, 5, 100]


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_an_old_handle_changes_rows_by_columns_that_are_the_same(
    catalog: mg.Catalog, keyed: bool, written: bool
) -> None:
    old = catalog.create_table("db.t", COLUMNS, primary_key=["k"] if keyed else None, options={"bucket": "-1"})
    old.write(FIRST)
    new = old.alter([c.rename_column("b", "c"), c.add_column("z", "INT"), c.comment_column("n", "more")])
    if written:
        new.write([{"k": 9, "a": 9, "c": "y", "n": 9, "z": 9}])
    assert old.update("k IN (1, 5, 9)", {"a": "-1"}).rows_updated == (3 if written else 2)
    assert old.delete("n = 0 OR n = 2").rows_deleted == 2
    merge = old.merge([{"k": 3, "a": -3}, {"k": 7, "n": 7}], on="target.k = source.k")
    assert merge.when_matched_update({"a": "source.a"}).when_not_matched_insert().execute().rows_inserted == 1
    found = {row["k"]: (row["a"], row["c"], row["z"]) for row in new.read().to_pylist()}
    rows = {1: (-1, "x", None), 3: (-3, "x", None), 4: (4, "x", None), 5: (-1, "x", None), 7: (None, None, None)}
    assert found == rows | ({9: (-1, "y", 9)} if written else {})


@pytest.mark.parametrize("keyed", [False, True])
def test_an_old_handle_is_told_which_of_its_columns_changed(catalog: mg.Catalog, keyed: bool) -> None:
    columns = COLUMNS | {"d": "INT", "e": "INT", "f": "INT"}
    old = catalog.create_table("db.t", columns, primary_key=["k"] if keyed else None, options={"bucket": "-1"})
    old.write([row | {"d": 1, "e": 1, "f": 1} for row in FIRST])
    changes = [c.rename_column("a", "aa"), c.retype_column("n", "BIGINT"), c.drop_column("d"), c.drop_column("e")]
    new = old.alter([*changes, c.add_column("e", "INT")])
    merge = old.merge([{"k": 1, "e": 7}], on="target.k = source.k")
    for call, said in (
        (lambda: old.update("f = 1", {"a": "0"}), "column 'a' was renamed to 'aa'"),
        (lambda: old.delete("n = 1"), "column 'n' was changed from INT NOT NULL to BIGINT"),
        (lambda: old.update("k = 1", {"f": "d"}), "column 'd' was dropped (schema"),
        (lambda: merge.when_matched_update().execute(), "column 'e' was dropped, and another one has its name"),
    ):
        with pytest.raises(ConflictError, match=re.escape(said)) as caught:
            call()
        assert "Nothing was written. Open the table again." in str(caught.value)
    assert [snapshot.id for snapshot in new.snapshots()] == [1]


@pytest.mark.parametrize("where", [None, "", "  "])
def test_a_filter_that_was_forgotten_changes_nothing(catalog: mg.Catalog, where: str | None) -> None:
    table = made(catalog)
    table.write(FIRST)
    for call in (lambda: table.delete(where), lambda: table.update(where, {"a": "1"})):
        with pytest.raises(InvalidInputError, match=r"cannot .* 'db\.t': the filter is .*'true' takes every row"):
            call()
    assert table.read().count() == 6


def test_errors_of_filters_say_what_was_not_done(catalog: mg.Catalog) -> None:
    table = made(catalog)
    merge = table.merge([{"k": 1}], on="target.k = source.k")
    for call in (
        lambda: table.delete("nosuch = 1"),
        lambda: table.update("k =", {"a": "1"}),
        lambda: table.merge([{"k": 1}], on="target.zz = source.k"),
        lambda: table.merge([{"k": 1}], on=None),  # type: ignore[arg-type]
        lambda: merge.when_matched_delete("source.k + 1"),
        lambda: merge.when_matched_delete(""),
    ):
        with pytest.raises(InvalidInputError, match=r"cannot .* 'db\.t': .*Nothing was written"):
            call()


def test_rows_are_not_changed_by_a_handle_that_reads_the_past(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(FIRST)
    past = table.with_options({"scan.snapshot-id": "1"})
    for call in (
        lambda: past.delete("true"),
        lambda: past.update("true", {"a": "1"}),
        lambda: past.merge([{"k": 1}], on="target.k = source.k"),
    ):
        with pytest.raises(InvalidInputError, match=r"'scan\.snapshot-id' = '1'.* only the newest rows"):
            call()
    assert table.read().count() == 6


@pytest.mark.parametrize("value", ["1e40", "'1e40'", "-d", "1e39 * 10", "1e400", "'-1e400'"])
def test_a_number_that_is_too_large_never_becomes_infinity(catalog: mg.Catalog, value: str) -> None:
    table = catalog.create_table("db.floats", {"k": "INT", "f": "FLOAT", "d": "DOUBLE"}, primary_key=["k"])
    table.write([{"k": 1, "f": 1.5, "d": 1e300}])
    with pytest.raises(InvalidInputError, match=r"column 'f' .*(fit|range).*Nothing was written"):
        table.update("true", {"f": value})
    merge = table.merge([{"k": 1, "e": 1e300}, {"k": 2, "e": 0.0}], "target.k = source.k")
    with pytest.raises(InvalidInputError, match=r"column 'f' .*does not fit the type"):
        merge.when_matched_update({"f": "e"}).when_not_matched_insert({"k": "source.k", "f": "e"}).execute()
    assert table.read().to_pylist() == [{"k": 1, "f": 1.5, "d": 1e300}]
    found = table.update("true", {"f": "CAST('-Infinity' AS FLOAT)", "d": "'Infinity'"})
    assert found is not None
    assert table.read(columns=["f", "d"]).to_pylist() == [{"f": float("-inf"), "d": float("inf")}]


def test_a_default_and_a_partition_that_are_too_large_are_refused(catalog: mg.Catalog) -> None:
    for kind, text in (("FLOAT", "1e40"), ("DOUBLE", "1e400")):
        with pytest.raises(InvalidInputError, match=f"cannot use '{text}' as the default"):
            catalog.create_table("db.d", {"k": "INT", "f": kind}, options={"fields.f.default-value": text})
    table = catalog.create_table("db.p", {"k": "INT", "f": "FLOAT"}, partition_by=["f"])
    for value in (1e40, "1e40"):
        with pytest.raises(InvalidInputError, match="is not a value of partition column 'f' FLOAT"):
            table.write([{"k": 1, "f": 1.0}], overwrite={"f": value})
