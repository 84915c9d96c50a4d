"""The rows of the benchmarks: a seeded base of ten mixed columns, and ten batches of upserts for it.

| column | values |
|---|---|
| k | int64, unique, in random order: half of the numbers from 0 to 2 n, so that new keys fall between old ones |
| i32 | int32, 0 to 999,999 evenly: `i32 < 10000` holds for 1 % |
| n64 | int64, one in ten null |
| f64 | double |
| price | decimal(12, 2) |
| label | one of 100 texts |
| text | 20 random letters and digits |
| at | timestamp in microseconds, 2020 to 2025 |
| day | date, 2015 to 2025 |
| flag | boolean |

An upsert batch has a tenth of the rows of the base; 83 % of its keys are keys of the base, each at most once, the
others are new, in no other batch. Same rows and seed, same bytes. The batches lie as Arrow IPC files (and, for Spark,
as Parquet) in `<work>/data-<rows>-<seed>` and are made once; the directory gets its name when it is complete.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BUCKETS = 4
UPSERTS = 10
EXISTING_KEYS = 0.83
FIELDS: dict[str, str] = {
    "k": "BIGINT NOT NULL",
    "i32": "INT",
    "n64": "BIGINT",
    "f64": "DOUBLE",
    "price": "DECIMAL(12, 2)",
    "label": "STRING",
    "text": "STRING",
    "at": "TIMESTAMP(6)",
    "day": "DATE",
    "flag": "BOOLEAN",
}
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("i32", pa.int32()),
        pa.field("n64", pa.int64()),
        pa.field("f64", pa.float64()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("label", pa.string()),
        pa.field("text", pa.string()),
        pa.field("at", pa.timestamp("us")),
        pa.field("day", pa.date32()),
        pa.field("flag", pa.bool_()),
    ]
)
TWO_COLUMNS = ("k", "f64")
_LETTERS = np.frombuffer(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", dtype=np.uint8)
_BATCH_ROWS = 1 << 20
_PARQUET_PARTS = 8


@dataclass(frozen=True, slots=True)
class Batches:
    """Where the batches of one size and seed lie."""

    directory: Path
    rows: int

    @property
    def base(self) -> Path:
        """Arrow IPC file of the base."""
        return self.directory / "base.arrow"

    @property
    def upserts(self) -> tuple[Path, ...]:
        """Arrow IPC files of the ten upserts, in order."""
        return tuple(self.directory / f"upsert-{i}.arrow" for i in range(UPSERTS))

    @property
    def base_parquet(self) -> Path:
        """Directory with the base in eight Parquet files, in row order of their names; see `with_parquet`."""
        return self.directory / "base-parquet"

    @property
    def upserts_parquet(self) -> tuple[Path, ...]:
        """Directories with the ten upserts in two Parquet files each."""
        return tuple(self.directory / f"upsert-parquet-{i}" for i in range(UPSERTS))

    @property
    def key_range(self) -> tuple[int, int]:
        """First and last key (both included) of a stretch of 0.2 % of the keys."""
        start = int(self.rows * 2 * 0.4)
        return start, start + max(1, int(self.rows * 2 * 0.002)) - 1

    @property
    def some_keys(self) -> list[int]:
        """1,000 numbers anywhere among the keys, of which about half are keys."""
        return sorted(np.random.default_rng(self.rows).choice(self.rows * 2, 1_000, replace=False).tolist())


VALUE_BELOW = 10_000
"""`i32 < VALUE_BELOW` holds for 1 % of the rows."""
QUERY_BELOW = 500_000
"""`i32 < QUERY_BELOW` holds for half of the rows."""


def prepare(work: Path, rows: int, seed: int = 7) -> Batches:
    """The batches of this size and seed, made by the first call."""
    batches = Batches(work / f"data-{rows}-{seed}", rows)
    if not batches.directory.exists():
        building = work / f".building-{uuid.uuid4().hex}"
        building.mkdir(parents=True)
        try:
            _make(Batches(building, rows), seed)
            building.rename(batches.directory)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    return batches


def with_parquet(batches: Batches) -> Batches:
    """The same batches as Parquet too, made from the IPC files by the first call."""
    wanted = [(batches.base, batches.base_parquet, _PARQUET_PARTS)]
    wanted += [(ipc, out, 2) for ipc, out in zip(batches.upserts, batches.upserts_parquet, strict=True)]
    for ipc, out, parts in wanted:
        if not out.exists():
            building = out.with_name(f".building-{uuid.uuid4().hex}")
            building.mkdir()
            rows = load(ipc)
            step = -(-rows.num_rows // parts)
            for part in range(parts):
                piece = rows.slice(part * step, step)
                pq.write_table(piece, building / f"part-{part:02d}.parquet", compression="zstd", compression_level=1)
            building.rename(out)
    return batches


def load(path: Path | str) -> pa.Table:
    """A batch in memory, each column in one piece (not mapped: nothing is left for the first reader to fetch)."""
    with pa.OSFile(str(path)) as source:
        return pa.ipc.open_file(source).read_all().combine_chunks()


def few(rows: int, key_space: int, seed: int) -> pa.Table:
    """A small commit: `rows` rows whose keys are drawn from 0 to `key_space`, each at most once."""
    random = np.random.default_rng(seed)
    return pa.Table.from_batches([_batch(random.choice(key_space, rows, replace=False), random)])


def _make(batches: Batches, seed: int) -> None:
    random = np.random.default_rng(seed)
    keys = random.permutation(batches.rows * 2)
    base, unused = keys[: batches.rows], keys[batches.rows :]
    _write(batches.base, base, random)
    upsert_rows = max(1, batches.rows // UPSERTS)
    old = round(upsert_rows * EXISTING_KEYS)
    for i, path in enumerate(batches.upserts):
        new_keys = unused[i * (upsert_rows - old) : (i + 1) * (upsert_rows - old)]
        chosen = np.concatenate([random.choice(base, old, replace=False), new_keys])
        _write(path, random.permutation(chosen), random)


def _write(path: Path, keys: np.ndarray, random: np.random.Generator) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for piece in _pieces(keys):
            writer.write_batch(_batch(piece, random))


def _pieces(keys: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(keys), _BATCH_ROWS):
        yield keys[start : start + _BATCH_ROWS]


def _batch(keys: np.ndarray, random: np.random.Generator) -> pa.RecordBatch:
    n = len(keys)
    labels = pa.array([f"label-{i:02d}" for i in range(100)])
    columns = [
        pa.array(keys, pa.int64()),
        pa.array(random.integers(0, 1_000_000, n, dtype=np.int32)),
        pa.array(random.integers(-(2**62), 2**62, n), mask=random.random(n) < 0.1),
        pa.array(random.normal(0, 1000, n)),
        decimals(random.integers(-10_000_000, 10_000_000, n)),
        labels.take(pa.array(random.integers(0, 100, n, dtype=np.int32))),
        _texts(random, n),
        pa.array(random.integers(1_577_836_800_000_000, 1_735_689_600_000_000, n)).cast(pa.timestamp("us")),
        pa.array(random.integers(16_436, 20_089, n, dtype=np.int32)).cast(pa.date32()),
        pa.array(random.random(n) < 0.5),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def decimals(cents: np.ndarray, precision: int = 12) -> pa.Array:
    """Decimals with two digits after the point, of int64."""
    words = np.empty((len(cents), 2), dtype=np.int64)
    words[:, 0] = cents
    words[:, 1] = cents >> 63
    return pa.Array.from_buffers(pa.decimal128(precision, 2), len(cents), [None, pa.py_buffer(words)])


def _texts(random: np.random.Generator, n: int) -> pa.Array:
    letters = _LETTERS[random.integers(0, len(_LETTERS), n * 20, dtype=np.uint8)]
    offsets = np.arange(0, (n + 1) * 20, 20, dtype=np.int32)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(letters))
