"""A Spark data source of Python tasks that read plain Parquet and hand it over: the floor of every scan from Python.

Options: `paths` (file names, separated by newlines), `columns` (names, separated by commas; absent: all), `tasks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

_BATCH_ROWS = 65_536


class PlainParquet(DataSource):
    """Format `plain-parquet-in-python`."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "plain-parquet-in-python"

    def schema(self) -> StructType:
        """The chosen columns of the first file."""
        paths, columns = self._chosen()
        schema = pq.read_schema(paths[0])
        return from_arrow_schema(pa.schema([schema.field(name) for name in columns or schema.names]))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader with one task for each share of the files."""
        paths, columns = self._chosen()
        return _Reader(paths, columns, int(self.options.get("tasks", "4")))

    def _chosen(self) -> tuple[list[str], list[str] | None]:
        columns = self.options.get("columns")
        return self.options["paths"].split("\n"), columns.split(",") if columns else None


class _Files(InputPartition):
    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(0)
        self.paths = list(paths)


class _Reader(DataSourceReader):
    def __init__(self, paths: Sequence[str], columns: Sequence[str] | None, tasks: int) -> None:
        self.paths, self.columns, self.tasks = paths, columns, tasks

    def partitions(self) -> list[InputPartition]:
        return [_Files(self.paths[i :: self.tasks]) for i in range(min(self.tasks, len(self.paths)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Files)
        columns = list(self.columns) if self.columns else None
        for path in partition.paths:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(_BATCH_ROWS, columns=columns)
