"""Layered mappings against dictionaries: the same content and order, nothing changed that was there, few copies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merganser.meta.layered import Layered


@given(st.lists(st.dictionaries(st.integers(0, 30), st.none() | st.integers(0, 9), max_size=12), max_size=30))
def test_a_layered_mapping_is_the_dictionary_that_its_changes_make(changes: list[dict[int, int | None]]) -> None:
    layered: Layered[int, int] = Layered()
    plain: dict[int, int] = {}
    before = [(layered, dict(plain))]
    for change in changes:
        layered = layered.changed(change)
        for key, value in change.items():
            if value is None:
                plain.pop(key, None)
            else:
                plain[key] = value
        before.append((layered, dict(plain)))
    for mapping, expected in before:
        assert mapping == expected
        assert len(mapping) == len(expected)
        assert dict(mapping.items()) == expected
        assert sorted(mapping) == sorted(expected)
        assert sorted(mapping.values()) == sorted(expected.values())
        assert [mapping.get(key, -1) for key in range(31)] == [expected.get(key, -1) for key in range(31)]
        assert [key in mapping for key in range(31)] == [key in expected for key in range(31)]
    with pytest.raises(KeyError):
        layered[99]


def test_keys_that_are_changed_keep_their_places_and_new_ones_come_last() -> None:
    layered = Layered[str, int]().changed(dict.fromkeys("abcdefgh", 0)).changed({"c": 1, "z": 1}).changed({"a": None})
    assert [*layered.items()] == [("b", 0), ("c", 1), ("d", 0), ("e", 0), ("f", 0), ("g", 0), ("h", 0), ("z", 1)]


def test_changes_share_what_they_leave_alone() -> None:
    """A copy of all would be one per change; here it is as many as the number of keys has digits."""
    base: Layered[int, int] = Layered().changed(dict.fromkeys(range(10_000), 0))
    mapping, copied = base, 0
    for step in range(1_000):
        before = {id(layer) for layer in mapping._layers}
        mapping = mapping.changed({(step * 7 + i) % 10_000: step for i in range(10)})
        copied += sum(len(layer) for layer in mapping._layers if id(layer) not in before)
        assert all(2 * len(b) < len(a) for a, b in zip(mapping._layers, mapping._layers[1:], strict=False))
    assert copied < 1_000 * 10 * 14
    assert set(base.values()) == {0}


def test_a_few_values_tell_what_all_are_like() -> None:
    mapping = Layered[int, str]().changed(dict.fromkeys(range(20), "x")).changed({0: None})
    assert mapping.some(3) == ["x"] * 3
    assert Layered[int, str]().some(3) == []
