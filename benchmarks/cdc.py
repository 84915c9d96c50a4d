"""Change records: `python -m benchmarks.cdc`.

Records of ten columns in each format become rows with kinds, in memory. Of five records two are updates, two are
inserts and one is a delete. The floor is Polars: it decodes the same texts with a fixed schema, and makes no kinds, no
decimals and no list of bad records. "arrow" is pyarrow's reader of the same texts, joined by line breaks. A row is a
record here. All run on one core.
"""

from __future__ import annotations

from .harness import FLOOR, Contender, parser, start

OURS = Contender("merganser", "benchmarks.ours_cdc")
POLARS = Contender(FLOOR.name, "benchmarks.ours_cdc")
ARROW = Contender("arrow", "benchmarks.ours_cdc")
FORMATS = (
    "debezium-json", "debezium-json-schema", "debezium-flat", "canal-json", "maxwell-json", "ogg-json", "json",
)  # fmt: skip


def main() -> None:
    """Run it."""
    bench = start("cdc", parser(__doc__.splitlines()[0], rows=200_000).parse_args(), (POLARS, ARROW, OURS))

    def function(contender: Contender) -> str:
        return {POLARS: "by_polars", ARROW: "by_arrow"}.get(contender, "by_merganser")

    for name in FORMATS:
        arguments = {"format": name, "records": bench.options.rows, "seed": bench.options.seed}
        bench.measure(name, function, lambda _, given=arguments: given)
    one_bad = {"format": "debezium-json", "records": bench.options.rows, "seed": bench.options.seed, "bad": 100}
    bench.measure("debezium-json, every 100th bad", "by_merganser", lambda _: one_bad, only=[OURS])
    bench.finish()


if __name__ == "__main__":
    main()
