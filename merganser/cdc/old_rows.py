"""What is known of old rows: values that a connector may have put in, because the database did not send any.

Postgres with its default replica identity sends the key of a deleted row. Debezium fills the other columns: null, or
the default of the column, or zero of its type where it is NOT NULL. Such a row looks like a whole one. It is whole if
one of its values cannot be filled in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.cdc.batch import Schemas
from merganser.parsing.cells import Cells
from merganser.parsing.json_scan import ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, TEXT, Bools, Ints, compact

SENT: Final = 0
UNTOLD: Final = 1
FILLED: Final = 2
"""Sources of old rows: they send whole ones; the record does not say what sent it; they may send the key alone."""

_ZERO_TEXT: Final = (
    r"^(?:-?0*(?:\.0*)?"  # no text, 0 and 0.00
    r"|A+==?"  # bytes of zero in base64
    r"|(?:1970-01-01)?[T ]?(?:00:00(?::00(?:\.0+)?)?)?(?:Z|[+-]00:?00)?"  # the epoch and midnight
    r"|P[0YMDTHS.]*"  # an interval of no length
    r"|0{8}-0{4}-0{4}-0{4}-0{12}"
    r"|\{\}|\[\])$"
)
_ZERO_NUMBER: Final = r"^-?0+(?:\.0*)?(?:[eE][+-]?[0-9]+)?$"
_ZERO_NESTED: Final = (
    r"^(?:\[\]|\{\}"
    r'|\{"scale":0,"value":"A*=*"\}'
    r'|\{(?:"x":-?0(?:\.0)?,"y":-?0(?:\.0)?,)?"wkb":"A[QAcE]A*=*"(?:,"srid":(?:null|0))?\})$'
)


def filled_in(cells: Cells, defaults: pa.Array | None = None) -> Bools:
    """Return which values a connector may have put in: null, zero of some type, or the default of the column.

    Args:
        cells: n values.
        defaults: string[n], the default of the column as a text; null if it has none.
    """
    kinds, texts = cells.kinds, cells.texts
    found: Bools = kinds <= NULL
    for kind, pattern in ((TEXT, _ZERO_TEXT), (NUMBER, _ZERO_NUMBER)):
        at = kinds == kind
        if at.any():
            found |= at & np.asarray(pc.match_substring_regex(texts, pattern))
    found |= (kinds == BOOLEAN) & np.asarray(pc.equal(texts, "false"))
    nested = (kinds == OBJECT) | (kinds == ARRAY)
    if nested.any():
        texts = pc.replace_with_mask(texts, pa.array(nested), compact(texts.filter(pa.array(nested))))
        found |= nested & np.asarray(pc.match_substring_regex(texts, _ZERO_NESTED))
    if defaults is not None:
        found |= np.asarray(pc.equal(texts, defaults).fill_null(False))
    return found


def evidence(
    old: Ints,
    cells: Cells,
    sure: Bools,
    sources: Ints,
    record: Ints,
    schemas: Schemas,
    names: Sequence[str],
    times: Sequence[bool],
) -> tuple[Bools, Bools]:
    """Return which old rows hold a value that cannot have been put in, and of which it proves that they are whole.

    Without a schema a constant default of the source is not known, so only a time proves something then.

    Args:
        old: int64[n, columns], where the values lie in `cells`.
        sure: bool[n, columns], the columns of the key, which are sent in any case.
        sources: int64[n], UNTOLD or FILLED.
        record: int64[n].
        names: of the columns.
        times: which columns are dates or times.
    """
    real, proven = np.zeros(len(old), np.bool_), np.zeros(len(old), np.bool_)
    told = schemas.of[record]
    strict = (told == 0) & (sources == FILLED)
    for i, name in enumerate(names):
        at = np.flatnonzero(~proven & ~sure[:, i])
        if not len(at):
            continue
        defaults = None
        if any(name in found for found in schemas.defaults):
            by_schema = pa.array([found.get(name) for found in schemas.defaults], pa.string())
            defaults = by_schema.take(pa.array(told[at]))
        sent = at[~filled_in(cells.take(old[at, i]), defaults)]
        real[sent] = True
        proven[sent if times[i] else sent[~strict[sent]]] = True
    return real, proven
