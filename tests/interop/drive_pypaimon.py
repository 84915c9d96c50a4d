"""Driver of `pypaimon`, run in its own environment by `peers.py`; the protocol is that of `driver_loop.py`.

Operations and what they take beside `warehouse` and `table`. A warehouse is a path, or JSON of options:

* `about`: nothing at all; gives the version.
* `create_table`: `fields` ([name, type] pairs, a nested type as the object of a schema file), `primary_key`,
  `partition_by`, `options`. Makes the database too.
* `alter`: `changes` (lists of the name of a method of the client's `SchemaChange` and its arguments). A type is that
  of a schema file.
* `catalog`: `call` (a method of the client's catalog) and `arguments`; gives what the method returns as JSON, or the
  texts of an object's attributes.
* `write`: `rows` (an IPC file), `overwrite` (None, or the static partition, {} being the table). One commit. Row kinds
  come from the column that the table option `rowkind.field` names; the client has no other way.
* `read`: `columns`, `where` (conjunction of [method, column, literals]), `options` (dynamic ones), `out` (IPC file).
* `changes`: what the snapshots `start` to `end`, both included, published, with a column `_row_kind`, to `out`. This is
  a stream that begins at `start` and is left at `end`. `catch_up_after`: by default the client gives the files that
  were added, instead of the changes, where more than ten snapshots wait; the driver tells it never to. `wait_seconds`
  is how long to wait for all of it.
* `plan`: the number of splits and files of the latest snapshot.
* `latest_snapshot`: its id, or None.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from driver_loop import read_ipc, serve, write_ipc
from pypaimon import CatalogFactory, Schema
from pypaimon.api.auth.dlf_signer import DLFDefaultSigner, DLFOpenApiSigner
from pypaimon.api.token_loader import DLFToken
from pypaimon.api.typedef import RESTAuthParameter
from pypaimon.common.identifier import Identifier
from pypaimon.function.function import FunctionImpl
from pypaimon.function.function_change import FunctionChange
from pypaimon.function.function_definition import FunctionDefinition
from pypaimon.read.streaming_table_scan import AsyncStreamingTableScan
from pypaimon.schema.data_types import AtomicInteger, DataField, DataTypeParser, PyarrowFieldParser
from pypaimon.schema.schema_change import SchemaChange


def _catalog(request: dict[str, Any]) -> Any:
    asked = request["warehouse"]
    return CatalogFactory.create(json.loads(asked) if asked.startswith("{") else {"warehouse": asked})


def _table(request: dict[str, Any]) -> Any:
    table = _catalog(request).get_table(request["table"])
    return table.copy(request["options"]) if request.get("options") else table


def about(request: dict[str, Any]) -> dict[str, str]:
    """Versions of the client and of its Arrow."""
    return {"client": importlib.metadata.version("pypaimon"), "pyarrow": pa.__version__}


def create_table(request: dict[str, Any]) -> None:
    """Create a table, and its database unless it is there."""
    catalog = _catalog(request)
    catalog.create_database(request["table"].split(".")[0], True)
    ids = AtomicInteger(-1)
    fields = [
        DataTypeParser.parse_data_field({"name": name, "type": paimon_type}, ids)
        for name, paimon_type in request["fields"]
    ]
    schema = Schema(
        fields=fields,
        partition_keys=request.get("partition_by") or [],
        primary_keys=request.get("primary_key") or [],
        options=request.get("options") or {},
    )
    catalog.create_table(request["table"], schema, False)


def alter(request: dict[str, Any]) -> None:
    """Change a schema."""
    made = []
    for method, name, *arguments in request["changes"]:
        if method in ("add_column", "update_column_type"):
            arguments[0] = DataTypeParser.parse_data_type(arguments[0])
        made.append(getattr(SchemaChange, method)(name, *arguments))
    _catalog(request).alter_table(request["table"], made, False)


def catalog(request: dict[str, Any]) -> Any:
    """Call a method of the catalog."""
    found = getattr(_catalog(request), request["call"])(*request["arguments"])
    return json.loads(json.dumps(found, default=vars))


def function(request: dict[str, Any]) -> Any:
    """Create, get, alter, list or drop functions. JSON of a function is that of the protocol."""
    catalog, name, given = _catalog(request), request["name"], request.get("given")
    match request["call"]:
        case "create":
            made = FunctionImpl(
                Identifier.from_string(name),
                [DataField.from_dict(each) for each in given["inputParams"]],
                [DataField.from_dict(each) for each in given["returnParams"]],
                given["deterministic"],
                {key: FunctionDefinition.from_dict(each) for key, each in given["definitions"].items()},
                given["comment"],
                given["options"],
            )
            catalog.create_function(name, made)
        case "alter":
            catalog.alter_function(name, [FunctionChange.from_dict(each) for each in given])
        case "drop":
            catalog.drop_function(name)
        case "list":
            page = catalog.list_functions_paged(name, 1)
            details = catalog.list_function_details_paged(name).elements
            return {
                "names": catalog.list_functions(name),
                "first": [page.elements, page.next_page_token],
                "details": [each.full_name() for each in details],
                "everywhere": [each.get_full_name() for each in catalog.list_functions_paged_globally().elements],
            }
    if request["call"] != "get":
        return None
    found = catalog.get_function(name)
    return {
        "name": found.name(),
        "inputParams": [each.to_dict() for each in found.input_params()],
        "returnParams": [each.to_dict() for each in found.return_params()],
        "deterministic": found.is_deterministic(),
        "definitions": {key: each.to_dict() for key, each in found.definitions().items()},
        "comment": found.comment(),
        "options": found.options(),
    }


def sign(request: dict[str, Any]) -> dict[str, str]:
    """Return the headers that sign a request of a REST catalog, with the nonce of the caller."""
    signer = DLFDefaultSigner(request["region"]) if request["algorithm"] == "default" else DLFOpenApiSigner()
    body = request["body"]
    parameter = RESTAuthParameter(request["method"], request["path"], body, dict(request["query"]))
    token = DLFToken(request["id"], request["secret"], request["token"])
    at = datetime.fromtimestamp(request["at"], UTC)
    headers = signer.sign_headers(body, at, token.security_token, request["host"])
    if "x-acs-signature-nonce" in headers:
        headers["x-acs-signature-nonce"] = request["nonce"]
    return {**headers, "Authorization": signer.authorization(parameter, token, request["host"], headers)}


def write(request: dict[str, Any]) -> dict[str, int]:
    """Write the rows of an IPC file as one commit."""
    table = _table({**request, "options": None})
    schema = PyarrowFieldParser.from_paimon_schema(table.table_schema.fields)
    rows = read_ipc(request["rows"]).select(schema.names).cast(schema)
    builder = table.new_batch_write_builder()
    if request.get("overwrite") is not None:
        builder = builder.overwrite(request["overwrite"])
    writer, commit = builder.new_write(), builder.new_commit()
    try:
        writer.write_arrow(rows)
        commit.commit(writer.prepare_commit())
    finally:
        writer.close()
        commit.close()
    return {"rows": rows.num_rows}


def _read_builder(request: dict[str, Any]) -> Any:
    builder = _table(request).new_read_builder()
    if request.get("where"):
        predicates = builder.new_predicate_builder()
        terms = [getattr(predicates, method)(column, *literals) for method, column, literals in request["where"]]
        builder = builder.with_filter(predicates.and_predicates(terms))
    if request.get("columns"):  # after the filter: predicates know the columns of the projection only
        builder = builder.with_projection(request["columns"])
    return builder


def read(request: dict[str, Any]) -> dict[str, int]:
    """Read the table into an IPC file."""
    builder = _read_builder(request)
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    write_ipc(rows, request["out"])
    return {"rows": rows.num_rows}


def changes(request: dict[str, Any]) -> dict[str, int]:
    """Stream what a range of snapshots published into an IPC file."""
    table = _table(request)
    end = request["end"]
    scan = AsyncStreamingTableScan(
        table, poll_interval_ms=1, prefetch_enabled=False, diff_threshold=request.get("catch_up_after", end)
    )
    scan.next_snapshot_id = request["start"]
    read = table.new_stream_read_builder().with_include_row_kind(True).new_read()
    snapshots = [table.snapshot_manager().get_snapshot_by_id(number) for number in range(request["start"], end + 1)]
    published = [found.id for found in snapshots if found is not None and scan.follow_up_scanner.should_scan(found)]
    found: list[pa.Table] = []

    async def follow() -> None:
        async for plan in scan.stream():
            found.append(read.to_arrow(plan.splits()))
            if scan.next_snapshot_id > published[-1]:
                return

    if published:  # else the stream would wait for the next one
        asyncio.run(asyncio.wait_for(follow(), request.get("wait_seconds")))
    names = ["_row_kind", *(field.name for field in table.table_schema.fields)]
    rows = pa.concat_tables(found) if found else pa.table({name: pa.nulls(0) for name in names})
    write_ipc(rows, request["out"])
    return {"rows": rows.num_rows}


def plan(request: dict[str, Any]) -> dict[str, int]:
    """Count splits and data files of the latest snapshot."""
    splits = _read_builder(request).new_scan().plan().splits()
    return {"splits": len(splits), "files": sum(len(split.files) for split in splits)}


def latest_snapshot(request: dict[str, Any]) -> int | None:
    """Id of the latest snapshot, None for an empty table."""
    snapshot = _table(request).snapshot_manager().get_latest_snapshot()
    return None if snapshot is None else snapshot.id


if __name__ == "__main__":
    serve(
        {
            "about": about,
            "create_table": create_table,
            "alter": alter,
            "catalog": catalog,
            "function": function,
            "sign": sign,
            "write": write,
            "read": read,
            "changes": changes,
            "plan": plan,
            "latest_snapshot": latest_snapshot,
        }
    )
