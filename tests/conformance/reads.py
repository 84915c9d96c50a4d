"""One read of a case -> how its result differs from what was expected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

import merganser as mg
from tests.conformance.column_types import Type
from tests.conformance.compare import changelog_difference, in_order, rows_difference
from tests.conformance.dialects import stream_options
from tests.conformance.outcome import Failure, described, is_refusal, method, not_built
from tests.conformance.streams import Follower, started
from tests.conformance.values import expected, rows_of
from tests.conformance.world import World

Read = Mapping[str, Any]
KINDS: Final = ("+I", "-U", "+U", "-D")
KIND_COLUMN: Final = "_row_kind"
_FORMAT_SYSTEM_TABLES: Final = frozenset({
    "snapshots", "schemas", "options", "audit_log", "binlog", "files", "tags", "branches", "consumers", "manifests",
    "partitions", "buckets", "statistics", "aggregation_fields", "ro", "table_indexes", "file_key_ranges",
    "physical_files_size", "row_tracking",
})  # fmt: skip


class Reading:
    """One read of a case, begun after one step and ended after another."""

    def __init__(self, world: World, read: Read, last_step: int) -> None:
        self.world = world
        self.read = read
        self.begins = read.get("after_step", last_step)
        self.ends = max(self.begins, read.get("until_step", last_step)) if read["kind"] == "stream" else self.begins
        self._follower: Follower | None = None
        self._refused: mg.errors.MerganserError | None = None

    def begin(self) -> None:
        """Start a reader that goes on while later steps run; other reads happen when they end."""
        if self.begins == self.ends or self.read["kind"] != "stream":
            return
        options = stream_options(self.world.case, self.read.get("options", {}))
        try:
            self._follower = Follower(lambda: started(self.world.table(), options, follow=True))
        except mg.errors.MerganserError as error:
            self._refused = error

    def close(self) -> None:
        """Let go of what `begin` started."""
        if self._follower is not None:
            self._follower.stop()

    def end(self) -> str | None:
        """Return how the result differs from what was expected, or None.

        Raises:
            Skip: merganser does not have what it needs yet.
        """
        try:
            difference = self._difference()
        except mg.errors.UnsupportedError:
            raise
        except mg.errors.MerganserError as error:
            if "expect_error" in self.read and is_refusal(error):
                return None
            return f"unexpected {described(error)}"
        if "expect_error" in self.read:
            return f"an error about {self.read['expect_error']!r} was expected, and none was raised"
        return difference

    def _difference(self) -> str | None:
        return _KINDS[self.read["kind"]](self)

    def _table(self) -> mg.Table:
        table = self.world.table()
        options = self.read.get("options")
        return table.with_options(options) if options else table

    # kinds

    def _batch(self) -> str | None:
        return self._compare_rows(self.world.door.read(self._table()), self._names())

    def _names(self) -> list[str]:
        return self.read.get("columns") or list(self.world.table().schema.names)

    def _stream(self) -> str | None:
        wanted = self.read.get("expect_changelog", [])
        if wanted and self.world.fluss and not self.world.translation.per_record:
            raise not_built("a changelog of every record (Fluss)")
        if self._refused is not None:
            raise self._refused
        if self._follower is not None:
            plans: Iterable[pa.Table] = self._follower.finished(len(wanted))
        else:
            options = stream_options(self.world.case, self.read.get("options", {}))
            plans = self.world.door.stream(self.world.table(), options)
        if "expect_changelog" not in self.read:
            return None
        found = [records_of(self.world, plan) for plan in plans]
        return difference_of_changelogs(self.world, found, wanted, streamed=self._follower is None)

    def _system(self) -> str | None:
        name = self.read["table"]
        try:
            found = method(self._table(), "system")(name).to_arrow()
        except mg.errors.NotFoundError:
            if name in _FORMAT_SYSTEM_TABLES:
                raise not_built(f"system table {name}") from None
            raise
        return self._compare_rows(found, self.read.get("columns", found.column_names))

    def _system_stream(self) -> str | None:
        name = self.read["table"]
        try:
            owner = self.world.catalog.table(f"db.t${name}")
            owner.read().to_arrow()
        except mg.errors.NotFoundError:
            if name in _FORMAT_SYSTEM_TABLES:
                raise not_built(f"system table {name}") from None
            raise
        method(owner, "stream", "streams of system tables")
        plans = list(started(owner, dict(self.read.get("options", {})), follow=False))
        if not plans:
            return self._compare_rows(None, self.read.get("columns", []))
        found = pa.concat_tables(plans)
        return self._compare_rows(found, self.read.get("columns", found.column_names))

    def _lookup(self) -> str | None:
        return self._compare_rows(method(self._table(), "lookup")([self._key()]), self._names())

    def _prefix_lookup(self) -> str | None:
        return self._compare_rows(method(self._table(), "lookup_prefix")(self._key()), self._names())

    def _limit(self) -> str | None:
        found = self.world.door.read(self._table(), limit=self.read.get("limit"))
        count = self.read.get("expect_row_count", self.read.get("expect_count"))
        if count is not None and found.num_rows != count:
            return f"{count} rows were expected, {found.num_rows} came"
        return self._compare_rows(found, self._names())

    def _count(self) -> str | None:
        count = self.read.get("expect_count", self.read.get("expect_row_count"))
        found = self._table().read().count()
        return None if found == count else f"a count of {count} was expected, it is {found}"

    def _key(self) -> dict[str, Any]:
        return self.world.spec(self.read["key"])

    def _compare_rows(self, found: pa.Table | None, names: Sequence[str]) -> str | None:
        if "expect_rows" not in self.read:
            return None
        subset = self.read.get("compare") == "subset"
        types: dict[str, Type] = {}
        if self.read["kind"] not in ("system", "system_stream"):
            types = dict(self.world.columns())
        return difference_of_rows(
            self.world,
            found,
            self.read["expect_rows"],
            [(name, types.get(name)) for name in names],
            ordered=self.read.get("ordered", False),
            subset=subset,
        )


_KINDS: Final[Mapping[str, Callable[[Reading], str | None]]] = {
    "batch": Reading._batch,
    "stream": Reading._stream,
    "system": Reading._system,
    "system_stream": Reading._system_stream,
    "lookup": Reading._lookup,
    "prefix_lookup": Reading._prefix_lookup,
    "limit": Reading._limit,
    "count": Reading._count,
}


def difference_of_rows(
    world: World,
    found: pa.Table | None,
    wanted: Sequence[Sequence[Any]],
    columns: Sequence[tuple[str, Type | None]],
    *,
    ordered: bool = False,
    subset: bool = False,
) -> str | None:
    """Return how rows differ from JSON rows, or None."""
    lacking = [] if found is None else [name for name, _ in columns if name not in found.column_names]
    if found is not None and lacking:
        return f"the result has no column '{lacking[0]}': it has {', '.join(found.column_names)}"
    rows = [] if found is None else rows_of(found, columns)
    return rows_difference(
        rows,
        expected_rows(wanted, [kind for _, kind in columns], world.door.micros),
        unordered=_multisets(world, [name for name, _ in columns]),
        ordered=ordered,
        subset=subset,
    )


def expected_rows(wanted: Sequence[Sequence[Any]], kinds: Sequence[Type | None], micros: bool) -> list[list[Any]]:
    """Return JSON rows in the plain form."""
    for row in wanted:
        if len(row) != len(kinds):
            raise Failure(f"{row!r:.80} has {len(row)} values, the result has {len(kinds)} columns")
    return [[expected(value, kind, micros=micros) for value, kind in zip(row, kinds, strict=True)] for row in wanted]


def records_of(world: World, published: pa.Table) -> list[list[Any]]:
    """Return records [kind, values of the table's columns now] of an Arrow table with the column of kinds."""
    columns = world.columns()
    if KIND_COLUMN not in published.column_names:
        raise Failure(f"the records have no column '{KIND_COLUMN}': they have {', '.join(published.column_names)}")
    kinds = [KINDS[k] if isinstance(k, int) else k for k in published.column(KIND_COLUMN).to_pylist()]
    lacking = [name for name, _ in columns if name not in published.column_names]
    if lacking:
        raise Failure(f"the records have no column '{lacking[0]}': they have {', '.join(published.column_names)}")
    return [[kind, *row] for kind, row in zip(kinds, rows_of(published, columns), strict=True)]


def difference_of_changelogs(
    world: World,
    found: list[list[list[Any]]],
    wanted: Sequence[Sequence[Sequence[Any]]],
    notes: list[str] | None = None,
    *,
    streamed: bool = False,
) -> str | None:
    """Return how groups of records differ from JSON records, or None; an order between keys is only noted.

    Args:
        streamed: the records came through the door.
    """
    columns = world.columns()
    kinds = [None, *(kind for _, kind in columns)]
    names = [name for name, _ in columns]
    groups = [expected_rows(group, kinds, streamed and world.door.micros) for group in wanted]
    if streamed and world.door.joins:
        found, groups = ([[row for part in parts for row in part]] for parts in (found, groups))
    key = world.table().primary_key
    unordered = [i + 1 for i in _multisets(world, names)]
    difference = changelog_difference(
        found, groups, key=[names.index(name) + 1 for name in key] if key else None, unordered=unordered
    )
    if difference is None and notes is not None and not world.table().partition_by and not in_order(found, groups):
        notes.append("the records of different keys come in another order than they are written down")
    return difference


def _multisets(world: World, names: Sequence[str]) -> list[int]:
    """Return the positions of the arrays that may come in any order."""
    unordered = world.case.get("compare", {})
    return [i for i, name in enumerate(names) if unordered.get(name) == "multiset"]
