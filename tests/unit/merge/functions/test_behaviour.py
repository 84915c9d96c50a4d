"""What each aggregate function does, by name: one behaviour per test."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyroaring
import pytest

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.merge.functions import bitmap64
from merganser.merge.functions.function import Function
from merganser.merge.functions.registry import PICKS, function_for
from merganser.merge.groups import Groups
from merganser.options.option import Options
from merganser.schema import types as t
from merganser.schema.arrow import arrow_type

from .cases import build

ADD, BACK = "+I", "-D"


def _fold(function: Function, kind: t.DataType, *groups: Sequence[tuple[str, Any]]) -> list[Any]:
    rows = [row for group in groups for row in group]
    starts = np.cumsum([0, *[len(group) for group in groups[:-1]]])
    additions = np.array([k == ADD for k, _ in rows])
    column = pa.chunked_array([pa.array([value for _, value in rows], arrow_type(kind))])
    return function.fold(column, Groups(np.arange(len(rows)), starts, additions)).to_pylist()  # type: ignore[no-any-return]


def _added(*values: Any) -> list[tuple[str, Any]]:
    return [(ADD, value) for value in values]


def test_a_single_row_passes_untouched_whatever_the_function_would_do() -> None:
    array = t.Array(element=t.Int())
    assert _fold(build("collect", array, {"distinct": "true"}), array, _added([1, 1])) == [[1, 1]]
    assert _fold(build("listagg", t.string(), {}), t.string(), _added("  ")) == ["  "]
    assert _fold(build("max", t.Int(), {}), t.Int(), [(BACK, 5)]) == [5]


def test_a_retraction_then_an_addition_give_their_difference() -> None:
    assert _fold(build("sum", t.Int(), {}), t.Int(), [(BACK, 10), (ADD, 25)]) == [15]


def test_retractions_alone_give_what_they_take_away_together() -> None:
    assert _fold(build("sum", t.Int(), {}), t.Int(), [(BACK, 10), (BACK, 25)]) == [35]
    assert _fold(build("product", t.Int(), {}), t.Int(), [(BACK, 2), (BACK, 3)]) == [6]
    array = t.Array(element=t.Int())
    assert _fold(build("collect", array, {"distinct": "true"}), array, [(BACK, [1]), (BACK, [1, 2])]) == [[1, 1, 2]]


def test_an_image_of_retractions_does_what_the_retractions_would_do() -> None:
    array = t.Array(element=t.Int())
    collect = build("collect", array, {})
    [image] = _fold(collect, array, [(BACK, [2]), (BACK, [2, 9])])
    assert _fold(collect, array, [(ADD, [1, 2, 2, 2]), (BACK, image)]) == [[1, 2]]


def test_an_integer_sum_fails_at_the_step_that_overflows_even_if_a_later_one_would_return() -> None:
    with pytest.raises(InvalidInputError, match=r"overflow") as error:
        _fold(build("sum", t.BigInt(), {}), t.BigInt(), _added(2**63 - 1, 1, -1))
    assert "BIGINT" in str(error.value)
    assert error.value.context["column"] == "c"
    assert _fold(build("sum", t.BigInt(), {}), t.BigInt(), _added(2**63 - 1, -1, 1)) == [2**63 - 1]


def test_retracting_the_smallest_integer_from_nothing_overflows() -> None:
    with pytest.raises(InvalidInputError, match="overflow"):
        _fold(build("sum", t.TinyInt(), {}), t.TinyInt(), [(BACK, -128), (ADD, None)])


def test_a_decimal_sum_beyond_the_precision_is_null_and_starts_again() -> None:
    kind = t.Decimal(4, 2)
    values = [Decimal(text) for text in ("99.00", "1.00", "2.50", "3.00")]
    assert _fold(build("sum", kind, {}), kind, _added(*values[:2]), _added(*values)) == [None, Decimal("5.50")]


def test_a_decimal_product_rounds_half_up_at_each_step() -> None:
    kind = t.Decimal(10, 4)
    values = [Decimal(text) for text in ("1.5000", "2.2500", "0.0001")]
    assert _fold(build("product", kind, {}), kind, _added(*values)) == [Decimal("0.0003")]


def test_an_endless_decimal_quotient_is_refused() -> None:
    kind = t.Decimal(10, 4)
    with pytest.raises(InvalidInputError, match="endless"):
        _fold(build("product", kind, {}), kind, [(ADD, Decimal(1)), (BACK, Decimal(3))])


def test_integer_division_truncates_toward_zero_and_refuses_zero() -> None:
    product = build("product", t.Int(), {})
    assert _fold(product, t.Int(), [(ADD, -7), (BACK, 2)]) == [-3]
    with pytest.raises(InvalidInputError, match="divides by zero"):
        _fold(product, t.Int(), [(ADD, 7), (BACK, 0)])


def test_a_retraction_that_a_function_cannot_take_names_the_ways_out() -> None:
    with pytest.raises(InvalidInputError) as error:
        _fold(build("max", t.Int(), {}), t.Int(), [(ADD, 5), (BACK, 5)])
    for part in ("'c'", "'max'", "retract", "fields.c.ignore-retract", "ignore-delete"):
        assert part in str(error.value)


def test_ignore_retract_leaves_the_column_as_it_is() -> None:
    ignoring = build("max", t.Int(), {"ignore-retract": "true"})
    assert _fold(ignoring, t.Int(), [(ADD, 5), (BACK, 5), (ADD, 4)], [(BACK, 1), (BACK, 2)]) == [5, 2]
    assert ignoring.retracts


def test_count_counts_raw_values_and_sums_stored_ones() -> None:
    counting, summing = build("count", t.BigInt(), {}, stored=False), build("count", t.BigInt(), {})
    values = _added(7, None, 9)
    assert _fold(counting, t.BigInt(), values, _added(7), _added(None), [(ADD, 7), (BACK, 8)]) == [2, 1, 0, 0]
    assert _fold(summing, t.BigInt(), values) == [16]


def test_the_delimiter_keeps_its_spaces() -> None:
    assert _fold(build("listagg", t.string(), {"list-agg-delimiter": " | "}), t.string(), _added("a", "b")) == ["a | b"]


def test_listagg_ignores_blanks_of_every_kind_but_no_break_spaces_are_text() -> None:
    texts = _added(" ", "a", "\u3000\x1c", None, "\u00a0")
    assert _fold(build("listagg", t.string(), {}), t.string(), texts, _added(" ", "")) == ["a,\u00a0", None]


def test_listagg_distinct_compares_whole_tokens_and_never_cleans_the_first_text() -> None:
    distinct = build("listagg", t.string(), {"distinct": "true"})
    assert _fold(distinct, t.string(), _added("ab,ab", "a,b,a", " ,ab")) == ["ab,ab,a,b"]


def test_max_and_min_compare_text_by_unsigned_bytes_and_zeros_at_the_end_count() -> None:
    kind = t.VarBinary()
    values = _added(b"abcdefgh", b"abcdefgh\x00", b"abcdefg")
    assert _fold(build("max", kind, {}), kind, values) == [b"abcdefgh\x00"]
    assert _fold(build("min", kind, {}), kind, values) == [b"abcdefg"]
    assert _fold(build("max", t.string(), {}), t.string(), _added("z", "é", "\U0001f600", "\ufffd")) == ["\U0001f600"]


def test_nan_is_the_largest_float() -> None:
    values = _added(float("inf"), -float("nan"), 1.0)
    assert str(_fold(build("max", t.Double(), {}), t.Double(), values)) == "[nan]"
    assert _fold(build("min", t.Double(), {}), t.Double(), values) == [1.0]


def test_merge_map_keeps_a_key_where_it_was_first_seen_until_it_is_retracted() -> None:
    kind = t.Map(key=t.Int(nullable=False), value=t.string())
    merge = build("merge_map", kind, {})
    maps = _added([(1, "a"), (2, "b")], [(3, "c"), (1, None)])
    assert _fold(merge, kind, maps) == [[(1, None), (2, "b"), (3, "c")]]
    assert _fold(merge, kind, [*maps, (BACK, [(1, "x")]), (ADD, [(1, "d")])]) == [[(2, "b"), (3, "c"), (1, "d")]]


def test_nested_update_limits_new_keys_only() -> None:
    kind = t.Array(element=t.Row(fields=(t.Field(0, "id", t.Int()), t.Field(1, "v", t.string()))))
    rows = [[{"id": i, "v": v}] for i, v in ((1, "a"), (2, "b"), (3, "c"), (1, "A"))]
    nested = build("nested_update", kind, {"nested-key": "id", "count-limit": "2"})
    assert _fold(nested, kind, _added(*rows)) == [[{"id": 1, "v": "A"}, {"id": 2, "v": "b"}]]
    assert _fold(nested, kind, [*_added(*rows[:2]), (BACK, rows[0]), (ADD, rows[2])]) == [[rows[1][0], rows[2][0]]]


def test_nested_update_refuses_null_keys_when_told_so() -> None:
    kind = t.Array(element=t.Row(fields=(t.Field(0, "id", t.Int()),)))
    nested = build("nested_update", kind, {"nested-key": "id", "nested-key-null-strategy": "error"})
    with pytest.raises(InvalidInputError, match="null in their key"):
        _fold(nested, kind, _added([{"id": 1}], [{"id": None}]))


def test_functions_that_pick_share_positions_instead_of_values() -> None:
    function = build("last_non_null_value", t.Int(), {})
    assert isinstance(function, PICKS)
    groups = Groups(np.array([2, 0, 1, 3]), np.array([0, 3]))
    assert function.pick(np.array([True, False, False, False]), groups).tolist() == [0, 3]  # row 3 is the null
    assert isinstance(build("first_value", t.Int(), {"ignore-retract": "true"}), PICKS)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match=r"no aggregate function 'median'.*bool_and"):
        function_for(t.Field(0, "c", t.Int()), "median", Options(), stored=True)


# bitmaps and sketches

BYTES = t.VarBinary()


def _bitmap(values: Sequence[int]) -> bytes:
    return bytes(pyroaring.BitMap(values).serialize())


def test_rbm32_unites_and_writes_runs_as_the_jvm_does() -> None:
    [union, single] = _fold(
        build("rbm32", BYTES, {}),
        BYTES,
        _added(_bitmap(range(500)), None, _bitmap(range(400, 900))),
        _added(None, b"kept"),
    )
    assert list(pyroaring.BitMap.deserialize(union)) == list(range(900))
    assert union[:2] == b"\x3b\x30"  # the cookie of a bitmap with runs
    assert single == b"kept"


def test_bytes_that_are_no_bitmap_are_refused_by_column() -> None:
    for name in ("rbm32", "rbm64"):
        with pytest.raises(InvalidInputError, match=f"column 'c'.*{name}.*no serialised"):
            _fold(build(name, BYTES, {}), BYTES, _added(b"junk", _bitmap([1])[:-1]))


BY_THE_JVM = {
    (
        1,
        4294967297,
    ): "0102000000000000000002000300000000000100040000000000000000000000000000000000040000000000000100000100"
    "00000000000001000000fe020000000102010000000100010201000000010002000000000000000000000001000000",
    (1, 2, 3, 4, 5, 6, 7, 70000, 140000, 300000): "01040000000000000000040005000000000004020100040000000000000000000000"
    "00000000000004000000000000000001010000000000000004000000000000000002020000000000000004000000000000000004030000000000"
    "000001000000fe040000000100070000000100010006000102010000007011010201000000e022010201000000e0930400000000000000000000"
    "0003000000",
}
"""Members, and what `Roaring64Bitmap` 1.3.0 writes of them after `runOptimize`."""


@pytest.mark.parametrize("members", BY_THE_JVM, ids=len)
def test_rbm64_reads_and_writes_the_bytes_of_the_jvm(members: tuple[int, ...]) -> None:
    image = bytes.fromhex(BY_THE_JVM[members])
    assert tuple(bitmap64.read(image)) == members
    assert bitmap64.write(pyroaring.BitMap64(members)) == image


@pytest.mark.parametrize("shift", [0, 16, 24, 30, 56])
@pytest.mark.parametrize("count", [0, 1, 4, 5, 16, 17, 48, 49, 256])
def test_rbm64_keeps_its_members_through_nodes_of_every_size(shift: int, count: int) -> None:
    members = [i << shift for i in range(count)]
    bitmap = pyroaring.BitMap64(members)
    assert list(bitmap64.read(bitmap64.write(bitmap))) == members
    assert list(bitmap64.read(bytes(bitmap.serialize()))) == members  # the portable form is read as well


def test_rbm64_keeps_containers_of_every_kind() -> None:
    members = [*range(0, 20_000, 2), *range(1 << 33, (1 << 33) + 70_000), (1 << 63) + 5]
    [union] = _fold(
        build("rbm64", BYTES, {}), BYTES, _added(*[bitmap64.write(pyroaring.BitMap64(members[i::2])) for i in (0, 1)])
    )
    assert list(bitmap64.read(union)) == members


def test_sketches_are_united() -> None:
    library = pytest.importorskip("datasketches")
    hll, theta = [], []
    for words in (["a", "b"], ["b", "c"]):
        one, two = library.hll_sketch(11), library.update_theta_sketch()
        for word in words:
            one.update(word)
            two.update(word)
        hll.append(bytes(one.serialize_compact()))
        theta.append(bytes(two.compact().serialize()))
    [union] = _fold(build("hll_sketch", BYTES, {}), BYTES, _added(hll[0], None, hll[1]))
    sketch = library.hll_sketch.deserialize(union)
    assert round(sketch.get_estimate()) == 3
    assert sketch.lg_config_k == 11
    [union] = _fold(build("theta_sketch", BYTES, {}), BYTES, _added(*theta))
    assert round(library.compact_theta_sketch.deserialize(union).get_estimate()) == 3
    for name in ("hll_sketch", "theta_sketch"):
        with pytest.raises(InvalidInputError, match="no serialised sketch"):
            _fold(build(name, BYTES, {}), BYTES, _added(b"junk", b"junk"))


def test_without_the_library_a_sketch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: Any) -> Any:
        raise builtins.ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UnsupportedError, match=r"pip install 'merganser\[sketches\]'"):
        _fold(build("hll_sketch", BYTES, {}), BYTES, _added(b"", b""))
