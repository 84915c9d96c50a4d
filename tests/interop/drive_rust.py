"""Driver of `pypaimon-rust`, run in its own environment by `peers.py`; the protocol is that of `driver_loop.py`.

Operations and what they take beside `warehouse` and `table`:

* `about`: nothing at all; gives the version.
* `create_table`: as in `drive_pypaimon.py`, through the client's SQL, which has no TIME, no MULTISET and no NOT NULL
  inside a nested type.
* `write`: `rows` (an IPC file), `overwrite`. One commit. A column `_VALUE_KIND` (int8: 0 +I, 1 -U, 2 +U, 3 -D) holds
  row kinds and is not stored.
* `read`: `columns`, `where` (conjunction of [method, column, literals]), `options`, `out` (IPC file).
* `changes`: what the snapshots `start` to `end`, both included, published, with a column `_row_kind`, to `out`.
* `sql`: `statement`, where {table} stands for the table; rows to `out` when it is given.
* `plan`: the number of splits, and the rows in their files.
* `latest_snapshot`: its id, or None.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pyarrow as pa
from driver_loop import read_ipc, serve, write_ipc
from pypaimon_rust.datafusion import PaimonCatalog, SQLContext


def _table(request: dict[str, Any]) -> Any:
    return PaimonCatalog({"warehouse": request["warehouse"]}).get_table(request["table"])


def _sql(request: dict[str, Any], *statements: str) -> list[pa.RecordBatch]:
    context = SQLContext()
    context.register_catalog("peer", {"warehouse": request["warehouse"]}, default_database="")
    batches: list[pa.RecordBatch] = []
    for statement in statements:
        batches = context.sql(statement)
    return batches


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _full_name(request: dict[str, Any]) -> str:
    return ".".join(["peer", *map(_quoted, request["table"].split(".", 1))])


def _sql_type(paimon_type: Any) -> str:
    if isinstance(paimon_type, str):
        return paimon_type.replace("WITH LOCAL TIME ZONE", "WITH TIME ZONE")
    match paimon_type["type"].removesuffix(" NOT NULL"):
        case "ARRAY":
            return f"ARRAY<{_sql_type(paimon_type['element'])}>"
        case "MAP":
            # the client makes a key NOT NULL by itself and has no syntax for it
            key, value = paimon_type["key"], paimon_type["value"]
            key = key.removesuffix(" NOT NULL") if isinstance(key, str) else key
            return f"MAP({_sql_type(key)}, {_sql_type(value)})"
        case "ROW":
            fields = (f"{_quoted(field['name'])} {_sql_type(field['type'])}" for field in paimon_type["fields"])
            return f"STRUCT<{', '.join(fields)}>"
        case other:
            raise ValueError(f"pypaimon-rust has no SQL for {other}")


def about(request: dict[str, Any]) -> dict[str, str]:
    """Versions of the client and of its Arrow."""
    return {"client": importlib.metadata.version("pypaimon-rust"), "pyarrow": pa.__version__}


def create_table(request: dict[str, Any]) -> None:
    """Create a table, and its database unless it is there."""
    parts = [f"{_quoted(name)} {_sql_type(paimon_type)}" for name, paimon_type in request["fields"]]
    if request.get("primary_key"):
        parts.append(f"PRIMARY KEY ({', '.join(map(_quoted, request['primary_key']))})")
    statement = f"CREATE TABLE {_full_name(request)} ({', '.join(parts)})"
    if request.get("partition_by"):
        statement += f" PARTITIONED BY ({', '.join(map(_quoted, request['partition_by']))})"
    if request.get("options"):
        options = (f"{_text(key)} = {_text(value)}" for key, value in request["options"].items())
        statement += f" WITH ({', '.join(options)})"
    database = _quoted(request["table"].split(".")[0])
    _sql(request, f"CREATE SCHEMA IF NOT EXISTS peer.{database}", statement)


def write(request: dict[str, Any]) -> dict[str, int]:
    """Write the rows of an IPC file as one commit."""
    table = _table(request)
    rows = _with_seconds(read_ipc(request["rows"]), table)
    builder = table.new_batch_write_builder()
    if request.get("overwrite") is not None:
        builder = builder.with_overwrite(request["overwrite"])
    writer, commit = builder.new_write(), builder.new_commit()
    try:
        for batch in rows.combine_chunks().to_batches():
            writer.write_arrow(batch)
        commit.commit(writer.prepare_commit())
    finally:
        writer.close()
        commit.close()
    return {"rows": rows.num_rows}


def _with_seconds(rows: pa.Table, table: Any) -> pa.Table:
    """Columns of TIMESTAMP(0) in whole seconds, as this client insists."""
    for field in table.schema().fields():
        if field.name() in rows.column_names and field.field_type().startswith("TIMESTAMP(0)"):
            place = rows.schema.get_field_index(field.name())
            kind = pa.timestamp("s", rows.schema.field(place).type.tz)
            rows = rows.set_column(place, field.name(), rows.column(place).cast(kind))
    return rows


def _read_builder(request: dict[str, Any]) -> Any:
    builder = _table(request).new_read_builder(request.get("options") or {})
    if request.get("columns"):
        builder = builder.with_projection(request["columns"])
    if request.get("where"):
        terms = [
            {"method": _camel_case(method), "field": column, "literals": literals}
            for method, column, literals in request["where"]
        ]
        builder = builder.with_filter({"method": "and", "children": terms} if len(terms) > 1 else terms[0])
    return builder


def _camel_case(method: str) -> str:
    """The client's name of a predicate method: `greater_or_equal` is `greaterOrEqual` here."""
    first, *rest = method.split("_")
    return first + "".join(word.capitalize() for word in rest)


def read(request: dict[str, Any]) -> dict[str, int]:
    """Read the table into an IPC file."""
    builder = _read_builder(request)
    splits = builder.new_scan().plan().splits()
    batches = list(builder.new_read().read_arrow(splits))
    rows = _as_table(batches, request.get("columns") or [field.name() for field in _table(request).schema().fields()])
    write_ipc(rows, request["out"])
    return {"rows": rows.num_rows}


def changes(request: dict[str, Any]) -> dict[str, int]:
    """Read what a range of snapshots published into an IPC file."""
    builder = _read_builder(request).with_include_row_kind(True)
    mode = request.get("mode") or "changelog"
    splits = builder.new_incremental_scan(request["start"] - 1, request["end"], mode).plan().splits()
    batches = list(builder.new_read().read_arrow(splits))
    names = ["rowkind", *(field.name() for field in _table(request).schema().fields())]
    rows = _as_table(batches, names)
    write_ipc(rows.rename_columns(["_row_kind", *rows.column_names[1:]]), request["out"])
    return {"rows": rows.num_rows}


def _as_table(batches: list[pa.RecordBatch], columns: list[str]) -> pa.Table:
    """The batches as a table; without batches nobody tells the types, and the columns are of type null."""
    if batches:
        return pa.Table.from_batches(batches)
    return pa.table({name: pa.nulls(0) for name in columns})


def sql(request: dict[str, Any]) -> dict[str, int]:
    """Run one statement."""
    batches = _sql(request, request["statement"].replace("{table}", _full_name(request)))
    rows = _as_table(batches, [])
    if request.get("out"):
        write_ipc(rows, request["out"])
    return {"rows": rows.num_rows}


def plan(request: dict[str, Any]) -> dict[str, int]:
    """Count splits and the rows in their files."""
    splits = _read_builder(request).new_scan().plan().splits()
    return {"splits": len(splits), "rows": sum(split.row_count() for split in splits)}


def latest_snapshot(request: dict[str, Any]) -> int | None:
    """Id of the latest snapshot, None for an empty table."""
    snapshot = _table(request).latest_snapshot()
    return None if snapshot is None else int(snapshot.id())


if __name__ == "__main__":
    serve(
        {
            "about": about,
            "create_table": create_table,
            "write": write,
            "read": read,
            "changes": changes,
            "sql": sql,
            "plan": plan,
            "latest_snapshot": latest_snapshot,
        }
    )
