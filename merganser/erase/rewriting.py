"""Rewriting: files of one bucket are written again without the rows that are sought, each in its place.

A new file has the level, the kinds and the sequence numbers of the one that it replaces. All versions of a key go at
once, so the versions of other keys merge as before, and no compaction is needed: the cost follows the files that hold
rows that are sought, and not the bucket. Rows that a deletion vector marks are not written again. A crash leaves files
that no snapshot names.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.commit.message import CommitMessage
from merganser.erase.sought import Sought
from merganser.errors import MerganserError, StorageError
from merganser.files.layout import file_layout
from merganser.files.masks import BucketVectors, changed
from merganser.files.write import RollingWriter
from merganser.lsm.abandoned import remove_uncommitted
from merganser.lsm.held import held_files
from merganser.lsm.section import SectionReader
from merganser.merge.sort_merge import WINDOW_ROWS
from merganser.meta.data_file import SOURCE_APPEND, DataFile
from merganser.meta.row_counts import RowCounts
from merganser.meta.table_def import TableDef
from merganser.scan.rows import with_schema
from merganser.schema import types as t
from merganser.schema.arrow import arrow_schema
from merganser.schema.table_schema import SEQUENCE_NUMBER, VALUE_KIND
from merganser.storage.env import Env
from merganser.values import dataclass
from merganser.write.job import FilesJob, Outcome

_MARK: Final = re.compile(r"-\d+((?:-untracked)?(?:-until-\d+-\d+)?)\.[a-z0-9.]+$")
"""What the name of a file tells of its rows; see `meta.tracking` and `lsm.tombstones`."""


@dataclass(frozen=True)
class RewritingJob(FilesJob):
    """Writes files of one bucket again. Pickles; runs wherever there is a core.

    Attributes:
        total_buckets: see `CommitMessage`.
        directory: the bucket's.
        files: those that hold rows that are sought.
        schemas: columns of every schema that a file was written with.
        vectors: deletion vectors of the bucket.
        sought: the rows that are left out.
    """

    table: TableDef
    partition: bytes
    bucket: int
    total_buckets: int
    directory: str
    files: tuple[DataFile, ...]
    schemas: Mapping[int, tuple[t.Field, ...]]
    vectors: BucketVectors
    sought: Sought

    def parts(self) -> Iterator[RewritingJob]:
        """Yield the rewriting of each file, if no deletion vectors have to be replaced as a whole."""
        if any(file.name in self.vectors.by_file for file in self.files):
            yield self
            return
        for file in self.files:
            yield replace(self, files=(file,))

    def run(self, env: Env) -> Outcome:
        """Write the files. New files are durable; of a refusal nothing is left. `counts` says how many rows went."""
        added: list[DataFile] = []
        gone = 0
        try:
            for file in self.files:
                made, left_out = self._written(file, env)
                added += made
                gone += left_out
            names = {file.name for file in self.files}
            bucket = (self.partition, self.bucket)
            change = changed(self.table, env, bucket, self.vectors, dropped=names)
            held_files(self.table, env).forget(names)
        except BaseException as error:
            with contextlib.suppress(MerganserError):
                remove_uncommitted(self.table, env, [self._message(added)])
            if isinstance(error, StorageError) or not isinstance(error, MerganserError):
                raise
            return Outcome(refusal=error)
        message = replace(
            self._message(added), removed=self.files, index_added=change.added, index_removed=change.removed
        )
        return Outcome((message,), counts=RowCounts(deleted=gone))

    def _message(self, added: list[DataFile]) -> CommitMessage:
        return CommitMessage(self.partition, self.bucket, self.total_buckets, tuple(added))

    def _written(self, file: DataFile, env: Env) -> tuple[list[DataFile], int]:
        """Return the files in place of one, none if no row stays, and how many rows that no vector marks went."""
        table, fields = self.table, self.table.schema.fields
        reader = SectionReader(
            table, self.directory, self.partition, self.schemas, env.storage, self.vectors.by_file
        ).opened(file, fields, kind=table.keyed, sequence=table.keyed)
        mark = _MARK.search(file.name)
        writer = RollingWriter(
            table=table,
            env=env,
            directory=self.directory,
            layout=file_layout(table, file.level),
            level=file.level,
            source=SOURCE_APPEND if file.source is None else file.source,
            mark=mark[1] if mark else "",
        )
        gone = 0
        try:
            with contextlib.closing(reader):
                while (rows := reader.read(WINDOW_ROWS)) is not None:
                    stays = ~self.sought.mask(rows)
                    gone += rows.num_rows - int(np.count_nonzero(stays))
                    kept = rows if stays.all() else rows.filter(pa.array(stays))
                    if not kept.num_rows:
                        continue
                    if table.keyed:
                        numbers, kinds = (kept.column(f.name).combine_chunks() for f in (SEQUENCE_NUMBER, VALUE_KIND))
                        writer.write(kept.select(table.schema.names), sequences=numbers, kinds=kinds)
                    else:
                        writer.write(with_schema(kept, arrow_schema(fields)))
            made = list(writer.close())
        except BaseException:
            writer.abort()
            raise
        if table.bucket > 0 and not table.keyed:  # files of a bucket have an order
            first = file.min_sequence
            for i, one in enumerate(made):
                made[i] = replace(one, min_sequence=first, max_sequence=first + one.row_count - 1)
                first += one.row_count
        return made, gone
