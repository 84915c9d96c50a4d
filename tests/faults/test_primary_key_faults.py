"""A table gets a primary key, and every storage call goes wrong once, in every way: the table is the one of before or
the one of after, for readers, for writers, and for who tries again."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import merganser as mg
from merganser import changes as c
from merganser.errors import ConflictError, InvalidInputError
from merganser.meta.schemas import SchemaStore
from merganser.storage.protocol import Storage
from tests.faults import run_some
from tests.kit.builders import catalog_over, contents, memory_with
from tests.kit.faulty import Outcome

_names = itertools.count()
CHANGES = [c.set_primary_key(["k"]), c.set_option("changelog-producer", "lookup"), c.set_option("bucket", 2)]


def _base() -> mg.Table:
    catalog = catalog_over(memory_with({}, f"primary-key-faults-{next(_names)}"))
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"k": "INT", "v": "INT"})
    for n in range(3):
        table.write([{"k": k, "v": n} for k in range(n, 12, 3)])
    return table


def _rows(table: mg.Table, **how: Any) -> list[tuple[int, int]]:
    return sorted((row["k"], row["v"]) for row in table.read(**how).to_pylist())


def test_the_table_is_the_old_or_the_new_one_whichever_call_goes_wrong() -> None:
    table = _base()
    before, files = _rows(table), contents(table.env.storage)
    stopped_between = 0

    def check(storage: Storage, outcome: Outcome[Any]) -> None:
        nonlocal stopped_between
        table = catalog_over(storage).table("db.t")
        assert _rows(table) == _rows(table, snapshot=3) == before
        assert table.check() == ()
        if table.primary_key == ():
            assert outcome.error is not None
            stopped_between += SchemaStore(table.definition.paths, table.env).ids()[-1] > table.schema.id
            table.write([{"k": 77, "v": 1}])
            table = catalog_over(storage).table("db.t").alter(CHANGES)
        else:
            table.write([{"k": 77, "v": 1}])
        assert _rows(table) == [*before, (77, 1)]
        table.write([{"k": 1, "v": 5}])
        assert _rows(table) == sorted([*before[:1], (1, 5), *before[2:], (77, 1)])
        assert table.check() == ()
        ours = [s.id for s in table.snapshots() if s.schema_id == table.schema.id]
        assert [tuple(row.values()) for row in table.changes(start=ours[0]).to_pylist()][-2:] == [
            ("-U", 1, before[1][1]),
            ("+U", 1, 5),
        ]

    def work(faulty: Storage) -> Any:
        return catalog_over(faulty).table("db.t").alter(CHANGES)

    runs = run_some(lambda: memory_with(files, f"primary-key-fault-{next(_names)}"), work, check)
    assert runs > 100
    assert stopped_between


def test_of_writers_and_of_who_sets_the_key_nobody_loses_a_row() -> None:
    table = _base()
    told: list[BaseException] = []
    written = list(_rows(table))
    lock = threading.Lock()

    def write(i: int) -> None:
        try:
            for j in range(40):
                row = {"k": 100 + 100 * i + j, "v": i}
                table.write([row])
                with lock:
                    written.append((row["k"], i))
        except ConflictError as error:
            told.append(error)

    def alter() -> None:
        try:
            table.alter(CHANGES)
        except (ConflictError, InvalidInputError) as error:  # one wins
            told.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(2)]
    threads += [threading.Thread(target=alter) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = catalog_over(table.env.storage).table("db.t")
    assert now.primary_key == ("k",) or len(told) == 2
    assert _rows(now) == sorted(written)
    assert now.check() == ()
