"""Stored options show no secret and never lead out of the table, whoever stored them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from merganser.meta.schemas import SchemaStore
from merganser.options.option import Options
from merganser.options.write import COMPRESSIONS
from merganser.schema.table_schema import TableSchema
from merganser.schema.types import Field
from merganser.schema.types_text import parse_type
from merganser.storage.env import Env
from merganser.storage.paths import TablePaths

SECRET = "hunter2"
COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}
ROW = {"id": 1, "v": "a"}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    catalog = mg.catalog(tmp_path / "w", options={"local.sync": "false"})
    catalog.create_database("d")
    return catalog


def _of_another_engine(catalog: mg.Catalog, **options: str) -> mg.Table:
    """Return a table whose schema was not made by us."""
    schema = TableSchema(
        id=0,
        fields=tuple(Field(i, name, parse_type(kind)) for i, (name, kind) in enumerate(COLUMNS.items())),
        highest_field_id=1,
        primary_keys=("id",),
        options=Options({"bucket": "1", **options}),
    )
    env: Env = catalog.env
    SchemaStore(TablePaths(f"{catalog.warehouse}/d.db/theirs"), env).create(schema)
    table: mg.Table = catalog.table("d.theirs")
    return table


def _bytes(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file())


@pytest.mark.parametrize("key", ["s3.secret-key", "fs.oss.accessKeyId", "kafka.properties.sasl.jaas.config"])
def test_a_secret_is_refused_as_an_option_of_a_new_table(catalog: mg.Catalog, tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidInputError, match="holds a secret") as caught:
        catalog.create_table("d.t", COLUMNS, options={key: SECRET})
    assert SECRET not in str(caught.value) + repr(caught.value.context)
    assert catalog.list_tables("d") == []
    assert SECRET.encode() not in _bytes(tmp_path)


def test_a_secret_that_another_engine_stored_is_hidden_from_people_and_stays_where_it_is(catalog: mg.Catalog) -> None:
    table = _of_another_engine(catalog, **{"fs.s3a.secret.key": SECRET})
    table.write([ROW])
    _look_everywhere(table)
    assert table.options["fs.s3a.secret.key"] == "***"
    assert table.schema.options["fs.s3a.secret.key"] == "***"
    assert table.definition.options["fs.s3a.secret.key"] == SECRET
    table.branches.create("b")
    assert table.branch("b").definition.options["fs.s3a.secret.key"] == SECRET


def test_a_secret_that_is_given_for_one_handle_is_hidden_and_not_stored(catalog: mg.Catalog, tmp_path: Path) -> None:
    table = catalog.create_table("d.t", COLUMNS, ["id"], options={"bucket": "1"})
    opened = table.with_options({"fs.s3a.secret.key": SECRET})
    opened.write([ROW])
    opened.compact(full=True)
    _look_everywhere(opened)
    assert opened.definition.options["fs.s3a.secret.key"] == SECRET
    assert opened.with_options({"owner": "ada"}).definition.options["fs.s3a.secret.key"] == SECRET
    assert SECRET.encode() not in _bytes(tmp_path)


def _look_everywhere(table: mg.Table) -> None:
    """Check all that a table says of its options, and that it says something."""
    said: list[Any] = [
        table,
        table.definition,
        table.schema,
        dict(table.options),
        dict(table.schema.options),
        table.describe(),
        table.read().explain(),
        table.system("options").to_pylist(),
        table.system("schemas").to_pylist(),
    ]
    assert [what for what in said if SECRET in str(what) + repr(what)] == []
    assert "***" in table.describe()
    assert "***" in str(table.system("options").to_pylist())


@pytest.mark.parametrize(
    "options",
    [
        {"data-file.prefix": "../../x"},
        {"changelog-file.prefix": "a/b"},
        {"data-file.path-directory": "../../../outside"},
        {"data-file.path-directory": "data/../../x"},
        {"partition.default-name": "../x"},
        {"branch": "../x"},
        {"consumer-id": "../x"},
        {"tag.batch.customized-name": "../../x"},
        {"file.format.per.level": "0:../x"},
        {"file.compression": "../x"},
        {"file.compression": "foo"},
        {"manifest.compression": "foo"},
        {"spill-compression": "foo"},
        {"parquet.compression": "foo"},
        {"orc.compress": "foo"},
        {"avro.codec": "foo"},
        {"metadata.stats-mode.per.level": "0:foo"},
        {"target-file-size": "0"},
        {"manifest.target-file-size": "0 b"},
        {"file.block-size": "0"},
        {"write-buffer-size": "0"},
        {"num-levels": str(2**31)},
        {"target-file-row-num": str(2**63)},
    ],
    ids=str,
)
def test_an_option_without_a_meaning_is_refused_when_the_table_is_made_and_opened(
    catalog: mg.Catalog, options: dict[str, str]
) -> None:
    ((key, text),) = options.items()
    for call in (
        lambda: catalog.create_table("d.t", COLUMNS, ["id"], options={"bucket": "1", **options}),
        lambda: _of_another_engine(catalog).with_options(options),
    ):
        with pytest.raises(InvalidInputError) as caught:
            call()
        assert f"'{key}'" in str(caught.value) or key == "branch"
        assert text in str(caught.value) or key == "partition.default-name"
    assert catalog.list_tables("d") == ["theirs"]


def test_a_compression_of_another_format_is_refused_when_the_table_is_opened(catalog: mg.Catalog) -> None:
    table = _of_another_engine(catalog)
    with pytest.raises(InvalidInputError, match="parquet files cannot be written with the compression 'zlib'"):
        table.with_options({"file.compression": "zlib"})
    assert table.with_options({"file.compression": "zlib", "file.format": "orc"}).write([ROW]) is not None


@pytest.mark.parametrize("key", ["data-file.prefix", "data-file.path-directory"])
def test_a_table_whose_stored_options_lead_out_of_it_is_not_written(
    catalog: mg.Catalog, tmp_path: Path, key: str
) -> None:
    table = _of_another_engine(catalog, **{key: "../../../outside"})
    before = sorted(tmp_path.rglob("*"))
    for call in (lambda: table.write([ROW]), lambda: table.compact(full=True), lambda: table.truncate()):
        with pytest.raises(InvalidInputError, match=key):
            call()
    assert sorted(tmp_path.rglob("*")) == before


def test_files_that_lie_outside_of_the_table_are_not_read(catalog: mg.Catalog) -> None:
    table = _of_another_engine(catalog, **{"data-file.path-directory": "../other"})
    with pytest.raises(InvalidInputError, match=r"'data-file\.path-directory' = '\.\./other'"):
        table.read().to_arrow()


def test_a_directory_below_the_table_holds_its_files(catalog: mg.Catalog) -> None:
    table = _of_another_engine(catalog, **{"data-file.path-directory": "data/v1", "data-file.prefix": "part-"})
    table.write([ROW])
    assert table.read().to_pylist() == [ROW]
    assert [p.name[:5] for p in Path(table.path, "data", "v1", "bucket-0").iterdir()] == ["part-"]


@pytest.mark.parametrize("options", [{"file.compression": "lzo"}, {"manifest.compression": "lzo"}], ids=str)
def test_a_table_with_a_compression_that_only_others_write_is_read(
    catalog: mg.Catalog, options: dict[str, str]
) -> None:
    plain = _of_another_engine(catalog)
    plain.write([ROW])
    schema = plain.definition.schema
    theirs = TableSchema(
        id=1,
        fields=schema.fields,
        highest_field_id=schema.highest_field_id,
        primary_keys=schema.primary_keys,
        options=schema.options.merged(options),
    )
    SchemaStore(plain.definition.paths, plain.env).create(theirs)
    table = catalog.table("d.theirs")
    assert table.read().to_pylist() == [ROW]
    before = sorted(Path(table.path).rglob("*"))
    with pytest.raises(InvalidInputError, match=r"cannot write to 'd\.theirs'.*'lzo'"):
        table.write([ROW])
    assert sorted(Path(table.path).rglob("*")) == before


@pytest.mark.parametrize(
    ("file_format", "compression"),
    [(file_format, compression) for file_format, known in COMPRESSIONS.items() for compression in known],
)
def test_every_compression_that_a_format_is_said_to_have_is_written(
    catalog: mg.Catalog, file_format: str, compression: str
) -> None:
    table = catalog.create_table(
        "d.t",
        COLUMNS,
        ["id"],
        options={"bucket": "1", "file.format": file_format, "file.compression": compression.upper()},
    )
    table.write([ROW])
    assert table.read().to_pylist() == [ROW]
