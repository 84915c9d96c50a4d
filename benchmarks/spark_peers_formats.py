"""The table formats that `spark_peers.py` compares, each as the users of its Spark connector are told to use it.

Runs under the PySpark that a connector was made for, so it imports nothing else; merganser is imported by its own class
alone. Where a connector has a choice it has its default, but for Parquet, `zstd` everywhere, and what the classes say.
`vectors` asks for a table that marks replaced rows in deletion vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession

from .spark_session import SHUFFLE_PARTITIONS


class Format(ABC):
    """One table format: tables by name in a warehouse directory."""

    has_vectors = True
    """Whether it can mark replaced rows without rewriting files."""
    more_properties: ClassVar[Mapping[str, str]] = {}
    """Properties of tables, or options of writes, that go before those here."""

    def __init__(self, warehouse: Path, columns: Mapping[str, str], key: Sequence[str] = ("k",)) -> None:
        """A format whose tables lie below `warehouse` and have `columns` (name -> SQL type of Spark) and a key."""
        self.warehouse, self.columns, self.key = warehouse, columns, key

    @abstractmethod
    def settings(self) -> dict[str, str]:
        """What the session must be told."""

    def start(self, spark: SparkSession) -> None:  # noqa: B027 - most need nothing
        """Do once what a new session needs."""

    @abstractmethod
    def path(self, table: str) -> Path:
        """The directory with all files of a table."""

    @abstractmethod
    def create(self, spark: SparkSession, table: str, *, vectors: bool) -> None:
        """Make an empty table."""

    @abstractmethod
    def write(self, rows: DataFrame, table: str) -> None:
        """Write the base into an empty table, one commit."""

    @abstractmethod
    def upsert(self, rows: DataFrame, table: str) -> None:
        """Write rows that replace those of the same keys, one commit."""

    @abstractmethod
    def read(self, spark: SparkSession, table: str, columns: Sequence[str]) -> DataFrame:
        """The rows as of now."""

    def scan(self, rows: DataFrame) -> None:
        """Make every row and drop it in the JVM."""
        rows.write.format("noop").mode("overwrite").save()

    @abstractmethod
    def compact(self, spark: SparkSession, table: str) -> None:
        """Rewrite the table so that nothing is left to merge, by what the format offers for it."""

    def column_text(self) -> str:
        """The columns as SQL."""
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns.items())


class Merganser(Format):
    """`ms.write` and `ms.read`; four buckets, and no compaction by writers unless there are deletion vectors."""

    def settings(self) -> dict[str, str]:
        return {}

    def start(self, spark: SparkSession) -> None:
        import merganser.spark as ms

        ms.register(spark)

    def path(self, table: str) -> Path:
        return self.warehouse / "db.db" / table

    def create(self, spark: SparkSession, table: str, *, vectors: bool) -> None:
        from . import ours

        more = {"write-only": "false", "deletion-vectors.enabled": "true"} if vectors else {}
        ours.create(str(self.path(table)), more)

    def write(self, rows: DataFrame, table: str) -> None:
        import merganser.spark as ms

        ms.write(rows, str(self.path(table)))

    upsert = write

    def read(self, spark: SparkSession, table: str, columns: Sequence[str]) -> DataFrame:
        import merganser.spark as ms

        return ms.read(spark, str(self.path(table)), columns=list(columns))

    def compact(self, spark: SparkSession, table: str) -> None:
        import merganser.spark as ms

        ms.compact(spark, str(self.path(table)), full=True)


class _SqlFormat(Format):
    """A format whose tables have names in a catalog and, unless said otherwise, are changed by MERGE INTO."""

    @abstractmethod
    def name(self, table: str) -> str:
        """The table's name in SQL."""

    def write(self, rows: DataFrame, table: str) -> None:
        rows.writeTo(self.name(table)).append()

    def upsert(self, rows: DataFrame, table: str) -> None:
        rows.createOrReplaceTempView("changes")
        rows.sparkSession.sql(
            f"MERGE INTO {self.name(table)} t USING changes c ON {self.same_key()} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def same_key(self) -> str:
        """That rows of the table (`t`) and of the changes (`c`) have the same key, as SQL."""
        return " AND ".join(f"t.{name} = c.{name}" for name in self.key)

    def read(self, spark: SparkSession, table: str, columns: Sequence[str]) -> DataFrame:
        return spark.table(self.name(table)).select(*columns)


class Iceberg(_SqlFormat):
    """MERGE INTO that rewrites files (format version 2), or marks rows in deletion vectors (version 3)."""

    def settings(self) -> dict[str, str]:
        return {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.peer.type": "hadoop",
            "spark.sql.catalog.peer.warehouse": str(self.warehouse),
        }

    def path(self, table: str) -> Path:
        return self.warehouse / "db" / table

    def name(self, table: str) -> str:
        return f"peer.db.{table}"

    def create(self, spark: SparkSession, table: str, *, vectors: bool) -> None:
        properties = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "1"}
        if vectors:
            properties |= {"format-version": "3"}
            properties |= {f"write.{action}.mode": "merge-on-read" for action in ("merge", "update", "delete")}
        else:
            properties |= {"format-version": "2"}
        spark.sql(f"CREATE TABLE {self.name(table)} ({self.column_text()}) USING iceberg {_properties(properties)}")

    def compact(self, spark: SparkSession, table: str) -> None:
        spark.sql(
            f"CALL peer.system.rewrite_data_files(table => 'db.{table}', options => map('rewrite-all', 'true'))"
        ).collect()


class Delta(_SqlFormat):
    """MERGE INTO that rewrites files, or marks rows in deletion vectors; OPTIMIZE joins files without such rows."""

    def settings(self) -> dict[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": str(SHUFFLE_PARTITIONS),  # 50, whatever Spark's own setting
        }

    def path(self, table: str) -> Path:
        return self.warehouse / table

    def name(self, table: str) -> str:
        return f"delta.`{self.path(table)}`"

    def create(self, spark: SparkSession, table: str, *, vectors: bool) -> None:
        properties = _properties({"delta.enableDeletionVectors": str(vectors).lower()} | self.more_properties)
        spark.sql(f"CREATE TABLE {self.name(table)} ({self.column_text()}) USING delta {properties}")

    def write(self, rows: DataFrame, table: str) -> None:
        rows.write.format("delta").mode("append").save(str(self.path(table)))

    def scan(self, rows: DataFrame) -> None:
        # Release 4.4.0 cannot hand a table with deletion vectors to `noop` ("a non-pinned table snapshot"). This makes
        # and drops the same rows.
        rows._jdf.queryExecution().toRdd().count()

    def compact(self, spark: SparkSession, table: str) -> None:
        spark.sql(f"OPTIMIZE {self.name(table)}").collect()


class Hudi(Format):
    """A merge-on-read table: `bulk_insert` of the base, `upsert`, and compactions that only the procedure runs."""

    has_vectors = False

    def settings(self) -> dict[str, str]:
        return {
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        }

    def path(self, table: str) -> Path:
        return self.warehouse / table

    def create(self, spark: SparkSession, table: str, *, vectors: bool) -> None:
        assert not vectors  # the first write makes the table

    def write(self, rows: DataFrame, table: str) -> None:
        self._write(rows, table, "bulk_insert")

    def upsert(self, rows: DataFrame, table: str) -> None:
        self._write(rows, table, "upsert")

    def _write(self, rows: DataFrame, table: str, operation: str) -> None:
        options = {
            "hoodie.table.name": table,
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.recordkey.field": ",".join(self.key),
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
            "hoodie.compact.inline": "false",
            "hoodie.parquet.compression.codec": "zstd",
            **self.more_properties,
        }
        rows.write.format("hudi").options(**options).mode("append").save(str(self.path(table)))

    def read(self, spark: SparkSession, table: str, columns: Sequence[str]) -> DataFrame:
        return spark.read.format("hudi").load(str(self.path(table))).select(*columns)

    def compact(self, spark: SparkSession, table: str) -> None:
        spark.sql(
            f"CALL run_compaction(op => 'scheduleAndExecute', path => '{self.path(table)}', "
            "options => 'hoodie.compact.inline.max.delta.commits=1')"
        ).collect()


class Paimon(_SqlFormat):
    """INSERT into a table with a primary key; four buckets and writers as merganser's, in the same format."""

    def settings(self) -> dict[str, str]:
        return {
            "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
            "spark.sql.catalog.peer": "org.apache.paimon.spark.SparkCatalog",
            "spark.sql.catalog.peer.warehouse": str(self.warehouse),
        }

    def start(self, spark: SparkSession) -> None:
        spark.sql("CREATE DATABASE IF NOT EXISTS peer.db")

    def path(self, table: str) -> Path:
        return self.warehouse / "db.db" / table

    def name(self, table: str) -> str:
        return f"peer.db.{table}"

    def create(self, spark: SparkSession, table: str, *, vectors: bool) -> None:
        properties = {
            "primary-key": ",".join(self.key),
            "bucket": "4",
            "file.format": "parquet",
            "file.compression": "zstd",
            "file.compression.zstd-level": "1",
            "write-only": str(not vectors).lower(),
            "deletion-vectors.enabled": str(vectors).lower(),
            **self.more_properties,
        }
        spark.sql(f"CREATE TABLE {self.name(table)} ({self.column_text()}) {_properties(properties)}")

    upsert = _SqlFormat.write

    def compact(self, spark: SparkSession, table: str) -> None:
        spark.sql(f"CALL peer.sys.compact(table => 'db.{table}')").collect()


def _properties(properties: Mapping[str, str]) -> str:
    return "TBLPROPERTIES (" + ", ".join(f"'{key}' = '{value}'" for key, value in properties.items()) + ")"


FORMATS: dict[str, type[Format]] = {
    "merganser": Merganser,
    "paimon": Paimon,
    "iceberg": Iceberg,
    "delta": Delta,
    "hudi": Hudi,
}
