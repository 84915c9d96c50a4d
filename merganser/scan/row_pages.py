"""Pages of rows: some rows of a plan from a place on, for people who look through a table.

A place is a split of the plan and a number of rows of that split that came before. Splits before it are not read, and
reading stops after the last row of the page. So a page costs what its own split costs up to that row, whatever the size
of the table. The order of rows is that of the plan: places are only of use with the plan that they were found in.
"""

from __future__ import annotations

import pyarrow as pa

from merganser.scan.plan import Plan
from merganser.scan.read import read_split
from merganser.scan.rows import joined, with_schema
from merganser.scan.scan import Scan
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the rows of a plan.

    Attributes:
        split: the number of the split.
        row: the number of rows of the split before this position.
    """

    split: int = 0
    row: int = 0


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows of a plan.

    Attributes:
        rows: the rows, in the order of the plan.
        skipped: the number of rows that were passed over before them.
        next: the position after them; None if no rows follow. Rows may follow if the time was over.
        late: whether reading stopped because its time was over, before the page was full.
    """

    rows: pa.Table
    skipped: int
    next: Place | None
    late: bool


def read_page(scan: Scan, plan: Plan, place: Place, *, rows: int, skip: int = 0, seconds: float) -> RowPage:
    """Return rows of a plan from a position on.

    Args:
        scan: the scan that the plan was made of.
        rows: maximum number of rows to return.
        skip: number of rows to pass over first.
        seconds: how long to go on reading. The time is looked at between the tables that the splits give.

    Raises:
        ExpiredError: the snapshot expired while it was read.
        InvalidInputError: the filter cannot be computed for a row.
    """
    env = scan.env
    until = env.seconds() + seconds
    schema = scan.schema
    found: list[pa.Table] = []
    wanted, left = rows, skip
    at = place
    with scan.unless_expired(plan.snapshot):
        for number in range(place.split, len(plan.splits)):
            before = place.row if number == place.split else 0
            seen = 0
            at = Place(number, before)
            for table in read_split(plan.job, plan.splits[number], env.storage):
                begin = min(max(before - seen, 0), table.num_rows)
                passed = min(left, table.num_rows - begin)
                left -= passed
                begin += passed
                part = table.slice(begin, wanted)
                if part.num_rows:
                    found.append(with_schema(part, schema))
                wanted -= part.num_rows
                at = Place(number, max(before, seen + begin + part.num_rows))
                seen += table.num_rows
                if at.row < seen or env.seconds() > until:
                    return RowPage(_together(found, schema), skip - left, at, wanted > 0)
            at = Place(number + 1)
            if at.split < len(plan.splits) and env.seconds() > until:
                return RowPage(_together(found, schema), skip - left, at, wanted > 0)
    return RowPage(_together(found, schema), skip - left, None, False)


def _together(found: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return joined(found) if found else schema.empty_table()
