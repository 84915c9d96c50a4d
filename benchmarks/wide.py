"""Tables of many columns: `python -m benchmarks.wide`.

Each entry point takes one row of 100, 1,000 and 5,000 columns, in one process; half of the columns are text. The
figures are CPU seconds. The last column of the output compares the two largest widths: five times the columns may take
about five times as long.
`--profile merge` prints where one action spends its time, at the largest width.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import io
import json
import pstats
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import merganser as mg
from merganser.cli.main import main as cli

WIDTHS = (100, 1_000, 5_000)


def main() -> None:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--widths", type=int, nargs="+", default=WIDTHS, help="numbers of columns")
    options.add_argument("--profile", default="", help="name of an action whose profile is printed")
    options.add_argument("--work", type=Path, default=Path(".bench"), help="directory for the tables")
    options.add_argument("--spark", action="store_true", help="also through Spark")
    chosen = options.parse_args()
    root = chosen.work / "wide"
    shutil.rmtree(root, ignore_errors=True)
    print(f"{'CPU seconds':28}" + "".join(f"{width:>10,}" for width in chosen.widths) + f"{'x':>8}")
    tables = [_actions(root / str(width), width, spark=chosen.spark) for width in chosen.widths]
    for steps in zip(*tables, strict=True):
        name, found = steps[0][0], []
        for _, action in steps:
            profile = cProfile.Profile() if name == chosen.profile and action is steps[-1][1] else None
            start = time.process_time()
            with profile or contextlib.nullcontext():
                action()
            found.append(time.process_time() - start)
            if profile is not None:
                pstats.Stats(profile).sort_stats("cumulative").print_stats(60)
        ratio = f"{found[-1] / found[-2]:8.1f}" if len(found) > 1 else ""
        print(f"{name:28}" + "".join(f"{each:10.3f}" for each in found) + ratio, flush=True)
    shutil.rmtree(root, ignore_errors=True)


def _row(key: int, width: int, **others: Any) -> dict[str, Any]:
    return {"id": key, **{f"c{i}": f"x{key}" if i % 2 else key for i in range(width)}, **others}


def _actions(root: Path, width: int, *, spark: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    shop = mg.catalog(root)
    shop.create_database("s")
    columns = {"id": "BIGINT", **{f"c{i}": "STRING" if i % 2 else "BIGINT" for i in range(width)}}
    create = partial(shop.create_table, "s.t", columns, primary_key=["id"], options={"bucket": "1"})
    yield "create", create
    table = shop.table("s.t")
    assert isinstance(table, mg.Table)
    path = str(table.path)
    text = root / "rows.json"
    row = partial(_row, width=width)
    yield "write", lambda: table.write([row(1), row(2)])
    yield "write, again", lambda: table.write([row(3)])
    yield "read", lambda: table.read().to_pylist()
    yield "read, filter", lambda: table.read(where="c1 = 'x1'", columns=["id"]).to_pylist()
    yield "lookup", lambda: table.lookup([{"id": 1}])
    yield "lookup, again", lambda: table.lookup([{"id": 2}])
    yield "upsert", lambda: table.upsert([row(2, c0=7)])
    yield "upsert, one column", lambda: table.upsert([{"id": 2, "c0": 9}], columns=["id", "c0"])
    yield "update", lambda: table.update("id = 1", {"c0": "5"})
    yield "update, all columns", lambda: table.update("id = 1", {f"c{i}": f"c{i - 2}" for i in range(2, width)})
    yield "delete", lambda: table.delete("id = 3")

    def merge(key: int) -> None:
        merged = table.merge([row(key, c0=77)], on="target.id = source.id")
        merged.when_matched_update().when_not_matched_insert().execute()

    def merge_some() -> None:
        merged = table.merge([{"id": 1, "c0": 77}], on="target.id = source.id")
        merged.when_matched_update({"c0": "target.c0 + source.c0"}).execute()

    yield "merge", lambda: merge(1)
    yield "merge, new row", lambda: merge(20)
    yield "merge, one column", merge_some
    record = json.dumps({"op": "u", "before": row(1), "after": row(1, c0=8)})
    yield "write_changes", lambda: table.write_changes([record], "debezium-json")
    yield "changes, diff", lambda: table.changes(2, 6, mode="diff").to_pylist()
    yield "add a column", lambda: shop.alter_table("s.t", [mg.changes.AddColumn("more", "INT", mg.changes.Place())])
    yield "compact", lambda: table.compact(full=True)
    text.write_text(json.dumps(row(30)) + "\n")
    yield "load of JSON", lambda: table.load(str(text))
    yield "CLI: write", lambda: _quiet("write", path, str(text))
    yield "CLI: show rows", lambda: _quiet("read", path)
    if spark:
        yield from _through_spark(table, row)


def _quiet(*arguments: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        cli([*arguments])


def _through_spark(table: mg.Table, row: Callable[..., dict[str, Any]]) -> Iterator[tuple[str, Callable[[], Any]]]:
    import pyarrow as pa

    import merganser.spark as ms

    from .spark_session import session

    connected = session("2g", Path(table.path).parent)
    frame = connected.createDataFrame(pa.Table.from_pylist([row(1, c0=5)]))
    yield "ms.write", lambda: ms.write(frame, table)
    yield "ms.read", lambda: ms.read(connected, table).collect()
    yield (
        "ms.merge",
        lambda: ms.merge(connected, table, frame, on="target.id = source.id").when_matched_update().execute(),
    )


if __name__ == "__main__":
    main()
