"""ALTER TABLE, in the forms of Flink and of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from merganser.sql import statements as s
from merganser.sql.trees import option_key, option_pairs, option_value

if TYPE_CHECKING:
    from merganser.sql.parse import Reader

_VERBS = (
    "SET", "RESET", "ADD", "DROP", "RENAME", "ALTER", "CHANGE", "MODIFY", "COMPACT", "CLUSTERED", "PARTITION", "CREATE",
    "REPLACE", "DELETE", "UNSET",
)  # fmt: skip

_OF_PARTITIONS = ("SET", "COMPACT", "CLUSTERED")


def alteration(reader: Reader, name: s.Name) -> s.Statement:
    """Take what follows ALTER TABLE and its name."""
    source = reader.piece.source
    spec = reader.spec() if reader.take("PARTITION") else None
    verb = reader.one_of(*(_VERBS if spec is None else _OF_PARTITIONS))
    match verb:
        case "SET":
            if reader.sees("LOCATION") or reader.sees("OWNER"):
                reader.fail(f"SET {reader.word()} is not supported")
            reader.take("TBLPROPERTIES")
            if reader.sees("("):
                return s.SetOptions(name, option_pairs(reader), spec, text=source)
            key = option_key(reader)
            if not reader.take("="):
                reader.fail(f"expected = behind the option '{key}'")
            return s.SetOptions(name, {key: option_value(reader)}, spec, text=source)
        case "RESET" | "UNSET":
            if_exists = False
            if verb == "UNSET":
                reader.expect("TBLPROPERTIES")
                if_exists = reader.if_exists()
            keys = []
            if reader.take("("):
                while True:
                    keys.append(option_key(reader))
                    if not reader.take(","):
                        break
                reader.expect(")")
            else:
                keys.append(option_key(reader))
            return s.ResetOptions(name, tuple(keys), if_exists, text=source)
        case "COMPACT":
            return s.Compact(name, spec, text=source)
        case "CLUSTERED":
            reader.expect("INTO")
            buckets = reader.integer("the number of buckets")
            reader.expect("BUCKETS")
            return s.ClusterInto(name, buckets, spec, text=source)
        case "ADD":
            return _add(reader, name)
        case "DROP":
            return _drop(reader, name)
        case "RENAME":
            return _rename(reader, name)
        case "ALTER" | "CHANGE":
            reader.take("COLUMN")
            return _column(reader, name)
        case "MODIFY":
            reader.take("COLUMN")
            brackets = reader.take("(")
            column = reader.column(placed=True)
            if brackets:
                reader.expect(")")
            return s.AlterColumn(
                name, column.name, column.type, with_nullability=True, default=column.default, comment=column.comment,
                after=column.after, first=column.first, text=source,
            )  # fmt: skip
        case "DELETE":
            reader.expect("TAG")
            exists = reader.if_exists()
            tags = tuple(part.strip() for part in _tag(reader).split(","))
            return s.DeleteTags(name, tags, exists, text=source)
    return _create_tag(reader, name, verb)


def _create_tag(reader: Reader, name: s.Name, verb: str) -> s.Statement:
    replace = verb == "REPLACE" or reader.take("OR", "REPLACE")
    reader.expect("TAG")
    absent = reader.if_not_exists()
    tag, snapshot, retain = _tag(reader), None, None
    if reader.take("AS", "OF", "VERSION"):
        snapshot = reader.integer("the id of a snapshot")
    if reader.take("RETAIN"):
        number = reader.integer("how long")
        unit = reader.one_of("DAYS", "DAY", "HOURS", "HOUR", "MINUTES", "MINUTE")
        retain = f"{number} {unit.rstrip('S').lower()[0]}"
        retain = f"{number} {'min' if unit.startswith('MINUTE') else retain[-1]}"
    return s.CreateTag(
        name, tag, snapshot, retain, absent, replace, must_exist=verb == "REPLACE", text=reader.piece.source
    )


def _tag(reader: Reader) -> str:
    token = reader.peek()
    if token is not None and token.token_type.name == "STRING":
        return reader.string()
    return reader.name("the name of a tag")


def _add(reader: Reader, name: s.Name) -> s.Statement:
    source = reader.piece.source
    if reader.sees("PARTITION") or reader.sees("IF"):
        reader.fail("partitions are made by the rows that are written into them; ADD PARTITION is not supported")
    if reader.sees("PRIMARY", "KEY"):
        return s.AddPrimaryKey(name, reader.key(), text=source)
    reader.take("COLUMNS") or reader.take("COLUMN")
    reader.if_not_exists()
    columns = []
    if reader.take("("):
        while True:
            columns.append(reader.column(placed=True))
            if not reader.take(","):
                break
        reader.expect(")")
    else:
        columns.append(reader.column(placed=True))
        while reader.take(","):
            columns.append(reader.column(placed=True))
    return s.AddColumns(name, tuple(columns), text=source)


def _drop(reader: Reader, name: s.Name) -> s.Statement:
    source = reader.piece.source
    exists = reader.if_exists()
    if reader.sees("PARTITION"):
        specs = []
        while reader.take("PARTITION"):
            specs.append(reader.spec())
            if not reader.take(","):
                break
        return s.DropPartitions(name, tuple(specs), exists, text=source)
    if reader.sees("PRIMARY", "KEY"):
        reader.fail("a primary key cannot be dropped; copy the rows into a table without one")
    reader.take("COLUMNS") or reader.take("COLUMN")
    exists = reader.if_exists() or exists
    brackets = reader.take("(")
    columns = [".".join(reader.dotted("a column"))]
    while reader.take(","):
        columns.append(".".join(reader.dotted("a column")))
    if brackets:
        reader.expect(")")
    return s.DropColumns(name, tuple(columns), exists, text=source)


def _rename(reader: Reader, name: s.Name) -> s.Statement:
    source = reader.piece.source
    if reader.take("TO"):
        return s.RenameTable(name, reader.dotted("the new name"), text=source)
    if reader.take("TAG"):
        tag = _tag(reader)
        reader.expect("TO")
        return s.RenameTag(name, tag, _tag(reader), text=source)
    reader.take("COLUMN")
    column = ".".join(reader.dotted("a column"))
    reader.expect("TO")
    return s.RenameColumn(name, column, reader.name("the new name"), text=source)


def _column(reader: Reader, name: s.Name) -> s.Statement:
    source = reader.piece.source
    column = ".".join(reader.dotted("a column"))
    if reader.take("SET", "NOT", "NULL"):
        return s.AlterColumn(name, column, nullable=False, text=source)
    if reader.take("DROP", "NOT", "NULL"):
        return s.AlterColumn(name, column, nullable=True, text=source)
    if reader.take("SET", "DEFAULT"):
        return s.AlterColumn(name, column, default=reader.expression(), text=source)
    if reader.take("DROP", "DEFAULT"):
        return s.AlterColumn(name, column, drop_default=True, text=source)
    if reader.take("COMMENT"):
        return s.AlterColumn(name, column, comment=reader.string("a comment"), text=source)
    if reader.take("FIRST"):
        return s.AlterColumn(name, column, first=True, text=source)
    if reader.take("AFTER"):
        return s.AlterColumn(name, column, after=reader.name("a column"), text=source)
    if reader.take("TYPE") or (reader.take("SET", "DATA", "TYPE")):
        return s.AlterColumn(name, column, reader.type()[0], text=source)
    reader.fail_with_nearest(("TYPE", "SET", "DROP", "COMMENT", "FIRST", "AFTER"))
