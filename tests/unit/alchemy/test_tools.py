"""Tools over the dialect: pandas, and `%sql` of JupySQL in IPython."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry

import merganser as mg
from merganser import alchemy

pandas = pytest.importorskip("pandas")


@pytest.fixture
def url(tmp_path: Path) -> str:
    registry.register("merganser", "merganser.alchemy", "MerganserDialect")
    mg.catalog(str(tmp_path)).create_database("shop")
    return f"merganser:///{tmp_path}?database=shop"


@pytest.fixture
def engine(url: str) -> Iterator[Any]:
    made = sa.create_engine(url)
    yield made
    made.dispose()


def test_frames_of_pandas_are_written_as_one_commit_and_read(engine: Any, tmp_path: Path) -> None:
    frame = pandas.DataFrame(
        {
            "id": [1, 2, 3],
            "end": ["a", None, "it's"],
            "at": pandas.to_datetime(["2026-01-31 10:00:00.000001", None, "2026-02-01 00:00:00.000000"]),
            "day": [date(2026, 1, 31), None, date(2026, 2, 1)],
            "x": [0.5, None, 1.5],
            "b": [True, False, True],
            "a b/c": [b"\0", None, b"x"],
        }
    )
    frame.to_sql("frames", engine, index=False, dtype={"a b/c": sa.LargeBinary})
    frame.to_sql("frames", engine, index=False, if_exists="append")
    table = mg.catalog(str(tmp_path)).table("shop.frames")
    assert isinstance(table, mg.Table)
    assert [snapshot.commit_kind for snapshot in table.snapshots()] == ["APPEND", "APPEND"]
    read = pandas.read_sql_table("frames", engine)
    assert len(read) == 6
    query = sa.text("SELECT * FROM frames WHERE id >= :least ORDER BY id").bindparams(least=2)
    found = pandas.read_sql(query, engine)
    assert found["at"].tolist()[2:] == [pandas.Timestamp("2026-02-01")] * 2
    assert found["end"].isna().tolist() == [True, True, False, False]
    assert found["a b/c"].tolist()[2:] == [b"x", b"x"]
    assert found["day"].tolist()[2:] == [date(2026, 2, 1)] * 2
    assert found["b"].tolist() == [False, False, True, True]

    frame[["id"]].to_sql("frames", engine, index=False, if_exists="replace", chunksize=2, method="multi")
    assert pandas.read_sql("frames", engine).to_dict("list") == {"id": [1, 2, 3]}
    with pytest.warns(alchemy.MerganserWarning, match="no indexes"):
        frame[["id"]].to_sql("indexed", engine)
    assert pandas.read_sql_table("indexed", engine, index_col="index")["id"].tolist() == [1, 2, 3]


SHELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
from sqlalchemy.dialects import registry

registry.register("merganser", "merganser.alchemy", "MerganserDialect")
shell = InteractiveShell()
line = shell.run_line_magic
line("load_ext", "sql")
line("config", "SqlMagic.feedback = 0")
line("config", "SqlMagic.displaycon = False")
line("sql", sys.argv[1])
shell.run_cell_magic("sql", "", "CREATE TABLE t (id INT, state STRING, PRIMARY KEY (id) NOT ENFORCED)")
shell.run_cell_magic("sql", "", "INSERT INTO t VALUES (1, 'new'), (2, 'paid');\\nINSERT INTO t VALUES (3, 'new')")
line("sql", "UPDATE t SET state = 'sent' WHERE id = 2")
shell.user_ns["least"] = 2
found = line("sql", "SELECT * FROM t WHERE id >= {{least}} ORDER BY id")
assert found.DataFrame().to_dict("list") == {"id": [2, 3], "state": ["sent", "new"]}, found
line("sql", "--save kept --no-execute SELECT * FROM t WHERE state = 'new'")
assert line("sql", "--with kept SELECT count(*) AS n FROM kept").DataFrame()["n"].tolist() == [2]
assert "t" in str(line("sqlcmd", "tables"))
assert "state" in str(line("sqlcmd", "columns --table t"))
"""


def test_the_magic_of_jupysql_runs_statements(url: str, tmp_path: Path) -> None:
    """In a process of its own: its module is called `sql`, as a directory of these tests is."""
    pytest.importorskip("IPython")
    given = {"HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython"), "PLOOMBER_STATS_ENABLED": "false"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SHELL, url],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3], env=os.environ | given, timeout=120,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
