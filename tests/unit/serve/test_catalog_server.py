"""The server of the REST catalog, asked by a client that knows nothing of merganser."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pytest

import merganser as mg
from merganser.options.write import NULL_TO_NOT_NULL_DISABLED
from merganser.serve.catalog_service import PREFIX
from tests.unit.serve.serving import TOKEN, Reply, Serving

pytestmark = pytest.mark.xdist_group("serve")
READER = "a-token-of-clients-that-read"
ORDERS = "/v1/databases/shop/tables/orders"
SCHEMA = {
    "fields": [
        {"id": 0, "name": "id", "type": "BIGINT NOT NULL"},
        {"id": 1, "name": "state", "type": "STRING", "description": "open or shipped"},
        {"id": 2, "name": "day", "type": "STRING NOT NULL"},
    ],
    "partitionKeys": ["day"],
    "primaryKeys": ["id", "day"],
    "options": {"bucket": "1"},
    "comment": "what was ordered",
}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("catalog") / "warehouse"
    folder.mkdir()
    server = Serving(folder, "--store", "local.sync=false", token=TOKEN, command="serve-catalog", read_token=READER)
    yield server
    assert server.stop() == 0


@pytest.fixture
def catalog(serving: Serving) -> Iterator[mg.Catalog]:
    """The catalog without the server, with the table shop.orders; both are gone after the test."""
    found = mg.catalog(serving.log.parent / "warehouse", options={"local.sync": "false"})
    assert post(serving, "/v1/databases", name="shop", options={}).status == 200
    made = post(
        serving, "/v1/databases/shop/tables", identifier={"database": "shop", "object": "orders"}, schema=SCHEMA
    )
    assert made.status == 200, made
    yield found
    assert serving.ask("/v1/databases/shop", "DELETE").status == 200
    assert found.list_databases() == []


def post(serving: Serving, path: str, **body: Any) -> Reply:
    return serving.ask(path, "POST", body=json.dumps(body))


def error_of(reply: Reply) -> tuple[int, str | None, str | None]:
    """Return code, type and name of an error, whose status is its code and whose message is not empty."""
    found = reply.json
    assert found["code"] == reply.status
    assert found["message"]
    return reply.status, found["resourceType"], found["resourceName"]


def rows(*ids: int, day: str = "x") -> pa.Table:
    return pa.table({"id": ids, "state": ["new"] * len(ids), "day": [day] * len(ids)})


def test_a_table_is_as_it_was_defined_and_its_id_is_its_own(serving: Serving, catalog: mg.Catalog) -> None:
    found = serving.ask(ORDERS).json
    assert found["schema"] == SCHEMA
    assert (found["name"], found["schemaId"], found["isExternal"]) == ("orders", 0, False)
    assert found["path"] == catalog.table("shop.orders").path
    assert found["createdAt"] == found["updatedAt"] > 0
    catalog.drop_table("shop.orders")
    post(serving, "/v1/databases/shop/tables", identifier={"database": "shop", "object": "orders"}, schema=SCHEMA)
    again = serving.ask(ORDERS).json
    assert again["id"] != found["id"]
    moved = post(
        serving,
        "/v1/tables/rename",
        source={"database": "shop", "object": "orders"},
        destination={"database": "shop", "object": "sales"},
    )
    assert moved.status == 200
    assert serving.ask("/v1/databases/shop/tables/sales").json["id"] == again["id"]


def test_lists_come_in_pages_and_by_patterns(serving: Serving, catalog: mg.Catalog) -> None:
    for name in ("a_1", "a_2", "ab1"):
        catalog.create_table(f"shop.{name}", "id INT")
    seen, token = [], None
    while True:
        query = {"maxResults": 2, **({} if token is None else {"pageToken": token})}
        page = serving.ask("/v1/databases/shop/tables", **query).json
        assert len(page["tables"]) <= 2
        seen += page["tables"]
        if (token := page["nextPageToken"]) is None:
            break
    assert seen == ["a_1", "a_2", "ab1", "orders"]
    tables = "/v1/databases/shop/tables"
    assert serving.ask(tables, tableNamePattern="a\\_%").json["tables"] == ["a_1", "a_2"]
    assert serving.ask(tables, tableNamePattern="a_1").json["tables"] == ["a_1", "ab1"]
    assert serving.ask(tables, tableType="view").json["tables"] == []
    details = serving.ask("/v1/databases/shop/table-details", tableNamePattern="o%").json["tableDetails"]
    assert [each["name"] for each in details] == ["orders"]
    assert details[0]["schema"] == SCHEMA
    everywhere = serving.ask("/v1/tables", databaseNamePattern="sh%", tableNamePattern="or%").json["tables"]
    assert everywhere == [{"database": "shop", "object": "orders"}]
    assert serving.ask("/v1/databases").json == {"databases": ["shop"], "nextPageToken": None}
    assert serving.ask("/v1/databases", databaseNamePattern="x%").json["databases"] == []
    assert serving.ask("/v1/databases/shop/views").json["views"] == []
    assert error_of(serving.ask(tables, maxResults="many"))[0] == 400


def test_errors_say_what_is_missing(serving: Serving, catalog: mg.Catalog) -> None:
    assert error_of(serving.ask("/v1/databases/none")) == (404, "DATABASE", "none")
    assert error_of(serving.ask("/v1/databases/none/tables")) == (404, "DATABASE", "none")
    assert error_of(serving.ask("/v1/databases/shop/tables/none")) == (404, "TABLE", "none")
    assert error_of(serving.ask(f"{ORDERS}/snapshot")) == (404, "SNAPSHOT", "LATEST")
    assert error_of(serving.ask(f"{ORDERS}/snapshots/7")) == (404, "SNAPSHOT", "7")
    assert error_of(serving.ask(f"{ORDERS}/tags/none")) == (404, "TAG", "none")
    assert error_of(serving.ask(f"{ORDERS}/branches/none", "DELETE")) == (404, "BRANCH", "none")
    assert error_of(post(serving, "/v1/databases", name="shop")) == (409, "DATABASE", "shop")
    there = {"database": "shop", "object": "orders"}
    again = post(serving, "/v1/databases/shop/tables", identifier=there, schema=SCHEMA)
    assert error_of(again) == (409, "TABLE", "orders")
    assert error_of(post(serving, f"{ORDERS}/rollback", instant={"type": "tag", "tagName": "none"})) == (
        404,
        "TAG",
        "none",
    )
    assert error_of(post(serving, "/v1/databases", name="far", options={"location": "/elsewhere"}))[0] == 501
    assert error_of(post(serving, "/v1/databases/shop", updates={"owner": "me"}))[0] == 501
    assert error_of(serving.ask("/v1/databases/shop/tables/orders/token"))[0] == 501
    assert serving.ask(f"/v1/{PREFIX}/databases/shop/tables").json["tables"] == ["orders"]
    assert error_of(serving.ask("/v1/other/databases/shop/tables"))[0] == 501
    assert error_of(serving.ask("/v1/databases", "POST", body="{"))[0] == 400
    assert error_of(post(serving, "/v1/databases", name=5))[0] == 400
    assert error_of(post(serving, "/v1/databases", name="../up"))[0] == 400
    assert error_of(serving.ask("/v1/config", warehouse="elsewhere"))[0] == 404
    for name in ("warehouse", catalog.warehouse, "ware%68ouse"):
        overrides = {"prefix": PREFIX, "merganser.role": "write"}
        assert serving.ask("/v1/config", warehouse=name).json == {"defaults": {}, "overrides": overrides}


def test_names_come_as_java_encodes_them(serving: Serving, catalog: mg.Catalog) -> None:
    tables = "/v1/merganser/databases/shop/tables"
    for name in ("a b", "a+b", "a%2Bb"):
        catalog.create_table(f"shop.{name}", "id INT")
    sent = {"a+b": "a b", "a%20b": "a b", "a%2Bb": "a+b", "a%2bb": "a+b", "a%252Bb": "a%2Bb"}
    assert {each: serving.ask(f"{tables}/{each}").json["name"] for each in sent} == sent
    assert serving.ask(f"{tables}/a+b", "DELETE").status == 200
    assert catalog.list_tables("shop") == ["a%2Bb", "a+b", "orders"]
    assert serving.ask(tables, tableNamePattern="a+b").json["tables"] == ["a+b"]
    assert error_of(serving.ask(f"{tables}/a+b"))[0] == 404


def test_a_name_with_a_slash_leads_nowhere(serving: Serving, catalog: mg.Catalog) -> None:
    catalog.table("shop.orders").write(rows(1))
    catalog.table("shop.orders").tags.create("kept")
    inside = "/v1/databases/shop/tables/orders%2Ftags%2Fkept"
    assert [error_of(serving.ask(inside, method))[0] for method in ("GET", "DELETE")] == [404, 404]
    assert [tag.name for tag in catalog.table("shop.orders").tags.list()] == ["kept"]


@pytest.mark.parametrize("name", ["my house", "a+b", "50%", "ü"])
def test_the_name_of_a_warehouse_may_be_encoded_twice(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    server = Serving(tmp_path / name, command="serve-catalog")
    assert [server.ask("/v1/config", warehouse=each).status for each in (name, quote_plus(name))] == [200, 200]
    assert server.ask("/v1/config", warehouse="other").status == 404
    assert server.stop() == 0


def test_a_reader_changes_nothing_and_a_stranger_sees_nothing(serving: Serving, catalog: mg.Catalog) -> None:
    reader = {"authorization": f"Bearer {READER}"}
    assert serving.ask(ORDERS, headers=reader).json["name"] == "orders"
    assert error_of(serving.ask(ORDERS, "DELETE", headers=reader))[0] == 403
    assert error_of(serving.ask(f"{ORDERS}/commit", "POST", headers=reader, body="{}"))[0] == 403
    for stranger in ({"authorization": "Bearer of-something-else"}, {"authorization": TOKEN}, {"authorization": ""}):
        assert error_of(serving.ask(ORDERS, headers=stranger))[0] == 401
    assert catalog.list_tables("shop") == ["orders"]


def test_changes_of_a_schema(serving: Serving, catalog: mg.Catalog) -> None:
    def alter(*changes: dict[str, Any]) -> Reply:
        return post(serving, ORDERS, changes=changes)

    def columns() -> list[tuple[str, str]]:
        return [(field.name, str(field.type)) for field in catalog.table("shop.orders").schema.fields]

    move = {"fieldName": "n", "referenceFieldName": "state", "type": "BEFORE"}
    done = alter(
        {"action": "addColumn", "fieldNames": ["n"], "dataType": "INT", "comment": "how many", "move": None},
        {"action": "addColumn", "fieldNames": ["at"], "dataType": "INT", "move": {"fieldName": "at", "type": "FIRST"}},
        {"action": "setOption", "key": "snapshot.num-retained.min", "value": "7"},
        {"action": "updateComment", "comment": "sales"},
        {"action": "updateColumnComment", "fieldNames": ["state"], "newComment": "how far"},
        {"action": "updateColumnDefaultValue", "fieldNames": ["state"], "newDefaultValue": "new"},
    )
    assert done.status == 200, done
    assert [name for name, _ in columns()] == ["at", "id", "state", "day", "n"]
    assert alter({"action": "updateColumnPosition", "move": move}).status == 200
    assert [name for name, _ in columns()] == ["at", "id", "n", "state", "day"]
    done = alter(
        {"action": "updateColumnType", "fieldNames": ["n"], "newDataType": "BIGINT", "keepNullability": True},
        {"action": "renameColumn", "fieldNames": ["n"], "newName": "amount"},
        {"action": "dropColumn", "fieldNames": ["at"]},
        {"action": "removeOption", "key": "snapshot.num-retained.min"},
    )
    assert done.status == 200, done
    schema = catalog.table("shop.orders").schema
    assert columns() == [
        ("id", "BIGINT NOT NULL"),
        ("amount", "BIGINT"),
        ("state", "STRING"),
        ("day", "STRING NOT NULL"),
    ]
    assert schema.comment == "sales"
    assert dict(schema.options) == {"bucket": "1"}
    assert schema.field("state").description == "how far"
    assert schema.field("state").default == "new"
    assert schema.field("amount").description == "how many"
    may = {"action": "setOption", "key": NULL_TO_NOT_NULL_DISABLED.key, "value": "false"}
    assert alter(may).status == 200
    not_null = {"action": "updateColumnNullability", "fieldNames": ["amount"], "newNullability": False}
    assert alter(not_null).status == 200
    assert (
        alter({"action": "updateColumnType", "fieldNames": ["amount"], "newDataType": "BIGINT NOT NULL"}).status == 200
    )
    assert dict(columns())["amount"] == "BIGINT NOT NULL"
    assert alter({"action": "updateColumnType", "fieldNames": ["amount"], "newDataType": "BIGINT"}).status == 200
    assert dict(columns())["amount"] == "BIGINT"
    before = columns()
    assert error_of(alter({"action": "dropColumn", "fieldNames": ["none"]})) == (404, "COLUMN", "none")
    again = {"action": "addColumn", "fieldNames": ["amount"], "dataType": "INT"}
    assert error_of(alter(again)) == (409, "COLUMN", "amount")
    taken = {"action": "renameColumn", "fieldNames": ["id"], "newName": "amount"}
    assert error_of(alter(taken)) == (409, "COLUMN", "amount")
    assert error_of(alter({"action": "dropPrimaryKey"}))[0] == 501
    assert error_of(alter({"action": "addColumn", "fieldNames": ["x"], "dataType": "NO TYPE"}))[0] == 400
    assert error_of(alter({"action": "dropColumn", "fieldNames": []}))[0] == 400
    assert columns() == before


def as_sent(catalog: mg.Catalog, number: int, **other: Any) -> dict[str, Any]:
    """Return what a client would send to commit once more what a snapshot did; its files are there."""
    table = catalog.table("shop.orders")
    found = json.loads(Path(table.path, "snapshot", f"snapshot-{number}").read_text())
    return {key: value for key, value in found.items() if not key.startswith("merganser")} | other


def test_a_commit_creates_exactly_the_next_snapshot(serving: Serving, catalog: mg.Catalog) -> None:
    table = catalog.table("shop.orders")
    table.write(rows(1))
    table_id = serving.ask(ORDERS).json["id"]
    newest = as_sent(catalog, 1)["uuid"]

    def commit(snapshot: dict[str, Any], **more: Any) -> Reply:
        return post(serving, f"{ORDERS}/commit", tableId=table_id, snapshot=snapshot, statistics=[], **more)

    second = as_sent(catalog, 1, id=2, uuid=str(uuid.uuid4()), commitUser="me", commitIdentifier=5)
    assert commit(second, baseSnapshotUuid=str(uuid.uuid4())).json == {"success": False}
    assert commit({**second, "id": 3}).json == {"success": False}
    assert table.latest_snapshot().id == 1
    assert commit(second, baseSnapshotUuid=newest).json == {"success": True}
    assert commit(second, baseSnapshotUuid=newest).json == {"success": True}  # the reply was lost, say
    assert table.latest_snapshot().uuid == second["uuid"]
    assert Path(table.path, "snapshot", "LATEST").read_text() == "2"
    assert commit({**second, "uuid": str(uuid.uuid4())}).json == {"success": False}
    assert commit({**second, "baseManifestList": "manifest-list-of-mine-0"}).json == {"success": False}
    assert serving.ask(f"{ORDERS}/snapshot").json["snapshot"]["snapshot"]["id"] == 2

    without = {**as_sent(catalog, 1, id=3), "uuid": None, "deltaManifestList": second["deltaManifestList"]}
    assert commit(without).json == {"success": True}
    assert commit(without).json == {"success": True}
    assert commit({**without, "baseManifestList": "manifest-list-of-mine-1"}).json == {"success": False}
    assert error_of(commit({**second, "id": 4, "deltaManifestList": "../up"}))[0] == 400
    assert error_of(commit({"id": 4}))[0] == 400
    stale = post(serving, f"{ORDERS}/commit", tableId=str(uuid.uuid4()), snapshot={**second, "id": 4}, statistics=[])
    assert error_of(stale) == (404, "TABLE", "orders")
    assert table.latest_snapshot().id == 3


def test_of_racing_commits_one_is_there(serving: Serving, catalog: mg.Catalog) -> None:
    catalog.table("shop.orders").write(rows(1))
    start = threading.Barrier(8)

    def commit(number: int) -> bool:
        snapshot = as_sent(catalog, 1, id=2, uuid=str(uuid.uuid4()), baseManifestList=f"manifest-list-of-{number}")
        start.wait()
        return bool(post(serving, f"{ORDERS}/commit", snapshot=snapshot, statistics=[]).json["success"])

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(commit, range(8))) == [False] * 7 + [True]


def test_snapshots_partitions_tags_branches_and_rollbacks(serving: Serving, catalog: mg.Catalog) -> None:
    table = catalog.table("shop.orders")
    table.write(rows(1, 2, day="x"))
    table.write(rows(3, day="y/z"))
    found = serving.ask(f"{ORDERS}/snapshot").json["snapshot"]
    assert (found["snapshot"]["id"], found["recordCount"], found["fileCount"]) == (2, 3, 2)
    assert found["fileSizeInBytes"] > 0
    assert found["lastFileCreationTime"] > 0
    listed = serving.ask(f"{ORDERS}/snapshots", maxResults=1).json
    assert ([each["id"] for each in listed["snapshots"]], listed["nextPageToken"]) == ([1], "1")
    assert [each["id"] for each in serving.ask(f"{ORDERS}/snapshots", pageToken=1).json["snapshots"]] == [2]
    parts = serving.ask(f"{ORDERS}/partitions").json["partitions"]
    assert [(each["spec"], each["recordCount"], each["totalBuckets"]) for each in parts] == [
        ({"day": "x"}, 2, 1),
        ({"day": "y/z"}, 1, 1),
    ]
    assert serving.ask(f"{ORDERS}/partitions", partitionNamePattern="day=y%").json["partitions"] == parts[1:]

    assert post(serving, f"{ORDERS}/tags", tagName="first", snapshotId=1, timeRetained="2 h").status == 200
    assert post(serving, f"{ORDERS}/tags", tagName="second").status == 200
    tag = serving.ask(f"{ORDERS}/tags/first").json
    assert (tag["snapshot"]["id"], tag["tagTimeRetained"]) == (1, "7200 s")
    assert tag["tagCreateTime"] > 0
    assert serving.ask(f"{ORDERS}/tags", tagNamePrefix="f").json["tags"] == ["first"]
    versions = {"EARLIEST": 1, "LATEST": 2, "2": 2, "first": 1}
    for version, number in versions.items():
        assert serving.ask(f"{ORDERS}/snapshots/{version}").json["snapshot"]["id"] == number

    assert post(serving, f"{ORDERS}/branches", branch="b", fromTag="second").status == 200
    assert serving.ask(f"{ORDERS}/branches").json == {"branches": ["b"]}
    assert serving.ask(f"{ORDERS}$branch_b").json["name"] == "orders$branch_b"
    assert serving.ask(f"{ORDERS}$branch_b/snapshot").json["snapshot"]["snapshot"]["id"] == 2
    table.branch("b").write(rows(4))
    assert post(serving, f"{ORDERS}/branches/b/forward").status == 200
    assert table.latest_snapshot().id == 3
    assert serving.ask(f"{ORDERS}/branches/b", "DELETE").status == 200

    wrong = post(serving, f"{ORDERS}/rollback", instant={"type": "snapshot", "snapshotId": 1}, fromSnapshot=2)
    assert error_of(wrong)[0] == 409
    assert post(serving, f"{ORDERS}/rollback", instant={"type": "tag", "tagName": "second"}).status == 200
    assert table.latest_snapshot().id == 2
    back = post(serving, f"{ORDERS}/rollback", instant={"type": "snapshot", "snapshotId": 1}, fromSnapshot=2)
    assert back.status == 200
    assert table.latest_snapshot().id == 1
    assert serving.ask(f"{ORDERS}/tags/first", "DELETE").status == 200
    assert serving.ask(f"{ORDERS}/tags").json["tags"] == []


def test_without_a_token_nobody_changes_anything(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path / "warehouse", options={"local.sync": "false"})
    catalog.create_database("shop")
    server = Serving(tmp_path / "warehouse", "--name", "sales", command="serve-catalog")
    assert server.ask("/health").json == {"status": "ok"}
    assert server.ask("/v1/config", warehouse="sales").status == 200
    assert server.ask("/v1/databases").json["databases"] == ["shop"]
    assert error_of(post(server, "/v1/databases", name="more"))[0] == 403
    assert error_of(server.ask("/v1/databases", headers={"host": "evil.example"}))[0] == 403
    assert error_of(server.ask("/v1/databases/shop", "DELETE"))[0] == 403
    assert server.stop() == 0


def test_a_bad_table_shows_its_reason_in_the_log_alone(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path / "warehouse", options={"local.sync": "false"})
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", "id INT")
    server = Serving(tmp_path / "warehouse", command="serve-catalog")
    Path(table.path, "schema", "schema-0").write_text("{ damaged")
    reply = server.ask(ORDERS)
    assert error_of(reply)[0] == 500
    assert "schema-0" not in reply.json["message"]
    assert server.stop() == 0
    assert "schema-0" in server.log.read_text()
