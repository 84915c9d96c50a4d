"""A broker of Kafka on the loopback interface: fetched once through Maven, started in a folder of its own, and stopped.

python -m tests.log.broker       start one, print its address, and wait
"""

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

from tests.live.services import UnavailableError, program

_HERE: Final = Path(__file__).resolve().parent
_HOME: Final = _HERE.parents[1] / ".kafka"
"""Where the jars of the broker are kept."""
_START_SECONDS: Final = 60
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


def class_path() -> str:
    """Return the class path of the broker; Maven fetches the jars that `pom.xml` names, once.

    Raises:
        UnavailableError: there is no Maven, or it cannot fetch them.
    """
    pom = (_HERE / "pom.xml").read_text()
    jars, done = _HOME / "jars", _HOME / "pom.xml"
    _HOME.mkdir(exist_ok=True)
    with (_HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes of the suite want the same
        if not done.exists() or done.read_text() != pom:
            _fetch(jars)
            done.write_text(pom)
    return f"{jars}/*"


def _fetch(jars: Path) -> None:
    print("fetching Kafka through Maven", flush=True)
    shutil.rmtree(jars, ignore_errors=True)
    command = [program("mvn", "maven"), "-q", "-B", "-f", str(_HERE / "pom.xml"), "dependency:copy-dependencies",
               "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise UnavailableError(f"Maven cannot fetch Kafka: {ran.stdout[-1500:]}")


class Broker:
    """A broker in a folder. It can be stopped, killed, and started again with what it has.

    Attributes:
        address: where it answers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port, controller = _free_port(), _free_port()
        self.address = f"127.0.0.1:{port}"
        self._port = port
        self._java = [
            program("java", "default-jdk-headless"),
            "-Xmx512m",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            class_path(),
        ]
        settings = folder / "server.properties"
        settings.write_text(_SETTINGS.format(port=port, controller=controller, folder=folder))
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format_ = [*self._java, "kafka.tools.StorageTool", "format", f"--cluster-id={name}", "-c", str(settings)]
        ran = subprocess.run(format_, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise UnavailableError(f"the broker cannot be made: {ran.stdout[-1000:]}{ran.stderr[-1000:]}")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            UnavailableError: it does not.
        """
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._folder / "server.properties")], stdout=log, stderr=log
            )
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise UnavailableError(f"the broker did not start: {(self._folder / 'log').read_text()[-2000:]}")
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
def running() -> Iterator[Broker]:
    """Run a broker for the time of the block."""
    with tempfile.TemporaryDirectory(prefix="merganser-kafka-", ignore_cleanup_errors=True) as folder:
        broker = Broker(Path(folder))
        try:
            yield broker
        finally:
            broker.kill()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    with running() as started:
        print(started.address, flush=True)
        signal.pause()
