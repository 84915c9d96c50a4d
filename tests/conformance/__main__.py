"""`python -m tests.conformance [--spark | --spark-streams] [--only PATTERN] [-v] PATH...`: run cases, print, and say.

Exit status: 0 all passed or skipped, 1 a failure (a file that holds no cases is one), 2 bad usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.cases import BadFileError, files_of
from tests.conformance.door import Door, EmbeddedDoor
from tests.conformance.outcome import Result
from tests.conformance.report import count_line, file_report
from tests.conformance.run import run_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        files = files_of(Path(path) for path in options.paths)
    except BadFileError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    with _door(spark=options.spark, streams=options.spark_streams) as door:
        results = [result for file in files for result in _run(file, door, options)]
    if options.only and not results:
        print(f"conformance: no case is named like '{options.only}'", file=sys.stderr)
        return 2
    print(count_line(results))
    return 1 if any(result.status == "failed" for result in results) else 0


def _run(file: Path, door: Door, options: argparse.Namespace) -> list[Result]:
    try:
        results = list(run_file(file, door, only=options.only))
    except BadFileError as error:
        results = [Result(file.name, file.name, "failed", problems=[str(error)])]
    if results or not options.only:
        print(file_report(str(file), results, verbose=options.verbose), flush=True)
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Run conformance cases (tests/vectors/README.md) through merganser's public surface.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a folder of *.json files, or one file")
    parser.add_argument("--spark", action="store_true", help="write and read through a local Spark session")
    parser.add_argument("--spark-streams", action="store_true", help="write and read through streams of Spark")
    parser.add_argument("--only", metavar="PATTERN", help="cases whose name contains it, or matches it as a glob")
    parser.add_argument("-v", "--verbose", action="store_true", help="every case, and notes")
    return parser


@contextmanager
def _door(*, spark: bool, streams: bool) -> Iterator[Door]:
    if not (spark or streams):
        yield EmbeddedDoor()
        return
    from tests.conformance.spark_door import local_door

    with local_door(streams=streams) as door:
        yield door


if __name__ == "__main__":
    sys.exit(main())
