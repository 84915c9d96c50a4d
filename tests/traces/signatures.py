"""The public surface as text: what each name of `merganser` and `merganser.spark` is, and what it takes and returns."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType
from typing import Any

import merganser
import merganser.spark


def signatures() -> str:
    """Return one line for each public function, class, method and attribute."""
    seen: set[int] = set()
    return "".join(f"{line}\n" for module in (merganser, merganser.spark) for line in _of_module(module, seen))


def _of_module(module: ModuleType, seen: set[int]) -> Iterator[str]:
    seen.add(id(module))
    for name in sorted(getattr(module, "__all__", None) or _own(module)):
        found = getattr(module, name)
        if isinstance(found, ModuleType):
            if id(found) not in seen:
                yield from _of_module(found, seen)
        elif inspect.isclass(found):
            yield from _of_class(found, f"{module.__name__}.{name}")
        elif inspect.isroutine(found):
            yield f"{module.__name__}.{name}{inspect.signature(found)}"
        elif not name.startswith("__"):
            yield f"{module.__name__}.{name}: {type(found).__name__}"


def _own(module: ModuleType) -> list[str]:
    return [
        name
        for name, found in vars(module).items()
        if not name.startswith("_") and getattr(found, "__module__", None) == module.__name__
    ]


def _of_class(kind: type, name: str) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in kind.__bases__ if base.__module__.startswith("merganser"))
    yield f"{name}({bases})"
    fields = getattr(kind, "__dataclass_fields__", {})
    for member in sorted({*dir(kind), *fields}):
        if member.startswith("_") and member not in ("__call__", "__enter__", "__iter__", "__len__"):
            continue
        if not any(member in vars(one) for one in kind.__mro__ if one.__module__.startswith("merganser")):
            if member in fields and kind.__module__.startswith("merganser"):
                yield f"{name}.{member}: {fields[member].type}"
            continue
        yield f"{name}.{member}{_shown(inspect.getattr_static(kind, member), fields.get(member))}"


def _shown(member: Any, field: Any) -> str:
    if field is not None:
        return f": {field.type}"
    if isinstance(member, staticmethod | classmethod):
        return f" [{type(member).__name__}] {inspect.signature(member.__func__)}"
    if inspect.isfunction(member):
        return str(inspect.signature(member))
    return ": property" if isinstance(member, property | cached_property) else f": {type(member).__name__}"
