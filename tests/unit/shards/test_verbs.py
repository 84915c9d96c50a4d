"""The verbs of the shard stream: what they return, refuse and keep."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import merganser as mg
from merganser.changes import add_column, remove_option, set_option
from merganser.errors import (
    ConflictError,
    InvalidInputError,
    StreamNotFoundError,
    StreamParameterError,
    TrimmedDataError,
    UntrackedError,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """A catalog whose clock the test moves."""

    def __init__(self, folder: Path) -> None:
        self.now = START
        self.folder = folder
        self.open().create_database("db")

    def open(self) -> Any:
        """Return the catalog as a fresh process has it."""
        return mg.catalog(str(self.folder), clock=lambda: self.now)

    def table(self, options: dict[str, str] | None = None, definition: str = "k INT, v INT, PRIMARY KEY (k)") -> Any:
        """Return a new table."""
        return self.open().create_table("db.t", definition, options={"bucket": "1"} | (options or {}))

    def later(self, **span: float) -> None:
        """Move the clock."""
        self.now += timedelta(**span)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def rows(*pairs: tuple[int, int | None]) -> pa.Table:
    return pa.table(
        {"k": pa.array([k for k, _ in pairs], pa.int32()), "v": pa.array([v for _, v in pairs], pa.int32())}
    )


def only(table: Any) -> str:
    (shard,) = table.shards()
    return str(shard.shard_id)


def told(table: Any, iterator: str, **arguments: Any) -> list[tuple[Any, ...]]:
    """Return the records behind a position as (action, key, value)."""
    got = table.records(iterator, **arguments).records
    return [(row["_action"], row["k"], row["v"]) for row in got.to_pylist()]


def test_records_have_the_shape_that_the_docs_say(world: World) -> None:
    table = world.table()
    table.write(rows((1, 1), (2, 2)))
    table.enable_stream("24 h")
    at = table.shard_iterator(only(table))
    table.write(rows((1, 5)))
    table.write(rows((2, 0)), kinds=["-D"])
    got = table.records(at, before=True)
    assert got.records.column_names == ["_action", "_sequence", "_commit_time", "_changed", "k", "v", "_before"]
    assert got.records.schema.field("_sequence").type == pa.int64()
    assert got.records.schema.field("_commit_time").type == pa.timestamp("ms", "UTC")
    update, delete = got.records.to_pylist()
    assert (update["_action"], update["_changed"], update["v"]) == ("UPDATE", ["v"], 5)
    assert update["_before"] == {"k": 1, "v": 1}
    assert (delete["_action"], delete["k"], delete["v"], delete["_before"]) == ("DELETE", 2, None, {"k": 2, "v": 2})
    assert told(table, at, full=True) == [("UPDATE", 1, 5), ("DELETE", 2, 2)]
    assert not got.may_have_more
    assert table.records(got.next_iterator).records.num_rows == 0


def test_an_update_that_leaves_a_column_as_it_was_does_not_show_it(world: World) -> None:
    table = world.table(definition="k INT, v INT, w DOUBLE, PRIMARY KEY (k)", options={"stream.enabled": "true"})
    at = table.shard_iterator(only(table), at="trim_horizon")
    table.write([{"k": 1, "v": 1, "w": float("nan")}])
    table.write([{"k": 1, "v": None, "w": float("nan")}])
    put, update = table.records(at).records.to_pylist()
    assert put["_changed"] is None
    assert update["_changed"] == ["v"]
    assert update["w"] is None


def test_a_table_can_be_created_with_a_stream(world: World) -> None:
    table = world.table({"stream.enabled": "true", "stream.retention": "3 h"})
    assert table.describe_stream().retention == timedelta(hours=3)
    (stream,) = world.open().streams()
    assert (stream.table_name, stream.creation_time) == ("db.t", START)
    assert stream.stream_id == table.describe_stream().stream_id
    assert world.open().streams("db.t") == (stream,)


def test_enabling_twice_keeps_the_stream_and_changes_its_retention(world: World) -> None:
    table = world.table()
    first = table.enable_stream("1 h")
    assert table.enable_stream("2 h").stream_id == first.stream_id
    assert table.describe_stream().retention == timedelta(hours=2)


def test_disabling_gives_back_the_options_that_were_there(world: World) -> None:
    table = world.table({"changelog.num-retained.max": "50"})
    table.enable_stream("24 h")
    assert world.open().table("db.t").options["changelog-producer"] == "input"
    table.disable_stream()
    assert dict(world.open().table("db.t").options) == {"bucket": "1", "changelog.num-retained.max": "50"}
    with pytest.raises(StreamNotFoundError):
        table.disable_stream()


def test_an_option_that_is_altered_does_what_the_methods_do(world: World) -> None:
    table = world.table({"changelog.num-retained.max": "50"})
    table.write(rows((1, 1)))
    altered = table.alter([set_option("stream.enabled", "true"), set_option("stream.retention", "3 h")])
    stream = altered.describe_stream()
    assert stream.retention == timedelta(hours=3)
    assert list((world.folder / "db.db" / "t" / "stream" / stream.stream_id).glob("shards-1"))
    at = altered.shard_iterator(only(altered), at="trim_horizon")
    table.write(rows((2, 2)))
    altered = altered.alter([set_option("stream.retention", "5 h"), add_column("w", "INT")])
    assert told(altered, at) == [("PUT", 2, 2)]
    again = altered.describe_stream()
    assert (again.stream_id, again.retention) == (stream.stream_id, timedelta(hours=5))
    assert altered.alter([remove_option("stream.retention")]).describe_stream().retention == timedelta(hours=24)
    with pytest.raises(InvalidInputError, match="above zero"):
        altered.alter([set_option("stream.retention", "0 s")])
    ended = altered.alter([remove_option("stream.enabled")])
    assert dict(ended.options) == {"bucket": "1", "changelog.num-retained.max": "50"}
    assert not list((world.folder / "db.db" / "t" / "stream").rglob("shards-*"))
    with pytest.raises(TrimmedDataError, match="belongs to the stream"):
        ended.alter([set_option("stream.enabled", "true")]).records(at)


def test_a_handle_knows_the_stream_that_it_has_enabled(world: World) -> None:
    table = world.table()
    table.write(rows((1, 1)))
    table.enable_stream("2 h")
    assert (table.options["stream.enabled"], table.options["changelog-producer"]) == ("true", "input")
    assert dict(table.options) == dict(world.open().table("db.t").options)
    for key, value in {"stream.enabled": "false", "stream.retention": "1 s", "changelog.time-retained": "1 s"}.items():
        with pytest.raises(InvalidInputError, match="only be changed on the table itself"):
            table.with_options({key: value})
    table.disable_stream()
    assert dict(table.options) == {"bucket": "1"}


def test_a_stream_that_is_enabled_again_refuses_earlier_positions(world: World) -> None:
    table = world.table()
    table.enable_stream()
    old = table.shard_iterator(only(table))
    table.disable_stream()
    with pytest.raises(StreamNotFoundError) as gone:
        table.records(old)
    assert gone.value.code == "OTSObjectNotExist"
    table.write(rows((1, 1)))
    table.enable_stream()
    table.write(rows((2, 2)))
    assert told(table, table.shard_iterator(only(table), at="trim_horizon")) == [("PUT", 2, 2)]
    with pytest.raises(TrimmedDataError) as trimmed:
        table.records(old)
    assert trimmed.value.code == "OTSTrimmedDataAccess"


@pytest.mark.parametrize(
    "damage",
    [
        lambda t: t[:-1],
        lambda t: "B" + t[1:],
        lambda t: t[::-1],
        lambda t: "",
        lambda t: "ä!",
        lambda t: 7,
        lambda t: t * 2,
    ],
)
def test_damaged_iterators_are_refused(world: World, damage: Callable[[str], Any]) -> None:
    table = world.table({"stream.enabled": "true"})
    with pytest.raises(TrimmedDataError):
        table.records(damage(table.shard_iterator(only(table))))


def test_arguments_out_of_their_range_are_refused(world: World) -> None:
    table = world.table()
    for retention in ("0 h", "-1 h", "soon", 24, timedelta(0)):
        with pytest.raises(StreamParameterError):
            table.enable_stream(retention)
    with pytest.raises(StreamNotFoundError):
        table.describe_stream()
    table.enable_stream()
    at = table.shard_iterator(only(table))
    for limit in (0, -1, True, 1.5, 2_000_000):
        with pytest.raises(StreamParameterError):
            table.records(at, limit=limit)
    with pytest.raises(StreamParameterError):
        table.shard_iterator(only(table), at="earliest")
    for timestamp in ("bogus", "", "+99:00", "2026-01-01T00:00:00+99:00", True, 1.5, b"2026"):
        with pytest.raises(StreamParameterError, match="timestamp is"):
            table.shard_iterator(only(table), timestamp=timestamp)
    for start in ("", 5, "shard", "../shard-000000000001-000000"):
        with pytest.raises(StreamParameterError, match="start_shard is"):
            table.describe_stream(start_shard=start)
    with pytest.raises(StreamNotFoundError, match="no shard"):
        table.shard_iterator("shard-x")


def test_iterators_begin_at_times(world: World) -> None:
    table = world.table({"stream.enabled": "true"})
    for number in range(5):
        world.later(minutes=1)
        table.write(rows((number, number)))
    shard = only(table)
    at = table.shard_iterator(shard, timestamp=START + timedelta(minutes=3))
    assert [k for _, k, _ in told(table, at)] == [2, 3, 4]
    ahead = table.shard_iterator(shard, timestamp=START + timedelta(hours=1))
    assert told(table, ahead) == []
    assert ahead == table.shard_iterator(shard)
    assert len(told(table, table.shard_iterator(shard, timestamp="2026-01-01T00:00:00"))) == 5
    assert len(told(table, table.shard_iterator(shard, timestamp=int(START.timestamp() * 1000)))) == 5


def test_records_outlive_snapshots_and_are_trimmed_after_the_retention(world: World) -> None:
    table = world.table({"stream.enabled": "true", "stream.retention": "2 h"})
    at = table.shard_iterator(only(table), at="trim_horizon")
    for number in range(6):
        table.write(rows((number, number)))
        world.later(minutes=20)
    table.expire(retain_max=1)
    assert len(table.snapshots()) == 1
    fresh = world.open().table("db.t")
    assert len(told(fresh, at)) == 6
    world.later(minutes=30)
    with pytest.raises(TrimmedDataError, match="keeps records for"):
        fresh.records(at)
    kept = told(fresh, fresh.shard_iterator(only(fresh), at="trim_horizon"))
    assert [k for _, k, _ in kept] == [2, 3, 4, 5]
    fresh.expire(retain_max=1)
    world.later(hours=3)
    fresh.write(rows((9, 9)))
    fresh.expire(retain_max=1)
    assert len(list((world.folder / "db.db" / "t" / "changelog").glob("changelog-*"))) == 1  # at least one is kept


def test_shards_are_known_after_their_commits_expired(world: World) -> None:
    table = world.table({"bucket": "2", "stream.enabled": "true"})
    table.write(rows(*((k, k) for k in range(20))))
    table.rescale(4)
    table.write(rows(*((k, 0) for k in range(20))))
    before = table.shards()
    table.expire(retain_max=1)
    assert world.open().table("db.t").shards() == before
    assert sum(s.closed for s in before) == 2


def test_lost_notes_of_shards_are_made_anew(world: World) -> None:
    table = world.table({"bucket": "2", "stream.enabled": "true"})
    table.write(rows(*((k, k) for k in range(20))))
    table.rescale(4)
    before = table.shards()
    for note in (world.folder / "db.db" / "t" / "stream").rglob("shards-*"):
        note.write_bytes(b"damaged")
    assert world.open().table("db.t").shards() == before


def test_describe_pages_through_shards(world: World) -> None:
    table = world.table({"bucket": "7", "stream.enabled": "true"})
    seen: list[str] = []
    start = None
    while True:
        page = table.describe_stream(start_shard=start, limit=3)
        seen += [shard.shard_id for shard in page.shards]
        start = page.next_shard
        if start is None:
            break
    assert seen == [shard.shard_id for shard in table.shards()]
    assert len(seen) == 7


def test_a_write_that_began_before_the_stream_is_told(world: World) -> None:
    table = world.table()
    other = world.open().table("db.t")
    with other.writer() as writer:
        writer.write(rows((1, 1)))
        table.enable_stream()
        with pytest.raises(ConflictError, match="a stream of its changes was enabled"):
            writer.commit()
    assert table.read().to_arrow().num_rows == 0
    other.write(rows((2, 2)))  # a handle that was opened before logs what it writes now
    assert told(table, table.shard_iterator(only(table), at="trim_horizon")) == [("PUT", 2, 2)]


def test_what_was_left_out_is_said(world: World) -> None:
    table = world.table({"stream.enabled": "true"})
    at = table.shard_iterator(only(table), at="trim_horizon")
    table.write(rows((1, 1)))
    table.write(rows((2, 2)), changes=False)
    table.write(rows((3, 3)))
    with pytest.raises(UntrackedError):
        table.records(at)
    assert told(table, at, gaps="skip") == [("PUT", 1, 1), ("PUT", 3, 3)]


def test_a_rollback_refuses_positions_behind_it(world: World) -> None:
    table = world.table({"stream.enabled": "true"})
    at = table.shard_iterator(only(table), at="trim_horizon")
    table.write(rows((1, 1)))
    world.later(seconds=1)
    table.write(rows((2, 2)))
    behind = table.records(at).next_iterator
    table.rollback(1)
    with pytest.raises(TrimmedDataError, match="rolled back"):
        table.records(behind)
    world.later(seconds=1)
    table.write(rows((3, 3)))
    with pytest.raises(TrimmedDataError, match="rolled back"):
        table.records(behind)
    assert told(table, at) == [("PUT", 1, 1), ("PUT", 3, 3)]


def test_append_tables_have_puts_alone(world: World) -> None:
    table = world.table(definition="k INT, v INT", options={"bucket": "-1"})
    table.write(rows((0, 0)))
    table.enable_stream()
    at = table.shard_iterator(only(table))
    table.write(rows((1, 1), (2, 2)))
    table.write(rows((3, 3)))
    table.compact(full=True)
    got = table.records(at)
    assert "_changed" not in got.records.column_names
    assert told(table, at) == [("PUT", 1, 1), ("PUT", 2, 2), ("PUT", 3, 3)]


def test_pages_end_anywhere(world: World) -> None:
    table = world.table({"stream.enabled": "true"})
    begin = table.shard_iterator(only(table), at="trim_horizon")
    for turn in range(4):
        table.write(rows(*((k, turn) for k in range(30))))
    every = table.records(begin, limit=1000).records
    assert every.num_rows == 120
    for limit in (1, 7, 30, 31, 119, 120):
        at, pages = begin, []
        while True:
            got = table.records(at, limit=limit)
            pages.append(got.records)
            at = got.next_iterator
            if not got.may_have_more:
                break
        assert pa.concat_tables(pages) == every
        assert max(page.num_rows for page in pages) == limit


def test_an_overwrite_with_another_number_of_buckets_closes_shards_and_opens_their_children(world: World) -> None:
    table = world.table({"bucket": "2", "stream.enabled": "true"})
    table.write(rows(*((k, k) for k in range(20))))
    before = table.shards()
    table.with_options({"bucket": "4"}).write(rows(*((k, -k) for k in range(10))), overwrite={})
    found = {shard.shard_id: shard for shard in world.open().table("db.t").shards()}
    assert len(found) == 6
    assert all(found[shard.shard_id].closed for shard in before)
    children = [shard for shard in found.values() if not shard.closed]
    assert [shard.parents for shard in children] == [(before[n % 2].shard_id,) for n in range(4)]
    newest = [told(table, table.shard_iterator(shard.shard_id, at="trim_horizon")) for shard in children]
    assert {row for part in newest for row in part} == {("PUT", k, -k) for k in range(10)}


@pytest.mark.parametrize("name", ["_action", "_sequence"])
def test_a_column_is_not_called_as_one_of_the_records(tmp_path: Path, name: str) -> None:
    catalog = mg.catalog(str(tmp_path))
    catalog.create_database("names")
    columns = {"id": "BIGINT", name: "STRING"}
    with pytest.raises(mg.errors.InvalidInputError, match=name):
        catalog.create_table("names.new", columns, primary_key=["id"], options={"stream.enabled": "true"})
    table = catalog.create_table("names.t", columns, primary_key=["id"])
    with pytest.raises(mg.errors.InvalidInputError, match=name):
        table.enable_stream()
    table = catalog.create_table("names.u", {"id": "BIGINT", "a": "STRING"}, primary_key=["id"])
    table.enable_stream()
    with pytest.raises(mg.errors.InvalidInputError, match=name):
        table.alter([mg.changes.rename_column("a", name)])
