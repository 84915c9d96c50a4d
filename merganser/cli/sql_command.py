"""`merganser sql`: statements of files, of `-e` or of standard input, and a shell."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from merganser.cli.arguments import Store, Warehouse, format_of_path, pairs
from merganser.cli.commands_rows import SHOWN_ROWS_MAX, Format
from merganser.errors import InvalidInputError, NotFoundError


def sql(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Files with statements; - is standard input.", show_default=False),
    ] = None,
    execute: Annotated[
        list[str] | None, typer.Option("--execute", "-e", metavar="TEXT", help="Statements to run. Repeatable.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="NAME[:TYPE]=VALUE",
            help="Value of :NAME in statements: text, or a value of an SQL type, such as n:INT=5. Repeatable.",
        ),
    ] = None,
    database: Annotated[
        str | None, typer.Option("--database", "-d", metavar="NAME", help="Database of names without one.")
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            "-f",
            help="Format of the rows of the last statement.  [default: the extension of --output, else table]",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="FILE", help="Write the rows of the last statement to this file."),
    ] = None,
    shown: Annotated[
        int, typer.Option("--shown", metavar="N", min=0, help="Maximum number of rows of a table; 0: all.")
    ] = SHOWN_ROWS_MAX,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before statements that drop, overwrite or remove.")
    ] = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Run SQL statements, or start a shell.

    Without files and --execute, statements are read from standard input; at a terminal, a shell starts. If input and
    output are a terminal, merganser asks before statements that drop, overwrite or remove.
    """
    from merganser.cli.sql_ask import agreed, at_terminal
    from merganser.cli.sql_output import Output

    def opened() -> Any:
        from merganser.cli.target import catalog_of

        session = catalog_of(warehouse, store).session()
        if database is not None:
            session.execute(f"USE `{database.replace('`', '``')}`")
        return session

    values = _values(pairs(parameter, "--parameter"))
    form = format.value if format else (format_of_path(output) if output else None) or "table"
    if output is not None and form == "table":
        raise InvalidInputError(
            f"cannot write '{output}': its name does not say in which form. Add --format csv, json or parquet."
        )
    if not files and not execute and at_terminal():
        from merganser.cli.sql_shell import Shell

        Shell(opened, Output(form, output, shown), values, None if yes else input, database or "default").run()
        return
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise InvalidInputError("parquet is not for a terminal. Name a file with --output FILE, or pipe it somewhere.")
    texts = [*(_text(path) for path in files or ()), *(execute or ())]
    session = opened()

    def allowed(statement: Any) -> bool:
        if not agreed(session, statement):
            raise typer.Exit(1)
        return True

    before = allowed if at_terminal() and not yes else None
    _run(session, texts or [_text("-")], values, Output(form, output, shown), before)


def _values(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of parameters: text, or with a type behind the name what the text means in that type."""
    if not any(":" in name for name in texts):
        return dict(texts)
    from merganser.schema.literals import value_of_text
    from merganser.schema.types_text import parse_type

    found: dict[str, Any] = {}
    for named, text in texts.items():
        name, _, kind = named.partition(":")
        try:
            found[name] = value_of_text(text, parse_type(kind)) if kind else text
        except InvalidInputError as error:
            raise typer.BadParameter(str(error), param_hint="--parameter") from error
        except ValueError as error:
            raise typer.BadParameter(f"'{text}' is not a value of type {kind}.", param_hint="--parameter") from error
    return found


def _run(session: Any, texts: list[str], values: dict[str, Any], output: Any, before: Any) -> None:
    """Run texts; all are parsed before the first one runs."""
    from merganser.sql.parse import parse

    for text in texts:
        parse(text, values)
    result = None
    for text in texts:
        for result in session.results(text, values, before=before):
            if output.form == "table":
                output.show(result)
    if output.form == "table" or result is None:
        return
    if not result.has_rows and output.path is not None:
        raise InvalidInputError(
            f"cannot write '{output.path}': the last statement gives no rows. The statements have run."
        )
    output.show(result)


def _text(path: str) -> str:
    if path == "-":
        return sys.stdin.read().removeprefix("\ufeff")
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"cannot read '{path}': it is not UTF-8 text. Nothing was run.", path=path) from error
    except OSError as error:
        raise NotFoundError(f"cannot read '{path}': {error.strerror}. Nothing was run.", path=path) from error
