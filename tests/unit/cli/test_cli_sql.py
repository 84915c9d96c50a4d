"""`merganser sql`: statements in, results out; and its shell in a pseudo terminal."""

from __future__ import annotations

import os
import pty
import select
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from merganser.cli import render
from merganser.cli.sql_output import Output
from merganser.cli.sql_shell import Shell, completions
from merganser.cli.sql_text import is_complete

from .conftest import Run

_MADE = "CREATE DATABASE shop; USE shop; CREATE TABLE t (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED);"


def test_statements_say_what_they_did(run: Run) -> None:
    done = run("sql", "-e", f"{_MADE} INSERT INTO t VALUES (1, 'a'), (2, 'b')", "-e", "SELECT * FROM t")
    assert done.code == 0
    assert "2 rows inserted, snapshot 1, " in done.out
    assert "id  v\n 1  a\n 2  b\n" in done.out


def test_the_last_rows_are_written_as_asked(run: Run, tmp_path: Path) -> None:
    done = run("sql", "-p", "who=it's", "-f", "csv", "-e", f"{_MADE} SELECT :who AS who")
    assert done.out == '"who"\n"it\'s"\n'
    assert run("sql", "-e", "SELECT 1 AS a", "--output", "a.json").code == 0
    assert (tmp_path / "a.json").read_text() == '{"a":1}\n'


def test_a_syntax_error_runs_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("CREATE DATABASE shop;\n  SELEC 1;")
    done = run("sql", "a.sql")
    assert done.code == 1
    assert "line 2, column 3" in done.err
    assert "\n    ^\n" in done.err
    assert run("databases").out == ""


def test_input_is_complete_at_a_semicolon_outside_of_texts() -> None:
    assert all(map(is_complete, ("SELECT 1;", r"\dt", "SELECT ';' ; -- end")))
    assert not any(map(is_complete, ("SELECT 1", "SELECT ';", "SELECT 1 -- ;")))


def test_wide_columns_become_narrower_first() -> None:
    assert render.fitted([2, 100, 10], 40) == [2, 24, 10]
    assert render.fitted([50] * 20, 80) == []


@pytest.fixture
def shell(orders: Any, tmp_path: Path) -> Shell:
    import merganser as mg

    session = mg.catalog(str(tmp_path / "warehouse")).session()
    session.execute("USE shop")
    return Shell(lambda: session, Output(), {}, ask=lambda question: "n")


def test_names_are_completed(shell: Shell) -> None:
    session = shell.session
    assert completions("SELECT * FROM or", session) == ("or", ["orders"])
    assert "note" in completions("SELECT * FROM orders WHERE no", session)[1]
    assert completions("USE sh", session)[1] == ["shop"]
    assert "select" in completions("sel", None)[1]


def test_a_drop_is_not_run_unless_the_person_agrees(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.do("DROP TABLE orders;")
    assert "drops all or a part of shop.orders, which has" in capsys.readouterr().out.replace("\n", " ")
    shell.do(r"\dt")
    assert "orders" in capsys.readouterr().out


def test_the_shell_runs_statements_and_leaves(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.environ.update(PROMPT_TOOLKIT_NO_CPR="1", XDG_STATE_HOME=str(tmp_path), TERM="xterm")
        os.execv(sys.executable, [sys.executable, "-m", "merganser", "sql"])

    def until(text: bytes) -> bytes:
        seen, end = b"", time.monotonic() + 60
        while text not in seen and time.monotonic() < end:
            if select.select([terminal], [], [], 1)[0]:
                seen += os.read(terminal, 65536)
        assert text in seen
        return seen

    until(b"default>")
    os.write(terminal, b"SELECT 41 + 1 AS\rn;\r")
    until(b"1 row, ")
    os.write(terminal, b"\\q\r")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    assert "41 + 1" in (tmp_path / "merganser" / "sql_history").read_text()


def test_a_plan_is_printed_line_by_line(run: Run) -> None:
    done = run("sql", "-e", f"{_MADE} SHOW CREATE TABLE t")
    assert "(\n  `id` BIGINT NOT NULL,\n  `v` STRING,\n  PRIMARY KEY (`id`) NOT ENFORCED\n)\n" in done.out
