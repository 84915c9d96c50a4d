"""Bucketing in Spark: the bucket of a row as a native column, and a shuffle that gives every bucket one writer.

Spark's `hash` of a binary value is Murmur3 (x86, 32 bits, seed 42) over its bytes. For lengths that are a multiple
of 8 it equals the format's bucket hash of a BinaryRow, so the row of the bucket key is built as a binary expression:

    [header: 8 bytes][slot: 8 bytes] * n [areas]        little endian; what slots hold is drawn in `codec.binary_nested`

A word is written as sixteen hexadecimal digits of the value with its bytes swapped. A key of one column of fixed size,
the common case, needs no binary value: `_hash_of_word` computes its hash from Spark's `hash` of the number. No
expression reproduces some types (FLOAT, DOUBLE, DECIMAL of more than 18 digits, TIME if Spark has it). For a key with
such a type the shuffle uses another hash of the key. Then each key still has one task, but every task adds a file of
its own to a bucket.

A task may hold several buckets, so the task splits its rows by bucket again, exactly. The columns of this module only
choose the task. A value that does not fit its column may go to any task, since every task refuses it.

Format: section "bucketing".
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cache, reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as s

from merganser.codec.binary_nested import COMPACT_DECIMAL_PRECISION_MAX, COMPACT_TIMESTAMP_PRECISION_MAX, INLINE_MAX
from merganser.codec.hashing import row_hash
from merganser.meta.table_def import TableDef
from merganser.options import write as w
from merganser.schema import types as t
from merganser.schema.internal_names import internal_name
from merganser.schema.literals import default_value
from merganser.spark.access import TASKS_PER_CORE, cores
from merganser.spark.types import version_of
from merganser.values import dataclass
from merganser.write.dynamic import assigners_of

_KEY_COLUMNS_MAX: Final = 55
"""Most key columns; the header of a row of more does not fit into a BIGINT."""
_WORD: Final = 8
_INTEGERS: Final = (s.ByteType, s.ShortType, s.IntegerType, s.LongType)
TASK: Final = internal_name("task")
"""Column with the number of the task that a row goes to."""
_ADAPTIVE: Final = ("spark.sql.adaptive.enabled", "spark.sql.adaptive.coalescePartitions.enabled")
_PARTITIONS_MAX: Final = 1_000
"""Most partitions to find salts for; in a shuffle of more, the rows are only spread less evenly."""
_ZERO_WORD: Final = "0" * 16
_HEADER_SEED: Final = 1_748_092_728
"""Spark's `hash` of this INT is Murmur3's state, from seed 42, after eight zero bytes."""


def quoted(name: str) -> Column:
    """Return the column of a frame with exactly this name."""
    return f.col("`" + name.replace("`", "``") + "`")


def one_writer_each(frame: DataFrame, table: TableDef, *, streams: bool = False) -> DataFrame:
    """Return the frame shuffled so that all rows of a bucket share a task; of a key, if no expression gives the bucket.

    The shuffle spreads the buckets of a table partition evenly. `sink.parallelism` sets the number of tasks. Without
    it Spark chooses the number: Spark joins small neighbouring partitions of a shuffle, so a thousand rows take one
    task. This does no harm, and Spark never splits a partition of such a shuffle (only those of a REBALANCE hint). If
    the frame does not determine the partition or bucket of a row, all rows share one task.

    Where buckets are added as keys arrive, all keys of an assigner share a task (`write.dynamic`).

    Args:
        frame: has the partition and bucket key columns of the table.
        table: the table to write to.
        streams: the frame streams: Spark joins no partitions, and each micro-batch pays for its tasks, one per core.
    """
    spark = frame.sparkSession
    given = table.options.get(w.SINK_PARALLELISM)
    adaptive = not streams and given is None and all(spark.conf.get(key) == "true" for key in _ADAPTIVE)
    if adaptive:
        most = _partitions(spark)
    else:
        most = given or min(_partitions(spark), (1 if streams else TASKS_PER_CORE) * cores(spark))
    columns = _placing_columns(table, frame.schema)
    if columns is None:
        return frame.repartition(1)
    partition = [] if table.moves_keys else [columns[name] for name in table.schema.partition_keys]
    assigners = assigners_on(spark, table)
    bucket = bucket_column(table, frame.schema, assigners)
    if table.shares_keys and bucket is None:
        return frame.repartition(1)
    count = most if partition or bucket is None else min(most, max(assigners, table.bucket, 1))
    task = f.pmod(f.hash(*columns.values()), f.lit(count)) if bucket is None else _spread(partition, bucket, count)
    if count == 1:
        return frame.repartition(1)
    marked = frame.withColumn(TASK, task)
    if adaptive:
        return marked.repartition(_salted(most)).drop(TASK)
    return to_tasks(marked, count).drop(TASK)


def task_of_bucket(frame: DataFrame, table: TableDef, count: int) -> Column | None:
    """Return a column with the task, of `count`, of all rows of a bucket; None if no expression gives the bucket.

    Args:
        frame: has the partition and bucket key columns of the table.
    """
    columns, bucket = _placing_columns(table, frame.schema), bucket_column(table, frame.schema)
    if columns is None or bucket is None:
        return None
    return _spread([columns[name] for name in table.schema.partition_keys], bucket, count)


def _spread(partition: Sequence[Column], bucket: Column, count: int) -> Column:
    """Return the task, of `count`, for a bucket of a partition."""
    if partition:
        return f.pmod(f.hash(*partition).cast("bigint") + bucket, f.lit(count)).cast("int")
    return f.pmod(bucket, f.lit(count))


def tasks_most(spark: SparkSession) -> int:
    """Return how many tasks rows are spread over at most, if nothing else says it."""
    return min(_partitions(spark), TASKS_PER_CORE * cores(spark))


def to_tasks(frame: DataFrame, count: int) -> DataFrame:
    """Return the frame in `count` tasks; column `TASK` of a row holds the number of its task, from 0."""
    if hasattr(frame, "repartitionById") and version_of(frame.sparkSession.version) >= (4, 1):
        return frame.repartitionById(count, quoted(TASK))
    return frame.repartition(count, _salted(count))


def assigners_on(spark: SparkSession, table: TableDef) -> int:
    """Return how many assigners the keys of a partition have in the tasks of a session; see `write.dynamic`."""
    if not table.shares_keys:
        return 1
    return assigners_of(table, table.options.get(w.DYNAMIC_BUCKET_ASSIGNER_PARALLELISM) or cores(spark))


def shuffle_tasks(spark: SparkSession) -> int:
    """Return how many tasks a shuffle of a stream has: one per core, or fewer if the session sets it."""
    return min(_partitions(spark), cores(spark))


def _partitions(spark: SparkSession) -> int:
    """Return how many partitions a shuffle begins with."""
    initial = spark.conf.get("spark.sql.adaptive.coalescePartitions.initialPartitionNum", None)
    return min(_PARTITIONS_MAX, int(initial or spark.conf.get("spark.sql.shuffle.partitions") or 1))


def _salted(count: int) -> Column:
    """Return a column whose Spark hash leads to the partition in the task column, of `count` partitions."""
    return f.element_at(f.array(*[f.lit(salt) for salt in salts(count)]), quoted(TASK) + 1)


def bucket_column(table: TableDef, schema: s.StructType, assigners: int = 1) -> Column | None:
    """Return the bucket of a row as a column of INT; None if no expression gives it exactly.

    Args:
        table: the table, which has the bucket key.
        schema: the schema of the frame; its types may be narrower than the table's.
        assigners: of a table whose buckets are added as keys arrive, over how many assigners its keys are spread: the
            column is the number of the assigner.
    """
    total = assigners if table.shares_keys else table.bucket
    if total <= 1:
        return f.lit(0)
    columns = _placing_columns(table, schema)
    if columns is None:
        return None
    key = _placing_key(table)
    found = {field.name: field.dataType for field in schema.fields}
    match "default" if table.shares_keys else table.options.get(w.BUCKET_FUNCTION):
        case "default":
            parts = [(columns[name], found[name], table.schema.field(name).type) for name in key]
            word = _only_word(parts)
            if word is not None:
                return f.abs(_hash_of_word(word) % f.lit(total)).cast("int")
            row = binary_row(parts)
            return None if row is None else f.abs(f.hash(row) % f.lit(total))
        case "mod" if isinstance(found[key[0]], _INTEGERS):
            return f.pmod(f.coalesce(columns[key[0]].cast("bigint"), f.lit(0)), f.lit(table.bucket)).cast("int")
    return None


def _placing_key(table: TableDef) -> tuple[str, ...]:
    """Return the columns whose hash says where in its partition a row goes, or where in the table if keys may move."""
    return table.schema.primary_keys if table.moves_keys else table.schema.bucket_key


def _placing_columns(table: TableDef, schema: s.StructType) -> dict[str, Column] | None:
    """Return the columns that decide where a row goes, with their defaults for nulls, as they will be stored.

    None where one of them is not supplied, or has a default that is no literal of Spark.
    """
    found = {field.name: field.dataType for field in schema.fields}
    fields = {field.name: field for field in table.schema.fields_with_defaults}
    columns = {}
    for name in (*(() if table.moves_keys else table.schema.partition_keys), *_placing_key(table)):
        if name not in found:
            return None
        columns[name] = quoted(name)
        if fields[name].default is not None:
            value = default_value(fields[name]).as_py()
            if not isinstance(value, int | str | Decimal | date) or isinstance(value, datetime):
                return None
            columns[name] = f.coalesce(quoted(name), f.lit(value).try_cast(found[name]))
    return columns


def binary_row(columns: Sequence[tuple[Column, s.DataType, t.DataType]]) -> Column | None:
    """Return the BinaryRow of columns as a binary column; None if there is no expression for one of the types.

    Args:
        columns: each with its type in Spark and the table's type.
    """
    lanes = [_lane(column, found, kind) for column, found, kind in columns]
    if len(lanes) > _KEY_COLUMNS_MAX:
        return None
    known = [lane for lane in lanes if lane is not None]
    if len(known) < len(lanes):
        return None
    bits = [
        f.when(column.isNull(), f.lit(1 << 8 + i)).otherwise(f.lit(0))
        for i, (column, _, kind) in enumerate(columns)
        if kind.nullable
    ]
    end: Column = f.lit(_WORD + _WORD * len(known))
    slots, areas = [], []
    for lane in known:
        slots.append(lane.slot(end))
        if lane.area is not None:
            areas.append(lane.area)
            end = end + f.octet_length(lane.area)
    header = (
        _Bytes(digits=f.lit(_ZERO_WORD))
        if not bits
        else _word(reduce(lambda a, b: a.bitwiseOR(b), bits).cast("bigint"))
    )
    return f.concat(*_joined([header, *slots]), *areas)


def _only_word(columns: Sequence[tuple[Column, s.DataType, t.DataType]]) -> Column | None:
    """Return the BIGINT in the slot of a row whose other bytes are all zero; None for other rows."""
    if len(columns) != 1 or columns[0][2].nullable:
        return None
    lane = _lane(*columns[0])
    return None if lane is None else lane.word


def _hash_of_word(word: Column) -> Column:
    """Return, as BIGINT, the bucket hash of a row of one word behind a header of zeros.

    Murmur3 mixes four bytes at a time into a state of 32 bits and scrambles it at the end, with the length of the
    input. Spark's `hash` of several columns starts each from the result of the one before. `_HEADER_SEED` is the INT
    whose hash is the state after the header, so `hash(_HEADER_SEED, word)` is the state that is wanted, scrambled for
    a length of 8. Scrambling can be undone: it is, and done again for a length of 16. The two innermost steps of it
    (a shift by 16, xored) cancel out, which leaves the xor of both lengths.
    """
    x = f.hash(f.lit(_HEADER_SEED), word).cast("bigint").bitwiseAND(_mask())
    x = _times(_shifted(x, 16), 0x7ED1_B41D)
    x = x.bitwiseXOR(f.shiftright(x, 13)).bitwiseXOR(f.shiftright(x, 26))
    x = _times(x, 0xA5CB_9243).bitwiseXOR(f.lit(8 ^ 16).cast("bigint"))
    x = _times(x, 0x85EB_CA6B)
    x = _times(_shifted(x, 13), 0xC2B2_AE35)
    return f.shiftright(f.shiftleft(_shifted(x, 16), 32), 32)


def _mask() -> Column:
    return f.lit(0xFFFF_FFFF).cast("bigint")


def _shifted(x: Column, bits: int) -> Column:
    return x.bitwiseXOR(f.shiftright(x, bits))


def _times(x: Column, factor: int) -> Column:
    """Return the product modulo 2^32 of a BIGINT of 0 to 2^32 - 1; with a signed factor it stays within 64 bits."""
    signed = factor - (1 << 32) if factor >> 31 else factor
    return (x * f.lit(signed).cast("bigint")).bitwiseAND(_mask())


@dataclass(frozen=True)
class _Bytes:
    """Eight bytes: as sixteen hexadecimal digits, or as a binary column."""

    digits: Column | None = None
    binary: Column | None = None


@dataclass(frozen=True)
class _Lane:
    """The bytes of one column in a row: a slot, which may still need the offset of its area, and perhaps an area."""

    word: Column | None = None
    size: Column | None = None
    inline: Column | None = None
    area: Column | None = None

    def slot(self, offset: Column) -> _Bytes:
        if self.word is not None:
            return _word(self.word)
        assert self.size is not None
        outside = _word(f.shiftleft(offset.cast("bigint"), 32).bitwiseOR(self.size))
        if self.inline is None:
            return outside
        assert outside.digits is not None
        return _Bytes(binary=f.when(self.size <= INLINE_MAX, self.inline).otherwise(f.unhex(outside.digits)))


def _lane(column: Column, found: s.DataType, kind: t.DataType) -> _Lane | None:
    match kind:
        case t.TinyInt() | t.SmallInt() | t.Int() | t.Time() if isinstance(found, _INTEGERS):
            width = {t.TinyInt: 8, t.SmallInt: 16}.get(type(kind), 32)
            return _fixed(column.cast("bigint").bitwiseAND(f.lit((1 << width) - 1)))
        case t.BigInt() if isinstance(found, _INTEGERS):
            return _fixed(column.cast("bigint"))
        case t.Boolean() if isinstance(found, s.BooleanType):
            return _fixed(column.cast("int").cast("bigint"))
        case t.Date() if isinstance(found, s.DateType):
            return _fixed(f.unix_date(column).cast("bigint").bitwiseAND(f.lit((1 << 32) - 1)))
        case t.Char() | t.VarChar() if isinstance(found, s.StringType):
            return _bytes_lane(column.cast("binary"))
        case t.Binary() | t.VarBinary() if isinstance(found, s.BinaryType):
            return _bytes_lane(column)
        case t.Decimal(precision=precision, scale=scale) if (
            isinstance(found, s.DecimalType) and precision <= COMPACT_DECIMAL_PRECISION_MAX
        ):
            exact = (
                column
                if (found.precision, found.scale) == (precision, scale)
                else column.try_cast(s.DecimalType(precision, scale))
            )
            power = f.lit(Decimal(10) ** scale).cast(s.DecimalType(scale + 1, 0))
            return _fixed((exact * power).cast("bigint"))
        case t.LocalZonedTimestamp() if isinstance(found, s.TimestampType):
            return _timestamp_lane(f.unix_micros(column), kind)
        case t.Timestamp() if isinstance(found, s.TimestampNTZType):
            return _timestamp_lane(_wall_clock_micros(column), kind)
    return None


def _fixed(word: Column) -> _Lane:
    return _Lane(word=f.coalesce(word, f.lit(0).cast("bigint")))


def _bytes_lane(value: Column) -> _Lane:
    known = f.coalesce(value, f.lit(b""))
    size = f.octet_length(known)
    mark = f.unhex(f.hex(f.lit(0x80) + size))
    inline = f.when(value.isNull(), f.lit(bytes(_WORD))).otherwise(f.concat(_padded(known, f.lit(INLINE_MAX)), mark))
    whole_words = (f.floor((size + f.lit(_WORD - 1)) / f.lit(_WORD)) * f.lit(_WORD)).cast("int")
    area = f.when(size > INLINE_MAX, _padded(known, whole_words)).otherwise(f.lit(b""))
    return _Lane(size=size.cast("bigint"), inline=inline, area=area)


def _timestamp_lane(micros: Column, kind: t.Timestamp | t.LocalZonedTimestamp) -> _Lane:
    known = f.coalesce(micros, f.lit(0).cast("bigint"))
    below = f.pmod(known, f.lit(1000).cast("bigint"))
    millis = f.call_function("div", known - below, f.lit(1000).cast("bigint"))
    if kind.precision <= COMPACT_TIMESTAMP_PRECISION_MAX:
        return _fixed(millis)
    digits = _word(millis).digits
    assert digits is not None
    return _Lane(size=below * f.lit(1000), area=f.unhex(digits))


def _wall_clock_micros(column: Column) -> Column:
    """Return the microseconds since 1970-01-01 00:00 of a TIMESTAMP_NTZ, for any time zone of the session."""
    since = column - f.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'")
    days, hours, minutes, seconds = (f.extract(f.lit(part), since) for part in ("DAY", "HOUR", "MINUTE", "SECOND"))
    whole_minutes = (days.cast("bigint") * 24 + hours) * 60 + minutes
    return whole_minutes * f.lit(60_000_000).cast("bigint") + (seconds * 1_000_000).cast("bigint")


def _padded(value: Column, size: Column) -> Column:
    """Return a binary value padded with zeros, or cut, to a number of bytes."""
    return f.call_function("rpad", value, size, f.lit(b"\0"))


def _word(value: Column) -> _Bytes:
    """Return the eight bytes of a BIGINT, little end first."""
    parts = []
    for byte in range(_WORD):
        moved = f.shiftrightunsigned(value, 8 * byte) if byte else value
        kept = moved.bitwiseAND(f.lit(0xFF).cast("bigint"))
        parts.append(f.shiftleft(kept, 56 - 8 * byte) if byte < 7 else kept)
    swapped = reduce(lambda a, b: a.bitwiseOR(b), parts)
    return _Bytes(digits=f.lpad(f.hex(swapped), 16, "0"))


def _joined(words: Sequence[_Bytes]) -> list[Column]:
    """Return words as binary columns; digits of neighbours are joined before they are decoded."""
    out: list[Column] = []
    digits: list[Column] = []

    def flush() -> None:
        if digits:
            out.append(f.unhex(f.concat(*digits)))
            digits.clear()

    for word in words:
        if word.digits is not None:
            digits.append(word.digits)
        else:
            assert word.binary is not None
            flush()
            out.append(word.binary)
    flush()
    return out


@cache
def salts(count: int) -> tuple[int, ...]:
    """Return for each of `count` partitions an int that Spark's hash partitioning sends there."""
    found: dict[int, int] = {}
    value = 0
    while len(found) < count:
        found.setdefault(row_hash(value.to_bytes(4, "little")) % count, value)  # Spark's `hash` of an INT
        value += 1
    return tuple(found[partition] for partition in range(count))
