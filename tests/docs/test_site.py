"""The site builds without a warning, and its pages load nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import generate

_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref=["']?(?:https?:)?//"""
    r"""|url\(["']?(?:https?:)?//|@import ["'](?:https?:)?//""",
    re.IGNORECASE,
)
"""What makes a browser ask another host when a page opens. Links that a reader follows are allowed."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(built)],
        cwd=generate.ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return built


@pytest.mark.xdist_group("site")
def test_every_page_is_in_the_site(site: Path) -> None:
    pages = [page.relative_to(generate.DOCS) for page in generate.DOCS.rglob("*.md")]
    names = {str(page.with_name("index.html" if page.name == "README.md" else f"{page.stem}.html")) for page in pages}
    assert {name for name in names if not (site / name).exists()} == set()


@pytest.mark.xdist_group("site")
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    texts = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert {
        (str(text.relative_to(site)), found[0]) for text in texts for found in _LOADED.finditer(text.read_text())
    } == set()


def test_an_asset_of_another_host_is_found() -> None:
    assert _LOADED.search('<link rel="stylesheet" href="https://fonts.example/css">')
    assert _LOADED.search("@font-face{src:url(//fonts.example/a.woff2)}")
    assert not _LOADED.search('<a href="https://paimon.apache.org/docs">')
