"""What a client can ask, as data: the service checks requests by it, and the OpenAPI document shows it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final
from urllib.parse import parse_qsl

from merganser.errors import StreamParameterError
from merganser.values import dataclass

TEXT: Final = "string"
WHOLE: Final = "integer"
NUMBER: Final = "number"
FLAG: Final = "boolean"
_FIELDS_MAX: Final = 32

JSON: Final = "json"
ARROW: Final = "arrow"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server gives at most.

    Attributes:
        records: of one page.
        shards: of one page.
        wait_seconds: how long a request for records may wait for them.
        requests: how many requests are in work at once; those that wait for records do not count.
        connections: how many are open at once.
        page_bytes: about so much memory the records of one page take.
        sending_bytes: about so much memory the answers take that clients are slow to read.
        body_bytes, head_bytes: of a request.
        head_seconds: how long a client may take to send a request.
        send_seconds: how long a client may take to read an answer.
    """

    records: int = 10_000
    shards: int = 10_000
    wait_seconds: float = 30.0
    requests: int = 256
    connections: int = 4096
    page_bytes: int = 16 << 20
    sending_bytes: int = 256 << 20
    body_bytes: int = 64 << 10
    head_bytes: int = 64 << 10
    head_seconds: float = 10.0
    send_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query, or the table in the path.

    Attributes:
        kind: the type of JSON schema.
        default: None: the parameter is left out.
    """

    name: str
    kind: str
    doc: str
    default: Any = None
    required: bool = False
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    in_path: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    Attributes:
        name: of the verb.
        answer: the name of the schema of the answer in the OpenAPI document.
        errors: status codes of errors, beside those that any operation may have.
        body: the name of the schema of what the client sends.
        is_open: it needs no token.
        changes: it changes the table.
    """

    name: str
    method: str
    path: str
    summary: str
    answer: str
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[int, ...] = ()
    body: str | None = None
    is_open: bool = False
    changes: bool = False
    _by_name: dict[str, Parameter] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._by_name.update({each.name: each for each in self.parameters if not each.in_path})

    def asked(self, query: bytes) -> dict[str, Any]:
        """Return the value of each parameter of a query.

        Raises:
            StreamParameterError: a parameter is not known, missing, given twice, or has no meaning.
        """
        given: dict[str, str] = {}
        for name, text in _pairs(query):
            if name not in self._by_name:
                known = ", ".join(f"'{each}'" for each in self._by_name) or "none"
                raise StreamParameterError(f"{self.path} has no parameter {name!r:.60}. It has: {known}.")
            if name in given:
                raise StreamParameterError(f"parameter '{name}' is given twice. Give it once.")
            given[name] = text
        return {name: _value(each, given.get(name)) for name, each in self._by_name.items()}


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        text = query.decode("ascii")
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX)
    except ValueError:
        raise StreamParameterError(
            f"the query of the address is not percent-encoded UTF-8 with at most {_FIELDS_MAX} parameters."
        ) from None


def _value(parameter: Parameter, text: str | None) -> Any:
    if text is None:
        if parameter.required:
            raise StreamParameterError(f"parameter '{parameter.name}' is missing. {parameter.doc}")
        return parameter.default
    if parameter.kind == TEXT:
        value: Any = text if not parameter.choices or text in parameter.choices else None
    elif parameter.kind == FLAG:
        value = {"true": True, "false": False}.get(text)
    else:
        value = _number(text, whole=parameter.kind == WHOLE)
        if value is not None and not (parameter.least or 0) <= value <= (parameter.most or math.inf):
            value = None
    if value is None:
        raise StreamParameterError(f"parameter '{parameter.name}' is {text!r:.60}. Give {_meant(parameter)}.")
    return value


def _number(text: str, *, whole: bool) -> int | float | None:
    if not text.isascii() or len(text) > 20 or not text.replace("." if not whole else "", "", 1).isdigit():
        return None
    return int(text) if whole else float(text)


def _meant(parameter: Parameter) -> str:
    if parameter.choices:
        return " or ".join(f"'{each}'" for each in parameter.choices)
    if parameter.kind == FLAG:
        return "true or false"
    kind = "a whole number" if parameter.kind == WHOLE else "a number"
    return f"{kind} from {parameter.least:,g} to {parameter.most:,g}"


TABLE: Final = Parameter("table", TEXT, "`database.table`, or a branch: `database.table$branch_b`.", in_path=True)

HEALTH: Final = Operation("health", "GET", "/health", "Whether the server answers", "Health", is_open=True)
STREAMS: Final = Operation(
    "list_streams",
    "GET",
    "/v1/streams",
    "The streams of one table or of all",
    "Streams",
    (Parameter("table", TEXT, "Only the stream of this table, such as `shop.orders`."),),
    (404,),
)


def operations(limits: Limits) -> Mapping[str, Operation]:
    """Return all operations, by their names."""
    page = (
        TABLE,
        Parameter("start_shard", TEXT, "The first shard of the page: the `next_shard` of the page before."),
        Parameter("limit", WHOLE, "Most shards of a page.", min(1000, limits.shards), least=1, most=limits.shards),
    )
    wait = "How many seconds to wait for records where there are none yet. 0: answer at once."
    every = (
        HEALTH,
        STREAMS,
        Operation(
            "describe_stream", "GET", "/v1/tables/{table}/stream", "The stream of a table, and a page of its shards",
            "StreamDescription", page, (404,),
        ),
        Operation(
            "enable_stream", "PUT", "/v1/tables/{table}/stream", "Enable the stream of a table, or give it another "
            "retention", "Enabled", (TABLE,), (404, 408, 409, 413), "Retention", changes=True,
        ),
        Operation(
            "disable_stream", "DELETE", "/v1/tables/{table}/stream", "Discard the stream of a table",
            "Disabled", (TABLE,), (404, 409), changes=True,
        ),
        Operation("shards", "GET", "/v1/tables/{table}/shards", "A page of shards alone", "Shards", page, (404,)),
        Operation(
            "shard_iterator",
            "GET",
            "/v1/tables/{table}/iterator",
            "A position in a shard",
            "Iterator",
            (
                TABLE,
                Parameter("shard", TEXT, "The `shard_id` of the shard.", required=True),
                Parameter(
                    "at",
                    TEXT,
                    "Behind the newest record, or before the oldest one that is kept.",
                    "latest",
                    choices=("latest", "trim_horizon"),
                ),
                Parameter(
                    "timestamp",
                    TEXT,
                    "Before the first record of this time or later: ISO text such as `2026-01-01T12:00:00Z`, or "
                    "milliseconds since 1970. `at` does not count then.",
                ),
            ),
            (404,),
        ),
        Operation(
            "records",
            "GET",
            "/v1/tables/{table}/records",
            "The records of a shard from a position on",
            "Records",
            (
                TABLE,
                Parameter("iterator", TEXT, "The position: of `iterator`, or the `next_iterator` of the page before.",
                          required=True),
                Parameter("limit", WHOLE, "Most records. There may be fewer, although there are more to read: see "
                          "`may_have_more`.", min(1000, limits.records), least=1, most=limits.records),
                Parameter("wait", NUMBER, wait, 0.0, least=0, most=limits.wait_seconds),
                Parameter("before", FLAG, "Add `_before`: the row before an update or a delete.", False),
                Parameter("full", FLAG, "Give an update all columns, and a delete its last values.", False),
                Parameter("gaps", TEXT, "What to do about commits that logged nothing.", "error",
                          choices=("error", "skip")),
                Parameter("format", TEXT, "Else the header Accept decides, and else it is JSON.",
                          choices=(JSON, ARROW)),
                Parameter("integers", TEXT, "BIGINT and `_sequence` as numbers of JSON, or as texts for programs whose "
                          "numbers are doubles.", "number", choices=("number", "text")),
            ),
            (404, 409),
        ),
    )  # fmt: skip
    return {each.name: each for each in every}
