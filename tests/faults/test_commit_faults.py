"""Every storage call of every kind of write goes wrong once, in every way. Whatever happens, the table is as it
was before or as it is after, what was committed stays readable, and a repeat is applied once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from merganser.catalogs.catalog import Catalog
from merganser.errors import CommitUnknownError, MerganserError, NotFoundError, StorageError
from merganser.meta.seal import unsealed_json
from merganser.meta.snapshot import Snapshot
from merganser.storage.local import LocalStorage
from merganser.storage.protocol import Storage
from merganser.write.begin import begin
from merganser.write.job import messages_of
from tests.faults import run_some
from tests.kit.builders import WAREHOUSE, catalog_over, contents, memory_with
from tests.kit.faulty import Fault, FaultyStorage, Outcome, Stopped, run_every
from tests.oracle.tables import DeduplicateOracle

Rows = list[tuple[str, dict[str, Any]]]
SCHEMA = {"p": "STRING", "k": "INT", "v": "STRING"}
INDEXED = {"file-index.bloom-filter.columns": "k,v", "file-index.in-manifest-threshold": "1 b"}
_names = itertools.count()


def _row(p: str, k: int, v: str | None) -> dict[str, Any]:
    return {"p": p, "k": k, "v": v}


FIRST: Rows = [("+I", _row("a", k, f"first {k}")) for k in range(6)] + [("+I", _row("b", 1, "first b"))]
SECOND: Rows = [("+I", _row("a", 2, "second")), ("-D", _row("a", 3, None)), ("+I", _row("c", 9, "new"))]
THIRD: Rows = [("+I", _row("b", 7, "third"))]


@dataclass(frozen=True)
class Scenario:
    """A write, and the table before and after.

    Attributes:
        before: commits that are there already.
        work: what is tried, on a catalog whose storage goes wrong.
        apply: the same on the oracle.
        user: commit user of the work, when it names one.
        options: table options.
    """

    before: tuple[Rows, ...]
    work: Callable[[Catalog], Any]
    apply: Callable[[DeduplicateOracle], None]
    user: str | None = None
    options: tuple[tuple[str, str], ...] = ()


def _split(rows: Rows) -> tuple[list[dict[str, Any]], list[str]]:
    return [row for _, row in rows], [kind for kind, _ in rows]


def _write(catalog: Catalog, rows: Rows, **how: Any) -> Any:
    data, kinds = _split(rows)
    return catalog.table("db.t").write(data, kinds=kinds, **how)


def _batches(catalog: Catalog) -> Any:
    with catalog.table("db.t").writer(commit_user="job") as writer:
        for batch in (SECOND, THIRD):
            writer.write(*_split(batch))
        return writer.commit(identifier=1)


MERGING = (
    ("manifest.merge-min-count", "2"),
    ("manifest.full-compaction-threshold-size", "1 b"),
    ("manifest.target-file-size", "1 kb"),
)
WRITES = {
    "first commit": Scenario(
        (), lambda c: _write(c, FIRST, commit_user="job", identifier=1), lambda o: o.write(FIRST), "job"
    ),
    "upsert": Scenario(
        (FIRST,), lambda c: _write(c, SECOND, commit_user="job", identifier=1), lambda o: o.write(SECOND), "job"
    ),
    "upsert with file indexes": Scenario(
        (FIRST,), lambda c: _write(c, SECOND), lambda o: o.write(SECOND), options=tuple(INDEXED.items())
    ),
    "upsert without identifier": Scenario((FIRST,), lambda c: _write(c, SECOND), lambda o: o.write(SECOND)),
    "overwrite of a partition": Scenario(
        (FIRST, SECOND),
        lambda c: _write(c, THIRD, overwrite={"p": "b"}, commit_user="job", identifier=1),
        lambda o: o.overwrite({"p": "b"}, THIRD),
        "job",
    ),
    "overwrite of the table": Scenario(
        (FIRST, SECOND), lambda c: _write(c, THIRD, overwrite={}), lambda o: o.overwrite({}, THIRD)
    ),
    "truncate": Scenario((FIRST,), lambda c: c.table("db.t").truncate(), lambda o: o.overwrite({}, [])),
    "commit that merges manifests": Scenario(
        (FIRST, SECOND, THIRD),
        lambda c: _write(c, SECOND, commit_user="job", identifier=1),
        lambda o: o.write(SECOND),
        "job",
        MERGING,
    ),
    "overwrite that merges manifests": Scenario(
        (FIRST, SECOND, THIRD),
        lambda c: _write(c, THIRD, overwrite="dynamic"),
        lambda o: o.overwrite_dynamic(THIRD),
        None,
        MERGING,
    ),
    "two batches": Scenario((FIRST,), _batches, lambda o: o.write(SECOND + THIRD), "job"),
}


def _base(scenario: Scenario) -> tuple[dict[str, bytes], DeduplicateOracle]:
    catalog = catalog_over(memory_with({}, f"faults-{next(_names)}"))
    catalog.create_database("db")
    catalog.create_table(
        "db.t",
        SCHEMA,
        primary_key=["p", "k"],
        partition_by=["p"],
        options={"bucket": "2", "manifest.merge-min-count": "9", **dict(scenario.options)},
    )
    oracle = DeduplicateOracle(key=["p", "k"], partition=["p"])
    for rows in scenario.before:
        _write(catalog, rows)
        oracle.write(rows)
    return contents(catalog.env.storage), oracle


def _visible(storage: Storage, root: str = WAREHOUSE) -> list[dict[str, Any]]:
    return _sorted(catalog_over(storage, root=root).table("db.t").read().to_pylist())


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


def _check_write(
    scenario: Scenario, files: dict[str, bytes], before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> Callable[[Storage, Outcome[Any]], None]:
    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        found = _visible(storage)
        assert found in (before, after)
        if outcome.error is None:
            assert isinstance(outcome.result, Snapshot)
            assert found == after
        elif not isinstance(outcome.error, CommitUnknownError | Stopped):
            assert found == before, f"{outcome.error!r} was raised, and the commit is there"
        left = contents(storage)
        assert all(
            left[path] == data for path, data in files.items() if not path.endswith("/LATEST")
        )  # nothing live was deleted
        scenario.work(catalog_over(storage))  # the repeat
        assert _visible(storage) == after
        if scenario.user is not None:
            snapshots = catalog_over(storage).table("db.t").snapshots()
            assert [s.commit_identifier for s in snapshots if s.commit_user == scenario.user] == [1]

    return check


def _expected(scenario: Scenario, oracle: DeduplicateOracle) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    before = _sorted(oracle.visible())
    scenario.apply(oracle)
    return before, _sorted(oracle.visible())


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_all_or_nothing_whichever_call_goes_wrong(name: str) -> None:
    scenario = WRITES[name]
    files, oracle = _base(scenario)
    check = _check_write(scenario, files, *_expected(scenario, oracle))
    storage = f"faults-{next(_names)}"
    runs = run_some(lambda: memory_with(files, storage), lambda faulty: scenario.work(catalog_over(faulty)), check)
    assert runs > 40


OTHER: Rows = [("+I", _row("a", k, "other")) for k in (1, 2, 3)] + [("+I", _row("c", 9, "other"))]


def _overlapped(catalog: Catalog) -> Snapshot | None:
    """Write SECOND, and let another writer, whose store is well, commit OTHER before this one finishes."""
    table = catalog.table("db.t")
    store = catalog.env.storage
    transaction = begin(table.definition, table.env, commit_user="job", identifier=1)
    rows = pa.Table.from_pylist([{**row, "op": kind} for kind, row in SECOND])
    messages = messages_of(transaction.table, transaction.env, [transaction.job(kinds="op").run([rows])])
    well = catalog_over(store.inner if isinstance(store, FaultyStorage) else store)
    _write(well, OTHER, commit_user="other", identifier=1)
    return transaction.finish(messages)


def test_a_write_that_overlaps_with_another_is_all_or_nothing_whichever_call_goes_wrong() -> None:
    files, oracle = _base(Scenario((FIRST,), _overlapped, lambda o: None))
    states = [_sorted(oracle.visible())]
    for rows in (OTHER, SECOND):
        oracle.write(rows)
        states.append(_sorted(oracle.visible()))

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        found = _visible(storage)
        assert found in states
        if outcome.error is None:
            assert found == states[2]
        elif not isinstance(outcome.error, CommitUnknownError | Stopped):
            assert found != states[2], f"{outcome.error!r} was raised, and the commit is there"
        _overlapped(catalog_over(storage))
        assert _visible(storage) == states[2]
        table = catalog_over(storage).table("db.t")
        assert sorted(snapshot.commit_user for snapshot in table.snapshots())[-2:] == ["job", "other"]
        if isinstance(outcome.error, Stopped):
            assert [found for found in table.check() if found.is_fault] == []

    storage = f"faults-{next(_names)}"
    runs = run_some(lambda: memory_with(files, storage), lambda faulty: _overlapped(catalog_over(faulty)), check)
    assert runs > 100


@pytest.mark.campaign(1 / 6)
@pytest.mark.parametrize("call_count", [2, 4, 7])
@pytest.mark.parametrize("name", ["upsert", "overwrite of the table"])
def test_a_commit_is_all_or_nothing_when_the_store_stays_away_for_several_calls(name: str, call_count: int) -> None:
    scenario = WRITES[name]
    files, oracle = _base(scenario)
    check = _check_write(scenario, files, *_expected(scenario, oracle))
    storage = f"faults-{next(_names)}"
    run_every(
        lambda: memory_with(files, storage),
        lambda faulty: scenario.work(catalog_over(faulty)),
        check,
        faults=(Fault.FAIL, Fault.LOSE_REPLY),
        call_count=call_count,
        path_part="/snapshot/snapshot-",
    )


class _Interleaved(FaultyStorage):
    """Loses the reply of the first create of a snapshot, and fails every read-back after it."""

    def create(self, path: str, data: bytes) -> None:
        self.inner.create(path, data)
        if "/snapshot-" in path:
            raise StorageError("the reply was lost", path=path)

    def read(self, path: str) -> bytes:
        if self.inner.exists(path) and "/snapshot-2" in path:
            raise StorageError("the network is down", path=path)
        return self.inner.read(path)


def test_a_commit_whose_reply_and_read_backs_are_lost_is_unknown_and_keeps_its_files() -> None:
    scenario = WRITES["upsert"]
    files, oracle = _base(scenario)
    _, after = _expected(scenario, oracle)
    storage = memory_with(files, f"faults-{next(_names)}")
    with pytest.raises(CommitUnknownError) as caught:
        scenario.work(catalog_over(_Interleaved(storage)))
    assert caught.value.context["snapshot"] == 2
    assert "identifier 1" in str(caught.value)
    assert _visible(storage) == after


@pytest.mark.parametrize("identifier", [None, 1])
def test_a_writer_repeats_a_commit_of_unknown_outcome_with_the_same_rows(identifier: int | None) -> None:
    """The rows of a commit that failed stay with the writer, so that commit() can be called again."""
    scenario = WRITES["upsert"]
    files, oracle = _base(scenario)
    _, after = _expected(scenario, oracle)
    for fault in (Fault.FAIL, Fault.LOSE_REPLY):
        storage = memory_with(files, f"faults-{next(_names)}")
        flaky = _Flaky(storage, fault)
        with catalog_over(flaky).table("db.t").writer(commit_user="job") as writer:
            writer.write(*_split(SECOND))
            with pytest.raises(CommitUnknownError):
                writer.commit(identifier)
            flaky.well = True
            snapshot = writer.commit(identifier)
        assert snapshot is not None
        assert snapshot.id == 2
        assert _visible(storage) == after
        assert len(catalog_over(storage).table("db.t").snapshots()) == 2


class _Flaky(FaultyStorage):
    """Fails to create snapshot 2, and from then on to read it, until it is well again."""

    def __init__(self, inner: Storage, fault: Fault) -> None:
        super().__init__(inner)
        self.fault = fault
        self.well = False
        self.tried = False

    def create(self, path: str, data: bytes) -> None:
        if "/snapshot-" not in path or self.well:
            return self.inner.create(path, data)
        self.tried = True
        if self.fault is Fault.LOSE_REPLY:
            self.inner.create(path, data)
        raise StorageError("the network is down", path=path)

    def read(self, path: str) -> bytes:
        if "/snapshot-2" in path and self.tried and not self.well:
            raise StorageError("the network is down", path=path)
        return self.inner.read(path)


def test_a_writer_repeats_a_commit_that_failed_for_certain() -> None:
    scenario = WRITES["upsert"]
    files, oracle = _base(scenario)
    _, after = _expected(scenario, oracle)
    storage = memory_with(files, f"faults-{next(_names)}")
    faulty = FaultyStorage(storage)
    with catalog_over(faulty).table("db.t").writer(commit_user="job") as writer:
        writer.write(*_split(SECOND))
        faulty._state.plan = _failing("/manifest/")
        with pytest.raises(StorageError):
            writer.commit(1)
        faulty._state.plan = None
        writer.commit(1)
    assert _visible(storage) == after


def test_leaving_a_writer_after_a_failed_commit_removes_its_files() -> None:
    files, _ = _base(WRITES["upsert"])
    storage = memory_with(files, f"faults-{next(_names)}")
    faulty = FaultyStorage(storage)
    with catalog_over(faulty).table("db.t").writer() as writer:
        writer.write(*_split(SECOND))
        faulty._state.plan = _failing("/manifest/", verbs=frozenset({"replace"}))
        with pytest.raises(StorageError):
            writer.commit()
        faulty._state.plan = None
    assert contents(storage) == files


def _failing(path_part: str, verbs: frozenset[str] = frozenset()) -> Any:
    from tests.kit.faulty import Plan

    return Plan(Fault.FAIL, 1, 1_000, verbs, path_part)


def test_rows_that_do_not_fit_are_named_although_cleaning_up_fails_too() -> None:
    files, _ = _base(WRITES["upsert"])
    faulty = FaultyStorage(memory_with(files, f"faults-{next(_names)}"))
    from merganser.errors import InvalidInputError

    with catalog_over(faulty).table("db.t").writer() as writer:
        writer.write(*_split(SECOND))
        faulty._state.plan = _failing("")
        with pytest.raises(InvalidInputError, match="'k'"):
            writer.write([{"p": "a", "k": None, "v": "x"}])


# tables come and go


def _states(storage: Storage) -> dict[str, list[dict[str, Any]] | None]:
    out: dict[str, list[dict[str, Any]] | None] = {}
    for name in ("t", "u"):
        try:
            out[name] = _sorted(catalog_over(storage).table(f"db.{name}").read().to_pylist())
        except NotFoundError:
            out[name] = None
    return out


def _settled(storage: Storage, outcome: Outcome[Any], before: Any, after: Any) -> None:
    found = _states(storage)
    assert found in (before, after)
    if outcome.error is None:
        assert found == after
    elif not isinstance(outcome.error, CommitUnknownError | Stopped):
        assert found == before or "gone" in str(outcome.error), f"{outcome.error!r} was raised, and it was done"


def test_creating_a_table_is_all_or_nothing() -> None:
    catalog = catalog_over(memory_with({}, f"faults-{next(_names)}"))
    catalog.create_database("db")
    files = contents(catalog.env.storage)

    def work(storage: Storage) -> Any:
        return catalog_over(storage).create_table("db.t", SCHEMA, primary_key=["k"], options={"bucket": "1"})

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        _settled(storage, outcome, {"t": None, "u": None}, {"t": [], "u": None})
        made = catalog_over(storage).create_table(
            "db.t", SCHEMA, primary_key=["k"], options={"bucket": "1"}, if_not_exists=True
        )
        made.write([_row("a", 1, "x")])
        assert made.read().count() == 1

    name = f"faults-{next(_names)}"
    assert run_every(lambda: memory_with(files, name), work, check) > 12


def _with_schemas(files: dict[str, bytes], schemas: int) -> dict[str, bytes]:
    schema_0 = unsealed_json(files[f"{WAREHOUSE}/db.db/t/schema/schema-0"])
    return files | {
        f"{WAREHOUSE}/db.db/t/schema/schema-{number}": schema_0.replace(
            b'"id": 0,\n  "fields"', b'"id": %d,\n  "fields"' % number
        )
        for number in range(1, schemas)
    }


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("schemas", [1, 3])
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("verbs", [frozenset(), frozenset({"delete_tree"})])
def test_dropping_a_table_is_all_or_nothing_and_its_name_is_free_again(
    schemas: int, copies: bool, verbs: frozenset[str]
) -> None:
    files, oracle = _base(WRITES["upsert"])
    files = _with_schemas(files, schemas)
    rows = _sorted(oracle.visible())
    name = f"faults-{next(_names)}"

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        _settled(storage, outcome, {"t": rows, "u": None}, {"t": None, "u": None})
        catalog = catalog_over(storage)
        catalog.drop_table("db.t", if_exists=True)
        made = catalog.create_table("db.t", {"other": "INT"})
        assert made.read().to_pylist() == []
        assert made.snapshots() == ()
        made.write([{"other": 1}])
        assert made.read().to_pylist() == [{"other": 1}]

    run_every(
        lambda: memory_with(files, name),
        lambda storage: catalog_over(storage).drop_table("db.t"),
        check,
        copies=copies,
        verbs=verbs,
        call_count=2 if verbs else 1,  # a removal that fails is tried twice
    )


def test_renaming_a_table_is_all_or_nothing() -> None:
    files, oracle = _base(WRITES["upsert"])
    rows = _sorted(oracle.visible())
    name = f"faults-{next(_names)}"

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        _settled(storage, outcome, {"t": rows, "u": None}, {"t": None, "u": rows})

    run_every(
        lambda: memory_with(files, name), lambda storage: catalog_over(storage).rename_table("db.t", "db.u"), check
    )


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("schemas", [1, 3])
def test_renaming_a_table_by_copies_never_loses_it_and_what_is_left_can_be_dropped(schemas: int) -> None:
    """As in an object store: both names may hold the whole table after a crash, and none ever half of it."""
    files, oracle = _base(WRITES["upsert"])
    files = _with_schemas(files, schemas)
    rows = _sorted(oracle.visible())
    name = f"faults-{next(_names)}"
    seen = set()

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        storage.delete(path for path in contents(storage) if path.endswith(".tmp"))  # puts leave no such thing
        found = _states(storage)
        assert all(state in (None, rows) for state in found.values())
        assert rows in found.values()
        if outcome.error is None:
            assert found == {"t": None, "u": rows}
        elif not isinstance(outcome.error, Stopped) and found["t"] is None:
            assert "drop_table('db.t'" in str(outcome.error)
        seen.add((found["t"] is None, found["u"] is None))
        keep, remove = ("t", "u") if found["t"] is not None else ("u", "t")
        catalog = catalog_over(storage)
        catalog.drop_table(f"db.{remove}", if_exists=True)
        assert _states(storage)[keep] == rows
        assert not contents(storage, f"{WAREHOUSE}/db.db/{remove}")
        catalog.rename_table(f"db.{keep}", f"db.{remove}")
        assert _states(storage)[remove] == rows

    run_every(
        lambda: memory_with(files, name),
        lambda storage: catalog_over(storage).rename_table("db.t", "db.u", no_writers=True),
        check,
        copies=True,
    )
    assert seen == {(False, True), (False, False), (True, False)}


def test_what_is_left_of_a_dropped_table_never_becomes_part_of_a_new_one() -> None:
    """A writer that commits while its table is dropped may leave a snapshot behind."""
    files, _ = _base(WRITES["upsert"])
    left = {path: data for path, data in files.items() if "/schema/" not in path}
    catalog = catalog_over(memory_with(left, f"faults-{next(_names)}"))
    assert catalog.list_tables("db") == []
    with pytest.raises(MerganserError, match="drop_table") as caught:
        catalog.create_table("db.t", {"other": "INT"})
    assert caught.value.code == "already-exists"
    catalog.drop_table("db.t")
    assert catalog.create_table("db.t", {"other": "INT"}).read().count() == 0


# the same on a disk


@pytest.mark.campaign(1 / 2)
@pytest.mark.parametrize("fault", list(Fault))
def test_an_upsert_on_a_local_disk_is_all_or_nothing(fault: Fault, tmp_path: Path) -> None:
    scenario = WRITES["upsert"]
    files, oracle = _base(scenario)
    before, after = _expected(scenario, oracle)
    numbers = itertools.count()

    def build() -> Storage:
        root = tmp_path / str(next(numbers))
        storage = LocalStorage(sync=False)
        for path, data in files.items():
            storage.create(path.replace(WAREHOUSE, str(root)), data)
        return storage

    def newest() -> str:
        return str(max(tmp_path.iterdir(), key=lambda path: int(path.name)))

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        here = newest()
        found = _visible(storage, here)
        assert found in (before, after)
        if outcome.error is None:
            assert found == after
        elif not isinstance(outcome.error, CommitUnknownError | Stopped):
            assert found == before
        scenario.work(catalog_over(storage, root=here))
        assert _visible(storage, here) == after

    def work(faulty: FaultyStorage) -> Any:
        here = newest()
        return scenario.work(catalog_over(faulty, root=here))

    run_every(build, work, check, faults=[fault])
