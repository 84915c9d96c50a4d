"""Views and functions that the server of a REST catalog holds.

The protocol has no request that replaces one. So a replacement is a drop and a creation, between which others see
nothing of that name; if the creation fails, the old one is created again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from merganser.catalogs.definitions import Function, View, change_to_json, function_of, view_of
from merganser.catalogs.names import TableName
from merganser.catalogs.rest_client import RestClient
from merganser.errors import CommitUnknownError, MerganserError, NotFoundError, StorageError, UnsupportedError
from merganser.values import dataclass

T = TypeVar("T", View, Function)


@dataclass(frozen=True)
class RestDefinitions:
    """Views and functions of a server; see `Definitions`."""

    client: RestClient

    # views

    def views(self, database: str) -> list[str]:
        """Return the names of the views of a database, in order."""
        return self._listed(database, "views")

    def view(self, name: TableName) -> View | None:
        """Return a view; None: there is none."""
        found = self._found(name, "views")
        return None if found is None else view_of(str(name), found.get("schema") or {})

    def create_view(self, view: View) -> None:
        """Create a view."""
        database, _, own = view.name.partition(".")
        body = {"identifier": {"database": database, "object": own}, "schema": view.to_json()}
        self._create("view", view, TableName(database, own), self.view, "views", body)

    def replace_view(self, view: View) -> None:
        """Drop a view, and create it again."""
        self._replace(view, self.view, self.drop_view, self.create_view)

    def alter_view(self, name: TableName, changes: Sequence[Any]) -> None:
        """Make changes."""
        body = {"changes": [change_to_json(each, of_view=True) for each in changes]}
        self.client.post("databases", name.database, "views", name.table, body=body)

    def drop_view(self, name: TableName) -> bool:
        """Remove a view."""
        return self._drop(name, "views")

    def rename_view(self, old: TableName, new: TableName) -> None:
        """Rename a view."""
        names = {
            "source": {"database": old.database, "object": old.table},
            "destination": {"database": new.database, "object": new.table},
        }
        self.client.post("views", "rename", body=names)

    # functions

    def functions(self, database: str) -> list[str]:
        """Return the names of the functions of a database, in order."""
        return self._listed(database, "functions")

    def function(self, name: TableName) -> Function | None:
        """Return a function; None: there is none."""
        found = self._found(name, "functions")
        return None if found is None else function_of(str(name), found)

    def create_function(self, function: Function) -> None:
        """Create a function."""
        database, _, own = function.name.partition(".")
        name = TableName(database, own)
        self._create("function", function, name, self.function, "functions", function.to_json())

    def replace_function(self, function: Function) -> None:
        """Drop a function, and create it again."""
        self._replace(function, self.function, self.drop_function, self.create_function)

    def alter_function(self, name: TableName, changes: Sequence[Any]) -> None:
        """Make changes."""
        body = {"changes": [change_to_json(each, of_view=False) for each in changes]}
        self.client.post("databases", name.database, "functions", name.table, body=body)

    def drop_function(self, name: TableName) -> bool:
        """Remove a function."""
        return self._drop(name, "functions")

    # inside

    def _listed(self, database: str, kind: str) -> list[str]:
        try:
            return self.client.pages(kind, "databases", database, kind)
        except UnsupportedError:
            return []  # a server that holds none

    def _found(self, name: TableName, kind: str) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = self.client.get("databases", name.database, kind, name.table)
        except (NotFoundError, UnsupportedError):
            return None
        return found

    def _create(
        self, what: str, value: T, name: TableName, read: Callable[[TableName], T | None], kind: str, body: Any
    ) -> None:
        try:
            self.client.post("databases", name.database, kind, body=body)
        except StorageError as error:
            if error.context.get("changed") is False:
                raise
            if read(name) != value:  # the reply is lost, and it may still be made
                raise CommitUnknownError(
                    f"cannot tell whether {what} '{name}' was created: {error.message}", **{what: str(name)}
                ) from error

    def _replace(
        self,
        value: T,
        read: Callable[[TableName], T | None],
        drop: Callable[[TableName], bool],
        create: Callable[[T], None],
    ) -> None:
        database, _, own = value.name.partition(".")
        name = TableName(database, own)
        old = read(name)
        drop(name)
        try:
            create(value)
        except MerganserError:
            if old is not None and read(name) is None:
                create(old)
            raise

    def _drop(self, name: TableName, kind: str) -> bool:
        try:
            self.client.delete("databases", name.database, kind, name.table)
        except NotFoundError:
            return False
        return True
