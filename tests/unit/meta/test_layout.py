"""Over how many buckets keys are hashed, as files say it, and in which one a key lies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from merganser.meta.data_file import DELETE
from merganser.meta.layout import Layout, bucket_number, bucket_numbers, numbers_other_than, parted, spread
from merganser.meta.live_files import EMPTY
from merganser.meta.manifest import read_manifest
from merganser.meta.table_state import MetaReader
from tests.kit.builders import WAREHOUSE, catalog_over, contents, memory_with
from tests.unit.upkeep.test_check import with_manifest

ROWS = 60


def made(options: dict[str, str]):
    catalog = catalog_over(memory_with({}, "layout"))
    catalog.create_database("db")
    return catalog.create_table("db.t", {"k": "BIGINT", "v": "STRING"}, primary_key=["k"], options=options)


def test_files_of_one_bucket_that_say_two_numbers_have_no_rule() -> None:
    table = made({"bucket": "2", "write-only": "true"})
    for value in "ab":
        table.write([{"k": k, "v": value} for k in range(ROWS)])
    live = MetaReader(table.definition.paths, table.env, "db.t").latest().live
    entries = list(live)
    other = [replace(entry, total_buckets=4) if n == 1 else entry for n, entry in enumerate(entries)]
    mixed = EMPTY.apply(other[:1], source="one").apply(other[1:], source="others")
    assert mixed.buckets.merged() == EMPTY.apply(other, source="at once").buckets.merged()
    [twofold] = {entry.bucket for entry in other if entry.total_buckets == 4}
    assert spread([live.buckets[entries[0].partition, twofold]]) == 2
    assert spread([mixed.buckets[entries[0].partition, twofold]]) == 0
    assert spread(mixed.buckets.values()) == 0
    assert spread(live.buckets.values()) == 2
    cleared = mixed.apply([replace(other[1], kind=DELETE)], source="a delete")
    assert spread(cleared.buckets.values()) == 2
    assert numbers_other_than(2, live) == {}
    assert numbers_other_than(4, live) == Layout.among(table.definition, live).known == {entries[0].partition: 2}


def test_keys_are_found_where_files_of_a_bucket_say_two_numbers() -> None:
    table = made({"bucket": "4", "write-only": "true"})
    for value in "ab":
        table.write([{"k": k, "v": value} for k in range(ROWS)])
    files = contents(table.env.storage)
    state = MetaReader(table.definition.paths, table.env, "db.t").latest()
    [named] = MetaReader(table.definition.paths, table.env, "db.t").manifests(state.snapshot)[-1:]
    path = f"{WAREHOUSE}/db.db/t/manifest/{named.name}"
    doubled = [replace(entry, total_buckets=8) for entry in read_manifest(files[path], path)]
    there = catalog_over(memory_with(with_manifest(files, path, doubled), "mixed")).table("db.t")
    wanted = [{"k": k, "v": "b"} for k in range(ROWS)]
    assert there.lookup([{"k": k} for k in range(ROWS)]).sort_by("k").to_pylist() == wanted
    for k in range(0, ROWS, 7):
        assert there.lookup({"k": k}).to_pylist() == there.read(where=f"k = {k}").to_pylist() == [{"k": k, "v": "b"}]


@pytest.mark.parametrize("total", [1, 2, 7, 1000])
def test_one_key_lies_where_many_do(total: int) -> None:
    table = made({"bucket": str(total)})
    keys = np.random.default_rng(5).integers(-(2**63), 2**63 - 1, 200)
    numbers = bucket_numbers(table.definition, pa.table({"k": keys}))
    assert numbers.tolist() == [bucket_number(table.definition, (key,), total) for key in keys.tolist()]
    found = dict(parted(numbers))
    assert list(found) == sorted(set(numbers.tolist()))
    assert all((numbers[at] == bucket).all() for bucket, at in found.items())
    assert bucket_number(made({"bucket": "3", "bucket-function.type": "mod"}).definition, (1,), 3) is None
