"""Kind `table`: create, run the steps, read in between, compare at the end."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import merganser as mg
from tests.conformance.cases import Case
from tests.conformance.dialects import known
from tests.conformance.door import Door
from tests.conformance.outcome import Failure, Skip, described, is_refusal, method, not_built, unsupported
from tests.conformance.placement import bucket_count_difference, same_bucket_difference
from tests.conformance.reads import Reading, difference_of_changelogs, difference_of_rows, records_of
from tests.conformance.steps import run_step
from tests.conformance.world import World


@dataclass
class Verdict:
    """What the checks of one case found; a case without problems and skips has passed."""

    problems: list[str] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def check(self, label: str, difference: Callable[[], str | None]) -> None:
        """Run one check, and keep what it says."""
        try:
            found = difference()
        except Skip as skip:
            self.skips.append(str(skip))
        except mg.errors.UnsupportedError as error:
            self.skips.append(str(unsupported(error)))
        except Failure as failure:
            self.problems.append(f"{label}: {failure}")
        except Exception as error:
            self.problems.append(f"{label}: {place_of(error)}")
        else:
            if found is not None:
                self.problems.append(f"{label}: {found}")


def run_table_case(case: Case, door: Door, folder: Path) -> Verdict:
    """Run one case in an empty folder.

    Raises:
        Skip: it cannot be judged at all.
    """
    _check_needs(case)
    return _TableCase(World(case, door, folder)).run()


def _check_needs(case: Case) -> None:
    if "change-tracking" in case.get("needs", []) and not known("change-tracking"):
        raise not_built("change-tracking")


class _TableCase:
    def __init__(self, world: World) -> None:
        self.world = world
        self.case = world.case
        self.verdict = Verdict()
        self.steps: list[Any] = self.case.get("steps", [])
        last = len(self.steps) - 1
        self.readings = [Reading(world, read, last) for read in self.case.get("reads", [])]

    def run(self) -> Verdict:
        try:
            self._run()
        except Failure as failure:
            self.verdict.problems.append(str(failure))
        finally:
            for reading in self.readings:
                reading.close()
        return self.verdict

    def _run(self) -> None:
        if self._refused("create", self.world.create):
            return
        self._read_after(-1)
        for i, step in enumerate(self.steps):
            if self._refused(i, partial(run_step, self.world, step)):
                return
            if self.world.fluss:
                self.world.step_snapshots.append(self.world.newest())
            self._read_after(i)
        if "expect_error" in self.case:
            if not self._refused("read", lambda: self.world.door.read(self.world.table())):
                raise Failure(
                    f"an error about {self.case['expect_error']!r} was expected at {self.case.get('error_at')!r}, and "
                    "none was raised"
                )
            return
        self._check_results()

    def _read_after(self, step: int) -> None:
        for reading in self.readings:
            if reading.begins == step:
                reading.begin()
        for i, reading in enumerate(self.readings):
            if reading.ends == step:
                options = reading.read.get("options") or ""
                self.verdict.check(f"read {i} ({reading.read['kind']} {options})", reading.end)

    # errors

    def _refused(self, place: int | str, act: Callable[[], Any]) -> bool:
        """Do one thing; return whether it ended with the error that the case expects there.

        Raises:
            Skip: merganser cannot do it yet.
            Failure: it ended with another error.
        """
        label = f"step {place} ({self.steps[place]['op']})" if isinstance(place, int) else str(place)
        try:
            act()
        except mg.errors.UnsupportedError as error:
            raise unsupported(error) from error
        except mg.errors.MerganserError as error:
            if self._expects_error_at(place) and is_refusal(error):
                self._note_message(error)
                return True
            where = f" (it was expected at {self.case['error_at']!r})" if "expect_error" in self.case else ""
            raise Failure(f"{label}: unexpected {described(error)}{where}") from error
        except (Skip, Failure):
            raise
        except Exception as error:
            raise Failure(f"{label}: {place_of(error)}") from error
        if isinstance(place, int) and self.case.get("error_at") == place and "expect_error" in self.case:
            raise Failure(f"{label}: an error about {self.case['expect_error']!r} was expected, and none was raised")
        return False

    def _expects_error_at(self, place: int | str) -> bool:
        if "expect_error" not in self.case:
            return False
        match self.case.get("error_at"):
            case "create_or_use" | None:
                return True
            case "merge":
                return place == "read" or place == len(self.steps) - 1
            case at:
                return bool(at == place)

    def _note_message(self, error: Exception) -> None:
        pattern = self.case["expect_error"]
        if isinstance(pattern, str) and not re.search(pattern, str(error)):
            self.verdict.notes.append(f"the message does not match {pattern!r}: {described(error)}")

    # results

    def _check_results(self) -> None:
        case, check = self.case, self.verdict.check
        if "final_columns" in case:
            check("final_columns", self._columns_difference)
        if "expect_rows" in case:
            check("expect_rows", self._rows_difference)
        if "expect_changelog" in case:
            check("expect_changelog", self._changelog_difference)
            if case["expect_changelog"]:
                check("expect_changelog, streamed", self._streamed_difference)
        if "expect_stream" in case:
            check("expect_stream", self._stream_difference)
        if "same_bucket" in case:
            check("same_bucket", lambda: same_bucket_difference(self.world))
        if "bucket_count" in case:
            check("bucket_count", lambda: bucket_count_difference(self.world))

    def _columns_difference(self) -> str | None:
        names = list(self.world.table().schema.names)
        wanted = self.case["final_columns"]
        return None if names == wanted else f"\n  expected:   {wanted}\n  actual:     {names}"

    def _rows_difference(self) -> str | None:
        found = self.world.door.read(self.world.table())
        names = list(self.world.table().schema.names)
        if found.column_names != names:
            return f"the rows have the columns {found.column_names}, the table {names}"
        columns = self.world.columns(self.case.get("final_columns"))
        difference = difference_of_rows(
            self.world, found, self.case["expect_rows"], columns, ordered=self.case.get("ordered", False)
        )
        return None if difference is None else f"\n{difference}"

    def _changelog_difference(self) -> str | None:
        if self.world.fluss:
            return self._logged_difference()
        published = [s.id for s in self.world.table().snapshots() if s.changelog_record_count]
        if not published and not self.case["expect_changelog"]:
            return None
        groups = [self._records_between(snapshot, snapshot) for snapshot in published]
        return self._groups_difference([group for group in groups if group])

    def _logged_difference(self) -> str | None:
        """Compare what each write step logged, by the rules of Fluss."""
        if not self.world.translation.per_record:
            raise not_built("a changelog of every record (Fluss)")
        before = [0, *self.world.step_snapshots]
        spans = [(a + 1, b) for a, b in pairwise(before) if b > a]
        groups = [self._records_between(first, last) for first, last in spans]
        return self._groups_difference([group for group in groups if group])

    def _records_between(self, first: int, last: int) -> list[list[Any]]:
        return records_of(self.world, method(self.world.table(), "changes")(start=first, end=last).to_arrow())

    def _streamed_difference(self) -> str | None:
        """Compare what a reader from the first snapshot receives: the same changelog."""
        if self.world.fluss:
            return None  # a step may be several snapshots
        return self._groups_difference(self._streamed(), streamed=True)

    def _stream_difference(self) -> str | None:
        """Compare what a reader that was there from the start receives, through `changes` and through `stream`."""
        method(self.world.table(), "changes")
        through_changes = [self._records_between(s.id, s.id) for s in self.world.table().snapshots()]
        wanted = self.case["expect_stream"]
        difference = self._groups_difference([group for group in through_changes if group], wanted)
        if difference is not None:
            return f"(through changes) {difference}"
        difference = self._groups_difference(self._streamed(), wanted, streamed=True)
        return None if difference is None else f"(through stream) {difference}"

    def _streamed(self) -> list[list[list[Any]]]:
        options = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
        plans = self.world.door.stream(self.world.table(), options)
        return [records_of(self.world, plan) for plan in plans]

    def _groups_difference(
        self, groups: list[list[list[Any]]], wanted: Any = None, *, streamed: bool = False
    ) -> str | None:
        wanted = self.case["expect_changelog"] if wanted is None else wanted
        return difference_of_changelogs(self.world, groups, wanted, self.verdict.notes, streamed=streamed)


def place_of(error: BaseException) -> str:
    """Return an error that is none of merganser's refusals, with the place it came from."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" at {last[0].filename}:{last[0].lineno}" if last else ""
    kind = "unexpected" if isinstance(error, mg.errors.MerganserError) else "not an error of merganser's:"
    return f"{kind} {described(error)}{place}"
