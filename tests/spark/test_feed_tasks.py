"""The tasks of a feed, run here: whatever the batches and tasks, each table gets what its records alone would give."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import merganser as mg
from merganser.errors import InvalidInputError
from merganser.spark import feed_tasks
from merganser.spark.feed import _check_options
from merganser.spark.feed_tables import FeedTables, catalog_tables, given_tables
from merganser.spark.feed_tasks import Deliver, Feed, Route, options_of
from merganser.spark.stream_sink import SinkRequest, letters_request
from merganser.write.job import Outcome

Row = dict[str, Any]
_TASKS = 3


def _record(rng: random.Random, held: dict[str, dict[Any, Row]]) -> tuple[str, str]:
    """Return a table and a record of a change of it; `held` are the rows of the source."""
    name = rng.choice(["orders", "people", "log", "elsewhere"])
    rows = held.setdefault(name, {})
    source = {"source": {"db": "shop", "table": name}}
    if rng.random() < 0.05:
        return name, json.dumps({"op": "x", "after": {}, **source})
    number = rng.randrange(12)
    row: Row = {"id": number, "note": rng.choice(["a", "é", None]), "dt": rng.choice(["2026-01-01", "2026-01-02"])}
    old = rows.get((number, row["dt"]))
    if name == "log" or old is None:
        envelope = {"op": rng.choice("cr"), "before": None, "after": row}
    elif rng.random() < 0.3:
        del rows[number, row["dt"]]
        return name, json.dumps({"op": "d", "before": old, "after": None, **source})
    else:
        envelope = {"op": "u", "before": rng.choice([old, None]), "after": row}
    rows[number, row["dt"]] = row
    return name, json.dumps({**envelope, **source})


def _tables(catalog: mg.Catalog, database: str = "shop") -> dict[str, mg.Table]:
    columns = {"id": "INT", "note": "STRING", "dt": "DATE"}
    made = {
        "orders": catalog.create_table(f"{database}.orders", columns, ["id", "dt"], options={"bucket": "4"}),
        "people": catalog.create_table(
            f"{database}.people", columns, ["id", "dt"], ["dt"],
            options={"bucket": "2", "merge-engine": "aggregation", "fields.note.aggregate-function": "listagg",
                     "ignore-delete": "true", "changelog-producer": "lookup"},
        ),
        "log": catalog.create_table(f"{database}.log", columns),
    }  # fmt: skip
    return made


def _sorted(table: mg.Table) -> list[str]:
    return sorted(map(repr, table.read().to_pylist()))


def _feed(tables: FeedTables, letters: mg.Table | None) -> Feed:
    request = None if letters is None else letters_request(letters, "")
    return Feed(random.randbytes(6).hex(), tables, None, None, request)


def _outcomes(
    feed: Feed, parts: list[list[pa.RecordBatch]], rng: random.Random, **options: Any
) -> tuple[list[Outcome], dict[str, int]]:
    """Run both stages; part i are the records of task i. Carriers arrive in any order of tasks."""
    carriers: list[pa.RecordBatch] = []
    for origin, part in enumerate(parts):
        route = Route(feed, "debezium-json", {}, options.get("unknown", "ignore"), _TASKS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(feed_tasks, "task_number", lambda origin=origin: origin)
            carriers += list(route(iter(part)))
    rng.shuffle(carriers)
    whole = pa.Table.from_batches(carriers)
    rows = []
    for task in range(_TASKS):
        own = whole.filter(pc.equal(whole.column(0), task)).drop_columns([whole.column_names[0]])
        rows += [row for batch in Deliver(feed, _TASKS)(iter(own.to_batches())) for row in batch.to_pylist()]
    numbers = {name: sum(row[name] for row in rows) for name in ("rows", "dead_letters", "ignored")}
    return [pickle.loads(row["message"]) for row in rows if row["message"] is not None], numbers


def _cut(rng: random.Random, records: list[str]) -> Iterator[pa.RecordBatch]:
    while records:
        count = rng.randrange(1, 30)
        yield pa.RecordBatch.from_pydict(
            {"value": pa.array(records[:count], pa.string()), "position": pa.array(range(len(records[:count])))}
        )
        records = records[count:]


@pytest.mark.campaign(1 / 3)
@pytest.mark.parametrize("seed", range(3))
def test_each_table_gets_what_its_records_alone_would_give(
    seed: int, catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(feed_tasks, "_RECORDS_MAX", rng.choice([1, 40, 1000]))
    monkeypatch.setattr(feed_tasks, "_HELD_BYTES_MAX", rng.choice([1, 1000, 1 << 20]))
    tables = _tables(catalog)
    letters = catalog.create_table("shop.letters", mg.cdc.DEAD_LETTERS)
    catalog.create_database("alone")
    alone = _tables(catalog, "alone")
    others = catalog.create_table("alone.letters", mg.cdc.DEAD_LETTERS)
    feed = _feed(given_tables(tables, "x"), letters)
    held: dict[str, dict[Any, Row]] = {}
    for batch in range(3):
        changes = [_record(rng, held) for _ in range(rng.randrange(0, 150))]
        cuts = sorted(rng.randrange(len(changes) + 1) for _ in range(2))
        parts = [changes[: cuts[0]], changes[cuts[0] : cuts[1]], changes[cuts[1] :]]
        batches = [list(_cut(rng, [record for _, record in part])) for part in parts]
        outcomes, numbers = _outcomes(feed, batches, rng)
        feed.commit("query", batch, outcomes)
        assert numbers["ignored"] == sum(name == "elsewhere" for name, _ in changes)
        bad = 0
        for name, table in alone.items():
            own = [record for other, record in changes if other == name]
            bad += table.write_changes(own, "debezium-json", dead_letters=others).rejected
        assert numbers["dead_letters"] == bad
    for name, table in tables.items():
        assert _sorted(table) == _sorted(alone[name]), name
        assert not table.check()
    texts = [sorted(row["text"] for row in one.read().to_pylist()) for one in (letters, others)]
    assert texts[0] == texts[1]


def _written(feed: Feed, records: list[str], **options: Any) -> list[Outcome]:
    return _outcomes(feed, [list(_cut(random.Random(0), records))], random.Random(0), **options)[0]


def _created(table: str, number: int) -> str:
    row = {"id": number, "note": "a", "dt": "2026-01-01"}
    return json.dumps({"op": "c", "after": row, "source": {"db": "shop", "table": table}})


def test_a_process_that_dies_between_two_commits_repeats_neither(
    catalog: mg.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = _tables(catalog)
    records = [_created("orders", 1), _created("people", 1), _created("log", 1)]
    feed = _feed(given_tables(tables, "x"), None)
    commit, count = SinkRequest.apply, 0

    def dying(self: SinkRequest, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return commit(self, *arguments)

    monkeypatch.setattr(SinkRequest, "apply", dying)
    with pytest.raises(KeyboardInterrupt):
        feed.commit("query", 7, _written(feed, records))
    monkeypatch.undo()
    assert [len(table.snapshots()) > 0 for table in tables.values()] == [True, False, False]
    again = _feed(given_tables(tables, "x"), None)
    for _ in range(2):
        again.commit("query", 7, _written(again, records))
    for table in tables.values():
        assert [one.commit_identifier for one in table.snapshots() if one.commit_kind == "APPEND"] == [7]
        assert len(_sorted(table)) == 1


def test_shards_share_a_table_and_one_commit(catalog: mg.Catalog) -> None:
    orders = _tables(catalog)["orders"]
    feed = _feed(given_tables({"orders_1": orders, "orders_*": orders.path}, "x"), None)
    feed.commit("query", 0, _written(feed, [_created("orders_1", 1), _created("orders_2", 2)]))
    assert len(orders.snapshots()) == 1
    assert len(_sorted(orders)) == 2


def test_a_name_of_the_caller_fits_the_end_of_the_name_of_the_source(catalog: mg.Catalog) -> None:
    tables = _tables(catalog)
    found = given_tables({"b.t": tables["orders"], "x*.t": tables["people"], "t": tables["log"]}, "x")
    for name, place in (("b.t", "0"), ("a.b.t", "0"), ("bb.t", "2"), ("x.t", "1"), ("x1.t", "1"), ("x.y.t", "2")):
        assert found.place_of(feed_tasks.named_sources(pa.array([name])).names[0]) == place, name
    assert found.place_of(feed_tasks.named_sources(pa.array(["b.tt"])).names[0]) is None


def test_changes_of_unknown_tables_stop_the_job_or_are_kept_and_other_records_of_them_are_left_out(
    catalog: mg.Catalog,
) -> None:
    tables = given_tables({"orders": _tables(catalog)["orders"]}, "x")
    control = json.dumps({"ddl": "CREATE", "source": {"db": "shop", "table": "cups"}})
    with pytest.raises(InvalidInputError, match=r"no table is given for 'shop.cups', and 2 of 3 records"):
        _written(_feed(tables, None), [_created("cups", 1), control, _created("cups", 2)], unknown="fail")
    assert _written(_feed(tables, None), [control], unknown="fail") == []
    letters = catalog.create_table("shop.letters", mg.cdc.DEAD_LETTERS)
    feed = _feed(tables, letters)
    feed.commit("query", 0, _written(feed, [_created("cups", 1), control, '{"op": "c"}', "{"], unknown="keep"))
    rows = sorted((row["position"], row["table"], row["reason"]) for row in letters.read().to_pylist())
    assert rows == [
        (0, "shop.cups", "unknown-table: no table is given for 'shop.cups'"),
        (2, "", "missing-table: the record does not name its table"),
        (3, "", "not-json: the text is not JSON"),
    ]


def test_a_table_that_refuses_a_row_leaves_no_file_of_any_table(catalog: mg.Catalog) -> None:
    tables = _tables(catalog)
    feed = _feed(given_tables(tables, "x"), None)
    gone = json.dumps({"op": "d", "before": {"id": 1, "note": "a", "dt": "2026-01-01"}, "source": {"table": "log"}})
    with pytest.raises(InvalidInputError, match=r"cannot write to 'shop.log'.*takes inserts only"):
        _written(feed, [_created("orders", 1), gone])
    assert [list(Path(table.path).rglob("data-*")) for table in tables.values()] == [[], [], []]


def _whole_change(table: str, number: int) -> tuple[str, str]:
    """Return a record with its schema, and its message key."""
    fields = [{"field": "id", "type": "int32"}, {"field": "note", "type": "string"}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    payload = {"op": "c", "after": {"id": number, "note": "a"}, "source": {"db": "web", "table": table}}
    return json.dumps({"schema": schema, "payload": payload}), json.dumps({"id": number})


def test_tables_of_a_catalog_are_created_from_records_that_tell_enough(catalog: mg.Catalog) -> None:
    letters = catalog.create_table("shop.letters", mg.cdc.DEAD_LETTERS)
    tables = catalog_tables(catalog, "raw.{database}_{table}", "x", create=True, options={"bucket": "2"})
    feed = _feed(tables, letters)
    bare = json.dumps({"op": "c", "after": {"id": 1}, "source": {"db": "web", "table": "bare"}})
    values, keys = zip(*[_whole_change("cups", i) for i in range(4)], (bare, None), strict=True)
    both = pa.RecordBatch.from_pydict({"value": pa.array(values), "key": pa.array(keys)})
    hidden = pa.RecordBatch.from_pydict(
        dict(zip(("value", "key"), ([x] for x in _whole_change("a$b", 1)), strict=True))
    )
    outcomes = _outcomes(feed, [[both], [both, hidden]], random.Random(0), unknown="keep")[0]
    feed.commit("query", 0, outcomes)
    cups = catalog.table("raw.web_cups")
    assert isinstance(cups, mg.Table)
    assert cups.primary_key == ("id",)
    assert cups.definition.bucket == 2
    assert sorted(row["id"] for row in cups.read().to_pylist()) == [0, 1, 2, 3]
    assert catalog.list_tables("raw") == ["web_cups"]
    reasons = sorted(row["reason"] for row in letters.read().to_pylist())
    assert reasons == [
        "unknown-table: no table is given for 'web.a$b'",
        *["unknown-table: the table 'raw.web_bare' cannot be created: the record has no schema"] * 2,
    ]


def test_a_table_that_appears_while_a_feed_runs_is_found(catalog: mg.Catalog) -> None:
    feed = _feed(catalog_tables(catalog, "shop.{table}", "x", create=False, options=None), None)
    assert _written(feed, [_created("orders", 1)]) == []
    tables = _tables(catalog)
    feed.commit("query", 1, _written(feed, [_created("orders", 2)]))
    assert [row["id"] for row in tables["orders"].read().to_pylist()] == [2]


@pytest.mark.parametrize(
    ("given", "table", "own"),
    [
        ({"at": "ms", "orders.at": "us"}, "shop.orders", {"at": "us"}),
        ({"orders.at": "us", "at": "ms"}, "shop.orders", {"at": "us"}),
        ({"at": "ms", "orders.at": "us"}, "shop.old_orders", {"at": "ms"}),
        ({"shop.orders.at": "us", "orders.a.b": "s"}, "shop.orders", {"at": "us", "a.b": "s"}),
        ({"other.orders.at": "us", "orders.none": "ms", "a.b": "s"}, "shop.orders", {"a.b": "s"}),
    ],
)
def test_an_option_by_column_may_name_the_table_of_the_column(given: Any, table: str, own: Any) -> None:
    assert options_of({"time_unit": given, "bad": "keep"}, ["id", "at", "a.b"], table) == {
        "time_unit": own,
        "bad": "keep",
    }


def test_an_option_of_a_column_that_no_table_has_is_refused(catalog: mg.Catalog) -> None:
    table = catalog.create_table("shop.t", {"id": "BIGINT", "at": "TIMESTAMP(3)"}, primary_key=["id"])
    _check_options("debezium-json", [table], {"time_unit": {"t.at": "us"}}, named=False)
    with pytest.raises(InvalidInputError, match=r"names the column 'u\.at', which none of the tables has"):
        _check_options("debezium-json", [table], {"time_unit": {"t.at": "us", "u.at": "ms"}}, named=False)
