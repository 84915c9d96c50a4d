"""The verbs of a catalog for views and functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from merganser.catalogs.definitions import SPARK, Definition, Function, View, definition_of
from merganser.catalogs.metastore import Definitions, Metastore
from merganser.catalogs.names import SYSTEM, TableName, check_name, parse_table_name
from merganser.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
    a_type,
    check_flags,
)
from merganser.options.registry import did_you_mean
from merganser.rules.create import SchemaLike, create_schema
from merganser.schema import types as t
from merganser.schema.types_text import number_fields, parse_type

if TYPE_CHECKING:
    from merganser.sql.session import Session

T = TypeVar("T", View, Function)
_FUNCTION_NAME: Final = re.compile(r"(?=.*[A-Za-z])[A-Za-z0-9_-]+")
"""What other engines take for the name of a function."""


class DefinitionVerbs:
    """What a `Catalog` does with views and functions."""

    if TYPE_CHECKING:
        metastore: Metastore

        def session(self) -> Session: ...
        def _require_database(self, name: str) -> None: ...

    # views

    def list_views(self, database: str) -> list[str]:
        """Return the names of the views of a database, in order; none in a catalog that holds no views.

        Raises:
            NotFoundError: the database does not exist.
        """
        held = self._held(database)
        return [] if held is None else held.views(database)

    def view(self, name: str) -> View:
        """Return a view.

        Args:
            name: `database.view`.

        Raises:
            NotFoundError: there is no such view.
        """
        parsed = _parsed(name, "view")
        held = self.metastore.definitions
        found = None if held is None else held.view(parsed)
        if found is None:
            raise self._missing("view", parsed, self.list_views)
        return found

    def create_view(
        self,
        name: str,
        query: str,
        columns: SchemaLike | Sequence[str] | None = None,
        comment: str | None = None,
        options: Mapping[str, Any] | None = None,
        replace: bool = False,
        if_not_exists: bool = False,
        dialects: Mapping[str, str] | None = None,
    ) -> View:
        """Create a view: a query with a name, which runs when the view is read.

        Args:
            name: `database.view`. Tables and views of a database have different names.
            query: a SELECT. Names of tables without a database are those of the database of the view.
            columns: names of its columns; None: those of the query. With types, such as "id BIGINT, name STRING", they
                are taken as they are, and the query is not looked at: other engines may run it.
            comment: a description.
            options: properties, for people and other engines.
            replace: put it in the place of a view of this name.
            if_not_exists: if there is a view of this name, return that one.
            dialects: the query in the SQL of other engines. None: `query`, for Spark.

        Raises:
            UnsupportedError: the catalog holds no views.
            NotFoundError: the database does not exist, or a table of the query.
            AlreadyExistsError: there is a table or a view of this name.
            InvalidInputError: the query cannot run. In all these cases, nothing was changed.
        """
        parsed = _parsed(name, "view")
        what = f"cannot create view '{parsed}'"
        held = self._to_change(parsed.database, what)
        _check_how(what, replace=replace, if_not_exists=if_not_exists)
        for value, called in ((query, "query"), *(((text, "a dialect")) for text in (dialects or {}).values())):
            _check_text(value, called, what)
        if if_not_exists and (found := held.view(parsed)) is not None:
            return found
        names = _names(columns)
        if columns is None or names is not None:
            from merganser.sql.stored import described  # noqa: PLC0415 - a parser and an engine, 0.3 s

            session = self.session()
            fields, query = described(session.state, session.engine, str(parsed), query, names)
        else:
            fields = create_schema(columns, table=str(parsed)).fields
        spoken = {SPARK: query} if dialects is None else dict(dialects)
        made = View(str(parsed), fields, query, spoken, _comment(comment, what), _texts(options, what))
        how = _How(held.view, held.create_view, held.replace_view)
        return how.made(made, parsed, replace=replace, if_not_exists=if_not_exists)

    def alter_view(self, name: str, changes: Iterable[Any]) -> View:
        """Change the options, the comment and the dialects of a view.

        Args:
            changes: `set_option`, `remove_option`, `set_comment`, `add_dialect`, `set_dialect` and `drop_dialect` of
                `merganser.changes`, made one after the other. Replace the view to change its columns.

        Raises:
            NotFoundError: there is no such view, or it has no such dialect.
            AlreadyExistsError: the view has such a dialect.
            InvalidInputError: a change is none of a view. In all these cases, nothing was changed.
        """
        given = list(changes)
        found = self.view(name).altered(given)
        held = self._to_change(found.database, f"cannot alter view '{name}'")
        held.alter_view(_parsed(name, "view"), given)
        return found

    def rename_view(self, name: str, new_name: str) -> None:
        """Rename a view. The new name may be in another database.

        Raises:
            NotFoundError: the view or the database does not exist.
            AlreadyExistsError: there is a table or a view of the new name.
        """
        old, new = _parsed(name, "view"), _parsed(new_name, "view")
        self.view(name)
        self._to_change(new.database, f"cannot rename view '{old}'").rename_view(old, new)

    def drop_view(self, name: str, if_exists: bool = False) -> None:
        """Remove a view. The tables that it reads stay.

        Raises:
            NotFoundError: there is no such view.
        """
        parsed, held = _parsed(name, "view"), self.metastore.definitions
        check_flags(f"cannot drop view '{parsed}'", if_exists=if_exists)
        if (held is None or not held.drop_view(parsed)) and not if_exists:
            raise self._missing("view", parsed, self.list_views)

    # functions

    def list_functions(self, database: str) -> list[str]:
        """Return the names of the functions of a database, in order; none in a catalog that holds no functions.

        Raises:
            NotFoundError: the database does not exist.
        """
        held = self._held(database)
        return [] if held is None else held.functions(database)

    def function(self, name: str) -> Function:
        """Return a function.

        Args:
            name: `database.function`.

        Raises:
            NotFoundError: there is no such function.
        """
        parsed = _parsed(name, "function")
        held = self.metastore.definitions
        found = None if held is None else held.function(parsed)
        if found is None:
            raise self._missing("function", parsed, self.list_functions)
        return found

    def create_function(
        self,
        name: str,
        inputs: SchemaLike | None,
        returns: str | t.DataType | t.Field | None,
        definition: str | Mapping[str, Definition | str],
        comment: str | None = None,
        options: Mapping[str, Any] | None = None,
        deterministic: bool = True,
        replace: bool = False,
        if_not_exists: bool = False,
    ) -> Function:
        """Create a function that statements call by its name.

        Args:
            name: `database.function`: letters, digits, `_` and `-`, with a letter.
            inputs: the parameters, such as "a INT, b STRING"; "" for none, and None if it does not say them.
            returns: the type of the result, such as "DECIMAL(10, 2)"; None: that of the expression.
            definition: an expression of SQL over the parameters. Or definitions by dialect: text of SQL, or a dict as
                the format has it, which merganser keeps for other engines and does not run.
            comment: a description.
            options: properties, for people and other engines.
            deterministic: whether equal arguments give equal results.
            replace: put it in the place of a function of this name.
            if_not_exists: if there is a function of this name, return that one.

        Raises:
            UnsupportedError: the catalog holds no functions.
            NotFoundError: the database does not exist.
            AlreadyExistsError: there is a function of this name.
            InvalidInputError: the expression cannot be computed. In all these cases, nothing was changed.
        """
        parsed = _parsed(name, "function")
        what = f"cannot create function '{parsed}'"
        if not _FUNCTION_NAME.fullmatch(parsed.table):
            raise InvalidInputError(
                f"{what}: the name of a function has letters, digits, '_' and '-', and at least one letter. Nothing "
                "was changed. Choose another name.",
                function=str(parsed),
            )
        held = self._to_change(parsed.database, what)
        _check_how(what, replace=replace, if_not_exists=if_not_exists, deterministic=deterministic)
        if if_not_exists and (found := held.function(parsed)) is not None:
            return found
        parameters = _parameters(inputs, str(parsed))
        names = [field.name.lower() for field in parameters or ()]
        if twice := next((name for i, name in enumerate(names) if name in names[:i]), None):
            raise InvalidInputError(
                f"{what}: it has two parameters '{twice}'. Nothing was changed. Give one of them another name.",
                function=str(parsed),
            )
        given = {SPARK: definition} if isinstance(definition, str) else definition
        if not isinstance(given, Mapping):
            raise InvalidInputError(f"{what}: the definition is {a_type(definition)}. Give text, or texts by dialect.")
        made = Function(
            str(parsed),
            parameters,
            None if returns is None else _returned(returns, parsed.table),
            {dialect: definition_of(each, str(parsed)) for dialect, each in given.items()},
            deterministic,
            _comment(comment, what),
            _texts(options, what),
        )
        if isinstance(definition, str):
            from merganser.sql.calls import checked  # noqa: PLC0415 - a parser and an engine, 0.3 s

            session = self.session()
            made = checked(session.state, session.engine, made)
        how = _How(held.function, held.create_function, held.replace_function)
        return how.made(made, parsed, replace=replace, if_not_exists=if_not_exists)

    def alter_function(self, name: str, changes: Iterable[Any]) -> Function:
        """Change the options, the comment and the definitions of a function.

        Args:
            changes: as of `alter_view`.

        Raises:
            NotFoundError: there is no such function, or it has no such definition.
            AlreadyExistsError: the function has such a definition.
            InvalidInputError: a change is none of a function. In all these cases, nothing was changed.
        """
        given = list(changes)
        found = self.function(name).altered(given)
        held = self._to_change(found.database, f"cannot alter function '{name}'")
        held.alter_function(_parsed(name, "function"), given)
        return found

    def drop_function(self, name: str, if_exists: bool = False) -> None:
        """Remove a function. Views that call it fail afterwards.

        Raises:
            NotFoundError: there is no such function.
        """
        parsed, held = _parsed(name, "function"), self.metastore.definitions
        check_flags(f"cannot drop function '{parsed}'", if_exists=if_exists)
        if (held is None or not held.drop_function(parsed)) and not if_exists:
            raise self._missing("function", parsed, self.list_functions)

    # inside

    def _held(self, database: str) -> Definitions | None:
        check_name(database, what="database")
        if database == SYSTEM and not self.metastore.has_database(SYSTEM):
            return None
        self._require_database(database)
        return self.metastore.definitions

    def _to_change(self, database: str, what: str) -> Definitions:
        held = self.metastore.definitions
        if held is None:
            raise UnsupportedError(
                f"{what}: this catalog is a directory, which has no place for views and functions. Nothing was "
                "changed. Catalogs of an SQL database (merganser.catalog('jdbc:...')) and of a server "
                "(merganser.catalog('http://...')) hold them: open the same warehouse through one of these."
            )
        self._require_database(database)
        return held

    def _missing(self, what: str, name: TableName, listed: Callable[[str], Sequence[str]]) -> NotFoundError:
        known = listed(name.database)
        hint = did_you_mean(name.table, known) if known else f"Database '{name.database}' has no {what}s."
        return NotFoundError(f"there is no {what} '{name}'. {hint}", **{what: str(name)})


class _How:
    """How views or functions are looked up, created and replaced."""

    def __init__(self, read: Any, create: Any, replace: Any) -> None:
        self.read, self.create, self.replace = read, create, replace

    def made(self, value: T, name: TableName, *, replace: bool, if_not_exists: bool) -> T:
        """Create or replace, and return what is there then."""
        if not (replace and self._replaced(value, name)):
            try:
                self.create(value)
            except AlreadyExistsError:  # of another process, perhaps
                if if_not_exists and (found := self.read(name)) is not None:
                    return found  # type: ignore[no-any-return]
                if not (replace and self._replaced(value, name)):
                    raise
        return value

    def _replaced(self, value: View | Function, name: TableName) -> bool:
        if self.read(name) is None:
            return False
        try:
            self.replace(value)
        except NotFoundError:
            return False  # dropped since then
        return True


def _parsed(name: str, what: str) -> TableName:
    if not isinstance(name, str) or "." not in name:
        raise InvalidInputError(f"'{name}' is not the name of a {what}. Write database.{what}.", name=name)
    if "$" in name:
        raise InvalidInputError(f"'{name}' cannot be the name of a {what}: it contains a '$'.", name=name)
    return parse_table_name(name)


def _check_how(what: str, *, replace: bool, if_not_exists: bool, **flags: bool) -> None:
    check_flags(what, replace=replace, if_not_exists=if_not_exists, **flags)
    if replace and if_not_exists:
        raise InvalidInputError(f"{what}: replace and if_not_exists exclude each other. Leave one of them out.")


def _check_text(value: Any, called: str, what: str) -> None:
    if not isinstance(value, str):
        raise InvalidInputError(f"{what}: {called} is {a_type(value)}. Give text. Nothing was changed.")


def _comment(value: Any, what: str) -> str | None:
    if value is not None:
        _check_text(value, "comment", what)
    return value  # type: ignore[no-any-return]


def _texts(options: Any, what: str) -> dict[str, str]:
    if options is not None and not isinstance(options, Mapping):
        raise InvalidInputError(f"{what}: options are {a_type(options)}. Give a dict such as {{'owner': 'me'}}.")
    return {str(key): str(value) for key, value in (options or {}).items()}


def _names(columns: Any) -> list[str] | None:
    """Return columns that are given without types; None: they are not."""
    if not isinstance(columns, Sequence) or isinstance(columns, str) or not columns:
        return None
    names = [each for each in columns if isinstance(each, str)]
    return names if len(names) == len(columns) else None


def _parameters(inputs: Any, name: str) -> tuple[t.Field, ...] | None:
    if inputs is None:
        return None
    if isinstance(inputs, str | Sequence | Mapping) and not inputs:
        return ()
    if isinstance(inputs, Sequence) and all(isinstance(each, t.Field) for each in inputs):
        return number_fields(inputs)[0]  # the defaults of parameters are expressions
    return create_schema(inputs, table=name).fields


def _returned(returns: Any, name: str) -> tuple[t.Field, ...]:
    if isinstance(returns, t.Field):
        return number_fields([returns])[0]
    kind = parse_type(returns, definition=True) if isinstance(returns, str) else returns
    if not isinstance(kind, t.DataType):
        raise InvalidInputError(f"cannot create function '{name}': it returns {returns!r:.100}. Give a type.")
    return number_fields([t.Field(0, name, kind)])[0]
