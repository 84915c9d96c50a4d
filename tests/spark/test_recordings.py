"""What Debezium recorded of a real PostgreSQL, written by Spark: tables hold what the database holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import merganser as mg
import merganser.spark as ms
from tests.debezium import on_spark, recordings
from tests.debezium.replica import declare, make, sendable, unexplained
from tests.debezium.test_recordings import DEFAULTS

pytestmark = pytest.mark.spark


def _sources(letter: str) -> list[recordings.Source]:
    setting = recordings.setting(letter)
    every = recordings.sources().values()
    return [one for one in every if sendable(one, setting)]


@pytest.mark.parametrize("letter", ["A", "C"])
def test_one_call_writes_all_tables(spark: SparkSession, catalog: mg.Catalog, tmp_path: Path, letter: str) -> None:
    setting, records = recordings.setting(letter), recordings.records(letter)
    on_spark.lay(tmp_path / "in", records, size=len(records))
    wrong = []
    for sources, options in on_spark.feeds(_sources(letter), setting):
        tables = {source.topic: declare(catalog, f"shop.{source.topic}", source, setting) for source in sources}
        on_spark.write(spark, tmp_path / "in", tables, setting, table_column="topic", **options)
        for source in sources:
            wrong += unexplained(source, tables[source.topic], records, setting, DEFAULTS)
    assert not wrong


def test_one_call_creates_the_tables(spark: SparkSession, catalog: mg.Catalog, tmp_path: Path) -> None:
    setting, records = recordings.setting("J"), recordings.records("J")
    on_spark.lay(tmp_path / "in", records, size=len(records))
    # the feed leaves columns out that the source adds later, and a table without a key is not created
    sources = [source for source in _sources("J") if source.key and source.name != "evolve"]
    names = "|".join(source.name for source in sources)
    options = {"create": True, "target": "made.{table}", "table": names, "unavailable": "keep"}
    written = on_spark.write(spark, tmp_path / "in", catalog, setting, **options)
    assert len(written.snapshots) == len(sources)
    wrong = []
    for source in sources:
        wrong += unexplained(source, catalog.table(f"made.{source.name}"), records, setting, DEFAULTS)
    assert not wrong


def test_a_stream_that_is_stopped_goes_on(spark: SparkSession, catalog: mg.Catalog, tmp_path: Path) -> None:
    setting, records = recordings.setting("J"), recordings.records("J")
    on_spark.lay(tmp_path / "in", records, size=200)
    ((sources, options),) = on_spark.feeds(_sources("J"), setting)
    tables = {source.name: declare(catalog, f"shop.{source.topic}", source, setting) for source in sources}

    def started(trigger: str) -> StreamingQuery:
        frame, checkpoint = on_spark.stream(spark, tmp_path / "in"), str(tmp_path / "cp")
        return ms.cdc.write_stream(
            frame, setting.format, tables, checkpoint, unknown="ignore", trigger=trigger, **options
        )

    query = started("0 seconds")
    while query.lastProgress is None:
        query.awaitTermination(0.1)
    query.stop()  # in its second batch
    started("availableNow").awaitTermination()
    wrong = []
    for source in sources:
        wrong += unexplained(source, tables[source.name], records, setting, DEFAULTS)
    assert not wrong


@pytest.mark.parametrize(("letter", "through"), [("A", "ms.cdc.write"), ("J", "ms.cdc.write_stream")])
def test_tables_get_the_columns_and_types_that_the_database_gets(
    spark: SparkSession, catalog: mg.Catalog, tmp_path: Path, letter: str, through: str
) -> None:
    setting, records = recordings.setting(letter), recordings.records(letter)
    on_spark.lay(tmp_path / "in", records, size=150)
    chosen = [source for source in _sources(letter) if source.name in ("evolve", "toast", "comp")]
    ((sources, options),) = on_spark.feeds(chosen, setting)
    # as the records before the first ALTER tell them
    tables = {source.topic: make(catalog, f"shop.{source.topic}", source, records, setting) for source in sources}
    if through == "ms.cdc.write":
        on_spark.write(spark, tmp_path / "in", tables, setting, table_column="topic", **options)
    else:
        frame, checkpoint = on_spark.stream(spark, tmp_path / "in"), str(tmp_path / "cp")
        options |= {"unknown": "ignore", "trigger": "availableNow", "table_column": "topic"}
        ms.cdc.write_stream(frame, setting.format, tables, checkpoint, **options).awaitTermination()
    before, after = tables["evolve"].schema, catalog.table("shop.evolve").schema
    assert set(after.names) - set(before.names) == {"c1", "d1", "ee"}
    assert [str(schema.field("a").type) for schema in (before, after)] == ["INT", "BIGINT"]
    wrong = []
    for source in sources:
        wrong += unexplained(source, catalog.table(f"shop.{source.topic}"), records, setting, DEFAULTS)
    assert not wrong
