"""A PostgreSQL with tables of all column types, a random life of them, and what they hold afterwards."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any, Final

from tests.live import draw
from tests.live.services import PostgreSQL

DEFAULTS: Final[Mapping[str, Mapping[str, str]]] = {"evolve": {"d1": "2020-01-01 00:00:00.5", "ee": "dé"}}
"""Defaults of columns that are added while the connectors run."""
_INSTANT: Final = ("+00", "-05", "+05:30", "+09")


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _texts(rng: random.Random) -> str:
    return _text(draw.texts(rng))


def _cut(size: int) -> draw.Draw:
    return lambda rng: _text(draw.texts(rng)[:size])


def _large(rng: random.Random) -> str:
    return _text(draw.large(rng))


def _bytes(rng: random.Random) -> str:
    return f"'\\x{rng.randbytes(rng.choice([0, 1, 3, 20])).hex()}'"


def _array(element: draw.Draw, kind: str) -> draw.Draw:
    def drawn(rng: random.Random) -> str:
        parts = [rng.choice(["NULL", element(rng), element(rng)]) for _ in range(rng.randrange(4))]
        return f"ARRAY[{', '.join(parts)}]::{kind}[]"

    return drawn


def _date(rng: random.Random) -> str:
    return f"'{draw.date(rng)}'"


def _stamp(digits: int, *, zone: bool = False) -> draw.Draw:
    def drawn(rng: random.Random) -> str:
        return f"'{draw.date(rng)} {draw.clock(rng, digits)}{rng.choice(_INSTANT) if zone else ''}'"

    return drawn


def _time(digits: int, *, zone: bool = False) -> draw.Draw:
    return lambda rng: f"'{draw.clock(rng, digits)}{rng.choice(_INSTANT) if zone else ''}'"


def _json(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(8 if depth < 2 else 6)
    if kind == 6:
        return [_json(rng, depth + 1) for _ in range(rng.randrange(3))]
    if kind == 7:
        return {draw.texts(rng)[:5]: _json(rng, depth + 1) for _ in range(rng.randrange(3))}
    return [None, True, -1, 1.5, 12345678901234567890, draw.texts(rng)][kind]


def _document(rng: random.Random) -> str:
    return _text(json.dumps(_json(rng), ensure_ascii=rng.random() < 0.5))


def _hstore(rng: random.Random) -> str:
    keys = rng.sample(["a", "b", "ü", 'k"q', "x y"], rng.randrange(3))
    pairs = [f"hstore({_text(key)}, {rng.choice(['NULL', _texts(rng)])})" for key in keys]
    return " || ".join(["''::hstore", *pairs])


def _bits(low: int, high: int) -> draw.Draw:
    return lambda rng: "B'" + "".join(rng.choice("01") for _ in range(rng.randint(low, high))) + "'"


def _uuid(rng: random.Random) -> str:
    text = rng.randbytes(16).hex()
    return f"'{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}'"


TYPES: Final[Mapping[str, tuple[str, draw.Draw]]] = {
    "si": ("smallint", draw.whole(-(2**15), 2**15 - 1)),
    "i": ("integer", draw.whole(-(2**31), 2**31 - 1)),
    "bi": ("bigint", draw.whole(-(2**63), 2**63 - 1)),
    "n2": ("numeric(12,2)", draw.decimal(12, 2)),
    "n0": ("numeric(20)", draw.decimal(20, 0)),
    "nf": ("numeric", draw.among("0", "100000", "-0.000000000012", "1.10", "12345678901234567890.123456")),
    "n40": ("numeric(40,5)", draw.decimal(40, 5)),
    "r": ("real", draw.among("0", "1.5", "0.1", "1e10", "'NaN'", "'Infinity'", "'-Infinity'")),
    "d": ("double precision", draw.among("0", "0.1", "1e21", "123456789.125", "'NaN'", "'Infinity'", "-1e-300")),
    "b": ("boolean", draw.among("true", "false")),
    "t": ("text", _texts),
    "v": ("character varying(40)", _cut(40)),
    "c": ("character(5)", draw.among("''", "'a'", "'é x'", "'abcde'", "'🦢'")),
    "ba": ("bytea", _bytes),
    "u": ("uuid", _uuid),
    "dt": ("date", _date),
    "tm": ("time", _time(6)),
    "tm3": ("time(3)", _time(3)),
    "tmtz": ("time with time zone", _time(6, zone=True)),
    "ts": ("timestamp", _stamp(6)),
    "ts0": ("timestamp(0)", _stamp(0)),
    "ts3": ("timestamp(3)", _stamp(3)),
    "tstz": ("timestamp with time zone", _stamp(6, zone=True)),
    "tstz3": ("timestamp(3) with time zone", _stamp(3, zone=True)),
    "iv": ("interval", draw.among("'1 day'", "'1 year 2 months'", "'10 days 4:05:06.7'", "'-3:00:01.000001'", "'0'")),
    "j": ("json", _document),
    "jb": ("jsonb", _document),
    "xm": ("xml", draw.among("'<a b=\"1\">x</a>'", "'<a>ü</a>'")),
    "e": ("app.mood", draw.among("'sad'", "'ok'", "'happy \"quoted\"'", "'größe'")),
    "h": ("hstore", _hstore),
    "ci": ("citext", _texts),
    "ip": ("inet", draw.among("'10.0.0.1'", "'10.1.0.0/16'", "'::1'", "'fe80::/10'")),
    "cr": ("cidr", draw.among("'10.1.0.0/16'", "'fe80::/10'")),
    "ma": ("macaddr", draw.among("'08:00:2b:01:02:03'", "'ff:ff:ff:ff:ff:ff'")),
    "b1": ("bit(1)", _bits(1, 1)),
    "b8": ("bit(12)", _bits(12, 12)),
    "vb": ("bit varying(20)", _bits(0, 20)),
    "rg": ("int4range", draw.among("'[1,5)'", "'[7,)'", "'(,3)'", "'empty'")),
    "dr": ("daterange", draw.among("'[2024-01-01,2024-02-01)'", "'empty'")),
    "mo": ("money", draw.among("'0'", "'-1.23'", "'12.50'", "'92233720368.07'")),
    "ia": ("integer[]", _array(draw.whole(-(2**31), 2**31 - 1), "integer")),
    "bia": ("bigint[]", _array(draw.whole(-(2**63), 2**63 - 1), "bigint")),
    "ta": ("text[]", _array(_texts, "text")),
    "na": ("numeric(10,2)[]", _array(draw.decimal(10, 2), "numeric(10,2)")),
    "fa": ("double precision[]", _array(draw.among("1.5", "-0.25", "'NaN'", "'Infinity'"), "double precision")),
    "boa": ("boolean[]", _array(draw.among("true", "false"), "boolean")),
    "ua": ("uuid[]", _array(_uuid, "uuid")),
    "da": ("date[]", _array(_date, "date")),
    "tsa": ("timestamp[]", _array(_stamp(6), "timestamp")),
    "tza": ("timestamp with time zone[]", _array(_stamp(6, zone=True), "timestamptz")),
}
_TOAST: Final[Mapping[str, tuple[str, draw.Draw]]] = {
    "big": ("text", _large),
    "jb": ("jsonb", lambda rng: _text(json.dumps({"k": draw.large(rng)}))),
    "arr": ("text[]", lambda rng: f"ARRAY[{_large(rng)}, NULL]::text[]"),
    "ints": ("integer[]", lambda rng: f"ARRAY(SELECT g * {rng.randint(1, 999)} FROM generate_series(1, 2000) g)"),
    "bin": ("bytea", lambda rng: f"'\\x{rng.randbytes(3000).hex()}'"),
    "h": ("hstore", lambda rng: f"hstore('k', {_large(rng)})"),
    "n": ("integer", draw.whole(0, 99)),
}


def _columns(types: Mapping[str, tuple[str, draw.Draw]]) -> str:
    return ", ".join(f"{quoted(name)} {kind}" for name, (kind, _) in types.items())


def _draws(types: Mapping[str, tuple[str, draw.Draw]]) -> dict[str, draw.Draw]:
    return {name: drawn for name, (_, drawn) in types.items()}


_EXTERNAL: Final = "; ".join(
    f"ALTER TABLE app.{table} ALTER {column} SET STORAGE EXTERNAL"
    for table in ("toast", "toastf")
    for column in ("big", "jb", "arr", "ints", "bin", "h")
)
_CREATE: Final = f"""
CREATE SCHEMA app;
CREATE PUBLICATION dbz_publication FOR ALL TABLES;
CREATE EXTENSION hstore;
CREATE EXTENSION citext;
CREATE TYPE app.mood AS ENUM ('sad', 'ok', 'happy "quoted"', 'größe');
CREATE TABLE app.sentinel (id integer PRIMARY KEY);
CREATE TABLE app.types (id bigint PRIMARY KEY, {_columns(TYPES)});
CREATE TABLE app.whole (id bigint PRIMARY KEY, {_columns(TYPES)});
CREATE TABLE app.toast (id integer PRIMARY KEY, {_columns(_TOAST)});
CREATE TABLE app.toastf (id integer PRIMARY KEY, {_columns(_TOAST)});
{_EXTERNAL};
CREATE TABLE app.nopk (x integer, s text, n numeric(12,2), ts timestamp(3));
CREATE TABLE app.comp (a integer, b text, dt date, val numeric(9,3), note text, PRIMARY KEY (a, b, dt));
CREATE TABLE app.pkful (id uuid PRIMARY KEY, grp text, n integer, d double precision);
CREATE TABLE app.defrep (id integer PRIMARY KEY, name text NOT NULL, amount numeric(10,2) NOT NULL,
    flag boolean NOT NULL, at timestamptz NOT NULL, dd date NOT NULL);
CREATE TABLE app.evolve (id integer PRIMARY KEY, a integer, b text);
CREATE TABLE app."Mixed Case" ("Id" integer PRIMARY KEY, "Some Col" text, "dot.col" integer, "select" text);
ALTER TABLE app.whole REPLICA IDENTITY FULL;
ALTER TABLE app.toastf REPLICA IDENTITY FULL;
ALTER TABLE app.nopk REPLICA IDENTITY FULL;
ALTER TABLE app.pkful REPLICA IDENTITY FULL;
INSERT INTO app.sentinel VALUES (1);
"""
_ALTERS: Final = (
    "ALTER TABLE app.evolve ADD c1 numeric(8,2)",
    "ALTER TABLE app.evolve ALTER a TYPE bigint",
    "ALTER TABLE app.evolve DROP b, ADD d1 timestamp DEFAULT '2020-01-01 00:00:00.5', ADD ee text DEFAULT 'dé'",
)


class Workload:
    """The tables, and a life of them that a seed decides."""

    def __init__(self, server: PostgreSQL, seed: int, transactions: int) -> None:
        self.server = server
        self.rng = random.Random(seed)
        self.transactions = transactions
        whole = draw.whole(0, 2**31 - 1)
        self.evolve = draw.Life("app.evolve", ["id"], {"a": whole, "b": _texts}, draw.numbers(), moves=False)
        required = frozenset({"name", "amount", "flag", "at", "dd"})
        plain = {"name": _texts, "amount": draw.decimal(10, 2), "flag": draw.among("true", "false"),
                 "at": _stamp(6, zone=True), "dd": _date}  # fmt: skip
        keyless = {"s": _texts, "n": draw.decimal(12, 2), "ts": _stamp(3)}
        mixed = {"Some Col": _texts, "dot.col": whole, "select": _texts}
        self.lives = [
            draw.Life("app.types", ["id"], _draws(TYPES), draw.numbers()),
            draw.Life("app.whole", ["id"], _draws(TYPES), draw.numbers()),
            # an insert whose large value is not sent cannot be told: a changed key needs the whole old row
            draw.Life("app.toast", ["id"], _draws(_TOAST), draw.numbers(), moves=False),
            draw.Life("app.toastf", ["id"], _draws(_TOAST), draw.numbers()),
            draw.Life("app.comp", ["a", "b", "dt"], {"val": draw.decimal(9, 3), "note": _texts}, _composite),
            draw.Life("app.pkful", ["id"], {"grp": _texts, "n": whole, "d": draw.among("0.1", "1e300")}, _uuids),
            draw.Life("app.defrep", ["id"], plain, draw.numbers(), required=required),
            draw.Life('app."Mixed Case"', ["Id"], mixed, draw.numbers()),
            draw.Life("app.nopk", ["x"], keyless, lambda rng: (str(rng.randrange(10, 99)),)),
            self.evolve,
        ]

    def create(self) -> None:
        """Create the tables with some rows."""
        rows = [life.insert(self.rng, quoted) for life in self.lives for _ in range(2)]
        self.server.query("\n".join([_CREATE, *rows]))

    def run(self) -> None:
        """Change the tables, and one table's columns three times in between."""
        part = self.transactions // 4
        for step in range(4):
            script = draw.transactions(self.rng, self.lives, part, quoted, _message)
            self.server.query("\n".join(script))
            if step < len(_ALTERS):
                self.server.query(_ALTERS[step])
                if step == 0:
                    self.evolve.columns["c1"] = draw.decimal(8, 2)
                if step == 1:
                    self.evolve.columns["a"] = draw.whole(0, 2**40)
                if step == 2:
                    del self.evolve.columns["b"]
                    self.evolve.columns |= {"d1": _stamp(6), "ee": _texts}
        self.server.query("INSERT INTO app.sentinel VALUES (2)")

    def state(self) -> dict[str, Any]:
        """Return the tables in the form of `expected.json.gz`."""
        names = json.loads(self.server.query(_TABLES))
        return {name: self._table(name) for name in names}

    def _table(self, name: str) -> dict[str, Any]:
        columns = json.loads(self.server.query(_COLUMNS.format(name=_text(name))) or "[]")
        key = json.loads(self.server.query(_KEY.format(name=_text(name))))
        parts = [
            f"to_json({quoted(column)})::text" if kind.endswith("[]") else f"{quoted(column)}::text"
            for column, kind, _ in columns
        ]
        found = self.server.query(
            "SET timezone = 'UTC'; SET intervalstyle = 'iso_8601'; "
            f"SELECT coalesce(json_agg(json_build_array({', '.join(parts)})), '[]') FROM app.{quoted(name)}"
        )
        return {"columns": columns, "key": key, "rows": json.loads(found)}


_TABLES: Final = "SELECT json_agg(relname) FROM pg_class WHERE relnamespace = 'app'::regnamespace AND relkind = 'r'"
_COLUMNS: Final = (
    "SELECT json_agg(json_build_array(attname, format_type(atttypid, atttypmod), "
    "CASE WHEN attnotnull THEN 'NO' ELSE 'YES' END) ORDER BY attnum) FROM pg_attribute WHERE attnum > 0 AND NOT "
    "attisdropped AND attrelid = "
    "(SELECT oid FROM pg_class WHERE relnamespace = 'app'::regnamespace AND relname = {name})"
)
_KEY: Final = (
    "SELECT coalesce(json_agg(attname ORDER BY array_position(indkey, attnum)), '[]') FROM pg_index JOIN pg_attribute "
    "ON attrelid = indrelid AND attnum = ANY(indkey) WHERE indisprimary AND indrelid = "
    "(SELECT oid FROM pg_class WHERE relnamespace = 'app'::regnamespace AND relname = {name})"
)


def _composite(rng: random.Random) -> tuple[str, ...]:
    return str(rng.randrange(50)), _texts(rng), f"'2024-01-0{rng.randint(1, 9)}'"


def _uuids(rng: random.Random) -> tuple[str, ...]:
    return (_uuid(rng),)


def _message(rng: random.Random) -> str:
    """Return a message in the log that is no change of a table."""
    return f"SELECT pg_logical_emit_message(true, 'app', {_texts(rng)}) \\g /dev/null"
