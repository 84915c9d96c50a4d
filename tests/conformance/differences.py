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
    "dml-delete-partial-update-needs-option": (
        "a delete by condition takes the rows out of their files, as Paimon does on Spark; the case has Flink's answer"
    ),
    "cdc-dbz-schema-temporal-types": "TIME is stored in milliseconds, so microseconds are a bad value",
    "cdc-dbz-no-schema-time-unit-per-column": "TIME is stored in milliseconds, so microseconds are a bad value",
    "cdc-dbz-schema-connect-and-iso-temporal": "TIME is stored in milliseconds, so microseconds are a bad value",
}
"""Name of the case -> what merganser does instead. `docs/differences-from-paimon.md` says why."""
