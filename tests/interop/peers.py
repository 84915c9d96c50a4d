"""The other clients of the format, each in an environment of its own and driven as a process.

`pypaimon` and `pypaimon-rust` pin libraries that merganser does not want, so they never share an interpreter with it.
`environment_of` makes a virtual environment for a client once and keeps it, named after the hash of the requirements,
below the directory in MERGANSER_PEER_ENVS, or else `~/.cache/merganser/peers`. It is built under a name of its own and
moved to the final one when it is complete: a crash leaves a directory that nobody uses, and of two processes that build
at once one wins and the other throws its copy away.

`Peer` starts the driver of a client and talks to it in lines of JSON (`driver_loop.py`); rows cross as Arrow IPC files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from .driver_loop import read_ipc, write_ipc
from .values import Field, PaimonType, Row, rows_of

_HERE = Path(__file__).resolve().parent
_PYTHON_MINORS = (11, 12, 13)
"""Versions of Python 3 for which both clients and what they pin have wheels."""
_REQUEST_SECONDS_MAX = 600


class PeerUnavailableError(RuntimeError):
    """The environment of a client could not be made; the text has the installer's own words."""


class PeerError(RuntimeError):
    """A client refused a request, or its process ended; the text has the client's own words."""


@dataclass(frozen=True, slots=True)
class PeerKind:
    """One client: what to install for it and which script drives it."""

    name: str
    requirements: tuple[str, ...]
    driver: str


PYPAIMON = PeerKind("pypaimon", ("pypaimon==2.1.0",), "drive_pypaimon.py")
RUST = PeerKind("pypaimon-rust", ("pypaimon-rust==0.4.0", "pyarrow>=19", "numpy>=1.26"), "drive_rust.py")


# ── environments ──────────────────────────────────────────────────────────────────────────────────────────────────────


def environment_of(kind: PeerKind) -> Path:
    """The interpreter of the client's environment, which is made by the first call on a machine.

    Raises:
        PeerUnavailableError: no fitting Python, or the packages could not be installed. Nothing is left behind under
            the final name, and the next call tries again.
    """
    base_python = _base_python()
    recipe = "\n".join([*kind.requirements, _version_of(base_python)])
    home = _environments_directory()
    final = home / f"{kind.name}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    if not final.exists():
        home.mkdir(parents=True, exist_ok=True)
        building = home / f".building-{uuid.uuid4().hex}"
        try:
            _build(building, base_python, kind.requirements)
            _move_unless_there(building, final)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return _interpreter_in(final)


def _environments_directory() -> Path:
    chosen = os.environ.get("MERGANSER_PEER_ENVS")
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "merganser" / "peers"


def _base_python() -> str:
    if sys.version_info[:2] in [(3, minor) for minor in _PYTHON_MINORS]:
        return sys.executable
    for minor in _PYTHON_MINORS:
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    raise PeerUnavailableError(
        "cannot make an environment for the peers: they need Python 3.11, 3.12 or 3.13, this is "
        f"{sys.version.split()[0]}, and no other is on the PATH."
    )


def _version_of(python: str) -> str:
    if python == sys.executable:
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    return Path(python).name.removeprefix("python")


def _interpreter_in(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _build(directory: Path, base_python: str, requirements: Sequence[str]) -> None:
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    python = str(_interpreter_in(directory))
    if uv:
        commands = [
            [uv, "venv", "--quiet", "--python", base_python, str(directory)],
            [uv, "pip", "install", "--quiet", "--python", python, *requirements],
        ]
    else:
        commands = [
            [base_python, "-m", "venv", str(directory)],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements],
        ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerUnavailableError(
                f"cannot make an environment for {', '.join(requirements)}: {' '.join(command)!r} ended with "
                f"{done.returncode}:\n{done.stderr.strip()}"
            )


def _move_unless_there(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError:
        if not target.exists():
            raise


# ── a running client ──────────────────────────────────────────────────────────────────────────────────────────────────


class Peer:
    """A client in a process of its own, one warehouse at a time named by each request. Close it, or use `with`."""

    def __init__(self, kind: PeerKind) -> None:
        """Start the driver; makes the environment first if the machine has none.

        Raises:
            PeerUnavailableError: the environment cannot be made.
        """
        self.kind = kind
        python = environment_of(kind)
        self._exchange = tempfile.TemporaryDirectory(prefix="merganser-peer-")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process that writes it
        self._file_count = 0
        isolated = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        self._process = subprocess.Popen(
            [str(python), str(_HERE / kind.driver)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=isolated,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        """Give the running peer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """End the process and drop the files that were exchanged."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._log.close()
        self._exchange.cleanup()

    def request(self, op: str, **arguments: object) -> Any:
        """The result of one operation of the driver.

        Raises:
            PeerError: the client refused it, took longer than ten minutes, or its process is gone.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(_REQUEST_SECONDS_MAX, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watchdog.cancel()
        if not line:
            raise PeerError(f"{self.kind.name} ended during {op!r}: {self._last_words()}")
        reply = json.loads(line)
        if not reply["ok"]:
            raise PeerError(f"{self.kind.name} cannot {op}: {reply['error']}")
        return reply["result"]

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")[-2000:]

    def _new_path(self) -> str:
        self._file_count += 1
        return str(Path(self._exchange.name) / f"{self._file_count}.arrow")

    def create_table(
        self,
        warehouse: str | Path,
        table: str,
        fields: Iterable[tuple[str, PaimonType]],
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Create `table` ("db.t"), and its database unless it is there."""
        self.request(
            "create_table",
            warehouse=str(warehouse),
            table=table,
            fields=list(fields),
            primary_key=list(primary_key),
            partition_by=list(partition_by),
            options=dict(options or {}),
        )

    def write(
        self, warehouse: str | Path, table: str, rows: pa.Table, *, overwrite: Mapping[str, object] | None = None
    ) -> None:
        """Write `rows` as one commit; `overwrite` as in `merganser.Table.write`, but static only."""
        path = self._new_path()
        write_ipc(rows, path)
        self.request("write", warehouse=str(warehouse), table=table, rows=path, overwrite=overwrite)
        Path(path).unlink()

    def read(
        self,
        warehouse: str | Path,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: Sequence[tuple[str, str, Sequence[object]]] = (),
        options: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """The rows of the latest snapshot as the client gives them.

        Args:
            warehouse: directory of the warehouse.
            table: "db.t".
            columns: the columns to read; None for all.
            where: (method, column, literals) that must all hold, in the words of the clients: equal, less_than,
                greater_or_equal, is_null, ...
            options: dynamic table options.
        """
        path = self._new_path()
        self.request(
            "read",
            warehouse=str(warehouse),
            table=table,
            columns=list(columns) if columns else None,
            where=[list(term) for term in where],
            options=dict(options or {}),
            out=path,
        )
        rows = read_ipc(path)
        Path(path).unlink()
        return rows

    def rows(self, warehouse: str | Path, table: str, fields: Iterable[Field] | None = None) -> list[Row]:
        """All rows in the encoding of `values.py`."""
        return rows_of(self.read(warehouse, table), fields)

    def changes(self, warehouse: str | Path, table: str, start: int, end: int, **arguments: object) -> pa.Table:
        """What the snapshots `start` to `end`, both included, published: `_row_kind`, then the columns of the table.

        Args:
            warehouse: directory of the warehouse.
            table: "db.t".
            start, end: ids of snapshots.
            arguments: what else the driver of the client takes.
        """
        path = self._new_path()
        self.request(
            "changes", warehouse=str(warehouse), table=table, start=start, end=end, options={}, out=path, **arguments
        )
        rows = read_ipc(path)
        Path(path).unlink()
        return rows

    def latest_snapshot(self, warehouse: str | Path, table: str) -> int | None:
        """Id of the latest snapshot; None when nothing was committed yet."""
        found: int | None = self.request("latest_snapshot", warehouse=str(warehouse), table=table)
        return found

    def sql(self, warehouse: str | Path, table: str, statement: str) -> pa.Table:
        """Run one SQL statement in which {table} stands for the table (pypaimon-rust only)."""
        path = self._new_path()
        self.request("sql", warehouse=str(warehouse), table=table, statement=statement, out=path)
        rows = read_ipc(path)
        Path(path).unlink()
        return rows
