"""Type text and type JSON -> types: `DECIMAL(10, 2) NOT NULL`, `{"type": "ARRAY", "element": "INT"}`.

The text grammar takes every spelling of the format, case-insensitively and with any spacing: `INTEGER`,
`NUMERIC(5)`, `DOUBLE PRECISION`, `TIMESTAMP_LTZ(3)`, `INT ARRAY`, `ARRAY<INT NOT NULL>`,
`ROW<a INT, b ROW<c STRING>>`. Nested fields get the ids that `number_fields` hands out.

Format: schema files, section "field object".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from merganser.errors import FormatError, InvalidInputError
from merganser.options.registry import closest
from merganser.schema import types as t

UNNUMBERED: Final = -1
"""Id of a field whose table has not numbered it yet."""

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)*`)|([A-Za-z_][A-Za-z_0-9]*)|(\d+)|('(?:[^']|'')*')|([<>(),:]))")
_SIMPLE: Final[dict[str, Callable[[], t.DataType]]] = {
    "BOOLEAN": t.Boolean, "BOOL": t.Boolean,
    "TINYINT": t.TinyInt, "SMALLINT": t.SmallInt,
    "INT": t.Int, "INTEGER": t.Int,
    "BIGINT": t.BigInt, "LONG": t.BigInt,
    "FLOAT": t.Float, "REAL": t.Float,
    "DATE": t.Date,
    "STRING": t.VarChar, "TEXT": t.VarChar,
    "BYTES": t.VarBinary,
    "VARIANT": t.Variant,
    "BLOB": t.Blob,
}  # fmt: skip
_OTHERS: Final = (
    "DOUBLE", "CHAR", "VARCHAR", "BINARY", "VARBINARY", "DECIMAL", "NUMERIC", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ",
    "TIMESTAMP_NTZ", "GEOMETRY", "GEOGRAPHY", "ARRAY", "MULTISET", "MAP", "ROW", "STRUCT", "VECTOR",
)  # fmt: skip


def parse_type(text: str, *, definition: bool = False) -> t.DataType:
    """Return the type that `text` names.

    Args:
        definition: the text defines a column of a new table. VARBINARY without a length then has no limit: the
            format's own length of 1 holds no bitmap and no sketch. A user who leaves the length out does not want 1.

    Raises:
        InvalidInputError: the text is not a type, or a parameter is out of range; names the place.
    """
    return _Parser(text, t.LENGTH_MAX if definition else 1).whole()


def type_from_json(value: Any) -> t.DataType:
    """Return the type of a schema file's JSON form: a string, or an object for nested types.

    Raises:
        FormatError: the value is not a type of the format.
    """
    try:
        if isinstance(value, str):
            return parse_type(value)
        name = str(value["type"]).upper().strip()
        nullable = not name.endswith("NOT NULL")
        match name.removesuffix("NOT NULL").strip():
            case "ARRAY":
                return t.Array(element=type_from_json(value["element"]), nullable=nullable)
            case "MULTISET":
                return t.Multiset(element=type_from_json(value["element"]), nullable=nullable)
            case "MAP":
                return t.Map(key=type_from_json(value["key"]), value=type_from_json(value["value"]), nullable=nullable)
            case "ROW":
                return t.Row(fields=tuple(field_from_json(f) for f in value["fields"]), nullable=nullable)
            case "VECTOR":
                return t.Vector(
                    element=type_from_json(value["element"]), length=int(value["length"]), nullable=nullable
                )
        return parse_type(value["type"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FormatError(f"cannot read the data type {value!r:.200} of a schema file: {error}") from error


def type_to_json(kind: t.DataType) -> Any:
    """Return the schema file's JSON form of a type."""
    suffix = "" if kind.nullable else " NOT NULL"
    match kind:
        case t.Array(element=element):
            return {"type": "ARRAY" + suffix, "element": type_to_json(element)}
        case t.Multiset(element=element):
            return {"type": "MULTISET" + suffix, "element": type_to_json(element)}
        case t.Vector(element=element, length=length):
            return {"type": "VECTOR" + suffix, "element": type_to_json(element), "length": length}
        case t.Map(key=key, value=value):
            return {"type": "MAP" + suffix, "key": type_to_json(key), "value": type_to_json(value)}
        case t.Row(fields=fields):
            return {"type": "ROW" + suffix, "fields": [field_to_json(f) for f in fields]}
    return str(kind)


def field_from_json(value: Mapping[str, Any]) -> t.Field:
    """Return the field of a schema file's field object."""
    try:
        field_id, name = int(value["id"]), value["name"]
        description, default = value.get("description"), value.get("defaultValue")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"cannot read the field {value!r:.200} of a schema file: {error}") from error
    if not isinstance(name, str):
        raise FormatError(f"cannot read the field {value!r:.200} of a schema file: its name is not text")
    return t.Field(field_id, name, type_from_json(value.get("type")), description, default)


def field_to_json(field: t.Field) -> dict[str, Any]:
    """Return the field object of a schema file."""
    out: dict[str, Any] = {"id": field.id, "name": field.name, "type": type_to_json(field.type)}
    if field.description is not None:
        out["description"] = field.description
    if field.default is not None:
        out["defaultValue"] = field.default
    return out


def number_fields(fields: Sequence[t.Field], first: int = 0) -> tuple[tuple[t.Field, ...], int]:
    """Return the columns with fresh ids from `first` on, nested fields included, and the next free id.

    A column takes its id before the fields inside it; inside a ROW the children of a nested ROW are numbered
    before that field itself. So it is what the reference implementation does.
    """
    following = first
    columns = []
    for field in fields:
        own = following
        kind, following = _number_type(field.type, following + 1)
        columns.append(t.Field(own, field.name, kind, field.description, field.default))
    return tuple(columns), following


def _number_type(kind: t.DataType, following: int) -> tuple[t.DataType, int]:
    match kind:
        case t.Row():
            inner = []
            for field in kind.fields:
                numbered, following = _number_type(field.type, following)
                inner.append(t.Field(following, field.name, numbered, field.description, field.default))
                following += 1
            return t.Row(fields=tuple(inner), nullable=kind.nullable), following
        case t.Array():
            element, following = _number_type(kind.element, following)
            return t.Array(element=element, nullable=kind.nullable), following
        case t.Multiset():
            element, following = _number_type(kind.element, following)
            return t.Multiset(element=element, nullable=kind.nullable), following
        case t.Map():
            key, following = _number_type(kind.key, following)
            value, following = _number_type(kind.value, following)
            return t.Map(key=key, value=value, nullable=kind.nullable), following
    return kind, following


class _Parser:
    """Recursive descent over the tokens of one type."""

    def __init__(self, text: str, varbinary_length: int = 1) -> None:
        self.text = text
        self.varbinary_length = varbinary_length
        self.tokens: list[tuple[str, int]] = []
        at = 0
        stripped = text.rstrip()
        while at < len(stripped):
            found = _TOKEN.match(stripped, at)
            if not found:
                self.at = len(self.tokens)
                self._fail(f"unexpected {stripped[at : at + 10]!r}", at)
            self.tokens.append((found.group().strip(), found.start()))
            at = found.end()
        self.at = 0

    def whole(self) -> t.DataType:
        try:
            kind = self.type()
        except RecursionError:
            self._fail("it is nested too deeply", 0)
        if self.at < len(self.tokens):
            self._fail(f"unexpected {self.tokens[self.at][0]!r}")
        return kind

    def type(self) -> t.DataType:
        kind = self._plain()
        while True:
            if self._take("NOT"):
                self._want("NULL")
                kind = kind.with_nullable(False)
            elif self._take("NULL"):
                kind = kind.with_nullable(True)
            elif self._take("ARRAY"):
                kind = t.Array(element=kind)
            elif self._take("MULTISET"):
                kind = t.Multiset(element=kind)
            else:
                return kind

    def _plain(self) -> t.DataType:
        name = self._word("a type name")
        if name in _SIMPLE:
            return _SIMPLE[name]()
        match name:
            case "DOUBLE":
                self._take("PRECISION")
                return t.Double()
            case "CHAR" | "CHARACTER":
                return t.Char(self._length(1))
            case "VARCHAR":
                return t.VarChar(self._length(1))
            case "BINARY":
                return t.Binary(self._length(1))
            case "VARBINARY":
                return t.VarBinary(self._length(self.varbinary_length))
            case "DECIMAL" | "DEC" | "NUMERIC":
                return self._decimal()
            case "TIME":
                precision = self._precision(0)
                self._zone(default=False)
                return t.Time(precision)
            case "TIMESTAMP":
                precision = self._precision(6)
                return t.LocalZonedTimestamp(precision) if self._zone(default=False) else t.Timestamp(precision)
            case "TIMESTAMP_LTZ":
                return t.LocalZonedTimestamp(self._precision(6))
            case "TIMESTAMP_NTZ":
                return t.Timestamp(self._precision(6))
            case "GEOMETRY" | "GEOGRAPHY":
                return self._geo(name)
            case "ARRAY" | "MULTISET" | "MAP" | "ROW" | "STRUCT" | "VECTOR":
                return self._nested(name)
        self.at -= 1
        meant = closest(name, (*_SIMPLE, *_OTHERS))
        self._fail(f"there is no type '{name}'" + ("" if meant is None else f" (did you mean {meant}?)"))

    def _nested(self, name: str) -> t.DataType:
        if name in ("ROW", "STRUCT"):
            return self._row()
        self._want("<")
        first = self.type()
        kind: t.DataType
        if name == "MAP":
            self._want(",")
            kind = t.Map(key=first, value=self.type())
        elif name == "VECTOR":
            self._want(",")
            kind = t.Vector(element=first, length=self._number())
        elif name == "ARRAY":
            kind = t.Array(element=first)
        else:
            kind = t.Multiset(element=first)
        self._want(">")
        return kind

    def _row(self) -> t.DataType:
        close = ">" if self._take("<") else ")"
        if close == ")":
            self._want("(")
        fields: list[t.Field] = []
        while not self._take(close):
            if fields:
                self._want(",")
            name = self._name()
            self._take(":")
            kind = self.type()
            text = self._string() if self._take("COMMENT") else self._string(optional=True)
            fields.append(t.Field(UNNUMBERED, name, kind, text))
        if not fields:
            self._fail("a ROW needs at least one field")
        return t.Row(fields=tuple(fields))

    def _decimal(self) -> t.DataType:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._number()
            scale = self._number() if self._take(",") else 0
            self._want(")")
        if not 1 <= precision <= 38 or scale > precision:
            self._fail(f"DECIMAL({precision}, {scale}) is out of range: precision 1 to 38, scale 0 to precision")
        return t.Decimal(precision, scale)

    def _length(self, default: int) -> int:
        if not self._take("("):
            return default
        length = self._number()
        self._want(")")
        if not 1 <= length <= t.LENGTH_MAX:
            self._fail(f"a length must be 1 to {t.LENGTH_MAX}, not {length}")
        return length

    def _precision(self, default: int) -> int:
        if not self._take("("):
            return default
        precision = self._number()
        self._want(")")
        if precision > 9:
            self._fail(f"a precision must be 0 to 9, not {precision}")
        return precision

    def _zone(self, *, default: bool) -> bool:
        if self._take("WITHOUT"):
            self._want("TIME")
            self._want("ZONE")
            return False
        if self._take("WITH"):
            self._want("LOCAL")
            self._want("TIME")
            self._want("ZONE")
            return True
        return default

    def _geo(self, name: str) -> t.DataType:
        if not self._take("("):
            return t.Geo(name)
        depth, parts = 1, []
        while depth:
            if self.at >= len(self.tokens):
                self._fail("')' is missing")
            token = self.tokens[self.at][0]
            depth += {"(": 1, ")": -1}.get(token, 0)
            parts.append(token)
            self.at += 1
        return t.Geo(f"{name}({''.join(parts[:-1]).replace(',', ', ')})")

    # tokens

    def _take(self, word: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at][0].upper() == word:
            self.at += 1
            return True
        return False

    def _want(self, word: str) -> None:
        if not self._take(word):
            self._fail(f"'{word}' is missing")

    def _word(self, what: str) -> str:
        if self.at >= len(self.tokens) or not self.tokens[self.at][0][0].isalpha():
            self._fail(f"{what} is missing")
        self.at += 1
        return self.tokens[self.at - 1][0].upper()

    def _name(self) -> str:
        if self.at >= len(self.tokens) or self.tokens[self.at][0][0] in "<>(),:'":
            self._fail("a field name is missing")
        self.at += 1
        name = self.tokens[self.at - 1][0]
        return name[1:-1].replace("``", "`") if name.startswith("`") else name

    def _number(self) -> int:
        if self.at >= len(self.tokens) or not self.tokens[self.at][0].isdigit():
            self._fail("a number is missing")
        self.at += 1
        return int(self.tokens[self.at - 1][0])

    def _string(self, *, optional: bool = False) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at][0].startswith("'"):
            self.at += 1
            return self.tokens[self.at - 1][0][1:-1].replace("''", "'")
        if not optional:
            self._fail("a comment in quotes is missing")
        return None

    def _fail(self, why: str, place: int | None = None) -> NoReturn:
        if place is None:
            place = self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text)
        raise InvalidInputError(
            f"cannot read the type '{self.text}': {why}, at character {place + 1}. "
            "A type looks like INT, DECIMAL(10, 2) NOT NULL, ARRAY<STRING> or ROW<a INT, b STRING>.",
            type=self.text,
        )
