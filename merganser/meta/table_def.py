"""TableDef: the facts of one table, as a value that travels to executors."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from merganser.codec.binary_row import deserialize
from merganser.codec.stored import Stored
from merganser.options import write as w
from merganser.options.catalog import CLIENT
from merganser.options.option import Options
from merganser.rules.facts import DYNAMIC, POSTPONE
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema
from merganser.storage.paths import TablePaths, partition_text
from merganser.values import dataclass


@dataclass(frozen=True)
class TableDef:
    """Path, schema and options.

    Attributes:
        name: how messages call the table: `db.table`, or its path.
        path: the table's directory.
        schema: the schema that is written and read with.
        options: the table's options with dynamic ones on top.
        branch: the branch, "main" for the table itself.
    """

    name: str
    path: str
    schema: TableSchema
    options: Options
    branch: str = "main"

    @cached_property
    def paths(self) -> TablePaths:
        """The paths of its files."""
        return TablePaths(
            root=self.path,
            data_directory=self.options.get(w.DATA_FILE_PATH_DIRECTORY) or "",
            default_name=self.options.get(w.PARTITION_DEFAULT_NAME),
            legacy_names=self.options.get(w.PARTITION_LEGACY_NAME),
            branch=self.branch,
        )

    @property
    def unstored_client(self) -> dict[str, str]:
        """Options for the client of the log that the handle has and the table does not store, such as passwords."""
        stored = self.schema.options
        return {key: text for key, text in self.options.items() if key.startswith(CLIENT) and stored.get(key) != text}

    def with_schema(self, schema: TableSchema) -> TableDef:
        """Return the table with another of its schemas and the options stored there; dynamic ones stay on top."""
        stored = self.schema.options
        dynamic: dict[str, str | None] = {key: text for key, text in self.options.items() if stored.get(key) != text}
        dynamic |= {key: None for key in stored if key not in self.options}
        return replace(self, schema=schema, options=schema.options.merged(dynamic))

    @property
    def keyed(self) -> bool:
        """Whether it has a primary key."""
        return bool(self.schema.primary_keys)

    @property
    def counting(self) -> bool:
        """Whether it has no key and counts equal rows; see `TableSchema.counting`."""
        return self.schema.counting

    @cached_property
    def bucket(self) -> int:
        """The bucket option: n fixed; -1 dynamic (with a key) or unaware (without); -2 postponed."""
        return self.options.get(w.BUCKET)

    @property
    def bucketed(self) -> bool:
        """Whether rows lie in buckets; else each partition has one directory that every writer adds files to."""
        return self.keyed or self.bucket > 0

    @property
    def assigns_keys(self) -> bool:
        """Whether buckets are added as keys arrive."""
        return self.keyed and self.bucket == DYNAMIC

    @property
    def postpones(self) -> bool:
        """Whether rows may wait for their buckets until a compaction."""
        return self.keyed and self.bucket == POSTPONE

    @property
    def shares_keys(self) -> bool:
        """Whether the tasks of a write share the keys among them, and not the buckets: their number is no option."""
        return self.assigns_keys or self.postpones

    @property
    def moves_keys(self) -> bool:
        """Whether a key has one row in all partitions; no index says where."""
        return self.assigns_keys and self.schema.cross_partition

    @property
    def indexes_keys(self) -> bool:
        """Whether index files say which keys a bucket has."""
        return self.assigns_keys and not self.moves_keys

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The key columns within a partition (primary key less partition columns), in key order."""
        return self.schema.trimmed_primary_key

    @cached_property
    def row_key(self) -> tuple[str, ...]:
        """The columns that say which row is meant: the primary key, and the partition columns that it lacks."""
        names = self.schema.primary_keys
        return (*names, *(name for name in self.schema.partition_keys if name not in names))

    @cached_property
    def key_types(self) -> tuple[t.DataType, ...]:
        """Types of the key columns."""
        return tuple(self.schema.field(name).type for name in self.key)

    @cached_property
    def partition_types(self) -> tuple[t.DataType, ...]:
        """Types of the partition columns."""
        return tuple(self.schema.field(name).type for name in self.schema.partition_keys)

    def bucket_directory(self, partition: bytes, bucket: int) -> str:
        """Return the directory of a bucket of a serialized partition."""
        return self.paths.bucket_directory(self.partition_directory(partition), bucket)

    def partition_values(self, partition: bytes) -> tuple[tuple[str, Stored], ...]:
        """Return the partition columns of a serialized partition, each with its stored value."""
        values = deserialize(partition, self.partition_types)
        return tuple(zip(self.schema.partition_keys, values, strict=True))

    def partition_texts(self, partition: bytes) -> dict[str, str]:
        """Return the columns of a serialized partition with the texts that its directory has, not escaped."""
        values = zip(self.partition_values(partition), self.partition_types, strict=True)
        null, legacy = self.paths.default_name, self.paths.legacy_names
        return {
            column: partition_text(value, kind, default_name=null, legacy=legacy) for (column, value), kind in values
        }

    def partition_shown(self, partition: bytes) -> str:
        """Return a serialized partition for people: "dt=2026-01-01, hour=7"."""
        values = deserialize(partition, self.partition_types)
        return self.paths.partition_shown(self.schema.partition_keys, values, self.partition_types)

    def partition_directory(self, partition: bytes) -> str:
        """Return the directory of a serialized partition."""
        values = deserialize(partition, self.partition_types)
        return self.paths.partition_directory(self.schema.partition_keys, values, self.partition_types)
