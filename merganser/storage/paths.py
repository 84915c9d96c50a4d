"""The paths of the files of a table.

Names carry no meaning but uniqueness, except the numbered ones (`snapshot-N`, `schema-N`). Partition values
are never read back from paths: several partitions may share a directory.

Format: section "directory layout".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from merganser.schema import types as t
from merganser.schema.blank import is_blank
from merganser.values import dataclass

_ESCAPED: Final = {chr(c) for c in (*range(0x20), 0x7F)} | set("\"#%'*/:=?\\{}[]^")
DEFAULT_PARTITION: Final = "__DEFAULT_PARTITION__"
DROPPED: Final = ".schema-"
"""How the schemas of a table that is being dropped are called, in the place of `schema`."""
STAGING: Final = ".staging-"
"""How folders of a table begin in which rows wait that are being written. Other engines pass over hidden names."""
_OF_TABLE: Final = re.compile(
    r"(.*/)?\.[^/]+\.tmp(/.*)?"  # being written or removed, or left by a process that was stopped
    r"|\.staging-[^/]+/.*"
    r"|(.*/)?bucket-(\d+|postpone)/[^/]+"
    r"|(manifest|index|statistics)/[a-z-]+-[0-9a-f-]+-\d+"
    r"|branch/drop-[^/]+"
    r"|(branch/branch-[^/]+/)?("
    r"snapshot/(snapshot-\d+|EARLIEST|LATEST)|changelog/(changelog-\d+|EARLIEST|LATEST)|schema/(schema-\d+|\.moving)"
    r"|tag/(tag-[^/]+|tag-success-file/[^/]+)|consumer/(consumer|ended)-[^/]+"
    r"|erase/(ended|erase-[^/]+))",
    re.ASCII,
)


def of_table(path: str) -> bool:
    """Return whether a file may be one that writers of tables make, given its path below the table's directory."""
    return _OF_TABLE.fullmatch(path) is not None


def join(*parts: str) -> str:
    """Return the path of parts, one slash between them."""
    return "/".join([part.rstrip("/") for part in parts if part])


def escape(text: str) -> str:
    """Return text as it stands in a partition directory."""
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in text)


def partition_text(value: Any, kind: t.DataType, *, default_name: str, legacy: bool) -> str:
    """Return the directory text of a stored partition value, not yet escaped.

    Args:
        value: stored value (dates, times and timestamps as numbers), or None.
        kind: its type.
        default_name: what stands for null and blank text.
        legacy: `partition.legacy-name`: dates as day numbers, times as milliseconds, timestamps in ISO form.
    """
    text = None if value is None else _text(value, kind, legacy=legacy)
    return default_name if text is None or is_blank(text) else text


def _text(value: Any, kind: t.DataType, *, legacy: bool) -> str:
    match kind:
        case t.Boolean():
            return "true" if value else "false"
        case t.Float() | t.Double():
            return java_float_text(value, single=isinstance(kind, t.Float))
        case t.Decimal(scale=scale):
            return f"{Decimal(value):.{scale}f}"
        case t.Date():
            return str(value) if legacy else date_text(value)
        case t.Time(precision=precision):
            return str(value) if legacy else time_text(value, precision)
        case t.Timestamp(precision=precision) | t.LocalZonedTimestamp(precision=precision):
            return iso_timestamp_text(value, precision) if legacy else timestamp_text(value, precision)
        case t.Binary() | t.VarBinary():
            return bytes(value).decode("utf-8", "replace")
    return str(value)


def java_float_text(value: float, *, single: bool) -> str:
    """Return the shortest text of a float as the reference writes it: `1.5`, `0.1`, `1.0E20`."""
    import numpy as np  # noqa: PLC0415 - float32 shortest digits; not wanted at import of every path

    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    number = np.float32(value) if single else np.float64(value)
    magnitude = abs(float(number))
    if magnitude == 0 or 1e-3 <= magnitude < 1e7:
        return str(np.format_float_positional(number, unique=True, trim="0"))
    text = np.format_float_scientific(number, unique=True, trim="0", exp_digits=1)
    return str(text).replace("e+", "E").replace("e-", "E-").replace("e", "E")


def date_text(day: int) -> str:
    """Return `yyyy-MM-dd` of an epoch day, in the proleptic Gregorian calendar, for any year."""
    # Civil-from-days (H. Hinnant, "chrono-compatible low-level date algorithms"): no year limits.
    shifted = day + 719_468
    era, of_era = divmod(shifted, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    day_of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    month = shifted_month + (3 if shifted_month < 10 else -9)
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    sign = "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day_of_year - (153 * shifted_month + 2) // 5 + 1:02d}"


def time_text(milliseconds: int, precision: int) -> str:
    """Return `HH:mm:ss` and of a precision above 0 a fraction: shortest, cut to it, of one digit at least."""
    seconds, milli = divmod(milliseconds, 1000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    digits = f"{milli:03d}"[: min(precision, 3)].rstrip("0")
    return f"{text}.{digits or '0'}" if precision else text


def _split_timestamp(value: int, precision: int) -> tuple[int, int, int]:
    """Return day, second of day and nanosecond of a stored timestamp."""
    per_second = 1000 if precision <= 3 else 1_000_000 if precision <= 6 else 1_000_000_000
    seconds, fraction = divmod(value, per_second)
    day, second = divmod(seconds, 86_400)
    return day, second, fraction * (1_000_000_000 // per_second)


def timestamp_text(value: int, precision: int) -> str:
    """Return `yyyy-MM-dd HH:mm:ss` and exactly `precision` fraction digits."""
    day, second, nano = _split_timestamp(value, precision)
    text = f"{date_text(day)} {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{text}.{f'{nano:09d}'[:precision]}" if precision else text


def iso_timestamp_text(value: int, precision: int) -> str:
    """Return the shortest ISO form: `HH:mm`, `HH:mm:ss`, or with 3, 6 or 9 fraction digits."""
    day, second, nano = _split_timestamp(value, precision)
    text = f"{date_text(day)}T{second // 3600:02d}:{second // 60 % 60:02d}"
    if second % 60 == 0 and nano == 0:
        return text
    text += f":{second % 60:02d}"
    if nano == 0:
        return text
    digits = 3 if nano % 1_000_000 == 0 else 6 if nano % 1000 == 0 else 9
    return f"{text}.{f'{nano:09d}'[:digits]}"


@dataclass(frozen=True, slots=True)
class TablePaths:
    """The paths of one table (or of one branch of it).

    Attributes:
        root: the table's directory. Data, manifests, indexes and statistics are shared by all branches.
        data_directory: a directory between the table and its partitions (`data-file.path-directory`), or "".
        default_name: `partition.default-name`.
        legacy_names: `partition.legacy-name`.
        branch: the branch, "main" for the table itself.
    """

    root: str
    data_directory: str = ""
    default_name: str = DEFAULT_PARTITION
    legacy_names: bool = True
    branch: str = "main"

    @property
    def metadata_root(self) -> str:
        """The directory of schemas, snapshots, tags and consumers of this branch."""
        return self.root if self.branch == "main" else join(self.root, "branch", f"branch-{self.branch}")

    @property
    def schema_directory(self) -> str:
        return join(self.metadata_root, "schema")

    def schema(self, schema_id: int) -> str:
        return join(self.schema_directory, f"schema-{schema_id}")

    @property
    def snapshot_directory(self) -> str:
        return join(self.metadata_root, "snapshot")

    def snapshot(self, snapshot_id: int) -> str:
        return join(self.snapshot_directory, f"snapshot-{snapshot_id}")

    @property
    def latest_hint(self) -> str:
        return join(self.snapshot_directory, "LATEST")

    @property
    def earliest_hint(self) -> str:
        return join(self.snapshot_directory, "EARLIEST")

    @property
    def changelog_directory(self) -> str:
        """The directory of changelogs whose snapshots have expired."""
        return join(self.metadata_root, "changelog")

    def changelog(self, snapshot_id: int) -> str:
        return join(self.changelog_directory, f"changelog-{snapshot_id}")

    @property
    def latest_changelog_hint(self) -> str:
        return join(self.changelog_directory, "LATEST")

    @property
    def earliest_changelog_hint(self) -> str:
        return join(self.changelog_directory, "EARLIEST")

    def of_branch(self, branch: str) -> TablePaths:
        """Return the paths of a branch of the same table."""
        return replace(self, branch=branch)

    @property
    def branch_directory(self) -> str:
        """The directory of the branches of the table; a branch has no branches."""
        return join(self.root, "branch")

    @property
    def tag_directory(self) -> str:
        return join(self.metadata_root, "tag")

    def tag(self, name: str) -> str:
        return join(self.tag_directory, f"tag-{name}")

    def tag_marker(self, name: str) -> str:
        """Return where the marker of a complete tag lies."""
        return join(self.tag_directory, "tag-success-file", f"{name}_SUCCESS")

    def dropping(self, branch: str) -> str:
        """The note that a branch is being dropped. No engine takes it for a branch."""
        return join(self.branch_directory, f"drop-{branch}")

    @property
    def consumer_directory(self) -> str:
        return join(self.metadata_root, "consumer")

    def consumer(self, consumer_id: str) -> str:
        return join(self.consumer_directory, f"consumer-{consumer_id}")

    def ended_consumer(self, consumer_id: str) -> str:
        """The note that an erasure ended a consumer; other engines list names that begin with `consumer-` alone."""
        return join(self.consumer_directory, f"ended-{consumer_id}")

    @property
    def ended(self) -> str:
        """The note which snapshots of this branch an erasure ended."""
        return join(self.metadata_root, "erase", "ended")

    @property
    def stream_directory(self) -> str:
        """The directory of what the shard streams of this branch remember, by their ids."""
        return join(self.metadata_root, "stream")

    def stream(self, stream_id: str) -> str:
        return join(self.stream_directory, stream_id)

    def manifest(self, name: str) -> str:
        return join(self.root, "manifest", name)

    def index(self, name: str) -> str:
        return join(self.root, "index", name)

    def statistics(self, name: str) -> str:
        return join(self.root, "statistics", name)

    def partition_directory(self, names: Sequence[str], values: Sequence[Any], kinds: Sequence[t.DataType]) -> str:
        """Return the directory of a partition, below which its buckets lie."""
        texts = [
            partition_text(value, kind, default_name=self.default_name, legacy=self.legacy_names)
            for value, kind in zip(values, kinds, strict=True)
        ]
        parts = [f"{escape(name)}={escape(text)}" for name, text in zip(names, texts, strict=True)]
        return join(self.root, self.data_directory, *parts)

    def partition_shown(self, names: Sequence[str], values: Sequence[Any], kinds: Sequence[t.DataType]) -> str:
        """Return the values of a partition for people, as the command line takes them: not escaped."""
        texts = [
            partition_text(value, kind, default_name=self.default_name, legacy=False)
            for value, kind in zip(values, kinds, strict=True)
        ]
        return ", ".join(f"{name}={text}" for name, text in zip(names, texts, strict=True))

    def bucket_directory(self, partition_directory: str, bucket: int) -> str:
        """Return the directory of a bucket of a partition."""
        return join(partition_directory, "bucket-postpone" if bucket == -2 else f"bucket-{bucket}")
