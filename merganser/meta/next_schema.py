"""The next schema of a table: made of the newest one, created once, made again if another schema came first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from merganser.errors import AlreadyExistsError, ConflictError, NotFoundError
from merganser.meta.key_change import in_force, marked, replaced
from merganser.meta.schemas import SchemaStore
from merganser.meta.table_def import TableDef
from merganser.schema.table_schema import CURRENT_VERSION, TableSchema
from merganser.storage.env import Env


def make_next_schema(
    table: TableDef, env: Env, change: Callable[[TableDef], TableSchema | None]
) -> tuple[TableDef, bool]:
    """Make the schema that a change makes of the newest one.

    Args:
        change: returns the new schema, or None: there is nothing to change. It gets the table with its newest schema,
            and is called again whenever another schema came first. Id, version and time are set here.

    Returns:
        The table with the schema made, and True; or as it is, and False.

    Raises:
        NotFoundError, ConflictError: the table was dropped, or dropped and made anew, since it was opened; nothing was
            changed.
        StorageError: the store failed; nothing was changed.
        CommitUnknownError: the store lost the reply.
    """
    schemas = SchemaStore(table.paths, env)
    while True:  # without a limit: whoever loses here has seen another schema made
        now, newest_id = _opened(table, env)
        made = change(now)
        if made is None:
            return now, False
        made = replace(made, id=newest_id + 1, version=CURRENT_VERSION, time_millis=env.now_ms())
        try:
            made = schemas.create(made)
        except AlreadyExistsError:
            continue
        return now.with_schema(made), True


def restore_schema(table: TableDef, env: Env) -> TableDef:
    """Make the schema that is in force the newest one, if it is not; return the table with it.

    Raises:
        NotFoundError, ConflictError, StorageError, CommitUnknownError: as for `make_next_schema`.
    """

    def change(now: TableDef) -> TableSchema | None:
        newest = SchemaStore(table.paths, env).latest_id(now.schema.id)
        return None if newest == now.schema.id else marked(now.schema, newest)

    return make_next_schema(table, env, change)[0]


def _opened(table: TableDef, env: Env) -> tuple[TableDef, int]:
    """Return the table with the newest schema that is in force, and the id of the newest one."""
    schemas = SchemaStore(table.paths, env)
    newest = schemas.latest()
    if newest is None:
        raise NotFoundError(f"table '{table.name}' no longer exists: it was dropped or renamed.", table=table.name)
    if newest.id < table.schema.id or schemas.load(table.schema.id, fresh=True) != table.schema:
        raise ConflictError(
            f"cannot change '{table.name}': {replaced(table.schema)} Nothing was changed. Open the table again.",
            table=table.name,
        )
    found = in_force(table.paths, env, table.name, newest)
    return table if found.id == table.schema.id else table.with_schema(found), newest.id
