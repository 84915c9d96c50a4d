"""Writes files with pandas, through pyarrow and through fastparquet; the argument is the directory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import fastparquet
import numpy as np
import pandas as pd
import pyarrow as pa

OUT = Path(sys.argv[1])
about: dict[str, str] = {}
PLAIN = pd.DataFrame(
    {
        "id": [1, 2, 3],
        "i": pd.array([1, None, 3], "Int32"),
        "f": [0.5, np.nan, -np.inf],
        "s": ["a", "", None],
        "b": [b"\x00\xff", b"", None],
        "flag": pd.array([True, None, False], "boolean"),
        "t": pd.to_datetime(["2024-02-29 12:00:00.123456", None, "1969-12-31 00:00:00.000001"]),
        "tz": pd.to_datetime(["2024-02-29 12:00:00", None, "1969-12-31 00:00:00"]).tz_localize("Europe/Amsterdam"),
        "category": pd.Categorical(["a", None, "b"]),
    }
)


def put(name: str, frame: pd.DataFrame, say: str, engine: Any, **options: Any) -> None:
    path = OUT / name / "a.parquet"
    path.parent.mkdir()
    frame.to_parquet(path, engine=engine, **options)
    read = pd.read_parquet(path, engine=engine).reset_index(drop=True)
    found = pa.Table.from_pandas(read, preserve_index=False)
    with pa.ipc.new_file(OUT / f"{name}.arrow", found.schema) as out:
        out.write_table(found)
    about[name] = say


put("parquet", PLAIN, "all types", "pyarrow", index=False)
put("parquet-empty", PLAIN[:0], "no rows", "pyarrow", index=False)
OPTIONS: dict[str, dict[str, str]] = {"": {}, " int96": {"times": "int96"}, " gzip": {"compression": "GZIP"}}
for name, options in OPTIONS.items():
    put(
        f"parquet-fastparquet{name.replace(' ', '-')}",
        PLAIN,
        f"fastparquet{name}",
        "fastparquet",
        index=False,
        **options,
    )
(OUT / "about.json").write_text(
    json.dumps({"version": f"pandas {pd.__version__}, fastparquet {fastparquet.__version__}", "folders": about})
)
