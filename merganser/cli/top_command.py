"""`merganser top`: what is written to a table or a warehouse, refreshed until the reader leaves."""

from __future__ import annotations

from typing import Annotated

import typer

from merganser.cli.arguments import Store, Warehouse


def top(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE|WAREHOUSE",
            help="A table, or a warehouse: a directory, an address or the name of a catalog.  [default: --warehouse]",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Time between two refreshes.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the state once, and end.")] = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Show what is written to a table, or to all of them.

    It refreshes until q or Ctrl-C.

    Rates are those of the last minute. A refresh asks for the newest snapshot of a table, and reads more only if it is
    another one. Of a warehouse, it looks at up to 100 tables at a time, first at those that are written.
    """
    from merganser.cli.top_screen import show
    from merganser.cli.until_stopped import until_stopped

    with until_stopped():
        show(target, warehouse, store, interval=interval, once=once)
