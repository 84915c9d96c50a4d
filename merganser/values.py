"""Dataclasses that are made quickly; see decision 93.

The standard library compiles up to eight functions for a dataclass, in 0.3 to 0.5 ms. Hundreds of classes make that a
third of what a command or a process of Spark does before its work. Here only `__init__` is compiled; the other methods
are closures over the names of the fields. They do what those of the standard library do.

From Python 3.13 on, `dataclass` is that of the standard library: its behavior still changes there, and a copy would
have to follow. When merganser no longer supports Python 3.12, this module goes away.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING or sys.version_info >= (3, 13):
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True, repr=True):
        """Make a class a dataclass, as the decorator of the standard library does."""

        def made(kind):
            return _made(kind, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq, repr_=repr)

        return made if cls is None else made(cls)


__all__ = ["dataclass"]

_set: Final = object.__setattr__


def _made(cls: type, *, frozen: bool, slots: bool, kw_only: bool, eq: bool, repr_: bool) -> type:
    own = set(cls.__dict__)
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # else the standard library makes a text of the signature, which takes long
    # That of the standard library checks the bases; where there are none, `frozen` only costs time.
    inherits = frozen and any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:])
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=inherits, slots=slots, kw_only=kw_only)(cls)
    params = cls.__dataclass_params__  # type: ignore[attr-defined]
    params.init, params.repr, params.eq, params.frozen = True, repr_, eq, frozen
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    _add(cls, own, _init(cls, fields, frozen=frozen))
    if repr_:
        _add(cls, own, _repr([field.name for field in fields if field.repr]))
    if eq:
        compared = _values([field.name for field in fields if field.compare])
        _add(cls, own, _eq(compared))
        if cls.__dict__.get("__hash__") is None and ("__hash__" not in own or "__eq__" in own):
            _replace(cls, "__hash__", _hash(compared) if frozen else None)
    if frozen:
        for method in _frozen(cls, frozenset(field.name for field in fields)):
            _replace(cls, method.__name__, method)
        if slots:
            names = tuple(field.name for field in fields)
            _add(cls, own, _getstate(names))
            _add(cls, own, _setstate(names))
    return cls


def _add(cls: type, own: set[str], method: Callable[..., Any]) -> None:
    """Give a class a method, unless it defines it."""
    if method.__name__ not in own:
        _replace(cls, method.__name__, method)


def _replace(cls: type, name: str, method: Callable[..., Any] | None) -> None:
    if method is not None:
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        method.__module__ = cls.__module__
    setattr(cls, name, method)


def _init(cls: type, fields: tuple[dataclasses.Field[Any], ...], *, frozen: bool) -> Callable[..., Any]:
    """Compile `__init__`. It takes fields in their order, those that are only named last."""
    names: dict[str, Any] = {"_set": _set, "_missing": _MISSING}
    plain: list[str] = []
    named: list[str] = []
    lines: list[str] = []
    annotations: dict[str, Any] = {}
    for field in fields:
        name = value = field.name
        if field.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}()" if not field.init else f"_make_{name}() if {name} is _missing else {name}"
            default = "=_missing"
        elif field.default is not dataclasses.MISSING:
            names[f"_value_{name}"] = field.default
            default = f"=_value_{name}"
            if not field.init:
                value = f"_value_{name}"
        elif not field.init:
            continue
        else:
            default = ""
        if field.init:
            (named if field.kw_only else plain).append(name + default)
            annotations[name] = field.type
        lines.append(f"_set(self,{name!r},{value})" if frozen else f"self.{name}={value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    arguments = ",".join(["self", *plain, *(["*", *named] if named else [])])
    body = "\n  ".join(lines) or "pass"
    text = f"def _made({','.join(names)}):\n def __init__({arguments}):\n  {body}\n return __init__"
    found: dict[str, Any] = {}
    exec(text, sys.modules[cls.__module__].__dict__, found)  # there, so that its types can be looked up
    init: Callable[..., Any] = found["_made"](**names)
    init.__annotations__ = {**annotations, "return": None}
    return init


class _Missing:
    """The default of a field that is made for each object."""

    def __repr__(self) -> str:
        return "<factory>"


_MISSING: Final = _Missing()


def _values(names: list[str]) -> Callable[[Any], Any]:
    """Return what makes a tuple of the values of fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _eq(values: Callable[[Any], Any]) -> Callable[..., Any]:
    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], Any]) -> Callable[..., Any]:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _repr(names: list[str]) -> Callable[..., Any]:
    def __repr__(self: Any) -> str:  # noqa: N807
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return recursive_repr()(__repr__)


def _frozen(cls: type, names: frozenset[str]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the methods that refuse to set and delete fields."""

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)  # type: ignore[arg-type]  # it is made a class above

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)  # type: ignore[arg-type]

    return __setattr__, __delattr__


def _getstate(names: tuple[str, ...]) -> Callable[..., Any]:
    """Return what pickles an object without a dict, whose attributes nothing else may set."""

    def __getstate__(self: Any) -> list[Any]:  # noqa: N807
        return [getattr(self, name) for name in names]

    return __getstate__


def _setstate(names: tuple[str, ...]) -> Callable[..., Any]:
    def __setstate__(self: Any, state: list[Any]) -> None:  # noqa: N807
        for name, value in zip(names, state, strict=True):
            _set(self, name, value)

    return __setstate__
