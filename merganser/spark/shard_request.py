"""What the processes of a stream of records of shards run; see `stream_reader`, of which it is a kind.

One task reads one shard, and several where a batch has more shards than tasks. Records of a shard lie in one task, in
their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from merganser.errors import FormatError, MerganserError
from merganser.meta.shard_stream import ShardStream
from merganser.schema import types as t
from merganser.schema.types_text import UNNUMBERED
from merganser.shards.batches import Beginning, ShardBatches
from merganser.shards.pieces import Piece, records_of
from merganser.shards.records import Shape
from merganser.spark.splits import balanced, weight_of
from merganser.spark.stream_reader import RowsPartition, StreamRequest
from merganser.stream.batches import Position
from merganser.values import dataclass

SHARD_ID: Final = t.Field(UNNUMBERED, "_shard_id", t.VarChar(nullable=False))


@dataclass
class ShardsPartition(RowsPartition):
    """The share of one task in a batch: whole shards.

    Attributes:
        shards: of each, what snapshots published in it.
        empty: no stored rows, for their columns.
        request: what is read.
    """

    shards: tuple[tuple[Piece, ...], ...]
    empty: pa.Table
    request: ShardRequest

    def rows(self) -> Iterator[pa.Table]:
        """Yield the records, those of a shard in their order."""
        for pieces in self.shards:
            shard_id = pieces[0].shard.id
            try:
                for records in records_of(pieces, self.request.shape, self.empty, self.request.env.storage):
                    named = pa.repeat(shard_id, records.num_rows)
                    yield records.append_column(SHARD_ID.name, named).select(self.schema.names)
            except FormatError as error:
                raise self._lost(pieces, error) from error

    def _lost(self, pieces: tuple[Piece, ...], error: FormatError) -> MerganserError:
        """Return the error of a file that cannot be read: what a snapshot published may have expired meanwhile."""
        reader = self.request.batches().reader
        found = (reader.lost(piece.snapshot, error) for piece in pieces)
        return next((each for each in found if each is not error), error)


@dataclass(frozen=True)
class ShardRequest(StreamRequest):
    """What a stream of records reads; pickles.

    Attributes:
        stream: the stream that the table keeps.
        beginning: where the first batch begins.
        shape: what records have.
        stored: the columns that are read.
    """

    stream: ShardStream
    beginning: Beginning
    shape: Shape
    stored: tuple[t.Field, ...]

    def batches(self) -> ShardBatches:
        """Return the batches of the stream."""
        return ShardBatches(
            self.table, self.env, self.stream, columns=self.stored, beginning=self.beginning, limits=self.limits
        )

    def planned(self, batches: Any, start: Position | None, end: Position, schema: pa.Schema) -> list[InputPartition]:
        """Return the shares of the tasks in what lies between two positions."""
        shards: list[list[Piece]] = batches.shards(start, end)
        packs = [[i] for i in range(len(shards))]
        if len(packs) > self.tasks_max:
            weights = [sum(weight_of(piece.size_bytes, piece.files) for piece in pieces) for pieces in shards]
            packs = balanced(weights, tasks_max=self.tasks_max)
        return [
            ShardsPartition(schema, tuple(tuple(shards[i]) for i in pack), batches.reader.empty, self) for pack in packs
        ]
