"""JSON lines: what stands for which value, and which row is wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import FormatError, InvalidInputError


def _loaded(tmp_path: Path, data: str, schema: dict[str, str]) -> list[tuple[Any, ...]]:
    catalog = mg.catalog(f"memory://{tmp_path.name}/w")
    catalog.create_database("d", if_not_exists=True)
    catalog.drop_table("d.t", if_exists=True)
    table = catalog.create_table("d.t", schema)
    (tmp_path / "in.jsonl").write_text(data)
    table.load(str(tmp_path / "in.jsonl"))
    return [tuple(row.values()) for row in table.read().to_pylist()]


def test_numbers_that_are_none_stand_bare_at_any_depth(tmp_path: Path) -> None:
    data = '{"d": NaN, "a": [1, Infinity, null]}\n{"d": -Infinity, "a": [NaN]}\n{"d": null, "a": null}\n'
    first, *rest = _loaded(tmp_path, data, {"d": "DOUBLE", "a": "ARRAY<FLOAT>"})
    assert math.isnan(first[0])
    assert first[1] == [1, math.inf, None]
    assert (rest[0][0], math.isnan(rest[0][1][0]), rest[1]) == (-math.inf, True, (None, None))


@pytest.mark.parametrize("size", [8, 100, 1 << 20])
def test_numbers_that_are_none_may_stand_in_quotes_as_spark_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("merganser.ingest.text._BLOCK_BYTES", max(size, 100))
    rows = [
        '{"d": "NaN", "a": [1, "Infinity", null], "s": "NaN"}',
        '{"d":"-Infinity","a":["NaN" , "-INF"],"s":"\\"d\\":\\"NaN\\""}',
        '{"s":"Infinity","d":1.5,"a":[]}',
    ]
    loaded = _loaded(tmp_path, "\n".join(rows), {"d": "DOUBLE", "a": "ARRAY<FLOAT>", "s": "STRING"})
    assert repr(loaded) == repr(
        [
            (math.nan, [1.0, math.inf, None], "NaN"),
            (-math.inf, [math.nan, -math.inf], '"d":"NaN"'),
            (1.5, [], "Infinity"),
        ]
    )
    with pytest.raises(InvalidInputError, match=r"column 'd' has 'nil' in row 2 .* does not fit DOUBLE"):
        _loaded(tmp_path, '{"d": "NaN"}\n{"d": "nil"}\n', {"d": "DOUBLE", "s": "STRING"})


def test_bare_words_for_numbers_are_read_beside_values_that_only_a_second_look_understands(tmp_path: Path) -> None:
    data = '{"d": NaN, "n": "7", "s": "NaN, Infinity"}\n{"d": -Infinity, "n": 7.0, "s": 5}\n'
    rows = _loaded(tmp_path, data, {"d": "DOUBLE", "n": "INT", "s": "STRING"})
    assert repr(rows) == repr([(math.nan, 7, "NaN, Infinity"), (-math.inf, 7, "5")])


def test_bytes_are_base64_at_any_depth(tmp_path: Path) -> None:
    data = '{"b": "AP8=", "r": {"x": ["YQ==", null]}}\n{"b": null, "r": null}\n'
    schema = {"b": "BYTES", "r": "ROW<x ARRAY<BYTES>>"}
    assert _loaded(tmp_path, data, schema) == [(b"\0\xff", {"x": [b"a", None]}), (None, None)]
    with pytest.raises(InvalidInputError, match=r"column 'b' has 'plain text' in row 2 .* written as base64"):
        _loaded(tmp_path, '{"b": "YQ=="}\n{"b": "plain text"}\n', {"b": "BYTES"})


def test_maps_are_lists_of_entries(tmp_path: Path) -> None:
    data = '{"m": [{"key": "a", "value": 1}]}\n{"m": []}\n{"m": null}\n'
    assert _loaded(tmp_path, data, {"m": "MAP<STRING, INT>"}) == [([("a", 1)],), ([],), (None,)]
    with pytest.raises(InvalidInputError, match=r"column 'm' has .* in row 1 .* does not fit MAP<STRING, INT>"):
        _loaded(tmp_path, '{"m": {"a": 1}}\n', {"m": "MAP<STRING, INT>"})


def test_rows_may_be_large_and_not_larger_than_a_block(tmp_path: Path) -> None:
    text = "x" * 3_000_000
    assert _loaded(tmp_path, f'{{"s": "{text}"}}\n' * 6, {"s": "STRING"}) == [(text,)] * 6
    with pytest.raises(FormatError, match="longer than 8 MiB"):
        _loaded(tmp_path, '{"s": "' + "x" * 30_000_000 + '"}\n', {"s": "STRING"})


def test_a_file_of_nothing_has_no_rows(tmp_path: Path) -> None:
    assert _loaded(tmp_path, "", {"s": "STRING"}) == []


def test_a_number_that_is_too_large_is_refused_and_does_not_become_infinite(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"column 'f' has '1e39' in row 2 .* does not fit FLOAT"):
        _loaded(tmp_path, '{"f": Infinity, "n": 1}\n{"f": 1e39, "n": 1}\n', {"f": "FLOAT", "n": "INT"})
    with pytest.raises(InvalidInputError, match=r"column 'd' has '1e400' in row 1 .* does not fit DOUBLE"):
        _loaded(tmp_path, '{"d": 1e400, "n": 1}\n', {"d": "DOUBLE", "n": "INT"})


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ('{"a": 1, "a": 2}', FormatError, "names 'a' twice in one object"),
        ('{"a": 1, "c": {"x": 1, "x": 2}}', FormatError, "names 'x' twice in one object"),
        ('{"a": true, "b": 5}', InvalidInputError, "column 'a' has 'true' in row 2 (counting from 1), which does not"),
        ('{"a": {"x": null}, "b": "y"}', InvalidInputError, "column 'a' has '{\"x\": null}' in row 2"),
        ('{"a": 1, "r": {"x": 1, "x": 2}}', FormatError, "names 'x' twice in one object"),
        ('[{"a": 1}]', FormatError, "is no object: '[{\"a\": 1}]'. Write one object per line."),
        ('{"a": 1', FormatError, "JSON parse error: Missing a comma"),
    ],
)
def test_a_wrong_line_is_told_by_what_is_wrong_in_it(
    tmp_path: Path, line: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match="row 2 ") as caught:
        _loaded(tmp_path, '{"a": 1, "b": "x"}\n' + line + "\n", {"a": "INT", "b": "STRING", "r": "ROW<x INT>"})
    assert message in str(caught.value)
