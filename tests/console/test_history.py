"""The history of a key: equal to reading the key at every snapshot."""

from __future__ import annotations

import html
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser import changes
from merganser.meta.refs import TagStore
from merganser.scan.key_history import BOUND, EXPIRED, OLDEST, KeyHistory, Version, key_condition, key_history
from tests.unit.serve.serving import Serving

KEYS = range(12)
Row = Mapping[int, Any] | None


def known(table: mg.Table, key: int, *, start: int | None = None, most: int = 200) -> KeyHistory:
    """Return the history of a key by the function that the page calls."""
    field = table.definition.schema.field("id")
    newest = table.latest_snapshot() if start is None else table.looked_at(snapshot=start)
    return key_history(
        table.definition,
        table.env,
        lambda made: key_condition(made, {field.id: str(key)}),
        newest,
        seconds=60,
        lookups_max=most,
    )


def of_version(version: Version | None) -> Row:
    """Return a row by the ids of its columns, without nulls."""
    if version is None:
        return None
    values = version.row.to_pylist()[0].values()
    return {f.id: v for f, v in zip(version.fields, values, strict=True) if v is not None}


def replayed(table: mg.Table, states: list[dict[str, Any]]) -> dict[int, list[Row]]:
    """Return the rows of each key in the states, read without what the history does. Each state is read once."""
    found: dict[int, list[Row]] = {key: [None] * len(states) for key in KEYS}
    for number, at in enumerate(states):
        scan = table.read(**at)
        ids = {field.name: field.id for field in scan.columns}
        for row in scan.to_pylist():
            assert found[row["id"]][number] is None
            found[row["id"]][number] = {ids[name]: value for name, value in row.items() if value is not None}
    return found


def expected(rows: list[Row]) -> list[tuple[Row, Row]]:
    """Return what became of a row from state to state, newest first."""
    return [(a, b) for a, b in zip([None, *rows], rows, strict=False) if a != b][::-1]


def steps(history: KeyHistory) -> list[tuple[Row, Row]]:
    return [(of_version(step.before), of_version(step.after)) for step in history.steps]


TABLES: dict[str, tuple[dict[str, str], list[str], dict[str, str]]] = {
    "plain": ({}, [], {"bucket": "2"}),
    "dynamic": ({}, [], {"bucket": "-1", "dynamic-bucket.target-row-num": "4"}),
    "partitioned": ({"p": "STRING"}, ["p"], {"bucket": "2"}),
    "partial": ({}, [], {"bucket": "1", "merge-engine": "partial-update"}),
    "sums": ({}, [], {"bucket": "1", "merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}),
    "vectors": ({}, [], {"bucket": "1", "deletion-vectors.enabled": "true"}),
    "first": ({}, [], {"bucket": "1", "merge-engine": "first-row"}),
    "postponed": ({}, [], {"bucket": "-2"}),
}


@pytest.mark.campaign(1 / 8)
@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_history_of_a_key_is_that_of_a_replay(tmp_path: Path, kind: str, seed: int) -> None:
    rng = random.Random(f"{kind} {seed}")
    more, partitions, options = TABLES[kind]
    catalog = mg.catalog(tmp_path)
    catalog.create_database("d")
    columns = {"id": "INT", "n": "BIGINT", "note": "STRING", **more}
    key = ["id", *partitions]
    table = catalog.create_table("d.t", columns, key, partitions, options={**options, "write-only": "true"})
    deletes = options.get("merge-engine") is None
    names = ["n", "note"]

    def rows(count: int) -> list[dict[str, Any]]:
        return [
            {
                "id": i,
                **{
                    name: rng.choice([None, rng.randrange(4)]) if name != names[1] else rng.choice("ab")
                    for name in names
                },
                **({"p": "xy"[i % 2]} if partitions else {}),
            }
            for i in rng.sample(KEYS, count)
        ]

    for number in range(22):
        action = rng.choice(["write"] * 6 + ["compact", "delete", "overwrite", "alter", "rollback"])
        if number < 3 or action == "write":
            table.write(rows(rng.randrange(1, 5)))
        elif action == "compact":
            table.compact(full=rng.random() < 0.5)
        elif action == "delete" and deletes:
            table.delete(f"id = {rng.choice(KEYS)}")
        elif action == "overwrite" and deletes:
            table.write(rows(6), overwrite={})
        elif action == "rollback" and rng.random() < 0.5:
            table.rollback(snapshot=rng.choice(table.snapshots()[-3:]).id)
        elif action == "alter" and kind != "sums":
            if rng.random() < 0.5 and len(names) < 4:
                name = f"more{number}"
                table = table.alter([changes.add_column(name, "INT")])
                names.append(name)
            else:
                old = names[1]
                names[1] = f"note{number}"
                table = table.alter([changes.rename_column(old, names[1])])
    table.compact()
    table = catalog.table("d.t")
    states = [{"snapshot": snapshot.id} for snapshot in table.snapshots()]
    rows_of = replayed(table, states)
    for one in KEYS:
        pairs = expected(rows_of[one])
        found = known(table, one)
        assert (steps(found), found.ends, found.at_first) == (pairs, OLDEST, None), one
        parts, start = [], None
        while True:  # the same, some commits at a time
            part = known(table, one, start=start, most=2)
            parts += steps(part)
            if part.ends != BOUND:
                break
            assert part.first is not None
            start = part.first.id
        assert parts == pairs, one


def test_what_expired_is_known_from_tags(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("d")
    table = catalog.create_table("d.t", {"id": "INT", "n": "BIGINT"}, ["id"], options={"bucket": "1"})
    for n in range(1, 10):
        table.write([{"id": 1, "n": n}, {"id": n, "n": n}])
        if n in (2, 4):
            table.tags.create(f"tag{n}")
    table.expire(retain_max=3, retain_min=1, older_than="2200-01-01")
    kept = [snapshot.id for snapshot in table.snapshots()]
    assert kept[0] > 4
    states = [{"tag": "tag2"}, {"tag": "tag4"}, *({"snapshot": number} for number in kept)]
    rows_of = replayed(table, states)
    for one in (1, 2, 3, 8):
        pairs, first = expected(rows_of[one]), rows_of[one][0]
        found = known(table, one)
        assert found.ends == EXPIRED
        assert (steps(found), of_version(found.at_first)) == (pairs[: len(pairs) - (first is not None)], first)
        assert [step.since is not None for step in found.steps if step.snapshot.id <= kept[0]] == [
            True for step in found.steps if step.snapshot.id <= kept[0]
        ]


def test_commits_to_other_keys_cost_no_lookup(tmp_path: Path) -> None:
    catalog = mg.catalog(tmp_path)
    catalog.create_database("d")
    table = catalog.create_table(
        "d.t", {"id": "INT", "n": "BIGINT"}, ["id"], options={"bucket": "4", "write-only": "true"}
    )
    table.write([{"id": i, "n": 0} for i in range(100)])
    for n in range(30):
        table.write([{"id": i, "n": n} for i in (50, 99)])
    table.write([{"id": 7, "n": 1}])
    found = known(table, 7)
    assert [step.kind for step in found.steps] == ["changed", "inserted"]
    assert (found.snapshots, found.lookups) == (32, 2)
    assert TagStore(table.definition.paths, table.env, table.name).names() == []


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    path = tmp_path_factory.mktemp("console") / "warehouse"
    catalog = mg.catalog(path)
    catalog.create_database("d")
    odd = catalog.create_table(
        "d.odd", {"k`1": "STRING", "b": "VARBINARY(9)", "v": "DOUBLE"}, ["k`1", "b"], options={"bucket": "1"}
    )
    odd.write([{"k`1": "<i>o'\\", "b": b"\x01\xff", "v": float("nan")}])
    odd.write([{"k`1": "<i>o'\\", "b": b"\x01\xff", "v": float("nan")}])
    odd.write([{"k`1": "<i>o'\\", "b": b"\x01\xff", "v": 1.5}])
    catalog.create_table("d.lines", {"n": "INT"})
    bare = {"bucket": "1", "primary-key.nullable": "true"}
    nulls = catalog.create_table("d.nulls", {"a": "STRING", "b": "INT", "v": "INT"}, ["a", "b"], options=bare)
    nulls.write([{"a": a, "b": b, "v": 0} for a in (None, "null", "") for b in (None, 1)])
    nulls.write([{"a": None, "b": 1, "v": 1}])
    serving = Serving(path, command="ui")
    yield serving
    serving.kill()


def test_the_link_of_a_row_leads_to_its_history(ui: Serving) -> None:
    [link] = re.findall(r'href="([^"]*/key\?[^"]*)"', ui.ask("/t/d.odd/data").body.decode())
    text = ui.ask(html.unescape(link)).body.decode()
    assert [*re.findall(r"snapshot \d(?=</h3>)", text)] == ["snapshot 3", "snapshot 1"]  # NaN stayed NaN
    assert "<i>" not in text
    assert re.search(r"<del>NaN</del>.*<ins>1.5</ins>", text)


def test_links_of_keys_that_are_null_or_empty_lead_to_their_own_histories(ui: Serving) -> None:
    links = re.findall(r'href="([^"]*/key\?[^"]*)"', ui.ask("/t/d.nulls/data").body.decode())
    told = [ui.ask(html.unescape(link)).body.decode() for link in links]
    assert len(told) == 6
    assert sorted(len(re.findall(r"snapshot \d(?=</h3>)", text)) for text in told) == [1, 1, 1, 1, 1, 2]
    assert len({html.unescape(re.search(r"<tbody>.*</tbody>", text, re.DOTALL)[0]) for text in told}) == 6  # type: ignore[index]


def test_a_key_that_is_none_is_told_beside_its_field(ui: Serving) -> None:
    text = ui.ask("/t/d.odd/key", **{"k.k`1": "x", "k.b": "zz"}).body.decode()
    assert "hexadecimal" in text
    assert 'value="zz"' in text
    assert "no primary key" in ui.ask("/t/d.lines/key").body.decode()
    assert "has no row" in ui.ask("/t/d.odd/key", **{"k.k`1": "x", "k.b": "00"}).body.decode()
