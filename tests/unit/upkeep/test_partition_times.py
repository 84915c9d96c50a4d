"""Times of partitions: text in a pattern, read by forms that are written as Java's."""

from __future__ import annotations

from datetime import datetime

import pytest

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.upkeep.partition_times import partition_text, time_reader


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        (None, "2024-05-03", "2024-05-03"),
        (None, "2024-5-3 1:2:3", "2024-05-03T01:02:03"),
        (None, "2024-05-03 01:02:03.25", "2024-05-03T01:02:03.250"),
        (None, "2024-13-01", "2025-01-01"),
        (None, "2024-02-30", "2024-03-01"),
        (None, "20240503", None),
        (None, "2024-05-03T01:02:03", None),
        ("yyyyMMdd", "20240503", "2024-05-03"),
        ("yyyyMMdd", "2024053", None),
        ("yyyyMMdd", "20240230", "2024-02-29"),
        ("yyyyMMddHH", "2024050317", "2024-05-03T17:00"),
        ("yyyy-MM-dd'T'HH:mm", "2024-05-03T17:45", "2024-05-03T17:45"),
        ("yyyy/MM/dd[ HH:mm]", "2024/05/03", "2024-05-03"),
        ("yyyy/MM/dd[ HH:mm]", "2024/05/03 04:05", "2024-05-03T04:05"),
        ("d.M.yy", "3.5.24", "2024-05-03"),
        ("dd MMM yyyy", "03 May 2024", "2024-05-03"),
        ("MMMM d, yyyy h a", "May 3, 2024 12 AM", "2024-05-03"),
        ("yyyy-DDD", "2024-124", "2024-05-03"),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2024-05-03 01:02:03.007", "2024-05-03T01:02:03.007"),
        ("yyyy-MM", "2024-05", None),
        ("yyyy''MM''dd", "2024'05'03", "2024-05-03"),
    ],
)
def test_text_is_read_by_its_form(form: str | None, text: str, expected: str | None) -> None:
    assert time_reader(form)(text) == (None if expected is None else datetime.fromisoformat(expected))


def test_a_pattern_takes_the_longest_name_and_nothing_of_a_null() -> None:
    values = {"dt": "2024-05-03", "dt1": "x", "hour": "07"}
    assert partition_text("$dt $hour:00:00", values) == "2024-05-03 07:00:00"
    assert partition_text("$dt1", values) == "x"
    assert partition_text(None, values) == "2024-05-03"
    assert partition_text("$dt", {**values, "dt": None}) is None
    assert partition_text("$dt", {**values, "hour": None}) == "2024-05-03"


@pytest.mark.parametrize("form", ["yyyy{MM", "[yyyy", "bb", "yyyy-MM-dd#"])
def test_a_form_without_meaning_is_refused(form: str) -> None:
    with pytest.raises(InvalidInputError, match=r"partition\.timestamp-formatter"):
        time_reader(form)


def test_a_form_that_is_not_read_here_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="'w'"):
        time_reader("YYYY-ww".replace("Y", "y"))
