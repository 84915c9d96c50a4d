"""Random bits flipped in every kind of file of a table, in every format and compression of data files. A read gives the
right rows or an error that names the file; only large ORC files are read in part without their checksum. `check`
names every flip: none is silent. No flip ends the process.

    python -m tests.faults.data_damage                          400 flips for each kind of file of each table
    python -m tests.faults.data_damage --flips 40 --only orc    fewer, and only tables whose name has this in it

Each batch of flips runs in a process of its own, so that one that ends is seen and counted.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from multiprocessing.connection import Connection
from typing import Any

from merganser.errors import MerganserError
from tests.kit.builders import WAREHOUSE, catalog_over, contents, memory_with

Files = dict[str, bytes]
ROOT = f"{WAREHOUSE}/db.db/t/"
KINDS = ("bucket-", "snapshot/snapshot-", "schema/", "manifest/", "index/", "tag/")
"""Kinds of files by a part of their path. Hints and consumers have no checksum and are believed by nobody."""
COMPRESSIONS = {
    "parquet": ("zstd", "none", "snappy", "lz4", "gzip"),
    "orc": ("zstd", "none", "snappy", "lz4", "zlib"),
    "avro": ("zstd", "none", "snappy", "deflate"),
}
_BATCH = 50
_names = itertools.count()
_apart = multiprocessing.get_context("forkserver")
"""Not a fork of this process: threads of clients and their locks do not come along, and a child may wait for them."""


def tables(only: str = "") -> dict[str, Callable[[], Files]]:
    """Return how to make each table: rows in every format and compression, indexes and deletion vectors."""
    out: dict[str, Callable[[], Files]] = {}
    for file_format, compressions in COMPRESSIONS.items():
        for compression in compressions:
            for keyed in (True, False):
                name = f"{file_format}-{compression}-{'keyed' if keyed else 'append'}"
                out[name] = lambda f=file_format, c=compression, k=keyed: _rows_table(f, c, keyed=k)  # type: ignore[misc]
    out["indexes-parquet"] = _indexes
    out["keys-parquet"] = _keys
    out["vectors-parquet"] = lambda: _vectors("parquet")
    out["vectors-orc"] = lambda: _vectors("orc")
    return {name: make for name, make in out.items() if only in name}


def _table(options: dict[str, str], *, keyed: bool = True) -> Any:
    catalog = catalog_over(memory_with({}, f"damage-{next(_names)}"))
    catalog.create_database("db")
    schema = {"k": "INT", "s": "STRING", "d": "DECIMAL(10, 2)", "t": "TIMESTAMP(6)", "f": "DOUBLE", "a": "ARRAY<INT>"}
    how: dict[str, Any] = {"primary_key": ["k"]} if keyed else {}
    options = {"bucket": "1" if keyed else "-1", "write-only": "true", **options}
    return catalog.create_table("db.t", schema, options=options, **how)


def _some(first: int, count: int) -> list[dict[str, Any]]:
    start = datetime(2024, 1, 1)
    return [
        {
            "k": k,
            "s": f"value {k * 7919 % 1000}",
            "d": Decimal(k) / 4,
            "t": start + timedelta(seconds=k),
            "f": k / 3,
            "a": [k, None] if k % 3 else None,
        }
        for k in range(first, first + count)
    ]


def _files(table: Any) -> Files:
    return contents(table.env.storage)


def _rows_table(file_format: str, compression: str, *, keyed: bool) -> Files:
    table = _table({"file.format": file_format, "file.compression": compression}, keyed=keyed)
    table.write(_some(0, 300))
    table.write(_some(200, 200))
    return _files(table)


def _indexes() -> Files:
    options = {"file-index.bloom-filter.columns": "k,s,t,f", "file-index.in-manifest-threshold": "1 b"}
    table = _table(options, keyed=False)
    table.write(_some(0, 300))
    table.write(_some(200, 200))
    return _files(table)


def _keys() -> Files:
    table = _table({"bucket": "-1", "dynamic-bucket.target-row-num": "40"})
    table.write(_some(0, 100))
    table.write(_some(60, 60))
    return _files(table)


def _vectors(file_format: str) -> Files:
    table = _table({"file.format": file_format, "deletion-vectors.enabled": "true"})
    table.write(_some(0, 100))
    table.compact(full=True)
    table.write(_some(40, 20))
    table.compact(full=True)
    table.tags.create("v1")
    return _files(table)


def answers(files: Files) -> tuple[Any, ...]:
    """Return what a table says: its newest rows, those of its snapshots, those of its tags, and its changes."""
    table = catalog_over(memory_with(files, "damage-read")).table("db.t")
    ids = sorted(int(path.rpartition("-")[2]) for path in files if path.startswith(f"{ROOT}snapshot/snapshot-"))
    out = [
        _rows(table.read()),
        _rows(table.read(where="k IN (17, 210, 301)")),
        *(_rows(table.read(snapshot=number)) for number in ids),
    ]
    out += [_rows(table.read(tag=path.rpartition("tag-")[2])) for path in sorted(files) if "/tag/tag-" in path]
    return tuple(out)


def _rows(scan: Any) -> list[str]:
    return sorted(map(repr, scan.to_pylist()))


def flipped(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Return a file with one bit flipped, and where."""
    at, bit = rng.randrange(len(data)), rng.randrange(8)
    return f"byte {at} of {len(data)}, bit {bit}", data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


@dataclass
class Report:
    """How the flips of one table ended."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


def run(name: str, make: Callable[[], Files], flips: int, seed: int) -> Report:
    """Flip bits in the files of one table, `flips` for each kind of file that it has."""
    report = Report()
    files = make()
    expected = answers(files)
    assert not _checked(files), _checked(files)
    for kind in KINDS:
        paths = sorted(path for path in files if path.startswith(ROOT) and kind in path.removeprefix(ROOT))
        for start in range(0, flips if paths else 0, _BATCH):
            rng = random.Random(f"{seed} {name} {kind} {start}")
            cases = [(path, *flipped(files[path], rng)) for path in rng.choices(paths, k=min(_BATCH, flips - start))]
            _run_apart(report, f"{name} {kind}", files, cases, expected)
    return report


def _run_apart(report: Report, name: str, files: Files, cases: list[tuple[str, str, bytes]], expected: Any) -> None:
    """Try cases in a process of its own; where it ends, note the case, and go on behind it in another one."""
    at = 0
    while at < len(cases):
        ours, theirs = _apart.Pipe(duplex=False)
        child = _apart.Process(target=_try, args=(theirs, files, cases[at:], expected))
        child.start()
        theirs.close()
        found: list[str] = []
        with ours, contextlib.suppress(EOFError):
            while True:
                found.append(ours.recv())
        child.join()
        if child.exitcode:
            found.append(f"the process ended with {child.exitcode}")
        for (path, what, _), outcome in zip(cases[at:], found, strict=False):
            report.outcomes[outcome] += 1
            if outcome not in ("named by both", "right rows, named by check"):
                report.failures.append(f"{name}: {path}: {what}: {outcome}")
        at += len(found)


def _try(out: Connection, files: Files, cases: list[tuple[str, str, bytes]], expected: Any) -> None:
    for path, _, data in cases:
        out.send(_outcome(files | {path: data}, path, expected))


def _outcome(files: Files, path: str, expected: Any) -> str:
    file = path.rpartition("/")[2]
    try:
        read = "right rows" if answers(files) == expected else "WRONG ROWS"
    except MerganserError as error:
        read = "named" if file in str(error) else f"NOT NAMED {error!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {error!s:.200}".replace("\n", " ")
    findings = _checked(files)
    if not any(file in str(finding) for finding in findings):
        return f"{read}, SILENT check"
    return "named by both" if read == "named" else f"{read}, named by check"


def _checked(files: Files) -> list[Any]:
    try:
        table = catalog_over(memory_with(files, "damage-check")).table("db.t")
        return [finding for finding in table.check() if finding.is_fault]
    except MerganserError as error:  # the table cannot be opened
        return [error]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=400, help="flips for each kind of file of a table")
    parser.add_argument("--only", default="", help="only tables whose name has this in it")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    failed = 0
    for name, make in tables(given.only).items():
        start = time.perf_counter()
        report = run(name, make, given.flips, given.seed)
        failed += len(report.failures)
        print(
            f"{name:<24} {report.outcomes.total():>6} flips in {time.perf_counter() - start:5.1f} s  "
            f"{dict(report.outcomes.most_common(4))}",
            flush=True,
        )
        for failure in report.failures[:20]:
            print("   ", failure)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
