"""What writers commit, and which rows a table may show after some commits.

A commit is a function of workload, writer and n. The snapshots say in which order the commits were made. So the state
of every snapshot is known: the commits up to it, applied one after the other, each whole.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

import pyarrow as pa

from merganser.schema.types_text import parse_type
from tests.oracle.engines import Change, EngineOracle

Row = dict[str, Any]
Commit = tuple[int, int]
"""(writer, n): the n-th commit of a writer."""
KEYS: Final = 10


@dataclass(frozen=True)
class Workload:
    """One table, and what is committed to it.

    Attributes:
        changes: the changes of a commit.
        reads_first: a commit reads the table, and follows that very state (strict mode); `changes` gets its rows.
        law: says what is wrong with the rows of a read, whatever is known of the commits; None: nothing is.
        waits: rows show with a later compaction, so a read is the state after some of the commits, the first ones.
        merges_on: a commit merges its changes by this condition, adding balances, and does not write them; "": it does.
    """

    columns: Mapping[str, str]
    key: Sequence[str]
    options: Mapping[str, str]
    changes: Callable[[random.Random, Commit, Sequence[Row]], list[Change]]
    reads_first: bool = False
    law: Callable[[Sequence[Row]], str | None] = lambda rows: None
    waits: bool = False
    merges_on: str = ""

    @property
    def rules(self) -> Mapping[str, str]:
        """The options that say what the changes of several commits make."""
        added = {"merge-engine": "aggregation", "fields.balance.aggregate-function": "sum"}
        return {**self.options, **added} if self.merges_on else self.options

    def create(self, catalog: Any) -> Any:
        """Make the table."""
        options = {"snapshot.num-retained.min": "1000000", **self.options}
        return catalog.create_table("db.t", self.columns, primary_key=list(self.key), options=options)

    def arrow(self, changes: Sequence[Change]) -> pa.Table:
        """Return changes as they are written, their kinds in the column `op`."""
        kinds = {"INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string(), "ARRAY<STRING>": pa.list_(pa.string())}
        columns = {name: pa.array([row[name] for _, row in changes], kinds[k]) for name, k in self.columns.items()}
        return pa.table({**columns, "op": pa.array([kind for kind, _ in changes], pa.string())})


def changes_of(workload: Workload, name: str, commit: Commit, rows: Sequence[Row] = ()) -> list[Change]:
    """Return the changes of a commit: the same in every process."""
    return workload.changes(random.Random(f"{name} {commit}"), commit, rows)


def by_key(rows: Sequence[Row]) -> list[Row]:
    """Return rows in the order of their key."""
    return sorted(rows, key=lambda row: row["k"])


@dataclass
class Judge:
    """Says what is wrong with what reads of a table gave, knowing the order of its commits."""

    name: str
    _oracle: EngineOracle | None = None
    _rows: list[Row] = field(default_factory=list)
    _applied: list[Commit] = field(default_factory=list)
    _states: list[list[Row]] = field(default_factory=lambda: [[]])
    _shown: int = 0

    def wrong(self, commits: Sequence[Commit], rows: Sequence[Row]) -> str | None:
        """Return how rows differ from the state after commits, or None. Asked for longer and longer histories."""
        workload = WORKLOADS[self.name]
        said = workload.law(rows)
        if said is not None:
            return said
        for commit in commits[len(self._applied) :]:
            before = by_key(self._visible()) if workload.reads_first else []
            self._apply(changes_of(workload, self.name, commit, before))
            self._applied.append(commit)
            if workload.waits:
                self._states.append(by_key(self._visible()))
        if workload.waits:
            return self._not_shown(by_key(rows))
        expected, found = self._visible(), list(rows)
        if workload.key:
            expected, found = by_key(expected), by_key(found)
        if expected == found:
            return None
        lost, extra = [row for row in expected if row not in found], [row for row in found if row not in expected]
        return (
            f"{self.name}: after {len(commits)} commits, the last of {commits[-3:]}: missing {lost[:3]}, too many "
            f"{extra[:3]}{'' if lost or extra else ', in another order'}"
        )

    def _not_shown(self, found: list[Row]) -> str | None:
        """Return what is wrong with rows that wait: they are a state at or after the one that was read before."""
        for number in range(self._shown, len(self._states)):
            if self._states[number] == found:
                self._shown = number
                return None
        return (
            f"{self.name}: no state after {self._shown} to {len(self._states) - 1} commits has these {len(found)} "
            f"rows, the last of {self._applied[-3:]}: {found[:3]}"
        )

    def _apply(self, changes: Sequence[Change]) -> None:
        workload = WORKLOADS[self.name]
        if not workload.key:
            self._rows += [dict(row) for _, row in changes]
            return
        if self._oracle is None:
            types = {name: parse_type(kind) for name, kind in workload.columns.items()}
            self._oracle = EngineOracle(types, list(workload.key), workload.rules)
        self._oracle.flush(changes)

    def _visible(self) -> list[Row]:
        return self._rows if self._oracle is None else self._oracle.visible()


def cycle(lists: Iterable[Sequence[str]]) -> str | None:
    """Return commits that no order of commits explains, seen in lists to which each commit appended its name once."""
    after: dict[str, set[str]] = {}
    for names in lists:
        for earlier, later in itertools.pairwise(names):
            after.setdefault(later, set()).add(earlier)
    try:
        TopologicalSorter(after).prepare()
    except CycleError as error:
        return f"commits that follow each other in a circle: {error.args[1][:6]}"
    return None


def _tag(commit: Commit) -> str:
    return f"{commit[0]}.{commit[1]}"


def _tags(rng: random.Random, commit: Commit, rows: Sequence[Row]) -> list[Change]:
    return [("+I", {"k": k, "tag": _tag(commit)}) for k in range(KEYS)]


def _first_rows(rng: random.Random, commit: Commit, rows: Sequence[Row]) -> list[Change]:
    return [("+I", {"k": k, "tag": _tag(commit)}) for k in rng.sample(range(400), 6)]


def _new_keys(rng: random.Random, commit: Commit, rows: Sequence[Row]) -> list[Change]:
    keys = rng.sample(range(3 * commit[1] + KEYS), 6)
    return [(rng.choice(["+I", "+I", "-D"]), {"k": k, "tag": _tag(commit)}) for k in keys]


def _one_tag(rows: Sequence[Row]) -> str | None:
    tags = {row["tag"] for row in rows}
    return f"a read shows {len(tags)} tags: {sorted(tags)}" if len(tags) > 1 else None


def _upserts(rng: random.Random, commit: Commit, rows: Sequence[Row]) -> list[Change]:
    keys = rng.sample(range(KEYS), rng.randrange(1, KEYS))
    return [(rng.choice(["+I", "+U", "-D"]), {"k": k, "tag": _tag(commit)}) for k in keys]


def _some_columns(rng: random.Random, commit: Commit, rows: Sequence[Row]) -> list[Change]:
    def maybe() -> str | None:
        return _tag(commit) if rng.random() < 0.5 else None

    return [("+I", {"k": k, "a": maybe(), "b": maybe()}) for k in rng.sample(range(KEYS), 5)]


def _lists(rng: random.Random, commit: Commit, rows: Sequence[Row]) -> list[Change]:
    return [("+I", {"k": k, "names": _tag(commit), "last": _tag(commit)}) for k in rng.sample(range(KEYS), 4)]


def _no_cycle(rows: Sequence[Row]) -> str | None:
    return cycle([row["names"].split(",") for row in rows if row["names"]])


def _queue(rng: random.Random, commit: Commit, rows: Sequence[Row]) -> list[Change]:
    return [("+I", {"k": 0, "tag": f"{_tag(commit)} {i}"}) for i in range(rng.randrange(1, 4))]


def _whole_runs(rows: Sequence[Row]) -> str | None:
    """The rows of a commit lie together, in order."""
    numbers = [(row["tag"].split()[0], int(row["tag"].split()[1])) for row in rows]
    for (tag, number), (before, last) in zip(numbers, [("", -1), *numbers], strict=False):
        if number != (last + 1 if tag == before else 0):
            return f"row {number} of commit {tag} comes after row {last} of commit {before}"
    return None


def _transfer(rng: random.Random, commit: Commit, rows: Sequence[Row]) -> list[Change]:
    giver, taker = rng.sample(range(KEYS), 2)
    amount = rng.randrange(1, 20)
    return [("+I", {"k": giver, "balance": -amount}), ("+I", {"k": taker, "balance": amount})]


def _grouped_transfer(rng: random.Random, commit: Commit, rows: Sequence[Row]) -> list[Change]:
    return [(kind, row | {"also": row["k"]}) for kind, row in _transfer(rng, commit, rows)]


def _no_money_made(rows: Sequence[Row]) -> str | None:
    total = sum(row["balance"] for row in rows)
    return f"the balances are {total} together" if total else None


def _read_transfer(rng: random.Random, commit: Commit, rows: Sequence[Row]) -> list[Change]:
    """Write new balances, which are functions of those read: a transfer that another one came between is a loss."""
    balances = {row["k"]: row["balance"] for row in rows} or dict.fromkeys(range(KEYS), 0)
    giver, taker = rng.sample(range(KEYS), 2)
    amount = rng.randrange(1, 20)
    balances[giver] -= amount
    balances[taker] += amount
    changed = range(KEYS) if not rows else (giver, taker)
    return [("+I", {"k": k, "balance": balances[k]}) for k in changed]


_TAGS: Final = {"k": "INT", "tag": "STRING"}
_BALANCES: Final = {"k": "INT", "balance": "BIGINT"}
WORKLOADS: Final[dict[str, Workload]] = {
    "tags": Workload(_TAGS, ["k"], {"bucket": "2"}, _tags, law=_one_tag),
    "upserts": Workload(_TAGS, ["k"], {"bucket": "2"}, _upserts),
    "upserts-marked": Workload(
        _TAGS,
        ["k"],
        {"bucket": "1", "deletion-vectors.enabled": "true", "deletion-vectors.merge-on-read": "true"},
        _upserts,
    ),
    "upserts-orc": Workload(_TAGS, ["k"], {"bucket": "1", "file.format": "orc"}, _upserts),
    "new-keys": Workload(_TAGS, ["k"], {"dynamic-bucket.target-row-num": "25"}, _new_keys),
    "first-row": Workload(_TAGS, ["k"], {"bucket": "3", "merge-engine": "first-row"}, _first_rows, waits=True),
    "partial-update": Workload(
        {"k": "INT", "a": "STRING", "b": "STRING"},
        ["k"],
        {"bucket": "2", "merge-engine": "partial-update"},
        _some_columns,
    ),
    "lists": Workload(
        {"k": "INT", "names": "STRING", "last": "STRING"},
        ["k"],
        {
            "bucket": "3",
            "merge-engine": "aggregation",
            "fields.names.aggregate-function": "listagg",
            "fields.last.aggregate-function": "last_value",
        },
        _lists,
        law=_no_cycle,
    ),
    "queue": Workload(_TAGS, [], {"bucket": "1", "bucket-key": "k"}, _queue, law=_whole_runs),
    "transfers": Workload(
        _BALANCES,
        ["k"],
        {"bucket": "3", "merge-engine": "aggregation", "fields.balance.aggregate-function": "sum"},
        _transfer,
        law=_no_money_made,
    ),
    "transfers-marked": Workload(
        _BALANCES,
        ["k"],
        {
            "bucket": "3",
            "merge-engine": "aggregation",
            "fields.balance.aggregate-function": "sum",
            "deletion-vectors.enabled": "true",
        },
        _transfer,
        law=_no_money_made,
        waits=True,
    ),
    "merged-transfers": Workload(
        _BALANCES,
        ["k"],
        {"bucket": "2", "changelog-producer": "lookup"},
        _transfer,
        law=_no_money_made,
        merges_on="target.k = source.k",
    ),
    "merged-by-scan": Workload(
        _BALANCES | {"also": "INT"},
        ["k"],
        {"bucket": "2"},
        _grouped_transfer,
        law=_no_money_made,
        merges_on="target.also = source.k",
    ),
    "read-transfers": Workload(
        _BALANCES, ["k"], {"bucket": "3", "write-only": "true"}, _read_transfer, reads_first=True, law=_no_money_made
    ),
}
