"""Lookups ask the Bloom filters of files that have no copy: a file without the key is not opened."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import merganser as mg
from merganser.lsm.section import SectionReader
from tests.unit.lookup.compared import handle, way

KEYS = {"BIGINT": lambda n: n * 10, "STRING": lambda n: f"key {n * 10:05d}"}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("in_manifest", [True, False])
def test_files_that_cannot_hold_the_key_are_not_opened(kind: str, in_manifest: bool, tmp_path: Path) -> None:
    table = _table(tmp_path, kind, {"file-index.in-manifest-threshold": "1 mb" if in_manifest else "1 b"})
    key = KEYS[kind]
    with way("as they lie"):
        lookup = handle(table, "as they lie", tmp_path / "copies")
        opened: list[str] = []
        whole = SectionReader.opened

        def noted(reader: SectionReader, file: object, *args: object, **more: object) -> object:
            opened.append(file.name)  # type: ignore[attr-defined]
            return whole(reader, file, *args, **more)  # type: ignore[arg-type]

        with patch.object(SectionReader, "opened", noted):
            assert lookup.lookup({"k": key(401)})["v"].to_pylist() == [1]
            assert len(opened) == 1
            absent = [{"k": key(n)} for n in range(1000, 1020)]
            assert lookup.lookup([*absent, {"k": key(402)}])["v"].to_pylist() == [2]
            assert len(opened) == 2
            assert lookup.lookup([{"k": key(n)} for n in range(400, 405)])["v"].to_pylist() == [0, 1, 2, 3, 4]
        without = table.with_options({"file-index.read.enabled": "false"})
        opened.clear()
        with patch.object(SectionReader, "opened", noted):
            assert handle(without, "as they lie", tmp_path / "copies").lookup({"k": key(401)})["v"].to_pylist() == [1]
        assert len(opened) == 4  # from the youngest run on, until the key is found in that of v = 1


def _table(path: Path, kind: str, options: dict[str, str]) -> mg.Table:
    catalog = mg.catalog(str(path), options={"local.sync": "false"})
    catalog.create_database("db")
    options = {"bucket": "1", "write-only": "true", "file-index.bloom-filter.columns": "k"} | options
    options["file-index.bloom-filter.k.fpp"] = "0.0001"
    table = catalog.create_table("db.t", {"k": kind, "v": "INT"}, primary_key=["k"], options=options)
    for v in range(5):  # every file spans all keys, and holds each fifth
        keys = [KEYS[kind](n) for n in range(v, 800, 5)] + [KEYS[kind](2000 + v)]
        table.write(pa.table({"k": keys, "v": pa.array([v] * len(keys), pa.int32())}))
    return table
