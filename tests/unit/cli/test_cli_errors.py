"""How errors look, and how a command ends."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import merganser as mg
from merganser.cli import commands_rows, target

from .conftest import Run

COMMAND = [sys.executable, "-c", "from merganser.cli.main import main; main()"]


def test_an_error_is_one_line_on_stderr(run: Run, orders: mg.Table) -> None:
    ran = run("read", "shop.order")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: there is no table 'shop.order'. Did you mean 'orders'?\n"


@pytest.mark.parametrize("arguments", [["--debug", "tables", "nope"], ["tables", "nope", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_stands(run: Run, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert ran.code == 1
    assert ran.err.startswith("Traceback")
    assert "NotFoundError" in ran.err


def test_an_error_that_is_none_of_ours_asks_to_be_reported(
    run: Run, orders: mg.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(target, "table_of", broken)
    ran = run("explain", "shop.orders")
    assert ran.code == 1
    assert ran.err.startswith("error: KeyError: 'x'\nThis is not an error that merganser raises on purpose.")


def test_an_interrupt_ends_quietly(run: Run, orders: mg.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(target, "table_of", interrupted)
    assert run("explain", "shop.orders") == (130, "", "")


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_a_reader_that_goes_away_is_no_error(orders: mg.Table, form: str) -> None:
    orders.write([{"id": i, "dt": "c", "note": "n" * 100, "tags": None} for i in range(5000)])
    arguments = ["read", orders.path, "-c", "id,dt,note", "-n", "5000", "-f", form]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_closed_output_is_no_error(orders: mg.Table, closed: str) -> None:
    script = f'exec "$@" {closed}>&-'
    ran = subprocess.run(["sh", "-c", script, "sh", *COMMAND, "describe", orders.path], capture_output=True, check=True)
    assert (ran.stdout == b"", ran.stderr) == (closed == "1", b"")


def test_help_fits_80_columns_and_cuts_no_sentence() -> None:
    environment = os.environ | {"COLUMNS": "80"}
    lines = subprocess.run(
        [*COMMAND, "--help"], env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert lines[0] == "Usage: merganser [OPTIONS] COMMAND [ARGS]..."
    assert [line for line in lines[1:] if len(line) > 80 or line.endswith("...")] == []
    assert {line.split()[0] for line in lines if re.match("  [a-z]", line)} >= {"demo", "read", "write", "version"}


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("columns", [60, 80])
def test_a_terminal_of_any_width_shows_values_whole(orders: mg.Table, columns: int) -> None:
    shown = {}
    for command, suffix in (("read", "$files"), ("files", ""), ("describe", ""), ("snapshots", "")):
        shown[command] = _on_terminal(columns, command, orders.path + suffix)
        assert max(len(line) for line in shown[command].splitlines()) <= columns
        assert "…" not in shown[command]
    paths = orders.files().column("file_path").to_pylist()
    assert [path for path in paths if path not in re.sub(r"\s", "", shown["read"])] == []


def _on_terminal(columns: int, *arguments: str) -> str:
    """Return what a command shows on a terminal of a width, without colours."""
    leader, follower = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen([*COMMAND, *arguments], stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        parts = []
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            parts.append(part)
        assert process.wait() == 0
    os.close(leader)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(parts).decode()).replace("\r", "")


def test_version_names_the_libraries(run: Run) -> None:
    out = run("version").out
    assert out.startswith(f"merganser {mg.__version__}\n")
    assert [line.split()[0] for line in out.splitlines()] == [
        "merganser",
        "python",
        "pyarrow",
        "polars",
        "numpy",
        "pyspark",
    ]


def test_the_version_is_also_an_option(run: Run) -> None:
    assert run("--version") == run("version")


def test_help_is_also_a_command(run: Run) -> None:
    assert run("help") == run("--help")
    assert run("help", "read") == run("read", "--help")


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "merganser", "version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"merganser {mg.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["tables", "nope"], "`merganser create-database nope` creates it."),
        (["create-database", "shop"], "pass --if-not-exists."),
        (["create-table", "shop.orders", "-c", "id INT"], "pass --if-not-exists."),
        (["drop-database", "shop"], "it has 1 table (first: 'orders'). Drop them first, or pass --cascade."),
        (["describe", "/nowhere/t"], "Create a table with `merganser create-table`, or check the path."),
        (["write", "shop.orders", "in.csv"], "or name those that the files have with --columns,"),
        (["write", "shop.orders", "in.csv", "--kinds", "op"], "--kinds names the column 'op'"),
    ],
)
def test_errors_advise_in_words_of_the_command_line(
    run: Run, orders: mg.Table, arguments: list[str], advice: str
) -> None:
    Path("in.csv").write_text("id,dt\n1,a\n")
    ran = run(*arguments)
    assert (ran.code, ran.out) == (1, "")
    assert advice in ran.err
    assert not re.search(r"=True|catalog\.|\{\}", ran.err)


def test_every_command_has_a_body_and_a_name() -> None:
    names = [
        "read",
        "lookup",
        "write",
        "delete",
        "erase",
        "update",
        "snapshots",
        "files",
        "explain",
        "compact",
        "rescale",
        "analyze",
    ]
    assert [name for name, _ in commands_rows.COMMANDS] == names
