"""Merges by name: which clause wins, which rows are looked up, what is refused, and what comes between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import merganser as mg
from merganser.edit.matching import Matching
from merganser.edit.merge_jobs import MergeJob, joined_elsewhere, merged_in_tasks
from merganser.edit.merging import Merge
from merganser.errors import ConflictError, InvalidInputError
from merganser.expr.setting import Setting
from merganser.storage.protocol import no_lock
from merganser.upkeep.compact_table import on_threads
from merganser.write.job import Outcome

COLUMNS = {"k": "INT", "a": "INT", "b": "STRING", "n": "INT NOT NULL"}
FIRST = [{"k": k, "a": k, "b": "x", "n": k} for k in range(6)]
BY_KEY = "target.k = source.k"


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    found.create_database("db")
    return found


def made(catalog: mg.Catalog, rows: list[dict[str, Any]] = FIRST, **options: str) -> mg.Table:
    found = {"bucket": "1"} | {name.replace("_", "-"): value for name, value in options.items()}
    found["fields.b.default-value"] = "none"
    table = catalog.create_table("db.t", COLUMNS, primary_key=["k"], options=found)
    if rows:
        table.write(rows)
    return table


def by_key(table: mg.Table) -> dict[int, tuple[Any, ...]]:
    return {row["k"]: tuple(row.values())[1:] for row in table.read().to_pylist()}


def counts(found: mg.Snapshot | None) -> tuple[int | None, ...]:
    assert found is not None
    assert found.operation == "MERGE"
    return found.rows_inserted, found.rows_updated, found.rows_deleted


def test_of_the_clauses_the_first_that_fits_wins(catalog: mg.Catalog) -> None:
    table = made(catalog)
    given = ((0, "del"), (1, "up"), (2, None), (8, "new"), (9, "no"))
    rows = [{"id": k, "what": what, "n": 10 * k} for k, what in given]
    merge = (
        table.merge(rows, on="target.k = source.id")
        .when_matched_delete("what = 'del'")
        .when_matched_update({"n": "target.n + source.n", "b": "what"}, condition="what IS NOT NULL")
        .when_matched_update({"a": "NULL"})
        .when_not_matched_insert({"k": "id", "n": "1"}, condition="source.what <> 'no'")
    )
    assert counts(merge.execute()) == (1, 2, 1)
    assert by_key(table) == {
        1: (1, "up", 11), 2: (None, "x", 2), 3: (3, "x", 3), 4: (4, "x", 4), 5: (5, "x", 5), 8: (None, "none", 1)
    }  # fmt: skip


@pytest.mark.parametrize("late", [{"n": 4}, {}, {"n": 5}])
@pytest.mark.parametrize("by", ["key", "scan", "tasks"])
def test_a_new_row_that_is_older_than_the_stored_delete_of_its_key_is_refused(
    catalog: mg.Catalog, late: dict[str, int], by: str
) -> None:
    types = {"k": "INT", "a": "INT", "n": "INT"}
    table = catalog.create_table(
        "db.t", types, primary_key=["k"], options={"bucket": "1", "sequence.field": "n", "write-only": "true"}
    )
    table.write([{"k": 1, "a": 1, "n": 5}, {"k": 2, "a": 2, "n": 5}])
    table.write([{"k": 1, "a": 1, "n": 6}], kinds=["-D"])

    def merge(rows: list[dict[str, int]]) -> mg.Snapshot | None:
        source = pa.table({name: pa.array([row.get(name) for row in rows], pa.int32()) for name in types})
        found = table.merge(source, BY_KEY if by == "key" else f"{BY_KEY} AND target.a <> source.a")
        found = found.when_not_matched_insert()
        if by != "tasks":
            return found.execute()
        joined = joined_elsewhere(found)
        assert joined is not None
        return merged_in_tasks(joined.merge, run(source), on_threads(table.env), 1)

    def run(source: pa.Table) -> Callable[[MergeJob], list[Outcome]]:
        none = pa.nulls(source.num_rows, pa.int32())
        return lambda job: [job.run(iter([source.append_column("_merganser_key_0", none)]), table.env)]

    with pytest.raises(InvalidInputError, match=r"1 row of 1 .*\(first: k = 1\): a delete .* 'sequence\.field' = n"):
        merge([{"k": 1, "a": 9, **late}, {"k": 3, "a": 9}])
    assert by_key(table) == {2: (2, 5)}
    assert counts(merge([{"k": 1, "a": 9, "n": 6}, {"k": 3, "a": 9}])) == (2, 0, 0)
    assert by_key(table) == {1: (9, 6), 2: (2, 5), 3: (9, None)}


def test_columns_of_the_same_name_are_taken_where_none_are_given(catalog: mg.Catalog) -> None:
    table = made(catalog)
    rows = pa.table({"k": [1, 7], "N": [10, 70], "b": ["y", "z"], "other": [0, 0]})
    merge = table.merge(rows, on=BY_KEY).when_matched_update().when_not_matched_insert()
    assert repr(merge) == "Merge('db.t', 2 rows; 1 when matched, 1 when not matched)"
    assert counts(merge.execute()) == (1, 1, 0)
    assert (by_key(table)[1], by_key(table)[7]) == ((1, "y", 10), (None, "z", 70))


def test_rows_that_meet_no_row_of_the_source_are_changed_too(catalog: mg.Catalog) -> None:
    table = made(catalog)
    merge = (
        table.merge([{"k": 1}, {"k": 2}], on=f"{BY_KEY} AND target.a = 1")
        .when_not_matched_by_source_delete("k > 3")
        .when_not_matched_by_source_update({"n": "-1"}, condition="target.k = 2")
        .when_matched_update({"n": "100"})
    )
    assert counts(merge.execute()) == (0, 2, 2)
    assert {k: row[-1] for k, row in by_key(table).items()} == {0: 0, 1: 100, 2: -1, 3: 3}


def test_a_merge_by_the_whole_key_looks_up_and_another_scans(
    catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(catalog)
    scans: list[int] = []
    scanned = Matching._scanned
    monkeypatch.setattr(Matching, "_scanned", lambda self, state: (scans.append(1), scanned(self, state))[1])
    table.merge([{"k": 1.0}, {"k": 1.5}, {"k": None}], on=BY_KEY).when_matched_update({"n": "7"}).execute()
    assert scans == []
    table.merge([{"x": 2}], on="target.a = source.x").when_matched_update({"n": "7"}).execute()
    assert scans == [1]
    assert {k for k, row in by_key(table).items() if row[-1] == 7} == {1, 2}


def test_nulls_meet_nothing_and_both_zeros_each_other(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.f", {"x": "DOUBLE", "n": "INT"}, primary_key=["x"], options={"bucket": "1"})
    table.write([{"x": 0.0, "n": 0}, {"x": float("nan"), "n": 0}, {"x": 1.0, "n": 0}])
    rows = [{"x": -0.0}, {"x": float("nan")}, {"x": None}]
    assert counts(table.merge(rows, on="target.x = source.x").when_matched_update({"n": "1"}).execute()) == (0, 2, 0)


@pytest.mark.parametrize("key", [(), ("k",)])
def test_null_safe_equalities_join_and_let_nulls_meet(catalog: mg.Catalog, key: tuple[str, ...]) -> None:
    table = catalog.create_table("db.s", {"k": "INT", "a": "INT", "b": "STRING", "n": "INT"}, primary_key=key)
    first = [(1, 1, "x"), (2, None, "x"), (3, None, None)]
    table.write([{"k": k, "a": a, "b": b, "n": None} for k, a, b in first])
    rows = pa.table({"a": pa.array([None, 1, None], pa.int32()), "b": ["x", None, None]})
    found = table.merge(rows, on="target.a <=> source.a AND target.b = source.b").when_matched_update({"n": "1"})
    assert counts(found.execute()) == (0, 1, 0)
    found = table.merge(rows, on="source.a <=> target.a AND target.b <=> source.b").when_matched_update({"n": "7"})
    assert counts(found.execute()) == (0, 2, 0)
    assert {row["k"]: row["n"] for row in table.read().to_pylist()} == {1: None, 2: 7, 3: 7}
    assert counts(table.merge(rows, on="target.k <=> source.a").when_matched_delete().execute()) == (0, 0, 1)


def test_a_repeated_merge_changes_nothing(catalog: mg.Catalog) -> None:
    table = made(catalog)
    for _ in range(2):
        merge = table.merge([{"k": 1, "n": 5}], on=BY_KEY, commit_user="job", identifier=1)
        found = merge.when_matched_update({"n": "target.n + source.n"}).execute()
        assert counts(found) == (0, 1, 0)
    assert by_key(table)[1] == (1, "x", 6)
    assert table.merge([{"k": 1, "n": 6}], on=BY_KEY).when_matched_update().execute() is None


@pytest.mark.parametrize("key", [["k"], []], ids=["key", "no key"])
def test_nulls_meet_nulls_where_the_condition_says_so(catalog: mg.Catalog, key: list[str]) -> None:
    table = catalog.create_table("db.t", {"k": "INT", "a": "INT", "b": "DOUBLE", "n": "INT"}, primary_key=key)
    nan = float("nan")
    there = [(1, None, nan), (2, 2, None), (3, None, -0.0), (4, 4, 4.0)]
    table.write([{"k": k, "a": a, "b": b, "n": 0} for k, a, b in there])
    source = pa.table({"k": [1, 2, 3, 4, 5], "a": [None, None, None, 4, None], "b": [nan, None, 0.0, 4.0, None]})

    def merged(on: str) -> list[int]:
        table.merge(source, on).when_matched_update({"n": "target.n + 1"}).execute()
        return [row["n"] for row in table.read().to_arrow().sort_by("k").to_pylist()]

    assert merged("target.a <=> source.a AND target.b <=> source.b AND target.k = source.k") == [1, 0, 1, 1]
    assert merged("target.k <=> source.k AND target.b = source.b") == [2, 0, 2, 2]
    assert merged("target.a = source.a AND target.b <=> source.b") == [2, 0, 2, 3]


@pytest.mark.parametrize(
    ("rows", "on", "build", "said"),
    [
        ([{"k": 1}, {"k": 1}], BY_KEY, lambda m: m.when_matched_delete(), r"1 row of .*\(k = 1\).*rows 1, 2 "),
        ([{"k": 9}, {"k": 9}], BY_KEY, lambda m: m.when_not_matched_insert({"k": "source.k", "n": "0"}),
         r"1 new row would have the key of another one \(k = 9\)"),
        ([{"k": 1}], "target.a = source.k AND target.n > 5", lambda m: m.when_not_matched_insert({"k": "k", "n": "0"}),
         r"1 new row of 1 would have a key that is there.*\(k = 1\)"),
        ([{"k": 1, "n": 7}], f"{BY_KEY} AND target.n = source.n", lambda m: m.when_not_matched_insert(),
         r"1 new row of 1 would have a key that is there.*\(k = 1\)"),
        ([{"k": 9}], BY_KEY, lambda m: m.when_not_matched_insert({"k": "k"}), "column 'n' is null"),
        ([{"k": 9}], BY_KEY, lambda m: m.when_not_matched_insert({"n": "1"}), "key column 'k' has no value"),
        ([{"k": 9}], BY_KEY, lambda m: m.when_matched_update({"k": "source.k"}), "belongs to the primary key"),
        ([{"k": 9, "a": 1}], BY_KEY, lambda m: m.when_matched_update({"n": "a"}), "may be 'target.a' or 'source.a'"),
        ([{"k": 9}], BY_KEY, lambda m: m.when_not_matched_insert({"k": "k"}, "target.a > 1"), "unknown column"),
        ([{"k": 9}], BY_KEY, lambda m: m, "it has no clause"),
        ([{"k": 9}], "target.k > source.k", lambda m: m, "has no equality.*Say which row"),
        ([{"k": 9}], "target.k + 1 = source.k", lambda m: m, "has no equality.*makes of 'target.k'.*its type, INT"),
        ([{"k": "x"}], BY_KEY, lambda m: m, "cannot compare"),
        (pa.table([[1]], ["k"]).select([]), BY_KEY, lambda m: m, "the source has no columns"),
        (pa.table([[1], [2]], ["k", "k"]), BY_KEY, lambda m: m, "more than one of them is called 'k'"),
    ],
)  # fmt: skip
def test_what_cannot_be_merged_is_refused(
    catalog: mg.Catalog, rows: Any, on: str, build: Callable[[Merge], Merge], said: str
) -> None:
    table = made(catalog)
    with pytest.raises(InvalidInputError, match=said):
        build(table.merge(rows, on=on)).execute()
    assert by_key(table) == {k: (k, "x", k) for k in range(6)}
    assert table.remove_orphans(older_than="2100-01-01T00:00:00") == ()


def test_clauses_that_an_engine_has_no_rule_for_are_refused(catalog: mg.Catalog) -> None:
    table = made(catalog, merge_engine="aggregation")
    with pytest.raises(InvalidInputError, match="merge engine aggregation adds"):
        table.merge([{"k": 1}], on=BY_KEY).when_matched_update({"n": "1"}).execute()
    with pytest.raises(InvalidInputError, match="merge engine aggregation has no rule"):
        table.merge([{"k": 1}], on=BY_KEY).when_matched_delete().execute()
    insert = table.merge([{"k": 1}, {"k": 7}], on=BY_KEY).when_not_matched_insert({"k": "k", "n": "1"})
    assert counts(insert.execute()) == (1, 0, 0)


@pytest.mark.parametrize("first", [FIRST, []])
@pytest.mark.parametrize("on", [BY_KEY, "target.k = source.k AND target.n >= 0", "target.a = source.k"])
def test_a_row_that_comes_meanwhile_is_met(
    catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch, on: str, first: list[dict[str, Any]]
) -> None:
    table = made(catalog, rows=first)
    rounds: list[int] = []
    change = Merge._new_rows

    def changed(self: Merge, *arguments: Any) -> Any:
        rounds.append(1)
        if len(rounds) == 1:
            table.write([{"k": 9, "a": 9, "b": "theirs", "n": 9}])
        return change(self, *arguments)

    monkeypatch.setattr(Merge, "_new_rows", changed)
    merge = table.merge([{"k": 9, "a": 9, "n": 1}], on=on)
    with patch("merganser.storage.local.LocalStorage.try_lock", lambda *_: no_lock):
        found = merge.when_matched_update({"n": "target.n + source.n"}).when_not_matched_insert().execute()
    assert counts(found) == (0, 1, 0)
    assert len(rounds) == 2
    assert by_key(table)[9] == (9, "theirs", 10)


def test_a_new_row_whose_key_becomes_one_that_is_there_is_refused(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.narrow", {"id": "INT", "v": "INT"}, primary_key=["id"], options={"bucket": "1"})
    table.write([{"id": 1, "v": 20}])
    merge = table.merge(pa.table({"a": [1.5], "v": [99]}), on="target.id = source.a")
    with pytest.raises(mg.errors.InvalidInputError, match="have a key that is there"):
        merge.when_not_matched_insert({"id": "source.a", "v": "source.v"}).execute()
    assert table.read().to_pylist() == [{"id": 1, "v": 20}]


@pytest.mark.parametrize("partition", [1, 2])
def test_a_new_row_of_a_key_that_lies_in_any_partition_is_refused(catalog: mg.Catalog, partition: int) -> None:
    columns = {"id": "BIGINT", "p": "INT", "u": "STRING"}
    table = catalog.create_table("db.moving", columns, primary_key=["id"], partition_by=["p"])
    table.write([{"id": 1, "p": 1, "u": "a"}])
    merge = table.merge([{"id": 1, "p": partition, "u": "z"}], on="target.u = source.u").when_not_matched_insert()
    with pytest.raises(mg.errors.InvalidInputError, match="have a key that is there"):
        merge.execute()
    assert table.read().to_pylist() == [{"id": 1, "p": 1, "u": "a"}]


def test_one_column_may_have_to_equal_two_values(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.two", {"id": "BIGINT", "v": "BIGINT"}, primary_key=["id"], options={"bucket": "1"})
    table.write([{"id": 2, "v": 20}])
    source = pa.table({"a": [1, 2], "b": [2, 2], "v": [99, 7]})
    merge = table.merge(source, on="target.id = source.b AND target.id = source.a")
    assert counts(merge.when_matched_update({"v": "source.v"}).execute()) == (0, 1, 0)
    assert table.read().to_pylist() == [{"id": 2, "v": 7}]


def test_an_empty_list_is_a_source_without_rows(catalog: mg.Catalog) -> None:
    table = made(catalog)
    before = by_key(table)
    merge = table.merge([], on=BY_KEY).when_matched_update().when_not_matched_insert()
    assert merge.execute() is None
    assert by_key(table) == before
    assert merge.when_not_matched_by_source_delete().execute().rows_deleted == len(before)


@pytest.mark.parametrize("key", [["k"], None])
def test_columns_of_nulls_take_the_type_of_their_namesakes(catalog: mg.Catalog, key: list[str] | None) -> None:
    columns = {"k": "INT", "a": "INT", "r": "ARRAY<ROW<x INT>>", "m": "MAP<STRING, INT>"}
    table = catalog.create_table("db.nulls", columns, primary_key=key)
    table.write([{"k": k, "a": k, "r": [{"x": 1}], "m": {"y": 2}} for k in range(3)])
    rows = [{"k": 1, "A": None, "r": [], "m": {"z": 3}, "gone": None}, {"k": 9, "A": None, "r": None, "m": None}]
    merge = table.merge(rows, on=BY_KEY).when_matched_delete("source.gone")
    merge = merge.when_matched_update().when_not_matched_insert()
    assert counts(merge.execute()) == (1, 1, 0)
    merge = table.merge([{"k": 0, "z": None}], on=BY_KEY).when_matched_update({"a": "source.z", "r": "z", "m": "z"})
    assert counts(merge.execute()) == (0, 1, 0)
    assert sorted((row["k"], row["a"], row["r"], row["m"]) for row in table.read().to_pylist()) == [
        (0, None, None, None), (1, None, [], [("z", 3)]), (2, 2, [{"x": 1}], [("y", 2)]), (9, None, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("exact", [False, True])
def test_fields_inside_values_count_in_any_case_as_columns_do(catalog: mg.Catalog, exact: bool) -> None:
    columns = {"k": "INT", "r": "ROW<x INT, y ARRAY<ROW<x INT>>>", "m": "MAP<STRING, ROW<X INT>>"}
    table = catalog.create_table("db.inner", columns, primary_key=["k"])
    table.write([{"k": 1, "r": None, "m": {"a": {"X": 1}, "b": None}}])
    rows = pa.table({"k": [1, 2], "v": [{"X": 3, "Y": [{"x": 4}, None]}, None], "n": [None, {"x": 5, "y": [{"X": 6}]}]})
    setting = Setting(exact_names=exact)
    merge = table.merging(rows, BY_KEY, setting, None, None, True, None).when_matched_update({"r": "v"})
    merge = merge.when_not_matched_insert({"k": "k", "r": "n"})
    if exact:
        with pytest.raises(InvalidInputError, match="must have the same names"):
            merge.execute()
        return
    merge.execute()
    two = {"k": 2, "r": {"x": 5, "y": [{"x": 6}]}, "m": None}
    one = {"k": 1, "r": {"x": 3, "y": [{"x": 4}, None]}, "m": [("a", {"X": 1}), ("b", None)]}
    assert table.read().to_pylist() == [one, two]
    twice = pa.table({"k": [1], "r": pa.array([{"x": 1, "X": 2, "y": [{"x": 3}]}])})
    with pytest.raises(InvalidInputError, match="must have the same names"):
        table.merge(twice, on=BY_KEY).when_matched_update().execute()


@pytest.mark.parametrize("key", [["order"], None])
def test_columns_may_have_the_names_of_keywords(catalog: mg.Catalog, key: list[str] | None) -> None:
    names = ["order", "select", "not", "from", "a b", "x`y", "case"]
    table = catalog.create_table("db.words", dict.fromkeys(names, "INT"), primary_key=key)
    table.write([dict.fromkeys(names, 1)])
    rows = [dict.fromkeys(names, 2) | {"order": 1}, dict.fromkeys(names, 3)]
    merge = table.merge(rows, on="target.`order` = source.`order`").when_matched_update().when_not_matched_insert()
    assert counts(merge.execute()) == (1, 1, 0)
    assert sorted(tuple(row.values()) for row in table.read().to_pylist()) == [(1, *[2] * 6), (3,) * 7]


@pytest.mark.parametrize("name", ["files", "ro"])
def test_system_tables_cannot_be_changed(catalog: mg.Catalog, name: str) -> None:
    made(catalog)
    table: Any = catalog.table(f"db.t${name}")
    with pytest.raises(mg.errors.UnsupportedError, match=r"cannot delete 'db\.t\$.*Nothing was written"):
        table.delete("true")
    assert not hasattr(table, "nonsense")


def test_an_old_handle_leaves_out_no_newer_column_that_the_source_has(catalog: mg.Catalog) -> None:
    old = made(catalog)
    table = old.alter([mg.changes.add_column("m", "MAP<STRING, INT>")])
    given = [{"k": 1, "a": 5, "b": "y", "n": 1, "m": {"x": 1}}]
    match = (
        r"since it was opened with schema 0, it got columns that the source has: m \(schema 1\). Nothing was written"
    )
    with pytest.raises(ConflictError, match=match):
        old.merge(given, on=BY_KEY).when_matched_update().execute()
    with pytest.raises(ConflictError, match=match):
        old.merge(given, on=BY_KEY).when_matched_delete().when_not_matched_insert().execute()
    old.merge(given, on=BY_KEY).when_matched_update({"a": "source.a"}).execute()
    assert by_key(table)[1] == (5, "x", 1, None)
    table.merge(given, on=BY_KEY).when_matched_update().execute()
    assert by_key(table)[1] == (5, "y", 1, [("x", 1)])
    old.merge([{"k": 1, "n": 2}], on=BY_KEY).when_matched_update().when_not_matched_insert().execute()
    assert by_key(table)[1] == (5, "y", 2, [("x", 1)])


@pytest.mark.parametrize(
    ("on", "alias"),
    [
        ("t.k = s.k", ("t", "s")),
        ("S.k = T.k", ("t", "s")),
        ("`the table`.k = `S.x`.k", ("the table", "s.x")),
        ("source.k = target.k", ("source", "target")),
        ("a.k = b.k", ("a", "b")),
        ("k.k = n.k", ("k", "n")),
        ("t.k = source.k", None),
        ("db.k = target.k", None),
        ("t.k = updates.k", None),
        ("x.k = y.k AND y.more > 0", None),
        ("x.k = y.k AND x.a >= 0", None),
    ],
)
def test_text_names_the_sides_by_aliases(catalog: mg.Catalog, on: str, alias: tuple[str, str] | None) -> None:
    table = made(catalog)
    rows = [{"k": 1, "n": 5, "more": 1}, {"k": 2, "n": 6, "more": 1}, {"k": 9, "n": 7, "more": 1}]
    found = table.merge(rows, on, alias=alias)
    names = found.names
    t, s = (f"`{name}`" for name in (names.target, names.source))
    merge = (
        found.when_matched_delete(f"{t}.k = 2")
        .when_matched_update({f"{names.target}.n": f"10 * {t}.n + {s}.n"}, f"{s}.more = 1")
        .when_not_matched_insert({"k": f"{s}.k", "n": f"{s}.n"}, f"{s}.n > 0")
        .when_not_matched_by_source_update({"n": f"-{t}.n"}, f"{t}.k > 4")
        .when_not_matched_by_source_delete(f"{t}.k = 0")
    )
    assert counts(merge.execute()) == (1, 2, 2)
    assert {k: row[-1] for k, row in by_key(table).items()} == {1: 15, 3: 3, 4: 4, 5: -5, 9: 7}


def test_names_of_columns_on_both_sides_do_for_clauses_without_names(catalog: mg.Catalog) -> None:
    table = made(catalog)
    merge = table.merge([{"k": 1, "n": 5}, {"k": 9, "n": 7}], "x.k = y.k")
    with pytest.raises(InvalidInputError, match=r"which of 'x' and 'y' is the table.*alias=\('x', 'y'\) if 'x' is"):
        merge.when_matched_update({"n": "y.n"})
    with pytest.raises(InvalidInputError, match=r"'n' may be 'x.n' or 'y.n', and it is not known"):
        merge.when_matched_delete("n > 1")
    assert counts(merge.when_matched_update().when_not_matched_insert().execute()) == (1, 1, 0)
    assert (by_key(table)[1][-1], by_key(table)[9][-1]) == (5, 7)


@pytest.mark.parametrize(
    ("on", "alias", "said"),
    [
        ("x.k = y.k AND x.n > 3", None, "not known which of 'x' and 'y' is the table.*Nothing was written"),
        ("x.k = y.k", ("t", "s"), "unknown column 'x.k': before .* stands 't' for the target or 's' for the source"),
        ("x.k = y.k AND z.a = 1", None, r"unknown column 'x.k': .*'target' or 'source'.* give alias=\('t', 's'\)"),
        ("k = y.k", None, r"'k' may be 'target.k' or 'source.k'.* give alias=\('t', 's'\)"),
        ("x.kk = y.k", None, "unknown column 'kk'. Did you mean 'k'"),
        ("t.k = T.k", ("t", "T"), "alias gives the table and the source one name, 't'"),
        ("t.k = s.k", ("t", ""), r"alias is \('t', ''\).*Give two names"),
        ("t.k = s.k", "ts", "alias is 'ts'.*Give two names"),
    ],
)
def test_aliases_that_do_not_fit_are_refused(catalog: mg.Catalog, on: str, alias: Any, said: str) -> None:
    table = made(catalog)
    with pytest.raises(InvalidInputError, match=said):
        table.merge([{"k": 1, "n": 5}], on, alias=alias)


def test_clauses_use_the_names_of_the_condition(catalog: mg.Catalog) -> None:
    merge = made(catalog).merge([{"k": 1, "n": 5, "a": 1}], "target.k = s.k")
    with pytest.raises(InvalidInputError, match=r"unknown column 'source.n': .*'target' or 's' for the source"):
        merge.when_matched_update({"n": "source.n"})
    with pytest.raises(InvalidInputError, match=r"'a' may be 'target.a' or 's.a'. Write one of them"):
        merge.when_matched_update({"n": "a"})
    with pytest.raises(InvalidInputError, match=r"unknown column 'target.n': before a column of a merge stands 's'"):
        merge.when_not_matched_insert({"k": "s.k", "n": "target.n"})


def test_a_row_column_comes_before_a_name_that_is_not_given(catalog: mg.Catalog) -> None:
    kinds = {"id": "INT", "s": "ROW<id INT>", "n": "INT"}
    table = catalog.create_table("db.rows", kinds, primary_key=["id"], options={"bucket": "1"})
    table.write([{"id": 1, "s": {"id": 7}, "n": 0}])
    rows = pa.table({"id": pa.array([7], pa.int32()), "n": pa.array([1], pa.int32())})
    with pytest.raises(InvalidInputError, match=r"unknown column 't.s'.* give alias=\('t', 's'\)"):
        table.merge(rows, "t.s = s.id")
    found = table.merge(rows, "target.s.id = source.id AND s.id = 7 AND target.id = source.n")
    assert counts(found.when_matched_update({"n": "s.id"}).execute()) == (0, 1, 0)
    found = table.merge(rows, "t.s.id = s.id AND t.id = s.n", alias=("t", "s"))
    assert counts(found.when_matched_update({"n": "t.s.id + s.n"}).execute()) == (0, 1, 0)
    assert table.read().to_pylist() == [{"id": 1, "s": {"id": 7}, "n": 8}]


@pytest.mark.parametrize("others", [1, 2])
def test_new_rows_of_one_key_in_several_partitions_are_refused(catalog: mg.Catalog, others: int) -> None:
    """The second row would replace the first one in its partition, and both would be counted."""
    columns = {"id": "BIGINT", "p": "INT", "u": "STRING"}
    table = catalog.create_table("db.moving", columns, primary_key=["id"], partition_by=["p"])
    rows = [{"id": 7, "p": 1, "u": "a"}, {"id": 7, "p": others, "u": "b"}, {"id": 8, "p": 1, "u": "c"}]
    merge = table.merge(rows, on="target.id = source.id").when_not_matched_insert()
    with pytest.raises(mg.errors.InvalidInputError, match=r"1 new row would have the key of another one \(id = 7\)"):
        merge.execute()
    assert table.read().to_pylist() == []
    assert counts(table.merge(rows[1:], on="target.id = source.id").when_not_matched_insert().execute()) == (2, 0, 0)
