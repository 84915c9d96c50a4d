"""What all tests share: random tests take the time they need, and a failure prints how to repeat it.

With `-n 2 --dist loadgroup` (`make test`) two processes share the tests. Those that need Spark stay together in one of
them, so that there is one session, and those that need HDFS are with them, so that there is one cluster. Tests marked
`spark(session=False)` start Spark in processes of their own, and run in either one. Those that need a broker of Kafka
alone stay together, too. A third process makes it slower on two cores: that with Spark is the last to end.

Of a test that is marked `campaign(part)` a part of its cases runs, on each day another one: with a part of 1/7, all of
them within seven days. Slow ones say with `first` on which day theirs is. `MERGANSER_DAY=2026-05-31` runs the parts of
that day, and `--whole` all cases (`make whole`).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import settings

from tests import s3_server
from tests.hdfs import cluster as hdfs_cluster
from tests.live.services import UnavailableError
from tests.seeds import day, part_of

settings.register_profile("merganser", deadline=None, print_blob=True)
settings.load_profile("merganser")

os.environ.setdefault("MERGANSER_DAY", str(datetime.now(UTC).date()))  # that of the first process, for all

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # processes that tests start share compiled modules
sys.dont_write_bytecode = False

os.fsync = lambda _: None
"""Tests stop processes and not the machine, which keeps what they wrote: they do not wait for the disk."""

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for minutes spends half of its time on its second compiler."""
os.environ.setdefault(
    "PYSPARK_SUBMIT_ARGS",
    f'--driver-java-options "{JAVA}" --conf "spark.executor.extraJavaOptions={JAVA}" pyspark-shell',
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="run all cases of tests that are marked as campaigns")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("whole"):
        left_out = _left_out(items)
        config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
        items[:] = [item for item in items if id(item) not in left_out]
    for item in items:
        spark = item.get_closest_marker("spark")
        if (spark is not None and spark.kwargs.get("session", True)) or item.get_closest_marker("hdfs"):
            item.add_marker(pytest.mark.xdist_group("spark"))  # those that need both share a cluster with the others
        elif item.get_closest_marker("broker"):
            item.add_marker(pytest.mark.xdist_group("broker"))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)  # else one process ends long after the other


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.stats.keys() & {"failed", "error"}:
        terminalreporter.write_line(f"MERGANSER_DAY={day()} runs the same parts of campaigns on another day")


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests stay for the whole run: the collector need not look at them again and again


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An S3 server on the loopback, for the tests marked `s3`; deselect them with `-m "not s3"`.

    The variable MERGANSER_S3_ENDPOINT names a server of yours instead: a test one, whose keys are those of `s3_server`.
    """
    if given := os.environ.get("MERGANSER_S3_ENDPOINT"):
        yield given
        return
    pytest.importorskip("moto.server")
    with s3_server.running() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3_endpoint: str) -> s3_server.Bucket:
    """A fresh bucket."""
    pytest.importorskip("boto3")
    return s3_server.new_bucket(s3_endpoint)


@pytest.fixture(scope="session")
def hdfs() -> Iterator[hdfs_cluster.Cluster]:
    """A cluster of HDFS on the loopback, for the tests marked `hdfs`; each has a folder of its own."""
    pytest.importorskip("requests")
    try:
        with hdfs_cluster.running() as started:
            yield started
    except UnavailableError as error:
        pytest.skip(f"there is no HDFS to test with: {error}")


def _left_out(items: list[pytest.Item]) -> set[int]:
    """Return which cases of campaigns do not run on this day, by `id`."""
    campaigns: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("campaign"):
            campaigns.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: set[int] = set()
    for name, cases in campaigns.items():
        mark = cases[0].get_closest_marker("campaign")
        assert mark is not None
        left_out |= set(map(id, cases)) - set(map(id, part_of(cases, mark.args[0], name, day(), **mark.kwargs)))
    return left_out
