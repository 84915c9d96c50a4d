"""Clients that only read, through the server of a REST catalog: each verb that changes something is refused.

The server refuses the requests that it gets. What a client does to files itself, the client has to refuse: no file is
made, changed or removed, neither with the token of readers nor on a server without a token.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser import changes as c
from merganser import errors as e
from tests.catalogs.rest import Answer, Proxy, Server
from tests.unit.serve.serving import TOKEN, Serving

pytestmark = pytest.mark.xdist_group("serve")
READER = "a-token-of-clients-that-read"


def made(catalog: mg.Catalog) -> None:
    """Create tables on which each verb has something to do."""
    catalog.create_database("shop")
    orders = catalog.create_table(
        "shop.orders",
        "id BIGINT, state STRING, day STRING, PRIMARY KEY (id, day)",
        partition_by=["day"],
        options={"bucket": "1", "write-only": "true"},
    )
    for number in range(4):
        orders.write([{"id": number % 2, "state": f"s{number}", "day": "2026-01-01"}])
    orders.tags.create("kept", snapshot=2)
    orders.branches.create("side", tag="kept")
    orders.branch("side").write([{"id": 7, "state": "side", "day": "2026-01-01"}])
    orders.consumers.set("job", 3)
    log = catalog.create_table("shop.log", "id BIGINT, text STRING", options={"bucket": "-1"})
    log.write([{"id": 1, "text": "a"}])
    log.write([{"id": 2, "text": "b"}])
    stray = Path(log.path) / "bucket-0" / "data-11111111-2222-3333-4444-555555555555-0.parquet"
    stray.write_bytes(b"of nobody")
    os.utime(stray, (1_600_000_000, 1_600_000_000))


def files(folder: Path) -> Mapping[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("roles"), read_token=READER)
    made(found.files())
    yield found
    assert found.stop() == 0


Verb = Callable[[mg.Catalog, mg.Table, Path], Any]
ROW = [{"id": 9, "state": "new", "day": "2026-01-01"}]


def _writer(_catalog: mg.Catalog, orders: mg.Table, _folder: Path) -> None:
    with orders.writer() as writer:
        writer.write(ROW)
        writer.commit()


def _load(_catalog: mg.Catalog, orders: mg.Table, folder: Path) -> None:
    (folder / "rows.csv").write_text("id,state,day\n7,new,2026-01-01\n")
    orders.load(str(folder / "rows.csv"))


def _stream(_catalog: mg.Catalog, orders: mg.Table, _folder: Path) -> None:
    for _ in orders.stream(consumer="job", follow=False):
        pass


def _creating(catalog: mg.Catalog, _orders: mg.Table, _folder: Path) -> None:
    with catalog.creating("shop.fresh", "id BIGINT") as table:
        table.write([{"id": 1}])


def sql(text: str) -> Verb:
    return lambda catalog, _orders, _folder: catalog.sql(text)


VERBS: Mapping[str, Verb] = {
    "write": lambda _c, orders, _f: orders.write(ROW),
    "writer": _writer,
    "upsert": lambda _c, orders, _f: orders.upsert(ROW),
    "load": _load,
    "truncate": lambda _c, orders, _f: orders.truncate(),
    "drop_partitions": lambda _c, orders, _f: orders.drop_partitions([{"day": "2026-01-01"}]),
    "delete": lambda _c, orders, _f: orders.delete("id = 1"),
    "erase": lambda _c, orders, _f: orders.erase("id = 1"),
    "update": lambda _c, orders, _f: orders.update("id = 1", {"state": "'x'"}),
    "alter": lambda _c, orders, _f: orders.alter([c.add_column("more", "INT")]),
    "set_option": lambda _c, orders, _f: orders.alter([c.set_option("snapshot.num-retained.min", "9")]),
    "compact": lambda _c, orders, _f: orders.compact(full=True),
    "rescale": lambda _c, orders, _f: orders.rescale(2),
    "expire": lambda _c, orders, _f: orders.expire(retain_max=1, retain_min=1),
    "remove_orphans": lambda c_, _o, _f: c_.table("shop.log").remove_orphans(
        older_than="2026-01-01 00:00:00", dry_run=False
    ),
    "analyze": lambda _c, orders, _f: orders.analyze(),
    "rollback": lambda _c, orders, _f: orders.rollback(snapshot=2),
    "rollback to a tag": lambda _c, orders, _f: orders.rollback(tag="kept"),
    "stream": _stream,
    "create tag": lambda _c, orders, _f: orders.tags.create("more"),
    "replace tag": lambda _c, orders, _f: orders.tags.replace("kept", snapshot=3),
    "rename tag": lambda _c, orders, _f: orders.tags.rename("kept", "other"),
    "drop tag": lambda _c, orders, _f: orders.tags.drop("kept"),
    "create branch": lambda _c, orders, _f: orders.branches.create("more"),
    "create branch of a tag": lambda _c, orders, _f: orders.branches.create("more", tag="kept"),
    "fast forward": lambda _c, orders, _f: orders.branches.fast_forward("side"),
    "drop branch": lambda _c, orders, _f: orders.branches.drop("side"),
    "write to a branch": lambda _c, orders, _f: orders.branch("side").write(ROW),
    "set consumer": lambda _c, orders, _f: orders.consumers.set("job", 1),
    "drop consumer": lambda _c, orders, _f: orders.consumers.drop("job"),
    "enable_stream": lambda _c, orders, _f: orders.enable_stream(),
    "create database": lambda catalog, _o, _f: catalog.create_database("more"),
    "drop database": lambda catalog, _o, _f: catalog.drop_database("shop", cascade=True),
    "create table": lambda catalog, _o, _f: catalog.create_table("shop.fresh", "id BIGINT"),
    "creating": _creating,
    "drop table": lambda catalog, _o, _f: catalog.drop_table("shop.log"),
    "rename table": lambda catalog, _o, _f: catalog.rename_table("shop.log", "shop.other"),
    "clone": lambda catalog, _o, _f: catalog.clone("shop.orders", "shop.copy"),
    "CREATE TABLE AS": sql("CREATE TABLE shop.copy AS SELECT * FROM shop.orders"),
    "INSERT": sql("INSERT INTO shop.orders VALUES (5, 'x', '2026-01-02')"),
    "INSERT OVERWRITE": sql("INSERT OVERWRITE shop.orders SELECT 5, 'x', '2026-01-02'"),
    "INSERT into a branch": sql("INSERT INTO shop.`orders$branch_side` VALUES (5, 'x', '2026-01-02')"),
    "UPDATE": sql("UPDATE shop.orders SET state = 'x' WHERE id = 1"),
    "DELETE": sql("DELETE FROM shop.orders WHERE id = 1"),
    "MERGE": sql(
        "MERGE INTO shop.orders t USING (SELECT 1 AS id, '2026-01-01' AS day) s ON t.id = s.id AND t.day = s.day "
        "WHEN MATCHED THEN DELETE"
    ),
    "TRUNCATE": sql("TRUNCATE TABLE shop.orders"),
    "ALTER TABLE": sql("ALTER TABLE shop.orders ADD COLUMN more INT"),
    "DROP PARTITION": sql("ALTER TABLE shop.orders DROP PARTITION (day = '2026-01-01')"),
    **{
        f"sys.{call.partition('(')[0]}": sql(f"CALL sys.{call}")
        for call in (
            "compact('shop.orders')",
            "expire_snapshots(table => 'shop.orders', retain_max => 1, retain_min => 1)",
            "expire_partitions(table => 'shop.orders', expiration_time => '1 d', timestamp_formatter => 'yyyy-MM-dd')",
            "create_tag('shop.orders', 'more')",
            "replace_tag('shop.orders', 'kept', 3)",
            "rename_tag('shop.orders', 'kept', 'other')",
            "delete_tag('shop.orders', 'kept')",
            "rollback('shop.orders', 2)",
            "create_branch('shop.orders', 'more')",
            "delete_branch('shop.orders', 'side')",
            "fast_forward('shop.orders', 'side')",
            "rescale('shop.orders', 2)",
            "remove_orphan_files(table => 'shop.log', older_than => '2026-01-01 00:00:00', dry_run => false)",
            "reset_consumer('shop.orders', 'job', 1)",
            "clear_consumers('shop.orders')",
            "erase('shop.orders', 'id = 1')",
            "clone('shop.orders', 'shop.copy')",
            "enable_stream('shop.orders')",
        )
    },
}


BY_REQUEST = {"create database", "drop database", "drop table"}
"""What is nothing but a request, which the server refuses."""


@pytest.mark.parametrize("verb", VERBS)
def test_a_reader_changes_no_file(server: Server, tmp_path: Path, verb: str) -> None:
    reader = server.catalog(token=READER)
    before = files(server.folder / "warehouse")
    kind, told = e.UnsupportedError, f"the catalog at '{reader.metastore.client.uri}' lets this client only read. "  # type: ignore[attr-defined]
    if verb in BY_REQUEST:
        kind, told = e.StorageError, "with 403: this client only reads. "
    with pytest.raises(kind) as error:
        VERBS[verb](reader, reader.table("shop.orders"), tmp_path)
    assert told in str(error.value)
    assert "Nothing was changed. " in str(error.value)
    assert "token" in str(error.value)
    assert files(server.folder / "warehouse") == before


def test_each_verb_works_for_a_writer(tmp_path: Path) -> None:
    """Else the test above would show nothing."""
    server = Server(tmp_path, read_token=READER)
    made(server.files())
    shutil.copytree(tmp_path / "warehouse", tmp_path / "kept")
    before = files(tmp_path / "warehouse")
    for verb, change in VERBS.items():
        shutil.rmtree(tmp_path / "warehouse")
        shutil.copytree(tmp_path / "kept", tmp_path / "warehouse")
        writer = server.catalog()
        change(writer, writer.table("shop.orders"), tmp_path)
        assert files(tmp_path / "warehouse") != before, verb
    assert server.stop() == 0


def test_a_reader_reads_in_each_way(server: Server, tmp_path: Path) -> None:
    before = files(server.folder / "warehouse")
    reader = pickle.loads(pickle.dumps(server.catalog(token=READER)))
    orders = reader.table("shop.orders")
    now = [{"id": 0, "state": "s2", "day": "2026-01-01"}, {"id": 1, "state": "s3", "day": "2026-01-01"}]
    assert orders.read().to_pylist() == now
    assert orders.read(tag="kept").to_pylist()[1]["state"] == "s1"
    assert orders.branch("side").read().count() == 3
    assert reader.sql("SELECT max(state) AS m FROM shop.orders").to_pylist() == [{"m": "s3"}]
    assert orders.lookup([{"id": 1, "day": "2026-01-01"}]).to_pylist() == now[1:]
    assert orders.check() == ()
    assert len(orders.consumers.list()) == 1
    assert len(reader.table("shop.orders$snapshots").read().to_pylist()) == 4
    assert orders.expire(retain_max=100, retain_min=50) is not None  # there is nothing to remove
    assert reader.table("shop.log").remove_orphans(dry_run=True) is not None
    copied = mg.catalog(tmp_path / "own", options={"local.sync": "false"})
    copied.create_database("shop")
    assert copied.clone(orders, "shop.orders").read().count() == 2
    assert files(server.folder / "warehouse") == before


def test_without_a_token_a_client_of_the_server_only_reads(tmp_path: Path) -> None:
    owner = mg.catalog(tmp_path / "warehouse", options={"local.sync": "false"})
    made(owner)
    server = Serving(tmp_path / "warehouse", command="serve-catalog")
    reader = mg.catalog(f"http://127.0.0.1:{server.port}", options={"warehouse": "warehouse"})
    before = files(tmp_path / "warehouse")
    for change in (sql("CALL sys.rollback('shop.orders', 1)"), sql("CREATE TABLE shop.copy AS SELECT 1 AS a")):
        with pytest.raises(e.UnsupportedError, match=r"If the server was started with a token, set the options 'token"):
            change(reader, reader.table("shop.orders"), tmp_path)
    assert files(tmp_path / "warehouse") == before
    assert server.stop() == 0


def test_the_server_says_what_a_client_may_do(server: Server) -> None:
    def role(token: str) -> str:
        found = server.ask("/v1/config", headers={"authorization": f"Bearer {token}"}, warehouse="warehouse")
        said: str = found.json["overrides"]["merganser.role"]
        return said

    assert (role(TOKEN), role(READER)) == ("write", "read")


def test_a_client_of_a_server_that_says_no_role_is_not_kept_from_anything(tmp_path: Path) -> None:
    def answer(_method: str, path: str, reply: Answer) -> Answer:
        if "/config" not in path:
            return reply
        said = json.loads(reply[2])
        del said["overrides"]["merganser.role"]
        return reply[0], reply[1], json.dumps(said).encode()

    server = Server(tmp_path, read_token=READER)
    made(server.files())
    proxy = Proxy(server.port)
    proxy.after = answer
    server.catalog(proxy.port, token=READER).table("shop.orders").tags.drop("kept")
    assert server.files().table("shop.orders").tags.list() == ()
    proxy.close()
    assert server.stop() == 0
