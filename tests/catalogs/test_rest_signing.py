"""Signed requests of REST catalogs: a server that checks them, and keys that a file or a service gives."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlsplit

import pyarrow as pa
import pytest

import merganser as mg
from merganser import errors as e
from merganser.catalogs.profiles import profile_of, profiles
from merganser.catalogs.rest_signing import signer_of
from merganser.options.option import Options
from merganser.storage.retries import MACHINE
from tests.catalogs.rest import Proxy, Server
from tests.catalogs.signed_requests import signed_by_us, signed_requests
from tests.unit.serve.serving import TOKEN

pytestmark = pytest.mark.xdist_group("serve")
SECRET = "the-secret-that-nobody-sees"
SESSION = "the-session-that-nobody-sees"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("signed"))
    yield made
    assert made.stop() == 0
    assert made.log.read_text() == ""


class Gate:
    """Lets requests through to a server that are signed with keys that it knows."""

    def __init__(self, port: int) -> None:
        self.proxy = Proxy(port)
        self.proxy.known = self.checked
        self.secrets = {"key-1": SECRET}
        self.sessions: dict[str, str] = {}
        self.ids: list[str] = []
        self.nonces: set[str] = set()

    def checked(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> str | None:
        """Return the token of the server if a signature is right. It is computed from what came over the wire."""
        if body:
            md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
            if (headers.get("content-md5"), headers.get("content-type")) != (md5, "application/json"):
                return None
        scheme, _, said = headers.get("authorization", "").partition(" ")
        parts = urlsplit(path)
        if scheme == "acs":
            id_, _, signature = said.partition(":")
            expected = self._openapi(method, path, headers, id_)
        else:
            credential, _, signature = said.partition(",Signature=")
            id_, date, region, *_ = credential.removeprefix("Credential=").split("/")
            names = ("content-md5", "content-type", "x-dlf-content-sha256", "x-dlf-date", "x-dlf-security-token")
            lines = [f"{name}:{headers[name]}" for name in (*names, "x-dlf-version") if name in headers]
            query = "&".join(sorted(parts.query.split("&")))
            canonical = "\n".join([method, parts.path, query, *lines, "UNSIGNED-PAYLOAD"])
            scope = f"{date}/{region}/DlfNext/aliyun_v4_request"
            digest = hashlib.sha256(canonical.encode()).hexdigest()
            key = f"aliyun_v4{self.secrets.get(id_)}".encode()
            for text in (*scope.split("/"), "\n".join(["DLF4-HMAC-SHA256", headers["x-dlf-date"], scope, digest])):
                key = hmac.new(key, text.encode(), "sha256").digest()
            expected = key.hex()
            session = self.sessions.get(id_)
            if (scheme, region, headers.get("x-dlf-security-token")) != ("DLF4-HMAC-SHA256", "test-1", session):
                return None
        self.ids.append(id_)
        return TOKEN if hmac.compare_digest(signature, expected) else None

    def _openapi(self, method: str, path: str, headers: Mapping[str, str], id_: str) -> str:
        acs = {key: text for key, text in headers.items() if key.startswith("x-acs-")}
        assert acs["x-acs-signature-nonce"] not in self.nonces
        self.nonces.add(acs["x-acs-signature-nonce"])
        parts = urlsplit(path)
        query = "&".join(f"{key}={text}" for key, text in sorted(parse_qsl(parts.query)))
        lines = [method, headers["accept"], headers.get("content-md5", ""), headers.get("content-type", "")]
        lines += [headers["date"], *(f"{key}:{text}" for key, text in sorted(acs.items()))]
        lines += [unquote_plus(parts.path) + (f"?{query}" if query else "")]
        made = hmac.new(self.secrets.get(id_, "").encode(), "\n".join(lines).encode(), "sha1").digest()
        return base64.b64encode(made).decode()

    def catalog(self, **options: str) -> mg.Catalog:
        given = {"warehouse": "warehouse", "token.provider": "dlf", "dlf.region": "test-1", "local.sync": "false"}
        return mg.catalog(f"http://127.0.0.1:{self.proxy.port}", options={**given, **options})


@pytest.fixture
def gate(server: Server) -> Iterator[Gate]:
    made = Gate(server.port)
    yield made
    made.proxy.close()


def keys(secret: str = SECRET) -> dict[str, str]:
    return {"dlf.access-key-id": "key-1", "dlf.access-key-secret": secret}


def use(catalog: mg.Catalog) -> None:
    """Make, alter, list, write, read and drop."""
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", "id BIGINT, state STRING", options={"bucket": "-1"})
    table.write(pa.table({"id": [1], "state": ["new ü"]}))
    catalog.alter_table("shop.orders", [mg.changes.add_column("note", "STRING")])
    table.tags.create("t")
    table.branches.create("b", "t")
    catalog.table("shop.orders$branch_b").write(pa.table({"id": [2], "state": ["x"]}))  # type: ignore[union-attr]
    assert catalog.table("shop.orders$branch_b").read().count() == 2  # type: ignore[union-attr]
    assert catalog.list_tables("shop") == ["orders"]
    catalog.drop_database("shop", cascade=True)


@pytest.mark.parametrize("algorithm", ["default", "openapi"])
@pytest.mark.parametrize("session", [None, SESSION])
def test_a_server_that_checks_signatures_takes_ours(gate: Gate, algorithm: str, session: str | None) -> None:
    given = {**keys(), "dlf.signing-algorithm": algorithm}
    if session is not None:
        given["dlf.security-token"] = gate.sessions["key-1"] = session
    catalog = gate.catalog(**given)
    use(catalog)
    use(pickle.loads(pickle.dumps(catalog)))
    assert set(gate.ids) == {"key-1"}


def test_wrong_keys_are_refused_and_shown_nowhere(gate: Gate) -> None:
    with pytest.raises(e.StorageError, match=r"signature is wrong\. Nothing was changed\. Check the keys") as caught:
        gate.catalog(**keys("another-secret"))
    assert "another-secret" not in repr(caught.value) + str(caught.value)
    gate.sessions["key-1"] = SESSION
    catalog = gate.catalog(**keys(), **{"dlf.security-token": SESSION})
    for found in (catalog, catalog.metastore, catalog.env.storage, pickle.loads(pickle.dumps(catalog))):
        assert SECRET not in repr(found)
        assert SESSION not in repr(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dlf.region": "r"}, r"'dlf\.access-key-id' is missing"),
        ({"dlf.region": "r", "dlf.access-key-id": "k"}, r"'dlf\.access-key-secret' is missing"),
        ({"dlf.region": "r", "dlf.token-loader": "local_file"}, r"'dlf\.token-path' is missing"),
        ({"dlf.region": "r", "dlf.token-loader": "vault"}, r"dlf\.token-loader"),
        ({"dlf.region": "r", "dlf.signing-algorithm": "none"}, r"dlf\.signing-algorithm"),
        ({"dlf.region": "r", "dlf.acces-key-id": "k"}, r"Did you mean 'dlf\.access-key-id'"),
        (keys(), r"'dlf\.region' is missing, and '127\.0\.0\.1:1' names no region"),
    ],
)
def test_options_that_are_missing_or_wrong(options: dict[str, str], message: str) -> None:
    with pytest.raises(e.InvalidInputError, match=message):
        mg.catalog("http://127.0.0.1:1", options={"warehouse": "w", "token.provider": "dlf", **options})


def test_a_profile_names_what_is_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "catalogs.toml"
    monkeypatch.setenv("MERGANSER_CATALOGS", str(file))
    head = '[dlf]\nuri = "http://127.0.0.1:1"\nwarehouse = "w"\n"token.provider" = "dlf"\n'
    file.write_text(f'{head}dlf.token-path = "/keys"\ndlf.token-loader = "local_file"\ndata-token.enabled = true\n')
    assert profiles()["dlf"].options["token.provider"] == "dlf"
    for key in ("token", "dlf.security-token", "dlf.access-key-secret", "dlf.access-key-id"):
        file.write_text(f'{head}{key} = "x"\n')
        with pytest.raises(e.InvalidInputError, match=f"'{key}' holds a secret in clear"):
            profile_of("dlf")


def test_the_address_says_region_and_algorithm() -> None:
    made = signer_of(Options(keys()), "https://dlfnext.cn-hangzhou.aliyuncs.com/x", "cannot open")
    assert (made.host, made.region, made.algorithm) == ("dlfnext.cn-hangzhou.aliyuncs.com", "cn-hangzhou", "openapi")
    made = signer_of(Options(keys()), "https://cn-hangzhou-vpc.dlf.aliyuncs.com", "cannot open")
    assert (made.region, made.algorithm) == ("cn-hangzhou", "default")


def written(path: Path, id_: str, lives: timedelta | None = None) -> None:
    """Put keys into a file, as one step."""
    found: dict[str, Any] = {"AccessKeyId": id_, "AccessKeySecret": SECRET, "SecurityToken": SESSION, "Other": 1}
    if lives is not None:
        found["Expiration"] = (datetime.now(UTC) + lives).strftime("%Y-%m-%dT%H:%M:%SZ")
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.replace(path)


def test_keys_of_a_file_are_read_again_before_they_expire(gate: Gate, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    gate.secrets |= {"key-2": SECRET, "key-3": SECRET}
    gate.sessions |= {"key-1": SESSION, "key-2": SESSION, "key-3": SESSION}
    written(path, "key-1", timedelta(minutes=59))
    catalog = gate.catalog(**{"dlf.token-path": str(path)})
    assert set(gate.ids) == {"key-1"}
    written(path, "key-2", timedelta(hours=2))
    catalog.list_databases()
    assert gate.ids[-1] == "key-2"
    written(path, "key-3")
    catalog.list_databases()
    assert gate.ids[-1] == "key-2"  # it has time left
    del gate.secrets["key-2"]
    assert catalog.list_databases() == []  # refused once, and read again
    assert gate.ids[-2:] == ["key-2", "key-3"]


def test_files_that_hold_no_keys(gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(MACHINE), "sleep_ms", lambda _self, _ms: None)
    path = tmp_path / "keys.json"
    soon = json.dumps({"AccessKeyId": "a", "AccessKeySecret": SECRET, "Expiration": "soon"}).encode()
    told = r"cannot load the keys that sign requests from '.*keys\.json'"
    for content in (None, b"", b"\xff", b"[]", b'{"AccessKeyId": 1}', soon):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(e.StorageError, match=told) as caught:
            gate.catalog(**{"dlf.token-loader": "local_file", "dlf.token-path": str(path)})
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None or SECRET not in str(caught.value.__cause__)


@pytest.fixture
def service() -> Iterator[Callable[[Callable[[str], tuple[int, str]]], str]]:
    """Start services that answer what a function says of a path."""
    started = []

    def start(answer: Callable[[str], tuple[int, str]]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                status, text = answer(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

        made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        started.append(made)
        return f"http://127.0.0.1:{made.server_address[1]}/ram/"

    yield start
    for each in started:
        each.shutdown()
        each.server_close()


@pytest.mark.parametrize("role", [None, "writers"])
def test_keys_of_the_role_of_a_machine(gate: Gate, service: Any, role: str | None) -> None:
    gate.sessions["key-1"] = SESSION
    asked: list[str] = []

    def answer(path: str) -> tuple[int, str]:
        asked.append(path)
        if path == "/ram/":
            return 200, "writers\n"
        return 200, json.dumps({"AccessKeyId": "key-1", "AccessKeySecret": SECRET, "SecurityToken": SESSION})

    more = {} if role is None else {"dlf.token-ecs-role-name": role}
    catalog = gate.catalog(**{"dlf.token-loader": "ecs", "dlf.token-ecs-metadata-url": service(answer), **more})
    catalog.list_databases()
    assert asked == ([] if role else ["/ram/"]) + ["/ram/writers"]


def test_a_service_that_gives_no_keys(gate: Gate, service: Any) -> None:
    address = service(lambda _path: (404, SECRET))
    with pytest.raises(e.StorageError, match="it answered with 404") as caught:
        gate.catalog(**{"dlf.token-loader": "ecs", "dlf.token-ecs-metadata-url": address})
    assert SECRET not in str(caught.value)


def test_signatures_stay_as_java_makes_them() -> None:
    """`tests.witness` compares them with Java's; this notes two of them."""
    of = {(each["algorithm"], each["path"], each["token"]): signed_by_us(each) for each in signed_requests()}
    path = "/v1/p/databases/shop/tables"
    assert of["default", path, None]["Authorization"].rpartition("=")[2] == (
        "36fb840bfc3865d11a9dcfc1657ca769d8e20854617b3e7ffca240ecf04cc51b"
    )
    assert of["openapi", path, None]["Authorization"] == "acs the-id:cKXptbY8f93KJQD9jpG1H8KlyHk="
