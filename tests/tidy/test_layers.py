"""Imports point down, stand at the top, and reach every module; effects come in through one door."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from . import layers
from .modules import Import, Module, last_name, modules, within

ALL = list(modules().values())
INSIDE = [module for module in ALL if module.short]
_LAST_OF_EFFECTS = {effect.split(".")[-1] for effect in layers.EFFECTS}


def rank(short: str) -> tuple[int, str] | None:
    """Return the height and the name of a module's layer."""
    fitting = [(name, i) for i, group in enumerate(layers.LAYERS) for name in group if within(short, name)]
    if not fitting:
        return None
    name, height = max(fitting, key=lambda item: len(item[0]))
    return height, name


def ours(module: Module) -> Iterator[tuple[Import, str]]:
    """Yield the imports of modules of ours, with their short names; the package itself holds the version only."""
    for found in module.imports:
        if within(found.target, "merganser") and found.target != "merganser":
            yield found, found.target.removeprefix("merganser.")


@pytest.mark.parametrize("module", INSIDE, ids=lambda m: m.short)
def test_every_module_has_a_layer(module: Module) -> None:
    assert rank(module.short) is not None, "name it in tests/tidy/layers.py"


@pytest.mark.parametrize("module", INSIDE, ids=lambda m: m.short)
def test_imports_point_down(module: Module) -> None:
    mine = rank(module.short)
    assert mine is not None
    wrong = []
    for found, target in ours(module):
        theirs = rank(target)
        below = theirs is not None and (theirs[0] < mine[0] or theirs == mine)
        if not below:
            wrong.append(f"line {found.line}: '{mine[1]}' may not import '{target}'")
    assert wrong == []


@pytest.mark.parametrize("package", layers.INNER_LAYERS)
def test_imports_point_down_inside_a_package(package: str) -> None:
    heights = {name: height for height, group in enumerate(layers.INNER_LAYERS[package]) for name in group}
    inside = [module for module in INSIDE if within(module.short, package) and module.short != package]
    assert sorted(heights) == sorted(module.short.removeprefix(package + ".") for module in inside)
    wrong = []
    for module in inside:
        mine = module.short.removeprefix(package + ".")
        for found, target in ours(module):
            theirs = target.removeprefix(package + ".")
            if within(target, package) and heights[theirs] >= heights[mine]:
                wrong.append(f"{mine}, line {found.line}: may not import '{theirs}'")
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {m.name: {f.target for f, _ in ours(m) if not f.typing_only and not f.inside} for m in INSIDE}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for target in sorted(graph.get(name, ())):
                visit(target, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("module", INSIDE, ids=lambda m: m.short)
def test_imports_stand_at_the_top(module: Module) -> None:
    if any(within(module.short, name) for name in layers.IMPORTS_IN_FUNCTIONS):
        return
    assert [f"line {found.line}: {found.target}" for found in module.imports if found.inside] == []


def test_every_module_is_reached() -> None:
    reached: set[str] = set()
    waiting = [name for name in modules() if name in layers.ROOTS]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in modules():
            continue
        reached.add(name)
        waiting += [f"merganser.{target}" for _, target in ours(modules()[name])]
    packages = {m.name for m in ALL if m.path.name == "__init__.py"}
    assert sorted(set(modules()) - reached - packages) == []


def test_every_name_of_the_lists_still_exists() -> None:
    lists = (
        layers.IMPORTS_IN_FUNCTIONS,
        layers.PYSPARK,
        layers.SNAPSHOTS_MADE,
        layers.EFFECTS_ALLOWED,
        [n for group in layers.LAYERS for n in group],
    )
    missing = [name for names in lists for name in names if not any(within(m.short, name) for m in INSIDE)]
    assert missing == []


@pytest.mark.parametrize("module", INSIDE, ids=lambda m: m.short)
def test_effects_come_in_through_storage(module: Module) -> None:
    if any(within(module.short, name) for name in layers.EFFECTS_ALLOWED):
        return
    calls = [node for node in module.nodes if isinstance(node, ast.Call)]
    assert [f"line {call.lineno}: {ast.unparse(call.func)}" for call in calls if _is_effect(call.func)] == []


def test_snapshots_are_made_by_the_commit_alone() -> None:
    calls = [(m.short, node.func) for m in INSIDE for node in m.nodes if isinstance(node, ast.Call)]
    makers = {short for short, function in calls if last_name(function) == "Snapshot"}
    assert makers == set(layers.SNAPSHOTS_MADE)


def _is_effect(function: ast.expr) -> bool:
    """Return whether a call is banned: by its whole name, or by the end of it (`datetime.datetime.now`)."""
    if last_name(function) not in _LAST_OF_EFFECTS:  # most calls, without their text
        return False
    name = ast.unparse(function)
    if "env" in name.split("."):  # that is the door
        return False
    return name in layers.EFFECTS or any("." in effect and name.endswith("." + effect) for effect in layers.EFFECTS)


def test_only_the_spark_face_imports_pyspark() -> None:
    wrong = [
        f"{module.short}, line {found.line}"
        for module in INSIDE
        for found in module.imports
        if within(found.target, "pyspark")
        and not found.typing_only
        and not any(within(module.short, name) for name in layers.PYSPARK)
    ]
    assert wrong == []
