"""What every storage promises, asked of each."""

from __future__ import annotations

import os
import pickle
import random
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merganser.errors import AlreadyExistsError, NotFoundError
from merganser.storage.local import LocalStorage
from merganser.storage.memory import MemoryStorage
from merganser.storage.object_store import ObjectStorage
from merganser.storage.open import storage_for
from merganser.storage.protocol import Storage


class Place(NamedTuple):
    """A storage, and a directory of it that is empty."""

    storage: Storage
    root: str


@pytest.fixture(
    params=["local", "memory", pytest.param("s3", marks=pytest.mark.s3), pytest.param("hdfs", marks=pytest.mark.hdfs)]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "local":
        yield Place(LocalStorage(sync=False), str(tmp_path / "root"))
    elif request.param == "memory":
        memory = MemoryStorage(str(uuid.uuid4()))
        yield Place(memory, "/root")
        memory.clear()
    elif request.param == "hdfs":
        folder = request.getfixturevalue("hdfs").folder()
        storage, root = storage_for(folder.root, folder.options)
        yield Place(storage, root)
    else:
        bucket = request.getfixturevalue("bucket")
        yield Place(ObjectStorage(bucket.root, bucket.options), f"{bucket.root}/root")


def names(place: Place, path: str) -> list[str]:
    return sorted(entry.name + ("/" if entry.is_directory else "") for entry in place.storage.list(path))


class TestLocks:
    def test_a_lock_can_be_had_again_after_its_release(self, place: Place) -> None:
        place.storage.create(f"{place.root}/dir/file", b"")
        for directory in ("dir", "dir", "nowhere"):
            release = place.storage.try_lock(f"{place.root}/{directory}")
            assert release is not None
            release()


class TestCreate:
    def test_what_was_created_reads_back(self, place: Place) -> None:
        place.storage.create(f"{place.root}/new/deep/file", b"bytes \x00\xff")
        assert place.storage.read(f"{place.root}/new/deep/file") == b"bytes \x00\xff"

    def test_an_empty_file_can_be_created(self, place: Place) -> None:
        place.storage.create(f"{place.root}/file", b"")
        assert place.storage.read(f"{place.root}/file") == b""
        assert place.storage.exists(f"{place.root}/file")

    def test_a_second_create_is_refused_and_changes_nothing(self, place: Place) -> None:
        path = f"{place.root}/snapshot-1"
        place.storage.create(path, b"first")
        with pytest.raises(AlreadyExistsError, match="snapshot-1") as caught:
            place.storage.create(path, b"second")
        assert caught.value.context["path"] == path
        assert place.storage.read(path) == b"first"

    def test_a_deleted_name_can_be_created_again(self, place: Place) -> None:
        path = f"{place.root}/file"
        place.storage.create(path, b"first")
        place.storage.delete([path])
        place.storage.create(path, b"second")
        assert place.storage.read(path) == b"second"

    def test_it_leaves_nothing_beside_the_file(self, place: Place) -> None:
        place.storage.create(f"{place.root}/file", b"first")
        with pytest.raises(AlreadyExistsError):
            place.storage.create(f"{place.root}/file", b"second")
        assert names(place, place.root) == ["file"]

    def test_of_racing_threads_exactly_one_wins(self, place: Place) -> None:
        def race(round_and_writer: tuple[int, int]) -> bool:
            number, writer = round_and_writer
            try:
                place.storage.create(f"{place.root}/snapshot-{number}", str(writer).encode())
            except AlreadyExistsError:
                return False
            assert place.storage.read(f"{place.root}/snapshot-{number}") == str(writer).encode()
            return True

        runs = [(number, writer) for number in range(10) for writer in range(8)]
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(race, runs))
        for number in range(10):
            winners = [writer for (n, writer), w in zip(runs, won, strict=True) if n == number and w]
            assert len(winners) == 1
            assert place.storage.read(f"{place.root}/snapshot-{number}") == str(winners[0]).encode()


class TestReplace:
    def test_it_makes_a_file_and_swaps_it_whole(self, place: Place) -> None:
        path = f"{place.root}/hints/LATEST"
        place.storage.replace(path, b"a longer text")
        place.storage.replace(path, b"2")
        assert place.storage.read(path) == b"2"
        assert names(place, f"{place.root}/hints") == ["LATEST"]


class TestRead:
    def test_a_missing_file_is_not_found(self, place: Place) -> None:
        for verb in (place.storage.read, place.storage.open):
            with pytest.raises(NotFoundError, match="nothing-here") as caught:
                verb(f"{place.root}/nothing-here")
            assert pickle.loads(pickle.dumps(caught.value)).context["path"] == f"{place.root}/nothing-here"

    def test_a_directory_is_no_file(self, place: Place) -> None:
        place.storage.create(f"{place.root}/dir/file", b"1")
        for verb in (place.storage.read, place.storage.open):
            with pytest.raises(NotFoundError):
                verb(f"{place.root}/dir")
        assert not place.storage.exists(f"{place.root}/dir")
        assert not place.storage.exists(f"{place.root}/di")
        assert place.storage.exists(f"{place.root}/dir/file")

    def test_an_open_file_reads_anywhere(self, place: Place) -> None:
        data = random.Random(5).randbytes(300_000)
        place.storage.create(f"{place.root}/file", data)
        with place.storage.open(f"{place.root}/file") as file:
            assert file.size() == len(data)
            for start, length in ((299_990, 100), (0, 10), (10, 20), (150_000, 70_000), (100, 0), (0, 300_000)):
                file.seek(start)
                assert file.read(length) == data[start : start + length]
                assert file.tell() == min(start + length, len(data))
            assert file.read_at(1000, 234_500) == data[234_500:235_500]

    def test_an_open_file_reads_front_to_back(self, place: Place) -> None:
        data = random.Random(6).randbytes(200_000)
        place.storage.create(f"{place.root}/file", data)
        with place.storage.open(f"{place.root}/file") as file:
            parts = []
            while part := file.read(7777):
                parts.append(part)
        assert b"".join(parts) == data

    def test_an_empty_file_opens(self, place: Place) -> None:
        place.storage.create(f"{place.root}/file", b"")
        with place.storage.open(f"{place.root}/file") as file:
            assert (file.size(), file.read()) == (0, b"")


class TestList:
    def test_it_shows_files_and_directories_directly_below(self, place: Place) -> None:
        before = int(time.time() * 1000)
        place.storage.create(f"{place.root}/a/file", b"123")
        place.storage.create(f"{place.root}/a/dir/deep/file", b"1")
        place.storage.create(f"{place.root}/ab/file", b"1")
        directory, file = sorted(place.storage.list(f"{place.root}/a"), key=lambda entry: entry.name)
        assert (directory.name, directory.is_directory, directory.size) == ("dir", True, 0)
        assert (file.name, file.is_directory, file.size) == ("file", False, 3)
        assert before - 2000 <= file.modified_ms <= time.time() * 1000 + 2000
        assert names(place, f"{place.root}/a/") == ["dir/", "file"]

    def test_what_is_no_directory_holds_nothing(self, place: Place) -> None:
        place.storage.create(f"{place.root}/file", b"1")
        assert place.storage.list(f"{place.root}/nothing-here") == []
        assert place.storage.list(f"{place.root}/file/below") == []
        assert place.storage.list(f"{place.root}/fil") == []

    def test_names_come_back_as_they_were_given(self, place: Place) -> None:
        given = ["dt=2026-03-01 10%3A00", "a+b", "ünïcode-名", "x&y#z", "tilde~", "100%", "q'uote"]
        for name in given:
            place.storage.create(f"{place.root}/{name}/{name}", name.encode())
        assert names(place, place.root) == sorted(f"{name}/" for name in given)
        for name in given:
            assert names(place, f"{place.root}/{name}") == [name]
            assert place.storage.read(f"{place.root}/{name}/{name}") == name.encode()


class TestWriter:
    def test_what_was_written_counts_after_close(self, place: Place) -> None:
        sink = place.storage.writer(f"{place.root}/new/file")
        sink.stream.write(b"12345")
        assert sink.size == 5
        sink.stream.write(b"678")
        assert sink.close() == 8
        assert sink.size == 8
        assert place.storage.read(f"{place.root}/new/file") == b"12345678"

    def test_an_empty_sink_makes_an_empty_file(self, place: Place) -> None:
        assert place.storage.writer(f"{place.root}/file").close() == 0
        assert place.storage.read(f"{place.root}/file") == b""

    def test_an_aborted_sink_leaves_nothing_however_often(self, place: Place) -> None:
        sink = place.storage.writer(f"{place.root}/file")
        sink.stream.write(b"12345")
        sink.abort()
        sink.abort()
        assert names(place, place.root) == []

    def test_a_file_that_was_closed_can_still_be_dropped(self, place: Place) -> None:
        sink = place.storage.writer(f"{place.root}/file")
        sink.close()
        sink.abort()
        assert not place.storage.exists(f"{place.root}/file")

    def test_parquet_goes_through_and_back(self, place: Place) -> None:
        table = pa.table({"id": range(10_000), "text": [f"row {i}" for i in range(10_000)]})
        sink = place.storage.writer(f"{place.root}/data.parquet")
        pq.write_table(table, sink.stream, row_group_size=1000)
        size = sink.close()
        (entry,) = place.storage.list(place.root)
        assert entry.size == size
        with place.storage.open(f"{place.root}/data.parquet") as file:
            assert pq.read_table(file) == table
        with place.storage.open(f"{place.root}/data.parquet") as file:
            assert pq.ParquetFile(file).read_row_group(7, columns=["id"])["id"].to_pylist() == list(range(7000, 8000))


class TestDelete:
    def test_missing_files_are_fine(self, place: Place) -> None:
        place.storage.create(f"{place.root}/a", b"1")
        place.storage.create(f"{place.root}/b", b"1")
        place.storage.delete(f"{place.root}/{name}" for name in ("none", "a", "b/none", "none/none"))
        assert names(place, place.root) == ["b"]
        place.storage.delete([])

    def test_a_tree_goes_and_its_neighbours_stay(self, place: Place) -> None:
        for name in ("tree/a", "tree/deep/b", "tree-2/c", "tre"):
            place.storage.create(f"{place.root}/{name}", b"1")
        place.storage.delete_tree(f"{place.root}/tree")
        assert names(place, place.root) == ["tre", "tree-2/"]
        place.storage.delete_tree(f"{place.root}/tree")


class TestCopy:
    def test_a_copy_has_the_bytes_and_outlives_the_other_file(self, place: Place) -> None:
        for name in ("a", "b"):
            place.storage.create(f"{place.root}/from/{name}", name.encode())
        place.storage.copy((f"{place.root}/from/{name}", f"{place.root}/to/new/{name}-2") for name in ("a", "b"))
        assert names(place, f"{place.root}/to/new") == ["a-2", "b-2"]
        place.storage.delete_tree(f"{place.root}/from")
        assert place.storage.read(f"{place.root}/to/new/b-2") == b"b"

    def test_a_missing_file_is_not_found(self, place: Place) -> None:
        with pytest.raises(NotFoundError, match="none"):
            place.storage.copy([(f"{place.root}/none", f"{place.root}/new")])
        assert not place.storage.exists(f"{place.root}/new")


class TestMove:
    def test_a_tree_moves_whole(self, place: Place) -> None:
        files = {"schema/schema-0": b"s", "snapshot/snapshot-1": b"1", "bucket-0/data": b"d"}
        for name, data in files.items():
            place.storage.create(f"{place.root}/db/old/{name}", data)
        place.storage.create(f"{place.root}/db/old-2/file", b"1")
        place.storage.move_tree(f"{place.root}/db/old", f"{place.root}/other/new")
        assert {name: place.storage.read(f"{place.root}/other/new/{name}") for name in files} == files
        assert names(place, f"{place.root}/db") == ["old-2/"]

    def test_a_taken_target_is_refused_and_nothing_moves(self, place: Place) -> None:
        place.storage.create(f"{place.root}/old/file", b"old")
        place.storage.create(f"{place.root}/new/other", b"new")
        with pytest.raises(AlreadyExistsError, match="Nothing was moved"):
            place.storage.move_tree(f"{place.root}/old", f"{place.root}/new")
        assert (names(place, f"{place.root}/old"), names(place, f"{place.root}/new")) == (["file"], ["other"])
        with pytest.raises(AlreadyExistsError):
            place.storage.move_tree(f"{place.root}/old", f"{place.root}/new/other")
        assert place.storage.read(f"{place.root}/new/other") == b"new"

    def test_a_missing_source_is_not_found(self, place: Place) -> None:
        with pytest.raises(NotFoundError):
            place.storage.move_tree(f"{place.root}/old", f"{place.root}/new")
        assert names(place, place.root) == []


def test_a_pickled_copy_sees_the_same_files(place: Place) -> None:
    copy = pickle.loads(pickle.dumps(place.storage))
    place.storage.create(f"{place.root}/file", b"1")
    assert copy.read(f"{place.root}/file") == b"1"
    assert copy == place.storage
    assert hash(copy) == hash(place.storage)


def test_any_history_equals_a_dictionary(place: Place) -> None:
    chance, model = random.Random(11), dict[str, bytes]()
    paths = [f"{place.root}/{directory}/{name}" for directory in ("a", "b", "ab") for name in ("x", "y", "xy")]
    for _ in range(150):
        path, data = chance.choice(paths), chance.randbytes(chance.randrange(20))
        match chance.randrange(7):
            case 0 | 1:
                if path in model:
                    with pytest.raises(AlreadyExistsError):
                        place.storage.create(path, data)
                else:
                    place.storage.create(path, data)
                    model[path] = data
            case 2:
                place.storage.replace(path, data)
                model[path] = data
            case 3:
                place.storage.delete([path, path])
                model.pop(path, None)
            case 4:
                directory = os.path.dirname(path)
                place.storage.delete_tree(directory)
                model = {p: d for p, d in model.items() if os.path.dirname(p) != directory}
            case 5:
                assert place.storage.exists(path) == (path in model)
            case 6:
                directory = os.path.dirname(path)
                found = {entry.name: entry.size for entry in place.storage.list(directory)}
                assert found == {
                    os.path.basename(p): len(d) for p, d in model.items() if os.path.dirname(p) == directory
                }
    for path, data in model.items():
        assert place.storage.read(path) == data
