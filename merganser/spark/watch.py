"""What a query says about itself, as numbers and as a line for a person at a screen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.streaming import StreamingQuery

from merganser.progress.sizes import size_text
from merganser.progress.work import STREAMS
from merganser.spark.jobs import NUMBERS

OBSERVED: Final = "merganser"
"""What `lastProgress` names the numbers of a batch by, in its observed metrics."""


def show(query: StreamingQuery, title: str) -> None:
    """Show a line about a query on the terminal until it ends, if a person watches."""
    STREAMS.follow(title, lambda: _said(query))


def numbers_of(progress: Mapping[str, Any]) -> dict[str, int] | None:
    """Return what a batch wrote, by `NUMBERS`; None: it had no rows.

    Spark 4.0 gives a dict, later versions a row, and Spark Connect a row with the values and their schema.
    """
    found = (progress.get("observedMetrics") or {}).get(OBSERVED)
    if found is None:
        return None
    values = found if isinstance(found, dict) else found.asDict()
    # a query into many tables counts more, behind these
    return dict(zip(NUMBERS, values["values"], strict=False)) if "values" in values else dict(values)


def lag_of(progress: Mapping[str, Any]) -> tuple[int, float] | None:
    """Return how many snapshots and seconds the sources of a query are behind, the last of them; None: not known."""
    lags = []
    for source in progress["sources"]:
        latest = source["latestOffset"]
        try:
            latest = json.loads(latest) if isinstance(latest, str) else latest
        except ValueError:  # another source; its offsets need not be JSON
            continue
        if isinstance(latest, Mapping) and "lag_snapshots" in latest:
            lags.append((int(latest["lag_snapshots"]), float(latest["lag_seconds"])))
    return max(lags, key=lambda lag: lag[1], default=None)


def text_of(progress: Mapping[str, Any]) -> str:
    """Return the progress of a query as one line."""
    numbers = numbers_of(progress)
    said = [f"batch {progress['batchId']:,}"]
    if numbers is None:
        said.append("no rows")
    else:
        seconds = max(progress["durationMs"].get("triggerExecution", 0), 1) / 1000
        said += [
            _counted(numbers["rows"], "row"),
            f"{numbers['rows'] / seconds:,.0f} rows/s",
            _counted(numbers["files"], "file"),
            size_text(numbers["bytes"]),
        ]
        if numbers["dead_letters"]:
            said.append(_counted(numbers["dead_letters"], "dead letter"))
    lag = lag_of(progress)
    if lag is not None:
        snapshots, behind = lag
        said.append(f"{_counted(snapshots, 'snapshot')}, {behind:,.1f} s behind" if snapshots else "up to date")
    return "  ".join(said)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _said(query: StreamingQuery) -> str | None:
    if not query.isActive:
        return None
    progress = query.lastProgress
    return "waits for rows" if progress is None else text_of(progress)
