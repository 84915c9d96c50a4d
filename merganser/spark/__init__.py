"""merganser on Spark, through PySpark alone. Spark tasks read and write the same tables with the same commits.

Names are imported at their first use, so a task that unpickles a job imports only what the job needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from merganser.edit.other_names import OF_SPARK, no_name

if TYPE_CHECKING:
    from merganser.spark import cdc
    from merganser.spark.compaction import compact, rescale
    from merganser.spark.editing import delete, erase, update
    from merganser.spark.files import load
    from merganser.spark.lookup import lookup_join
    from merganser.spark.merging import merge
    from merganser.spark.reset import reset_stream
    from merganser.spark.scan import changes, read
    from merganser.spark.sink import write
    from merganser.spark.source import register
    from merganser.spark.sql import session
    from merganser.spark.stream_sink import write_stream
    from merganser.spark.stream_source import read_stream

__all__ = [
    "cdc",
    "changes",
    "compact",
    "delete",
    "erase",
    "load",
    "lookup_join",
    "merge",
    "read",
    "read_stream",
    "register",
    "rescale",
    "reset_stream",
    "session",
    "update",
    "write",
    "write_stream",
]

_HOMES = {
    "cdc": "merganser.spark.cdc",
    "changes": "merganser.spark.scan",
    "compact": "merganser.spark.compaction",
    "delete": "merganser.spark.editing",
    "erase": "merganser.spark.editing",
    "load": "merganser.spark.files",
    "lookup_join": "merganser.spark.lookup",
    "merge": "merganser.spark.merging",
    "read": "merganser.spark.scan",
    "read_stream": "merganser.spark.stream_source",
    "register": "merganser.spark.source",
    "rescale": "merganser.spark.compaction",
    "reset_stream": "merganser.spark.reset",
    "session": "merganser.spark.sql",
    "update": "merganser.spark.editing",
    "write": "merganser.spark.sink",
    "write_stream": "merganser.spark.stream_sink",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise no_name("merganser.spark", name, __all__, OF_SPARK)
    try:
        home = importlib.import_module(_HOMES[name])
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise ModuleNotFoundError(
            f"cannot use merganser.spark.{name}: PySpark is not installed. Run pip install 'merganser[spark]'. Spark "
            "also needs Java 17 or newer.",
            name=error.name,
        ) from error
    value = home if name == "cdc" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
