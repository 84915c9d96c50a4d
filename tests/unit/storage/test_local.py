"""The local disk: races between processes, order of syncs, crashes at every step, and a failing system."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from merganser.errors import AlreadyExistsError, NotFoundError, StorageError, UnsupportedError
from merganser.storage.local import LocalStorage

PROCESSES = 16
NAMES = 100


class Crash(BaseException):
    """The process ends here."""


def race(root: str, writer: int, start: Any) -> list[int]:
    """Try to create every name; return those that this writer won. Read each back at once, whoever won."""
    storage, won = LocalStorage(sync=False), []  # what others see does not depend on what is on the disk
    start.wait()
    for number in range(NAMES):
        path = f"{root}/snapshot-{number}"
        try:
            storage.create(path, payload(writer))
        except AlreadyExistsError:
            pass
        else:
            won.append(number)
        found = storage.read(path)
        assert found == payload(int(found[:2]))
    return won


def payload(writer: int) -> bytes:
    return f"{writer:02d}".encode() * 20_000


def race_into(root: str, writer: int, start: Any, results: Any) -> None:
    try:
        results.put((writer, race(root, writer, start)))
    except BaseException as error:
        results.put((writer, repr(error)))


def test_of_sixteen_processes_exactly_one_wins_each_name_and_nobody_sees_a_part(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["merganser.storage.local"])
    start, results = context.Barrier(PROCESSES), context.Queue()
    root = str(tmp_path / "new" / "snapshot")
    racers = [context.Process(target=race_into, args=(root, i, start, results), daemon=True) for i in range(PROCESSES)]
    for racer in racers:
        racer.start()
    won = dict(results.get(timeout=60) for _ in racers)
    for racer in racers:
        racer.join()
    assert all(isinstance(numbers, list) for numbers in won.values()), won
    assert sorted(number for numbers in won.values() for number in numbers) == list(range(NAMES))
    for writer, numbers in won.items():
        for number in numbers:
            assert Path(root, f"snapshot-{number}").read_bytes() == payload(writer)
    assert len(os.listdir(root)) == NAMES


def test_a_killed_process_leaves_whole_files_and_hidden_ones(tmp_path: Path) -> None:
    program = (
        "import itertools, sys\n"
        "from merganser.storage.local import LocalStorage\n"
        "for i in itertools.count():\n"
        f"    LocalStorage().create({str(tmp_path)!r} + f'/file-{{i}}', b'x' * 500_000)\n"
        "    print(i, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged = [int(child.stdout.readline()) for _ in range(20)]
    child.kill()
    acknowledged += [int(line) for line in child.stdout]
    child.wait()
    child.stdout.close()
    visible = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert {f"file-{i}" for i in acknowledged} <= visible
    assert {(tmp_path / name).stat().st_size for name in visible} == {500_000}


def _name_of(file: int | str) -> str:
    """Return the path of what is open as a descriptor, or a path as it is."""
    return os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else file


class Trace:
    """Calls to the operating system, by name, in order; the one numbered `crash_at` and all later ones raise Crash."""

    VERBS = ("open", "write", "fsync", "link", "unlink", "replace", "mkdir", "rename", "rmdir")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, crash_at: int | None = None) -> None:
        self.events: list[str] = []
        self._paths: dict[int, str] = {}
        self._crash_at = crash_at
        for verb in self.VERBS:
            monkeypatch.setattr(os, verb, self._wrap(verb, getattr(os, verb)))

    def _wrap(self, verb: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._crash_at is not None and len(self.events) + 1 >= self._crash_at:
                self.events.append(verb)
                if verb == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])  # a part may have reached the disk
                raise Crash
            on = os.path.basename(self._paths.get(args[0]) or _name_of(args[0]))
            on = "temporary" if on.startswith(".") and on.endswith(".tmp") else on
            self.events.append(f"{verb} {on}")
            result = real(*args, **kwargs)
            if verb == "open":
                self._paths[result] = on
            return result

        return call


def test_a_file_is_synced_before_it_gets_its_name_and_its_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dir").mkdir()
    trace = Trace(monkeypatch)
    LocalStorage().create(f"{tmp_path}/dir/file", b"1")
    assert trace.events == [
        "open temporary",
        "write temporary",
        "fsync temporary",
        "link temporary",
        "unlink temporary",
        "open dir",
        "fsync dir",
    ]


def opened_below(path: Path) -> list[str]:
    """Return the files below a directory that this process has open."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{number}"))
    return [link for link in links if link.startswith((str(path), "/dev/full"))]


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="open files are listed on Linux alone")


@needs_proc
@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="only Linux and its like take such advice")
def test_what_will_not_be_read_again_goes_from_memory_and_stays_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advised = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda file, *advice: advised.append((os.readlink(f"/proc/self/fd/{file}"), advice))
    )
    storage, path = LocalStorage(), str(tmp_path / "file")
    storage.create(path, b"bytes")
    storage.uncache([str(tmp_path / "missing"), "no\0path", path])
    assert advised == [(path, (0, 0, os.POSIX_FADV_DONTNEED))]
    assert opened_below(tmp_path) == []
    assert storage.read(path) == b"bytes"


def test_a_file_is_written_in_large_pieces_however_small_they_come(tmp_path: Path) -> None:
    sink = LocalStorage().writer(str(tmp_path / "file"))
    for _ in range(1_000):
        sink.stream.write(b"x" * 100)
    assert sink.size == 100_000
    assert os.path.getsize(tmp_path / "file") == 0
    assert sink.close() == 100_000
    assert os.path.getsize(tmp_path / "file") == 100_000


def test_what_was_written_goes_to_the_disk_while_more_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advised: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, start, size, advice: advised.append((start, size)))
    piece = os.urandom(1024 * 1024)
    for sync in (True, False):
        sink = LocalStorage(sync=sync).writer(str(tmp_path / "file"))
        for _ in range(9):
            sink.stream.write(piece)
            sink.begin_sync()
        assert sink.close() == 9 * 1024 * 1024
        assert (tmp_path / "file").read_bytes() == 9 * piece
    assert advised == [(0, 4 * 1024 * 1024), (4 * 1024 * 1024, 4 * 1024 * 1024)]


def test_a_forked_process_that_ends_adds_nothing_to_a_file_that_is_being_written(tmp_path: Path) -> None:
    program = f"""
import os, sys
from merganser.storage.local import LocalStorage
sink = LocalStorage().writer({str(tmp_path / "file")!r})
sink.stream.write(b"A" * 1000)
child = os.fork()
if not child:
    sys.exit(0)  # the interpreter takes its objects apart, the stream among them
os.waitpid(child, 0)
sink.stream.write(b"B" * 1000)
assert sink.close() == 2000
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert (tmp_path / "file").read_bytes() == b"A" * 1000 + b"B" * 1000


def test_new_directories_are_synced_in_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old").mkdir()
    trace = Trace(monkeypatch)
    LocalStorage().create(f"{tmp_path}/old/new/newer/file", b"1")
    assert [event for event in trace.events if event.startswith("fsync")] == [
        "fsync new",
        "fsync old",
        "fsync temporary",
        "fsync newer",
    ]


def test_a_written_file_is_synced_with_its_directory_at_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dir").mkdir()
    trace = Trace(monkeypatch)
    sink = LocalStorage().writer(f"{tmp_path}/dir/file")
    sink.stream.write(b"1")
    assert trace.events == []
    sink.close()
    assert trace.events == ["fsync file", "open dir", "fsync dir"]


def test_without_sync_nothing_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace(monkeypatch)
    storage = LocalStorage(sync=False)
    storage.create(f"{tmp_path}/new/file", b"1")
    storage.writer(f"{tmp_path}/new/data").close()
    storage.move_tree(f"{tmp_path}/new", f"{tmp_path}/moved")
    assert not [event for event in trace.events if event.startswith("fsync")]


def crashes(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> Iterator[int]:
    """Run `work` again and again, crashing at its first call to the system, its second, ..., until it gets through."""
    for step in range(1, 50):
        with monkeypatch.context() as patch:
            Trace(patch, crash_at=step)
            try:
                work()
            except Crash:
                done = False
            else:
                done = True
        yield step
        if done:
            return
    raise AssertionError("the work never ends")


def test_a_crash_at_any_step_of_create_leaves_nothing_or_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "a" / "b" / "file", set()

    def work() -> None:
        LocalStorage().create(str(path), b"whole file")

    for _ in crashes(monkeypatch, work):
        there = path.exists()
        seen.add(there)
        if there:
            assert path.read_bytes() == b"whole file"
            with pytest.raises(AlreadyExistsError):
                LocalStorage().create(str(path), b"other")
            path.unlink()
        others = [] if not path.parent.exists() else [item.name for item in path.parent.iterdir()]
        assert all(name.startswith(".file.") and name.endswith(".tmp") for name in others)
    assert seen == {False, True}


def test_a_crash_at_any_step_of_replace_leaves_the_old_bytes_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "LATEST", set()
    path.write_bytes(b"41")
    for _ in crashes(monkeypatch, lambda: LocalStorage().replace(str(path), b"42")):
        seen.add(path.read_bytes())
    assert seen == {b"41", b"42"}


def test_a_crash_at_any_step_of_a_move_keeps_the_tree_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = tmp_path / "old", tmp_path / "new"

    def work() -> None:
        LocalStorage().move_tree(str(old), str(new))

    (old / "deep").mkdir(parents=True)
    (old / "deep" / "file").write_bytes(b"1")
    for _ in crashes(monkeypatch, work):
        moved = (new / "deep" / "file").exists()
        assert moved != (old / "deep" / "file").exists()
        if moved:
            new.rename(old)
        elif new.exists():
            new.rmdir()  # the name that was claimed, still empty


def test_of_racing_movers_one_gets_the_target(tmp_path: Path) -> None:
    for i in range(8):
        (tmp_path / f"old-{i}").mkdir()
        (tmp_path / f"old-{i}" / "file").write_text(str(i))

    def move(i: int) -> bool:
        try:
            LocalStorage().move_tree(f"{tmp_path}/old-{i}", f"{tmp_path}/new")
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(move, range(8)))
    assert won.count(True) == 1
    assert (tmp_path / "new" / "file").read_text() == str(won.index(True))
    assert len(list(tmp_path.iterdir())) == 8


def failing(monkeypatch: pytest.MonkeyPatch, verb: str, number: int) -> None:
    """Make a call to the operating system fail with an error number."""

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, verb, fail)


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for work in (LocalStorage().create, LocalStorage().replace):
        with monkeypatch.context() as patch:
            failing(patch, "write", errno.ENOSPC)
            with pytest.raises(StorageError, match="No space left on device") as caught:
                work(f"{tmp_path}/file", b"1")
        assert caught.value.context["path"] == f"{tmp_path}/file"
        assert list(tmp_path.iterdir()) == []


@needs_proc
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_disk_that_fills_under_a_stream_raises_an_os_error(tmp_path: Path) -> None:
    for size in (1_000_000, 100):  # at once, and when what is held back is written at the end
        (tmp_path / "file").symlink_to("/dev/full")
        sink = LocalStorage(sync=False).writer(f"{tmp_path}/file")
        with pytest.raises(OSError, match="No space left"):  # noqa: PT012 - either call may be the one
            sink.stream.write(b"1" * size)
            sink.close()
        sink.abort()
        assert list(tmp_path.iterdir()) == []
        assert opened_below(tmp_path) == []


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data[:3])))
    LocalStorage().create(f"{tmp_path}/file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_a_file_system_without_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
        with monkeypatch.context() as patch:
            failing(patch, "link", number)
            with pytest.raises(UnsupportedError, match="no hard links"):
                LocalStorage().create(f"{tmp_path}/file", b"1")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_name_that_the_system_refuses_was_not_made_for_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    failing(monkeypatch, "link", number)
    with pytest.raises(StorageError, match="Nothing was changed") as caught:
        LocalStorage().create(f"{tmp_path}/file", b"1")
    assert caught.value.context["changed"] is False
    assert list(tmp_path.iterdir()) == []


def test_a_sync_that_fails_is_an_unknown_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, calls = os.fsync, []

    def fail_second(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_second)
    with pytest.raises(StorageError, match="Input/output error") as caught:
        LocalStorage().create(f"{tmp_path}/file", b"1")
    assert "changed" not in caught.value.context
    assert LocalStorage().read(f"{tmp_path}/file") == b"1"


def test_a_file_that_could_not_be_synced_gets_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "fsync", errno.EIO)
    with pytest.raises(StorageError) as caught:
        LocalStorage().create(f"{tmp_path}/file", b"1")
    assert caught.value.context["changed"] is False
    assert list(tmp_path.iterdir()) == []


def test_what_we_may_not_look_at_is_not_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "stat", errno.EACCES)
    with pytest.raises(StorageError, match="Permission denied"):
        LocalStorage().exists(f"{tmp_path}/file")
    failing(monkeypatch, "scandir", errno.EACCES)
    with pytest.raises(StorageError, match="Permission denied"):
        LocalStorage().list(str(tmp_path))


def test_a_directory_we_may_not_write_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "open", errno.EACCES)
    with pytest.raises(StorageError, match=r"cannot create '.*/file': Permission denied"):
        LocalStorage().create(f"{tmp_path}/file", b"1")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may do everything")
def test_a_read_only_directory_refuses_a_file(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="Permission denied"):
            LocalStorage().create(f"{tmp_path}/file", b"1")
    finally:
        tmp_path.chmod(0o700)


def test_a_file_in_the_place_of_a_directory_stops_writers_and_hides_nothing(tmp_path: Path) -> None:
    storage = LocalStorage()
    (tmp_path / "file").write_bytes(b"1")
    below = f"{tmp_path}/file/below"
    for work in (
        lambda: storage.create(below, b"1"),
        lambda: storage.replace(below, b"1"),
        lambda: storage.writer(below),
    ):
        with pytest.raises(StorageError, match="below"):
            work()
    with pytest.raises(NotFoundError):
        storage.read(below)
    assert not storage.exists(below)
    assert storage.list(below) == []
    with pytest.raises(StorageError, match="it is a file") as caught:
        storage.list(f"{tmp_path}/file")
    assert caught.value.context["path"] == f"{tmp_path}/file"
    storage.delete([below])
    assert (tmp_path / "file").read_bytes() == b"1"


def test_a_directory_in_the_place_of_a_file_is_kept(tmp_path: Path) -> None:
    storage = LocalStorage()
    (tmp_path / "dir").mkdir()
    with pytest.raises(StorageError, match="there is a directory of this name") as caught:
        storage.create(f"{tmp_path}/dir", b"1")
    assert caught.value.context["changed"] is False
    with pytest.raises(StorageError):
        storage.replace(f"{tmp_path}/dir", b"1")
    with pytest.raises(StorageError):
        storage.delete([f"{tmp_path}/dir"])
    with pytest.raises(NotFoundError):
        storage.open(f"{tmp_path}/dir")
    assert [item.name for item in tmp_path.iterdir()] == ["dir"]


def test_a_directory_that_vanishes_under_a_create_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, "open", errno.ENOENT)
    with pytest.raises(StorageError, match="its directory was removed"):
        LocalStorage().create(f"{tmp_path}/file", b"1")


def test_threads_may_delete_one_tree_together(tmp_path: Path) -> None:
    for i in range(200):
        (tmp_path / "tree" / str(i % 10)).mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / str(i % 10) / str(i)).touch()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(LocalStorage().delete_tree, [f"{tmp_path}/tree"] * 8))
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_works_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    LocalStorage().create("new/file", b"1")
    assert (tmp_path / "new" / "file").read_bytes() == b"1"


def test_a_copy_onto_another_disk_is_made_of_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: Any) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(os, "link", link)
    (tmp_path / "a").write_bytes(b"bytes")
    LocalStorage().copy([(f"{tmp_path}/a", f"{tmp_path}/deep/b")])
    assert (tmp_path / "deep" / "b").read_bytes() == b"bytes"
    assert os.stat(tmp_path / "a").st_nlink == 1
