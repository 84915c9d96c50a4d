"""Which state of the table answers: old snapshots, handles that follow or stay, schemas, and tables that move."""

from __future__ import annotations

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import merganser as mg
from merganser.errors import (
    ConflictError,
    ExpiredError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from merganser.lookup.lookup import Lookup
from merganser.scan.scan import Scan
from tests.unit.lookup.compared import WAYS, answered, assert_same, expected, handle, way

KEYS = [{"k": k} for k in range(12)]
RNG = random.Random(5)


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"})
    found.create_database("db")
    return found


def made(catalog: mg.Catalog, name: str = "db.t", **options: str) -> mg.Table:
    columns = {"k": "INT", "v": "INT", "t": "STRING"}
    options = {"bucket": "2", "write-only": "true"} | {
        key.replace("__", ".").replace("_", "-"): value for key, value in options.items()
    }
    return catalog.create_table(name, columns, primary_key=["k"], options=options)


def evolve(catalog: mg.Catalog, changed: dict[str, tuple[str, str]], added: dict[str, str]) -> mg.Table:
    """Give 'db.t' its next schema: new names and types by column, and columns at the end; no others remain."""
    table = catalog.table("db.t")
    schema = json.loads(Path(table.path, "schema", f"schema-{table.schema.id}").read_text())
    fields = {field["name"]: field for field in schema["fields"]}
    schema["fields"] = [fields[name] | {"name": new, "type": kind} for name, (new, kind) in changed.items()]
    for name, kind in added.items():
        schema["highestFieldId"] += 1
        schema["fields"].append({"id": schema["highestFieldId"], "name": name, "type": kind})
    schema["id"] += 1
    Path(table.path, "schema", f"schema-{schema['id']}").write_text(json.dumps(schema))
    return catalog.table("db.t")


def with_option(catalog: mg.Catalog, option: str, value: str) -> mg.Table:
    """Give 'db.t' a second schema with another option."""
    directory = Path(catalog.table("db.t").path, "schema")
    schema = json.loads((directory / "schema-0").read_text())
    schema["options"][option], schema["id"] = value, 1
    (directory / "schema-1").write_text(json.dumps(schema))
    return catalog.table("db.t")


def rows(keys: Any, v: int) -> list[dict[str, Any]]:
    return [{"k": k, "v": v, "t": f"text {v}"} for k in keys]


def test_every_snapshot_is_looked_up_as_it_is_read(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(rows(range(6), 1))
    table.write([{"k": 2, "v": 0, "t": None, "op": "-D"}], kinds="op")
    table.write(rows([2, 3, 9], 2))
    table.compact(full=True)
    table.write(rows([1], 3), overwrite={})
    stays = [(snapshot.id, table.lookups(refresh=snapshot.id)) for snapshot in table.snapshots()]
    assert len(stays) == 5
    for number, lookup in stays:
        wanted = expected(table, KEYS, snapshot=number)
        assert answered(table.lookup(KEYS, snapshot=number)) == wanted
        assert answered(lookup.lookup(KEYS)) == wanted
        assert lookup.refresh() == lookup.snapshot == number


def test_a_tag_and_a_time_choose_the_state_that_a_read_of_them_has(tmp_path: Path) -> None:
    begun, hours = datetime(2026, 1, 1, tzinfo=UTC), 0
    catalog = mg.catalog(str(tmp_path), clock=lambda: begun + timedelta(hours=hours))
    catalog.create_database("db")
    table = made(catalog)
    for hours in range(3):
        table.write(rows(range(6), hours))
    table.tags.create("kept", snapshot=2)
    later = table.alter([mg.changes.add_column("more", "INT")])
    chosen = {"tag": "kept"}, {"timestamp": "2026-01-01T01:59"}, {"timestamp": "2026-01-01T03:59+02:00"}
    for state in chosen:
        assert answered(later.lookup(KEYS, **state)) == expected(table, KEYS, snapshot=2)
    expire_all(table, 4)
    assert later.lookup({"k": 1}, tag="kept").to_pylist() == rows([1], 1)
    for call in (table.lookup, table.lookup_prefix, lambda keys, **state: table.read(**state)):
        with pytest.raises(NotFoundError, match="'other'"):
            call({"k": 1}, tag="other")
        with pytest.raises(ExpiredError, match=r"as of 2026-01-01 01:59:00\+00:00: snapshots before 5 "):
            call({"k": 1}, timestamp="2026-01-01T01:59")
        with pytest.raises(InvalidInputError, match="tag and timestamp are both given"):
            call({"k": 1}, tag="kept", timestamp="2026-01-01")
        with pytest.raises(InvalidInputError, match="the time 'yesterday'"):
            call({"k": 1}, timestamp="yesterday")


def test_a_handle_answers_from_its_snapshot_until_it_is_refreshed(catalog: mg.Catalog, tmp_path: Path) -> None:
    table = made(catalog)
    for name in WAYS:
        with way(name):
            lookup = handle(table, name, tmp_path)
            for step in range(4):
                before, held = lookup.snapshot, answered(lookup.lookup(KEYS))
                table.write(rows(RNG.sample(range(12), 5), step))
                if step == 2:
                    table.compact(full=True)
                assert (lookup.snapshot, answered(lookup.lookup(KEYS))) == (before, held)
                snapshot = table.latest_snapshot()
                assert snapshot is not None
                assert lookup.refresh() == snapshot.id
                assert_same(table, lookup, KEYS, RNG)


def test_an_empty_table_has_no_rows(catalog: mg.Catalog) -> None:
    table = made(catalog)
    lookup = table.lookups()
    assert lookup.snapshot is None
    assert lookup.refresh() is None
    assert lookup.lookup(KEYS).equals(table.read().to_arrow())
    assert lookup.lookup({"k": 1}).num_rows == 0


def test_a_rollback_is_followed(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(rows(range(4), 1))
    table.write(rows(range(2, 8), 2))
    lookup = table.lookups()
    assert_same(table, lookup, KEYS, RNG)
    table.rollback(snapshot=1)
    lookup.refresh()
    assert_same(table, lookup, KEYS, RNG)
    assert answered(table.lookup(KEYS)) == expected(table, KEYS)
    table.write(rows(range(5, 9), 3))  # another snapshot 2
    lookup.refresh()
    assert_same(table, lookup, KEYS, RNG)
    assert answered(table.lookup(KEYS)) == expected(table, KEYS)


def expire_all(table: mg.Table, v: int) -> None:
    """Give all keys one more version, in new files, and expire all snapshots but the newest."""
    table.write(rows(range(6), v))
    table.compact(full=True)
    table.expire(retain_max=1, retain_min=1, older_than="9999-01-01T00:00:00Z")


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_a_handle_whose_snapshot_has_expired_says_so_and_goes_on_after_a_refresh(
    vectors: str, catalog: mg.Catalog
) -> None:
    table = made(catalog, bucket="1", write_only="false", deletion_vectors__enabled=vectors)
    table.write(rows(range(4), 1))
    table.write(rows(range(2), 2))
    newest = table.latest_snapshot()
    assert newest is not None
    old, opened, pinned = table.lookups(), table.lookups(), table.lookups(refresh=newest.id)
    assert opened.lookup({"k": 3}).num_rows == 1
    expire_all(table, 3)
    for keys in ({"k": 1}, [{"k": 1}, {"k": 2}]):
        with pytest.raises(ExpiredError, match=rf"snapshot {newest.id} has expired.* Call refresh\(\)"):
            old.lookup(keys)
        with pytest.raises(ExpiredError, match=rf"snapshot {newest.id} has expired.* Choose another snapshot"):
            pinned.lookup(keys)
    assert pinned.refresh() == newest.id
    for lookup in (old, opened):
        lookup.refresh()
        assert_same(table, lookup, KEYS, RNG)
    with pytest.raises(ExpiredError):
        table.lookup({"k": 1}, snapshot=1)
    with pytest.raises(ExpiredError):
        table.lookups(refresh=1)
    with pytest.raises(NotFoundError):
        table.lookup({"k": 1}, snapshot=99)


@pytest.mark.parametrize("keys", [{"k": 1}, [{"k": 1}]])
def test_a_file_that_is_missing_of_a_snapshot_that_is_kept_is_damage(keys: Any, catalog: mg.Catalog) -> None:
    table = made(catalog, bucket="1")
    table.write(rows(range(4), 1))
    for file in Path(table.path, "bucket-0").iterdir():
        file.unlink()
    for call in (table.lookup, table.lookups().lookup):
        with pytest.raises(FormatError, match="missing"):
            call(keys)


def test_a_tag_keeps_a_snapshot_for_lookups(catalog: mg.Catalog) -> None:
    table = made(catalog, bucket="1")
    table.write(rows(range(4), 1))
    table.tags.create("kept")
    lookup = table.lookups()
    expire_all(table, 2)
    assert lookup.lookup({"k": 1})["v"].to_pylist() == [1]
    for file in Path(table.path, "bucket-0").iterdir():
        file.unlink()
    with pytest.raises(FormatError, match="missing"):
        table.lookups().lookup({"k": 1})


def test_a_prefix_is_looked_up_in_the_snapshot_of_the_handle(catalog: mg.Catalog) -> None:
    options = {"bucket": "1", "bucket-key": "a"}
    columns = {"a": "INT", "b": "INT", "v": "INT"}
    table = catalog.create_table("db.t", columns, primary_key=["a", "b"], options=options)
    lookup, other = table.lookups(), mg.table(table.path)
    table.write([{"a": 1, "b": b, "v": 1} for b in range(3)])
    assert lookup.lookup_prefix({"a": 1}).num_rows == 0
    lookup.refresh()
    table.write([{"a": 1, "b": 0, "v": 2}])
    assert lookup.lookup_prefix({"a": 1}, columns=["v"])["v"].to_pylist() == [1, 1, 1]
    plan, left = Scan.plan, [3]

    def overtaken(self: Scan) -> Any:
        found = plan(self)
        if left:
            other.write([{"a": 1, "b": 0, "v": left.pop()}])
            other.compact(full=True)
            other.expire(retain_max=1, retain_min=1, older_than="9999-01-01T00:00:00Z")
        return found

    with patch.object(Scan, "plan", overtaken):
        assert sorted(table.lookup_prefix({"a": 1})["v"].to_pylist()) == [1, 1, 3]
    assert not left
    with pytest.raises(ExpiredError):
        lookup.lookup_prefix({"a": 1})


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("vectors", ["false", "true"])
@pytest.mark.parametrize("call", ["one", "many", "once", "upsert"])
def test_a_call_whose_snapshot_expires_meanwhile_answers_from_the_newest(
    call: str, vectors: str, catalog: mg.Catalog
) -> None:
    table = made(catalog, bucket="1", write_only="false", deletion_vectors__enabled=vectors)
    other = mg.table(table.path)
    table.write(rows(range(6), 0))
    bucket, left = Lookup._bucket, [3, 2, 1]

    def overtaken(self: Lookup, *args: Any) -> Any:
        if left:
            expire_all(other, left.pop())
        return bucket(self, *args)

    with patch.object(Lookup, "_bucket", overtaken):
        if call == "one":
            assert table.lookup({"k": 1})["v"].to_pylist() == [3]
        elif call == "many":
            assert table.lookup([{"k": 1}, {"k": 2}])["v"].to_pylist() == [3, 3]
        elif call == "once":
            assert table.lookup({"k": k} for k in range(3))["v"].to_pylist() == [3, 3, 3]
        else:
            assert table.upsert([{"k": 1, "t": "new"}], columns=["k", "t"]).updated == 1
    assert not left
    if call == "upsert":
        assert table.lookup({"k": 1}).to_pylist() == [{"k": 1, "v": 3, "t": "new"}]


def test_a_table_that_was_dropped_and_made_again_is_another_table(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(rows(range(6), 1))
    table.write(rows(range(3), 2))
    assert table.lookup({"k": 1})["v"].to_pylist() == [2]
    catalog.drop_table("db.t")
    again = made(catalog)
    assert again.lookup(KEYS).num_rows == 0
    again.write(rows(range(2, 9), 7))
    assert answered(again.lookup(KEYS)) == expected(again, KEYS)
    again.write(rows(range(4), 8))
    assert answered(again.lookup(KEYS)) == expected(again, KEYS)


def test_a_table_made_again_with_other_columns_is_another_table(catalog: mg.Catalog, tmp_path: Path) -> None:
    made(catalog).write(rows(range(6), 1))
    assert catalog.table("db.t").lookup({"k": 1}).num_rows == 1
    elsewhere = mg.catalog(str(tmp_path / "warehouse"))
    elsewhere.drop_table("db.t")
    options = {"bucket": "2", "write-only": "true"}
    columns = {"t": "STRING", "k": "BIGINT"}
    elsewhere.create_table("db.t", columns, primary_key=["k"], options=options).write([{"k": 1, "t": "new"}])
    again = catalog.table("db.t")
    assert again.lookup({"k": 1}).to_pylist() == again.read().to_pylist() == [{"t": "new", "k": 1}]


def test_a_handle_of_a_table_that_was_dropped_says_so(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(rows(range(6), 1))
    lookup = table.lookups()
    catalog.drop_table("db.t")
    for call in (lookup.refresh, lambda: table.lookup({"k": 1}), table.lookups):
        with pytest.raises(NotFoundError, match="dropped or renamed"):
            call()


def test_a_chosen_snapshot_is_that_of_the_table_which_is_there_now(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(rows(range(6), 1))
    lookup = table.lookups(refresh=1)
    assert lookup.lookup({"k": 1})["v"].to_pylist() == [1]
    table.write(rows(range(6), 2))
    assert lookup.refresh(2) == 2
    table.rollback(snapshot=1)
    table.write(rows(range(6), 3))
    assert lookup.refresh(2) == 2
    assert lookup.lookup({"k": 1})["v"].to_pylist() == [3]


def test_scan_options_select_the_state_that_is_looked_up(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(rows(range(6), 1))
    table.tags.create("first")
    table.write(rows(range(3), 2))
    table.expire(retain_max=1, retain_min=1, older_than="9999-01-01T00:00:00Z")
    old = table.with_options({"scan.tag-name": "first"})
    assert answered(old.lookup(KEYS)) == answered(old.lookups().lookup(KEYS)) == expected(old, KEYS)
    assert old.lookup({"k": 1})["v"].to_pylist() == [1]
    with pytest.raises(InvalidInputError, match="scan options select what changed"):
        table.with_options({"scan.file-creation-time-millis": "1"}).lookup({"k": 1})


def test_a_table_is_looked_up_under_its_new_name(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(rows(range(6), 1))
    table.lookup(KEYS)
    catalog.rename_table("db.t", "db.other")
    other = catalog.table("db.other")
    assert answered(other.lookup(KEYS)) == expected(other, KEYS)
    made(catalog).write(rows(range(3), 2))
    table = catalog.table("db.t")
    assert answered(table.lookup(KEYS)) == expected(table, KEYS)


@pytest.mark.parametrize("written", [False, True])
def test_a_changed_schema_is_looked_up_as_it_is_read(written: bool, catalog: mg.Catalog, tmp_path: Path) -> None:
    before = made(catalog)
    before.write(rows(range(6), 1))
    lookup = before.lookups()
    lookup.lookup(KEYS)
    changed = {"k": ("k", "INT NOT NULL"), "v": ("v", "BIGINT"), "t": ("u", "STRING")}
    after = evolve(catalog, changed, {"w": "INT"})
    if written:
        after.write([{"k": k, "v": 2**30 + k, "u": "later", "w": k} for k in (1, 7)])
    for table in (after, before):
        assert answered(table.lookup(KEYS)) == expected(table, KEYS)
        assert table.lookup(KEYS).schema == table.read().schema
        for name in WAYS:
            with way(name):
                assert_same(table, handle(table, name, tmp_path), KEYS, RNG)
    lookup.refresh()
    assert_same(before, lookup, KEYS, RNG)
    assert after.lookup(KEYS, columns=["w", "k"]).equals(after.read(columns=["w", "k"]).to_arrow().sort_by("k"))
    assert answered(after.lookup(KEYS, snapshot=1)) == expected(after, KEYS, snapshot=1)


def test_a_value_of_a_newer_schema_that_does_not_fit_is_refused_by_every_way(
    catalog: mg.Catalog, tmp_path: Path
) -> None:
    before = made(catalog)
    before.write(rows(range(6), 1))
    changed = {"k": ("k", "INT NOT NULL"), "v": ("v", "BIGINT"), "t": ("u", "STRING")}
    after = evolve(catalog, changed, {"w": "INT"})
    after.write([{"k": 1, "v": 2**40, "u": "later", "w": 1}, {"k": 7, "v": 8, "u": "later", "w": 7}])
    for name in WAYS:
        with way(name), handle(before, name, tmp_path) as lookup:
            for keys in ({"k": 1}, [{"k": 0}, {"k": 1}]):
                with pytest.raises(ConflictError, match=r"column .v. .* open the table again"):
                    lookup.lookup(keys)
            assert lookup.lookup({"k": 1}, columns=["k", "t"]).to_pylist() == [{"k": 1, "t": "later"}]
            assert lookup.lookup({"k": 0}).num_rows == 1
    with pytest.raises(ConflictError, match=r"[oO]pen the table again"):
        before.upsert([{"k": 1, "v": 1}], columns=["k", "v"])
    assert after.lookup({"k": 1}).to_pylist() == [{"k": 1, "v": 2**40, "u": "later", "w": 1}]


def test_buckets_whose_number_was_changed_are_looked_up(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(rows(range(12), 1))
    more = with_option(catalog, "bucket", "5")
    for again in (more, table):
        assert answered(again.lookup(KEYS)) == expected(again, KEYS)
    more.write(rows(range(2, 14), 2), overwrite={})
    for again in (more, table):
        assert_same(again, again.lookups(), KEYS, RNG)
        assert answered(again.lookup(KEYS, snapshot=1)) == expected(again, KEYS, snapshot=1)


def test_a_branch_is_looked_up_as_it_is_read(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(rows(range(6), 1))
    table.branches.create("b")
    branch = table.branch("b")
    branch.write(rows(range(3, 9), 2))
    table.write(rows(range(2), 3))
    for each in (table, branch, table):
        assert answered(each.lookup(KEYS)) == expected(each, KEYS)
        assert_same(each, each.lookups(), KEYS, RNG)


def test_a_lookup_in_an_event_loop_gives_the_same(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(rows(range(6), 1))
    lookup = table.lookups()

    async def every() -> list[Any]:
        return await asyncio.gather(*(lookup.lookup_async({"k": k}) for k in range(12)))

    assert [row for found in asyncio.run(every()) for row in answered(found)] == expected(table, KEYS)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("sequence.snapshot-ordering", "true"),
        ("pk-clustering-override", "true"),
        ("scan.fallback-branch", "main"),
    ],
)
def test_what_reads_refuse_lookups_refuse(option: str, value: str, catalog: mg.Catalog) -> None:
    """Otherwise rows would be merged by rules that the table does not have."""
    table = made(catalog, bucket="1")
    table.write(rows(range(6), 1))
    table.write(rows(range(6), 2))
    other = with_option(catalog, option, value)
    for call in (lambda: other.read().to_arrow(), lambda: other.lookup({"k": 1}), lambda: other.lookup(KEYS)):
        with pytest.raises(UnsupportedError, match=option):
            call()


def test_what_reads_refuse_to_merge_lookups_find_where_nothing_is_merged(catalog: mg.Catalog) -> None:
    made(catalog, bucket="1").write(rows(range(6), 1))
    table = with_option(catalog, "sequence.snapshot-ordering", "true")
    assert answered(table.lookup(KEYS)) == expected(table, KEYS)


def test_a_column_dropped_and_added_again_is_another_column(catalog: mg.Catalog) -> None:
    made(catalog).write(rows(range(6), 1))
    kept = {"k": ("k", "INT NOT NULL"), "v": ("v", "INT")}
    evolve(catalog, kept, {})
    table = evolve(catalog, kept, {"t": "STRING"})
    table.write(rows([7], 2))
    assert answered(table.lookup(KEYS)) == expected(table, KEYS)


def test_a_closed_handle_refuses(catalog: mg.Catalog) -> None:
    table = made(catalog)
    table.write(rows(range(6), 1))
    with table.lookups() as lookup:
        lookup.lookup(KEYS)
    for call in (lambda: lookup.lookup({"k": 1}), lambda: lookup.lookup([]), lookup.refresh):
        with pytest.raises(InvalidInputError, match="is closed"):
            call()


def test_rows_in_a_partition_of_null_are_found(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT", "p": "STRING"}, primary_key=["k"], partition_by=["p"])
    rows = [{"k": 1, "p": None}, {"k": 2, "p": "a"}]
    table.write(rows)
    with table.lookups() as lookups:
        assert lookups.lookup([*rows, {"k": 2, "p": None}]).to_pylist() == rows
        with pytest.raises(InvalidInputError, match="key column 'k' is null"):
            lookups.lookup({"k": None, "p": None})
