"""Changes of rows by key, as jobs: a job reads some splits of a state, and writes what becomes of their rows.

A split holds all versions of its keys, so no two jobs change a key, and the order of their rows does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from merganser.edit.assign import Assignments
from merganser.edit.row_changes import RowChanges, Taken
from merganser.meta.row_counts import RowCounts
from merganser.scan.read import read_split
from merganser.scan.rows import with_schema
from merganser.scan.split import AnySplit, ReadJob
from merganser.schema.arrow import arrow_schema
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.incoming import Prepared
from merganser.write.job import Outcome, WriteJob


@dataclass(frozen=True)
class RowJob:
    """Changes the rows of some splits. Pickles; runs wherever there is a core.

    Attributes:
        write: writes rows.
        read: reads the rows to change.
        sets: their new values; None: they are deleted.
    """

    write: WriteJob
    read: ReadJob
    splits: tuple[AnySplit, ...]
    sets: Assignments | None
    action: str

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that it reads."""
        return sum(split.size_bytes for split in self.splits)

    @property
    def file_count(self) -> int:
        """How many files it reads."""
        return sum(len(split.files) for split in self.splits)

    def run(self, env: Env) -> Outcome:
        """Change the rows. New files are durable; of a refusal nothing is left."""
        taken = Taken()
        out = RowChanges(self.read.table, taken, self.action)
        outcome = replace(self.write, env=env).run_prepared(self._rows(out, taken, env))
        return replace(outcome, counts=RowCounts(out.inserted, out.updated, out.deleted))

    def _rows(self, out: RowChanges, taken: Taken, env: Env) -> Iterator[Prepared]:
        schema = arrow_schema(self.read.columns)
        for split in self.splits:
            for found in read_split(self.read, split, env.storage):
                rows = with_schema(found, schema)
                if self.sets is None:
                    out.delete(rows)
                else:
                    out.update(rows, self.sets.apply(rows), self.sets.values)
                yield from taken.rows
                taken.rows.clear()
