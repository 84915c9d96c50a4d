"""Where a read starts: modes, and options that exclude each other."""

from __future__ import annotations

import pytest

from merganser.errors import InvalidInputError
from merganser.options.option import Options
from merganser.rules.starts import check_scan_options, scan_mode


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, "latest-full"),
        ({"scan.timestamp-millis": "1"}, "from-timestamp"),
        ({"scan.tag-name": "t"}, "from-snapshot"),
        ({"incremental-between": "1,2"}, "incremental"),
        ({"scan.mode": "latest"}, "latest"),
        ({"log.scan": "full"}, "latest-full"),
    ],
)
def test_the_start_mode_follows_from_the_scan_options(options, mode):
    check_scan_options(Options(options))
    assert scan_mode(Options(options)) == mode


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"scan.mode": "from-snapshot"}, "none is set"),
        ({"scan.snapshot-id": "1", "scan.tag-name": "t"}, "'scan.snapshot-id', 'scan.tag-name' are set"),
        ({"scan.mode": "latest", "scan.snapshot-id": "1"}, "'scan.snapshot-id' must be absent"),
        ({"scan.mode": "from-snapshot-full", "scan.tag-name": "t"}, "needs 'scan.snapshot-id', which is not set"),
        ({"scan.mode": "from-snapshot"}, "'scan.watermark', 'scan.version', and none is set"),
        ({"scan.timestamp": "2026-01-01", "scan.snapshot-id": "1"}, "must be absent"),
        ({"scan.fallback-branch": "a", "scan.primary-branch": "b"}, "exclude each other"),
    ],
)
def test_scan_options_that_disagree_are_refused(options, why):
    with pytest.raises(InvalidInputError, match=why):
        check_scan_options(Options(options), what="cannot read 'db.t'")
