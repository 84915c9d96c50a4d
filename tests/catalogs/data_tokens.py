"""What a server gives clients as data tokens: keys of the buckets of tests, for `--data-tokens`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from tests.s3_server import keys_of

VARIABLE = "MERGANSER_TEST_TOKENS"
"""JSON: `seconds` that keys live, `log`, a file that gets a line for each token, and `options` of the store."""


def of_table(table: str, path: str, role: str) -> tuple[Mapping[str, str], datetime]:
    """Return keys of the bucket of a table."""
    asked = json.loads(os.environ[VARIABLE])
    if table.endswith(".hidden"):
        raise PermissionError
    if table.endswith(".broken"):
        return {}, None  # type: ignore[return-value]
    until_ms = int((time.time() + asked["seconds"]) * 1000)
    with open(asked["log"], "a") as log:
        log.write(f"{table} {role}\n")
    found = {**asked["options"], **keys_of(path, until_ms, role)} if path.startswith("s3:") else {"note": "x"}
    return found, datetime.fromtimestamp(until_ms / 1000, UTC)
