"""Files that differ from what changed options ask for: a full compaction writes them anew, once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import merganser as mg
from merganser import changes as c
from merganser.meta.data_file import DataFile
from merganser.meta.table_state import MetaReader
from merganser.upkeep.outdated import Outdated

INDEX = {"file-index.bloom-filter.columns": "v"}
ASK_FOR_INDEX = c.set_option("file-index.bloom-filter.columns", "v")
KINDS = pytest.mark.parametrize("key", [["k"], None])


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    found = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    found.create_database("db")
    return found


def _made(catalog: mg.Catalog, key: list[str] | None, **options: str) -> mg.Table:
    own = {"bucket": "1"} if key else {}
    table = catalog.create_table("db.t", "k INT, v STRING", primary_key=key, options={**own, **options})
    table.write([{"k": 1, "v": "a"}])
    table.write([{"k": 2, "v": "b"}])
    assert table.compact(full=True) is not None
    assert table.compact(full=True) is None
    return table


def _files(table: mg.Table) -> list[DataFile]:
    return [entry.file for entry in MetaReader(table.definition.paths, table.env, table.name).latest().live]


def _written_anew(table: mg.Table) -> DataFile:
    """Compact fully, which rewrites the one file of the table, and only once."""
    before = _files(table)
    assert table.compact() is None
    assert table.compact(full=True) is not None
    assert len(before) == len(_files(table)) == 1
    assert before[0].name != _files(table)[0].name
    assert table.compact(full=True) is None
    assert table.read().to_arrow().sort_by("k").to_pylist() == [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]
    return _files(table)[0]


@KINDS
def test_a_full_compaction_gives_files_the_index_that_the_options_now_ask_for(
    catalog: mg.Catalog, key: list[str] | None
) -> None:
    table = _made(catalog, key)
    table = table.alter([ASK_FOR_INDEX])
    assert _written_anew(table).embedded_index is not None
    table = table.alter([c.set_option("file-index.bloom-filter.columns", "k,v")])
    _written_anew(table)
    table = table.alter([c.add_column("w", "INT"), c.rename_column("v", "u")])
    table = table.alter([c.set_option("file-index.bloom-filter.columns", "k,u,w")])
    assert table.compact(full=True) is None  # the filters of today are there; the file has no column 'w'


@KINDS
def test_an_index_in_a_file_of_its_own_is_known_by_the_schema(catalog: mg.Catalog, key: list[str] | None) -> None:
    table = _made(catalog, key, **{"file-index.in-manifest-threshold": "0 b"}, **INDEX)
    assert _files(table)[0].extra_files
    table = table.alter([c.set_option("file-index.bloom-filter.columns", "k,v")])
    _written_anew(table)


@KINDS
def test_a_full_compaction_writes_files_of_another_format_anew(catalog: mg.Catalog, key: list[str] | None) -> None:
    table = _made(catalog, key).alter([c.set_option("file.format", "orc")])
    assert _written_anew(table).name.endswith(".orc")
    own = table.with_options({"file.format": "avro", **INDEX})
    assert _written_anew(own).name.endswith(".avro")


@KINDS
def test_a_full_compaction_writes_files_of_another_compression_anew(catalog: mg.Catalog, key: list[str] | None) -> None:
    table = _made(catalog, key).alter([c.set_option("file.compression", "none")])
    _written_anew(table)
    (path,) = table.files()["file_path"].to_pylist()
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "UNCOMPRESSED"
    own = table.with_options({"file.compression": "zstd"})  # whether a file has it is told by no metadata
    assert own.compact(full=True) is None


def test_files_that_would_only_change_their_level_are_written_anew_too(catalog: mg.Catalog) -> None:
    table = catalog.create_table("db.t", "k INT, v STRING", primary_key=["k"], options={"bucket": "1"})
    table.write([{"k": 1, "v": "a"}])
    table.write([{"k": 2, "v": "b"}])
    table = table.alter([c.set_option("file.format", "orc")])
    assert table.compact(full=True) is not None
    assert {file.name.rpartition(".")[2] for file in _files(table)} == {"orc"}
    assert table.compact(full=True) is None


def test_a_write_after_a_change_of_options_does_not_pay_for_the_old_files(catalog: mg.Catalog) -> None:
    options = {"bucket": "1", "bucket-key": "k", "full-compaction.delta-commits": "1", "target-file-size": "1 b"}
    table = catalog.create_table("db.t", "k INT, v STRING", options=options)
    table.write([{"k": 1, "v": "a"}])
    before = _files(table)
    table = table.alter([c.set_option("file.format", "orc")])
    table.write([{"k": 2, "v": "b"}])
    assert before[0] in _files(table)


def test_a_file_whose_schema_is_lost_is_told_by_its_name_alone(catalog: mg.Catalog) -> None:
    table = _made(catalog, None).alter([c.set_option("file.compression", "none"), ASK_FOR_INDEX])
    fresh = mg.table(table.path)
    Path(table.path, "schema", "schema-0").unlink()
    assert Outdated(fresh.definition, fresh.env).reasons(_files(fresh)[0], 0) == ()
