"""A catalog in an SQL database that merganser and Paimon's Java use in turns."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa

import merganser as mg
from tests.catalogs.databases import SqlServer, started
from tests.interop.engines import TableShape

from .histories import World, assert_same_rows
from .java_engine import JavaEngine

_SHAPE = TableShape((("k", "INT NOT NULL"), ("v", "INT")), ("k",), (), {"bucket": "1"})
_TURNS = 40


def share_sql_catalog(world: World, random: Random, *, kind: str) -> None:
    """Both see the same names and rows after each turn, whoever created, wrote, altered, renamed or dropped."""
    with started(kind) as server:
        _in_turns(world, random, server.emptied(f"catalog_{random.randrange(10**9)}", world.warehouse))


def _in_turns(world: World, random: Random, database: SqlServer) -> None:
    warehouse = world.warehouse / "shared"
    options = {"lock.enabled": "true", **database.options}
    theirs = {"metastore": "jdbc", "uri": database.uri, "client-pool-size": "1", **options}
    # Java cannot make the tables of a catalog in MariaDB: with utf8mb4 their keys are too long.
    if database.kind != "mariadb" and random.random() < 0.5:
        java = JavaEngine(world.java.process, warehouse, theirs)
        java.process.request("names", warehouse=str(warehouse), catalog=theirs)
    ours = mg.catalog(database.uri, options={"warehouse": str(warehouse), "local.sync": "false", **options})
    java = JavaEngine(world.java.process, warehouse, theirs)
    ours.create_database("db", if_not_exists=True)
    held: dict[str, dict[int, int]] = {}
    extra: dict[str, bool] = {}
    for turn in range(_TURNS):
        by_java = random.random() < 0.5
        verb = random.choice(["create", "write", "write", "write", "alter", "rename", "drop"])
        name = random.choice(sorted(held)) if held and verb != "create" else f"db.t{turn}"
        if verb == "create" or not held:
            if by_java:
                java.create(name, _SHAPE)
            else:
                ours.create_table(name, {"k": "INT", "v": "INT"}, primary_key=["k"], options={"bucket": "1"})
            held[name], extra[name] = {}, False
        elif verb == "write":
            rows = {random.randrange(20): random.randrange(100) for _ in range(5)}
            values: dict[str, Any] = {"k": pa.array(rows, pa.int32()), "v": pa.array(rows.values(), pa.int32())}
            if extra[name]:
                values["x"] = pa.nulls(len(rows), pa.int32())
            if by_java:
                java.write(name, pa.table(values))
            else:
                ours.table(name).write(pa.table(values))  # type: ignore[union-attr]
            held[name] |= rows
        elif verb == "alter" and not extra[name]:
            if by_java:
                java.ask("alter_table", name, changes=[["add", "x", "INT"]])
            else:
                ours.alter_table(name, [mg.changes.add_column("x", "INT")])
            extra[name] = True
        elif verb == "rename":
            new = f"db.r{turn}"
            if by_java:
                java.ask("rename_table", name, to=new)
            else:
                ours.rename_table(name, new)
            held[new], extra[new] = held.pop(name), extra.pop(name)
        elif verb == "drop":
            if by_java:
                java.ask("drop_table", name)
            else:
                ours.drop_table(name)
            del held[name], extra[name]
        names = sorted(name.removeprefix("db.") for name in held)
        what = f"after turn {turn}, {verb} by {'Java' if by_java else 'merganser'}"
        assert ours.list_tables("db") == names, what
        assert java.process.request("names", warehouse=str(warehouse), catalog=theirs) == {"db": names}, what
        if held:
            name = random.choice(sorted(held))
            expected = [{"k": k, "v": v, **({"x": None} if extra[name] else {})} for k, v in held[name].items()]
            assert_same_rows(java.rows(name, _SHAPE), expected, f"Java reads {name} {what}")
            found = ours.table(name).read().to_pylist()  # type: ignore[union-attr]
            assert_same_rows(found, expected, f"merganser reads {name} {what}")
