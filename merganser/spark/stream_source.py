"""`ms.read_stream`: what a stream of a table reads, checked before it starts; `stream_reader` reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from merganser.errors import InvalidInputError
from merganser.expr.filters import to_predicate
from merganser.expr.setting import Setting
from merganser.options import read as r
from merganser.options.option import Options
from merganser.options.registry import arguments_of, check_asked, closest, find_catalog_option, find_option
from merganser.rules.starts import check_scan_options
from merganser.scan.scan import chosen_columns
from merganser.scan.split import What
from merganser.schema.table_schema import CHANGE_KIND
from merganser.spark.names import setting_of, spelling_of
from merganser.spark.stream_reader import RequestSource, StreamRequest
from merganser.stream.batches import Limits, check_batches
from merganser.stream.starts import check_start

if TYPE_CHECKING:
    from merganser.handle.system_table import TableView
    from merganser.handle.table import Table

_LIMITS: Final = {
    option.key.removeprefix("read.stream.").lower(): option.key
    for option in (
        r.STREAM_MAX_FILES,
        r.STREAM_MAX_ROWS,
        r.STREAM_MAX_BYTES,
        r.STREAM_MIN_ROWS,
        r.STREAM_MAX_DELAY,
    )
}
"""Short names of options that limit batches, in lower case, as other sources of Spark have them."""


def long_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with the whole names of those that limit batches.

    Raises:
        InvalidInputError: a name is like that of a limit, and no other option has it.
    """
    return {_long_name(key): value for key, value in options.items()}


def _long_name(key: str) -> str:
    short = key.lower().removeprefix("read.stream.")
    if short in _LIMITS:
        return _LIMITS[short]
    if find_option(key) is None and find_catalog_option(key) is None and (meant := closest(short, _LIMITS)):
        limit = _LIMITS[meant].removeprefix("read.stream.")
        raise InvalidInputError(
            f"unknown option '{key}' of a stream. Did you mean '{limit}'? Nothing was read.", option=key, meant=limit
        )
    return key


def limits_of(options: Options, action: str) -> Limits:
    """Return the limits of a batch that the options of a table set.

    Raises:
        InvalidInputError: rows are waited for without a delay, or the other way round.
    """
    least, delay = options.get(r.STREAM_MIN_ROWS), options.get(r.STREAM_MAX_DELAY)
    if (least is None) != (delay is None):
        raise InvalidInputError(
            f"{action}: 'minRowsPerTrigger' and 'maxTriggerDelayMs' go together: a batch waits for so many rows, and "
            "no longer than so many milliseconds. Nothing was read. Give both, or none.",
            option=r.STREAM_MIN_ROWS.key,
        )
    return Limits(
        options.get(r.STREAM_MAX_FILES),
        options.get(r.STREAM_MAX_ROWS),
        options.get(r.STREAM_MAX_BYTES),
        least,
        None if delay is None else timedelta(milliseconds=delay),
    )


def read_stream(
    spark: SparkSession,
    table: Table | TableView | str,
    columns: Sequence[str] | None = None,
    where: str | Any | None = None,
    kinds: bool = True,
    shards: bool = False,
    start: str = "trim_horizon",
    timestamp: datetime | str | None = None,
    before: bool = False,
    full: bool = False,
    gaps: str | None = None,
    **options: Any,
) -> DataFrame:
    """Return a streaming DataFrame that follows a table: first a state, then what each snapshot publishes.

    With `shards=True` it returns the records of the shard stream of the table instead: `_shard_id`, and the columns of
    `Table.records`. Records of a shard lie in one task of a batch, in their order. No batch has records of a shard
    together with records of the shards that its keys were in before: these come in an earlier batch.

    Args:
        spark: the session whose tasks read.
        table: a table, or its path; also a view such as `orders$audit_log`.
        columns: names of the columns to return after `_row_kind`; None: all. Columns that are added to the table later
            appear when the query starts again.
        where: as for `ms.read`; it may look at `_row_kind`.
        kinds: return the kinds of the rows in `_row_kind`. False: return rows of kind +I and +U alone, without kinds.
        shards: return records of shards.
        start: where records begin if the query has no checkpoint: "trim_horizon" or "latest".
        timestamp: begin with the first record of this time or later; text is in the time zone of the session. It goes
            before `start`.
        before, full: see `Table.records`.
        gaps: what to do about commits whose changes are not known; see `Table.stream`. Not for records.
        options: where to start (`scan.mode` and its kin, `consumer-id`), how much a batch reads
            (`maxFilesPerTrigger`, `maxRowsPerTrigger`, `maxBytesPerTrigger`, `minRowsPerTrigger` together with
            `maxTriggerDelayMs`), and other options of the table for this reader.

    Raises:
        InvalidInputError: a column, the filter or an option is invalid.
        NotFoundError: the table does not exist, or keeps no shard stream.
        UnsupportedError: the table needs a feature that this version does not have.
    """
    from merganser.handle.system_table import TableView
    from merganser.spark.access import cores, opened
    from merganser.spark.pythons import warn_of_other_python
    from merganser.spark.shard_source import RecordsAsked, refuse_unless_shards, shard_request_of

    found = table if isinstance(table, TableView) else opened(table)
    base = found.base if isinstance(found, TableView) else found
    options = long_names({key: str(value) for key, value in options.items()})
    check_asked(options, arguments_of(read_stream))
    base = base.with_options(options).marking(gaps)
    view = found.view_name if isinstance(found, TableView) else None
    asked = RecordsAsked(start, timestamp, before, full)
    if shards and gaps is not None:
        raise InvalidInputError(
            f"cannot follow '{base.name}': gaps={gaps!r:.40} goes with changes. Leave it or shards out."
        )
    if not shards:
        refuse_unless_shards(asked, f"cannot follow '{base.name}'")
        request: StreamRequest = request_of(
            base,
            view,
            columns=spelling_of(spark, base).names(columns),
            where=where,
            setting=setting_of(spark, base),
            kinds=kinds,
            parallelism=cores(spark),
        )
    else:
        request = shard_request_of(
            base,
            view,
            asked,
            columns=columns,
            spelling=spelling_of(spark, base),
            where=where,
            setting=setting_of(spark, base),
            given=options,
            limits=limits_of(base.definition.options, f"cannot follow '{base.name}'"),
            parallelism=cores(spark),
        )
    warn_of_other_python(spark)
    name = f"merganser-{base.env.new_id()[:12]}"

    class Registered(RequestSource):
        """The source in this session."""

        def __new__(cls, options: dict[str, str]) -> RequestSource:  # type: ignore[misc]
            return RequestSource(request)  # the source itself, since this class cannot be pickled by its name

        @classmethod
        def name(cls) -> str:
            return name

    spark.dataSource.register(Registered)
    return spark.readStream.format(name).load()


def request_of(
    table: Table,
    view: str | None,
    *,
    columns: Sequence[str] | None,
    where: Any,
    setting: Setting,
    kinds: bool,
    parallelism: int,
) -> StreamRequest:
    """Return what a stream of a table, or of a view of it, reads.

    Args:
        columns: names, without that of the kinds; None: all.
        kinds: whether rows have kinds, if it is no view.

    Raises:
        InvalidInputError: a column, the filter or an option is invalid, or the view shows no changes.
    """
    from merganser.scan.views import checked_columns, form_of
    from merganser.spark.access import TASKS_PER_CORE

    definition = table.definition
    action = f"cannot follow '{definition.name}'"
    what = What.CHANGED if kinds else What.MERGED
    if view is not None:
        form = form_of(view, definition)
        if form is None:
            raise InvalidInputError(
                f"{action}: '${view}' shows what full compactions left, and no changes. Follow the table, or its "
                "'$audit_log'."
            )
        what = form
    check_scan_options(definition.options, what=action)
    fields = checked_columns(what, definition)
    if columns is not None and what is What.CHANGED:
        columns = [CHANGE_KIND.name, *(name for name in columns if name != CHANGE_KIND.name)]
    chosen = chosen_columns(definition, columns, fields)
    request = StreamRequest(
        definition,
        table.env,
        what,
        chosen,
        to_predicate(where, fields, setting=setting),
        limits_of(definition.options, action),
        TASKS_PER_CORE * parallelism,
    )
    check_start(definition, what, action)
    check_batches(definition, action)
    return request
