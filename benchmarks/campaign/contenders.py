"""Who takes part in the campaign: the module of each contender, and the environment that runs it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import merganser
from benchmarks import spark_peers
from benchmarks.harness import Contender
from tests.interop import peers

_OURS = merganser.__version__
_ARROW = ("pyarrow>=19", "numpy>=1.26")


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender.

    Attributes:
        name: what it goes by.
        module: the module with its `STORE`.
        version: of the client or connector, for people.
        packages: what its environment has; none for this interpreter.
        settings: what its store is told.
        connector: of a format through Spark, its name in `spark_peers`.
    """

    name: str
    module: str
    version: str
    packages: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    connector: str = ""

    @property
    def group(self) -> str:
        """Which table of the page it is in."""
        return "spark" if self.connector else "embedded"

    def interpreter(self) -> str:
        """The Python that runs it; makes its environment if it is not there."""
        if self.connector:
            return spark_peers.CONNECTORS[self.connector].interpreter()
        if not self.packages:
            return sys.executable
        return str(peers.environment_of(peers.PeerKind(self.name, self.packages, "")))

    def contender(self) -> Contender:
        """The same for the harness."""
        return Contender(self.name, "benchmarks.campaign.steps", self.interpreter)

    def told(self) -> dict[str, Any]:
        """The settings, with the jars of a connector, which are downloaded if they are not there."""
        if not self.connector:
            return self.settings
        jars = spark_peers.CONNECTORS[self.connector].files()
        return self.settings | {"format": self.connector, "jars": jars}


EMBEDDED = (
    Entry("merganser", "benchmarks.campaign.ours", _OURS),
    Entry("pypaimon", "benchmarks.campaign.pypaimon", "2.1.0", peers.PYPAIMON.requirements),
    Entry("pypaimon-rust", "benchmarks.campaign.rust", "0.4.0", peers.RUST.requirements),
    Entry("deltalake", "benchmarks.campaign.delta", "1.6.6", ("deltalake==1.6.6", *_ARROW)),
    Entry(
        "pyiceberg",
        "benchmarks.campaign.iceberg",
        "0.12.0",
        ("pyiceberg[pyarrow,sql-sqlite]==0.12.0", "numpy>=1.26"),
    ),
    Entry(
        "ducklake",
        "benchmarks.campaign.ducklake",
        "1.5.5",
        ("duckdb==1.5.5", "duckdb-extension-ducklake==1.5.5", "pytz", *_ARROW),
    ),
)
THROUGH_SPARK = tuple(
    Entry(
        f"{name}{' vectors' if vectors else ''} (Spark)",
        "benchmarks.campaign.spark",
        connector.jars[0].version if connector.jars else _OURS,
        settings={"vectors": vectors},
        connector=name,
    )
    for name, connector in spark_peers.CONNECTORS.items()
    for vectors in ([False, True] if name in ("iceberg", "delta") else [False])
)
"""Iceberg and Delta also with deletion vectors, which suit many small changes better than their defaults."""
CONTENDERS = EMBEDDED + THROUGH_SPARK
