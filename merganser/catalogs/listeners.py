"""Listeners: code that is told when a table is created or dropped, such as one that keeps a topic beside each table.

A listener is an object with the two methods of `TableListener`. It is named by the catalog option `catalog.listeners`,
as `module:Class`, several with commas between; or a package names it in its entry point group
`merganser.table_listeners`, and then all catalogs have it. The log of tables (`merganser.log.topics`) is one.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from merganser.errors import CommitUnknownError, InvalidInputError
from merganser.options import write as w
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env

GROUP: Final = "merganser.table_listeners"


class TableListener(Protocol):
    """What a listener does."""

    def creating(self, name: str, schema: TableSchema, options: Mapping[str, str]) -> Mapping[str, str] | None:
        """A table is about to be created: do what goes with it, and return options to add or to replace.

        To refuse the table, raise an error; there is no table then, and listeners that agreed get `dropping`.

        Args:
            name: `database.table`.
            options: those of the table so far.
        """

    def dropping(self, name: str, schema: TableSchema, options: Mapping[str, str]) -> None:
        """A table is about to be dropped, or was not created after all: undo what `creating` did.

        If this raises an error, the table stays. It may be called again, and must then change nothing more.
        """


def listeners_of(names: str | None, env: Env, warehouse: str) -> list[TableListener]:
    """Return the listeners of a catalog.

    Args:
        names: the text of the option; None: there is none.

    Raises:
        InvalidInputError: one cannot be imported.
    """
    found: list[TableListener] = []
    for name in filter(None, (part.strip() for part in (names or "").split(","))):
        found.append(_made(name))
    found += [point.load()() for point in entry_points(group=GROUP)]
    return [*found, _Log(warehouse)]


def _made(name: str) -> TableListener:
    module, colon, attribute = name.partition(":")
    try:
        if not colon:
            raise ValueError("it has no ':'")
        made: TableListener = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"cannot load the listener '{name}' of 'catalog.listeners': {error}. Nothing was changed. Write it as "
            "module:Class, with a class that takes no arguments.",
            option="catalog.listeners",
        ) from error
    return made


class _Log:
    """The listener that keeps a topic beside each table with a log."""

    def __init__(self, warehouse: str) -> None:
        self._warehouse = warehouse

    def creating(self, name: str, schema: TableSchema, options: Mapping[str, str]) -> Mapping[str, str] | None:
        return (
            None
            if schema.options.get(w.LOG_SYSTEM) == "none"
            else self._topics().created(name, schema, self._warehouse)
        )

    def dropping(self, name: str, schema: TableSchema, options: Mapping[str, str]) -> None:
        if schema.options.get(w.LOG_SYSTEM) != "none":
            self._topics().dropped(name, schema)

    def _topics(self) -> Any:
        return importlib.import_module("merganser.log.topics")


@contextmanager
def announced(listeners: Sequence[TableListener], name: str, schema: TableSchema) -> Iterator[TableSchema]:
    """Tell listeners of a table that is created inside of the block, which gets the schema with their options.

    After an error in the block there is no table, and they are told so; not if nobody knows whether there is one.
    """
    told: list[TableListener] = []
    try:
        for listener in listeners:
            more = listener.creating(name, schema, dict(schema.options))
            told.append(listener)
            if more:
                schema = replace(schema, options=schema.options.merged(dict(more)))
        yield schema
    except CommitUnknownError:
        raise
    except BaseException:
        for listener in reversed(told):
            listener.dropping(name, schema, dict(schema.options))
        raise
