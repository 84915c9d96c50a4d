"""Changelog producers: `python -m benchmarks.producers`.

Ten upserts (500,000 rows each) into the base (5M rows of ten columns, four buckets, compacted), whose writer compacts;
a full compaction of the base and the ten upserts; and commits of 1,000 random keys into a base of twice the size: by a
process that has its lookup copies, and the first one of a fresh process without. The floor is the same table without a
producer.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from . import data
from .harness import FLOOR, Bench, Contender, Measures, Tables, bytes_written, files_under, parser, run_child, start

MODULE = "benchmarks.ours_producers"
NONE = Contender(FLOOR.name, MODULE)
PRODUCERS = ("input", "lookup", "per-record", "full-compaction")
WITH = {name: Contender(name, MODULE) for name in PRODUCERS}
COMMITS = 12
ROWS = 1_000


def main() -> None:
    """Run it."""
    bench = start("producers", parser(__doc__.splitlines()[0]).parse_args(), (NONE, *WITH.values()))
    tables = Tables(bench.work)
    try:
        batches = data.prepare(bench.work, bench.options.rows, bench.options.seed)
        at_commit = [NONE, *(WITH[name] for name in ("input", "lookup", "per-record"))]
        _upserts(bench, tables, batches, at_commit)
        _compaction(bench, tables, batches)
        _small(bench, tables, batches, at_commit)
    finally:
        tables.close()
    bench.finish()


class Run:
    """A copy of a table for each run, without lookup copies, and the bytes that the run wrote."""

    def __init__(self, bench: Bench, tables: Tables, source: str, *, keeps_copies: bool = False) -> None:
        self._bench = bench
        self._tables = tables
        self._source = source
        self._keeps_copies = keeps_copies
        self._files: dict[str, dict[str, tuple[int, int]]] = {}

    def arguments(self, contender: Contender) -> dict[str, Any]:
        """The table, and where its lookup copies lie."""
        return {
            "table": str(self._tables.path(contender, "run")),
            "copies": str(self._bench.work.absolute() / "copies" / contender.name),
        }

    def before(self, contender: Contender) -> None:
        """Copy the table, and forget the lookup copies."""
        self._tables.copy(contender, self._source, "run")
        self._files[contender.name] = files_under(self._tables.path(contender, "run"))
        shutil.rmtree(self.arguments(contender)["copies"], ignore_errors=True)

    def after(self, contender: Contender, measures: Measures) -> None:
        """Add the bytes of a commit, or of all of them, to what was measured."""
        written = bytes_written(self._files[contender.name], files_under(self._tables.path(contender, "run")))
        measures["written_bytes"] = written // measures.pop("commits", 1)


def _make(tables: Tables, contender: Contender, name: str, **arguments: Any) -> None:
    if not tables.path(contender, name).exists():
        made: dict[str, Any] = {"table": str(tables.path(contender, name)), "options": _options(contender)}
        run_child(contender, "make", made | arguments)


def _options(contender: Contender) -> dict[str, str]:
    return {} if contender == NONE else {"changelog-producer": contender.name}


def _upserts(bench: Bench, tables: Tables, batches: data.Batches, contenders: list[Contender]) -> None:
    run = Run(bench, tables, "base")

    def before(contender: Contender) -> None:
        _make(tables, contender, "base", base=str(batches.base))
        run.before(contender)

    upserts = {"upserts": [str(path) for path in batches.upserts]}
    bench.measure(
        "ten upserts",
        "upserts",
        lambda contender: run.arguments(contender) | upserts,
        before=before,
        after=run.after,
        only=contenders,
    )
    for contender in contenders:
        tables.drop(contender, "base")


def _compaction(bench: Bench, tables: Tables, batches: data.Batches) -> None:
    run = Run(bench, tables, "merged")

    def before(contender: Contender) -> None:
        upserts = [str(path) for path in batches.upserts]
        _make(tables, contender, "merged", base=str(batches.base), upserts=upserts)
        run.before(contender)

    contenders = [NONE, WITH["full-compaction"]]
    bench.measure("compact full", "compact", run.arguments, before=before, after=run.after, only=contenders)
    for contender in contenders:
        tables.drop(contender, "merged")


def _small(bench: Bench, tables: Tables, batches: data.Batches, contenders: list[Contender]) -> None:
    run = Run(bench, tables, "double")

    def before(contender: Contender) -> None:
        _make(tables, contender, "double", base=str(batches.base), times=2)
        run.before(contender)

    for action, commits in ((f"{COMMITS} commits of 1,000 keys", COMMITS), ("first commit, fresh process", 1)):
        more = {"rows": ROWS, "commits": commits, "key_space": 4 * batches.rows}
        bench.measure(
            action,
            "small_commits",
            lambda contender, more=more: run.arguments(contender) | more,
            before=before,
            after=run.after,
            only=contenders,
        )
    for result in bench.results:
        if (warm := result.median("warm_ms")) is not None:
            print(f"1,000 keys, warm: {result.contender} {warm:,.0f} ms a commit")
    shutil.rmtree(Path(bench.work) / "copies", ignore_errors=True)


if __name__ == "__main__":
    main()
