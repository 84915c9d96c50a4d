"""The bounded memory of immutable files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from merganser.storage.cache import Cache


def test_the_least_recently_used_value_goes_first() -> None:
    cache = Cache(weight_max=10)
    cache.put("a", 1, 5)
    cache.put("b", 2, 5)
    assert cache.get("a") == 1
    cache.put("c", 3, 5)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_a_value_put_again_weighs_once() -> None:
    cache = Cache(weight_max=10)
    for value in range(100):
        cache.put("a", value, 5)
    cache.put("b", 0, 5)
    assert (cache.get("a"), cache.get("b")) == (99, 0)


def test_what_weighs_more_than_the_bound_is_not_kept_and_drives_nothing_out() -> None:
    cache = Cache(weight_max=10)
    cache.put("a", 1, 5)
    cache.put("heavy", 2, 11)
    assert (cache.get("a"), cache.get("heavy")) == (1, None)


def test_an_older_value_does_not_outlive_a_heavier_one_of_its_key() -> None:
    cache = Cache(weight_max=10)
    cache.put("a", "old", 5)
    cache.put("a", "new", 11)
    assert cache.get("a") is None


def test_a_dropped_value_is_gone_and_its_weight_free() -> None:
    cache = Cache(weight_max=10)
    cache.put("a", 1, 10)
    cache.drop("a")
    cache.drop("a")
    assert cache.get("a") is None
    cache.put("b", 2, 4)
    cache.put("c", 3, 6)
    assert (cache.get("b"), cache.get("c")) == (2, 3)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), max_size=60))
def test_it_never_holds_more_than_the_bound_and_never_another_value(puts: list[tuple[int, int]]) -> None:
    cache, last = Cache(weight_max=10), dict[int, tuple[int, int]]()
    for number, (key, weight) in enumerate(puts):
        cache.put(key, number, weight)
        last[key] = (number, weight)
        kept = {k: v for k in last if (v := cache.get(k)) is not None}
        assert all(last[k][0] == v for k, v in kept.items())
        assert sum(last[k][1] for k in kept) <= 10
        assert key in kept


def test_threads_may_share_it() -> None:
    cache = Cache(weight_max=50)

    def use(seed: int) -> None:
        for i in range(2000):
            key = (seed + i * 7) % 30
            value = cache.get(key)
            assert value in (None, key * 10)
            cache.put(key, key * 10, 1 + key % 5)
            if i % 11 == 0:
                cache.drop(key)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    weight = sum(1 + key % 5 for key in range(30) if cache.get(key) is not None)
    assert weight <= 50
