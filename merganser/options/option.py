"""One table option, its text form, and a typed view over the options of a table.

The format keeps options as text: every value on disk is a string. `Option` says once what the text means;
`Options` is the frozen mapping of a table's texts, and `options.get(BUCKET)` gives the typed value.
The constants are in `write`, `read` and `upkeep`, the options that no code names in `kept`; what is known as a whole
is in `registry`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, Generic, NoReturn, TypeVar, overload

from merganser.errors import InvalidInputError
from merganser.values import dataclass

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D")

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
_NAME_BYTES_MAX: Final = 150
"""Of what is part of a file name; the rest of the name has to fit as well."""
_PLAIN: Final = re.compile(r"[^\\\x00-\x1f\x7f]*")

# The generic dataclasses here have no slots: `Option[int | None](...)` fails on frozen slotted ones in Python 3.11.


@dataclass(frozen=True)
class TextForm(Generic[T_co]):
    """How a value is written as text.

    `parse` takes stripped text and raises ValueError when it is none of `expected`, a phrase for messages.
    """

    expected: str
    parse: Callable[[str], T_co]
    choices: tuple[str, ...] = ()


class State(Enum):
    """What this version of merganser does with an option. A test compares it with the code.

    Attributes:
        HONOURED: code reads it and does what it says, less the values in `Option.refused`.
        KEPT: it is checked and stored for other engines and later versions, without effect.
        REFUSED: this version does only what the default says; `rules.gaps` refuses other values.
    """

    HONOURED = "honoured"
    KEPT = "kept"
    REFUSED = "refused"


@dataclass(frozen=True)
class Option(Generic[T_co]):
    """A table option: its key, the form of its text, and what holds when it is not set.

    `aliases` are older keys that are read when `key` is not set. `immutable` options cannot change once the
    table has a snapshot. `refused` lists the values of an honoured option that this version does not do, each
    perhaps with the condition: `-1 with a primary key`. `noun` is what messages call it.
    """

    key: str
    type: TextForm[T_co]
    default: T_co
    doc: str
    aliases: tuple[str, ...] = ()
    immutable: bool = False
    state: State = State.HONOURED
    refused: tuple[str, ...] = ()
    noun: str = "table option"

    def parse(self, text: str, *, key: str | None = None) -> T_co:
        """Return the value that `text` means.

        Raises:
            InvalidInputError: the text is not of the option's form; names key, text and form.
        """
        try:
            return self.type.parse(text.strip())
        except (ValueError, OverflowError):
            _refuse(key or self.key, text, self.type.expected, self.noun)


@dataclass(frozen=True)
class ColumnOption(Generic[T_co]):
    """An option that each column can have: `<family>.<column>.<suffix>`."""

    suffix: str
    type: TextForm[T_co]
    default: T_co
    doc: str
    aliases: tuple[str, ...] = ()
    family: str = "fields"

    def of(self, column: str) -> Option[T_co]:
        """Return the option of one column; of several ordering columns, join their names with commas."""
        aliases = tuple(f"{self.family}.{column}.{alias}" for alias in self.aliases)
        return Option(f"{self.family}.{column}.{self.suffix}", self.type, self.default, self.doc, aliases)


class Options(Mapping[str, str]):
    """The options of a table: an ordered mapping from key to text that never changes, and a typed view of it.

    Keys that merganser does not know stay in it, because other engines may read them. Pickles; hashable.
    """

    __slots__ = ("_texts",)

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self._texts: Final = dict(texts or {})

    @overload
    def get(self, key: Option[T], /) -> T: ...
    @overload
    def get(self, key: str, /) -> str | None: ...
    @overload
    def get(self, key: str, default: str | D, /) -> str | D: ...
    def get(self, key: Option[Any] | str, default: Any = None, /) -> Any:
        """Return the typed value of an option or its default, or the text under a key.

        Raises:
            InvalidInputError: the text is not of the option's form.
        """
        if isinstance(key, str):
            return self._texts.get(key, default)
        found = self.key_of(key)
        return key.default if found is None else key.parse(self._texts[found], key=found)

    def key_of(self, option: Option[Any]) -> str | None:
        """Return the key under which an option is set: its own, else its first alias in use, else None."""
        for key in (option.key, *option.aliases):
            if key in self._texts:
                return key
        return None

    def is_set(self, option: Option[Any]) -> bool:
        """Return whether the option has a text of its own, the default's or another."""
        return self.key_of(option) is not None

    def merged(self, changes: Mapping[str, str | None]) -> Options:
        """Return these options with `changes` on top; None removes a key."""
        return Options({k: v for k, v in (self._texts | dict(changes)).items() if v is not None})

    def __getitem__(self, key: str) -> str:
        return self._texts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __hash__(self) -> int:
        return hash(frozenset(self._texts.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Options, (self._texts,))

    def __repr__(self) -> str:
        # Values may hold secrets of other engines, so only the keys are shown.
        return f"Options({', '.join(self._texts)})"


def _refuse(key: str, text: str, expected: str, noun: str) -> NoReturn:
    raise InvalidInputError(
        f"cannot use {noun} '{key}' = '{text}': expected {expected}.", option=key, value=text, expected=expected
    )


# text forms


def _boolean(text: str) -> bool:
    word = text.lower()
    if word not in ("true", "false"):
        raise ValueError(text)
    return word == "true"


def integer(minimum: int = -INT_MAX - 1, maximum: int = INT_MAX, *, no_limit: int | None = None) -> TextForm[int]:
    """Return the form of a whole number from `minimum` to `maximum`, both included; by default of 32 bits.

    Args:
        no_limit: another number that is taken, too.
    """

    def parse(text: str) -> int:
        # Python's int() also takes underscores and digits of other scripts.
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise ValueError(text)
        value = int(text)
        if not minimum <= value <= maximum and value != no_limit:
            raise ValueError(text)
        return value

    other = "" if no_limit is None else f", or {no_limit} for no limit"
    return TextForm(f"a whole number from {minimum} up to {maximum}{other}", parse)


def choice(*names: str, **older: str) -> TextForm[str]:
    """Return the form of one word out of `names`; `older` maps words of earlier releases, `_` for `-`."""
    earlier = {old.replace("_", "-"): new for old, new in older.items()}

    def parse(text: str) -> str:
        word = text.lower().replace("_", "-")
        word = earlier.get(word, word)
        if word not in names:
            raise ValueError(text)
        return word

    return TextForm("one of " + ", ".join(names), parse, names)


_TIME_UNITS: Final = {
    "d": 86_400_000_000, "day": 86_400_000_000,
    "h": 3_600_000_000, "hour": 3_600_000_000,
    "m": 60_000_000, "min": 60_000_000, "minute": 60_000_000,
    "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000,
    "": 1000, "ms": 1000, "milli": 1000, "millisecond": 1000,
    "us": 1, "µs": 1, "micro": 1, "microsecond": 1,
    "ns": 0.001, "nano": 0.001, "nanosecond": 0.001,
}  # fmt: skip
_BYTE_UNITS: Final = {
    "": 1, "b": 1, "byte": 1,
    "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "kibibyte": 1 << 10,
    "m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20, "mebibyte": 1 << 20,
    "g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30, "gibibyte": 1 << 30,
    "t": 1 << 40, "tb": 1 << 40, "tib": 1 << 40, "tebibyte": 1 << 40,
}  # fmt: skip
_ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE | re.ASCII)


def _amount(text: str, units: Mapping[str, int | float]) -> float | int:
    found = re.fullmatch(r"([0-9]+)\s*([a-zµ]*)", text.lower())
    if not found:
        raise ValueError(text)
    number, unit = found.groups()
    unit = unit if unit in units else unit.removesuffix("s")  # "hours", "bytes"
    if unit not in units:
        raise ValueError(text)
    return int(number) * units[unit]


def _duration(text: str) -> timedelta:
    iso = _ISO_DURATION.fullmatch(text)
    if iso and any(iso.groups()):
        days, hours, minutes, seconds = (float(part or 0) for part in iso.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return timedelta(microseconds=_amount(text, _TIME_UNITS))


def size(minimum: int = 0) -> TextForm[int]:
    """Return the form of a number of bytes, `minimum` or more."""

    def parse(text: str) -> int:
        value = int(_amount(text, _BYTE_UNITS))
        if not minimum <= value <= LONG_MAX:
            raise ValueError(text)
        return value

    above = f" of {minimum} byte or more" * (minimum > 0)
    return TextForm(f"a size{above} such as '128 mb', '256 kb' or a number of bytes", parse)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _share(text: str) -> float:
    value = _float(text)
    if not 0 < value < 1:
        raise ValueError(text)
    return value


def _columns(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _partition_specs(text: str) -> tuple[tuple[str, ...], ...]:
    specs = tuple(tuple(part.strip() for part in spec.split("/")) for spec in text.split(";") if spec.strip())
    for spec in specs:
        for part in spec:
            name, equals, value = part.partition("=")
            if not (name and equals and value):
                raise ValueError(text)
    return specs


def levels(form: TextForm[str], example: str) -> TextForm[Mapping[int, str]]:
    """Return the form of `level:value` pairs whose values are of another form."""

    def parse(text: str) -> dict[int, str]:
        values = {}
        for part in text.split(","):
            level, separator, value = part.partition(":")
            if not separator or not value.strip():
                raise ValueError(text)
            values[_LEVEL.parse(level.strip())] = form.parse(value.strip())
        return values

    return TextForm(f"level:value pairs such as '{example}', each value {form.expected}", parse)


def _pair(text: str) -> str:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or not all(parts):
        raise ValueError(text)
    return text


def _moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


def _file_name_part(text: str) -> str:
    if not _PLAIN.fullmatch(text) or ".." in text or "/" in text or len(text.encode()) > _NAME_BYTES_MAX:
        raise ValueError(text)
    return text


def _directory(text: str) -> str:
    depth = 0
    for part in text.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            raise ValueError(text)
    if not _PLAIN.fullmatch(text):
        raise ValueError(text)
    return text


def _stats_mode(text: str) -> str:
    mode = re.sub(r"\s", "", text.lower())
    if not re.fullmatch(r"none|counts|full|truncate\([1-9][0-9]*\)", mode):
        raise ValueError(text)
    return mode


BOOLEAN: Final = TextForm("true or false", _boolean, ("true", "false"))
INTEGER: Final = integer()
LONG: Final = integer(-LONG_MAX - 1, LONG_MAX)
_LEVEL: Final = integer(0)
NUMBER: Final = TextForm("a number", _float)
SHARE: Final = TextForm("a number above 0 and below 1", _share)
TEXT: Final = TextForm("text", str)
MOMENT: Final = TextForm("a time such as '2026-01-31 10:00:00'", _moment)
PAIR: Final = TextForm("a start and an end with a comma between, such as '1,5'", _pair)
PARTITION_SPECS: Final = TextForm(
    "partitions as their directories are named, with semicolons between, such as 'dt=2026-01-01/hour=8;dt=2026-01-02'",
    _partition_specs,
)
COLUMNS: Final = TextForm("column names separated by commas", _columns)
DURATION: Final = TextForm("a duration such as '1 h', '30 s', '3 d' or '10 ms'", _duration)
BYTES: Final = size()
FILE_NAME_PART: Final = TextForm(
    f"at most {_NAME_BYTES_MAX} bytes of text without slashes, '..' and control characters, because it becomes part of "
    "the name of a file",
    _file_name_part,
)
DIRECTORY: Final = TextForm(
    "a path below the table such as 'data', which no '..' leads out of, without backslashes and control characters",
    _directory,
)
STATS_MODE: Final = TextForm("none, counts, full or truncate(n)", _stats_mode)
