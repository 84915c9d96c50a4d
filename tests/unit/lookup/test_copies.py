"""Lookup copies on the local disk: whatever happens to them, no answer is wrong, and a damaged one is made again."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import StorageError
from merganser.lookup.lookup import Lookup
from merganser.lsm.held import held_files
from merganser.lsm.lookup_copy import _PageSums
from tests.unit.lookup.compared import answered, expected, way

KEYS = [{"k": k} for k in range(0, 60, 7)]


@pytest.fixture(autouse=True)
def copies_are_made() -> Iterator[None]:
    with way("copies"):
        yield


@pytest.fixture
def table(tmp_path: Path) -> mg.Table:
    return made(tmp_path, files=1)


def made(path: Path, files: int, name: str = "t", key: str = "INT") -> mg.Table:
    catalog = mg.catalog(str(path / "warehouse"), options={"local.sync": "false"})
    catalog.create_database("db", if_not_exists=True)
    options = {"bucket": "1", "write-only": "true", "lookup.cache-directory": str(path / "copies")}
    found = catalog.create_table(f"db.{name}", {"k": key, "t": "STRING"}, primary_key=["k"], options=options)
    for i in range(files):
        numbers = range(40 * i, 40 * i + 40)
        found.write([{"k": k if key == "INT" else str(k), "t": f"text {k}"} for k in numbers])
    return found


def handle(table: mg.Table, **options: str) -> Lookup:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return table.with_options({f"lookup.{name}": value for name, value in named.items()}).lookups(cache="all")


def copies(path: Path) -> list[Path]:
    return sorted((path / "copies").glob("*"))


def test_a_second_handle_opens_the_copy_of_the_first(table: mg.Table, tmp_path: Path) -> None:
    wanted = expected(table, KEYS)
    assert answered(handle(table).lookup(KEYS)) == wanted
    (copy,) = copies(tmp_path)
    with patch("merganser.lsm.held.CopyWriter", side_effect=AssertionError("made again")):
        assert answered(handle(table).lookup(KEYS)) == wanted
    assert copies(tmp_path) == [copy]


def test_a_finished_copy_is_read_only(table: mg.Table, tmp_path: Path) -> None:
    handle(table).lookup(KEYS)
    (copy,) = copies(tmp_path)
    assert copy.stat().st_mode & 0o777 == 0o400


def test_a_compaction_lets_go_of_the_files_that_it_replaced(tmp_path: Path) -> None:
    """A copy that stays mapped counts as memory of the process."""
    catalog = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "1", "changelog-producer": "lookup", "lookup.cache-directory": str(tmp_path / "copies")}
    table = catalog.create_table("db.t", {"k": "INT", "t": "STRING"}, primary_key=["k"], options=options)
    for i in range(12):
        table.write([{"k": k, "t": f"text {i}"} for k in range(i, 40)])
    known = set(held_files(table.definition, table.env)._held)
    assert known
    assert known <= {path.rpartition("/")[2] for path in table.files().column("file_path").to_pylist()}


def test_a_directory_in_the_place_of_a_copy_is_left_there(
    table: mg.Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = expected(table, KEYS)
    handle(table).lookup(KEYS)
    (copy,) = copies(tmp_path)
    copy.unlink()
    copy.mkdir()
    (copy / "file").touch()
    with patch("merganser.lsm.held.CopyWriter", side_effect=AssertionError("written")):
        for _ in range(2):
            assert answered(handle(table).lookup(KEYS)) == wanted
    assert copies(tmp_path) == [copy]
    assert f"'{copy.name}' is a directory" in caplog.text


@pytest.mark.parametrize("kind", ["INT", "STRING"])
def test_no_flipped_bit_changes_a_row(kind: str, tmp_path: Path) -> None:
    """The image of a number is the number; that of a text is a hash."""
    table = made(tmp_path, files=1, key=kind)
    rng = random.Random(6)
    every = [{"k": k if kind == "INT" else str(k)} for k in range(60)]
    some = every[::7]
    wanted = expected(table, some)
    handle(table).lookup(some)
    (copy,) = copies(tmp_path)
    whole = copy.read_bytes()
    everything = expected(table, every)
    padding = 0
    for _ in range(100):
        at = rng.randrange(8 * len(whole))
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        copy.unlink()
        copy.write_bytes(damaged)
        lookup = handle(table)
        assert answered(lookup.lookup(some)) == wanted
        assert answered(lookup.lookup(every)) == everything
        assert [row for key in some for row in answered(lookup.lookup(key))] == wanted
        (copy,) = copies(tmp_path)
        padding += copy.read_bytes() != whole  # what lies between the blocks is never used
    assert padding < 75


def test_a_checksum_depends_on_the_bytes_and_their_places_and_not_on_the_pieces() -> None:
    rng = random.Random(7)
    for size in (0, 5, 4095, 4096, 4097, 3 * 4096, 20_000):
        data = rng.randbytes(size)
        ends = sorted(rng.randrange(size + 1) for _ in range(rng.randrange(6)))
        pieces = [data[start:end] for start, end in pairwise([0, *ends, size])]
        assert checksum(pieces) == checksum([data])
        for other in (data + b"\0", data[4096:] + data[:4096], bytes([*data[:-1], (data or b"\0")[-1] ^ 64])):
            assert other == data or checksum([other]) != checksum([data])


def checksum(pieces: Iterable[bytes]) -> int:
    sums = _PageSums()
    for piece in pieces:
        assert sums.add(piece) == len(piece)
    return sums.checksum


@pytest.mark.parametrize("left", [0, 1, 15, 16, 100, -17, -16, -1])
def test_a_truncated_copy_is_made_again(left: int, table: mg.Table, tmp_path: Path) -> None:
    handle(table).lookup(KEYS)
    (copy,) = copies(tmp_path)
    whole = copy.read_bytes()
    copy.unlink()
    copy.write_bytes(whole[:left])
    assert answered(handle(table).lookup(KEYS)) == expected(table, KEYS)
    assert copy.read_bytes() == whole


def test_damage_that_comes_back_is_not_written_over_for_ever(table: mg.Table, tmp_path: Path) -> None:
    """A disk that spoils what it is given: the file is read as it lies."""
    spoiled = pa.py_buffer(b"\1" * 4096)
    with patch("merganser.storage.local_copies.LocalCopies.open", return_value=spoiled):
        lookup = handle(table)
        assert answered(lookup.lookup(KEYS)) == expected(table, KEYS)
        assert answered(lookup.lookup({"k": 7})) == expected(table, [{"k": 7}])


@pytest.mark.parametrize("moment", ["first block", "between", "before the name"])
def test_a_copy_that_was_not_finished_is_not_seen(moment: str, table: mg.Table, tmp_path: Path) -> None:
    target = {
        "first block": "merganser.lsm.lookup_copy._Blocks.end",
        "between": "merganser.lsm.lookup_copy.image_of",
        "before the name": "pathlib.Path.replace",
    }[moment]
    with patch(target, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        handle(table).lookup(KEYS)
    assert not [copy for copy in copies(tmp_path) if copy.suffix == ".copy"]
    assert answered(handle(table).lookup(KEYS)) == expected(table, KEYS)


def test_a_process_that_is_killed_while_it_writes_leaves_no_copy(table: mg.Table, tmp_path: Path) -> None:
    program = (
        "import os, merganser as mg, merganser.lsm.held as held, merganser.lsm.lookup_copy as copy\n"
        "held._SMALL_ROWS, end = -1, copy._Blocks.end\n"
        "def killed(self):\n"
        "    end(self)\n"
        "    os.kill(os.getpid(), 9)\n"
        "copy._Blocks.end = killed\n"
        f"mg.table({table.path!r}).lookups(cache='all').lookup({{'k': 1}})\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], check=False, env=dict(os.environ), cwd=tmp_path)
    assert killed.returncode == -9
    (part,) = copies(tmp_path)
    assert part.suffix == ".part"
    assert answered(handle(table).lookup(KEYS)) == expected(table, KEYS)
    os.utime(part, (0, 0))
    other = made(tmp_path, files=1, name="other")
    handle(other).lookup(KEYS)
    assert not part.exists()
    assert len(copies(tmp_path)) == 2


def test_a_disk_that_takes_no_copies_only_costs_time(
    table: mg.Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no directory")
    for directory in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/none")):
        with caplog.at_level(logging.WARNING):
            lookup = handle(table, cache_directory=str(directory))
            assert answered(lookup.lookup(KEYS)) == expected(table, KEYS)
            assert answered(lookup.lookup({"k": 7})) == expected(table, [{"k": 7}])
        assert [record for record in caplog.records if str(directory) in record.getMessage()]


def test_copies_that_other_users_may_have_put_there_are_not_used(table: mg.Table, tmp_path: Path) -> None:
    """All users may make the directory that is the default, and checksums say nothing of who wrote a copy."""
    plain = mg.table(table.path).with_options({"lookup.cache-directory": ""})
    with patch("tempfile.gettempdir", return_value=str(tmp_path)):
        directory = tmp_path / f"merganser-copies-{os.getuid()}"
        for mode, count in ((0o777, 0), (0o770, 0), (0o700, 1)):
            directory.mkdir(exist_ok=True)
            directory.chmod(mode)
            assert answered(plain.lookups(cache="all").lookup(KEYS)) == expected(table, KEYS)
            assert len(list(directory.iterdir())) == count
        directory.chmod(0o777)
        with patch("merganser.lsm.held.Copy", side_effect=AssertionError("used")):
            assert answered(plain.lookups(cache="all").lookup(KEYS)) == expected(table, KEYS)


def test_a_store_that_fails_while_a_copy_is_made_is_no_fault_of_the_disk(table: mg.Table) -> None:
    """The caller is told, and the next lookup makes the copy."""
    lookup = handle(table)
    failing = patch("merganser.lsm.held.DataFileReader.read", side_effect=StorageError("reset by peer"))
    with failing, pytest.raises(StorageError, match="reset by peer"):
        lookup.lookup(KEYS)
    assert answered(lookup.lookup(KEYS)) == expected(table, KEYS)


def test_the_least_recently_used_copies_go_first(tmp_path: Path) -> None:
    table = made(tmp_path, files=4)
    keys = [{"k": 40 * i} for i in range(4)]
    lookup = handle(table)
    lookup.lookup(keys[0])
    (copy,) = copies(tmp_path)
    limit = str(3 * copy.stat().st_size + 200)
    copy.unlink()
    lookup = handle(table, cache_max_disk_size=f"{limit} b")
    order = []
    for age, key in enumerate(keys[:3]):
        lookup.lookup(key)
        (newest,) = set(copies(tmp_path)) - set(order)
        order.append(newest)
        os.utime(newest, (newest.stat().st_mtime - 1000 + 10 * age,) * 2)
    handle(table).lookup(keys[0])  # opened once more, so it is the youngest
    lookup.lookup(keys[3])
    left = copies(tmp_path)
    assert order[0] in left
    assert order[1] not in left
    assert order[2] in left
    for k in range(160):
        assert answered(lookup.lookup({"k": k})) == [f"{{'k': {k}, 't': 'text {k}'}}"]


def test_a_limit_below_one_copy_means_none(table: mg.Table, tmp_path: Path) -> None:
    lookup = handle(table, cache_max_disk_size="100 b")
    assert answered(lookup.lookup(KEYS)) == expected(table, KEYS)
    assert copies(tmp_path) == []


def test_only_copies_are_removed_from_their_directory(table: mg.Table, tmp_path: Path) -> None:
    """The option may name a directory in which other programs keep files."""
    others = [tmp_path / "copies" / name for name in ("letter.txt", "film.part", "backup.copy", ".hidden")]
    (tmp_path / "copies").mkdir()
    for other in others:
        other.write_text("precious")
        os.utime(other, (0, 0))
    handle(table, cache_max_disk_size="1 mb").lookup(KEYS)
    assert [other.read_text() for other in others] == ["precious"] * 4
    assert len(copies(tmp_path)) == 5


def test_two_processes_make_copies_of_the_same_files_at_once(tmp_path: Path) -> None:
    table = made(tmp_path, files=3)
    program = (
        "import merganser as mg, merganser.lsm.held as held, os\n"
        "held._SMALL_ROWS = -1\n"
        f"for _ in range(8):\n"
        f"    rows = mg.table({table.path!r}).lookups(cache='all').lookup([{{'k': k}} for k in range(130)])\n"
        "    assert rows['t'].to_pylist() == [f'text {k}' for k in range(120)]\n"
        f"    for name in os.listdir({str(tmp_path / 'copies')!r}):\n"
        f"        try: os.unlink({str(tmp_path / 'copies')!r} + '/' + name)\n"
        "        except OSError: pass\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program], env=dict(os.environ), cwd=tmp_path) for _ in range(2)]
    assert [process.wait(timeout=60) for process in running] == [0, 0]


def test_the_memory_of_a_handle_is_bounded(tmp_path: Path) -> None:
    """One key after the other: what the limit lets go is not held elsewhere."""
    with patch("merganser.lsm.held._SMALL_ROWS", 1000):
        table = made(tmp_path, files=0)
        for i in range(24):
            table.write([{"k": k, "t": random.Random(k).randbytes(5_000).hex()} for k in range(20 * i, 20 * i + 20)])
        lookup = handle(table, cache_max_memory_size="500 kb")
        lookup.lookup({"k": 0})
        before = pa.total_allocated_bytes()
        for k in range(480):
            assert lookup.lookup({"k": k}).num_rows == 1
        assert pa.total_allocated_bytes() - before < 1_500_000
        lookup.close()
        assert pa.total_allocated_bytes() - before < 200_000
