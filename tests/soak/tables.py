"""The tables of a soak, what each writer's n-th commit holds, and which rows a table may show.

A commit is a function of table, writer and n, and every commit writes a *head*: a row of its writer that says n. So a
scan can be judged alone: it shows, for every writer, exactly the commits 1 to its head, each once and in full.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

WRITERS: Final = 8
KEYS_PER_WRITER: Final = 40
HEAD: Final = 0
"""Key of the head among the keys of a writer, which are those from 1000 * (writer + 1) on; all share those below."""
SHARED_KEYS: Final = 10

Row = dict[str, Any]
State = dict[Any, Row]
_COLUMNS: Final = {"k": "INT", "n": "INT", "a": "BIGINT", "b": "STRING"}
_ARROW: Final = {"k": pa.int32(), "n": pa.int32(), "a": pa.int64(), "b": pa.string()}


@dataclass(frozen=True)
class Change:
    """One row of a commit; `kind` as the format writes it."""

    kind: str
    row: Row


@dataclass(frozen=True)
class SoakTable:
    """A table of the soak.

    Attributes:
        name: of the table, without its database.
        options: how it is made.
        keyed: whether it has a key.
        commit: the changes of a writer's n-th commit.
        fold: applies such changes to what the table shows of them.
        later: rows show only once they were compacted.
        rescales: compactors change its number of buckets.
        publishes: its changelog, replayed, is the table: "with" each commit, or "after" the compaction behind it.
        merges: commits are merges: rows that are there are updated or deleted, others are inserted.
    """

    name: str
    options: Mapping[str, str]
    keyed: bool
    commit: Callable[[int, int], list[Change]]
    fold: Callable[[State, int, list[Change]], None]
    later: bool = False
    publishes: str | None = None
    rescales: bool = False
    merges: bool = False

    def create(self, catalog: Any) -> Any:
        """Make it."""
        key = ["k"] if self.keyed else []
        return catalog.create_table(f"soak.{self.name}", _COLUMNS, primary_key=key, options=self.options)


def arrow(changes: list[Change]) -> pa.Table:
    """Return the changes of a commit as it is written, their kinds in the column `op`."""
    columns: dict[str, Any] = {name: pa.array([c.row[name] for c in changes], kind) for name, kind in _ARROW.items()}
    return pa.table({**columns, "op": pa.array([c.kind for c in changes], pa.string())})


class Replay:
    """The state that a changelog makes: a new row needs an absent key, and what goes must be what is there."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}

    def wrong(self, changes: list[Row]) -> str | None:
        """Take changes; return the first that does not fit, or None."""
        for row in changes:
            kind, key = row.pop("_row_kind"), row["k"]
            there = self.rows.pop(key, None)
            if kind in ("+I", "+U"):
                if there is not None:
                    return f"{kind} {row}, and {there} is there"
                self.rows[key] = row
            elif there != row:
                return f"{kind} {row}, and {there} is there"
        return None


@dataclass
class Judge:
    """Says what is wrong with the rows that a scan of a table gave, remembering what it has folded so far."""

    table: SoakTable
    _states: dict[int, tuple[int, State]] = field(default_factory=dict)

    def heads(self, rows: list[Row]) -> dict[int, int]:
        """Return the newest commit that is there of every writer that has one."""
        heads: dict[int, int] = {}
        for row in rows:
            if row["k"] % 1000 == HEAD:
                writer = row["k"] // 1000 - 1
                heads[writer] = max(heads.get(writer, 0), row["n"])
        return heads

    def wrong(self, rows: list[Row]) -> str | None:
        """Return how rows differ from every state that the table may be in, or None."""
        expected: State = {}
        for writer, head in self.heads(rows).items():
            for key, row in self._folded(writer, head).items():
                known = expected.get(key)
                # only sums have keys of several writers
                expected[key] = row if known is None else {**row, "n": 0, "a": known["a"] + row["a"]}
        found = sorted(map(_image, rows))
        wanted = sorted(map(_image, expected.values()))
        if found == wanted:
            return None
        extra, lost = _less(found, wanted), _less(wanted, found)
        return (
            f"{self.table.name}: {len(found)} rows, {len(wanted)} expected for heads {self.heads(rows)}; too many: "
            f"{extra[:5]}, missing: {lost[:5]}"
        )

    def _folded(self, writer: int, head: int) -> State:
        done, state = self._states.get(writer, (0, {}))
        if done > head:  # an older state than the last that was asked for
            done, state = 0, {}
        for n in range(done + 1, head + 1):
            self.table.fold(state, n, self.table.commit(writer, n))
        self._states[writer] = (head, state)
        return state


def _image(row: Row) -> tuple[Any, ...]:
    return (row["k"], row["n"] or 0, row["a"] or 0, row["b"] or "")


def _less(a: list[Any], b: list[Any]) -> list[Any]:
    rest = list(b)
    out = []
    for item in a:
        if item in rest:
            rest.remove(item)
        else:
            out.append(item)
    return out


def _random(name: str, writer: int, n: int) -> random.Random:
    return random.Random(f"{name} {writer} {n}")


def _row(writer: int, key: int, n: int | None, a: int | None, b: str | None) -> Row:
    return {"k": (writer + 1) * 1000 + key, "n": n, "a": a, "b": b}


def _upserts(writer: int, n: int) -> list[Change]:
    rng = _random("upserts", writer, n)
    keys = rng.sample(range(1, KEYS_PER_WRITER), rng.randrange(1, 12))
    changes = [
        Change(rng.choice(["+I", "+U", "-D"]), _row(writer, key, n, rng.randrange(10**9), f"{n}")) for key in keys
    ]
    return [*changes, Change("+I", _row(writer, HEAD, n, 0, None))]


def _fold_latest(state: State, n: int, changes: list[Change]) -> None:
    for change in changes:
        if change.kind == "-D":
            state.pop(change.row["k"], None)
        else:
            state[change.row["k"]] = change.row


def _partials(writer: int, n: int) -> list[Change]:
    rng = _random("partials", writer, n)
    changes = []
    for key in rng.sample(range(1, KEYS_PER_WRITER), rng.randrange(1, 12)):
        left = rng.random() < 0.5
        changes.append(Change("+I", _row(writer, key, None, n if left else None, None if left else f"{n}")))
    return [*changes, Change("+I", _row(writer, HEAD, n, None, None))]


def _fold_partials(state: State, n: int, changes: list[Change]) -> None:
    for change in changes:
        known = state.get(change.row["k"], {})
        state[change.row["k"]] = {**change.row, **known, **{c: v for c, v in change.row.items() if v is not None}}


def _additions(writer: int, n: int) -> list[Change]:
    rng = _random("sums", writer, n)
    changes = []
    for key in rng.sample(range(1, SHARED_KEYS), 3):
        changes.append(Change("+I", {"k": key, "n": 0, "a": rng.randrange(1000), "b": None}))
    return [*changes, Change("+I", _row(writer, HEAD, n, 1, None))]


def _fold_sums(state: State, n: int, changes: list[Change]) -> None:
    for change in changes:
        known = state.get(change.row["k"])
        total = change.row["a"] + (0 if known is None else known["a"])
        state[change.row["k"]] = {**change.row, "a": total}


def _lines(writer: int, n: int) -> list[Change]:
    rng = _random("lines", writer, n)
    lines = [Change("+I", _row(writer, key, n, rng.randrange(10**9), None)) for key in range(1, rng.randrange(2, 9))]
    return [*lines, Change("+I", _row(writer, HEAD, n, len(lines), None))]


def _fold_lines(state: State, n: int, changes: list[Change]) -> None:
    for change in changes:
        state[change.row["k"], n] = change.row


_COMPACTS: Final = {"num-sorted-run.compaction-trigger": "4"}
_KEEPS_CHANGELOGS: Final = {"changelog.num-retained.min": "1000000", "changelog.num-retained.max": "1000000"}

TABLES: Final = (
    SoakTable("upserts", {"bucket": "2", **_COMPACTS}, True, _upserts, _fold_latest, rescales=True),
    SoakTable(
        "partials", {"bucket": "2", "merge-engine": "partial-update", **_COMPACTS}, True, _partials, _fold_partials
    ),
    SoakTable(
        "sums",
        {
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.a.aggregate-function": "sum",
            "fields.n.aggregate-function": "max",
            **_COMPACTS,
        },
        True,
        _additions,
        _fold_sums,
    ),
    SoakTable("spread", {"dynamic-bucket.target-row-num": "40", **_COMPACTS}, True, _upserts, _fold_latest),
    SoakTable("postponed", {"bucket": "-2", **_COMPACTS}, True, _upserts, _fold_latest, later=True, rescales=True),
    SoakTable("lines", {}, False, _lines, _fold_lines),
    SoakTable(
        "merged",
        {"bucket": "2", "changelog-producer": "lookup", **_KEEPS_CHANGELOGS},
        True,
        _upserts,
        _fold_latest,
        publishes="after",
        rescales=True,
        merges=True,
    ),
    SoakTable("merged files", {}, False, _upserts, _fold_latest, merges=True),
    SoakTable("merged marks", {"deletion-vectors.enabled": "true"}, False, _upserts, _fold_latest, merges=True),
    SoakTable(
        "looked up",
        {"bucket": "2", "changelog-producer": "lookup", **_KEEPS_CHANGELOGS},
        True,
        _upserts,
        _fold_latest,
        publishes="after",
        rescales=True,
    ),
    SoakTable(
        "recorded",
        {
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.a.aggregate-function": "sum",
            "fields.n.aggregate-function": "max",
            "changelog-producer": "per-record",
            **_COMPACTS,
            **_KEEPS_CHANGELOGS,
        },
        True,
        _additions,
        _fold_sums,
        publishes="with",
    ),
    SoakTable(
        "recorded whole",  # rows could depend on what was merged first, so compactions look up whole rows
        {
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.a.aggregate-function": "sum",
            "sequence.field": "n",
            "changelog-producer": "per-record",
            **_KEEPS_CHANGELOGS,
        },
        True,
        _additions,
        _fold_sums,
        publishes="with",
    ),
    SoakTable("vectors", {"bucket": "1", "deletion-vectors.enabled": "true"}, True, _upserts, _fold_latest, later=True),
)
