"""Records about a stream and not about rows, as they pass through a transformation that flattens the others.

`ExtractNewRecordState` leaves records alone that are no envelopes of a change: the begin and the end of a transaction,
logical messages, heartbeats and changes of schemas. A record is one of these if it has its members and no others, and
if they are not all columns of the table.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.cdc.batch import Batch, Document
from merganser.parsing.json_scan import TEXT, Bools
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class _Form:
    """A form of control records.

    Attributes:
        needed: members that it always has.
        others: members that it may have.
        member, values: a member that holds one of some texts; "": no member tells.
    """

    needed: tuple[str, ...]
    others: tuple[str, ...] = ()
    member: str = ""
    values: tuple[str, ...] = ()


_TIMES: Final = ("ts_ms", "ts_us", "ts_ns")
_SCHEMA_CHANGE: Final = ("databaseName", "schemaName", "tableChanges", "source", *_TIMES)
_FORMS: Final = (
    _Form(("status", "id"), ("event_count", "data_collections", *_TIMES), "status", ("BEGIN", "END")),
    _Form(("op", "message"), ("source", "transaction", *_TIMES), "op", ("m",)),
    _Form(("ts_ms",), ("ts_us", "ts_ns")),
    _Form(("ddl",), _SCHEMA_CHANGE),
)
NAMES: Final = tuple(dict.fromkeys(name for form in _FORMS for name in (*form.needed, *form.others)))
"""Members that tell control records."""


def skip(batch: Batch, found: Document) -> None:
    """Close control records.

    Args:
        found: the members of the records, among them `NAMES`.
    """
    columns = set(batch.columns)
    for form in _FORMS:
        is_form: Bools = np.logical_and.reduce([found.place(name) >= 0 for name in form.needed])
        if not is_form.any():
            continue
        there = {name: found.place(name) >= 0 for name in (*form.needed, *form.others)}
        is_form &= np.sum(list(there.values()), axis=0) == found.children.counts
        is_form &= np.logical_or.reduce([there[name] for name in there if name not in columns])
        if form.member and is_form.any():
            told = found.of(form.member)
            is_form &= (told.kinds == TEXT) & np.asarray(pc.is_in(told.texts, value_set=pa.array(form.values)))
        batch.skip(is_form, "control")
