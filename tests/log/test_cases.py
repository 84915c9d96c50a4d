"""The cases of `tests/vectors/log_system.json` that read the log, against a broker."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from tests.log.broker import Broker
from tests.log.test_log import _following, _records

pytestmark = pytest.mark.broker
_FILE = Path(__file__).parents[1] / "vectors" / "log_system.json"
CASES = [case for case in json.loads(_FILE.read_text()) if "checks" in case]


def _write(table: mg.Table, step: dict[str, Any]) -> None:
    names = table.schema.names
    table.write(
        [dict(zip(names, row[1:], strict=True)) for row in step["rows"]], kinds=[row[0] for row in step["rows"]]
    )


def test_the_blocks_of_the_page_run(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "log.md").read_text()
    blocks = re.findall(r"```python broker\n(.*?)```", text, re.DOTALL)
    assert blocks
    (tmp_path / f"page-{tmp_path.name}").mkdir()
    monkeypatch.chdir(tmp_path / f"page-{tmp_path.name}")
    code = "\n".join(blocks).replace("localhost:9092", broker.address).replace('"warehouse"', f'"{tmp_path.name}-wh"')
    names: dict[str, Any] = {}
    for line in re.split(r"\n(?=\S)(?!\))", code):
        shown, _, expected = line.partition("  # ")
        if expected:
            assert eval(shown, names) == eval(expected, names)
        else:
            exec(shown, names)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any], broker: Broker, tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path / f"case-{case['name']}-{tmp_path.name}")
    catalog.create_database("db")
    options = {"bucket": "1", **case["options"], "kafka.bootstrap.servers": broker.address}
    table = catalog.create_table("db.t", dict(case["schema"]), case["primary_key"], options=options)
    streams = [check for check in case["checks"] if check["check"] == "stream_read"]
    for i, step in enumerate(case["steps"]):
        _write(table, step)
        for check in streams:
            if check["start_after_step"] != i:
                continue
            with _following(table, start=check["scan_mode"]) as get:
                expected = [list(row) for plan in check["expect_changelog"] for row in plan]
                for later in case["steps"][i + 1 :]:
                    _write(table, later)
                found: list[list[Any]] = []
                while len(found) < len(expected):
                    found += [list(row.values()) for row in get()]
                for row, wanted in zip(found, expected, strict=True):
                    assert row[: len(wanted)] == wanted
            break
        else:
            continue
        break
    for check in case["checks"]:
        if check["check"] == "log_records":
            found = [(json.loads(r["key"]), r["value"]) for r in _records(table)]
            assert len(found) == len(check["expect"])
            for (key, value), wanted in zip(found, check["expect"], strict=True):
                assert list(key.values()) == wanted["key"]
                after = None if value is None else list(json.loads(value)["after"].values())
                assert after == wanted["value"]
