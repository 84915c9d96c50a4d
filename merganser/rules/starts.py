"""The start of a read: the mode that the scan options choose, and which of these options exclude each other."""

from __future__ import annotations

from typing import Final

from merganser.options import read as r
from merganser.options.option import Option, Options
from merganser.rules.facts import listed, refuse

_TIME: Final = (r.SCAN_TIMESTAMP_MILLIS, r.SCAN_TIMESTAMP)
_SNAPSHOT: Final = (r.SCAN_SNAPSHOT_ID, r.SCAN_TAG_NAME, r.SCAN_WATERMARK, r.SCAN_VERSION)
_FILE_TIME: Final = (r.SCAN_FILE_CREATION_TIME_MILLIS,)
_CREATION_TIME: Final = (r.SCAN_CREATION_TIME_MILLIS,)
_INCREMENTAL: Final = (r.INCREMENTAL_BETWEEN, r.INCREMENTAL_BETWEEN_TIMESTAMP, r.INCREMENTAL_TO_AUTO_TAG)
_START_OPTIONS: Final[dict[str, tuple[Option[int | None] | Option[str | None], ...]]] = {
    "from-timestamp": _TIME,
    "from-snapshot": _SNAPSHOT,
    "from-snapshot-full": (r.SCAN_SNAPSHOT_ID,),
    "from-file-creation-time": _FILE_TIME,
    "from-creation-timestamp": _CREATION_TIME,
    "incremental": _INCREMENTAL,
}
_ORDER: Final = ("from-timestamp", "from-snapshot", "from-file-creation-time", "from-creation-timestamp", "incremental")
_ALL_STARTS: Final = (*_TIME, *_SNAPSHOT, *_FILE_TIME, *_CREATION_TIME, *_INCREMENTAL)


def scan_mode(options: Options) -> str:
    """Return the start mode, with `default` resolved from the other scan options."""
    mode = options.get(r.SCAN_MODE)
    if mode != "default":
        return mode
    given = (name for name in _ORDER if any(options.is_set(option) for option in _START_OPTIONS[name]))
    return next(given, "latest-full")


def starts_given(options: Options) -> list[str]:
    """Return the options that are set and say where a read starts."""
    return [option.key for option in _ALL_STARTS if options.is_set(option)]


def check_scan_options(options: Options, *, what: str = "cannot read the table") -> None:
    """Check that the options that say where a read starts agree: the mode has its option, one, and no other's.

    Raises:
        InvalidInputError: names the mode and the options.
    """
    mode = scan_mode(options)
    own = _START_OPTIONS.get(mode, ())
    given = [option.key for option in own if options.is_set(option)]
    if own and not given:
        wanted = ", ".join(f"'{option.key}'" for option in own)
        none = f"one of {wanted}, and none is set." if len(own) > 1 else f"{wanted}, which is not set."
        refuse(what, f"'scan.mode' = '{mode}' needs {none}", option="scan.mode")
    if len(given) > 1:
        refuse(what, f"{listed(given)} are set, and each says where the read starts. Keep one.")
    foreign = [option.key for option in _ALL_STARTS if option not in own and options.is_set(option)]
    if foreign:
        refuse(what, f"{listed(foreign)} must be absent with 'scan.mode' = '{mode}'. Remove it, or change the mode.")
    if options.is_set(r.SCAN_FALLBACK_BRANCH) and options.is_set(r.SCAN_PRIMARY_BRANCH):
        refuse(what, "'scan.fallback-branch' and 'scan.primary-branch' exclude each other. Remove one.")
