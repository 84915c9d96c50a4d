"""A broker of Kafka on the loopback interface: fetched once through Maven, and stopped in the end."""

from __future__ import annotations

import base64
import fcntl
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from merganser.cli.demo_session import java
from merganser.errors import NotFoundError, UnsupportedError

_START_SECONDS: Final = 60
VERSION: Final = "4.3.1"
_POM: Final = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>merganser</groupId>
  <artifactId>kafka-broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-nop</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""
_SETTINGS: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


class Broker:
    """A broker in a folder. It can be stopped, killed, and started again with what it has.

    Args:
        folder: for its settings, its data and its output.
        jars: where its program is kept; it is fetched there if it is not there.

    Attributes:
        address: where it answers.
    """

    def __init__(self, folder: Path, jars: Path) -> None:
        self._folder = folder
        port, controller = _free_port(), _free_port()
        self.address = f"127.0.0.1:{port}"
        self._port = port
        self._java = [java(), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{fetched(jars)}/*"]
        settings = folder / "server.properties"
        settings.write_text(_SETTINGS.format(port=port, controller=controller, folder=folder))
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format_ = [*self._java, "kafka.tools.StorageTool", "format", f"--cluster-id={name}", "-c", str(settings)]
        ran = subprocess.run(format_, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise UnsupportedError(f"the broker cannot be made: {ran.stdout[-1000:]}{ran.stderr[-1000:]}")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            UnsupportedError: it does not.
        """
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._folder / "server.properties")],
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for those who use it, and who stop it
            )
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise UnsupportedError(f"the broker did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        with socket.socket() as asked:
            asked.settimeout(0.5)
            return asked.connect_ex(("127.0.0.1", self._port)) == 0

    def kill(self) -> None:
        """Kill it as a power cut would."""
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Let it answer nothing until `resume`, as a network does that is cut."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again."""
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def running(jars: Path) -> Iterator[Broker]:
    """Run a broker for the time of the block; `jars` as for `Broker`."""
    with tempfile.TemporaryDirectory(prefix="merganser-kafka-", ignore_cleanup_errors=True) as folder:
        broker = Broker(Path(folder), jars)
        try:
            yield broker
        finally:
            broker.kill()


def fetched(home: Path) -> Path:
    """Return the folder of the broker's jars; Maven fetches them, once.

    Raises:
        NotFoundError: there is no Maven; says what to do.
        UnsupportedError: it cannot fetch them.
    """
    jars, done = home / "jars", home / "pom.xml"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # others may want the same
        if not done.exists() or done.read_text() != _POM:
            shutil.rmtree(jars, ignore_errors=True)
            asked = home / "asked.xml"
            asked.write_text(_POM)
            _fetch(asked, jars)
            asked.replace(done)
    return jars


def _fetch(pom: Path, jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NotFoundError(
            "the broker of Kafka comes through Maven, and there is no 'mvn' on the PATH. On Debian: apt-get install "
            "maven. Or name a broker of yours: --broker HOST:PORT."
        )
    command = [maven, "-q", "-B", "-f", str(pom.absolute()), "dependency:copy-dependencies",
               "-DincludeScope=runtime", f"-DoutputDirectory={jars.absolute()}"]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise UnsupportedError(f"Maven cannot fetch Kafka: {ran.stdout[-1500:]}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
