"""Manifests: files of entries, each one data file added or removed.

Records are resolved by field name, since writers differ in record names, unions and optional fields; what
we write has the shapes of the reference implementation, with all optional fields present, because one known
reader fails without them.

Format: sections "data manifest record" and "how the JVM reference names Avro types".
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Final, TypeVar

import fastavro
import numpy as np
import numpy.typing as npt

from merganser.codec.avro import read_records, write_records
from merganser.codec.avro_columns import Columns, columns_of, read_together
from merganser.codec.avro_container import MAGIC, header_map
from merganser.codec.stats import SimpleStats
from merganser.errors import FormatError
from merganser.meta.data_file import DataFile, ManifestEntry, made, plain_name
from merganser.meta.seal import check_seal, sealed
from merganser.storage.scratch import scratch_file

T = TypeVar("T")
VERSION: Final = 2
_CHECKSUMS: Final = "merganser.checksums"
"""Property of the header: for each entry the checksum of its data file and of the file's footer, 0 where none is known;
in an index manifest that of its index file. They are 32-bit integers, the lowest byte first, in base64. Other readers
pass over it (decision 0028)."""


def nullable(kind: Any) -> list[Any]:
    """Return the Avro union of null and a type."""
    return ["null", kind]


def optional(name: str, kind: Any) -> dict[str, Any]:
    """Return an Avro field that may be null, null by default."""
    return {"name": name, "type": nullable(kind), "default": None}


def required(name: str, kind: Any) -> dict[str, Any]:
    """Return an Avro field that is always there."""
    return {"name": name, "type": kind}


def stats_schema(record_name: str) -> dict[str, Any]:
    """Return the Avro record of SimpleStats."""
    return {
        "type": "record",
        "name": record_name,
        "fields": [
            required("_MIN_VALUES", "bytes"),
            required("_MAX_VALUES", "bytes"),
            optional("_NULL_COUNTS", {"type": "array", "items": nullable("long")}),
        ],
    }


_SCHEMA: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "record",
        "namespace": "org.apache.paimon.avro.generated",
        "fields": [
            required("_VERSION", "int"),
            required("_KIND", "int"),
            required("_PARTITION", "bytes"),
            required("_BUCKET", "int"),
            required("_TOTAL_BUCKETS", "int"),
            required(
                "_FILE",
                {
                    "type": "record",
                    "name": "record__FILE",
                    "fields": [
                        required("_FILE_NAME", "string"),
                        required("_FILE_SIZE", "long"),
                        required("_ROW_COUNT", "long"),
                        required("_MIN_KEY", "bytes"),
                        required("_MAX_KEY", "bytes"),
                        required("_KEY_STATS", stats_schema("record__FILE__KEY_STATS")),
                        required("_VALUE_STATS", stats_schema("record__FILE__VALUE_STATS")),
                        required("_MIN_SEQUENCE_NUMBER", "long"),
                        required("_MAX_SEQUENCE_NUMBER", "long"),
                        required("_SCHEMA_ID", "long"),
                        required("_LEVEL", "int"),
                        required("_EXTRA_FILES", {"type": "array", "items": "string"}),
                        optional("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
                        optional("_DELETE_ROW_COUNT", "long"),
                        optional("_EMBEDDED_FILE_INDEX", "bytes"),
                        optional("_FILE_SOURCE", "int"),
                        optional("_VALUE_STATS_COLS", {"type": "array", "items": "string"}),
                        optional("_EXTERNAL_PATH", "string"),
                        optional("_FIRST_ROW_ID", "long"),
                        optional("_WRITE_COLS", {"type": "array", "items": "string"}),
                        optional("_WRITE_COLS_SEQUENCES", {"type": "array", "items": "long"}),
                    ],
                },
            ),
        ],
    }
)


def write_manifest(entries: Iterable[ManifestEntry], *, compression: str) -> bytes:
    """Return the bytes of a manifest, sealed."""
    entries = tuple(entries)
    notes = checksum_notes([(entry.file.checksum or 0, entry.file.footer_checksum or 0) for entry in entries])
    return sealed(write_records(_SCHEMA, map(_to_record, entries), compression=compression, notes=notes))


def checksum_notes(sums: Sequence[tuple[int, ...]]) -> dict[str, str]:
    """Return the property of a header that notes checksums, as many for each entry; {}: none is known.

    Args:
        sums: 0 for one that is not known.
    """
    return {_CHECKSUMS: base64.b64encode(np.array(sums, "<u4").tobytes()).decode()} if any(map(any, sums)) else {}


def read_manifests(files: Sequence[tuple[bytes, str]]) -> list[tuple[ManifestEntry, ...]]:
    """Return the entries of manifests, in file order.

    Args:
        files: the bytes and the path of each.

    Raises:
        FormatError: damaged bytes, a version that is not known, a required field that is missing, or a value that
            no writer writes; names the first such file.
    """
    whole = [check_seal(data, path) for data, path in files]
    found: dict[int, tuple[ManifestEntry, ...]] = {}
    for together in read_together([data for data, _ in files], whole, scratch_file):
        try:
            if _impossible(together.columns) is not None:
                continue
            counts = zip(together.members, together.counts, strict=True)
            noted = [noted_checksums(files[place], count, each=2) for place, count in counts]
            sums = [[*chain.from_iterable(columns)] for columns in zip(*noted, strict=True)]
            entries = _from_columns(together.columns, sums)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        at = 0
        for place, count in zip(together.members, together.counts, strict=True):
            found[place] = entries[at : at + count]
            at += count
    return [found[i] if i in found else _read_alone(data, path) for i, (data, path) in enumerate(files)]


def read_manifest(data: bytes, path: str) -> tuple[ManifestEntry, ...]:
    """Return the entries of one manifest; see `read_manifests`."""
    return read_manifests([(data, path)])[0]


def _read_alone(data: bytes, path: str) -> tuple[ManifestEntry, ...]:
    """Return the entries of a manifest that could not be read with others, or say what is wrong with it."""
    records = read_records(data, path)
    if not records:
        return ()
    try:
        columns = columns_of(records)
        entries, wrong = (
            _from_columns(columns, noted_checksums((data, path), len(records), each=2)),
            _impossible(columns),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(
            f"cannot read the manifest '{path}': an entry lacks or spoils the field {error}. Restore the file.",
            path=path,
        ) from error
    if wrong is not None:
        place, why = wrong
        raise FormatError(
            f"cannot read the manifest '{path}': {why} in entry {place + 1} of {len(entries)}. Restore the file.",
            path=path,
        )
    return entries


def _impossible(columns: Columns) -> tuple[int, str] | None:
    """Return the first entry with a value that cannot be, and which, or None: a last net for bytes without a checksum.

    Whole columns are looked at, since of very many entries nearly always none is wrong.
    """
    names = columns["_FILE._FILE_NAME"]
    extra = columns.get("_FILE._EXTRA_FILES", [None] * len(names))
    astray = np.array([not plain_name(name) for name in names], np.bool_)
    if any(extra):
        astray |= [not all(map(plain_name, more or ())) for more in extra]
    sizes, rows = _numbers(columns["_FILE._FILE_SIZE"]), _numbers(columns["_FILE._ROW_COUNT"])
    counts = columns.get("_FILE._DELETE_ROW_COUNT", repeat(None, len(names)))
    gone = _numbers([0 if count is None else count for count in counts])
    first, last = (_numbers(columns[f"_FILE._{end}_SEQUENCE_NUMBER"]) for end in ("MIN", "MAX"))
    levels, schemas = _numbers(columns["_FILE._LEVEL"]), _numbers(columns["_FILE._SCHEMA_ID"])
    buckets, totals = _numbers(columns["_BUCKET"]), _numbers(columns["_TOTAL_BUCKETS"])
    rules: tuple[tuple[npt.NDArray[np.bool_], Callable[[int], str]], ...] = (
        (astray, lambda i: f"the file name '{_astray(names[i], *(extra[i] or ()))}' leads elsewhere"),
        (
            (sizes < 0) | (rows < 0) | (gone < 0) | (gone > rows),
            lambda i: f"'{names[i]}' has {sizes[i]} bytes, {rows[i]} rows and {gone[i]} retractions",
        ),
        (first > last, lambda i: f"'{names[i]}' has sequence numbers from {first[i]} to {last[i]}"),
        ((levels < 0) | (schemas < 0), lambda i: f"'{names[i]}' has level {levels[i]} and schema {schemas[i]}"),
        (
            (buckets < -2) | (totals < -2) | ((totals > 0) & (buckets >= totals)),
            lambda i: f"'{names[i]}' is in bucket {buckets[i]} of {totals[i]}",
        ),
    )
    found = np.flatnonzero(np.any([wrong for wrong, _ in rules], axis=0))
    if not len(found):
        return None
    place = int(found[0])
    return place, next(told(place) for wrong, told in rules if wrong[place])


def _astray(*names: str) -> str:
    return next(name for name in names if not plain_name(name))


def _numbers(values: Sequence[int]) -> npt.NDArray[np.int64]:
    found = np.array(values)
    if found.dtype.kind != "i" or found.ndim != 1:  # texts, fractions, nulls, or beyond 64 bits
        wrong = next((value for value in values if type(value) is not int), max(values))
        raise TypeError(f"of whole numbers, which has {wrong!r:.60}")
    return found


def _to_record(entry: ManifestEntry) -> dict[str, Any]:
    file = entry.file
    return {
        "_VERSION": VERSION,
        "_KIND": entry.kind,
        "_PARTITION": entry.partition,
        "_BUCKET": entry.bucket,
        "_TOTAL_BUCKETS": entry.total_buckets,
        "_FILE": {
            "_FILE_NAME": file.name,
            "_FILE_SIZE": file.size,
            "_ROW_COUNT": file.row_count,
            "_MIN_KEY": file.min_key,
            "_MAX_KEY": file.max_key,
            "_KEY_STATS": stats_to_record(file.key_stats),
            "_VALUE_STATS": stats_to_record(file.value_stats),
            "_MIN_SEQUENCE_NUMBER": file.min_sequence,
            "_MAX_SEQUENCE_NUMBER": file.max_sequence,
            "_SCHEMA_ID": file.schema_id,
            "_LEVEL": file.level,
            "_EXTRA_FILES": list(file.extra_files),
            "_CREATION_TIME": file.creation_time_ms,
            "_DELETE_ROW_COUNT": file.delete_row_count,
            "_EMBEDDED_FILE_INDEX": file.embedded_index,
            "_FILE_SOURCE": file.source,
            "_VALUE_STATS_COLS": None if file.value_stats_columns is None else list(file.value_stats_columns),
            "_EXTERNAL_PATH": file.external_path,
            "_FIRST_ROW_ID": file.first_row_id,
            "_WRITE_COLS": None if file.write_columns is None else list(file.write_columns),
            "_WRITE_COLS_SEQUENCES": None
            if file.write_columns_sequences is None
            else list(file.write_columns_sequences),
        },
    }


def noted_checksums(file: tuple[bytes, str], count: int, *, each: int) -> Sequence[Sequence[int | None]]:
    """Return what the header of a manifest notes of `count` entries: columns of checksums, None where none is known.

    Args:
        file: its bytes and its path.
        each: how many checksums an entry has.

    Raises:
        ValueError: it notes another number of them.
    """
    data, path = file
    noted = header_map(data, len(MAGIC))[0].get(_CHECKSUMS)
    if noted is None:
        return [[None] * count] * each
    found = np.frombuffer(base64.b64decode(noted, validate=True), "<u4")
    if len(found) != each * count:
        raise ValueError(f"checksums, of which '{path}' has {len(found)} for {count} entries")
    return tuple([crc or None for crc in column.tolist()] for column in found.reshape(count, each).T)


def _from_columns(columns: Columns, sums: Sequence[Sequence[int | None]]) -> tuple[ManifestEntry, ...]:
    """Return the entries of columns, by the dotted names of the fields; `sums` are those of their files."""
    count = len(columns["_VERSION"])
    _check_numbers(set(columns["_VERSION"]), set(columns["_KIND"]))
    nothing = [None] * count

    def file(name: str) -> list[Any]:
        return columns["_FILE." + name]

    def maybe(name: str) -> list[Any]:
        return columns.get("_FILE." + name, nothing)

    def stats(name: str) -> list[SimpleStats]:
        counts = _shared(_tuples(maybe(f"{name}._NULL_COUNTS")))
        return made(SimpleStats, count, (file(f"{name}._MIN_VALUES"), file(f"{name}._MAX_VALUES"), counts))

    files = made(
        DataFile,
        count,
        (
            file("_FILE_NAME"),
            file("_FILE_SIZE"),
            file("_ROW_COUNT"),
            file("_MIN_KEY"),
            file("_MAX_KEY"),
            stats("_KEY_STATS"),
            stats("_VALUE_STATS"),
            file("_MIN_SEQUENCE_NUMBER"),
            file("_MAX_SEQUENCE_NUMBER"),
            file("_SCHEMA_ID"),
            file("_LEVEL"),
            [tuple(names or ()) for names in maybe("_EXTRA_FILES")],
            maybe("_CREATION_TIME"),
            maybe("_DELETE_ROW_COUNT"),
            maybe("_EMBEDDED_FILE_INDEX"),
            maybe("_FILE_SOURCE"),
            _tuples(maybe("_VALUE_STATS_COLS")),
            maybe("_EXTERNAL_PATH"),
            maybe("_FIRST_ROW_ID"),
            _tuples(maybe("_WRITE_COLS")),
            _tuples(maybe("_WRITE_COLS_SEQUENCES")),
            *sums,
        ),
    )
    partitions = _shared(columns["_PARTITION"])
    heads = (columns["_KIND"], partitions, columns["_BUCKET"], columns["_TOTAL_BUCKETS"])
    return tuple(made(ManifestEntry, count, (*heads, files)))


def _check_numbers(versions: set[Any], kinds: set[Any]) -> None:
    if versions - {VERSION}:
        raise ValueError(f"_VERSION {sorted(versions - {VERSION})[0]}, only {VERSION} is known")
    if kinds - {0, 1}:
        raise ValueError(f"_KIND {sorted(kinds - {0, 1})[0]}, only 0 and 1 are known")


def stats_to_record(stats: SimpleStats) -> dict[str, Any]:
    """Return SimpleStats as an Avro record."""
    counts = None if stats.null_counts is None else list(stats.null_counts)
    return {"_MIN_VALUES": stats.min_values, "_MAX_VALUES": stats.max_values, "_NULL_COUNTS": counts}


def stats_from_record(record: Mapping[str, Any]) -> SimpleStats:
    """Return SimpleStats of an Avro record."""
    return SimpleStats(record["_MIN_VALUES"], record["_MAX_VALUES"], _tuple(record.get("_NULL_COUNTS")))


def _shared(column: list[T]) -> list[T]:
    """Return values of which few differ, each in memory once."""
    seen: dict[T, T] = {}
    return [seen.setdefault(value, value) for value in column]


def _tuples(column: Sequence[Iterable[Any] | None]) -> list[tuple[Any, ...] | None]:
    return [None if values is None else tuple(values) for values in column]


def _tuple(values: Iterable[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
