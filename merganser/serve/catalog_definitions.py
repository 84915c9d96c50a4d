"""Views and functions of the service of the REST catalog. A catalog without them lists none, and refuses new ones."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from starlette.requests import Request

from merganser.catalogs.catalog import Catalog
from merganser.catalogs.definitions import Function, View, change_of, function_of, view_of
from merganser.errors import FormatError, InvalidInputError, NotFoundError
from merganser.serve import catalog_json as j
from merganser.values import dataclass

Body: TypeAlias = dict[str, Any]
Work = Callable[[Request, Body], Mapping[str, Any] | None]

_IDS: Final = uuid.UUID("0d6d51f0-3f0f-4a5c-8f4e-9d1f0f2f6a11")
"""Namespace of the ids of views and functions: no two have the same name in one catalog."""
_AUDIT: Final = {"owner": None, "createdAt": 0, "createdBy": None, "updatedAt": 0, "updatedBy": None}
"""Who owns, created and changed a view is stored nowhere."""


@dataclass(frozen=True)
class Kind:
    """Views or functions of a catalog.

    Attributes:
        name: "view" or "function".
        listed, found: return the names of a database, and one of them as JSON.
    """

    name: str
    listed: Callable[[str], Sequence[str]]
    found: Callable[[str], Mapping[str, Any]]
    databases: Callable[[], Sequence[str]]

    def reads(self) -> Iterator[tuple[str, Work]]:
        """Yield what can be read, by its path."""
        yield f"/v1/databases/{{database}}/{self.name}s", self._list
        yield f"/v1/databases/{{database}}/{self.name}-details", self._details
        yield f"/v1/{self.name}s", self._everywhere
        yield f"/v1/databases/{{database}}/{self.name}s/{{name}}", lambda request, _body: self.found(name_of(request))

    def _names(self, database: str, request: Request) -> list[str]:
        return j.like(request.query_params.get(f"{self.name}NamePattern"), self.listed(database))

    def _list(self, request: Request, _body: Body) -> Mapping[str, Any]:
        names = self._names(request.path_params["database"], request)
        return j.page(f"{self.name}s", names, request.query_params)

    def _details(self, request: Request, _body: Body) -> Mapping[str, Any]:
        database, key = request.path_params["database"], f"{self.name}Details"
        page = j.page(key, self._names(database, request), request.query_params)
        found = []
        for name in page[key]:
            try:
                found.append(self.found(f"{database}.{name}"))
            except NotFoundError:
                continue  # dropped since the list
        return {**page, key: found}

    def _everywhere(self, request: Request, _body: Body) -> Mapping[str, Any]:
        databases = j.like(request.query_params.get("databaseNamePattern"), self.databases())
        names = sorted(f"{database}.{name}" for database in databases for name in self._names(database, request))
        page = j.page(f"{self.name}s", names, request.query_params)
        parts = [name.partition(".") for name in page[f"{self.name}s"]]
        return {**page, f"{self.name}s": [{"database": database, "object": name} for database, _, name in parts]}


class DefinitionService:
    """What clients ask about views and functions.

    Args:
        catalog: that is served.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.kinds = (
            Kind("view", catalog.list_views, lambda name: _view_json(catalog.view(name)), catalog.list_databases),
            Kind(
                "function",
                catalog.list_functions,
                lambda name: _function_json(catalog.function(name)),
                catalog.list_databases,
            ),
        )

    def reads(self) -> dict[str, Work]:
        """Return what can be read, by its path."""
        return {path: work for kind in self.kinds for path, work in kind.reads()}

    def changes(self) -> dict[tuple[str, str], Work]:
        """Return what can be changed, by method and path."""
        views, functions = ("/v1/databases/{database}/views", "/v1/databases/{database}/functions")
        return {
            ("POST", views): self._create_view,
            ("POST", "/v1/views/rename"): self._rename_view,
            ("POST", f"{views}/{{name}}"): self._alter_view,
            ("DELETE", f"{views}/{{name}}"): lambda request, _body: self.catalog.drop_view(name_of(request)),
            ("POST", functions): self._create_function,
            ("POST", f"{functions}/{{name}}"): self._alter_function,
            ("DELETE", f"{functions}/{{name}}"): lambda request, _body: self.catalog.drop_function(name_of(request)),
        }

    def _create_view(self, request: Request, body: Body) -> None:
        name = j.identifier_of(body, "identifier")
        if name.partition(".")[0] != request.path_params["database"]:
            raise InvalidInputError(f"the path and the body name two databases: '{name}'. Nothing was changed.")
        view = _read(lambda: view_of(name, j.field_of(body, "schema", dict)))
        self.catalog.create_view(
            name, view.query, columns=view.fields, comment=view.comment, options=view.options, dialects=view.dialects
        )

    def _rename_view(self, _request: Request, body: Body) -> None:
        self.catalog.rename_view(j.identifier_of(body, "source"), j.identifier_of(body, "destination"))

    def _alter_view(self, request: Request, body: Body) -> None:
        changes = [change_of(each, of_view=True) for each in j.field_of(body, "changes", list)]
        self.catalog.alter_view(name_of(request), changes)

    def _create_function(self, request: Request, body: Body) -> None:
        name = f"{request.path_params['database']}.{j.field_of(body, 'name', str)}"
        function = _read(lambda: function_of(name, body))
        self.catalog.create_function(
            name,
            function.inputs,
            None if not function.returns else function.returns[0],
            function.definitions,
            comment=function.comment,
            options=function.options,
            deterministic=function.deterministic,
        )

    def _alter_function(self, request: Request, body: Body) -> None:
        changes = [change_of(each, of_view=False) for each in j.field_of(body, "changes", list)]
        self.catalog.alter_function(name_of(request), changes)


def name_of(request: Request) -> str:
    """Return `database.name` of a path."""
    return f"{request.path_params['database']}.{request.path_params['name']}"


def _read(parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except FormatError as error:
        raise InvalidInputError(f"the body has no meaning: {error.message} Nothing was changed.") from error


def _view_json(view: View) -> Mapping[str, Any]:
    own = view.name.partition(".")[2]
    return {"id": str(uuid.uuid5(_IDS, f"view {view.name}")), "name": own, "schema": view.to_json(), **_AUDIT}


def _function_json(function: Function) -> Mapping[str, Any]:
    return {"uuid": str(uuid.uuid5(_IDS, f"function {function.name}")), **function.to_json(), **_AUDIT}
