"""Features of the format that this version of merganser does not have.

A gap is refused before anything is written, because rows written wrongly cannot be told from right ones later. Work
that adds a feature removes its gap here and changes the state of its options in `options`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from merganser.errors import UnsupportedError
from merganser.options import read as r
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import Option
from merganser.rules.checks import check_file_options
from merganser.schema.table_schema import TableSchema
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that a table may ask for and this version of merganser does not do.

    Attributes:
        feature: completes "this version does not write tables with ...".
        options: the options that ask for it. They say so by their `state` or in `refused`.
        applies: whether a table asks for it; a table whose options have their defaults never does.
        advice: what to do instead.
    """

    feature: str
    options: tuple[Option[Any], ...]
    applies: Callable[[TableSchema], bool]
    advice: str


def _gap(feature: str, option: Option[Any], advice: str) -> Gap:
    """Return the gap of an option that this version honours at its default only."""
    return Gap(feature, (option,), _set(option), advice)


def _set(*options: Option[Any]) -> Callable[[TableSchema], bool]:
    return lambda table: any(table.options.get(option) != option.default for option in options)


def _keyed(test: Callable[[TableSchema], bool]) -> Callable[[TableSchema], bool]:
    return lambda table: bool(table.primary_keys) and test(table)


def _format_other_than(option: Option[str], *known: str) -> Callable[[TableSchema], bool]:
    return lambda table: table.options.get(option) not in known


def _keeps_moved_keys(table: TableSchema) -> bool:
    """Whether the delete that removes a moved key from its old partition would be dropped, so that both rows stay."""
    options = table.options
    moves = options.get(w.BUCKET) == -1 and table.cross_partition
    return moves and options.get(w.MERGE_ENGINE) == "deduplicate" and options.get(w.IGNORE_DELETE)


def _old_counting(table: TableSchema) -> bool:
    """Whether it counts equal rows in the way of releases before the format had a version: files without columns."""
    return table.options.get(w.WRITE_MODE) == "change-log" and not table.primary_keys


_ELSEWHERE: Final = "Use another engine for this table."

WRITE_GAPS: Final = (
    _gap("'type' other than 'table'", w.TYPE, _ELSEWHERE),
    _gap("'sequence.snapshot-ordering'", w.SEQUENCE_SNAPSHOT_ORDERING, _ELSEWHERE),
    _gap("'row-tracking.enabled'", w.ROW_TRACKING, _ELSEWHERE),
    _gap("'data-evolution.enabled'", w.DATA_EVOLUTION, _ELSEWHERE),
    _gap("'pk-clustering-override'", w.PK_CLUSTERING_OVERRIDE, _ELSEWHERE),
    _gap("'data-file.external-paths'", w.DATA_FILE_EXTERNAL_PATHS, _ELSEWHERE),
    Gap("'write-mode' = 'change-log' as older releases stored it", (w.WRITE_MODE,), _old_counting, _ELSEWHERE),
    _gap("large object columns ('blob-field')", w.BLOB_FIELD, _ELSEWHERE),
    Gap(
        "'file.format' other than parquet, orc and avro",
        (w.FILE_FORMAT,),
        _format_other_than(w.FILE_FORMAT, "parquet", "orc", "avro"),
        _ELSEWHERE,
    ),
    _gap("'manifest.format' other than avro", w.MANIFEST_FORMAT, _ELSEWHERE),
    Gap(
        "'ignore-delete', if a key may move to another partition: its old row would stay",
        (w.IGNORE_DELETE,),
        _keeps_moved_keys,
        "Leave 'ignore-delete' out, or make the partition columns part of the primary key.",
    ),
)
"""Features that writes do not have yet. They are checked in this order; the error names the first that applies."""

READ_GAPS: Final = (
    _gap("'type' other than 'table'", w.TYPE, _ELSEWHERE),
    _gap("'pk-clustering-override'", w.PK_CLUSTERING_OVERRIDE, _ELSEWHERE),
    Gap("'write-mode' = 'change-log' as older releases stored it", (w.WRITE_MODE,), _old_counting, _ELSEWHERE),
    _gap("'manifest.format' other than avro", w.MANIFEST_FORMAT, _ELSEWHERE),
    _gap("'postpone.merge-on-read'", r.POSTPONE_MERGE_ON_READ, "Compact the table: then the rows that wait are read."),
    _gap("'scan.fallback-branch'", r.SCAN_FALLBACK_BRANCH, _ELSEWHERE),
    _gap("'scan.primary-branch'", r.SCAN_PRIMARY_BRANCH, _ELSEWHERE),
)
"""Features that reads do not have yet, whatever the files are."""

_COMPACT: Final = "Compact the table fully with another engine, then it can be read."
MERGE_READ_GAPS: Final = (
    _gap("'data-evolution.enabled'", w.DATA_EVOLUTION, _ELSEWHERE),
    Gap(
        "'sequence.snapshot-ordering'",
        (w.SEQUENCE_SNAPSHOT_ORDERING,),
        _keyed(_set(w.SEQUENCE_SNAPSHOT_ORDERING)),
        _COMPACT,
    ),
)
"""Features that reads do not have yet if rows of several files have to be merged."""

EXPIRY_GAPS: Final = (
    Gap(
        "'partition.expiration-strategy' = 'custom', a Java class",
        (u.PARTITION_EXPIRATION_STRATEGY,),
        lambda table: table.options.get(u.PARTITION_EXPIRATION_STRATEGY) == "custom",
        "Use 'values-time' or 'update-time', or drop_partitions.",
    ),
)
"""Features that the expiry of partitions does not have."""


_ASKED_OF_NEW_TABLES: Final = (
    ("write tables with", WRITE_GAPS),
    ("read tables with", (*READ_GAPS, *MERGE_READ_GAPS)),
    ("expire partitions by", EXPIRY_GAPS),
)


def unsupported_for_writing(table: TableSchema) -> tuple[Gap, ...]:
    """Return what the table asks of a writer that this version does not do; empty when it can be written."""
    return tuple(gap for gap in WRITE_GAPS if gap.applies(table))


def unsupported_for_reading(table: TableSchema, *, merge: bool) -> tuple[Gap, ...]:
    """Return what the table asks of a reader that this version does not do; empty when it can be read.

    Args:
        table: columns, keys and options.
        merge: whether rows of several files have to be merged to read it.
    """
    return tuple(gap for gap in (*READ_GAPS, *(MERGE_READ_GAPS if merge else ())) if gap.applies(table))


def check_can_keep(table: TableSchema, before: TableSchema | None = None, *, what: str) -> None:
    """Refuse a new schema that this version could not write, read and keep in shape.

    Args:
        before: the schema that it follows; what that asks for already is no reason.
        what: beginning of the message, such as "cannot create 'db.orders'".

    Raises:
        UnsupportedError: names the option; nothing was changed.
    """
    for does, gaps in _ASKED_OF_NEW_TABLES:
        asked = [gap for gap in gaps if gap.applies(table) and not (before is not None and gap.applies(before))]
        if asked:
            raise UnsupportedError(
                f"{what}: this version of merganser does not {does} {asked[0].feature}. Nothing was changed. "
                f"{asked[0].advice}",
                option=asked[0].options[0].key,
                features=[gap.feature for gap in asked],
            )


def check_can_write(table: TableSchema, *, name: str) -> None:
    """Refuse a table that this version cannot write rightly.

    Raises:
        UnsupportedError: names the option; nothing was written.
        InvalidInputError: an option that says how files are named and written has no meaning; nothing was written.
    """
    if gaps := unsupported_for_writing(table):
        raise UnsupportedError(
            f"cannot write to '{name}': this version of merganser does not write tables with {gaps[0].feature}. "
            f"Nothing was written. {gaps[0].advice}",
            table=name,
            features=[gap.feature for gap in gaps],
        )
    check_file_options(table.options, what=f"cannot write to '{name}'")


def check_can_read(table: TableSchema, *, name: str, merge: bool) -> None:
    """Refuse a table that this version cannot read rightly.

    Raises:
        UnsupportedError: names the option.
    """
    if gaps := unsupported_for_reading(table, merge=merge):
        reason = " whose files have to be merged" if gaps[0] in MERGE_READ_GAPS else ""
        raise UnsupportedError(
            f"cannot read '{name}': this version of merganser does not read tables with {gaps[0].feature}{reason}. "
            f"{gaps[0].advice}",
            table=name,
            features=[gap.feature for gap in gaps],
        )


def check_can_expire_partitions(table: TableSchema, *, name: str) -> None:
    """Refuse a table whose partitions this version cannot tell the age of.

    Raises:
        UnsupportedError: names the option; nothing was changed.
    """
    for gap in EXPIRY_GAPS:
        if gap.applies(table):
            raise UnsupportedError(
                f"cannot expire partitions of '{name}': this version of merganser does not expire by {gap.feature}. "
                f"Nothing was changed. {gap.advice}",
                table=name,
                features=[gap.feature],
            )
