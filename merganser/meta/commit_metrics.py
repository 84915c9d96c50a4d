"""CommitMetrics: what one commit cost, and what all commits of this process have cost together.

Metrics go with the `Snapshot` that a commit returns; they are no part of the file and take no part in comparisons.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class CommitMetrics:
    """The changes of one commit and its duration.

    Attributes:
        table: name of the table.
        snapshot_id: the snapshot it made.
        kind: its commit kind.
        rows_added, rows_removed: rows of data files added and removed, as they lie there, before merging.
        bytes_added, bytes_removed: bytes of those files.
        files_added, files_removed: how many they are.
        buckets: buckets that changed.
        attempts: how often a snapshot was tried; above 1, other writers were first.
        seconds: by phase, in the order they came. "check": rows checked and converted; "write": rows ordered, folded
            and written into files; "compact": files read, merged and written; "tasks": all of that in an engine's
            tasks; "renumber": sequence numbers raised above those of other writers; "record": found out what each
            row changed; "manifests": conflicts checked and metadata written; "publish": the snapshot made. Waiting for
            other writers is in none of them.
    """

    table: str
    snapshot_id: int
    kind: str
    rows_added: int
    rows_removed: int
    bytes_added: int
    bytes_removed: int
    files_added: int
    files_removed: int
    buckets: int
    attempts: int = 1
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        def files(count: int, rows: int, size: int) -> str:
            plural = ["" if number == 1 else "s" for number in (count, rows)]
            return f"{count:,} file{plural[0]} ({rows:,} row{plural[1]}, {size:,} bytes)"

        phases = ", ".join(f"{phase} {seconds:.3f} s" for phase, seconds in self.seconds.items())
        parts = [f"{self.kind} snapshot {self.snapshot_id} of '{self.table}':"]
        parts.append(f"{files(self.files_added, self.rows_added, self.bytes_added)} in,")
        parts.append(f"{files(self.files_removed, self.rows_removed, self.bytes_removed)} out;")
        parts.append(f"{phases or 'no time measured'}")
        if self.attempts > 1:
            parts.append(f"; {self.attempts} attempts")
        return " ".join(parts).replace(" ;", ";")


_COUNTERS: Final = {
    "commits": "Snapshots made.",
    "commit_attempts": "Snapshots tried, those that other writers were faster at included.",
    "commit_conflicts": "Commits given up because of what others had committed.",
    "rows_added": "Rows of data files added.",
    "rows_removed": "Rows of data files removed.",
    "bytes_added": "Bytes of data files added.",
    "bytes_removed": "Bytes of data files removed.",
    "files_added": "Data files added.",
    "files_removed": "Data files removed.",
}
_SECONDS: Final = "commit_phase_seconds"

Labels = tuple[tuple[str, str], ...]


class Totals:
    """Counters of this process, by table and commit kind; any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: dict[str, dict[Labels, float]] = {name: {} for name in (*_COUNTERS, _SECONDS)}

    def add(self, metrics: CommitMetrics) -> None:
        """Count a commit."""
        labels = (("table", metrics.table), ("kind", metrics.kind))
        with self._lock:
            self._count("commits", labels, 1)
            self._count("commit_attempts", labels, metrics.attempts)
            for what in ("rows", "bytes", "files"):
                for way in ("added", "removed"):
                    self._count(f"{what}_{way}", labels, getattr(metrics, f"{what}_{way}"))
            for phase, seconds in metrics.seconds.items():
                self._count(_SECONDS, (*labels, ("phase", phase)), seconds)

    def add_conflict(self, table: str, kind: str) -> None:
        """Count a commit that was given up."""
        with self._lock:
            self._count("commit_conflicts", (("table", table), ("kind", kind)), 1)

    def text(self) -> str:
        """Return all counters as OpenMetrics text, as a monitoring system scrapes it."""
        helps = {**_COUNTERS, _SECONDS: "Seconds spent in commits, by phase."}
        lines: list[str] = []
        with self._lock:
            for name, values in self._counted.items():
                metric = f"merganser_{name}"
                lines.append(f"# TYPE {metric} counter")
                if name == _SECONDS:
                    lines.append(f"# UNIT {metric} seconds")
                lines.append(f"# HELP {metric} {helps[name]}")
                for labels, value in sorted(values.items()):
                    shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
                    lines.append(f"{metric}_total{{{shown}}} {value:.6f}".rstrip("0").rstrip("."))
        return "\n".join([*lines, "# EOF", ""])

    def _count(self, name: str, labels: Labels, by: float) -> None:
        values = self._counted[name]
        values[labels] = values.get(labels, 0) + by


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


TOTALS: Final = Totals()
"""Of this process, like the registry of any metrics library."""


def metrics() -> str:
    """Return what the commits of this process have done so far, as OpenMetrics text.

    Counters by table and commit kind: commits, attempts, conflicts, rows, bytes and files in and out, and seconds by
    phase. Serve it at `/metrics`, or write it to a file for a node exporter.
    """
    return TOTALS.text()
