"""What all tests share: random tests take the time they need, and a failure prints how to repeat it.

With `-n 2 --dist loadgroup` (`make test`) two processes share the tests. Those that need Spark stay together in one of
them, so that there is one session.
"""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

settings.register_profile("merganser", deadline=None, print_blob=True)
settings.load_profile("merganser")

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # processes that tests start share compiled modules
sys.dont_write_bytecode = False

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for minutes spends half of its time on its second compiler."""
os.environ.setdefault(
    "PYSPARK_SUBMIT_ARGS",
    f'--driver-java-options "{JAVA}" --conf "spark.executor.extraJavaOptions={JAVA}" pyspark-shell',
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
