"""ORC data files: every type, stripes as groups, ids as attributes, timestamps that fit."""

from __future__ import annotations

import collections
import io
import random
from typing import Any

import file_samples as samples
import pyarrow as pa
import pytest
from pyarrow import orc

from merganser.codec.data_format import WriteFormat, open_reader, open_writer
from merganser.errors import FormatError, InvalidInputError, InvariantError, UnsupportedError
from merganser.schema import types as t
from merganser.schema.types_text import parse_type

NEAR_MS = [-9_223_372_036_854, 9_223_372_036_854, None]
NEAR = {
    "TIMESTAMP(3)": NEAR_MS,
    "TIMESTAMP(6)": [v and v * 1000 for v in NEAR_MS],
    "TIMESTAMP(3) WITH LOCAL TIME ZONE": NEAR_MS,
    "TIMESTAMP(6) WITH LOCAL TIME ZONE": [-1, 1_999_999, None],
}
ALL = {**samples.SIMPLE, **NEAR, **samples.NESTED, **samples.VARIANT}
ID = t.Field(0, "id", t.BigInt(nullable=False))


def numbers(count: int, start: int = 0) -> pa.Table:
    return samples.table([ID], [list(range(start, start + count))])


def scattered(count: int) -> pa.Table:
    """Return numbers that nothing compresses."""
    rng = random.Random(3)
    return samples.table([ID], [[rng.getrandbits(62) for _ in range(count)]])


@pytest.mark.parametrize("text", ALL)
def test_a_column_of_any_type_comes_back_as_it_was_written(text: str) -> None:
    fields, rows = samples.sample({text: ALL[text]})
    assert samples.same(samples.round_trip("orc", fields, rows), rows)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "lz4", "gzip", "none"])
def test_all_types_together_come_back_under_every_compression(compression: str) -> None:
    fields, rows = samples.sample(ALL)
    assert samples.same(samples.round_trip("orc", fields, rows, compression=compression), rows)


def drawn(kind: t.DataType, rng: random.Random) -> Any:
    if rng.random() < 0.4:
        return None
    match kind:
        case t.Row():
            return {field.name: drawn(field.type, rng) for field in kind.fields}
        case t.Array():
            return [drawn(kind.element, rng) for _ in range(rng.randrange(3))]
        case t.Map():
            return [(key, drawn(kind.value, rng)) for key in range(rng.randrange(3))]
    return rng.randrange(100)


@pytest.mark.parametrize(
    "text",
    [
        "ROW<a INT>",
        "ROW<x ROW<a INT>>",
        "ROW<x ROW<y ROW<a INT, b INT>>, c INT>",
        "ARRAY<ROW<x ROW<a INT>>>",
        "MAP<INT, ROW<x ROW<a INT>>>",
        "ROW<x ARRAY<ROW<a INT>>, y MAP<INT, ROW<a INT>>>",
    ],
)
def test_slices_with_rows_that_are_null_come_back(text: str) -> None:
    rng = random.Random(text)
    values = [drawn(parse_type(text), rng) for _ in range(40)]
    fields, rows = samples.sample({text: values})
    for _ in range(40):
        part = rows.slice(rng.randrange(40), rng.randrange(1, 8))
        assert samples.round_trip("orc", fields, part).to_pylist() == part.to_pylist()


def test_times_inside_containers_come_back() -> None:
    fields, rows = samples.sample({"ARRAY<TIME(3)>": [[1, None], None], "MAP<INT, TIME(3)>": [[(1, 2)], []]})
    assert samples.same(samples.round_trip("orc", fields, rows), rows)


def test_every_group_is_a_stripe() -> None:
    rows = scattered(50_000)
    parts = [rows.slice(0, 27_000), rows.slice(27_000)]
    reader = samples.opened("orc", samples.written("orc", [ID], parts, row_group_rows=20_000))
    assert reader.group_rows == (20_000, 20_000, 10_000)
    assert reader.row_count == 50_000
    assert reader.read(None, [ID]).equals(rows)
    assert reader.read([2, 0], [ID]).equals(pa.concat_tables([rows.slice(40_000), rows.slice(0, 20_000)]))
    assert reader.read([0, 2], []).shape == (30_000, 0)
    assert reader.read([], [ID]).num_rows == 0


def test_groups_too_small_for_a_stripe_share_one() -> None:
    reader = samples.opened("orc", samples.written("orc", [ID], numbers(13), row_group_rows=5))
    assert reader.group_rows == (13,)
    assert reader.read(None, [ID]).equals(numbers(13))


def test_a_file_without_rows_keeps_its_columns() -> None:
    fields, rows = samples.sample(ALL)
    reader = samples.opened("orc", samples.written("orc", fields, rows.slice(0, 0)))
    assert reader.row_count == 0
    assert samples.same(reader.read(None, fields), rows.slice(0, 0))


def test_columns_come_in_the_order_they_are_asked_for_by_whole_names() -> None:
    fields = (
        t.Field(0, "a", t.Row(fields=(t.Field(1, "b", t.Int()),))),
        t.Field(2, "a.c", t.Int()),
        t.Field(3, "z", t.Int()),
    )
    rows = samples.table(fields, [[{"b": 1}], [2], [3]])
    reader = samples.opened("orc", samples.written("orc", fields, rows))
    assert reader.read(None, fields[::-1]).equals(rows.select(["z", "a.c", "a"]))
    assert reader.read(None, fields[:1]).equals(rows.select(["a"]))


def test_field_ids_are_attributes_on_every_part() -> None:
    kind = parse_type("MAP<INT, ROW<p DATE>>")
    data = samples.written("orc", [t.Field(13, "mr", kind)], samples.table([t.Field(13, "mr", kind)], [[None]]))
    field = orc.ORCFile(pa.BufferReader(data)).schema.field("mr")
    assert field.metadata == {b"paimon.id": b"13"}
    assert field.type.key_field.metadata == {b"paimon.id": b"536857598"}
    assert field.type.item_field.metadata == {b"paimon.id": b"536884224"}


def test_there_are_no_bounds() -> None:
    assert samples.opened("orc", samples.written("orc", [ID], numbers(3))).group_bounds(ID) is None


def test_a_missing_column_is_named() -> None:
    reader = samples.opened("orc", samples.written("orc", [ID], numbers(1)))
    with pytest.raises(FormatError, match=r"column 'gone' of 'data-1\.orc'.*'id'"):
        reader.read(None, [t.Field(9, "gone", t.Int())])


def test_rows_of_another_schema_and_unknown_compressions_are_refused() -> None:
    with pytest.raises(InvariantError, match="id int32"):
        samples.written("orc", [ID], pa.table({"id": pa.array([1], pa.int32())}))
    with pytest.raises(InvalidInputError, match="'rle'"):
        open_writer(io.BytesIO(), "orc", [ID], WriteFormat(compression="rle"))


@pytest.mark.parametrize(
    "text", ["TIMESTAMP(3)", "ARRAY<TIMESTAMP(3)>", "ROW<a TIMESTAMP(3)>", "MAP<INT, TIMESTAMP(3)>"]
)
def test_a_timestamp_that_could_not_be_read_back_is_not_written(text: str) -> None:
    far = samples.YEAR_9999_MS
    value: Any = {"T": far, "A": [far], "R": {"a": far}, "M": [(1, far)]}[text[0]]
    fields, rows = samples.sample({text: [value]})
    with pytest.raises(UnsupportedError, match=r"column 'c0'.*2262"):
        samples.written("orc", fields, rows)


@pytest.mark.parametrize("moment", [samples.YEAR_9999_MS, samples.YEAR_1_MS])
def test_a_timestamp_that_nanoseconds_cannot_hold_is_refused_and_other_columns_read(moment: int) -> None:
    sink = io.BytesIO()
    orc.write_table(pa.table({"c": pa.array([moment], pa.timestamp("ms")), "id": pa.array([5], pa.int64())}), sink)
    reader = samples.opened("orc", sink.getvalue())
    with pytest.raises(UnsupportedError, match=r"column 'c'.*2262"):
        reader.read(None, [t.Field(0, "c", t.Timestamp(3))])
    assert reader.read(None, [ID]).column(0).to_pylist() == [5]


def test_every_golden_file_can_be_read_in_full() -> None:
    files = samples.golden_files("orc")
    assert files
    for name, file in files:
        reader = samples.golden_reader(file)
        fields = samples.physical(next(samples.golden_schemas(name)), reader.column_names)
        assert fields is not None
        rows = reader.read(None, fields)
        rows.validate(full=True)
        assert rows.num_rows == sum(reader.group_rows) == reader.row_count


def damage_sample() -> tuple[tuple[t.Field, ...], bytes]:
    texts = ("INT", "STRING", "DECIMAL(9, 2)", "TIMESTAMP(3)", "ARRAY<ARRAY<BIGINT>>", "MAP<STRING, BIGINT>")
    fields, rows = samples.sample({k: ALL[k] * 40 for k in texts})
    return fields, samples.written("orc", fields, rows, row_group_rows=50)


def refused(data: bytes, fields: tuple[t.Field, ...]) -> bool:
    try:
        rows = samples.opened("orc", data).read(None, fields)
    except (FormatError, UnsupportedError) as error:
        return "data-1.orc" in str(error)
    rows.validate(full=True)
    return False


def test_a_file_cut_anywhere_is_refused() -> None:
    fields, data = damage_sample()
    cuts = {0, 1, 3, len(data) - 1, *random.Random(5).sample(range(len(data)), 100)}
    assert all(refused(data[:cut], fields) for cut in cuts)


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 26, reason="older ORC libraries may end the process on damage")
def test_flipped_bits_end_in_a_sound_table_or_a_format_error() -> None:
    """ORC has no checksums, so values may change unseen; text stays text and nothing else is raised."""
    fields, data = damage_sample()
    rng = random.Random(7)
    outcomes: collections.Counter[bool] = collections.Counter()
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        outcomes[refused(bytes(damaged), fields)] += 1
    assert outcomes[True] > 60


def test_foreign_bytes_are_refused() -> None:
    for data in (b"", b"ORC", b"x" * 5000):
        with pytest.raises(FormatError, match=r"data-1\.orc"):
            samples.opened("orc", data)


def test_values_of_a_column_of_type_char_lose_the_blanks_that_pad_them() -> None:
    """Java stores CHAR(n) so; the file here is pyarrow's, whose STRING is made a CHAR in the footer."""
    sink = io.BytesIO()
    with orc.ORCWriter(sink, compression="uncompressed") as writer:
        writer.write(pa.table({"padded": ["a    ", "     ", None, " bc  "], "text": ["a    ", "", None, " bc  "]}))
    content = sink.getvalue()
    assert content.count(b"\x22\x08\x08\x07") == 2  # type (4): 8 bytes, kind (1): STRING
    content = content.replace(b"\x22\x08\x08\x07", b"\x22\x08\x08\x11", 1)
    fields = [t.Field(0, "padded", t.Char(5)), t.Field(1, "text", t.VarChar(5))]
    reader = open_reader(pa.BufferReader(content), "orc", "a.orc", len(content))
    rows = reader.read(None, fields)
    assert rows.column("padded").to_pylist() == ["a", "", None, " bc"]
    assert rows.column("text").to_pylist() == ["a    ", "", None, " bc  "]
