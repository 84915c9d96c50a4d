"""SchemaStore: the numbered schemas of one table. There is no hint; the newest is the highest number.

A schema that we make has one key more than the format knows, `merganser.creation`: a fresh uuid, so that of racing
writers of one definition each knows its own file. Other readers pass over it, as over the checksum (`meta.seal`).

A table is there while a schema is. Where a mark says that one moves (`storage.moving`), only the first schema counts.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final, cast

from merganser.errors import AlreadyExistsError, CommitUnknownError, FormatError, NotFoundError
from merganser.meta.create_once import create_once
from merganser.meta.seal import check_json_seal, sealed_json
from merganser.schema.table_schema import TableSchema, from_json
from merganser.storage.env import Env
from merganser.storage.guarded import GuardedStorage
from merganser.storage.moving import MARK
from merganser.storage.paths import TablePaths
from merganser.values import dataclass

_NAME = re.compile(r"schema-(0|[1-9][0-9]{0,18})")
_CREATION: Final = "merganser.creation"


@dataclass(frozen=True, slots=True)
class SchemaStore:
    """Reads and creates the schemas of one table or branch. Schemas are immutable, so they are cached."""

    paths: TablePaths
    env: Env

    def ids(self) -> list[int]:
        """Return the ids of all schemas, rising."""
        return self._listed()[0]

    def exists(self) -> bool:
        """Return whether there is a table."""
        return bool(self._of_table())

    def latest(self) -> TableSchema | None:
        """Return the newest schema, or None when there is no table.

        The one that was the newest before is read while the schemas are listed: mostly it still is.
        """
        known: int | None = self.env.cache.get(self._newest_key)
        if known is None:
            ids, found = self._of_table(), None
        else:
            ids, found = self.env.beside(self._of_table, partial(self._if_there, known))
        while ids:
            if found is None or found.id != ids[-1]:
                try:
                    found = self.load(ids[-1], fresh=True)
                except FormatError:
                    before, ids = ids, self._of_table()
                    if before == ids:
                        raise  # it is there and damaged; else the table was dropped, or made anew, while we looked
                    continue
            self.env.cache.put(self._newest_key, found.id, 100)
            return found
        return None

    @property
    def _newest_key(self) -> tuple[str, str]:
        return ("newest schema", self.paths.schema_directory)

    def _if_there(self, schema_id: int) -> TableSchema | None:
        try:
            return self.load(schema_id, fresh=True)
        except FormatError:
            return None

    def is_marked(self) -> bool:
        """Return whether a table moves to this place or from it, or was stopped while it did."""
        return self._listed()[1]

    def _of_table(self) -> list[int]:
        ids, marked = self._listed()
        return ids if not marked or 0 in ids else []

    def _listed(self) -> tuple[list[int], bool]:
        """Return the ids of all schema files, rising, and whether the mark is among them."""
        names = {e.name for e in self.env.storage.list(self.paths.schema_directory) if not e.is_directory}
        return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name))), MARK in names

    def latest_id(self, known: int) -> int:
        """Return the newest schema id, given one that exists: one look in the common case."""
        return known if not self.env.storage.exists(self.paths.schema(known + 1)) else self.ids()[-1]

    def load(self, schema_id: int, *, fresh: bool = False) -> TableSchema:
        """Return a schema.

        Args:
            fresh: read the file, not the cache: another process may have dropped the table and made it anew. Then
                the cache forgets everything about the table.

        Raises:
            FormatError: the file is missing (data files refer to it) or damaged.
        """
        path = self.paths.schema(schema_id)
        cached = self.env.cache.get(path)
        if isinstance(cached, TableSchema) and not fresh:
            return cached
        try:
            data = self.env.storage.read(path)
        except NotFoundError as error:
            raise FormatError(
                f"cannot read schema {schema_id}: '{path}' is missing. Data files of this schema cannot be read. "
                "Restore the file.",
                path=path,
            ) from error
        kept = self.env.cache.get(("schema file", path))
        if kept is not None and kept[0] == data:
            return cast(TableSchema, kept[1])
        check_json_seal(data, path)
        schema = from_json(data, path=path)
        if schema.id != schema_id:
            raise FormatError(
                f"cannot read the schema '{path}': it says that its id is {schema.id}. Restore the file.", path=path
            )
        if isinstance(cached, TableSchema) and cached != schema:
            self.env.cache.drop_prefix(self.paths.root)
        self.env.cache.put(path, schema, len(data) * 10)
        self.env.cache.put(("schema file", path), (data, schema), len(data))
        return schema

    def create(self, schema: TableSchema) -> TableSchema:
        """Make a schema; of racing writers one wins, of equal schemas too. A lost reply is resolved by reading back.

        Returns:
            The schema as it is stored. A server that makes it for a catalog gives it a time of its own.

        Raises:
            AlreadyExistsError: the id is taken.
            StorageError: the store failed; nothing was made.
            CommitUnknownError: the store failed and so did reading back: it may be there or not.
        """
        path = self.paths.schema(schema.id)
        data = sealed_json(_with_creation(schema.to_json(), self.env.new_id()))
        made = create_once(self.env, path, data, is_ours=lambda found, _: found == data)
        if made.unknown is not None:
            raise CommitUnknownError(
                f"cannot tell whether '{path}' was made: {made.unknown} Look whether the table is there, then try "
                "again.",
                path=path,
            ) from made.unknown
        if made.stored is None:
            raise AlreadyExistsError(f"cannot create '{path}': another writer made schema {schema.id}.", path=path)
        return self.load(schema.id, fresh=True) if isinstance(self.env.storage, GuardedStorage) else schema


def _with_creation(data: bytes, creation: str) -> bytes:
    """Return the JSON of a schema with one more key, which no other file has the value of."""
    return data.removesuffix(b"\n}") + f',\n  "{_CREATION}": "{creation}"\n}}'.encode()
