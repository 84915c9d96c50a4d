"""`merganser demo log` on the flights of a day."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from merganser.cli import demo_broker, demo_log
from merganser.cli.main import app
from merganser.errors import NotFoundError
from tests.log.broker import Broker


@pytest.mark.campaign(1 / 4, first=3)
@pytest.mark.broker
@pytest.mark.slow
def test_a_second_process_sees_the_rows_of_the_table(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_log, "_COMMITS_PER_SECOND", 1000)
    demo_log.run(str(tmp_path), days=1, broker=broker.address)
    told = capsys.readouterr().out
    assert re.search(r"2,515 of 2,515 changes  seen after [0-9.]+ ms, p99 [0-9.]+ ms", told)
    assert "the reader has the 842 flights of the table, and every value is equal" in told


def test_what_is_shown_says_how_long_rows_take() -> None:
    shown = demo_log.Delays(30, 40, [10.0, 20.0, 30.0], [1.0, 3.0, 60.0])
    assert shown.line == " 75%  30 of 40 changes  seen after 3.0 ms, p99 60.0 ms"
    assert not shown.is_last
    assert demo_log.Delays(0, 40, [], []).line == "  0%  0 of 40 changes"


def test_a_machine_without_maven_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_: None)
    with pytest.raises(NotFoundError, match=r"no 'mvn' on the PATH.*--broker HOST:PORT"):
        demo_broker.fetched(tmp_path)


def test_a_broker_is_named_for_the_log_alone(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["demo", "--broker", "localhost:9092", "--directory", str(tmp_path)])
    assert ran.exit_code != 0
    assert "merganser demo log" in ran.output
