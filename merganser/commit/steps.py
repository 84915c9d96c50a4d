"""Steps: changes outside the table that succeed or fail with a commit, such as a log that holds the same rows.

    before   the change may follow the newest state; nothing of it is visible. Once per commit, not per attempt
    after    the commit stands
    undo     the commit has certainly failed; nothing of it is visible

After a commit of unknown outcome (`CommitUnknownError`), or if the process stops, neither `after` nor `undo` is
called. The caller repeats the commit. Then the commits calls `before` again, or `after` at once if the first commit
succeeded. So all three may be called again for one commit, and must then change nothing more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from merganser.meta.snapshot import Snapshot

_log = logging.getLogger(__name__)


class CommitStep(Protocol):
    """The steps of a log store for one commit."""

    def before(self) -> Mapping[int, int]:
        """Make the rows durable, not yet visible; return by partition of the log the offset after its last row.

        Raises:
            MerganserError: they could not be; nothing is committed.
        """

    def after(self, snapshot: Snapshot | None) -> None:
        """Make the rows visible. What fails here is logged: the commit stands, and its snapshot has the offsets.

        Args:
            snapshot: the one that the commit made; None: it is not kept any more.
        """

    def undo(self) -> None:
        """Drop the rows. What fails here is logged. Called also where `before` of this step failed."""


@dataclass
class Steps:
    """The steps of one commit, over all of its attempts."""

    table_name: str
    steps: Sequence[CommitStep]
    _begun: list[CommitStep] = field(default_factory=list)
    _offsets: dict[int, int] = field(default_factory=dict)

    def before(self) -> Mapping[int, int]:
        """Call `before` of all steps, in order, unless an earlier attempt did; return the offsets of the steps.

        Raises:
            Exception: what a step raised; it and those before it are undone.
        """
        for step in self.steps[len(self._begun) :]:
            self._begun.append(step)
            try:
                self._offsets.update(step.before())
            except BaseException:
                self.undo()
                raise
        return self._offsets

    def after(self, snapshot: Snapshot | None) -> None:
        """Call `after` of all steps: the commit stands."""
        for step in self.steps:
            try:
                step.after(snapshot)
            except Exception:
                _log.warning(
                    "a commit to '%s' stands, and a step after it failed; a repeat of the commit takes the step again",
                    self.table_name,
                    exc_info=True,
                )

    def undo(self) -> None:
        """Call `undo` of all steps that began, the last first: the commit has failed."""
        begun, self._begun, self._offsets = self._begun, [], {}
        for step in reversed(begun):
            try:
                step.undo()
            except Exception:
                _log.warning(
                    "nothing was committed to '%s', and a step before it could not be undone",
                    self.table_name,
                    exc_info=True,
                )
