"""Commands that change the schema of a table."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from merganser.changes import (
    Change,
    add_column,
    comment_column,
    drop_column,
    move_column,
    remove_option,
    rename_column,
    retype_column,
    set_comment,
    set_default,
    set_nullable,
    set_option,
    set_primary_key,
)
from merganser.cli.arguments import Store, TableName, Warehouse, pairs

_Column = Annotated[
    str, typer.Argument(metavar="COLUMN", help="'a.b' is field b of the ROW column a.", show_default=False)
]
_Type = Annotated[str, typer.Argument(metavar="TYPE", help="Such as 'DECIMAL(10, 2)'.", show_default=False)]
_After = Annotated[str | None, typer.Option("--after", metavar="COLUMN", help="Put it behind this column.")]
_First = Annotated[bool, typer.Option("--first", help="Put it before all others.")]
_NEGATIVE: Final = re.compile(r"-[0-9.]")
_Key = Annotated[str, typer.Argument(metavar="KEY", help="Such as bucket.", show_default=False)]


def _alter(table: str, change: Change, warehouse: str | None, store: list[str] | None, *more: Change) -> None:
    """Make changes in one step, and print the number of the schema that the table has then."""
    from merganser.cli.target import table_of

    print(f"schema {table_of(table, warehouse, store).alter([change, *more]).schema.id}")


def add(
    table: TableName,
    column: _Column,
    type: _Type,
    after: _After = None,
    first: _First = False,
    default: Annotated[
        str | None, typer.Option("--default", metavar="TEXT", help="Value in rows written from now on.")
    ] = None,
    comment: Annotated[str | None, typer.Option("--comment", metavar="TEXT", help="Description of the column.")] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Add a column. It is null in the rows that are there."""
    _alter(table, add_column(column, type, after, first, default, comment), warehouse, store)


def drop(table: TableName, column: _Column, warehouse: Warehouse = None, store: Store = None) -> None:
    """Drop a column. A later column of its name is another one."""
    _alter(table, drop_column(column), warehouse, store)


def rename(
    table: TableName,
    column: _Column,
    new_name: Annotated[str, typer.Argument(metavar="NEW", show_default=False)],
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Rename a column. Options that name it follow."""
    _alter(table, rename_column(column, new_name), warehouse, store)


def retype(table: TableName, column: _Column, type: _Type, warehouse: Warehouse = None, store: Store = None) -> None:
    """Give a column another type. Values are turned into it when they are read."""
    _alter(table, retype_column(column, type), warehouse, store)


def nullable(
    table: TableName,
    column: _Column,
    may_be_null: Annotated[bool, typer.Argument(metavar="true|false", help="Whether it may.", show_default=False)],
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Say whether a column may be null."""
    _alter(table, set_nullable(column, may_be_null), warehouse, store)


def default(
    table: TableName,
    column: _Column,
    value: Annotated[
        str | None, typer.Argument(metavar="[VALUE]", help="None: there is no default.", show_default=False)
    ] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Give a column a default for rows that are written from now on, or remove it."""
    _alter(table, set_default(column, value), warehouse, store)


def move(
    table: TableName,
    column: _Column,
    after: _After = None,
    first: _First = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Move a column: behind another one, before all others, or (neither) behind all others."""
    _alter(table, move_column(column, after, first), warehouse, store)


def comment(
    table: TableName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="'' removes it.", show_default=False)],
    column: Annotated[
        str | None, typer.Option("--column", "-c", metavar="COLUMN", help="Describe this column.  [default: the table]")
    ] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Describe a table, or a column."""
    change = set_comment(text or None) if column is None else comment_column(column, text or None)
    _alter(table, change, warehouse, store)


def option(
    table: TableName,
    key: _Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Its value, as text.", show_default=False)],
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Set an option."""
    _alter(table, set_option(key, value), warehouse, store)


def reset(table: TableName, key: _Key, warehouse: Warehouse = None, store: Store = None) -> None:
    """Remove an option, so that its default holds."""
    _alter(table, remove_option(key), warehouse, store)


def primary_key(
    table: TableName,
    columns: Annotated[
        list[str], typer.Argument(metavar="COLUMN...", help="Whose values identify a row.", show_default=False)
    ],
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="KEY=VALUE",
            help="Option, such as bucket=4. Repeatable. merge-engine=deduplicate makes one row of the rows of a key.",
        ),
    ] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Give a primary key to a table without one, and write its rows anew. Rows with the same key are refused."""
    options = [set_option(key, value) for key, value in pairs(option, "--option").items()]
    _alter(table, set_primary_key(columns), warehouse, store, *options)


class _TakesNegatives(TyperCommand):
    """A command whose arguments may be numbers below zero: `-5` is no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse words; those that no option has are arguments if one of them is such a number."""
        ctx.ignore_unknown_options = any(_NEGATIVE.match(word) for word in args)
        return super().parse_args(ctx, args)


_COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "add-column": add,
    "drop-column": drop,
    "rename-column": rename,
    "retype-column": retype,
    "set-nullable": nullable,
    "set-default": default,
    "move-column": move,
    "comment": comment,
    "set-primary-key": primary_key,
    "set-option": option,
    "remove-option": reset,
}
_group = typer.Typer(
    name="alter",
    help="The columns, options and descriptions of a table.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
for _verb, _command in _COMMANDS.items():
    _group.command(_verb, cls=_TakesNegatives)(_command)

GROUPS: Final = (_group,)
