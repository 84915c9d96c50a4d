"""Change records -> rows with kinds, one record and one value at a time: what `merganser.cdc` must equal.

It follows docs/cdc.md sentence by sentence, with a JSON parser of its own that keeps the text of every value.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from json import JSONDecodeError, decoder
from struct import pack, unpack
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from merganser.schema import types as t
from merganser.values import dataclass

PLACEHOLDER: Final = "__debezium_unavailable_value"
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_TEXT: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_STAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[ T:](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?)? ?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_CLOCK: Final = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)? ?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII)
_NO_FINITE: Final = re.compile("[+-]?inf(?:inity)?|nan", re.IGNORECASE)
_BEYOND: Final = (
    r"[+-]?infinity|[+-]?\d{5,}-\d\d-\d\d.*|-\d{4}-\d\d-\d\d.*|\d+-\d\d-\d\d.* BC"
    r"|\d{4}-\d\d-\d\d[ T:]24:00(?::00(?:\.0*)?)?"
)
_BEYOND_CLOCK: Final = r"(?:-\d{1,3}|2[4-9]|[3-9]\d|\d{3}):\d\d(?::\d\d(?:\.\d+)?)?"
_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_WIDE: Final = Context(prec=400)
_EPOCH: Final = datetime.combine(date(1970, 1, 1), time())

Kind = Literal["null", "text", "number", "boolean", "object", "array"]


class Bad(Exception):  # noqa: N818 - not an error
    """The record is bad; the text begins with the code."""


class Beyond(ValueError):  # noqa: N818 - not an error
    """The type has no such value."""


@dataclass(frozen=True)
class Node:
    """A value of JSON.

    Attributes:
        raw: as it is written, without the blanks between its parts.
        value: text; or elements; or pairs of names and values.
    """

    kind: Kind
    raw: str
    value: Any = None

    def get(self, name: str) -> Node | None:
        """Return the last member of a name."""
        found = [node for key, node in self.value if key == name] if self.kind == "object" else []
        return found[-1] if found else None


def parse(text: str) -> Node:
    """Return a text as a value.

    Raises:
        ValueError: it is not JSON.
    """
    node, end = _value(text, _blank(text, 0))
    if _blank(text, end) != len(text):
        raise ValueError("text behind the value")
    return node


def _string(text: str, at: int) -> tuple[str, int]:
    found: tuple[str, int] = decoder.scanstring(text, at + 1, True)  # type: ignore[attr-defined]
    return found


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _value(text: str, at: int) -> tuple[Node, int]:
    if at >= len(text):
        raise ValueError("nothing")
    if text[at] == '"':
        value, end = _string(text, at)
        return Node("text", text[at:end], value), end
    if text[at] == "{":
        return _parts(text, at, "object", "}")
    if text[at] == "[":
        return _parts(text, at, "array", "]")
    for word in ("null", "true", "false"):
        if text.startswith(word, at):
            return Node("null" if word == "null" else "boolean", word), at + len(word)
    found = _NUMBER.match(text, at)
    if not found:
        raise ValueError("no value")
    return Node("number", found[0]), found.end()


def _parts(text: str, at: int, kind: Kind, close: str) -> tuple[Node, int]:
    found: list[Any] = []
    raw: list[str] = []
    at = _blank(text, at + 1)
    if text[at : at + 1] == close:
        return Node(kind, "{}" if kind == "object" else "[]", found), at + 1
    while True:
        name = None
        if kind == "object":
            if text[at : at + 1] != '"':
                raise ValueError("no name")
            name, end = _string(text, at)
            raw_name = text[at:end]
            at = _blank(text, end)
            if text[at : at + 1] != ":":
                raise ValueError("no colon")
            at = _blank(text, at + 1)
        node, at = _value(text, at)
        found.append(node if name is None else (name, node))
        raw.append(node.raw if name is None else f"{raw_name}:{node.raw}")
        at = _blank(text, at)
        if text[at : at + 1] == close:
            return Node(kind, ("{%s}" if kind == "object" else "[%s]") % ",".join(raw), found), at + 1
        if text[at : at + 1] != ",":
            raise ValueError("no comma")
        at = _blank(text, at + 1)


# values


def value_of(node: Node | None, kind: t.DataType, options: Mapping[str, Any], unit: str | None) -> Any:
    """Return a value as Python has it.

    Raises:
        ValueError: it does not fit.
    """
    if node is None or node.kind == "null":
        return None
    if node.kind == "text":
        node.value.encode()
    match kind:
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            bits = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}[type(kind)]
            number = _number(node)
            if number.is_zero():
                return 0
            _check(number.adjusted() < 25)
            _check(number == number.to_integral_value(context=_WIDE))
            found = int(number)
            _check(-(1 << bits - 1) <= found < 1 << bits - 1)
            return found
        case t.Float() | t.Double():
            if node.kind == "text" and _NO_FINITE.fullmatch(node.value.strip(" \t")):
                return float(node.value)
            text = node.raw if node.kind == "number" else _text(node).strip(" \t")
            _check(_NUMBER_TEXT.fullmatch(text) is not None)
            found_float = float(text)
            if isinstance(kind, t.Float):
                try:
                    found_float = unpack("f", pack("f", found_float))[0]
                except OverflowError:
                    raise ValueError from None
            _check(abs(found_float) != float("inf"))
            return found_float
        case t.Decimal(precision=precision, scale=scale):
            if options.get("decimal") == "base64":
                _check(node.kind in ("text", "number"))
                if node.kind == "text":
                    data = _base64(node.value)
                    _check(len(data) > 0)
                    node = Node("number", f"{int.from_bytes(data, 'big', signed=True)}e-{scale}")
            if node.kind == "text" and _NO_FINITE.fullmatch(node.value.strip(" \t")):
                raise Beyond
            return _decimal(_number(node), precision, scale)
        case t.Boolean():
            text = node.value.strip(" \t").lower() if node.kind == "text" else node.raw
            _check(node.kind in ("text", "number", "boolean") and text in ("true", "1", "false", "0"))
            return text in ("true", "1")
        case t.Char(length=length) | t.VarChar(length=length):
            text = node.value if node.kind == "text" else node.raw
            _check(len(text) <= length)
            return text
        case t.Binary(length=length) | t.VarBinary(length=length):
            text = _text(node)
            _check("binary" in options or not re.fullmatch("(?:[0-9a-f]{2}){6,}", text))
            data = _bytes(text, options.get("binary", "base64"))
            _check(len(data) <= length)
            return data
        case t.Date():
            return _date(node, options)
        case t.Time(precision=precision):
            return _time(node, precision, unit)
        case t.Timestamp() | t.LocalZonedTimestamp():
            return _timestamp(node, kind, options, unit)
        case t.Array(element=element):
            node = _nested(node, "array")
            return [_inner(part, element, options, unit) for part in node.value]
        case t.Map(key=key, value=item):
            node = _nested(node, "object", *(() if isinstance(key, t.VarChar) else ("array",)))
            if node.kind == "array":
                _check(all(pair.kind == "array" and len(pair.value) == 2 for pair in node.value))
                pairs = [tuple(pair.value) for pair in node.value]
            else:
                pairs = [(Node("text", "", name), part) for name, part in dict(node.value).items()]
            return [
                (_inner(name, key.with_nullable(False), options, unit), _inner(part, item, options, unit))
                for name, part in pairs
            ]
        case t.Row(fields=fields):
            node = _nested(node, "object")
            return {f.name: _inner(node.get(f.name), f.type, options, unit) for f in fields}
    raise AssertionError(kind)


def _inner(node: Node | None, kind: t.DataType, options: Mapping[str, Any], unit: str | None) -> Any:
    try:
        found = value_of(node, kind, options, unit)
    except Beyond:
        if options.get("out_of_range") != "null":
            raise
        found = None
    _check(found is not None or kind.nullable)
    return found


def _check(fits: bool) -> None:
    if not fits:
        raise ValueError


def _text(node: Node) -> str:
    _check(node.kind == "text")
    return str(node.value)


def _number(node: Node) -> Decimal:
    text = node.raw if node.kind == "number" else _text(node).strip(" \t")
    _check(_NUMBER_TEXT.fullmatch(text) is not None)
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError from None


def _decimal(number: Decimal, precision: int, scale: int) -> Decimal:
    if number.is_zero():
        return Decimal(0).scaleb(-scale)
    _check(-200 < number.adjusted() < 200)
    found = number.quantize(Decimal(1).scaleb(-scale), context=_WIDE)
    _check(found == number and abs(found.scaleb(scale, context=_WIDE)) < 10**precision)
    return found


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError from None


def _bytes(text: str, form: str) -> bytes:
    match form:
        case "hex":
            _check(re.fullmatch("(?:[0-9a-fA-F]{2})*", text) is not None)
            return bytes.fromhex(text)
        case "latin1":
            return text.encode("latin-1")
        case "base64-url-safe":
            return _base64(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4))
    return _base64(text)


def _nested(node: Node, *kinds: Kind) -> Node:
    found = parse(node.value) if node.kind == "text" else node
    _check(found.kind in kinds)
    return found


def _whole(node: Node) -> int:
    found = value_of(node, t.BigInt(), {}, None)
    return int(found)


def _zero(node: Node, options: Mapping[str, Any]) -> bool:
    if options.get("zero_dates") != "null" or node.kind != "text":
        return False
    return re.fullmatch(r"0000-00-00(?:[ T:]00:00:00(?:\.0*)?)?Z?", node.value) is not None


def _stamp(given: str) -> tuple[datetime, int, int | None, bool]:
    """Return the whole seconds, nanoseconds, the offset of a zone in seconds, and whether there is a clock."""
    text = given.strip(" \t")
    if re.fullmatch(_BEYOND, text, re.IGNORECASE | re.ASCII):
        raise Beyond
    found = _STAMP.fullmatch(text)
    _check(found is not None)
    assert found
    clock = time(int(found[4] or 0), int(found[5] or 0), int(found[6] or 0))
    nanos, offset = _nanos(found[7]), _offset(found[8])
    if found[1] == "0000":
        date(4, int(found[2]), int(found[3]))
        raise Beyond
    moment = datetime.combine(date(int(found[1]), int(found[2]), int(found[3])), clock)
    return moment, nanos, offset, found[4] is not None


def _nanos(fraction: str | None) -> int:
    digits = (fraction or "").rstrip("0")
    _check(len(digits) <= 9)
    return int(digits.ljust(9, "0"))


def _offset(zone: str | None) -> int | None:
    if zone is None or zone == "Z":
        return None if zone is None else 0
    hours, minutes = int(zone[1:3]), int(zone[3:].replace(":", "") or 0)
    _check(hours <= 18 and minutes < 60)
    return (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)


def _is_count(node: Node) -> bool:
    return node.kind == "number" or (
        node.kind == "text" and re.fullmatch(r"[ \t]*[+-]?[0-9]+[ \t]*", node.value, re.ASCII) is not None
    )


def _shown(moment: datetime, offset: int, options: Mapping[str, Any]) -> datetime:
    """Return an instant as a clock in the time zone shows it."""
    try:
        instant = (moment - timedelta(seconds=offset)).replace(tzinfo=UTC)
        return instant.astimezone(ZoneInfo(options["time_zone"])).replace(tzinfo=None)
    except OverflowError:
        raise Beyond from None


def _date(node: Node, options: Mapping[str, Any]) -> date | None:
    if options["days"] and _is_count(node):
        days = value_of(node, t.BigInt(), {}, None)
        try:
            return date(1970, 1, 1) + timedelta(days=days)
        except OverflowError:
            raise Beyond from None
    if _zero(node, options):
        return None
    moment, nanos, offset, has_clock = _stamp(_text(node))
    if offset is not None and has_clock:
        moment = _shown(moment, offset, options)
    _check(nanos == 0 and moment.time() == time())
    return moment.date()


def _time(node: Node, precision: int, unit: str | None) -> time:
    if _is_count(node):
        count = _whole(node)
        _check(unit is not None)
        per_second = _UNITS[unit or ""]
        if not 0 <= count < 86_400 * per_second:
            raise Beyond
        nanos = count * (1_000_000_000 // per_second)
    else:
        text = _text(node).strip(" \t")
        if re.fullmatch(_BEYOND_CLOCK, text, re.ASCII):
            raise Beyond
        found = _CLOCK.fullmatch(text)
        _check(found is not None)
        assert found
        _check(_offset(found[5]) in (None, 0))
        clock = time(int(found[1]), int(found[2]), int(found[3] or 0))
        nanos = (clock.hour * 3600 + clock.minute * 60 + clock.second) * 1_000_000_000 + _nanos(found[4])
    _check(nanos % 10 ** (9 - min(precision, 3)) == 0)
    return (_EPOCH + timedelta(microseconds=nanos // 1000)).time()


def _timestamp(
    node: Node, kind: t.Timestamp | t.LocalZonedTimestamp, options: Mapping[str, Any], unit: str | None
) -> datetime | None:
    zone = ZoneInfo(options["time_zone"])
    offset: int | None
    if _is_count(node):
        count = _whole(node)
        _check(unit is not None)
        seconds, rest = divmod(count, _UNITS[unit or ""])
        nanos, offset = rest * (1_000_000_000 // _UNITS[unit or ""]), None
        _check(nanos % 10 ** (9 - kind.precision) == 0)
        try:
            moment = _EPOCH + timedelta(seconds=seconds)
        except OverflowError:
            raise Beyond from None
    else:
        if _zero(node, options):
            return None
        moment, nanos, offset, _ = _stamp(_text(node))
    _check(nanos % 10 ** (9 - kind.precision) == 0)
    moment += timedelta(microseconds=nanos // 1000)
    try:
        if isinstance(kind, t.LocalZonedTimestamp):
            if offset is None:
                return moment.replace(tzinfo=zone).astimezone(UTC)
            return (moment - timedelta(seconds=offset)).replace(tzinfo=UTC)
    except OverflowError:
        raise Beyond from None
    return moment if offset is None else _shown(moment, offset, options)


# records

Row = tuple[str, list[Any]]
MISSING: Final = Node("null", "null", "unavailable")
"""Stands for a value that the source did not send."""
_Image = dict[str, Node]


@dataclass(frozen=True)
class Target:
    """What rows are made for."""

    format: str
    fields: tuple[t.Field, ...]
    key: tuple[str, ...]
    options: Mapping[str, Any]


def rows_of(record: str | None, key: str | None, target: Target) -> list[Row]:
    """Return the rows of one record; none where it says nothing about rows.

    Raises:
        Bad: the record is bad.
    """
    options = target.options
    envelope = target.format not in ("json", "debezium-flat")
    if record is not None and not record.strip(" \t\r\n"):
        raise Bad("empty")
    try:
        root = Node("null", "null") if record is None else parse(record)
    except (ValueError, JSONDecodeError):
        raise Bad("not-json") from None
    if root.kind == "object":
        root = _unwrapped(root, target)
    if root.kind == "null":
        if options.get("tombstone", "ignore" if envelope else "delete") == "ignore":
            return []
        return _tombstone(key, target)
    if root.kind != "object":
        raise Bad("not-object")
    match target.format:
        case "debezium-json" | "debezium-json-schema":
            return _debezium(root, key, target)
        case "debezium-flat":
            return _flat(root, key, target)
        case "json":
            return (
                [] if _is_control(root, target) else _insert(_image(root, target), key, target, "+I", may_replace=True)
            )
        case "maxwell-json":
            return _maxwell(root, key, target)
        case "ogg-json":
            return _ogg(root, key, target)
    return _canal(root, target)


def _unwrapped(root: Node, target: Target) -> Node:
    if not target.format.startswith("debezium"):
        return root
    payload, schema = root.get("payload"), root.get("schema")
    wrapped = payload is not None and schema is not None
    if target.format == "debezium-flat":
        wrapped = wrapped and len(root.value) == 2
    if target.format == "debezium-json-schema":
        if payload is None:
            raise Bad("missing-payload")
        wrapped = True
    if not wrapped:
        return root
    assert payload is not None
    if payload.kind not in ("null", "object"):
        raise Bad("bad-envelope")
    return payload


def _operation(root: Node, name: str) -> str:
    found = root.get(name)
    if found is None or found.kind == "null":
        raise Bad("missing-op")
    if found.kind != "text":
        raise Bad("unknown-op")
    return str(found.value)


def _truncate(target: Target) -> list[Row]:
    if target.options.get("truncate") == "ignore":
        return []
    raise Bad("truncate")


def _member(root: Node, name: str, target: Target) -> _Image | None:
    found = root.get(name)
    if found is None or found.kind == "null":
        return None
    if found.kind != "object":
        raise Bad("bad-envelope")
    return _image(found, target)


def _image(node: Node, target: Target) -> _Image:
    found = {f.name: part for f in target.fields if (part := node.get(f.name)) is not None}
    if target.format.startswith("debezium") or target.format == "json":
        return {name: MISSING if _is_placeholder(part) else part for name, part in found.items()}
    if target.format == "ogg-json":
        for f in target.fields:
            flag = node.get(f"{f.name}_isMissing")
            if flag is not None and (flag.raw == "true" or (flag.kind == "text" and flag.value == "true")):
                found[f.name] = MISSING
    return found


def _is_placeholder(node: Node) -> bool:
    raw = PLACEHOLDER.encode()
    encoded = base64.b64encode(raw).decode()
    texts = [PLACEHOLDER, encoded, encoded.rstrip("="), raw.hex(), raw.hex().upper()]
    hstore = f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'
    arrays = [f'["{text}"]' for text in texts]
    if node.kind == "text":
        return node.value in (*texts, *arrays, hstore, hstore.replace(":", ": "))
    wkb = node.get("wkb")
    if wkb is not None and wkb.kind == "text" and wkb.value in texts[1:]:
        return True
    arrays += ["[" + ",".join(f"{byte}{end}" for byte in raw) + "]" for end in ("", ".0")]
    return node.raw in (hstore, f"[{hstore}]", *arrays, '["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]')


def _debezium(root: Node, key: str | None, target: Target) -> list[Row]:
    if root.get("op") is None and (
        (root.get("status") is not None and root.get("status").kind == "text" and root.get("id") is not None)  # type: ignore[union-attr]
        or root.get("ddl") is not None
        or root.get("tableChanges") is not None
        or [name for name, _ in root.value] == ["ts_ms"]
    ):
        return []
    op = _operation(root, "op")
    if op == "m":
        return []
    if op == "t":
        return _truncate(target)
    if op not in ("c", "r", "u", "d"):
        raise Bad("unknown-op")
    before, after = _member(root, "before", target), _member(root, "after", target)
    if op == "d":
        return _delete(before, key, target)
    return _insert(after, key, target, "+I") if op != "u" else _update(before, after, key, target)


def _is_control(root: Node, target: Target) -> bool:
    names = {name for name, _ in root.value}
    columns, times = {f.name for f in target.fields}, {"ts_ms", "ts_us", "ts_ns"}
    for needed, others, member, values in (
        ({"status", "id"}, {"event_count", "data_collections"}, "status", ("BEGIN", "END")),
        ({"op", "message"}, {"source", "transaction"}, "op", ("m",)),
        ({"ts_ms"}, set(), "", ()),
        ({"ddl"}, {"databaseName", "schemaName", "tableChanges", "source"}, "", ()),
    ):
        told = root.get(member)
        if needed <= names <= needed | others | times and not names <= columns:
            return not member or (told is not None and told.kind == "text" and told.value in values)
    return False


def _flat(root: Node, key: str | None, target: Target) -> list[Row]:
    if _is_control(root, target):
        return []
    mark, op_node = root.get("__deleted"), root.get("__op")
    gone = False
    if mark is not None and mark.kind != "null":
        text = mark.value if mark.kind == "text" else mark.raw
        if mark.kind not in ("text", "boolean") or text not in ("true", "false"):
            raise Bad("bad-envelope")
        gone = text == "true"
    op = "" if op_node is None or op_node.kind == "null" else _operation(root, "__op")
    if op == "m":
        return []
    if op == "t":
        return _truncate(target)
    if op not in ("", "c", "r", "u", "d"):
        raise Bad("unknown-op")
    image = _image(root, target)
    if gone or op == "d":
        return _delete(image, key, target)
    return _insert(image, key, target, "+U" if op == "u" else "+I", may_replace=op in ("", "u"))


def _maxwell(root: Node, key: str | None, target: Target) -> list[Row]:
    op_node = root.get("type")
    control = (
        "bootstrap-start", "bootstrap-complete", "table-create", "table-alter", "table-drop", "database-create",
        "database-alter", "database-drop",
    )  # fmt: skip
    if op_node is not None and op_node.kind == "text" and op_node.value in control:
        return []
    op = _operation(root, "type")
    if op not in ("insert", "bootstrap-insert", "update", "delete"):
        raise Bad("unknown-op")
    data, old = _member(root, "data", target), _member(root, "old", target)
    if op == "delete":
        return _delete(data, key, target)
    if op != "update":
        return _insert(data, key, target, "+I")
    return _update(None if old is None else {**(data or {}), **old}, data, key, target)


def _ogg(root: Node, key: str | None, target: Target) -> list[Row]:
    op = _operation(root, "op_type")
    if op == "T":
        return _truncate(target)
    if op not in ("I", "U", "D"):
        raise Bad("unknown-op")
    before, after = _member(root, "before", target), _member(root, "after", target)
    if op == "D":
        return _delete(before, key, target)
    if op == "I":
        return _insert(after, key, target, "+I")
    if target.options.get("missing", "unavailable") == "unavailable":
        for image in (before, after):
            for f in target.fields if image is not None else ():
                image.setdefault(f.name, MISSING)  # type: ignore[union-attr]
    return _update(before, after, key, target)


def _canal(root: Node, target: Target) -> list[Row]:
    op_node, ddl = root.get("type"), root.get("isDdl")
    op = str(op_node.value) if op_node is not None and op_node.kind == "text" else None
    control = (
        "CREATE", "ALTER", "ERASE", "QUERY", "RENAME", "CINDEX", "DINDEX", "GTID", "XACOMMIT", "XAROLLBACK",
        "MHEARTBEAT",
    )  # fmt: skip
    if op != "TRUNCATE" and ((ddl is not None and ddl.raw == "true") or op in control):
        return []
    op = _operation(root, "type")
    if op == "TRUNCATE":
        return _truncate(target)
    if op not in ("INSERT", "ROW", "UPDATE", "DELETE"):
        raise Bad("unknown-op")
    data, old = _array(root, "data"), _array(root, "old")
    if op == "DELETE" and data is None:
        data, old = old, None
        if data is None:
            raise Bad("missing-before")
    if data is None:
        raise Bad("missing-after")
    olds: Sequence[Node | None] = [None] * len(data)
    if op == "UPDATE" and old is not None:
        if len(old) != len(data):
            raise Bad("bad-envelope")
        olds = old
    rows: list[Row] = []
    for node, before in zip(data, olds, strict=True):
        if node.kind != "object" or (before is not None and before.kind not in ("object", "null")):
            raise Bad("bad-envelope")
        image = _image(node, target)
        if op == "DELETE":
            rows += _delete(image, None, target)
        elif op == "UPDATE":
            under = None if before is None or before.kind == "null" else {**image, **_image(before, target)}
            rows += _update(under, image, None, target)
        else:
            rows += _insert(image, None, target, "+I")
    return rows


def _array(root: Node, name: str) -> list[Node] | None:
    found = root.get(name)
    if found is None or found.kind == "null":
        return None
    if found.kind != "array":
        raise Bad("bad-envelope")
    return list(found.value)


# changes


def _tombstone(key: str | None, target: Target) -> list[Row]:
    image = _with_key({}, key, target)
    if not target.key:
        raise Bad("missing-key")
    _need_key(image, target)
    return [_row("-D", image, target)]


def _insert(new: _Image | None, key: str | None, target: Target, kind: str, *, may_replace: bool = False) -> list[Row]:
    if new is None:
        raise Bad("missing-after")
    if not may_replace and MISSING in new.values():  # no row before an insert has the value
        raise Bad("unavailable")
    named = _named(key, target)
    if kind == "+U" and (not target.key or (named is not None and set(target.key) - named)):
        raise Bad("missing-before")
    new = _with_key(_available(new, {}, target), key, target)
    _need_key(new, target)
    return [_row(kind, new, target)]


_BARE: Final = ("text", "number", "boolean")


def _named(key: str | None, target: Target) -> set[str] | None:
    """Return the columns of the primary key that the message key holds; None if it says nothing."""
    root = _key_root(key, target)
    if root is None or root.kind not in ("object", *_BARE) or (not root.value and root.kind == "object"):
        return None
    return {name for name, node in _key_parts(root, target).items() if node is not None and node.kind != "null"}


def _key_root(key: str | None, target: Target) -> Node | None:
    """Return what a message key says, without the schema around it."""
    if target.format in ("canal-json", "ogg-json") or key is None:
        return None
    try:
        root = parse(key)
    except (ValueError, JSONDecodeError):
        texts = [f for f in target.fields if f.name in target.key and isinstance(f.type, t.Char | t.VarChar)]
        if len(target.key) != 1 or not texts or key.strip(" \t\r\n")[:1] in ("", "{", "[", '"'):
            return None
        return Node("text", key, key)
    if root.get("payload") is not None and root.get("schema") is not None:
        return root.get("payload")
    return root


def _key_parts(root: Node, target: Target) -> dict[str, Node | None]:
    prefix = "pk." if target.format == "maxwell-json" else ""
    is_bare = root.kind in _BARE and len(target.key) == 1
    return {name: root if is_bare else root.get(prefix + name) for name in target.key}


def _filled_in(node: Node) -> bool:
    """Return whether a connector may have put in a value, in place of one that the source did not send."""
    match node.kind:
        case "null":
            return True
        case "boolean":
            return node.raw == "false"
        case "number":
            return not re.search("[1-9]", re.split("[eE]", node.raw)[0])
        case "text":
            forms = ("-?0*", r"-?0*\.0*", "A+==?", r"\{\}", r"\[\]", "P[0YMDTHS.]*", "0{8}(-0{4}){3}-0{12}")
            day, clock, zone = "(1970-01-01)?", r"(00:00(:00(\.0+)?)?)?", "(Z|[+-]00:?00)?"
            return any(re.fullmatch(form, node.value) for form in (*forms, f"{day}[T ]?{clock}{zone}"))
    return node.raw in ("{}", "[]")


def _check_delete(old: _Image, key: str | None, target: Target) -> None:
    """Raise Bad if an old row may hold invented values in columns that tell which row it is."""
    named = _named(key, target)
    if not target.format.startswith("debezium") or named is None:
        return
    rest = [old.get(f.name) for f in target.fields if f.name not in named]
    if any(node is not None and node is not MISSING and not _filled_in(node) for node in rest):
        return
    if set(target.key) - named or (not target.key and rest):
        raise Bad("missing-before")


def _delete(old: _Image | None, key: str | None, target: Target) -> list[Row]:
    if old is not None:
        _check_delete(old, key, target)
    if not target.key:
        if old is None or any(old.get(f.name, MISSING) is MISSING for f in target.fields):
            raise Bad("missing-before")
        return [_row("-D", old, target)]
    image = _with_key({name: node for name, node in (old or {}).items() if node is not MISSING}, key, target)
    if old is None and not image:
        raise Bad("missing-before")
    _need_key(image, target)
    return [_row("-D", image, target)]


def _update(old: _Image | None, new: _Image | None, key: str | None, target: Target) -> list[Row]:
    if new is None:
        raise Bad("missing-after")
    whole = old is not None and all(old.get(name, MISSING) is not MISSING for name in new)
    known = {name: node for name, node in (old or {}).items() if node is not MISSING}
    row = _with_key(_available(new, known, target), key, target)
    _need_key(row, target)
    if not target.key:
        if not whole:
            raise Bad("missing-before")
        return [_row("-U", known, target), _row("+U", row, target)]
    named = _named(key, target)
    for name in target.key:
        if named is not None and name not in named and (known.get(name) is None or known[name].kind == "null"):
            raise Bad("missing-before")
    for name in target.key if old is not None else ():
        if known.get(name) is None or known[name].kind == "null":
            known[name] = row[name]
    moved = old is not None and [_read(f, known, target) for f in target.fields if f.name in target.key] != [
        _read(f, row, target) for f in target.fields if f.name in target.key
    ]
    if moved:
        return [_row("-D", known, target), _row("+I", row, target)]
    before = []
    if whole:
        with contextlib.suppress(Bad):  # a value of the old row that no column takes
            before = [_row("-U", known, target)]
    return [*before, _row("+U", row, target)]


def _available(new: _Image, known: _Image, target: Target) -> _Image:
    found = {}
    for name, node in new.items():
        if node is not MISSING:
            found[name] = node
        elif name in known:
            found[name] = known[name]
        elif target.options.get("unavailable") != "null":
            raise Bad("unavailable")
    return found


def _with_key(image: _Image, key: str | None, target: Target) -> _Image:
    root = _key_root(key, target)
    found = dict(image)
    for name, part in {} if root is None else _key_parts(root, target).items():
        if part is not None and part.kind != "null" and (name not in found or found[name].kind == "null"):
            found[name] = part
    return found


def _need_key(image: _Image, target: Target) -> None:
    for name in target.key:
        if name not in image or image[name].kind == "null":
            raise Bad("missing-key")


def _read(field: t.Field, image: _Image, target: Target) -> Any:
    units = target.options.get("time_unit")
    unit = units.get(field.name) if isinstance(units, dict) else units
    options = dict(target.options)
    for name in ("binary", "decimal"):
        if isinstance(options.get(name), dict):
            options[name] = options[name].get(field.name, "latin1" if target.format == "canal-json" else None)
            options = {key: value for key, value in options.items() if value is not None}
    try:
        return value_of(image.get(field.name), field.type, options, unit)
    except Beyond:
        if options.get("out_of_range") == "null":
            return None
        raise Bad("bad-value") from None
    except (ValueError, JSONDecodeError):
        raise Bad("bad-value") from None


def _row(kind: str, image: _Image, target: Target) -> Row:
    values = []
    for field in target.fields:
        try:
            values.append(_read(field, image, target))
        except Bad:
            if kind != "-D" or not target.key or field.name in target.key:
                raise
            values.append(None)
    for field, value in zip(target.fields, values, strict=True):
        if value is None and field.name in target.key:
            raise Bad("missing-key")
        if value is None and not field.type.nullable and kind != "-D":
            raise Bad("bad-value")
    return kind, values
