"""The dialect of SQLAlchemy: URLs, definitions, reflection, DML with values of all types, transactions, the ORM."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import registry

import merganser as mg
from merganser import alchemy

ALL = {
    "flag": (sa.Boolean, "BOOLEAN", True), "tiny": (alchemy.TINYINT, "TINYINT", -1),
    "small": (sa.SmallInteger, "SMALLINT", -2), "i": (sa.Integer, "INT", 3), "big": (sa.BigInteger, "BIGINT", 2**40),
    "exact": (sa.Numeric(20, 3), "DECIMAL(20, 3)", Decimal("-1.250")),
    "any": (sa.Numeric, "DECIMAL(38, 18)", Decimal("0.1")), "d": (sa.Float, "DOUBLE", 0.1),
    "f": (sa.Float(24), "FLOAT", 0.5), "s": (sa.String, "STRING", "it's \\ \"q\" :x %s"),
    "v": (sa.String(20), "VARCHAR(20)", "größe"), "c": (sa.CHAR(3), "CHAR(3)", "ab"),
    "x": (sa.LargeBinary, "BYTES", b"\0'\xff"), "x4": (sa.BINARY(4), "BINARY(4)", b"abcd"),
    "day": (sa.Date, "DATE", date(1969, 12, 31)), "at": (sa.Time, "TIME(3)", time(1, 2, 3, 4000)),
    "ts": (sa.DateTime, "TIMESTAMP(6)", datetime(2026, 1, 31, 1, 2, 3, 4)),
    "ts3": (alchemy.TIMESTAMP(False, 3), "TIMESTAMP(3)", datetime(2026, 1, 31, 1, 2, 3, 4000)),
    "lt": (sa.DateTime(True), "TIMESTAMP(6) WITH LOCAL TIME ZONE", datetime(2026, 1, 31, tzinfo=UTC)),
    "tags": (sa.ARRAY(sa.String), "ARRAY<STRING>", ["a", None]),
    "deep": (sa.ARRAY(sa.Integer, dimensions=2), "ARRAY<ARRAY<INT>>", [[1], []]),
    "m": (alchemy.MAP(sa.String, sa.Integer), "MAP<STRING, INT>", {"k": 1}),
    "r": (alchemy.ROW({"x": sa.Integer, "y z": sa.String}), "ROW<x INT, `y z` STRING>", {"x": 1, "y z": None}),
}  # fmt: skip
PLAIN = [name for name, (kind, _, _) in ALL.items() if name not in ("tags", "deep", "m", "r")]


@pytest.fixture(autouse=True)
def registered() -> None:
    """As the entry point does for an installed package."""
    registry.register("merganser", "merganser.alchemy", "MerganserDialect")


@pytest.fixture
def catalog(tmp_path: Path) -> mg.Catalog:
    made = mg.catalog(str(tmp_path))
    made.create_database("shop")
    return made


@pytest.fixture
def engine(tmp_path: Path, catalog: mg.Catalog) -> Iterator[Any]:
    made = sa.create_engine(f"merganser:///{tmp_path}?database=shop&local.sync=false")
    yield made
    made.dispose()


def commits(catalog: mg.Catalog, name: str) -> int:
    return len(list(catalog.table(f"shop.{name}").snapshots()))


def test_the_entry_points_name_the_dialect() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    for text in project["entry-points"]["sqlalchemy.dialects"].values():
        module, _, name = text.partition(":")
        assert getattr(import_module(module), name) is alchemy.MerganserDialect


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("merganser://bucket/warehouse", "three slashes"),
        ("merganser://", "names no warehouse"),
        ("merganser:///memory://u/w?database=a&database=b", "'database' stands in the URL more than once"),
        ("merganser:///memory://u/w?s3.endpoynt=x", "s3.endpoint"),
        ("merganser:///memory://u/w?database=nope", "nope"),
    ],
)
def test_urls_that_name_no_warehouse_are_refused(url: str, words: str) -> None:
    with pytest.raises((sa.exc.ArgumentError, sa.exc.DBAPIError), match=words):
        sa.create_engine(url).connect()


def test_an_open_catalog_and_the_url_of_a_store_are_connected_to(catalog: mg.Catalog) -> None:
    engine = sa.create_engine("merganser://", connect_args={"catalog_or_warehouse": catalog, "database": "shop"})
    assert sa.inspect(engine).default_schema_name == "shop"
    mg.catalog("memory://alchemy/warehouse").create_database("there")
    engine = sa.create_engine("merganser:///memory://alchemy/warehouse?table-default.bucket=3")
    assert sa.inspect(engine).get_schema_names() == ["there"]
    assert sa.inspect(engine).get_table_names() == []


def test_types_keys_and_options_come_back_as_they_were_defined(engine: Any, catalog: mg.Catalog) -> None:
    columns = [sa.Column(name, kind) for name, (kind, _, _) in ALL.items()]
    defined = sa.Table(
        "t", sa.MetaData(),
        sa.Column("id", sa.BigInteger, primary_key=True, comment="it's \\ the id"),
        sa.Column("dt", sa.String, primary_key=True),
        sa.Column("state", sa.String, nullable=False, server_default="it's new"),
        *columns,
        comment="orders", merganser_partition_by=["dt"], merganser_options={"bucket": 2, "write-only": True},
    )  # fmt: skip
    defined.create(engine)
    table = catalog.table("shop.t")
    assert isinstance(table, mg.Table)
    assert (table.primary_key, table.partition_by) == (("id", "dt"), ("dt",))
    assert table.options.items() >= {"bucket": "2", "write-only": "true"}.items()
    assert [str(field.type) for field in table.schema.fields[3:]] == [kind for _, kind, _ in ALL.values()]

    reflected = sa.Table("t", sa.MetaData(), autoload_with=engine)
    again = str(sa.schema.CreateTable(reflected).compile(engine))
    engine.connect().exec_driver_sql(again.replace("TABLE t", "TABLE u"))
    copy = catalog.table("shop.u")
    assert isinstance(copy, mg.Table)
    assert copy.schema.fields == table.schema.fields
    assert (copy.primary_key, copy.partition_by, copy.options) == (table.primary_key, table.partition_by, table.options)
    assert reflected.comment == "orders"
    assert reflected.c.id.comment == "it's \\ the id"
    assert sa.inspect(engine).get_columns("t$snapshots")[0]["name"] == "snapshot_id"
    assert not sa.inspect(engine).has_table("t$nope")


@pytest.mark.parametrize("key", [True, False], ids=["key", "append"])
def test_values_of_all_types_are_written_found_and_changed(engine: Any, catalog: mg.Catalog, key: bool) -> None:
    columns = [sa.Column(name, kind) for name, (kind, _, _) in ALL.items()]
    t = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=key), *columns)
    t.create(engine)
    values = {name: value for name, (_, _, value) in ALL.items()}
    nulls = dict.fromkeys(ALL)
    with engine.begin() as connection:
        connection.execute(t.insert(), {"id": 1, **values})
        connection.execute(t.insert(), [{"id": 2, **values}, {"id": 3, **nulls}, {"id": 4, **values}])
        connection.execute(t.insert().values([{"id": 5, **nulls}, {"id": 6, **nulls}]))
        assert commits(catalog, "t") == 3
        rows = connection.execute(t.select().order_by(t.c.id)).mappings().all()
        assert [dict(row) for row in rows[:3]] == [{"id": 1, **values}, {"id": 2, **values}, {"id": 3, **nulls}]
        for name in PLAIN:
            for literal in (False, True):
                found = sa.select(t.c.id).where(t.c[name] == values[name]).order_by(t.c.id)
                text = found.compile(engine, compile_kwargs={"literal_binds": True}) if literal else None
                got = connection.exec_driver_sql(str(text)) if literal else connection.execute(found)
                assert got.scalars().all() == [1, 2, 4], (name, literal)
            matching = [t.c[name] == values[name], t.c.id == 4]
            assert connection.execute(t.update().where(*matching).values({name: None})).rowcount == 1, name
            assert connection.execute(t.update().where(t.c.id == 4).values({name: values[name]})).rowcount == 1, name
        assert connection.execute(
            t.update().where(t.c.id == 3).values(tags=["b"], i=sa.select(t.c.i).limit(1).scalar_subquery())
        ).rowcount
        assert connection.execute(sa.select(t.c.tags, t.c.i).where(t.c.id == 3)).one() == (["b"], 3)
        every = sa.and_(*(t.c[name] == values[name] for name in PLAIN))
        assert connection.execute(t.delete().where(every)).rowcount == 3
        assert connection.execute(t.delete().where(t.c.s.is_(None), t.c.id.in_([5, 6]))).rowcount == 2
        assert connection.execute(t.delete().where(t.c.id.in_(sa.select(t.c.id)))).rowcount == 1


def test_differences_of_times_are_intervals(engine: Any, catalog: mg.Catalog) -> None:
    kinds = (("a", sa.DateTime), ("b", sa.DateTime), ("kept", sa.Interval))
    table = sa.Table("spans", sa.MetaData(), *(sa.Column(name, kind) for name, kind in kinds))
    table.create(engine)
    span = timedelta(days=1, hours=2, microseconds=5)
    begin = datetime(2026, 1, 31, 1)
    with engine.begin() as connection:
        connection.execute(
            table.insert(), [{"a": begin, "b": begin + span, "kept": span}, {"a": None, "b": None, "kept": None}]
        )
        kept = connection.execute(sa.select(table.c.b - table.c.a, table.c.kept)).all()
        assert sorted(kept, key=str) == [(None, None), (span, span)]
        assert connection.scalar(sa.select(sa.func.max(table.c.a - table.c.b))) == -span


def test_tables_of_another_database_are_changed(engine: Any, catalog: mg.Catalog) -> None:
    t = sa.Table("t", sa.MetaData(schema="other"), sa.Column("id", sa.Integer), sa.Column("end", sa.String))
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema("other"))
        t.create(connection)
        connection.execute(t.insert(), [{"id": 1, "end": "a"}, {"id": 2, "end": "b"}])
        connection.execute(t.update().where(t.c.id == 1).values(end=t.c.end + "!"))
        connection.execute(t.delete().where(t.c.id == 2))
        assert connection.execute(t.select()).all() == [(1, "a!")]


def test_queries_are_those_of_spark(engine: Any) -> None:
    values = sa.values(sa.column("n", sa.Integer), name="v").data([(3,), (1,), (2,)])
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.literal(7) / 2)) == 3.5
        assert connection.scalar(sa.select(sa.literal(7) // 2)) == 3
        assert connection.scalar(sa.select(sa.cast(datetime(2026, 1, 31), sa.DateTime))) == datetime(2026, 1, 31)
        assert connection.scalars(sa.select(values.c.n).order_by(values.c.n).offset(1)).all() == [2, 3]
        assert connection.scalars(sa.select(values.c.n).where(values.c.n.in_([]))).all() == []
        assert connection.scalars(sa.select(sa.literal("abc").regexp_match("^a.c$"))).all() == [True]


def test_a_rollback_of_changes_warns_that_they_stay(engine: Any) -> None:
    t = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer))
    t.create(engine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with engine.connect() as connection:
            connection.execute(t.select()).all()
            connection.rollback()
            connection.execute(t.insert(), {"id": 1})
            connection.commit()

    def change(number: int, end: Any) -> None:
        with engine.begin() as connection:
            connection.execute(t.insert(), {"id": number})
            end(connection)

    with pytest.warns(alchemy.MerganserWarning, match="changes of 1 statement stay"):
        change(2, lambda connection: connection.rollback())
    with pytest.warns(alchemy.MerganserWarning), pytest.raises(ZeroDivisionError):
        change(3, lambda connection: 1 / 0)
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(t)) == 3
        with pytest.raises(sa.exc.CompileError, match="savepoints"), connection.begin_nested():
            pass


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (lambda: sa.UniqueConstraint("n"), "UNIQUE"),
        (lambda: sa.Index("u", "n", unique=True), "unique index 'u'"),
        (lambda: sa.CheckConstraint("n > 0"), "CHECK"),
        (lambda: sa.Column("c", sa.Integer, sa.Computed("n + 1")), "computed"),
    ],
)
def test_constraints_that_nothing_would_check_are_refused(engine: Any, item: Any, words: str) -> None:
    t = sa.Table("t", sa.MetaData(), sa.Column("n", sa.Integer), item())
    with pytest.raises(sa.exc.CompileError, match=words):
        t.create(engine)
    assert sa.inspect(engine).get_table_names() == []


def test_an_index_is_left_out_with_a_warning(engine: Any) -> None:
    t = sa.Table("t", sa.MetaData(), sa.Column("n", sa.Integer, index=True))
    with pytest.warns(alchemy.MerganserWarning, match="no indexes"):
        t.create(engine)
    assert sa.inspect(engine).get_indexes("t") == []


def test_objects_go_there_and_back(engine: Any, catalog: mg.Catalog) -> None:
    class Base(orm.DeclarativeBase):
        pass

    class Customer(Base):
        __tablename__ = "customer"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True, autoincrement=False)
        name: orm.Mapped[str]
        orders: orm.Mapped[list[Order]] = orm.relationship(back_populates="customer", cascade="all, delete-orphan")

    class Order(Base):
        __tablename__ = "order"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True, autoincrement=False)
        customer_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("customer.id"))
        amount: orm.Mapped[Decimal] = orm.mapped_column(sa.Numeric(10, 2))
        customer: orm.Mapped[Customer] = orm.relationship(back_populates="orders")

    Base.registry._class_registry["Order"] = Order
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.add(Customer(id=1, name="Ann", orders=[Order(id=n, amount=Decimal(n)) for n in range(1, 5)]))
        session.commit()
    assert commits(catalog, "order") == 1
    with orm.Session(engine) as session:
        ann = session.scalars(sa.select(Customer).options(orm.selectinload(Customer.orders))).one()
        ann.name = "Anne"
        ann.orders[0].amount += 10
        del ann.orders[1]
        session.commit()
        total = sa.select(Customer.name, sa.func.sum(Order.amount)).join(Order).group_by(Customer.name)
        assert session.execute(total).all() == [("Anne", Decimal("18.00"))]
        session.delete(ann)
        session.commit()
        assert session.scalars(sa.select(Order)).all() == []


def test_moments_keep_their_instant(engine: Any) -> None:
    t = sa.Table("t", sa.MetaData(), sa.Column("at", sa.DateTime(timezone=True)))
    t.create(engine)
    east = datetime(2026, 1, 31, 1, tzinfo=timezone(timedelta(hours=2)))
    with engine.begin() as connection:
        connection.execute(t.insert(), {"at": east})
        assert connection.scalar(t.select().where(t.c.at == east)) == east
