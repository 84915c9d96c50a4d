"""Limits, slow clients, kills and the end of the server."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from tests.unit.serve.serving import Follower, Serving

pytestmark = pytest.mark.xdist_group("serve")
WIDE = 30_000


def make(folder: Path, name: str = "t") -> Any:
    catalog = mg.catalog(folder / "warehouse", options={"local.sync": "false"})
    catalog.create_database("db", if_not_exists=True)
    options = {"bucket": "1", "stream.enabled": "true", "stream.retention": "1 d"}
    return catalog.create_table(f"db.{name}", "k INT, v STRING, PRIMARY KEY (k)", options=options)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Serving]]:
    folder = tmp_path_factory.mktemp("limits")
    table = make(folder)
    table.write(pa.table({"k": range(WIDE), "v": [f"{k:01000}" for k in range(WIDE)]}))
    limits = {
        "records": 100_000, "requests": 2, "connections": 12, "head_seconds": 0.4, "send_seconds": 1.0,
        "head_bytes": 20_000, "page_bytes": 16 << 20,
    }  # fmt: skip
    server = Serving(folder / "warehouse", limits=limits)
    yield table, server
    log = server.log.read_text()
    assert server.stop() == 0
    assert log == ""


def start_of(table: Any) -> str:
    (shard,) = table.shards()
    return str(table.shard_iterator(shard.shard_id, at="trim_horizon"))


def raw(server: Serving, sent: bytes, seconds: float = 10) -> bytes:
    """Return all that comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as client:
        client.sendall(sent)
        answer = b""
        try:
            while piece := client.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
    return answer


def test_a_page_of_large_rows_has_fewer_of_them(wide: tuple[Any, Serving]) -> None:
    table, server = wide
    at, seen, pages = start_of(table), [], 0
    while at is not None:
        page = server.of("db.t", "records", iterator=at, limit=100_000)
        seen += [record["k"] for record in page["records"]]
        at, pages = page["next_iterator"], pages + 1
        if not page["may_have_more"]:
            break
    assert sorted(seen) == list(range(WIDE))
    assert pages > 1


def test_requests_beyond_the_limit_are_told_to_come_again(wide: tuple[Any, Serving]) -> None:
    """Two clients that do not read their answers are in work; then the server cuts them off."""
    table, server = wide
    path = f"/v1/tables/db.t/records?iterator={start_of(table)}&limit=20000"
    slow = []
    for _ in range(2):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        slow.append(client)
    refused = None
    until = time.monotonic() + 30
    while time.monotonic() < until and (refused is None or refused.status == 200):
        refused = server.ask("/v1/streams")
    assert refused is not None
    assert (refused.status, refused.json["code"], refused.headers["retry-after"]) == (503, "OTSServerBusy", "1")
    assert server.ask("/health").status == 200
    until = time.monotonic() + 30
    while server.ask("/v1/streams").status != 200:
        assert time.monotonic() < until
        time.sleep(0.05)
    for client in slow:
        client.close()


def test_requests_that_wait_are_not_in_work(wide: tuple[Any, Serving]) -> None:
    table, server = wide
    quiet = make(Path(table.path).parents[2], "quiet")
    (shard,) = quiet.shards()
    at = quiet.shard_iterator(shard.shard_id)
    kept = [server.connect() for _ in range(4)]
    for each in kept:
        each.request("GET", f"/v1/tables/db.quiet/records?iterator={at}&wait=25")
        until = time.monotonic() + 20
        while (other := server.ask("/v1/streams")).status != 200:  # each waits before the next one comes
            assert time.monotonic() < until, other
    quiet.write(pa.table({"k": [1], "v": ["new"]}))
    answers = [json.loads(each.getresponse().read())["records"] for each in kept]
    assert [[record["k"] for record in records] for records in answers] == [[1]] * 4


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /health HT", 408),
        (b"", 408),
        (b"GET /health HTTP/1.1\r\nx: " + b"y" * 30_000, 431),
        (b"GET /" + b"y" * 30_000, 431),
        (b"GET /" + b"y" * 30_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431),
        (b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 431),
        (b"GET /health HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 30_000 + b"\r\n\r\n", 431),
        (b"PUT /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ],
)
def test_a_request_that_is_none_is_refused_in_time(wide: tuple[Any, Serving], sent: bytes, status: int) -> None:
    head, _, body = raw(wide[1], sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert set(json.loads(body)) == {"code", "message"}


def test_connections_beyond_the_limit_are_refused(wide: tuple[Any, Serving]) -> None:
    _, server = wide
    kept = [server.connect() for _ in range(12)]
    for each in kept:
        each.request("GET", "/health")
        assert each.getresponse().read() == b'{"status":"ok"}'
    assert raw(server, b"").startswith(b"HTTP/1.1 503 ")
    for each in kept:
        each.close()


def test_a_page_in_a_browser_cannot_ask_by_a_name_of_its_own(wide: tuple[Any, Serving]) -> None:
    _, server = wide
    for host, status in {"localhost": 200, "127.0.0.1:80": 200, "[::1]:1": 200, "evil.example": 403, "": 403}.items():
        assert server.ask("/v1/streams", headers={"host": host}).status == status, host


# kills and ends


def test_a_client_goes_on_from_its_position_at_a_server_that_was_killed(tmp_path: Path) -> None:
    table = make(tmp_path)
    server = Serving(tmp_path / "warehouse")
    over = threading.Event()

    def written() -> None:
        try:
            for number in range(12):
                table.write([{"k": k, "v": str(number)} for k in range(20)])
                if number == 5:
                    table.rescale(2)
        finally:
            over.set()

    follower = Follower(server, "db.t", limit=13)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(written)
        kills = 0
        while not over.is_set() or not kills:
            if not kills and len(follower.records) > 40:
                killer = threading.Timer(0.03, server.kill)
                killer.start()
                while True:
                    try:
                        follower.round()
                    except (OSError, http.client.HTTPException, AssertionError):
                        break
                killer.join()
                kills += 1
                server = follower.serving = Serving(tmp_path / "warehouse", port=server.port)
            follower.round()
        writing.result()
    records = follower.finish()
    for k in range(20):
        assert [int(record["v"]) for record in records if record["k"] == k] == list(range(12))
    assert server.stop() == 0


def test_at_the_end_waiting_requests_are_answered_and_slow_clients_are_cut(tmp_path: Path) -> None:
    table = make(tmp_path)
    table.write(pa.table({"k": range(WIDE), "v": [f"{k:01000}" for k in range(WIDE)]}))
    (shard,) = table.shards()
    server = Serving(tmp_path / "warehouse", "--stop-within", "2", "--max-records", "100000")
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", server.port))
    path = f"/v1/tables/db.t/records?iterator={start_of(table)}&limit=100000"
    slow.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    idle = server.connect()
    idle.request("GET", "/health")
    idle.getresponse().read()
    at = table.shard_iterator(shard.shard_id)
    assert server.of("db.t", "records", iterator=at)["records"] == []  # what a request needs is loaded once
    waiting = server.connect()
    waiting.request("GET", f"/v1/tables/db.t/records?iterator={at}&wait=25")
    for _ in range(3):  # the server looks at connections in turn: at the last one, that one waits
        assert server.ask("/health").status == 200
    assert server.stop() == 0  # within 20 s
    assert json.loads(waiting.getresponse().read())["records"] == []
    with pytest.raises(ConnectionRefusedError):
        server.ask("/health")
    slow.close()
    idle.close()


# the start


@pytest.mark.parametrize(
    ("options", "token", "told"),
    [
        (["--host", "0.0.0.0"], None, "without a token"),
        (["--host", "example.com"], None, "without a token"),
        (["--allow-changes"], None, "without a token"),
        ([], "short", "the token has 5 characters"),
        (["--token-file", "missing"], None, "cannot read the token in 'missing'"),
        (["--host", "192.0.2.1"], "a-token-of-many-characters", "cannot listen at '192.0.2.1'"),
        (["-w", "warehouse/file"], None, "cannot open the warehouse"),
    ],
)
def test_a_server_that_would_be_open_or_deaf_does_not_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    token: str | None,
    told: str,
) -> None:
    from merganser.cli.main import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "warehouse" / "file").write_text("")
    monkeypatch.delenv("MERGANSER_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("MERGANSER_TOKEN", token)
    with pytest.raises(SystemExit) as ended:
        main(["serve-stream", "--port", "0", *options])
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert told in error
    assert token is None or token not in error


def test_a_server_whose_readers_could_write_does_not_start() -> None:
    from merganser.serve.server import serve

    token = "a-token-of-many-characters"
    with pytest.raises(InvalidInputError, match="are the same"):
        serve(
            lambda _: pytest.fail("it would serve"),
            host="127.0.0.1",
            port=0,
            token=token,
            changes=True,
            stop_seconds=1,
            started=print,
            read_token=token,
        )


def test_without_the_extra_merganser_works_and_the_command_says_how_to_install_it(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('starlette', 'uvicorn', 'httptools', 'uvloop'): sys.modules[name] = None\n"
        "import merganser\n"
        "from merganser.cli.main import main\n"
        "main(['serve-stream'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "pip install 'merganser[console]'" in done.stderr
    assert "Traceback" not in done.stderr
