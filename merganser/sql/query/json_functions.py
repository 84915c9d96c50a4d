"""Functions of JSON: what a text holds by paths and by types, and values as JSON.

DuckDB reads the texts. Where its reader and Jackson, the reader of Spark, may find something else in a text, the query
fails and says so: `_json_read` returns only texts that both of them read alike, and null for those that Spark cannot
read. Numbers with a point or an exponent are written as Java writes a DOUBLE.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.sql.query.casts import cast, stable
from merganser.sql.query.functions import Function
from merganser.sql.query.kinds import BYTES, FLOATS, ON_SPARK, TEXTS, WHOLE, Value, duck, is_null, quoted, string

_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_UNCLEAR: Final = "' in this process: text stands behind its end, or it has single quotes, control characters or "
_MACROS: Final = (
    r"""CREATE MACRO _json_start(s) AS regexp_replace(left(s, 60), '[\x00-\x1f]', ' ', 'g')""",
    r"""CREATE MACRO _json_refused(s, why) AS error('cannot read the JSON text ''' || _json_start(s) || why)""",
    rf"""CREATE MACRO _json_bare(s) AS regexp_replace(s, '{_STRING}', 's', 'gs')""",
    # DuckDB takes NaN, Infinity and a comma behind the last element
    r"""CREATE MACRO _json_lax(s) AS regexp_matches(s, '(?i)nan|inf|,[ \t\r\n]*[\]}]')""",
    # how many brackets are open at the end; 0 if the first one was closed anywhere
    r"""CREATE MACRO _json_open(k) AS list_reduce(list_transform(
        string_split(regexp_replace(k, '[^\[\]{}]', '', 'g'), ''),
        lambda _b: CASE WHEN _b IN ('{', '[') THEN 1 ELSE -1 END),
        lambda _d, _b: CASE WHEN _d <= 0 THEN 0 ELSE _d + _b END)""",
    # of an invalid text and the same without strings: whether Spark may read it
    r"""CREATE MACRO _json_other(s, k) AS regexp_matches(s, '^[ \t\r\n]*[\[{]') AND (contains(k, '''')
        OR (contains(k, '"') AND regexp_matches(k, '[\x00-\x1f]')) OR regexp_matches(s, '\\u[dD][89a-bA-B]')
        OR (_json_open(k) <= 0 AND NOT (regexp_matches(s, '[\]}][ \t\r\n]*$')
            AND _json_open(regexp_replace(k, '[\]}][^\[\]{}]*$', '')) > 0)))""",
    r"""CREATE MACRO _json_unclear(s) AS
        _json_other(s, regexp_replace(s, '"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*"', 's', 'g'))""",
    f"""CREATE MACRO _json_read(s) AS CASE WHEN s IS NULL THEN NULL
        WHEN json_valid(s) THEN CASE WHEN NOT _json_lax(s) OR NOT _json_lax(_json_bare(s)) THEN s END
        WHEN _json_unclear(s) THEN _json_refused(s, {string(_UNCLEAR + "surrogates. " + ON_SPARK)}) END""",
    # a number, a string or a word alone in a text: Spark reads no further
    rf"""CREATE MACRO _json_root(s) AS CASE
        WHEN NOT json_valid(s) AND regexp_matches(s, '^[ \t\r\n]*(["''0-9-]|true|false|null)')
        THEN _json_refused(s, {string(_UNCLEAR + "surrogates. " + ON_SPARK)}) ELSE _json_read(s) END""",
    # from_json takes NaN and Infinity
    rf"""CREATE MACRO _json_rows(s) AS CASE
        WHEN json_valid(s) AND regexp_matches(s, '(?i)nan|inf') AND regexp_matches(_json_bare(s), '(?i)nan|inf')
        THEN _json_refused(s, {string("' in this process: it has NaN or Infinity without quotes. " + ON_SPARK)})
        ELSE _json_read(s) END""",
    """CREATE MACRO _json_number(x) AS CASE WHEN x IS NULL OR NOT regexp_matches(x, '^-?[0-9]+[.eE]') THEN x
       WHEN isfinite(TRY_CAST(x AS DOUBLE)) THEN _double(TRY_CAST(x AS DOUBLE))
       WHEN starts_with(x, '-') THEN '"-Infinity"' ELSE '"Infinity"' END""",
    rf"""CREATE MACRO _json_shown(j) AS CASE
        WHEN regexp_matches(j, '[\x{{10000}}-\x{{10FFFF}}]')
        THEN _json_refused(j, {string("' in this process: it has characters above U+FFFF. " + ON_SPARK)})
        WHEN regexp_matches(j, '[0-9][.eE]') THEN array_to_string(list_transform(
        regexp_extract_all(j, '{_STRING}|-?[0-9][0-9.eE+-]*|[^"0-9-]+', 0, 's'),
        lambda _n: CASE WHEN regexp_matches(_n, '^-?[0-9]') THEN _json_number(_n) ELSE _n END), '') ELSE j END""",
    """CREATE MACRO _json_value(j) AS list_transform([CAST(j AS VARCHAR)], lambda _v: CASE
       WHEN starts_with(_v, '"') THEN json_extract_string(_v, '$') WHEN _v = 'null' THEN NULL
       WHEN starts_with(_v, '{') OR starts_with(_v, '[') THEN _json_shown(_v) ELSE _json_number(_v) END)[1]""",
)
JSON_MACROS: Final = (*_MACROS, *(stable(macro) for macro in _MACROS))


def _text_of(value: Value, what: str) -> str:
    if not isinstance(value.type, TEXTS) and not is_null(value.type):
        raise InvalidInputError(
            f"cannot call {what}: {value.name or value.text} is {value.type}, not a STRING. CAST it."
        )
    return cast(value, t.string()).text


def _literal(value: Value, what: str) -> str:
    if not value.is_text:
        raise UnsupportedError(f"cannot call {what} in this process: {value.name} is no literal. {ON_SPARK}")
    return value.text[1:-1].replace("''", "'")


def _refuse_options(values: Sequence[Value], what: str) -> None:
    if len(values) > 1:
        raise UnsupportedError(f"cannot call {what} with options in this process. {ON_SPARK}")


def _once(text: str, name: str, body: str) -> str:
    """Return a text in which a value has a name, and is computed once."""
    return f"list_transform([{text}], lambda {name}: {body})[1]"


def _member(name: str, what: str) -> str:
    """Return the step of a path of DuckDB to a member."""
    if not name or '"' in name or "\\" in name:
        raise UnsupportedError(f"cannot call {what} with the name '{name}' in this process. {ON_SPARK}")
    return f'."{name}"'


def _repeated(holder: str, name: str) -> str:
    return f"len(list_filter(json_keys({holder}), lambda _k: _k = {string(name)})) > 1"


def _refused(text: str, why: str) -> str:
    shown = string(f"' in this process: {why} {ON_SPARK}")
    return f"error('cannot read the JSON text ''' || _json_start({text}) || {shown})"


_TWICE: Final = "an object has two members of one name."
_STEPS: Final = re.compile(r"\.([^.\[]+)|\['([^'?]+)'\]|\[([0-9]+)\]|\[(\*)\]")


def _path(text: str) -> list[str | int] | None:
    """Return the steps of a path of get_json_object: names, and indexes from 0. None: Spark finds nothing by it.

    Raises:
        UnsupportedError: it has `*`.
    """
    at, steps = 1, list[str | int]()
    while at < len(text):
        found = _STEPS.match(text, at)
        if found is None:
            return None
        if found[4] or found[1] == "*" or found[2] == "*":
            raise UnsupportedError(
                f"cannot call get_json_object with * in this process: '{text}'. Read the array with from_json, whose "
                f"fields such as items.id give arrays. {ON_SPARK}"
            )
        steps.append(int(found[3]) if found[3] else found[1] or found[2])
        at = found.end()
    return steps if text.startswith("$") else None


def _get_json_object(values: list[Value]) -> Value:
    s = _text_of(values[0], "get_json_object")
    nothing = Value(f"CASE WHEN FALSE THEN {s} END", t.string())
    if is_null(values[1].type):
        return nothing
    steps = _path(_literal(values[1], "get_json_object"))
    if steps is None:
        return nothing
    path, repeated = "$", list[str]()
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            repeated.append(_repeated(f"json_extract(_x, {string(path)})", step))
            path += _member(step, "get_json_object")
    found = f"_json_value(json_extract(_x, {string(path)}))"
    if not steps or isinstance(steps[-1], int):
        found = f"CASE WHEN CAST(json_extract(_x, {string(path)}) AS VARCHAR) = 'null' THEN 'null' ELSE {found} END"
    if repeated:  # Spark takes the first member that leads to a value
        twice = f"WHEN {' OR '.join(repeated)} THEN {_refused('_x', _TWICE)}"
        found = _once(found, "_y", f"CASE WHEN _y IS NOT NULL THEN _y {twice} END")
    return Value(_once(f"{'_json_read' if steps else '_json_root'}({s})", "_x", found), t.string())


def _json_array_length(values: list[Value]) -> Value:
    text = f"_json_read({_text_of(values[0], 'json_array_length')})"
    size = "CASE WHEN json_type(_x) = 'ARRAY' THEN CAST(json_array_length(_x) AS INTEGER) END"
    return Value(_once(text, "_x", size), t.Int())


def _json_object_keys(values: list[Value]) -> Value:
    text = f"_json_read({_text_of(values[0], 'json_object_keys')})"
    return Value(
        _once(text, "_x", "CASE WHEN json_type(_x) = 'OBJECT' THEN json_keys(_x) END"), t.Array(element=t.string())
    )


def json_tuple(values: Sequence[Value]) -> list[str]:
    """Return the columns of json_tuple: a text for each name.

    Raises:
        InvalidInputError: no names, or an argument that is no text.
        UnsupportedError: a name that is no literal.
    """
    if len(values) < 2:
        raise InvalidInputError(f"cannot call json_tuple with {len(values)} arguments: it takes a text and names.")
    if any(not isinstance(value.type, TEXTS) for value in values):
        raise InvalidInputError("cannot call json_tuple: all of its arguments are STRINGs. CAST them.")
    read, made = f"_json_read({values[0].text})", []
    for value in values[1:]:
        name = _literal(value, "json_tuple")
        path = string("$" + _member(name, "json_tuple"))
        found = f"CASE WHEN {_repeated('_x', name)} THEN {_refused('_x', _TWICE)} "
        made.append(_once(read, "_x", f"{found} ELSE _json_value(json_extract(_x, {path})) END"))
    return made


# from_json


def from_json(values: Sequence[Value], kind: t.DataType) -> Value:
    """Return a call of from_json: the value of a type that a text holds.

    Raises:
        InvalidInputError: the type is no ROW, ARRAY or MAP, or has what JSON does not hold.
        UnsupportedError: a type that is not read in this process.
    """
    if not isinstance(kind, t.Row | t.Array | t.Map):
        raise InvalidInputError(f"cannot call from_json: the schema is {kind}. It is a STRUCT, an ARRAY or a MAP.")
    s = _text_of(values[0], "from_json")
    made = _converted("_x", kind, 0)
    if isinstance(kind, t.Row):
        nulls = "{" + ", ".join(f"{quoted(f.name)}: CAST(NULL AS {duck(f.type)})" for f in kind.fields) + "}"
        made = f"coalesce({made}, CAST({nulls} AS {duck(kind)}))"
    if isinstance(kind, t.Array) and isinstance(kind.element, t.Row):  # an object stands for an array of it
        made = f"CASE WHEN json_type(_x) = 'OBJECT' THEN [{_converted('_x', kind.element, 0)}] ELSE {made} END"
    blank = rf"{s} IS NULL OR regexp_full_match({s}, '[ \t\r\n]*')"
    return Value(f"CASE WHEN {blank} THEN NULL ELSE {_once(f'_json_rows({s})', '_x', made)} END", kind)


_INFINITE: Final = {
    "NaN": ['"NaN"'], "Infinity": ['"Infinity"', '"+Infinity"', '"+INF"'], "-Infinity": ['"-Infinity"', '"-INF"'],
}  # fmt: skip
"""Texts that Spark reads as floating point numbers."""


def _converted(j: str, kind: t.DataType, depth: int) -> str:
    """Return a value of a JSON text, null if it is none of the type."""
    v, target = f"_v{depth}", duck(kind)

    def when(test: str, text: str) -> str:
        return _once(f"CAST({j} AS VARCHAR)", v, f"CASE WHEN {test} THEN {text} END")

    match kind:
        case _ if isinstance(kind, TEXTS):
            return f"_json_value({j})"
        case t.Boolean():
            return when(f"{v} IN ('true', 'false')", f"{v} = 'true'")
        case _ if isinstance(kind, WHOLE):
            return when(f"regexp_full_match({v}, '-?[0-9]+')", f"TRY_CAST({v} AS {target})")
        case _ if isinstance(kind, FLOATS):
            words = " ".join(
                f"WHEN {v} IN ({', '.join(map(string, texts))}) THEN CAST('{name}' AS {target})"
                for name, texts in _INFINITE.items()
            )
            sign = f"CAST(CASE WHEN starts_with({v}, '-') THEN '-Infinity' ELSE 'Infinity' END AS {target})"
            words += f" WHEN regexp_matches({v}, '^-?[0-9]') THEN coalesce(TRY_CAST({v} AS {target}), {sign})"
            return when("TRUE", f"CASE {words} END")
        case t.Decimal():
            form = r'-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"'
            plain = f"replace(replace({v}, ',', ''), '\"', '')"
            test = (
                f"regexp_full_match(CASE WHEN starts_with({v}, '\"') THEN replace({v}, ',', '') ELSE {v} END, '{form}')"
            )
            return when(test, f"TRY_CAST({plain} AS {target})")
        case t.Date():
            day = cast(Value(f"json_extract_string({v}, '$')", t.string()), kind, tries=True).text
            return when(f"starts_with({v}, '\"')", day)
        case t.Array():
            items = f"TRY_CAST(CAST({v} AS JSON) AS JSON[])"
            return when(f"starts_with({v}, '[')", _elements(items, kind.element, depth, lambda values: values))
        case t.Map():
            if kind.key.with_nullable(True) != t.string():
                raise InvalidInputError(f"cannot call from_json with {kind}: keys of JSON are STRINGs.")
            items, keys = f"json_extract({v}, '$.*')", f"json_keys({v})"
            made = _elements(items, kind.value, depth, lambda values: f"CAST(MAP({keys}, {values}) AS {target})")
            return when(f"starts_with({v}, '{{')", _unrepeated(v, made))
        case t.Row():
            if len({f.name.lower() for f in kind.fields}) < len(kind.fields):
                raise UnsupportedError(f"cannot call from_json with {kind} in this process: two fields have one name.")
            parts = []
            for f in kind.fields:
                found = f"json_extract({v}, {string('$' + _member(f.name, 'from_json'))})"
                parts.append(f"{quoted(f.name)}: {_converted(found, f.type, depth + 1)}")
            row = f"CAST({{{', '.join(parts)}}} AS {target})"
            return when(f"starts_with({v}, '{{')", _unrepeated(v, row))
    raise UnsupportedError(f"cannot call from_json with {kind} in this process. Read it as STRING and CAST it.")


def _unrepeated(v: str, made: str) -> str:
    twice = f"list_unique(json_keys({v})) < len(json_keys({v}))"
    return f"CASE WHEN {twice} THEN {_refused(v, _TWICE)} ELSE {made} END"


def _elements(items: str, kind: t.DataType, depth: int, whole: Callable[[str], str]) -> str:
    """Return what elements of JSON make, null if one of them is no value of the type."""
    e, p, q = f"_e{depth}", f"_p{depth}", f"_q{depth}"
    none = f"coalesce(CAST({e} AS VARCHAR), 'null') = 'null'"
    pairs = f"list_transform({items}, lambda {e}: {{none: {none}, made: {_converted(e, kind, depth + 1)}}})"
    bad = f"len(list_filter({p}, lambda {q}: NOT {q}.none AND {q}.made IS NULL)) > 0"
    return _once(pairs, p, f"CASE WHEN NOT {bad} THEN {whole(f'list_transform({p}, lambda {q}: {q}.made)')} END")


# to_json


def _to_json(values: list[Value]) -> Value:
    _refuse_options(values, "to_json")
    kind = values[0].type
    if not isinstance(kind, t.Row | t.Array | t.Map):
        raise InvalidInputError(
            f"cannot call to_json: {values[0].name} is {kind}. It takes a STRUCT, an ARRAY or a MAP."
        )
    return Value(_written(values[0].text, kind, 0), t.string())


def _written(x: str, kind: t.DataType, depth: int) -> str:
    """Return a value as JSON; null is null."""
    e = f"_j{depth}"

    def joined(items: str, text: str) -> str:
        return f"coalesce(array_to_string(list_transform({items}, lambda {e}: {text}), ','), '')"

    match kind:
        case _ if is_null(kind):
            return "CAST(NULL AS VARCHAR)"
        case _ if isinstance(kind, TEXTS):
            return f"CASE WHEN {x} IS NOT NULL THEN CAST(to_json({x}) AS VARCHAR) END"
        case _ if isinstance(kind, (*WHOLE, t.Boolean)):
            return f"CAST({x} AS VARCHAR)"
        case t.Decimal() if kind.scale <= 6:  # Java writes small ones of more digits with an exponent
            return cast(Value(x, kind), t.string()).text
        case _ if isinstance(kind, FLOATS):
            return f"CASE WHEN isfinite({x}) THEN _double({x}) ELSE '\"' || _double({x}) || '\"' END"
        case t.Date():
            return f"strftime({x}, '\"%Y-%m-%d\"')"
        case t.Timestamp():
            return f"strftime({x}, '\"%Y-%m-%dT%H:%M:%S.%g\"')"
        case t.LocalZonedTimestamp():
            wall = f"CAST({x} AS TIMESTAMP)"
            minutes = f"((epoch_us({wall}) - epoch_us({x})) // 60000000)"
            zone = f"printf('%s%02d:%02d', CASE WHEN {minutes} < 0 THEN '-' ELSE '+' END, abs({minutes}) // 60, "
            zone = f"CASE WHEN {minutes} = 0 THEN 'Z' ELSE {zone}abs({minutes}) % 60) END"
            return f"strftime({wall}, '\"%Y-%m-%dT%H:%M:%S.%g') || {zone} || '\"'"
        case _ if isinstance(kind, BYTES):
            return f"'\"' || base64({x}) || '\"'"
        case t.Array():
            text = f"coalesce({_written(e, kind.element, depth + 1)}, 'null')"
            return f"CASE WHEN {x} IS NOT NULL THEN '[' || {joined(x, text)} || ']' END"
        case t.Map() if isinstance(kind.key, (*TEXTS, *WHOLE, t.Boolean)) or is_null(kind.key):
            name = f"CAST(to_json(CAST(({e}).key AS VARCHAR)) AS VARCHAR)"
            text = f"{name} || ':' || coalesce({_written(f'({e}).value', kind.value, depth + 1)}, 'null')"
            return f"CASE WHEN {x} IS NOT NULL THEN '{{' || {joined(f'map_entries({x})', text)} || '}}' END"
        case t.Row():
            parts = [
                f"{string(json.dumps(f.name, ensure_ascii=False) + ':')} || "
                f"{_written(f'({x}).{quoted(f.name)}', f.type, depth)}"
                for f in kind.fields
            ]
            return f"CASE WHEN {x} IS NOT NULL THEN '{{' || concat_ws(',', {', '.join(parts)}) || '}}' END"
    raise UnsupportedError(f"cannot call to_json with {kind} in this process. CAST it to STRING, or run it on Spark.")


# schema_of_json


def _schema_of_json(values: list[Value]) -> Value:
    _refuse_options(values, "schema_of_json")
    if is_null(values[0].type):
        raise InvalidInputError("cannot call schema_of_json with NULL: give the text of an example.")
    text = _literal(values[0], "schema_of_json")
    if not text.strip():
        return Value("'STRING'", t.string(), is_text=True)
    try:
        read = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except ValueError as error:
        raise UnsupportedError(f"cannot read '{text}' as JSON in this process: {error}. {ON_SPARK}") from error
    return Value(string(_shown(_inferred(read)) or "STRUCT<>"), t.string(), is_text=True)


class _Object(dict[str, Any]):
    """An object of JSON; empty for a row without fields, which an empty dict of types is not told from otherwise."""


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    if len(dict(pairs)) < len(pairs):
        raise UnsupportedError(f"cannot call schema_of_json in this process: {_TWICE} {ON_SPARK}")
    return _Object(pairs)


def _constant(word: str) -> None:
    raise UnsupportedError(f"cannot call schema_of_json in this process: the text has {word}. {ON_SPARK}")


def _inferred(value: Any) -> Any:
    """Return the type of a value: a text, a dict of fields, a list of the type of elements, or None for null."""
    match value:
        case None:
            return None
        case bool():
            return "BOOLEAN"
        case int():
            digits = len(str(abs(value)))
            return "BIGINT" if -(2**63) <= value < 2**63 else f"DECIMAL({digits},0)" if digits <= 38 else "DOUBLE"
        case float():
            return "DOUBLE"
        case dict():
            names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
            return {name: _inferred(value[name]) for name in names}
        case list():
            found = None
            for item in value:
                found = _both(found, _inferred(item))
            return [found]
    return "STRING"


def _both(a: Any, b: Any) -> Any:
    """Return the type that holds two."""
    if a is None or b is None or a == b:
        return b if a is None else a
    if isinstance(a, dict) and isinstance(b, dict):
        names = sorted({**a, **b}, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return {name: _both(a.get(name), b.get(name)) for name in names}
    if isinstance(a, list) and isinstance(b, list):
        return [_both(a[0], b[0])]
    numbers = [str(kind) for kind in (a, b) if isinstance(kind, str) and kind.startswith(("BIGINT", "D"))]
    if len(numbers) == 2:
        if "DOUBLE" in numbers:
            return "DOUBLE"
        digits = [20 if kind == "BIGINT" else int(kind[8:-3]) for kind in numbers]
        return f"DECIMAL({max(digits)},0)"
    return "STRING"


def _shown(kind: Any) -> str | None:
    """Return a type as Spark writes it; None for a row without fields, which no table can hold."""
    if isinstance(kind, list):
        inner = _shown(kind[0])
        return None if inner is None else f"ARRAY<{inner}>"
    if isinstance(kind, dict):
        fields = [(name, _shown(inner)) for name, inner in kind.items()]
        shown = [f"{_named(name)}: {inner}" for name, inner in fields if inner is not None]
        return f"STRUCT<{', '.join(shown)}>" if shown else None
    return kind or "STRING"


def _named(name: str) -> str:
    return name if re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) else "`" + name.replace("`", "``") + "`"


JSON: Final[dict[str, Function]] = {
    "get_json_object": Function(2, 2, _get_json_object), "json_array_length": Function(1, 1, _json_array_length),
    "json_object_keys": Function(1, 1, _json_object_keys), "to_json": Function(1, 2, _to_json),
    "schema_of_json": Function(1, 2, _schema_of_json),
}  # fmt: skip
"""Functions of JSON beside from_json, which takes a type, and json_tuple, which gives columns."""
