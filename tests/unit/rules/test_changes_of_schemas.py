"""The next schema of a table, made by changes: what each does, and what is refused, with the reason."""

from __future__ import annotations

from datetime import time

import pytest

from merganser import changes as c
from merganser.errors import InvalidInputError
from merganser.options.option import Options
from merganser.rules.alter import altered, touched
from merganser.rules.create import create_schema
from merganser.rules.named_columns import naming, renamed

COLUMNS = {
    "dt": "STRING",
    "id": "BIGINT",
    "n": "INT",
    "s": "STRING",
    "r": "ROW<x INT, y STRING, z ROW<q DOUBLE>>",
    "a": "ARRAY<ROW<u INT, element STRING>>",
    "m": "MAP<STRING, ROW<w INT>>",
    "must": "INT NOT NULL",
}


def keyed(**options):
    return create_schema(COLUMNS, primary_key=["dt", "id"], partition_by=["dt"], options=options or {"bucket": "2"})


def after(*changes, schema=None, written=True):
    return altered(schema or keyed(), changes, written=written, what="cannot alter 'db.t'")


def refused(*changes, schema=None, written=True):
    with pytest.raises(InvalidInputError) as caught:
        after(*changes, schema=schema, written=written)
    assert str(caught.value).startswith("cannot alter 'db.t': ")
    return str(caught.value)


def column(schema, name):
    return schema.field(name)


# ── columns ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_added_column_has_the_next_id_and_the_fields_inside_it_the_ids_after_it():
    before = keyed()
    made = after(c.add_column("new", "ROW<a INT, b STRING>", comment="why"))
    assert made.id == before.id + 1
    assert column(made, "new").id == before.highest_field_id + 1
    assert [f.id for f in column(made, "new").type.fields] == [before.highest_field_id + 2, before.highest_field_id + 3]
    assert made.highest_field_id == before.highest_field_id + 3
    assert column(made, "new").description == "why"
    assert made.names[-1] == "new"


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (c.add_column("x", "INT", first=True), "x dt id n s r a m must"),
        (c.add_column("x", "INT", after="id"), "dt id x n s r a m must"),
        (c.move_column("s", first=True), "s dt id n r a m must"),
        (c.move_column("s", after="m"), "dt id n r a m s must"),
        (c.move_column("s"), "dt id n r a m must s"),
        (c.move_column("id", first=True), "id dt n s r a m must"),
        (c.drop_column("n"), "dt id s r a m must"),
        (c.rename_column("n", "amount"), "dt id amount s r a m must"),
    ],
    ids=str,
)
def test_columns_stand_where_they_are_put(change, names):
    assert after(change).names == tuple(names.split())


def test_new_columns_stand_before_the_first_partition_column_when_the_table_says_so():
    schema = create_schema(
        {"id": "INT", "dt": "STRING", "h": "INT"},
        partition_by=["dt", "h"],
        options={"add-column-before-partition": "true"},
    )
    assert after(c.add_column("x", "INT"), schema=schema).names == ("id", "x", "dt", "h")
    assert after(c.add_column("x", "INT", after="h"), schema=schema).names == ("id", "dt", "h", "x")


def test_fields_inside_rows_arrays_and_maps_are_changed_by_their_paths():
    made = after(
        c.add_column("r.new", "INT", first=True),
        c.rename_column("r.z.q", "quota"),
        c.retype_column("r.x", "BIGINT"),
        c.drop_column("r.y"),
        c.add_column("a.v", "INT", after="a.u"),
        c.rename_column("a.element.element", "part"),
        c.retype_column("m.value.w", "BIGINT"),
        c.move_column("r.z", after="new"),
        c.comment_column("m.w", "of the map"),
    )
    assert str(column(made, "r").type) == "ROW<new INT, z ROW<quota DOUBLE>, x BIGINT>"
    assert str(column(made, "a").type) == "ARRAY<ROW<u INT, v INT, part STRING>>"
    assert str(column(made, "m").type) == "MAP<STRING, ROW<w BIGINT>>"
    assert column(made, "m").type.value.fields[0].description == "of the map"
    before = keyed()
    ids = {f.name: f.id for f in column(before, "r").type.fields}
    assert {f.name: f.id for f in column(made, "r").type.fields if f.name != "new"} == {"z": ids["z"], "x": ids["x"]}


def test_elements_and_values_have_types_that_change():
    schema = create_schema({"id": "INT", "a": "ARRAY<INT>", "m": "MAP<INT, DATE>"})
    made = after(c.retype_column("a.element", "BIGINT"), c.retype_column("m.value", "TIMESTAMP(3)"), schema=schema)
    assert [str(f.type) for f in made.fields] == ["INT", "ARRAY<BIGINT>", "MAP<INT, TIMESTAMP(3)>"]
    assert "only the type changes" in refused(c.rename_column("a.element", "x"), schema=schema)


def test_a_row_of_another_type_keeps_the_ids_of_the_fields_that_it_keeps():
    before = keyed()
    made = after(c.retype_column("r", "ROW<y STRING, x BIGINT, more INT>"))
    ids = {f.name: f.id for f in column(before, "r").type.fields}
    assert [(f.name, f.id) for f in column(made, "r").type.fields] == [
        ("y", ids["y"]),
        ("x", ids["x"]),
        ("more", before.highest_field_id + 1),
    ]


@pytest.mark.parametrize(
    ("column", "options"),
    [
        ("n", {"sequence.field": "n"}),
        ("n", {"merge-engine": "partial-update", "fields.n.sequence-group": "s"}),
        ("s", {"merge-engine": "partial-update", "fields.n.sequence-group": "s"}),
        ("s", {"file-index.bloom-filter.columns": "s"}),
    ],
)
@pytest.mark.parametrize("new", ["a,b", " a"])
def test_a_column_that_a_list_in_an_option_names_gets_no_name_that_the_list_cannot_hold(column, options, new):
    schema = keyed(**{"bucket": "2"} | options)
    assert "options separate names by commas" in refused(c.rename_column(column, new), schema=schema)
    assert new in [f.name for f in after(c.rename_column("m", new), schema=schema).fields]


def test_changes_of_one_call_are_made_one_after_the_other():
    made = after(c.rename_column("n", "x"), c.add_column("n", "DATE", after="x"), c.retype_column("x", "BIGINT"))
    assert made.id == 1
    assert [(f.name, str(f.type)) for f in made.fields[2:4]] == [("x", "BIGINT"), ("n", "DATE")]
    assert column(made, "x").id == column(keyed(), "n").id


def test_a_dropped_column_that_is_added_again_is_another_one():
    made = after(c.drop_column("n"), c.add_column("n", "INT", after="id"))
    assert column(made, "n").id == keyed().highest_field_id + 1


def test_a_type_keeps_the_nullability_of_its_column():
    assert str(column(after(c.retype_column("must", "BIGINT")), "must").type) == "BIGINT NOT NULL"
    assert str(column(after(c.set_nullable("must", True)), "must").type) == "INT"


def test_nothing_changes_when_everything_is_as_asked_already():
    schema = keyed()
    assert after(c.set_nullable("n", True), c.retype_column("n", "INT"), c.set_comment(None), schema=schema) is schema
    assert after(c.set_option("bucket", 2), c.remove_option("file.format"), schema=schema) is schema
    assert after(c.add_column("x", "INT"), c.drop_column("x"), schema=schema).names == schema.names


def test_defaults_are_values_or_texts_and_have_to_parse():
    made = after(
        c.set_default("n", 42),
        c.add_column("b", "BOOLEAN", default=True),
        c.add_column("l", "ARRAY<INT>", default="[1, 2]"),
    )
    assert [column(made, name).default for name in ("n", "b", "l")] == ["42", "true", "[1, 2]"]
    assert column(after(c.set_default("n", None), schema=made), "n").default is None
    assert column(after(c.add_column("t", "TIME(3)", default=time(13, 5))), "t").default == "13:05:00"
    assert "not a literal of type INT" in refused_plain(c.set_default("n", "many"))


def test_the_values_of_the_default_of_a_row_stay_with_its_fields():
    schema = after(c.add_column("p", "ROW<x INT, y INT>", default="{1, 2}"))
    for change in (c.move_column("p.y", first=True), c.add_column("p.z", "INT"), c.drop_column("p.x")):
        with pytest.raises(InvalidInputError, match="go by the places of the fields"):
            after(change, schema=schema)
        assert column(after(change, c.set_default("p", None), schema=schema), "p").default is None
    moved = after(c.move_column("p.y", first=True), c.set_default("p", "{1, 2}"), schema=schema)
    assert column(moved, "p").default == "{1, 2}"
    assert column(after(c.rename_column("p.x", "z"), schema=schema), "p").default == "{1, 2}"


def refused_plain(*changes):
    with pytest.raises(InvalidInputError) as caught:
        after(*changes)
    return str(caught.value)


def test_a_default_of_an_option_goes_with_the_default_of_its_column():
    schema = keyed(**{"bucket": "2", "fields.n.default-value": "7"})
    assert "fields.n.default-value" not in after(c.set_default("n", None), schema=schema).options


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (c.add_column("n", "INT"), "column 'n' exists already, with the type INT"),
        (c.add_column("x", "INT NOT NULL"), "NOT NULL"),
        (c.add_column("x", "INTT"), "INTT"),
        (c.add_column("x", "INT", after="nn"), "there is no column 'nn' to stand after. Choose one of 8"),
        (c.add_column("x", "INT", after="n", first=True), "Give one of them"),
        (c.add_column("_KEY_x", "INT"), "names that start with '_KEY_' are the system's"),
        (c.add_column("n.x", "INT"), "has the type INT and no fields"),
        (c.add_column("q.x", "INT"), "there is no column 'q'"),
        (c.add_column("r.x", "INT"), "exists already"),
        (c.add_column("r.w", "INT NOT NULL"), "NOT NULL"),
        (c.add_column("r.w", "INT", default=1), "only columns have defaults"),
        (c.drop_column("id"), "primary key column 'id' cannot be dropped"),
        (c.drop_column("dt"), "column 'dt' cannot be dropped"),
        (c.drop_column("x"), "there is no column 'x'"),
        (c.drop_column("r.z.q"), "'r.z.q' is the last one"),
        (c.rename_column("dt", "d"), "partition column 'dt' cannot be renamed"),
        (c.rename_column("n", "s"), "a column of this name exists"),
        (c.rename_column("n", "r.n"), "a dot leads into a ROW"),
        (c.rename_column("n", "_VALUE_KIND"), "name of a system column"),
        (c.retype_column("id", "STRING"), "primary key column 'id' cannot have another type"),
        (c.retype_column("dt", "INT"), "column 'dt' cannot have another type"),
        (c.retype_column("n", "DATE"), "is INT and cannot become DATE"),
        (c.retype_column("m", "MAP<INT, ROW<w INT>>"), "cannot become MAP<INT"),
        (c.retype_column("n", "INT NOT NULL"), "'alter-column-null-to-not-null.disabled'"),
        (c.set_nullable("n", False), "column 'n' is nullable and cannot become NOT NULL"),
        (c.set_nullable("id", True), "primary key column 'id' cannot have another nullability"),
        (c.move_column("n", after="n"), "cannot stand after itself"),
        (c.comment_column("n", 5), "Give text, or None"),
        (c.set_default("r.x", 1), "only columns have defaults"),
        (c.set_comment(5), "Give text, or None"),
        ("add", "Give a list such as"),
        (["add"], "'add' is a str, and no change of a schema"),
        ([], "there are no changes"),
        ([c.drop_column(None)], "the name of DropColumn is None"),
    ],
    ids=str,
)
def test_a_change_that_a_table_may_not_have_is_refused_with_the_reason(change, said):
    changes = change if isinstance(change, str | list) else [change]
    with pytest.raises(InvalidInputError) as caught:
        altered(keyed(), changes, written=True, what="cannot alter 'db.t'")
    assert str(caught.value).startswith("cannot alter 'db.t': ")
    assert said in str(caught.value)


def test_changes_of_type_that_may_lose_something_can_be_forbidden():
    schema = keyed(**{"bucket": "2", "disable-explicit-type-casting": "true"})
    assert after(c.retype_column("n", "BIGINT"), schema=schema).id == 1
    assert after(c.retype_column("n", "DOUBLE"), schema=schema).id == 1
    for kind in ("SMALLINT", "STRING"):
        assert "which may lose information" in refused(c.retype_column("n", kind), schema=schema)
    assert "which may lose information" in refused(c.retype_column("s", "VARCHAR(3)"), schema=schema)


def test_a_column_becomes_not_null_where_the_table_allows_it():
    schema = keyed(**{"bucket": "2", "alter-column-null-to-not-null.disabled": "false"})
    assert not column(after(c.set_nullable("n", False), schema=schema), "n").type.nullable
    assert str(column(after(c.retype_column("n", "BIGINT NOT NULL"), schema=schema), "n").type) == "BIGINT NOT NULL"


# ── options ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("merge-engine", "partial-update", "rows that are stored were merged by it"),
        ("bucket-key", "id", "rows lie in the buckets that it chose"),
        ("bucket-function.type", "mod", "rows lie in the buckets that it chose"),
        ("bucket", "-1", "rows lie in buckets that no hash chooses"),
        ("bucket", "-2", "rows wait for their buckets"),
        ("bucket-key", "id", "cannot change from none to 'id'"),
        ("deletion-vectors.enabled", "true", "cannot change from 'false' to 'true'"),
        ("data-file.path-directory", "d", "files lie where it says"),
        ("partition.default-name", "none", "files lie where it says"),
        ("rowkind.field", "s", "rows that are stored were merged by it"),
        ("force-lookup", "true", "rows that are stored were merged by it"),
        ("primary-key.nullable", "true", "files that are there were written by it"),
        ("deletion-vectors.enabled", "true", "Set 'deletion-vectors.modifiable' = 'true' to allow it"),
        ("primary-key", "id", "files are sorted by it"),
    ],
)
def test_an_option_that_rows_depend_on_changes_before_the_first_snapshot_alone(key, value, reason):
    said = refused(c.set_option(key, value))
    assert key.partition(".")[0] in said.replace("primary key", "primary-key")
    assert reason in said
    assert said.endswith("Nothing was changed.")
    if key not in ("primary-key", "bucket-function.type"):
        assert after(c.set_option(key, value), written=False).id == 1


@pytest.mark.parametrize("key", ["type", "path", "partition", "write-mode", "merganser.stream"])
def test_some_options_never_change(key):
    value = {"type": "view", "write-mode": "change-log"}.get(key, "id")
    said = refused(c.set_option(key, value), written=False)
    assert f"'{key}' cannot change" in said


def test_an_option_that_there_is_not_is_not_removed():
    schema = keyed(**{"bucket": "2", "team.owner": "x"})
    assert "team.owner" not in after(c.remove_option("team.owner"), schema=schema).options
    after(c.remove_option("snapshot.time-retained"), c.remove_option("hive.x"), schema=schema)
    said = refused(c.remove_option("snapshot.time-retaind"), schema=schema)
    assert "unknown table option 'snapshot.time-retaind'. Did you mean 'snapshot.time-retained'?" in said
    assert "it has no option 'team.ownr'. Did you mean 'team.owner'?" in refused(
        c.remove_option("team.ownr"), schema=schema
    )
    assert "There is none that is similar" in refused(c.remove_option("xyzzy"), schema=schema)


def test_an_option_may_be_set_to_the_value_that_it_has():
    schema = keyed()
    for key, value in (("merge-engine", "deduplicate"), ("bucket", 2), ("primary-key", "dt,id"), ("partition", "dt")):
        after(c.set_option(key, value), schema=schema)


def test_the_number_of_buckets_changes_between_numbers_and_is_not_removed():
    assert after(c.set_option("bucket", 8)).bucket == 8
    assert "'bucket' cannot change from '2' to '-1'" in refused(c.remove_option("bucket"))
    assert "cannot change from '-1' to '4'" in refused(c.set_option("bucket", 4), schema=keyed(comment="x"))


@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_a_log_becomes_eventual_before_the_first_snapshot_if_compactions_publish(producer):
    log = {"log.system": "kafka", "kafka.bootstrap.servers": "nowhere"}
    schema = keyed(**{"bucket": "2", "changelog-producer": producer, **log})
    change = c.set_option("log.consistency", "eventual")
    said = refused(change, schema=schema)
    assert "'log.consistency' cannot change from 'transactional' to 'eventual'" in said
    assert "rows that wait for the compaction to publish them" in said
    eventual = after(change, schema=schema, written=False)
    assert after(c.set_option("log.consistency", "transactional"), schema=eventual).options["log.system"] == "kafka"
    after(change, schema=keyed(**{"bucket": "2", "changelog-producer": "input", **log}))


def test_rows_that_were_dropped_stay_dropped():
    schema = keyed(**{"bucket": "2", "ignore-delete": "true"})
    assert "'ignore-delete' cannot change from 'true'" in refused(c.remove_option("ignore-delete"), schema=schema)
    assert after(c.set_option("ignore-delete", True)).options["ignore-delete"] == "true"


def test_deletion_vectors_change_where_the_table_allows_it():
    made = after(c.set_option("deletion-vectors.modifiable", True), c.set_option("deletion-vectors.enabled", True))
    assert made.options["deletion-vectors.enabled"] == "true"


def test_options_are_judged_with_the_columns_of_the_same_call():
    schema = keyed(**{"bucket": "2", "merge-engine": "aggregation"})
    made = after(c.set_option("fields.x.aggregate-function", "max"), c.add_column("x", "INT"), schema=schema)
    assert made.options["fields.x.aggregate-function"] == "max"
    assert "column 'x' is not found" in refused_any(schema, c.set_option("fields.x.aggregate-function", "max"))
    assert "Did you mean 'file.format'?" in refused_any(schema, c.set_option("file-format", "orc"))


def refused_any(schema, *changes):
    with pytest.raises(InvalidInputError) as caught:
        after(*changes, schema=schema)
    return str(caught.value)


def test_options_are_set_in_the_words_of_others():
    assert after(c.set_option("changelog-producer", "per-record")).options["changelog-producer"] == "input"
    made = after(
        c.set_option("merge-engine", "versioned"),
        c.set_option("merge-engine.versioned.ver-column", "n"),
        written=False,
    )
    assert (made.options["merge-engine"], made.options["sequence.field"]) == ("deduplicate", "n")
    plain = after(
        c.set_option("changelog-producer", "input"), schema=after(c.set_option("changelog-producer", "per-record"))
    )
    assert "merganser.changelog-producer" not in plain.options


def test_an_older_spelling_of_an_option_goes_when_the_option_is_set():
    schema = keyed(**{"bucket": "2", "write.compaction-skip": "true"})
    made = after(c.set_option("write-only", "false"), schema=schema)
    assert "write.compaction-skip" not in made.options
    assert "write.compaction-skip" not in after(c.remove_option("write-only"), schema=schema).options


def test_a_table_without_rows_gets_another_primary_key():
    schema = create_schema({"id": "BIGINT", "n": "INT"})
    made = after(c.set_option("primary-key", "id"), schema=schema, written=False)
    assert made.primary_keys == ("id",)
    assert str(column(made, "id").type) == "BIGINT NOT NULL"
    assert after(c.remove_option("primary-key"), schema=made, written=False).primary_keys == ()
    assert "keys may repeat" in refused(c.set_option("primary-key", "id"), schema=schema)


def test_secrets_are_not_stored():
    assert "holds a secret" in refused_any(keyed(), c.set_option("s3.secret-key", "x"))


# ── options that name columns ─────────────────────────────────────────────────────────────────────────────────────────


NAMING = {
    "bucket-key": "n,s",
    "sequence.field": "n, s",
    "rowkind.field": "n",
    "record-level.time-field": "n",
    "clustering.columns": "s,n",
    "changelog-producer.row-deduplicate-ignore-fields": "n",
    "partial-update.remove-record-on-sequence-group": "n",
    "file-index.bloom-filter.columns": "n,m[x]",
    "file-index.bloom-filter.n.items": "10",
    "file-index.bitmap.columns": "n",
    "fields.n.aggregate-function": "sum",
    "fields.n.ignore-retract": "true",
    "fields.n.stats-mode": "none",
    "fields.n,g.sequence-group": "s,n",
    "fields.g.sequence-group": "n",
}


def test_options_that_name_a_column_follow_its_new_name():
    found = renamed(Options({**NAMING, "fields.nn.distinct": "true", "comment": "n"}), {"n": "new"})
    assert naming(found, "n") == ()
    assert dict(found) == {
        "bucket-key": "new,s",
        "sequence.field": "new,s",
        "rowkind.field": "new",
        "record-level.time-field": "new",
        "clustering.columns": "s,new",
        "changelog-producer.row-deduplicate-ignore-fields": "new",
        "partial-update.remove-record-on-sequence-group": "new",
        "file-index.bloom-filter.columns": "new,m[x]",
        "file-index.bloom-filter.new.items": "10",
        "file-index.bitmap.columns": "new",
        "fields.new.aggregate-function": "sum",
        "fields.new.ignore-retract": "true",
        "fields.new.stats-mode": "none",
        "fields.new,g.sequence-group": "s,new",
        "fields.g.sequence-group": "new",
        "fields.nn.distinct": "true",
        "comment": "n",
    }


def test_every_option_that_names_a_column_is_found():
    assert naming(Options(NAMING), "n") == tuple(NAMING)
    assert naming(Options(NAMING), "m") == ("file-index.bloom-filter.columns",)


def test_a_renamed_key_column_keeps_its_role():
    schema = keyed(**{"bucket": "2", "bucket-key": "id", "sequence.field": "n"})
    made = after(c.rename_column("id", "number"), c.rename_column("n", "version"), schema=schema)
    assert made.primary_keys == ("dt", "number")
    assert (made.options["bucket-key"], made.options["sequence.field"]) == ("number", "version")


def test_a_column_that_an_option_names_is_not_dropped_without_the_option():
    schema = keyed(**{"bucket": "2", "sequence.field": "n"})
    assert "merganser.changes.remove_option('sequence.field')" in refused(c.drop_column("n"), schema=schema)
    assert after(c.drop_column("n"), c.remove_option("sequence.field"), schema=schema).id == 1
    assert after(c.drop_column("n"), c.set_option("sequence.field", "must"), schema=schema).id == 1


def test_fields_of_nested_rows_that_options_name_follow_too():
    schema = create_schema(
        {"id": "INT", "l": "ARRAY<ROW<k INT, v STRING>>"},
        primary_key=["id"],
        options={
            "merge-engine": "aggregation",
            "fields.l.aggregate-function": "nested_update",
            "fields.l.nested-key": "k",
        },
    )
    made = after(c.rename_column("l.k", "key"), schema=schema)
    assert made.options["fields.l.nested-key"] == "key"
    assert "'fields.l.nested-key' names it" in refused(c.drop_column("l.k"), schema=schema)


def test_columns_that_order_or_place_rows_keep_their_order_and_hash():
    schema = keyed(**{"bucket": "2", "sequence.field": "n"})
    assert after(c.retype_column("n", "BIGINT"), schema=schema).id == 1
    assert "may have another order then" in refused(c.retype_column("n", "STRING"), schema=schema)
    assert after(c.retype_column("n", "STRING"), schema=schema, written=False).id == 1
    append = create_schema({"n": "INT", "s": "STRING"}, options={"bucket": "2", "bucket-key": "n"})
    assert "chose the buckets" in refused(c.retype_column("n", "BIGINT"), schema=append)


def test_a_function_that_does_not_take_the_new_type_is_named():
    schema = keyed(**{"bucket": "2", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"})
    assert after(c.retype_column("n", "DECIMAL(20, 0)"), schema=schema).id == 1
    assert "aggregate function 'sum' takes a number" in refused(c.retype_column("n", "STRING"), schema=schema)


def test_a_table_that_counts_equal_rows_keeps_its_columns():
    schema = create_schema({"a": "INT", "b": "STRING"}, options={"write-mode": "change-log"})
    for change in (c.add_column("x", "INT"), c.drop_column("a"), c.retype_column("a", "BIGINT")):
        assert "the whole row is its key" in refused(change, schema=schema)
    made = after(c.rename_column("a", "x"), c.move_column("b", first=True), schema=schema)
    assert made.shown.names == ("b", "x")
    assert made.counting


# ── what changes look at ──────────────────────────────────────────────────────────────────────────────────────────────


def test_changes_look_at_the_columns_and_options_that_they_name():
    schema = keyed()
    found = touched(
        schema,
        [
            c.add_column("r.new", "INT"),
            c.rename_column("n", "x"),
            c.move_column("s", after="id"),
            c.set_option("write.compaction-skip", True),
            c.set_comment("x"),
        ],
    )
    assert list(found) == [
        ("column", "r"), ("column", "n"), ("column", "x"), ("column", "s"), ("column", "id"),
        ("option", "write.compaction-skip"), ("comment", ""),
    ]  # fmt: skip
    assert found["column", "x"] is None
    assert found["column", "r"] == schema.field("r")


@pytest.mark.parametrize("value", ["0", "-3"])
def test_a_number_of_buckets_that_no_table_has_is_refused(value):
    assert "the number of buckets must be greater than 0" in refused(c.set_option("bucket", value))
