"""Who has committed outlives the snapshots that show it, whatever else is committed and expires."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.commit import committers
from merganser.errors import FormatError
from merganser.meta.snapshot import snapshot_from_json
from merganser.write.target import WriteTarget
from merganser.write.transaction import Transaction
from tests.kit.builders import catalog_over, memory_with

_names = itertools.count()


def _table() -> mg.Table:
    catalog = catalog_over(memory_with({}, f"committers-{next(_names)}"))
    catalog.create_database("db")
    return catalog.create_table("db.t", {"k": "INT", "v": "STRING"}, options={"bucket": "-1", "write-only": "true"})


def _again(table: mg.Table) -> mg.Table:
    return catalog_over(table.env.storage).table("db.t")


def _write(table: mg.Table, v: str = "x", **given: Any) -> Any:
    return table.write([{"k": 1, "v": v}], **given)


def _batch(table: mg.Table, number: int, batch: str) -> None:
    transaction = Transaction(WriteTarget(table.definition), table.env, "query", number)
    transaction.batch = batch
    transaction.finish(transaction.job().run([pa.table({"k": pa.array([1], pa.int32()), "v": ["x"]})]).messages)


def _foreign(table: mg.Table) -> None:
    """Make the newest snapshot one that another engine has committed: it drops properties."""
    newest = table.snapshots()[-1]
    path = table.definition.paths.snapshot(newest.id)
    found = json.loads(table.env.storage.read(path))
    del found["writerVersion"]
    found.pop("properties", None)
    found.pop("merganser.crc32", None)
    table.env.storage.replace(path, json.dumps(found, indent=2).encode())


def test_a_commit_is_applied_once_when_all_snapshots_of_its_user_have_expired() -> None:
    table = _table()
    _write(table, "job", commit_user="job", identifier=7)
    for _ in range(3):
        _write(table)
    table.expire(retain_max=1)
    assert _write(_again(table), "job", commit_user="job", identifier=7) is None
    assert _again(table).read(where="v = 'job'").count() == 1
    assert _write(_again(table), "job", commit_user="job", identifier=8) is not None


def test_commits_without_identifiers_carry_nothing() -> None:
    table = _table()
    for _ in range(2):
        _write(table)
    assert [snapshot.properties for snapshot in table.snapshots()] == [None, None]


def test_commits_of_another_engine_in_between_are_looked_through() -> None:
    table = _table()
    _write(table, "job", commit_user="job", identifier=7)
    _write(table, "java", commit_user="java", identifier=3)
    _foreign(table)
    _write(table)
    _foreign(table)
    _write(_again(table))
    assert committers.carried(_again(table).snapshots()[-1]) == {"job": (7, 1, None), "java": (3, 2, None)}
    _again(table).expire(retain_max=1)
    assert _write(_again(table), commit_user="job", identifier=7) is None
    assert _write(_again(table), commit_user="java", identifier=3) is None


def test_what_another_engine_copied_is_not_believed() -> None:
    snapshot = snapshot_from_json(
        json.dumps(
            {
                "id": 1, "schemaId": 0, "baseManifestList": "a", "deltaManifestList": "b", "commitUser": "u",
                "commitIdentifier": 1, "commitKind": "APPEND", "timeMillis": 0,
                "properties": {committers.PROPERTY: '{"job": [7, 1]}'},
            }
        ).encode(),
        "snapshot-1",
    )  # fmt: skip
    assert committers.carried(snapshot) is None
    assert committers.carried(replace(snapshot, writer_version="merganser-1")) == {"job": (7, 1, None)}


@pytest.mark.parametrize(
    "text", ["", "[]", "[1]", '{"a": 1}', '{"a": [1]}', '{"a": ["1", 2]}', '{"a": [1, 2, 3]}', '{"a": [1, 2, "b", 3]}']
)
def test_a_damaged_property_is_an_error(text: str) -> None:
    table = _table()
    snapshot = replace(_write(table, commit_user="job", identifier=1), properties={committers.PROPERTY: text})
    with pytest.raises(FormatError, match="cannot read the committers"):
        committers.carried(snapshot)


def test_what_a_batch_was_made_from_outlives_its_snapshot() -> None:
    table = _table()
    for number in range(2):
        _batch(table, number, f"rows {number}")
    table.compact(full=True)
    _foreign(table)
    _write(table, "job", commit_user="job", identifier=7)
    _again(table).expire(retain_max=1)
    again = _again(table)
    assert Transaction(WriteTarget(again.definition), again.env, "query").newest() == (1, 2, "rows 1")


def test_the_user_that_is_silent_longest_is_left_out() -> None:
    known: committers.Committers = {}
    for number in range(committers.COMMITTERS_MAX):
        known = committers.after(known, f"user {number}", 1, number)
    known = committers.after(known, "user 0", 2, 200)
    known = committers.after(known, "new", 1, 201)
    assert len(known) == committers.COMMITTERS_MAX
    assert "user 1" not in known
    assert known["user 0"] == (2, 200, None)


def test_a_user_who_was_left_out_is_found_while_its_snapshot_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committers, "COMMITTERS_MAX", 2)
    table = _table()
    for user in ("a", "b", "c"):
        _write(table, commit_user=user, identifier=1)
    assert "a" not in (committers.carried(table.snapshots()[-1]) or {})
    assert _write(_again(table), commit_user="a", identifier=1) is not None
    assert len(_again(table).snapshots()) == 3


@pytest.mark.campaign(1 / 4)
@pytest.mark.parametrize("seed", range(8))
def test_in_any_history_every_commit_is_applied_once(seed: int) -> None:
    draw = random.Random(seed)
    table = _table()
    newest = dict.fromkeys("abc", 0)
    expected = 0
    for step in range(60):
        opened = draw.choice([table, _again(table)])
        match draw.choice(["new", "new", "again", "batch", "expire", "expire", "restart", "overwrite"]):
            case "new":
                user = draw.choice("abc")
                newest[user] += draw.randrange(1, 3)
                assert _write(opened, user, commit_user=user, identifier=newest[user]) is not None
                expected += 1
            case "again":
                user = draw.choice("abc")
                if newest[user]:
                    _write(opened, user, commit_user=user, identifier=draw.randrange(1, newest[user] + 1))
            case "batch":
                _write(opened)
                expected += 1
            case "expire":
                opened.expire(retain_max=draw.randrange(1, 4), max_deletes=draw.choice([1, 50]))
            case "restart":
                table = _again(table)
            case "overwrite":
                opened.truncate()
                expected = 0
        assert _again(table).read().count() == expected, f"seed {seed}, step {step}"
