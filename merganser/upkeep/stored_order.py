"""Log positions that a table has, in a column that is to order its rows: as texts they may not sort as the log does.

Change records give positions a form that sorts in columns that order rows (`cdc.log_positions`), and leave them as they
are in others. In that form they come after all that were stored without it. So they are right for a table with one
version of each key; versions that are not merged yet would be merged in the wrong order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merganser.errors import InvalidInputError
from merganser.meta.data_file import ManifestEntry
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.rules.named_columns import columns_ordering
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env
from merganser.upkeep.stored_values import unmerged_values

_LOOKED_AT: Final = 1_000_000
"""Number of values after which no more are read: positions of several lengths are found among the first ones."""
_DATE: Final = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
"""Texts that sort as they are, and look like the GTIDs of MariaDB."""


def check_order(table: TableDef, made: TableSchema, env: Env, snapshot: Snapshot, *, what: str) -> None:
    """Refuse options by which stored log positions order versions of a key, if as texts they sort in another order.

    Args:
        table: with the schema before.
        made: the schema with the options.
        snapshot: the rows.
        what: beginning of the message, such as "cannot alter 'db.orders'".

    Raises:
        InvalidInputError: names the column and two positions.
    """
    fields = {field.id: field for field in table.schema.fields}
    known = {field.id for field in fields.values() if field.name in columns_ordering(table.schema.options)}
    new = [field for field in made.fields if field.name in columns_ordering(made.options) and field.id in fields]
    new = [field for field in new if isinstance(field.type, t.VarChar) and field.id not in known]
    for field in new:
        pair = _out_of_order(table, env, snapshot, fields[field.id])
        if pair is not None:
            earlier, later = pair
            raise InvalidInputError(
                f"{what}: column '{field.name}' is to say which row of a key is newer, and it holds positions in a log "
                f"that do not sort as the log does: '{later}' comes after '{earlier}' there, and before it as text. "
                "Versions of keys are not merged yet, and the older one would win. Nothing was changed. Merge them "
                "first, with Table.compact(full=True); positions of later change records are newer than all of them.",
                column=field.name,
            )


def _has_versions(_: int, files: Sequence[ManifestEntry]) -> bool:
    """Return whether a bucket may have two versions of a key: it has several sorted runs."""
    levels = [entry.file.level for entry in files]
    return len(levels) > 1 and (min(levels) == 0 or len(set(levels)) > 1)


def _out_of_order(table: TableDef, env: Env, snapshot: Snapshot, field: t.Field) -> tuple[str, str] | None:
    """Return two positions of which the text of the later one sorts first; None: there are none."""
    from merganser.cdc.log_positions import sortable  # noqa: PLC0415 - readers of JSON, wanted by columns of positions
    from merganser.parsing.cells import Cells  # noqa: PLC0415 - the same
    from merganser.parsing.json_scan import TEXT  # noqa: PLC0415 - the same

    parts: list[pa.Array] = []
    count = 0
    for part in unmerged_values(table, env, snapshot, field, _has_versions):
        parts.append(pc.unique(part.drop_null()))
        count += len(part)
        if count >= _LOOKED_AT:
            break
    if not parts:
        return None
    texts = pc.unique(pa.chunked_array(parts))
    texts = texts.filter(pc.invert(pc.match_substring_regex(texts, _DATE)))
    texts = texts.take(pc.sort_indices(texts))
    ordered = sortable(Cells(np.full(len(texts), TEXT), texts))[0].texts
    positions = pc.not_equal(texts, ordered)  # others have no number
    texts, ordered = texts.filter(positions), ordered.filter(positions)
    falls = np.flatnonzero(np.asarray(pc.less(ordered.slice(1), ordered.slice(0, max(len(ordered) - 1, 0)))))
    if not len(falls):
        return None
    at = int(falls[0])
    return texts[at + 1].as_py(), texts[at].as_py()
