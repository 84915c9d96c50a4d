"""Files that a writer wrote again with larger sequence numbers, since another one had overlapped with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import merganser as mg

from .peers import Peer

pytestmark = pytest.mark.peers


@pytest.mark.parametrize(
    "options", [{}, {"file.format": "orc"}, {"file.format": "avro"}, {"merge-engine": "partial-update"}], ids=str
)
def test_peers_read_the_rows_of_the_later_commit(
    options: dict[str, str], peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("merganser.write.buffer.SMALL_BYTES", 0)  # rows get their numbers when they come
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    table = catalog.create_table(
        "db.t", {"k": "INT", "v": "STRING"}, primary_key=["k"], options={"bucket": "1", "write-only": "true", **options}
    )
    with table.writer() as early, table.writer() as late:
        late.write([{"k": k, "v": "late"} for k in range(5)])
        early.write([{"k": k, "v": "early"} for k in range(10)])
        early.commit()
        snapshot = late.commit()
    assert snapshot is not None
    assert snapshot.metrics is not None
    assert "renumber" in snapshot.metrics.seconds
    found = {row["k"]: row["v"] for row in peer.rows(tmp_path, "db.t")}
    assert found == {k: "late" if k < 5 else "early" for k in range(10)}
