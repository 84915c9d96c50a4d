"""Write the golden traces and signatures: `python -m tests.traces`. Prints requests and depth of each road.

Traces of roads on Spark stay as they are where PySpark is not installed.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from .roads import ROADS, Traced
from .signatures import signatures
from .test_traces import GOLDEN, HERE
from .tracing import text_of

(HERE / "signatures.txt").write_text(signatures(), encoding="utf-8")


def _written(name: str, road: Callable[[], Traced]) -> None:
    made = road()
    text = text_of(made.log, name, made.files)
    (GOLDEN / f"{name}.txt").write_text(text, encoding="utf-8")
    print(text.partition("\n")[0])


with contextlib.ExitStack() as stack:
    spark_roads: dict[str, Callable[[], Traced]] = {}
    if importlib.util.find_spec("pyspark") is not None:
        from tests.spark.conftest import local_session

        from .spark_roads import SPARK_ROADS

        directory = Path(stack.enter_context(TemporaryDirectory()))
        session = stack.enter_context(local_session(directory / "warehouse"))
        for each, on_spark in SPARK_ROADS.items():
            place = str(directory / each)
            spark_roads[each] = lambda road=on_spark, place=place: road(session, place)
    for path in GOLDEN.iterdir():
        if spark_roads or not path.stem.startswith("spark_"):
            path.unlink()
    for each, one in (ROADS | spark_roads).items():
        _written(each, one)
