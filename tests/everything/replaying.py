"""Replays the changes of a table whose changelogs outlive its snapshots, from its first snapshot on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import merganser as mg
from merganser.errors import ConflictError, ExpiredError, UntrackedError
from tests.everything.following import EXACT, changes_make_rows, waits_for_compactions
from tests.everything.model import image
from tests.everything.replica import Copy, DifferenceError
from tests.everything.values import Row

if TYPE_CHECKING:
    from tests.everything.history import History, State

FUTURE = "2100-01-01"
GAPS = ("skip", "mark", "error")


def replay_of(h: History) -> Replay | None:
    """Return what replays the changes of a table; None: its changelogs expire, or do not make its rows."""
    return Replay(h) if h.layout.keeps and changes_make_rows(h) else None


class Replay:
    """Reads all changes that a table keeps, and holds them against the model.

    Attributes:
        first: the snapshot whose state the changes are applied to; 0: they begin with the table.
        states: by snapshot, of all that were compared, also if they have expired since then.
        kinds: of all commits, by snapshot.
    """

    def __init__(self, h: History) -> None:
        self.h = h
        self.first = 0
        self.states: dict[int, State] = {}
        self.kinds: dict[int, str] = {}
        self.is_lost = False
        self.exact, self.waits = h.layout.producer in EXACT, waits_for_compactions(h)

    def begin_again(self) -> None:
        """Begin with the next state: what came before is no longer kept, or has not led to it."""
        self.is_lost = True
        self.states.clear()
        self.kinds.clear()

    def go_back(self, number: int) -> None:
        """Forget what a rollback removed."""
        self.states = {each: state for each, state in self.states.items() if each <= number}
        self.states[number] = self.h.main.states[number]
        self.kinds = {each: kind for each, kind in self.kinds.items() if each <= number}
        if self.first > number:  # whether compactions have published its state, nobody knows
            self.first, self.is_lost = number, self.waits

    def _note(self) -> None:
        self.kinds |= {each.id: each.commit_kind for each in self.h.table.snapshots()}

    def step(self, rng: random.Random, *, published: bool, complete: bool, last: bool) -> None:
        """Take the state of now, and compare.

        Args:
            published: False: rows were replaced in a table that does not publish its changes.
            complete: a full compaction has published all that waited.
        """
        h = self.h
        if last and self.waits:
            h.table.compact(full=True)
            complete = True
        latest = h.table.latest_snapshot()
        self._note()
        if latest is None:
            return
        if latest.id in h.main.states:
            self.states[latest.id] = h.main.states[latest.id]
        if rng.random() < 0.3:  # before the changes are read, and after the follower has read them
            h.table.expire(retain_max=rng.choice([1, 1, 2, 4]), retain_min=1, older_than=FUTURE)
        if self.is_lost or not published:
            if self.is_lost and published:
                self._never_wrong(latest.id)
            if not self.waits or complete:
                self.first, self.is_lost = latest.id, False
            else:
                self.is_lost = True
        elif last or rng.random() < 0.5:
            self._compare(rng, latest.id, complete=complete)

    def _never_wrong(self, latest: int) -> None:
        """Changes of before an erasure, a fast-forward or another key are refused, or lead to the rows."""
        h = self.h
        try:
            skipped = h.table.changes(1, latest, gaps="skip")
            rows = skipped.to_pylist()
        except (ConflictError, ExpiredError):
            h.compared["changelogs refused"] += 1
            return
        if skipped.gaps() or self.waits:
            return
        copy = Copy(h.model, [])
        copy.apply("old changelogs", rows, strict=self.exact)
        h.same_rows("old changelogs applied", copy.rows(), h.model.visible(), h.model.fields)
        h.compared["old changelogs applied"] += 1

    def _compare(self, rng: random.Random, latest: int, *, complete: bool) -> None:
        h, start = self.h, self.first + 1
        if start > latest:
            return
        skipped = h.table.changes(start, latest, gaps="skip")
        rows, gaps = skipped.to_pylist(), {gap.snapshot: gap for gap in skipped.gaps()}
        self._check_gaps(gaps)
        if gaps:
            self._refused(gaps, start, latest)
        elif not self._same(h.table.changes(start, latest).to_pylist(), rows):
            raise DifferenceError("changelogs", f"changes {start} to {latest} differ with gaps='skip'")
        self._streamed(rng, rows, gaps, start)
        h.replayed(rng, start, latest, rows)
        copy = Copy(h.model, h.rows_of(self.states[self.first], h.model.fields) if self.first else [])
        is_known = self._applied(copy, gaps, start, latest, len(rows))
        h.compared["changelogs"] += 1
        if is_known and (complete or not self.waits):
            h.same_rows("changelogs applied", copy.rows(), h.model.visible(), h.model.fields)
            h.compared["changelogs applied"] += 1

    def _same(self, found: Sequence[Row], wanted: Sequence[Row]) -> bool:
        """Return whether changes are the same, in the same order."""
        fields, unordered = self.h.model.fields, self.h.model.unordered()
        one, other = ([(row["_row_kind"], image(row, fields, unordered)) for row in rows] for rows in (found, wanted))
        return one == other

    def _check_gaps(self, gaps: dict[int, mg.Gap]) -> None:
        if self.h.leaves_out:
            return
        kept = {each.id for each in self.h.table.snapshots()}
        for number in gaps:
            if self.kinds[number] != "OVERWRITE" or number - 1 in kept:
                raise DifferenceError("gap", f"{self.kinds[number]} snapshot {number} is a gap, and {kept} are kept")

    def _refused(self, gaps: dict[int, mg.Gap], start: int, latest: int) -> None:
        try:
            self.h.table.changes(start, latest, gaps="error").to_arrow()
        except UntrackedError as error:
            if error.context["snapshot"] != min(gaps):
                raise DifferenceError("gap", f"{sorted(gaps)} are gaps, and the error is: {error}") from error
        else:
            raise DifferenceError("gap", f"{sorted(gaps)} are gaps, and are no errors")

    def _streamed(self, rng: random.Random, rows: list[Row], gaps: dict[int, mg.Gap], start: int) -> None:
        """A stream from there hands over the same."""
        h, how = self.h, rng.choice(GAPS)
        found: list[Any] = []
        marked: list[mg.Gap] = []
        stream = h.table.stream("from-snapshot", follow=False, gaps=how, **{"scan.snapshot-id": str(start)})
        try:
            for plan in stream:
                if isinstance(plan, mg.Gap):
                    marked.append(plan)
                else:
                    found += plan.to_pylist()
        except UntrackedError as error:
            if how != "error" or error.context["snapshot"] != min(gaps, default=0):
                raise DifferenceError("gap", f"{sorted(gaps)} are gaps, and a stream ends with: {error}") from error
            before = min(gaps) - 1
            rows = h.table.changes(start, before).to_pylist() if before >= start else []
        else:
            if how == "error" and gaps:
                raise DifferenceError("gap", f"{sorted(gaps)} are gaps, and a stream passes over them")
        if how == "mark" and marked != list(gaps.values()):
            raise DifferenceError("gap", f"a stream marks {marked}, expected {list(gaps.values())}")
        if not self._same(found, rows):
            raise DifferenceError("changelogs", f"a stream from {start} has {found}, and changes {rows}")
        h.compared[f"changelogs streamed, {how}"] += 1

    def _applied(self, copy: Copy, gaps: dict[int, mg.Gap], first: int, latest: int, count: int) -> bool:
        """Apply changes from a snapshot on, each gap after those of its snapshot.

        Args:
            count: how many rows a reader gets that passes over the gaps.

        Returns:
            False: it is not known what was published until a gap whose snapshot has expired.
        """
        h, start, passed_over = self.h, first, False
        kept = {each.id for each in h.table.snapshots()}
        for number in sorted({*gaps, latest}):
            if number < start:
                continue
            changes = h.table.changes(start, number, gaps="skip").to_pylist()
            count -= len(changes)
            copy.apply("changelogs", changes, strict=self.exact)
            start = number + 1
            if number not in gaps:
                continue
            h.compared["gaps in changelogs"] += 1
            try:
                copy.replace(gaps[number].partitions, gaps[number].read().to_pylist(), strict=self.exact)
            except ExpiredError:
                if number in kept:
                    raise
                known = min((each for each in self.states if each >= number), default=None)
                if known is None or self.waits:
                    return False
                rows = h.rows_of(self.states[known], h.model.fields)
                copy.replace((), [{"_row_kind": "+I", **row} for row in rows], strict=True)
                start, passed_over = known + 1, passed_over or known > number
        if count and not passed_over:
            raise DifferenceError("changelogs", f"{first} to {latest} have {count} rows more than their parts")
        return True
