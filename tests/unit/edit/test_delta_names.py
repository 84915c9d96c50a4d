"""Clauses of a merge by the names of Delta do what ours do, and are refused where they would do something else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError

Clause = Callable[[Any], Any]
SOURCE = [{"id": 1, "n": 10, "s": "x"}, {"id": 2, "n": 0, "s": "y"}, {"id": 9, "n": 90, "s": "z"}]
FOUR = [{"id": k, "n": k, "s": "a"} for k in range(4)]


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    return catalog


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize(
    ("theirs", "ours", "rows"),
    [
        (
            lambda m: m.whenMatchedUpdate("s.n > 0", {"n": "t.n + s.n"}).whenMatchedUpdate(set={"s": "s.s"}),
            lambda m: m.when_matched_update({"n": "t.n + s.n"}, "s.n > 0").when_matched_update({"s": "s.s"}),
            [(0, 0, "a"), (1, 11, "a"), (2, 2, "y"), (3, 3, "a")],
        ),
        (
            lambda m: m.whenMatchedDelete("s.n = 0").whenMatchedUpdateAll().whenNotMatchedInsertAll(),
            lambda m: m.when_matched_delete("s.n = 0").when_matched_update().when_not_matched_insert(),
            [(0, 0, "a"), (1, 10, "x"), (3, 3, "a"), (9, 90, "z")],
        ),
        (
            lambda m: m.whenMatchedUpdateAll("s.n = 0").whenMatchedDelete().whenNotMatchedInsertAll("s.id < 9"),
            lambda m: m.when_matched_update(None, "s.n = 0").when_matched_delete()
            .when_not_matched_insert(None, "s.id < 9"),
            [(0, 0, "a"), (2, 0, "y"), (3, 3, "a")],
        ),
        (
            lambda m: m.whenNotMatchedInsert("s.n > 99", {"id": "s.id"})
            .whenNotMatchedInsert(values={"id": "s.id + 1", "n": "1"}),
            lambda m: m.when_not_matched_insert({"id": "s.id"}, "s.n > 99")
            .when_not_matched_insert({"id": "s.id + 1", "n": "1"}),
            [(0, 0, "a"), (1, 1, "a"), (2, 2, "a"), (3, 3, "a"), (10, 1, None)],
        ),
        (
            lambda m: m.whenNotMatchedBySourceUpdate("t.id = 0", {"n": "-1"}).whenNotMatchedBySourceDelete("t.id = 3"),
            lambda m: m.when_not_matched_by_source_update({"n": "-1"}, "t.id = 0")
            .when_not_matched_by_source_delete("t.id = 3"),
            [(0, -1, "a"), (1, 1, "a"), (2, 2, "a")],
        ),
    ],
)  # fmt: skip
def test_names_of_delta_do_what_ours_do(
    catalog: mg.Catalog, keyed: bool, theirs: Clause, ours: Clause, rows: list[tuple[Any, ...]]
) -> None:
    for number, clauses in enumerate((theirs, ours)):
        key = {"primary_key": ["id"]} if keyed else {}
        table = catalog.create_table(f"db.t{number}", {"id": "INT", "n": "INT", "s": "STRING"}, **key)
        table.write(FOUR)
        assert clauses(table.merge(SOURCE, "t.id = s.id", alias=("t", "s"))).execute() is not None
        assert sorted(tuple(row.values()) for row in table.read().to_pylist()) == rows


@pytest.mark.parametrize(
    ("source", "on", "clause", "said"),
    [
        (
            [{"id": 1, "p": "a"}],
            "t.id = s.id AND t.p = s.p",
            lambda m: m.whenMatchedUpdateAll(),
            r"whenMatchedUpdateAll sets all columns, and the source lacks n\..* With when_matched_update\(\) they stay",
        ),
        (
            [{"id": 1, "p": "a"}],
            "t.id = s.id",
            lambda m: m.whenNotMatchedInsertAll(),
            r"the source lacks n\..* With when_not_matched_insert\(\) they get their default",
        ),
        (
            [{"id": 1, "p": "b", "n": 1}],
            "t.id = s.id",
            lambda m: m.whenMatchedUpdateAll(),
            r"whenMatchedUpdateAll sets all columns, and no update sets p: .* or write when_matched_update\(\)",
        ),
        (
            [{"id": 1, "p": "b", "n": 1, "q": "a"}],
            "t.id = s.id AND t.p = s.q",
            lambda m: m.whenMatchedUpdateAll(),
            "no update sets p: ",
        ),
        ([{"id": 1}], "t.id = s.id", lambda m: m.whenMatchedUpdate({"n": "1"}), "whenMatchedUpdate has no 'set'"),
        ([{"id": 1}], "t.id = s.id", lambda m: m.whenMatchedUpdate({"n": "1"}, {"n": "1"}), "the condition is {'n'"),
        ([{"id": 1}], "t.id = s.id", lambda m: m.whenNotMatchedInsert("s.id > 0"), "has no 'values'"),
        ([{"id": 1}], "t.id = s.id", lambda m: m.whenNotMatchedBySourceUpdate("t.n > 0"), "has no 'set'"),
    ],
)
def test_what_would_mean_something_else_is_refused(
    catalog: mg.Catalog, source: list[dict[str, Any]], on: str, clause: Clause, said: str
) -> None:
    table = catalog.create_table("db.t", {"id": "INT", "p": "STRING", "n": "INT"}, partition_by=["p"])
    table.write([{"id": 1, "p": "a", "n": 0}])
    with pytest.raises(InvalidInputError, match=said):
        clause(table.merge(source, on, alias=("t", "s")))


def test_columns_that_the_condition_makes_equal_may_be_among_all(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.t", {"id": "INT", "p": "STRING", "n": "INT"}, partition_by=["p"])
    table.write([{"id": 1, "p": "a", "n": 0}, {"id": 1, "p": "b", "n": 0}])
    merge: Any = table.merge([{"id": 1, "p": "b", "n": 7}], "s.p = t.p AND t.id = s.id", alias=("t", "s"))
    merge.whenMatchedUpdateAll().execute()
    assert sorted((row["p"], row["n"]) for row in table.read().to_pylist()) == [("a", 0), ("b", 7)]


def test_an_argument_that_delta_lacks_is_named_with_the_method(catalog: mg.Catalog) -> None:
    merge: Any = catalog.create_table("db.t", {"id": "INT"}).merge([{"id": 1}], "target.id = source.id")
    with pytest.raises(TypeError, match=r"Merge.whenMatchedDelete\(\) got an unexpected keyword argument 'values'"):
        merge.whenMatchedDelete(values={})
