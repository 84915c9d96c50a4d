"""Arrow expressions -> filters.

Arrow offers no way to look inside a `pyarrow.compute.Expression`, but an expression pickles, and its pickle is an
Arrow IPC file of one row: the schema's metadata lists the nodes in order, the columns hold literals and options.
::

    field('a') > 1  and  field('s').isin(['x'])        metadata, in order              columns
                                                       call       and_kleene           0: int64 [1]
                                                       call       greater              1: struct<value_set, ...>
                                                       field_ref  a
                                                       literal    0
                                                       end        greater
                                                       call       is_in
                                                       field_ref  s
                                                       options    1
                                                       end        is_in
                                                       end        and_kleene

So literals arrive typed and whole, whatever quotes they hold. What is translated means exactly what Arrow means,
which differs from SQL for NaN (in no order) and `isin` (false for null). A condition that is not translated stays an
Arrow expression, as small a part as possible (`ArrowCall`): applied exactly, never used to skip files.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.expr import build
from merganser.expr.compare import MIRRORED, family
from merganser.expr.literal import moved, number
from merganser.expr.names import resolve
from merganser.expr.predicate import Predicate
from merganser.expr.tree import NANOS_PER_DAY, ArrowCall, Column, Expression, In, Literal, natural_decimal
from merganser.schema import types as t
from merganser.schema.arrow import arrow_field
from merganser.values import dataclass

_COMPARISONS: Final = {
    "equal": "=", "not_equal": "<>", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}  # fmt: skip
_SEARCHES: Final = {
    "starts_with": "starts", "ends_with": "ends", "match_substring": "contains", "match_substring_regex": "re2",
}  # fmt: skip

# Literals are kept within the years that SQL text can name: 0001-01-01 to 9999-12-31.
_DAYS_MIN: Final = -719_162
_DAYS_MAX: Final = 2_932_896


class _UntranslatableError(Exception):
    """A node that has no counterpart of the same meaning."""


@dataclass(frozen=True, slots=True)
class _Node:
    """One node of a pickled expression, metadata entries start (inclusive) to stop (exclusive)."""

    kind: str
    name: str
    start: int
    stop: int
    arguments: tuple[_Node, ...] = ()
    options: pa.Scalar | None = None
    value: pa.Scalar | None = None
    path: tuple[str, ...] = ()


def predicate_from_arrow(expression: pc.Expression, fields: Sequence[t.Field]) -> Predicate:
    """Return the condition that an Arrow expression names.

    Args:
        expression: a condition on columns, by name.
        fields: the columns of the table.

    Raises:
        InvalidInputError: an unknown column, a column by number, or an expression that is not a condition on these
            columns.
    """
    try:
        (pickled,) = expression.__reduce__()[1]
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise InvalidInputError(
            f"cannot filter by the Arrow expression {expression}: it does not pickle ({error}). Name columns, as in "
            "pyarrow.compute.field('a'), instead of numbering them."
        ) from None
    try:
        root, entries, batch = _read(pickled)
    except (pa.ArrowInvalid, struct.error, IndexError, KeyError, ValueError):
        # Another layout than the one above: the expression is still applied, only not understood.
        everything = [(f.name, f.name) for f in fields if _representable(f)]
        return Predicate(_opaque(ArrowCall(pickled.to_pybytes(), tuple(everything)), fields))
    return Predicate(_Translator(fields, entries, batch).condition(root))


def _representable(field: t.Field) -> bool:
    return not isinstance(field.type, t.Blob | t.Geo | t.Vector)


def _opaque(node: ArrowCall, fields: Sequence[t.Field]) -> ArrowCall:
    """Return an Arrow condition, tried on no rows so that its types are checked now."""
    by_name = {f.name: f for f in fields}
    schema = pa.schema([arrow_field(by_name[outer]).with_name(inner) for inner, outer in node.names])
    try:
        schema.empty_table().filter(node.expression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError, TypeError) as error:
        raise InvalidInputError(f"cannot filter by the Arrow expression {node.expression}: {error}") from None
    return node


class _Translator:
    """Nodes of one pickled expression into ours."""

    def __init__(self, fields: Sequence[t.Field], entries: list[tuple[str, str]], batch: pa.RecordBatch) -> None:
        self.fields = fields
        self.entries = entries
        self.batch = batch

    def condition(self, node: _Node) -> Expression:
        """Return a condition, or the part of it that only Arrow can evaluate as an ArrowCall."""
        try:
            if node.kind == "call" and node.name in ("and_kleene", "or_kleene"):
                items = [self.condition(argument) for argument in node.arguments]
                return build.conjunction(items) if node.name == "and_kleene" else build.disjunction(items)
            if node.kind == "call" and node.name == "invert":
                return build.negation(self.condition(node.arguments[0]))
            found = self._call(node) if node.kind == "call" else self._operand(node)
            return build.condition(found, "filter")
        except (_UntranslatableError, InvalidInputError):
            pairs = tuple(dict.fromkeys((path[0], resolve(path, self.fields).path[0]) for path in _paths(node)))
            return _opaque(ArrowCall(self._cut(node), pairs), self.fields)

    def _cut(self, node: _Node) -> bytes:
        """Return one node as the pickle of an Arrow expression of its own."""
        metadata = pa.KeyValueMetadata(self.entries[node.start : node.stop])
        # Without a literal Arrow writes no row, and then does not read its own pickle. One column more makes a row.
        columns = [*self.batch.columns, pa.nulls(1)]
        schema = pa.schema([(str(i), column.type) for i, column in enumerate(columns)], metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        return bytes(sink.getvalue())

    def _operand(self, node: _Node) -> Expression:
        if node.kind == "literal":
            assert node.value is not None, node
            return _literal(node.value)
        if node.kind == "field":
            return resolve(node.path, self.fields)
        if node.name == "struct_field" and node.options is not None:
            inner = self._operand(node.arguments[0])
            path = str((node.options.as_py() or {}).get("field_ref") or "")
            if isinstance(inner, Column) and re.fullmatch(r"(\.[A-Za-z_]\w*)+", path):
                return resolve((*inner.path, *path[1:].split(".")), self.fields)
        raise _UntranslatableError

    def _call(self, node: _Node) -> Expression:
        if node.name in _COMPARISONS:
            left, right = (self._operand(argument) for argument in node.arguments)
            return _compare(_COMPARISONS[node.name], left, right)
        options: dict[str, Any] = node.options.as_py() if node.options is not None and node.name != "is_in" else {}
        if node.name == "struct_field":
            return self._operand(node)
        item = self._operand(node.arguments[0])
        if node.name in _SEARCHES and not options.get("ignore_case"):
            return build.match(_SEARCHES[node.name], item, Literal(options["pattern"], t.string()))
        match node.name:
            case "match_like" if not options.get("ignore_case"):
                return build.like(item, Literal(options["pattern"], t.string()))
            case "is_valid":
                return build.negation(build.is_null(item))
            case "is_null":
                null = build.is_null(item)
                with_nan = options.get("nan_is_null") and family(item.type) == "float"
                return build.disjunction([null, build.is_nan(item)]) if with_nan else null
            case "is_nan" if family(item.type) == "float":
                return build.compare("=", item, _nan(item.type))
            case "is_in" if node.options is not None:
                return _member(item, node.options)
        raise _UntranslatableError


def _nan(kind: t.DataType) -> Literal:
    return Literal(math.nan, kind.with_nullable(True))


def _compare(op: str, left: Expression, right: Expression) -> Expression:
    if isinstance(left, Literal) and not isinstance(right, Literal):
        left, right, op = right, left, MIRRORED[op]
    floating = "float" in (family(left.type), family(right.type))
    if not floating or (isinstance(right, Literal) and right.value is None):
        return build.compare(op, left, right)
    if isinstance(left, Literal) or not isinstance(right, Literal):
        raise _UntranslatableError
    if isinstance(right.value, float) and math.isnan(right.value):
        # Nothing equals NaN or lies on a side of it: false, or for <> true, wherever the value is not null.
        return build.compare("=" if op == "<>" else "<", left, left)
    plain = build.compare(op, left, right)
    if op in (">", ">=") and family(left.type) == "float":
        return build.conjunction([plain, build.compare("<>", left, _nan(left.type))])
    return plain


def _member(item: Expression, options: pa.Scalar) -> Expression:
    """Return isin: false for null, or true if null is among the values and counts."""
    matching = options["null_matching_behavior"].as_py()
    if matching not in (0, 1):
        raise _UntranslatableError
    listed = [_literal(value) for value in options["value_set"].values]
    values = [v for v in listed if v.value is not None]
    if family(item.type) == "float":
        # Arrow looks values up by their bytes, in the type of the column.
        values = [moved(v, item.type) or v for v in values]
        if any(v.value == 0 for v in values):
            raise _UntranslatableError
    among = build.member(item, values) if values else build.FALSE
    null = build.is_null(item)
    if matching == 0 and len(values) < len(listed):
        return build.disjunction([null, among]) if values else null
    return build.conjunction([build.negation(null), among]) if isinstance(among, In) else among


def _literal(scalar: pa.Scalar) -> Literal:
    """Return an Arrow scalar as a literal.

    Raises:
        _UntranslatableError: no literal holds such a value.
    """
    kind = scalar.type
    if pa.types.is_dictionary(kind):
        return _literal(scalar.value)
    if pa.types.is_null(kind) or not scalar.is_valid:
        return build.NULL
    if pa.types.is_timestamp(kind):
        return _timestamp(scalar.value, kind.unit, zoned=kind.tz is not None)
    if pa.types.is_date32(kind):
        return _date(scalar.value)
    if pa.types.is_date64(kind):
        days, rest = divmod(scalar.value, 86_400_000)
        return _timestamp(scalar.value, "ms", zoned=False) if rest else _date(days)
    if pa.types.is_time(kind):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit]
        precision = {"s": 0, "ms": 3, "us": 6, "ns": 9}[kind.unit]
        return Literal(scalar.value * (10**9 // per_second), t.Time(precision))
    value = scalar.as_py()
    match value:
        case bool():
            return Literal(value, t.Boolean())
        case int():
            return number(str(value))
        case float():
            return Literal(value, t.Double() if pa.types.is_float64(kind) else t.Float())
        case Decimal():
            if 0 <= kind.scale <= kind.precision <= 38:
                return Literal(value, natural_decimal(value))
        case str():
            return Literal(value, t.string())
        case bytes():
            return Literal(value, t.VarBinary())
    raise _UntranslatableError


def _date(days: int) -> Literal:
    if not _DAYS_MIN <= days <= _DAYS_MAX:
        raise _UntranslatableError
    return Literal(days, t.Date())


def _timestamp(value: int, unit: str, *, zoned: bool) -> Literal:
    step, precision = {"s": (10**9, 0), "ms": (10**6, 3), "us": (10**3, 6), "ns": (1, 9)}[unit]
    if not _DAYS_MIN <= value * step // NANOS_PER_DAY <= _DAYS_MAX:
        raise _UntranslatableError
    count = value * 1_000 if unit == "s" else value
    return Literal(count, t.LocalZonedTimestamp(precision) if zoned else t.Timestamp(precision))


def _paths(node: _Node) -> Iterator[tuple[str, ...]]:
    if node.path:
        yield node.path
    for argument in node.arguments:
        yield from _paths(argument)


def _read(pickled: pa.Buffer) -> tuple[_Node, list[tuple[str, str]], pa.RecordBatch]:
    """Return the root node of a pickled expression, its metadata entries in order, and its literals."""
    batch = pa.ipc.open_file(pa.BufferReader(pickled)).get_batch(0)
    entries = _metadata(batch.schema.serialize().to_pybytes())
    root = _node(entries, 0, batch)
    if root.stop != len(entries):
        raise ValueError(f"{len(entries) - root.stop} entries follow the expression")
    return root, entries, batch


def _node(entries: list[tuple[str, str]], at: int, batch: pa.RecordBatch) -> _Node:
    key, value = entries[at]
    match key:
        case "literal":
            return _Node("literal", "", at, at + 1, value=batch.column(int(value))[0])
        case "field_ref":
            return _Node("field", "", at, at + 1, path=(value,))
        case "nested_field_ref":
            stop = at + 1 + int(value)
            return _Node("field", "", at, stop, path=tuple(name for _, name in entries[at + 1 : stop]))
        case "call":
            return _call_node(entries, at, batch)
    raise ValueError(f"there is no node '{key}'")


def _call_node(entries: list[tuple[str, str]], at: int, batch: pa.RecordBatch) -> _Node:
    arguments: list[_Node] = []
    options: pa.Scalar | None = None
    place = at + 1
    while entries[place][0] != "end":
        if entries[place][0] == "options":
            options = batch.column(int(entries[place][1]))[0]
            place += 1
        else:
            arguments.append(_node(entries, place, batch))
            place = arguments[-1].stop
    return _Node("call", entries[at][1], at, place + 1, tuple(arguments), options)


def _metadata(message: bytes) -> list[tuple[str, str]]:
    """Return the metadata entries of an Arrow schema message, in order and with equal keys kept apart.

    `Schema.metadata` is a dict and would merge them. Layout, all little-endian: an 8-byte prefix, then the
    flatbuffers tables Message (field 2: header) and Schema (field 2: metadata) of the Arrow format.
    """
    table = _Table(message, 8 + struct.unpack_from("<I", message, 8)[0])
    return [(entry.text(0), entry.text(1)) for entry in table.child(2).children(2)]


class _Table:
    """A flatbuffers table: just what `_metadata` needs."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def _slot(self, field: int) -> int:
        """Return the position a field points to, or 0 if the field is absent."""
        vtable = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        size = struct.unpack_from("<H", self.data, vtable)[0]
        place = 4 + 2 * field
        offset = struct.unpack_from("<H", self.data, vtable + place)[0] if place < size else 0
        return self._follow(self.at + offset) if offset else 0

    def _follow(self, at: int) -> int:
        return at + int(struct.unpack_from("<I", self.data, at)[0])

    def child(self, field: int) -> _Table:
        """Return the table in a field."""
        return _Table(self.data, self._slot(field))

    def children(self, field: int) -> list[_Table]:
        """Return the tables of a vector; none if it is absent."""
        at = self._slot(field)
        count = struct.unpack_from("<I", self.data, at)[0] if at else 0
        return [_Table(self.data, self._follow(at + 4 + 4 * i)) for i in range(count)]

    def text(self, field: int) -> str:
        """Return the text in a field; empty if it is absent."""
        at = self._slot(field)
        if not at:
            return ""
        length = struct.unpack_from("<I", self.data, at)[0]
        return self.data[at + 4 : at + 4 + length].decode()
