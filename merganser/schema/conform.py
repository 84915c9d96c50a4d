"""Rows as a user gives them -> rows of exactly the table's columns and Arrow types, or why not.

Whatever Arrow type converts without loss is taken: other widths, units, encodings and layouts. A value that would
change (300 as TINYINT, 1.5 as INT, text too long for VARCHAR(10)) is refused, never cut or rounded; so is a
type that says another thing (text for a number, an instant for a wall clock). Text columns take two types besides text,
which have one usual text and no type of a table: UUIDs, and times of day finer than milliseconds. FLOAT and DOUBLE take
the nearest of their numbers, since that is what these types mean; a number that is too large is refused. Nulls of a
column with a default take the default. A column that already has the right type is passed through as it is.

Everything works on whole columns. Only when a column is refused is its first offending row searched for, by
halving. Rows in messages count from 1; `context["row"]` counts from 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.options.registry import did_you_mean
from merganser.schema import types as t
from merganser.schema.arrow import LISTS, arrow_field, arrow_schema, arrow_type
from merganser.schema.hidden import with_values_under_nulls
from merganser.schema.limits import has_limits, in_years, too_long
from merganser.schema.literals import default_value, repeated
from merganser.schema.row_kind import SYMBOLS
from merganser.schema.spans import FEW_ROWS, is_ascii, leaves, offsets_rise
from merganser.schema.truncation import UNIT_NAMES, is_finer, truncated

_DAY_MS: Final = 86_400_000
_VALUE_TEXT_MAX: Final = 60
_NAMED_BY_MAX: Final = 3
"""Most columns that name a row in a message."""
_UUID_CHARACTERS: Final = 36
_UUID_PLACES: Final = np.array([0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34])
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_PIECE_BYTES_MAX: Final = (1 << 31) - 1

_Convert = Callable[[pa.Array], pa.Array]


class Limits(Protocol):
    """Values that files of a table cannot hold, whatever their types; see `codec.data_format.ValueLimits`."""

    def beyond(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        """Return bool[n], which values they cannot hold."""

    @property
    def why(self) -> str:
        """Why, as the rest of a sentence about a value."""

    @property
    def truncates(self) -> bool:
        """Whether digits of moments are dropped that their column does not store."""


_KEPT: Final = (
    ". A column that places rows keeps its type: create a table with another type for it, and write all rows there"
)
"""What to do if a column of a key cannot hold a value."""


class _MisfitError(Exception):
    """A value cannot be stored: `index` within the array at hand, and why, as the rest of a message.

    `hint` is what to do; `option` what an option of the table does instead, and `retype` another type of the column.
    """

    def __init__(self, index: int, why: str, hint: str = "", option: str = "", retype: str = "") -> None:
        super().__init__(why)
        self.index, self.why, self.hint, self.option, self.retype = index, why, hint, option, retype


class _MismatchError(Exception):
    """The Arrow type of a column, or of a part of it at `path`, says another thing than the column's type.

    `hint` and `retype` are as for `_MisfitError`.
    """

    def __init__(
        self, path: str, found: pa.DataType, wanted: str, hint: str = "Cast it first", retype: str = ""
    ) -> None:
        super().__init__(path)
        self.path, self.found, self.wanted, self.hint, self.retype = path, found, wanted, hint, retype
        self.option = ""


def conform(
    data: pa.Table,
    fields: Sequence[t.Field],
    *,
    action: str,
    not_null_names: Collection[str] = (),
    deletes: pa.Array | None = None,
    needed_by_deletes: Collection[str] = (),
    named_by: Sequence[str] = (),
    still_true: str = "Nothing was written.",
    fills: bool = False,
    limits: Limits | None = None,
    placing: Collection[str] | None = (),
) -> pa.Table:
    """Return `data` with exactly the columns and Arrow types of `fields`, in their order.

    Args:
        data: one column per field, found by name, in any order.
        fields: the columns of the table. Nulls of a field with a default take it.
        action: what is being done, as messages begin: "cannot write to 'db.orders'".
        not_null_names: key columns, which hold no nulls whatever their type says.
        deletes: boolean, the rows that remove the row of their key; None if there are none. They may be null in NOT
            NULL columns.
        needed_by_deletes: the columns that hold no nulls in these rows either. `not_null_names` are among them.
        named_by: columns whose values name a row in messages, where its number says nothing to the user: `data` is
            what one task was given. None of them: by its number.
        still_true: how messages end: what a refusal leaves as it was.
        fills: fields of ROWs that the data lacks are null.
        limits: values that files of the table cannot hold; None: they hold all.
        placing: columns that cannot get another type; messages advise none. None: rows are looked for, not written.

    Returns:
        As many rows in the same order. Columns that need no conversion share their memory with `data`.

    Raises:
        InvalidInputError: a column is missing, unknown or twice there; its type is another; a value does not fit
            or is null where none may be. Names the column, the row and the value.
    """
    _check_names(data.column_names, fields, action)
    naming = _Naming(data, [name for name in named_by if name in data.column_names][:_NAMED_BY_MAX], still_true)
    sound = _is_sound(data)
    found = dict(zip(data.column_names, data.columns, strict=True))
    columns = []
    for field in fields:
        column = found[field.name]
        timed = pa.types.is_temporal(column.type) or pa.types.is_nested(column.type)
        limited = has_limits(field.type) or (limits is not None and timed)
        if not sound or limited or column.type != arrow_type(field.type):
            places = None if placing is None else field.name in placing
            column = _conform_column(column, field, action, naming, fills, limits, places)
        if column.null_count and field.default is not None:
            column = pc.coalesce(column, default_value(field))
        key = field.name in not_null_names
        if column.null_count and (key or not field.type.nullable):
            lenient = not key and field.name not in needed_by_deletes
            _check_nulls(column, field.name, key, action, naming, deletes if lenient else None)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=arrow_schema(fields))


def fill_missing(data: pa.Table, fields: Sequence[t.Field]) -> pa.Table:
    """Return `data` with a column for each of `fields`: those it lacks hold their default, else null.

    Columns that are no field stay, so that `conform` names them.
    """
    there = set(data.column_names)
    missing = [field for field in fields if field.name not in there]
    if not missing:
        return data
    columns = [
        pa.nulls(data.num_rows, arrow_type(field.type))
        if field.default is None
        else repeated(default_value(field), data.num_rows)
        for field in missing
    ]
    schema = pa.schema([*data.schema, *(arrow_field(field).with_nullable(True) for field in missing)])
    return pa.Table.from_arrays([*data.columns, *columns], schema=schema)


def kinds_from(values: Sequence[str | None] | pa.Array | pa.ChunkedArray) -> pa.Int8Array:
    """Return the row kind of each row as its byte.

    Args:
        values: "+I", "-U", "+U" or "-D" for each row.

    Raises:
        InvalidInputError: one is null or none of the four; names its row.
    """
    try:
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as error:
        raise InvalidInputError(f"cannot read row kinds: expected text such as '+I', and found {error}") from error
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    array = _plain(array)
    if not (_is_text(array.type) or pa.types.is_null(array.type)):
        raise InvalidInputError(
            f"cannot read row kinds: they are {array.type}. Give text: {', '.join(SYMBOLS[:3])} or {SYMBOLS[3]}."
        )
    kinds = pc.index_in(array.cast(pa.string()), pa.array(SYMBOLS))
    if kinds.null_count:
        row = pc.index(pc.is_null(kinds), True).as_py()
        found = array[row].as_py()
        what = "null" if found is None else f"'{found}'"
        raise InvalidInputError(
            f"cannot read row kinds: the kind is {what} in row {row + 1} of {len(array)}, counting from 1. "
            f"Give {', '.join(SYMBOLS[:3])} or {SYMBOLS[3]}.",
            row=row,
            value=found,
        )
    return kinds.cast(pa.int8())


# columns


def _check_names(found: Sequence[str], fields: Sequence[t.Field], action: str) -> None:
    names = [field.name for field in fields]
    repeated = [name for name, count in Counter(found).items() if count > 1]
    if repeated:
        raise InvalidInputError(
            f"{action}: column '{repeated[0]}' occurs {found.count(repeated[0])} times in the data. Keep one.",
            column=repeated[0],
        )
    known, given = set(names), set(found)
    for name in found:
        if name not in known:
            raise InvalidInputError(
                f"{action}: column '{name}' of the data is not a column of the table. {did_you_mean(name, names)}",
                column=name,
            )
    missing = [name for name in names if name not in given]
    if missing:
        first = ", ".join(f"'{name}'" for name in missing[:3])
        raise InvalidInputError(
            f"{action}: {len(missing)} of {len(names)} columns {'is' if len(missing) == 1 else 'are'} missing from the "
            f"data (first: {first}). Add {'it' if len(missing) == 1 else 'them'}, or name the columns that you give, "
            "so that the others take their default or null.",
            column=missing[0],
            missing=missing,
        )


class _Naming:
    """How messages name a row of data: by its number, or by its values in some columns."""

    def __init__(self, data: pa.Table, columns: Sequence[str], still_true: str) -> None:
        self.still_true = still_true
        self._data = data
        self._columns = columns

    def row(self, row: int, whole: str = "") -> str:
        """Return "row 3 of 10", or "the row with id = 7"."""
        if not self._columns:
            return f"row {row + 1} of {whole or self._data.num_rows}"
        values = (f"{name} = {_shown(_first_plain(self._data.column(name)[row]))}" for name in self._columns)
        return f"the row with {', '.join(values)}"

    @property
    def note(self) -> str:
        """A sentence about numbers of rows, where there are any."""
        return "" if self._columns else " Rows count from 1."


def _first_plain(value: pa.Scalar) -> pa.Scalar:
    return value.value if isinstance(value, pa.DictionaryScalar) and value.is_valid else value


def _conform_column(
    column: pa.ChunkedArray,
    field: t.Field,
    action: str,
    naming: _Naming,
    fills: bool,
    limits: Limits | None,
    places: bool | None,
) -> pa.ChunkedArray:
    target = arrow_type(field.type)
    chunks = []
    start = 0
    try:
        for chunk in column.chunks:
            _check_offsets(chunk, field.name, action, naming.still_true)
            for piece in _pieces(chunk):
                fine = piece if limits is None or not limits.truncates else truncated(piece, target)
                converted = _convert(fine, field.type, field.name, fills)
                if _holds_text(target):
                    _check_text(converted)
                if _holds_maps(target):
                    _check_map_keys(converted)
                if limits is not None:
                    _check_limits(converted, limits)
                chunks.append(converted)
                start += len(piece)
    except _MisfitError as error:
        row = start + error.index
        raise InvalidInputError(
            f"{action}: column '{field.name}' {error.why} ({naming.row(row)}).{naming.note} {naming.still_true}"
            f"{_advice(error, places)}",
            column=field.name,
            row=row,
        ) from None
    except _MismatchError as error:
        raise InvalidInputError(
            f"{action}: column '{error.path}' is {error.found} in the data and {error.wanted} in the table. "
            f"{naming.still_true}{_advice(error, places)}",
            column=error.path,
        ) from None
    return with_values_under_nulls(pa.chunked_array(chunks, type=target))


def _advice(error: _MisfitError | _MismatchError, places: bool | None) -> str:
    """Return what to do, as the end of a message.

    Args:
        error: why a value is refused.
        places: whether the column cannot get another type; None: nothing is written, and the table is to stay.
    """
    if places is None or not error.hint:
        return f" {error.hint}." if error.hint else ""
    return f" {error.hint}{error.option}{_KEPT if places and error.retype else error.retype}."


def _is_sound(data: pa.Table) -> bool:
    """Return whether all values of few rows are what their Arrow types say, looked at in one call.

    False: it is not known. Nested values are looked at one column at a time: what their nulls hold would count here.
    """
    if data.num_rows >= FEW_ROWS or any(pa.types.is_nested(kind) for kind in data.schema.types):
        return False
    try:
        data.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _holds_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or (
        pa.types.is_nested(kind) and any(_holds_text(kind.field(i).type) for i in range(kind.num_fields))
    )


def _holds_maps(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return pa.types.is_nested(kind) and any(_holds_maps(kind.field(i).type) for i in range(kind.num_fields))


def _check_limits(array: pa.Array, limits: Limits) -> None:
    """Refuse values that files of the table cannot hold."""
    beyond = np.flatnonzero(limits.beyond(array))
    if len(beyond):
        index = int(beyond[0])
        raise _MisfitError(index, f"is {_shown(array[index])}, {limits.why}")


def _check_map_keys(array: pa.Array) -> None:
    """Refuse maps with a key twice, as Spark does: which of the values counts would depend on the reader."""

    def check(part: pa.Array) -> None:
        if _has_key_twice(part.take(pa.array(np.arange(len(part))))):  # a slice shares the entries of all
            raise pa.ArrowInvalid("a key twice")

    try:
        check(array)
    except pa.ArrowInvalid:
        why = "has a map with a key twice. Keep one of its values"
        raise _MisfitError(_first_refused(check, array), why) from None


def _has_key_twice(array: pa.Array) -> bool:
    """Return whether a map at any depth of an array without slices has a key twice."""
    if isinstance(array, pa.MapArray):
        offsets, keys, values = _inside_maps(array)
        codes = _codes(keys)
        if codes is not None and len(codes):
            rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            pairs = rows * (int(codes.max()) + 1) + codes
            if len(np.unique(pairs)) < len(pairs):
                return True
        return _has_key_twice(keys) or _has_key_twice(values)
    if isinstance(array, pa.StructArray):
        return any(_has_key_twice(part) for part in array.flatten())
    return isinstance(array, pa.ListArray) and _has_key_twice(array.flatten())


def _codes(keys: pa.Array) -> Any:
    """Return int64 numbers that are equal where values are; None of lists, which Arrow cannot number."""
    if isinstance(keys, pa.StructArray):
        codes = np.zeros(len(keys), np.int64)
        for part in keys.flatten():
            more = _codes(part)
            if more is None:
                return None
            codes = np.unique(codes * (int(more.max(initial=0)) + 1) + more, return_inverse=True)[1]
        return codes
    if pa.types.is_nested(keys.type):
        return None
    return np.asarray(pc.dictionary_encode(keys, null_encoding="encode").indices).astype(np.int64)


def _check_offsets(array: pa.Array, name: str, action: str, still_true: str) -> None:
    """Refuse an array that Arrow would read beyond its ends."""
    try:
        array.validate()
        sound = offsets_rise(array)
    except pa.ArrowInvalid:
        sound = False
    if not sound:
        raise InvalidInputError(
            f"{action}: column '{name}' is damaged: its values do not lie one behind the other. Build it anew. "
            f"{still_true}",
            column=name,
        )


def _check_text(array: pa.Array) -> None:
    """Refuse bytes that call themselves text; Arrow takes a caller's word for it."""

    def check(part: pa.Array) -> None:
        # A slice of a nested array shares the parts of all, and what nulls hold would be judged too.
        part.take(pa.array(np.arange(len(part)))).validate(full=True)

    try:
        for leaf in leaves(array):
            if pa.types.is_string(leaf.type) and not (len(leaf) >= FEW_ROWS and is_ascii(leaf)):
                leaf.validate(full=True)
    except pa.ArrowInvalid:
        try:
            check(array)
        except pa.ArrowInvalid as error:
            raise _MisfitError(_first_refused(check, array), f"is not UTF-8 ({error}). Store bytes as BYTES") from None


def _pieces(chunk: pa.Array) -> Iterator[pa.Array]:
    """Yield a chunk in slices that fit the 32-bit offsets of the types we hand out; large types may hold more."""
    half = len(chunk) // 2
    size = _byte_count(chunk)
    if not half or size <= _PIECE_BYTES_MAX or _byte_count(chunk[:half]) == size:
        yield chunk
    else:
        yield from _pieces(chunk[:half])
        yield from _pieces(chunk[half:])


def _byte_count(array: pa.Array) -> int:
    try:
        return int(array.nbytes)
    except (pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return 0  # Arrow 19 does not count view types


def _check_nulls(
    column: pa.ChunkedArray, name: str, key: bool, action: str, naming: _Naming, deletes: pa.Array | None
) -> None:
    """Refuse a column with nulls, except in `deletes`."""
    nulls = pc.is_null(column)
    if deletes is not None:
        nulls = pc.and_not(nulls, deletes)
    count = pc.sum(nulls).as_py() or 0
    if not count:
        return
    row = pc.index(nulls, True).as_py()
    role = "key column" if key else "NOT NULL column"
    raise InvalidInputError(
        f"{action}: {role} '{name}' is null in {count} of {len(column)} rows (first at "
        f"{naming.row(row, 'the batch')}).{naming.note} {naming.still_true}",
        column=name,
        row=row,
        null_count=count,
    )


# values


def _convert(array: pa.Array, kind: t.DataType, path: str, fills: bool) -> pa.Array:
    target = arrow_type(kind)
    if array.type == target and not has_limits(kind):
        return array
    text = isinstance(kind, t.Char | t.VarChar)
    array = _uuid_texts(array.storage) if text and isinstance(array.type, pa.UuidType) else _plain(array)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    match kind:
        case t.Array(element=element):
            return _convert_list(array, element, kind, path, fills)
        case t.Map(key=key, value=value):
            return _convert_map(array, key, value, kind, path, fills)
        case t.Multiset(element=element):
            return _convert_map(array, element, t.Int(nullable=False), kind, path, fills)
        case t.Row(fields=fields):
            return _convert_row(array, fields, kind, path, fills)
        case t.Variant():
            parts = tuple(t.Field(i, f.name, t.VarBinary(nullable=False)) for i, f in enumerate(target))
            return _convert_row(array, parts, kind, path, fills=False)
    convert = _conversion(array.type, kind, target, path)
    try:
        converted = convert(array)
    except pa.ArrowInvalid:
        index = _first_refused(convert, array)
        if is_finer(array.type, target):
            raise _MisfitError(index, *_too_fine(array[index], kind, path)) from None
        raise _MisfitError(index, f"value {_shown(array[index])} does not fit {_bare(kind)}") from None
    inside = in_years(converted)
    if inside is not None:
        index = pc.index(inside, False).as_py()
        raise _MisfitError(
            index,
            f"value {_shown(array[index])} is beyond {_bare(kind)}, which holds the years 1 to 9999 (write null, or a "
            "date such as 9999-12-31)",
        )
    if found := too_long(converted, kind):
        index, length, unit = found
        raise _MisfitError(index, f"value {_shown(array[index])} of {length} {unit} does not fit {_bare(kind)}")
    return converted


def _too_fine(value: pa.Scalar, kind: t.DataType, path: str) -> tuple[str, str, str, str]:
    """Return why a moment does not fit, and what `_MisfitError` says to do about it."""
    stored = UNIT_NAMES[arrow_type(kind).unit]
    found = UNIT_NAMES["us" if value.type.unit == "ns" and value.value % 1000 == 0 else value.type.unit]
    why = f"value {_shown(value)} has {found}, and the column stores {stored} ({_bare(kind)})"
    retype = ""
    if isinstance(kind, t.Timestamp | t.LocalZonedTimestamp):
        wider = _bare(replace(kind, precision={"us": 6}.get(value.type.unit, 9)))
        retype = f', or widen the column with retype_column("{path}", "{wider}")'
    elif isinstance(kind, t.Time):
        retype = ", or store them as text in a STRING column"
    option = ", let writes do so with the table option 'write.timestamp-precision' = 'truncate'"
    return why, "Truncate the values", option, retype


def _plain(array: pa.Array) -> pa.Array:
    """Return the values without their encoding, in a form that Arrow casts rightly."""
    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage)
    if pa.types.is_dictionary(array.type):
        if pa.types.is_string_view(array.type.value_type) or pa.types.is_binary_view(array.type.value_type):
            large = pa.large_string() if pa.types.is_string_view(array.type.value_type) else pa.large_binary()
            array = pa.DictionaryArray.from_arrays(
                array.indices, array.dictionary.cast(large)
            )  # views are not gathered
        return _plain(array.dictionary_decode())
    if pa.types.is_run_end_encoded(array.type):
        return _plain(pc.run_end_decode(array))
    if pa.types.is_float16(array.type):
        return array.cast(pa.float32())  # Arrow casts half floats to integers by their bits
    if pa.types.is_decimal32(array.type) or pa.types.is_decimal64(array.type):
        return array.cast(pa.decimal128(array.type.precision, array.type.scale))
    return array


def _uuid_texts(array: pa.FixedSizeBinaryArray) -> pa.Array:
    """Return UUIDs as text, such as `c56a4180-65aa-42ec-a945-5fd21dec0538`."""
    if not len(array):
        return pa.array([], pa.string())
    stored = np.frombuffer(array.buffers()[1], np.uint8).reshape(-1, len(_UUID_PLACES))[array.offset :][: len(array)]
    texts = np.full((len(array), _UUID_CHARACTERS), ord("-"), np.uint8)
    texts[:, _UUID_PLACES] = _DIGITS[stored >> 4]
    texts[:, _UUID_PLACES + 1] = _DIGITS[stored & 15]
    buffers = [array.is_valid().buffers()[1], pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.binary(_UUID_CHARACTERS), len(array), buffers).cast(pa.string())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    variable = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(variable or pa.types.is_fixed_size_binary(kind))


def _conversion(found: pa.DataType, kind: t.DataType, target: pa.DataType, path: str) -> _Convert:
    """Return the cast from an Arrow type that raises ArrowInvalid where a value would change.

    Raises:
        _MismatchError: the Arrow type says another thing.
    """
    number = pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found)
    hint, retype = "Cast it", ", or change the column type first"
    match kind:
        case t.Boolean() if pa.types.is_boolean(found):
            return _safe(target)
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt() if number:
            return _safe(target)
        case t.Float() | t.Double() if number:
            return _nearest(target)
        case t.Decimal() if pa.types.is_integer(found):
            # Arrow asks for room for every value of the integer type; only those at hand must fit.
            wide = pa.decimal128(38, target.scale) if target.scale <= 18 else pa.decimal256(76, target.scale)
            return lambda array: array.cast(wide).cast(target)
        case t.Decimal() if pa.types.is_floating(found):
            return _there_and_back(target)
        case t.Decimal() if number:
            # With more digits after the point, Arrow's cast wraps values beyond 128 bits (seen in 26).
            return _there_and_back(target) if target.scale > found.scale else _safe(target)
        case t.Char() | t.VarChar() if _is_text(found) or pa.types.is_time64(found):
            return _safe(target)
        case t.Binary() | t.VarBinary() if _is_bytes(found):
            return _safe(target)
        case t.Date() if pa.types.is_date(found):
            return _safe(target)
        case t.Date() if pa.types.is_timestamp(found) and found.tz is None:
            return _there_and_back(target)
        case t.Time() if pa.types.is_time(found):
            return _safe(target)
        case t.Time() if pa.types.is_int32(found):
            return _milliseconds_of_day  # the form that TIME has in Spark before 4.1
        case t.Timestamp() if pa.types.is_timestamp(found):
            if found.tz is None:
                return _safe(target)
            hint = "It is an instant and the column a wall clock: convert it to local time and drop the zone"
            retype = ""
        case t.LocalZonedTimestamp() if pa.types.is_timestamp(found):
            if found.tz is not None:
                return _safe(target)
            hint, retype = "It is a wall clock and the column an instant: give it a zone first", ""
    if _is_text(found) and (value := _PYTHON_VALUES.get(type(kind))):
        hint = f"Cast it (in Python: give {value})"
    raise _MismatchError(path, found, _bare(kind), hint, retype)


_PYTHON_VALUES: Final[Mapping[type[t.DataType], str]] = {
    t.Date: "datetime.date",
    t.Time: "datetime.time",
    t.Timestamp: "datetime.datetime",
    t.LocalZonedTimestamp: "datetime.datetime with a time zone",
    t.Decimal: "decimal.Decimal",
    **dict.fromkeys((t.TinyInt, t.SmallInt, t.Int, t.BigInt), "int"),
    **dict.fromkeys((t.Float, t.Double), "float"),
    t.Boolean: "bool",
}
"""What to give in dicts, where no column can be cast."""


def _safe(target: pa.DataType) -> _Convert:
    return lambda array: array.cast(target)


def _nearest(target: pa.DataType) -> _Convert:
    def convert(array: pa.Array) -> pa.Array:
        # Through text, because Arrow's own cast of decimals is often one step beside the nearest number.
        exact = array.cast(pa.string()) if pa.types.is_decimal(array.type) else array
        floats = exact.cast(target, safe=False)
        kept = pc.is_finite(floats)
        if pa.types.is_floating(array.type):
            kept = pc.or_(kept, pc.invert(pc.is_finite(array)))
        return _unless_changed(floats, kept)

    return convert


def _there_and_back(target: pa.DataType) -> _Convert:
    def convert(array: pa.Array) -> pa.Array:
        converted = array.cast(target)
        back = converted.cast(array.type, safe=False)
        same = pc.equal(back, array)
        if pa.types.is_floating(array.type):
            same = pc.or_(same, pc.and_(pc.is_nan(back), pc.is_nan(array)))
        return _unless_changed(converted, same)

    return convert


def _milliseconds_of_day(array: pa.Array) -> pa.Array:
    inside = pc.and_(pc.greater_equal(array, 0), pc.less(array, _DAY_MS))
    return _unless_changed(array.cast(pa.time32("ms")), inside)


def _unless_changed(converted: pa.Array, same: pa.BooleanArray) -> pa.Array:
    if pc.all(same).as_py() is False:
        raise pa.ArrowInvalid("a value would change")
    return converted


def _first_refused(convert: _Convert, array: pa.Array) -> int:
    """Return the index of the first value that `convert` refuses; it refuses the array as a whole."""
    start, end = 0, len(array)
    while end - start > 1:
        middle = (start + end) // 2
        try:
            convert(array.slice(start, middle - start))
        except pa.ArrowInvalid:
            end = middle
        else:
            start = middle
    return start


def _shown(value: pa.Scalar) -> str:
    try:
        text = repr(value.as_py()) if isinstance(value, pa.StringScalar | pa.BinaryScalar) else str(value)
    except UnicodeDecodeError:
        text = repr(value.as_buffer().to_pybytes())
    except (ValueError, OverflowError):
        text = str(value.cast(pa.string()))  # a date or time that Python does not have
    return text if len(text) <= _VALUE_TEXT_MAX else text[:_VALUE_TEXT_MAX] + "..."


def _bare(kind: t.DataType) -> str:
    return str(kind.with_nullable(True))


# nested values


def _convert_list(array: pa.Array, element: t.DataType, kind: t.DataType, path: str, fills: bool) -> pa.Array:
    if not isinstance(array.type, LISTS):
        raise _MismatchError(path, array.type, _bare(kind))
    offsets, values = _inside_lists(array)
    converted = _convert_inside(values, element, f"{path}.element", "an element", offsets, fills)
    return pa.ListArray.from_arrays(pa.array(offsets), converted, type=arrow_type(kind), mask=_null_mask(array))


def _convert_map(
    array: pa.Array, key: t.DataType, value: t.DataType, kind: t.DataType, path: str, fills: bool
) -> pa.Array:
    if isinstance(array.type, LISTS) and _is_entry(array.type.value_type):
        # Systems without maps hand them out as lists of (key, value).
        offsets, entries = _inside_lists(array)
        keys, values = entries.flatten()
    elif pa.types.is_map(array.type):
        offsets, keys, values = _inside_maps(array)
    else:
        raise _MismatchError(path, array.type, _bare(kind))
    keys = _convert_inside(keys, key.with_nullable(False), f"{path}.key", "a map key", offsets, fills)
    values = _convert_inside(values, value, f"{path}.value", "a map value", offsets, fills)
    mask = _null_mask(array)
    # MapArray takes the nulls of its maps in the offsets: a null offset is a null map.
    starts = pa.array(offsets, mask=None if mask is None else np.append(np.asarray(mask), False))
    return pa.MapArray.from_arrays(starts, keys, values, type=arrow_type(kind))


def _is_entry(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and [field.name for field in kind] == ["key", "value"]


def _inside_lists(array: pa.Array) -> tuple[Any, pa.Array]:
    """Return where each list begins and ends, numpy int32[n + 1] from 0, and the elements of those not null."""
    # By lengths, and not by a cast to list: Arrow's cast from list views gives wrong lists (seen in 19 and 26).
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int32), array.flatten()


def _inside_maps(array: pa.MapArray) -> tuple[Any, pa.Array, pa.Array]:
    """Return where each map begins and ends, numpy int32[n + 1] from 0, and all keys and values in between."""
    offsets = np.asarray(array.offsets)
    if array.null_count and np.diff(offsets)[np.asarray(array.is_null())].any():
        # Null maps lie over entries that nobody sees; taking every map leaves them behind.
        array = array.take(pa.array(np.arange(len(array))))
        offsets = np.asarray(array.offsets)
    start, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    return (offsets - start).astype(np.int32), array.keys.slice(start, count), array.items.slice(start, count)


def _convert_inside(values: pa.Array, kind: t.DataType, path: str, role: str, offsets: Any, fills: bool) -> pa.Array:
    """Convert what lists hold; a misfit is reported at the index of its list."""
    try:
        converted = _convert(values, kind, path, fills)
        if converted.null_count and not kind.nullable:
            index = pc.index(pc.is_null(converted), True).as_py()
            raise _MisfitError(index, f"has null for {role}, which is NOT NULL")
    except _MisfitError as error:
        row = int(np.searchsorted(offsets, error.index, side="right")) - 1
        raise _MisfitError(row, error.why, error.hint, error.option, error.retype) from None
    return converted


def _convert_row(array: pa.Array, fields: Sequence[t.Field], kind: t.DataType, path: str, fills: bool) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _MismatchError(path, array.type, _bare(kind))
    found = [field.name for field in array.type]
    lacking = [field.name for field in fields if field.name not in found] if fills else []
    if Counter([*found, *lacking]) != Counter(field.name for field in fields):
        raise _MismatchError(path, array.type, _bare(kind), "The fields inside must have the same names")
    mask = _null_mask(array)
    parts = array.flatten()  # unlike field(), this puts the nulls of the rows into their fields
    children = []
    for field in fields:
        inner = f"{path}.{field.name}"
        given = pa.nulls(len(array)) if field.name in lacking else parts[found.index(field.name)]
        child = _convert(given, field.type, inner, fills)
        if child.null_count and not field.type.nullable:
            seen = pc.is_null(child) if mask is None else pc.and_not(pc.is_null(child), mask)
            index = pc.index(seen, True).as_py()
            if index >= 0:
                raise _MisfitError(index, f"has null for its field '{field.name}', which is NOT NULL")
        children.append(child)
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(kind)), mask=mask)


def _null_mask(array: pa.Array) -> pa.BooleanArray | None:
    return array.is_null() if array.null_count else None
