"""Tables that are altered: rows before and after, handles that were opened before, and several who alter at once."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest

import merganser as mg
from merganser import changes as c
from merganser.errors import ConflictError, InvalidInputError, NotFoundError, Overtaken, UnsupportedError
from merganser.meta.schemas import SchemaStore
from merganser.upkeep import alter as module


@pytest.fixture
def catalog(tmp_path):
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    return catalog


@pytest.fixture
def table(catalog):
    return catalog.create_table("db.t", {"id": "INT", "n": "INT", "s": "STRING"}, primary_key=["id"])


def rows(table, **how):
    return sorted(table.read(**how).to_pylist(), key=lambda row: row["id"])


def test_a_table_is_altered_and_read_with_its_new_columns(catalog, table):
    table.write([{"id": 1, "n": 7, "s": "a"}])
    made = table.alter(
        [c.rename_column("n", "m"), c.retype_column("m", "BIGINT"), c.add_column("x", "DATE", after="id")]
    )
    assert made.schema.id == 1
    assert rows(made) == [{"id": 1, "x": None, "m": 7, "s": "a"}]
    assert catalog.table("db.t").schema == made.schema
    assert rows(made, where="m = 7") == rows(made)


def test_a_catalog_alters_tables_and_branches_by_name(catalog, table):
    table.write([{"id": 1, "n": 7, "s": "a"}])
    table.tags.create("v1")
    table.branches.create("b", tag="v1")
    assert catalog.alter_table("db.t$branch_b", [c.drop_column("n")]).schema.names == ("id", "s")
    assert catalog.table("db.t").schema.names == ("id", "n", "s")
    with pytest.raises(NotFoundError, match=r"there is no table 'db\.x'"):
        catalog.alter_table("db.x", [c.drop_column("n")])
    with pytest.raises(InvalidInputError, match="Alter the table"):
        catalog.alter_table("db.t$snapshots", [c.drop_column("n")])


def test_time_travel_shows_the_columns_of_then(catalog, table):
    first = table.write([{"id": 1, "n": 7, "s": "a"}])
    table.tags.create("v1")
    made = table.alter([c.drop_column("n"), c.add_column("x", "INT")])
    made.write([{"id": 2, "s": "b", "x": 5}])
    assert rows(made) == [{"id": 1, "s": "a", "x": None}, {"id": 2, "s": "b", "x": 5}]
    assert rows(made, snapshot=first.id) == rows(made, tag="v1") == [{"id": 1, "n": 7, "s": "a"}]


def test_a_handle_that_was_opened_before_goes_on(table):
    table.write([{"id": 1, "n": 7, "s": "a"}])
    writer = table.writer()
    writer.write([{"id": 2, "n": 8, "s": "b"}])
    made = table.alter(
        [c.rename_column("s", "text"), c.add_column("x", "INT", default=3), c.retype_column("n", "BIGINT")]
    )
    writer.commit()
    writer.abort()
    table.write([{"id": 3, "n": 9, "s": "c"}])
    made.write([{"id": 4, "n": 2**40, "text": "d", "x": None}])
    assert rows(made) == [
        {"id": 1, "n": 7, "text": "a", "x": None},
        {"id": 2, "n": 8, "text": "b", "x": None},
        {"id": 3, "n": 9, "text": "c", "x": None},
        {"id": 4, "n": 2**40, "text": "d", "x": 3},
    ]
    assert rows(table, columns=["id", "s"])[3] == {"id": 4, "s": "d"}
    with pytest.raises(ConflictError, match="open the table again"):
        rows(table)
    made.compact(full=True)
    assert len(rows(made)) == 4
    assert made.check() == ()


def test_what_others_changed_meanwhile_stays_when_it_is_something_else(table, monkeypatch):
    other = [c.add_column("x", "INT"), c.set_option("snapshot.num-retained.max", 20)]
    between(monkeypatch, table, other)
    made = table.alter([c.add_column("y", "INT"), c.drop_column("n")])
    assert made.schema.id == 2
    assert made.schema.names == ("id", "s", "x", "y")
    assert made.options["snapshot.num-retained.max"] == "20"


@pytest.mark.parametrize(
    ("other", "own", "said"),
    [
        (c.drop_column("n"), c.retype_column("n", "BIGINT"), "changed column 'n'"),
        (c.add_column("x", "INT"), c.add_column("x", "STRING"), "changed column 'x'"),
        (c.rename_column("n", "m"), c.add_column("x", "INT", after="n"), "changed column 'n'"),
        (c.set_option("write-only", True), c.set_option("write-only", False), "changed option 'write-only'"),
        (c.set_comment("a"), c.set_comment("b"), "changed the description"),
        (c.rename_column("n", "m"), c.set_option("sequence.field", "n"), "sequence field 'n' is not found"),
    ],
)
def test_who_changes_the_same_as_others_is_told(table, monkeypatch, other, own, said):
    between(monkeypatch, table, [other])
    with pytest.raises(ConflictError, match=said) as caught:
        table.alter([own])
    assert caught.value.overtaken is Overtaken.SCHEMA
    assert SchemaStore(table.definition.paths, table.env).ids() == [0, 1]


def between(monkeypatch, table, changes):
    """Let another one alter the table while the next call that alters it has looked and not yet made its schema."""
    plain = module.check_filters
    calls = []

    def looked(*args, **kwargs):
        plain(*args, **kwargs)
        if not calls:
            calls.append(1)
            mg.table(table.path).alter(changes)

    monkeypatch.setattr(module, "check_filters", looked)


def test_a_writer_that_began_before_an_empty_table_was_altered_is_told(table):
    writer = table.writer()
    writer.write([{"id": 1, "n": 7, "s": "a"}])
    made = table.alter([c.set_option("merge-engine", "partial-update"), c.rename_column("id", "key")])
    with pytest.raises(ConflictError, match="'merge-engine' has changed since this write began"):
        writer.commit()
    writer.abort()
    made.write([{"key": 1, "n": 7, "s": "a"}])
    assert made.check() == ()


def test_a_renamed_key_is_no_other_key_to_a_writer_that_began_before(table):
    writer = table.writer()
    writer.write([{"id": 1, "n": 7, "s": "a"}])
    made = table.alter([c.rename_column("id", "key")])
    writer.commit()
    writer.abort()
    assert made.read().to_pylist() == [{"key": 1, "n": 7, "s": "a"}]


def test_a_change_for_empty_tables_is_taken_back_when_rows_came_before_it(table, monkeypatch):
    plain = SchemaStore.create

    def late(store, schema):
        if schema.id == 1:
            monkeypatch.setattr(SchemaStore, "create", plain)
            table.write([{"id": 1, "n": 7, "s": "a"}])
        return plain(store, schema)

    monkeypatch.setattr(SchemaStore, "create", late)
    with pytest.raises(ConflictError, match="'merge-engine' cannot change"):
        table.alter([c.set_option("merge-engine", "aggregation")])
    now = mg.table(table.path)
    assert (now.schema.id, now.options.get("merge-engine")) == (2, None)
    assert rows(now) == [{"id": 1, "n": 7, "s": "a"}]


def test_what_this_version_could_not_write_is_refused(table):
    with pytest.raises(UnsupportedError, match=r"cannot alter 'db\.t'.*manifest\.format"):
        table.alter([c.set_option("manifest.format", "orc")])
    with pytest.raises(UnsupportedError, match=r"cannot alter 'db\.t'.*Avro has no VARIANT"):
        table.alter([c.set_option("file.format", "avro"), c.add_column("v", "VARIANT")])
    with pytest.raises(InvalidInputError, match=r"cannot alter 'db\.t'.*cannot have a Bloom filter"):
        table.alter([c.add_column("a", "ARRAY<INT>"), c.set_option("file-index.bloom-filter.columns", "a")])


def test_a_dropped_table_is_not_altered(catalog, table):
    catalog.drop_table("db.t")
    with pytest.raises(NotFoundError, match="no longer exists"):
        table.alter([c.drop_column("n")])
    assert catalog.list_tables("db") == []
    catalog.create_table("db.t", {"id": "INT"})
    with pytest.raises(ConflictError, match="dropped and re-created"):
        table.alter([c.drop_column("n")])


def test_schemas_are_listed(table):
    made = table.alter([c.add_column("x", "INT", comment="new"), c.set_comment("of things")])
    listed = made.system("schemas").to_pylist()
    assert [row["schema_id"] for row in listed] == [0, 1]
    assert listed[1]["comment"] == "of things"
    assert '"description":"new"' in listed[1]["fields"].replace(": ", ":")


def test_options_and_columns_that_filter_are_asked_of_old_files_rightly(table):
    table = table.alter([c.set_option("file-index.bloom-filter.columns", "n,s"), c.set_option("write-only", True)])
    table.write([{"id": i, "n": i, "s": str(i)} for i in range(20)])
    made = table.alter(
        [
            c.rename_column("s", "n2"),
            c.rename_column("n", "s"),
            c.retype_column("s", "BIGINT"),
            c.rename_column("n2", "n"),
        ]
    )
    assert made.options["file-index.bloom-filter.columns"] == "s,n"
    made.write([{"id": 100 + i, "s": i, "n": str(i)} for i in range(20)])
    assert [row["id"] for row in rows(made, where="s = 7")] == [7, 107]
    assert [row["id"] for row in rows(made, where="n = '7'")] == [7, 107]
    assert made.read(where="n = '33'").to_pylist() == []


def test_keys_are_looked_up_in_files_of_older_schemas(table):
    table.write([{"id": i, "n": i, "s": str(i)} for i in range(1000)])
    made = table.alter([c.rename_column("id", "key"), c.retype_column("n", "STRING"), c.add_column("x", "INT")])
    with made.lookups() as asked:
        for _ in range(3):
            found = asked.lookup([{"key": 7}, {"key": 8}])
    made.write([{"key": 7, "n": "seven", "s": "", "x": 1}])
    assert found.to_pylist() == [
        {"key": 7, "n": "7", "s": "7", "x": None},
        {"key": 8, "n": "8", "s": "8", "x": None},
    ]
    assert made.lookup([{"key": 7}]).to_pylist() == [{"key": 7, "n": "seven", "s": "", "x": 1}]
    assert made.upsert([{"key": 8, "x": 2}], columns=["key", "x"]).updated == 1
    assert made.lookup([{"key": 8}]).to_pylist() == [{"key": 8, "n": "8", "s": "8", "x": 2}]


def test_a_stream_goes_on_with_the_columns_of_each_commit(table):
    stream = table.stream(start="latest-full", follow=False)
    table.write([{"id": 1, "n": 7, "s": "a"}])
    made = table.alter([c.add_column("x", "INT"), c.rename_column("n", "m"), c.retype_column("m", "STRING")])
    made.write([{"id": 2, "m": "8", "s": "b", "x": 5}])
    assert [found.drop_columns(["_row_kind"]).to_pylist() for found in stream] == [
        [{"id": 1, "n": 7, "s": "a"}],
        [{"id": 2, "m": "8", "s": "b", "x": 5}],
    ]


def test_a_stream_that_asks_for_a_column_that_goes_says_so_and_where_to_go_on(table):
    stream = table.stream(start="latest-full", follow=False, columns=["id", "n"])
    made = table.alter([c.drop_column("n")])
    snapshot = made.write([{"id": 2, "s": "b"}])
    with pytest.raises(ConflictError, match=f"no column 'n' any more.*'scan.snapshot-id' = '{snapshot.id}'"):
        next(stream)


def test_a_changelog_of_an_older_schema_is_read_with_the_newest_columns(catalog):
    table = catalog.create_table(
        "db.c", {"id": "INT", "n": "INT"}, primary_key=["id"], options={"changelog-producer": "lookup", "bucket": "1"}
    )
    table.write([{"id": 1, "n": 1}])
    made = table.alter([c.rename_column("n", "m"), c.retype_column("m", "BIGINT"), c.add_column("x", "INT")])
    made.write([{"id": 1, "m": 2**40, "x": 3}])
    assert [tuple(row.values()) for row in made.changes().to_pylist()] == [
        ("+I", 1, 1, None),
        ("-U", 1, 1, None),
        ("+U", 1, 2**40, 3),
    ]


def test_functions_fold_old_values_in_the_new_type(catalog):
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "bucket": "1"}
    table = catalog.create_table("db.a", {"id": "INT", "n": "INT"}, primary_key=["id"], options=options)
    table.write([{"id": 1, "n": 2**31 - 1}])
    made = table.alter([c.retype_column("n", "BIGINT"), c.rename_column("n", "total")])
    made.write([{"id": 1, "total": 2**31}])
    table.write([{"id": 1, "n": 1}])
    assert made.read().to_pylist() == [{"id": 1, "total": 2**32}]
    made.compact(full=True)
    assert made.read().to_pylist() == [{"id": 1, "total": 2**32}]


def test_records_of_a_shard_stream_have_the_columns_of_their_commit(catalog):
    table = catalog.create_table(
        "db.s", {"id": "INT", "n": "INT"}, primary_key=["id"], options={"bucket": "1", "stream.enabled": "true"}
    )
    table.write([{"id": 1, "n": 7}])
    made = table.alter([c.rename_column("n", "m"), c.add_column("x", "INT")])
    made.write([{"id": 1, "m": 8, "x": 9}])
    (shard,) = made.shards()
    got = made.records(made.shard_iterator(shard.shard_id, at="trim_horizon"), limit=10)
    assert got.records.select(["id", "m", "x"]).to_pylist() == [
        {"id": 1, "m": 7, "x": None},
        {"id": 1, "m": 8, "x": 9},
    ]


def test_rows_move_to_another_number_of_buckets_that_was_set(table):
    table.alter([c.set_option("bucket", 2)])
    table = mg.table(table.path)
    table.write([{"id": i, "n": i, "s": ""} for i in range(50)])
    made = table.alter([c.set_option("bucket", 3)])
    with pytest.raises(InvalidInputError, match="bucket"):
        made.write([{"id": 7, "n": 0, "s": ""}])
    made.rescale(buckets=3)
    made.write([{"id": 7, "n": 0, "s": ""}])
    assert made.read().count() == 50
    assert made.check() == ()


def test_deletion_vectors_are_turned_on_and_off(table):
    table.write([{"id": i, "n": i, "s": ""} for i in range(20)])
    on = table.alter(
        [c.set_option("deletion-vectors.modifiable", True), c.set_option("deletion-vectors.enabled", True)]
    )
    on.compact(full=True)
    on.write([{"id": 3, "n": -1, "s": ""}])
    off = on.alter([c.set_option("deletion-vectors.enabled", False)])
    off.write([{"id": 4, "n": -2, "s": ""}])
    table.write([{"id": 5, "n": -3, "s": ""}])
    for _ in range(2):
        assert [row["n"] for row in rows(off)] == [0, 1, 2, -1, -2, -3, *range(6, 20)]
        assert off.check() == ()
        off.compact(full=True)


def test_a_sequence_group_follows_the_new_name_of_a_column_of_one_letter(catalog: mg.Catalog) -> None:
    options = {"merge-engine": "partial-update", "fields.s.sequence-group": "w", "bucket": "1"}
    table = catalog.create_table("db.group", {"id": "BIGINT", "s": "INT", "w": "INT"}, ["id"], options=options)
    table.write([{"id": 1, "s": 5, "w": 1}])
    table = table.alter([mg.changes.rename_column("s", "zz")])
    table.write([{"id": 1, "zz": 3, "w": 9}])
    assert table.schema.options.get("fields.zz.sequence-group") == "w"
    assert table.read().to_pylist() == [{"id": 1, "zz": 5, "w": 1}]


def test_a_stream_ends_before_other_columns_if_that_is_asked_for(table):
    table.write([{"id": 1, "n": 1, "s": "a"}])
    stream = table.stream(follow=False, **{"scan.schema-changes": "end"})
    assert [part.num_rows for part in stream] == [1]
    table.alter([c.set_option("snapshot.num-retained.max", "50")]).write([{"id": 2, "n": 1, "s": "b"}])
    assert [part.num_rows for part in stream] == [1]
    made = table.alter([c.add_column("x", "INT"), c.rename_column("s", "text"), c.drop_column("n")])
    made.write([{"id": 3, "text": "c", "x": 5}])
    with pytest.raises(
        ConflictError, match=r"snapshot 3 the table has other columns .*: new or other are '?text.*gone are"
    ):
        next(stream)
    again = made.stream(follow=False, start="from-snapshot", **{"scan.snapshot-id": 3, "scan.schema-changes": "end"})
    assert [part.to_pylist() for part in again] == [[{"_row_kind": "+I", "id": 3, "text": "c", "x": 5}]]


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("producer", ["none", "lookup", "full-compaction", "per-record"])
@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_rows_with_nulls_in_a_column_that_is_not_null_now_are_read_written_over_and_compacted(catalog, producer, kind):
    options = {"bucket": "1", "file.format": kind, "changelog-producer": producer}
    table = catalog.create_table("db.x", {"id": "INT", "n": "INT"}, primary_key=["id"], options=options)
    table.write([{"id": 1, "n": None}, {"id": 2, "n": 2}])
    there = table.write([{"id": 3, "n": 3}])
    table.write([{"id": 1, "n": 0}])
    table = table.alter([c.set_option("alter-column-null-to-not-null.disabled", "false"), c.set_nullable("n", False)])
    table.compact(full=True)  # versions that no read shows are null
    table.rollback(snapshot=there.id)
    table = catalog.table("db.x")
    seen = [{"id": 1, "n": None}, {"id": 2, "n": 2}, {"id": 3, "n": 3}]
    for _ in range(2):
        assert rows(table) == seen == sorted(table.read().to_reader().read_all().to_pylist(), key=lambda row: row["id"])
        assert table.lookup([{"id": 1}]).to_pylist() == seen[:1]
        assert [(found.code, found.problem) for found in table.check()] == [
            ("nulls", "column 'n' is NOT NULL, and null in 1 row of the table.")
        ]
        table.compact(full=True)
    table.delete("id = 2")
    table.update("n IS NULL", {"n": "7"})
    table.compact(full=True)
    assert rows(table) == [{"id": 1, "n": 7}, {"id": 3, "n": 3}]
    assert table.check() == ()


def test_rows_of_a_table_without_a_key_that_are_null_in_a_column_that_is_not_null_now_are_written_anew(catalog):
    table = catalog.create_table("db.x", {"id": "INT", "n": "INT"})
    table.write([{"id": 1, "n": None}, {"id": 2, "n": 2}, {"id": 3, "n": 3}])
    table.delete("id = 1")
    table = table.alter([c.set_option("alter-column-null-to-not-null.disabled", "false"), c.set_nullable("n", False)])
    table.rollback(snapshot=1)
    table = catalog.table("db.x")
    table.delete("id = 2")
    table.write([{"id": 4, "n": 4}])
    table.compact(full=True)
    assert rows(table) == [{"id": 1, "n": None}, {"id": 3, "n": 3}, {"id": 4, "n": 4}]
    table.update("n IS NULL", {"n": "7"})
    assert rows(table) == [{"id": 1, "n": 7}, {"id": 3, "n": 3}, {"id": 4, "n": 4}]
    assert table.check() == ()


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("producer", ["none", "lookup", "per-record"])
@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("key", [["id"], []])
def test_rows_with_nulls_in_a_field_that_is_not_null_now_are_read_and_written_anew(catalog, key, producer, kind):
    options = {"file.format": kind} | ({"bucket": "1", "changelog-producer": producer} if key else {})
    if not key and producer != "none":
        return
    table = catalog.create_table(
        "db.x", {"id": "INT", "r": "ROW<a INT, s ROW<b INT>>"}, primary_key=key, options=options
    )
    seen = [
        {"id": 1, "r": {"a": 1, "s": {"b": None}}},
        {"id": 2, "r": None},
        {"id": 3, "r": {"a": None, "s": None}},
        {"id": 4, "r": {"a": 4, "s": {"b": 4}}},
    ]
    table.write(seen)
    there = table.write([{"id": 5, "r": {"a": 5, "s": {"b": 5}}}])
    table.delete("id = 1 OR id = 3")
    table = table.alter([NOT_NULL[0], c.set_nullable("r.a", False), c.set_nullable("r.s.b", False)])
    table.compact(full=True)
    table.rollback(snapshot=there.id)
    table = catalog.table("db.x")
    table.delete("id = 5")
    table.delete("id = 4")
    for _ in range(2):
        assert rows(table) == seen[:3]
        assert [found.problem for found in table.check()] == [
            "column 'r.a' is NOT NULL, and null in 1 row of the table.",
            "column 'r.s.b' is NOT NULL, and null in 1 row of the table.",
        ]
        if key:
            assert table.lookup([{"id": 1}]).to_pylist() == seen[:1]
        table.write([{"id": 6, "r": None}])
        table.delete("id = 6")
        table.compact(full=True)
    table.delete("r IS NOT NULL AND r.a IS NULL")
    with pytest.raises(InvalidInputError, match="has null for its field 'b', which is NOT NULL"):
        table.write(seen[:1])
    table.delete("r IS NOT NULL AND r.s IS NOT NULL AND r.s.b IS NULL")
    assert rows(table) == seen[1:2]
    assert table.check() == ()


def test_the_optimised_table_shows_the_last_full_compaction_whatever_the_number_of_levels_is_now(catalog, table):
    table.write([{"id": 1, "n": 7, "s": "a"}])
    table.compact(full=True)
    for levels in ("9", "3"):
        table.alter([c.set_option("num-levels", levels)])
        catalog.table("db.t").write([{"id": 1, "n": int(levels), "s": "b"}])
        assert rows(catalog.table("db.t$ro")) == [{"id": 1, "n": 7, "s": "a"}]


NOT_NULL = (c.set_option("alter-column-null-to-not-null.disabled", "false"), c.set_nullable("n", False))


@pytest.mark.parametrize("options", [{}, {"metadata.stats-mode": "none"}, {"deletion-vectors.enabled": "true"}])
def test_a_column_becomes_not_null_once_no_row_is_null_in_it(catalog, options):
    table = catalog.create_table("db.x", {"id": "INT", "n": "INT"}, primary_key=["id"], options=options)
    table.write([{"id": 1, "n": None}, {"id": 2, "n": None}, {"id": 3, "n": 3}])
    table.write([{"id": 1, "n": 1}])
    with pytest.raises(
        InvalidInputError, match=r"'n' cannot become NOT NULL, since it is null in 1 row, such as id = 2"
    ):
        table.alter(NOT_NULL)
    assert catalog.table("db.x").schema.id == 0
    table.delete("id = 2")
    assert not table.alter(NOT_NULL).schema.field("n").type.nullable


def test_fields_become_not_null_once_no_row_that_has_one_is_null_in_it(catalog):
    table = catalog.create_table("db.x", {"id": "INT", "r": "ROW<a INT>", "l": "ARRAY<INT>"})
    table.write([{"id": 1, "r": None, "l": []}, {"id": 2, "r": {"a": None}, "l": []}])
    change = [NOT_NULL[0], c.set_nullable("r.a", False)]
    with pytest.raises(
        InvalidInputError, match=r"'r\.a' cannot become NOT NULL, since it is null in 1 row, such as id = 2"
    ):
        table.alter(change)
    table.delete("id = 2")
    table.alter(change)
    with pytest.raises(InvalidInputError, match="elements or values in column 'l' cannot become NOT NULL"):
        table.alter([NOT_NULL[0], c.set_nullable("l.element", False)])


def test_rows_that_are_null_in_a_column_that_became_not_null_are_refused_at_their_commit(catalog, table):
    table.write([{"id": 1, "n": 7, "s": "a"}])
    writer = table.writer(commit_user="w")
    writer.write([{"id": 2, "n": None, "s": "b"}])
    table.alter(NOT_NULL)
    for late in (lambda: writer.commit(identifier=1), lambda: table.write([{"id": 3, "n": None, "s": "b"}])):
        with pytest.raises(ConflictError, match="column 'n' became NOT NULL since this write began"):
            late()
    table.write([{"id": 4, "n": 4, "s": "d"}])  # a handle from before goes on with rows that fit
    assert [row["id"] for row in rows(catalog.table("db.t"))] == [1, 4]


NARROWED = [
    ([c.retype_column("v", "INT")], "column 'v' was changed from BIGINT to INT"),
    ([c.retype_column("d", "DECIMAL(10, 1)")], r"column 'd' was changed from DECIMAL\(10, 2\) to DECIMAL\(10, 1\)"),
    ([c.retype_column("s", "VARCHAR(3)")], r"column 's' was changed from VARCHAR\(5\) to VARCHAR\(3\)"),
    ([c.retype_column("at", "TIMESTAMP(3)")], r"column 'at' was changed from TIMESTAMP\(6\) to TIMESTAMP\(3\)"),
    ([c.drop_column("v")], "column 'v' was dropped, and another one has its name"),
    ([c.retype_column("at", "TIMESTAMP(9)")], r"column 'at' was changed from TIMESTAMP\(6\) to TIMESTAMP\(9\)"),
    ([c.retype_column("r.a", "INT")], r"column 'r\.a' was changed from BIGINT to INT"),
    ([c.retype_column("l.element", "INT")], r"column 'l\.element' was changed from BIGINT to INT"),
]
WIDE = {
    "id": "INT",
    "v": "BIGINT",
    "d": "DECIMAL(10, 2)",
    "s": "VARCHAR(5)",
    "at": "TIMESTAMP(6)",
    "r": "ROW<a BIGINT>",
    "l": "ARRAY<BIGINT>",
}


def wide(number):
    at, big = datetime(2026, 1, 1, microsecond=7), 2**40
    return {"id": number, "v": big, "d": Decimal("1.25"), "s": "abcde", "at": at, "r": {"a": big}, "l": [big]}


@pytest.mark.parametrize(("changes", "fact"), NARROWED)
def test_rows_written_by_wider_types_than_the_table_has_now_are_refused_at_their_commit(catalog, changes, fact):
    old = catalog.create_table("db.x", WIDE, primary_key=["id"])
    writer = old.writer()
    writer.write([wide(1)])
    old.alter(changes)
    if isinstance(changes[0], c.DropColumn):
        catalog.alter_table("db.x", [c.add_column("v", "INT")])
    for late in (writer.commit, lambda: old.write([wide(2)])):
        with pytest.raises(ConflictError, match=fact):
            late()
    assert rows(catalog.table("db.x")) == []


@pytest.mark.parametrize("options", [{}, {"bucket": "2"}, {"bucket": "-2"}])
@pytest.mark.parametrize("key", [["id"], None])
def test_every_write_through_a_handle_of_wider_types_is_refused(catalog, tmp_path, key, options):
    if not key and options:
        return
    old = catalog.create_table("db.x", {"id": "INT", "v": "BIGINT"}, primary_key=key, options=options)
    old.write([{"id": 1, "v": 1}])
    catalog.alter_table("db.x", [c.retype_column("v", "INT")])
    late = [{"id": 2, "v": 2**40}]
    (tmp_path / "late.json").write_text('{"id": 2, "v": 1099511627776}')
    calls = [
        lambda: old.write(late, overwrite={}),
        lambda: old.write(late, kinds=["+U"]),
        lambda: old.load(str(tmp_path / "late.json")),
        lambda: old.write_changes(['{"id": 2, "v": 1099511627776}'], "json"),
        lambda: old.update("id = 1", {"v": "1099511627776"}),
        lambda: (
            old.merge(late, on="target.id = source.id")
            .when_not_matched_insert({"id": "source.id", "v": "source.v"})
            .execute()
        ),
    ]
    if key:
        calls.append(lambda: old.upsert(late))
        calls.append(lambda: old.write(late, columns=["id", "v"]))
    for call in calls:
        with pytest.raises((ConflictError, InvalidInputError), match=r"column 'v' was changed|does not fit|INT"):
            call()
    old.delete("id = 5")
    assert rows(catalog.table("db.x")) == [{"id": 1, "v": 1}]


def test_a_writer_goes_on_when_columns_become_wider_or_are_dropped(catalog):
    kinds = {"id": "INT", "v": "INT", "s": "DATE", "x": "INT"}
    old = catalog.create_table("db.x", kinds, primary_key=["id"])
    writer = old.writer()
    writer.write([{"id": 1, "v": 1, "s": date(2026, 1, 1), "x": 1}])
    old.alter([c.retype_column("v", "BIGINT"), c.retype_column("s", "STRING"), c.drop_column("x")])
    writer.commit()
    old.write([{"id": 2, "v": 2, "s": date(2026, 1, 2), "x": 2}])
    assert rows(catalog.table("db.x")) == [{"id": i, "v": i, "s": f"2026-01-0{i}"} for i in (1, 2)]


def test_a_column_stays_nullable_when_a_null_came_before_its_schema(catalog, table, monkeypatch):
    table.write([{"id": 1, "n": 7, "s": "a"}])
    check = module.check_no_nulls

    def overtaken(*given, **how):
        check(*given, **how)
        monkeypatch.setattr(module, "check_no_nulls", check)
        table.write([{"id": 2, "n": None, "s": "b"}])

    monkeypatch.setattr(module, "check_no_nulls", overtaken)
    with pytest.raises(ConflictError, match="null in 1 row, such as id = 2"):
        table.alter(NOT_NULL)
    assert catalog.table("db.t").schema.field("n").type.nullable
