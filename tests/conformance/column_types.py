"""The text of a column type -> Arrow and Spark. Apart from merganser's own parser, so that neither hides the other.

Both spellings are read: that of the cases (`TIMESTAMP_LTZ(3)`) and that of schemas (`TIMESTAMP(3) WITH LOCAL TIME
ZONE`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

import pyarrow as pa

from tests.conformance.outcome import Skip


@dataclass(frozen=True)
class Type:
    """One type.

    Attributes:
        name: upper case, without parameters; LTZ is `TIMESTAMP_LTZ`, and all text types are themselves.
        numbers: parameters in parentheses.
        fields: (name, type) of what lies inside: `element`, `key` and `value`, or the fields of a row.
    """

    name: str
    numbers: tuple[int, ...] = ()
    fields: tuple[tuple[str, Type], ...] = ()

    def inner(self, name: str) -> Type:
        """Return the type of a part."""
        return dict(self.fields)[name]


UNKNOWN: Final = Type("UNKNOWN")
"""Of a column that the table does not have."""
_TOKEN: Final = re.compile(r"\s*(`[^`]*`|'(?:[^']|'')*'|[A-Za-z_][A-Za-z_0-9]*|\d+|[<>(),:])")
_FIXED: Final[dict[str, tuple[pa.DataType, str]]] = {
    "BOOLEAN": (pa.bool_(), "boolean"),
    "TINYINT": (pa.int8(), "tinyint"),
    "SMALLINT": (pa.int16(), "smallint"),
    "INT": (pa.int32(), "int"),
    "BIGINT": (pa.int64(), "bigint"),
    "FLOAT": (pa.float32(), "float"),
    "DOUBLE": (pa.float64(), "double"),
    "CHAR": (pa.string(), "string"),
    "VARCHAR": (pa.string(), "string"),
    "STRING": (pa.string(), "string"),
    "BINARY": (pa.binary(), "binary"),
    "VARBINARY": (pa.binary(), "binary"),
    "BYTES": (pa.binary(), "binary"),
    "DATE": (pa.date32(), "date"),
    "TIME": (pa.time32("ms"), "int"),
}
_SYNONYMS: Final = {"INTEGER": "INT", "BOOL": "BOOLEAN", "DEC": "DECIMAL", "NUMERIC": "DECIMAL"}
_INNER: Final = {"ARRAY": ("element",), "MULTISET": ("element",), "MAP": ("key", "value")}
_DEFAULTS: Final = {"DECIMAL": (10, 0), "TIME": (0,), "TIMESTAMP": (6,), "TIMESTAMP_LTZ": (6,)}


@cache
def parse(text: str) -> Type:
    """Return the type that a text names; nullability is read over.

    Raises:
        Skip: the runner does not know the type.
    """
    parser = _Parser(text)
    found = parser.type()
    if parser.peek() and not parser.peek().startswith("'"):
        raise Skip(f"unknown type '{text}'")
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _TOKEN.findall(text)
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        found = self.peek()
        self.at += 1
        return found

    def taken(self, *words: str) -> bool:
        """Take these tokens if they come next."""
        if [token.upper() for token in self.tokens[self.at : self.at + len(words)]] != list(words):
            return False
        self.at += len(words)
        return True

    def expect(self, word: str) -> None:
        if self.take().upper() != word:
            raise Skip(f"unknown type '{self.text}'")

    def type(self) -> Type:
        name = self.take().upper()
        name = _SYNONYMS.get(name, name)
        if name in _INNER:
            found = Type(name, (), self.inside(_INNER[name]))
        elif name == "ROW":
            found = Type(name, (), self.row_fields())
        elif name in _FIXED or name in _DEFAULTS:
            found = self.scalar(name)
        else:
            raise Skip(f"unknown type '{self.text}'")
        if not self.taken("NOT", "NULL"):
            self.taken("NULL")
        return found

    def scalar(self, name: str) -> Type:
        numbers = tuple(self.numbers()) or _DEFAULTS.get(name, ())
        if name == "TIMESTAMP" and self.taken("WITH", "LOCAL", "TIME", "ZONE"):
            name = "TIMESTAMP_LTZ"
        else:
            self.taken("WITHOUT", "TIME", "ZONE")
        return Type(name, (*numbers, *_DEFAULTS.get(name, ())[len(numbers) :]))

    def numbers(self) -> list[int]:
        found = []
        if self.taken("("):
            while not self.taken(")"):
                token = self.take()
                if token.isdigit():
                    found.append(int(token))
                elif token != ",":
                    raise Skip(f"unknown type '{self.text}'")
        return found

    def inside(self, names: tuple[str, ...]) -> tuple[tuple[str, Type], ...]:
        self.expect("<")
        parts = []
        for i, name in enumerate(names):
            if i:
                self.expect(",")
            parts.append((name, self.type()))
        self.expect(">")
        return tuple(parts)

    def row_fields(self) -> tuple[tuple[str, Type], ...]:
        close = ">" if self.taken("<") else ")"
        if close == ")":
            self.expect("(")
        parts = []
        while not self.taken(close):
            name = self.take().strip("`")
            self.taken(":")
            parts.append((name, self.type()))
            if self.peek().startswith("'"):
                self.take()  # a comment
            self.taken(",")
            if not self.peek():
                raise Skip(f"unknown type '{self.text}'")
        return tuple(parts)


def arrow_of(kind: Type) -> pa.DataType:
    """Return the Arrow type that values of a type are handed over in."""
    match kind.name:
        case "DECIMAL":
            return pa.decimal128(kind.numbers[0], kind.numbers[1])
        case "TIMESTAMP":
            return pa.timestamp(_unit(kind))
        case "TIMESTAMP_LTZ":
            return pa.timestamp(_unit(kind), "UTC")
        case "ARRAY":
            return pa.list_(arrow_of(kind.inner("element")))
        case "MULTISET":
            return pa.map_(arrow_of(kind.inner("element")), pa.int32())
        case "MAP":
            return pa.map_(arrow_of(kind.inner("key")), arrow_of(kind.inner("value")))
        case "ROW":
            return pa.struct([pa.field(name, arrow_of(part)) for name, part in kind.fields])
    return _FIXED[kind.name][0]


def spark_of(kind: Type, *, time: bool) -> str:
    """Return the type in Spark's DDL.

    Args:
        time: this Spark has TIME; below 4.1 it is INT milliseconds.
    """
    match kind.name:
        case "DECIMAL":
            return f"decimal({kind.numbers[0]}, {kind.numbers[1]})"
        case "TIME" if time:
            return f"time({min(6, kind.numbers[0])})"
        case "TIMESTAMP":
            return "timestamp_ntz"
        case "TIMESTAMP_LTZ":
            return "timestamp"
        case "ARRAY":
            return f"array<{spark_of(kind.inner('element'), time=time)}>"
        case "MULTISET":
            return f"map<{spark_of(kind.inner('element'), time=time)}, int>"
        case "MAP":
            return f"map<{spark_of(kind.inner('key'), time=time)}, {spark_of(kind.inner('value'), time=time)}>"
        case "ROW":
            parts = ", ".join(f"`{name}`: {spark_of(part, time=time)}" for name, part in kind.fields)
            return f"struct<{parts}>"
    return _FIXED[kind.name][1]


def _unit(kind: Type) -> str:
    precision = kind.numbers[0]
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"
