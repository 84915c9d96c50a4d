"""The server in its own process, asked over real connections."""

from __future__ import annotations

import json
import math
import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from datetime import time as clock_time
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from openapi_spec_validator import validate

import merganser as mg
from tests.unit.serve.serving import TOKEN, Follower, Serving

pytestmark = pytest.mark.xdist_group("serve")


class World(NamedTuple):
    catalog: Any
    server: Serving


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("serve")
    catalog = mg.catalog(folder / "warehouse", options={"local.sync": "false"})
    catalog.create_database("shop")
    other = mg.catalog(folder / "other")
    other.create_database("shop")
    other.create_table("shop.secret", "k INT", options={"stream.enabled": "true", "stream.retention": "1 d"})
    server = Serving(folder / "warehouse", "--allow-changes", token=TOKEN)
    yield World(catalog, server)
    log = server.log.read_text()
    assert server.stop() == 0
    assert "Traceback" not in log
    assert TOKEN not in log


def table_of(world: World, name: str, definition: str = "k INT, v INT, PRIMARY KEY (k)", **options: str) -> Any:
    given = {"bucket": "2", "stream.enabled": "true", "stream.retention": "1 d"} | options
    return world.catalog.create_table(f"shop.{name}", definition, options=given)


def refusal(reply: Any) -> tuple[int, str]:
    assert set(reply.json) == {"code", "message"}
    assert "Traceback" not in reply.json["message"]
    return reply.status, reply.json["code"]


# what is answered


def test_a_table_is_followed_through_a_split_and_a_merge(world: World) -> None:
    table = table_of(world, "followed")
    follower = Follower(world.server, "shop.followed")
    for buckets in (2, 4, 1):
        table.rescale(buckets)
        table.write([{"k": k, "v": buckets} for k in range(40)])
        follower.round()
    records = follower.finish()
    kinds = [record["_action"] for record in records]
    assert (kinds.count("PUT"), kinds.count("UPDATE"), len(kinds)) == (40, 80, 120)
    for k in range(40):
        mine = [record for record in records if record["k"] == k]
        assert [record["v"] for record in mine] == [2, 4, 1]
        assert [record["_sequence"] for record in mine] == sorted(record["_sequence"] for record in mine)
    assert [shard["closed"] for shard in world.server.shards("shop.followed")].count(False) == 1


def test_a_description_has_the_columns_and_pages_of_shards(world: World) -> None:
    table_of(world, "described")
    by_day = world.catalog.create_table(
        "shop.by_day",
        "d DATE, k INT, PRIMARY KEY (d, k)",
        partition_by=["d"],
        options={"bucket": "2", "stream.enabled": "true", "stream.retention": "1 d"},
    )
    by_day.write([{"d": date(2026, 1, 2), "k": 1}])
    found = world.server.of("shop.by_day", "stream", limit=1)
    assert found["columns"] == [{"name": "d", "type": "DATE NOT NULL"}, {"name": "k", "type": "INT NOT NULL"}]
    assert (found["primary_key"], found["retention_seconds"], found["status"]) == (["d", "k"], 86400, "active")
    assert [shard["partition"] for shard in found["shards"]] == [{"d": "2026-01-02"}]
    rest = world.server.of("shop.by_day", "stream", start_shard=found["next_shard"])
    ids = [shard["shard_id"] for page in (found, rest) for shard in page["shards"]]
    assert ids == [shard.shard_id for shard in by_day.shards()]
    assert rest["next_shard"] is None
    listed = world.server.ask("/v1/streams").json["streams"]
    assert {"shop.by_day", "shop.described"} <= {each["table_name"] for each in listed}
    assert world.server.ask("/v1/streams", table="shop.by_day").json["streams"][0]["stream_id"] == found["stream_id"]


def test_every_type_has_a_form_in_json_and_arrow_has_the_types(world: World) -> None:
    table = table_of(
        world,
        "typed",
        "k BIGINT, b BOOLEAN, f FLOAT, d DOUBLE, n DECIMAL(20, 3), s STRING, y BYTES, dt DATE, t TIME(3), "
        "ts TIMESTAMP(6), tz TIMESTAMP_LTZ(3), a ARRAY<DOUBLE>, m MAP<STRING, BIGINT>, "
        "r ROW<x INT, y DECIMAL(3, 1)>, z INT, PRIMARY KEY (k)",
        bucket="1",
    )
    row = {
        "k": 2**63 - 1,
        "b": True,
        "f": math.nan,
        "d": -math.inf,
        "n": Decimal("12345678901234567.890"),
        "s": 'a\n"é\u2028',
        "y": b"\x00\xff",
        "dt": date(2026, 1, 2),
        "t": clock_time(1, 2, 3),
        "ts": datetime(2026, 1, 2, 3, 4, 5, 678),
        "tz": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "a": [1.5, None, math.inf],
        "m": [("x", 2**53 + 1)],
        "r": {"x": 1, "y": Decimal("2.5")},
        "z": None,
    }
    table.write([row])
    (shard,) = table.shards()
    at = table.shard_iterator(shard.shard_id, at="trim_horizon")
    (told,) = world.server.of("shop.typed", "records", iterator=at)["records"]
    columns = {name: value for name, value in told.items() if not name.startswith("_")}
    assert columns == {
        "k": 2**63 - 1,
        "b": True,
        "f": "NaN",
        "d": "-Infinity",
        "n": "12345678901234567.890",
        "s": 'a\n"é\u2028',
        "y": "AP8=",
        "dt": "2026-01-02",
        "t": "01:02:03",
        "ts": "2026-01-02 03:04:05.000678",
        "tz": "2026-01-02T03:04:05+00:00",
        "a": [1.5, None, "Infinity"],
        "m": [{"key": "x", "value": 2**53 + 1}],
        "r": {"x": 1, "y": "2.5"},
        "z": None,
    }
    (texts,) = world.server.of("shop.typed", "records", iterator=at, integers="text", before="true")["records"]
    assert (texts["k"], texts["_sequence"], texts["_before"]) == (str(2**63 - 1), str(told["_sequence"]), None)
    assert texts["m"] == [{"key": "x", "value": str(2**53 + 1)}]
    path, asked = "/v1/tables/shop.typed/records", table.records(at)
    for arrow in (
        world.server.ask(path, iterator=at, format="arrow"),
        world.server.ask(path, headers={"accept": "application/vnd.apache.arrow.stream"}, iterator=at),
    ):
        assert arrow.headers["content-type"] == "application/vnd.apache.arrow.stream"
        assert (arrow.headers["next-iterator"], arrow.headers["may-have-more"]) == (asked.next_iterator, "false")
        read = pa.ipc.open_stream(arrow.body).read_all()
        assert read.schema == asked.records.schema
        assert str(read.to_pylist()) == str(asked.records.to_pylist())  # NaN is not equal to itself


def test_the_end_of_a_closed_shard_has_no_next_position(world: World) -> None:
    table = table_of(world, "ended", bucket="1")
    (shard,) = table.shards()
    at = world.server.of("shop.ended", "iterator", shard=shard.shard_id)["iterator"]
    table.write([{"k": 1, "v": 1}])
    table.rescale(2)
    page = world.server.of("shop.ended", "records", iterator=at, wait=20)
    assert (len(page["records"]), page["next_iterator"], page["may_have_more"]) == (1, None, False)
    arrow = world.server.ask("/v1/tables/shop.ended/records", iterator=at, format="arrow")
    assert "next-iterator" not in arrow.headers


def test_positions_are_found_by_time(world: World) -> None:
    table = table_of(world, "timed", bucket="1")
    (shard,) = table.shards()
    for k in range(3):
        table.write([{"k": k, "v": k}])
    told = table.records(table.shard_iterator(shard.shard_id, at="trim_horizon")).records
    second = told["_commit_time"][1].as_py()
    for timestamp in (int(second.timestamp() * 1000), second.isoformat()):
        at = world.server.of("shop.timed", "iterator", shard=shard.shard_id, timestamp=timestamp)["iterator"]
        records = world.server.of("shop.timed", "records", iterator=at)["records"]
        assert [record["k"] for record in records][-2:] == [1, 2]
    refused = world.server.ask("/v1/tables/shop.timed/iterator", shard=shard.shard_id, timestamp="yesterday")
    assert refusal(refused) == (400, "OTSParameterInvalid")


def test_a_request_waits_for_records_and_other_shards_do_not_end_it(world: World) -> None:
    table = table_of(world, "waited")
    table.write([{"k": k, "v": 0} for k in range(20)])
    ends = {shard.bucket: table.shard_iterator(shard.shard_id) for shard in table.shards()}
    at = table.shard_iterator(table.shards()[0].shard_id, at="trim_horizon")
    here = {record["k"] for record in table.records(at).records.to_pylist()}
    there = next(k for k in range(20) if k not in here)

    def asked() -> tuple[list[Any], float]:
        begun = time.monotonic()
        page = world.server.of("shop.waited", "records", iterator=ends[0], wait=20)
        return page["records"], time.monotonic() - begun

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(asked)
        time.sleep(0.1)
        table.write([{"k": there, "v": 1}])
        time.sleep(0.3)
        assert not waiting.done()
        table.write([{"k": min(here), "v": 1}])
        records, seconds = waiting.result()
    assert [record["k"] for record in records] == [min(here)]
    assert seconds < 10
    begun = time.monotonic()
    idle = world.server.of(
        "shop.waited", "records", iterator=table.shard_iterator(table.shards()[0].shard_id), wait=0.2
    )
    assert idle["records"] == []
    assert 0.2 <= time.monotonic() - begun < 10


def test_clients_side_by_side_see_each_record_once_while_the_table_changes(world: World) -> None:
    table = table_of(world, "busy")
    over = threading.Event()

    def written() -> None:
        try:
            for number in range(8):
                table.write([{"k": k, "v": number} for k in range(30)])
                if number in (2, 5):
                    table.rescale(3 if number == 2 else 1)
                    table.expire(retain_max=2, retain_min=1)
        finally:
            over.set()

    def followed(_number: int) -> list[dict[str, Any]]:
        follower = Follower(world.server, "shop.busy", limit=50)
        while not over.is_set():
            follower.round()
        return follower.finish()

    with ThreadPoolExecutor(5) as pool:
        writing = pool.submit(written)
        found = list(pool.map(followed, range(4)))
        writing.result()
    for records in found:
        assert sorted((record["k"], record["v"]) for record in records) == [(k, v) for k in range(30) for v in range(8)]
        for k in range(30):
            assert [record["v"] for record in records if record["k"] == k] == list(range(8))


# what is refused


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/nothing", 404, "OTSObjectNotExist"),
        ("/v1/tables/shop.refused/nothing", 404, "OTSObjectNotExist"),
        ("/v1/tables/shop.refused/stream/", 404, "OTSObjectNotExist"),
        ("/v1/tables/shop.nothing/stream", 404, "OTSObjectNotExist"),
        ("/v1/tables/nothing.t/stream", 404, "OTSObjectNotExist"),
        ("/v1/tables/shop.plain/stream", 404, "OTSObjectNotExist"),
        ("/v1/tables/refused/stream", 400, "OTSParameterInvalid"),
        ("/v1/tables/shop.refused%24files/stream", 400, "OTSParameterInvalid"),
        ("/v1/tables/shop.refused%24branch_b/stream", 404, "OTSObjectNotExist"),
        ("/v1/tables/shop.refused/stream?limit=0", 400, "OTSParameterInvalid"),
        ("/v1/tables/shop.refused/iterator?shard=shard-9", 404, "OTSObjectNotExist"),
        ("/v1/tables/shop.refused/iterator", 400, "OTSParameterInvalid"),
        ("/v1/tables/shop.refused/records?iterator=damaged", 404, "OTSTrimmedDataAccess"),
        ("/v1/tables/shop.refused/records?iterator=", 404, "OTSTrimmedDataAccess"),
        ("/v1/streams?table=shop.nothing", 404, "OTSObjectNotExist"),
    ],
)
def test_an_error_has_its_status_and_its_code(world: World, path: str, status: int, code: str) -> None:
    if not world.catalog.streams() or "refused" not in world.catalog.list_tables("shop"):
        table_of(world, "refused")
        world.catalog.create_table("shop.plain", "k INT")
    assert refusal(world.server.ask(path)) == (status, code)


def test_the_connection_of_a_request_that_is_refused_with_its_body_is_closed(world: World) -> None:
    """Else a client that never ends its body would keep it."""
    with socket.create_connection(("127.0.0.1", world.server.port), timeout=20) as client:
        client.sendall(b"PUT /v1/streams HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel")
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 403 ")
    large = world.server.ask("/v1/tables/shop.x/stream", method="PUT", body=b"x" * 100_000)
    assert refusal(large) == (413, "OTSParameterInvalid")
    assert large.headers["connection"] == "close"


def test_other_methods_are_refused(world: World) -> None:
    reply = world.server.ask("/v1/streams", method="POST")
    assert refusal(reply) == (405, "OTSParameterInvalid")
    assert "GET" in reply.headers["allow"]
    assert refusal(world.server.ask("/v1/streams", body="{}")) == (400, "OTSParameterInvalid")


@pytest.mark.parametrize(
    "name",
    [
        "..%2F..%2Fother%2Fshop.secret",
        "shop.db%2F..%2F..%2Fother%2Fshop.db%2Fsecret",
        "..%2Fother%2Fshop.secret",
        "%2Fetc.passwd",
        "../../other/shop.secret",
        "..%5Cother%5Cshop.secret",
        "shop.%2E%2E",
        "shop...%2F..%2Fother%2Fshop.db%2Fsecret",
        "%2e%2e%2fother%2fshop.secret",
        "%252e%252e%252fother.secret",
        "file:%2F%2F%2Fetc.passwd",
        "s3:%2F%2Fbucket.x",
        "~.ssh",
        "shop.t%00",
        "shop.t%0d%0aset-cookie:a=b",
        "shop.%FF",
        "shop." + "x" * 300,
        "shop.%F0%9F%A6%86",
        "shop.t%E2%80%AE",
        "shop.a%20b%27%22%3C%3E",
        "%24.%24",
        ".",
        "shop.typed%24branch_..%2F..%2Fx",
        "shop.typed%24branch_main%24branch_x",
    ],
)
def test_a_name_does_not_lead_out_of_the_warehouse(world: World, name: str) -> None:
    status, code = refusal(world.server.ask(f"/v1/tables/{name}/stream"))
    assert (status, code) in ((400, "OTSParameterInvalid"), (404, "OTSObjectNotExist"))


def test_odd_names_that_tables_may_have_are_found(world: World) -> None:
    table = world.catalog.create_table(
        "shop.a b+c%2F&=ü", "k INT", options={"stream.enabled": "true", "stream.retention": "1 d"}
    )
    found = world.server.of("shop.a b+c%2F&=ü", "stream")
    assert (found["table_name"], found["stream_id"]) == (table.name, table.describe_stream().stream_id)
    assert found["primary_key"] == []


def test_a_token_is_needed_but_for_health_and_the_description_of_the_server(world: World) -> None:
    path = "/v1/streams"
    for given in (
        "",
        "Bearer",
        "Bearer wrong",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer é",
    ):
        assert refusal(world.server.ask(path, headers={"authorization": given})) == (403, "OTSAuthFailed")
    assert refusal(world.server.ask("/nothing", headers={"authorization": ""})) == (403, "OTSAuthFailed")
    assert world.server.ask(path, headers={"authorization": f"bearer {TOKEN}"}).status == 200
    for each in ("/health", "/", "/openapi.json"):
        assert world.server.ask(each, headers={"authorization": ""}).status == 200


def test_streams_are_disabled_enabled_and_their_tables_made_anew(world: World) -> None:
    table = table_of(world, "changed", bucket="1")
    path = "/v1/tables/shop.changed/stream"
    first = world.server.of("shop.changed", "stream")
    old = world.server.of("shop.changed", "iterator", shard=first["shards"][0]["shard_id"])["iterator"]
    assert world.server.ask(path, method="DELETE").json == {"status": "disabled"}
    assert refusal(world.server.ask(path)) == (404, "OTSObjectNotExist")
    assert refusal(world.server.ask("/v1/tables/shop.changed/records", iterator=old)) == (404, "OTSObjectNotExist")
    assert refusal(world.server.ask(path, method="DELETE")) == (404, "OTSObjectNotExist")
    made = world.server.ask(path, method="PUT", body='{"retention": "2 h"}').json
    assert made["retention_seconds"] == 7200
    assert made["stream_id"] == table.describe_stream().stream_id != first["stream_id"]
    assert refusal(world.server.ask("/v1/tables/shop.changed/records", iterator=old)) == (404, "OTSTrimmedDataAccess")
    for body in ('{"retention": "soon"}', '{"retention": 3}', "[]", "{", '{"retentoin": "1 h"}', "[" * 50_000):
        assert refusal(world.server.ask(path, method="PUT", body=body)) == (400, "OTSParameterInvalid")
    at = world.server.of("shop.changed", "iterator", shard=table.shards()[0].shard_id)["iterator"]
    assert world.server.of("shop.changed", "records", iterator=at)["records"] == []
    world.catalog.drop_table("shop.changed")
    assert refusal(world.server.ask("/v1/tables/shop.changed/records", iterator=at)) == (404, "OTSObjectNotExist")
    anew = table_of(world, "changed", "k INT, w STRING, PRIMARY KEY (k)", bucket="1")
    anew.write([{"k": 1, "w": "x"}])
    assert refusal(world.server.ask("/v1/tables/shop.changed/records", iterator=at)) == (404, "OTSTrimmedDataAccess")
    shard = world.server.of("shop.changed", "stream")["shards"][0]["shard_id"]
    at = world.server.of("shop.changed", "iterator", shard=shard, at="trim_horizon")["iterator"]
    assert [record["w"] for record in world.server.of("shop.changed", "records", iterator=at)["records"]] == ["x"]


def test_noise_gets_an_error_or_a_closed_connection(world: World) -> None:
    """Requests that a seed spoils: nothing answers 200 or 500 but what is a request still."""
    drawn = random.Random(7)
    whole = (
        f"GET /v1/tables/shop.typed/records?iterator=AAAA&limit=3 HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"authorization: Bearer {TOKEN}\r\n\r\n"
    ).encode()
    for _ in range(150):
        text = bytearray(whole if drawn.random() < 0.9 else drawn.randbytes(200))
        for _ in range(drawn.randint(1, 6)):
            at = drawn.randrange(len(text))
            text[at : at + drawn.choice((0, 1, 1, 9))] = drawn.randbytes(drawn.choice((0, 1, 1, 3)))
        with socket.create_connection(("127.0.0.1", world.server.port), timeout=20) as client:
            client.sendall(bytes(text) + b"\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := client.recv(65536):
                answer += piece
        assert b"Traceback" not in answer
        assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200", b"HTTP/1.0 4")), (bytes(text), answer)
    assert world.server.ask("/health").json == {"status": "ok"}


# the description of the server


def test_the_openapi_document_is_valid_and_the_page_shows_all_of_it(world: World) -> None:
    document = world.server.ask("/openapi.json").json
    validate(document)
    page = world.server.ask("/")
    text = page.body.decode()
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert not any(
        outside in text for outside in ("http://", "https://", "src=", "<script", "<link", "@import", "url(")
    )
    assert {"/v1/streams", "/v1/tables/{table}/records", "/health"} <= set(document["paths"])
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert f"<b>{method.upper()}</b> {path}" in text
            assert all(f"<code>{each['name']}</code>" in text for each in operation["parameters"])
            assert ("security" in operation) == (path != "/health")


def test_answers_are_as_the_document_says(world: World) -> None:
    from jsonschema import Draft202012Validator

    document = world.server.ask("/openapi.json").json
    table = table_of(world, "as_said", bucket="1")
    table.write([{"k": 1, "v": 1}])
    table.write([{"k": 1, "v": 2}])
    (shard,) = table.shards()
    at = table.shard_iterator(shard.shard_id, at="trim_horizon")
    path = "/v1/tables/shop.as_said"
    for name, reply in {
        "StreamDescription": world.server.ask(f"{path}/stream"),
        "Shards": world.server.ask(f"{path}/shards"),
        "Iterator": world.server.ask(f"{path}/iterator", shard=shard.shard_id),
        "Records": world.server.ask(f"{path}/records", iterator=at, before="true"),
        "Streams": world.server.ask("/v1/streams"),
        "Health": world.server.ask("/health"),
        "Error": world.server.ask("/nothing"),
        "Enabled": world.server.ask(f"{path}/stream", method="PUT"),
        "Disabled": world.server.ask(f"{path}/stream", method="DELETE"),
    }.items():
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        Draft202012Validator(schema).validate(json.loads(reply.body))
