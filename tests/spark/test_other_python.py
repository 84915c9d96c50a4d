"""A script that is run by the Python of an environment, while `python3` on the PATH, which Spark runs, is another."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.spark.conftest import ROOT

pytestmark = pytest.mark.spark

_SCRIPT = """
import sys
sys.path.insert(0, {root!r})
import merganser as mg
import merganser.spark as ms
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "OFF").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
shop = mg.catalog({warehouse!r})
shop.create_database("shop")
table = shop.create_table("shop.t", {{"id": "BIGINT"}}, primary_key=["id"], options={{"bucket": "1"}})
try:
    ms.write(spark.range(3), table)
except mg.errors.UnsupportedError as error:
    print("WRITE", error)
table.write([{{"id": 1}}])
try:
    ms.read(spark, table).collect()
except Exception as error:
    print("READ", str(error).replace(chr(10), " "))
"""


def _without_merganser(directory: Path) -> Path:
    """A Python of its own that has what Spark's tasks need, and not merganser."""
    packages = directory / "packages"
    packages.mkdir()
    for package in (pa, np):
        home = Path(package.__file__).parent
        for found in (home, home.parent / f"{home.name}.libs"):
            if found.exists():
                (packages / found.name).symlink_to(found)
    venv.create(directory / "other", symlinks=True)
    (next((directory / "other" / "lib").glob("python*")) / "site-packages" / "more.pth").write_text(f"{packages}\n")
    return directory / "other" / "bin"


def test_tasks_of_another_python_say_which_it_is_and_what_to_set(tmp_path: Path) -> None:
    other = _without_merganser(tmp_path)
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT.format(root=str(ROOT), warehouse=str(tmp_path / "warehouse")))
    left_out = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
    settings = {key: value for key, value in os.environ.items() if key not in left_out}
    settings |= {"PATH": f"{other}{os.pathsep}{settings['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=settings,
        timeout=300,
        check=False,
    )
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("WRITE ", "READ ")))
    assert said.keys() == {"WRITE", "READ"}, done.stderr[-4000:]
    for text in said.values():
        assert f"The driver runs {sys.executable}, and the tasks run {other / 'python3'}." in text
        assert "Set the environment variable PYSPARK_PYTHON" in text
