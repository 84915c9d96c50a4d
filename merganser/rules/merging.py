"""Which options of merge engines go together: sequence fields, sequence groups, aggregate functions.

The rules are checked when a table is created or altered, before any row could meet them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from merganser.errors import InvalidInputError
from merganser.options import write as w
from merganser.options.option import Options
from merganser.options.registry import did_you_mean, sequence_groups, split_column_key
from merganser.rules.facts import listed, refuse, type_of
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema
from merganser.values import dataclass

LAST_NON_NULL: Final = "last_non_null_value"
"""Function of a column that has none."""

Vouched: TypeAlias = tuple[tuple[str, ...], str]
"""Ordering columns of a sequence group, and a NOT NULL column that it protects."""

_INTEGERS: Final = (t.TinyInt, t.SmallInt, t.Int, t.BigInt)
_NUMERIC: Final = (*_INTEGERS, t.Float, t.Double, t.Decimal)


@dataclass(frozen=True, slots=True)
class FunctionRule:
    """The column types of an aggregate function: `accepts(type)`, and the phrase for them in messages."""

    accepts: Callable[[t.DataType], bool]
    wanted: str


def vouched(schema: TableSchema, options: Options) -> tuple[Vouched, ...]:
    """Return the sequence groups with a NOT NULL column that a row does not set if the ordering columns are null.

    Such a row must not be written: as the first one of its key, it would leave a null there.
    """
    if options.get(w.MERGE_ENGINE) != "partial-update":
        return ()
    needed = {field.name for field in schema.fields if not field.type.nullable}
    groups = (
        (ordering, [name for name in protected if name in needed]) for ordering, protected in sequence_groups(options)
    )
    return tuple((ordering, names[0]) for ordering, names in groups if names and needed.isdisjoint(ordering))


def _of(*kinds: type[t.DataType]) -> Callable[[t.DataType], bool]:
    return lambda kind: isinstance(kind, kinds)


def _is_map_of_rows(kind: t.DataType) -> bool:
    return isinstance(kind, t.Map) and isinstance(kind.value, t.Row) and len(kind.value.fields) >= 2


def _is_array_of_rows(kind: t.DataType) -> bool:
    return isinstance(kind, t.Array) and isinstance(kind.element, t.Row)


_ANY: Final = FunctionRule(_of(t.DataType), "any type")
_NUMBERS: Final = FunctionRule(_of(*_NUMERIC), "a number")
_ORDERED: Final = FunctionRule(lambda kind: not t.is_nested(kind), "a type with an order, not ARRAY, MAP or ROW")
_BOOLEAN: Final = FunctionRule(_of(t.Boolean), "BOOLEAN")
_BYTES: Final = FunctionRule(_of(t.VarBinary), "VARBINARY or BYTES")
_ROWS: Final = FunctionRule(_is_array_of_rows, "ARRAY<ROW<...>>")

FUNCTIONS: Final[dict[str, FunctionRule]] = {
    "sum": _NUMBERS,
    "product": _NUMBERS,
    "count": FunctionRule(_of(t.Int, t.BigInt), "INT or BIGINT"),
    "max": _ORDERED,
    "min": _ORDERED,
    "last_value": _ANY,
    LAST_NON_NULL: _ANY,
    "first_value": _ANY,
    "first_non_null_value": _ANY,
    "first_not_null_value": _ANY,
    "bool_and": _BOOLEAN,
    "bool_or": _BOOLEAN,
    "listagg": FunctionRule(lambda kind: isinstance(kind, t.VarChar) and kind.length == t.LENGTH_MAX, "STRING"),
    "collect": FunctionRule(_of(t.Array), "ARRAY"),
    "merge_map": FunctionRule(_of(t.Map), "MAP"),
    "merge_map_with_keytime": FunctionRule(_is_map_of_rows, "MAP with ROW values of two fields or more"),
    "nested_update": _ROWS,
    "nested_partial_update": _ROWS,
    "rbm32": _BYTES,
    "rbm64": _BYTES,
    "hll_sketch": _BYTES,
    "theta_sketch": _BYTES,
    "primary-key": _ANY,
}
"""Aggregate functions of the format, with the columns that each takes."""


def check_merge_rules(table: TableSchema, *, what: str) -> None:
    """Check options of merge engines against the columns and against each other.

    Raises:
        InvalidInputError: begins with `what`; names the option, the column and what would be right.
    """
    options = table.options
    engine = options.get(w.MERGE_ENGINE)
    _check_sequence_fields(table, engine, what)
    _check_snapshot_ordering(table, what)
    _check_rowkind_field(table, what)
    if engine in ("partial-update", "aggregation"):
        _check_partitions_are_kept(table, what)
    if engine == "first-row":
        _check_first_row(options, what)
    elif engine == "partial-update":
        _check_partial_update(table, what)
    elif engine == "aggregation":
        _check_aggregation(table, what)


def column_functions(table: TableSchema) -> Iterator[tuple[str, str | None]]:
    """Yield (column, its own aggregate function or None) of each column that a merge engine merges."""
    for field in table.fields:
        if field.name not in table.placing_columns:
            yield field.name, table.options.get(w.AGGREGATE_FUNCTION.of(field.name))


def depending_on_merges(table: TableSchema) -> str | None:
    """Return what, in the row of a key, can depend on which of its versions were merged first; None: nothing can.

    A flush or a compaction makes one version of several, and this one cannot be taken apart again. Docs: `order.md`.
    """
    options = table.options
    engine, ordering = options.get(w.MERGE_ENGINE), options.get(w.SEQUENCE_FIELD)
    default = options.get(w.DEFAULT_AGGREGATE_FUNCTION)
    if engine == "partial-update":
        if ordering:
            return "every column under 'sequence.field'"
        groups = sequence_groups(options)
        protected = {name for _, columns in groups for name in columns} - {
            name for names, _ in groups for name in names
        }
        functions = {name: own or default for name, own in column_functions(table) if name in protected}
    elif engine == "aggregation":
        functions = {name: own or default or LAST_NON_NULL for name, own in column_functions(table)}
        functions = {name: function for name, function in functions.items() if name not in ordering}
    else:
        return None
    late = bool(ordering) or engine == "partial-update"
    for column, function in functions.items():
        if function is not None and _depends_on_merges(table, column, function, late=late):
            return f"column '{column}' with the function '{function}'"
    return None


def _depends_on_merges(table: TableSchema, column: str, function: str, *, late: bool) -> bool:
    """Return whether a function of a column depends on what was merged first.

    Args:
        late: rows can be older by their columns than rows that came before them.
    """
    options = table.options
    ignoring = options.get(w.IGNORE_RETRACT.of(column))
    match function:
        case "count" | "max" | "min" | "bool_and" | "bool_or":
            return False
        case "sum":
            return not isinstance(type_of(table, column), _INTEGERS)
        case "last_value":
            return late and ignoring
        case "product" | "merge_map_with_keytime":
            return True
        case "collect":
            return late or not (ignoring or options.get(w.DISTINCT.of(column)))
        case "nested_update" if options.is_set(w.COUNT_LIMIT.of(column)):
            return True
    return late


def _check_sequence_fields(table: TableSchema, engine: str, what: str) -> None:
    columns = table.options.get(w.SEQUENCE_FIELD)
    if not columns:
        return
    names = [field.name for field in table.fields]
    for column in columns:
        if column not in names:
            refuse(
                what,
                f"sequence field '{column}' is not found in the table. {did_you_mean(column, names)}",
                column=column,
            )
        if columns.count(column) > 1:
            refuse(what, f"sequence field '{column}' is repeated in 'sequence.field'. Name it once.", column=column)
        kind = type_of(table, column)
        if t.is_nested(kind):
            refuse(what, f"sequence field '{column}' has the type {kind}, whose values have no order.", column=column)
        if engine == "aggregation" and table.options.get(w.AGGREGATE_FUNCTION.of(column)) is not None:
            refuse(
                what,
                f"sequence field '{column}' has an aggregate function. Its value is always the newest: remove "
                f"'{w.AGGREGATE_FUNCTION.of(column).key}'.",
                column=column,
            )
    if table.cross_partition:
        refuse(
            what,
            f"'sequence.field' cannot be used when a key may move between partitions: the primary key "
            f"({listed(table.primary_keys)}) does not include every partition column ({listed(table.partition_keys)}). "
            "Add them to the primary key.",
        )


def _check_snapshot_ordering(table: TableSchema, what: str) -> None:
    options = table.options
    if not options.get(w.SEQUENCE_SNAPSHOT_ORDERING):
        return
    if not table.primary_keys:
        refuse(what, "'sequence.snapshot-ordering' needs a primary key.")
    if options.get(w.SEQUENCE_FIELD):
        refuse(what, "'sequence.snapshot-ordering' and 'sequence.field' exclude each other. Remove one.")
    if not options.get(w.WRITE_ONLY):
        refuse(what, "'sequence.snapshot-ordering' needs 'write-only' = 'true'.")


def _check_rowkind_field(table: TableSchema, what: str) -> None:
    column = table.options.get(w.ROWKIND_FIELD)
    if column is None:
        return
    names = [field.name for field in table.fields]
    if column not in names:
        refuse(
            what, f"row kind field '{column}' is not found in the table. {did_you_mean(column, names)}", column=column
        )
    kind = type_of(table, column)
    if not isinstance(kind, t.VarChar | t.Char):
        refuse(what, f"row kind field '{column}' has the type {kind}; only STRING can hold a row kind.", column=column)


def _check_first_row(options: Options, what: str) -> None:
    producer = options.get(w.CHANGELOG_PRODUCER)
    if producer not in ("none", "lookup"):
        refuse(
            what, f"merge engine first-row does not go with 'changelog-producer' = '{producer}'. Use none or lookup."
        )
    if options.get(w.SEQUENCE_FIELD):
        refuse(what, "merge engine first-row does not go with 'sequence.field': the first row to arrive is kept.")
    if options.get(w.DELETION_VECTORS) and not options.get(w.PK_CLUSTERING_OVERRIDE):
        refuse(
            what,
            "merge engine first-row does not go with 'deletion-vectors.enabled': the first row of a key stays, so "
            "there is no replaced row to mark. Leave the option out.",
        )


def _check_partitions_are_kept(table: TableSchema, what: str) -> None:
    """Refuse to merge the columns that say in which partition a row lies."""
    why = "is a partition column. Its value says where a row lies and is not merged: leave it out"
    grouped = {name for _, protected in sequence_groups(table.options) for name in protected}
    for column in table.partition_keys:
        own = w.AGGREGATE_FUNCTION.of(column)
        if column not in table.primary_keys and table.options.is_set(own):
            refuse(what, f"column '{column}' of '{own.key}' {why}.", column=column)
        if column in grouped:
            refuse(what, f"column '{column}' of a sequence group {why}.", column=column)


def _check_partial_update(table: TableSchema, what: str) -> None:
    options = table.options
    groups = sequence_groups(options)
    grouped = _check_groups(table, groups, what)
    ordering = {name for columns, _ in groups for name in columns}
    remove_all = options.get(w.PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE)
    remove_by_group = options.get(w.PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP)
    if remove_all and groups:
        refuse(
            what,
            "'partial-update.remove-record-on-delete' conflicts with sequence groups. "
            "Use 'partial-update.remove-record-on-sequence-group' instead.",
        )
    if options.get(w.IGNORE_DELETE):
        for on, key in (
            (remove_all, w.PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE.key),
            (bool(remove_by_group), w.PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP.key),
        ):
            if on:
                refuse(what, f"'{key}' and 'ignore-delete' conflict: one acts on deletes, the other drops them.")
    for column in remove_by_group:
        if column not in ordering:
            refuse(
                what,
                f"column '{column}' of 'partial-update.remove-record-on-sequence-group' must be part of a sequence "
                f"group as an ordering column. {did_you_mean(column, sorted(ordering))}",
                column=column,
            )
    default = options.get(w.DEFAULT_AGGREGATE_FUNCTION)
    for column, own in column_functions(table):
        function = own or default
        if column in ordering or function is None:
            continue
        if column not in grouped and function != LAST_NON_NULL:
            refuse(
                what,
                f"column '{column}' has aggregate function '{function}' but is in no sequence group. With merge engine "
                f"partial-update, add it to one, such as 'fields.<ordering column>.sequence-group' = '{column}'.",
                column=column,
            )
        _check_function(table, column, function, what)


def _check_groups(
    table: TableSchema, groups: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...], what: str
) -> set[str]:
    names = [field.name for field in table.fields]
    home: dict[str, str] = {}
    for ordering, protected in groups:
        key = w.SEQUENCE_GROUP.of(",".join(ordering)).key
        for column in (*ordering, *protected):
            if column not in names:
                refuse(
                    what, f"column '{column}' of '{key}' is not found in the table. {did_you_mean(column, names)}",
                    column=column,
                )  # fmt: skip
            if column in table.primary_keys:
                refuse(what, f"primary key column '{column}' cannot be in the sequence group '{key}'.", column=column)
        for column in protected:
            if column in home:
                groups_of = f"'{home[column]}', '{key}'"
                where = f"repeated in '{key}'" if home[column] == key else f"in multiple groups: {groups_of}"
                refuse(what, f"column '{column}' is {where}. A column belongs to one sequence group.", column=column)
            home[column] = key
    return set(home)


def _check_aggregation(table: TableSchema, what: str) -> None:
    options = table.options
    sequence = options.get(w.SEQUENCE_FIELD)
    default = options.get(w.DEFAULT_AGGREGATE_FUNCTION)
    for column, own in column_functions(table):
        function = own or default
        if column not in sequence and function is not None:
            _check_function(table, column, function, what)
    if options.get(w.AGGREGATION_REMOVE_RECORD_ON_DELETE):
        for key in options:
            split = split_column_key(key)
            if split and split[1] == w.IGNORE_RETRACT.suffix and options.get(w.IGNORE_RETRACT.of(split[0])):
                refuse(
                    what,
                    f"'aggregation.remove-record-on-delete' and '{key}' conflict: one acts on deletes, the other "
                    "ignores them.",
                    column=split[0],
                )


def _check_function(table: TableSchema, column: str, function: str, what: str) -> None:
    rule = FUNCTIONS.get(function)
    if rule is None:
        refuse(
            what,
            f"column '{column}' uses aggregate function '{function}', which is unsupported or misspelled. "
            f"{did_you_mean(function, list(FUNCTIONS))}",
            column=column,
        )
    kind = type_of(table, column)
    if not rule.accepts(kind):
        refuse(
            what,
            f"column '{column}' has the type {kind}, and aggregate function '{function}' takes {rule.wanted}.",
            column=column,
        )
    _check_function_options(table.options, column, function, kind, what)


def _check_function_options(options: Options, column: str, function: str, kind: t.DataType, what: str) -> None:
    nested_key = options.get(w.NESTED_KEY.of(column))
    if function == "nested_partial_update" and not nested_key:
        refuse(what, f"aggregate function '{function}' needs '{w.NESTED_KEY.of(column).key}'.", column=column)
    if function in ("nested_update", "nested_partial_update") and not nested_key:
        for option in (w.NESTED_SEQUENCE_FIELD.of(column), w.NESTED_KEY_NULL_STRATEGY.of(column)):
            if options.is_set(option):
                refuse(what, f"'{option.key}' needs '{w.NESTED_KEY.of(column).key}'.", column=column)
    match kind:
        case t.Array(element=t.Row(fields=fields)) if function.startswith("nested"):
            wanted = (*nested_key, *options.get(w.NESTED_SEQUENCE_FIELD.of(column)))
        case t.Map(value=t.Row(fields=fields)) if function == "merge_map_with_keytime":
            field = options.get(w.TS_FIELD.of(column))
            wanted = () if field is None else (field,)
        case _:
            return
    names = [field.name for field in fields]
    for name in wanted:
        if name not in names:
            raise InvalidInputError(
                f"{what}: field '{name}' is not found in column '{column}'. {did_you_mean(name, names)}", column=column
            )
