"""The blocks of docs/postgres-to-table.md, in order: against a PostgreSQL that runs, or with its recorded files."""

from __future__ import annotations

import lzma
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.docs.test_examples import Block, run_block
from tests.live.engine import class_path
from tests.live.services import PostgreSQL, program

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "postgres-to-table.md"
RECORDED: Final = Path(__file__).resolve().parents[1] / "debezium" / "page"
_FENCE: Final = re.compile(r"^```(sql|xml|properties|java|sh|python live)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILES: Final = {"xml": "pom.xml", "properties": "follow.properties", "java": "Follow.java"}
_QUIET_SECONDS: Final = 3
_WAIT_SECONDS: Final = 120


def blocks() -> Iterator[Block]:
    text = PAGE.read_text()
    for found in _FENCE.finditer(text):
        yield Block(found[1], text.count("\n", 0, found.start()) + 2, found[2])


def run_with_recorded_files(folder: Path) -> None:
    """Run the blocks of Python. Before each that follows a block of SQL, the files come that Debezium wrote then."""
    step = iter(range(100))

    def arrive() -> None:
        number = next(step)
        (folder / "changes").mkdir(exist_ok=True)
        content = lzma.decompress((RECORDED / f"{number}.json.xz").read_bytes())
        (folder / "changes" / f"{number}.json").write_bytes(content)

    _run(folder, lambda _: None, arrive)


def run_live(work: Path, *, record: bool) -> None:
    """Run all blocks.

    Args:
        record: keep the files of Debezium for `run_with_recorded_files`.
    """
    folder = work / "page"
    folder.mkdir()
    server = PostgreSQL(work / "server")
    engine: list[subprocess.Popen[bytes]] = []
    seen: set[str] = set()
    step = iter(range(100))

    def other(block: Block) -> None:
        if block.kind == "sql":
            server.query(block.text)
        elif block.kind == "sh":
            command = [program("java", "default-jdk-headless"), "-cp", class_path(), "Follow.java"]
            with (folder / "log").open("wb") as log:
                engine.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log))
        else:
            text = re.sub(r"(database.port=)\d+", rf"\g<1>{server.port}", block.text)
            text = re.sub(r"(database.hostname=).*", r"\g<1>127.0.0.1", text)
            text = re.sub(r"(database.user=).*", r"\g<1>live", text)
            (folder / _FILES[block.kind]).write_text(text)

    def arrive() -> None:
        files = _new_files(folder, seen)
        seen.update(path.name for path in files)
        if record:
            RECORDED.mkdir(exist_ok=True)
            content = b"".join(path.read_bytes() for path in files)
            (RECORDED / f"{next(step)}.json.xz").write_bytes(lzma.compress(content, preset=9))

    try:
        _run(folder, other, arrive)
    finally:
        for process in engine:
            process.terminate()
            process.wait()
        server.stop()


def _run(folder: Path, other: Callable[[Block], None], arrive: Callable[[], None]) -> None:
    """Run blocks.

    Args:
        other: runs a block that is no Python.
        arrive: lets the files of changes come.
    """
    names: dict[str, Any] = {"__name__": "__example__"}
    changed = False
    there = Path.cwd()
    os.chdir(folder)
    try:
        for block in blocks():
            if block.kind != "python live":
                changed |= block.kind == "sql"
                other(block)
                continue
            if changed:
                arrive()
            changed = False
            run_block(PAGE, _placed(block, folder), names)
    finally:
        os.chdir(there)


def _placed(block: Block, folder: Path) -> Block:
    """Return a block whose paths are absolute: Spark's JVM may run in another folder."""
    text = block.text
    for name in ("changes", "checkpoints/shop"):
        text = text.replace(f'"{name}"', repr(str(folder / name)))
    return Block(block.kind, block.line, text)


def _new_files(folder: Path, seen: set[str]) -> list[Path]:
    """Return the files that Debezium has written since the last call, once no more come."""
    until = time.monotonic() + _WAIT_SECONDS
    before: list[Path] = []
    quiet = time.monotonic()
    while not before or time.monotonic() < quiet + _QUIET_SECONDS:
        found = sorted(path for path in (folder / "changes").glob("*.json") if path.name not in seen)
        if found != before:
            before, quiet = found, time.monotonic()
        if time.monotonic() > until:
            raise RuntimeError(f"Debezium wrote nothing: {(folder / 'log').read_text(errors='replace')[-3000:]}")
        time.sleep(0.2)
    return before
