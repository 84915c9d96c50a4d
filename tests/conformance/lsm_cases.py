"""Kinds `compaction_pick` and `interval_partition`: pure functions of the tree, asked directly."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.conformance.cases import Case
from tests.conformance.outcome import Failure, not_built


def _module(name: str, *functions: str) -> Any:
    """Return a module of `merganser.lsm` that has these functions.

    Raises:
        Skip: it is not there yet.
    """
    full = f"merganser.lsm.{name}"
    try:
        found = importlib.import_module(full)
    except ModuleNotFoundError as error:
        if error.name != full:
            raise
        raise not_built(full) from None
    for function in functions:
        if not hasattr(found, function):
            raise not_built(f"{full}.{function}")
    return found


def run_pick_case(case: Case) -> None:
    """Ask which runs are compacted next.

    Raises:
        Failure: others than expected.
    """
    from merganser.options.registry import Options, normalize_options

    module = _module("pick", "pick", "RunSize")
    runs = [module.RunSize(level, size) for level, size in case["runs"]]
    found = module.pick(runs, Options(normalize_options(case.get("options"))))
    unit = None if found is None else {"run_count": found.run_count, "output_level": found.output_level}
    if unit is not None and unit["run_count"] == 1 and runs[0].level == unit["output_level"]:
        unit = None
    if unit != case["expect_pick"]:
        raise Failure(f"runs {case['runs']}\n  expected:   {case['expect_pick']}\n  actual:     {unit}")


def run_partition_case(case: Case) -> None:
    """Ask for the sections of files and the sorted runs inside them.

    Raises:
        Failure: others than expected.
    """
    levels = _module("levels", "sections", "dense_ranks")
    files = [tuple(file) for file in case["files"]]
    low, high = levels.dense_ranks([pa.array([low for low, _ in files])], [pa.array([high for _, high in files])])
    found = [
        _runs_of_section(levels, [(files[i], low[i], high[i]) for i in section])
        for section in levels.sections(low, high)
    ]
    wanted = [_plain(section) for section in case["expect_sections"]]
    if found != wanted:
        raise Failure(f"files {case['files']}\n  expected:   {wanted}\n  actual:     {found}")


def _runs_of_section(levels: Any, members: Sequence[tuple[Any, int, int]]) -> list[Any]:
    """Return the sorted runs of one section: as merganser makes them of files of which nothing else is known."""
    if hasattr(levels, "fewest_runs"):
        import numpy as np

        positions = levels.fewest_runs(np.array([m[1] for m in members]), np.array([m[2] for m in members]))
        return _plain([[members[i][0] for i in run] for run in positions])
    if len(members) == 1:
        return [[members[0][0]]]
    return _plain([[member[0]] for member in members])


def _plain(section: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the runs of a section in one order; their own does not count."""
    return sorted([tuple(file) for file in run] for run in section)
