"""Which data files a filter leaves, by their file indexes: those that hold none of the values it asks for are skipped.

Only `=` and `IN` ask for values, and only files of today's schema are asked: in an older one a column may have had
another name or type. It comes after everything that costs no read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from merganser.codec.bloom import can_filter
from merganser.codec.stored import stored_to_arrow
from merganser.expr.predicate import Predicate, points
from merganser.files.index import ColumnFilter, Sought, column_filters, file_index_path
from merganser.meta.data_file import DataFile
from merganser.meta.table_def import TableDef
from merganser.options import read as r
from merganser.storage.env import Env

Flags = npt.NDArray[np.bool_]


class IndexQuestions:
    """What a filter asks the indexes of data files.

    Attributes:
        asked: whether any data file was asked.
        skipped: how many were skipped.
    """

    def __init__(self, table: TableDef, env: Env, where: Predicate | None) -> None:
        self.asked = False
        self.skipped = 0
        self._table = table
        self._env = env
        self._sought: dict[str, Sought] = {}
        if where is None or not table.options.get(r.FILE_INDEX_READ):
            return
        for field in table.schema.fields:
            if field.name not in where.columns or not can_filter(field.type):
                continue
            pinned = points(where, (field.name,))
            values = [] if pinned is None else [value for (value,) in pinned]
            if values and None not in values:  # no filter knows of nulls
                self._sought[field.name] = Sought(stored_to_arrow(values, field.type), field.type)

    def may_match(self, directory: str, files: Sequence[DataFile], columns: Collection[str] | None = None) -> Flags:
        """Return for each of n data files whether it may hold a row of the filter, bool[n]. Reads their indexes.

        Args:
            directory: of their bucket.
            columns: those that decide; None: all.
        """
        keep = np.ones(len(files), np.bool_)
        sought = {name: held for name, held in self._sought.items() if columns is None or name in columns}
        if not sought:
            return keep
        today = self._table.schema.id
        places = [
            i
            for i, file in enumerate(files)
            if file.schema_id == today and file_index_path(directory, file) is not None
        ]
        if not places:
            return keep
        found = self._env.fetch(lambda i: column_filters(self._env, directory, files[i]), places)
        for i, filters in zip(places, found, strict=True):
            keep[i] = all(_any_held(filters.get(name), values) for name, values in sought.items())
        self.asked = True
        self.skipped += len(files) - int(keep.sum())
        return keep


def _any_held(filtered: ColumnFilter | None, sought: Sought) -> bool:
    return filtered is None or bool(filtered.may_hold(sought).any())
