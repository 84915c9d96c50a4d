"""The client of REST catalogs: what it does, what servers hear, and what happens if servers and replies are lost."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser import changes as c
from merganser import errors as e
from merganser.catalogs.rest_schema import changes_between
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema
from tests.catalogs.rest import NOTHING, Answer, Proxy, Server
from tests.unit.serve.serving import TOKEN

pytestmark = pytest.mark.xdist_group("serve")
ORDERS = "id BIGINT, state STRING DEFAULT 'new', day STRING, PRIMARY KEY (id, day)"

WIDE = "id BIGINT, n ROW<a INT, b STRING>, m MAP<STRING, ROW<x INT>>, day STRING"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("rest"))
    yield made
    assert made.stop() == 0
    assert made.log.read_text() == ""


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    made = Proxy(server.port)
    yield made
    made.close()


@pytest.fixture
def catalog(server: Server, proxy: Proxy) -> Iterator[mg.Catalog]:
    """A client that asks through the proxy, with the empty table shop.orders."""
    found = server.catalog(proxy.port)
    found.create_database("shop")
    found.create_table("shop.orders", ORDERS, partition_by=["day"], options={"bucket": "1"})
    yield found
    proxy.before = lambda _method, _path: None
    proxy.after = lambda _method, _path, answer: answer
    found.drop_database("shop", cascade=True)


def rows(*ids: int, day: str = "x") -> pa.Table:
    return pa.table({"id": ids, "state": ["new"] * len(ids), "day": [day] * len(ids)})


def ids(table: Any) -> list[int]:
    return sorted(table.read().to_arrow()["id"].to_pylist())


def test_clients_and_writers_of_files_share_a_catalog(server: Server, catalog: mg.Catalog, proxy: Proxy) -> None:
    files = server.files()
    ours, theirs = catalog.table("shop.orders"), files.table("shop.orders")
    ours.write(rows(1, 2))
    theirs.write(rows(3, day="y"))
    ours.write(rows(2, 4, day="y"))
    assert ids(ours) == ids(theirs) == [1, 2, 2, 3, 4]
    assert len(proxy.commits()) == 2
    assert catalog.list_databases() == ["shop"]
    assert catalog.list_tables("shop") == ["orders"]
    catalog.rename_table("shop.orders", "shop.sales")
    catalog.clone("shop.sales", "shop.copy")
    assert files.list_tables("shop") == catalog.list_tables("shop") == ["copy", "sales"]
    copy = catalog.table("shop.copy")
    copy.write(rows(9))
    assert ids(files.table("shop.copy")) == [1, 2, 2, 3, 4, 9]
    catalog.drop_table("shop.copy")
    catalog.drop_table("shop.copy", if_exists=True)
    assert files.list_tables("shop") == ["sales"]
    catalog.sql("CREATE TABLE shop.lines (id INT)")
    catalog.sql("INSERT INTO shop.lines VALUES (1), (2)")
    assert catalog.sql("SELECT sum(id) AS n FROM shop.lines")["n"].to_pylist() == [3]
    with pytest.raises(e.NotFoundError, match=r"there is no table 'shop\.orders'"):
        catalog.table("shop.orders")
    with pytest.raises(e.NotFoundError, match="there is no database 'none'"):
        catalog.list_tables("none")
    with pytest.raises(e.AlreadyExistsError):
        catalog.create_table("shop.lines", "id INT")


def test_a_commit_says_what_it_did_to_each_partition(catalog: mg.Catalog, proxy: Proxy) -> None:
    table = catalog.table("shop.orders")
    table.write(rows(1, 2, day="x"))
    size = sum(file.stat().st_size for file in Path(table.path).rglob("data-*"))
    table.write(pa.concat_tables([rows(3, day="x"), rows(4, 5, day="y")]))
    table.drop_partitions([{"day": "y"}])
    said = [
        {each["spec"]["day"]: (each["recordCount"], each["fileCount"]) for each in body["statistics"]}
        for body in proxy.commits()
    ]
    assert said == [{"x": (2, 1)}, {"x": (1, 1), "y": (2, 1)}, {"y": (-2, -1)}]
    first = proxy.commits()[0]["statistics"][0]
    assert first["totalBuckets"] == 1
    assert first["fileSizeInBytes"] == size
    assert abs(first["lastFileCreationTime"] / 1000 - time.time()) < 86_400
    assert proxy.commits()[0]["tableId"]


def test_an_alter_says_what_differs(server: Server, catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.wide", WIDE)
    steps: list[list[c.Change]] = [
        [
            c.add_column("note", "STRING", after="id", default="z", comment="hi"),
            c.rename_column("day", "on"),
            c.add_column("n.c", "INT"),
            c.add_column("m.y", "INT"),
            c.set_option("snapshot.num-retained.min", "5"),
            c.set_comment("wide"),
        ],
        [
            c.drop_column("note"),
            c.move_column("on", first=True),
            c.retype_column("n.a", "BIGINT"),
            c.rename_column("n.b", "text"),
            c.comment_column("id", "what it is"),
            c.set_default("on", "today"),
            c.remove_option("snapshot.num-retained.min"),
        ],
        [c.drop_column("n.c"), c.set_default("on", None), c.set_comment(None), c.add_column("day", "DATE", first=True)],
        [c.rename_column("day", "d"), c.rename_column("on", "day")],
    ]
    expected = server.files().create_table("shop.alike", WIDE)
    for step in steps:
        table, expected = table.alter(step), expected.alter(step)
        for found in (table, catalog.table("shop.wide"), server.files().table("shop.wide")):
            assert [(f.name, str(f.type), f.description, f.default) for f in found.schema.fields] == [
                (f.name, str(f.type), f.description, f.default) for f in expected.schema.fields
            ]
            assert (dict(found.options), found.schema.comment) == (dict(expected.options), expected.schema.comment)
    names = [c.rename_column("d", "tmp"), c.rename_column("day", "d"), c.rename_column("tmp", "day")]
    with pytest.raises(e.UnsupportedError, match="columns that exchange their names"):
        table.alter(names)
    with pytest.raises(e.UnsupportedError, match="another primary key"):
        catalog.create_table("shop.plain", "id INT NOT NULL").alter([c.set_primary_key(["id"])])
    assert catalog.table("shop.wide").schema.id == len(steps)


def test_a_stream_is_begun_and_ended(server: Server, catalog: mg.Catalog) -> None:
    table = catalog.table("shop.orders")
    table.write(rows(1))
    table.enable_stream("1 d")
    again = catalog.table("shop.orders")
    again.write(rows(2))
    server.files().table("shop.orders").write(rows(3))
    (shard,) = again.shards()
    read = again.records(again.shard_iterator(shard.shard_id, at="trim_horizon"))
    assert read.records["id"].to_pylist() == [2, 3]
    again.disable_stream()
    with pytest.raises(e.StreamNotFoundError):
        catalog.table("shop.orders").shards()


def test_changes_of_nullability_and_keys_that_are_renamed() -> None:
    def schema(*fields: t.Field, key: str) -> TableSchema:
        return TableSchema(id=0, fields=fields, highest_field_id=9, primary_keys=(key,))

    old = schema(t.Field(0, "id", t.Int(nullable=False)), t.Field(1, "v", t.Int()), key="id")
    new = schema(t.Field(0, "key", t.Int(nullable=False)), t.Field(1, "v", t.BigInt(nullable=False)), key="key")
    assert changes_between(old, new, "t") == [
        {"action": "renameColumn", "fieldNames": ["id"], "newName": "key"},
        {"action": "updateColumnType", "fieldNames": ["v"], "newDataType": "BIGINT", "keepNullability": True},
        {"action": "updateColumnNullability", "fieldNames": ["v"], "newNullability": False},
    ]


def _overtaken(catalog: mg.Catalog, server: Server, proxy: Proxy) -> mg.Table:
    """Return a table that a writer without the server alters right before the server gets the next alter."""
    table, files = catalog.table("shop.orders"), server.files().table("shop.orders")
    files.alter([c.add_column("theirs", "INT")])
    assert table.alter([c.add_column("ours", "INT")]).schema.names[-2:] == ("theirs", "ours")

    def overtake(method: str, path: str) -> Answer | None:
        if method == "POST" and path.endswith("/orders"):
            proxy.before = lambda _method, _path: None
            files.alter([c.add_column("late", "INT")])
        return None

    proxy.before = overtake
    return table


def test_altering_beside_another_client(server: Server, catalog: mg.Catalog, proxy: Proxy) -> None:
    table = _overtaken(catalog, server, proxy)
    assert table.alter([c.add_column("mine", "INT")]).schema.names[-4:] == ("theirs", "ours", "late", "mine")
    assert len(server.files().table("shop.orders").schema.names) == 7


def test_altering_beside_another_client_of_a_server_that_takes_changes_alone(
    server: Server, catalog: mg.Catalog, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("merganser.catalogs.rest_metastore.BASE_SCHEMA", "another field")
    table = _overtaken(catalog, server, proxy)
    with pytest.raises(e.ConflictError, match="altered by others at the same time"):
        table.alter([c.add_column("mine", "INT")])


def test_an_alter_that_arrives_late_changes_nothing(server: Server, catalog: mg.Catalog, proxy: Proxy) -> None:
    """As the option of a rescale, after another rescale: the option would not fit the files, and writers stop."""
    table = catalog.table("shop.orders")
    table.write(rows(1))
    table.rescale(3)
    late = next(body for method, path, body in proxy.asked if method == "POST" and path.endswith("/orders"))
    table.rescale(2)
    headers = {"content-type": "application/json"}
    reply = server.ask("/v1/databases/shop/tables/orders", "POST", headers, json.dumps(late))
    assert reply.status == 409, reply
    assert server.files().table("shop.orders").options["bucket"] == "2"
    catalog.table("shop.orders").write(rows(2))


def test_branches_commit_through_the_server(catalog: mg.Catalog, proxy: Proxy) -> None:
    table = catalog.table("shop.orders")
    table.write(rows(1))
    table.tags.create("t")
    table.branches.create("b", "t")
    branch = catalog.table("shop.orders$branch_b")
    branch.write(rows(2))
    catalog.alter_table("shop.orders$branch_b", [c.set_option("snapshot.num-retained.min", "5")])
    assert [path for method, path, _ in proxy.asked if method == "POST" and "branch_b" in path] == [
        "/v1/merganser/databases/shop/tables/orders%24branch_b/commit",
        "/v1/merganser/databases/shop/tables/orders%24branch_b",
    ]
    assert ids(branch) == [1, 2]
    assert ids(table) == [1]
    table.branches.fast_forward("b")
    assert ids(table) == [1, 2]


def test_a_commit_whose_reply_is_lost_is_there_once(catalog: mg.Catalog, proxy: Proxy) -> None:
    def lose(method: str, path: str, answer: Answer) -> Answer:
        return NOTHING if path.endswith("/commit") else answer

    table = catalog.table("shop.orders")
    proxy.after = lose
    for number in range(3):
        assert table.write(rows(number)).id == number + 1
    assert ids(table) == [0, 1, 2]
    assert len(proxy.commits()) == 3


def test_a_commit_that_did_not_arrive_is_made_again(catalog: mg.Catalog, proxy: Proxy) -> None:
    left = [NOTHING, (500, {}, b"{}"), (503, {}, b'{"message":"later"}'), (429, {"retry-after": "0"}, b"{}")]
    proxy.before = lambda _method, path: left.pop() if left and path.endswith("/commit") else None
    table = catalog.table("shop.orders")
    table.write(rows(1))
    assert ids(table) == [1]
    assert len({body["snapshot"]["uuid"] for body in proxy.commits()}) == 1
    assert len(proxy.commits()) == 5


def test_a_commit_that_nobody_can_resolve_says_so(catalog: mg.Catalog, proxy: Proxy) -> None:
    table = catalog.table("shop.orders")
    proxy.before = lambda _method, path: NOTHING if path.endswith("/commit") else None
    with pytest.raises(e.CommitUnknownError, match="cannot tell whether snapshot 1"):
        table.write(rows(1))
    proxy.before = lambda _method, _path: None
    table.write(rows(2))
    assert ids(table) == [2]


def test_a_lost_race_is_run_again(server: Server, catalog: mg.Catalog, proxy: Proxy) -> None:
    files = server.files().table("shop.orders")

    def overtake(_method: str, path: str) -> Answer | None:
        if path.endswith("/commit") and len(proxy.commits()) <= 2:
            files.write(rows(100 + len(proxy.commits())))
        return None

    proxy.before = overtake
    table = catalog.table("shop.orders")
    table.write(rows(1))
    assert ids(table) == [1, 101, 102]
    assert len(proxy.commits()) == 3


def test_a_table_that_was_created_again_gets_no_commit(server: Server, catalog: mg.Catalog, proxy: Proxy) -> None:
    table = catalog.table("shop.orders")

    def replaced(_method: str, path: str) -> Answer | None:
        if path.endswith("/commit"):
            proxy.before = lambda _method, _path: None
            files = server.files()
            files.drop_table("shop.orders")
            files.create_table("shop.orders", ORDERS, partition_by=["day"], options={"bucket": "1"})
        return None

    proxy.before = replaced
    with pytest.raises(e.MerganserError):
        table.write(rows(1))
    assert server.files().table("shop.orders").latest_snapshot() is None


def test_requests_that_read_are_repeated_as_the_server_asks(catalog: mg.Catalog, proxy: Proxy) -> None:
    left = [NOTHING, (503, {"retry-after": "1"}, b"{}"), (429, {}, b"{}")]
    proxy.before = lambda _method, _path: left.pop() if left else None
    before = time.monotonic()
    assert catalog.list_tables("shop") == ["orders"]
    assert time.monotonic() - before > 1
    proxy.before = lambda _method, _path: (500, {}, b'{"message":"broken","code":500}')
    with pytest.raises(e.StorageError, match=r"with 500: broken"):
        catalog.list_tables("shop")


def test_pages_are_joined(catalog: mg.Catalog, proxy: Proxy) -> None:
    pages = [b'{"tables":["c"],"nextPageToken":null}', b'{"tables":["a","b"],"nextPageToken":"b"}']
    proxy.before = lambda _method, path: (200, {}, pages.pop()) if "/tables" in path and pages else None
    assert catalog.list_tables("shop") == ["a", "b", "c"]
    assert proxy.asked[-1][1] == "/v1/merganser/databases/shop/tables?pageToken=b"


def test_what_the_server_says_of_options_holds(server: Server, catalog: mg.Catalog, proxy: Proxy) -> None:
    config = b'{"defaults":{"header.x-a":"server","header.x-b":"server"},"overrides":{"prefix":"p q"}}'
    seen: list[str] = []

    def answer(_method: str, path: str) -> Answer | None:
        seen.append(path)
        return (200, {}, config) if path.startswith("/v1/config") else (200, {}, b'{"databases":[]}')

    proxy.before = answer
    opened = server.catalog(proxy.port, **{"header.x-a": "client"})
    assert opened.list_databases() == []
    assert seen == ["/v1/config?warehouse=warehouse", "/v1/p+q/databases?maxResults=1", "/v1/p+q/databases"]
    assert dict(opened.metastore.client.headers) == {"x-a": "client", "x-b": "server"}


_TOKENS = ["a-token-that-has-expired", TOKEN]


def signed(method: str, path: str, query: dict[str, str], body: bytes) -> dict[str, str]:
    """Sign a request, with a new token each time until the last one."""
    return {"Authorization": f"Bearer {_TOKENS.pop(0) if len(_TOKENS) > 1 else _TOKENS[0]}"}


def test_a_token_that_has_expired_is_made_anew(server: Server, proxy: Proxy) -> None:
    opened = server.catalog(proxy.port, **{"token.provider": f"{__name__}:signed", "token": "not used"})
    assert opened.list_databases() == []
    assert proxy.tokens[:2] == ["Bearer a-token-that-has-expired", f"Bearer {TOKEN}"]
    assert [path for _, path, _ in proxy.asked[:2]] == ["/v1/config?warehouse=warehouse"] * 2


def test_a_token_is_shown_nowhere(server: Server, catalog: mg.Catalog) -> None:
    for found in (
        catalog,
        catalog.metastore,
        catalog.metastore.client,
        catalog.env.storage,
        catalog.table("shop.orders"),
    ):
        assert TOKEN not in repr(found)
        assert TOKEN not in repr(pickle.loads(pickle.dumps(found)))
    again = pickle.loads(pickle.dumps(catalog)).table("shop.orders")
    again.write(rows(1))
    with pytest.raises(e.StorageError) as caught:
        server.catalog(token="a-wrong-token-of-characters")
    assert "401" in str(caught.value)
    assert "'token'" in str(caught.value)
    assert "a-wrong-token" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "options", "told"),
    [
        ("http://127.0.0.1:1", {"warehouse": "w"}, "does not answer"),
        ("http://127.0.0.1:1", {}, "the option 'warehouse' is missing"),
        ("http://127.0.0.1:1", {"warehouse": "w", "token.provider": "bear"}, "the option 'token' is missing"),
        ("http://127.0.0.1:1", {"warehouse": "w", "token": "x"}, "the option 'token.provider' is missing"),
        ("http://127.0.0.1:1", {"warehouse": "w", "token.provider": "none:at_all"}, "cannot sign requests"),
        ("http://127.0.0.1:1", {"warehouse": "w", "token.provider": "none"}, "'none': none has this name"),
        ("http://u:hidden@127.0.0.1:1", {"warehouse": "w"}, "no place in its address"),
        ("http://127.0.0.1:1/?token=hidden", {"warehouse": "w"}, "no place in its address"),
        ("w", {"uri": "http://u:hidden@127.0.0.1:1", "metastore": "rest"}, "no place in its address"),
        ("w", {"metastore": "rest"}, "the address of the server, and what the server calls the warehouse"),
        (
            "http://127.0.0.1:1",
            {"warehouse": "w", "token.provider": "bear", "token": "hidden\nx: y"},
            "'token' has a character",
        ),
        ("http://127.0.0.1:1", {"warehous": "w"}, "Did you mean 'warehouse'"),
    ],
)
def test_what_is_missing_is_named(
    address: str, options: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from merganser.storage.retries import MACHINE

    monkeypatch.setattr(type(MACHINE), "sleep_ms", lambda _self, _ms: None)
    with pytest.raises(e.MerganserError, match=told) as caught:
        mg.catalog(address, options=options)
    assert "hidden" not in str(caught.value)


def test_names_with_blanks_and_pluses_are_tables_of_their_own(server: Server, catalog: mg.Catalog) -> None:
    names = ["a b", "a%20b", "a+b", "a~b*c", "ä€😀 +%2B"]
    for name in names:
        catalog.create_table(f"shop.{name}", "name STRING").write([{"name": name}])
    assert catalog.list_tables("shop") == sorted([*names, "orders"])
    for name in names:
        assert catalog.table(f"shop.{name}").read().to_pylist() == [{"name": name}]
        assert server.files().table(f"shop.{name}").read().to_pylist() == [{"name": name}]
    catalog.drop_table("shop.a b")
    catalog.table("shop.a+b").tags.create("of a + b")
    catalog.rename_table("shop.a+b", "shop.a b")
    assert catalog.table("shop.a b").read().to_pylist() == [{"name": "a+b"}]
    assert catalog.list_tables("shop") == sorted({*names, "orders"} - {"a+b"})
    catalog.create_database("my +db")
    catalog.create_table("my +db.t", "name STRING")
    assert server.files().list_tables("my +db") == ["t"]
    catalog.drop_database("my +db", cascade=True)


def test_names_are_sent_as_java_encodes_them(catalog: mg.Catalog, proxy: Proxy) -> None:
    catalog.create_table("shop.a b+c", "id INT")
    proxy.asked.clear()
    catalog.table("shop.a b+c")
    assert {path for _, path, _ in proxy.asked} == {"/v1/merganser/databases/shop/tables/a+b%2Bc"}


@pytest.mark.campaign(1 / 3, first=0)
def test_a_server_that_is_killed_again_and_again_loses_and_repeats_no_row(tmp_path: Path) -> None:
    server = Server(tmp_path)
    catalog = server.catalog()
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", "id BIGINT")
    written: list[int] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            table.write(pa.table({"id": [len(written)]}))
            written.append(len(written))

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(3):
        seen = len(written)
        while len(written) < seen + 5 and writer.is_alive():
            time.sleep(0.01)
        server.kill()
        server = Server(tmp_path, port=server.port)
    seen = len(written)
    while len(written) == seen and writer.is_alive():
        time.sleep(0.01)
    stop.set()
    writer.join(60)
    assert ids(server.files().table("shop.orders")) == written
    assert len(written) > 15
    assert server.stop() == 0


def test_a_server_of_a_catalog_in_an_sql_database(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    address, files = f"jdbc:sqlite:{tmp_path}/catalog.sqlite", f"{tmp_path}/warehouse"
    server = Server(tmp_path, warehouse=address, more=["--store", f"warehouse={files}"])
    remote, direct = server.catalog(), mg.catalog(address, options={"warehouse": files, "local.sync": "false"})
    remote.create_database("shop")
    table = remote.create_table("shop.orders", "id BIGINT")
    table.write(pa.table({"id": [1]}))
    table.alter([c.add_column("note", "STRING")])
    direct.table("shop.orders").write(pa.table({"id": [2], "note": ["x"]}))
    assert ids(remote.table("shop.orders")) == [1, 2]
    remote.clone("shop.orders", "shop.copy")
    remote.rename_table("shop.orders", "shop.sales")
    assert direct.list_tables("shop") == remote.list_tables("shop") == ["copy", "sales"]
    remote.drop_database("shop", cascade=True)
    assert direct.list_databases() == []
    assert server.stop() == 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_server_that_is_killed_in_the_middle_of_a_commit(tmp_path: Path, moment: str) -> None:
    servers = [Server(tmp_path)]
    proxy = Proxy(servers[0].port)
    catalog = servers[0].catalog(proxy.port)
    catalog.create_database("shop")
    orders = catalog.create_table("shop.orders", "id BIGINT")

    def restarted() -> Answer:
        servers[-1].kill()
        servers.append(Server(tmp_path, port=servers[0].port))
        return NOTHING

    def before(_method: str, path: str) -> Answer | None:
        return restarted() if path.endswith("/commit") and len(proxy.commits()) == 2 else None

    def after(_method: str, path: str, answer: Answer) -> Answer:
        return restarted() if path.endswith("/commit") and len(proxy.commits()) == 2 else answer

    if moment == "before":
        proxy.before = before
    else:
        proxy.after = after
    for number in range(4):
        orders.write(pa.table({"id": [number]}))
    assert len(servers) == 2
    assert ids(servers[1].files().table("shop.orders")) == [0, 1, 2, 3]
    assert len(proxy.commits()) == (5 if moment == "before" else 4)
    proxy.close()
    assert servers[1].stop() == 0
