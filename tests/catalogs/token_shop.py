"""A server of a REST catalog that gives clients keys of its bucket, which expire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from tests.catalogs.data_tokens import VARIABLE
from tests.catalogs.rest import Proxy, Server
from tests.s3_server import Bucket, keys_of, new_bucket

_FUNCTION = "tests.catalogs.data_tokens:of_table"
_FAR_MS = 4_000_000_000_000


class Shop:
    """A server whose warehouse is in a bucket that takes only keys that expire."""

    def __init__(
        self, folder: Path, endpoint: str, seconds: float, monkeypatch: pytest.MonkeyPatch, **more: Any
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.bucket: Bucket = new_bucket(endpoint, keyed=True)
        self.log = self.folder / "tokens.log"
        self.log.touch()
        asked = {"seconds": seconds, "log": str(self.log), "options": self.bucket.options}
        monkeypatch.setenv(VARIABLE, json.dumps(asked))
        self.set = {**self.bucket.options, **keys_of(self.bucket.root, _FAR_MS)}
        stores = [part for key, text in self.set.items() for part in ("--store", f"{key}={text}")]
        warehouse = f"{self.bucket.root}/warehouse"
        self.server = Server(self.folder, warehouse, [*stores, "--data-tokens", _FUNCTION], **more)
        self.proxy = Proxy(self.server.port)

    def catalog(self, **options: str) -> mg.Catalog:
        """Return the catalog as a client has it, without keys."""
        return self.server.catalog(self.proxy.port, **options)

    def files(self) -> mg.Catalog:
        """Return the same catalog without a server."""
        return mg.catalog(f"{self.bucket.root}/warehouse", options=self.set)

    def tokens(self) -> list[str]:
        """Return table and role of each token that was given."""
        return self.log.read_text().splitlines()

    def stop(self) -> None:
        self.proxy.close()
        assert self.server.stop() == 0
