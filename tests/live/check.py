"""Records of a database -> tables, in all ways that merganser has -> where they differ from the database."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import merganser as mg
from merganser.errors import MerganserError
from tests.debezium import on_spark
from tests.debezium.recordings import Record, Source
from tests.debezium.replica import apply, declare, unexplained
from tests.debezium.values import Difference, Setting

ROOT: Final = Path(__file__).resolve().parents[2]
_STREAM_SECONDS: Final = 300
Defaults = Mapping[str, Mapping[str, str]]


def embedded(
    work: Path, sources: Iterable[Source], records: Sequence[Record], setting: Setting, defaults: Defaults
) -> list[Difference]:
    """Write the records of each table by `Table.write_changes`."""
    catalog = _catalog(work / "embedded")
    wrong = []
    for source in sources:
        table = declare(catalog, f"app.{source.topic}", source, setting)
        try:
            apply(table, source, records, setting)
        except MerganserError as error:
            wrong.append(Difference(source.name, (), None, "all records", str(error)))
        else:
            wrong += unexplained(source, table, records, setting, defaults)
    return wrong


def by_spark(
    spark: SparkSession,
    work: Path,
    sources: Sequence[Source],
    records: Sequence[Record],
    setting: Setting,
    defaults: Defaults,
) -> list[Difference]:
    """Write the records of all tables by `ms.cdc.write`."""
    catalog = _catalog(work / "spark")
    on_spark.lay(work / "batch", records, size=len(records))
    wrong = []
    for members, options in on_spark.feeds(sources, setting):
        tables = {source.topic: declare(catalog, f"app.{source.topic}", source, setting) for source in members}
        try:
            on_spark.write(spark, work / "batch", tables, setting, table_column="topic", **options)
        except MerganserError as error:
            wrong.append(Difference(members[0].name, (), None, "all records", str(error)))
            continue
        for source in members:
            wrong += unexplained(source, tables[source.topic], records, setting, defaults)
    return wrong


def by_killed_stream(
    work: Path,
    sources: Sequence[Source],
    records: Sequence[Record],
    setting: Setting,
    defaults: Defaults,
    rng: random.Random,
    kills: int,
) -> list[Difference]:
    """Write the records by a stream whose process is killed some times, at random moments after its first commit."""
    catalog = _catalog(work / "stream")
    tables = {source.topic: declare(catalog, f"app.{source.topic}", source, setting) for source in sources}
    on_spark.lay(work / "arriving", records, size=max(1, len(records) // 16))
    columns = {one.name: {"columns": one.told, "key": one.key, "rows": []} for one in sources}
    (work / "stream.json").write_text(json.dumps({"setting": setting.options, "tables": columns}))
    killed = sum(_streamed(work, rng.uniform(0, 4)) for _ in range(kills))
    if killed < kills:
        print(f"  the stream came to its end after {killed} kills", flush=True)
    _streamed(work, None)
    wrong = []
    for source in sources:
        wrong += unexplained(source, tables[source.topic], records, setting, defaults)
    return wrong


def _streamed(work: Path, seconds: float | None) -> bool:
    """Run the stream; return whether it was killed, some seconds after its first batch."""
    command = [sys.executable, "-m", "tests.live.follow", str(work)]
    with (work / "stream.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        if seconds is not None:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                return True
        elif process.wait(_STREAM_SECONDS) != 0:
            raise RuntimeError(f"the stream failed: {(work / 'stream.log').read_text(errors='replace')[-3000:]}")
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _catalog(folder: Path) -> mg.Catalog:
    catalog = mg.catalog(str(folder))
    catalog.create_database("app")
    return catalog
