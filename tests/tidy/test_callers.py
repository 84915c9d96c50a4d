"""What is written is called: by the product, not by tests alone."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable

from . import layers
from .modules import modules, within


def names_of(parts: Iterable[ast.AST]) -> Counter[str]:
    """Return how often a piece of code mentions each name; imports count for nothing, and `a as b` under both."""
    found: Counter[str] = Counter()
    for part in parts:
        if isinstance(part, ast.Name):
            found[part.id] += 1
        elif isinstance(part, ast.Attribute):
            found[part.attr] += 1
        elif isinstance(part, ast.ImportFrom):
            found.update(alias.name for alias in part.names if alias.asname not in (None, alias.name))
    return found


def without_callers() -> set[str]:
    """Return the functions and classes of `CALLED` that are mentioned by nothing, or by such alone."""
    own = {
        f"{module.short}.{node.name}": (node.name, names_of(ast.walk(node)))
        for module in modules().values()
        if any(within(module.short, package) for package in layers.CALLED)
        for node in module.tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    mentions: Counter[str] = Counter()
    for module in modules().values():
        mentions.update(names_of(module.nodes))
    dead: set[str] = set()
    while True:
        found = {key for key, (name, inner) in own.items() if key not in dead and mentions[name] <= inner[name]}
        if not found:
            return dead
        dead |= found
        for key in found:
            mentions -= own[key][1]


def test_everything_has_a_caller() -> None:
    assert without_callers() == set(layers.WAITING)
