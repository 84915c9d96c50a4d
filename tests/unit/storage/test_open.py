"""From a path and options to a storage and its root."""

from __future__ import annotations

from pathlib import Path

import pytest

from merganser.errors import InvalidInputError
from merganser.storage.hdfs import HdfsStorage
from merganser.storage.local import LocalStorage
from merganser.storage.memory import MemoryStorage
from merganser.storage.object_store import ObjectStorage
from merganser.storage.open import storage_for


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/data/warehouse", "/data/warehouse"),
        ("/data//warehouse/", "/data/warehouse"),
        ("/data/./x/../warehouse", "/data/warehouse"),
        ("/", "/"),
        ("file:/data/warehouse/", "/data/warehouse"),
        ("file:///data/warehouse", "/data/warehouse"),
        ("FILE://localhost/data/warehouse", "/data/warehouse"),
        ("file:///data/with%20space", "/data/with space"),
        ("/data/100%25", "/data/100%25"),
    ],
)
def test_local_paths_come_out_absolute_and_in_one_spelling(path: str, root: str) -> None:
    assert storage_for(path, None) == (LocalStorage(), root)


def test_relative_paths_start_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert storage_for("warehouse")[1] == f"{tmp_path}/warehouse"
    assert storage_for("./a/../b/")[1] == f"{tmp_path}/b"
    assert storage_for(".")[1] == str(tmp_path)


def test_the_home_directory_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert storage_for("~/warehouse")[1] == f"{tmp_path}/warehouse"


def test_a_path_object_as_url_is_the_path(tmp_path: Path) -> None:
    path = tmp_path / "a b%"
    assert storage_for(path.as_uri())[1] == str(path)


@pytest.mark.parametrize(
    ("path", "scheme", "root"),
    [
        ("s3://bucket/x/y", "s3", "s3://bucket/x/y"),
        ("s3a://bucket//x/", "s3", "s3://bucket/x"),
        ("s3n://bucket", "s3", "s3://bucket"),
        ("S3://bucket/", "s3", "s3://bucket"),
        ("gs://bucket/dt=a%3Ab", "gs", "gs://bucket/dt=a%3Ab"),
        ("az://container/x", "az", "az://container/x"),
    ],
)
def test_buckets_are_roots_of_object_stores(path: str, scheme: str, root: str) -> None:
    storage, found = storage_for(path, {"warehouse": path})
    assert isinstance(storage, ObjectStorage)
    assert storage.root == "/".join(root.split("/")[:3])
    assert storage.root.startswith(f"{scheme}://")
    assert found == root


@pytest.mark.parametrize("path", ["hdfs://namenode:8020/x", "webhdfs://namenode:9870/x", "swebhdfs://namenode/x"])
def test_hosts_are_roots_of_hdfs(path: str) -> None:
    storage, root = storage_for(f"{path}//y/", {"hdfs.user": "somebody"})
    assert storage == HdfsStorage(path.removesuffix("/x"), {"hdfs.user": "somebody"})
    assert root == f"{path}/y"


def test_memory_is_shared_by_name() -> None:
    assert storage_for("memory://name/x/") == (MemoryStorage("name"), "memory://name/x")


def test_sync_can_be_turned_off() -> None:
    assert storage_for("/x", {"local.sync": "false"})[0] == LocalStorage(sync=False)
    assert storage_for("file:/x", {"local.sync": " TRUE "})[0] == LocalStorage(sync=True)
    with pytest.raises(InvalidInputError, match=r"'local.sync' is 'no'"):
        storage_for("/x", {"local.sync": "no"})


def test_an_unknown_scheme_names_those_that_exist() -> None:
    with pytest.raises(InvalidInputError, match=r"no storage for 'ftp:'.*'file:', 's3:'.* 'hdfs:'.* and 'memory:'"):
        storage_for("ftp://host/x")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "at least one character"),
        ("/a\0b", "no NUL"),
        ("s3://", "names no bucket"),
        ("s3:/bucket/x", "names no bucket"),
        ("s3:///x", "names no bucket"),
        ("hdfs:///x", "names no host"),
        ("webhdfs://host/../x", "'..' are not followed"),
        ("s3://bucket/../other", "'..' are not followed"),
        ("s3://bucket/x?versionId=1", "have no place"),
        ("file://host/x", "'host' stands for a host"),
    ],
)
def test_paths_without_meaning_are_refused(path: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        storage_for(path)


def test_keys_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidInputError) as caught:
        storage_for("s3://access:verysecret@bucket/x")
    assert "verysecret" not in str(caught.value)
    assert "verysecret" not in repr(caught.value.context)
