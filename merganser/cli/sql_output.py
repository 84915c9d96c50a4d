"""Results of statements, for a person or for a file.

Arrow and what writes rows are imported when the first result is shown, so that the shell has its prompt before.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from merganser.cli import render
from merganser.progress.sizes import size_text
from merganser.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Output:
    """How results are shown.

    Attributes:
        form: "table", "csv", "json" or "parquet".
        path: file for the rows of the next query; None: stdout.
        shown_max: maximum number of rows of a table; 0: all.
        timing: whether notes have seconds.
        more: what to do to see all rows.
    """

    form: str = "table"
    path: str | None = None
    shown_max: int = 50
    timing: bool = True
    more: str = "--shown 0 prints all, --format csv or json too."

    def show(self, result: Any) -> None:
        """Show one result."""
        from merganser.codec.display import on_one_line

        if result.has_rows and (self.form != "table" or self.path is not None):
            self._write(result)
        elif result.has_rows and (text := _text(result.rows)) is not None:
            print("\n".join(on_one_line(line) for line in text.split("\n")), flush=True)
        elif result.has_rows:
            self._table(result.rows)
            self._note(render.counted(result.rows.num_rows, "row"), result, sys.stderr)
        else:
            self._note(changes(result), result, sys.stdout if self.form == "table" else sys.stderr)

    def _write(self, result: Any) -> None:
        from merganser.cli.output import sink_of
        from merganser.scan.export import write_rows

        path = self.path
        with sink_of(path) as sink:
            done = write_rows(result.rows, self.form, sink, seen=lambda _: None)
        if path is not None:
            size = size_text(os.path.getsize(path))
            self._note(f"{render.counted(done, 'row')}, {size} in {path}", result, sys.stderr)

    def _table(self, rows: pa.Table) -> None:
        from merganser.cli.output import cells
        from merganser.codec.display import is_number

        shown = rows.slice(0, self.shown_max) if self.shown_max else rows
        numbers = [field.name for field in shown.schema if is_number(field.type)]
        columns = [cells(column) for column in shown.columns]
        texts = list(zip(*columns, strict=True)) if columns else []
        render.table(render.stdout(), shown.column_names, texts, right=numbers, cut=True)
        left = rows.num_rows - shown.num_rows
        if left:
            print(f"{render.counted(left, 'more row')}. {self.more}", file=sys.stderr)

    def _note(self, text: str, result: Any, stream: Any) -> None:
        print(f"{text}, {result.seconds:.2f} s" if self.timing else text, file=stream, flush=True)


def _text(rows: pa.Table) -> str | None:
    """Return the text of EXPLAIN and SHOW CREATE TABLE: one value of several lines."""
    if not rows.num_columns == rows.num_rows == 1:
        return None
    value = rows[0][0].as_py()
    return value if isinstance(value, str) and "\n" in value else None


def changes(result: Any) -> str:
    """Return what a statement without rows did: "3 rows inserted, snapshot 7"."""
    snapshot = result.snapshot
    if snapshot is None:
        return "no row changes; nothing was committed" if result.changes else "done"
    said = [f"{render.counted(rows, 'row')} {verb}" for verb, rows in result.counts.items() if rows]
    return ", ".join([*said, f"snapshot {snapshot.id}"])
