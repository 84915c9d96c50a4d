"""`merganser serve-stream`: the shard streams of a warehouse over HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from merganser.cli.arguments import Store, Warehouse
from merganser.errors import InvalidInputError, UnsupportedError

TOKEN_VARIABLE: Final = "MERGANSER_TOKEN"


def serve_stream(
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0: a free one.")] = 8470,
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help=f"File with the token that clients have to send; else the variable {TOKEN_VARIABLE} has it.",
        ),
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let clients enable and disable streams. Needs a token.")
    ] = False,
    records: Annotated[
        int, typer.Option("--max-records", metavar="N", min=1, max=1_000_000, help="Most records of an answer.")
    ] = 10_000,
    wait: Annotated[
        float, typer.Option("--max-wait", metavar="SECONDS", min=0, max=3600, help="How long a request may wait.")
    ] = 30.0,
    requests: Annotated[
        int,
        typer.Option(
            "--max-requests", metavar="N", min=1, help="Requests in work at once. Others are told to come again."
        ),
    ] = 256,
    connections: Annotated[
        int, typer.Option("--max-connections", metavar="N", min=1, help="Connections at once.")
    ] = 4096,
    stop_within: Annotated[
        float,
        typer.Option("--stop-within", metavar="SECONDS", min=1, max=3600, help="How long the end may take."),
    ] = 10.0,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Serve the shard streams of a warehouse over HTTP.

    It runs until Ctrl-C or SIGTERM.

    Beyond this machine it needs a token. The page at / says what clients can ask.
    """
    from merganser.cli.target import catalog_of

    try:
        from merganser.serve.operations import Limits
        from merganser.serve.server import serve
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"cannot serve: Python has no module '{error.name}'. Run: pip install 'merganser[console]'"
        ) from error
    catalog = catalog_of(warehouse, store)
    left = serve(
        catalog,
        host=host,
        port=port,
        token=_token(token_file),
        changes=allow_changes,
        limits=Limits(records=records, wait_seconds=wait, requests=requests, connections=connections),
        stop_seconds=stop_within,
        started=lambda address: print(f"serving {catalog.warehouse} at {address}", flush=True),
        log=_log,
    )
    if left:
        _log(f"{left} requests did not end within {stop_within:g} s, and were given up")
        os._exit(0)  # their threads wait for the store, and Python would wait for them


def _token(path: str | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN_VARIABLE)
    try:
        return Path(path).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidInputError(f"cannot read the token in '{path}': {reason}.") from error


def _log(line: str) -> None:
    from merganser.cli import render

    render.line(render.stderr(), line)
