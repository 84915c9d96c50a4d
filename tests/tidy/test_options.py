"""What options say of themselves is true: the honoured have readers, the kept have none."""

from __future__ import annotations

import ast

from merganser.options import kept, read, upkeep, write
from merganser.options.option import ColumnOption, Option, State

from .modules import Module, modules, within

CONSTANTS = {
    name: value
    for module in (write, read, upkeep)
    for name, value in vars(module).items()
    if isinstance(value, Option | ColumnOption)
}
HOMES = ("options.write", "options.read", "options.upkeep")
CHECKS = ("rules.checks", "rules.merging", "rules.facts", "rules.gaps")
"""Modules that judge options, and do nothing with what they say."""
ANSWERS = {"sequence_groups": "SEQUENCE_GROUP", "target_file_size_bytes": "TARGET_FILE_SIZE"}
"""Functions of options/ that answer for an option: whoever calls them reads it."""


def read_by(module: Module) -> set[str]:
    """Return the constants of options that a module mentions."""
    names, homes = {}, set()
    for node in module.nodes:
        if not isinstance(node, ast.ImportFrom) or not within(node.module or "", "merganser.options"):
            continue
        for alias in node.names:
            if f"{node.module}.{alias.name}".removeprefix("merganser.") in HOMES:
                homes.add(alias.asname or alias.name)
            else:
                names[alias.asname or alias.name] = ANSWERS.get(alias.name, alias.name)
    found = set()
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in homes:
            found.add(ANSWERS.get(node.attr, node.attr))
        elif isinstance(node, ast.Name) and node.id in names:
            found.add(names[node.id])
    return found & CONSTANTS.keys()


def readers_outside(*places: str) -> set[str]:
    """Return the constants of options that modules outside these places mention."""
    chosen = [m for m in modules().values() if not any(within(m.short, place) for place in places)]
    return set().union(*(read_by(module) for module in chosen))


def test_honoured_options_are_read() -> None:
    honoured = {n for n, option in CONSTANTS.items() if getattr(option, "state", State.HONOURED) is State.HONOURED}
    assert sorted(honoured - readers_outside("options", *CHECKS)) == []


def test_kept_options_are_not_read() -> None:
    said = {name for name, option in CONSTANTS.items() if isinstance(option, Option) and option.state is State.KEPT}
    assert sorted(said & readers_outside("options", "rules")) == []
    keys = {option.key for option in kept.OPTIONS}
    texts = {
        node.value
        for module in modules().values()
        if not within(module.short, "options")
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert sorted(keys & texts) == []


def test_every_constant_has_a_reader() -> None:
    assert sorted(CONSTANTS.keys() - readers_outside("options")) == [], "move it to options/kept.py"


def test_options_without_a_constant_are_kept() -> None:
    assert [option.key for option in kept.OPTIONS if option.state is not State.KEPT or option.refused] == []
