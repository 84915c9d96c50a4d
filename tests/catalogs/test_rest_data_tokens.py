"""Data tokens: a client without keys of its own gets those of each table, and others before they expire."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser import errors as e
from merganser.catalogs import rest_tokens
from merganser.storage.object_store import ObjectStorage
from tests.catalogs.rest import Answer, Proxy, Server
from tests.catalogs.token_shop import Shop
from tests.s3_server import new_bucket

pytestmark = [pytest.mark.xdist_group("serve"), pytest.mark.s3]
_KEYS_LIVE_S = 3


@pytest.fixture
def shop_of(tmp_path: Path, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Shop]]:
    made: list[Shop] = []

    def start(seconds: float, name: str = "a", **more: Any) -> Shop:
        made.append(Shop(tmp_path / name, s3_endpoint, seconds, monkeypatch, **more))
        return made[-1]

    yield start
    for each in made:
        each.stop()


def ids(table: Any) -> list[int]:
    return sorted(table.read().to_arrow()["id"].to_pylist())


def test_a_client_without_keys_reads_and_writes(shop_of: Callable[..., Shop]) -> None:
    shop = shop_of(3600)
    catalog = shop.catalog()
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", "id BIGINT, state STRING, PRIMARY KEY (id)", options={"bucket": "1"})
    table.write(pa.table({"id": [1, 2], "state": ["a", "b"]}))
    shop.files().table("shop.orders").write(pa.table({"id": [3], "state": ["c"]}))  # type: ignore[union-attr]
    table.alter([mg.changes.add_column("note", "STRING")])
    table.compact()
    assert ids(catalog.table("shop.orders")) == [1, 2, 3]
    assert catalog.sql("SELECT count(*) AS n FROM shop.orders")["n"].to_pylist() == [3]
    assert shop.tokens() == ["shop.orders write"]  # one for all, of this process
    catalog.create_table("shop.more", "id BIGINT").write(pa.table({"id": [1]}))
    with_keys = shop.catalog(**shop.set)
    with_keys.clone("shop.orders", "shop.copy")  # it is built aside, where no table is yet
    assert ids(catalog.table("shop.copy")) == [1, 2, 3]
    again = pickle.loads(pickle.dumps(table))
    assert ids(again) == [1, 2, 3]
    storage = table.env.storage.files  # type: ignore[attr-defined]
    assert isinstance(storage, ObjectStorage)
    assert storage.lease is not None
    for found in (catalog.metastore, table.env.storage, storage, storage.lease, pickle.dumps(storage)):
        assert "until-" not in repr(found)  # it holds no keys
    catalog.drop_database("shop", cascade=True)


@pytest.mark.campaign(1 / 3, first=1)
def test_keys_are_renewed_in_the_middle_of_reads_and_writes(shop_of: Callable[..., Shop]) -> None:
    """A commit, a scan, a file and an upload, beside each other, each longer than keys live."""
    shop = shop_of(_KEYS_LIVE_S)
    catalog = shop.catalog()
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", "id BIGINT, text STRING", options={"bucket": "-1"})
    for number in range(3):
        table.write(pa.table({"id": [1000 + number], "text": ["x"]}))
    storage = table.env.storage
    path = next(f"{table.path}/bucket-0/{each.name}" for each in storage.list(f"{table.path}/bucket-0"))

    def commit() -> None:
        data = pa.table({"id": range(1000), "text": [str(number) * 100 for number in range(1000)]})
        with table.writer() as writer:
            for part in range(5):
                writer.write(data.slice(200 * part, 200))
                time.sleep(_KEYS_LIVE_S / 4)
            writer.commit()

    def scan() -> None:
        found = []
        for batch in table.read(snapshot=3).to_batches():
            found += batch["id"].to_pylist()
            time.sleep(_KEYS_LIVE_S / 2)
        assert sorted(found) == [1000, 1001, 1002]

    def file() -> None:
        with storage.open(path) as opened:
            size = opened.size()
            whole = opened.read(10)
            time.sleep(1.1 * _KEYS_LIVE_S)
            opened.seek(0)
            assert opened.read(size)[:10] == whole

    def upload() -> None:
        sink = storage.writer(f"{table.path}/long.tmp")
        block = b"x" * (8 << 20)  # a part of an upload
        for _ in range(3):
            sink.stream.write(block)
            time.sleep(_KEYS_LIVE_S / 2)
        sink.close()
        assert len(storage.read(f"{table.path}/long.tmp")) == 3 * len(block)

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work) for work in (commit, scan, file, upload)]:
            done.result()
    assert len(shop.tokens()) > 2
    assert len(set(shop.tokens())) == 1
    assert ids(table) == list(range(1003))


def test_a_job_of_another_process_asks_for_itself(
    shop_of: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = shop_of(3600)
    catalog = shop.catalog()
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", "id BIGINT")
    table.write(pa.table({"id": [1]}))
    packed = pickle.dumps(table)
    monkeypatch.setattr(rest_tokens, "_HELD", type(rest_tokens._HELD)())  # as a new process has it
    assert ids(pickle.loads(packed)) == [1]
    assert shop.tokens() == ["shop.orders write"] * 2


def test_tables_of_one_catalog_lie_in_two_buckets(shop_of: Callable[..., Shop]) -> None:
    near, far = shop_of(3600), shop_of(3600, "b")
    near.proxy.port_of = lambda path: (far if "/databases/far" in path else near).server.port
    catalog = near.catalog()
    near.files().create_database("near")
    far.files().create_database("far")
    one = catalog.create_table("near.one", "id BIGINT")
    two = catalog.create_table("far.two", "id BIGINT, PRIMARY KEY (id)", options={"bucket": "1"})
    assert (one.path.partition("/warehouse")[0], two.path.partition("/warehouse")[0]) == (
        near.bucket.root,
        far.bucket.root,
    )
    one.write(pa.table({"id": [1]}))
    two.write(pa.table({"id": [2]}))
    two.write(pa.table({"id": [3]}))
    assert ids(catalog.table("near.one")) == [1]
    assert ids(far.files().table("far.two")) == ids(catalog.table("far.two")) == [2, 3]
    joined = catalog.sql("SELECT a.id AS a, b.id AS b FROM near.one a JOIN far.two b ON a.id + 1 = b.id")
    assert joined.to_pylist() == [{"a": 1, "b": 2}]


def test_a_reader_gets_keys_that_read(shop_of: Callable[..., Shop]) -> None:
    shop = shop_of(3600, read_token="a-token-of-clients-that-read")
    shop.files().create_database("shop")
    shop.files().create_table("shop.orders", "id BIGINT").write(pa.table({"id": [1]}))
    table = shop.catalog(token="a-token-of-clients-that-read").table("shop.orders")
    assert ids(table) == [1]
    assert shop.tokens() == ["shop.orders read"]
    with pytest.raises(e.UnsupportedError, match="lets this client only read"):
        table.write(pa.table({"id": [2]}))  # type: ignore[union-attr]


def test_what_a_server_says_of_keys_is_checked(shop_of: Callable[..., Shop]) -> None:
    shop = shop_of(3600)
    files = shop.files()
    files.create_database("shop")
    for name in ("orders", "hidden", "broken"):
        files.create_table(f"shop.{name}", "id BIGINT")
    catalog = shop.catalog()
    with pytest.raises(e.StorageError, match=r"this client gets no keys for 'shop\.hidden'"):
        catalog.table("shop.hidden")
    with pytest.raises(e.StorageError, match="The log of the server says more"):
        catalog.table("shop.broken")
    assert "It has to return a dict of options" in shop.server.log.read_text()
    for reply, told in (
        (b'{"token":{},"expiresAtMillis":1}', "that expired"),
        (b'{"token":{}}', "in a form that is none"),
        (b"{}", "in a form that is none"),
    ):

        def wrong(_method: str, path: str, reply: bytes = reply) -> Answer | None:
            return (200, {}, reply) if path.endswith("/token") else None

        shop.proxy.before = wrong
        with pytest.raises(e.StorageError, match=told):
            catalog.table("shop.orders")


def test_keys_that_are_good_still_serve_while_the_server_gives_no_others(shop_of: Callable[..., Shop]) -> None:
    shop = shop_of(3)
    catalog = shop.catalog()
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", "id BIGINT")
    table.write(pa.table({"id": [1]}))
    shop.proxy.before = lambda _method, path: (500, {}, b'{"message":"down"}') if path.endswith("/token") else None
    found = table.env.storage.files.lease.current()  # type: ignore[attr-defined]
    time.sleep(max(0, (found[1] - time.time() * 1000) / 1000) + 0.1)
    with pytest.raises(e.StorageError, match="with 500: down"):
        table.read().to_arrow()  # too little time is left
    shop.proxy.before = lambda _method, _path: None
    assert ids(table) == [1]


def test_without_tokens_tables_lie_in_several_stores(tmp_path: Path, s3_endpoint: str) -> None:
    near = Server(tmp_path)
    far_bucket = new_bucket(s3_endpoint)
    stores = [part for key, text in far_bucket.options.items() for part in ("--store", f"{key}={text}")]
    (tmp_path / "b").mkdir()
    far = Server(tmp_path / "b", f"{far_bucket.root}/warehouse", stores)
    proxy = Proxy(near.port)
    proxy.port_of = lambda path: (far if "/databases/far" in path else near).port
    catalog = near.catalog(proxy.port, **far_bucket.options)
    near.files().create_database("near")
    files = mg.catalog(f"{far_bucket.root}/warehouse", options=far_bucket.options)
    files.create_database("far")
    catalog.create_table("near.one", "id BIGINT").write(pa.table({"id": [1]}))
    two = catalog.create_table("far.two", "id BIGINT")
    two.write(pa.table({"id": [2]}))
    assert ids(files.table("far.two")) == [2]
    catalog.clone("near.one", "far.copy")  # from the disk to the bucket
    catalog.clone("far.two", "near.copy")
    assert (ids(catalog.table("far.copy")), ids(near.files().table("near.copy"))) == ([1], [2])
    again = pickle.loads(pickle.dumps(catalog))
    assert ids(again.table("far.two")) == [2]
    proxy.close()
    assert (near.stop(), far.stop()) == (0, 0)
