"""Columns of any name work with every verb, or are refused where they are made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import InvalidInputError

_WORKS = (
    "index", "level_0", "__merganser_task", "__merganser_arrival", "_POSITION", "_FILE", "_hash", "len", "left", "row",
    "k0", "s", "source", "target", "a.b", "a b", 'a"b', "a`b", "a'b", "a,b", "a[0]", "KK", "\U0001f600",
    "__index_level_0__", "_before", "$a", "select", "1", "ß", "_change_type",
)  # fmt: skip
_REFUSED = (
    "_merganser_key_0", "_MERGANSER_task", "_KEY_x", "_SEQUENCE_NUMBER", "_VALUE_KIND", "_LEVEL", "_ROW_ID",
    "rowkind", "", " ",
)  # fmt: skip


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("name", _WORKS)
def test_a_column_of_any_name_works_with_every_verb(name: str, tmp_path: Path) -> None:
    """One table has it as its key, and one, without a key, as a plain column."""
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    columns = {name: "INT", "kk": "INT", "v": "INT"}
    options = {"bucket": "1", "changelog-producer": "lookup"}
    keyed = catalog.create_table("db.k", columns, primary_key=[name], options=options)
    plain = catalog.create_table("db.p", columns)
    quoted = "`" + name.replace("`", "``") + "`"

    def row(number: int, v: int) -> dict[str, Any]:
        return {name: number, "kk": number, "v": v}

    for table in (keyed, plain):
        table.write([row(1, 1), row(2, 2), row(3, 3)])
        table.update(f"{quoted} = 2", {"v": f"v + {quoted} * 10"})
        merge = table.merge([row(3, 4), row(9, 9)], on=f"target.{quoted} = source.{quoted}")
        merge.when_matched_update({"v": f"source.v + source.{quoted}"}).when_not_matched_insert(None).execute()
        table.delete(f"{quoted} = 9")
        assert sorted(table.read(where=f"{quoted} > 0").to_pylist(), key=str) == [row(1, 1), row(2, 22), row(3, 7)]
        for mode in ("auto", "diff"):
            assert table.changes(1, mode=mode).to_arrow().schema.names == ["_row_kind", name, "kk", "v"]
        assert sum(rows.num_rows for rows in table.stream(follow=False)) == 3
        assert table.read().to_pandas().shape == table.read().to_polars().shape == (3, 3)
        assert set(table.system("audit_log").to_arrow()[name].to_pylist()) >= {1, 2, 3}
        assert table.check() == ()
    keyed.upsert([row(1, 5)])
    keyed.write_changes([json.dumps({"op": "c", "before": None, "after": row(4, 4)})], "debezium-json")
    assert keyed.lookup([{name: 4}, {name: 1}]).to_pylist() == [row(4, 4), row(1, 5)]


@pytest.mark.parametrize("name", _REFUSED)
def test_a_name_that_the_system_has_is_refused_where_a_column_gets_it(name: str, tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    with pytest.raises(InvalidInputError, match=r"not allowed|blank"):
        catalog.create_table("db.t", {name: "INT", "v": "INT"})
    catalog.create_table("db.t", {"v": "INT"})
    for change in (mg.changes.add_column(name, "INT"), mg.changes.rename_column("v", name)):
        with pytest.raises(InvalidInputError):
            catalog.alter_table("db.t", [change])


def test_a_key_called_index_that_moves_between_partitions_is_merged(tmp_path: Path) -> None:
    catalog = mg.catalog(str(tmp_path), options={"local.sync": "false"})
    catalog.create_database("db")
    columns = {"p": "STRING", "index": "INT", "v": "INT"}
    table = catalog.create_table("db.t", columns, primary_key=["index"], partition_by=["p"])
    table.write([{"p": "a", "index": 1, "v": 1}])
    merge = table.merge([{"p": "b", "index": 1, "v": 2}, {"p": "b", "index": 2, "v": 2}], on="target.p = source.p")
    with pytest.raises(InvalidInputError, match="index = 1"):
        merge.when_not_matched_insert(None).execute()
    merge = table.merge([{"p": "b", "index": 2, "v": 2}], on="target.index = source.index")
    merge.when_not_matched_insert(None).execute()
    assert table.lookup({"index": 2}).to_pylist() == [{"p": "b", "index": 2, "v": 2}]
