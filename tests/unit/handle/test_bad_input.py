"""Every bad call is refused with the class that says what to do next and a message that names what is wrong; nothing is
written, and the table stays readable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import (
    AlreadyExistsError,
    ExpiredError,
    FormatError,
    InvalidInputError,
    MerganserError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from merganser.meta.seal import unsealed_json

SCHEMA = {
    "dt": "STRING",
    "id": "BIGINT",
    "tiny": "TINYINT",
    "amount": "DECIMAL(5, 2)",
    "name": "VARCHAR(3)",
    "day": "DATE",
    "need": "INT NOT NULL",
    "list": "ARRAY<INT>",
}
GOOD: dict[str, Any] = {
    "dt": "a",
    "id": 1,
    "tiny": 1,
    "amount": Decimal("1.00"),
    "name": "abc",
    "day": None,
    "need": 0,
    "list": [1],
}


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    catalog = mg.catalog(str(tmp_path / "warehouse"), options={"local.sync": "false"})
    catalog.create_database("shop")
    return catalog


@pytest.fixture
def orders(catalog: mg.Catalog) -> mg.Table:
    table = catalog.create_table(
        "shop.orders", SCHEMA, primary_key=["dt", "id"], partition_by=["dt"], options={"bucket": "2"}
    )
    table.write([GOOD])
    return table


@pytest.fixture
def events(catalog: mg.Catalog) -> mg.Table:
    table = catalog.create_table("shop.events", {"n": "INT", "text": "STRING"})
    table.write([{"n": 1, "text": "x"}])
    return table


@pytest.fixture
def writes() -> None:
    """Say that a test writes on purpose."""


@pytest.fixture(autouse=True)
def _nothing_is_written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Compare the files, and read the tables, before and after the test."""
    for name in ("catalog", "orders", "events"):
        if name in request.fixturenames:
            request.getfixturevalue(name)
    before = _listing(tmp_path)
    yield
    if "writes" not in request.fixturenames:
        assert _listing(tmp_path) == before
    for name in ("orders", "events"):
        if name in request.fixturenames:
            assert request.getfixturevalue(name).read().count() == 1


def _listing(root: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def _refused(call: Callable[[], Any], *parts: str, error: type[MerganserError] = InvalidInputError) -> MerganserError:
    with pytest.raises(MerganserError) as caught:
        call()
    assert type(caught.value) is error, repr(caught.value)
    for part in parts:
        assert part in str(caught.value), f"{part!r} is not in {str(caught.value)!r}"
    return caught.value


# rows


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"id": None}, ("'id'", "null", "row 2")),
        ({"dt": None}, ("'dt'", "null")),
        ({"need": None}, ("'need'", "null", "row 2")),
        ({"tiny": 300}, ("'tiny'", "300", "row 2")),
        ({"tiny": -129}, ("'tiny'", "-129")),
        ({"amount": Decimal("1000.00")}, ("'amount'", "1000.00")),
        ({"amount": Decimal("0.001")}, ("'amount'", "0.001")),
        ({"name": "abcd"}, ("'name'", "4 characters")),
        ({"day": datetime(2026, 1, 1, 12, tzinfo=UTC)}, ("'day'",)),
        ({"list": [2**40]}, ("'list", str(2**40))),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_column_and_row(
    orders: mg.Table, change: dict[str, Any], parts: tuple[str, ...]
) -> None:
    error = _refused(lambda: orders.write([GOOD, GOOD | change]), "shop.orders", *parts)
    assert error.code == "invalid-input"


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**100])
def test_a_number_beyond_64_bits_is_named_with_column_and_row(orders: mg.Table, value: int) -> None:
    error = _refused(lambda: orders.write([GOOD, GOOD | {"id": value}]), "'id'", "row 2", str(value))
    assert error.context["row"] == 1


@pytest.mark.parametrize("value", ["text", b"bytes", 1.5, {"a": 1}, [1], True])
def test_a_column_of_another_type_is_named_with_both_types(orders: mg.Table, value: Any) -> None:
    _refused(lambda: orders.write([GOOD | {"id": value}]), "'id'")


def test_values_of_mixed_types_in_one_column_are_refused(orders: mg.Table) -> None:
    _refused(lambda: orders.write([GOOD, GOOD | {"id": "two"}]), "'id'")


def test_a_missing_column_is_named(orders: mg.Table) -> None:
    rows = [{k: v for k, v in GOOD.items() if k != "amount"}]
    assert _refused(lambda: orders.write(rows), "'amount'", "missing").context["column"] == "amount"


def test_an_extra_column_is_named_with_the_likely_one(orders: mg.Table) -> None:
    _refused(lambda: orders.write([GOOD | {"amonut": 1}]), "'amonut'", "Did you mean 'amount'?")


def test_a_column_that_occurs_twice_is_named(orders: mg.Table) -> None:
    data = pa.table([*(pa.array([v]) for v in GOOD.values()), pa.array([1])], names=[*GOOD, "id"])
    _refused(lambda: orders.write(data), "'id'", "2 times")


def test_a_bad_row_in_a_later_batch_leaves_no_file_behind(orders: mg.Table) -> None:
    def batches() -> Iterator[list[dict[str, Any]]]:
        yield [GOOD | {"id": n} for n in range(50)]
        yield [GOOD | {"tiny": 1000}]

    _refused(lambda: orders.write(batches()), "'tiny'", "1000")


@pytest.mark.parametrize("data", [7, "text", b"x", {"a": 1}, [1, 2], [[1]], object(), None, [GOOD, 3]])
def test_what_holds_no_rows_is_refused_by_its_type(orders: mg.Table, data: Any) -> None:
    _refused(lambda: orders.write(data))


# row kinds


@pytest.mark.parametrize(
    ("kinds", "parts"),
    [
        (["+X"], ("'+X'", "row 1")),
        ([None], ("null", "row 1")),
        ([""], ("''",)),
        (["insert"], ("'insert'", "+I")),
        (["+I", "+I"], ("2 kinds for 1 rows",)),
        ([], ("0 kinds for 1 rows",)),
        ([1], ()),
        (7, ()),
        ("op", ("'op'", "dt")),
    ],
)
def test_a_row_kind_that_is_none_is_named(orders: mg.Table, kinds: Any, parts: tuple[str, ...]) -> None:
    _refused(lambda: orders.write([GOOD], kinds=kinds), *parts)


@pytest.mark.parametrize("kind", ["-D", "-U"])
def test_a_table_without_a_key_takes_no_retractions(events: mg.Table, kind: str) -> None:
    rows = [{"n": 1, "text": "x"}, {"n": 2, "text": "y"}]
    _refused(lambda: events.write(rows, kinds=["+I", kind]), "row 2", kind, "primary key")


# how a write is called


@pytest.mark.parametrize(
    ("how", "parts"),
    [
        ({"columns": ["id", "need"]}, ("'dt'", "key")),
        ({"columns": ["dt", "id", "nmae"]}, ("'nmae'", "Did you mean 'name'?")),
        ({"columns": "id"}, ("columns", "'id'")),
        ({"columns": ["dt", "id", "id", "need"]}, ("'id'", "twice")),
        ({"columns": ["dt", "id", "tiny"]}, ("'need'",)),
        ({"columns": [1]}, ()),
        ({"overwrite": {"day": "2026-01-01"}}, ("'day'", "partition column")),
        ({"overwrite": {"dt": object()}}, ("'dt'",)),
        ({"overwrite": {1: "a"}}, ("1",)),
        ({"overwrite": {"dt": "b"}}, ("'a'", "row 1", "dt")),
        ({"overwrite": "all"}, ("'all'", "dynamic")),
        ({"overwrite": ["dt"]}, ("list",)),
        ({"overwrite": True}, ("bool",)),
        ({"identifier": 3}, ("commit_user", "3")),
        ({"identifier": -1, "commit_user": "job"}, ("-1",)),
        ({"identifier": "3", "commit_user": "job"}, ("'3'",)),
        ({"identifier": True, "commit_user": "job"}, ("True",)),
        ({"identifier": 2**63 - 1, "commit_user": "job"}, (str(2**63 - 1),)),
        ({"identifier": 3, "commit_user": ""}, ("commit_user",)),
        ({"commit_user": 7}, ("commit_user", "7")),
        ({"commit_user": b"job"}, ("commit_user",)),
    ],
)
def test_a_write_that_makes_no_sense_is_refused(orders: mg.Table, how: dict[str, Any], parts: tuple[str, ...]) -> None:
    data = [{k: v for k, v in GOOD.items() if k in how["columns"]}] if isinstance(how.get("columns"), list) else [GOOD]
    _refused(lambda: orders.write(data, **how), *parts)


@pytest.mark.parametrize("spec", [{"n": 1}, {"dt": "a"}])
def test_an_overwrite_of_a_partition_needs_partitions(events: mg.Table, spec: dict[str, Any]) -> None:
    _refused(
        lambda: events.write([{"n": 1, "text": "x"}], overwrite=spec), f"'{next(iter(spec))}'", "has no partitions"
    )


@pytest.mark.parametrize(
    "specs", [[{}], [{"id": 1}], [{"dt": "a"}, {"nope": 1}], {"dt": "a"}, "dt", [["dt"]], [{"dt": 2**80}], [None]]
)
def test_dropping_partitions_that_make_no_sense_is_refused(orders: mg.Table, specs: Any) -> None:
    _refused(lambda: orders.drop_partitions(specs))


def test_loading_files_that_are_not_there_is_told_with_the_pattern(orders: mg.Table, tmp_path: Path) -> None:
    _refused(lambda: orders.load(f"{tmp_path}/nothing/*.parquet"), "nothing/*.parquet", error=NotFoundError)


# reading


@pytest.mark.parametrize(
    ("how", "parts", "error"),
    [
        ({"columns": ["amonut"]}, ("'amonut'", "Did you mean 'amount'?"), InvalidInputError),
        ({"columns": ["id", "id"]}, ("'id'", "twice"), InvalidInputError),
        ({"columns": "id"}, ("'id'",), InvalidInputError),
        ({"columns": [1]}, ("1",), InvalidInputError),
        ({"where": "amonut > 1"}, ("amonut",), InvalidInputError),
        ({"where": "id >"}, (), InvalidInputError),
        ({"where": "id"}, (), InvalidInputError),
        ({"where": "id = 'x'"}, (), InvalidInputError),
        ({"where": 7}, (), InvalidInputError),
        ({"where": "id > 1; DROP TABLE orders"}, (), InvalidInputError),
        ({"limit": -1}, ("-1",), InvalidInputError),
        ({"limit": "3"}, ("'3'",), InvalidInputError),
        ({"limit": True}, ("True",), InvalidInputError),
        ({"limit": 1.5}, ("1.5",), InvalidInputError),
        ({"snapshot": 99}, ("99", "its only one is 1"), NotFoundError),
        ({"snapshot": 0}, ("0",), NotFoundError),
        ({"snapshot": -1}, ("-1",), NotFoundError),
        ({"snapshot": "1"}, ("'1'",), InvalidInputError),
        ({"snapshot": True}, ("True",), InvalidInputError),
        ({"snapshot": "../schema/schema-0"}, ("../schema",), InvalidInputError),
        ({"tag": "nope"}, ("'nope'",), NotFoundError),
        ({"tag": ""}, (), InvalidInputError),
        ({"tag": 7}, ("7",), InvalidInputError),
        ({"tag": "../../events/snapshot/snapshot-1"}, ("../..",), InvalidInputError),
        ({"tag": "v1", "snapshot": 1}, ("snapshot and tag",), InvalidInputError),
        ({"timestamp": "yesterday"}, ("'yesterday'",), InvalidInputError),
        ({"timestamp": 1700000000}, ("int",), InvalidInputError),
        ({"timestamp": "1999-01-01"}, ("1999-01-01",), NotFoundError),
    ],
)
def test_a_read_that_makes_no_sense_is_refused(
    orders: mg.Table, how: dict[str, Any], parts: tuple[str, ...], error: type[MerganserError]
) -> None:
    _refused(lambda: orders.read(**how).to_arrow(), *parts, error=error)


@pytest.mark.parametrize(
    ("name", "how", "error"),
    [
        ("snapshot", {}, NotFoundError),
        ("../x", {}, NotFoundError),
        ("snapshots", {"columns": ["nope"]}, InvalidInputError),
        ("snapshots", {"columns": "snapshot_id"}, InvalidInputError),
        ("snapshots", {"limit": -1}, InvalidInputError),
        ("snapshots", {"where": "nope = 1"}, InvalidInputError),
    ],
)
def test_a_read_of_a_system_table_that_makes_no_sense_is_refused(
    orders: mg.Table, name: str, how: dict[str, Any], error: type[MerganserError]
) -> None:
    _refused(lambda: orders.system(name, **how).to_arrow(), error=error)


@pytest.mark.usefixtures("writes")
def test_a_time_before_the_first_snapshot_that_is_kept_has_expired(orders: mg.Table) -> None:
    for n in range(2):
        orders.write([GOOD | {"id": n + 5}], overwrite={})
        orders.write([GOOD], overwrite={})
    Path(orders.path, "snapshot", "snapshot-1").unlink()
    advice = "or a tag, and raise 'snapshot.time-retained'"
    _refused(lambda: orders.read(timestamp="1999-01-01"), "1999-01-01", advice, error=ExpiredError)
    _refused(lambda: orders.read(snapshot=1), "snapshots before 2", advice, error=ExpiredError)


# dynamic options


@pytest.mark.parametrize(
    ("options", "parts", "error"),
    [
        ({"bukcet": "4"}, ("'bukcet'", "'bucket'"), InvalidInputError),
        ({"bucket": "-1"}, ("'bucket'", "2"), InvalidInputError),
        ({"merge-engine": "aggregation"}, ("'merge-engine'",), InvalidInputError),
        ({"bucket-key": "id"}, ("'bucket-key'",), InvalidInputError),
        ({"data-file.path-directory": "../x"}, ("'data-file.path-directory'",), InvalidInputError),
        ({"write-buffer-size": "much"}, ("'write-buffer-size'", "'much'"), InvalidInputError),
        ({"scan.snapshot-id": "x"}, ("'scan.snapshot-id'", "'x'"), InvalidInputError),
        ({"file.format": "exe"}, ("'file.format'", "'exe'"), InvalidInputError),
        ({"scan.snapshot-id": "1", "scan.tag-name": "a"}, (), InvalidInputError),
        ({"snapshot": "1"}, ("read(snapshot=...)", "'scan.snapshot-id'"), InvalidInputError),
        ({"timestamp": "2026-01-01"}, ("read(timestamp=...)", "'scan.timestamp'"), InvalidInputError),
        ({1: "x"}, ("1",), InvalidInputError),
        ({"bucket": object()}, ("'bucket'",), InvalidInputError),
    ],
)
def test_a_dynamic_option_that_does_not_fit_is_refused(
    orders: mg.Table, options: dict[Any, Any], parts: tuple[str, ...], error: type[MerganserError]
) -> None:
    _refused(lambda: orders.with_options(options).read().to_arrow(), *parts, error=error)
    _refused(lambda: mg.table(orders.path, options=options).read().to_arrow(), error=error)


@pytest.mark.parametrize(
    "options",
    [{"manifest.format": "orc"}, {"file.format": "csv"}],
)
def test_a_dynamic_option_that_this_version_does_not_write_is_refused(
    orders: mg.Table, options: dict[str, str]
) -> None:
    _refused(lambda: orders.with_options(options).write([GOOD]), f"'{next(iter(options))}'", error=UnsupportedError)


@pytest.mark.parametrize(
    "options",
    [
        {"scan.fallback-branch": "b"},
    ],
)
def test_a_dynamic_option_that_this_version_does_not_read_is_refused(orders: mg.Table, options: dict[str, str]) -> None:
    def read() -> Any:
        return orders.with_options(options).read().to_arrow()

    _refused(read, f"'{next(iter(options))}'", error=UnsupportedError)


def test_a_dynamic_option_that_is_as_the_table_has_it_is_fine(orders: mg.Table) -> None:
    assert orders.with_options({"bucket": "2", "merge-engine": "deduplicate"}).read().count() == 1


# names


TRICKS = [
    "",
    " ",
    ".",
    "..",
    "...",
    "../x",
    "a/b",
    "a\\b",
    "/etc/passwd",
    "x.y.z",
    "shop.",
    ".orders",
    "shop.orders.",
    "shop..orders",
    "shop.or\x00ders",
    "shop.or\nders",
    "shop.or\x85ders",
    "shop.or\u202eders",
    "shop.or\u200bders",
    "shop.or\u2028ders",
    "shop.\ud800",
    "shop. orders",
    "shop.orders ",
    "shop.-\t",
    "shop." + "x" * 300,
    "shop." + "\u00e9" * 150,
    "shop.a/../../b",
    "../up.orders",
    "shop.$snapshots",
    "shop.orders$",
    "shop.orders$a$b",
    "orders",
    7,
    None,
    b"shop.orders",
]


@pytest.mark.parametrize("name", TRICKS)
def test_a_name_that_is_none_never_reaches_the_store(catalog: mg.Catalog, orders: mg.Table, name: Any) -> None:
    for call in (
        lambda: catalog.create_table(name, {"n": "INT"}),
        lambda: catalog.table(name),
        lambda: catalog.drop_table(name),
        lambda: catalog.drop_table(name, if_exists=True),
        lambda: catalog.rename_table("shop.orders", name),
        lambda: catalog.rename_table(name, "shop.free"),
    ):
        _refused(call)


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", "../x", "a/b", "a.b", "a\x01", "a\u202e", " a", "a$b", "\ud800", "x" * 201, 7, None]
)
def test_a_database_name_that_is_none_never_reaches_the_store(catalog: mg.Catalog, name: Any) -> None:
    for call in (
        lambda: catalog.create_database(name),
        lambda: catalog.create_database(name, if_not_exists=True),
        lambda: catalog.drop_database(name, if_exists=True, cascade=True),
        lambda: catalog.list_tables(name),
    ):
        _refused(call)


@pytest.mark.usefixtures("writes")
@pytest.mark.parametrize(
    "name", ["a", "A_b-1", "zażółć", "日本", "with blank inside", "a%2Fb", "x" * 190, "\U0001f986", "CON", "~"]
)
def test_unusual_names_that_are_fine_work(catalog: mg.Catalog, name: str) -> None:
    catalog.create_database(name)
    table = catalog.create_table(f"{name}.{name}", {"n": "INT"})
    table.write([{"n": 1}])
    assert catalog.list_tables(name) == [name]
    assert catalog.table(f"{name}.{name}").read().count() == 1
    assert Path(table.path).parent.parent == Path(catalog.warehouse)


def test_an_unknown_database_or_table_is_not_found_with_the_likely_name(catalog: mg.Catalog, orders: mg.Table) -> None:
    for call in (
        lambda: catalog.table("shap.orders"),
        lambda: catalog.create_table("shap.x", {"n": "INT"}),
        lambda: catalog.list_tables("shap"),
        lambda: catalog.drop_database("shap"),
        lambda: catalog.drop_table("shap.orders"),
        lambda: catalog.rename_table("shop.orders", "shap.orders"),
    ):
        _refused(call, "'shap'", "Did you mean 'shop'?", error=NotFoundError)
    for call in (
        lambda: catalog.table("shop.order"),
        lambda: catalog.drop_table("shop.order"),
        lambda: catalog.rename_table("shop.order", "shop.x"),
        lambda: catalog.table("shop.order$snapshots"),
    ):
        _refused(call, "'shop.order'", "Did you mean 'orders'?", error=NotFoundError)
    _refused(lambda: catalog.table("shop.orders$snapshot").read(), "snapshot", error=NotFoundError)
    _refused(lambda: catalog.table("shop.orders$audit-log").read(), "audit_log", error=NotFoundError)
    catalog.drop_table("shop.order", if_exists=True)
    catalog.drop_database("shap", if_exists=True)


def test_two_tables_never_lie_at_one_place(catalog: mg.Catalog, orders: mg.Table, events: mg.Table) -> None:
    _refused(lambda: catalog.create_table("shop.orders", {"n": "INT"}), "'shop.orders'", error=AlreadyExistsError)
    _refused(lambda: catalog.rename_table("shop.events", "shop.orders"), "'shop.orders'", error=AlreadyExistsError)
    _refused(lambda: catalog.rename_table("shop.events", "shop.events"), "'shop.events'", error=AlreadyExistsError)
    _refused(lambda: catalog.create_database("shop"), "'shop'", error=AlreadyExistsError)
    same = catalog.create_table("shop.orders", {"n": "INT"}, if_not_exists=True)
    assert same.schema == orders.schema
    catalog.create_database("shop", if_not_exists=True)


@pytest.mark.usefixtures("writes")
def test_a_place_that_holds_something_else_is_not_taken_by_a_rename(catalog: mg.Catalog, events: mg.Table) -> None:
    other = Path(catalog.warehouse, "shop.db", "notes")
    other.mkdir()
    (other / "mine.txt").write_text("do not touch")
    _refused(lambda: catalog.rename_table("shop.events", "shop.notes"), "notes", error=AlreadyExistsError)
    _refused(lambda: catalog.drop_table("shop.notes"), error=NotFoundError)
    assert (other / "mine.txt").read_text() == "do not touch"


@pytest.mark.usefixtures("writes")
def test_a_database_with_anything_in_it_is_not_dropped_without_cascade(catalog: mg.Catalog, events: mg.Table) -> None:
    _refused(lambda: catalog.drop_database("shop"), "'events'", "cascade=True")
    catalog.create_database("notes")
    mine = Path(catalog.warehouse, "notes.db", "folder", "mine.txt")
    mine.parent.mkdir()
    mine.write_text("do not touch")
    _refused(lambda: catalog.drop_database("notes"), "'folder'", "cascade=True")
    assert mine.read_text() == "do not touch"


def test_a_path_without_a_table_says_how_to_make_one(tmp_path: Path, orders: mg.Table) -> None:
    for path in (tmp_path, tmp_path / "nothing", Path(orders.path, "schema"), Path(orders.path, "schema", "schema-0")):
        _refused(lambda path=path: mg.table(str(path)), str(path), "create_table", error=NotFoundError)
    for path in ("", "a\0b", "ftp://x/y", "s3://"):
        _refused(lambda path=path: mg.table(path))
        _refused(lambda path=path: mg.catalog(path))


@pytest.mark.usefixtures("writes")
def test_a_directory_of_another_kind_is_not_a_table(tmp_path: Path) -> None:
    delta = tmp_path / "delta"
    (delta / "_delta_log").mkdir(parents=True)
    (delta / "_delta_log" / "00000000000000000000.json").write_text("{}")
    (delta / "schema").mkdir()
    (delta / "schema" / "schema-x").write_text("{}")
    _refused(lambda: mg.table(str(delta)), str(delta), error=NotFoundError)
    (delta / "schema" / "schema-0").write_text("not json")
    _refused(lambda: mg.table(str(delta)), "schema-0", error=FormatError)


@pytest.mark.usefixtures("writes")
def test_an_unreadable_warehouse_is_a_storage_error_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from merganser.storage.local import LocalStorage

    def denied(self: LocalStorage, path: str) -> Any:
        raise StorageError(f"cannot list '{path}': Permission denied.", path=path)

    monkeypatch.setattr(LocalStorage, "list", denied)
    _refused(lambda: mg.catalog(str(tmp_path)), str(tmp_path), "Permission denied", error=StorageError)
    monkeypatch.undo()
    file = tmp_path / "file"
    file.write_text("x")
    _refused(lambda: mg.catalog(str(file)).create_database("shop"), str(file), error=StorageError)


def test_a_catalog_makes_nothing_until_something_is_created(tmp_path: Path) -> None:
    mg.catalog(str(tmp_path / "new")).list_databases()
    assert not (tmp_path / "new").exists()


# definitions of tables


def _define(catalog: mg.Catalog, schema: Any = None, **how: Any) -> mg.Table:
    return catalog.create_table(
        "shop.new", {"dt": "STRING", "id": "BIGINT", "v": "INT"} if schema is None else schema, **how
    )


@pytest.mark.parametrize(
    ("how", "parts"),
    [
        ({"schema": {}}, ("no columns",)),
        ({"schema": 7}, ("int",)),
        ({"schema": "id BIGNIT"}, ("'id'", "BIGNIT")),
        ({"schema": {"a": "INTEGRE"}}, ("'a'", "INTEGRE")),
        ({"schema": {"a": "DECIMAL(50, 2)"}}, ("'a'", "50")),
        ({"schema": {"a": 7}}, ("'a'", "7")),
        ({"schema": {"": "INT"}}, ("blank",)),
        ({"schema": {7: "INT"}}, ("7",)),
        ({"schema": [("a", "INT"), ("a", "INT")]}, ("'a'", "duplicate")),
        ({"schema": pa.schema([("a", pa.int32()), ("a", pa.int32())])}, ("'a'",)),
        ({"schema": {"_SEQUENCE_NUMBER": "BIGINT"}}, ("'_SEQUENCE_NUMBER'", "system")),
        ({"schema": {"_KEY_a": "BIGINT"}}, ("'_KEY_a'",)),
        ({"schema": {"rowkind": "STRING"}}, ("'rowkind'",)),
        ({"schema": {"_ROW_ID": "BIGINT"}}, ("'_ROW_ID'",)),
        ({"primary_key": ["nope"]}, ("'nope'",)),
        ({"primary_key": ["id", "id"]}, ("'id'", "duplicates")),
        ({"primary_key": "id"}, ("'id'", "list")),
        ({"primary_key": ["dt"], "partition_by": ["dt"]}, ("'dt'", "partition columns only")),
        ({"partition_by": ["nope"]}, ("'nope'",)),
        ({"partition_by": "dt"}, ("'dt'", "list")),
        ({"schema": {"a": "ARRAY<INT>", "b": "INT"}, "primary_key": ["a"]}, ("'a'", "ARRAY")),
        ({"schema": {"a": "MAP<INT, INT>", "b": "INT"}, "partition_by": ["a"]}, ("'a'", "MAP")),
        ({"schema": {"a": "BYTES", "b": "INT"}, "partition_by": ["a"]}, ("'a'", "BYTES")),
        ({"options": {"bucket": "0"}}, ("bucket", "0")),
        ({"options": {"bucket": "-3"}}, ("bucket", "-3")),
        ({"options": {"bucket": "two"}}, ("'bucket'", "'two'")),
        ({"options": {"bucket": "4"}}, ("bucket-key",)),
        ({"options": {"bucket-num": "4"}}, ("'bucket-num'", "'bucket'")),
        ({"options": {"bucket": "4", "bucket-key": "nope"}}, ("'nope'",)),
        ({"options": {"bucket": "-1", "bucket-key": "id"}}, ("bucket-key",)),
        ({"primary_key": ["id"], "options": {"bucket": "2", "bucket-key": "v"}}, ("'v'", "primary key")),
        ({"primary_key": ["id"], "options": {"bucket": "2", "sequence.field": "nope"}}, ("'nope'",)),
        ({"primary_key": ["id"], "options": {"bucket": "2", "merge-engine": "magic"}}, ("'merge-engine'", "magic")),
        ({"options": {"fields.nope.stats-mode": "full"}}, ("'nope'",)),
        ({"options": {"fields.v.stats-mode": "most"}}, ("most",)),
        ({"options": {"changelog-producer": "lookup"}}, ("changelog-producer", "primary key")),
        ({"options": {"snapshot.num-retained.min": "5", "snapshot.num-retained.max": "3"}}, ("5", "3")),
        ({"options": {"fields.v.default-value": "abc"}}, ("abc",)),
        ({"options": {"bucket": None}}, ("'bucket'",)),
        ({"options": ["bucket"]}, ()),
        ({"primary_key": ["id"], "options": {"primary-key": "id", "bucket": "1"}}, ("primary-key", "twice")),
    ],
)
def test_a_definition_that_is_no_table_of_the_format_is_refused(
    catalog: mg.Catalog, how: dict[str, Any], parts: tuple[str, ...]
) -> None:
    _refused(lambda: _define(catalog, **how), *parts)
    assert catalog.list_tables("shop") == []


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"changelog.image": "wal"}, "has no changelog producer"),
        ({"changelog.image": "wal", "changelog-producer": "lookup"}, "and this table has lookup"),
        ({"changelog-producer.row-deduplicate": "true", "changelog-producer": "input"}, "and this table has input"),
        ({"changelog-producer.row-deduplicate-ignore-fields": "v"}, "has no changelog producer"),
    ],
)
def test_options_of_changelogs_that_the_producer_does_not_look_at_are_refused(
    catalog: mg.Catalog, options: dict[str, str], part: str
) -> None:
    _refused(lambda: _define(catalog, primary_key=["id"], options=options), part, "Nothing was changed")
    assert catalog.list_tables("shop") == []


@pytest.mark.parametrize(
    "options",
    [
        {"sequence.snapshot-ordering": "true", "write-only": "true"},
        {"file.format": "csv"},
        {"manifest.format": "orc"},
    ],
)
@pytest.mark.usefixtures("writes")
def test_options_that_this_version_cannot_honour_are_refused_before_rows_are_written(
    catalog: mg.Catalog, options: dict[str, str]
) -> None:
    def make_and_write() -> None:
        _define(catalog, primary_key=["id"], options={"bucket": "1", **options}).write([{"dt": "a", "id": 1, "v": 1}])

    _refused(make_and_write, f"'{next(iter(options))}'", error=UnsupportedError)
    assert not list(Path(catalog.warehouse).rglob("snapshot-*"))
    assert not list(Path(catalog.warehouse).rglob("data-*"))


@pytest.mark.usefixtures("writes")
def test_a_key_that_lacks_the_partition_columns_is_unique_in_each_partition(catalog: mg.Catalog) -> None:
    """The format takes it with a fixed number of buckets; keys are then unique per partition only."""
    table = _define(catalog, primary_key=["id"], partition_by=["dt"], options={"bucket": "1"})
    table.write([{"dt": "a", "id": 1, "v": 1}, {"dt": "b", "id": 1, "v": 2}])
    assert sorted(row["v"] for row in table.read().to_pylist()) == [1, 2]


@pytest.mark.usefixtures("writes")
def test_rows_hashed_over_another_number_of_buckets_are_refused(catalog: mg.Catalog) -> None:
    table = _define(catalog, primary_key=["id"], options={"bucket": "2"})
    table.write([{"dt": "a", "id": 1, "v": 1}])
    schema = unsealed_json(Path(table.path, "schema", "schema-0").read_bytes()).decode()
    Path(table.path, "schema", "schema-1").write_text(
        schema.replace('"id": 0,\n  "fields"', '"id": 1,\n  "fields"').replace('"bucket": "2"', '"bucket": "3"')
    )
    rescaled = catalog.table("shop.new")
    before = _listing(Path(table.path))
    _refused(lambda: rescaled.write([{"dt": "a", "id": 2, "v": 1}]), "2 buckets", "3")
    assert _listing(Path(table.path)) == before
    rescaled.write([{"dt": "a", "id": 2, "v": 1}], overwrite={})
    assert rescaled.read().count() == 1


@pytest.mark.usefixtures("writes")
def test_errors_pickle_with_what_they_name(orders: mg.Table) -> None:
    import pickle

    error = _refused(lambda: orders.write([GOOD | {"tiny": 300}]))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.context) == (type(error), str(error), error.context)
