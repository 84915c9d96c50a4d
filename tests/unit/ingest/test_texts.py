"""One table of rules for texts: CSV files, JSON files and change records read each text alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from tests.docs import generate


class Texts:
    """Reads one text through a table of one column in each of the ways."""

    def __init__(self, tmp_path: Path, kind: str) -> None:
        self.path = tmp_path
        catalog = mg.catalog(f"memory://{tmp_path.name}/w")
        catalog.create_database("d", if_not_exists=True)
        self.table = catalog.create_table("d.t", {"i": "INT", "v": kind})

    def of_csv(self, text: str, **arguments: Any) -> Any:
        (self.path / "in.csv").write_text(f'i,v\n1,"{text}"\n')
        return self._loaded("in.csv", arguments)

    def of_json(self, text: str, **arguments: Any) -> Any:
        (self.path / "in.json").write_text(json.dumps({"i": 1, "v": text}) + "\n")
        return self._loaded("in.json", arguments)

    def of_scanned_json(self, text: str, **arguments: Any) -> Any:
        """A line before it has a form that Arrow's reader does not know."""
        (self.path / "in.json").write_text('{"i": "0"}\n' + json.dumps({"i": 1, "v": text}) + "\n")
        return self._loaded("in.json", arguments)

    def of_records(self, text: str, **arguments: Any) -> Any:
        options = {**arguments.pop("options", {}), **arguments}
        try:
            found = mg.cdc.parse([json.dumps({"i": 1, "v": text})], "json", self.table, bad="fail", **options)
        except InvalidInputError as error:
            return str(error)
        return found.rows["v"][0].as_py()

    def _loaded(self, name: str, arguments: Any) -> Any:
        try:
            self.table.load(str(self.path / name), overwrite={}, **arguments)
        except InvalidInputError as error:
            assert "Nothing was written" in str(error)
            return str(error)
        return self.table.read(where="i = 1").to_pylist()[0]["v"]

    def all(self, text: str, **arguments: Any) -> list[Any]:
        return [
            of(text, **dict(arguments)) for of in (self.of_csv, self.of_json, self.of_scanned_json, self.of_records)
        ]


@pytest.mark.parametrize(("kind", "texts"), generate.TEXT_CASES, ids=[kind for kind, _ in generate.TEXT_CASES])
def test_files_and_change_records_read_texts_as_the_page_says(
    tmp_path: Path, kind: str, texts: tuple[str, ...]
) -> None:
    reader = Texts(tmp_path, kind)
    for text in texts:
        said, found = generate.value_of(text, kind), reader.all(text)
        if not said.startswith("refused"):
            assert [f"`{value}`" for value in found] == [said] * 4, text
            continue
        assert all(isinstance(value, str) and f"'{text}'" in value for value in found), (text, found)
        assert all(said.removeprefix("refused").removeprefix(": ") in value for value in found), (text, found)


@pytest.mark.parametrize(
    ("kind", "text", "arguments", "shown"),
    [
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "2024-07-01 09:00", {"time_zone": "Europe/Berlin"},
         "2024-07-01 07:00:00+00:00"),
        ("TIMESTAMP(3)", "2024-07-01T09:00:00Z", {"time_zone": "Europe/Berlin"}, "2024-07-01 11:00:00"),
        ("DATE", "2024-07-01T00:00:00+02:00", {"time_zone": "Europe/Berlin"}, "2024-07-01"),
        ("DATE", "2024-06-30T22:00:00Z", {"time_zone": "Europe/Berlin"}, "2024-07-01"),
        ("TIMESTAMP(3)", "1719824400250", {"time_unit": "ms"}, "2024-07-01 09:00:00.250000"),
        ("TIMESTAMP(6)", "-1", {"time_unit": {"v": "us"}}, "1969-12-31 23:59:59.999999"),
        ("TIME(3)", "37800", {"time_unit": "s"}, "10:30:00"),
        ("DATE", "infinity", {"options": {"out_of_range": "null"}}, "None"),
        ("TIME(3)", "24:00:00", {"options": {"out_of_range": "null"}}, "None"),
        ("DECIMAL(5, 1)", "NaN", {"options": {"out_of_range": "null"}}, "None"),
        ("DATE", "0000-00-00", {"options": {"zero_dates": "null"}}, "None"),
        ("TIMESTAMP(3)", "0000-00-00 00:00:00", {"options": {"zero_dates": "null"}}, "None"),
    ],
)  # fmt: skip
def test_zones_units_and_far_values_are_chosen_alike(
    tmp_path: Path, kind: str, text: str, arguments: dict[str, Any], shown: str
) -> None:
    assert [str(value) for value in Texts(tmp_path, kind).all(text, **arguments)] == [shown] * 4


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("INT", "7.0", "7"),
        ("BIGINT", "1e3", "1000"),
        ("STRING", "1.50", "1.50"),
        ("STRING", '{"a": [1, "x y"]}', '{"a":[1,"x y"]}'),
        ("STRING", "true", "true"),
        ("DECIMAL(10, 2)", "1.5", "1.50"),
        ("BOOLEAN", "1", "True"),
        ("TIMESTAMP(3)", "1719824400250", "2024-07-01 09:00:00.250000"),
        ("ROW<a INT>", '{"a": "7"}', "{'a': 7}"),
    ],
)
def test_bare_values_of_json_mean_the_same_in_files_and_records(
    tmp_path: Path, kind: str, value: str, shown: str
) -> None:
    texts = Texts(tmp_path, kind)
    (tmp_path / "in.json").write_text(f'{{"i": 1, "v": {value}}}\n')
    texts.table.load(str(tmp_path / "in.json"), time_unit="ms")
    record = f'{{"i": 1, "v": {value}}}'
    parsed = mg.cdc.parse([record], "json", texts.table, time_unit="ms")
    assert str(texts.table.read().to_pylist()[0]["v"]) == str(parsed.rows["v"][0].as_py()) == shown


def test_zones_and_units_without_a_meaning_are_refused_before_a_file_is_read(tmp_path: Path) -> None:
    table = Texts(tmp_path, "TIMESTAMP(3)").table
    (tmp_path / "in.csv").write_text("i,v\n")
    for arguments, said in (
        ({"time_zone": "Mars"}, "no time zone 'Mars'"),
        ({"time_unit": "h"}, r"time_unit is 'h'. It is one of 's', 'ms', 'us', 'ns', or a dictionary"),
        ({"time_unit": {"w": "ms"}}, "time_unit names the column 'w'"),
        ({"options": {"out_of_range": "x"}}, "'out_of_range' is 'x'. It is 'bad' or 'null'"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            table.load(str(tmp_path / "in.csv"), **arguments)


def test_columns_that_the_table_lacks_get_a_type_where_a_block_is_scanned(tmp_path: Path) -> None:
    catalog = mg.catalog(f"memory://{tmp_path.name}/w")
    catalog.create_database("d")
    table = catalog.create_table("d.t", {"i": "INT"}, options={"write.merge-schema": "true"})
    (tmp_path / "in.json").write_text('{"i": "1", "s": "x\\"y", "n": 5}\n\n{"i": 2, "a": [1.5]}\r\n')
    table.load(str(tmp_path / "in.json"))
    rows = [{"i": 1, "s": 'x"y', "n": 5, "a": None}, {"i": 2, "s": None, "n": None, "a": [1.5]}]
    assert catalog.table("d.t").read().to_pylist() == rows
