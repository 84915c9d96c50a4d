"""What importing costs: nothing heavy is loaded before it is used."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import merganser

from .modules import modules

HEAVY = ("pyarrow", "polars", "numpy", "pandas", "pyspark", "sqlglot", "fastavro", "obstore", "rich")


def _loaded_by(code: str) -> list[str]:
    """Return which heavy modules a fresh interpreter has loaded after some code."""
    after = f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\nprint('|'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", after], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.strip().splitlines()[-1].split("|"))
    return [name for name in HEAVY if name in loaded]


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert _loaded_by("import merganser") == []


@pytest.mark.parametrize("arguments", [["--help"], ["read", "--help"], ["version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    assert _loaded_by(f"from merganser.cli.main import main; main({arguments!r})") == []


def test_the_prompt_of_the_shell_waits_for_nothing_heavy() -> None:
    assert _loaded_by("import merganser.cli.sql_shell") == ["rich"]


def test_a_query_without_tables_does_not_load_frames() -> None:
    loaded = _loaded_by("import merganser as mg; mg.catalog('unused').sql('SELECT 1')")
    assert not {"pandas", "polars"} & set(loaded)


def test_commands_do_not_load_pandas(tmp_path: Path) -> None:
    """Arrow imports pandas with the first array that it makes of values, if it finds it."""
    catalog = merganser.catalog(tmp_path)
    catalog.create_database("shop")
    catalog.create_table("shop.orders", {"id": "INT"}).write([{"id": 17}])
    command = [sys.executable, "-X", "importtime", "-m", "merganser", "read", "shop.orders", "-w", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "17" in done.stdout
    assert re.search(r"\| +pyarrow$", done.stderr, re.MULTILINE)
    assert not re.search(r"\| +pandas$", done.stderr, re.MULTILINE)


def test_help_is_there_in_a_moment() -> None:
    """The goal is 0.3 s. What counts is the processor's time, the best of several runs: others use the machine, too."""
    code = "from merganser.cli.main import main; main(['--help'])"
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 1


def test_using_tables_does_not_load_spark() -> None:
    assert "pyspark" not in _loaded_by("import merganser as mg; mg.catalog, mg.table, mg.Table, mg.Snapshot, mg.Split")


def test_all_public_names_are_there() -> None:
    assert [name for name in merganser.__all__ if not hasattr(merganser, name)] == []


def test_no_module_has_the_name_of_a_public_function() -> None:
    """Python would put the module in the function's place as soon as something imports it."""
    functions = {name for name in merganser.__all__ if name.islower()} - {
        "__version__",
        "cdc",
        "changes",
        "dbapi",
        "errors",
    }
    assert sorted(f"merganser.{name}" for name in functions if f"merganser.{name}" in modules()) == []
