"""What a process keeps from job to job is that of one storage: path, endpoint and credentials."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

import merganser as mg
from merganser.spark import lookup as spark_lookup
from merganser.spark.stream_sink import SinkRequest
from merganser.storage import object_connection
from merganser.storage.env import Env
from merganser.storage.object_store import ObjectStorage
from merganser.storage.process import process_env
from merganser.write.target import WriteTarget
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()
OLD = {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key": "a", "s3.secret-key": "old secret"}


@pytest.mark.parametrize(
    "other", [{"s3.secret-key": "new secret"}, {"s3.endpoint": "http://127.0.0.1:2"}, {"s3.session-token": "token"}]
)
def test_a_request_with_other_credentials_or_another_endpoint_gets_effects_of_its_own(other: dict[str, str]) -> None:
    table = catalog_over(memory_with({}, f"process-{next(_names)}"))
    table.create_database("db")
    made = table.create_table("db.t", {"k": "INT"})
    target = WriteTarget(made.definition)
    request = SinkRequest(target, Env(ObjectStorage("s3://bucket", OLD)), ("k",), None, "", "inline")
    before = pickle.loads(pickle.dumps(request)).here()
    assert pickle.loads(pickle.dumps(request)).here() is before
    after = replace(request, env=Env(ObjectStorage("s3://bucket", {**OLD, **other}))).here()
    assert after.storage == ObjectStorage("s3://bucket", {**OLD, **other})
    assert after.cache is not before.cache
    assert "secret" not in repr((before, after, request))


def test_a_lookup_join_with_another_storage_gets_a_handle_of_its_own() -> None:
    """Two stores with a table at the same path."""
    handles = []
    for rows in ([{"k": 1, "v": "a"}], [{"k": 1, "v": "b"}]):
        catalog = catalog_over(memory_with({}, f"process-{next(_names)}"))
        catalog.create_database("db")
        table = catalog.create_table("db.t", {"k": "INT", "v": "STRING"}, primary_key=["k"], options={"bucket": "1"})
        table.write(rows)
        handles.append(spark_lookup._handle(table.definition, catalog.env.storage, 1))
    assert [handle.lookup({"k": 1}).to_pylist()[0]["v"] for handle in handles if handle] == ["a", "b"]


def test_the_storages_and_clients_that_a_process_keeps_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    first = process_env(Env(ObjectStorage("s3://bucket", OLD)))
    monkeypatch.setattr(object_connection, "_CONNECTIONS", object_connection._Connections())
    connection = object_connection.connect("s3://bucket", OLD)
    for i in range(100):
        options = {**OLD, "s3.session-token": f"{i}"}
        process_env(Env(ObjectStorage("s3://bucket", options)))
        object_connection.connect("s3://bucket", options)
    assert process_env(Env(ObjectStorage("s3://bucket", OLD))) is not first
    assert len(object_connection._CONNECTIONS.by_target) < 50
    assert object_connection.connect("s3://bucket", OLD) is not connection


def test_jobs_of_a_process_share_what_they_know_of_files(tmp_path: Path) -> None:
    env = mg.catalog(str(tmp_path)).env
    assert process_env(env, threads=1).cache is process_env(env).cache
    assert process_env(env, threads=1).threads == 1
