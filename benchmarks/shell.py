"""Start of the command line: `python -m benchmarks.shell`.

Every figure is of fresh processes, with bytecode from an earlier run: the best and the median of wall seconds, and the
median of CPU seconds. The floors are Python itself, pyarrow, and the libraries that a query needs, imported without
merganser.

    prompt      `merganser sql` in a pseudo terminal, until the prompt is there
    first row   the same, until the first SELECT 1, sent at the prompt, has its row
    -e          `merganser sql -e "SELECT 1"`
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

_LIBRARIES = "import pyarrow, polars, duckdb, sqlglot, typer, rich.console"
Seconds = tuple[float, ...]


def _finished(arguments: Sequence[str], directory: str) -> Seconds:
    """Run Python with arguments to its end."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=directory, check=True, capture_output=True, env=_environment())
    return (time.perf_counter() - begun,)


def _shell(directory: str) -> Seconds:
    """Start a shell; return the seconds until its prompt, and until the first row."""
    begun = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(directory)
        os.execve(sys.executable, [sys.executable, "-m", "merganser", "sql"], _environment())

    def until(text: bytes) -> float:
        seen = b""
        while text not in seen:
            if not select.select([terminal], [], [], 60)[0]:
                raise TimeoutError(f"the shell did not print {text!r} in 60 s")
            seen += os.read(terminal, 65536)
        return time.perf_counter() - begun

    prompt = until(b"default>")
    os.write(terminal, b"SELECT 41 + 1 AS n;\r")
    row = until(b"1 row, ")
    os.write(terminal, b"\\q\r")
    os.waitpid(pid, 0)
    os.close(terminal)
    return prompt, row


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", "XDG_STATE_HOME": "."}


def main() -> None:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=7, help="number of measured processes per action")
    runs = options.parse_args().runs
    print(f"load {os.getloadavg()[0]:.1f}\n{'':22}{'best s':>8}{'median':>8}{'cpu s':>8}")
    with tempfile.TemporaryDirectory() as directory:
        actions: dict[tuple[str, ...], Callable[[], Seconds]] = {
            ("python",): lambda: _finished(("-c", "pass"), directory),
            ("import pyarrow",): lambda: _finished(("-c", "import pyarrow"), directory),
            ("import libraries",): lambda: _finished(("-c", _LIBRARIES), directory),
            ("merganser version",): lambda: _finished(("-m", "merganser", "version"), directory),
            ("-e",): lambda: _finished(("-m", "merganser", "sql", "-e", "SELECT 1"), directory),
            ("prompt", "first row"): lambda: _shell(directory),
        }
        for names, action in actions.items():
            action()  # bytecode, and pages of the libraries
            found, cpu = [], []
            for _ in range(runs):
                before = os.times()
                found.append(action())
                after = os.times()
                cpu.append(after.children_user + after.children_system - before.children_user - before.children_system)
            for name, seconds in zip(names, zip(*found, strict=True), strict=True):
                whole = f"{statistics.median(cpu):8.2f}" if name == names[-1] else ""
                print(f"{name:22}{min(seconds):8.2f}{statistics.median(seconds):8.2f}{whole}", flush=True)


if __name__ == "__main__":
    main()
