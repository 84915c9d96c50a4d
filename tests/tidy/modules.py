"""The package as the tidy tests see it: modules with their syntax trees and imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "merganser"


@dataclass(frozen=True)
class Import:
    """One import of a module of ours or of others.

    Attributes:
        target: full module name; of `from a import b`, `a.b` when that is a module of ours, else `a`.
        line: where.
        inside: it stands in a function.
        typing_only: it stands under `if TYPE_CHECKING`.
    """

    target: str
    line: int
    inside: bool
    typing_only: bool


@dataclass(frozen=True)
class Module:
    """One source file: its name and its path."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree, parsed when a test asks for it: all processes collect these tests, and one runs them."""
        return ast.parse(self.path.read_text(), str(self.path))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree."""
        return tuple(ast.walk(self.tree))

    @property
    def short(self) -> str:
        """The name below the package; of the package itself, empty."""
        return self.name.removeprefix("merganser").removeprefix(".")

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """All imports of the file."""
        return tuple(_imports(self.tree, inside=False, typing_only=False))


def last_name(function: ast.expr) -> str:
    """Return the name that a called expression ends with, and an empty text if it ends with none."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


@cache
def modules() -> dict[str, Module]:
    """Return all modules of the package by name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ["merganser", *path.relative_to(ROOT).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path)
    return found


def within(short: str, prefix: str) -> bool:
    """Return whether a module is, or lies in, what a prefix names."""
    return short == prefix or short.startswith(prefix + ".")


def _imports(node: ast.AST, *, inside: bool, typing_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, inside, typing_only)
        elif isinstance(child, ast.ImportFrom):
            for alias in child.names:
                whole = f"{child.module}.{alias.name}"
                yield Import(whole if whole in modules() else child.module or "", child.lineno, inside, typing_only)
        else:
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            guarded = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from _imports(child, inside=inside or function, typing_only=typing_only or guarded)
