"""How a case ended, and the two ways to end it early."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from merganser.errors import InvariantError, MerganserError, UnsupportedError

Status = Literal["passed", "failed", "skipped", "different"]


class Skip(Exception):  # noqa: N818 - not an error
    """The case cannot be judged; its text is the reason, by which the report groups."""


class Failure(Exception):  # noqa: N818 - not an error
    """The case is wrong; its text says what was expected and what came."""


def not_built(feature: str) -> Skip:
    """Return the skip of something that merganser does not have yet."""
    return Skip(f"not built yet: {feature}")


def method(owner: Any, name: str, label: str | None = None) -> Any:
    """Return an attribute of a public object.

    Raises:
        Skip: this version of merganser does not have it.
    """
    if not hasattr(owner, name):
        raise not_built(label or f"{type(owner).__name__}.{name}")
    return getattr(owner, name)


def unsupported(error: UnsupportedError) -> Skip:
    """Return the skip of a refusal that names a feature this version does not do."""
    features = error.context.get("features")
    if features:
        return not_built(" and ".join(str(feature) for feature in features))
    option = error.context.get("option")
    return not_built(f"option {option}" if option else str(error).partition(". ")[0])


def is_refusal(error: MerganserError) -> bool:
    """Return whether an error can be what a case expects: a bug that merganser found in itself cannot."""
    return not isinstance(error, InvariantError)


def described(error: BaseException) -> str:
    """Return an error as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"


@dataclass
class Result:
    """How one case ended.

    Attributes:
        reason: of a skip, or of a chosen difference.
        problems: of a failure; each may have several lines.
        notes: for -v, such as an order between keys that is not what was written down.
    """

    file: str
    name: str
    status: Status
    reason: str = ""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
