"""A cluster of HDFS on the loopback interface: two namenodes and a datanode in one JVM. Its jars are fetched once.

python -m tests.hdfs.cluster       start one, print its URL and its options, and wait
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.live.services import UnavailableError, fetched, program

_HERE: Final = Path(__file__).resolve().parent
_HOME: Final = _HERE.parents[1] / ".hdfs"


class Folder(NamedTuple):
    """A folder that is not there yet, and how to reach it."""

    root: str
    options: dict[str, str]


class Cluster:
    """A cluster that runs.

    Attributes:
        addresses: of the HTTP servers of the namenodes, as `host:port`. The first namenode is active.
        root: the URL of HDFS, by the first namenode.
    """

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        rpc, http, _, other = self._line().split()
        self.root = f"hdfs://127.0.0.1:{rpc}"
        self.addresses = (f"127.0.0.1:{http}", f"127.0.0.1:{other}")

    def folder(self, user: str = "tester") -> Folder:
        """Return a new folder."""
        options = {"hdfs.webhdfs.address": self.addresses[0], "hdfs.user": user}
        return Folder(f"{self.root}/tests/{uuid.uuid4().hex[:12]}", options)

    def tell(self, command: str) -> None:
        """Give a command that `Cluster.java` knows, and wait until it is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise UnavailableError(f"the cluster of HDFS ended: {self._log.read_text()[-2000:]}")
        return line


@contextmanager
def running() -> Iterator[Cluster]:
    """Run a cluster for the time of the block.

    Raises:
        UnavailableError: there is no Java or no Maven and none can be installed, or it cannot fetch the jars.
    """
    java = program("java", "default-jdk-headless")
    program("javac", "default-jdk-headless")  # a JRE cannot run a source file
    jars = fetched(_HERE / "pom.xml", _HOME, "HDFS")
    with tempfile.TemporaryDirectory(prefix="merganser-hdfs-", ignore_cleanup_errors=True) as folder:
        log = Path(folder, "log")
        with log.open("w") as errors:
            process = subprocess.Popen(
                [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars,
                 str(_HERE / "Cluster.java"), f"{folder}/data"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )  # fmt: skip
        try:
            yield Cluster(process, log)
        finally:
            process.kill()
            process.communicate()


if __name__ == "__main__":
    with running() as started:
        print(started.root, started.folder().options, flush=True)
        signal.pause()
