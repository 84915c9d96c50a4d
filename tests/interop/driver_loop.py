"""The request loop of the peer drivers: one JSON request per line in, one JSON reply per line out.

A driver runs in the environment of its client, so this module uses the standard library and pyarrow only. Rows cross as
Arrow IPC files whose paths stand in the requests.

    {"op": "read", "warehouse": "...", "table": "db.t", "out": "..."}  ->  {"ok": true, "result": {...}}
                                                                       ->  {"ok": false, "error": "Type: text"}

What the client prints goes to standard error: standard output belongs to the replies.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

Operation = Callable[[dict[str, Any]], Any]


def serve(operations: Mapping[str, Operation]) -> None:
    """Answer requests until standard input ends.

    An exception of an operation becomes a failed reply, and the next request is served; Rust panics, which are not
    `Exception`s, as well.
    """
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply: dict[str, Any] = {"ok": True, "result": operations[request.pop("op")](request)}
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            traceback.print_exc()
            reply = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def read_ipc(path: str) -> pa.Table:
    """The table in an Arrow IPC file."""
    with pa.OSFile(path) as source:
        return pa.ipc.open_file(source).read_all()


def write_ipc(table: pa.Table, path: str) -> None:
    """Put a table into an Arrow IPC file."""
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
