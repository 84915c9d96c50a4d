"""The OpenAPI document of the server, and the same as a page for people that loads nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final

from merganser.serve.answers import ARROW_TYPE, JSON_TYPE, MORE, NEXT
from merganser.serve.operations import Limits, Operation, Parameter

PAGE_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}

ABOUT: Final = (
    "Every change of a table, shard by shard. Get a position with `iterator`, read `records` from it, and keep "
    "`next_iterator` with what you made of the records. Read the parents of a shard to their ends before the shard "
    "itself. A position is a text that any server of the warehouse understands."
)

_ERRORS: Final[Mapping[int, str]] = {
    400: "`OTSParameterInvalid`: a parameter or a name has no meaning. Change the request.",
    403: "`OTSAuthFailed`: the token is missing or wrong, or the server does not allow this.",
    404: "`OTSObjectNotExist`: there is no such table, stream or shard. `OTSTrimmedDataAccess`: the position is "
    "damaged, of another stream, or older than the retention. Ask for a new one.",
    408: "`OTSTimeout`: the request did not come in time.",
    409: "`untracked`: a commit logged nothing; ask with `gaps=skip`. `conflict`: another process changed the table.",
    413: "`OTSParameterInvalid`: the body is too large.",
    500: "`OTSInternalServerError`: the table cannot be read. The log of the server says why.",
    501: "`unsupported`: this version cannot read the table.",
    503: "`OTSServerBusy`, `OTSPartitionUnavailable`, `OTSTimeout`: ask again after the seconds of `Retry-After`.",
}
_ANY: Final = (400, 403, 500, 501, 503)


def _object(doc: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "description": doc, "properties": properties, "required": list(properties)}


def _text(doc: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": doc, **more}


def _maybe(doc: str) -> dict[str, Any]:
    return {"type": ["string", "null"], "description": doc}


def _list(of: Any) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _named(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


_PAGE_OF_SHARDS: Final = {
    "shards": _list(_named("Shard")),
    "next_shard": _maybe("Where the next page begins; null: there are no more."),
}
_SCHEMAS: Final[Mapping[str, Any]] = {
    "Error": _object(
        "An error.", code=_text("For programs."), message=_text("For people: what could not be done, and what to do.")
    ),
    "Health": _object("The server answers.", status=_text("ok")),
    "Disabled": _object("The stream is gone.", status=_text("disabled")),
    "Retention": {
        "type": "object",
        "description": "What to enable.",
        "properties": {"retention": _text("Such as `24 h` or `7 d`.", default="24 h")},
    },
    "Enabled": _object("The stream.", stream_id=_text("Its name."), retention_seconds={"type": "number"}),
    "Stream": _object(
        "A stream.",
        stream_id=_text("A stream that is enabled again has another one."),
        table_name=_text("`database.table`."),
        creation_time=_text("When it was enabled.", format="date-time"),
    ),
    "Streams": _object("All streams.", streams=_list(_named("Stream"))),
    "Shard": _object(
        "One bucket of one partition, from the commit that opened it to the one that closed it.",
        shard_id=_text("Ids sort in the order in which shards were opened."),
        parent_id=_maybe("The shard that its keys were in before."),
        parent_sibling_id=_maybe("The second parent, if shards came together."),
        parents=_list({"type": "string"}),
        closed={"type": "boolean", "description": "No records are added any more."},
        closed_time=_maybe("When it was closed. Another time than before: the table was rolled back behind its end."),
        bucket={"type": "integer"},
        partition={"type": "object", "description": "The values of the partition columns."},
    ),
    "Shards": _object("A page of shards.", **_PAGE_OF_SHARDS),
    "StreamDescription": _object(
        "A stream, the columns of its table, and a page of its shards.",
        stream_id=_text("A stream that is enabled again has another one."),
        table_name=_text("`database.table`."),
        status=_text("active"),
        creation_time=_text("When it was enabled.", format="date-time"),
        retention_seconds={"type": "integer", "description": "How long records can be read after their commit."},
        columns=_list(_object("A column.", name=_text("Its name."), type=_text("Its SQL type."))),
        primary_key=_list({"type": "string"}),
        **_PAGE_OF_SHARDS,
    ),
    "Iterator": _object("A position.", iterator=_text("Keep it as it is: it holds all that a server has to know.")),
    "Record": {
        "type": "object",
        "description": "A change. Beside these: the columns of the table.",
        "properties": {
            "_action": _text("What happened.", enum=["PUT", "UPDATE", "DELETE"]),
            "_sequence": {"type": ["integer", "string"], "description": "Rises within a shard."},
            "_commit_time": _text("When the change was committed."),
            "_changed": {
                "type": ["array", "null"],
                "items": {"type": "string"},
                "description": "Of an update, the columns that it changed. Tables without a key have none.",
            },
            "_before": {"type": ["object", "null"], "description": "With `before=true`."},
        },
        "required": ["_action", "_sequence", "_commit_time"],
    },
    "Records": _object(
        "A page of records.",
        next_iterator=_maybe("The position behind them; null: the shard is closed, and all of it was read."),
        may_have_more={"type": "boolean", "description": "Whether there was more to read already."},
        records=_list(_named("Record")),
    ),
}


def document(every: Iterable[Operation], limits: Limits, *, token: bool) -> dict[str, Any]:
    """Return the OpenAPI document of a server with these limits."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in every:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, token=token)
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "merganser shard streams",
            "version": "1",
            "description": f"{ABOUT} The server works on {limits.requests} requests at a time.",
        },
        "paths": paths,
        "components": {"schemas": dict(_SCHEMAS)},
    }
    if token:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return found


def _operation(operation: Operation, *, token: bool) -> dict[str, Any]:
    good: dict[str, Any] = {
        "description": operation.summary,
        "content": {JSON_TYPE: {"schema": _named(operation.answer)}},
    }
    if operation.answer == "Records":
        good["content"][ARROW_TYPE] = {"schema": {"type": "string", "format": "binary"}}
        good["headers"] = {
            NEXT: {"schema": {"type": "string"}, "description": "Of Arrow: `next_iterator`; absent for null."},
            MORE: {"schema": {"type": "boolean"}, "description": "Of Arrow: `may_have_more`."},
        }
    errors = () if operation.is_open else sorted({*_ANY, *operation.errors})
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [_parameter(each) for each in operation.parameters],
        "responses": {
            "200": good,
            **{
                str(status): {
                    "description": _ERRORS[status],
                    "content": {JSON_TYPE: {"schema": _named("Error")}},
                }
                for status in errors
            },
        },
    }
    if operation.body is not None:
        found["requestBody"] = {"content": {JSON_TYPE: {"schema": _named(operation.body)}}}
    if token and not operation.is_open:
        found["security"] = [{"token": []}]
    return found


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.kind}
    for name, value in (("default", parameter.default), ("minimum", parameter.least), ("maximum", parameter.most)):
        if value is not None:
            schema[name] = value
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    return {
        "name": parameter.name,
        "in": "path" if parameter.in_path else "query",
        "required": parameter.in_path or parameter.required,
        "description": parameter.doc,
        "schema": schema,
    }


def page(described: Mapping[str, Any]) -> str:
    """Return the document as a page of HTML."""
    parts = [_HEAD, f"<h1>{escape(described['info']['title'])}</h1>", f"<p>{_marked(described['info']['description'])}"]
    parts.append('<p>For programs: <a href="/openapi.json">/openapi.json</a>')
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2><b>{method.upper()}</b> {escape(path)}</h2><p>{_marked(operation['summary'])}")
            if operation["parameters"]:
                rows = "".join(
                    f"<tr><td><code>{escape(each['name'])}</code><td>{_form(each)}<td>{_marked(each['description'])}"
                    for each in operation["parameters"]
                )
                parts.append(f"<table><tr><th>parameter<th>value<th>meaning{rows}</table>")
            answers = "".join(
                f"<tr><td>{status}<td>{_marked(answer['description'])}"
                for status, answer in operation["responses"].items()
            )
            parts.append(f"<table><tr><th>status<th>meaning{answers}</table>")
    parts.append("<h1>Answers</h1>")
    for name, schema in described["components"]["schemas"].items():
        parts.append(f'<h2 id="{name}">{name}</h2><p>{_marked(schema["description"])}')
        rows = "".join(
            f"<tr><td><code>{escape(field)}</code><td>{_kind(each)}<td>{_marked(each.get('description', ''))}"
            for field, each in schema["properties"].items()
        )
        parts.append(f"<table><tr><th>field<th>value<th>meaning{rows}</table>")
    return "\n".join(parts) + "\n</html>\n"


def _form(parameter: Mapping[str, Any]) -> str:
    schema = parameter["schema"]
    text = " or ".join(f"<code>{escape(each)}</code>" for each in schema.get("enum", ())) or schema["type"]
    if "minimum" in schema:
        text += f", {schema['minimum']:,g} to {schema['maximum']:,g}"
    if parameter["required"]:
        return f"{text}, required"
    return f"{text}, else <code>{escape(str(schema['default']).lower())}</code>" if "default" in schema else text


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{name}">{name}</a>'
    if schema["type"] == "array":
        return f"list of {_kind(schema['items'])}"
    return schema["type"] if isinstance(schema["type"], str) else " or ".join(schema["type"])


def _marked(text: str) -> str:
    """Return text as HTML, with what stands in backquotes as code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))


_HEAD: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>merganser shard streams</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b2a33 }
h2 { font-size: 1.1rem; margin: 2.5rem 0 0; border-top: 1px solid #cdd8de; padding-top: 1rem; font-weight: 500 }
h2 b { color: #14606b }
code { background: #eef3f5; padding: 0 .2em; border-radius: 3px }
table { border-collapse: collapse; margin: .5rem 0; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid #e6edf0 }
td:first-child { white-space: nowrap }
@media (prefers-color-scheme: dark) {
  body { background: #10181c; color: #dde6ea } code { background: #1d2a31 } h2, td, th { border-color: #2a3a42 }
  h2 b, a { color: #6cc3cf }
}
</style>"""
