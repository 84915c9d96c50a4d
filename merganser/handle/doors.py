"""The two public functions that open things: a catalog of a warehouse, and a table at a path."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from merganser.catalogs.catalog import Catalog, open_catalog
from merganser.catalogs.open import metastore_of
from merganser.catalogs.profiles import check_is_no_profile, profile_of
from merganser.errors import InvalidInputError, NotFoundError, a_type
from merganser.handle.base import READ_ARGUMENTS
from merganser.handle.table import Table, open_table
from merganser.options.catalog import CACHE_MEMORY, CLIENT, FAMILIES, LISTENERS, table_defaults
from merganser.options.registry import check_catalog_keys, check_keys, find_option, is_of_a_table, normalize_options
from merganser.storage.cache import Cache
from merganser.storage.env import Env
from merganser.storage.open import storage_for
from merganser.storage.paths import TablePaths

_NAME: Final = re.compile(r"\w[^./\\]*\.[^./\\]+")
"""Text of the form `database.table`, which is a table name and not a path."""


def catalog(
    warehouse: str | os.PathLike[str],
    options: Mapping[str, str] | None = None,
    clock: Callable[[], datetime] | None = None,
    metastore: str | None = None,
) -> Catalog:
    """Return the catalog of a warehouse: a local directory, or a URL such as `s3://bucket/warehouse`.

    It creates nothing until you create the first database or table.

    Args:
        warehouse: the warehouse; or the address of a metastore, such as `jdbc:postgresql://host:5432/catalog` or
            `https://host:10000`. Then the option `warehouse` names the warehouse. Or the name of a catalog in
            `~/.merganser/catalogs.toml`.
        options: options of the store, such as `s3.endpoint`; `cache.manifest.max-memory`, such as `1 gb`, limits the
            memory for cached metadata (default 256 MB); options of new tables behind `table-default.`, such as
            `table-default.bucket`; and settings of the client of Kafka that tables must not store, such as
            `kafka.sasl.password`. Misspelt options, also those of other catalogs of the format, are refused.
        clock: a function that returns the current time as an aware datetime; for tests and replays.
        metastore: what knows which tables there are: "filesystem", "jdbc" or "rest". None: the address says it.

    Raises:
        InvalidInputError: the path or an option is invalid.
        StorageError: the warehouse cannot be read, or the metastore does not answer.
        UnsupportedError: a package for the metastore is missing.
    """
    text = _path(warehouse, "cannot open a catalog: warehouse")
    given = _options(options, f"cannot open the warehouse '{text}'")
    if isinstance(warehouse, str):
        if (profile := profile_of(text)) is not None:
            text, given = profile.address, {**profile.opened(), **given}
        else:
            check_is_no_profile(text)
    check_catalog_keys(given, what=f"cannot open the warehouse '{text}'")
    defaults = table_defaults(given)
    check_keys(defaults)
    clock = _clock(clock, f"cannot open the warehouse '{text}'")
    found = metastore_of(text, given, metastore, lambda storage: _env(storage, clock, given))
    client = normalize_options({key: value for key, value in given.items() if key.startswith(CLIENT)})
    return open_catalog(found, defaults, given.get(LISTENERS.key), client)


def table(
    path: str | os.PathLike[str],
    options: Mapping[str, Any] | None = None,
    clock: Callable[[], datetime] | None = None,
) -> Table:
    """Return the table at a path.

    Args:
        options: dynamic table options, and the options of `catalog`, such as `s3.endpoint`.
        clock: a function that returns the current time as an aware datetime; for tests and replays.

    Raises:
        InvalidInputError: the path or an option is invalid.
        NotFoundError: there is no table at the path; the message says how to create one or open one by name.
    """
    text = _path(path, "cannot open a table: path")
    what = f"cannot open the table at '{text}'"
    given = _options(options, what)
    store = {key: str(given.pop(key)) for key in list(given) if key.partition(".")[0] in FAMILIES}
    check_keys(given)
    check_catalog_keys((*store, *(key for key in given if find_option(key) is None)), what=what)
    clock = _clock(clock, what)
    storage, root = storage_for(text, store)
    if _NAME.fullmatch(text) and not storage.exists(TablePaths(root).schema(0)):
        raise NotFoundError(
            f"there is no table at '{root}'. '{text}' looks like the name of a table in a warehouse: "
            f"merganser.catalog('<warehouse>').table('{text}') opens that.",
            path=root,
        )
    plain, dollar, behind = root.rpartition("/")[2].partition("$")
    if dollar and plain and not storage.exists(TablePaths(root).schema(0)):
        raise NotFoundError(
            f"there is no table at '{root}'. A path has no '$'. Open a branch with the option 'branch', such as "
            f"{{'branch': '{behind.removeprefix('branch_')}'}}, and a system table with "
            f"merganser.table('{root.removesuffix(dollar + behind)}').system('{behind}').",
            path=root,
        )
    ours = {key: value for key, value in given.items() if is_of_a_table(key) or key in READ_ARGUMENTS}
    return open_table(root, _env(storage, clock, store), name=root, options=ours)  # the rest is of other catalogs


def _path(value: object, what: str) -> str:
    """Return a path as text.

    Raises:
        InvalidInputError: the path is not text. The message begins with `what`, which names the argument.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str):
        raise InvalidInputError(
            f"{what} is {value!r:.100}, {a_type(value)}. Give a path or a URL as text, such as "
            "'/data/warehouse' or 's3://bucket/warehouse'."
        )
    return text


def _options(options: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """Return options as a dict. No message holds a value: they may be secrets.

    Raises:
        InvalidInputError: the options are not a mapping, or a key is not text. The message begins with `what`.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InvalidInputError(
            f"{what}: options are {a_type(options)}. Give a dict such as {{'s3.region': 'eu-west-1'}}."
        )
    for key in options:
        if not isinstance(key, str):
            raise InvalidInputError(f"{what}: the key {key!r:.100} of options is {a_type(key)}. Give text.")
    return dict(options)


def _clock(clock: Callable[[], datetime] | None, what: str) -> Callable[[], datetime] | None:
    """Return the clock.

    Raises:
        InvalidInputError: the clock cannot be called. The message begins with `what`.
    """
    if clock is not None and not callable(clock):
        raise InvalidInputError(
            f"{what}: clock is {clock!r:.100}, {a_type(clock)}. Give a function without arguments that "
            "returns an aware datetime, or None for the clock of this machine."
        )
    return clock


def _env(storage: Any, clock: Callable[[], datetime] | None, options: Mapping[str, Any]) -> Env:
    text = options.get(CACHE_MEMORY.key)
    cache = Cache(CACHE_MEMORY.default if text is None else CACHE_MEMORY.parse(str(text)))
    return Env(storage, cache=cache) if clock is None else Env(storage, clock, cache)
