"""What a stream of the records of shards reads, checked before it starts; `shard_request` reads it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from merganser.errors import InvalidInputError, StreamParameterError
from merganser.expr.setting import Setting
from merganser.handle.table import Table
from merganser.meta.followed import newest
from merganser.meta.shard_stream import stream_of
from merganser.options import read as r
from merganser.scan.scan import chosen_columns
from merganser.scan.split import What
from merganser.shards.batches import Beginning
from merganser.shards.records import OWN, Shape, record_fields
from merganser.shards.verbs import LATEST, TRIM_HORIZON, millis_of
from merganser.spark.access import TASKS_PER_CORE
from merganser.spark.names import Spelling
from merganser.spark.shard_request import SHARD_ID, ShardRequest
from merganser.stream.batches import Limits, check_batches
from merganser.upkeep.shard_stream import no_stream
from merganser.values import dataclass


@dataclass(frozen=True, slots=True)
class RecordsAsked:
    """What the caller said of a stream of records; see `read_stream`."""

    start: str = TRIM_HORIZON
    timestamp: datetime | str | None = None
    before: bool = False
    full: bool = False


def refuse_unless_shards(asked: RecordsAsked, action: str) -> None:
    """Refuse arguments of a stream of records where records are not asked for.

    Raises:
        InvalidInputError: there are some. Nothing was read.
    """
    if asked != RecordsAsked():
        raise InvalidInputError(
            f"{action}: 'start', 'timestamp', 'before' and 'full' are for the records of shards. Nothing was read. Ask "
            "for them with 'shards'; of other streams, 'scan.mode' and its kin say where they start."
        )


def shard_request_of(
    table: Table,
    view: str | None,
    asked: RecordsAsked,
    *,
    columns: Sequence[str] | None,
    spelling: Spelling,
    where: Any,
    setting: Setting,
    given: Iterable[str],
    limits: Limits,
    parallelism: int,
) -> ShardRequest:
    """Return what a stream of the records of a table reads.

    Args:
        view: the name of the view that was asked for; None: none was.
        columns: names of the columns to return, of all; None: all.
        where: what was asked for; there are no filters.
        given: the names of the options of this reader.
        limits: of a batch.

    Raises:
        StreamNotFoundError: the table keeps no stream.
        StreamParameterError: start is no start, or timestamp no time.
        InvalidInputError: a column or an option is invalid.
    """
    action = f"cannot follow '{table.definition.name}'"
    definition = newest(table.definition, table.env)
    if view is not None:
        raise InvalidInputError(f"{action}: '${view}' has no shards. Nothing was read. Follow the table itself.")
    if where is not None:
        raise InvalidInputError(
            f"{action}: a stream of records has no filter, since a record is made of all stored rows of a change. "
            "Nothing was read. Filter the DataFrame."
        )
    for option in given:
        if option.lower().startswith("scan.") or option.lower() == r.CONSUMER_ID.key:
            raise InvalidInputError(
                f"{action}: the option '{option}' is for streams of rows. Nothing was read. Of records, 'start' and "
                "'timestamp' say where they begin, and the checkpoint of the query keeps the position.",
                option=option,
            )
    if asked.start not in (TRIM_HORIZON, LATEST):
        raise StreamParameterError(
            f"{action}: start is {asked.start!r:.60}. Give '{TRIM_HORIZON}', '{LATEST}', or a timestamp.",
            table=definition.name,
        )
    stream = stream_of(definition.schema.options, definition.branch)
    if stream is None:
        raise no_stream(definition.name, action)
    key = definition.row_key if definition.keyed else ()
    own = definition.schema.user_fields
    names = [SHARD_ID.name, *OWN, *(field.name for field in own)]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInputError(
                f"{action}: the table has a column '{name}', and records have one of this name. Nothing was read. "
                "Rename the column.",
                column=name,
            )
    wanted = spelling.names(columns, names)
    stored = own
    if wanted is not None and not isinstance(wanted, str):
        stored = tuple(field for field in own if field.name in {*wanted, *key}) or own[:1]
    shape = Shape(tuple(field.name for field in stored), key, asked.before, asked.full)
    chosen = chosen_columns(definition, wanted, (SHARD_ID, *record_fields(shape, stored)))
    check_batches(definition, action)
    since = None if asked.timestamp is None else millis_of(asked.timestamp, action, setting.tzinfo)
    return ShardRequest(
        definition,
        table.env,
        What.CHANGED,
        chosen,
        None,
        limits,
        TASKS_PER_CORE * parallelism,
        stream,
        Beginning(asked.start, since),
        shape,
        stored,
    )
