"""A table gets a log, loses it, or keeps records for another time: the topic changes with the options.

A topic is made before the schema that names it, and deleted after the schema that does not. So a process that stops in
between leaves a topic that no table names, and never a table without its topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from merganser.changes import Change, RemoveOption, SetOption, remove_option, set_option
from merganser.errors import CommitUnknownError, InvalidInputError, StorageError
from merganser.log import topics
from merganser.log.kafka import check_client, topic_of
from merganser.meta.followed import newest
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.storage.env import Env


def altered_with_log(
    table: TableDef, env: Env, changes: Sequence[Change], alter: Callable[[Sequence[Change]], TableDef]
) -> TableDef:
    """Alter a table and its topic.

    Args:
        alter: makes the changes.

    Raises:
        InvalidInputError, StorageError: the topic cannot be made; nothing was changed. Or it could
            not be changed or deleted, and the table was altered; the message says so.
        MerganserError: what `alter` raises.
    """
    now = newest(table, env)
    options, client = now.schema.options, now.unstored_client
    for change in changes:
        if isinstance(change, SetOption):
            if change.key in (w.KAFKA_TOPIC.key, *w.KAFKA_TOPIC.aliases):
                raise InvalidInputError(
                    f"cannot alter '{table.name}': '{change.key}' is chosen when a table gets a log. Nothing was "
                    "changed. Leave it out.",
                    option=change.key,
                )
            options = options.merged({change.key: str(change.value)})
        elif isinstance(change, RemoveOption):
            options = options.merged({change.key: None})
    was, will = now.schema.options.get(w.LOG_SYSTEM), options.get(w.LOG_SYSTEM)
    if was == "none" and will != "none":
        schema = replace(now.schema, options=options)
        warehouse, _, name = now.path.rstrip("/").rpartition("/")
        named = now.name if now.name != now.path else f"{warehouse.rpartition('/')[2].removesuffix('.db')}.{name}"
        made = topics.created(named, schema, warehouse.rpartition("/")[0], client)
        try:
            return alter([*changes, *(set_option(key, text) for key, text in made.items())])
        except CommitUnknownError:
            raise
        except BaseException:
            topics.dropped(now.name, replace(schema, options=options.merged(dict(made))), client)
            raise
    if was != "none" and will == "none":
        found = alter([*changes, remove_option(w.KAFKA_TOPIC.key)])
        try:
            topics.dropped(now.name, now.schema, client)
        except StorageError as error:  # a table has to get rid of the log of a broker that is gone for good
            raise StorageError(
                f"'{now.name}' has no log any more, but its topic '{topic_of(now)}' may still be there: "
                f"{error.message.partition(' The table ')[0]} Delete the topic with a tool of Kafka when the broker "
                "answers.",
                path=topic_of(now),
            ) from error
        return found
    if will == "none":
        return alter(changes)
    wanted = replace(now, schema=replace(now.schema, options=options), options=options.merged(dict(client)))
    check_client(wanted)
    topics.make_uncommitted_topic(wanted, topic_of(now))
    try:
        found = alter(changes)
    except CommitUnknownError:
        raise
    except BaseException:
        topics.altered(wanted, now)
        raise
    topics.altered(now, found)
    return found
