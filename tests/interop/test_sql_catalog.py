"""A catalog in SQLite that merganser and pypaimon use in turns."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import merganser as mg
from tests.interop.engines import MerganserEngine, PeerEngine, TableShape
from tests.interop.peers import Peer
from tests.interop.values import assert_same_rows

pytest.importorskip("sqlalchemy")
SHAPE = TableShape((("k", "INT NOT NULL"), ("v", "INT")), ("k",), (), {"bucket": "1"})


@pytest.mark.parametrize("seed", range(3))
def test_names_and_rows_are_those_of_both(pypaimon: Peer, tmp_path: Path, seed: int) -> None:
    random, warehouse, uri = Random(seed), tmp_path / "wh", f"jdbc:sqlite:{tmp_path}/names.sqlite"
    options = json.dumps({"metastore": "jdbc", "uri": uri, "warehouse": str(warehouse)})
    theirs = PeerEngine(pypaimon, options)  # type: ignore[arg-type]

    def ask(call: str, *arguments: object) -> object:
        return pypaimon.request("catalog", warehouse=options, call=call, arguments=list(arguments))

    if seed:  # either may make the tables of the catalog
        assert ask("list_databases") == []
    ours = MerganserEngine(warehouse)
    ours._catalog = mg.catalog(uri, options={"warehouse": str(warehouse), "local.sync": "false"})
    ours.database("db")
    held: dict[str, dict[int, int]] = {}
    for turn in range(14):
        engine = random.choice([ours, theirs])
        verb = random.choice(["create", "write", "write", "drop", "rename"])
        name = f"db.t{turn}" if verb == "create" or not held else random.choice(sorted(held))
        if verb == "create" or name not in held:
            engine.create(name, SHAPE)
            held[name] = {}
        elif verb == "write":
            rows = {random.randrange(20): random.randrange(100) for _ in range(5)}
            columns = {"k": pa.array(rows, pa.int32()), "v": pa.array(rows.values(), pa.int32())}
            engine.write(name, pa.table(columns))
            held[name] |= rows
        elif verb == "rename":
            new = f"db.r{turn}"
            if engine is ours:
                ours.database("db").rename_table(name, new)
            else:
                ask("rename_table", name, new)
            held[new] = held.pop(name)
        elif engine is ours:
            ours.database("db").drop_table(name)
            del held[name]
        else:
            ask("drop_table", name, False)
            del held[name]
        what = f"after turn {turn}, {verb} of {name} by {engine.name}"
        names = sorted(each.removeprefix("db.") for each in held)
        assert ours.database("db").list_tables("db") == names, what
        assert sorted(ask("list_tables", "db")) == names, what  # type: ignore[call-overload]
        for each, rows in held.items():
            expected = [{"k": k, "v": v} for k, v in rows.items()]
            for reader in (ours, theirs):
                assert_same_rows(reader.rows(each, SHAPE), expected, f"{reader.name} reads {each} {what}")
