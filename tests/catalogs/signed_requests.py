"""Requests of a REST catalog that are signed: by us, and by the signers of the other clients."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from merganser.catalogs.rest_signing import DlfSigner, Keys

_REQUESTS = (
    ("GET", "/v1/config", {"warehouse": "sales & more"}, ""),
    ("GET", "/v1/p/databases/shop/tables", {"pageToken": "a+b/ü~*", "maxResults": "2", "tableNamePattern": ""}, ""),
    ("GET", "/v1/p/databases", {"warehouse": "sales", "maxResults": "7"}, ""),
    ("GET", "/v1/p/databases/shop/tables/orders%24branch_b", {}, ""),
    ("POST", "/v1/p/databases", {}, '{"name":"shöp","options":{}}'),
    ("DELETE", "/v1/p/databases/shop", {}, ""),
)


def signed_requests() -> Iterator[dict[str, Any]]:
    """Yield what the drivers of the other clients sign."""
    for number, (method, path, query, body) in enumerate(_REQUESTS):
        for algorithm in ("default", "openapi"):
            for token in (None, "a session+token/of=text"):
                yield {
                    "algorithm": algorithm,
                    "region": "cn-hangzhou",
                    "host": "catalog.example:8443",
                    "method": method,
                    "path": path,
                    "query": query,
                    "body": body,
                    "id": "the-id",
                    "secret": "the secret ß",
                    "token": token,
                    "at": 1_780_000_000 + number * 86_399,
                    "nonce": "one-nonce",
                }


def signed_by_us(request: dict[str, Any]) -> dict[str, str]:
    """Return the headers that we send."""
    return DlfSigner(request["host"], request["region"], request["algorithm"]).signed(
        request["method"],
        request["path"],
        request["query"],
        request["body"].encode(),
        Keys(request["id"], request["secret"], request["token"]),
        datetime.fromtimestamp(request["at"], UTC),
        request["nonce"],
    )
