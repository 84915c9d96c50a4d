"""The actions of `ours.py` in an environment without the accelerator for manifests (the extra `avro`)."""

from __future__ import annotations

import importlib
import sys

sys.modules["polars_avro"] = None  # type: ignore[assignment]  # importing it fails, as where it is not installed

_ours = importlib.import_module("benchmarks.ours")
create_and_commit = _ours.create_and_commit
plan_cold = _ours.plan_cold
scan = _ours.scan
