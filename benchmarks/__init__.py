"""Benchmarks of merganser against its peers and against the floor: `python -m benchmarks.<name>`, see README.md."""

import os

os.environ.pop(
    "PYTHONDONTWRITEBYTECODE", None
)  # an installed package is compiled; so is this checkout, by its first run
