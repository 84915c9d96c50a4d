"""Files of a table that turned deletion vectors on when it had rows already.

While vectors are off, a compaction leaves older versions of a key in the levels below and marks none of them, and rows
of level 0 are seen at once. What was written then stays so when the option comes on, until it is rewritten::

    schema 0, off   level 4  k2 k5      level 5  k1 k2 k3      k2 is there twice, and no vector says so
    schema 1, on    level 4  k2 k5      level 5  k1 k2 k3      reads have to merge these two files, as before

A file says with which schema it was written, and the schema whether vectors were on. So files are told apart without
a look into them: what such a file meets is merged by reads, and marked by the compaction that takes the file up.

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
    """Return the schemas of whose files rows may be replaced, or replace others, without a mark.

    Those are the ones under which deletion vectors were off, and all before one of them: who had them on in between
    may have lost marks when others moved his files.

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
