"""PostgreSQL and MariaDB from Debian packages: each is started on loopback in a folder of its own, and stopped."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_START_SECONDS: Final = 60
_STOP_SECONDS: Final = 60


class UnavailableError(RuntimeError):
    """What a live test needs is not there; the text says what to do."""


def program(name: str, package: str) -> str:
    """Return the path of a program, from a Debian package that is installed if it is not there.

    Raises:
        UnavailableError: it cannot be installed.
    """
    found = _program(name)
    if found is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise UnavailableError(f"there is no {name}. Install Debian's package '{package}'.")
        print(f"installing {package} through apt", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
            done = subprocess.run(["apt-get", *command], env=environment, capture_output=True, text=True, check=False)
        found = _program(name)
        if found is None:
            raise UnavailableError(f"there is no {name}, and apt could not install '{package}': {done.stderr[-500:]}")
    return found


def fetched(pom: Path, home: Path, what: str) -> str:
    """Return the class path of the jars that a `pom.xml` names; Maven fetches them, once.

    Args:
        pom: the file.
        home: the folder for the jars.
        what: a name for people.

    Raises:
        UnavailableError: there is no Maven, or it cannot fetch them.
    """
    jars, done = home / "jars", home / "pom.xml"
    home.mkdir(exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes may want the same
        if not done.exists() or done.read_text() != pom.read_text():
            print(f"fetching {what} through Maven", flush=True)
            shutil.rmtree(jars, ignore_errors=True)
            command = [program("mvn", "maven"), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
                       "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]  # fmt: skip
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode != 0:
                raise UnavailableError(f"Maven cannot fetch {what}: {ran.stdout[-1500:]}")
            done.write_text(pom.read_text())
    return f"{jars}/*"


def _program(name: str) -> str | None:
    # Debian keeps the server's programs of each version of PostgreSQL apart
    folders = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    return shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", ""), "/usr/sbin"]))


class Server:
    """A database server that runs until `stop`.

    Attributes:
        port: on 127.0.0.1.
        folder: where its files lie.
    """

    user: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._command: tuple[str, ...] = ()
        folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(folder, self.user, self.user)

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, **self._as_user(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UnavailableError(f"{command[0]} failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")

    def _as_user(self) -> dict[str, Any]:
        """Return who programs of the server run as: root may not run them, so its user does."""
        options: dict[str, Any] = {"cwd": self.folder, "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:
            found = pwd.getpwnam(self.user)
            options |= {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
        return options

    def start(self) -> None:
        """Start a server again that has ended."""
        self._start(*self._command)

    def crash(self) -> None:
        """End the server at once, in the middle of what it does, as `pg_ctl -m immediate` does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT if self.user == "postgres" else signal.SIGKILL)
        self._process.wait(_STOP_SECONDS)

    def _start(self, *command: str) -> None:
        self._command = command
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, **self._as_user(), stdout=log, stderr=log)
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                log_text = (self.folder / "log").read_text(errors="replace")
                self.stop()
                raise UnavailableError(f"the server did not start: {log_text[-2000:]}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            self.query("SELECT 1")
        except RuntimeError:
            return False
        return True

    def query(self, sql: str) -> str:
        """Run statements as one session and return what they print.

        Raises:
            RuntimeError: one failed.
        """
        done = subprocess.run(self._client(), input=sql, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-2000:])
        return done.stdout

    def _client(self) -> Sequence[str]:
        raise NotImplementedError

    def connector(self) -> Mapping[str, str]:
        """Return the settings with which a connector finds the server."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the server."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT if self.user == "postgres" else signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class PostgreSQL(Server):
    """A PostgreSQL whose log connectors can read."""

    user = "postgres"

    def __init__(self, folder: Path) -> None:
        program("psql", "postgresql-client")
        postgres = program("postgres", "postgresql")
        super().__init__(folder)
        data = str(folder / "data")
        self._run(program("initdb", "postgresql"), "-D", data, "-U", "live", "-A", "trust", "-E", "UTF8", "-N",
                  "--locale", "C.UTF-8")  # fmt: skip
        settings = {
            "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": folder, "fsync": "off",
            "wal_level": "logical", "max_connections": 500, "max_wal_senders": 40, "max_replication_slots": 40,
            "timezone": "UTC",
        }  # fmt: skip
        self._start(
            postgres, "-D", data, *(part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
        )

    def _client(self) -> Sequence[str]:
        return [
            program("psql", "postgresql-client"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1",
            f"host=127.0.0.1 port={self.port} user=live dbname=postgres",
        ]  # fmt: skip

    def connector(self) -> Mapping[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "publication.autocreate.mode": "disabled",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": "live",
            "database.password": "live",
            "database.dbname": "postgres",
            "schema.include.list": "app",
        }


class MariaDB(Server):
    """A MariaDB with a binlog of whole rows."""

    user = "mysql"

    def __init__(self, folder: Path) -> None:
        server = program("mariadbd", "mariadb-server")
        super().__init__(folder)
        data = str(folder / "data")
        self._run(program("mariadb-install-db", "mariadb-server"), "--no-defaults", f"--datadir={data}",
                  "--auth-root-authentication-method=normal", "--skip-test-db")  # fmt: skip
        self._start(
            server, "--no-defaults", f"--datadir={data}", f"--port={self.port}", "--bind-address=127.0.0.1",
            f"--socket={folder}/socket", f"--pid-file={folder}/pid", "--log-bin=binlog", "--binlog-format=ROW",
            "--binlog-row-image=FULL", "--server-id=1", "--max-binlog-size=65536", "--default-time-zone=+00:00",
            "--character-set-server=utf8mb4", "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=64M",
            "--binlog-row-metadata=FULL",
        )  # fmt: skip
        self.query("CREATE USER live IDENTIFIED BY 'live'; GRANT ALL ON *.* TO live")

    def _client(self) -> Sequence[str]:
        return [
            program("mariadb", "mariadb-client"), "--no-defaults", "-h", "127.0.0.1", f"-P{self.port}", "-u", "root",
            "--default-character-set=utf8mb4", "--batch", "--raw", "--skip-column-names", "--binary-mode",
        ]  # fmt: skip

    def connector(self) -> Mapping[str, str]:
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self.port),
            "database.user": "live",
            "database.password": "live",
            "database.include.list": "app",
            "bigint.unsigned.handling.mode": "precise",
        }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
