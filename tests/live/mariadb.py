"""A MariaDB with tables of all column types, a random life of them, and what they hold afterwards.

Types and texts are told in PostgreSQL's words, so that one comparison fits both databases: `datetime(3)` is
`timestamp(3)`, `timestamp(3)` is `timestamp(3) with time zone`, bytes are shown as hex behind `\\x`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from tests.live import draw
from tests.live.services import MariaDB

DEFAULTS: Final[Mapping[str, Mapping[str, str]]] = {"evolve": {"d1": "2020-01-01 00:00:00.5", "ee": "dé"}}
"""Defaults of columns that are added while the connectors run."""
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "MA": {"converter.schemas.enable": "true", "decimal.handling.mode": "precise",
           "time.precision.mode": "adaptive_time_microseconds", "provide.transaction.metadata": "true"},
    "MB": {"converter.schemas.enable": "false", "decimal.handling.mode": "string", "binary.handling.mode": "hex",
           "time.precision.mode": "adaptive_time_microseconds"},
    "MC": {"converter.schemas.enable": "false", "decimal.handling.mode": "precise", "time.precision.mode": "connect",
           "binary.handling.mode": "base64"},
    "MD": {"converter.schemas.enable": "true", "decimal.handling.mode": "double", "time.precision.mode": "isostring",
           "converter.replace.null.with.default": "false", "tombstones.on.delete": "false"},
    "ME": {"converter.schemas.enable": "true", "decimal.handling.mode": "string",
           "time.precision.mode": "microseconds", "binary.handling.mode": "base64-url-safe", "transforms": "u",
           "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState",
           "transforms.u.delete.tombstone.handling.mode": "rewrite",
           "transforms.u.add.fields": "op,table,db,source.ts_ms"},
    "MF": {"converter.schemas.enable": "true", "decimal.handling.mode": "precise",
           "time.precision.mode": "nanoseconds"},
}  # fmt: skip
"""Settings of the connector by name. Numbers without a sign beyond 63 bits are sent as decimals."""


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return "`" + name.replace("`", "``") + "`"


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _texts(rng: random.Random) -> str:
    return _text(draw.texts(rng))


def _bytes(size: int | None = None) -> draw.Draw:
    def drawn(rng: random.Random) -> str:
        found = rng.randbytes(rng.choice([0, 1, 3, 20]) if size is None else size)
        return f"x'{found.hex()}'"

    return drawn


def _date(rng: random.Random) -> str:
    return f"'{draw.date(rng)}'"


def _stamp(digits: int, first: int = 1700) -> draw.Draw:
    return lambda rng: f"'{draw.date(rng, first)} {draw.clock(rng, digits)}'"


def _time(digits: int) -> draw.Draw:
    return lambda rng: f"'{draw.clock(rng, digits)}'"


def _bits(size: int) -> draw.Draw:
    return lambda rng: "b'" + "".join(rng.choice("01") for _ in range(size)) + "'"


def _point(rng: random.Random) -> str:
    return f"ST_GeomFromText('POINT({rng.randint(-180, 180)} {rng.random():.3})')"


_Type = tuple[str, str, draw.Draw]
TYPES: Final[Mapping[str, _Type]] = {
    "ti": ("tinyint", "smallint", draw.whole(-128, 127)),
    "tu": ("tinyint unsigned", "smallint", draw.whole(0, 255)),
    "bo": ("boolean", "smallint", draw.among("0", "1")),
    "si": ("smallint", "smallint", draw.whole(-(2**15), 2**15 - 1)),
    "su": ("smallint unsigned", "integer", draw.whole(0, 2**16 - 1)),
    "mi": ("mediumint", "integer", draw.whole(-(2**23), 2**23 - 1)),
    "i": ("int", "integer", draw.whole(-(2**31), 2**31 - 1)),
    "iu": ("int unsigned", "bigint", draw.whole(0, 2**32 - 1)),
    "bi": ("bigint", "bigint", draw.whole(-(2**63), 2**63 - 1)),
    "bu": ("bigint unsigned", "bigint unsigned", draw.whole(0, 2**64 - 1)),
    "n2": ("decimal(12,2)", "numeric(12,2)", draw.decimal(12, 2)),
    "n40": ("decimal(40,5)", "numeric(40,5)", draw.decimal(40, 5)),
    "f": ("float", "real", draw.among("0", "1.5", "0.1", "-2.25")),
    "d": ("double", "double precision", draw.among("0", "0.1", "1e21", "123456789.125", "-1e-300")),
    "t": ("text", "text", _texts),
    "v": ("varchar(60)", "text", _texts),
    "c": ("char(5)", "character(5)", draw.among("''", "'a'", "'é x'", "'abcde'", "'🦢'")),
    "bn": ("binary(4)", "bytea", _bytes(4)),
    "vb": ("varbinary(40)", "bytea", _bytes()),
    "bl": ("blob", "bytea", _bytes()),
    "dt": ("date", "date", _date),
    "tm": ("time(6)", "time(6)", _time(6)),
    "tm3": ("time(3)", "time(3)", _time(3)),
    "ts": ("datetime(6)", "timestamp(6)", _stamp(6)),
    "ts0": ("datetime", "timestamp(0)", _stamp(0)),
    "ts3": ("datetime(3)", "timestamp(3)", _stamp(3)),
    "tz": ("timestamp(6) NULL DEFAULT NULL", "timestamp(6) with time zone", _stamp(6, 1970)),
    "tz0": ("timestamp NULL DEFAULT NULL", "timestamp(0) with time zone", _stamp(0, 1970)),
    "y": ("year", "integer", draw.among("1901", "2024", "2155")),
    "e": ("enum('sad','größe','it''s')", "text", draw.among("'sad'", "'größe'", "'it''s'")),
    "s": ("set('a','b','ü')", "text", draw.among("''", "'a'", "'a,b'", "'a,b,ü'")),
    "j": ("json", "text", draw.among("'{\"a\": [1, null]}'", "'[]'", "'null'", "'\"ü\"'")),
    "b1": ("bit(1)", "bit(1)", _bits(1)),
    "b10": ("bit(10)", "bit(10)", _bits(10)),
    "p": ("point", "geometry", _point),
}
"""By column: its type here and in PostgreSQL's words, and what draws its values."""
_CREATE: Final = f"""
CREATE DATABASE app;
USE app;
CREATE TABLE sentinel (id int PRIMARY KEY);
CREATE TABLE types (id bigint PRIMARY KEY, {", ".join(f"`{name}` {kind}" for name, (kind, _, _) in TYPES.items())});
CREATE TABLE nopk (x int, s text, n decimal(12,2), ts datetime(3));
CREATE TABLE comp (a int, b varchar(60) COLLATE utf8mb4_bin, dt date, val decimal(9,3), note text,
    PRIMARY KEY (a, b, dt));
CREATE TABLE defrep (id int PRIMARY KEY, name varchar(60) NOT NULL, amount decimal(10,2) NOT NULL, dd date NOT NULL);
CREATE TABLE evolve (id int PRIMARY KEY, a int, b text);
CREATE TABLE `Mixed Case` (`Id` int PRIMARY KEY, `Some Col` text, `dot.col` int, `select` text);
INSERT INTO sentinel VALUES (1);
"""
_ALTERS: Final = (
    "ALTER TABLE app.evolve ADD c1 decimal(8,2)",
    "ALTER TABLE app.evolve MODIFY a bigint",
    "ALTER TABLE app.evolve DROP b, ADD d1 datetime(6) DEFAULT '2020-01-01 00:00:00.5', "
    "ADD ee varchar(60) DEFAULT 'dé'",
)
_KINDS: Final = {
    "int": "integer", "decimal": "numeric", "datetime": "timestamp", "varchar": "text", "longtext": "text"
}  # fmt: skip
"""PostgreSQL's words for types of the other tables."""


class Workload:
    """The tables, and a life of them that a seed decides."""

    def __init__(self, server: MariaDB, seed: int, transactions: int) -> None:
        self.server = server
        self.rng = random.Random(seed)
        self.transactions = transactions
        whole = draw.whole(0, 2**31 - 1)
        self.evolve = draw.Life("evolve", ["id"], {"a": whole, "b": _texts}, draw.numbers(), moves=False)
        plain = {"name": _texts, "amount": draw.decimal(10, 2), "dd": _date}
        keyless = {"s": _texts, "n": draw.decimal(12, 2), "ts": _stamp(3)}
        mixed = {"Some Col": _texts, "dot.col": whole, "select": _texts}
        types = {name: drawn for name, (_, _, drawn) in TYPES.items()}
        self.lives = [
            draw.Life("types", ["id"], types, draw.numbers()),
            draw.Life("comp", ["a", "b", "dt"], {"val": draw.decimal(9, 3), "note": _texts}, _composite),
            draw.Life("defrep", ["id"], plain, draw.numbers(), required=frozenset(plain)),
            draw.Life("`Mixed Case`", ["Id"], mixed, draw.numbers()),
            draw.Life("nopk", ["x"], keyless, lambda rng: (str(rng.randrange(10, 99)),)),
            self.evolve,
        ]

    def create(self) -> None:
        """Create the tables with some rows."""
        rows = [life.insert(self.rng, quoted) for life in self.lives for _ in range(2)]
        self.server.query("\n".join([_CREATE, *rows]))

    def run(self) -> None:
        """Change the tables, and one table's columns three times in between."""
        for step in range(4):
            script = draw.transactions(self.rng, self.lives, self.transactions // 4, quoted)
            self.server.query("\n".join(["USE app;", *script]))
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
        names = self._lines("SELECT table_name FROM information_schema.tables WHERE table_schema = 'app'")
        return {name: self._table(name) for (name,) in names}

    def _lines(self, sql: str) -> list[list[str]]:
        return [line.split("\t") for line in self.server.query(sql).splitlines()]

    def _table(self, name: str) -> dict[str, Any]:
        found = self._lines(
            "SELECT column_name, column_type, is_nullable, column_key FROM information_schema.columns "
            f"WHERE table_schema = 'app' AND table_name = {_text(name)} ORDER BY ordinal_position"
        )
        columns = [
            [column, TYPES[column][1] if name == "types" and column in TYPES else _kind(kind), nullable]
            for column, kind, nullable, _ in found
        ]
        shown = ", ".join(f"IFNULL(HEX({_shown(quoted(column), kind)}), '-')" for column, kind, _ in columns)
        rows = [
            [None if value == "-" else bytes.fromhex(value).decode() for value in line]
            for line in self._lines(f"SELECT {shown} FROM app.{quoted(name)}")
        ]
        key = [column for column, _, _, role in found if role == "PRI"]
        return {"columns": columns, "key": key, "rows": rows}


def _kind(text: str) -> str:
    """Return PostgreSQL's word for a type."""
    base, bracket, rest = text.partition("(")
    if base in ("int", "bigint"):
        return "integer" if base == "int" else "bigint"
    return _KINDS.get(base, base) + (bracket + rest if base in ("decimal", "datetime") else "")


def _shown(column: str, kind: str) -> str:
    """Return the expression that shows a column as PostgreSQL does."""
    match kind.partition("(")[0]:
        case "bytea":
            return f"CONCAT('\\\\x', LOWER(HEX({column})))"
        case "geometry":
            return f"CONCAT('\\\\x', LOWER(HEX(ST_AsWKB({column}))))"
        case "bit":
            return f"LPAD(BIN({column} + 0), {kind[4:-1]}, '0')"
    return f"CAST({column} AS CHAR CHARACTER SET utf8mb4)"


def _composite(rng: random.Random) -> tuple[str, ...]:
    return str(rng.randrange(50)), _texts(rng), f"'2024-01-0{rng.randint(1, 9)}'"
