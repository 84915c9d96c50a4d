"""CSV files: what is null, what is text, how files are laid out, and which row is wrong."""

from __future__ import annotations

import bz2
import gc
import gzip
import math
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import FormatError, InvalidInputError
from merganser.ingest import text

FLAT = {"s": "STRING", "d": "DOUBLE", "n": "INT"}


def _loaded(
    tmp_path: Path,
    data: str | bytes,
    schema: dict[str, str] | None = None,
    *,
    name: str = "in.csv",
    kinds: str | None = None,
    **options: str,
) -> list[tuple[Any, ...]]:
    catalog = mg.catalog(f"memory://{tmp_path.name}/w")
    catalog.create_database("d", if_not_exists=True)
    catalog.drop_table("d.t", if_exists=True)
    table = catalog.create_table("d.t", schema or FLAT)
    (tmp_path / name).write_bytes(data.encode() if isinstance(data, str) else data)
    table.load(str(tmp_path / name), kinds, options={f"csv.{key}": value for key, value in options.items()})
    return [tuple(row.values()) for row in table.read().to_pylist()]


def test_only_an_unquoted_empty_field_is_null(tmp_path: Path) -> None:
    found = _loaded(tmp_path, 's,d,n\nNA,1,1\n"NA",2,\nnull,,3\nNULL,4,4\nNaN,5,5\n"",6,6\n,7,7\n')
    assert [row[0] for row in found] == ["NA", "NA", "null", "NULL", "NaN", "", None]
    assert [row[1:] for row in found[1:3]] == [(2.0, None), (None, 3)]


def test_numbers_that_are_none_are_read(tmp_path: Path) -> None:
    found = [row[1] for row in _loaded(tmp_path, "s,d,n\na,NaN,1\na,Infinity,1\na,-inf,1\n")]
    assert math.isnan(found[0])
    assert found[1:] == [math.inf, -math.inf]


def test_named_words_are_null_where_they_are_not_quoted(tmp_path: Path) -> None:
    data = 's,d,n\nNA,NA,NA\n"NA",1,1\n,1,1\n'
    assert _loaded(tmp_path, data, null=",NA") == [(None, None, None), ("NA", 1.0, 1), (None, 1.0, 1)]
    assert _loaded(tmp_path, data, null="NA") == [(None, None, None), ("NA", 1.0, 1), ("", 1.0, 1)]
    with pytest.raises(InvalidInputError, match="column 'n' has '' in row 2"):
        _loaded(tmp_path, "s,d,n\na,1,1\na,1,\n", null="NA")


def test_a_quoted_empty_field_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"column 'n' has '' in row 1 .* does not fit INT"):
        _loaded(tmp_path, 's,d,n\na,1,""\n')


def test_layouts_of_files(tmp_path: Path) -> None:
    want = [("a;b", 1.5, 1), ("ä", 2.0, 2)]
    data = "s;d;n\n'a;b';1.5;1\nä;2;2\n"
    assert _loaded(tmp_path, data, delimiter=";", quote="'") == want
    assert _loaded(tmp_path, data.encode("utf-16"), delimiter=";", quote="'", encoding="utf-16") == want
    assert _loaded(tmp_path, data.replace(";", "\t").encode("latin-1"), delimiter="\\t", quote="'", encoding="latin-1")
    assert _loaded(tmp_path, "s,d,n\na\\,b,1,1\n", escape="\\") == [("a,b", 1.0, 1)]
    assert _loaded(tmp_path, 's,d,n\n5" pipe,1,1\n', quote="") == [('5" pipe', 1.0, 1)]
    assert _loaded(tmp_path, b"\xef\xbb\xbfs,d,n\r\na,1,1\r\n") == [("a", 1.0, 1)]


def test_files_without_a_heading_are_read_by_position(tmp_path: Path) -> None:
    assert _loaded(tmp_path, "a,1,1\nb,2,2\n", header="false") == [("a", 1.0, 1), ("b", 2.0, 2)]
    assert _loaded(tmp_path, "a,1,1,+I\n", kinds="op", header="false") == [("a", 1.0, 1)]
    assert _loaded(tmp_path, "", header="false") == []


def test_a_heading_alone_is_no_row_and_nothing_is_no_file(tmp_path: Path) -> None:
    assert _loaded(tmp_path, "s,d,n") == []
    assert _loaded(tmp_path, "s", {"s": "STRING"}) == _loaded(tmp_path, "s\n", {"s": "STRING"}) == []
    assert _loaded(tmp_path, "", {"s": "STRING"}, header="false") == []
    assert _loaded(tmp_path, "") == []
    with pytest.raises(FormatError, match="it is empty, so no row names its columns"):
        _loaded(tmp_path, "\n")


def test_values_with_line_breaks_go_on_over_many_blocks(tmp_path: Path) -> None:
    text = "a\n\r\n" * 700_000
    assert _loaded(tmp_path, "s,d,n\n" + f'"{text}",1,1\n' * 10) == [(text, 1.0, 1)] * 10


def test_the_row_of_a_bad_value_is_counted_over_line_breaks(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="column 'n' has 'x' in row 40001 ") as refused:
        _loaded(tmp_path, "s,d,n\n" + '"a\nb\nc, and much more of it, so that blocks fill",1,1\n' * 40_000 + "a,1,x\n")
    assert refused.value.context["row"] == 40_000


@pytest.mark.parametrize(("row", "fields"), [("b,2", "2 fields instead of 3: 'b,2'"), ("b,2,2,2", "4 fields instead")])
def test_a_row_with_other_fields_than_the_heading_is_named(tmp_path: Path, row: str, fields: str) -> None:
    with pytest.raises(FormatError, match=rf"row 2 \(counting from 1, without the heading\) has {fields}"):
        _loaded(tmp_path, f'"s","d",n\n"a\n",1,1\n\n{row}\n')


def test_a_name_twice_in_the_heading_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="column 's' occurs 2 times"):
        _loaded(tmp_path, "s,d,n,s\na,1,1,b\n")


def test_an_empty_line_is_a_null_where_there_is_one_column(tmp_path: Path) -> None:
    assert _loaded(tmp_path, 's\na\n\n""\n', {"s": "STRING"}) == [("a",), (None,), ("",)]
    assert _loaded(tmp_path, "s,d,n\na,1,1\n\nb,2,2\n") == [("a", 1.0, 1), ("b", 2.0, 2)]


def test_binary_is_base64_or_the_bytes_of_the_text(tmp_path: Path) -> None:
    schema = {"k": "INT", "b": "BYTES"}
    assert _loaded(tmp_path, "k,b\n1,AP8=\n2,\n", schema) == [(1, b"\0\xff"), (2, None)]
    assert _loaded(tmp_path, "k,b\n1,plain text\n", schema, binary="text") == [(1, b"plain text")]
    with pytest.raises(InvalidInputError, match=r"column 'b' has 'no base64!' in row 2 .* written as base64"):
        _loaded(tmp_path, "k,b\n1,AP8=\n2,no base64!\n", schema)


def test_compressed_files_are_read_and_their_rows_counted(tmp_path: Path) -> None:
    data = b"s,d,n\na,1,1\nb,2,x\n"
    assert _loaded(tmp_path, gzip.compress(data[:12]), name="in.csv.gz") == [("a", 1.0, 1)]
    with pytest.raises(InvalidInputError, match="column 'n' has 'x' in row 2 "):
        _loaded(tmp_path, bz2.compress(data), name="in.csv.bz2")
    with pytest.raises(FormatError, match=r"in\.csv\.gz"):
        _loaded(tmp_path, gzip.compress(data)[:-12], name="in.csv.gz")


def test_text_in_another_encoding_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"column 's' has b'\\xe9' in row 1 .* 'csv.encoding'"):
        _loaded(tmp_path, b"s,d,n\n\xe9,1,1\n")
    with pytest.raises(FormatError, match=r"not ascii .* 'csv.encoding'"):
        _loaded(tmp_path, b"s,d,n\n\xe9,1,1\n", encoding="ascii")


@pytest.mark.parametrize("rows", [20, 900_000])
def test_no_thread_holds_a_file_that_was_refused(tmp_path: Path, rows: int) -> None:
    """Else a thread of pyarrow may call Python while the interpreter ends, which ends the process."""
    data = "s,d,n\na,1\n" + "a,1,1234567\n" * rows
    with pytest.raises(FormatError, match="row 1") as caught:
        _loaded(tmp_path, data)
    assert not [found for found in gc.get_objects() if isinstance(found, text._Handle | text._Block)], caught


def test_columns_that_csv_cannot_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="column 'tags' is ARRAY<STRING>, which CSV has no form for"):
        _loaded(tmp_path, "tags,n\na,1\n", {"tags": "ARRAY<STRING>", "n": "INT"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"csv.nul": "x"}, ("unknown option 'csv.nul'", "'csv.null'")),
        ({"csv.delimiter": "::"}, ("'csv.delimiter' is '::'", "one ASCII character")),
        ({"csv.delimiter": ""}, ("'csv.delimiter'",)),
        ({"csv.header": "maybe"}, ("'csv.header' is 'maybe'",)),
        ({"csv.encoding": "utf-99"}, ("'csv.encoding' is 'utf-99'",)),
        ({"csv.binary": "hex"}, ("'csv.binary' is 'hex'",)),
        ({"csv.null": 1}, ("'csv.null' is 1",)),
        ({"csv.quote": ","}, ("same character",)),
        ("csv.null=NA", ("options is a str",)),
    ],
)
def test_options_without_a_meaning_are_refused(options: Any, words: tuple[str, ...], tmp_path: Path) -> None:
    catalog = mg.catalog(f"memory://{tmp_path.name}/w")
    catalog.create_database("d")
    table = catalog.create_table("d.t", FLAT)
    (tmp_path / "in.csv").write_text("s,d,n\n")
    with pytest.raises(InvalidInputError) as refused:
        table.load(str(tmp_path / "in.csv"), options=options)
    assert all(word in str(refused.value) for word in ("cannot load files into 'd.t'", *words))


@pytest.mark.parametrize("text", ["1e400", "-1e400"])
def test_a_number_that_is_too_large_is_refused_and_does_not_become_infinite(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"column 'd' has '{text}' in row 2 .* does not fit DOUBLE"):
        _loaded(tmp_path, f"s,d,n\na,inf,1\na,{text},1\n")
    with pytest.raises(InvalidInputError, match=r"column 'f' has '1e39' in row 1 .* does not fit FLOAT"):
        _loaded(tmp_path, "f\n1e39\n", {"f": "FLOAT"})


@pytest.mark.parametrize("schema", [{"a": "INT", "b": "STRING"}, {"a": "STRING"}])
@pytest.mark.parametrize("end", ["", "\n"])
def test_a_file_that_ends_inside_quotes_is_refused(tmp_path: Path, schema: dict[str, str], end: str) -> None:
    before = "1," * (len(schema) - 1)
    with pytest.raises(FormatError, match="ends inside quotes, in row 2"):
        _loaded(tmp_path, f'{",".join(schema)}\n{before}x\n{before}"y\nz{end}', schema)
    assert len(_loaded(tmp_path, f'{",".join(schema)}\n{before}5" of pipe\n{before}"y"{end}', schema)) == 2


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_values_of_several_lines_are_read_over_many_blocks_and_the_row_that_is_wrong_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("merganser.ingest.text._BLOCK_BYTES", 500)
    texts = [end.join(f'line {line}, "" of {row}' for line in range(row % 7)) for row in range(400)]
    rows = [f'{row},"{text}",{row}.5' for row, text in enumerate(texts)]
    schema = {"id": "INT", "s": "STRING", "v": "DOUBLE"}
    loaded = _loaded(tmp_path, end.join(["id,s,v", *rows, ""]), schema)
    assert loaded == [(row, text.replace('""', '"'), row + 0.5) for row, text in enumerate(texts)]
    rows[333] = '333,"two' + end + 'lines",x'
    with pytest.raises(InvalidInputError, match=r"column 'v' has 'x' in row 334 "):
        _loaded(tmp_path, end.join(["id,s,v", *rows, ""]), schema)
    rows[333] = '333,"two' + end + 'lines"'
    with pytest.raises(FormatError, match=r"row 334 .* has 2 fields instead of 3"):
        _loaded(tmp_path, end.join(["id,s,v", *rows, ""]), schema)
