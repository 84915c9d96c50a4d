"""Deletes by compaction: rows of a table with a key go whose merge engine has no rule by which a row takes one away.

Files whose key ranges overlap, a section, hold all versions of their keys. A section with a row that goes is compacted
to the highest level without it, level 0 included, so no older version is left that could come back::

    level 0    [ 3    7 ]                              +5 to key 7, 1 to key 3
    level 1  [1    5     9]      [20   30]             delete where v > 100: key 7
    after    [1 3  5     9]      [20   30]             the highest level; no row of the other section matches

Sections without such a row stay as they are. So it costs what the compaction of these sections costs, and a look at
the columns of the filter before.

Docs: decision 0059.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from merganser.codec.binary_row import deserialize_columns
from merganser.errors import MerganserError, StorageError
from merganser.expr.predicate import Predicate
from merganser.files.masks import NO_VECTORS, vectors_by_bucket
from merganser.lsm.compact import CompactJob
from merganser.lsm.levels import dense_ranks, sections
from merganser.lsm.section import SectionReader
from merganser.meta.data_file import DataFile
from merganser.meta.row_counts import RowCounts
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.rules.compacting import hides_level_0
from merganser.scan.read import key_filter
from merganser.schema.table_schema import VALUE_KIND
from merganser.storage.env import Env
from merganser.upkeep.plan_compaction import Planner
from merganser.values import dataclass
from merganser.write.job import Outcome


@dataclass(frozen=True)
class RemovalJob:
    """Removes rows of one bucket. Pickles; runs wherever there is a core.

    Attributes:
        compaction: of the files of all sections.
        sections: files of the bucket that may hold rows to remove, with all that overlap them; by the place of their
            keys among those of all sections of the bucket.
        where: the rows that go.
        shows: sections with files of level 0 are compacted even if none of their rows goes: reads see the rows of
            level 0 after a compaction, and those of one commit at once.
    """

    compaction: CompactJob
    sections: Mapping[int, tuple[DataFile, ...]]
    where: Predicate
    shows: bool

    @property
    def table(self) -> TableDef:
        """The table of the bucket."""
        return self.compaction.table

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that it looks at."""
        return self.compaction.size_bytes

    @property
    def file_count(self) -> int:
        """How many files it looks at."""
        return len(self.compaction.files)

    def parts(self) -> Iterator[RemovalJob]:
        """Yield itself: the deletion vectors of a bucket are replaced as a whole."""
        yield self

    def run(self, env: Env) -> Outcome:
        """Remove the rows. New files are durable; of a refusal nothing is left."""
        try:
            gone, taken = 0, list[list[int]]()
            for place, section in sorted(self.sections.items()):
                found = self._found(section, env)
                gone += found
                if not found and not (self.shows and any(file.level == 0 for file in section)):
                    continue
                if not taken or taken[-1][-1] != place - 1:  # no new file may span a section that stays
                    taken.append([])
                taken[-1].append(place)
            jobs = [self._compaction(places) for places in taken]
            messages = replace(jobs[0], others=tuple(jobs[1:])).run(env) if jobs else ()
        except StorageError:
            raise
        except MerganserError as refusal:
            return Outcome(refusal=refusal)
        return Outcome(messages, counts=RowCounts(deleted=gone))

    def _compaction(self, places: Sequence[int]) -> CompactJob:
        """Return the compaction of neighbouring sections without the rows that go."""
        names = {file.name for place in places for file in self.sections[place]}
        files = tuple(file for file in self.compaction.files if file.name in names)
        return replace(self.compaction, files=files, leaves_out=self.where)

    def _found(self, section: Sequence[DataFile], env: Env) -> int:
        """Return how many rows of a section go."""
        job, table, where = self.compaction, self.table, self.where
        reader = SectionReader(table, job.directory, job.partition, job.schemas, env.storage, job.vectors.by_file)
        fields = [field for field in table.schema.fields if field.name in where.columns]
        runs, found = reader.runs(section), 0
        if len(runs) == 1:
            for file in runs[0]:
                for rows in reader.plain(file, fields, groups_filter=where):
                    adds = (rows.column(VALUE_KIND.name).to_numpy() & 1) == 0
                    found += int((np.asarray(where.mask(rows).fill_null(False)) & adds).sum())
            return found
        for folded, _ in reader.merged(section, runs, fields, key_filter=key_filter(where, table.key)):
            goes = np.asarray(where.mask(folded.table()).fill_null(False))
            found += int((goes if folded.kinds is None else goes & ((folded.kinds & 1) == 0)).sum())
        return found


def removals(
    table: TableDef, env: Env, state: TableState, touched: Collection[str], where: Predicate
) -> list[RemovalJob]:
    """Return what removes rows of a state, bucket by bucket; empty if no file may hold one.

    Args:
        touched: names of the files that may hold a version of a row to remove.
        where: the rows to remove.
    """
    if not touched:
        return []
    planner, shows = Planner(table, env), hides_level_0(table.options)
    vectors = vectors_by_bucket(table, MetaReader(table.paths, env, table.name).index(state.snapshot))
    jobs = []
    for (partition, number), bucket in state.live.buckets.items():
        files = [entry.file for entry in bucket.entries]
        due = shows and any(file.level == 0 for file in files)
        if number < 0 or not (due or any(file.name in touched for file in files)):
            continue
        chosen = {
            place: section
            for place, section in enumerate(_sections(table, files))
            if any(file.name in touched or (shows and file.level == 0) for file in section)
        }
        names = {file.name for section in chosen.values() for file in section}
        taken = [file for file in files if file.name in names]
        held = vectors.get((partition, number), NO_VECTORS)
        whole = planner.whole(partition, number, bucket.total_buckets, taken, held)
        # A row that is too old is a row until a compaction drops it: here it goes if the filter says so.
        jobs.append(RemovalJob(replace(whole, expiry=None), chosen, where, shows))
    return jobs


def _sections(table: TableDef, files: Sequence[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    """Yield groups of the files of a bucket in key order, no key in two groups; each as the files were committed."""
    low = deserialize_columns([file.min_key for file in files], table.key_types)
    high = deserialize_columns([file.max_key for file in files], table.key_types)
    for members in sections(*dense_ranks(low, high)):
        yield tuple(files[i] for i in np.sort(members).tolist())
