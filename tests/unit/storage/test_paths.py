"""Partition directories, as the reference names them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from merganser.schema.types_text import parse_type
from merganser.storage.paths import TablePaths, time_text

GOLDEN = Path(__file__).parents[2] / "golden" / "tables" / "partition_path_vectors.json"


@pytest.mark.parametrize(
    ("milliseconds", "precision", "text"),
    [
        (3_723_000, 0, "01:02:03"),
        (3_723_999, 0, "01:02:03"),
        (3_723_000, 3, "01:02:03.0"),
        (3_723_000, 9, "01:02:03.0"),
        (3_723_500, 3, "01:02:03.5"),
        (3_723_050, 3, "01:02:03.05"),
        (3_723_050, 1, "01:02:03.0"),
        (45_296_789, 2, "12:34:56.78"),
        (86_399_999, 6, "23:59:59.999"),
    ],
)
def test_a_time_has_one_fraction_digit_at_least_unless_its_precision_is_0(
    milliseconds: int, precision: int, text: str
) -> None:
    """As the reference casts TIME to text (`codec` vectors: TIME(3) to STRING)."""
    assert time_text(milliseconds, precision) == text


def test_time_partitions_lie_in_directories_of_their_text() -> None:
    kind = parse_type("TIME(3)")
    paths = TablePaths("/t", legacy_names=False)
    assert paths.partition_directory(["p"], [3_723_000], [kind]) == "/t/p=01%3A02%3A03.0"
    vectors = [v for v in json.loads(GOLDEN.read_text())["vectors"] if v["type"] == "TIME(3)"]
    assert [v["legacy_false"] for v in vectors] == ["p=12%3A34%3A56.789"]
    assert paths.partition_directory(["p"], [45_296_789], [kind]) == "/t/p=12%3A34%3A56.789"


@pytest.mark.parametrize(
    ("characters", "directory"),
    [
        ("\t\n\v\f\r\x1c\x1d\x1e\x1f ", None),
        ("\u1680\u2000\u2006\u2008\u200a\u2028\u2029\u205f\u3000", None),
        ("\x85", "\x85"),
        ("\u00a0", "\u00a0"),
        ("\u2007", "\u2007"),
        ("\u202f", "\u202f"),
        ("\u200b", "\u200b"),
    ],
)
def test_text_is_blank_where_the_jvm_says_so(characters: str, directory: str | None) -> None:
    kind = parse_type("STRING")
    paths = TablePaths("/t")
    for text in (characters, *characters):
        wanted = "__DEFAULT_PARTITION__" if directory is None else text
        assert paths.partition_directory(["p"], [text], [kind]) == f"/t/p={wanted}"
    assert paths.partition_directory(["p"], [f"{characters}a"], [kind]) != "/t/p=__DEFAULT_PARTITION__"
