"""An object store that refuses, breaks off and loses replies while a table is written, read and maintained."""

from __future__ import annotations

import pytest

from tests.faults.store_campaign import run

pytestmark = pytest.mark.s3


def test_a_history_does_not_notice_that_requests_of_the_store_go_wrong(s3_endpoint: str) -> None:
    run(s3_endpoint, seed=2, every=6, steps=1)
