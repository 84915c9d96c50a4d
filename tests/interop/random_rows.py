"""Random values of every type, from a seeded source, with the corners of each type among them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from .engines import Fields
from .values import PaimonType, arrow_schema, arrow_type

_WORDS = [
    "",
    "a",
    "fig",
    "banana",
    "seven77",
    "eight888",
    "a longer text than fits inline",
    "héllo",
    "你好",
    "😀",
    "a/b=c%",
]
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_DAYS = (date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(1900, 3, 1), date(2261, 1, 1))


def random_value(random: Random, paimon_type: PaimonType) -> Any:
    """A value that is not null, in the Python form that `pa.array(..., type=arrow_type(...))` takes."""
    if not isinstance(paimon_type, str):
        return _nested(random, paimon_type)
    text = paimon_type.upper().removesuffix(" NOT NULL")
    name, _, rest = text.partition("(")
    numbers = [int(number) for number in rest.partition(")")[0].split(",") if number.strip()]
    name = name.split(" ")[0]
    if name in _INTEGER_BITS:
        half = 1 << (_INTEGER_BITS[name] - 1)
        return random.choice([0, 1, -1, half - 1, -half, random.randrange(-half, half)])
    match name:
        case "BOOLEAN":
            return random.random() < 0.5
        case "FLOAT":
            number = random.choice([0.0, 1.5, math.nan, math.inf, -math.inf, random.uniform(-1e6, 1e6)])
            return struct.unpack("f", struct.pack("f", number))[0]
        case "DOUBLE":
            return random.choice([0.0, -2.5e300, math.nan, math.inf, -math.inf, random.uniform(-1e6, 1e6)])
        case "DECIMAL":
            top = 10 ** numbers[0] - 1
            unscaled = random.choice([0, top, -top, random.randint(-top, top), random.randint(-99, 99)])
            return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -numbers[1]))
        case "CHAR" | "VARCHAR" | "STRING":
            word = random.choice([*_WORDS, str(random.randrange(10**6))])
            return word[: numbers[0]] if numbers else word
        case "BINARY":
            return random.randbytes(numbers[0])
        case "VARBINARY" | "BYTES":
            return random.randbytes(random.randrange((numbers[0] if numbers else 20) + 1))
        case "DATE":
            return random.choice([*_DAYS, date(2020, 1, 1) + timedelta(random.randrange(2000))])
        case "TIME":
            return time(random.randrange(24), random.randrange(60), random.randrange(60), random.randrange(1000) * 1000)
        case "TIMESTAMP":
            return _ticks(random, numbers[0] if numbers else 6, arrow_type(paimon_type))
    raise ValueError(f"no random value of {paimon_type!r}")


def _ticks(random: Random, precision: int, kind: pa.TimestampType) -> int:
    """A number in the unit of the Arrow type, cut to the precision of the declared one."""
    unit_digits = {"ms": 3, "us": 6, "ns": 9}[kind.unit]
    seconds = random.choice([0, -1, 1_709_210_096, -2_208_988_800, random.randrange(1_577_836_800, 1_735_689_600)])
    fraction = random.randrange(10**precision) * 10 ** (unit_digits - precision)
    return int(seconds * 10**unit_digits + fraction)


def _nested(random: Random, paimon_type: Any) -> Any:
    match paimon_type["type"].removesuffix(" NOT NULL"):
        case "ARRAY":
            return [random_or_null(random, paimon_type["element"]) for _ in range(random.randrange(4))]
        case "MAP":
            keys = {random_value(random, paimon_type["key"]) for _ in range(random.randrange(4))}
            return [(key, random_or_null(random, paimon_type["value"])) for key in sorted(keys)]
        case "ROW":
            return {part["name"]: random_or_null(random, part["type"]) for part in paimon_type["fields"]}
    raise ValueError(f"no random value of {paimon_type!r}")


def random_or_null(random: Random, paimon_type: PaimonType) -> Any:
    """A value, or null where the type allows it."""
    text = paimon_type if isinstance(paimon_type, str) else paimon_type["type"]
    if str(text).endswith("NOT NULL") or random.random() >= 0.2:
        return random_value(random, paimon_type)
    return None


def random_table(random: Random, fields: Fields, keys: Sequence[str], key_rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """One row for each of `key_rows` (the values of the columns `keys`), with random values in all other columns."""
    columns: dict[str, list[Any]] = {}
    for name, paimon_type in fields:
        if name in keys:
            place = list(keys).index(name)
            columns[name] = [row[place] for row in key_rows]
        else:
            columns[name] = [random_or_null(random, paimon_type) for _ in key_rows]
    schema = arrow_schema(fields)
    return pa.table([pa.array(columns[part.name], part.type) for part in schema], schema=schema)
