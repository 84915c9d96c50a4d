"""Commit messages as values that travel: what comes back is what was sent, small, and of a known version."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields
from typing import Any

import pytest

from merganser.codec.stats import SimpleStats
from merganser.commit import packed
from merganser.commit.message import CommitMessage
from merganser.errors import UnsupportedError
from merganser.meta.data_file import DataFile
from merganser.meta.index_manifest import DELETION_VECTORS, HASH, IndexEntry, VectorRange

STATS = SimpleStats(b"\x00" * 12, b"\xff" * 12, (0, None, 3))
PLAIN = DataFile("data-1.parquet", 1000, 10, b"a", b"b", STATS, STATS, 0, 9, 0, 0)
FULL = DataFile(
    "data-2.parquet",
    2000,
    20,
    b"",
    b"",
    SimpleStats(b"", b"", None),
    STATS,
    5,
    24,
    3,
    5,
    extra_files=("data-2.index",),
    creation_time_ms=1_700_000_000_000,
    delete_row_count=0,
    embedded_index=b"index",
    source=1,
    value_stats_columns=("k",),
    external_path="s3://elsewhere/data-2.parquet",
    first_row_id=77,
    write_columns=("k", "v"),
    write_columns_sequences=(1, 2),
    checksum=0xFFFFFFFF,
    footer_checksum=7,
)
VECTORS = IndexEntry(
    b"p",
    3,
    DELETION_VECTORS,
    "index-1",
    60,
    2,
    (VectorRange("data-1.parquet", 1, 20, None), VectorRange("x", 21, 9, 4)),
)
KEYS = IndexEntry(b"p", 3, HASH, "index-2", 40, 10, checksum=77)
GLOBAL = IndexEntry(b"p", 3, "BTREE", "index-3", 9, 1, (), "s3://elsewhere/index-3", {"_INDEX_FIELD_ID": 1})
MESSAGES = {
    "empty": CommitMessage(b"", 0, 1, ()),
    "one file": CommitMessage(b"p", 3, 8, (PLAIN,)),
    "every field": CommitMessage(
        b"p", 3, 8, (PLAIN, FULL), (FULL,), (VECTORS, KEYS), (GLOBAL,), (PLAIN,), frozenset({"index-2"}), "list-1"
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_comes_back_is_what_was_sent(name: str) -> None:
    message = MESSAGES[name]
    assert pickle.loads(pickle.dumps(message)) == message
    assert copy.deepcopy(message) == message


def test_every_field_of_the_sample_has_a_value() -> None:
    full = MESSAGES["every field"]
    assert all(getattr(full, field.name) for field in fields(full))
    assert all(getattr(FULL, field.name) not in (None, ()) for field in fields(FULL))


def test_a_pickle_names_no_class_and_no_field_of_a_file() -> None:
    data = pickle.dumps(MESSAGES["every field"])
    for word in (b"DataFile", b"SimpleStats", b"IndexEntry", b"VectorRange", b"row_count"):
        assert word not in data


def test_a_message_of_one_file_is_small() -> None:
    """Whatever is added to a message is paid by every task and every bucket."""
    data = pickle.dumps([MESSAGES["one file"]])
    assert len(data) < 180


def test_a_message_of_another_version_is_refused_with_both_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    reduced: Any = MESSAGES["one file"].__reduce__()
    restored, (version, _, *values) = reduced
    assert version == packed.VERSION
    for other in (0, packed.VERSION_WITH_KEYS + 1):
        with pytest.raises(UnsupportedError, match=rf"version {other}: a task with merganser 9\.9\.9") as caught:
            restored(other, "9.9.9", *values)
        assert "Install one release" in str(caught.value)
        with pytest.raises(UnsupportedError):
            restored(other, "9.9.9")  # with other values than this release knows
