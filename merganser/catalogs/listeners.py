"""Listeners for the creation and the drop of tables, for example one that keeps a topic for each table.

A listener is an object with the two methods of `TableListener`. It is named by the catalog option `catalog.listeners`,
as `module:Class`, several with commas between; or a package names it in its entry point group
`merganser.table_listeners`, and then all catalogs have it. The log of tables (`merganser.log.topics`) is one.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from typing import Any, Final, Protocol

from merganser.errors import CommitUnknownError, InvalidInputError
from merganser.options import write as w
from merganser.schema.table_schema import TableSchema

GROUP: Final = "merganser.table_listeners"


class TableListener(Protocol):
    """What a listener does."""

    def creating(self, name: str, schema: TableSchema, options: Mapping[str, str]) -> Mapping[str, str] | None:
        """Called before a table is created. Return options to add or to replace, or None.

        Raise an error to refuse the table. Listeners that were called before then get `dropping`.

        Args:
            name: `database.table`.
            options: options of the table so far.
        """

    def dropping(self, name: str, schema: TableSchema, options: Mapping[str, str]) -> None:
        """Called before a table is dropped, and if its creation failed: undo what `creating` did.

        The table is kept if this raises an error. It must be idempotent.
        """

    def renaming(self, name: str, new_name: str, schema: TableSchema, options: Mapping[str, str]) -> None:
        """Called before a table is renamed, and with the names exchanged if that failed. A listener may lack it.

        The table keeps its name if this raises an error. It must be idempotent.
        """


def listeners_of(
    names: str | None, warehouse: str, client: Mapping[str, str], *, takes_topics: bool = False
) -> list[TableListener]:
    """Return the listeners of a catalog.

    Args:
        names: value of the option. None if it is not set.
        client: options of the catalog for the client of the log.
        takes_topics: whether a topic that a new table names is there already.

    Raises:
        InvalidInputError: one cannot be imported, or lacks a method.
    """
    found: list[TableListener] = []
    for name in filter(None, (part.strip() for part in (names or "").split(","))):
        found.append(_checked(_made(name), f"the listener '{name}' of 'catalog.listeners'"))
    for point in _of_packages():
        found.append(_checked(point.load()(), f"the listener '{point.value}' of the entry point '{point.name}'"))
    return [*found, _Log(warehouse, client, takes_topics)]


@cache
def _of_packages() -> EntryPoints:
    """Return the entry points of installed packages. A process reads them once: it takes 6 ms with 150 packages."""
    return entry_points(group=GROUP)


def _checked(listener: TableListener, what: str) -> TableListener:
    for method in ("creating", "dropping"):
        if not callable(getattr(listener, method, None)):
            raise InvalidInputError(
                f"cannot use {what}: it has no method '{method}'. Nothing was changed. A listener has the methods "
                "creating(name, schema, options) and dropping(name, schema, options).",
                option="catalog.listeners",
            )
    return listener


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
    """Listener that creates and deletes the topic of each table with a log."""

    def __init__(self, warehouse: str, client: Mapping[str, str], takes_topics: bool) -> None:
        self._warehouse, self._client, self._takes_topics = warehouse, client, takes_topics

    def creating(self, name: str, schema: TableSchema, options: Mapping[str, str]) -> Mapping[str, str] | None:
        is_there = self._takes_topics and schema.options.get(w.KAFKA_TOPIC) is not None
        return (
            None
            if schema.options.get(w.LOG_SYSTEM) == "none" or is_there
            else self._topics().created(name, schema, self._warehouse, self._client)
        )

    def dropping(self, name: str, schema: TableSchema, options: Mapping[str, str]) -> None:
        if schema.options.get(w.LOG_SYSTEM) != "none":
            self._topics().dropped(name, schema, self._client)

    def renaming(self, name: str, new_name: str, schema: TableSchema, options: Mapping[str, str]) -> None:
        """The topic keeps its name, which the options of the table say."""

    def _topics(self) -> Any:
        return importlib.import_module("merganser.log.topics")


@contextmanager
def announced(listeners: Sequence[TableListener], name: str, schema: TableSchema) -> Iterator[TableSchema]:
    """Call listeners around the creation of a table in the block. Yields the schema with their options.

    After an error in the block they get `dropping`, unless the outcome is unknown.
    """
    told: list[TableListener] = []
    try:
        for listener in listeners:
            more = listener.creating(name, schema, dict(schema.options))
            told.append(listener)
            if more:
                from merganser.rules.create import with_options  # noqa: PLC0415 - rules of new tables alone

                what = f"cannot create '{name}' with the options of the listener {type(listener).__name__}"
                schema = with_options(schema, more, what=what)
        yield schema
    except CommitUnknownError:
        raise
    except BaseException:
        for listener in reversed(told):
            listener.dropping(name, schema, dict(schema.options))
        raise


@contextmanager
def announced_rename(
    listeners: Sequence[TableListener], name: str, new_name: str, schema: TableSchema
) -> Iterator[None]:
    """Call listeners around the renaming of a table in the block. After an error in it they get the names exchanged."""
    told: list[TableListener] = []
    try:
        for listener in listeners:
            if hasattr(listener, "renaming"):
                listener.renaming(name, new_name, schema, dict(schema.options))
                told.append(listener)
        yield
    except BaseException:
        for listener in reversed(told):
            listener.renaming(new_name, name, schema, dict(schema.options))
        raise
