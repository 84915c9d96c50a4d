"""Every example of README and docs runs, in order, in a directory of its own.

The blocks of a page share their names, as a reader would type them one after the other. A line such as
`orders.read().count()   # 3` is also a claim: when the comment is a Python literal, the value must equal it. A list or
a dictionary may stand in the comment lines below its statement instead. Pages
with blocks marked `python spark` share one process and one Spark session. In `sh` blocks the
lines that start with `merganser`, `curl` or `printf` run after the Python blocks before them, except the demo. A
command with `&` at its end is a server: it runs until the end of the page, on a port that is free.
"""

from __future__ import annotations

import ast
import io
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.cli.main import main
from merganser.sql.tokens import pieces
from tests.conformance.quick import INTERPRETED
from tests.seeds import day, part_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```(python spark|python|sh|sql merganser)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HOLDS = "__holds__"
_PORT = re.compile(r"\b(8470|10000)\b")
"""Those of `merganser serve-stream` and `serve-catalog`."""
_COMMENT = re.compile(r"\s#\s(.+)$")


@dataclass(frozen=True)
class Block:
    kind: str
    line: int
    text: str


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(found[1], text.count("\n", 0, found.start()) + 2, found[2]) for found in _FENCE.finditer(text)]


def _pages(*, spark: bool) -> Iterator[Any]:
    for page in PAGES:
        blocks = blocks_of(page)
        if (
            any(block.kind.startswith(("python", "sql")) for block in blocks)
            and any(block.kind == "python spark" for block in blocks) == spark
        ):
            yield pytest.param(page, id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("page", list(_pages(spark=False)))
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.spark(session=False)
@pytest.mark.slow
def test_the_examples_of_pages_with_spark_run(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """One process runs an eighth of the pages, or all of them: a page that builds a session gets the one that runs."""
    pages = [parameters.values[0] for parameters in _pages(spark=True)]
    if not request.config.getoption("whole"):
        pages = part_of(pages, 1 / 8, "pages with Spark", day())
    for number in range(len(pages)):
        (tmp_path / str(number)).mkdir()
    code = "\n".join(
        [
            "import os",
            "from pathlib import Path",
            "from tests.docs.test_examples import run_page",
            *(f"os.chdir({str(tmp_path / str(i))!r}); run_page(Path({str(page)!r}))" for i, page in enumerate(pages)),
        ]
    )
    options = {"spark.sql.shuffle.partitions": "4", **INTERPRETED}
    submitted = " ".join(f"--conf {key}={value}" for key, value in options.items())
    settings = {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": f"{submitted} {os.environ['PYSPARK_SUBMIT_ARGS']}",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def run_sql(page: Path, block: Block, names: dict[str, Any]) -> None:
    """Run statements in one session per page; a comment `-- 3 | a` behind one names the rows that it gives."""
    if "__sql__" not in names:
        catalog = mg.catalog("jdbc:sqlite:sql-catalog.sqlite", options={"warehouse": "sql-warehouse"})
        catalog.create_database("default", if_not_exists=True)
        names["__sql__"] = catalog.session()
    for statement in pieces(block.text):
        rows = names["__sql__"].sql(statement.source)
        wanted = re.match(r" *;? *-- *(\S.*)", block.text[statement.end :])
        if wanted is not None:
            found = [" | ".join(map(_shown, row.values())) for row in rows.to_pylist()]
            assert "; ".join(found) == wanted[1].strip(), f"{page.name}:{block.line}: {statement.source}\n{found}"


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def run_page(page: Path) -> None:
    """Run all blocks of a page in the working directory."""
    names: dict[str, Any] = {"__name__": "__example__"}
    port = str(_free_port())
    servers: list[subprocess.Popen[str]] = []
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    try:
        for block in blocks_of(page):
            block = replace(block, text=_PORT.sub(port, block.text))
            if block.kind == "sql merganser":
                run_sql(page, block, names)
                continue
            if block.kind != "sh":
                run_block(page, block, names)
                continue
            for command in _commands(block):
                if command.endswith("&"):
                    words = shlex.split(command[:-1])[1:]
                    servers.append(_started([sys.executable, "-m", "merganser", *words, "--port", port], env))
                    continue
                code, told = run_command(command, env)
                assert code == 0, f"{page.name}:{block.line}: {command}\n{told}"
    finally:
        for server in servers:
            server.terminate()
        assert [server.wait(30) for server in servers] == [0] * len(servers)


def run_command(command: str, env: dict[str, str]) -> tuple[int, str]:
    """Return the exit code of a command, and what it printed. Those of merganser run in this process: most of a
    process of their own would be its start."""
    if not command.startswith("merganser "):
        done = subprocess.run(command, shell=True, env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr
    told = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(told), redirect_stderr(told), pytest.raises(SystemExit) as ended:
        main(shlex.split(command, comments=True)[1:])
    told.seek(0)
    return int(ended.value.code or 0), told.read()


def _started(command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    """Start a server, and return when it says that it serves."""
    server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline().startswith("serving "), command
    return server


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def run_block(page: Path, block: Block, names: dict[str, Any]) -> None:
    """Run a block with the page's own line numbers, and check its claims."""
    tree = ast.parse(block.text)
    ast.increment_lineno(tree, block.line - 1)
    lines = page.read_text().splitlines()

    def holds(value: Any, claimed: Any, line: int, text: str) -> None:
        assert value == claimed, f"{page.name}:{line}: {text}"

    names[_HOLDS] = holds
    for statement in [*ast.walk(tree)]:
        claimed = _literal(lines[(statement.end_lineno or 1) - 1 :]) if isinstance(statement, ast.Expr) else None
        if isinstance(statement, ast.Expr) and claimed is not None:
            told = [ast.Constant(statement.lineno), ast.Constant(ast.unparse(statement))]
            wanted = ast.parse(repr(claimed[0]), mode="eval").body
            statement.value = ast.Call(ast.Name(_HOLDS, ast.Load()), [statement.value, wanted, *told], [])
    exec(compile(ast.fix_missing_locations(tree), str(page), "exec"), names)


def _literal(lines: list[str]) -> tuple[Any] | None:
    """Return the value that a comment claims, if it is one: at the end of the first line, or in the lines below it."""
    found = _COMMENT.search(lines[0])
    if not found:
        text = "".join(line[1:] for line in takewhile(lambda line: line.startswith("# "), lines[1:])).strip()
        return (ast.literal_eval(text),) if text.startswith(("[", "{")) else None
    try:
        return (ast.literal_eval(found[1].strip()),)
    except (ValueError, SyntaxError):
        return None


def _commands(block: Block) -> list[str]:
    lines = block.text.replace("\\\n", " ").splitlines()
    return [
        line
        for line in lines
        if line.startswith(("merganser ", "printf ", "curl ")) and not line.startswith("merganser demo")
    ]


def test_a_wrong_claim_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    monkeypatch.chdir(tmp_path)
    page.write_text("```python\n1 + 1    # 3\n```\n")
    with pytest.raises(AssertionError, match=r"page.md:2: 1 \+ 1"):
        run_page(page)
    page.write_text("```python\nfor i in range(2):\n    i + 1    # 1\n```\n")
    with pytest.raises(AssertionError, match=r"page.md:3: i \+ 1"):
        run_page(page)


def test_a_command_that_fails_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nmerganser describe shop.orders   # there is none\n```\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=r"(?s)page.md:2: merganser describe.*shop.orders"):
        run_page(page)


def test_a_wrong_claim_below_a_statement_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n[1] + [2]\n# [1,\n#  3]\n```\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=r"page.md:2: \[1\] \+ \[2\]"):
        run_page(page)


def test_the_pages_have_examples() -> None:
    assert {page.name for page in PAGES if blocks_of(page)} >= {"README.md", "start.md"}


def test_the_first_screen_of_a_page_shows_an_example() -> None:
    """Or a picture, on pages that explain. Decisions have neither."""
    pages = [page for page in PAGES if "decisions" not in page.parts]
    shown = [
        page.name for page in pages if re.search(r"^```", "\n".join(page.read_text().split("\n")[:34]), re.MULTILINE)
    ]
    assert [page.name for page in pages if page.name not in shown] == []


def test_a_page_registers_the_data_source_before_it_uses_it() -> None:
    """Pages share a session of Spark, where another page may have registered it."""
    for page in PAGES:
        code = "\n".join(re.findall(r"^```python[^\n]*\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL))
        before, used, _ = code.partition('format("merganser")')
        assert not used or "ms.register(" in before, page
