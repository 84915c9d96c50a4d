"""Cases of kind `stream_api`: named shards -> partitions of one bucket, which are rescaled to split and merge.

A label names a commit, which a record tells by the snapshot in its `_sequence`. A case says into which shard a key
goes; here the hash decides, so a key gets the first ending with which it falls there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import merganser as mg
from merganser.codec.hashing import buckets
from merganser.schema import types as t
from tests.conformance.cases import Case
from tests.conformance.outcome import Failure, Skip

_CODES: Final = {"PUT_ROW": "PUT", "UPDATE_ROW": "UPDATE", "DELETE_ROW": "DELETE"}
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class _World:
    def __init__(self, case: Case, folder: Path) -> None:
        self.now = _START
        self.catalog = mg.catalog(str(folder), clock=lambda: self.now)
        self.catalog.create_database("db")
        steps = case["steps"]
        named = {name for step in steps for name in (*step.get("columns", {}), *step.get("delete_all", ()))}
        self.columns = sorted(named) or ["c"]
        self.roots: dict[str, tuple[str, int, int]] = {}
        self.labels: dict[int, str] = {}
        self.saved: dict[str, str] = {}
        self.times: dict[str, datetime] = {}
        self.streams: list[str] = []
        self.table: Any = None

    # steps

    def step(self, step: Mapping[str, Any]) -> None:
        self.now += timedelta(milliseconds=10)
        act = getattr(self, f"_do_{step['op']}", None)
        if act is None:
            raise Skip(f"the runner does not know the step {step['op']}")
        act(step)

    def _do_create_table(self, step: Mapping[str, Any]) -> None:
        columns = ", ".join(f"{name} INT" for name in self.columns)
        options: dict[str, str] = {"bucket": "1"}
        stream = step.get("stream", {})
        if stream.get("enable"):
            options |= {"stream.enabled": "true", "stream.retention": f"{stream['expiration_hours']} h"}
        definition = f"p STRING, k STRING, {columns}, PRIMARY KEY (p, k)"
        self.table = self.catalog.create_table("db.t", definition, partition_by=["p"], options=options)
        self.roots = {name: (name, 1, 0) for name in step["shards"]}
        if stream.get("enable"):
            self.streams.append(self.table.describe_stream().stream_id)

    def _do_enable_stream(self, step: Mapping[str, Any]) -> None:
        self.streams.append(self.table.enable_stream(f"{step['expiration_hours']} h").stream_id)

    def _do_disable_stream(self, step: Mapping[str, Any]) -> None:
        self.table.disable_stream()

    def _do_put_row(self, step: Mapping[str, Any]) -> None:
        row = {"p": self.roots[step["shard"]][0], "k": self._key(step)} | dict.fromkeys(self.columns)
        self._noted(step, self.table.write([row | step["columns"]]))

    def _do_update_row(self, step: Mapping[str, Any]) -> None:
        changes = step["columns"] | dict.fromkeys(step.get("delete_all", ()))
        row = {"p": self.roots[step["shard"]][0], "k": self._key(step)} | changes
        rows = pa.Table.from_pylist([row], schema=pa.schema([
            (name, pa.string() if name in "pk" else pa.int32()) for name in row
        ]))  # fmt: skip
        done = self.table.upsert(rows, columns=list(row))
        self._noted(step, done.snapshot)

    def _do_delete_row(self, step: Mapping[str, Any]) -> None:
        row = {"p": self.roots[step["shard"]][0], "k": self._key(step)}
        self._noted(step, self.table.write([row | dict.fromkeys(self.columns)], kinds=["-D"]))

    def _do_split_shard(self, step: Mapping[str, Any]) -> None:
        partition, total, bucket = self.roots[step["shard"]]
        if (total, bucket) != (1, 0):
            raise Skip("the runner splits shards of one bucket")
        self._rescale(partition, step["into"])

    def _do_merge_shards(self, step: Mapping[str, Any]) -> None:
        partition = self.roots[step["shards"][0]][0]
        self._rescale(partition, [step["into"]])

    def _rescale(self, partition: str, names: Sequence[str]) -> None:
        self.now += timedelta(milliseconds=10)
        self.table.rescale(len(names), partitions=[{"p": partition}])
        self.roots |= {name: (partition, len(names), i) for i, name in enumerate(names)}

    def _do_save_iterator(self, step: Mapping[str, Any]) -> None:
        self.saved[step["as_"]] = self.table.shard_iterator(self._id(step["shard"]), at="trim_horizon")

    def _do_mark_time(self, step: Mapping[str, Any]) -> None:
        self.times[step["as_"]] = self.now

    def _do_advance_clock(self, step: Mapping[str, Any]) -> None:
        self.now += timedelta(**{key: value for key, value in step.items() if key in ("hours", "minutes", "seconds")})

    def _noted(self, step: Mapping[str, Any], snapshot: Any) -> None:
        assert snapshot is not None
        self.labels[snapshot.id] = step.get("label", "")

    def _key(self, step: Mapping[str, Any]) -> str:
        _, total, bucket = self.roots[step["shard"]]
        for ending in count():
            key = f"{step['pk']}{ending or ''}"
            if int(buckets([pa.chunked_array([[key]])], [t.VarChar()], total, "default")[0]) == bucket:
                return key
        raise AssertionError

    # checks

    def check(self, check: Mapping[str, Any]) -> None:
        act = getattr(self, f"_check_{check['check']}", None)
        if act is None:
            raise Skip(f"the runner does not know the check {check['check']}")
        act(check)

    def _check_describe_stream(self, check: Mapping[str, Any]) -> None:
        names = {shard_id: name for name, shard_id in self._ids().items()}
        found = [
            {"id": names[s.shard_id]}
            | ({"parent": names[s.parent_id]} if s.parent_id else {})
            | ({"parent_sibling": names[s.parent_sibling_id]} if s.parent_sibling_id else {})
            for s in self.table.shards()
        ]
        _same("shards", sorted(check["expect_shards"], key=str), sorted(found, key=str))

    def _check_list_stream(self, check: Mapping[str, Any]) -> None:
        _same("streams", [self.streams[-1]], [each.stream_id for each in self.catalog.streams()])

    def _check_read_shard(self, check: Mapping[str, Any]) -> None:
        pages, end = self._pages(self._first(check["shard"]), 1000)
        rows = [row for page in pages for row in page]
        self._judge(check, rows)
        if "expect_closed" in check:
            _same("closed", check["expect_closed"], end is None)

    def _check_read_shard_paged(self, check: Mapping[str, Any]) -> None:
        pages, end = self._pages(self._first(check["shard"]), check["limit"])
        _same("pages", check["expect_pages"], [[self._label(row) for row in page] for page in pages if page])
        self.saved["the end"] = end or ""

    def _check_read_after_end(self, check: Mapping[str, Any]) -> None:
        got = self.table.records(self.saved["the end"])
        self._judge(check, got.records.to_pylist())
        _same("next iterator", check["expect_next_iterator"], got.next_iterator is not None)

    def _check_read_shard_from_time(self, check: Mapping[str, Any]) -> None:
        moment = self.times[check["time"]]
        pages, _ = self._pages(self.table.shard_iterator(self._id(check["shard"]), timestamp=moment), 1000)
        self._judge(check, [row for page in pages for row in page])

    def _check_read_iterator(self, check: Mapping[str, Any]) -> None:
        try:
            pages, _ = self._pages(self.saved[check["iterator"]], 1000)
        except mg.errors.MerganserError as error:
            if error.code not in check.get("expect_error", "").split("|"):
                raise Failure(f"the error has the code {error.code}, not {check.get('expect_error')}") from error
            return
        if "expect_error" in check:
            raise Failure(f"no error {check['expect_error']}")
        self._judge(check, [row for page in pages for row in page])

    def _check_stream_ids_differ(self, check: Mapping[str, Any]) -> None:
        _same("ids that differ", check["expect"], len(set(self.streams)) == len(self.streams) > 1)

    def _check_read_all(self, check: Mapping[str, Any]) -> None:
        done: set[str] = set()
        labels: list[str] = []
        waiting = list(self.table.shards())
        while waiting:
            shard = next(s for s in waiting if not ({w.shard_id for w in waiting} & set(s.parents)))
            waiting.remove(shard)
            pages, _ = self._pages(self.table.shard_iterator(shard.shard_id, at="trim_horizon"), 2)
            labels += [self._label(row) for page in pages for row in page]
            done.add(shard.shard_id)
        for first, second in check["expect_before"]:
            if labels.index(first) > labels.index(second):
                raise Failure(f"{first} came after {second}: {labels}")

    def _first(self, name: str) -> str:
        iterator: str = self.table.shard_iterator(self._id(name), at="trim_horizon")
        return iterator

    def _pages(self, iterator: str, limit: int) -> tuple[list[list[dict[str, Any]]], str | None]:
        pages: list[list[dict[str, Any]]] = []
        at: str | None = iterator
        while at is not None:
            got = self.table.records(at, limit=limit)
            pages.append(got.records.to_pylist())
            at = got.next_iterator
            if not got.may_have_more:
                break
        return pages, at

    def _judge(self, check: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        if "expect_labels" in check:
            _same("labels", check["expect_labels"], [self._label(row) for row in rows])
        if "expect_types" in check:
            _same("types", [_CODES[each] for each in check["expect_types"]], [row["_action"] for row in rows])
        for expected, row in zip(check.get("expect_columns", ()), rows, strict=False):
            names = self.columns if row["_action"] == "PUT" else row["_changed"] or []
            cells = {
                name: ["PUT", row[name]] if row[name] is not None else ["DELETE_ALL_VERSION", None]
                for name in names
                if row["_action"] != "PUT" or row[name] is not None
            }
            _same("columns", expected, cells)

    def _label(self, row: Mapping[str, Any]) -> str:
        return self.labels[row["_sequence"] >> 32]

    def _id(self, name: str) -> str:
        return self._ids()[name]

    def _ids(self) -> dict[str, str]:
        """Return the ids of the shards by their names."""
        found: dict[str, str] = {}
        for name, (partition, total, bucket) in self.roots.items():
            mine = [s for s in self.table.shards() if s.partition["p"] == partition and s.bucket == bucket]
            openings = sorted({s.opened for s in self.table.shards() if s.partition["p"] == partition})
            layouts = [
                sum(s.opened == o and s.partition["p"] == partition for s in self.table.shards()) for o in openings
            ]
            of = [s for s in mine if layouts[openings.index(s.opened)] == total]
            later = [other for other, place in self.roots.items() if place == (partition, total, bucket)]
            if of:
                found[name] = of[min(later.index(name), len(of) - 1)].shard_id
        return found


def run_shard_case(case: Case, folder: Path) -> None:
    """Run a case.

    Raises:
        Failure, Skip: see `outcome`.
    """
    world = _World(case, folder)
    for step in case["steps"]:
        world.step(step)
    for check in case["checks"]:
        world.check(check)


def _same(what: str, expected: Any, actual: Any) -> None:
    if expected != actual:
        raise Failure(f"{what}: expected {expected}, got {actual}")
