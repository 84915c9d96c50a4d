"""Streams that Debezium recorded from real databases: the records, and the database afterwards."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

from tests.debezium.values import Setting, SourceType, source_type

HERE: Final = Path(__file__).parent
POSTGRES: Final = HERE / "postgres"
FOLDERS: Final = (POSTGRES, HERE / "mariadb")


@dataclass(frozen=True)
class Record:
    """A record as the connector gave it."""

    topic: str
    key: str | None
    value: str | None

    @property
    def table(self) -> str:
        """The last part of the topic: the table, with characters that topics cannot have as `_`."""
        return self.topic.rpartition(".")[2]


@dataclass(frozen=True)
class Source:
    """A table of the database when the recording ended.

    Attributes:
        told: its columns: name, type, and whether it takes nulls (YES or NO).
        rows: texts of their values.
    """

    name: str
    told: Sequence[Sequence[str]]
    key: tuple[str, ...]
    rows: Sequence[Sequence[str | None]]

    @cached_property
    def columns(self) -> Mapping[str, SourceType]:
        return {column: source_type(kind) for column, kind, _ in self.told}

    @property
    def required(self) -> frozenset[str]:
        """Columns that take no nulls."""
        return frozenset(column for column, _, nullable in self.told if nullable == "NO")

    @property
    def topic(self) -> str:
        return "".join(c if c.isalnum() else "_" for c in self.name)


def letters(folder: Path = POSTGRES) -> list[str]:
    """Return the settings that were recorded."""
    return sorted(path.name.partition(".")[0] for path in folder.glob("*.jsonl.xz"))


def setting(letter: str, folder: Path = POSTGRES) -> Setting:
    return Setting(json.loads((folder / "settings.json").read_text())[letter])


@cache
def records(letter: str, folder: Path = POSTGRES) -> tuple[Record, ...]:
    with lzma.open(folder / f"{letter}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return tuple(Record(**json.loads(line)) for line in lines)


@cache
def sources(folder: Path = POSTGRES) -> Mapping[str, Source]:
    """Return the tables of the database by name."""
    told: dict[str, Any] = json.loads(gzip.decompress((folder / "expected.json.gz").read_bytes()))
    return {name: source(name, found) for name, found in told.items()}


def source(name: str, found: Mapping[str, Any]) -> Source:
    """Return a table as `expected.json.gz` describes it."""
    return Source(name, found["columns"], tuple(found["key"]), found["rows"])
