"""Functions of arrays and maps, with and without lambdas: the type in Spark, and the text for DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from merganser.sql.query.casts import cast, to
from merganser.sql.query.functions import Function, common_elements, element_of, refuse_nested, row_of, taken
from merganser.sql.query.kinds import Interval, Value, common, duck, is_null, quoted, same
from merganser.values import dataclass


def _pair(values: Sequence[Value], what: str) -> tuple[t.DataType, str, str]:
    """Return the element type that two arrays have in common, and the texts of both in it."""
    kind, texts = common_elements(values[0], [Value("", element_of(values[1], what), values[1].name)], what)
    return kind, texts[0], to(values[1], t.Array(element=kind))


def _distinct(text: str) -> str:
    """Return the first of equal elements each; nulls are equal."""
    return (
        f"list_filter({text}, lambda _e, _i: CASE WHEN _e IS NULL THEN NOT list_contains(list_transform(({text})"
        f"[1:_i - 1], lambda _f: _f IS NULL), TRUE) ELSE list_position({text}, _e) = _i END)"
    )


def _holds_null(text: str) -> str:
    return f"list_contains(list_transform({text}, lambda _n: _n IS NULL), TRUE)"


def _holds(text: str) -> str:
    return f"CASE WHEN _e IS NULL THEN {_holds_null(text)} ELSE list_contains({text}, _e) END"


def _known(text: str, *needed: str) -> str:
    return f"CASE WHEN {' AND '.join(f'{each} IS NOT NULL' for each in needed)} THEN {text} END"


def _union(values: list[Value]) -> Value:
    kind, a, b = _pair(values, "array_union")
    return Value(_known(_distinct(f"list_concat({a}, {b})"), a, b), t.Array(element=kind))


def _intersect(values: list[Value]) -> Value:
    kind, a, b = _pair(values, "array_intersect")
    return Value(_known(_distinct(f"list_filter({a}, lambda _e: {_holds(b)})"), a, b), t.Array(element=kind))


def _except(values: list[Value]) -> Value:
    kind, a, b = _pair(values, "array_except")
    return Value(_known(_distinct(f"list_filter({a}, lambda _e: NOT ({_holds(b)}))"), a, b), t.Array(element=kind))


def _overlap(values: list[Value]) -> Value:
    _, a, b = _pair(values, "arrays_overlap")
    found = f"len(list_filter({a}, lambda _e: list_contains({b}, _e))) > 0"
    unknown = f"len({a}) > 0 AND len({b}) > 0 AND ({_holds_null(a)} OR {_holds_null(b)})"
    return Value(
        f"CASE WHEN {a} IS NULL OR {b} IS NULL THEN NULL WHEN {found} THEN TRUE WHEN {unknown} THEN NULL "
        "ELSE FALSE END",
        t.Boolean(),
    )


def _remove(values: list[Value]) -> Value:
    kind, (a, x) = common_elements(values[0], values[1:], "array_remove")
    return Value(_known(f"list_filter({a}, lambda _e: _e IS NULL OR _e <> {x})", a, x), t.Array(element=kind))


def _repeat(values: list[Value]) -> Value:
    kind, count = values[0].type, taken(values[1], "i", "array_repeat").text
    item = to(values[0], kind) if not is_null(kind) else "CAST(NULL AS INTEGER)"
    made = f"list_transform(range(greatest({count}, 0)), lambda _r: {item})"
    return Value(_known(made, count), t.Array(element=kind))


def _insert(values: list[Value]) -> Value:
    kind, (a, x) = common_elements(values[0], values[2:], "array_insert")
    at = taken(values[1], "i", "array_insert").text
    nulls = f"list_transform(range({{}}), lambda _r: CAST(NULL AS {duck(kind)}))"
    front = f"list_concat(list_concat(list_concat(({a})[:{at} - 1], {nulls.format(f'greatest({at} - 1 - len({a}), 0)')}"
    front += f"), [{x}]), ({a})[{at}:])"
    place = f"(len({a}) + {at} + 1)"
    back = f"list_concat(list_append(({a})[:{place}], {x}), ({a})[{place} + 1:])"
    far = f"list_concat(list_concat([{x}], {nulls.format(f'-{place}')}), {a})"
    return Value(
        f"CASE WHEN {a} IS NULL OR {at} IS NULL THEN NULL WHEN {at} = 0 THEN error('the index 0 is invalid: it begins "
        f"at 1') WHEN {at} > 0 THEN {front} WHEN {place} >= 0 THEN {back} ELSE {far} END",
        t.Array(element=kind),
    )


def _slice(values: list[Value]) -> Value:
    element_of(values[0], "slice")
    a = values[0].text
    start, count = (taken(value, "i", "slice").text for value in values[1:])
    first = f"CASE WHEN {start} > 0 THEN {start} ELSE len({a}) + {start} + 1 END"
    return Value(
        f"CASE WHEN {a} IS NULL OR {start} IS NULL OR {count} IS NULL THEN NULL WHEN {start} = 0 THEN "
        f"error('the start of slice is 0: it begins at 1') WHEN {count} < 0 "
        "THEN error('the length of slice is negative') "
        f"WHEN ({first}) < 1 OR {count} = 0 THEN ({a})[2:1] ELSE ({a})[({first}):({first}) + {count} - 1] END",
        values[0].type,
    )


def _flatten(values: list[Value]) -> Value:
    kind = element_of(values[0], "flatten")
    if not isinstance(kind, t.Array):
        raise InvalidInputError(f"cannot call flatten: {values[0].name} is {values[0].type}, not an ARRAY of ARRAYs.")
    a = values[0].text
    return Value(f"CASE WHEN {_holds_null(a)} THEN NULL ELSE flatten({a}) END", kind)


def _array_sort(values: list[Value]) -> Value:
    refuse_nested(element_of(values[0], "array_sort"), "array_sort")
    return Value(f"list_sort({values[0].text}, 'ASC', 'NULLS LAST')", values[0].type)


def _get(values: list[Value]) -> Value:
    kind, i = element_of(values[0], "get"), taken(values[1], "i", "get").text
    return Value(f"CASE WHEN {i} >= 0 THEN ({values[0].text})[{i} + 1] END", kind)


def _try_element_at(values: list[Value]) -> Value:
    if isinstance(values[0].type, t.Map):
        return Value(f"({values[0].text})[{to(values[1], values[0].type.key)}]", values[0].type.value)
    kind, i = element_of(values[0], "try_element_at"), taken(values[1], "i", "try_element_at").text
    bad = "error('the index 0 is invalid: it begins at 1')"
    return Value(f"CASE WHEN {i} = 0 THEN {bad} ELSE ({values[0].text})[{i}] END", kind)


def _array_join(values: list[Value]) -> Value:
    a, kind = values[0].text, element_of(values[0], "array_join")
    separator, *rest = (taken(value, "s", "array_join") for value in values[1:])
    texts, needed = f"list_transform({a}, lambda _e: {cast(Value('_e', kind), t.string()).text})", [a, separator.text]
    if rest:
        texts = f"list_transform({texts}, lambda _t: coalesce(_t, {rest[0].text}))"
        needed.append(rest[0].text)
    if separator.is_text:
        made = f"coalesce(array_to_string({texts}, {separator.text}), '')"
    else:  # array_to_string takes constants only
        known = f"list_filter({texts}, lambda _t: _t IS NOT NULL)"
        each = f"list_transform({known}, lambda _t, _i: CASE WHEN _i = 1 THEN _t ELSE {separator.text} || _t END)"
        made = f"coalesce(array_to_string({each}, ''), '')"
    return Value(_known(made, *needed), t.string())


def _arrays_zip(values: list[Value]) -> Value:
    if not values or any(is_null(value.type) for value in values):
        raise UnsupportedError("cannot call arrays_zip without arrays or with NULL in this process. Run it on Spark.")
    names = [value.own or str(place) for place, value in enumerate(values)]
    kinds = [element_of(value, "arrays_zip") for value in values]
    if len({name.lower() for name in names}) < len(names):
        raise UnsupportedError("cannot call arrays_zip with two arrays of one name in this process. Run it on Spark.")
    row = row_of(names, [Value(f"({v.text})[_i]", kind) for v, kind in zip(values, kinds, strict=True)])
    longest = f"greatest({', '.join(f'len({value.text})' for value in values)})"
    made = f"list_transform(range(1, {longest} + 1), lambda _i: {row.text})"
    return Value(_known(made, *(value.text for value in values)), t.Array(element=row.type))


def _map_of(value: Value, what: str) -> t.Map:
    if not isinstance(value.type, t.Map):
        raise InvalidInputError(f"cannot call {what}: {value.name or value.text} is {value.type}, not a MAP.")
    return value.type


def _pairs(kind: t.Map) -> t.Row:
    return t.Row(fields=(t.Field(-1, "key", kind.key), t.Field(-1, "value", kind.value)))


def _as_map(entries: str, kind: t.Map) -> str:
    return f"CAST(map_from_entries({entries}) AS {duck(kind)})"


def _map_entries(values: list[Value]) -> Value:
    kind = _map_of(values[0], "map_entries")
    return Value(f"map_entries({values[0].text})", t.Array(element=_pairs(kind)))


def _map_concat(values: list[Value]) -> Value:
    kind = common(values, "call map_concat")
    if not isinstance(kind, t.Map):
        raise InvalidInputError(f"cannot call map_concat: {values[0].name} is {values[0].type}, not a MAP.")
    texts = [to(value, kind) for value in values]
    entries = f"map_entries({texts[0]})"
    for text in texts[1:]:
        entries = f"list_concat({entries}, map_entries({text}))"
    return Value(_known(_as_map(entries, kind), *texts), kind)


def _map_from_arrays(values: list[Value]) -> Value:
    keys, items = (element_of(value, "map_from_arrays") for value in values)
    a, b = (value.text for value in values)
    return Value(_known(f"MAP({a}, {b})", a, b), t.Map(key=keys, value=items))


def _map_from_entries(values: list[Value]) -> Value:
    row = element_of(values[0], "map_from_entries")
    if not isinstance(row, t.Row) or len(row.fields) != 2:
        raise InvalidInputError(f"cannot call map_from_entries: {values[0].name} is no ARRAY of ROWs of two fields.")
    a = values[0].text
    keys, items = (f"list_transform({a}, lambda _e: _e.{quoted(f.name)})" for f in row.fields)
    text = f"CASE WHEN {a} IS NULL OR {_holds_null(a)} THEN NULL ELSE MAP({keys}, {items}) END"
    return Value(text, t.Map(key=row.fields[0].type, value=row.fields[1].type))


def _map_contains_key(values: list[Value]) -> Value:
    kind = _map_of(values[0], "map_contains_key")
    if is_null(values[1].type):
        raise InvalidInputError(f"cannot call map_contains_key with NULL. Write CAST(NULL AS {kind.key}).")
    m, key = values[0].text, to(values[1], kind.key)
    return Value(_known(f"list_contains(map_keys({m}), {key})", m, key), t.Boolean())


ARRAYS: Final[dict[str, Function]] = {
    "array_union": Function(2, 2, _union), "array_intersect": Function(2, 2, _intersect),
    "array_except": Function(2, 2, _except), "arrays_overlap": Function(2, 2, _overlap),
    "array_remove": Function(2, 2, _remove), "array_repeat": Function(2, 2, _repeat),
    "array_insert": Function(3, 3, _insert), "slice": Function(3, 3, _slice), "flatten": Function(1, 1, _flatten),
    "array_sort": Function(1, 1, _array_sort), "get": Function(2, 2, _get),
    "try_element_at": Function(2, 2, _try_element_at), "array_join": Function(2, 3, _array_join),
    "arrays_zip": Function(0, None, _arrays_zip),
    "map_entries": Function(1, 1, _map_entries), "map_concat": Function(1, None, _map_concat),
    "map_from_arrays": Function(2, 2, _map_from_arrays), "map_from_entries": Function(1, 1, _map_from_entries),
    "map_contains_key": Function(2, 2, _map_contains_key),
}  # fmt: skip
"""Functions without lambdas."""


# lambdas


@dataclass(frozen=True)
class Lambda:
    """A lambda of a call.

    Attributes:
        count: how many parameters it has.
        bind: takes their values, and returns that of the body.
        names: unique names for parameters of DuckDB.
    """

    count: int
    bind: Callable[[Sequence[Value]], Value]
    names: Sequence[str]


@dataclass(frozen=True)
class Higher:
    """A function that takes lambdas.

    Attributes:
        plain: how many arguments come before the lambdas.
        counts: for each lambda, how many parameters it may have.
        make: the call, of the arguments before the lambdas, and of the lambdas.
        optional: how many lambdas at the end may be left out.
    """

    plain: int
    counts: Sequence[Sequence[int]]
    make: Callable[[list[Value], Sequence[Lambda]], Value]
    optional: int = 0


def _each(value: Value, made: Lambda, what: str) -> tuple[str, Value]:
    """Return the head of a lambda of DuckDB over an array, and its body. A second parameter counts from 0."""
    kind = element_of(value, what)
    element, index = made.names[:2]
    given = [Value(element, kind), Value(f"CAST({index} - 1 AS INTEGER)", t.Int())][: made.count]
    return f"lambda {', '.join([element, index][: made.count])}:", made.bind(given)


def _test(value: Value, what: str) -> str:
    if not isinstance(value.type, t.Boolean) and not is_null(value.type):
        raise InvalidInputError(f"cannot call {what}: {value.name} is {value.type}, not BOOLEAN.")
    return value.text


def _transform(values: list[Value], lambdas: Sequence[Lambda]) -> Value:
    head, body = _each(values[0], lambdas[0], "transform")
    return Value(f"list_transform({values[0].text}, {head} {body.text})", t.Array(element=body.type))


def _filter(values: list[Value], lambdas: Sequence[Lambda]) -> Value:
    head, body = _each(values[0], lambdas[0], "filter")
    return Value(f"list_filter({values[0].text}, {head} {_test(body, 'filter')})", values[0].type)


def _quantified(what: str, *, some: bool) -> Higher:
    def make(values: list[Value], lambdas: Sequence[Lambda]) -> Value:
        a = values[0].text
        head, body = _each(values[0], lambdas[0], what)
        test = _test(body, what)

        def found(condition: str) -> str:
            return f"len(list_filter({a}, {head} {condition})) > 0"

        decides = found(test if some else f"NOT {test}")
        return Value(
            f"CASE WHEN {a} IS NULL THEN NULL WHEN {decides} THEN {'TRUE' if some else 'FALSE'} "
            f"WHEN {found(f'({test}) IS NULL')} THEN NULL ELSE {'FALSE' if some else 'TRUE'} END",
            t.Boolean(),
        )

    return Higher(1, [(1,)], make)


def _aggregate(values: list[Value], lambdas: Sequence[Lambda]) -> Value:
    kind, start = element_of(values[0], "aggregate"), values[1]
    one, other = lambdas[0].names[:2]
    merged = lambdas[0].bind([Value(f"({one}).a", start.type), Value(f"({other}).x", kind)])
    alike = same(merged.type, start.type) if not isinstance(merged.type, Interval) else merged.type == start.type
    if not is_null(merged.type) and not alike:
        raise InvalidInputError(
            f"cannot call aggregate: it starts with {start.type}, and the lambda gives {merged.type}. CAST one of them."
        )
    target, empty = duck(start.type), f"CAST(NULL AS {duck(kind)})"
    # a list of DuckDB is reduced to a value of its own type, so the elements carry a place for the result
    items = f"list_transform({values[0].text}, lambda {one}: {{a: CAST(NULL AS {target}), x: {one}}})"
    step = f"lambda {one}, {other}: {{a: CAST({merged.text} AS {target}), x: {empty}}}"
    text = f"(list_reduce({items}, {step}, {{a: CAST({start.text} AS {target}), x: {empty}}})).a"
    if len(lambdas) == 1:
        return Value(text, start.type)
    # the result is bound once, as the only element of an array
    end = lambdas[1].names[0]
    last = lambdas[1].bind([Value(end, start.type)])
    known = f"{values[0].text} IS NOT NULL"
    return Value(f"CASE WHEN {known} THEN list_transform([{text}], lambda {end}: {last.text})[1] END", last.type)


def _zip_with(values: list[Value], lambdas: Sequence[Lambda]) -> Value:
    a, b = (value.text for value in values)
    one, index = lambdas[0].names[:2]
    given = [Value(f"({value.text})[{index}]", element_of(value, "zip_with")) for value in values]
    body = lambdas[0].bind(given)
    text = f"list_transform(range(greatest(len({a}), len({b}))), lambda {one}, {index}: {body.text})"
    return Value(_known(text, a, b), t.Array(element=body.type))


def _entries(value: Value, made: Lambda, what: str) -> tuple[t.Map, str, Value]:
    kind, entry = _map_of(value, what), made.names[0]
    return kind, entry, made.bind([Value(f"({entry}).key", kind.key), Value(f"({entry}).value", kind.value)])


def _map_filter(values: list[Value], lambdas: Sequence[Lambda]) -> Value:
    kind, entry, body = _entries(values[0], lambdas[0], "map_filter")
    entries = f"list_filter(map_entries({values[0].text}), lambda {entry}: {_test(body, 'map_filter')})"
    return Value(_known(_as_map(entries, kind), values[0].text), kind)


def _transform_keys(values: list[Value], lambdas: Sequence[Lambda]) -> Value:
    kind, entry, body = _entries(values[0], lambdas[0], "transform_keys")
    made = t.Map(key=body.type, value=kind.value)
    row = row_of(["key", "value"], [body, Value(f"({entry}).value", kind.value)])
    text = f"list_transform(map_entries({values[0].text}), lambda {entry}: {row.text})"
    return Value(_known(_as_map(text, made), values[0].text), made)


def _transform_values(values: list[Value], lambdas: Sequence[Lambda]) -> Value:
    kind, entry, body = _entries(values[0], lambdas[0], "transform_values")
    made = t.Map(key=kind.key, value=body.type)
    row = row_of(["key", "value"], [Value(f"({entry}).key", kind.key), body])
    text = f"list_transform(map_entries({values[0].text}), lambda {entry}: {row.text})"
    return Value(_known(_as_map(text, made), values[0].text), made)


_REDUCE: Final = Higher(2, [(2,), (1,)], _aggregate, optional=1)
HIGHER: Final[dict[str, Higher]] = {
    "transform": Higher(1, [(1, 2)], _transform), "filter": Higher(1, [(1, 2)], _filter),
    "exists": _quantified("exists", some=True), "any_match": _quantified("any_match", some=True),
    "forall": _quantified("forall", some=False), "all_match": _quantified("all_match", some=False),
    "aggregate": _REDUCE, "reduce": _REDUCE, "zip_with": Higher(2, [(2,)], _zip_with),
    "map_filter": Higher(1, [(2,)], _map_filter), "transform_keys": Higher(1, [(2,)], _transform_keys),
    "transform_values": Higher(1, [(2,)], _transform_values),
}  # fmt: skip
"""Functions with lambdas."""
