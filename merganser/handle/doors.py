"""The two ways in: a catalog of a warehouse, and a table at a path."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from merganser.catalogs.filesystem import Catalog, open_catalog
from merganser.errors import NotFoundError
from merganser.handle.table import Table, open_table
from merganser.options.option import BYTES, Option
from merganser.storage.cache import WEIGHT_MAX, Cache
from merganser.storage.env import Env
from merganser.storage.open import storage_for
from merganser.storage.paths import TablePaths

CACHE_MEMORY: Final = Option(
    "cache.manifest.max-memory", BYTES, WEIGHT_MAX, "Most memory for what manifests hold, of each catalog or table."
)
_NAME: Final = re.compile(r"\w[^./\\]*\.[^./\\]+")
"""`database.table`, which is no path that anybody means."""


def catalog(
    warehouse: str, options: Mapping[str, str] | None = None, clock: Callable[[], datetime] | None = None
) -> Catalog:
    """Return the catalog of a warehouse: a local directory, or a URL such as `s3://bucket/warehouse`.

    Makes nothing until the first database or table is created.

    Args:
        options: options of the store, such as `s3.endpoint`; `cache.manifest.max-memory`, such as `1 gb`, is the most
            memory for what is known of the files of tables (256 MB).
        clock: returns the current time, aware; for tests and replays.

    Raises:
        InvalidInputError: the path or an option has no meaning.
        StorageError: the warehouse cannot be read.
    """
    storage, root = storage_for(str(warehouse), options)
    return open_catalog(root, _env(storage, clock, options))


def table(path: str, options: Mapping[str, Any] | None = None, clock: Callable[[], datetime] | None = None) -> Table:
    """Return the table at a path.

    Args:
        options: dynamic table options, and those that `catalog` takes, such as `s3.endpoint`.
        clock: returns the current time, aware; for tests and replays.

    Raises:
        NotFoundError: there is no table at the path; says how to make one, or how to open one by name.
    """
    given = dict(options or {})
    store = {
        key: str(given.pop(key))
        for key in list(given)
        if isinstance(key, str) and key.partition(".")[0] in ("s3", "gs", "az", "fs", "local", "oss", "cache")
    }
    storage, root = storage_for(str(path), store)
    if _NAME.fullmatch(str(path)) and not storage.exists(TablePaths(root).schema(0)):
        raise NotFoundError(
            f"there is no table at '{root}'. '{path}' looks like the name of a table in a warehouse: "
            f"merganser.catalog('<warehouse>').table('{path}') opens that.",
            path=root,
        )
    plain, dollar, behind = root.rpartition("/")[2].partition("$")
    if dollar and plain and not storage.exists(TablePaths(root).schema(0)):
        raise NotFoundError(
            f"there is no table at '{root}'. What stands after the '$' is no part of a path: a branch is the option "
            f"'branch', such as {{'branch': '{behind.removeprefix('branch_')}'}}, and a system table is "
            f"merganser.table('{root.removesuffix(dollar + behind)}').system('{behind}').",
            path=root,
        )
    return open_table(root, _env(storage, clock, store), name=root, options=given)


def _env(storage: Any, clock: Callable[[], datetime] | None, options: Mapping[str, str] | None) -> Env:
    text = (options or {}).get(CACHE_MEMORY.key)
    cache = Cache(CACHE_MEMORY.default if text is None else CACHE_MEMORY.parse(str(text)))
    return Env(storage, cache=cache) if clock is None else Env(storage, clock, cache)
