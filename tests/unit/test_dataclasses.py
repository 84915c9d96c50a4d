"""Dataclasses of ours do what those of the standard library do."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar, get_type_hints

import pytest

from merganser import values

OPTIONS = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "repr": False},
]


def _classes(make: Callable[..., Any], options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return dataclasses: with fields of every kind, a subclass, one field, none."""

    class Plain:
        """With fields of every kind."""

        kind: ClassVar[str] = "plain"
        first: int
        second: str = "b"
        third: list[int] = field(default_factory=list)
        hidden: int = field(default=3, compare=False, repr=False)
        own: tuple[int, ...] = field(default=(), init=False)
        last: int = field(default=0, kw_only=True)

        def __post_init__(self) -> None:
            object.__setattr__(self, "own", (self.first, self.first))

    first = make(**options)(Plain)

    class Wider(first):  # type: ignore[misc]
        more: float = 0.5

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

    class One:
        value: Any

    class Nothing:
        def __repr__(self) -> str:
            return "nothing"

    return first, make(**options)(Wider), make(**options)(One), make(**options)(Nothing)


OURS = [_classes(values.dataclass, options) for options in OPTIONS]
THEIRS = [_classes(dataclasses.dataclass, options) for options in OPTIONS]


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def _said(kinds: tuple[Any, Any, Any, Any]) -> list[Any]:
    """Return what can be seen of classes and their objects."""
    plain, wider, one, nothing = kinds
    made = [lambda: plain(first=1), lambda: plain(first=1, second="x", last=9), lambda: wider(first=1, more=2.0)]
    tried = [*made, lambda: plain(), lambda: plain(first=1, own=()), lambda: plain(1, "b", [], 3, 4), lambda: one(1)]
    found: list[Any] = [_outcome(lambda call=call: repr(call()).split(" object at ")[0]) for call in tried]  # type: ignore[misc]
    first, second, third = (call() for call in made)
    found += [
        first == made[0](),
        first == second,
        first == third,
        third == made[2](),
        one(value=[1]) == one(value=[1]),
        one(value=1) == 1,
    ]
    found += [one(value=float("nan")).value != 0, nothing() == nothing(), repr(nothing())]
    for thing in (one(value=7), plain(first=1), third, nothing()):
        hashed = _outcome(lambda thing=thing: hash(thing) == hash(copy.copy(thing)))  # type: ignore[misc]
        found.append(hashed)
        found.append(_outcome(lambda thing=thing: setattr(thing, dataclasses.fields(thing)[0].name, 1)))  # type: ignore[misc]
        with contextlib.suppress(Exception):  # with slots, that of the standard library raises another error
            thing.strange = 1
        found.append(hasattr(thing, "strange"))
        for name in [each.name for each in dataclasses.fields(thing)][:1]:
            found.append(_outcome(lambda thing=thing, name=name: delattr(thing, name)))  # type: ignore[misc]
    for kind in kinds:
        found.append(str(inspect.signature(kind)))
        found.append(get_type_hints(kind.__init__))
        found.append([f.name for f in dataclasses.fields(kind)])
        found += [kind.__match_args__, kind.__init__.__qualname__, kind.__init__.__module__]
    found += [hasattr(thing, "__dict__") for thing in (first, third, one(value=1), nothing())]
    found.append(dataclasses.asdict(dataclasses.replace(second, second="z")))
    return found


@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_they_do_what_those_of_the_standard_library_do(number: int) -> None:
    for ours, theirs in zip(_said(OURS[number]), _said(THEIRS[number]), strict=True):
        assert ours == theirs


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("base", [False, True])
def test_each_inherits_from_the_other(base: bool, frozen: bool) -> None:
    makers = (values.dataclass, dataclasses.dataclass)
    found = [
        _outcome(lambda below=below, above=above: _heir(below, above, base=base, frozen=frozen))  # type: ignore[misc]
        for below in makers
        for above in makers
    ]
    assert found == [found[-1]] * 4


def _heir(below: Callable[..., Any], above: Callable[..., Any], *, base: bool, frozen: bool) -> list[Any]:
    class Base:
        first: int = 1

    class Heir(below(frozen=base)(Base)):  # type: ignore[misc]
        second: int = 2

    made = above(frozen=frozen)(Heir)(3)
    found = [_outcome(lambda name=name: setattr(made, name, 4)) for name in ("first", "second", "third")]  # type: ignore[misc]
    return [*found, made == type(made)(3), repr(type(made).__dataclass_params__)]


@values.dataclass(frozen=True, slots=True)
class Kept:
    """An object that is pickled."""

    name: str
    things: dict[str, int] = field(default_factory=dict)


def test_a_frozen_object_without_a_dict_is_pickled_and_copied() -> None:
    one = Kept("a", {"b": 1})
    for other in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
        assert other == one
        assert other.things == {"b": 1}
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
            other.name = "b"
    assert Kept("a").things is not Kept("a").things


def test_an_object_that_holds_itself_has_a_text() -> None:
    one = Kept("a")
    one.things["self"] = one  # type: ignore[assignment]
    assert repr(one) == "Kept(name='a', things={'self': ...})"


def test_types_are_looked_up_in_the_module_of_the_class() -> None:
    assert get_type_hints(Kept.__init__) == {"name": str, "things": dict[str, int], "return": type(None)}
    assert sys.modules[Kept.__init__.__module__] is sys.modules[__name__]
