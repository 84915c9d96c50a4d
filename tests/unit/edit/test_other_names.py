"""Methods that other table stores have are answered with ours, all of which exist."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

import merganser as mg
from merganser.edit.merging import Merge
from merganser.edit.other_names import OF_MERGE, OF_TABLE


@pytest.fixture
def table(tmp_path: Path) -> mg.Table:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("db")
    return catalog.create_table("db.t", {"id": "INT"}, primary_key=["id"])


@pytest.mark.parametrize(("kind", "answers"), [(Merge, OF_MERGE), (mg.Table, OF_TABLE)])
def test_the_answers_name_methods_that_exist(kind: type, answers: dict[str, str]) -> None:
    for other, ours in answers.items():
        assert not hasattr(kind, other)
        names = re.findall(r"(?<![.\w])(\w+)[(.]", re.sub(r"merganser\.spark|'[^']*'", "", ours))
        assert names, ours
        assert [name for name in names if not hasattr(kind, name)] == [], ours


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("whenMatchedUpdateAll", r"'Merge' has no 'whenMatchedUpdateAll'. Write when_matched_update\(\)"),
        ("when_matched_update_all", r"Write when_matched_update\(\)"),
        ("whenNotMatchedBySourceDelete", "Write when_not_matched_by_source_delete"),
        ("when_not_matched_insrt", "Did you mean 'when_not_matched_insert'"),
        ("__wrapped__", "'Merge' has no '__wrapped__'.$"),
    ],
)
def test_a_merge_answers_with_its_own_name(table: mg.Table, name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        getattr(table.merge([{"id": 1}], "t.id = s.id"), name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("toDF", r"'Table' has no 'toDF'. Write read\(\)"),
        ("vacuum", r"Write expire\(\) .* remove_orphans\(\)"),
        ("restore_to_version", r"Write rollback\(snapshot\)"),
        ("compct", "Did you mean 'compact'"),
        ("tags", "'Table' has no 'tags'.$"),
    ],
)
def test_a_table_answers_with_its_own_name(
    table: mg.Table, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: mg.Table) -> None:
        raise AttributeError

    monkeypatch.setattr(mg.Table, "tags", property(broken))
    with pytest.raises(AttributeError, match=said):
        getattr(table, name)
    assert pickle.loads(pickle.dumps(table)).name == "db.t"
