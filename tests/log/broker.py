"""A broker of Kafka for tests; what it needs is installed and fetched once.

python -m tests.log.broker       start one, print its address, and wait
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from merganser.cli import demo_broker
from merganser.cli.demo_broker import Broker
from merganser.errors import UnsupportedError
from tests.live.services import UnavailableError, program

JARS: Final = Path(__file__).resolve().parents[2] / ".kafka"


@contextmanager
def running() -> Iterator[Broker]:
    """Run a broker for the time of the block.

    Raises:
        UnavailableError: there is no Maven and none can be installed, or it cannot fetch the broker.
    """
    program("java", "default-jdk-headless")
    program("mvn", "maven")
    try:
        demo_broker.fetched(JARS)
    except UnsupportedError as error:
        raise UnavailableError(str(error)) from error
    with demo_broker.running(JARS) as broker:
        yield broker


def client_threads() -> list[str]:
    """Return the names of the threads of clients of Kafka in this process."""
    names = []
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it has ended
            names.append(path.read_text().strip())
    return sorted(name for name in names if name.startswith("rdk:"))


if __name__ == "__main__":
    with running() as started:
        print(started.address, flush=True)
        signal.pause()
