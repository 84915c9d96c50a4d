"""Times of nine digits of a second keep them in queries of this process; functions compute with six, as Spark does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from merganser.sql.session import Session

LATE = 1_767_225_600_000_000_000  # 2026-01-01 00:00:00
EARLY = -315_619_200_000_000_000  # 1960-01-01 00:00:00
NANOS = [LATE + 501, LATE + 499, LATE + 501, LATE, EARLY + 1, None]
IDS = [1, 2, 3, 4, 5, 6]


@pytest.fixture(params=["UTC", "Europe/Berlin"])
def session(tmp_path: Path, request: pytest.FixtureRequest) -> Session:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("default")
    made = catalog.session()
    made.sql(f"SET timezone = '{request.param}'")
    made.sql(
        "CREATE TABLE t (id INT, a TIMESTAMP(9), z TIMESTAMP_LTZ(9), l ARRAY<TIMESTAMP_LTZ(9)>, "
        "r ROW<z TIMESTAMP_LTZ(9), m MAP<STRING, TIMESTAMP(9)>>, six TIMESTAMP(6))"
    )
    lists = [[value] for value in NANOS]
    inner = [{"z": value, "m": [("k", value)]} for value in NANOS]
    zoned, plain = pa.timestamp("ns", "UTC"), pa.timestamp("ns")
    rows = {
        "id": pa.array(IDS, pa.int32()),
        "a": pa.array(NANOS, plain),
        "z": pa.array(NANOS, zoned),
        "l": pa.array(lists, pa.list_(zoned)),
        "r": pa.array(inner, pa.struct([("z", zoned), ("m", pa.map_(pa.string(), plain))])),
        "six": pa.array([None if value is None else value // 1000 for value in NANOS], pa.timestamp("us")),
    }
    made.state.table(("t",)).write(pa.table(rows))
    return made


def nanos(rows: pa.Table, column: int = 0) -> list[int | None]:
    assert pa.types.is_timestamp(rows.schema.types[column])
    assert rows.schema.types[column].unit == "ns"
    return list(rows.column(column).cast(pa.int64()).to_pylist())


def ids(session: Session, condition: str) -> list[int]:
    """Rows that a query computes, not the scan alone."""
    return sorted(session.sql(f"SELECT id FROM t WHERE {condition} OR id + 0 > 9")["id"].to_pylist())


@pytest.mark.parametrize("column", ["a", "z"])
def test_sorting_groups_and_bounds_look_at_all_digits(session: Session, column: str) -> None:
    ordered = session.sql(f"SELECT id, {column} FROM t ORDER BY {column}, id")
    assert ordered["id"].to_pylist() == [6, 5, 4, 2, 1, 3]
    assert nanos(ordered, 1) == [None, EARLY + 1, LATE, LATE + 499, LATE + 501, LATE + 501]
    grouped = session.sql(f"SELECT {column}, count(*) AS n FROM t GROUP BY {column} ORDER BY 1")
    assert nanos(grouped) == [None, EARLY + 1, LATE, LATE + 499, LATE + 501]
    assert grouped["n"].to_pylist() == [1, 1, 1, 1, 2]
    assert nanos(session.sql(f"SELECT DISTINCT {column} FROM t ORDER BY 1")) == nanos(grouped)
    bounds = session.sql(f"SELECT min({column}), max({column}), first({column}), count(DISTINCT {column}) FROM t")
    assert [nanos(bounds, i) for i in range(3)] == [[EARLY + 1], [LATE + 501], [LATE + 501]]
    assert bounds.column(3).to_pylist() == [4]
    ranks = session.sql(
        f"SELECT id, dense_rank() OVER (ORDER BY {column}) AS r, lag({column}) OVER (ORDER BY id) FROM t"
    )
    assert dict(zip(ranks["id"].to_pylist(), ranks["r"].to_pylist(), strict=True)) == {
        6: 1,
        5: 2,
        4: 3,
        2: 4,
        1: 5,
        3: 5,
    }
    joined = session.sql(f"SELECT x.id AS i, y.id AS j FROM t x JOIN t y ON x.{column} = y.{column} AND x.id < y.id")
    assert joined.to_pylist() == [{"i": 1, "j": 3}]
    chosen = f"SELECT coalesce(NULL, {column}), greatest({column}, {column}), CASE WHEN id = 1 THEN {column} END FROM t"
    assert [nanos(session.sql(f"{chosen} WHERE id = 1"), i) for i in range(3)] == [[LATE + 501]] * 3
    united = session.sql(f"SELECT {column} FROM t WHERE id = 1 UNION SELECT {column} FROM t WHERE id = 2 ORDER BY 1")
    assert nanos(united) == [LATE + 499, LATE + 501]
    assert session.sql(f"SELECT id FROM t WHERE {column} IN (SELECT max({column}) FROM t)").num_rows == 2


def test_digits_inside_of_values_are_kept(session: Session) -> None:
    found = session.sql("SELECT l, r, r.z, r.m['k'], l[0], array(z), struct(z) FROM t WHERE id + 0 = 1")
    whole = pa.timestamp("ns", "UTC")
    assert found.schema.types[0].value_type == whole
    assert found["l"].combine_chunks().values.cast(pa.int64()).to_pylist() == [LATE + 501]
    assert found["r"].combine_chunks().field("m").items.cast(pa.int64()).to_pylist() == [LATE + 501]
    assert [nanos(found, i) for i in (2, 3, 4)] == [[LATE + 501]] * 3
    assert session.sql("SELECT count(*) AS n FROM (SELECT DISTINCT l FROM t)").to_pylist() == [{"n": 5}]
    copied = session.sql("CREATE TABLE u AS SELECT * FROM t ORDER BY id; SELECT a, z FROM u WHERE id = 1")
    assert [nanos(copied, i) for i in (0, 1)] == [[LATE + 501]] * 2


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("> {} '2026-01-01 00:00:00.0000005'", [1, 3]),
        (">= {} '2026-01-01 00:00:00.000000501'", [1, 3]),
        ("= {} '2026-01-01 00:00:00.000000499'", [2]),
        ("= {} '2026-01-01 00:00:00'", [4]),
        ("<> {} '2026-01-01 00:00:00'", [1, 2, 3, 5]),
        ("> {} '2026-01-01 00:00:00'", [1, 2, 3]),
        (">= {} '2026-01-01 00:00:00'", [1, 2, 3, 4]),
        ("<= {} '2026-01-01 00:00:00'", [4, 5]),
        ("< {} '2026-01-01 00:00:00'", [5]),
        ("> {} '1960-01-01 00:00:00'", [1, 2, 3, 4, 5]),
        ("<= {} '1960-01-01 00:00:00'", []),
        ("< {} '9999-12-31 00:00:00'", [1, 2, 3, 4, 5]),
        ("IN ({0} '2026-01-01 00:00:00', {0} '2026-01-01 00:00:00.000000499')", [2, 4]),
        ("BETWEEN {0} '2026-01-01 00:00:00' AND {0} '2026-01-01 00:00:00.0000005'", [2, 4]),
        ("<=> {} '2026-01-01 00:00:00'", [4]),
    ],
)
def test_comparisons_are_exact(session: Session, condition: str, found: list[int]) -> None:
    session.sql("SET timezone = 'UTC'")
    for column, kind in (("a", "TIMESTAMP_NTZ"), ("z", "TIMESTAMP_LTZ"), ("a", ""), ("z", "")):
        assert ids(session, f"{column} {condition.format(kind)}") == found
    assert (
        sorted(session.sql(f"SELECT id FROM t WHERE a {condition.format('TIMESTAMP_NTZ')}")["id"].to_pylist()) == found
    )


def test_times_of_six_digits_meet_those_of_nine(session: Session) -> None:
    assert ids(session, "a = six") == [4]
    assert ids(session, "six < a") == [1, 2, 3, 5]
    assert ids(session, "NOT six >= a") == [1, 2, 3, 5]
    assert session.sql("SELECT x.id FROM t x JOIN t y ON x.a = y.six").to_pylist() == [{"id": 4}] * 4
    assert nanos(session.sql("SELECT coalesce(six, a) AS v FROM t WHERE id + 0 = 1")) == [LATE]
    with pytest.raises(InvalidInputError, match="overflow"):
        session.sql("SELECT coalesce(a, TIMESTAMP_NTZ '9999-12-31 00:00:00') FROM t WHERE id + 0 = 6")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CAST(a AS STRING)", "1959-12-31 23:59:59.999999"),
        ("extract(SECOND FROM a)", "59.999999"),
        ("a - TIMESTAMP_NTZ '1960-01-01 00:00:00'", "-1 day, 23:59:59.999999"),
        ("unix_micros(z)", str(EARLY // 1000 - 1)),
        ("CAST(l AS STRING)", "[1959-12-31 23:59:59.999999]"),
        ("size(l)", "1"),
        ("date_format(a, 'yyyy-MM-dd HH:mm:ss.SSSSSS')", "1959-12-31 23:59:59.999999"),
        ("CAST(a + INTERVAL 1 DAY AS STRING)", "1960-01-01 23:59:59.999999"),
        ("transform(l, x -> unix_micros(x))[0]", str(EARLY // 1000 - 1)),
        ("CAST(z AS DOUBLE) < -315619200.0D", "True"),
    ],
)
def test_functions_compute_with_the_six_digits_below(session: Session, text: str, value: Any) -> None:
    session.sql("SET timezone = 'UTC'; CREATE TABLE e (a TIMESTAMP(9), z TIMESTAMP_LTZ(9), l ARRAY<TIMESTAMP_LTZ(9)>)")
    at = pa.array([EARLY - 1], pa.timestamp("ns"))
    zoned = at.cast(pa.timestamp("ns", "UTC"))
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), zoned)
    session.state.table(("e",)).write(pa.table({"a": at, "z": zoned, "l": lists}))
    assert str(session.sql(f"SELECT {text} AS v FROM e")["v"].to_pylist()[0]) == value


def test_keys_of_nine_digits_are_changed_by_a_query(session: Session) -> None:
    session.sql("CREATE TABLE k (a TIMESTAMP(9), v INT, PRIMARY KEY (a) NOT ENFORCED)")
    session.sql("INSERT INTO k SELECT a, id FROM t WHERE id < 3 OR id = 4")
    assert session.execute("UPDATE k SET v = 9 WHERE v = (SELECT 2)").counts == {"updated": 1}
    assert session.execute("DELETE FROM k WHERE a = (SELECT max(a) FROM t)").counts == {"deleted": 1}
    assert session.sql("SELECT v FROM k ORDER BY a")["v"].to_pylist() == [4, 9]
