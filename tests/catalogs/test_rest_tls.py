"""HTTPS: a server with a certificate of an authority of its own, and clients that trust it or do not."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import merganser as mg
from merganser import errors as e
from tests.catalogs.rest import Server
from tests.unit.serve.serving import TOKEN

pytestmark = pytest.mark.xdist_group("serve")


class Files(NamedTuple):
    """Certificates: of two authorities, and of a server whose authority is the first one."""

    ca: Path
    other: Path
    cert: Path
    key: Path
    wrong_name: Path


def _run(folder: Path, *command: str) -> None:
    subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ca", "other"):
        _run(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", f"/CN={name}",
             "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
    _run(folder, "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=s", "-keyout", "s.key", "-out", "s.csr")
    for name, alternative in (("s", "IP:127.0.0.1"), ("elsewhere", "DNS:elsewhere.example")):
        (folder / "names").write_text(f"subjectAltName={alternative}")
        _run(folder, "x509", "-req", "-in", "s.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "3650",
             "-extfile", "names", "-out", f"{name}.pem")  # fmt: skip
    _run(folder, "rsa", "-aes128", "-passout", "pass:secret", "-in", "s.key", "-out", "locked.key")
    return Files(*(folder / name for name in ("ca.pem", "other.pem", "s.pem", "s.key", "elsewhere.pem")))


@pytest.fixture(scope="module")
def server(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that ends although connections of its clients are open: `stop` waits for less than a minute."""
    more = ("--tls-cert", str(files.cert), "--tls-key", str(files.key), "--stop-within", "60")
    made = Server(tmp_path_factory.mktemp("https"), more=more)
    yield made
    assert made.stop() == 0
    assert made.log.read_text() == ""


def test_a_client_that_knows_the_authority_works_over_https(server: Server, files: Files) -> None:
    catalog = server.catalog(**{"tls.ca-file": str(files.ca)})
    catalog.create_database("shop")
    table = catalog.create_table("shop.orders", "id BIGINT")
    table.write(pa.table({"id": [1]}))
    assert server.files().table("shop.orders").read().count() == 1  # type: ignore[union-attr]
    catalog.drop_database("shop", cascade=True)


def test_the_environment_says_which_authorities_there_are(
    server: Server, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"warehouse": "warehouse", "token.provider": "bear", "token": TOKEN}
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(files.ca))
    assert mg.catalog(f"https://127.0.0.1:{server.port}", options=options).list_databases() == []


def test_other_clients_send_nothing(
    server: Server, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    options = {"warehouse": "warehouse", "token.provider": "bear", "token": TOKEN}
    address = f"https://127.0.0.1:{server.port}"
    none = tmp_path / "none.pem"
    none.write_text("this is no certificate")
    before = time.monotonic()
    for more, told in (
        ({"tls.ca-file": str(files.other)}, "is not trusted: unable to get local issuer"),
        ({}, "is not trusted: unable to get local issuer"),
        ({"tls.ca-file": str(none)}, "is not trusted: no certificates"),
    ):
        with pytest.raises(e.StorageError, match=told) as caught:
            mg.catalog(address, options={**options, **more})
        assert TOKEN not in str(caught.value)
    assert time.monotonic() - before < 15  # none is tried again, for 6 s each
    with pytest.raises(e.InvalidInputError, match="there is no such file"):
        mg.catalog(address, options={**options, "tls.ca-file": str(tmp_path / "missing.pem")})
    with pytest.raises(e.StorageError, match=r"does not answer|its reply is not JSON"):
        mg.catalog(f"http://127.0.0.1:{server.port}", options=options)


def test_a_certificate_of_another_name_is_not_trusted(files: Files, tmp_path: Path) -> None:
    made = Server(tmp_path, more=("--tls-cert", str(files.wrong_name), "--tls-key", str(files.key)))
    with pytest.raises(e.StorageError, match="is not trusted: IP address mismatch"):
        made.catalog(**{"tls.ca-file": str(files.ca)})
    assert made.stop() == 0


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--tls-cert", "s.pem"), "of --tls-cert and --tls-key one is missing"),
        (("--tls-cert", "missing.pem", "--tls-key", "s.key"), "No such file or directory"),
        (("--tls-cert", "s.pem", "--tls-key", "ca.key"), "key values mismatch"),
        (("--tls-cert", "s.pem", "--tls-key", "locked.key"), "without a password"),
    ],
)
def test_a_server_without_a_good_certificate_does_not_start(
    files: Files, tmp_path: Path, more: tuple[str, ...], told: str
) -> None:
    given = [str(files.ca.parent / each) if not each.startswith("--") else each for each in more]
    with pytest.raises(AssertionError) as caught:
        Server(tmp_path, more=given)
    assert told.lower() in " ".join(str(caught.value).lower().split()).replace("_", " ")
