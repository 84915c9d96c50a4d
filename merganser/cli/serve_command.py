"""`merganser ui`, `serve-stream` and `serve-catalog`: the console, the shard streams and the catalog, over HTTP."""

from __future__ import annotations

import importlib
import os
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from merganser.cli.arguments import Store, Warehouse
from merganser.errors import InvalidInputError, UnsupportedError

TOKEN_VARIABLE: Final = "MERGANSER_TOKEN"
READ_TOKEN_VARIABLE: Final = "MERGANSER_READ_TOKEN"
_FORM_BYTES: Final = 1 << 20
"""Of a form of the console: a statement of SQL may be long."""

Host = Annotated[str, typer.Option("--host", metavar="HOST", help="Where to listen.")]
TokenFile = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help=f"File with the token that clients have to send; else the variable {TOKEN_VARIABLE} has it.",
    ),
]
Requests = Annotated[
    int,
    typer.Option("--max-requests", metavar="N", min=1, help="Requests in work at once. Others are told to come again."),
]
Connections = Annotated[int, typer.Option("--max-connections", metavar="N", min=1, help="Connections at once.")]
StopWithin = Annotated[
    float, typer.Option("--stop-within", metavar="SECONDS", min=1, max=3600, help="How long the end may take.")
]


def serve_stream(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0: a free one.")] = 8470,
    token_file: TokenFile = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Let clients enable and disable streams. Needs a token.")
    ] = False,
    records: Annotated[
        int, typer.Option("--max-records", metavar="N", min=1, max=1_000_000, help="Most records of an answer.")
    ] = 10_000,
    wait: Annotated[
        float, typer.Option("--max-wait", metavar="SECONDS", min=0, max=3600, help="How long a request may wait.")
    ] = 30.0,
    requests: Requests = 256,
    connections: Connections = 4096,
    stop_within: StopWithin = 10.0,
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
        from merganser.serve.service import Service
    except ModuleNotFoundError as error:
        raise _no_module(error) from error
    catalog = catalog_of(warehouse, store)
    limits = Limits(records=records, wait_seconds=wait, requests=requests, connections=connections)
    left = serve(
        lambda access: Service(catalog, access, limits, _log),
        host=host,
        port=port,
        token=_token(token_file, TOKEN_VARIABLE),
        changes=allow_changes,
        stop_seconds=stop_within,
        started=lambda address: print(f"serving {catalog.warehouse} at {address}", flush=True),
    )
    _end(left, stop_within)


def serve_catalog(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0: a free one.")] = 10000,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="What clients call the warehouse.  [default: the last part of its path]",
            show_default=False,
        ),
    ] = None,
    token_file: TokenFile = None,
    read_token_file: Annotated[
        str | None,
        typer.Option(
            "--read-token-file",
            metavar="FILE",
            help=f"File with a token for clients that only read; else the variable {READ_TOKEN_VARIABLE} has it.",
        ),
    ] = None,
    data_tokens: Annotated[
        str | None,
        typer.Option(
            "--data-tokens",
            metavar="MODULE:FUNCTION",
            help="Function that gives clients keys of the store, by table.",
        ),
    ] = None,
    tls_cert: Annotated[
        str | None,
        typer.Option("--tls-cert", metavar="FILE", help="Encrypt connections: certificate of the server, as PEM."),
    ] = None,
    tls_key: Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its private key, as PEM.")] = None,
    requests: Requests = 256,
    connections: Connections = 4096,
    stop_within: StopWithin = 10.0,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Serve a catalog over HTTP, for REST clients of Paimon.

    It runs until Ctrl-C or SIGTERM.

    Without a token, clients of this machine can read, and nobody can change anything.
    """
    from merganser.cli.target import catalog_of

    try:
        from merganser.serve.catalog_service import BODY_BYTES, CatalogService
        from merganser.serve.operations import Limits
        from merganser.serve.server import serve
    except ModuleNotFoundError as error:
        raise _no_module(error) from error
    token, read_token = _token(token_file, TOKEN_VARIABLE), _token(read_token_file, READ_TOKEN_VARIABLE)
    if token is None and read_token is not None:
        raise InvalidInputError(
            "cannot serve: there is a token for clients that read, and none for those that write. Give one with "
            f"--token-file or in the variable {TOKEN_VARIABLE}."
        )
    if (tls_cert is None) != (tls_key is None):
        raise InvalidInputError("cannot serve: of --tls-cert and --tls-key one is missing. Give both, or none.")
    tokens = None if data_tokens is None else _function(data_tokens, "--data-tokens")
    catalog = catalog_of(warehouse, store)
    limits = Limits(requests=requests, connections=connections, body_bytes=BODY_BYTES)
    name = name or catalog.warehouse.rstrip("/").rpartition("/")[2]
    left = serve(
        lambda access: CatalogService(catalog, access, limits, _log, name, tokens),
        host=host,
        port=port,
        token=token,
        read_token=read_token,
        certificate=None if tls_cert is None or tls_key is None else (tls_cert, tls_key),
        changes=token is not None,
        stop_seconds=stop_within,
        started=lambda address: print(f"serving the catalog '{name}' ({catalog.warehouse}) at {address}", flush=True),
    )
    _end(left, stop_within)


def ui(
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="Table whose page is opened: database.table.", show_default=False),
    ] = None,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0: a free one.")] = 8480,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in the browser of this machine.")] = False,
    token_file: TokenFile = None,
    allow_upkeep: Annotated[
        bool,
        typer.Option("--allow-upkeep", help="Let clients with the token change tables. Needs a token."),
    ] = False,
    requests: Requests = 256,
    connections: Connections = 4096,
    stop_within: StopWithin = 10.0,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Show a warehouse in the browser.

    Its pages show tables, commits, files, rows, readers, and run SQL. It runs until Ctrl-C or SIGTERM, and only reads
    unless --allow-upkeep is given.

    Beyond this machine it needs a token.
    """
    from merganser.cli.target import catalog_of

    try:
        from merganser.console.service import ConsoleService
        from merganser.serve.operations import Limits
        from merganser.serve.server import serve
    except ModuleNotFoundError as error:
        raise _no_module(error) from error
    catalog = catalog_of(warehouse, store)
    limits = Limits(requests=requests, connections=connections, body_bytes=_FORM_BYTES)

    def started(address: str) -> None:
        page = address if table is None else f"{address}/t/{quote(table)}"
        print(f"the console of {catalog.warehouse} is at {page}", flush=True)
        if open_browser:
            webbrowser.open(page)

    left = serve(
        lambda access: ConsoleService(catalog, access, limits, _log),
        host=host,
        port=port,
        token=_token(token_file, TOKEN_VARIABLE),
        changes=allow_upkeep,
        stop_seconds=stop_within,
        started=started,
    )
    _end(left, stop_within)


def _function(text: str, option: str) -> Callable[..., Any]:
    """Return the function of `module:function`. Modules of the working directory are found too."""
    module, _, name = text.partition(":")
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInputError(f"cannot serve: {option} is '{text}': {error}. Give module:function.") from error
    return found


def _no_module(error: ModuleNotFoundError) -> UnsupportedError:
    return UnsupportedError(f"cannot serve: Python has no module '{error.name}'. Run: pip install 'merganser[console]'")


def _end(left: int, stop_within: float) -> None:
    """End the process if threads of it would not."""
    if left:
        _log(f"{left} requests did not end within {stop_within:g} s, and were given up")
        os._exit(0)  # their threads wait for the store, and Python would wait for them


def _token(path: str | None, variable: str) -> str | None:
    if path is None:
        return os.environ.get(variable)
    try:
        return Path(path).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidInputError(f"cannot read the token in '{path}': {reason}.") from error


def _log(line: str) -> None:
    from merganser.cli import render

    render.line(render.stderr(), line)
