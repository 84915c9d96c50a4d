"""Rows as HTML: every value is escaped and bounded, whatever its type."""

from __future__ import annotations

from html.parser import HTMLParser

import pyarrow as pa

from merganser.html.tables import CHARACTERS_MAX, COLUMNS_MAX, facts_html, rows_html, shown

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


def test_long_values_are_cut_and_say_how_long_they_are() -> None:
    size = 1_000_000
    long = pa.table({"t": ["x" * size], "b": pa.array([b"\1" * size]), "l": pa.array([[1] * size])})
    made = rows_html(long)
    assert "x" * CHARACTERS_MAX + "… (1,000,000 characters)" in made
    assert "x" * (CHARACTERS_MAX + 1) not in made
    assert f"x&#x27;{'01' * (CHARACTERS_MAX // 3)}&#x27;… (1,000,000 bytes)" in made
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
