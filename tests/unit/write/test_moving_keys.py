"""Keys that move between partitions: what each engine does with a row whose key lies elsewhere, who may write when."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import merganser as mg
from merganser.errors import ConflictError, InvalidInputError, UnsupportedError
from merganser.merge.hashed_keys import KeyHashes
from merganser.storage import mapped
from merganser.storage.cache import Cache
from merganser.storage.env import Env
from merganser.storage.mapped import Arrays
from merganser.write import key_index, moving
from merganser.write.key_index import ABSENT, KeyIndex, Pieces, Run
from tests.kit.builders import catalog_over, contents, memory_with
from tests.seeds import seeds

_names = itertools.count()
ENV = Env(memory_with({}, "places of keys"))
Model = dict[int, dict[str, Any]]


def _table(columns: str = "k INT, p STRING, v INT, w INT", **options: str) -> mg.Table:
    catalog = catalog_over(memory_with({}, f"moving-{next(_names)}"))
    catalog.create_database("db")
    found = {"dynamic-bucket.target-row-num": "4"} | {key.replace("_", "-"): text for key, text in options.items()}
    return catalog.create_table("db.t", columns, ["k"], ["p"], found)


def _row(k: int, p: str, v: int | None = None, w: int | None = None, op: str = "+I") -> dict[str, Any]:
    return {"k": k, "p": p, "v": v, "w": w, "op": op}


def _rows(table: mg.Table) -> Model:
    found = table.read().to_pylist()
    assert len({row["k"] for row in found}) == len(found)
    return {row.pop("k"): row for row in found}


def _kind(change: dict[str, Any]) -> str:
    return next(value for value in change.values() if value in ("+I", "-U", "+U", "-D"))


def _other_process(table: mg.Table, monkeypatch: pytest.MonkeyPatch) -> mg.Table:
    monkeypatch.setattr(moving, "_cache", Cache())
    return catalog_over(memory_with(contents(table.env.storage), f"moving-{next(_names)}")).table("db.t")


def test_a_row_moves_its_key_and_both_changes_are_one_commit() -> None:
    table = _table(changelog_producer="lookup")
    table.write([_row(1, "a", 1), _row(2, "a", 2)], kinds="op")
    last = table.snapshots()[-1].id
    table.write([_row(1, "b", 3)], kinds="op")
    assert _rows(table) == {1: {"p": "b", "v": 3, "w": None}, 2: {"p": "a", "v": 2, "w": None}}
    found = sorted((row["p"], _kind(row)) for row in table.changes(last + 1).to_pylist())
    assert found == [("a", "-D"), ("b", "+I")]


def test_a_delete_that_names_another_partition_removes_the_row() -> None:
    table = _table()
    table.write([_row(1, "a", 1)], kinds="op")
    table.write([_row(1, "c", op="-D")], kinds="op")
    assert _rows(table) == {}
    table.write([_row(1, "b", 2)], kinds="op")
    assert _rows(table) == {1: {"p": "b", "v": 2, "w": None}}


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("deduplicate", {"p": "c", "v": None, "w": 3}),
        ("partial-update", {"p": "a", "v": 2, "w": 3}),
        ("first-row", {"p": "a", "v": 1, "w": None}),
    ],
)
def test_rows_of_one_commit_that_name_several_partitions_make_one_row(engine: str, expected: dict[str, Any]) -> None:
    table = _table(merge_engine=engine)
    table.write([_row(1, "a", 1), _row(1, "b", 2), _row(1, "c", None, 3)], kinds="op")
    assert _rows(table) == {1: expected}
    table.write([_row(1, "d", None, 3)], kinds="op")
    assert _rows(table) == {1: expected | ({"p": "d"} if engine == "deduplicate" else {})}


def _deduplicated(model: Model, row: dict[str, Any]) -> None:
    if row["op"] == "-D":
        model.pop(row["k"], None)
    else:
        model[row["k"]] = {name: row[name] for name in "pvw"}


def _first(model: Model, row: dict[str, Any]) -> None:
    model.setdefault(row["k"], {name: row[name] for name in "pvw"})


def _updated(model: Model, row: dict[str, Any]) -> None:
    if row["op"] == "-D":
        model.pop(row["k"], None)
        return
    kept = model.setdefault(row["k"], {"p": row["p"], "v": None, "w": None})
    kept |= {name: row[name] for name in "vw" if row[name] is not None}


def _summed(model: Model, row: dict[str, Any]) -> None:
    if row["k"] not in model:
        row["op"] = "+I"  # retractions of rows that are there are drawn, and no others
    kept = model.setdefault(row["k"], {"p": row["p"], "v": None, "w": None})
    sign = -1 if row["op"] == "-D" else 1
    for name in "vw":
        if row[name] is not None:
            kept[name] = (kept[name] or 0) + sign * row[name]


_ENGINES: dict[str, tuple[Callable[[Model, dict[str, Any]], None], dict[str, str], float]] = {
    "deduplicate": (_deduplicated, {}, 0.2),
    "first-row": (_first, {}, 0),
    "partial-update": (_updated, {"partial-update.remove-record-on-delete": "true"}, 0.15),
    "aggregation": (_summed, {"fields.v.aggregate-function": "sum", "fields.w.aggregate-function": "sum"}, 0.2),
}


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("engine", _ENGINES)
@pytest.mark.parametrize("seed", seeds(4))
def test_a_random_history_reads_as_a_dict_says(engine: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{engine} {seed}")
    apply, options, deletes = _ENGINES[engine]
    options = options | {"merge-engine": engine, "write-buffer-size": rng.choice(["1 kb", "256 mb"])}
    if rng.random() < 0.4:
        options["changelog-producer"] = "lookup"
    if engine == "deduplicate" and rng.random() < 0.3:
        options["deletion-vectors.enabled"] = "true"
    table = _table(**options)
    model: Model = {}
    for _ in range(rng.randrange(3, 9)):
        rows = [
            _row(
                rng.randrange(15),
                rng.choice("abc"),
                rng.choice([None, 1, 2]),
                rng.choice([None, 5, 6]),
                "-D" if rng.random() < deletes else "+I",
            )
            for _ in range(rng.choice([1, 3, 20, 60]))
        ]
        for row in rows:
            apply(model, row)
        if rng.random() < 0.5:
            with table.writer() as writer:
                for i in range(0, len(rows), 7):
                    writer.write(rows[i : i + 7], kinds="op")
                writer.commit()
        else:
            table.write(rows, kinds="op")
        match rng.randrange(5):
            case 0:
                table.compact(full=rng.random() < 0.5)
            case 1:
                table = _other_process(table, monkeypatch)
            case 2 if len(table.snapshots()) > 2:
                before = table.snapshots()[-1].id
                table.write([_row(99, "z", 1)], kinds="op")
                table.rollback(before)
        assert _rows(table) == model
    assert table.check() == ()


def test_a_changelog_leads_from_each_state_to_the_next() -> None:
    table = _table(changelog_producer="input")
    rng = random.Random(5)
    state: dict[tuple[str, int], int | None] = {}
    for _ in range(12):
        rows = [_row(rng.randrange(8), rng.choice("abc"), rng.randrange(9)) for _ in range(rng.choice([1, 4, 9]))]
        before = table.snapshots()[-1].id if table.snapshots() else 0
        table.write(rows, kinds="op")
        for row in table.changes(before + 1).to_pylist():
            if _kind(row) in ("-D", "-U"):
                state.pop((row["p"], row["k"]), None)
            else:
                state[row["p"], row["k"]] = row["v"]
        assert state == {(row["p"], k): row["v"] for k, row in _rows(table).items()}


def test_a_second_writer_at_once_is_told_and_leaves_nothing() -> None:
    table = _table()
    table.write([_row(1, "a", 1)], kinds="op")
    with table.writer() as one, table.writer() as other, pytest.MonkeyPatch.context() as patch:
        patch.setattr("merganser.write.buffer.SMALL_BYTES", 0)  # rows get their places when they come
        one.write([_row(1, "b", 2)], kinds="op")
        other.write([_row(1, "c", 3)], kinds="op")
        one.commit()
        with pytest.raises(ConflictError, match="another writer has changed rows"):
            other.commit()
        other.abort()
        other.write([_row(1, "c", 3)], kinds="op")
        other.commit()
    assert _rows(table) == {1: {"p": "c", "v": 3, "w": None}}
    assert table.check() == ()


@pytest.mark.parametrize("at_once", [1, 1 << 22])
def test_the_check_finds_keys_with_rows_in_two_partitions(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table()
    table.write([_row(k, "a", 1) for k in range(9)], kinds="op")
    with monkeypatch.context() as patch:
        patch.setattr(KeyIndex, "find", lambda self, hashes: np.full(len(hashes), ABSENT, np.int32))
        table.write([_row(k, "b", 2) for k in (3, 20)], kinds="op")  # as a writer that knows nothing of the first
    monkeypatch.setattr("merganser.upkeep.check_keys.KEYS_AT_ONCE", at_once)
    (finding,) = table.check()
    assert (finding.code, finding.snapshot) == ("placement", table.snapshots()[-1].id)
    assert finding.problem.startswith("the key {'k': 3} has a row in ")
    assert all(f"/p={place}/bucket-" in finding.problem for place in "ab")
    assert table.check(quick=True) == ()


def test_an_overwrite_replaces_the_table_and_not_a_partition() -> None:
    table = _table()
    table.write([_row(k, "ab"[k % 2], k) for k in range(6)], kinds="op")
    for overwrite in ({"p": "a"}, "dynamic"):
        with pytest.raises(InvalidInputError, match="keys of this table may lie in other partitions"):
            table.write([_row(1, "a", 7)], kinds="op", overwrite=overwrite)
    table.write([_row(1, "a", 7)], kinds="op", overwrite={})
    assert _rows(table) == {1: {"p": "a", "v": 7, "w": None}}
    table.write([_row(1, "b", 8)], kinds="op")
    assert _rows(table) == {1: {"p": "b", "v": 8, "w": None}}


def test_an_upsert_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="may lie in any partition"):
        _table().upsert([{"k": 1, "p": "a", "v": 1, "w": 1}])


def test_a_key_with_a_part_of_the_partition_stays_in_that_part() -> None:
    catalog = catalog_over(memory_with({}, f"moving-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table("db.t", "k INT, r STRING, d STRING, v INT", ["k", "r"], ["d", "r"])
    table.write([{"k": 1, "r": "x", "d": "1", "v": 1}, {"k": 1, "r": "y", "d": "1", "v": 2}])
    table.write([{"k": 1, "r": "x", "d": "2", "v": 3}])
    assert sorted((row["r"], row["d"], row["v"]) for row in table.read().to_pylist()) == [("x", "2", 3), ("y", "1", 2)]


def _hashes(pairs: list[tuple[int, int]]) -> KeyHashes:
    return KeyHashes(np.array([a for a, _ in pairs]), np.array([b for _, b in pairs], np.uint32))


def _pairs(rng: np.random.Generator, width: int) -> list[tuple[int, int]]:
    """Hashes in order, each once; there are few first ones, so that many keys share one."""
    drawn = zip(rng.integers(-20, 20, 30).tolist(), rng.integers(0, 3, 30).tolist(), strict=True)
    return sorted({(a * width, b) for a, b in drawn})


@pytest.mark.parametrize("width", [1, 1 << 58])  # all in one range of the hashes, and spread over all
@pytest.mark.parametrize("budget", [1 << 20, 64])
def test_runs_of_places_say_what_a_dict_says(width: int, budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "_STEP_ROWS", 8)
    monkeypatch.setattr(key_index, "_HALVES_FROM_ROWS", 16)
    monkeypatch.setattr(mapped, "_FILE_BYTES_MIN", 64)
    rng = np.random.default_rng(2)
    known: dict[tuple[int, int], int] = {}
    places, arrays = KeyIndex(), Arrays(budget)
    for _ in range(50):
        new = _pairs(rng, width)
        assert (_hashes(new).order() == np.arange(len(new))).all()
        at = rng.integers(-1, 5, len(new)).astype(np.int32)
        places = places.with_run(Run(_hashes(new), at), arrays, ENV)
        known |= dict(zip(new, at.tolist(), strict=True))
        asked = [(a * width, b) for a in range(-21, 22) for b in range(4)]
        assert places.find(_hashes(asked)).tolist() == [known.get(pair, ABSENT) for pair in asked]


@pytest.mark.parametrize("budget", [1 << 20, 64])
def test_pieces_of_keys_in_any_order_are_known_once_each(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "_PIECE_ROWS", 50)
    monkeypatch.setattr(key_index, "_STEP_ROWS", 8)
    monkeypatch.setattr(key_index, "_HALVES_FROM_ROWS", 16)
    monkeypatch.setattr(mapped, "_FILE_BYTES_MIN", 64)
    rng = np.random.default_rng(3)
    told: dict[tuple[int, int], set[int]] = {}
    pieces = Pieces(Arrays(budget), ENV)
    for place in range(20):
        new = _pairs(rng, 1 << 58)
        rng.shuffle(new)
        pieces.add(_hashes(new), place)
        for pair in new:
            told.setdefault(pair, set()).add(place)
    places = pieces.index()
    assert len(places) == len(told)
    found = places.find(_hashes(list(told))).tolist()
    assert all(place in among for place, among in zip(found, told.values(), strict=True))


def test_a_write_goes_on_where_the_commit_that_changed_rows_last_has_expired() -> None:
    """The process still knows that commit; what a write begins with knows the snapshots that are there."""
    table = _table(write_only="true")
    table.write([{"k": 1, "p": "a", "v": 1, "w": 1}])
    table.write([{"k": 2, "p": "a", "v": 2, "w": 2}])
    table.compact(full=True)
    table.expire(retain_max=1, retain_min=1, older_than="2100-01-01")
    assert [one.commit_kind for one in table.snapshots()] == ["COMPACT"]
    table.write([{"k": 1, "p": "b", "v": 3, "w": 3}])
    assert _rows(table) == {1: {"p": "b", "v": 3, "w": 3}, 2: {"p": "a", "v": 2, "w": 2}}
