"""One broker for the tests of this package."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.live.services import UnavailableError
from tests.log.broker import Broker, running

try:
    from tests.spark.conftest import spark
except pytest.skip.Exception:

    @pytest.fixture(scope="session")
    def spark() -> None:
        pytest.skip("pyspark is not installed")


@pytest.fixture(scope="module", autouse=True)
def clients_end() -> Iterator[None]:
    """Clients of Kafka that nobody has any more end here: their end crashes a process that a later test forks."""
    yield
    gc.collect()


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    """A broker that all tests share; each table has a topic of its own. It ends with them: it is never idle."""
    pytest.importorskip("confluent_kafka")
    try:
        with running() as started:
            yield started
    except UnavailableError as error:
        pytest.skip(f"there is no broker to test with: {error}")
