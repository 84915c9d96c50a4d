"""Builders of tables and stores for tests: a catalog over any storage, copies of what a storage holds, changelogs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from merganser.catalogs.catalog import Catalog, open_catalog
from merganser.catalogs.filesystem import FileSystem
from merganser.commit.message import CommitMessage
from merganser.meta.table_def import TableDef
from merganser.storage.env import Env
from merganser.storage.memory import MemoryStorage
from merganser.storage.paths import join
from merganser.storage.protocol import Storage

WAREHOUSE = "memory://tests/warehouse"


class PatientEnv(Env):
    """An environment that does not wait between attempts, and does one thing after the other."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Return at once."""


def catalog_over(storage: Storage, *, root: str = WAREHOUSE, clock: Callable[[], datetime] | None = None) -> Catalog:
    """Return the catalog of a warehouse in a storage, with an environment of its own: nothing is cached yet."""
    env = PatientEnv(storage, threads=1)
    if clock is not None:
        env.clock = clock
    return open_catalog(FileSystem(root, env))


def contents(storage: Storage, root: str = WAREHOUSE) -> dict[str, bytes]:
    """Return every file below a directory, by path."""
    out: dict[str, bytes] = {}
    for entry in storage.list(root):
        path = f"{root}/{entry.name}"
        if entry.is_directory:
            out |= contents(storage, path)
        else:
            out[path] = storage.read(path)
    return out


def with_changelog(table: TableDef, env: Env, messages: Iterable[CommitMessage]) -> list[CommitMessage]:
    """Return messages with a changelog file for each file that they add: a copy of it under another name."""
    out = []
    for message in messages:
        directory = table.bucket_directory(message.partition, message.bucket)
        copies = tuple(replace(file, name=file.name.replace("data-", "changelog-", 1)) for file in message.added)
        for file, copy in zip(message.added, copies, strict=True):
            env.storage.create(join(directory, copy.name), env.storage.read(join(directory, file.name)))
        out.append(replace(message, changelog=copies))
    return out


def memory_with(files: Mapping[str, bytes], name: str) -> MemoryStorage:
    """Return a storage in memory that holds exactly these files."""
    storage = MemoryStorage(name)
    storage.clear()
    for path, data in files.items():
        storage.replace(path, data)
    return storage
