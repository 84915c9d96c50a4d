"""Random values of columns, as literals of SQL, and a random life of tables: what both databases share."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Draw = Callable[[random.Random], str]
"""Draws a literal."""
TEXTS: Final = (
    "", " ", "plain", "true", "null", "12", "NaN", " lead trail ", "it's", 'say "hi"', "back\\slash",
    "line\nbreak\r\ttab",
    "ünïcode ß 漢字", "🦢🎉", "\\u0041 \\n", '{"a":1}', "</script>", "x\u00a0y", "\u2028", "__debezium", "a,b", "%s",
)  # fmt: skip


def texts(rng: random.Random) -> str:
    """Return a text that something on the way may take for something else, or a drawn one."""
    if rng.random() < 0.5:
        return rng.choice(TEXTS)
    return "".join(rng.choice("abcüö \n\"'\\🦢") for _ in range(rng.randrange(30)))


def large(rng: random.Random) -> str:
    """Return a text that does not fit a page and hardly shrinks."""
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz0123456789ü") for _ in range(rng.randrange(2500, 5000)))


def among(*literals: str) -> Draw:
    return lambda rng: rng.choice(literals)


def whole(low: int, high: int) -> Draw:
    """Return a draw of whole numbers, often of the smallest and largest."""

    def drawn(rng: random.Random) -> str:
        return str(rng.choice([low, high, 0, rng.randint(low, high)]))

    return drawn


def decimal(precision: int, scale: int) -> Draw:
    """Return a draw of decimals, often around the borders of bytes."""

    def drawn(rng: random.Random) -> str:
        most = 10**precision - 1
        number = rng.choice([0, 1, -1, 127, 128, -128, -129, 255, 256, most, -most, rng.randint(-most, most)])
        number = max(-most, min(most, number))
        digits = str(abs(number)).rjust(scale + 1, "0")
        return ("-" if number < 0 else "") + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)

    return drawn


def fraction(rng: random.Random, digits: int) -> str:
    """Return a fraction of a second with up to some digits."""
    if digits == 0 or rng.random() < 0.3:
        return ""
    return "." + str(rng.choice([0, 1, 5, 10**digits - 1, rng.randrange(10**digits)])).rjust(digits, "0")


def date(rng: random.Random, first: int = 1700) -> str:
    """Return a day from a year on, often one that a calendar or a zone makes special."""
    special = ["1970-01-02", "2024-02-29", "2026-03-08", "2026-11-01", "2037-12-31"]
    if first < 1970:
        special += ["1900-01-01", "1969-12-31", "1970-01-01", "2038-01-19"]
    if rng.random() < 0.5:
        return rng.choice(special)
    last = 2100 if first < 1970 else 2037
    return f"{rng.randrange(first, last)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"


def clock(rng: random.Random, digits: int) -> str:
    plain = rng.choice(["00:00:00", "23:59:59", "12:00:00", "02:30:00", None])
    if plain is None:
        plain = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
    return plain + fraction(rng, digits)


@dataclass
class Life:
    """What happens to one table: its keys now, and those that a transaction may still take back.

    Attributes:
        name: the table as SQL writes it.
        key: its key columns.
        columns: what its columns hold, without the key.
        new_key: draws literals of a new key.
        moves: whether keys change.
        nullable: columns that take NULL.
    """

    name: str
    key: Sequence[str]
    columns: dict[str, Draw]
    new_key: Callable[[random.Random], tuple[str, ...]]
    moves: bool = True
    required: frozenset[str] = frozenset()
    keys: list[tuple[str, ...]] = field(default_factory=list)

    def statement(self, rng: random.Random, quote: Callable[[str], str]) -> str:
        """Return a change of the table."""
        roll = rng.random()
        if not self.keys or roll < 0.45:
            return self.insert(rng, quote)
        key = rng.choice(self.keys)
        if roll < 0.65:
            self.keys.remove(key)
            return f"DELETE FROM {self.name} WHERE {self._where(key, quote)};"
        if roll < 0.75 and self.moves:
            new = self._fresh(rng)
            self.keys[self.keys.index(key)] = new
            sets = {**dict(zip(self.key, new, strict=True)), **self._some(rng)}
        else:
            sets = self._some(rng)
        changed = ", ".join(f"{quote(name)} = {value}" for name, value in sets.items())
        return f"UPDATE {self.name} SET {changed} WHERE {self._where(key, quote)};"

    def insert(self, rng: random.Random, quote: Callable[[str], str]) -> str:
        """Return an insert of a new row."""
        key = self._fresh(rng)
        self.keys.append(key)
        row = {**dict(zip(self.key, key, strict=True)), **{name: self._value(rng, name) for name in self.columns}}
        return f"INSERT INTO {self.name} ({', '.join(map(quote, row))}) VALUES ({', '.join(row.values())});"

    def _fresh(self, rng: random.Random) -> tuple[str, ...]:
        while True:
            key = self.new_key(rng)
            if key not in self.keys:
                return key

    def _some(self, rng: random.Random) -> dict[str, str]:
        count = rng.randint(1, min(3, len(self.columns)))
        return {name: self._value(rng, name) for name in rng.sample(list(self.columns), count)}

    def _value(self, rng: random.Random, name: str) -> str:
        if name not in self.required and rng.random() < 0.12:
            return "NULL"
        return self.columns[name](rng)

    def _where(self, key: tuple[str, ...], quote: Callable[[str], str]) -> str:
        return " AND ".join(f"{quote(name)} = {value}" for name, value in zip(self.key, key, strict=True))


def transactions(
    rng: random.Random, lives: Sequence[Life], count: int, quote: Callable[[str], str], extra: Draw | None = None
) -> list[str]:
    """Return a script of transactions over tables, one in six rolled back.

    Args:
        extra: draws statements beside those of tables.
    """
    script = []
    for _ in range(count):
        before: Mapping[str, list[tuple[str, ...]]] = {life.name: list(life.keys) for life in lives}
        script.append("BEGIN;")
        for _ in range(rng.randint(1, 4)):
            script.append(rng.choice(lives).statement(rng, quote))
            if extra is not None and rng.random() < 0.05:
                script.append(extra(rng))
        if rng.random() < 1 / 6:
            script.append("ROLLBACK;")
            for life in lives:
                life.keys[:] = before[life.name]
        else:
            script.append("COMMIT;")
    return script


def numbers(first: int = 1) -> Callable[[random.Random], tuple[str, ...]]:
    """Return a draw of keys of one number."""
    return lambda rng: (str(rng.randint(first, 10_000)),)
