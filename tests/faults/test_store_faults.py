"""A store that refuses, breaks off and loses replies while a table is written, read and maintained."""

from __future__ import annotations

import pytest

from tests.faults.store_campaign import run_on_hdfs, run_on_s3
from tests.hdfs.cluster import Cluster


@pytest.mark.s3
def test_a_history_does_not_notice_that_requests_of_an_object_store_go_wrong(s3_endpoint: str) -> None:
    run_on_s3(s3_endpoint, seed=2, every=6, steps=1)


@pytest.mark.hdfs
def test_a_history_does_not_notice_that_requests_of_hdfs_go_wrong(hdfs: Cluster) -> None:
    run_on_hdfs(hdfs, seed=2, every=6, steps=1)
