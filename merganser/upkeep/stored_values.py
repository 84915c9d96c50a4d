"""Values that a table has, and that files of a format that it is to write cannot hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from merganser.errors import InvalidInputError
from merganser.expr.text import parse_predicate
from merganser.files.layout import value_limits
from merganser.lsm.section import SectionReader
from merganser.meta.data_file import ManifestEntry
from merganser.meta.followed import columns_of
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader
from merganser.options import read as r
from merganser.options import write as w
from merganser.rules.facts import POSTPONE
from merganser.scan.scan import Scan
from merganser.scan.source import State
from merganser.scan.split import What
from merganser.schema import types as t
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env

_NEAR: Final = ("1677-09-23 00:00:00", "2262-04-09 00:00:00")
"""Between them every format holds a timestamp in each time zone: statistics show that most files have no others."""


def check_values(
    table: TableDef, env: Env, snapshot: Snapshot, *, before: TableSchema | None = None, what: str
) -> None:
    """Refuse options that name a format of files that cannot hold a value of the table's rows.

    Compactions and changelogs write rows in each of these formats, and would fail from then on. Columns are read only
    where they hold timestamps, and files only if their statistics do not exclude such values.

    Args:
        table: with the options, and the schema that its rows get.
        snapshot: the rows.
        before: the schema by which the rows were written: what its options forbade is not looked for. None: nothing.
        what: beginning of the message, such as "cannot alter 'db.orders'".

    Raises:
        InvalidInputError: names the column and the value.
    """
    limits = value_limits(table.schema.options)
    if not limits.any:
        return
    checked = {}
    if before is not None and value_limits(before.options).any:
        checked = {field.id: field.type for field in before.fields}
    options = {r.DELETION_VECTORS_MERGE_ON_READ.key: "true"} if table.options.get(w.DELETION_VECTORS) else {}
    table = replace(table, options=table.options.merged(options))
    for field in table.schema.fields:
        if not _has_timestamps(field.type) or checked.get(field.id) == field.type:
            continue
        where = None
        if isinstance(field.type, t.Timestamp | t.LocalZonedTimestamp):
            name = field.name.replace("`", "``")
            text = f"`{name}` < TIMESTAMP '{_NEAR[0]}' OR `{name}` > TIMESTAMP '{_NEAR[1]}'"
            where = parse_predicate(text, table.schema.fields)
        stored = What.STORED if table.keyed else What.MERGED  # retractions are rewritten, too
        batches = Scan(table, env, (field,), where, State(snapshot), what=stored).to_batches()
        waiting = unmerged_values(table, env, snapshot, field, lambda bucket, _: bucket == POSTPONE)
        values = itertools.chain((batch.column(0) for batch in batches), waiting)
        for part in values:
            beyond = np.flatnonzero(limits.beyond(part))
            if len(beyond):
                raise InvalidInputError(
                    f"{what}: column '{field.name}' of a row is {part[int(beyond[0])]!s:.60}, {limits.why}. "
                    "Nothing was changed. To go on, change these values, or the option.",
                    column=field.name,
                )


def unmerged_values(
    table: TableDef,
    env: Env,
    snapshot: Snapshot,
    field: t.Field,
    among: Callable[[int, Sequence[ManifestEntry]], bool],
) -> Iterator[pa.Array]:
    """Yield a column of the rows as files hold them: all versions of a key, and pending rows.

    Args:
        among: chooses buckets, by their number and their files.
    """
    for (partition, bucket), files in MetaReader(table.paths, env, table.name).state(snapshot).live.buckets.items():
        if not among(bucket, files.entries):
            continue
        schemas = columns_of(table, env, (entry.file.schema_id for entry in files.entries))
        reader = SectionReader(table, table.bucket_directory(partition, bucket), partition, schemas, env.storage)
        for entry in files.entries:
            for rows in reader.plain(entry.file, (field,)):
                yield from rows.column(field.name).chunks


def _has_timestamps(kind: t.DataType) -> bool:
    return isinstance(kind, t.Timestamp | t.LocalZonedTimestamp) or any(_has_timestamps(part) for part in _parts(kind))


def _parts(kind: t.DataType) -> Iterator[t.DataType]:
    match kind:
        case t.Row(fields=fields):
            yield from (field.type for field in fields)
        case t.Array(element=element) | t.Multiset(element=element):
            yield element
        case t.Map(key=key, value=value):
            yield from (key, value)
