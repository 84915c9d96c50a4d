"""`merganser demo stream` on few flights: stopped in the middle, it goes on, and ends as pandas says."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from merganser.cli import demo_stream
from merganser.cli.demo_board import Board, Shown

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class _Impatient:
    """Presses Ctrl-C as soon as there is something to see, whatever has come through by then."""

    def show(self, board: Board) -> None:
        if board.reached < board.total:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.campaign(1 / 4, first=3)
def test_a_stream_of_flights_is_stopped_and_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.contextmanager
    def running(*_: Any, **__: Any) -> Iterator[SparkSession]:
        yield spark

    @contextlib.contextmanager
    def impatient(*_: Any) -> Iterator[Shown]:
        yield _Impatient()

    monkeypatch.setattr(demo_stream, "session", running)
    with monkeypatch.context() as patched:
        patched.setattr(demo_stream, "shown", impatient)
        assert not demo_stream.run(str(tmp_path), days=1)
    assert "nothing is lost" in capsys.readouterr().out
    assert demo_stream.run(str(tmp_path), days=1)
    told = capsys.readouterr().out
    assert "this one goes on from there" in told
    assert "pandas says the same: 842 flights, 70 sums of 14 airlines" in told
    assert "4 damaged records are in travel.letters" in told
    assert spark.streams.active == []
