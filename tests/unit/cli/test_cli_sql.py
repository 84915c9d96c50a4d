"""`merganser sql`: statements in, results out; and its shell in a pseudo terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.cli import render
from merganser.cli.sql_complete import completions
from merganser.cli.sql_output import Output
from merganser.cli.sql_shell import Shell
from merganser.cli.sql_text import is_complete
from merganser.sql.parse import parse

from .conftest import Run

_MADE = "CREATE DATABASE shop; USE shop; CREATE TABLE t (id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED);"


def test_statements_say_what_they_did(run: Run) -> None:
    done = run("sql", "-e", f"{_MADE} INSERT INTO t VALUES (1, 'a'), (2, 'b')", "-e", "SELECT * FROM t")
    assert done.code == 0
    assert "2 rows inserted, snapshot 1, " in done.out
    assert "id  v\n 1  a\n 2  b\n" in done.out


def test_system_tables_of_the_catalog_are_read(run: Run, orders: Any) -> None:
    done = run("read", "sys.tables", "--columns", "table_name,partitioned", "--format", "csv")
    assert done.out == '"table_name","partitioned"\n"orders",true\n'
    assert run("sql", "-f", "csv", "-e", "SELECT table_name FROM sys.tables").out == '"table_name"\n"orders"\n'
    refused = run("compact", "sys.tables")
    assert refused.code == 1
    assert "'sys.tables' is a system table, which can only be read." in refused.err


def test_the_last_rows_are_written_as_asked(run: Run, tmp_path: Path) -> None:
    done = run("sql", "-p", "who=it's", "-f", "csv", "-e", f"{_MADE} SELECT :who AS who")
    assert done.out == '"who"\n"it\'s"\n'
    assert run("sql", "-e", "SELECT 1 AS a", "--output", "a.json").code == 0
    assert (tmp_path / "a.json").read_text() == '{"a":1}\n'


def test_parameters_have_types(run: Run) -> None:
    given = ("n:INT=5", "day:DATE=2026-01-31", "price:DECIMAL(10,2)=1.50", "ids:ARRAY<INT>=[1, 2]", "text=5")
    names = [name.partition("=")[0].partition(":")[0] for name in given]
    query = f"SELECT {', '.join(f':{name} AS {name}' for name in names)}, :n + 1 AS m, date_add(:day, 1) AS next"
    done = run("sql", *(part for name in given for part in ("-p", name)), "-f", "json", "-e", query)
    assert json.loads(done.out) == {
        "n": 5, "day": "2026-01-31", "price": "1.50", "ids": [1, 2], "text": "5", "m": 6, "next": "2026-02-01",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "kind", "value"),
    [
        ("BIGINT=5", "bigint", 5),
        ("TINYINT=-5", "tinyint", -5),
        ("FLOAT=1.5", "float", 1.5),
        ("DECIMAL(10,2)=1.5", "decimal(10,2)", "1.50"),
        ("ARRAY<BIGINT>=[1, null]", "array<bigint>", [1, None]),
        ("ARRAY<BIGINT>=[]", "array<bigint>", []),
        ("MAP<STRING, SMALLINT>={a -> 1}", "map<string,smallint>", [{"key": "a", "value": 1}]),
        ("ROW<x BIGINT, y STRING>={1, b}", "struct<x:bigint,y:string>", {"x": 1, "y": "b"}),
        ("TIMESTAMP(9)=2026-01-31 10:00:00.123456", "timestamp_ntz", "2026-01-31 10:00:00.123456"),
        ("TIMESTAMP_LTZ(3)=2026-01-31 10:00:00.123", "timestamp", "2026-01-31T10:00:00.123+00:00"),
        ("TIME(3)=10:00:00.123", "time(3)", "10:00:00.123"),
        ("BOOLEAN=true", "boolean", True),
    ],
)
def test_a_parameter_has_exactly_its_type(run: Run, given: str, kind: str, value: object) -> None:
    found = json.loads(run("sql", "-p", f"a:{given}", "-f", "json", "-e", "SELECT :a AS a, typeof(:a) AS kind").out)
    assert found == {"a": value, "kind": kind}


def test_a_parameter_with_nine_digits_of_seconds_is_refused(run: Run) -> None:
    done = run("sql", "-p", "at:TIMESTAMP(9)=2026-01-31 10:00:00.123456789", "-e", "SELECT :at")
    assert (done.code, "parameters have six digits of seconds" in done.err) == (1, True)


def test_a_stopped_query_says_nothing_of_commits(capsys: pytest.CaptureFixture[str]) -> None:
    class Stopped:
        """A session in which Ctrl-C is pressed while a statement runs."""

        def execute(self, text: str) -> None:
            pass

        def results(self, text: str, parameters: object, before: object) -> Iterator[object]:
            raise KeyboardInterrupt

        def parsed(self, text: str, parameters: dict[str, object]) -> object:
            return parse(text, parameters)

    shell = Shell(Stopped, Output("table", None), {}, None, "shop")
    for text, told in (("SELECT 1", False), ("SELECT 1; DELETE FROM t", True)):
        shell.do(text)
        found = capsys.readouterr().out
        assert ("stopped after" in found, "If a commit was made" in found) == (True, told)


def test_typed_parameters_are_values_of_statements(run: Run) -> None:
    made = "CREATE DATABASE shop; USE shop; CREATE TABLE t (id INT, at BIGINT) PARTITIONED BY (at)"
    changed = "INSERT INTO t PARTITION (at = :n) VALUES (1); INSERT INTO t VALUES (2, :n + 2147483647)"
    called = "CALL sys.compact(table => 'shop.t', options => :what); CALL sys.expire_snapshots('shop.t', :n)"
    typed = ("-p", "n:BIGINT=5", "-p", "what:STRING=target-file-size=1mb")
    done = run("sql", *typed, "-f", "csv", "-e", f"{made}; {changed}; {called}; SELECT * FROM t ORDER BY id LIMIT :n")
    assert (done.code, done.out) == (0, '"id","at"\n1,5\n2,2147483652\n'), done.err


@pytest.mark.parametrize(
    "wrong",
    ["n:INT=five", "n:INTT=5", "n:TINYINT=300", "day:DATE=2026-02-30"],
)
def test_a_parameter_that_is_no_value_of_its_type_is_refused(run: Run, wrong: str) -> None:
    done = run("sql", "-p", wrong, "-e", "CREATE DATABASE shop")
    assert done.code == 2
    assert wrong.partition("=")[2] in done.err or "INTT" in done.err
    assert run("databases").out == ""


def test_a_syntax_error_runs_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("CREATE DATABASE shop;\n  SELEC 1;")
    done = run("sql", "a.sql")
    assert done.code == 1
    assert "line 2, column 3" in done.err
    assert "\n    ^\n" in done.err
    assert run("databases").out == ""


def test_a_file_may_begin_with_a_byte_order_mark(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("SELECT 1 AS x", encoding="utf-8-sig")
    assert run("sql", "-f", "csv", "a.sql").out == '"x"\n1\n'


def test_input_is_complete_at_a_semicolon_outside_of_texts() -> None:
    assert all(map(is_complete, ("SELECT 1;", r"\dt", "SELECT ';' ; -- end")))
    assert all(map(is_complete, ("", "quit", "-- a comment", "/* a */")))
    assert not any(map(is_complete, ("SELECT 1", "SELECT ';", "SELECT 1 -- ;", "/* a", "'", "-- a\n'")))


def test_wide_columns_become_narrower_first() -> None:
    assert render.fitted([2, 100, 10], 40) == [2, 24, 10]
    assert render.fitted([50] * 20, 80) == []


@pytest.fixture
def shell(orders: Any, tmp_path: Path) -> Shell:
    import merganser as mg

    session = mg.catalog(str(tmp_path / "warehouse")).session()
    session.execute("USE shop")
    return Shell(lambda: session, Output(), {}, ask=lambda question: "n")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("SELECT * FROM or", "orders"),
        ("SELECT * FROM ", "shop."),
        ("SELECT * FROM shop.", "orders"),
        ("SELECT * FROM orders, or", "orders"),
        ("SELECT * FROM orders$sn", "orders$snapshots"),
        ("SELECT * FROM orders$branch_", "orders$branch_work"),
        ("SELECT * FROM orders WHERE no", "note"),
        ("SELECT o.no| FROM orders o", "note"),
        ("SELECT no| FROM orders o JOIN orders p", "note"),
        ("UPDATE orders SET no", "note"),
        ("DESC or", "orders"),
        ("SHOW PARTITIONS or", "orders"),
        ("SELECT 1; SELECT * FROM or", "orders"),
        ("SELECT coal", "coalesce("),
        ("USE sh", "shop"),
        ("SHOW TABLES IN sh", "shop"),
        ("CALL sys.expire_s", "expire_snapshots"),
        ("CALL comp", "compact"),
        ("CALL sys.compact(ta", "table => "),
        ("CALL sys.compact('or", "orders"),
        ("CALL sys.compact(table => 'shop.", "shop.orders"),
        ("CALL sys.delete_branch('orders', '", "work"),
        ("SET execution", "execution.runtime-mode"),
        ("SET sql.t", "sql.timeout"),
        ("RESET sql.", "sql.max-rows"),
        ("CREATE TABLE t (id INT) WITH ('buck", "bucket"),
        ("CREATE TABLE t (id INT) WITH (", "'bucket' = "),
        ("CREATE TABLE t (id INT) WITH ('merge-engine' = 'par", "partial-update"),
        ("ALTER TABLE orders SET ('snapshot.num", "snapshot.num-retained.max"),
        ("SELECT * FROM orders /*+ OPTIONS('scan.sn", "scan.snapshot-id"),
        (r"\d or", "orders"),
    ],
)
def test_names_are_completed(shell: Shell, orders: Any, typed: str, offered: str) -> None:
    orders.branches.create("work")
    before, _, after = typed.partition("|")
    word, found = completions(before, shell.session, after)
    assert offered in found
    assert offered.startswith(word)
    assert all(name.lower().startswith(word.lower()) for name in found)


@pytest.mark.parametrize(
    "typed", ["SELECT 'or", "SELECT * FROM orders WHERE note = 'n", "SELECT * FROM nothing WHERE zz", "CALL sys.none('"]
)
def test_nothing_is_offered_where_nothing_is_known(shell: Shell, typed: str) -> None:
    assert completions(typed, shell.session)[1] == []


def test_keywords_are_completed_before_the_session_is_there() -> None:
    assert completions("sel", None) == ("sel", ["select"])
    assert completions("SEL", None) == ("SEL", ["SELECT"])


def test_a_drop_is_not_run_unless_the_person_agrees(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.do("DROP TABLE orders;")
    out = capsys.readouterr().out
    assert "Drops the table shop.orders: " in out
    assert "Stopped before this statement." in out
    shell.do(r"\dt")
    assert "orders" in capsys.readouterr().out


def test_shortcuts_may_end_with_a_semicolon(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.do("help;")
    assert "Tab completes" in capsys.readouterr().out
    assert shell.do(r"\d orders;")
    assert "BIGINT NOT NULL" in capsys.readouterr().out
    assert shell.do("-- nothing")
    assert "".join(capsys.readouterr()) == ""
    assert not shell.do("quit;")
    assert not shell.do(r"\q")


def test_the_shell_advises_in_sql(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import merganser as mg

    empty = Shell(mg.catalog(str(tmp_path)).session, Output(), {}, ask=None)
    for statement in ("SHOW TABLES;", "CREATE TABLE t (id INT);", "USE default;"):
        assert empty.do(statement)
        said = capsys.readouterr().out
        assert "there is no database 'default'." in said
        assert "CREATE DATABASE default creates it." in said
        assert "'sys'" not in said


def test_the_shell_goes_on_after_an_error_of_a_library(
    shell: Shell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("of a library")

    monkeypatch.setattr(shell.session, "results", fails)
    assert shell.do("SELECT 1;")
    assert "error: ZeroDivisionError: of a library\n" in capsys.readouterr().out


@pytest.mark.parametrize("leave", [EOFError, KeyboardInterrupt])
def test_who_leaves_a_question_does_not_agree(
    shell: Shell, orders: Any, capsys: pytest.CaptureFixture[str], leave: type[BaseException]
) -> None:
    def ask(_: str) -> str:
        raise leave

    asking = Shell(lambda: shell.session, Output(), {}, ask=ask)
    assert asking.do("DROP TABLE orders;")
    assert "Stopped before this statement." in capsys.readouterr().out
    assert len(orders.read().to_pylist()) == 2


class Terminal:
    """`merganser` in a pseudo terminal."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(directory)
            os.environ.update(PROMPT_TOOLKIT_NO_CPR="1", XDG_STATE_HOME=str(directory), TERM="xterm")
            os.environ["PYTHONFAULTHANDLER"] = "1"
            os.execv(sys.executable, [sys.executable, "-m", "merganser", *arguments])

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def until(self, text: str) -> str:
        """Return what is printed up to a text."""
        found = self._printed(lambda seen: text.encode() in seen)
        assert text in found
        return found

    def stopped(self) -> str:
        """Press Ctrl-C, and return what is printed up to the prompt.

        It is pressed again after ten seconds, as a person does: Python ignores one that comes in a callback, such as
        that of the lock of an import.
        """
        return self._printed(lambda seen: b"shop>" in seen, press=10)

    def ended(self, press: float | None = None) -> int:
        """Wait for the end, and return the exit code; `press` as in `stopped`."""
        self._printed(lambda _: False, press)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        os.close(self._terminal)
        return code

    def _printed(self, whole: Callable[[bytes], bool], press: float | None = None) -> str:
        """Return what is printed until it is whole or the process ends; after 60 s fail, with what each thread does.

        Args:
            press: Ctrl-C is pressed now, and again after so many seconds; None: never.
        """
        begun = time.monotonic()
        due, seen = begun, b""
        while not whole(seen):
            if press is not None and time.monotonic() >= due:
                self.type("\x03")
                due += press
            more = self._read()
            if more is None:
                break
            seen += more
            if time.monotonic() - begun > 60:
                os.kill(self._pid, signal.SIGABRT)
                while (more := self._read()) is not None:
                    seen += more
                pytest.fail(seen.decode())
        return seen.decode()

    def _read(self) -> bytes | None:
        """Return what is printed within a second; None: it has ended."""
        if not select.select([self._terminal], [], [], 1)[0]:
            return b""
        try:
            return os.read(self._terminal, 65536)
        except OSError:
            return None


def test_the_shell_runs_statements_and_leaves(tmp_path: Path) -> None:
    shell = Terminal(tmp_path, "sql")
    shell.until("default>")
    shell.type("SELECT 41 + 1 AS\rn;\r")
    shell.until("1 row, ")
    shell.type("\\q\r")
    assert shell.ended() == 0
    assert "41 + 1" in (tmp_path / "merganser" / "sql_history").read_text()


_LONG = "SELECT count(*) FROM orders a, " + ", ".join(f"orders {name}" for name in "bcdefghijklmnopqrstuvwxyz")
"""A statement that counts 3 ** 26 rows."""


def test_ctrl_c_stops_the_statement_and_not_the_shell(orders: Any, tmp_path: Path) -> None:
    orders.write([{"id": 4, "dt": "a", "note": None, "tags": None}])
    shell = Terminal(tmp_path, "sql", "-d", "shop")
    shell.until("shop>")
    shell.type(f"SELECT 1; {_LONG};\r")  # the row of the first one says that the second one begins
    shell.until("1 row, ")
    assert "stopped after" in shell.stopped()
    shell.type(f"SELECT 1; UPDATE orders SET note = 'x' WHERE id IN ({_LONG});\r")
    shell.until("1 row, ")
    assert "stopped after" in shell.stopped()
    shell.type("SELECT 41 + 1 AS n;\r")
    assert "42" in shell.until("1 row, ")
    shell.type("\\q\r")
    assert shell.ended() == 0


def test_ctrl_c_ends_a_command(orders: Any, tmp_path: Path) -> None:
    orders.write([{"id": 4, "dt": "a", "note": None, "tags": None}])
    command = Terminal(tmp_path, "sql", "-d", "shop", "-e", f"SELECT 1; {_LONG}")
    command.until("1 row, ")
    assert command.ended(press=10) == 130


def test_a_command_asks_at_a_terminal_before_it_drops(orders: Any, tmp_path: Path) -> None:
    drop = ("sql", "-d", "shop", "-e", "SELECT 1; DROP TABLE orders; SELECT 2")
    command = Terminal(tmp_path, *drop)
    assert "Drops the table shop.orders: 5 stored rows, 2 snapshots." in command.until("[y/N] ")
    command.type("n\r")
    assert "2 \r\n" not in command.until("Stopped before this statement.")
    assert command.ended() == 1
    assert len(orders.read().to_pylist()) == 2
    agreed = Terminal(tmp_path, *drop)
    agreed.until("[y/N] ")
    agreed.type("y\r")
    agreed.until("done, ")
    assert agreed.ended() == 0


def test_a_command_does_not_ask_with_yes_and_where_nobody_answers(orders: Any, run: Run, tmp_path: Path) -> None:
    command = Terminal(tmp_path, "sql", "--yes", "-d", "shop", "-e", "DELETE FROM orders")
    assert "[y/N]" not in command.until("snapshot 3, ")
    assert command.ended() == 0
    assert run("sql", "-e", "DROP TABLE shop.orders").out.startswith("done, ")


def test_a_plan_is_printed_line_by_line(run: Run) -> None:
    done = run("sql", "-e", f"{_MADE} SHOW CREATE TABLE t")
    assert "(\n  `id` BIGINT NOT NULL,\n  `v` STRING,\n  PRIMARY KEY (`id`) NOT ENFORCED\n)\n" in done.out
    assert "1 row" not in done.err


def test_times_of_nine_digits_are_shown_without_pandas(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("default")
    table = catalog.create_table(
        "default.fine", {"a": "TIMESTAMP(9)", "z": "TIMESTAMP_LTZ(9)", "l": "ARRAY<TIMESTAMP(9)>"}
    )
    at = pa.array([1_767_225_600_000_000_501], pa.timestamp("ns"))
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), at)
    table.write(pa.table({"a": at, "z": at.cast(pa.timestamp("ns", "UTC")), "l": lists}))
    block = (
        "import sys, importlib.abc\n"
        "class Block(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'pandas': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from merganser.cli.main import main\n"
        "main()\n"
    )
    for command in (["sql", "-e", "SELECT a, z, l FROM fine ORDER BY a"], ["read", "default.fine"]):
        done = subprocess.run(
            [sys.executable, "-c", block, *command, "-w", str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        shown = "2026-01-01 00:00:00.000000501"
        for text in (f"{shown} ", f"{shown}Z", f'["{shown}"]'):
            assert text in done.stdout
