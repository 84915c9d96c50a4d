"""Views and functions that a catalog holds, as values, and as the JSON that the format has for them.

A view is a query with the columns that it gives. A function has parameters, and a definition per dialect: SQL text, or
something that merganser keeps and does not run. Both may have the same thing in other dialects for other engines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from merganser import changes as c
from merganser.errors import AlreadyExistsError, FormatError, InvalidInputError, NotFoundError, a_type
from merganser.schema import types as t
from merganser.schema.types_text import field_from_json, field_to_json
from merganser.values import dataclass

SPARK: Final = "spark"
"""The dialect that merganser reads, and writes beside the query itself."""
SQL: Final = "sql"
"""The type of a definition that is text of SQL."""

Definition = Mapping[str, Any]
"""A definition of a function as the format has it: `type`, and what the type needs."""


@dataclass(frozen=True, slots=True)
class View:
    """A view that a catalog holds.

    Attributes:
        name: `database.view`.
        fields: the columns that it gives.
        query: its text.
        dialects: the query in the SQL of other engines, by their names.
        comment: a description.
        options: properties, for people and other engines.
    """

    name: str
    fields: tuple[t.Field, ...]
    query: str
    dialects: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def database(self) -> str:
        """The database of the view, in which names of its query are looked up."""
        return self.name.partition(".")[0]

    @property
    def sql(self) -> str:
        """The query that merganser runs: that of the dialect `spark`, if there is one."""
        return self.dialects.get(SPARK, self.query)

    def to_json(self) -> dict[str, Any]:
        """Return the view as the format has it, without its name."""
        comment = {} if self.comment is None else {"comment": self.comment}
        return {
            "fields": [field_to_json(each) for each in self.fields],
            "query": self.query,
            "dialects": dict(self.dialects),
            **comment,
            "options": dict(self.options),
        }

    def altered(self, changes: Iterable[Any]) -> View:
        """Return the view after changes of `merganser.changes`.

        Raises:
            AlreadyExistsError, NotFoundError: a dialect is there already, or is not.
            InvalidInputError: a change is none of a view.
        """
        made = self
        for each in changes:
            match each:
                case c.AddDialect() | c.SetDialect() | c.DropDialect():
                    made = replace(made, dialects=_changed(made.dialects, each, self.name, "dialect", _text_of))
                case _:
                    made = replace(made, **_described(made, each, "view"))
        return made


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a catalog holds.

    Attributes:
        name: `database.function`.
        inputs: its parameters; None: it does not say them.
        returns: what it returns, one field; None: it does not say it.
        deterministic: whether equal arguments give equal results.
        definitions: what it does, by dialect.
        comment: a description.
        options: properties, for people and other engines.
    """

    name: str
    inputs: tuple[t.Field, ...] | None
    returns: tuple[t.Field, ...] | None
    definitions: Mapping[str, Definition] = field(default_factory=dict)
    deterministic: bool = True
    comment: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def database(self) -> str:
        """The database of the function, in which names of its expression are looked up."""
        return self.name.partition(".")[0]

    @property
    def sql(self) -> str | None:
        """The expression that merganser computes; None: it has no definition in the SQL of Spark."""
        found = self.definitions.get(SPARK)
        if found is None and len(self.definitions) == 1:
            found = next(iter(self.definitions.values()))
        return None if found is None or found.get("type") != SQL else str(found.get("definition"))

    def to_json(self) -> dict[str, Any]:
        """Return the function as the format has it, with its name in the database."""
        return {
            "name": self.name.partition(".")[2],
            "inputParams": None if self.inputs is None else [field_to_json(each) for each in self.inputs],
            "returnParams": None if self.returns is None else [field_to_json(each) for each in self.returns],
            "deterministic": self.deterministic,
            "definitions": {name: dict(each) for name, each in self.definitions.items()},
            "comment": self.comment,
            "options": dict(self.options),
        }

    def altered(self, changes: Iterable[Any]) -> Function:
        """Return the function after changes of `merganser.changes`.

        Raises:
            AlreadyExistsError, NotFoundError: a definition is there already, or is not.
            InvalidInputError: a change is none of a function.
        """
        made = self
        for each in changes:
            match each:
                case c.AddDialect() | c.SetDialect() | c.DropDialect():
                    found = _changed(made.definitions, each, self.name, "definition", definition_of)
                    made = replace(made, definitions=found)
                case _:
                    made = replace(made, **_described(made, each, "function"))
        return made


def _changed(known: Mapping[str, Any], change: Any, name: str, what: str, read: Any) -> dict[str, Any]:
    """Return what there is by dialect, after a change."""
    made, dialect = dict(known), change.dialect
    if isinstance(change, c.AddDialect) == (dialect in made):
        kind: Any = AlreadyExistsError if dialect in made else NotFoundError
        told = "already has" if dialect in made else "does not have"
        raise kind(f"cannot alter '{name}': it {told} the {what} '{dialect}'. Nothing was changed.", **{what: dialect})
    if isinstance(change, c.DropDialect):
        del made[dialect]
    else:
        made[dialect] = read(change.definition, name)
    return made


def _text_of(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(f"cannot alter '{name}': a query is text, not {a_type(value)}. Nothing was changed.")
    return value


def definition_of(value: Any, name: str) -> Definition:
    """Return a definition of a function: text is that of SQL.

    Raises:
        InvalidInputError: it is none.
    """
    if isinstance(value, str):
        return {"type": SQL, "definition": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise InvalidInputError(
            f"a definition of '{name}' is {value!r:.100}. Give text of SQL, or a dict with 'type' as the format has "
            "it. Nothing was changed."
        )
    return dict(value)


def _described(value: View | Function, change: Any, what: str) -> dict[str, Any]:
    match change:
        case c.SetOption():
            return {"options": {**value.options, change.key: str(change.value)}}
        case c.RemoveOption():
            return {"options": {key: text for key, text in value.options.items() if key != change.key}}
        case c.SetComment():
            return {"comment": change.text}
    raise InvalidInputError(
        f"cannot alter '{value.name}' by {change!r:.100}: it is a {what}. Nothing was changed. Its options, its "
        "comment and its dialects can be altered; replace it to change the rest."
    )


def name_of_view(name: object) -> AlreadyExistsError:
    """Return the error about a table that wants the name of a view."""
    return AlreadyExistsError(
        f"no table can be called '{name}': there is a view '{name}', and tables and views share their names. Nothing "
        f"was changed. Choose another name, or drop the view: catalog.drop_view('{name}').",
        view=str(name),
    )


def view_of(name: str, value: Mapping[str, Any] | str) -> View:
    """Return a view of its JSON.

    Raises:
        FormatError: it is none.
    """
    found = _object(name, value)
    try:
        return View(
            name,
            tuple(field_from_json(each) for each in found["fields"]),
            _text(found["query"]),
            _texts(found.get("dialects")),
            found.get("comment"),
            _texts(found.get("options")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"cannot read the view '{name}': {found!r:.200} is none: {error!r}.") from error


def function_of(name: str, value: Mapping[str, Any] | str) -> Function:
    """Return a function of its JSON.

    Raises:
        FormatError: it is none.
    """
    found = _object(name, value)
    try:
        return Function(
            name,
            _fields(found.get("inputParams")),
            _fields(found.get("returnParams")),
            {str(key): dict(each) for key, each in (found.get("definitions") or {}).items()},
            bool(found.get("deterministic")),
            found.get("comment"),
            _texts(found.get("options")),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"cannot read the function '{name}': {found!r:.200} is none: {error!r}.") from error


def _object(name: str, value: Mapping[str, Any] | str) -> Mapping[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise FormatError(f"cannot read the definition of '{name}': it is not JSON: {error}.") from error
    if not isinstance(found, Mapping):
        raise FormatError(f"cannot read the definition of '{name}': {found!r:.200} is no object.")
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.100} is not text")
    return value


def _texts(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in (value or {}).items() if text is not None}


def _fields(value: Sequence[Any] | None) -> tuple[t.Field, ...] | None:
    return None if value is None else tuple(field_from_json(each) for each in value)


# changes as the protocol of REST catalogs has them

_WORDS: Final[Mapping[bool, tuple[str, str, str]]] = {
    True: ("dialect", "query", "Dialect"),
    False: ("name", "definition", "Definition"),
}
"""For views and for functions: the keys of name and text, and the last word of an action."""


def change_to_json(change: Any, *, of_view: bool) -> dict[str, Any]:
    """Return a change as the protocol has it."""
    name, text, word = _WORDS[of_view]
    match change:
        case c.SetOption():
            return {"action": "setOption", "key": change.key, "value": str(change.value)}
        case c.RemoveOption():
            return {"action": "removeOption", "key": change.key}
        case c.SetComment():
            return {"action": "updateComment", "comment": change.text}
        case c.DropDialect():
            return {"action": f"drop{word}", name: change.dialect}
    verb = "add" if isinstance(change, c.AddDialect) else "update"
    given = change.definition if of_view else definition_of(change.definition, change.dialect)
    return {"action": f"{verb}{word}", name: change.dialect, text: given}


def change_of(value: Any, *, of_view: bool) -> Any:
    """Return a change of its JSON.

    Raises:
        InvalidInputError: it is none.
    """
    name, text, word = _WORDS[of_view]
    try:
        match value["action"]:
            case "setOption":
                return c.SetOption(_text(value["key"]), _text(value["value"]))
            case "removeOption":
                return c.RemoveOption(_text(value["key"]))
            case "updateComment":
                return c.SetComment(value.get("comment"))
            case action if action == f"add{word}":
                return c.AddDialect(_text(value[name]), value[text])
            case action if action == f"update{word}":
                return c.SetDialect(_text(value[name]), value[text])
            case action if action == f"drop{word}":
                return c.DropDialect(_text(value[name]))
    except (KeyError, TypeError) as error:
        raise InvalidInputError(
            f"the change {json.dumps(value):.200} is none: {error!r}. Nothing was changed."
        ) from error
    raise InvalidInputError(f"the change {json.dumps(value):.200} is none. Nothing was changed.")
