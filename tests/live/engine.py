"""Debezium's embedded engine, in a JVM of its own: one connector for each setting, each with a file of its records."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from tests.debezium.recordings import Record
from tests.live.services import fetched, program

_HERE: Final = Path(__file__).resolve().parent
_HOME: Final = _HERE.parents[1] / ".live"
"""Where the jars of Debezium are kept."""
_WAIT_SECONDS: Final = 300


def class_path() -> str:
    """Return the class path of the engine; Maven fetches the jars that `pom.xml` names, once.

    Raises:
        UnavailableError: there is no Maven, or it cannot fetch them.
    """
    return fetched(_HERE / "pom.xml", _HOME, "Debezium")


class Engine:
    """A JVM that records. Its records of a setting are lines of a file that grows.

    Attributes:
        folder: where files of settings, offsets and records lie.
    """

    def __init__(self, folder: Path, connector: Mapping[str, str], settings: Mapping[str, Mapping[str, str]]) -> None:
        """Start an engine for each setting.

        Args:
            folder: a new folder.
            connector: how the database is found.
            settings: of the connector and the converter, by name.
        """
        self.folder = folder
        self.names = list(settings)
        folder.mkdir()
        for i, (name, own) in enumerate(settings.items()):
            told = {
                "name": name, "topic.prefix": f"live_{name.lower()}", "slot.name": f"live_{name.lower()}",
                "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
                "offset.storage.file.filename": str(folder / f"{name}.offsets"), "offset.flush.interval.ms": "0",
                "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
                "schema.history.internal.file.filename": str(folder / f"{name}.history"),
                "database.server.id": str(100 + i), **connector, **own,
            }  # fmt: skip
            lines = [f"{key}={value}\n" for key, value in told.items()]
            (folder / f"{name}.properties").write_text("".join(lines))
        java = program("java", "default-jdk-headless")
        program("javac", "default-jdk-headless")  # a JRE cannot run a source file
        command = [java, "-Xmx1500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path()]
        self._log: IO[bytes] = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [*command, str(_HERE / "java" / "Recorder.java"), str(folder)],
            stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, env={**os.environ, "TZ": "UTC"},
        )  # fmt: skip

    def wait(self, table: str, row: int) -> None:
        """Wait until all settings have recorded a row of a table whose key is a number.

        Raises:
            RuntimeError: the engine ended, or it takes too long.
        """
        until = time.monotonic() + _WAIT_SECONDS
        waiting = set(self.names)
        while waiting:
            for name in sorted(waiting):
                if any(_is_row(record, table, row) for record in self.records(name)):
                    waiting.remove(name)
            if self._process.poll() is not None or time.monotonic() > until:
                log = (self.folder / "log").read_text(errors="replace")
                raise RuntimeError(f"{sorted(waiting)} did not record row {row} of {table}: {log[-6000:]}")
            time.sleep(0.5)

    def records(self, name: str) -> list[Record]:
        """Return the records of a setting so far."""
        path = self.folder / f"{name}.jsonl"
        if not path.exists():
            return []
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [Record(**json.loads(line)) for line in lines]

    def stop(self) -> None:
        """End all engines."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def _is_row(record: Record, table: str, row: int) -> bool:
    if record.table != table or record.key is None:
        return False
    key = json.loads(record.key)
    return bool(key.get("payload", key) == {"id": row})
