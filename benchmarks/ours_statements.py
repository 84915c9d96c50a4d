"""The actions of `statements.py`."""

from __future__ import annotations

import gc
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import merganser as mg
from merganser.errors import MerganserError
from merganser.sql.parse import parse
from merganser.sql.session import Session
from merganser.sql.statements import Query

from . import ours
from .data import load
from .harness import ROOT
from .tpch_data import QUERIES

_TIMES = 5
_KEYS = 1_000
Cost = tuple[float, str]

warm_up = lambda: None  # noqa: E731 - each action runs everything once before it measures


def parse_cases() -> Callable[[], dict[str, Any]]:
    """Read every statement that is one."""
    texts = [step["sql"] for case in _cases() for step in case["steps"] if "sql" in step]
    read = [text for text in (*texts, *QUERIES.values()) if _parses(text)]

    def action() -> dict[str, Any]:
        return _summary([(_median(parse, text), text) for text in read])

    return action


def plan_cases(work: str, tpch: str) -> Callable[[], dict[str, Any]]:
    """Explain every query of the cases at its place, and the queries of TPC-H."""

    def action() -> dict[str, Any]:
        found: list[Cost] = []
        with tempfile.TemporaryDirectory(dir=work) as directory:
            for number, case in enumerate(_cases()):
                found += _plans_of(case, f"{directory}/{number}")
        session = mg.catalog(f"{tpch}/warehouse").session()
        for database in ("append", "keyed"):
            session.sql(f"USE {database}")
            found += [(_explained(session, text), text) for text in QUERIES.values()]
        return _summary(found)

    return action


def _plans_of(case: dict[str, Any], directory: str) -> Iterator[Cost]:
    catalog = mg.catalog(directory)
    catalog.create_database("default")
    session = catalog.session()
    for step in case["steps"]:
        text = step.get("sql", "")
        try:
            session.sql(text)
        except MerganserError:
            continue  # a step whose error is the case
        if isinstance(parse(text)[-1], Query):
            yield _explained(session, text), text


def _explained(session: Session, text: str) -> float:
    return _median(session.sql, f"EXPLAIN {text}")


def one_key(work: str, base: str) -> Callable[[], dict[str, Any]]:
    """Look keys up, and select them, in turns."""
    directory = Path(work) / "statements"
    shutil.rmtree(directory, ignore_errors=True)
    ours.create(str(directory / "db.db" / "t"))
    rows = load(base)
    table = mg.catalog(str(directory)).table("db.t")
    table.write(rows)
    table.compact(full=True)
    keys = np.random.default_rng(11).choice(rows["k"].to_numpy(), _KEYS, replace=False).tolist()
    session = mg.catalog(str(directory)).session()
    text = "SELECT i32, f64 FROM db.t WHERE k = :k"

    def looked_up(key: int) -> int:
        return int(table.lookup([{"k": key}], columns=["i32", "f64"]).num_rows)

    def selected(key: int) -> int:
        return int(session.sql(text, {"k": key}).num_rows)

    def action() -> dict[str, Any]:
        for key in keys[:50]:
            looked_up(key), selected(key)
        taken: dict[str, list[float]] = {"lookup": [], "select": []}
        read = {"lookup": 0, "select": 0}
        gc.collect()
        for key in keys:
            for name, ask in (("lookup", looked_up), ("select", selected)):
                before, begun = _bytes_read(), time.perf_counter()
                if ask(key) != 1:
                    raise AssertionError(f"{name} of the key {key} did not return one row")
                taken[name].append(time.perf_counter() - begun)
                read[name] += _bytes_read() - before
        return {
            "rows": 2 * len(keys),
            **{f"{name}_ms": statistics.median(times) * 1e3 for name, times in taken.items()},
            **{f"{name}_bytes": count / len(keys) for name, count in read.items()},
        }

    return action


def _bytes_read() -> int:
    """Return the bytes that this process has read by calls of the system."""
    return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])


def _cases() -> list[dict[str, Any]]:
    text = (ROOT / "tests" / "vectors" / "sql.json").read_text(encoding="utf-8")
    return [case for case in json.loads(text) if "embedded" in case["faces"]]


def _parses(text: str) -> bool:
    try:
        parse(text)
    except MerganserError:
        return False
    return True


def _median(ask: Callable[[str], object], text: str) -> float:
    ask(text)
    taken = []
    for number in range(_TIMES):
        other = f"{text} -- {number}"  # nothing that is known by its text helps
        begun = time.perf_counter()
        ask(other)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _summary(found: list[Cost]) -> dict[str, Any]:
    seconds = [cost for cost, _ in found]
    return {
        "rows": len(found),
        "statements": len(found),
        "median_ms": statistics.median(seconds) * 1e3,
        "p99_ms": float(np.quantile(seconds, 0.99)) * 1e3,
        "most_ms": max(seconds) * 1e3,
        "slowest": " ".join(max(found)[1].split())[:100],
    }
