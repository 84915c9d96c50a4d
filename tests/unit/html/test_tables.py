"""Rows as HTML: every value is escaped and bounded, whatever its type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from html.parser import HTMLParser

import pyarrow as pa
import pytest

from merganser.html.tables import BYTES_MAX, CHARACTERS_MAX, COLUMNS_MAX, facts_html, rows_html, shown, texts

_EVIL = "<script>alert('1')</script>\"&"


class _Page(HTMLParser):
    """Tags, attributes and text of a page, as a browser finds them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.said = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.said += data


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None], pa.int64(), ["1", None]),
        ([0.5, float("nan"), float("-inf"), 1e300], pa.float64(), ["0.5", "NaN", "-Infinity", "1e+300"]),
        ([0.1], pa.float32(), ["0.1"]),
        ([True, False], pa.bool_(), ["true", "false"]),
        ([Decimal("1.10"), Decimal("-0.00000001")], pa.decimal128(20, 8), ["1.10000000", "-0.00000001"]),
        ([dt.date(2026, 1, 2)], pa.date32(), ["2026-01-02"]),
        ([dt.time(1, 2, 3, 400_000)], pa.time64("us"), ["01:02:03.4"]),
        ([1_000_000_001], pa.timestamp("ns"), ["1970-01-01 00:00:01.000000001"]),
        ([1_000], pa.timestamp("ms", "UTC"), ["1970-01-01 00:00:01Z"]),
        ([[1, None], [], None], pa.list_(pa.int32()), ["[1,null]", "[]", None]),
        ([[("a", b"\0")]], pa.map_(pa.string(), pa.binary()), ['{"a":"AA=="}']),
        ([{"a": _EVIL}], pa.struct([("a", pa.string())]), ['{"a":"' + _EVIL.replace('"', '\\"') + '"}']),
        ([b"\0\xff", None], pa.binary(), ["x'00ff'", None]),
        ([b"ab"], pa.binary(2), ["x'6162'"]),
        (["null", "", None], pa.string(), ["null", "", None]),
        (['"quoted"'], pa.large_string(), ['"quoted"']),
        ([dt.timedelta(seconds=1)], pa.duration("us"), ["0:00:01"]),
        ([None, None], pa.null(), [None, None]),
        (["a", None], pa.dictionary(pa.int8(), pa.string()), ["a", None]),
    ],
    ids=str,
)
def test_values_of_each_type_become_texts(values: list[object], kind: pa.DataType, expected: list[str | None]) -> None:
    assert texts(pa.chunked_array([pa.array(values, kind)])) == expected


def test_times_that_python_does_not_have_are_shown() -> None:
    far = pa.chunked_array([pa.array([300_000_000_000_000_000], pa.timestamp("us"))])
    assert texts(far)[0] is not None


def test_long_values_are_cut_and_say_how_long_they_are() -> None:
    size = 1_000_000
    long = pa.table({"t": ["x" * size], "b": pa.array([b"\1" * size]), "l": pa.array([[1] * size])})
    made = rows_html(long)
    assert "x" * CHARACTERS_MAX + "… (1,000,000 characters)" in made
    assert "x" * (CHARACTERS_MAX + 1) not in made
    assert "01" * BYTES_MAX + "… (1,000,000 bytes)" in made
    assert len(made) < 3000


def test_names_and_values_are_escaped() -> None:
    rows = pa.table(
        {_EVIL: [_EVIL], "list": [[_EVIL]], "x\u202ey\0": ["a\nb\u202ec"], "none": pa.array([None], pa.string())}
    )
    page = _Page(rows_html(rows) + facts_html([(_EVIL, _EVIL)]))
    assert set(page.tags) == {"table", "thead", "tbody", "tr", "th", "td", "span"}
    assert page.attributes == {"style"}
    assert page.said.count(_EVIL) == 4
    assert "x\\u202ey\\x00" in page.said
    assert "a\\nb\\u202ec" in page.said
    assert page.said.endswith("null" + _EVIL * 2)


def test_of_many_columns_the_first_are_shown() -> None:
    wide = pa.table({f"c{i}": [i] for i in range(COLUMNS_MAX + 3)})
    page = _Page(rows_html(wide))
    assert page.tags.count("td") == COLUMNS_MAX
    assert page.said.endswith("and 3 more columns")
    assert rows_html(wide.select(range(COLUMNS_MAX)), columns=COLUMNS_MAX + 3) == rows_html(wide)


def test_kinds_of_rows_have_colours_of_their_own() -> None:
    rows = pa.table({"_row_kind": ["+I", "-U", "+U", "-D"], "t": ["+I"] * 4})
    made = rows_html(rows, kinds="_row_kind")
    assert len({cell.split('"')[0] for cell in made.split("background:rgba")[1:]}) == 4
    assert made.count("background:rgba") == 4
    assert "background:rgba" not in rows_html(rows)


def test_an_error_shows_the_plain_text_and_the_message() -> None:
    def fails() -> list[str]:
        raise ValueError("<lost>")

    page = _Page(shown("Table('<a>')", fails))
    assert page.said == "Table('<a>')ValueError: <lost>"
    assert page.tags == ["div", "pre", "div"]
