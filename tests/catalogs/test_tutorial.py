"""The blocks of the tutorial that need a PostgreSQL or a cluster of HDFS, which its reader has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.catalogs.databases import UnavailableError
from tests.docs.test_examples import ROOT, Block, run_block, run_command

PAGE = ROOT / "docs" / "share-a-catalog.md"
_FENCE = re.compile(r"^```(python|sh|toml)(?: (?:postgresql|hdfs))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(title: str, more: dict[str, str]) -> list[Block]:
    """Return the blocks of a section, with addresses of the test in place of those of the page."""
    text = PAGE.read_text()
    start = text.index(f"\n## {title}\n")
    end = text.index("\n## ", start + 1)
    found = [Block(one[1], text.count("\n", 0, one.start(2)) + 1, one[2]) for one in _FENCE.finditer(text, start, end)]
    for old, new in more.items():
        assert any(old in block.text for block in found), old
        found = [Block(block.kind, block.line, block.text.replace(old, new)) for block in found]
    return found


def run(found: list[Block]) -> None:
    names: dict[str, Any] = {}
    for block in found:
        if block.kind == "python":
            run_block(PAGE, block, names)
        for command in block.text.splitlines() if block.kind == "sh" else []:
            code, told = run_command(command, {})
            assert code == 0, f"{PAGE.name}:{block.line}: {command}\n{told}"


def test_a_team_shares_a_postgresql(servers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sqlalchemy")
    try:
        server = servers["postgresql"].emptied("tutorial", tmp_path)
    except UnavailableError as error:
        pytest.skip(f"there is no PostgreSQL to test with: {error}")
    ours = {
        "jdbc:postgresql://localhost:5432/catalog": server.uri,
        "/shared/lake": str(tmp_path / "lake"),
        '"lake"': f'"{server.options["jdbc.user"]}"',
    }
    found = blocks("PostgreSQL", ours)
    [profile] = [block for block in found if block.kind == "toml"]
    (tmp_path / "catalogs.toml").write_text(profile.text)
    monkeypatch.setenv("MERGANSER_CATALOGS", str(tmp_path / "catalogs.toml"))
    monkeypatch.setenv("LAKE_PASSWORD", server.options["jdbc.password"])
    run(found)


@pytest.mark.hdfs
def test_a_cluster_of_hdfs_is_a_catalog(hdfs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hdfs.folder()
    run(blocks("HDFS", {'"hdfs://namenode:8020/lake"': f"{folder.root!r}, options={folder.options}"}))
