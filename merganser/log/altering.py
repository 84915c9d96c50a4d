"""A table gets a log, loses it, or keeps records for another time: the topic changes with the options.

A topic is made before the schema that names it, and deleted after the schema that does not. So a process that stops in
between leaves a topic that no table names, and never a table without its topic. A topic gets its settings before the
schema: if the broker does not take them, the table stays as it is. A repair corrects what a stopped process left.
Before a topic is deleted, the broker has to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from merganser.changes import Change, RemoveOption, SetOption, remove_option, set_option
from merganser.commit.log import is_eventual
from merganser.errors import CommitUnknownError, InvalidInputError, StorageError
from merganser.log import topics
from merganser.log.kafka import check_client, topic_of
from merganser.log.uncommitted import uncommitted_topic
from merganser.meta.followed import newest
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.options.option import Options
from merganser.storage.env import Env


def altered_with_log(
    table: TableDef, env: Env, changes: Sequence[Change], alter: Callable[[Sequence[Change]], TableDef]
) -> TableDef:
    """Alter a table and its topic.

    Args:
        alter: makes the changes.

    Raises:
        InvalidInputError, StorageError: the topic cannot be made or changed; nothing was changed. Or it
            could not be deleted, and the table was altered; the message says so.
        MerganserError: what `alter` raises.
    """
    now, removes_topic = newest(table, env), False
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
            removes_topic |= change.key in (w.KAFKA_TOPIC.key, *w.KAFKA_TOPIC.aliases)
            options = options.merged({change.key: None})
    was, will = now.schema.options.get(w.LOG_SYSTEM), options.get(w.LOG_SYSTEM)
    if removes_topic and "none" not in (was, will):
        raise InvalidInputError(
            f"cannot alter '{table.name}': '{w.KAFKA_TOPIC.key}' names the topic of its log. Nothing was changed. Set "
            "'log.system' = 'none' to remove the log.",
            option=w.KAFKA_TOPIC.key,
        )
    if will != "none" and not options.get(w.KAFKA_BOOTSTRAP_SERVERS):
        raise InvalidInputError(
            f"cannot alter '{table.name}': '{w.LOG_SYSTEM.key}' = '{will}' needs '{w.KAFKA_BOOTSTRAP_SERVERS.key}'. "
            "Nothing was changed.",
            option=w.KAFKA_BOOTSTRAP_SERVERS.key,
        )
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
        _check_can_delete(now, options)
        found = alter([*changes, remove_option(w.KAFKA_TOPIC.key)])
        try:
            topics.dropped(now.name, now.schema, client)
        except StorageError as error:
            raise _still_there(f"'{now.name}' has no log any more", topic_of(now), error) from error
        return found
    if will == "none":
        return alter(changes)
    wanted = replace(now, schema=replace(now.schema, options=options), options=options.merged(dict(client)))
    check_client(wanted)
    servers = w.KAFKA_BOOTSTRAP_SERVERS
    if now.options.get(servers) != wanted.options.get(servers):
        topics.check_answers(wanted)
    if is_eventual(wanted) and not is_eventual(now):
        topics.make_uncommitted_topic(wanted, topic_of(now))
    if is_eventual(now) and not is_eventual(wanted):
        _check_can_delete(now, options)
    topics.configure(now, wanted)
    try:
        found = alter(changes)
    except CommitUnknownError:
        raise
    except BaseException:
        topics.configure(wanted, now)
        if is_eventual(wanted) and not is_eventual(now):
            topics.delete_uncommitted_topic(now)
        raise
    if is_eventual(now) and not is_eventual(found):
        try:
            topics.delete_uncommitted_topic(found)
        except StorageError as error:
            raise _still_there(f"'{now.name}' was altered", uncommitted_topic(topic_of(now)), error) from error
    return found


def _check_can_delete(now: TableDef, options: Options) -> None:
    """Raise an error if the broker does not answer, so that no topic would be deleted after the table was altered.

    A table with 'log.when-unavailable' = 'files-only' goes on without the broker, which may be gone for good.

    Args:
        options: those that the table gets.

    Raises:
        StorageError: the broker does not answer; nothing was changed.
    """
    if options.get(w.LOG_WHEN_UNAVAILABLE) == "files-only":
        return
    try:
        topics.check_answers(now)
    except StorageError as error:
        raise StorageError(
            f"{error.message} Or, if it is gone for good, also set '{w.LOG_WHEN_UNAVAILABLE.key}' = 'files-only': then "
            "the table is altered without the broker, and the topic stays where it is.",
            path=topic_of(now),
        ) from error


def _still_there(what: str, topic: str, error: StorageError) -> StorageError:
    """Return the error of a topic that was not deleted after its table was altered."""
    return StorageError(
        f"{what}, but its topic '{topic}' may still be there: {error.message.partition(' The table ')[0]} Delete the "
        "topic with a tool of Kafka when the broker answers.",
        path=topic,
    )
