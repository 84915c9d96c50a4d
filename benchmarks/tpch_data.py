"""The tables and queries of TPC-H; needs the standard library only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

KEYS: Final = {
    "customer": ["c_custkey"],
    "orders": ["o_orderkey"],
    "lineitem": ["l_orderkey", "l_linenumber"],
    "part": ["p_partkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "supplier": ["s_suppkey"],
    "nation": ["n_nationkey"],
    "region": ["r_regionkey"],
}
"""The primary key of each table."""

_TEXT = (Path(__file__).parent / "tpch.sql").read_text(encoding="utf-8")

QUERIES: Final = {
    int(found[1]): found[2].strip().removesuffix(";")
    for found in re.finditer(r"^-- (\d+)\n(.*?)(?=^-- \d+\n|\Z)", _TEXT, re.DOTALL | re.MULTILINE)
}
"""The queries by number."""
