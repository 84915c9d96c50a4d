"""A table with rows gets a primary key: what its rows become, what is refused, and what others see of it."""

from __future__ import annotations

from typing import Any

import pytest

import merganser as mg
from merganser import changes as c
from merganser.edit import primary_key as module
from merganser.errors import ConflictError, InvalidInputError
from merganser.meta.schemas import SchemaStore
from tests.kit.builders import catalog_over, memory_with

COLUMNS = {"p": "STRING", "k": "INT", "v": "INT"}


def made(name: str, *, partition_by: tuple[str, ...] = (), **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"primary-key-{name}"))
    catalog.create_database("db")
    options = {"write-only": "true"} | {key.replace("__", ".").replace("_", "-"): v for key, v in options.items()}
    return catalog.create_table("db.t", COLUMNS, partition_by=partition_by, options=options)


def row(k: int | None, v: int, p: str = "a") -> dict[str, Any]:
    return {"p": p, "k": k, "v": v}


def rows(table: mg.Table, **how: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.read(**how).to_pylist())


@pytest.mark.parametrize("partition_by", [(), ("p",)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bucket": 2},
        {"bucket": -2},
        {"bucket": 2, "deletion-vectors.enabled": "true"},
        {"bucket": 2, "changelog-producer": "lookup"},
        {"changelog-producer": "full-compaction"},
        {"bucket": 2, "changelog-producer": "input"},
        {"bucket": 1, "merge-engine": "first-row"},
        {"bucket": 1, "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    ],
    ids=str,
)
def test_all_rows_are_those_of_a_table_with_the_key_whatever_its_options(
    partition_by: tuple[str, ...], options: dict[str, Any]
) -> None:
    table = made(f"options-{partition_by}-{options}", partition_by=partition_by, write_buffer_size="1 mb")
    for n in range(3):
        table.write([row(k, k, "ab"[k % 2]) for k in range(n, 30, 3)])
    before = rows(table)
    keyed = table.alter([c.set_primary_key(["p", "k"]), *(c.set_option(*each) for each in options.items())])
    assert keyed.primary_key == ("p", "k")
    assert rows(keyed) == before
    assert keyed.check() == ()
    assert keyed.changes(start=4).to_pylist() == []
    keyed.write([row(1, 100, "b"), row(99, 1)])
    keyed.compact(full=True)
    grown = {"aggregation": 101, "first-row": 1}.get(str(options.get("merge-engine")), 100)
    assert rows(keyed) == sorted([*(each for each in before if each[1] != 1), ("b", 1, grown), ("a", 99, 1)])
    if options.get("changelog-producer", "none") != "none":
        published = [tuple(each.values()) for each in keyed.changes(start=5).to_pylist()]
        of_input = options["changelog-producer"] == "input"
        old = [] if of_input else [("-U", "b", 1, 1)]
        assert sorted(published) == sorted([*old, ("+I" if of_input else "+U", "b", 1, 100), ("+I", "a", 99, 1)])


def test_rows_with_one_key_are_refused_with_examples() -> None:
    table = made("duplicates")
    table.write([row(k, 0) for k in range(9)])
    table.write([row(3, 1), row(5, 1), row(5, 2)])
    with pytest.raises(
        InvalidInputError, match=r"5 rows share 2 values of the primary key \(k\): k = 3 \(2 rows\); k = 5 \(3 rows\)"
    ):
        table.alter([c.set_primary_key(["k"])])
    assert table.latest_snapshot().id == 2
    assert SchemaStore(table.definition.paths, table.env).ids() == [0]
    assert table.check() == ()


def test_rows_with_one_key_are_found_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made("parts")
    table.write([row(k, 0) for k in range(100)])
    table.write([row(7, 1), row(42, 2)])
    monkeypatch.setattr(module, "_KEYS_AT_ONCE", 10)
    with pytest.raises(
        InvalidInputError, match=r"4 rows share 2 values of the primary key \(k\): k = (7|42) \(2 rows\)"
    ):
        table.alter([c.set_primary_key(["k"])])


@pytest.mark.parametrize(
    ("engine", "expected"),
    [("deduplicate", ("z", 1, 3)), ("first-row", ("a", 1, 1)), ("aggregation", ("z", 1, 6))],
)
def test_a_merge_engine_makes_one_row_of_them_in_the_order_in_which_they_were_written(
    engine: str, expected: tuple[Any, ...]
) -> None:
    table = made(f"folds-{engine}", compaction__min__file_num="2")
    for n, p in enumerate("amz"):
        table.write([row(1, n + 1, p), row(n + 5, 0)])
    sums = [c.set_option("fields.v.aggregate-function", "sum")] if engine == "aggregation" else []
    keyed = table.alter([c.set_primary_key(["k"]), c.set_option("merge-engine", engine), *sums])
    assert [each for each in rows(keyed) if each[1] == 1] == [expected]
    assert len(rows(keyed)) == 4


def test_null_keys_are_refused_with_examples() -> None:
    table = made("nulls")
    table.write([row(1, 1), row(None, 2), row(None, 3)])
    with pytest.raises(
        InvalidInputError, match=r"2 rows of the table have null in the primary key \(k\): .*v = 2; .*v = 3"
    ):
        table.alter([c.set_primary_key(["k"])])
    table.delete("v = 3")
    with pytest.raises(InvalidInputError, match=r"1 row of the table has null in the primary key \(k\): .*v = 2"):
        table.alter([c.set_primary_key(["k"])])
    keyed = table.alter([c.set_primary_key(["k"]), c.set_option("primary-key.nullable", "true")])
    assert keyed.read(where="k IS NULL").to_pylist() == [row(None, 2)]


def test_other_changes_of_the_call_are_made_with_it() -> None:
    table = made("others", deletion_vectors__enabled="true")
    table.write([row(1, 1), row(2, 2), row(3, 3)])
    table.delete("k = 2")
    changes = [c.rename_column("k", "id"), c.retype_column("v", "BIGINT"), c.set_primary_key(["id"])]
    keyed = table.alter([*changes, c.add_column("note", "STRING", default="new"), c.set_option("bucket", 1)])
    assert rows(keyed) == [("a", 1, 1, None), ("a", 3, 3, None)]
    assert keyed.schema.id == 1
    assert keyed.files().to_pylist()[0]["level"] > 0


def test_a_table_without_rows_only_gets_another_schema() -> None:
    table = made("empty")
    keyed = table.alter([c.set_primary_key(["k"])])
    assert keyed.latest_snapshot() is None
    with pytest.raises(ConflictError, match="had no primary key when it was opened"):
        table.write([row(1, 1)])
    keyed.write([row(1, 1), row(1, 2)])
    assert rows(keyed) == [("a", 1, 2)]


def test_a_table_whose_rows_are_gone_gets_a_key() -> None:
    table = made("gone")
    table.write([row(1, 1)])
    table.truncate()
    keyed = table.alter([c.set_primary_key(["k"])])
    keyed.write([row(1, 1), row(1, 2)])
    assert rows(keyed) == [("a", 1, 2)]
    assert keyed.latest_snapshot().schema_id == 1


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ([c.set_primary_key(["x"])], "primary key column 'x' is no column"),
        ([c.set_primary_key([])], "the primary key has no columns"),
        ([c.set_primary_key("k")], r"primary key are one text, 'k'. Give a list such as \['k'\]"),
        ([c.set_primary_key(7)], "the primary key is 7, an int. Give a list"),
        ([c.set_primary_key(["k", 7])], "columns of the primary key hold 7, an int. Give names"),
        ([c.set_primary_key(["k", "k"])], "contain duplicates"),
        ([c.set_primary_key(["p"])], "consists of partition columns only"),
        ([c.set_option("primary-key", "k")], r"merganser.changes.set_primary_key\(\['k'\]\) writes the rows anew"),
        ([c.set_primary_key(["k"]), c.set_option("data-file.path-directory", "d")], "files lie where it says"),
        ([c.set_primary_key(["p", "k"]), c.set_option("stream.enabled", "true")], "in another call, after this one"),
        ([c.set_option("merganser.primary-key-since", "1")], "cannot change"),
        (
            [c.set_primary_key(["k"]), c.set_option("bucket", 2), c.set_option("bucket-key", "v")],
            "bucket key column 'v' is not part",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(changes: list[c.Change], match: str) -> None:
    table = made(f"refused-{match}", partition_by=("p",))
    table.write([row(1, 1)])
    with pytest.raises(InvalidInputError, match=match):
        table.alter(changes)
    assert SchemaStore(table.definition.paths, table.env).ids() == [0]


def test_a_key_is_given_once() -> None:
    table = made("once")
    table.write([row(1, 1)])
    keyed = table.alter([c.set_primary_key(["k"])])
    assert keyed.alter([c.set_primary_key(["k"])]).schema == keyed.schema
    with pytest.raises(InvalidInputError, match="cannot change from 'k' to 'v'"):
        keyed.alter([c.set_primary_key(["v"])])
    with pytest.raises(InvalidInputError, match="cannot have a primary key"):
        made("counting", write_mode="change-log").alter([c.set_primary_key(["k"])])


# beside others


def test_rows_that_others_add_meanwhile_have_the_key_too(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made("beside")
    table.write([row(1, 1)])
    take, late = module._Rekeying._take, iter([row(2, 2), row(3, 3)])

    def then_others(self: Any, *arguments: Any) -> None:
        take(self, *arguments)
        if (each := next(late, None)) is not None:
            table.write([each])

    monkeypatch.setattr(module._Rekeying, "_take", then_others)
    keyed = table.alter([c.set_primary_key(["k"])])
    assert rows(keyed) == [("a", 1, 1), ("a", 2, 2), ("a", 3, 3)]
    assert keyed.check() == ()
    assert [s.commit_kind for s in keyed.snapshots()] == ["APPEND"] * 3 + ["OVERWRITE", "COMPACT"]
    assert {entry["schema_id"] for entry in keyed.files().to_pylist()} == {1}


def test_a_delete_or_a_duplicate_that_others_commit_meanwhile_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made("deleted")
    table.write([row(1, 1), row(2, 2)])
    take, late = module._Rekeying._take, iter([lambda: table.delete("k = 1"), lambda: table.write([row(2, 5)])])

    def then_others(self: Any, *arguments: Any) -> None:
        take(self, *arguments)
        next(late, lambda: None)()

    monkeypatch.setattr(module._Rekeying, "_take", then_others)
    with pytest.raises(InvalidInputError, match=r"2 rows share 1 value of the primary key \(k\): k = 2 \(2 rows\)"):
        table.alter([c.set_primary_key(["k"])])
    assert rows(table) == [("a", 2, 2), ("a", 2, 5)]


def test_beside_a_writer_that_makes_no_pause_the_call_says_to_pause_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made("restless", commit__max_retries="2", commit__min_retry_wait="1 ms")
    table.write([row(1, 1)])
    take, late = module._Rekeying._take, iter(range(2, 1_000))

    def then_others(self: Any, *arguments: Any) -> None:
        take(self, *arguments)
        table.write([row(next(late), 0)])

    monkeypatch.setattr(module._Rekeying, "_take", then_others)
    with pytest.raises(
        ConflictError,
        match=r"again and again .*: snapshot \d+ of commit user .* Nothing was changed. Pause the writers of the table",
    ):
        table.alter([c.set_primary_key(["k"])])
    monkeypatch.undo()
    assert table.schema.primary_keys == ()
    count = len(rows(table))
    assert len(rows(table.alter([c.set_primary_key(["k"])]))) == count


def test_writers_of_before_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made("told")
    table.write([row(1, 1)])
    with table.writer() as writer:
        writer.write([row(2, 2)])
        keyed = table.alter([c.set_primary_key(["k"])])
        with pytest.raises(ConflictError, match="the primary key has changed since this write began"):
            writer.commit()
    for call in (lambda: table.write([row(1, 1)]), lambda: table.delete("k = 1"), lambda: table.read().to_pylist()):
        with pytest.raises(ConflictError, match="Open the table again"):
            call()
    table.compact(full=True)
    assert rows(keyed) == [("a", 1, 1)]
    assert keyed.check() == ()


# what was before


def test_time_travel_tags_and_branches_show_the_rows_of_before() -> None:
    table = made("travel")
    first = table.write([row(1, 1), row(1, 2)])
    table.tags.create("v1")
    keyed = table.alter(
        [c.set_primary_key(["k"]), c.set_option("merge-engine", "deduplicate"), c.set_option("bucket", 2)]
    )
    assert rows(keyed) == [("a", 1, 2)]
    assert rows(keyed, snapshot=first.id) == rows(keyed, tag="v1") == [("a", 1, 1), ("a", 1, 2)]
    keyed.branches.create("b", tag="v1")
    branch = keyed.branch("b")
    assert (branch.primary_key, len(rows(branch))) == ((), 2)
    branch.write([row(1, 3)])
    assert len(rows(branch)) == 3
    with pytest.raises(ConflictError, match="cannot compare two states"):
        keyed.changes(start=2, mode="diff").to_pylist()
    keyed.branches.fast_forward("b")
    again = keyed.branch("main")
    assert (again.primary_key, len(rows(again))) == ((), 3)


def test_a_rollback_takes_the_key_back() -> None:
    table = made("rollback")
    first = table.write([row(1, 1), row(2, 2)])
    keyed = table.alter([c.set_primary_key(["k"])])
    keyed.write([row(1, 5)])
    keyed.rollback(snapshot=first.id)
    again = keyed.branch("main")
    assert (again.primary_key, again.schema.id) == ((), 2)
    assert rows(again) == [("a", 1, 1), ("a", 2, 2)]
    with pytest.raises(ConflictError, match="had the primary key"):
        keyed.write([row(1, 1)])
    again.write([row(1, 1)])
    with pytest.raises(InvalidInputError, match="2 rows share 1 value"):
        again.alter([c.set_primary_key(["k"])])
    again.delete("k = 1")
    assert again.alter([c.set_primary_key(["k"])]).schema.id == 3


def test_a_stream_that_is_behind_hands_over_the_rows_of_before_and_goes_on_with_those_of_keys() -> None:
    table = made("stream")
    table.write([row(1, 1)])
    behind = table.stream(start="from-snapshot", follow=False, **{"scan.snapshot-id": 1})
    table.write([row(2, 2)])
    keyed = table.alter([c.set_primary_key(["k"]), c.set_option("changelog-producer", "lookup")])
    keyed.write([row(1, 7)])
    keyed.compact(full=True)
    expected = [("+I", "a", 1, 1), ("+I", "a", 2, 2), ("-U", "a", 1, 1), ("+U", "a", 1, 7)]
    found = [tuple(each.values()) for part in behind for each in part.to_pylist()]
    assert found == expected
    later = keyed.stream(start="from-snapshot", follow=False, **{"scan.snapshot-id": 1})
    assert [tuple(each.values()) for part in later for each in part.to_pylist()] == expected
    with pytest.raises(ConflictError, match="the rows of snapshot 1 have no primary key"):
        keyed.changes(mode="delta").to_pylist()
    assert [tuple(each.values()) for each in keyed.changes(end=2).to_pylist()] == expected[:2]
