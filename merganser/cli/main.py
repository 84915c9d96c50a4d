"""`merganser`: the commands and their exit codes.

An error of merganser prints one line on stderr and gives exit code 1. Bad usage gives 2, and Ctrl-C gives 130. If the
reader of the output goes away (`merganser read ... | head`), the command ends silently.
Only `--debug`, at any position, shows tracebacks.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from merganser.cli import (
    commands_alter,
    commands_catalog,
    commands_expiry,
    commands_log,
    commands_references,
    commands_rows,
    commands_stream,
)
from merganser.cli.advice import at_the_shell
from merganser.cli.check_command import check, doctor
from merganser.cli.demo_command import demo
from merganser.cli.serve_command import serve_catalog, serve_stream, ui
from merganser.cli.sql_command import sql
from merganser.cli.top_command import top
from merganser.errors import MerganserError

_COLLECTED_AFTER: Final = 50_000
"""Number of new objects after which the garbage collector runs. Imports create 500,000 objects and no garbage; with
Python's default of 700, the collector takes a tenth of the time of a short command."""

EXIT_ERROR = 1
EXIT_INTERRUPTED = 128 + signal.SIGINT

app = typer.Typer(
    name="merganser",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback(epilog="For help on one command: merganser read --help")
def merganser(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors. May stand anywhere.")] = False,
    versions: Annotated[
        bool,
        typer.Option("--version", help="The same as the command version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Inspect, read and write tables in the Apache Paimon format.

    A TABLE is `database.table` in a warehouse, or the path of the directory of a table. The warehouse is --warehouse,
    or the variable MERGANSER_WAREHOUSE, or ./warehouse. Read a system table like any other table:
    'shop.orders$files'.
    """
    _State.debug = _State.debug or debug


app.command("demo")(demo)
app.command("sql")(sql)
app.command("top")(top)
for _name, _command in (
    *commands_catalog.COMMANDS,
    *commands_rows.COMMANDS,
    *commands_references.COMMANDS,
    *commands_expiry.COMMANDS,
    *commands_stream.COMMANDS,
):
    app.command(_name)(_command)
for _group in (*commands_alter.GROUPS, *commands_log.GROUPS, *commands_references.GROUPS, *commands_stream.GROUPS):
    app.add_typer(_group)


app.command("ui")(ui)
app.command("serve-stream")(serve_stream)
app.command("serve-catalog")(serve_catalog)
app.command("check")(check)
app.command("doctor")(doctor)


@app.command("version")
def version() -> None:
    """Print the versions of merganser and its libraries."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    import merganser as mg

    print(f"merganser {mg.__version__}")
    print(f"python    {sys.version.split()[0]}")
    for package in ("pyarrow", "polars", "numpy", "pyspark"):
        try:
            print(f"{package:<9} {installed(package)}")
        except PackageNotFoundError:
            print(f"{package:<9} not installed")


class _State:
    """Options of the whole run, and how it ended."""

    debug = False
    code = EXIT_ERROR


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _State.debug = bool(os.environ.get("MERGANSER_DEBUG"))
    if given[:1] == ["help"]:
        given = [*given[1:2], "--help"]
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller has closed it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if arguments is None:
        gc.set_threshold(_COLLECTED_AFTER)
        atexit.register(_leave)
        if "demo" not in given:  # the only command with frames of pandas
            sys.meta_path.insert(0, _WithoutPandas())
    _State.code = _run(_debug_first(given))
    sys.exit(_State.code)


class _WithoutPandas:
    """Answers imports of pandas as if it were not installed: Arrow imports it with the first array that it makes."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("no command uses pandas.", name=name)


def _leave() -> None:
    """End the process now that threads of Python and the work of Spark have ended.

    The libraries have threads of their own, in C++ and Rust. On a busy machine one of them may still run while the
    interpreter takes itself apart, and the process then ends with `terminate called without an active exception`.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # its reader has gone away
            stream.flush()
    os._exit(_State.code)


def _debug_first(given: list[str]) -> list[str]:
    """Return the arguments with `--debug`, wherever it stands before a `--`, moved to where it belongs."""
    end = given.index("--") if "--" in given else len(given)
    if "--debug" not in given[:end]:
        return given
    return ["--debug", *(word for word in given[:end] if word != "--debug"), *given[end:]]


def _run(given: list[str]) -> int:
    try:
        code = app(given, prog_name="merganser", standalone_mode=True)
    except SystemExit as exit_:
        code = exit_.code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except MerganserError as error:
        return _report(error, f"error: {at_the_shell(str(error))}")
    except Exception as error:
        return _report(
            error,
            f"error: {type(error).__name__}: {error}\nThis is not an error that merganser raises on purpose. "
            "Run the command again with --debug and report what it prints.",
        )
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # Python's own flush at exit would complain once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    return code if isinstance(code, int) else 0 if code is None else EXIT_ERROR


def _report(error: BaseException, text: str) -> int:
    if _State.debug:
        traceback.print_exception(error)
    else:
        print(text, file=sys.stderr)
    return EXIT_ERROR
