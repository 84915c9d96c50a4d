"""The commands `check` and `doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from merganser.cli.arguments import Store, TableName, Warehouse


def check(
    table: TableName,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check only metadata, and that files exist. Read no rows.")
    ] = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Check all metadata and files of a table.

    Prints one line per finding. The exit code is 1 if there is a fault.
    """
    from merganser.cli import render
    from merganser.cli.target import table_of

    found = table_of(table, warehouse, store)
    findings = found.check(quick=quick)
    for finding in findings:
        print(finding)
    if any(finding.is_fault for finding in findings):
        raise typer.Exit(1)
    said = "is sound" if not findings else "has no fault that the check can find"
    render.stderr().print(f"'{found.name}' {said}", soft_wrap=True)


def doctor(
    table: TableName,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Say what makes a table slow or large, and what helps.

    Looks at buckets, files, deletes, readers that are behind, snapshots, statistics and files that nothing names. Reads
    no rows and changes nothing.
    """
    from merganser.cli.target import table_of
    from merganser.upkeep.advice import orphan_advice
    from merganser.upkeep.orphans import DAY_MS, find_orphans

    found = table_of(table, warehouse, store)
    advice = list(found.advice())
    now_ms = found.env.now_ms()
    # The clock of the store may be ahead of ours.
    orphans = find_orphans(found.definition, found.env, older_than_ms=now_ms + DAY_MS)
    advice += orphan_advice(found.definition, orphans, now_ms)
    for each in advice:
        print(f"{each.topic}: {each.problem}\n    {each.remedy}")
    if not advice:
        print(f"'{found.name}' is in good shape")
