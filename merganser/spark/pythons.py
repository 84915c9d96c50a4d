"""Which Python the tasks of a session run, and what it lacks.

Where tasks lack pyarrow, no code of merganser runs in them, and the data source fails before it does. So the question
is a plain Python function, which Spark sends as code and which needs neither. A session is asked only if Spark would
start another program than the driver's Python, and after a job has failed.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
import weakref
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from merganser.values import dataclass

_seen: Final[weakref.WeakSet[SparkSession]] = weakref.WeakSet()
"""Sessions that were asked already, or need not be."""


@dataclass(frozen=True, slots=True)
class TaskPython:
    """What a task said of its Python.

    Attributes:
        executable: its path on the machine of the task.
        lacks: why it cannot import pyarrow or merganser; empty: it can.
    """

    executable: str
    lacks: str


def ask_tasks(spark: SparkSession) -> TaskPython | None:
    """Return the Python of one task, by a job of one row; None: Spark could not run it."""

    def answer(_: int) -> str:
        import importlib
        import sys

        lacks = ""
        for name in ("pyarrow", "merganser"):
            try:
                importlib.import_module(name)
            except ImportError as error:
                lacks = lacks or str(error)
        return f"{sys.executable}\n{lacks}"

    answer.__module__ = "__main__"  # else Spark sends its name, and the task imports merganser to find it
    try:
        text = spark.range(1).select(f.udf(answer, "string", useArrow=False)("id")).collect()[0][0]
    except Exception:  # the session is stopped, or Spark itself cannot run this Python, and says why
        return None
    executable, _, lacks = text.partition("\n")
    return TaskPython(executable, lacks)


def advice(tasks: TaskPython | None) -> str:
    """Return which Pythons run, and what to do."""
    from merganser.spark.jobs import SET_PYTHON, SHIP

    driver = sys.executable
    if tasks is None:
        return f"The driver runs {driver}. If tasks run another Python: {SET_PYTHON} {SHIP}"
    both = f"The driver runs {driver}, and the tasks run {tasks.executable}."
    return f"{both} {SHIP}" if tasks.executable == driver else f"{both} {SET_PYTHON} On a cluster: {SHIP}"


def warn_of_other_python(spark: SparkSession) -> None:
    """Warn once for each session if its tasks run another Python than the driver, and it lacks what merganser needs."""
    if spark in _seen:
        return
    _seen.add(spark)
    if type(spark).__module__.startswith("pyspark.sql.connect.") or _is_driver(spark.sparkContext.pythonExec):
        return
    found = ask_tasks(spark)
    if found is not None and found.lacks:
        warnings.warn(f"tasks cannot run merganser ({found.lacks}). {advice(found)}", RuntimeWarning, stacklevel=3)


def _is_driver(program: str) -> bool:
    """Return whether a program is the driver's Python. Two environments may link to one file, so directories count."""
    path, driver = os.path.abspath(shutil.which(program) or program), os.path.abspath(sys.executable)
    if os.path.dirname(path) != os.path.dirname(driver):
        return False
    return path == driver or (os.path.exists(path) and os.path.samefile(path, driver))
