"""What names and texts mean in a session of Spark: its time zone, and whether names count in their case.

Entry points on Spark take names as Spark does: in any case unless `spark.sql.caseSensitive` is set. Below them all
names are those of the table, at every depth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as s

from merganser.errors import InvalidInputError
from merganser.expr.names import spelled
from merganser.expr.setting import Setting
from merganser.handle.system_table import CatalogTable, SystemTable, TableView
from merganser.handle.table import Table
from merganser.handle.writing import Overwrite
from merganser.meta.followed import newest
from merganser.options import write as w
from merganser.schema import types as t
from merganser.values import dataclass

ZONE = "spark.sql.session.timeZone"
CASE = "spark.sql.caseSensitive"


@dataclass(frozen=True, slots=True)
class Spelling:
    """How names that a user gives become names of a table.

    Attributes:
        fields: the columns of the table.
        exact: names count in their case.
    """

    fields: tuple[t.Field, ...]
    exact: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(field.name for field in self.fields)

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

    def rows(self, schema: s.StructType, action: str) -> s.StructType:
        """Return the schema of rows with the names of the table at every depth.

        Args:
            action: the start of messages.

        Raises:
            InvalidInputError: two fields of a struct differ in case alone, and names do not count in their case.
        """
        if self.exact:
            return schema
        known = {field.name: field.type for field in self.fields}
        found = s.StructType()
        for name, field in zip(spelled(schema.names, self.columns), schema.fields, strict=True):
            found.add(name, _named(field.dataType, known.get(name), name, action), field.nullable, field.metadata)
        return found

    def frame(self, df: DataFrame, action: str) -> DataFrame:
        """Return a DataFrame with the names of the table at every depth; arguments and errors as of `rows`."""
        given, wanted = df.schema.fields, self.rows(df.schema, action)
        if all(old.dataType == new.dataType for old, new in zip(given, wanted, strict=True)):
            return df if wanted.names == df.columns else df.toDF(*wanted.names)
        numbered = [f"c{i}" for i in range(len(given))]  # two columns may have one name
        columns = [
            # Spark casts a struct field by field, in their order: only names change.
            f.col(number) if old.dataType == new.dataType else f.col(number).cast(new.dataType)
            for number, old, new in zip(numbered, given, wanted, strict=True)
        ]
        return df.toDF(*numbered).select(*columns).toDF(*wanted.names)


def _named(kind: s.DataType, known: t.DataType | None, path: str, action: str) -> s.DataType:
    """Return a type of Spark with the names of fields that a type of the table has; see `Spelling.rows`."""
    match kind, known:
        case s.StructType(), t.Row():
            _check_told_apart(kind.names, path, action)
            inner = {field.name: field.type for field in known.fields}
            names = spelled(kind.names, list(inner))
            parts = [
                _named(field.dataType, inner.get(name), f"{path}.{name}", action)
                for field, name in zip(kind.fields, names, strict=True)
            ]
            if (names, parts) == (kind.names, [field.dataType for field in kind.fields]):
                return kind
            found = s.StructType()
            for name, part, field in zip(names, parts, kind.fields, strict=True):
                found.add(name, part, True, field.metadata)  # nullable, since Spark casts a VARIANT to nothing else
            return found
        case s.ArrayType(), t.Array():
            return s.ArrayType(_named(kind.elementType, known.element, path, action), kind.containsNull)
        case s.MapType(), t.Map():
            key = _named(kind.keyType, known.key, path, action)
            return s.MapType(key, _named(kind.valueType, known.value, path, action), kind.valueContainsNull)
        case s.MapType(), t.Multiset():
            return s.MapType(_named(kind.keyType, known.element, path, action), kind.valueType, kind.valueContainsNull)
    return kind


def _check_told_apart(names: Sequence[str], path: str, action: str) -> None:
    """Refuse fields of one struct whose names differ in case alone."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise InvalidInputError(
                f"{action}: the fields '{other}' and '{name}' of column '{path}' differ in case alone. Nothing was "
                f"written. Keep one of them, or set {CASE} to 'true' if the table has both.",
                column=f"{path}.{name}",
            )


def spelling_of(spark: SparkSession, table: Table, *, writes: bool = False) -> Spelling:
    """Return how names of a session become names of a table.

    Args:
        writes: they are those of rows that are written; see `fields_to_write`.
    """
    fields = fields_to_write(table) if writes else table.schema.fields
    return Spelling(tuple(fields), is_exact(spark.conf.get(CASE, "false")))


def fields_to_write(table: Table) -> tuple[t.Field, ...]:
    """Return the columns that rows may be written to: those of the newest schema if rows may bring columns."""
    definition = table.definition
    if definition.options.get(w.MERGE_SCHEMA):
        definition = newest(definition, table.env)
    return tuple(definition.schema.fields)


def is_exact(text: str | None) -> bool:
    """Return what a value of `spark.sql.caseSensitive` says."""
    return str(text).strip().lower() == "true"


def setting_of(spark: SparkSession, table: Table | TableView | SystemTable | CatalogTable) -> Setting:
    """Return what SQL text means besides its words, in a session."""
    base = table if isinstance(table, Table) else table.base
    return base.setting(spark.conf.get(ZONE, "UTC") or "UTC", is_exact(spark.conf.get(CASE, "false")))
