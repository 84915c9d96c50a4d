"""What names and texts mean in a session of Spark: its time zone, and whether names count in their case.

Doors of Spark take names as Spark does: in any case unless `spark.sql.caseSensitive` is set. Below the doors all names
are those of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from merganser.expr.names import spelled
from merganser.expr.setting import Setting
from merganser.handle.system_table import SystemTable, TableView
from merganser.handle.table import Table
from merganser.handle.writing import Overwrite
from merganser.meta.newest import newest
from merganser.options import write as w

ZONE = "spark.sql.session.timeZone"
CASE = "spark.sql.caseSensitive"


@dataclass(frozen=True, slots=True)
class Spelling:
    """How names that a user gives become names of a table.

    Attributes:
        columns: the columns of the table.
        exact: names count in their case.
    """

    columns: tuple[str, ...]
    exact: bool

    def names(self, names: Sequence[str] | None, among: Sequence[str] | None = None) -> Sequence[str] | None:
        """Return names as the table has them, or as `among` has them; what is no list of names stays as it is."""
        if self.exact or isinstance(names, str) or not isinstance(names, Sequence):
            return names
        return spelled(names, self.columns if among is None else among)

    def given(self, columns: Sequence[str] | None, rows: Sequence[str]) -> Sequence[str] | None:
        """Return the columns that a write names, those that the table lacks as the rows have them."""
        return self.names(self.names(columns), rows)

    def column(self, name: str | None, among: Sequence[str]) -> str | None:
        """Return the name of a column as `among` has it; None stays None."""
        found = None if name is None else self.names([name], among)
        return found[0] if found else name

    def alike(self, names: Sequence[str]) -> list[str]:
        """Return names in a form that is equal for names of one column."""
        return list(names) if self.exact else [name.lower() for name in names]

    def spec(self, spec: Any) -> Any:
        """Return a partition with the names of the table; others stay as they are."""
        if self.exact or not isinstance(spec, Mapping):
            return spec
        return dict(zip(spelled(spec, self.columns), spec.values(), strict=True))

    def overwrite(self, overwrite: Overwrite) -> Overwrite:
        """Return what is replaced, with the names of the table."""
        found: Overwrite = self.spec(overwrite)
        return found

    def frame(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame whose columns have the names of the table."""
        names = self.names(df.columns)
        return df if names is None or list(names) == df.columns else df.toDF(*names)


def spelling_of(spark: SparkSession, table: Table, *, writes: bool = False) -> Spelling:
    """Return how names of a session become names of a table.

    Args:
        writes: they are those of rows that are written; see `names_to_write`.
    """
    names = names_to_write(table) if writes else table.schema.names
    return Spelling(tuple(names), is_exact(spark.conf.get(CASE, "false")))


def names_to_write(table: Table) -> tuple[str, ...]:
    """Return the columns that rows may be written to: those of the newest schema if rows may bring columns."""
    definition = table.definition
    if definition.options.get(w.MERGE_SCHEMA):
        definition = newest(definition, table.env)
    return tuple(definition.schema.names)


def is_exact(text: str | None) -> bool:
    """Return what a value of `spark.sql.caseSensitive` says."""
    return str(text).strip().lower() == "true"


def setting_of(spark: SparkSession, table: Table | TableView | SystemTable) -> Setting:
    """Return what SQL text means besides its words, in a session."""
    base = table if isinstance(table, Table) else table.base
    return base.setting(spark.conf.get(ZONE, "UTC") or "UTC", is_exact(spark.conf.get(CASE, "false")))
