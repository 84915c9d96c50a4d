"""Records of a log: `python -m benchmarks.log_records`.

Rows of ten columns become keys and values in Debezium JSON, as lists of bytes, and such records become rows again. The
floor is Polars: it writes the same rows as JSON, and decodes the same values with a fixed schema, without keys, kinds,
decimals and times. All run on one core.
"""

from __future__ import annotations

from .harness import FLOOR, Contender, parser, start

OURS = Contender("merganser", "benchmarks.ours_log_records")
POLARS = Contender(FLOOR.name, "benchmarks.ours_log_records")


def main() -> None:
    """Run it."""
    bench = start("log_records", parser(__doc__.splitlines()[0], rows=200_000).parse_args(), (POLARS, OURS))
    for name in ("encode", "decode"):
        bench.measure(
            name,
            lambda contender, name=name: f"{name}_by_polars" if contender == POLARS else name,
            lambda _: {"rows": bench.options.rows, "seed": bench.options.seed},
        )
    bench.finish()


if __name__ == "__main__":
    main()
