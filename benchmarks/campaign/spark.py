"""The formats of `spark_peers_formats.py` in the campaign: through Spark, in one session of a process, local[2].

A class per format says how it does a round of changes, a feed and a read with a filter where SQL is not enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from benchmarks import spark_peers_formats as formats
from benchmarks.spark_session import session

from . import rows
from .store import KIND, Store, UnsupportedError

COLUMNS = {name: kind.replace("TIMESTAMP(6)", "TIMESTAMP_NTZ") for name, kind in rows.COLUMNS.items()}
_NO_CHANGES_OF_VECTORS = "Delete files are currently not supported in changelog scans (the words of release 1.12.0)"
_SESSIONS: list[SparkSession] = []


class _Merging(formats._SqlFormat):
    """A round is one MERGE INTO with deletes."""

    def change(self, changes: DataFrame, table: str) -> None:
        changes.createOrReplaceTempView("changes")
        names = list(COLUMNS)
        updates = ", ".join(f"t.{name} = c.{name}" for name in names)
        values = ", ".join(f"c.{name}" for name in names)
        changes.sparkSession.sql(
            f"MERGE INTO {self.name(table)} t USING changes c ON {self.same_key()} "
            f"WHEN MATCHED AND c.{KIND} = '-D' THEN DELETE WHEN MATCHED THEN UPDATE SET {updates} "
            f"WHEN NOT MATCHED AND c.{KIND} <> '-D' THEN INSERT ({', '.join(names)}) VALUES ({values})"
        )


class Merganser(formats.Merganser):
    """As embedded: four buckets and defaults; a round is one `ms.write`, the feed is the difference of two states."""

    def create(self, spark: SparkSession, table: str, *, vectors: bool) -> None:
        import merganser as mg

        catalog = mg.catalog(str(self.warehouse))
        catalog.create_database("db", if_not_exists=True)
        catalog.create_table(f"db.{table}", dict(rows.COLUMNS), primary_key=list(self.key), options={"bucket": "4"})

    def change(self, changes: DataFrame, table: str) -> None:
        import merganser.spark as ms

        ms.write(changes, str(self.path(table)), kinds=KIND)

    def filtered(self, spark: SparkSession, table: str, where: str) -> DataFrame:
        import merganser.spark as ms

        return ms.read(spark, str(self.path(table)), where=where)

    def position(self, spark: SparkSession, table: str) -> int:
        import merganser as mg

        return int(mg.table(str(self.path(table))).latest_snapshot().id)

    def changes(self, spark: SparkSession, table: str, since: int) -> DataFrame:
        import merganser.spark as ms

        found = ms.changes(spark, str(self.path(table)), since + 1, mode="diff", where="_row_kind <> '-U'")
        return found.withColumnRenamed("_row_kind", KIND)


class Delta(_Merging, formats.Delta):
    """With a change data feed."""

    more_properties: ClassVar = {"delta.enableChangeDataFeed": "true"}

    def position(self, spark: SparkSession, table: str) -> int:
        return int(spark.sql(f"DESCRIBE HISTORY {self.name(table)} LIMIT 1").first()["version"])

    def changes(self, spark: SparkSession, table: str, since: int) -> DataFrame:
        reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", since + 1)
        found = reader.load(str(self.path(table))).where("_change_type <> 'update_preimage'")
        return _newest(found, "_commit_version", f.col("_change_type") == "delete")


class Iceberg(_Merging, formats.Iceberg):
    """The feed is a view of the changes between two snapshots."""

    def position(self, spark: SparkSession, table: str) -> int:
        newest = spark.sql(f"SELECT snapshot_id FROM {self.name(table)}.snapshots ORDER BY committed_at DESC LIMIT 1")
        return int(newest.first()[0])

    def changes(self, spark: SparkSession, table: str, since: int) -> DataFrame:
        spark.sql(
            f"CALL peer.system.create_changelog_view(table => 'db.{table}', changelog_view => 'published', "
            f"options => map('start-snapshot-id', '{since}'), identifier_columns => array('order_id', 'line'))"
        )
        found = spark.table("published").where("_change_type <> 'UPDATE_BEFORE'")
        found = found.localCheckpoint()  # Spark 4.1 cannot plan a MERGE whose source is this view
        return _newest(found, "_change_ordinal", f.col("_change_type") == "DELETE")


class Paimon(formats.Paimon):
    """Kinds in a column of the table (`rowkind.field`), so that a round is one INSERT; the writer compacts."""

    more_properties: ClassVar = {"rowkind.field": KIND, "write-only": "false"}

    def __init__(self, warehouse: Path, columns: dict[str, str], key: Sequence[str]) -> None:
        super().__init__(warehouse, columns | {KIND: "STRING"}, key)

    def change(self, changes: DataFrame, table: str) -> None:
        changes.select(*self.columns).writeTo(self.name(table)).append()

    def write(self, new: DataFrame, table: str) -> None:
        self.change(new.withColumn(KIND, f.lit("+I")), table)

    def position(self, spark: SparkSession, table: str) -> int:
        return int(spark.sql(f"SELECT max(snapshot_id) FROM peer.db.`{table}$snapshots`").first()[0])

    def changes(self, spark: SparkSession, table: str, since: int) -> DataFrame:
        found = []
        for number in range(since, self.position(spark, table)):  # one by one, since rows do not tell their order
            reader = spark.read.option("incremental-between", f"{number},{number + 1}")
            found.append(reader.table(f"peer.db.`{table}$audit_log`").withColumn("number", f.lit(number)))
        return _newest(reduce(DataFrame.unionByName, found), "number", f.col("rowkind") == "-D")


class Hudi(formats.Hudi):
    """Deletes are rows with `_hoodie_is_deleted`, so a round is one upsert."""

    def write(self, new: DataFrame, table: str) -> None:
        self._write(new.withColumn("_hoodie_is_deleted", f.lit(False)), table, "bulk_insert")

    def change(self, changes: DataFrame, table: str) -> None:
        deleted = changes.withColumn("_hoodie_is_deleted", f.col(KIND) == "-D").drop(KIND)
        self._write(deleted, table, "upsert")

    def position(self, spark: SparkSession, table: str) -> None:
        return None

    def changes(self, spark: SparkSession, table: str, since: Any) -> DataFrame:
        raise UnsupportedError(
            "incremental reads give no deletes; the CDC of merge-on-read tables is not measured here"
        )


FORMATS = {"merganser": Merganser, "paimon": Paimon, "iceberg": Iceberg, "delta": Delta, "hudi": Hudi}


class SparkStore(Store):
    """A format; its session lives as long as the process, since both workloads use it."""

    def __init__(self, home: Path, settings: dict[str, Any]) -> None:
        super().__init__(home.parent / "warehouse", settings)
        self.format: Any = FORMATS[settings["format"]](self.home, COLUMNS, rows.KEY)
        if not _SESSIONS:
            extra = self.format.settings() | {"spark.sql.session.timeZone": "UTC"}
            if settings["jars"]:
                extra["spark.jars"] = ",".join(settings["jars"])
            self.home.mkdir(parents=True)
            _SESSIONS.append(session("4g", home.parent, extra))
            self.format.start(_SESSIONS[0])
        self.spark = _SESSIONS[0]

    def input(self, path: Path) -> DataFrame:
        return self.spark.read.parquet(f"{path}.parquet")

    def create(self, table: str) -> None:
        self.format.create(self.spark, table, vectors=bool(self.settings.get("vectors")))

    def append(self, table: str, new: DataFrame) -> None:
        self.format.write(new, table)

    def change(self, table: str, written: DataFrame, deleted: DataFrame) -> None:
        changes = written.withColumn(KIND, f.lit("+I"))
        self.format.change(changes.unionByName(deleted.withColumn(KIND, f.lit("-D")), allowMissingColumns=True), table)

    def read(self, table: str, key_range: Sequence[int] | None = None) -> DataFrame:
        if key_range is None:
            found = self.format.read(self.spark, table, list(COLUMNS))
        else:
            found = self._filtered(table, f"order_id BETWEEN {key_range[0]} AND {key_range[1]}")
        self.format.scan(found)
        return found

    def look_up(self, table: str, keys: Sequence[Sequence[int]]) -> pa.Table:
        found = [self._filtered(table, f"order_id = {order} AND line = {line}").collect() for order, line in keys]
        return pa.Table.from_pylist([row.asDict() for part in found for row in part], schema=rows.SCHEMA)

    def position(self, table: str) -> Any:
        return self.format.position(self.spark, table)

    def feed(self, source: str, target: str, since: Any) -> None:
        if isinstance(self.format, Iceberg) and self.settings.get("vectors"):
            raise UnsupportedError(_NO_CHANGES_OF_VECTORS)
        self.format.change(self.format.changes(self.spark, source, since), target)

    def compact(self, table: str) -> None:
        self.format.compact(self.spark, table)

    def path(self, table: str) -> Path:
        place: Path = self.format.path(table)
        return place

    def digest(self, found: DataFrame | pa.Table) -> rows.Digest:
        if isinstance(found, pa.Table):
            return rows.digest(found)
        row = found.select(
            f.count("*"),
            f.sum("order_id"),
            f.sum("line"),
            f.sum("quantity"),
            (f.sum("price") * 100).cast("long"),
            f.sum(f.expr(f"substring(product, {1 + len('product-')})").cast("long")),
            f.count_if(f.col("status") == "shipped"),
            f.count("note"),
            f.sum(f.unix_micros(f.col("updated_at").cast("timestamp")) - rows.BEGIN),
            f.sum(f.col("order_id") * f.col("quantity")),
        ).first()
        assert row is not None
        return [int(value or 0) for value in row]

    def _filtered(self, table: str, where: str) -> DataFrame:
        if isinstance(self.format, Merganser):
            return self.format.filtered(self.spark, table, where)
        found: DataFrame = self.format.read(self.spark, table, list(COLUMNS)).where(where)
        return found


def _newest(changes: DataFrame, order: str, is_delete: Any) -> DataFrame:
    """The last change of each key, with its kind."""
    last = Window.partitionBy(*rows.KEY).orderBy(f.desc(order), is_delete)  # of equal order, a row before a delete
    found = changes.withColumn(KIND, f.when(is_delete, "-D").otherwise("+I"))
    found = found.withColumn("place", f.row_number().over(last)).where("place = 1")
    return found.select(*COLUMNS, KIND)


STORE = SparkStore
