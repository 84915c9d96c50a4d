"""Paimon's Java in a process of its own, with the interface of the other clients and what only it can do."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from tests.interop.engines import KIND_FIELD, TableShape
from tests.interop.peers import PeerError
from tests.interop.values import PaimonType, Row, rows_of

_REQUEST_SECONDS_MAX = 300


class JavaProcess:
    """The running driver (`java/Witness.java`)."""

    def __init__(self, class_path: str) -> None:
        """Start it."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process that writes it
        self._process = subprocess.Popen(
            ["java", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path, "Witness"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        """Give the running process."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()
        self._log.close()

    def request(self, op: str, **arguments: object) -> Any:
        """The result of one operation of the driver.

        Raises:
            PeerError: Java refused it, took longer than five minutes, or the process is gone.
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
            self._log.seek(0)
            raise PeerError(f"Java ended during {op!r}: {self._log.read().decode('utf-8', 'replace')[-2000:]}")
        reply = json.loads(line)
        if not reply["ok"]:
            raise PeerError(f"Java cannot {op}: {reply['error']}")
        return reply["result"]


class JavaEngine:
    """Java, working on tables of one warehouse."""

    name = "java"
    deletes = True

    def __init__(self, process: JavaProcess, warehouse: Path, catalog: Mapping[str, str] | None = None) -> None:
        """Nothing is made yet.

        Args:
            process: the driver.
            warehouse: where tables lie.
            catalog: options of the catalog; None: it is the file system.
        """
        self.process, self.warehouse, self.catalog = process, warehouse, dict(catalog or {})

    def ask(self, op: str, table: str, **arguments: object) -> Any:
        """The result of an operation on a table."""
        return self.process.request(op, warehouse=str(self.warehouse), catalog=self.catalog, table=table, **arguments)

    def create(self, table: str, shape: TableShape) -> None:
        """Make a table, and its database unless it is there."""
        fields: list[tuple[str, PaimonType]] = list(shape.fields)
        self.ask(
            "create_table",
            table,
            fields=fields,
            primary_key=list(shape.primary_key),
            partition_by=list(shape.partition_by),
            options=dict(shape.options),
        )

    def write(
        self,
        table: str,
        rows: pa.Table,
        *,
        kinds: Sequence[str] | None = None,
        overwrite: bool = False,
        **arguments: object,
    ) -> None:
        """Write rows as one commit; a compaction may follow at once.

        Args:
            table: "db.t".
            rows: to write.
            kinds: one text for each row.
            overwrite: put the rows in the place of all that the table holds.
            arguments: user, identifier, watermark, options.
        """
        self.ask(
            "write",
            table,
            rows=rows_of(rows),
            kinds=list(kinds) if kinds is not None else None,
            overwrite={} if overwrite else None,
            **arguments,
        )

    def compact(self, table: str, *, full: bool, options: Mapping[str, str] | None = None) -> None:
        """Compact every bucket, fully or as its tree asks for."""
        self.ask("compact", table, full=full, options=dict(options or {}))

    def rows(self, table: str, shape: TableShape) -> list[Row]:
        """Every row of the latest snapshot."""
        return self.read(table)

    def changes(self, table: str, shape: TableShape, start: int, end: int) -> list[Row]:
        """What the snapshots `start` to `end`, both included, published, as `$audit_log` shows it."""
        options = {"incremental-between": f"{start - 1},{end}", "incremental-between-scan-mode": "changelog"}
        found = self.read(f"{table}$audit_log", options=options)
        return [{KIND_FIELD[0]: row["rowkind"], **{name: row[name] for name, _ in shape.fields}} for row in found]

    def read(
        self,
        table: str,
        *,
        where: Sequence[tuple[str, str, Sequence[object]]] = (),
        options: Mapping[str, str] | None = None,
    ) -> list[Row]:
        """Rows in the encoding of `values.py`.

        Args:
            table: "db.t".
            where: (method, column, literals) that must all hold.
            options: dynamic ones: where in time to read.
        """
        where_json = [list(term) for term in where] or None
        found = self.ask("read", table, where=where_json, options=dict(options or {}))
        assert set(found["kinds"]) <= {"+I", "+U"} or "$" in table, f"a batch read gave kinds {found['kinds']}"
        rows: list[Row] = found["rows"]
        return rows

    def stream(self, table: str, start: int, end: int) -> list[Row]:
        """What a stream of a table, or of a system table, gives of the snapshots `start` to `end`, both included."""
        rows: list[Row] = self.ask("stream", table, start=start, end=end)["rows"]
        return rows

    def files(self, table: str, snapshot: int | None = None) -> list[dict[str, Any]]:
        """The live files, as Java reads the manifests."""
        found: list[dict[str, Any]] = self.ask("files", table, snapshot=snapshot)
        return found
