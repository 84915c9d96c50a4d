"""Methods that other table stores have are answered with ours, all of which exist."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser import spark
from merganser.catalogs.catalog import Catalog
from merganser.edit.merging import Merge
from merganser.edit.other_names import (
    OF_BRANCHES,
    OF_CATALOG,
    OF_CONSUMERS,
    OF_MERGE,
    OF_PACKAGE,
    OF_SPARK,
    OF_TABLE,
    OF_TAGS,
)
from merganser.errors import InvalidInputError, NotFoundError
from merganser.handle.branches import Branches
from merganser.handle.consumers import Consumers
from merganser.handle.tags import Tags

PAGE = Path(__file__).parents[3] / "docs" / "dml.md"
KINDS = [
    (Merge, OF_MERGE), (mg.Table, OF_TABLE), (Tags, OF_TAGS), (Branches, OF_BRANCHES), (Consumers, OF_CONSUMERS),
    (Catalog, OF_CATALOG), (mg, OF_PACKAGE), (spark, OF_SPARK),
]  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> mg.Table:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    return catalog.create_table("db.t", {"id": "INT"}, primary_key=["id"])


@pytest.mark.parametrize(("kind", "answers"), KINDS)
def test_the_answers_name_methods_that_exist(kind: Any, answers: dict[str, str]) -> None:
    homes = {
        "catalog": Catalog, "table": mg.Table, "merganser": mg, "merganser.changes": mg.changes,
        "merganser.spark": spark, "tags": Tags, "branches": Branches,
    }  # fmt: skip
    for other, ours in answers.items():
        assert not hasattr(kind, other)
        calls = re.findall(r"(?<![.\w)])([\w.]+)", re.sub(r"\(([^()]|\(.*?\))*\)", "()", ours))
        names = [name for name in calls if name + "()" in re.sub(r"\(([^()]|\(.*?\))*\)", "()", ours)]
        assert names or hasattr(kind, ours), ours
        for name in names:
            home, _, method = name.rpartition(".")
            assert hasattr(homes.get(home, kind) if home else kind, method), ours


def test_every_name_of_the_page_is_answered_with_the_call_of_the_page(table: mg.Table) -> None:
    catalog = mg.catalog(table.path.removesuffix("/db.db/t"))
    merge = table.merge([{"id": 1}], "t.id = s.id")
    page = PAGE.read_text().partition("## From Delta, Iceberg and Hudi")[2].partition("\nA method")[0]
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    met = 0
    for there, here in rows:
        for span in re.findall(r"`([^`]+)`", re.sub(r"(of|operation) `[^`]+`|Iceberg `snapshot-id`", "", there)):
            for name in re.findall(r"(?:^|\.)([A-Za-z_]+)(?=\(|\.|$)", span):
                owners: tuple[Any, ...] = (table,)
                if "mg.table(" in here or "catalog.table(" in here:
                    owners = (mg, spark, catalog, *((table,) if name != "DeltaTable" else ()))
                elif here.startswith("`."):
                    owners = (merge,)
                elif "t.tags." in here:
                    owners = (table, table.tags)
                elif "t.branches." in here:
                    owners = (table, table.branches)
                elif "ms." in here:
                    owners = (table,) if name == "alias" else (table, spark)
                if name in ("t", "df"):
                    continue
                for owner in owners:
                    calls = re.findall(r"\w+(?=\(|$)", name if hasattr(owner, name) else _answer(owner, name))
                    assert any(re.search(rf"\b{call}\b", here) for call in calls) or hasattr(owner, name), (there, name)
                    met += 1
    assert met > 55


def _answer(owner: Any, name: str) -> str:
    with pytest.raises(AttributeError) as found:
        getattr(owner, name)
    _, said, answer = str(found.value).partition(". Write ")
    assert said, str(found.value)
    return answer


def test_what_no_page_explains_is_never_suggested(table: mg.Table) -> None:
    catalog = mg.catalog(table.path.removesuffix("/db.db/t"))
    merge = table.merge([{"id": 1}], "t.id = s.id")
    pages = "".join(page.read_text() for page in PAGE.parent.glob("**/*.md"))
    for owner in (table, merge, table.tags, table.branches, table.consumers):
        for name in [found for found in dir(owner) if found in dir(type(owner)) and not found.startswith("_")]:
            assert re.search(rf"\b{name}\b", pages), (owner, name)
    for owner, name, internal in [
        (table, "mergin", "merging"), (table, "look_at", "looked_at"), (merge, "isVoid", "is_void"),
        (merge, "wth_source", "with_source"), (catalog, "creatin", "creating"),
    ]:  # fmt: skip
        with pytest.raises(AttributeError) as found:
            getattr(owner, name)
        assert internal not in str(found.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("whenMatchedUpdateAl", r"'Merge' has no 'whenMatchedUpdateAl'. Write when_matched_update\(\)"),
        ("whenNotMatched", r"'Merge' has no 'whenNotMatched'. Write when_not_matched_insert\("),
        ("when_matched_update_all", r"Write when_matched_update\(\)"),
        ("whennotmatchedbysourcedelete", "Write when_not_matched_by_source_delete"),
        ("when_not_matched_insrt", "Did you mean 'when_not_matched_insert'"),
        ("__wrapped__", "'Merge' has no '__wrapped__'.$"),
    ],
)
def test_a_merge_answers_with_its_own_name(table: mg.Table, name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        getattr(table.merge([{"id": 1}], "t.id = s.id"), name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("toDF", r"'Table' has no 'toDF'. Write read\(\)"),
        ("vacuum", r"Write expire\(\) .* remove_orphans\(\)"),
        ("restore_to_version", r"Write rollback\(snapshot\)"),
        ("compct", "Did you mean 'compact'"),
        ("rewrite_data_files", r"Write compact\(full=True\)"),
        ("rollback_to_snapshot", r"Write rollback\(snapshot\)"),
        ("rollback_to_timestamp", r"Write rollback\(snapshot\), with a number from snapshots\(\)"),
        ("readChangeFeed", r"Write changes\(start\)"),
        ("insert_overwrite", r"Write write\(rows, overwrite='dynamic'\)"),
        ("create_branch", r"Write branches.create\(name\)"),
        ("create_checkpoint", r"Write tags.create\(name\)"),
        ("withSchemaEvolution", r"Write with_options\(.*\).write\(rows\)"),
        ("select", r"Write read\(columns="),
        ("show", r"Write read\(\)"),
        ("count", r"Write read\(\).count\(\)"),
        ("deleteTag", r"Write tags.drop\(name\)"),
        ("delete_partition", r"Write drop_partitions\("),
        ("versionAsOf", r"Write read\(snapshot="),
        ("vaccum", r"Write expire\(\)"),
        ("vacume", r"Write expire\(\)"),
        ("delte", "Did you mean 'delete'"),
        ("drop_partiton", "Did you mean 'drop_partitions'"),
        ("undelete", "Choose one of"),
        ("delete_all", "Choose one of"),
        ("erase_tag", "Choose one of"),
        ("drop_view", "Choose one of"),
        ("tags", "'Table' has no 'tags'.$"),
    ],
)
def test_a_table_answers_with_its_own_name(
    table: mg.Table, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: mg.Table) -> None:
        raise AttributeError

    monkeypatch.setattr(mg.Table, "tags", property(broken))
    with pytest.raises(AttributeError, match=said):
        getattr(table, name)
    assert pickle.loads(pickle.dumps(table)).name == "db.t"


@pytest.mark.parametrize(
    ("where", "name", "said"),
    [
        ("table.tags", "delete", r"'Tags' has no 'delete'. Write drop\(name\)"),
        ("table.branches", "delete", r"'Branches' has no 'delete'. Write drop\(name\)"),
        ("table.tags", "deleteTag", r"Write drop\(name\)"),
        ("table.branches", "createBranch", r"Write create\(name\)"),
        ("mg", "DeltaTable", r"Write catalog\(warehouse\).table\(name\), or table\(path\)"),
        ("spark", "vacuum", r"Write table.expire\(\)"),
        ("spark", "forPath", r"Write merganser.table\(path\)"),
        ("table.branches", "crate", "Did you mean 'create'"),
        ("table.consumers", "remove", r"Write drop\(consumer_id\)"),
        ("catalog", "load_table", r"'Catalog' has no 'load_table'. Write table\(name\)"),
        ("catalog", "drop", "Choose one of"),
        ("mg", "forPath", r"merganser has no 'forPath'. Write table\(path\)"),
        ("mg", "catlog", "Did you mean 'catalog'"),
        ("spark", "read_streem", "merganser.spark has no 'read_streem'. Did you mean 'read_stream'"),
        ("spark", "mergeInto", r"Write merge\(spark, table, source, on\)"),
        ("snapshots", "raed", "Did you mean 'read'"),
    ],
)
def test_every_object_answers_with_its_own_names(table: mg.Table, where: str, name: str, said: str) -> None:
    catalog = mg.catalog(table.path.removesuffix("/db.db/t"))
    there: Any = {
        "table.tags": table.tags, "table.branches": table.branches, "table.consumers": table.consumers,
        "catalog": catalog, "mg": mg, "spark": spark, "snapshots": catalog.table("db.t$snapshots"),
    }[where]  # fmt: skip
    with pytest.raises(AttributeError, match=said):
        getattr(there, name)
    if where not in ("mg", "spark"):
        assert pickle.loads(pickle.dumps(there)).__class__ is there.__class__


def test_messages_name_what_the_caller_wrote(table: mg.Table) -> None:
    wide = mg.catalog(table.path.removesuffix("/db.db/t")).create_table("db.w", "id INT, v INT, PRIMARY KEY (id)")
    with pytest.raises(InvalidInputError, match=r"cannot store 'source\.v' \("):
        wide.merge([{"id": 1, "v": [1]}], "target.id = source.id").when_not_matched_insert()
    made = mg.catalog(table.path.removesuffix("/db.db/t")).create_table(
        "db.p", {"id": "INT", "p": "INT NOT NULL"}, partition_by=["p"], options={"bucket": "-1"}
    )
    with pytest.raises(InvalidInputError, match=r"'p' = None, and the column is NOT NULL, so no row can be there"):
        made.write([], overwrite={"p": None})


def test_options_and_procedures_of_others_are_answered(table: mg.Table) -> None:
    with pytest.raises(InvalidInputError, match=r"unknown option 'heder' of files\. Did you mean 'csv.header'"):
        table.load("*.csv", options={"heder": "true"})
    with pytest.raises(InvalidInputError, match=r"'ignore_parse_error'\. Give dead_letters="):
        table.write_changes(["{}"], "debezium-json", ignore_parse_error=True)
    catalog = mg.catalog(table.path.removesuffix("/db.db/t"))
    with pytest.raises(NotFoundError, match=r"no procedure 'sys.drop_partition'\. Write ALTER TABLE"):
        catalog.sql("CALL sys.drop_partition(table => 'db.t', partitions => 'day=2026-10-03')")
