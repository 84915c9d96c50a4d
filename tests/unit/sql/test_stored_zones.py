"""Values of times that statements store are those that Spark stores in a session with the same time zone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from tests.unit.sql.stored import COLUMNS, RECORDED, TEXT, cases, literals, seen

CASES = json.loads(RECORDED.read_text(encoding="utf-8"))
DOORS = {
    "INSERT of literals": ["INSERT INTO t VALUES (1, {literals})"],
    "INSERT OVERWRITE of columns": ["INSERT OVERWRITE t SELECT * FROM s"],
    "INSERT of columns in arrays": ["INSERT INTO nested (id, a) SELECT id, array({given}) FROM s"],
    "INSERT of columns in rows": ["INSERT INTO nested (id, r) SELECT id, struct({given}) FROM s"],
    "UPDATE to columns": ["INSERT INTO both (id, {given}) SELECT * FROM s", "UPDATE both SET {set_columns}"],
    "UPDATE of rows without a key to columns": [
        "INSERT INTO log (id, {given}) SELECT * FROM s",
        "UPDATE log SET {set_columns}",
    ],
    "UPDATE to subqueries": ["INSERT INTO t (id) VALUES (1)", "UPDATE t SET {set_queries}"],
    "MERGE that updates": [
        "INSERT INTO t (id) VALUES (1)",
        "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET {set_source}",
    ],
    "MERGE that inserts": [
        "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, {stored}) VALUES (s.id, {source})"
    ],
    "MERGE that updates by name": [
        "INSERT INTO t (id) VALUES (1)",
        "MERGE INTO t USING (SELECT id, {renamed} FROM s) q ON t.id = q.id WHEN MATCHED THEN UPDATE SET *",
    ],
    "MERGE that inserts by name": [
        "MERGE INTO t USING (SELECT id, {renamed} FROM s) q ON t.id = q.id WHEN NOT MATCHED THEN INSERT *"
    ],
}
OF_LITERALS = {
    "UPDATE to literals": ["INSERT INTO t (id) VALUES (1)", "UPDATE t SET {set_literals}"],
    "MERGE of literals": [
        "INSERT INTO t (id) VALUES (1)",
        "MERGE INTO t USING (SELECT 1 AS k) q ON t.id = q.k WHEN MATCHED THEN UPDATE SET {set_literals}",
    ],
}
NEEDS_CAST = {("TIMESTAMP", "TIME"), ("TIMESTAMP_NTZ", "TIME")}
"""Types of values and columns that are refused here: a time of day is not stored in place of the whole."""


def stored(
    run: Callable[[str], Any], table: Callable[[str], mg.Table], statements: list[str], given: str, kind: str
) -> list[Any]:
    """Return what a way to store the values of a type stores in columns of another one.

    Args:
        run: runs a statement.
        table: opens a table by its name.
    """
    texts = literals(given)
    own, column = COLUMNS["STRING" if given == TEXT else given], COLUMNS[kind]
    g, v = [f"g{i}" for i in range(len(texts))], [f"v{i}" for i in range(len(texts))]
    kinds = {"g": ", ".join(f"{name} {own}" for name in g), "v": ", ".join(f"{name} {column}" for name in v)}
    words = set(re.findall(r"\w+", " ".join(statements)))
    key = "id INT, PRIMARY KEY (id) NOT ENFORCED"
    for name, columns in {
        "s": f"{key}, {kinds['g']}",
        "t": f"{key}, {kinds['v']}",
        "both": f"{key}, {kinds['g']}, {kinds['v']}",
        "log": f"id INT, {kinds['g']}, {kinds['v']}",
        "nested": f"{key}, a ARRAY<{column}>, r ROW<{kinds['v']}>",
    }.items():
        if name in words:
            run(f"CREATE TABLE {name} ({columns})")
    if "s" in words:
        run(f"INSERT INTO s VALUES (1, {', '.join(texts)})")
    filled = {
        "literals": ", ".join(texts),
        "given": ", ".join(g),
        "stored": ", ".join(v),
        "source": ", ".join(f"s.{name}" for name in g),
        "renamed": ", ".join(f"{a} AS {b}" for a, b in zip(g, v, strict=True)),
        "set_columns": ", ".join(f"{b} = {a}" for a, b in zip(g, v, strict=True)),
        "set_source": ", ".join(f"{b} = s.{a}" for a, b in zip(g, v, strict=True)),
        "set_literals": ", ".join(f"{b} = {a}" for a, b in zip(texts, v, strict=True)),
        "set_queries": ", ".join(f"{b} = (SELECT {a})" for a, b in zip(texts, v, strict=True)),
    }
    for text in statements:
        run(text.format(**filled))
    into = next(name for name in ("nested", "both", "log", "t") if name in words)
    rows = table(into).read().to_arrow()
    if into == "nested":
        (column_of_lists,) = (rows.column(name) for name in ("a", "r") if not rows.column(name).null_count)
        return list(seen(column_of_lists)[0])
    return [seen(rows.column(name))[0] for name in v]


def test_all_cases_are_recorded() -> None:
    assert [(case["zone"], case["given"], case["kind"]) for case in CASES] == list(cases())


@pytest.mark.campaign(1 / 9)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['zone']}-{case['given']}-{case['kind']}")
def test_stored_values(tmp_path: Path, case: dict[str, Any]) -> None:
    given, kind = case["given"], case["kind"]
    for i, (door, statements) in enumerate((OF_LITERALS if given == TEXT else DOORS | OF_LITERALS).items()):
        catalog = mg.catalog(tmp_path / str(i))
        catalog.create_database("default")
        session = catalog.session()
        table = lambda name, catalog=catalog: catalog.table(f"default.{name}")  # noqa: E731
        session.sql(f"SET timezone = '{case['zone']}'")
        if "error" in case or (given, kind) in NEEDS_CAST:
            if given == "STRING" and door in OF_LITERALS:
                continue  # of `TEXT`
            with pytest.raises(InvalidInputError, match="CAST"):
                stored(session.sql, table, statements, given, kind)
        else:
            assert (door, stored(session.sql, table, statements, given, kind)) == (door, case["values"])


def test_the_text_of_a_default_is_utc_and_a_partition_is_in_the_zone(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("default")
    session = catalog.session()
    session.sql("SET timezone = 'Europe/Berlin'")
    session.sql(
        "CREATE TABLE t (id INT, z TIMESTAMP_LTZ DEFAULT '2026-01-01 12:00:00', y TIMESTAMP_LTZ DEFAULT '2026-01-01', "
        "x TIMESTAMP_LTZ DEFAULT '2026-01-01 12:00:00+01:00', PRIMARY KEY (id) NOT ENFORCED);"
        "INSERT INTO t (id) VALUES (1); INSERT INTO t SELECT id + 1, now(), now(), now() FROM t;"
        "UPDATE t SET z = DEFAULT, y = DEFAULT, x = DEFAULT WHERE id = 2;"
        "MERGE INTO t USING (SELECT 3 AS id) q ON t.id = q.id "
        "WHEN NOT MATCHED THEN INSERT (id, z, y, x) VALUES (q.id, DEFAULT, DEFAULT, DEFAULT)"
    )
    rows = catalog.table("default.t").read().to_arrow()
    assert seen(rows.column("z")) == ["2026-01-01 12:00:00+00:00"] * 3
    assert seen(rows.column("y")) == ["2026-01-01 00:00:00+00:00"] * 3
    assert seen(rows.column("x")) == ["2026-01-01 11:00:00+00:00"] * 3
    session.sql(
        "CREATE TABLE p (id INT, z TIMESTAMP_LTZ) PARTITIONED BY (z);"
        "INSERT INTO p PARTITION (z = TIMESTAMP '2026-01-01 12:00:00') VALUES (1)"
    )
    assert seen(catalog.table("default.p").read().to_arrow().column("z")) == ["2026-01-01 11:00:00+00:00"]


def test_the_zone_of_an_update_holds_for_the_values_that_it_sets(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("db")
    table = catalog.create_table("db.t", "id INT, n TIMESTAMP(6), z TIMESTAMP_LTZ(6), PRIMARY KEY (id)")
    table.write([{"id": 1, "n": datetime(2026, 1, 1, 12), "z": None}])
    for zone, hour in (("UTC", 12), ("Europe/Berlin", 11)):
        for value in ("n", "'2026-01-01 12:00:00'", "TIMESTAMP '2026-01-01 12:00:00'"):
            table.update("true", {"z": "NULL"})
            table.update("true", {"z": value}, timezone=zone)
            assert seen(table.read().to_arrow().column("z")) == [f"2026-01-01 {hour}:00:00+00:00"]
        source = [{"id": 1, "n": datetime(2026, 1, 1, 12)}]
        merge = table.merge(source, "target.id = source.id", timezone=zone)
        merge.when_matched_update({"z": "source.n"}).execute()
        assert seen(table.read().to_arrow().column("z")) == [f"2026-01-01 {hour}:00:00+00:00"]
