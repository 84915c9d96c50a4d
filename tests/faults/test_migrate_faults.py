"""Every storage call of a migration goes wrong once, in every way: the table is whole or not there; a repeat works."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merganser.catalogs.catalog import Catalog
from merganser.errors import AlreadyExistsError
from merganser.handle.table import Table
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import FaultyStorage, Outcome

_names = itertools.count()
FOLDER = "memory://tests/folder"


def _parquet(ids: list[int], kind: pa.DataType) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(ids, kind)}), out)
    return out.getvalue()


def _files() -> dict[str, bytes]:
    catalog = catalog_over(memory_with({}, f"migrate-faults-{next(_names)}"))
    catalog.create_database("db")
    return contents(catalog.env.storage) | {
        f"{FOLDER}/p=1/x.parquet": _parquet([1, 2], pa.int32()),
        f"{FOLDER}/p=2/x.parquet": _parquet([3], pa.int64()),
    }


def _rows(table: Table) -> list[tuple[int, int]]:
    return sorted((row["p"], row["id"]) for row in table.read().to_pylist())


@pytest.mark.parametrize(
    ("copies", "migrate"),
    [
        pytest.param(False, lambda catalog: catalog.migrate(FOLDER, "db.t", how="link"), id="link"),
        pytest.param(False, lambda catalog: catalog.migrate(FOLDER, "db.t", how="copy"), id="copy"),
        pytest.param(
            True, lambda catalog: catalog.migrate(FOLDER, "db.t", how="keep"), id="keep, store without rename"
        ),
    ],
)
def test_a_migration_is_whole_or_not_there_whichever_call_goes_wrong(
    copies: bool, migrate: Callable[[Catalog], Table]
) -> None:
    files = _files()
    every = [(1, 1), (1, 2), (2, 3)]

    def work(storage: Storage) -> Table:
        return migrate(catalog_over(storage))

    def check(storage: Storage, outcome: Outcome[Table]) -> None:
        catalog = catalog_over(storage)
        assert contents(storage, FOLDER) == {path: data for path, data in files.items() if path.startswith(FOLDER)}
        there = catalog.list_tables("db")
        if outcome.result is not None:
            assert there == ["t"]
        if not there:
            try:
                migrate(catalog)
            except AlreadyExistsError as error:  # without a rename, a copy may have been stopped halfway
                assert copies
                assert "catalog.drop_table('db.t')" in str(error)
                catalog.drop_table("db.t")
                migrate(catalog)
        table = catalog.table("db.t")
        assert isinstance(table, Table)
        assert _rows(table) == every
        assert {found.code for found in table.check()} <= {"unsure"}
        table.write(pa.table({"id": [4], "p": [2]}))
        assert _rows(catalog_over(storage).table("db.t")) == [*every, (2, 4)]

    def build() -> Storage:
        return memory_with(files, f"migrate-fault-{next(_names)}")

    runs = run_some(build, work, check, copies=copies)
    assert runs > 60


@pytest.mark.parametrize("copies", [False, True], ids=["rename", "store without rename"])
def test_a_clone_is_whole_or_not_there_whichever_call_goes_wrong(copies: bool) -> None:
    catalog = catalog_over(memory_with({}, f"clone-faults-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table("db.s", "k INT, v INT", ["k"], options={"bucket": "1", "changelog-producer": "input"})
    for v in (1, 2):
        table.write([{"k": 1, "v": v}, {"k": v + 1, "v": v}])
    files, rows = contents(catalog.env.storage), sorted(map(repr, table.read().to_pylist()))

    def work(storage: Storage) -> Table:
        return catalog_over(storage).clone("db.s", "db.t")

    def check(storage: Storage, outcome: Outcome[Table]) -> None:
        catalog = catalog_over(storage)
        if "t" not in catalog.list_tables("db"):
            assert outcome.result is None
            try:
                catalog.clone("db.s", "db.t")
            except AlreadyExistsError:  # without a rename, a copy may have been stopped halfway
                assert copies
                catalog.drop_table("db.t")
                catalog.clone("db.s", "db.t")
        for name in ("s", "t"):
            found = catalog.table(f"db.{name}")
            assert isinstance(found, Table)
            assert sorted(map(repr, found.read().to_pylist())) == rows
            assert found.check() == ()
        catalog.drop_table("db.s")
        assert sorted(map(repr, catalog_over(storage).table("db.t").read().to_pylist())) == rows

    def build() -> Storage:
        return memory_with(files, f"clone-fault-{next(_names)}")

    assert run_some(build, work, check, copies=copies) > 40


@pytest.mark.parametrize("how", ["link", "keep"])
def test_a_migration_opens_each_file_once_and_writes_none(how: str) -> None:
    storage = FaultyStorage(memory_with(_files(), f"migrate-cost-{next(_names)}"))
    catalog_over(storage).migrate(FOLDER, "db.t", how=how)
    looks = [call.verb for call in storage.calls if call.path.startswith(FOLDER) and call.verb != "list"]
    assert looks == ["open"] * 2 + ["copy"] * (how == "link")
    assert [call.path for call in storage.calls if call.verb == "writer"] == []
