"""The tables that change records come from: one number per record, and the names behind the numbers.

The names of a batch are few, so what follows may look at each of them; records are looked at as columns only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.cdc import debezium, row_records
from merganser.cdc.batch import Batch, Names
from merganser.cdc.options import cdc_options
from merganser.parsing.cells import Cells, utf8
from merganser.parsing.json_scan import TEXT, Ints
from merganser.values import dataclass

_FORMATS: Final[Mapping[str, Callable[[Batch], Names]]] = {
    "debezium-json": debezium.source_names,
    "debezium-json-schema": debezium.source_names,
    "debezium-flat": debezium.flat_names,
    "canal-json": row_records.maxwell_names,
    "maxwell-json": row_records.maxwell_names,
    "ogg-json": row_records.golden_gate_names,
}
_BETWEEN: Final = "\x00"
"""No database has this character in a name."""


@dataclass(frozen=True, slots=True)
class Source:
    """The name of a table where changes come from; None for what is not said. A name without a table names none."""

    database: str | None
    schema: str | None
    table: str | None

    def __str__(self) -> str:
        return ".".join(part for part in (self.database, self.schema, self.table) if part is not None)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where n records come from.

    Attributes:
        of: int64[n], positions in `names`.
        names: each once.
    """

    of: Ints
    names: tuple[Source, ...]


def sources_of(records: pa.Array, format_: str, options: Mapping[str, Any]) -> Sources:
    """Return the tables that change records come from.

    Args:
        records: string[n] or binary[n]; null is a record without a value.
        format_: their format.
        options: what `cdc_options` takes; the placeholder and other rules of values do not count here.

    Raises:
        InvalidInputError: an option has no meaning.
    """
    chosen = cdc_options(format_, options, (), ())
    texts = utf8(records)[0].fill_null("")
    find = _FORMATS.get(chosen.format)
    if find is None:
        return Sources(np.zeros(len(records), np.int64), (Source(None, None, None),))
    names = find(Batch(texts, None, ("db", "schema", "table"), (), chosen, np.asarray(records.is_null())))
    return _numbered(*(_said(cells) for cells in (names.database, names.schema, names.table)))


def named_sources(names: pa.Array) -> Sources:
    """Return the tables that a column of names tells: `table`, `database.table` or `database.schema.table`.

    Args:
        names: string[n]; null names none. Of more parts than three the first are left out.
    """
    coded = names.dictionary_encode(null_encoding="encode")
    return Sources(np.asarray(coded.indices, dtype=np.int64), tuple(map(source_of, coded.dictionary.to_pylist())))


def source_of(name: str | None) -> Source:
    """Return a name by its parts."""
    *before, table = [part or None for part in (name or "").split(".")]
    if len(before) < 2:
        return Source(before[0] if before else None, None, table)
    return Source(before[-2], before[-1], table)


def _said(cells: Cells) -> pa.Array:
    there = cells.kinds == TEXT
    return cells.texts if there.all() else pc.if_else(pa.array(there), cells.texts, "")


def _numbered(*parts: pa.Array) -> Sources:
    coded = pc.binary_join_element_wise(*parts, _BETWEEN).dictionary_encode()
    names = (name.split(_BETWEEN)[:3] for name in coded.dictionary.to_pylist())
    found = tuple(Source(*(part or None for part in name)) for name in names)
    return Sources(np.asarray(coded.indices, dtype=np.int64), found)
