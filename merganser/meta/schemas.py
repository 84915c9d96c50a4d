"""SchemaStore: the numbered schemas of one table. There is no hint; the newest is the highest number."""

from __future__ import annotations

from dataclasses import dataclass

from merganser.errors import AlreadyExistsError, FormatError, NotFoundError
from merganser.schema.table_schema import TableSchema, from_json
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths

_PREFIX = "schema-"


@dataclass(frozen=True, slots=True)
class SchemaStore:
    """Reads and creates the schemas of one table or branch. Schemas are immutable, so they are cached."""

    paths: TablePaths
    env: Env

    def ids(self) -> list[int]:
        """Return the ids of all schemas, rising."""
        names = (e.name for e in self.env.storage.list(self.paths.schema_directory) if not e.is_directory)
        return sorted(int(n[len(_PREFIX) :]) for n in names if n.startswith(_PREFIX) and n[len(_PREFIX) :].isdecimal())

    def latest(self) -> TableSchema | None:
        """Return the newest schema, or None when there is none (not a table)."""
        ids = self.ids()
        return self.load(ids[-1]) if ids else None

    def latest_id(self, known: int) -> int:
        """Return the newest schema id, given one that exists: one look in the common case."""
        return known if not self.env.storage.exists(self.paths.schema(known + 1)) else self.ids()[-1]

    def load(self, schema_id: int) -> TableSchema:
        """Return a schema.

        Raises:
            FormatError: the file is missing (data files refer to it) or damaged.
        """
        path = self.paths.schema(schema_id)
        cached = self.env.cache.get(path)
        if isinstance(cached, TableSchema):
            return cached
        try:
            data = self.env.storage.read(path)
        except NotFoundError as error:
            raise FormatError(f"cannot read schema {schema_id}: '{path}' is missing. Data files of this schema cannot be read. Restore the file.", path=path) from error
        schema = from_json(data, path=path)
        if schema.id != schema_id:
            raise FormatError(f"cannot read the schema '{path}': it says that its id is {schema.id}. Restore the file.", path=path)
        self.env.cache.put(path, schema, len(data) * 10)
        return schema

    def create(self, schema: TableSchema) -> None:
        """Make a schema; of racing writers one wins.

        Raises:
            AlreadyExistsError: the id is taken.
        """
        path = self.paths.schema(schema.id)
        data = schema.to_json()
        try:
            self.env.storage.create(path, data)
        except AlreadyExistsError:
            if self.env.storage.read(path) != data or schema.time_millis == 0:
                raise
