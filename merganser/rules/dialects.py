"""Options in the words of others -> options of the format, when a table is created.

* Engine `versioned`: a row replaces the stored one if its version is not older. It is stored as deduplicate with
  that column as `sequence.field` and `ignore-delete`, which is the same rule, so other engines read it rightly;
  `merganser.merge-engine` remembers what was asked for.
* Producer `per-record`: a writer publishes what each of its rows changed. Other engines read that like the producer
  `input`, so it is stored as this; `merganser.changelog-producer` remembers what was asked for. In a first-row table
  each key changes once, which is what the producer `lookup` publishes, so that is stored.
* Fluss: `table.merge-engine`, `table.merge-engine.versioned.ver-column`, `table.delete.behavior`,
  `fields.<column>.agg`, `fields.<column>.listagg.delimiter`, and its names of aggregate functions.

Format: section "Fluss engines".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import Options
from merganser.options.registry import did_you_mean
from merganser.rules.compacting import PER_RECORD, keeps_order_of_merges
from merganser.rules.facts import refuse, type_of
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema

_FLUSS_ENGINE: Final = "table.merge-engine"
_FLUSS_DELETES: Final = "table.delete.behavior"
_VERSION_COLUMNS: Final = (
    "versioned.ver-column",
    "merge-engine.versioned.ver-column",
    "table.merge-engine.versioned.ver-column",
)
_FUNCTIONS: Final = {
    "last_value_ignore_nulls": "last_non_null_value",
    "first_value_ignore_nulls": "first_non_null_value",
    "string_agg": "listagg",
}
_AGG: Final = ".agg"
_DELIMITER: Final = ".listagg.delimiter"


def translated(options: Mapping[str, Any], *, what: str) -> dict[str, Any]:
    """Return options of a new table in the words of the format.

    Raises:
        InvalidInputError: begins with `what`; a pair of options that exclude each other.
    """
    found = dict(options)
    translate_producer(found)
    engine = found.pop(_FLUSS_ENGINE, None)
    if engine is not None:
        if found.get(w.MERGE_ENGINE.key, engine) != engine:
            refuse(what, f"'{_FLUSS_ENGINE}' and '{w.MERGE_ENGINE.key}' are both set. Keep one.", option=_FLUSS_ENGINE)
        engine = str(engine).strip().lower().replace("_", "-")
        found[w.MERGE_ENGINE.key] = engine
    _translate_functions(found)
    versioned = str(found.get(w.MERGE_ENGINE.key, "")).strip().lower() == "versioned"
    if versioned:
        _translate_versioned(found, what)
    deletes = found.pop(_FLUSS_DELETES, None)
    if engine is not None or deletes is not None or versioned:
        _translate_deletes(found, engine, deletes, versioned, what)
    if w.ASKED_PRODUCER.key in found and str(found.get(w.MERGE_ENGINE.key)).replace("_", "-") == "first-row":
        found[w.CHANGELOG_PRODUCER.key] = "lookup"
    return found


def translate_producer(found: dict[str, Any]) -> None:
    """Replace the changelog producer per-record by what is stored."""
    if str(found.get(w.CHANGELOG_PRODUCER.key, "")).strip().lower() == PER_RECORD:
        found[w.CHANGELOG_PRODUCER.key] = "input"
        found[w.ASKED_PRODUCER.key] = PER_RECORD


def with_whole_rows(table: TableSchema) -> TableSchema:
    """Return a new table, with `force-lookup` if it publishes each record and no compaction may change its rows."""
    options = table.options
    decided = options.is_set(u.FORCE_LOOKUP) or options.get(w.DELETION_VECTORS)
    if decided or not keeps_order_of_merges(table):
        return table
    return replace(table, options=options.merged({u.FORCE_LOOKUP.key: "true"}))


def keeps_other_columns(options: Options) -> bool:
    """Return whether a row that has some columns changes these and no others, as in Fluss.

    Each row then depends on the one before it, which tables of producer per-record look up anyway. Engines that merge
    columns have rules of their own.
    """
    return options.get(w.ASKED_PRODUCER) == PER_RECORD and options.get(w.MERGE_ENGINE) in ("deduplicate", "first-row")


def check_has_key(options: Mapping[str, Any], key: Sequence[str], *, what: str) -> None:
    """Refuse an engine in Fluss's words on a table without a key, as Fluss does; the format's own is ignored there.

    Raises:
        InvalidInputError: begins with `what`.
    """
    if _FLUSS_ENGINE in options and not key:
        refuse(what, f"'{_FLUSS_ENGINE}' needs a primary key. Define one, or remove it.", option=_FLUSS_ENGINE)


def _translate_functions(found: dict[str, Any]) -> None:
    for key in list(found):
        if not key.startswith("fields."):
            continue
        if key.endswith(_DELIMITER):
            found[w.LIST_AGG_DELIMITER.of(key[len("fields.") : -len(_DELIMITER)]).key] = found.pop(key)
        elif key.endswith(_AGG):
            name = str(found.pop(key)).strip().lower()
            found[w.AGGREGATE_FUNCTION.of(key[len("fields.") : -len(_AGG)]).key] = _FUNCTIONS.get(name, name)


def _translate_versioned(found: dict[str, Any], what: str) -> None:
    given = [key for key in _VERSION_COLUMNS if key in found]
    if len(given) != 1:
        refuse(
            what,
            f"merge engine versioned needs one version column, and {len(given)} are given. Set "
            f"'{_VERSION_COLUMNS[1]}' to the column whose larger value is the newer row.",
            option=_VERSION_COLUMNS[1],
        )
    column = str(found.pop(given[0])).strip()
    if w.SEQUENCE_FIELD.key in found:
        refuse(what, "merge engine versioned orders rows by its version column. Remove 'sequence.field'.")
    found[w.MERGE_ENGINE.key] = "deduplicate"
    found[w.SEQUENCE_FIELD.key] = column
    found[w.ASKED_ENGINE.key] = "versioned"


def _translate_deletes(found: dict[str, Any], engine: str | None, deletes: Any, versioned: bool, what: str) -> None:
    behaviour = None if deletes is None else str(deletes).strip().lower()
    if behaviour not in (None, "allow", "ignore", "disable"):
        refuse(
            what,
            f"'{_FLUSS_DELETES}' is '{deletes}'. {did_you_mean(str(deletes), ['allow', 'ignore', 'disable'])}",
            option=_FLUSS_DELETES,
        )
    kind = "versioned" if versioned else engine
    if behaviour == "allow" and kind in ("versioned", "first-row"):
        refuse(
            what,
            f"'{_FLUSS_DELETES}' = 'allow' does not go with merge engine {kind}, which takes no row back.",
            option=_FLUSS_DELETES,
        )
    if behaviour == "allow" and kind == "aggregation":
        found[w.AGGREGATION_REMOVE_RECORD_ON_DELETE.key] = "true"
    elif behaviour == "disable":
        found[w.DELETES.key] = "refuse"
    elif behaviour == "ignore" or (behaviour is None and kind in ("versioned", "first-row", "aggregation")):
        found.setdefault(w.IGNORE_DELETE.key, "true")


def check_versioned(table: TableSchema, *, what: str) -> None:
    """Check the version column of a table of engine versioned.

    Raises:
        InvalidInputError: its values are no versions, or there is no key.
    """
    options = table.options
    if options.get(w.ASKED_ENGINE) != "versioned":
        return
    if not table.primary_keys:
        refuse(what, "merge engine versioned needs a primary key. Define one, or remove the engine.")
    for column in options.get(w.SEQUENCE_FIELD):
        kind = type_of(table, column)
        if not isinstance(kind, t.Int | t.BigInt | t.Timestamp | t.LocalZonedTimestamp):
            refuse(
                what,
                f"version column '{column}' has the type {kind}; versions are INT, BIGINT or timestamps.",
                column=column,
            )
