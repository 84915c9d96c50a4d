"""The roads: operations that are traced, each on a table of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from merganser.catalogs.catalog import Catalog, open_catalog
from merganser.catalogs.filesystem import FileSystem
from merganser.changes import set_option
from merganser.handle.table import Table, open_table
from merganser.storage.local import LocalStorage
from merganser.storage.memory import MemoryStorage
from tests.kit.builders import contents

from .tracing import Log, TracedEnv, TracedStorage

_SCHEMA: Final = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), ("n", pa.int64())])


class Traced:
    """A warehouse whose requests are written down.

    Args:
        directory: where it lies, for tasks in other processes; None: in memory.
    """

    def __init__(self, directory: str | None = None) -> None:
        memory = f"traces-{uuid.uuid4().hex}"
        root = f"memory://{memory}/w" if directory is None else directory
        self.log = Log(f"{root}/")
        self.storage = MemoryStorage(memory) if directory is None else LocalStorage(sync=False)
        self.catalog = self.again()
        self.files: dict[str, bytes] = {}

    def again(self) -> Catalog:
        """Return the catalog as another process opens it, which knows nothing yet."""
        env = TracedEnv(self.log, TracedStorage(self.storage, self.log))
        return open_catalog(FileSystem(self.log.root.rstrip("/"), env))

    def create(self, name: str = "d.t", **options: Any) -> Table:
        """Return a new table with the key `k`."""
        self.catalog.create_database("d", if_not_exists=True)
        key = options.pop("primary_key", ["k"])
        settings = {"bucket": 1, "manifest.compression": "none", **options}
        return self.catalog.create_table(name, _SCHEMA, primary_key=key, options=settings)

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Write down what is asked inside, and the files that are new after it."""
        before = contents(self.storage, self.log.root.rstrip("/"))
        self.log.clear()
        yield
        after = contents(self.storage, self.log.root.rstrip("/"))
        self.files = {path: data for path, data in after.items() if before.get(path) != data}


def rows(*keys: int, v: str = "a") -> pa.Table:
    """Return one row of each key."""
    return pa.table({"k": keys, "v": [v] * len(keys), "n": [*keys]}, schema=_SCHEMA)


def _known(work: Callable[[Table], object], **options: Any) -> Traced:
    """Trace work on a table that this handle has written twice and read."""
    made = Traced()
    table = made.create(**options)
    table.write(rows(1, 2, 3))
    table.write(rows(3, 4))
    table.read().to_arrow()
    with made.traced():
        work(table)
    return made


def _sql(text: str, **options: Any) -> Callable[[], Traced]:
    def road() -> Traced:
        made = Traced()
        table = made.create(**options)
        table.write(rows(1, 2, 3))
        table.write(rows(3, 4))
        made.catalog.sql("SELECT k FROM d.t")
        with made.traced():
            made.catalog.sql(text)
        return made

    return road


def _first_write() -> Traced:
    made = Traced()
    table = made.create()
    with made.traced():
        table.write(rows(1))
    return made


def _open() -> Traced:
    made = Traced()
    made.create().write(rows(1, 2, 3))
    env = made.again().env
    with made.traced():
        open_table(f"{made.log.root}d.db/t", env, name="d.t")
    return made


def _open_and_read() -> Traced:
    made = Traced()
    made.create().write(rows(1, 2, 3))
    catalog = made.again()
    with made.traced():
        catalog.table("d.t").read().to_arrow()
    return made


def _read_after_others() -> Traced:
    made = Traced()
    made.create().write(rows(1, 2, 3))
    table = made.again().table("d.t")
    table.read().to_arrow()
    made.catalog.table("d.t").write(rows(9))
    with made.traced():
        table.read(where="k = 9").to_arrow()
    return made


def _write_after_others() -> Traced:
    made = Traced()
    made.create().write(rows(1, 2, 3))
    table = made.again().table("d.t")
    table.write(rows(4))
    made.catalog.table("d.t").write(rows(9))
    with made.traced():
        table.write(rows(5))
    return made


def _partitions() -> Traced:
    made = Traced()
    table = made.create(bucket=4)
    table.write(rows(*range(100)))
    with made.traced():
        table.write(rows(*range(100), v="b"))
    return made


ROADS: Final[Mapping[str, Callable[[], Traced]]] = {
    "open": _open,
    "open_and_read": _open_and_read,
    "first_write": _first_write,
    "write": lambda: _known(lambda table: table.write(rows(5))),
    "write_after_others": _write_after_others,
    "write_four_buckets": _partitions,
    "append": lambda: _known(lambda table: table.write(rows(5)), primary_key=[], bucket=-1),
    "dynamic_buckets": lambda: _known(lambda table: table.write(rows(3, 5)), bucket=-1),
    "lookup_changelog": lambda: _known(lambda table: table.write(rows(3, 5)), **{"changelog-producer": "lookup"}),
    "deletion_vectors": lambda: _known(lambda table: table.write(rows(3, 5)), **{"deletion-vectors.enabled": "true"}),
    "upsert": lambda: _known(lambda table: table.upsert(rows(3, v="z"))),
    "update": lambda: _known(lambda table: table.update("k = 3", {"v": "'z'"})),
    "delete": lambda: _known(lambda table: table.delete("k = 3")),
    "merge": lambda: _known(
        lambda table: (
            table.merge(rows(3, 7), on="target.k = source.k").when_matched_update().when_not_matched_insert().execute()
        )
    ),
    "overwrite": lambda: _known(lambda table: table.write(rows(8), overwrite={})),
    "compact": lambda: _known(lambda table: table.compact(full=True)),
    "read": lambda: _known(lambda table: table.read().to_arrow()),
    "filtered_read": lambda: _known(lambda table: table.read(where="k = 3").to_arrow()),
    "read_after_others": _read_after_others,
    "lookup": lambda: _known(lambda table: table.lookup({"k": 3})),
    "changes": lambda: _known(lambda table: table.changes(1, 2).to_arrow(), **{"changelog-producer": "input"}),
    "alter": lambda: _known(lambda table: table.alter([set_option("snapshot.time-retained", "2 h")])),
    "expire": lambda: _known(lambda table: table.expire(retain_max=1, retain_min=1)),
    "tag": lambda: _known(lambda table: table.tags.create("t1")),
    "rollback": lambda: _known(lambda table: table.rollback(1)),
    "sql_select": _sql("SELECT k, v FROM d.t WHERE k = 3"),
    "sql_insert": _sql("INSERT INTO d.t VALUES (5, 'b', 5)"),
    "sql_update": _sql("UPDATE d.t SET v = 'z' WHERE k = 3"),
    "sql_delete": _sql("DELETE FROM d.t WHERE k = 3"),
    "sql_merge": _sql(
        "MERGE INTO d.t USING (SELECT 3 AS k, 'm' AS v) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v"
    ),
    "sql_create": _sql("CREATE TABLE d.u (k BIGINT, v STRING, PRIMARY KEY (k) NOT ENFORCED)"),
    "sql_alter": _sql("ALTER TABLE d.t ADD COLUMN w INT"),
    "sql_call": _sql("CALL sys.compact(`table` => 'd.t')"),
}
"""Each road by its name."""
