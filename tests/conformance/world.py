"""What one table case works on: its catalog, its clock, its table as it is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import merganser as mg
from tests.conformance.cases import Case
from tests.conformance.column_types import UNKNOWN, Type, parse
from tests.conformance.dialects import Translation, translated
from tests.conformance.door import Door
from tests.conformance.outcome import not_built
from tests.conformance.values import as_input, millis_of

TABLE: Final = "db.t"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Clock:
    """A clock that a case sets; until it does, and for cases that never do, the real one.

    Attributes:
        millis: the time it shows; None: the real time.
    """

    millis: int | None = None

    def __call__(self) -> datetime:
        """Return the current time, aware."""
        return datetime.now(UTC) if self.millis is None else _EPOCH + timedelta(milliseconds=self.millis)

    def set(self, moment: int | str | None) -> None:
        """Show this time from now on; None changes nothing."""
        if moment is not None:
            self.millis = millis_of(moment)


@dataclass
class World:
    """The table of a case and what surrounds it.

    Attributes:
        translation: the options it is created with.
        step_snapshots: after each step, the id of the newest snapshot; 0 before the first.
    """

    case: Case
    door: Door
    folder: Path
    clock: Clock = field(default_factory=Clock)
    step_snapshots: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.translation: Translation = translated(self.case)
        self.clock.set(_first_time(self.case))
        self.catalog = self._catalog()

    @property
    def fluss(self) -> bool:
        """Whether the rules of Fluss apply."""
        return self.case.get("dialect") == "fluss"

    def create(self) -> None:
        """Make the database and the table."""
        self.catalog.create_database("db")
        columns = [(name, text) for name, text in self.case["schema"]]
        names = [name for name, _ in columns]
        self.catalog.create_table(
            TABLE,
            schema=dict(columns) if len(set(names)) == len(names) else columns,
            primary_key=self.case.get("primary_key", []),
            partition_by=self.case.get("partition_by", []),
            options=self.translation.options,
        )

    def table(self) -> mg.Table:
        """Return the table as it is now."""
        found: mg.Table = self.catalog.table(TABLE)
        return found

    def table_for_writing(self) -> mg.Table:
        """Return the table as a write step takes it: in Paimon's cases only `compact` steps compact.

        Tables whose rows become visible, or whose changelog is made, by the compaction of a commit keep it.
        """
        table = self.table()
        options = table.options
        compacts = (
            options.get("changelog-producer", "none") == "lookup"
            or options.get("merge-engine", "deduplicate") == "first-row"
            or options.get("deletion-vectors.enabled") == "true"
            or options.get("force-lookup") == "true"
        )
        if compacts or self.case.get("dialect", "paimon") == "fluss" or not table.primary_key:
            return table
        return table.with_options({"write-only": "true"})

    def columns(self, names: Sequence[str] | None = None) -> list[tuple[str, Type]]:
        """Return columns of the table as it is now, with their types; None: all."""
        found = {field.name: parse(str(field.type)) for field in self.table().schema.fields}
        return [(name, found.get(name, UNKNOWN)) for name in (found if names is None else names)]

    def spec(self, partition: Mapping[str, Any]) -> dict[str, Any]:
        """Return a partition of a case as the public surface takes it."""
        types = dict(self.columns())
        return {name: _spec_value(value, types.get(name)) for name, value in partition.items()}

    def newest(self) -> int:
        """Return the id of the newest snapshot, 0 when there is none."""
        found = self.table().snapshots()
        return found[-1].id if found else 0

    def _catalog(self) -> mg.Catalog:
        configuration = self.case.get("configuration")
        try:
            return mg.catalog(str(self.folder / "warehouse"), options=configuration, clock=self.clock)
        except (mg.errors.InvalidInputError, mg.errors.UnsupportedError) as error:
            if configuration:
                raise not_built(f"engine-wide configuration ({', '.join(configuration)})") from error
            raise


def _spec_value(value: Any, kind: Type | None) -> Any:
    """Return the value of a partition column: text and numbers as they are, times as Python has them."""
    if kind is None or kind.name not in ("DECIMAL", "DATE", "TIMESTAMP", "TIMESTAMP_LTZ"):
        return value
    given = as_input(value, kind)
    if kind.name == "DATE" and isinstance(given, int):
        return (_EPOCH + timedelta(days=given)).date()
    if kind.name.startswith("TIMESTAMP") and isinstance(value, str):
        return datetime.fromisoformat(value.removesuffix("Z")).replace(tzinfo=UTC if value.endswith("Z") else None)
    return given


def _first_time(case: Case) -> int | str | None:
    """Return the first time that a step names: it holds for the steps before, too."""
    times = (step.get(name) for step in case.get("steps", []) for name in ("commit_time", "now"))
    return next((moment for moment in times if moment is not None), None)
