"""Iterators are opaque texts: each one that was not handed out is refused, and each that was reads the same again."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

import merganser as mg
from merganser.errors import StreamNotFoundError, TrimmedDataError
from merganser.shards.iterator import Place, iterator_text, place_of
from tests.seeds import seeds

STREAM = "0123456789abcdef" * 2


def refused(text: Any) -> None:
    with pytest.raises(TrimmedDataError) as told:
        place_of(text, table="db.t", stream_id=STREAM)
    assert told.value.code == "OTSTrimmedDataAccess"
    assert len(str(told.value)) < 1000


def test_a_text_of_which_any_character_is_another_one_is_refused() -> None:
    text = iterator_text(Place(STREAM, "shard-000000000007-000003", 7, 11, 1_700_000_000_000))
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for at in range(len(text)):
        for letter in letters + "+/=. \n\0äß":
            if letter != text[at]:
                refused(text[:at] + letter + text[at + 1 :])
    for at in range(len(text)):
        refused(text[:at])
        refused(text[:at] + text[at + 1 :])
        refused(text[:at] + text[at] + text[at:])


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "=",
        "====",
        "A",
        "\0",
        "é",
        "💥" * 50,
        "A" * 1_000_000,
        "ä" * 1_000_000,
        b"AAAA",
        None,
        7,
        ["A"],
        "\ud800",
    ],
    ids=lambda text: f"{type(text).__name__} {len(text) if hasattr(text, '__len__') else ''}",
)
def test_what_is_no_iterator_is_refused(text: Any) -> None:
    refused(text)


@pytest.mark.parametrize("seed", seeds(3))
def test_positions_survive_their_text(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(100):
        place = Place(
            STREAM,
            "".join(rng.choice("abc-.0129ü") for _ in range(rng.randrange(60))),
            rng.randrange(1 << rng.randrange(1, 64)),
            rng.randrange(1 << rng.randrange(1, 64)),
            rng.randrange(-1, 1 << rng.randrange(1, 63)),
        )
        assert place_of(iterator_text(place), table="db.t", stream_id=STREAM) == place


def _table(folder: Path, name: str, **options: str) -> Any:
    catalog = mg.catalog(str(folder))
    catalog.create_database("db", if_not_exists=True)
    given = {"bucket": "2", "stream.enabled": "true"} | options
    return catalog.create_table(f"db.{name}", "k INT, v INT, PRIMARY KEY (k)", options=given)


def test_the_iterator_of_another_table_or_of_an_earlier_stream_is_refused(tmp_path: Path) -> None:
    one, other = _table(tmp_path, "one"), _table(tmp_path, "other")
    for table in (one, other):
        table.write([{"k": k, "v": k} for k in range(9)])
    shard = one.shards()[0].shard_id
    old = one.shard_iterator(shard, at="trim_horizon")
    with pytest.raises(TrimmedDataError, match="belongs to the stream"):
        other.records(old)
    one.disable_stream()
    with pytest.raises(StreamNotFoundError, match="keeps no shard stream"):
        one.records(old)
    one.enable_stream()
    with pytest.raises(TrimmedDataError, match="belongs to the stream"):
        one.records(old)
    forged = iterator_text(Place(one.describe_stream().stream_id, "shard-000000000009-000009", 1))
    with pytest.raises(TrimmedDataError, match="has no shard"):
        one.records(forged)


def test_a_position_reads_the_same_while_the_table_is_compacted_and_expires(tmp_path: Path) -> None:
    table = _table(tmp_path, "t", **{"num-sorted-run.compaction-trigger": "3"})
    for value in range(5):
        table.write([{"k": k, "v": value} for k in range(50)])
    pages: dict[str, Any] = {}
    for shard in table.shards():
        at: str | None = table.shard_iterator(shard.shard_id, at="trim_horizon")
        more = True
        while more and at is not None:
            page = pages[at] = table.records(at, limit=17, before=True)
            at, more = page.next_iterator, page.may_have_more
    del pages[next(reversed(pages))]  # later commits go on there
    errors: list[BaseException] = []
    over = threading.Event()

    def upkeep() -> None:
        try:
            mine = mg.catalog(str(tmp_path)).table("db.t")
            for value in range(8):
                mine.write([{"k": k, "v": -value} for k in range(0, 50, 3)])
                mine.compact(full=True)
                mine.expire(retain_max=1)
        except BaseException as error:
            errors.append(error)
        finally:
            over.set()

    thread = threading.Thread(target=upkeep)
    thread.start()
    rng = random.Random(5)
    while not over.is_set():
        reader = mg.catalog(str(tmp_path)).table("db.t") if rng.random() < 0.3 else table
        at = rng.choice(list(pages))
        page = reader.records(at, limit=17, before=True)
        if pages[at].records.num_rows == 17:
            assert page.records.equals(pages[at].records)
            assert page.next_iterator == pages[at].next_iterator
    thread.join()
    assert not errors
    assert len(table.snapshots()) == 1
