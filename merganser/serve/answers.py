"""Errors, records and shards as bytes that go to a client."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import field
from datetime import UTC
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from merganser.codec.json_lines import STRICT, STRICT_TEXTS, json_lines
from merganser.errors import (
    CommitUnknownError,
    ConflictError,
    ExpiredError,
    InvalidInputError,
    MerganserError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    UntrackedError,
)
from merganser.shards.verbs import Records, Shard, Stream, StreamDescription
from merganser.values import dataclass

JSON_TYPE: Final = "application/json"
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
NEXT: Final = "next-iterator"
MORE: Final = "may-have-more"

TRIMMED: Final = "OTSTrimmedDataAccess"
NOT_THERE: Final = "OTSObjectNotExist"
INVALID: Final = "OTSParameterInvalid"
REFUSED: Final = "OTSAuthFailed"
BUSY: Final = "OTSServerBusy"
AWAY: Final = "OTSPartitionUnavailable"
LATE: Final = "OTSTimeout"
BUG: Final = "OTSInternalServerError"

_KNOWN: Final[tuple[tuple[type[MerganserError], int, str], ...]] = (
    (UntrackedError, 409, UntrackedError.code),
    (ExpiredError, 404, TRIMMED),
    (NotFoundError, 404, NOT_THERE),
    (InvalidInputError, 400, INVALID),
    (ConflictError, 409, ConflictError.code),
    (CommitUnknownError, 503, LATE),
    (UnsupportedError, 501, UnsupportedError.code),
)
"""What the client can do something about: it gets the message of the error."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A status with its body and headers.

    Attributes:
        logged: what the log of the server gets, for errors that are not the client's.
        pieces: the body, if it is not known at once: sent as it comes, until it ends or the client goes.
    """

    body: bytes
    status: int = 200
    kind: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)
    logged: str | None = None
    pieces: AsyncIterator[bytes] | None = None


class RefusedError(Exception):
    """A request that the server does not take up."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, headers


def of_json(value: Mapping[str, Any]) -> Answer:
    """Return JSON."""
    return Answer(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def error_answer(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an error; those of 503 say when to ask again."""
    body = json.dumps({"code": code, "message": message}, ensure_ascii=False).encode()
    more = {"retry-after": "1"} if status == 503 else {}
    return Answer(body, status, headers={**more, **{k.replace("_", "-"): v for k, v in (headers or {}).items()}})


def of_error(error: Exception, *, warehouse: str, request: str) -> Answer:
    """Return what a client gets of an error: what it can act on, and nothing of the inside of the server.

    Args:
        warehouse: its path, which messages do not tell.
        request: a name under which the log has the rest.
    """
    for kind, status, code in _KNOWN:
        if isinstance(error, kind):
            message = error.message.replace(warehouse, "<warehouse>") if warehouse else error.message
            return error_answer(status, code, message)
    if isinstance(error, StorageError):
        status, code = 503, AWAY
        message = "the store of the table did not answer. Nothing was read or changed. Wait, and ask again."
    else:
        status, code, message = 500, BUG, "the table cannot be read, or the server has a fault."
    told = error_answer(status, code, f"{message} The log of the server says more: look for {request}.")
    name = "" if isinstance(error, MerganserError) else f"{type(error).__name__}: "
    return Answer(told.body, status, told.kind, told.headers, f"{request}: {name}{error}")


def of_records(page: Records, *, arrow: bool, big_as_text: bool = False) -> Answer:
    """Return a page of records, as JSON or as an Arrow stream with the position in the headers."""
    more = "true" if page.may_have_more else "false"
    if arrow:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, page.records.schema) as writer:
            writer.write_table(page.records)
        headers = {MORE: more} if page.next_iterator is None else {NEXT: page.next_iterator, MORE: more}
        return Answer(sink.getvalue().to_pybytes(), kind=ARROW_TYPE, headers=headers)
    form = STRICT_TEXTS if big_as_text else STRICT
    batches = page.records.combine_chunks().to_batches()
    lines = b"".join(json_lines(batch, form) for batch in batches)
    return no_records_json(page.next_iterator, more, lines[:-1].replace(b"\n", b",\n"))


def no_records_json(next_iterator: str | None, more: str = "false", records: bytes = b"") -> Answer:
    """Return a page of records, of which the JSON is made; without it, the page of an idle shard."""
    position = b"null" if next_iterator is None else b'"%s"' % next_iterator.encode()
    return Answer(b'{"next_iterator":%s,"may_have_more":%s,"records":[%s]}' % (position, more.encode(), records))


def stream_json(stream: Stream) -> dict[str, Any]:
    """Return a stream of a list."""
    return {
        "stream_id": stream.stream_id,
        "table_name": stream.table_name,
        "creation_time": stream.creation_time.isoformat(),
    }


def description_json(described: StreamDescription, columns: Mapping[str, str], key: tuple[str, ...]) -> dict[str, Any]:
    """Return a stream with a page of shards and the columns of the table."""
    return {
        "stream_id": described.stream_id,
        "table_name": described.table_name,
        "status": described.status,
        "creation_time": described.creation_time.astimezone(UTC).isoformat(),
        "retention_seconds": round(described.retention.total_seconds()),
        "columns": [{"name": name, "type": kind} for name, kind in columns.items()],
        "primary_key": list(key),
        **shards_json(described),
    }


def shards_json(described: StreamDescription) -> dict[str, Any]:
    """Return a page of shards."""
    return {"shards": [_shard_json(shard) for shard in described.shards], "next_shard": described.next_shard}


def _shard_json(shard: Shard) -> dict[str, Any]:
    return {
        "shard_id": shard.shard_id,
        "parent_id": shard.parent_id,
        "parent_sibling_id": shard.parent_sibling_id,
        "parents": list(shard.parents),
        "closed": shard.closed,
        "closed_time": None if shard.closed_time is None else shard.closed_time.isoformat(),
        "bucket": shard.bucket,
        "partition": {name: _plain(value) for name, value in shard.partition.items()},
    }


def _plain(value: Any) -> Any:
    """Return the value of a partition column as records have it."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            text = str(value)
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, value)
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return f"{value:f}"
        case _:
            return str(value)
