"""CALL sys.*: maintenance under the names of Paimon's procedures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, Final

import pyarrow as pa

from merganser.errors import InvalidInputError, NotFoundError, a_type
from merganser.expr.setting import Setting
from merganser.handle.table import Table
from merganser.meta.consumers import ConsumerStore
from merganser.options.registry import did_you_mean
from merganser.sql import statements as s
from merganser.sql.engine import Engine
from merganser.sql.result import Result, rows_of
from merganser.sql.state import State
from merganser.values import dataclass

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Procedure:
    """A procedure of CALL.

    Attributes:
        arguments: their names, in the order of positions; the first `required` ones must be given.
        also: other names of arguments.
        about: what it does, for the reference.
    """

    arguments: tuple[str, ...]
    required: int
    run: Callable[[State, Engine, Given], Result]
    about: str
    also: Mapping[str, str]


def call(state: State, engine: Engine, statement: s.Call) -> Result:
    """Run a procedure.

    Raises:
        NotFoundError: there is no such procedure; with the nearest name.
        InvalidInputError: an argument is missing, unknown, or of another type.
    """
    _, procedure, given = asked(state, statement)
    return procedure.run(state, engine, given)


def asked(state: State, statement: s.Call) -> tuple[str, Procedure, Given]:
    """Return the name, the procedure and the arguments of a call.

    Raises:
        NotFoundError: there is no such procedure; with the nearest name.
        InvalidInputError: an argument is missing or unknown.
    """
    name = statement.procedure
    if len(name) > 2 and name[0] != state.catalog_name:
        raise NotFoundError(f"there is no catalog '{name[0]}'. This session has '{state.catalog_name}'.")
    if len(name) > 1 and name[-2].lower() != "sys":
        raise NotFoundError(f"there is no procedure '{'.'.join(name)}'. Procedures are called sys.{name[-1]}.")
    procedure = PROCEDURES.get(name[-1].lower())
    if procedure is None:
        asked = name[-1].lower()
        hint = _STATEMENTS.get(asked) or did_you_mean(asked, list(PROCEDURES))
        raise NotFoundError(
            f"there is no procedure 'sys.{name[-1]}'. {hint}",
            procedure=name[-1],
        )
    return name[-1].lower(), procedure, _arguments(name[-1], procedure, statement)


_STATEMENTS: Final = dict.fromkeys(
    ("drop_partition", "drop_partitions", "delete_partition"),
    "Write ALTER TABLE ... DROP PARTITION (day = '2026-10-03'), with your partition columns.",
)
"""What to write in place of procedures of other engines that are statements here."""


def _arguments(name: str, procedure: Procedure, statement: s.Call) -> dict[str, Any]:
    what = f"cannot call sys.{name}"
    if len(statement.positional) > len(procedure.arguments):
        raise InvalidInputError(
            f"{what}: {len(statement.positional)} arguments are given, and it takes {', '.join(procedure.arguments)}."
        )
    found = dict(zip(procedure.arguments, statement.positional, strict=False))
    for key, value in statement.named.items():
        real = procedure.also.get(key, key)
        if real not in procedure.arguments:
            known = list(procedure.arguments)
            raise InvalidInputError(f"{what}: it has no argument '{key}'. {did_you_mean(key, known)}")
        if real in found:
            raise InvalidInputError(f"{what}: the argument '{key}' is given twice.")
        found[real] = value
    found = {key: value for key, value in found.items() if value is not None}
    for key in procedure.arguments[: procedure.required]:
        if key not in found:
            raise InvalidInputError(
                f"{what}: the argument '{key}' is missing. It takes {', '.join(procedure.arguments)}."
            )
    return found


# values of arguments


def table_named(state: State, given: Given) -> Table:
    """Return the table of the argument `table`.

    Raises:
        NotFoundError: there is no such table.
        InvalidInputError: the argument is no text, or names a system table.
    """
    text = given["table"]
    if not isinstance(text, str):
        raise InvalidInputError(f"table is {a_type(text)}. Give its name as text.")
    parts = tuple(part.strip().strip("`") for part in text.split("."))
    return state.table(parts)


def _whole(given: Given, key: str) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, str) and value.strip().lstrip("-").isdigit():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInputError(f"{key} is {value!r:.80}. Give a whole number.")
    return value


def _flag(given: Given, key: str, default: bool) -> bool:
    value = given.get(key, default)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if not isinstance(value, bool):
        raise InvalidInputError(f"{key} is {value!r:.80}. Give true or false.")
    return value


def _time(state: State, given: Given, key: str) -> datetime | None:
    value = given.get(key)
    zone = Setting(state.zone).tzinfo
    match value:
        case None:
            return None
        case datetime():
            return value if value.tzinfo else value.replace(tzinfo=zone)
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=zone)
        case int():
            return datetime.fromtimestamp(value / 1000, UTC)
        case str():
            try:
                found = datetime.fromisoformat(value.strip())
            except ValueError as error:
                raise InvalidInputError(f"{key} is '{value}'. Give a time such as '2026-01-31 10:00:00'.") from error
            return found if found.tzinfo else found.replace(tzinfo=zone)
    raise InvalidInputError(f"{key} is {a_type(value)}. Give a time such as '2026-01-31 10:00:00'.")


def _partitions(given: Given, key: str = "partitions") -> list[dict[str, str]] | None:
    """Return the partitions of `dt=a,hh=8;dt=b`."""
    text = given.get(key)
    if text is None:
        return None
    found = []
    for part in str(text).split(";"):
        spec = {}
        for pair in part.replace("/", ",").split(","):
            name, sign, value = pair.partition("=")
            if not sign:
                raise InvalidInputError(f"{key} is '{text}'. Write partitions as 'dt=2026-01-01,hh=8;dt=2026-01-02'.")
            spec[name.strip()] = value.strip().strip("'\"")
        found.append(spec)
    return found


def _done(value: Any = True) -> Result:
    return rows_of(["result"], [[value]], [pa.bool_()])


# procedures


def _compact(state: State, engine: Engine, given: Given) -> Result:
    table = table_named(state, given)
    columns = [part.strip() for part in str(given.get("order_by", "")).split(",") if part.strip()]
    curve = str(given.get("order_strategy", "none" if not columns else "order")).lower()
    if curve == "none" and columns:
        raise InvalidInputError("order_by needs order_strategy: order, zorder or hilbert.")
    how: dict[str, Any] = {"full": str(given.get("compact_strategy", "full")).lower() != "minor"}
    if (partitions := _partitions(given)) is not None:
        how["partitions"] = partitions
    if (where := given.get("where")) is not None:
        how["where"] = where
    if columns:
        how |= {"order_by": columns, "curve": curve}
    if options := given.get("options"):
        table = table.with_options(dict(pair.strip().split("=", 1) for pair in str(options).split(",")))
    snapshot = engine.compact(table, **how)
    return _with(_done(), snapshot)


def _with(result: Result, snapshot: Any) -> Result:
    return replace(result, snapshot=snapshot)


def _expire_snapshots(state: State, engine: Engine, given: Given) -> Result:
    expired = table_named(state, given).expire(
        retain_max=_whole(given, "retain_max"), retain_min=_whole(given, "retain_min"),
        older_than=_time(state, given, "older_than"), max_deletes=_whole(given, "max_deletes"),
        dry_run=_flag(given, "dry_run", False),
    )  # fmt: skip
    return rows_of(["deleted_snapshots_count"], [[len(expired)]], [pa.int32()])


def _expire_partitions(state: State, engine: Engine, given: Given) -> Result:
    table = table_named(state, given)
    options = {
        option: str(given[key])
        for key, option in (
            ("expiration_time", "partition.expiration-time"),
            ("timestamp_formatter", "partition.timestamp-formatter"),
            ("timestamp_pattern", "partition.timestamp-pattern"),
            ("expire_strategy", "partition.expiration-strategy"),
            ("max_expires", "partition.expiration-max-num"),
        )
        if key in given
    }
    expired = (table.with_options(options) if options else table).expire_partitions(
        dry_run=_flag(given, "dry_run", False)
    )
    texts = [", ".join(f"{key}={value}" for key, value in spec.items()) for spec in expired]
    return rows_of(["expired_partitions"], [[text] for text in texts or ["No expired partitions."]])


def _create_tag(state: State, engine: Engine, given: Given) -> Result:
    table_named(state, given).tags.create(
        given["tag"], snapshot=_whole(given, "snapshot"), retain=given.get("time_retained")
    )
    return _done()


def _create_tag_from_timestamp(state: State, engine: Engine, given: Given) -> Result:
    table = table_named(state, given)
    snapshot = table.looked_at(timestamp=_time(state, given, "timestamp"))
    table.tags.create(
        given["tag"], snapshot=None if snapshot is None else snapshot.id, retain=given.get("time_retained")
    )
    return _done()


def _replace_tag(state: State, engine: Engine, given: Given) -> Result:
    table = table_named(state, given)
    table.tags.replace(given["tag"], snapshot=_whole(given, "snapshot"), retain=given.get("time_retained"))
    return _done()


def _rename_tag(state: State, engine: Engine, given: Given) -> Result:
    table_named(state, given).tags.rename(given["tag"], given["target_tag"])
    return _done()


def _delete_tag(state: State, engine: Engine, given: Given) -> Result:
    table = table_named(state, given)
    for tag in str(given["tag"]).split(","):
        table.tags.drop(tag.strip())
    return _done()


def rollback_target(state: State, given: Given) -> tuple[Mapping[str, Any], int]:
    """Return the arguments of `Table.rollback`, and the id of the snapshot that they name.

    Raises:
        InvalidInputError: no snapshot and no tag is given.
        NotFoundError: there is no such tag, or the table has no snapshot.
    """
    table, time = table_named(state, given), _time(state, given, "timestamp")
    if time is not None:
        found = table.looked_at(timestamp=time)
        if found is None:
            raise NotFoundError(f"cannot roll back '{table.name}': it has no snapshot.")
        return {"snapshot": found.id}, found.id
    target = given.get("snapshot", given.get("tag"))
    if target is None:
        raise InvalidInputError("cannot call sys.rollback: give a snapshot or a tag to go back to.")
    tags = {tag.name: tag.snapshot.id for tag in table.tags.list()}
    if str(target) in tags:
        return {"tag": str(target)}, tags[str(target)]
    if str(target).strip().isdigit():
        return {"snapshot": int(target)}, int(target)
    near = did_you_mean(str(target), sorted(tags)) if tags else "The table has no tags."
    raise NotFoundError(f"cannot roll back '{table.name}': there is no tag '{target}'. {near}")


def _rollback(state: State, engine: Engine, given: Given) -> Result:
    how, _ = rollback_target(state, given)
    return _with(_done(), table_named(state, given).rollback(**how))


def _create_branch(state: State, engine: Engine, given: Given) -> Result:
    tag = given.get("tag")
    table_named(state, given).branches.create(given["branch"], **({} if tag is None else {"tag": tag}))
    return _done()


def _delete_branch(state: State, engine: Engine, given: Given) -> Result:
    table = table_named(state, given)
    for branch in str(given["branch"]).split(","):
        table.branches.drop(branch.strip())
    return _done()


def _fast_forward(state: State, engine: Engine, given: Given) -> Result:
    return _with(_done(), table_named(state, given).branches.fast_forward(given["branch"]))


def _rescale(state: State, engine: Engine, given: Given) -> Result:
    table = table_named(state, given)
    buckets = _whole(given, "bucket_num")
    if buckets is None:
        text = str(table.options.get("bucket", "-1"))
        buckets = int(text) if text.isdigit() else 0
    return _with(_done(), engine.rescale(table, buckets, _partitions(given)))


def _remove_orphan_files(state: State, engine: Engine, given: Given) -> Result:
    names = str(given["table"])
    if names.endswith(".*"):
        tables = [state.table((names[:-2], name)) for name in state.catalog.list_tables(names[:-2])]
    else:
        tables = [table_named(state, given)]
    dry_run, older = _flag(given, "dry_run", False), _time(state, given, "older_than")
    count = size = 0
    for table in tables:
        sizes = {path: _size(table, path) for path in table.remove_orphans(older_than=older, dry_run=True)}
        removed = tuple(sizes) if dry_run or not sizes else table.remove_orphans(older_than=older, dry_run=False)
        count += len(removed)
        size += sum(sizes.get(path) or 0 for path in removed)
    names_of = ["deletedFileCount", "deletedFileTotalLenInBytes"]
    return rows_of(names_of, [[count, size]], [pa.int64(), pa.int64()])


def _size(table: Table, path: str) -> int:
    with table.env.storage.open(path) as file:
        return int(file.size())


def _reset_consumer(state: State, engine: Engine, given: Given) -> Result:
    consumers = table_named(state, given).consumers
    following = _whole(given, "next_snapshot")
    if following is None:
        consumers.drop(given["consumer_id"])
    else:
        consumers.set(given["consumer_id"], next_snapshot=following)
    return _done()


def _clear_consumers(state: State, engine: Engine, given: Given) -> Result:
    consumers = table_named(state, given).consumers
    for consumer in consumers.list():
        consumers.drop(consumer.id)
    ConsumerStore(consumers.definition.paths, consumers.env, consumers.definition.name).forget_ended()
    return _done()


def _repair(state: State, engine: Engine, given: Given) -> Result:
    if "table" not in given:
        return _repaired(state.catalog.repair())
    try:
        table = table_named(state, given)
    except NotFoundError as error:  # a database, or a table that the catalog does not name
        name = [part.strip().strip("`") for part in given["table"].split(".")][-2:]
        found = state.catalog.repair(".".join(name))
        if not found and (len(name) > 1 or name[0] not in state.catalog.list_databases()):
            raise error from None
        return _repaired(found)
    table.repair()
    return _done()


def _repaired(found: Sequence[Any]) -> Result:
    rows = [[each.name, each.problem, each.path, each.done] for each in found]
    return rows_of(["name", "problem", "path", "done"], rows, [pa.string(), pa.string(), pa.string(), pa.bool_()])


def _erase(state: State, engine: Engine, given: Given) -> Result:
    report = table_named(state, given).erase(
        given["where"], everywhere=_flag(given, "everywhere", False), timezone=state.zone
    )
    lines = [[report.is_complete, line] for line in str(report).splitlines()]
    return rows_of(["is_complete", "report"], lines, [pa.bool_(), pa.string()])


def _clone(state: State, engine: Engine, given: Given) -> Result:
    state.catalog.clone(
        state.full(tuple(given["table"].split("."))), state.full(tuple(given["target_table"].split(".")))
    )
    return _done()


def _migrate(state: State, engine: Engine, given: Given) -> Result:
    how = {"how": given["how"]} if "how" in given else {}
    state.catalog.migrate(given["source"], state.full(tuple(given["table"].split("."))), **how)
    return _done()


def _enable_stream(state: State, engine: Engine, given: Given) -> Result:
    how = {"retention": given["retention"]} if "retention" in given else {}
    table_named(state, given).enable_stream(**how)
    return _done()


def _disable_stream(state: State, engine: Engine, given: Given) -> Result:
    table_named(state, given).disable_stream()
    return _done()


def _check(state: State, engine: Engine, given: Given) -> Result:
    findings = table_named(state, given).check(quick=_flag(given, "quick", False))
    return rows_of(["code", "path", "problem"], [[finding.code, finding.path, finding.problem] for finding in findings])


def _of(arguments: str, required: int, run: Any, about: str, **also: str) -> Procedure:
    return Procedure(tuple(arguments.split()), required, run, about, also)


PROCEDURES: Final[dict[str, Procedure]] = {
    "compact": _of(
        "table partitions compact_strategy order_strategy order_by where options", 1, _compact,
        "compact the table, or some partitions of it, in full",
    ),
    "expire_snapshots": _of(
        "table retain_max retain_min older_than max_deletes dry_run", 1, _expire_snapshots, "remove old snapshots"
    ),
    "expire_partitions": _of(
        "table expiration_time timestamp_formatter timestamp_pattern expire_strategy max_expires dry_run", 1,
        _expire_partitions, "drop partitions that are older than a time",
    ),
    "create_tag": _of("table tag snapshot time_retained", 2, _create_tag, "name a snapshot", snapshot_id="snapshot"),
    "create_tag_from_timestamp": _of(
        "table tag timestamp time_retained", 3, _create_tag_from_timestamp, "name the snapshot of a time"
    ),
    "replace_tag": _of(
        "table tag snapshot time_retained", 2, _replace_tag, "let a tag name another snapshot", snapshot_id="snapshot"
    ),
    "rename_tag": _of(
        "table tag target_tag", 3, _rename_tag, "rename a tag", tag_name="tag", target_tag_name="target_tag"
    ),
    "delete_tag": _of("table tag", 2, _delete_tag, "remove tags"),
    "rollback": _of(
        "table snapshot tag", 1, _rollback, "go back to a snapshot or a tag", snapshot_id="snapshot", version="snapshot"
    ),
    "rollback_to": _of(
        "table snapshot tag", 1, _rollback, "go back to a snapshot or a tag", snapshot_id="snapshot", version="snapshot"
    ),
    "rollback_to_timestamp": _of("table timestamp", 2, _rollback, "go back to the snapshot of a time"),
    "create_branch": _of("table branch tag", 2, _create_branch, "create a branch, empty or from a tag"),
    "delete_branch": _of("table branch", 2, _delete_branch, "remove branches"),
    "fast_forward": _of("table branch", 2, _fast_forward, "let the table go on from a branch"),
    "rescale": _of("table bucket_num partitions", 1, _rescale, "change the number of buckets"),
    "remove_orphan_files": _of(
        "table older_than dry_run", 1, _remove_orphan_files, "remove files that no snapshot needs"
    ),
    "reset_consumer": _of(
        "table consumer_id next_snapshot", 2, _reset_consumer, "move a consumer, or remove it",
        consumerid="consumer_id", nextsnapshotid="next_snapshot", next_snapshot_id="next_snapshot",
    ),
    "clear_consumers": _of("table", 1, _clear_consumers, "remove all consumers"),
    "repair": _of(
        "table", 0, _repair,
        "write hints and indexes of a table again that were lost; let an SQL catalog name the tables that are there: "
        "all, those of a database, or one",
        database_or_table="table",
    ),
    "check": _of("table quick", 1, _check, "look for damage"),
    "erase": _of("table where everywhere", 2, _erase, "delete rows and make sure that no file holds them"),
    "clone": _of("table target_table", 2, _clone, "copy the newest state of a table"),
    "migrate_folder": _of("source table how", 2, _migrate, "make a table of a folder of files"),
    "enable_stream": _of("table retention", 1, _enable_stream, "let the table keep a shard stream"),
    "disable_stream": _of("table", 1, _disable_stream, "let the table keep no shard stream"),
}  # fmt: skip
"""The procedures by their names."""
