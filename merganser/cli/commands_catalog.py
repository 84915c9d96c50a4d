"""Commands about databases and tables as a whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

import typer

from merganser.cli.arguments import Snapshot, Store, TableName, Tag, Timestamp, Warehouse, pairs

_IN_BACKTICKS: Final = re.compile(r"`((?:[^`]|``)+)`")
_DatabaseName = Annotated[str, typer.Argument(metavar="DATABASE", show_default=False)]


def catalogs() -> None:
    """List the catalogs that have names.

    They stand in ~/.merganser/catalogs.toml, or in the file that the variable MERGANSER_CATALOGS names.
    """
    from merganser.catalogs.open import without_password
    from merganser.catalogs.profiles import Profile, profiles, profiles_path
    from merganser.cli import render
    from merganser.options.catalog import METASTORE, WAREHOUSE

    found = profiles()
    rows = [
        [
            one.name,
            one.options.get(METASTORE.key, ""),
            without_password(one.address),
            without_password(one.options.get(WAREHOUSE.key, "")),
        ]
        for one in found.values()
        if isinstance(one, Profile)
    ]
    rows += [[name, "", one.message, ""] for name, one in found.items() if not isinstance(one, Profile)]
    headings = ["catalog", "metastore", "address", "warehouse"]
    render.list_of(rows, headings, right=(), none=f"no catalogs in {profiles_path()}")


def login(name: Annotated[str, typer.Argument(metavar="CATALOG", help="Its name.", show_default=False)]) -> None:
    """Keep the secrets of a catalog in the keyring.

    The command asks for those that its options name with "keyring:NAME".
    """
    from merganser.catalogs.profiles import KEYRING, keyring_of, profile_of, profiles
    from merganser.errors import NotFoundError
    from merganser.options.registry import did_you_mean

    found = profile_of(name)
    if found is None:
        raise NotFoundError(f"there is no catalog '{name}'. {did_you_mean(name, list(profiles()))}")
    asked = {key: text.removeprefix(KEYRING) for key, text in found.options.items() if text.startswith(KEYRING)}
    if not asked:
        print(f"'{name}' has no option that says '{KEYRING}...': nothing to keep")
        return
    ring = keyring_of(f"cannot log in to '{name}'")
    for key, entry in asked.items():
        ring.set_password(entry, key, typer.prompt(key, hide_input=True))
    print(f"kept {', '.join(asked)} in the keyring")


def databases(warehouse: Warehouse = None, store: Store = None) -> None:
    """List the databases of the warehouse."""
    from merganser.cli.target import catalog_of

    for name in catalog_of(warehouse, store).list_databases():
        print(name)


def tables(database: _DatabaseName, warehouse: Warehouse = None, store: Store = None) -> None:
    """List the tables of a database."""
    from merganser.cli.target import catalog_of

    for name in catalog_of(warehouse, store).list_tables(database):
        print(name)


def views(database: _DatabaseName, warehouse: Warehouse = None, store: Store = None) -> None:
    """List the views of a database. A catalog that is a directory has none."""
    from merganser.cli.target import catalog_of

    for name in catalog_of(warehouse, store).list_views(database):
        print(name)


def create_database(
    database: _DatabaseName,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if it exists.")] = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Make a database."""
    from merganser.cli.target import catalog_of

    catalog_of(warehouse, store).create_database(database, if_not_exists=if_not_exists)


def create_table(
    name: Annotated[str, typer.Argument(metavar="DATABASE.TABLE", show_default=False)],
    column: Annotated[
        list[str],
        typer.Option(
            "--column",
            "-c",
            metavar="'NAME TYPE'",
            help="Column, such as 'amount DECIMAL(10, 2) NOT NULL'. Repeatable.",
        ),
    ],
    primary_key: Annotated[
        list[str] | None,
        typer.Option(
            "--primary-key", "-k", metavar="A,B", help="Columns that identify a row.  [default: none, an append table]"
        ),
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option("--partition-by", "-p", metavar="A,B", help="Partition columns, outermost first."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="KEY=VALUE", help="Table option, such as bucket=4. Repeatable."),
    ] = None,
    comment: Annotated[str | None, typer.Option("--comment", metavar="TEXT", help="Description of the table.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if it exists.")] = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Create a table.

    For example: merganser create-table shop.orders -c 'id BIGINT' -c 'dt STRING' -c 'amount DECIMAL(10, 2)'
    -k id,dt -p dt
    """
    from merganser.cli.target import catalog_of, names

    made = catalog_of(warehouse, store).create_table(
        name,
        schema=[_column(text) for text in column],
        primary_key=names(primary_key),
        partition_by=names(partition_by),
        options=pairs(option, "--option"),
        comment=comment,
        if_not_exists=if_not_exists,
    )
    print(made.path)


def drop_database(
    database: _DatabaseName,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing if it does not exist.")] = False,
    cascade: Annotated[bool, typer.Option("--cascade", help="Remove its tables, views and functions too.")] = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Remove a database."""
    from merganser.cli.target import catalog_of

    catalog_of(warehouse, store).drop_database(database, if_exists=if_exists, cascade=cascade)


def drop_table(
    name: Annotated[str, typer.Argument(metavar="DATABASE.TABLE", show_default=False)],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing if it does not exist.")] = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Remove a table and its files."""
    from merganser.cli.target import catalog_of

    catalog_of(warehouse, store).drop_table(name, if_exists=if_exists)


def rename(
    name: Annotated[str, typer.Argument(metavar="DATABASE.TABLE", show_default=False)],
    new_name: Annotated[str, typer.Argument(metavar="DATABASE.NEW", show_default=False)],
    no_writers: Annotated[
        bool,
        typer.Option("--no-writers", help="No process writes to the table meanwhile; needed on an object store."),
    ] = False,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Rename a table. The new name may be in another database."""
    from merganser.cli.target import catalog_of

    catalog_of(warehouse, store).rename_table(name, new_name, no_writers)


def migrate(
    source: Annotated[str, typer.Argument(metavar="FOLDER", help="Path or URL of the folder.", show_default=False)],
    name: Annotated[str, typer.Argument(metavar="DATABASE.TABLE", show_default=False)],
    how: Annotated[
        str | None,
        typer.Option(
            "--how",
            metavar="WAY",
            help="link: the table gets the files under names of its own, unread. keep: it names them where they lie. "
            "copy: the rows are written anew.  [default: link; copy with --primary-key, or from another store]",
            show_default=False,
        ),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", "-t", metavar="COLUMN=TYPE", help="Type that a column shall have. Repeatable."),
    ] = None,
    primary_key: Annotated[
        list[str] | None,
        typer.Option(
            "--primary-key", "-k", metavar="A,B", help="Columns that identify a row.  [default: none, an append table]"
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="KEY=VALUE", help="Table option, such as bucket=4. Repeatable."),
    ] = None,
    comment: Annotated[str | None, typer.Option("--comment", metavar="TEXT", help="Description of the table.")] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Format of all files, whatever their names: parquet, orc or avro.  [default: as extensions say]",
            show_default=False,
        ),
    ] = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Make a table of a folder of Parquet, ORC or Avro files.

    The folder is only read. For example: merganser migrate /data/visits shop.visits -t dt=DATE
    """
    from merganser.cli.target import catalog_of, names

    made = catalog_of(warehouse, store).migrate(
        source,
        name,
        how=how,
        types=pairs(types, "--type"),
        primary_key=names(primary_key),
        options=pairs(option, "--option"),
        comment=comment,
        format=form,
    )
    print(made.path)


def clone(
    table: TableName,
    name: Annotated[str, typer.Argument(metavar="DATABASE.NEW", show_default=False)],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="DIR", help="Warehouse of the clone.  [default: the same]", show_default=False),
    ] = None,
    snapshot: Snapshot = None,
    tag: Tag = None,
    timestamp: Timestamp = None,
    warehouse: Warehouse = None,
    store: Store = None,
) -> None:
    """Make another table with the state of a table. They share no file afterwards."""
    from merganser.cli.target import catalog_of, table_of

    source = table_of(table, warehouse, store)
    made = catalog_of(to or warehouse, store).clone(source, name, snapshot=snapshot, tag=tag, timestamp=timestamp)
    print(made.path)


def describe(table: TableName, warehouse: Warehouse = None, store: Store = None) -> None:
    """Show columns, keys, options, size and history."""
    from merganser.cli import describe as page
    from merganser.cli.render import stdout
    from merganser.cli.target import table_of

    page.show(table_of(table, warehouse, store), stdout())


def _column(text: str) -> tuple[str, str]:
    """Return name and type of "name TYPE". Write a name with blanks in backticks."""
    text = text.strip()
    quoted = _IN_BACKTICKS.match(text)
    if quoted:
        name, kind = quoted[1].replace("``", "`"), text[quoted.end() :]
    else:
        name, _, kind = text.partition(" ")
    if not name or not kind.strip():
        raise typer.BadParameter(f"'{text}' is not 'NAME TYPE', such as 'id BIGINT'.", param_hint="--column")
    return name, kind.strip()


COMMANDS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("catalogs", catalogs),
    ("login", login),
    ("databases", databases),
    ("tables", tables),
    ("views", views),
    ("create-database", create_database),
    ("create-table", create_table),
    ("drop-database", drop_database),
    ("drop-table", drop_table),
    ("rename", rename),
    ("migrate", migrate),
    ("clone", clone),
    ("describe", describe),
)
