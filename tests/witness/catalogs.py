"""Catalogs that merganser and Paimon's Java use in turns: in an SQL database, and behind a REST server of ours."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import merganser as mg
from merganser.meta.seal import JSON_SEAL
from tests.catalogs.data_tokens import VARIABLE
from tests.catalogs.databases import SqlServer, started
from tests.catalogs.rest import Server
from tests.catalogs.signed_requests import signed_by_us, signed_requests
from tests.interop.engines import TableShape
from tests.interop.peers import PeerError
from tests.interop.values import assert_same_rows
from tests.unit.serve.serving import TOKEN

from .histories import World
from .java_engine import JavaEngine

_SHAPE = TableShape((("k", "INT NOT NULL"), ("v", "INT")), ("k",), (), {"bucket": "1"})
_TURNS = 40
READ_TOKEN = "a-token-of-clients-that-read"


def share_sql_catalog(world: World, random: Random, *, kind: str) -> None:
    """Both see the same names and rows after each turn, whoever created, wrote, altered, renamed or dropped."""
    with started(kind) as server:
        _over_sql(world, random, server.emptied(f"catalog_{random.randrange(10**9)}", world.warehouse))


def _over_sql(world: World, random: Random, database: SqlServer) -> None:
    warehouse = world.warehouse / "shared"
    options = {"lock.enabled": "true", **database.options}
    theirs = {"metastore": "jdbc", "uri": database.uri, "client-pool-size": "1", **options}
    # Java cannot make the tables of a catalog in MariaDB: with utf8mb4 their keys are too long.
    if database.kind != "mariadb" and random.random() < 0.5:
        world.java.process.request("names", warehouse=str(warehouse), catalog=theirs)
    ours = mg.catalog(database.uri, options={"warehouse": str(warehouse), "local.sync": "false", **options})
    _in_turns(random, [ours], JavaEngine(world.java.process, warehouse, theirs))


def share_rest_catalog(world: World, random: Random) -> None:
    """Java through the server, merganser through the server and without it, all in turns."""
    log = world.warehouse / "tokens.log"
    os.environ[VARIABLE] = json.dumps({"seconds": 3600, "log": str(log)})
    with_tokens = random.random() < 0.5
    more = ("--data-tokens", "tests.catalogs.data_tokens:of_table") if with_tokens else ()
    server = Server(world.warehouse, more=more, read_token=READ_TOKEN)
    theirs = {
        "metastore": "rest",
        "uri": f"http://127.0.0.1:{server.port}",
        "token.provider": "bear",
        "token": TOKEN,
    }
    java = JavaEngine(world.java.process, Path("warehouse"), theirs)
    _in_turns(random, [server.catalog(), server.files()], java, _same_pages)
    _of_partitions(server, java)
    _of_references(server, java)
    _errors(java)
    assert not with_tokens or {"db.refs write", "db.refs read"} <= set(log.read_text().splitlines())
    assert server.stop() == 0
    assert server.log.read_text() == ""


def share_views(world: World, random: Random) -> None:
    """Each reads, alters, renames and drops views and functions of the other, on a server of a catalog in SQLite."""
    address, files = f"jdbc:sqlite:{world.warehouse}/catalog.sqlite", f"{world.warehouse}/warehouse"
    server = Server(world.warehouse, warehouse=address, more=["--store", f"warehouse={files}"])
    theirs = {"metastore": "rest", "uri": f"http://127.0.0.1:{server.port}", "token.provider": "bear", "token": TOKEN}
    java = JavaEngine(world.java.process, Path("warehouse"), theirs)
    ours = server.catalog()
    ours.create_database("db")
    java.create("db.t", _SHAPE)
    ours.table("db.t").write([{"k": 1, "v": 10}, {"k": 2, "v": 20}])  # type: ignore[union-attr]
    view = {
        "fields": [{"id": 0, "name": "k", "type": "INT NOT NULL", "description": "key"}],
        "query": "SELECT k FROM t WHERE v > 10",
        "dialects": {"flink": "SELECT 1", "spark": "SELECT k FROM t WHERE v > 10"},
        "comment": "theirs",
        "options": {"a": "b"},
    }
    java.ask("view", "db.theirs", call="create", given=view)
    assert ours.sql("SELECT * FROM db.theirs").to_pylist() == [{"k": 2}]
    assert ours.view("db.theirs").to_json() == view
    made = ours.create_view("db.ours", "SELECT k AS n, v FROM t", comment="x", options={"c": "d"})
    assert _without_audit(java.ask("view", "db.ours", call="get")) == made.to_json()
    changes = [
        {"action": "addDialect", "dialect": "hive", "query": "SELECT 2"},
        {"action": "dropDialect", "dialect": "flink"},
        {"action": "updateDialect", "dialect": "spark", "query": "SELECT k FROM t WHERE v < 20"},
        {"action": "setOption", "key": "x", "value": "y"},
        {"action": "removeOption", "key": "a"},
        {"action": "updateComment", "comment": None},
    ]
    java.ask("view", "db.theirs", call="alter", given=changes)
    assert ours.sql("SELECT * FROM db.theirs").to_pylist() == [{"k": 1}]
    found = ours.view("db.theirs")
    assert (sorted(found.dialects), found.options, found.comment) == (["hive", "spark"], {"x": "y"}, None)
    everything = ["db.ours", "db.theirs"]
    listed = {"names": ["ours", "theirs"], "first": ["ours"], "details": everything, "everywhere": everything}
    assert java.ask("view", "db.none", call="list") == listed
    function = {
        "name": "f",
        "inputParams": [{"id": 0, "name": "x", "type": "INT"}],
        "returnParams": [{"id": 0, "name": "y", "type": "INT"}],
        "deterministic": True,
        "definitions": {
            "flink": {"type": "lambda", "definition": "x -> x", "language": "JAVA"},
            "spark": {"type": "sql", "definition": "x + 1"},
        },
        "comment": "adds",
        "options": {"o": "p"},
    }
    java.ask("function", "db.f", call="create", given=function)
    assert ours.function("db.f").to_json() == function
    assert ours.sql("SELECT db.f(1) AS n").to_pylist() == [{"n": 2}]
    own = ours.create_function("db.g", "a STRING", "STRING", "upper(a)")
    assert _without_audit(java.ask("function", "db.g", call="get")) == own.to_json()
    body = {"action": "updateDefinition", "name": "spark", "definition": {"type": "sql", "definition": "x + 2"}}
    java.ask("function", "db.f", call="alter", given=[body, {"action": "dropDefinition", "name": "flink"}])
    assert ours.sql("SELECT db.f(1) AS n").to_pylist() == [{"n": 3}]
    assert java.ask("function", "db.none", call="list") == ["f", "g"]
    for error, op, name, call, given in (
        ("ViewNotExistException", "view", "db.none", "get", None),
        ("ViewNotExistException", "view", "db.none", "drop", None),
        ("ViewAlreadyExistException", "view", "db.ours", "create", view),
        ("ViewAlreadyExistException", "view", "db.t", "create", view),
        ("ViewAlreadyExistException", "view", "db.ours", "rename", "db.theirs"),
        ("DialectAlreadyExistException", "view", "db.theirs", "alter", changes[:1]),
        ("DialectNotExistException", "view", "db.theirs", "alter", changes[1:2]),
        ("DatabaseNotExistException", "view", "none.v", "create", view),
        ("FunctionNotExistException", "function", "db.none", "get", None),
        ("FunctionAlreadyExistException", "function", "db.f", "create", function),
        ("DefinitionNotExistException", "function", "db.f", "alter", [{"action": "dropDefinition", "name": "flink"}]),
    ):
        try:
            java.ask(op, name, call=call, given=given)
        except PeerError as told:
            assert error in str(told), f"expected {error}: {told}"
        else:
            raise AssertionError(f"no {error}")
    try:
        java.create("db.ours", _SHAPE)
    except PeerError as told:
        assert "AlreadyExist" in str(told), told
    else:
        raise AssertionError("a table has the name of a view")
    java.ask("view", "db.ours", call="rename", given="db.moved")
    java.ask("view", "db.theirs", call="drop")
    java.ask("function", "db.f", call="drop")
    assert (ours.list_views("db"), ours.list_functions("db")) == (["moved"], ["g"])
    assert server.stop() == 0
    assert server.log.read_text() == ""


def _without_audit(text: str) -> Any:
    """Return what Java says of a view or function, without what it adds to the options: who made and changed it."""
    found = json.loads(text)
    added = {"owner", "createdAt", "createdBy", "updatedAt", "updatedBy"}
    return {**found, "options": {key: value for key, value in found["options"].items() if key not in added}}


def compare_signatures(world: World, random: Random) -> None:
    """Both sign requests of a REST catalog in the same way."""
    for request in signed_requests():
        assert signed_by_us(request) == world.java.process.request("sign", **request), request


def _same_pages(random: Random, java: JavaEngine, held: Mapping[str, object]) -> None:
    """Java joins pages of any size, and finds names by a pattern."""
    names = sorted(name.removeprefix("db.") for name in held)
    size = random.randrange(1, 4)
    for pattern, expected in ((None, names), ("t%", [name for name in names if name.startswith("t")])):
        found = java.ask("pages", "db.none", database="db", size=size, pattern=pattern)
        assert found == {"names": expected, "details": expected, "everywhere": expected}, f"pages of {size}"


def _of_partitions(server: Server, java: JavaEngine) -> None:
    """Both write partitions, and Java's client counts what each of them has."""
    shape = TableShape((("k", "INT NOT NULL"), ("day", "STRING NOT NULL")), ("k", "day"), ("day",), {"bucket": "1"})
    java.create("db.days", shape)
    ours = server.catalog().table("db.days")
    assert isinstance(ours, mg.Table)
    ours.write([{"k": 1, "day": "x"}, {"k": 2, "day": "x"}])
    java.write("db.days", pa.table({"k": pa.array([3], pa.int32()), "day": ["y z"]}))
    assert JSON_SEAL in Path(ours.path, "snapshot", "snapshot-2").read_text()  # the server made it, not Java
    expected = {"partitions": {"{day=x}": 2, "{day=y z}": 1}, "rows": 3, "snapshots": [1, 2], "newest": 2}
    assert java.ask("facts", "db.days") == expected


def _of_references(server: Server, java: JavaEngine) -> None:
    """Tags, branches and rollbacks of each are there for the others."""
    ours, files = server.catalog(), server.files()
    java.create("db.refs", _SHAPE)
    table = ours.table("db.refs")
    assert isinstance(table, mg.Table)
    for number in range(3):
        table.write([{"k": number, "v": number}])
    java.ask("catalog_tag", "db.refs", tag="theirs", snapshot=2)
    table.tags.create("ours", 1)
    assert java.ask("tags", "db.refs") == java.ask("catalog_tags", "db.refs") == {"ours": 1, "theirs": 2}
    assert [tag.name for tag in table.tags.list()] == ["ours", "theirs"]
    java.ask("create_branch", "db.refs", branch="theirs", tag="theirs")
    table.branches.create("ours", "ours")
    assert sorted(java.ask("branches", "db.refs")) == ["ours", "theirs"]
    java.write("db.refs$branch_ours", pa.table({"k": pa.array([7], pa.int32()), "v": pa.array([7], pa.int32())}))
    ours.table("db.refs$branch_theirs").write([{"k": 8, "v": 8}])  # type: ignore[union-attr]
    for name, keys in (("ours", [0, 7]), ("theirs", [0, 1, 8])):
        expected = [{"k": key, "v": key} for key in keys]
        assert_same_rows(java.rows(f"db.refs$branch_{name}", _SHAPE), expected, f"Java reads the branch {name}")
        for each in (ours, files):
            found = each.table(f"db.refs$branch_{name}").read().to_pylist()  # type: ignore[union-attr]
            assert_same_rows(found, expected, f"merganser reads the branch {name}")
    java.ask("fast_forward", "db.refs", branch="ours")
    assert sorted(row["k"] for row in table.read().to_pylist()) == [0, 7]
    java.ask("delete_branch", "db.refs", branch="ours")
    table.branches.drop("theirs")
    assert java.ask("branches", "db.refs") == []
    java.ask("rollback", "db.refs", snapshot=1)
    assert [row["k"] for row in table.read().to_pylist()] == [0]
    java.write("db.refs", pa.table({"k": pa.array([9], pa.int32()), "v": pa.array([9], pa.int32())}))
    assert sorted(row["k"] for row in table.read().to_pylist()) == [0, 9]
    java.ask("delete_tag", "db.refs", tag="ours")
    assert table.tags.list() == ()


def _errors(java: JavaEngine) -> None:
    """What the server refuses is an exception that Java's callers know."""
    reader = JavaEngine(java.process, Path("warehouse"), {**java.catalog, "token": READ_TOKEN})
    assert [row["k"] for row in reader.rows("db.refs", _SHAPE)] == [0, 9]
    stranger = JavaEngine(java.process, Path("warehouse"), {**java.catalog, "token": "another-token-of-characters"})
    elsewhere = JavaEngine(java.process, Path("elsewhere"), java.catalog)
    for error, ask in (
        ("TableNotExistException", lambda: java.ask("drop_table", "db.none")),
        ("TableAlreadyExistException", lambda: java.create("db.refs", _SHAPE)),
        ("TableAlreadyExistException", lambda: java.ask("rename_table", "db.refs", to="db.days")),
        ("ColumnNotExistException", lambda: java.ask("alter_table", "db.refs", changes=[["drop", "none"]])),
        ("ColumnAlreadyExistException", lambda: java.ask("alter_table", "db.refs", changes=[["add", "v", "INT"]])),
        ("ColumnAlreadyExistException", lambda: java.ask("alter_table", "db.refs", changes=[["rename", "k", "v"]])),
        ("SnapshotNotExistException", lambda: java.ask("catalog_tag", "db.refs", tag="t", snapshot=99)),
        ("ForbiddenException", lambda: reader.ask("drop_table", "db.refs")),
        ("NotAuthorizedException", lambda: stranger.ask("drop_table", "db.refs")),
        ("NoSuchResourceException", lambda: elsewhere.ask("drop_table", "db.refs")),
    ):
        try:
            ask()
        except PeerError as found:
            assert error in str(found), f"expected {error}: {found}"
        else:
            raise AssertionError(f"no {error}")


def _in_turns(
    random: Random,
    catalogs: Sequence[mg.Catalog],
    java: JavaEngine,
    compare: Callable[[Random, JavaEngine, Mapping[str, object]], None] = lambda *_: None,
) -> None:
    catalogs[0].create_database("db", if_not_exists=True)
    held: dict[str, dict[int, int]] = {}
    extra: dict[str, bool] = {}
    for turn in range(_TURNS):
        by_java, ours = random.random() < 0.5, random.choice(catalogs)
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
        assert [each.list_tables("db") for each in catalogs] == [names] * len(catalogs), what
        found = java.process.request("names", warehouse=str(java.warehouse), catalog=java.catalog)
        assert found == {"db": names}, what
        compare(random, java, held)
        if held:
            name = random.choice(sorted(held))
            expected = [{"k": k, "v": v, **({"x": None} if extra[name] else {})} for k, v in held[name].items()]
            assert_same_rows(java.rows(name, _SHAPE), expected, f"Java reads {name} {what}")
            for each in catalogs:
                found = each.table(name).read().to_pylist()  # type: ignore[union-attr]
                assert_same_rows(found, expected, f"merganser reads {name} {what}")
