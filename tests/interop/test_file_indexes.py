"""File indexes cross: peers read tables that have ours, and the one that uses and writes indexes agrees on every bit.

pypaimon 2.1.0 neither reads nor writes file indexes; pypaimon-rust 0.4.0 does both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.codec.bloom import BloomBuilder
from merganser.codec.file_index import ColumnIndex, decode_file_index, encode_file_index
from merganser.files.index import INDEX_SUFFIX
from merganser.meta.table_state import MetaReader

from .peers import Peer

pytestmark = pytest.mark.peers

BLOOM = "file-index.bloom-filter"
FILES = 3
ITEMS = 300
COLUMNS = [("id", "BIGINT NOT NULL"), ("s", "STRING"), ("n", "INT"), ("d", "DATE"), ("t", "TIMESTAMP(6)")]
NAMES = [name for name, _ in COLUMNS]
WHERE = [("id", 17, 1), ("s", "s150", 1), ("id", -1, 0), ("s", "nothing", 0), ("n", 34, 1)]


def _options(threshold: str, *, keyed: bool) -> dict[str, str]:
    return {
        f"{BLOOM}.columns": ",".join(NAMES),
        "file-index.in-manifest-threshold": threshold,
        "write-only": "true",
        **({"bucket": "1"} if keyed else {}),
        **{f"{BLOOM}.{name}.items": str(ITEMS) for name in NAMES},
    }


def _rows(n: int) -> pa.Table:
    ids = range(n, 100 * FILES, FILES)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "s": [f"s{i}" * (1 + i % 20) if i != 150 else "s150" for i in ids],
            "n": pa.array([2 * i if i % 5 else None for i in ids], pa.int32()),
            "d": pa.array(ids, pa.int32()).cast(pa.date32()),
            "t": pa.array([i * 1_000_003 for i in ids], pa.int64()).cast(pa.timestamp("us")),
        }
    )


def _ours(warehouse: Path, threshold: str, *, keyed: bool) -> mg.Table:
    catalog = mg.catalog(str(warehouse), options={"local.sync": "false"})
    catalog.create_database("db")
    how: dict[str, Any] = {"primary_key": ["id"]} if keyed else {}
    table = catalog.create_table("db.t", dict(COLUMNS), options=_options(threshold, keyed=keyed), **how)
    for n in range(FILES):
        table.write(_rows(n))
    return table


def _indexes(table: mg.Table) -> list[tuple[ColumnIndex, ...]]:
    """The indexes of each data file, by their first row."""
    files = [entry.file for entry in MetaReader(table.definition.paths, table.env, table.name).latest().live]
    found = []
    for file in sorted(files, key=lambda file: (file.min_key, file.max_sequence)):
        data = file.embedded_index
        if data is None:
            [name] = file.extra_files
            data = (Path(table.path) / "bucket-0" / name).read_bytes()
        found.append(
            tuple(sorted(decode_file_index(data, path=file.name), key=lambda index: NAMES.index(index.column)))
        )
    return found


@pytest.mark.parametrize("threshold", ["1 b", "1 mb"])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_peer_reads_a_table_with_our_indexes(peer: Peer, tmp_path: Path, threshold: str, keyed: bool) -> None:
    _ours(tmp_path, threshold, keyed=keyed)
    assert peer.read(tmp_path, "db.t").num_rows == 100 * FILES
    found = [peer.read(tmp_path, "db.t", where=[("equal", name, [value])]).num_rows for name, value, _ in WHERE]
    assert found == [count for _, _, count in WHERE]


def test_a_peer_believes_the_filters_in_our_index_files(rust: Peer, tmp_path: Path) -> None:
    """Filters that deny everything hide every row: it is our container, checksum included, that the peer reads."""
    table = _ours(tmp_path, "1 b", keyed=False)
    for path in (Path(table.path) / "bucket-0").glob(f"*{INDEX_SUFFIX}"):
        held = decode_file_index(path.read_bytes(), path=str(path))
        none = [ColumnIndex(i.column, i.kind, (i.body or b"")[:4] + bytes(len(i.body or b"") - 4)) for i in held]
        path.write_bytes(encode_file_index(none, checked=True))
    assert rust.read(tmp_path, "db.t", where=[("equal", "id", [17])]).num_rows == 0


@pytest.mark.parametrize("threshold", ["1 b", "1 mb"])
@pytest.mark.parametrize("keyed", [False, True])
def test_we_skip_files_by_the_indexes_of_a_peer(rust: Peer, tmp_path: Path, threshold: str, keyed: bool) -> None:
    key = ["id"] if keyed else []
    rust.create_table(tmp_path, "db.t", COLUMNS, primary_key=key, options=_options(threshold, keyed=keyed))
    for n in range(FILES):
        rust.write(tmp_path, "db.t", _rows(n))
    table = mg.catalog(str(tmp_path)).table("db.t")
    for name, value, count in WHERE:
        text = f"'{value}'" if isinstance(value, str) else str(value)
        found = table.read(where=f"{name} = {text}")
        assert found.count() == count
        if name == "id" or not keyed:
            assert len(found.plan().splits) == 0 or found.plan().counts["after file indexes"] < FILES
    for n, indexes in enumerate(_indexes(table)):
        for (name, _), index in zip(COLUMNS, indexes, strict=True):
            builder = BloomBuilder(ITEMS, 0.1)
            builder.add(_rows(n).column(name), table.definition.schema.field(name).type)
            assert (index.column, index.body) == (name, builder.finish().encode())


def test_commits_of_both_sides_keep_their_indexes(rust: Peer, tmp_path: Path) -> None:
    table = _ours(tmp_path, "1 b", keyed=True)
    rust.write(tmp_path, "db.t", _rows(1))
    table.write(_rows(2))
    assert len(_indexes(table)) == FILES + 2
    table.compact()
    assert len(_indexes(table)) == 1
    assert [table.read(where=f"id = {i}").count() for i in (17, 18, 19, -1)] == [1, 1, 1, 0]
    assert rust.read(tmp_path, "db.t", where=[("equal", "id", [17])]).num_rows == 1
    assert not [finding for finding in table.check() if finding.is_fault]
