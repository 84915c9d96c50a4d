"""More than 2 GiB of text in one call, through every way of writing and reading: `python -m tests.large_text`.

Arrow's texts have 32-bit offsets. The suite lowers the limit of slices; this command uses real bytes.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import merganser as mg

_TEXT_BYTES = 1 << 20
_CHUNK_ROWS = 64


def rows_of(start: int, end: int, mark: str, *, nested: bool) -> pa.Table:
    """Return rows with a text of 1 MiB each, in chunks that share their bytes."""
    text = pa.array([f"{mark}{n:04d}".ljust(_TEXT_BYTES, "x") for n in range(_CHUNK_ROWS)])
    values = pa.StructArray.from_arrays([text], ["t"]) if nested else text
    starts = range(start, end, _CHUNK_ROWS)
    keys = [pa.array(range(at, min(at + _CHUNK_ROWS, end)), pa.int64()) for at in starts]
    return pa.concat_tables([pa.table({"k": each, "v": values.slice(0, len(each))}) for each in keys])


def marks(rows: pa.Table) -> dict[str, int]:
    """Return how many rows have a text that begins with each letter."""
    texts = rows.column("v")
    if pa.types.is_struct(texts.type):
        texts = pa.chunked_array([chunk.field("t") for chunk in texts.chunks])
    counts = pc.value_counts(pc.utf8_slice_codeunits(texts, 0, 1))
    return {pair["values"]: pair["counts"] for pair in counts.to_pylist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=2.5, help="GiB of text")
    asked = parser.parse_args()
    count = int(asked.gib * (1 << 30)) // _TEXT_BYTES
    folder = tempfile.mkdtemp()
    failed = 0

    def step(name: str, do: Callable[[], Any]) -> None:
        nonlocal failed
        begun = time.perf_counter()
        try:
            found = do()
        except Exception as error:  # the next step is tried all the same
            failed += 1
            found = f"FAILED: {type(error).__name__}: {error!s:.200}"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
        print(f"{name:22} {time.perf_counter() - begun:6.1f} s, peak {peak:5.1f} GiB  {found!s:.150}", flush=True)

    def steps(nested: bool) -> None:
        def rows(start: int, end: int, mark: str) -> pa.Table:
            return rows_of(start, end, mark, nested=nested)

        key, options = (["k"], {"bucket": "1"}) if nested else ([], {})
        schema = "k BIGINT, v ROW<t STRING>" if nested else "k BIGINT, v STRING"
        table = catalog.create_table(f"s.t{nested:d}", schema, primary_key=key, options=options)
        print(f"{count:,} rows, {rows(0, count, 'a').nbytes / (1 << 30):.2f} GiB, {schema}, key: {key}")
        half = count // 2
        step("write", lambda: table.write(rows(0, count, "a")))
        step("read", lambda: marks(table.read().to_arrow()))
        if nested:
            given = pa.concat_tables([rows(0, half, "b"), rows(half, count, "a")])
            step("upsert", lambda: table.upsert(given))
            step("lookup", lambda: marks(table.lookup(pa.table({"k": pa.array(range(count))}))))
        on = "target.k = source.k"
        step("merge", lambda: table.merge(rows(0, count, "c"), on).when_matched_update().execute())
        step("update", lambda: table.update("k < 10", {"v": "NULL"}))
        step("compact", lambda: table.compact(full=True))
        step("read", lambda: marks(table.read().to_arrow()))

    try:
        catalog = mg.catalog(folder, options={"local.sync": "false"})
        catalog.create_database("s")
        steps(True)
        steps(False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
