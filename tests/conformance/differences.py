"""Cases of the reference that merganser answers otherwise, on purpose.

Each case here is run like any other. The report lists it by name and reason, and it counts neither as passed nor as
skipped. If merganser answers as the case says after all, the case passes, and `test_conformance` asks to remove it.
"""

from __future__ import annotations

from typing import Final

CHOSEN: Final[dict[str, str]] = {
    "seq-late-insert-visible-after-delete-compacted": (
        "a late row loses against a newer delete for 'tombstone.time-retained', whatever compactions came between"
    ),
}
"""Name of the case -> what merganser does instead. `docs/differences-from-paimon.md` says why."""
