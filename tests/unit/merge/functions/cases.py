"""Random columns of every type, random groups, and the comparison of kernels with the oracle."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.merge.functions.function import Function
from merganser.merge.functions.registry import function_for
from merganser.merge.groups import Groups
from merganser.options.option import Options
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type
from tests.oracle.functions import Refused, fold_rows, same

Draw = Callable[[random.Random], Any]
ROW = t.Row(fields=(t.Field(0, "id", t.Int()), t.Field(1, "v", t.string()), t.Field(2, "ts", t.string())))
NUMBERS = t.Row(fields=(t.Field(0, "id", t.string()), t.Field(1, "n", t.Int()), t.Field(2, "x", t.Double())))
WORDS = [
    "",
    " ",
    "a",
    "b",
    "a,b",
    "b,c,c",
    ", ,a",
    "\u2003",
    "\u00a0",
    "é\t",
    "longer than eight bytes",
    "zebra, x",
    "é",
]
FLOATS = [0.0, -0.0, 1.5, -2.25, 1e30, float("nan"), float("inf"), float("-inf"), 0.1, -7.0, 3.0, 1e-30]


def value_of(kind: t.DataType, rng: random.Random, small: bool = True) -> Any:
    """Return a value that is not null."""
    match kind:
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            bits = {"TinyInt": 8, "SmallInt": 16, "Int": 32, "BigInt": 64}[type(kind).__name__]
            bound = 1 << (bits - 1)
            return (
                rng.randint(-3, 4) if small else rng.choice([bound - 1, -bound, 1, -1, 0, rng.randrange(-bound, bound)])
            )
        case t.Float():
            return float(np.float32(rng.choice(FLOATS)))
        case t.Double():
            return rng.choice(FLOATS)
        case t.Decimal(precision=p, scale=s):
            top = 10 ** min(p, 4) if small else 10**p
            return Decimal(rng.randrange(-top + 1, top)).scaleb(-s, context=_context())
        case t.Boolean():
            return rng.random() < 0.5
        case t.VarChar() | t.Char():
            return rng.choice(WORDS)
        case t.VarBinary() | t.Binary():
            tail = bytes(rng.choices(b"\x00\x01\xff", k=rng.choice([0, 1, 7, 8, 9, 17])))
            return rng.choice([b"", b"\x00" * 9, b"abcdefgh", b"abcdefgh\x00", tail])
        case t.Date() | t.Time():
            return rng.randrange(0, 86_400)
        case t.Timestamp() | t.LocalZonedTimestamp():
            return rng.randrange(-(1 << 40), 1 << 40)
        case t.Array(element=element):
            return [maybe(element, rng, 0.1) for _ in range(rng.choice([0, 1, 2, 3]))]
        case t.Map(key=key, value=item):
            keys: list[Any] = []
            for _ in range(rng.choice([0, 1, 2, 3])):
                one = value_of(key, rng)
                if not any(same(one, other) for other in keys):
                    keys.append(one)
            return [(one, maybe(item, rng, 0.2)) for one in keys]
        case t.Row(fields=fields):
            return {field.name: maybe(field.type, rng, 0.2) for field in fields}
    raise AssertionError(kind)


def _context() -> Any:
    from decimal import Context

    return Context(prec=60)


def maybe(kind: t.DataType, rng: random.Random, nulls: float, small: bool = True) -> Any:
    """Return a value or, with a probability, null."""
    return None if rng.random() < nulls else value_of(kind, rng, small)


def array_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return an array, times being given as integers."""
    if pa.types.is_temporal(kind):
        whole = pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
        return pa.array(values, whole).view(kind)
    return pa.array(values, kind, from_pandas=False)


def pylist(array: pa.Array) -> list[Any]:
    """Return Python values, times as integers."""
    kind = array.type
    if pa.types.is_temporal(kind):
        array = array.view(pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64())
    return array.to_pylist()


def chunked(values: list[Any], kind: pa.DataType, rng: random.Random) -> pa.ChunkedArray:
    """Return the values in one to three chunks, each a slice of a larger array."""
    cuts = sorted(rng.choices(range(len(values) + 1), k=rng.choice([0, 1, 2])))
    chunks = []
    for start, end in zip([0, *cuts], [*cuts, len(values)], strict=True):
        part = values[start:end]
        filler = part[:1] * 3
        chunks.append(array_of([*filler, *part, *filler], kind).slice(len(filler), len(part)))
    return pa.chunked_array(chunks, kind)


def random_groups(count: int, rng: random.Random, *, retractions: bool, size_max: int = 6) -> Groups:
    """Return the rows of a table of `count` rows, all or some, in random groups and random order."""
    positions = rng.sample(range(count), count - rng.choice([0, count // 3]))
    count = len(positions)
    starts, at = [], 0
    while at < count:
        starts.append(at)
        at += rng.choice([1, 1, 2, 3, rng.randint(1, size_max)])
    additions = None
    if retractions:
        kept = rng.choice([0.4, 0.7, 0.95])
        additions = np.array([rng.random() < kept for _ in range(count)], np.bool_)
    return Groups(np.array(positions, np.int64), np.array(starts, np.int64), additions)


def build(name: str, kind: t.DataType, options: Mapping[str, str], *, stored: bool = True) -> Function:
    """Return the function of a column 'c'."""
    texts = {f"fields.c.{suffix}": text for suffix, text in options.items()}
    return function_for(t.Field(3, "c", kind), name, Options(texts), stored=stored)


def rows_of(values: list[Any], groups: Groups) -> list[list[tuple[str, Any]]]:
    """Return the groups as the oracle takes them."""
    out: list[list[tuple[str, Any]]] = []
    if not groups.count:
        return out
    for start, end in zip(groups.starts.tolist(), groups.ends.tolist(), strict=True):
        kinds = ["+I"] * (end - start)
        if groups.additions is not None:
            kinds = ["+I" if add else "-D" for add in groups.additions[start:end]]
        out.append([(k, values[p]) for k, p in zip(kinds, groups.positions[start:end].tolist(), strict=True)])
    return out


def expected_or_refusals(name: str, kind: t.DataType, options: Mapping[str, str], groups: list[Any]) -> Any:
    """Return the values of the groups, or the set of why some of them are refused."""
    values, refusals = [], set()
    for rows in groups:
        try:
            values.append(fold_rows(name, kind, options, rows))
        except Refused as refusal:
            refusals.add(str(refusal))
    return refusals or values


def folded_or_refusal(function: Function, column: pa.ChunkedArray, groups: Groups) -> Any:
    """Return the array that a kernel gives, or its message."""
    try:
        return function.fold(column, groups)
    except InvalidInputError as error:
        return error


SAYS = {
    "retract": "retraction",
    "overflow": "overflow",
    "zero": "by zero",
    "endless": "endless",
    "null key": "null in their key",
}


def check(
    name: str, kind: t.DataType, options: Mapping[str, str], values: list[Any], groups: Groups, rng: random.Random,
    arrow: pa.DataType | None = None,
) -> None:  # fmt: skip
    """Compare a kernel with the oracle: the same values, or refused for the same reason."""
    arrow = arrow or arrow_type(kind)
    column = chunked(values, arrow, rng)
    given = pylist(column.combine_chunks()) if not pa.types.is_nested(arrow) else column.to_pylist()
    wanted = expected_or_refusals(name, kind, options, rows_of(given, groups))
    found = folded_or_refusal(build(name, kind, options, stored=name != "count"), column, groups)
    if isinstance(wanted, set):
        assert isinstance(found, InvalidInputError), (wanted, found)
        assert any(SAYS[reason] in str(found) for reason in wanted)
        assert "'c'" in str(found)
        assert name in str(found)
        return
    assert not isinstance(found, Exception), (found, wanted)
    assert found.type == arrow
    found.validate(full=True)
    got = pylist(found)
    assert len(got) == groups.count
    for i, (one, other) in enumerate(zip(got, wanted, strict=True)):
        assert same(one, other), (i, one, other, rows_of(given, groups)[i])
