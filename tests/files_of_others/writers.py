"""The writers: what to install for each, and the script that writes its files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.interop.peers import PeerKind, environment_of

_HERE: Final = Path(__file__).resolve().parent

WRITERS: Final = (
    PeerKind("spark-3.5", ("pyspark==3.5.9", "pyarrow>=19", "pandas<2.3", "numpy<2.3", "setuptools"), "write_spark.py"),
    PeerKind("spark-4.1", ("pyspark==4.1.1", "pyarrow>=19", "pandas<3"), "write_spark.py"),
    PeerKind("pyarrow", ("pyarrow>=19",), "write_pyarrow.py"),
    PeerKind("polars", ("polars>=1.44", "pyarrow>=19"), "write_polars.py"),
    PeerKind("duckdb", ("duckdb>=1.3", "pyarrow>=19"), "write_duckdb.py"),
    PeerKind("pandas", ("pandas>=2.2", "pyarrow>=19", "fastparquet>=2024.11"), "write_pandas.py"),
)


def write(kind: PeerKind, out: Path) -> None:
    """Let a writer write its folders and, beside each, the rows that its own reader gives (`<folder>.arrow`)."""
    python = environment_of(kind)
    isolated = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    out.mkdir(parents=True)
    done = subprocess.run(
        [str(python), str(_HERE / kind.driver), str(out)], env=isolated, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{kind.name} could not write its files:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
