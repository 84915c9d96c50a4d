"""Every byte of every metadata file changed in several ways, and every file cut at every length: a read gives the right
rows or an error of ours that names the file. Never wrong rows, another error, a hang, or memory without end.

    python -m tests.faults.damage_sweep                 everything: 900,000 cases, some hours
    python -m tests.faults.damage_sweep --part tag      files whose path has this in it
    python -m tests.faults.damage_sweep --one-in 50     a seeded sample, some minutes; the suite takes a smaller one

Runs in a process of its own whose address space is bounded, so that an allocation without end is an error.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merganser.errors import MerganserError
from tests.kit.builders import WAREHOUSE, catalog_over, contents, memory_with

Files = dict[str, bytes]
GOLDEN = Path(__file__).parents[1] / "golden" / "tables"
MEMORY_BYTES = 3 << 30
SECONDS_MAX = 20
MASKS = (0x01, 0x10, 0x80, 0xFF)
METADATA = ("/schema/schema-", "/snapshot/", "/manifest/", "/index/", "/tag/", "/consumer/", "/changelog/", "/branch/")
_names = itertools.count()


@dataclass(frozen=True)
class World:
    """A table's files, and what is asked of it.

    Attributes:
        name: what it shows.
        files: by path.
        sealed: every byte of its metadata is covered by a checksum, so no flipped byte may give other rows. Files of
            other implementations have none.
    """

    name: str
    files: Files
    sealed: bool


def worlds() -> list[World]:
    """A table of ours, and tables of others with what we do not write ourselves."""
    out = [World("ours", _ours(), True)]
    out += [World(name, _golden(name), False) for name in ("dv_pk_java", "dyn_py", "cl_full_java", "dv_append64_java")]
    return out


def _ours() -> Files:
    catalog = catalog_over(memory_with({}, f"sweep-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t",
        {"p": "STRING", "k": "INT", "v": "STRING"},
        primary_key=["p", "k"],
        partition_by=["p"],
        options={"bucket": "2", "write-only": "true"},
    )
    table.write([{"p": "a", "k": k, "v": f"value {k}"} for k in range(9)])
    table.write([{"p": "a", "k": 3, "v": None}, {"p": "b", "k": 1, "v": "b"}], kinds=["-D", "+I"])
    table.compact(full=True)
    files = contents(catalog.env.storage)
    root = f"{WAREHOUSE}/db.db/t"
    files[f"{root}/tag/tag-v1"] = files[f"{root}/snapshot/snapshot-1"]
    files[f"{root}/consumer/consumer-c"] = b'{"nextSnapshot": 2}'
    return files


def _golden(name: str) -> Files:
    root = GOLDEN / name
    return {
        f"{WAREHOUSE}/db.db/t/{p.relative_to(root).as_posix()}": p.read_bytes() for p in root.rglob("*") if p.is_file()
    }


def answers(files: Files) -> tuple[Any, ...]:
    """What a table says: its newest rows, and those of its oldest snapshot and of a tag, where there are such."""
    table = catalog_over(memory_with(files, "sweep-read")).table("db.t")
    scan = table.read()
    rows = _rows(scan)
    assert scan.count() == len(rows)
    ids = sorted(int(p.rpartition("-")[2]) for p in files if "/t/snapshot/snapshot-" in p)
    out: list[Any] = [scan.schema.names, rows, _rows(table.read(snapshot=ids[0]))]
    out += [_rows(table.read(tag=p.rpartition("tag-")[2])) for p in sorted(files) if "/tag/tag-" in p]
    return tuple(out)


def _rows(scan: Any) -> list[str]:
    return sorted(map(repr, scan.to_pylist()))


def damaged(data: bytes, rng: random.Random, one_in: int) -> Iterator[tuple[str, bytes]]:
    """Yield every way in which a file is damaged, with words for it."""
    for at in range(len(data)):
        for mask in (*MASKS, 1 << rng.randrange(8)):
            if rng.random() * one_in < 1:
                yield f"byte {at} ^ {mask:#04x}", data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
        if rng.random() * one_in < 1:
            yield f"byte {at} is '0'", data[:at] + b"0" + data[at + 1 :]
        if rng.random() * one_in < 1:
            yield f"cut to {at} bytes", data[:at]


@dataclass
class Report:
    """How the cases of a sweep ended."""

    outcomes: Counter[str]
    failures: list[str]


def sweep(world: World, *, part: str = "", one_in: int = 1, seed: int = 0) -> Report:
    """Damage the metadata of one world in every way, read, and compare."""
    report = Report(Counter(), [])
    expected = answers(world.files)
    for path in sorted(world.files):
        if part not in path or not any(kind in path for kind in METADATA):
            continue
        rng = random.Random(f"{seed} {world.name} {path.rpartition('/')[2][:12]}")
        for what, data in damaged(world.files[path], rng, one_in):
            if data == world.files[path]:
                continue
            outcome = _outcome(world, path, data, expected)
            report.outcomes[outcome] += 1
            if outcome not in ("right", "refused", "other rows, no checksum"):
                report.failures.append(f"{world.name}: {path}: {what}: {outcome}")
    return report


def _outcome(world: World, path: str, data: bytes, expected: Any) -> str:
    signal.alarm(SECONDS_MAX)
    try:
        found = answers(world.files | {path: data})
    except MerganserError as error:
        name = path.rpartition("/")[2]
        if not world.sealed or "path" in error.context or name in str(error) or "snapshot" in error.context:
            return "refused"
        return f"{error!r} does not name the file"
    except BaseException as error:
        return f"{type(error).__name__}: {error!s:.300}"
    finally:
        signal.alarm(0)
    if found == expected:
        return "right"
    return "wrong rows" if world.sealed else "other rows, no checksum"


def bound_memory() -> None:
    """Let the process have so much address space and no more, and end what takes too long."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    def too_long(*_: object) -> None:
        raise TimeoutError(f"it took more than {SECONDS_MAX} seconds")

    signal.signal(signal.SIGALRM, too_long)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="", help="only files whose path has this in it")
    parser.add_argument("--one-in", type=int, default=1, help="a sample of the cases")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    bound_memory()
    failed = 0
    for world in worlds():
        start = time.perf_counter()
        report = sweep(world, part=given.part, one_in=given.one_in, seed=given.seed)
        failed += len(report.failures)
        print(
            f"{world.name:<20} {sum(report.outcomes.values()):>7} cases in {time.perf_counter() - start:6.1f} s  "
            + json.dumps(dict(report.outcomes.most_common(4))),
            flush=True,
        )
        for failure in report.failures[:20]:
            print("   ", failure)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
