"""Retractions that our compactions keep above level 0: the clients do not show them, and merge later rows with them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import merganser as mg

from .peers import Peer, PeerError
from .values import Row, arrow_schema, assert_same_rows, rows_of

pytestmark = pytest.mark.peers

FIELDS = [("k", "INT NOT NULL"), ("s", "INT"), ("n", "BIGINT")]
ORDERED = {"sequence.field": "s"}
MARKED = ORDERED | {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "false"}
SUMS = {
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "sum",
    "fields.s.aggregate-function": "last_value",
}


def _written(table: mg.Table, *changes: tuple[str, int, int, int]) -> None:
    rows = [{"k": k, "s": s, "n": n} for _, k, s, n in changes]
    table.write(pa.Table.from_pylist(rows, arrow_schema(FIELDS)), kinds=[kind for kind, *_ in changes])


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("options", [ORDERED, MARKED, SUMS], ids=["ordered", "ordered with vectors", "sums"])
def test_the_clients_read_compacted_files_that_hold_retractions(
    peer: Peer, options: dict[str, str], file_format: str, tmp_path: Path
) -> None:
    if options is MARKED and peer.kind.name == "pypaimon-rust":
        options = MARKED | {"deletion-vectors.bitmap64": "true"}
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", dict(FIELDS), primary_key=["k"], options={"bucket": "1", "file.format": file_format, **options}
    )
    _written(table, ("+I", 1, 1, 10), ("+I", 2, 1, 20), ("+I", 4, 1, 40))
    _written(table, ("-D", 1, 5, 10), ("-D", 3, 5, 30))
    table.compact(full=True)
    files = table.files().to_pylist()
    assert [row["level"] > 0 for row in files] == [True] * len(files)
    assert sum(row["deleteRowCount"] for row in files) == (1 if options is SUMS else 2)
    ours = rows_of(table.read().to_arrow(), FIELDS)
    first: list[Row] = [{"k": 2, "s": 1, "n": 20}, {"k": 4, "s": 1, "n": 40}]
    assert_same_rows(ours, [*first, {"k": 1, "s": None, "n": 0}] if options is SUMS else first)
    if options is SUMS and peer.kind.name == "pypaimon":
        with pytest.raises(PeerError, match="does not yet implement retract"):  # before a compaction, too
            peer.rows(tmp_path, "db.t", FIELDS)
        return
    assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), ours, "compacted")
    _written(table, ("+I", 1, 3, 11), ("+I", 3, 4, 33), ("+I", 4, 6, 44))
    later: list[Row] = [{"k": 2, "s": 1, "n": 20}, {"k": 4, "s": 6, "n": 44}]
    if options is SUMS:
        later = [
            {"k": 1, "s": 3, "n": 11},
            {"k": 2, "s": 1, "n": 20},
            {"k": 3, "s": 4, "n": 3},
            {"k": 4, "s": 6, "n": 84},
        ]
    assert_same_rows(rows_of(table.read().to_arrow(), FIELDS), later)
    assert_same_rows(peer.rows(tmp_path, "db.t", FIELDS), later, "with later rows")
    assert [found for found in table.check() if found.is_fault] == []
