"""Calls of a history that are made as statements of SQL: one table from the call to its statement.

Inside of `said`, a verb of the table is looked up in `STATEMENTS`. If that has a text for the call as it is made, the
text runs; if not, the call itself does. With Spark, some statements go through `ms.session`. Calls of `ms` are not
touched, but for merges: their arguments are DataFrames.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pyarrow as pa

import merganser as mg
from merganser import changes as c
from merganser.errors import UnsupportedError
from merganser.handle.tags import Tags
from merganser.scan.split import Split
from merganser.schema import types as t
from merganser.sql.session import Session
from tests.everything.history import History
from tests.everything.replica import DifferenceError
from tests.everything.values import Row, quoted

OFTEN = 0.8
"""How often a step is said in SQL."""
ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "Europe/Warsaw")
_LTZ = re.compile(r"(?<=TIMESTAMP_LTZ ')[^']+")
_SUFFIXES = {t.TinyInt: "Y", t.SmallInt: "S", t.Int: "", t.BigInt: "L", t.Boolean: ""}
"""Of literals, by the type of number."""
Text = str | tuple[str, dict[str, Any]] | None
"""A statement, perhaps with values for its parameters; None: the call has none."""


def name_of(h: History, at: Any) -> str:
    """Return what SQL calls the table or branch of a handle."""
    branch = at.definition.branch
    return "db.t" if branch == "main" else f"db.`t$branch_{branch}`"


def in_zone(h: History, text: str) -> str:
    """Return a statement whose local times, given as UTC, are those of the zone that is set for it."""

    def local(found: re.Match[str]) -> str:
        moment = datetime.fromisoformat(found[0]).replace(tzinfo=UTC)
        return str(moment.astimezone(ZoneInfo(h.zone)).replace(tzinfo=None))

    return _LTZ.sub(local, text)


def _by_query(h: History) -> bool:
    """Return whether rows may be changed by a query with the effect of a plain condition."""
    plain = h.model.engine in ("deduplicate", "append") and not h.model.moves and not h.layout.vectors
    option = h.model.options.get
    return plain and "sequence.field" not in h.model.options and option("ignore-delete") != "true"


def _where(h: History, at: mg.Table, where: str) -> str:
    """Return the condition of a change, sometimes with a subquery or what queries alone compute."""
    match len(where) % 5 if _by_query(h) else 0:
        case 1:
            return f"({where}) AND EXISTS (SELECT 1 FROM {name_of(h, at)})"
        case 2:
            return f"element_at(array({where}), 1)"
        case 3:
            return f"({where}) AND (SELECT count(*) FROM {name_of(h, at)}) > 0"
    return where


def _computed(h: History, at: mg.Table, name: str, text: str) -> str:
    """Return a new value, sometimes as a query or what queries alone compute."""
    match len(name + text) % 4 if _by_query(h) and text != "NULL" else 0:
        case 1:
            return f"(SELECT max({text}) FROM {name_of(h, at)})"
        case 2:
            return f"element_at(array({text}, {text}), 2)"
    return text


def _delete(h: History, at: mg.Table, where: Any) -> Text:
    return in_zone(h, f"DELETE FROM {name_of(h, at)} WHERE {_where(h, at, where)}")


def _update(h: History, at: mg.Table, where: Any, sets: dict[str, str]) -> Text:
    values = ", ".join(f"{quoted(name)} = {_computed(h, at, name, text)}" for name, text in sets.items())
    return in_zone(h, f"UPDATE {name_of(h, at)} SET {values} WHERE {_where(h, at, where)}")


def _write(
    h: History, at: mg.Table, rows: Any, kinds: Any = None, columns: Any = None, overwrite: Any = None,
    changes: bool = True, **others: Any,
) -> Text:  # fmt: skip
    if not isinstance(rows, pa.Table) or columns is not None or others or not changes or not rows.num_rows:
        return None
    if kinds is not None and (kinds != "op" or set(rows["op"].to_pylist()) != {"+I"}):
        return None
    rows = rows.drop_columns(["op"]) if kinds == "op" else rows
    if h.merges_schema or any(map(_is_nested, rows.schema.types)):
        return None
    into, hint = "INTO", ""
    if overwrite is not None:
        into, hint = "OVERWRITE", " /*+ OPTIONS('dynamic-partition-overwrite' = 'false') */"
        if overwrite == "dynamic":
            hint = ""
        elif overwrite:
            return None  # a static PARTITION names all partition columns
    zone = ZoneInfo(h.zone) if len(rows) % 2 else None  # local times, or moments

    def shown(value: Any) -> Any:
        is_moment = zone is not None and isinstance(value, datetime) and value.tzinfo is not None
        return value.astimezone(zone).replace(tzinfo=None) if is_moment else value

    given = {f"v{i}x{j}": shown(v) for i, row in enumerate(rows.to_pylist()) for j, v in enumerate(row.values())}
    lines = [", ".join(f":v{i}x{j}" for j in range(rows.num_columns)) for i in range(rows.num_rows)]
    values = ", ".join(f"({line})" for line in lines)
    return f"INSERT {into} {name_of(h, at)}{hint} VALUES {values}", given


def _is_nested(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind)) or str(kind) in ("timestamp[ns]", "time32[ms]")


def _drop_partitions(h: History, at: mg.Table, specs: Any) -> Text:
    spec = specs[0]
    if len(specs) > 1 or any(value is None for value in spec.values()):
        return None
    parts = ", ".join(f"{quoted(name)} = '{str(value).replace(chr(39), chr(39) * 2)}'" for name, value in spec.items())
    return f"ALTER TABLE {name_of(h, at)} DROP IF EXISTS PARTITION ({parts})"


def _compact(h: History, at: mg.Table, full: bool = False, partitions: Any = None, **others: Any) -> Text:
    if not full or partitions is not None or others:
        return None
    return f"ALTER TABLE {name_of(h, at)} COMPACT"


def _expire(h: History, at: mg.Table, retain_max: int, retain_min: int, older_than: str) -> Text:
    if at.definition.branch != "main":
        return None
    return (
        f"CALL sys.expire_snapshots(table => 'db.t', retain_max => {retain_max}, retain_min => {retain_min}, "
        f"older_than => '{older_than} 00:00:00')"
    )


def _rollback(h: History, at: mg.Table, snapshot: int | None = None, tag: str | None = None) -> Text:
    if at.definition.branch != "main" or snapshot is None:
        return None
    return f"CALL sys.rollback(table => 'db.t', snapshot => {snapshot})"


def _create_tag(h: History, at: Any, name: str, snapshot: int | None = None, retain: Any = None) -> Text:
    if retain is not None or snapshot is None:
        return None
    return f"ALTER TABLE {name_of(h, at)} CREATE TAG {quoted(name)} AS OF VERSION {snapshot}"


def _drop_tag(h: History, at: Any, name: str) -> Text:
    return f"ALTER TABLE {name_of(h, at)} DELETE TAG {quoted(name)}"


def _alter(h: History, at: mg.Table, changes: Any) -> Text:
    if len(changes) != 1:
        return None
    table = f"ALTER TABLE {name_of(h, at)}"
    match changes[0]:
        case c.AddColumn(name=name, type=kind, place=place) if "." not in name and changes[0].default is None:
            after = f" AFTER {quoted(place.after)}" if place.after else " FIRST" if place.first else ""
            return f"{table} ADD COLUMN {quoted(name)} {kind}{after}"
        case c.DropColumn(name=name) if "." not in name:
            return f"{table} DROP COLUMN {quoted(name)}"
        case c.RenameColumn(name=name, new_name=new) if "." not in name:
            return f"{table} RENAME COLUMN {quoted(name)} TO {quoted(new)}"
        case c.RetypeColumn(name=name, type=kind) if "." not in name:
            return f"{table} ALTER COLUMN {quoted(name)} TYPE {kind}"
        case c.MoveColumn(name=name, place=place) if place.first and "." not in name:
            return f"{table} ALTER COLUMN {quoted(name)} FIRST"
        case c.SetOption(key=key, value=value):
            return f"{table} SET ('{key}' = '{value}')"
    return None


def _truncate(h: History, at: mg.Table) -> Text:
    return f"TRUNCATE TABLE {name_of(h, at)}"


def _rescale(h: History, at: mg.Table, buckets: int, partitions: Any = None) -> Text:
    return None if partitions is not None else f"ALTER TABLE {name_of(h, at)} CLUSTERED INTO {buckets} BUCKETS"


def _analyze(h: History, at: mg.Table, columns: Any = None) -> Text:
    names = (
        "" if columns == () else f" FOR COLUMNS {', '.join(map(quoted, columns))}" if columns else " FOR ALL COLUMNS"
    )
    return f"ANALYZE TABLE {name_of(h, at)} COMPUTE STATISTICS{names}"


def merging(h: History, rows: pa.Table, source: str, on: str, clauses: Any) -> str | None:
    """Return a merge as a statement; None: it cannot be said, or gives the source other values.

    Args:
        source: what the statement calls the rows.
    """
    if not _is_own(h, h.table) or any(str(kind) == "timestamp[ns]" for kind in rows.schema.types):
        return None  # what is computed has six digits of a second
    target, new = map(quoted, clauses.names)
    text = f"MERGE INTO {name_of(h, h.table)} AS {target} USING {source} AS {new} ON {on}"
    if "delete" in clauses.kinds:
        text += f" WHEN MATCHED AND {clauses.side(clauses.names[1])} THEN DELETE"
    if "update" in clauses.kinds:
        sets = ", ".join(f"{quoted(name)} = {new}.{quoted(name)}" for name in sorted(clauses.sets))
        text += f" WHEN MATCHED THEN UPDATE SET {sets}"
    if "others" in clauses.kinds:
        text += f" WHEN NOT MATCHED BY SOURCE AND {clauses.side(clauses.names[0])} THEN DELETE"
    return in_zone(h, text + (" WHEN NOT MATCHED THEN INSERT *" if "insert" in clauses.kinds else ""))


STATEMENTS: dict[tuple[type, str], Callable[..., Text]] = {
    (mg.Table, "write"): _write, (mg.Table, "delete"): _delete, (mg.Table, "update"): _update,
    (mg.Table, "truncate"): _truncate, (mg.Table, "drop_partitions"): _drop_partitions,
    (mg.Table, "compact"): _compact, (mg.Table, "rescale"): _rescale, (mg.Table, "expire"): _expire,
    (mg.Table, "rollback"): _rollback, (mg.Table, "alter"): _alter, (mg.Table, "analyze"): _analyze,
    (Tags, "create"): _create_tag, (Tags, "drop"): _drop_tag,
}  # fmt: skip


@contextmanager
def said(h: History, rng: random.Random) -> Iterator[None]:
    """Let the calls of a step be statements, if that is drawn."""
    if rng.random() > OFTEN:
        yield
        return
    running, (session, _), h.zone = False, h.querying(rng), rng.choice(ZONES)

    def instead(real: Callable[..., Any], text_of: Callable[..., Text]) -> Callable[..., Any]:
        def call(at: Any, *arguments: Any, **named: Any) -> Any:
            nonlocal running
            if running or not _is_own(h, at):
                return real(at, *arguments, **named)
            text = text_of(h, at, *arguments, **named)
            if text is None:
                return real(at, *arguments, **named)
            statement, given = (text, {}) if isinstance(text, str) else text
            running = True
            try:
                h.compared["statements"] += 1
                snapshot = executed(h, session, statement, given)
            finally:
                running = False
            if real.__name__ != "alter":
                return snapshot
            return h.catalog.table(name_of(h, at).replace("`", ""))

        call.__name__ = real.__name__
        return call

    with ExitStack() as stack:
        for (cls, name), text_of in STATEMENTS.items():
            stack.enter_context(patch.object(cls, name, instead(getattr(cls, name), text_of)))
        h.says_sql = True
        try:
            yield
        finally:
            h.says_sql, h.zone = False, "UTC"


@contextmanager
def zoned(h: History, session: Session) -> Iterator[None]:
    """Set the zone that is drawn."""
    session.execute(f"SET 'timezone' = '{h.zone}'")
    try:
        yield
    finally:
        session.execute("SET 'timezone' = 'UTC'")


def executed(h: History, session: Session, statement: str, given: Any = None) -> Any:
    """Run a statement in the zone that is drawn; return its snapshot."""
    with zoned(h, session):
        return session.execute(statement, given).snapshot


def _is_own(h: History, at: Any) -> bool:
    """Return whether a handle is that of the line, with the newest schema and the options that are stored."""
    own, line = at.definition, h.line.table.definition
    return own.path == line.path and own.branch == line.branch and own.schema == line.schema and (
        dict(own.options.items()) == dict(own.schema.options.items())
    )  # fmt: skip


def selected(h: History, rng: random.Random) -> None:
    """Compare what queries give with the model: rows by a filter, a state of the past, and what there is of it."""
    name, (session, tells) = name_of(h, h.table), h.querying(rng)
    text, holds, used = h.drawn_filter(rng)
    h.zone = rng.choice(ZONES)
    text = in_zone(h, text)
    if not all(tells(f) for f in h.line.fields if f.name in used):
        return
    visible = h.model.visible()

    def of(fields: Any) -> tuple[str, Any]:
        shown = [f for f in fields if tells(f)]
        return "*" if len(shown) == len(fields) else ", ".join(quoted(f.name) for f in shown) or "1 AS n", shown

    columns, fields = of(h.line.fields)
    asked: list[tuple[str, Any, Any]] = [
        (f"SELECT {columns} FROM {name} WHERE {text}", [row for row in visible if holds(row)], fields)
    ]
    if listed := _listed(h, rng, tells):
        asked.append((f"SELECT {columns} FROM {name} WHERE {listed[0]}", listed[1], fields))
    if h.line.states:
        number = rng.choice(sorted(h.line.states))
        state = h.line.states[number]
        columns, fields = of(state.fields)
        at = rng.choice([f"VERSION AS OF {number}", f"/*+ OPTIONS('scan.snapshot-id' = '{number}') */"])
        asked.append((f"SELECT {columns} FROM {name} {at}", state.model.visible(), fields))
        _files(h, session, number)
    if h.line.tags:
        tag, (_, state) = rng.choice(sorted(h.line.tags.items()))
        columns, fields = of(state.fields)
        at = rng.choice([f"VERSION AS OF '{tag}'", f"/*+ OPTIONS('scan.tag-name' = '{tag}') */"])
        asked.append((f"SELECT {columns} FROM {name} {at}", state.model.visible(), fields))
    columns, fields = of(h.line.fields)
    if h.catalog.metastore.definitions is not None and all(f in fields for f in h.line.fields if f.name in used):
        made = f"CREATE OR REPLACE VIEW db.`a view` AS SELECT {columns} FROM {name}"
        asked.append((f"{made}; SELECT * FROM db.`a view` WHERE {text}", asked[0][1], fields))
    for query, rows, fields in asked:
        try:
            found = _rows(h, session, query)
        except UnsupportedError:
            continue
        h.same_rows(query, found, rows, fields)
        h.compared["queries"] += 1
    both = f"SELECT count(*) AS n, (SELECT count(*) FROM {name} WHERE {text}) AS m FROM {name}"
    try:
        counted = _rows(h, session, both)
    except UnsupportedError:
        return
    wanted = {"n": len(visible), "m": len(asked[0][1])}
    if counted != [wanted]:
        raise DifferenceError("count", f"{name} where {text}: {counted}, expected {wanted}")


def _listed(h: History, rng: random.Random, tells: Callable[[t.Field], bool]) -> tuple[str, list[Row]] | None:
    """Return a condition that lists pairs of values, and the rows that it holds for; None: there are no two columns."""
    kinds = {f.name: _SUFFIXES[type(f.type)] for f in h.line.fields if type(f.type) in _SUFFIXES and tells(f)}
    visible = h.model.visible()
    if len(kinds) < 2 or not visible:
        return None
    one, other = rng.sample(sorted(kinds), 2)
    pairs = [(row[one], row[other]) for row in rng.sample(visible, min(3, len(visible)))]
    pairs.append((pairs[0][0], pairs[-1][1]))
    pairs = [pair for pair in pairs if None not in pair]
    if not pairs:
        return None
    listed = ", ".join(f"({a}{kinds[one]}, {b}{kinds[other]})" for a, b in pairs)  # Spark widens no values in rows
    return f"({quoted(one)}, {quoted(other)}) IN ({listed})", [r for r in visible if (r[one], r[other]) in pairs]


def _files(h: History, session: Session, number: int) -> None:
    """Compare the files of a state with those that a scan of it reads."""
    branch = h.table.definition.branch
    files = "t$files" if branch == "main" else f"t$branch_{branch}$files"
    query = f"SELECT file_path FROM db.`{files}` VERSION AS OF {number}"
    listed = {row["file_path"].rpartition("/")[2] for row in _rows(h, session, query)}
    planned: set[str] = set()
    for split in h.table.read(snapshot=number).plan().splits:
        assert isinstance(split, Split)
        planned |= {file.name for section in split.sections for file in section}
    if not planned <= listed:
        raise DifferenceError("files", f"{query}: {sorted(listed)}; a scan reads {sorted(planned)}")


def _rows(h: History, session: Session, query: str) -> list[dict[str, Any]]:
    """Return the rows of a query in the zone that is drawn, of either engine."""
    with zoned(h, session):
        found: Any = session.sql(query)
        rows: pa.Table = found if isinstance(found, pa.Table) else found.toArrow()
    kinds = [_in_utc(kind) for kind in rows.schema.types]
    return rows.cast(pa.schema(list(zip(rows.column_names, kinds, strict=True)))).to_pylist()  # type: ignore[no-any-return]


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind
