"""Reference pages are what the code says, and nothing public is undocumented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from merganser.options.registry import ALL_OPTIONS, COLUMN_OPTIONS

from . import generate

PAGES = sorted([*generate.DOCS.rglob("*.md"), *generate.ROOT.glob("*.md")])


@pytest.mark.parametrize("name", list(generate.pages()))
def test_a_generated_page_is_current(name: str) -> None:
    assert (generate.DOCS / name).read_text() == generate.pages()[name], "run `make docs`"


def test_every_option_has_a_text() -> None:
    assert [option.key for option in ALL_OPTIONS if not option.doc.strip().endswith(".")] == []
    assert [option.suffix for option in COLUMN_OPTIONS if not option.doc.strip().endswith(".")] == []


def test_every_command_and_every_option_of_one_has_a_help_text() -> None:
    assert [name for name, command in generate.commands() if not command.__doc__] == []
    assert not re.search(r"\|\s*\|\s*$", generate.cli_page().replace("| | |\n", ""), re.MULTILINE)


def test_every_option_of_a_command_has_its_name_in_the_reference() -> None:
    page = generate.cli_page()
    assert "| `--retain-max` `N` |" in page
    assert set(re.findall(r"^\| `([A-Z.]+)` \|", page, re.MULTILINE)).isdisjoint({"N", "TIME"})


def test_every_error_says_what_to_do() -> None:
    page = generate.errors_page()
    assert [error.__name__ for error in generate.error_classes() if f"`{error.__name__}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(generate.ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_command_that_a_page_names_is_there() -> None:
    known = {word for name, _ in generate.commands() for word in name.split()[:1]}
    pages = [page for page in PAGES if "decisions" not in page.parts]
    named = {
        (page.name, word)
        for page in pages
        for quoted in re.findall(r"`merganser\s+([^`]*)`", page.read_text())
        for word in re.findall(r"^[a-z][a-z-]*", quoted)
    }
    assert len(named) > 20
    assert sorted((page, word) for page, word in named if word not in known) == []


def test_every_decision_is_listed() -> None:
    directory = generate.DOCS / "decisions"
    listed = (directory / "README.md").read_text()
    assert [path.name for path in sorted(directory.glob("0*.md")) if path.name not in listed] == []
