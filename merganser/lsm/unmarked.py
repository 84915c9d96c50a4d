"""Unmarked files: files from before a table turned deletion vectors on.

While vectors are off, a compaction leaves older versions of a key in the levels below without a mark, and readers see
rows of level 0 at once. Files of that time stay so after the option is turned on, until a compaction rewrites them::

    schema 0, off   level 4  k2 k5      level 5  k1 k2 k3      k2 is there twice, and no vector says so
    schema 1, on    level 4  k2 k5      level 5  k1 k2 k3      reads have to merge these two files, as before

The metadata of a file names its schema, and the schema tells whether vectors were on. So reads and compactions
recognise unmarked files without opening them. Reads merge an unmarked file with the files whose keys it overlaps. A
compaction that moves the file up marks the rows that it replaces.

Format: section "deletion vectors".
"""

from __future__ import annotations

from collections.abc import Collection

from merganser.errors import FormatError, NotFoundError
from merganser.meta.schemas import SchemaStore
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env


def unmarked_schemas(table: TableDef, env: Env, schema_ids: Collection[int]) -> frozenset[int]:
    """Return the schemas of unmarked files: their rows may be replaced, or replace others, without a mark.

    These are the schemas with deletion vectors off, and every schema before the last of them: files with vectors may
    have lost marks when writers without vectors moved the files.

    Args:
        table: with deletion vectors on.
        schema_ids: of files.

    Raises:
        FormatError: a schema is damaged.
    """
    own = table.schema.id
    others = {schema_id for schema_id in schema_ids if schema_id != own}
    if not others:
        return frozenset()
    store = SchemaStore(table.paths, env)

    def is_off(schema_id: int) -> bool:
        try:
            return not store.load(schema_id).options.get(w.DELETION_VECTORS)
        except FormatError as error:
            if isinstance(error.__cause__, NotFoundError):  # removed by another engine; no file was written with it
                return True
            raise

    between = [i for i in range(min(*others, own), max(*others, own) + 1) if i != own]
    off = [i for i, is_so in zip(between, env.fetch(is_off, between), strict=True) if is_so]
    return frozenset(i for i in others if any(min(i, own) <= j <= max(i, own) for j in off))
