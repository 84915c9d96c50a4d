"""Merging of manifests: a pure choice, and entries that survive whatever is chosen."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merganser.codec.stats import EMPTY_ROW, NO_STATS
from merganser.commit.compact_manifests import merge_span, merged_entries
from merganser.meta.data_file import ADD, DELETE, DataFile, ManifestEntry
from merganser.meta.live_files import EMPTY
from merganser.meta.manifest_list import ManifestFile

MB = 1 << 20
BYTES_PER_ENTRY = 150


def _manifest(entries: int, deleted: int = 0, size: int | None = None) -> ManifestFile:
    return ManifestFile(
        "m", BYTES_PER_ENTRY * entries if size is None else size, entries - deleted, deleted, NO_STATS, 0
    )


def _span(
    manifests: Iterable[ManifestFile], target: int = 8 * MB, full: int = 16 * MB, count: int = 30
) -> tuple[int, int] | None:
    return merge_span(list(manifests), target_bytes=target, full_threshold_bytes=full, merge_min_count=count)


def test_few_manifests_are_left_alone() -> None:
    assert _span([]) is None
    assert _span([_manifest(1)]) is None
    assert _span([_manifest(1)] * 29) is None


def test_enough_of_one_class_become_one() -> None:
    assert _span([_manifest(1)] * 30) == (0, 30)
    assert _span([_manifest(1000), *[_manifest(1)] * 30]) == (1, 31)


def test_enough_of_a_higher_class_take_the_smaller_ones_behind_them_along() -> None:
    assert _span([*[_manifest(40)] * 30, _manifest(1)]) == (0, 31)


def test_a_manifest_of_half_the_target_is_never_merged_again() -> None:
    large = [_manifest(40_000, size=5 * MB)] * 200
    assert _span(large) is None
    assert _span([*large, *[_manifest(1)] * 30]) == (200, 230)


def test_deletions_that_weigh_enough_make_a_full_merge() -> None:
    dirty = [_manifest(10, deleted=5, size=9 * MB)] * 2
    assert _span([_manifest(10, size=20 * MB), *dirty]) == (0, 3)
    assert _span([_manifest(10, size=20 * MB)] * 3) is None


def test_a_full_merge_is_not_repeated_by_the_next_small_commit() -> None:
    """Merged manifests may come out a little below the target."""
    merged = [_manifest(50_000, size=int(7.5 * MB))] * 20
    assert _span([*merged, _manifest(2, deleted=1)]) is None


@pytest.mark.parametrize("count", [1, 2])
def test_a_merge_has_at_least_two_manifests(count: int) -> None:
    for n in range(1, 40):
        span = _span([_manifest(size) for size in (9, 5, 1, 1, 7)[: n % 5 + 1]], count=count)
        assert span is None or span[1] - span[0] >= 2


def _simulate(sizes: Iterable[int], *, count: int = 30, target: int = 8 * MB) -> tuple[int, int, int]:
    """Return the most manifests there ever were, entries written, and entries rewritten by merges."""
    manifests: list[ManifestFile] = []
    most = written = rewritten = 0
    for size in sizes:
        span = _span(manifests, target=target, count=count)
        if span is not None:
            entries = sum(m.added + m.deleted for m in manifests[span[0] : span[1]])
            rewritten += entries
            per_file = max(1, target // BYTES_PER_ENTRY)
            parts = [min(per_file, entries - at) for at in range(0, entries, per_file)]
            manifests[span[0] : span[1]] = [_manifest(part) for part in parts]
        manifests.append(_manifest(size))
        written += size
        most = max(most, len(manifests))
    return most, written, rewritten


@pytest.mark.parametrize(
    "sizes",
    [
        [1] * 2000,
        [4] * 2000,
        [1, 40] * 1000,
        ([1] * 29 + [40]) * 66,
        (([1] * 29 + [40]) * 29 + [1000]) * 3,
        [1000, 1] * 1000,
        random.Random(1).choices([1, 5, 40, 300], k=2000),
    ],
)
def test_two_thousand_commits_leave_few_manifests_and_rewrite_little(sizes: list[int]) -> None:
    most, written, rewritten = _simulate(sizes)
    assert most <= 30 * 4
    assert rewritten <= 6 * written


def test_a_table_of_many_full_manifests_stays_cheap_to_commit_to() -> None:
    target = 100 * BYTES_PER_ENTRY
    most, written, rewritten = _simulate([3] * 3000, target=target, count=5)
    assert rewritten <= 5 * written
    assert most <= 3000 * 3 / 50 + 30


def _entry(kind: int, name: str, level: int = 0) -> ManifestEntry:
    file = DataFile(name, 1, 1, EMPTY_ROW, EMPTY_ROW, NO_STATS, NO_STATS, 0, 0, 0, level)
    return ManifestEntry(kind, EMPTY_ROW, 0, 1, file)


def _history(rng: random.Random, length: int) -> list[ManifestEntry]:
    """Return entries that a table may have: every DELETE after its ADD; a file may come back."""
    live: set[str] = set()
    out = []
    for _ in range(length):
        name = rng.choice("abcdefgh")
        out.append(_entry(DELETE if name in live else ADD, name))
        live ^= {name}
    return out


@given(
    st.integers(0, 10_000), st.integers(0, 40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6)
)
def test_the_live_files_survive_any_merges_of_neighbours(seed: int, length: int, cuts: list[tuple[int, int]]) -> None:
    entries = _history(random.Random(seed), length)
    expected = {e.file.name for e in EMPTY.apply(entries, source="s")}
    merged = entries
    for a, b in cuts:
        low, high = sorted((min(a, len(merged)), min(b, len(merged))))
        merged = merged[:low] + merged_entries(merged[low:high]) + merged[high:]
    assert {e.file.name for e in EMPTY.apply(merged, source="s")} == expected
    assert len(merged_entries(entries)) == len(expected)


def test_an_unmatched_deletion_stays_and_keeps_its_place() -> None:
    entries = [_entry(DELETE, "a"), _entry(ADD, "b"), _entry(ADD, "a"), _entry(DELETE, "a"), _entry(ADD, "a")]
    assert [(e.kind, e.file.name) for e in merged_entries(entries)] == [(DELETE, "a"), (ADD, "b"), (ADD, "a")]


def test_a_file_that_moves_to_another_level_is_another_file() -> None:
    moved = [_entry(ADD, "a"), _entry(DELETE, "a"), _entry(ADD, "a", level=5)]
    assert [(e.kind, e.file.level) for e in merged_entries(moved)] == [(ADD, 5)]
