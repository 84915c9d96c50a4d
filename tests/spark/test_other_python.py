"""A script that is run by the Python of an environment, while `python3` on the PATH, which Spark runs, is another.

That one loses pyarrow halfway: then no code of merganser runs in the tasks, and the driver has to ask them.
"""

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

pytestmark = pytest.mark.spark(session=False)

_SCRIPT = """
import os
import sys
import warnings
sys.path.insert(0, {root!r})
import merganser as mg
import merganser.spark as ms
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.python.worker.reuse", "false")  # so that no worker has pyarrow in memory
spark = builder.config("spark.log.level", "OFF").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
shop = mg.catalog({warehouse!r})
shop.create_database("shop")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    ms.register(spark)
    ms.register(spark)
for warned in caught:
    if warned.category is RuntimeWarning:
        print("REGISTER", warned.message)
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
os.remove({arrow!r})
for name, rows in (("BARE", spark.range(3)), ("FILES", spark.range(5))):
    try:
        ms.write(rows, table, through="files" if name == "FILES" else "arrow")
    except mg.errors.UnsupportedError as error:
        print(name, error)
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


@pytest.mark.campaign(1 / 4, first=2)
def test_tasks_of_another_python_say_which_it_is_and_what_to_set(tmp_path: Path) -> None:
    other = _without_merganser(tmp_path)
    script, arrow = tmp_path / "script.py", str(tmp_path / "packages" / "pyarrow")
    script.write_text(_SCRIPT.format(root=str(ROOT), warehouse=str(tmp_path / "warehouse"), arrow=arrow))
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
    names = ("REGISTER", "WRITE", "READ", "BARE", "FILES")
    said = [line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(names)]
    assert [name for name, _ in said] == list(names), done.stderr[-4000:]  # and it warns once
    for name, text in said:
        assert ("cannot import pyarrow" if name in ("BARE", "FILES") else "No module named 'merganser'") in text
        assert f"The driver runs {sys.executable}, and the tasks run {other / 'python3'}." in text
        assert "Set the environment variable PYSPARK_PYTHON" in text
