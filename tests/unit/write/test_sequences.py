"""Where the numbers of writers begin: the same from live files and from the columns that travel to tasks."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merganser.codec.binary_row import EMPTY_ROW
from merganser.codec.stats import SimpleStats
from merganser.errors import InvalidInputError
from merganser.meta.data_file import ADD, DataFile, ManifestEntry
from merganser.meta.live_files import EMPTY, LiveFiles
from merganser.write import sequences
from merganser.write.sequences import StartingSequences

STATS = SimpleStats(EMPTY_ROW, EMPTY_ROW, ())
FILE = DataFile("f", 1, 1, EMPTY_ROW, EMPTY_ROW, STATS, STATS, 0, 0, 0, 0)


def _live(highest: dict[tuple[bytes, int], int], total: int = 100) -> LiveFiles:
    entries = [
        ManifestEntry(ADD, *bucket, total, replace(FILE, name=f"f{i}", max_sequence=number))
        for i, (bucket, number) in enumerate(highest.items())
    ]
    return EMPTY.apply(entries, source="s")


def _travelled(starts: StartingSequences) -> Any:
    return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(starts))))


buckets = st.tuples(st.binary(max_size=3), st.integers(-2, 99))


@given(st.dictionaries(buckets, st.sampled_from([0, 1, 254, 255, 65_535, 1 << 40, (1 << 63) - 2])), st.lists(buckets))
def test_what_travels_knows_what_the_live_files_know(
    highest: dict[tuple[bytes, int], int], others: list[tuple[bytes, int]]
) -> None:
    starts = StartingSequences("t", 0, _live(highest))
    there = _travelled(starts)
    for bucket in (*highest, *others):
        assert there(bucket) == starts(bucket) == highest.get(bucket, -1) + 1


def test_what_travels_is_a_few_bytes_a_bucket() -> None:
    live = _live({(f"partition {p}".encode(), b): p for p in range(200) for b in range(10)})
    assert len(pickle.dumps(StartingSequences("t", 100, live))) < 2_000 * 9 + 1_000


def test_buckets_of_one_key_get_the_larger_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "_hash", lambda partition: 7)
    there = _travelled(StartingSequences("t", 0, _live({(b"a", 1): 5, (b"b", 1): 90, (b"c", 1): 20})))
    assert [there((partition, 1)) for partition in (b"a", b"b", b"c")] == [91, 91, 91]


def test_a_partition_of_another_number_of_buckets_is_refused_here_and_there() -> None:
    entries = [ManifestEntry(ADD, b"old", 3, 4, FILE), ManifestEntry(ADD, b"new", 1, 8, replace(FILE, name="g"))]
    starts = StartingSequences("t", 8, EMPTY.apply(entries, source="s"))
    for one in (starts, _travelled(starts)):
        assert one((b"new", 1)) == 1
        assert one((b"neither", 1)) == 0
        with pytest.raises(InvalidInputError, match="files of 4 buckets, and this write goes by 'bucket' = '8'"):
            one((b"old", 0))


def test_numbers_of_buckets_are_counted_along() -> None:
    live = EMPTY.apply([ManifestEntry(ADD, b"a", b, 4, FILE) for b in range(4)], source="s")
    assert (live.totals, live.other_total(b"a", 4), live.other_total(b"a", 2)) == ({4: 4}, None, 4)
    live = live.apply([ManifestEntry(1, b"a", b, 4, FILE) for b in range(4)], source="s")
    assert (live.totals, live.count, live.other_total(b"a", 2)) == ({}, 0, None)
    live = live.apply([ManifestEntry(ADD, b"a", 0, -1, FILE), ManifestEntry(ADD, b"a", -1, 9, FILE)], source="s")
    assert live.totals == {}
