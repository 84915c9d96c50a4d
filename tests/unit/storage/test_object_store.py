"""Object stores: against an S3 server, and against one that misbehaves as told."""

from __future__ import annotations

import os
import pickle
import random
import re
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merganser.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageError, UnsupportedError
from merganser.meta.create_once import create_once
from merganser.options import catalog
from merganser.options.option import Option
from merganser.storage.env import Env
from merganser.storage.object_connection import target_of
from merganser.storage.object_store import ObjectStorage

STORE_OPTIONS = [option for option in catalog.OPTIONS if option.key.startswith(("s3.", "oss.", "gs.", "az."))]
SECRET = "w3ry-S3cret/k+y="


@dataclass
class Server:
    """A store that keeps objects, notes requests, and does as told.

    Attributes:
        objects: path -> bytes.
        requests: method and path of each, bodies sent counted in `sent`.
        sent: bytes of all bodies sent.
        answers: what to answer to the next puts that are not probes: None as it should be, `drop` to do it and hang up,
            or a status; a negative one does the put first.
        honours_conditions: whether `If-None-Match` is kept.
        forbids_overwrites: whether the header of OSS is kept.
        refuses: a status for everything.
    """

    endpoint: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    sent: int = 0
    answers: list[Any] = field(default_factory=list)
    honours_conditions: bool = True
    forbids_overwrites: bool = False
    refuses: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def puts(self, part: str = "") -> int:
        return sum(request.startswith("PUT") and part in request for request in self.requests)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body of each reply waits for 40 ms
    store: Server

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"ETag": '"e"', "Last-Modified": "Sun, 01 Mar 2026 00:00:00 GMT", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body)
        self.store.sent += len(body)

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        with self.store.lock:
            self.store.requests.append(f"{self.command} {path}")
            if self.store.refuses:
                self.answer(
                    self.store.refuses, f"<Error><Code>Refused</Code><Message>{SECRET}</Message></Error>".encode()
                )
            else:
                getattr(self, f"on_{self.command.lower()}")(path, body)

    do_GET = do_HEAD = do_PUT = do_POST = handle_any  # noqa: N815 - the base class looks for these names

    def on_put(self, path: str, body: bytes) -> None:
        taken = (
            self.store.honours_conditions and self.headers.get("If-None-Match") == "*" and path in self.store.objects
        )
        forbidden = self.store.forbids_overwrites and self.headers.get("x-oss-forbid-overwrite") == "true"
        if forbidden and path in self.store.objects:
            return self.answer(409, b"<Error><Code>FileAlreadyExists</Code></Error>")
        answer = self.store.answers.pop(0) if self.store.answers and ".probe." not in path else None
        if not taken and (answer is None or answer == "drop" or answer < 0):
            self.store.objects[path] = body
        if answer == "drop":
            self.close_connection = True
            self.connection.close()
        elif answer is not None:
            self.answer(abs(answer), b"<Error><Code>Told</Code></Error>")
        else:
            self.answer(412 if taken else 200)

    def on_post(self, path: str, body: bytes) -> None:
        for key in re.findall(r"<Key>(.*?)</Key>", body.decode()):
            self.store.objects.pop(f"{path}/{key}", None)
        self.answer(200, b"<DeleteResult></DeleteResult>")

    def on_head(self, path: str, _: bytes) -> None:
        found = self.store.objects.get(path)
        self.answer(404) if found is None else self.answer(200, Content_Length=str(len(found)))

    def on_get(self, path: str, _: bytes) -> None:
        found = self.store.objects.get(path)
        if found is None:
            return self.answer(404)
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if wanted is None:
            return self.answer(200, found)
        if not found:
            return self.answer(416)
        start = int(wanted[1]) if wanted[1] else max(0, len(found) - int(wanted[2]))
        end = min(int(wanted[2]) + 1, len(found)) if wanted[1] and wanted[2] else len(found)
        return self.answer(206, found[start:end], Content_Range=f"bytes {start}-{end - 1}/{len(found)}")


@pytest.fixture
def server() -> Iterator[Server]:
    store = Server()
    listener = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"store": store}))
    store.endpoint = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield store
    listener.shutdown()
    listener.server_close()
    thread.join()


def storage_at(server: Server, **options: str) -> ObjectStorage:
    given = {"endpoint": server.endpoint, "access-key": "AK", "secret-key": SECRET, "region": "us-east-1"}
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return ObjectStorage("s3://bucket", {f"s3.{name}": value for name, value in (given | named).items()})


class TestCreateWhenTheStoreMisbehaves:
    def test_a_lost_reply_is_not_taken_for_another_writer(self, server: Server) -> None:
        storage = storage_at(server)
        server.answers = ["drop"]
        with pytest.raises(StorageError, match="snapshot-1"):
            storage.create("s3://bucket/t/snapshot-1", b"ours")
        assert storage.read("s3://bucket/t/snapshot-1") == b"ours"
        assert server.puts("snapshot-1") == 1

    def test_an_error_after_the_fact_is_not_sent_again(self, server: Server) -> None:
        storage = storage_at(server)
        for status in (-500, -503):
            server.answers = [status]
            with pytest.raises(StorageError, match=str(-status)):
                storage.create(f"s3://bucket/t/snapshot{status}", b"ours")
            assert storage.read(f"s3://bucket/t/snapshot{status}") == b"ours"
            assert server.puts(f"snapshot{status}") == 1

    def test_a_conflict_with_a_put_under_way_is_no_existing_file(self, server: Server) -> None:
        storage = storage_at(server)
        server.answers = [409]
        with pytest.raises(StorageError):
            storage.create("s3://bucket/t/snapshot-1", b"ours")
        server.answers = []
        storage.create("s3://bucket/t/snapshot-1", b"ours")

    def test_a_conflict_that_was_lost_is_an_existing_file(self, server: Server) -> None:
        storage = storage_at(server)
        server.objects["/bucket/t/snapshot-1"] = b"theirs"
        server.answers = [409, 409]
        with pytest.raises(AlreadyExistsError):
            storage.create("s3://bucket/t/snapshot-1", b"ours")
        assert server.objects["/bucket/t/snapshot-1"] == b"theirs"

    def test_a_store_that_ignores_conditions_is_refused_before_anything_is_written(self, server: Server) -> None:
        server.honours_conditions = False
        server.objects["/bucket/t/snapshot-1"] = b"theirs"
        for name in ("snapshot-1", "snapshot-2"):
            with pytest.raises(UnsupportedError, match="two writers could both win"):
                storage_at(server).create(f"s3://bucket/t/{name}", b"ours")
        assert server.objects == {"/bucket/t/snapshot-1": b"theirs"}

    def test_a_store_is_asked_once_and_then_trusted(self, server: Server) -> None:
        for number in range(3):
            storage_at(server).create(f"s3://bucket/t/snapshot-{number}", b"ours")
        assert server.puts(".probe.") == 2
        assert sorted(server.objects) == [f"/bucket/t/snapshot-{number}" for number in range(3)]

    def test_a_store_can_be_trusted_unasked(self, server: Server) -> None:
        storage_at(server, conditional_create="trust").create("s3://bucket/t/snapshot-1", b"ours")
        assert server.puts() == 1

    @pytest.mark.parametrize("status", [401, 403])
    @pytest.mark.parametrize("conditional_create", ["check", "trust"])
    def test_a_put_that_is_forbidden_made_nothing_for_certain(
        self, server: Server, status: int, conditional_create: str
    ) -> None:
        storage = storage_at(server, conditional_create=conditional_create)
        server.refuses = status
        with pytest.raises(StorageError, match="Nothing was changed") as caught:
            storage.create("s3://bucket/t/tag/tag-v1", b"ours")
        assert caught.value.context["changed"] is False
        assert server.objects == {}

    def test_a_tag_that_may_not_be_made_is_not_there_for_certain(self, server: Server) -> None:
        env = Env(storage_at(server))
        server.refuses = 403
        with pytest.raises(StorageError, match=r"tag-v1.*Nothing was changed"):
            create_once(env, "s3://bucket/t/tag/tag-v1", b"ours", is_ours=lambda *_: True)

    def test_a_probe_that_fails_leaves_the_question_open(self, server: Server) -> None:
        storage = storage_at(server)
        server.refuses = 403
        with pytest.raises(StorageError, match="403"):
            storage.create("s3://bucket/t/snapshot-1", b"ours")
        server.refuses = 0
        storage.create("s3://bucket/t/snapshot-1", b"ours")
        assert server.puts(".probe.") == 3


def test_replace_is_sent_again_when_the_store_is_busy(server: Server) -> None:
    server.answers = [503]
    storage_at(server).replace("s3://bucket/t/LATEST", b"1")
    assert (server.objects["/bucket/t/LATEST"], server.puts("LATEST")) == (b"1", 2)


class TestOpenAsksForLittle:
    def test_a_small_file_costs_one_request(self, server: Server) -> None:
        server.objects["/bucket/data"] = b"0123456789" * 100
        with storage_at(server).open("s3://bucket/data") as file:
            assert file.size() == 1000
            assert file.read_at(10, 500) == b"0123456789"
            file.seek(0)
            assert file.read() == server.objects["/bucket/data"]
        assert server.requests == ["GET /bucket/data"]

    def test_one_column_of_a_big_file_costs_about_its_bytes(self, server: Server) -> None:
        chance = random.Random(3)
        table = pa.table({f"c{i}": [chance.random() for _ in range(20_000)] for i in range(20)})
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, use_dictionary=False, compression="none")
        data = server.objects["/bucket/data"] = buffer.getvalue().to_pybytes()
        with storage_at(server).open("s3://bucket/data") as file:
            assert pq.read_table(file, columns=["c7"])["c7"] == table["c7"]
        assert server.sent < len(data) / 20 + 100_000
        assert len(server.requests) <= 3

    def test_reading_on_asks_ahead(self, server: Server) -> None:
        data = server.objects["/bucket/data"] = random.Random(4).randbytes(3_000_000)
        with storage_at(server).open("s3://bucket/data") as file:
            parts = []
            while part := file.read(10_000):
                parts.append(part)
        assert b"".join(parts) == data
        assert len(server.requests) <= 4

    def test_an_error_in_the_middle_comes_out_as_ours(self, server: Server) -> None:
        server.objects["/bucket/data"] = random.Random(4).randbytes(300_000)
        with storage_at(server).open("s3://bucket/data") as file:
            server.refuses = 403
            with pytest.raises(StorageError, match="cannot read 's3://bucket/data'"):
                file.read(100)
            server.refuses = 0
            del server.objects["/bucket/data"]
            with pytest.raises(NotFoundError, match="s3://bucket/data"):
                file.read(100)

    def test_bytes_that_are_missing_are_noticed(self, server: Server) -> None:
        server.objects["/bucket/data"] = b"x" * 300_000
        with storage_at(server).open("s3://bucket/data") as file:
            server.objects["/bucket/data"] = b"x" * 1000
            with pytest.raises(StorageError):
                file.read_at(5000, 0)


class TestSecrets:
    def test_no_repr_and_no_message_shows_them(self, server: Server) -> None:
        storage = storage_at(server)
        server.refuses = 403
        assert SECRET not in repr(storage) + str(storage)
        for work in (
            lambda: storage.read("s3://bucket/x"),
            lambda: storage.open("s3://bucket/x"),
            lambda: storage.create("s3://bucket/x", b"1"),
            lambda: storage.writer("s3://bucket/x").close(),
            lambda: storage.list("s3://bucket/x"),
            lambda: storage.delete(["s3://bucket/x"]),
        ):
            with pytest.raises(StorageError) as caught:
                work()
            shown = "".join(traceback.format_exception(caught.value))
            assert SECRET not in shown + repr(caught.value.context)
            assert SECRET.encode() not in pickle.dumps(caught.value)
            assert "403" in str(caught.value)

    def test_a_signature_in_a_query_is_cut(self, server: Server) -> None:
        token = "sv=2026-01-01&sig=c2lnbmF0dXJl"
        options = {"az.endpoint": server.endpoint, "az.account-name": "acc", "az.sas-token": token}
        storage = ObjectStorage("az://container", options)
        server.refuses = 403
        with pytest.raises(StorageError) as caught:
            storage.read("az://container/x")
        shown = "".join(traceback.format_exception(caught.value))
        assert "c2lnbmF0dXJl" not in shown
        assert "sig=" not in shown

    def test_a_bad_endpoint_is_not_repeated(self) -> None:
        with pytest.raises(InvalidInputError, match=r"'s3.endpoint' is no address") as caught:
            ObjectStorage("s3://bucket", {"s3.endpoint": f"https://user:{SECRET}@host"})
        assert SECRET not in str(caught.value)

    def test_keys_of_the_environment_stay_at_home(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        storage = ObjectStorage("s3://from-environment")
        storage.create("s3://from-environment/x", b"1")
        assert server.objects == {"/from-environment/x": b"1"}
        assert SECRET.encode() not in pickle.dumps(storage)

    def test_keys_given_as_options_travel(self, server: Server) -> None:
        storage = storage_at(server)
        copy = pickle.loads(pickle.dumps(storage))
        copy.replace("s3://bucket/x", b"1")
        assert storage.read("s3://bucket/x") == b"1"

    def test_options_of_others_do_not_travel(self) -> None:
        storage = ObjectStorage("s3://bucket", {"gs.bearer-token": SECRET, "uri.password": SECRET})
        assert SECRET.encode() not in pickle.dumps(storage)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"s3.acces-key": "A"}, r"unknown option 's3.acces-key'.*'s3.access-key'"),
            ({"s3.access-key": "A"}, "one is missing"),
            ({"s3.endpoint": "minio:9000"}, "is no address"),
            ({"s3.endpoint": "http://minio:9000", "s3.allow-http": "false"}, "begins with 'http:'"),
            ({"s3.allow-http": "yes"}, "'s3.allow-http' is 'yes'"),
            ({"s3.conditional-create": "maybe"}, "'s3.conditional-create' is 'maybe'"),
        ],
    )
    def test_mistakes_are_refused_before_a_job_starts(self, options: dict[str, str], said: str) -> None:
        with pytest.raises(InvalidInputError, match=said):
            ObjectStorage("s3://bucket", options)

    def test_a_root_names_a_bucket_and_nothing_below(self) -> None:
        for root in ("s3://", "s3://bucket/x", "ftp://bucket", "bucket"):
            with pytest.raises(InvalidInputError, match="no root of an object store"):
                ObjectStorage(root)

    def test_the_bucket_stands_in_the_path_or_in_the_host(self) -> None:
        def settings(**options: str) -> Any:
            return target_of(
                "s3://bucket", {f"s3.{name.replace('_', '-')}": value for name, value in options.items()}
            ).settings

        assert settings(endpoint="https://host:9000") == {"endpoint": "https://host:9000"}
        assert settings(endpoint="https://host:9000", path_style_access="true") == {"endpoint": "https://host:9000"}
        for endpoint in ("https://host:9000", "https://bucket.host:9000"):
            assert settings(endpoint=endpoint, path_style_access="false") == {
                "endpoint": "https://bucket.host:9000",
                "virtual_hosted_style_request": True,
            }
        assert target_of("s3://bucket", {"s3.path.style.access": "false"}).settings == {
            "virtual_hosted_style_request": True
        }

    @pytest.mark.parametrize("option", STORE_OPTIONS, ids=lambda option: option.key)
    def test_every_option_that_is_documented_changes_how_a_store_is_reached(self, option: Option[Any]) -> None:
        scheme = option.key.partition(".")[0]
        base = {f"{scheme}.access-key": "A", f"{scheme}.secret-key": "S"} if scheme in ("s3", "oss") else {}
        base |= {f"{scheme}.endpoint": "https://host"}
        value = next((text for text in option.type.choices if text != str(option.default).lower()), "https://other")
        for key in (option.key, *option.aliases):
            given = {name: text for name, text in base.items() if name != option.key} | {key: value}
            assert target_of(f"{scheme}://bucket", given) != target_of(f"{scheme}://bucket", base)

    def test_only_stores_that_are_not_known_are_asked(self) -> None:
        def known(endpoint: str) -> bool:
            return target_of("s3://bucket", {"s3.endpoint": endpoint}).keeps_conditions

        assert target_of("gs://bucket", {}).keeps_conditions
        assert known("https://s3.eu-west-1.amazonaws.com")
        assert not known("https://amazonaws.com.example.org")
        assert not known("https://myamazonaws.com")

    @pytest.mark.parametrize(
        ("root", "options"),
        [
            (
                "s3://bucket",
                {"s3.session-token": "T", "s3.access-key": "A", "s3.secret-key": "S", "s3.anonymous": "false"},
            ),
            ("s3://bucket", {"s3.path-style-access": "false", "s3.endpoint": "https://host", "s3.allow-http": "true"}),
            ("gs://bucket", {"gs.endpoint": "http://host:1", "gs.bearer-token": "T"}),
            ("gs://bucket", {"gs.anonymous": "true", "gs.conditional-create": "check"}),
            ("az://container", {"az.account-name": "acc", "az.account-key": "a2V5", "az.endpoint": "http://host:1"}),
            ("az://container", {"az.account-name": "acc", "az.anonymous": "true"}),
        ],
    )
    def test_every_option_is_one_that_the_client_takes(self, root: str, options: dict[str, str]) -> None:
        assert ObjectStorage(root, options)._connection().retrying is not None

    @pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
    def test_a_bucket_cannot_be_in_the_name_of_a_host_that_has_none(self, host: str) -> None:
        given = {"oss.endpoint": f"http://{host}:1"}
        with pytest.raises(InvalidInputError, match="is an address"):
            target_of("oss://bucket", given)
        assert target_of("oss://bucket", {**given, "oss.path-style-access": "true"}).allow_http

    def test_what_the_client_refuses_is_an_input_error_without_values(self) -> None:
        storage = ObjectStorage("az://container", {"az.account-name": "acc", "az.account-key": SECRET})
        with pytest.raises(InvalidInputError, match="account_key") as caught:
            storage.exists("az://container/x")
        assert SECRET not in str(caught.value)

    def test_equal_options_share_their_connections(self, server: Server) -> None:
        assert storage_at(server)._connection() is storage_at(server)._connection()
        assert storage_at(server)._connection() is not storage_at(server, region="eu-west-1")._connection()


@pytest.mark.parametrize(
    "path", ["s3://bucket", "s3://other/x", "s3://bucket2/x", "/bucket/x", "s3://bucket/../x", "s3://bucket/a//b"]
)
def test_paths_outside_the_bucket_are_refused(server: Server, path: str) -> None:
    with pytest.raises(InvalidInputError, match="no path below"):
        storage_at(server).read(path)
    assert server.requests == []


def test_a_forked_process_is_told_instead_of_waiting_for_ever(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = storage_at(server)
    storage.exists("s3://bucket/x")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(UnsupportedError, match="forked"):
        storage.exists("s3://bucket/x")


@pytest.mark.s3
class TestAgainstS3:
    @pytest.fixture
    def storage(self, bucket: Any) -> ObjectStorage:
        return ObjectStorage(bucket.root, bucket.options)

    def keys(self, bucket: Any) -> list[str]:
        pages = bucket.client.get_paginator("list_objects_v2").paginate(Bucket=bucket.root[5:])
        return sorted(item["Key"] for page in pages for item in page.get("Contents", []))

    def test_of_forty_racing_threads_exactly_one_wins_each_name(self, bucket: Any, storage: ObjectStorage) -> None:
        gate = threading.Barrier(40)

        def race(writer: int) -> list[int]:
            gate.wait()
            won = []
            for number in range(4):
                try:
                    storage.create(f"{bucket.root}/snapshot-{number}", str(writer).encode())
                except AlreadyExistsError:
                    continue
                won.append(number)
            return won

        with ThreadPoolExecutor(40) as pool:
            won = list(pool.map(race, range(40)))
        assert sorted(number for numbers in won for number in numbers) == [0, 1, 2, 3]
        for writer, numbers in enumerate(won):
            for number in numbers:
                assert storage.read(f"{bucket.root}/snapshot-{number}") == str(writer).encode()

    def test_a_big_file_goes_up_in_parts(self, bucket: Any, storage: ObjectStorage) -> None:
        chunk = random.Random(8).randbytes(1_000_003)
        sink = storage.writer(f"{bucket.root}/t/data")
        for _ in range(20):
            sink.stream.write(chunk)
        assert not storage.exists(f"{bucket.root}/t/data")
        assert sink.close() == 20 * len(chunk)
        head = bucket.client.head_object(Bucket=bucket.root[5:], Key="t/data")
        assert (head["ContentLength"], head["ETag"][-3:]) == (20 * len(chunk), '-3"')
        assert storage.read(f"{bucket.root}/t/data") == chunk * 20

    def test_a_dropped_big_file_leaves_no_parts(self, bucket: Any, storage: ObjectStorage) -> None:
        sink = storage.writer(f"{bucket.root}/t/data")
        sink.stream.write(bytes(17_000_000))
        sink.abort()
        assert not storage.exists(f"{bucket.root}/t/data")
        assert "Uploads" not in bucket.client.list_multipart_uploads(Bucket=bucket.root[5:])
        with pytest.raises(StorageError, match="dropped or is complete"):
            sink.stream.write(bytes(2_000_000))

    def test_closing_the_stream_does_not_publish_the_file(self, bucket: Any, storage: ObjectStorage) -> None:
        sink = storage.writer(f"{bucket.root}/t/data")
        sink.stream.write(b"123")
        sink.stream.close()
        assert not storage.exists(f"{bucket.root}/t/data")
        assert sink.close() == 3
        assert storage.read(f"{bucket.root}/t/data") == b"123"

    def test_lists_and_deletes_go_on_after_a_page(self, bucket: Any, storage: ObjectStorage) -> None:
        wanted = [f"t/{i:04d}" for i in range(230)]  # the server's pages hold 100
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: storage.replace(f"{bucket.root}/{key}", b"1"), [*wanted, "u/1"]))
        assert sorted(entry.name for entry in storage.list(f"{bucket.root}/t")) == [key[2:] for key in wanted]
        storage.delete(f"{bucket.root}/t/{i:04d}" for i in range(100, 2500))
        assert self.keys(bucket) == [*wanted[:100], "u/1"]
        storage.delete_tree(f"{bucket.root}/t")
        assert self.keys(bucket) == ["u/1"]

    def test_a_moved_tree_keeps_every_byte(self, bucket: Any, storage: ObjectStorage) -> None:
        files = {f"bucket-{i % 3}/data-{i}": str(i).encode() for i in range(30)} | {"schema/schema-0": b"s"}
        for name, data in files.items():
            storage.replace(f"{bucket.root}/db/old/{name}", data)
        storage.move_tree(f"{bucket.root}/db/old", f"{bucket.root}/db/new")
        assert self.keys(bucket) == sorted(f"db/new/{name}" for name in files)
        assert all(storage.read(f"{bucket.root}/db/new/{name}") == data for name, data in files.items())

    def test_a_tree_does_not_move_into_itself(self, bucket: Any, storage: ObjectStorage) -> None:
        storage.replace(f"{bucket.root}/t/x", b"1")
        with pytest.raises(InvalidInputError, match="lies in the source"):
            storage.move_tree(f"{bucket.root}/t", f"{bucket.root}/t/new")

    def test_marks_of_other_tools_for_directories_are_no_files(self, bucket: Any, storage: ObjectStorage) -> None:
        for key in ("t/", "t/part/"):
            bucket.client.put_object(Bucket=bucket.root[5:], Key=key, Body=b"")
        storage.replace(f"{bucket.root}/t/part/file", b"1")
        assert [(e.name, e.is_directory) for e in storage.list(f"{bucket.root}/t")] == [("part", True)]
        assert [(e.name, e.is_directory) for e in storage.list(f"{bucket.root}/t/part")] == [("file", False)]
        storage.move_tree(f"{bucket.root}/t", f"{bucket.root}/u")
        assert storage.read(f"{bucket.root}/u/part/file") == b"1"

    def test_keys_are_what_other_clients_see(self, bucket: Any, storage: ObjectStorage) -> None:
        name = "t/dt=2026-03-01 10%3A00/ünï+x"
        storage.create(f"{bucket.root}/{name}", b"1")
        assert self.keys(bucket) == [name]

    def test_a_missing_bucket_is_named_in_writes_and_lists(self, bucket: Any) -> None:
        storage = ObjectStorage("s3://no-such-bucket", bucket.options)
        for work in (
            lambda: storage.list("s3://no-such-bucket/x"),
            lambda: storage.create("s3://no-such-bucket/x", b"1"),
            lambda: storage.writer("s3://no-such-bucket/x").close(),
        ):
            with pytest.raises(StorageError, match="s3://no-such-bucket/x"):
                work()


class TestOss:
    """Alibaba Cloud's object store, as its documentation has it."""

    def storage(self, server: Server, **more: str) -> ObjectStorage:
        given = {"fs.oss.endpoint": server.endpoint, "fs.oss.accessKeyId": "AK", "fs.oss.accessKeySecret": SECRET}
        return ObjectStorage("oss://bucket", given | {"oss.path-style-access": "true"} | more)

    def test_its_own_header_creates_an_object_only_if_it_is_absent(self, server: Server) -> None:
        server.honours_conditions, server.forbids_overwrites = False, True
        storage = self.storage(server)
        storage.create("oss://bucket/t/snapshot-1", b"ours")
        with pytest.raises(AlreadyExistsError):
            storage.create("oss://bucket/t/snapshot-1", b"theirs")
        assert storage.read("oss://bucket/t/snapshot-1") == b"ours"

    def test_other_writes_replace_objects(self, server: Server) -> None:
        server.honours_conditions, server.forbids_overwrites = False, True
        storage = self.storage(server)
        for text in (b"1", b"2"):
            storage.replace("oss://bucket/t/LATEST", text)
            with storage.writer("oss://bucket/t/data").stream as stream:
                stream.write(text)
        assert storage.read("oss://bucket/t/LATEST") == b"2"

    def test_a_store_that_keeps_neither_is_refused(self, server: Server) -> None:
        server.honours_conditions = False
        with pytest.raises(UnsupportedError, match="two writers could both win"):
            self.storage(server).create("oss://bucket/t/snapshot-1", b"ours")

    def test_the_bucket_is_in_the_name_of_the_host(self) -> None:
        target = target_of("oss://bucket", {"oss.endpoint": "https://oss-eu-central-1.aliyuncs.com"})
        assert target.settings["endpoint"] == "https://bucket.oss-eu-central-1.aliyuncs.com"
        assert not target.keeps_conditions

    def test_it_needs_an_endpoint(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "https://host")
        with pytest.raises(InvalidInputError, match=r"'oss\.endpoint'"):
            target_of("oss://bucket", {})

    def test_its_own_names_come_before_those_of_other_engines(self) -> None:
        options = {"oss.endpoint": "https://ours", "fs.oss.endpoint": "https://theirs"}
        for given in (options, dict(reversed(options.items()))):
            assert target_of("oss://b", given).settings["endpoint"] == "https://b.ours"
