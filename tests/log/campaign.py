"""Writers, followers and the broker of tables with a log, killed at random: nothing lost, doubled or out of order.

python -m tests.log.campaign --seed 1 --kills 200 --minutes 10
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import confluent_kafka as kafka

from merganser import catalog
from merganser.cli.target import table_of
from merganser.errors import CommitUnknownError, ConflictError, MerganserError, StorageError
from merganser.log.contents import mode_of
from merganser.log.mark import CONTROL_KEY, HEADER, Mark, mark_from
from merganser.log.status import repair_log
from merganser.rules.compacting import publishes_by_compaction
from tests.log.broker import Broker, running
from tests.log.queries import Query
from tests.soak.driver import report
from tests.soak.tables import TABLES, Judge, Replay, SoakTable, arrow
from tests.soak.workers import Place, commit

WRITERS: Final = 2
ROLES: Final = (("writer", WRITERS), ("upkeep", 1), ("roller", 2), ("follower", 6), ("consumer", 1), ("query", 4))
_KEEPS: Final = {"changelog.num-retained.min": "1000000", "changelog.num-retained.max": "1000000"}
_UPSERTS, _LINES = (next(table for table in TABLES if table.name == name) for name in ("upserts", "lines"))
_EAGER: Final = {"log.consistency": "eventual", "bucket": "-1", "dynamic-bucket.target-row-num": "500"}
PRODUCERS: Final = ("none", "lookup", "full-compaction")
"""Changelog producers of the table `eager`, of which the seed chooses one."""
_WHOLE: Final = {"bucket": "2", "changelog-producer": "per-record", **_KEEPS}
LOGGED: Final = (
    _UPSERTS,
    replace(_UPSERTS, name="whole", options={**_UPSERTS.options, **_WHOLE}, rescales=False),
    replace(_UPSERTS, name="eager", options={**_UPSERTS.options, **_EAGER}, rescales=False),
    replace(_LINES, options={**_LINES.options, "bucket": "2", "bucket-key": "k"}),
)
"""Each has a journal, and followers. Writers of the table `back` take their commits back. Followers of `eager` get rows
before their commit, and some of these rows are never committed."""
_SETTLE_S: Final = 30


@dataclass
class Campaign:
    """One run; see `tests.soak.driver.Soak`."""

    kills: int
    seed: int
    seconds_max: float
    pause_s: float = 0.5
    quiet: bool = False
    killed: Counter[str] = field(default_factory=Counter)
    numbers: dict[str, Any] = field(default_factory=dict)

    def run(self) -> list[str]:
        """Run it in a directory of its own. Return what is wrong; empty when nothing is."""
        with tempfile.TemporaryDirectory(prefix="merganser-log-", ignore_cleanup_errors=True) as root, running() as own:
            place = Place(Path(root), tuple(table.name for table in LOGGED))
            _in_child(lambda: _create(place, own.address, PRODUCERS[self.seed % len(PRODUCERS)]))
            start = time.perf_counter()
            slots = [(role, number) for role, count in ROLES for number in range(count)]
            alive: dict[tuple[str, int], int] = {}
            rng = random.Random(self.seed)
            try:
                for slot in slots:
                    alive[slot] = _started(place, slot, rng.randrange(1 << 30))
                self._storm(place, own, alive, rng)
                self.numbers["seconds under load"] = round(time.perf_counter() - start, 1)
                for slot in [slot for slot in alive if slot[0] not in ("follower", "consumer", "query")]:
                    _kill(alive.pop(slot))
                _in_child(lambda: _settle(place))
                problems = _failures(place) or self._caught_up(place)
            finally:
                for pid in alive.values():
                    _kill(pid)
            problems = problems or [*_failures(place), *(why for table in LOGGED for why in _judged(place, table))]
            problems = problems or _log_judged(place, "back")
            self._count(place)
            return problems

    def _storm(self, place: Place, broker: Broker, alive: dict[tuple[str, int], int], rng: random.Random) -> None:
        end, said = time.perf_counter() + self.seconds_max, time.perf_counter()
        while self.killed.total() < self.kills and time.perf_counter() < end and not _failures(place):
            time.sleep(rng.expovariate(1 / self.pause_s))
            drawn = rng.random()
            away = place.root / "away"
            if drawn < 0.08:
                away.write_text("")
                broker.kill()
                broker.start()
                self.killed["broker"] += 1
                away.unlink()
            elif drawn < 0.12:
                away.write_text("")
                broker.pause()
                time.sleep(rng.choice([0.5, 2, 5, 12]))
                broker.resume()
                self.killed["broker cut off"] += 1
                away.unlink()
            else:
                slot = rng.choice(list(alive))
                _kill(alive.pop(slot))
                self.killed[slot[0]] += 1
                alive[slot] = _started(place, slot, rng.randrange(1 << 30))
            if time.perf_counter() - said > 10 and not self.quiet:
                said = time.perf_counter()
                print(f"{self.killed.total()} of {self.kills} killed, {place.events('writer').counts()}", flush=True)

    def _caught_up(self, place: Place) -> list[str]:
        """Wait for followers: whoever is told by the log alone has what was committed last, and no other row."""
        until, late = time.monotonic() + _SETTLE_S, ["they were not asked"]
        newest = {
            table.name: max(one.id for one in place.open(table.name).snapshots() if one.commit_kind == "APPEND")
            for table in LOGGED
        }
        while late and time.monotonic() < until and not _failures(place):
            time.sleep(0.2)
            late = []
            for number in range(dict(ROLES)["follower"]):
                name, file = LOGGED[number % len(LOGGED)].name, place.root / f"position-{number}"
                if name == "eager":
                    late += _differs(place, number)
                    continue
                at = int(file.read_text() or 0) if file.exists() else 0
                if at < newest[name]:
                    late.append(f"follower {number} of {name} is at snapshot {at} of {newest[name]}")
            for number, table in enumerate(LOGGED):
                offset, rows = _checkpoint(place, number)
                if (offset or {}).get("next", 0) <= newest[table.name]:
                    late.append(f"query of {table.name} is at {offset} of {newest[table.name]}")
                elif sorted(map(repr, rows)) != sorted(map(repr, place.open(table.name).read().to_pylist())):
                    late.append(f"query of {table.name} has other rows than the table")
        return _failures(place) or late

    def _count(self, place: Place) -> None:
        for what, count in self.killed.items():
            self.numbers[f"killed: {what}"] = count
        for role, _ in ROLES:
            for what, count in sorted(place.events(role).counts().items()):
                self.numbers[f"{role}: {what}"] = count


def _differs(place: Place, number: int) -> list[str]:
    """Return how the rows of a follower of `eager` differ from the table."""
    file = place.root / f"rows-{number}"
    text = file.read_text() if file.exists() else "[]"
    there = {row["k"]: row for row in place.open("eager").read().to_pylist()}
    try:
        found = {row["k"]: row for row in json.loads(text)}
    except ValueError:  # it is being written
        return [f"follower {number} of eager has not written its rows"]
    keys = [key for key in {**there, **found} if there.get(key) != found.get(key)]
    shown = [f"{there.get(key)} is {found.get(key)}" for key in keys[:3]]
    return [f"follower {number} of eager has {len(keys)} other rows than the table: {shown}"] if keys else []


def _create(place: Place, servers: str, producer: str) -> None:
    made_in = catalog(place.warehouse, options={"local.sync": "false"})
    made_in.create_database("soak")
    log = {"log.system": "kafka", "kafka.bootstrap.servers": servers}
    for table in (*LOGGED, replace(LOGGED[1], name="back")):
        own = {"changelog-producer": producer, **_KEEPS} if table.name == "eager" else {}
        replace(table, options={**table.options, **log, **own}).create(made_in)


def _settle(place: Place) -> None:
    """Repair the logs, try again what was not acknowledged, and end with a commit that the followers wait for."""
    rng = random.Random(0)
    for table in LOGGED:
        opened = place.open(table.name)
        _repair(opened.path)
        for writer in range(WRITERS):
            done, tried = place.journal(table.name, writer).position()
            for n in (tried, tried + 1) if tried > done else (tried + 1,):
                place.journal(table.name, writer).begin(n)
                commit(place, table, opened, writer, n, rng)
                place.journal(table.name, writer).done(n)
        if publishes_by_compaction(opened.definition.options):
            opened.compact(full=True)  # for queries, which see what is published
    _repair(place.open("back").path)


def _repair(path: str) -> None:
    opened = table_of(path, None, None)
    repair_log(opened.definition, opened.env)


# what processes do


def _work(place: Place, role: str, number: int, seed: int) -> None:
    rng = random.Random(seed)
    roles = {
        "writer": _write, "upkeep": _upkeep, "roller": _roll, "follower": _follow, "consumer": _consume,
        "query": _query,
    }  # fmt: skip
    try:
        roles[role](place, number, rng)
    except BaseException as error:
        place.fail(f"{role} {number}: {''.join(traceback.format_exception(error))}")
        raise


def _refused(place: Place, role: str, error: MerganserError) -> None:
    """Note that something was refused; a broker that was away a moment ago may be the reason."""
    away = (place.root / "away").exists()
    place.events(role).note(f"{type(error).__name__} with the broker {'away' if away else 'there'}")
    if not away:
        place.events("refusals").note(f"{role}: {error.message[:300]}")
    time.sleep(0.1)


def _write(place: Place, number: int, rng: random.Random) -> None:
    opened = {table.name: place.open(table.name) for table in LOGGED}
    while True:
        table = rng.choice(LOGGED)
        journal = place.journal(table.name, number)
        done, tried = journal.position()
        n = tried if tried > done else done + 1
        try:
            if table.name == "eager" and rng.random() < 0.4:
                _show(opened[table.name], arrow(table.commit(number, n + rng.randrange(50))), rng)
                place.events("writer").note("rows that are never committed")
            journal.begin(n)
            commit(place, table, opened[table.name], number, n, rng)
        except (ConflictError, CommitUnknownError, StorageError) as error:
            _refused(place, "writer", error)
            continue
        journal.done(n)
        place.events("writer").note("commit")


def _show(table: Any, rows: Any, rng: random.Random) -> None:
    """Flush rows, and do not commit them."""
    with table.writer() as writer:
        for start in range(0, rows.num_rows, 5):
            writer.write(rows.slice(start, 5), kinds="op")
        writer.flush()
        time.sleep(rng.choice([0, 0, 0.1]))


def _upkeep(place: Place, number: int, rng: random.Random) -> None:
    while True:
        table = rng.choice(LOGGED)
        try:
            opened = place.open(table.name)
            drawn = rng.random()
            if table.rescales and drawn < 0.1:
                opened.rescale(rng.choice([1, 2, 3, 4]))
                place.events("upkeep").note("rescale")
            elif drawn < 0.3:
                opened.expire(retain_max=60, retain_min=50, older_than="2000-01-01")
                place.events("upkeep").note("expiry")
            else:
                opened.compact(full=drawn > 0.8)
                place.events("upkeep").note("compaction")
        except (ConflictError, CommitUnknownError, StorageError) as error:
            _refused(place, "upkeep", error)
        time.sleep(0.3)


def _roll(place: Place, number: int, rng: random.Random) -> None:
    table, n = place.open("back"), 0
    while True:
        n += 1
        try:
            newest = table.latest_snapshot()
            if number == 0 and newest is not None and newest.id > 3 and rng.random() < 0.1:
                table.rollback(rng.choice([one.id for one in table.snapshots()][-3:]))
                place.events("roller").note("rollback")
            else:
                table.write(arrow(_UPSERTS.commit(number, n)), kinds="op")
                place.events("roller").note("commit")
        except (ConflictError, CommitUnknownError, StorageError) as error:
            _refused(place, "roller", error)
        time.sleep(0.2)


def _follow(place: Place, number: int, rng: random.Random) -> None:
    table = LOGGED[number % len(LOGGED)]
    interval = "600 s" if number < len(LOGGED) else "200 ms"
    opened = place.open(table.name).with_options({"continuous.discovery-interval": interval})
    file = place.root / f"position-{number}"
    file.write_text("0")
    stream, at, events = opened.stream(), 0, place.events("follower")
    rows: dict[Any, Any] = {}
    replay = Replay()
    from_log, logged = [0], stream._logged

    def counted(*given: Any) -> Any:
        from_log[0] += 1
        return logged(*given)

    stream._logged = counted  # type: ignore[method-assign]
    for plan in stream:
        now, seen = stream.next_snapshot - 1, from_log[0]
        if now < at or (now == at and table.name != "eager"):
            place.fail(f"follower {number} of {table.name}: snapshot {now} after {at}")
        changes = plan.to_pylist()
        if table.name in ("whole", "eager"):
            if why := replay.wrong(changes):
                place.fail(f"follower {number} of {table.name}, snapshot {now}: {why}")
            rows = replay.rows
        else:
            for row in changes:
                kind, key = row.pop("_row_kind"), row["k"] if table.keyed else (row["k"], row["n"])
                if not table.keyed and key in rows:
                    place.fail(f"follower {number} of {table.name}, snapshot {now}: {row} twice")
                if kind in ("-D", "-U"):
                    rows.pop(key, None)
                else:
                    rows[key] = row
        events.note(f"{table.name}: plan from the {'log' if seen else 'files'}")
        from_log[0] = 0
        at = now
        if table.name == "eager":
            (place.root / f"rows-{number}").write_text(json.dumps(list(rows.values())))
        elif rng.random() < 0.1 and stream._waiting.looks is False:
            try:
                there = opened.read(snapshot=now).to_pylist()
            except MerganserError:
                there = None
            if there is not None:
                events.note("held against the table")
                if sorted(map(repr, there)) != sorted(map(repr, rows.values())):
                    place.fail(f"follower {number} of {table.name}: snapshot {now} differs")
        file.write_text(str(at))


def _query(place: Place, number: int, rng: random.Random) -> None:
    """Read a table as a query of Spark does. The checkpoint holds what a sink that writes each batch once has."""
    table = LOGGED[number]
    opened, events = place.open(table.name), place.events("query")
    offset, found = _checkpoint(place, number)
    rows = {_key(table, row): row for row in found}
    query = Query(opened.with_options({"continuous.discovery-interval": "600 s"}), offset)
    while True:
        start, heard = query.offset, query.heard
        changes = query.step()
        if query.offset == start:
            time.sleep(0.02)
            continue
        if rng.random() < 0.2:  # as after a crash between the plan of a batch and its end
            try:
                again = Query(opened).read(start, query.offset)
            except MerganserError:
                again = changes
            if sorted(map(repr, again)) != sorted(map(repr, changes)):
                place.fail(f"query of {table.name}: other rows when the batch to {query.offset} is repeated")
            events.note("batch repeated")
        for row in changes:
            kind, key = row.pop("_row_kind"), _key(table, row)
            if not table.keyed and key in rows:
                place.fail(f"query of {table.name}, batch to {query.offset}: {row} twice")
            if kind in ("-D", "-U"):
                rows.pop(key, None)
            else:
                rows[key] = row
        events.note(f"{table.name}: batch from the {'log' if query.heard > heard else 'files'}")
        file = place.root / f"query-{number}"
        file.with_suffix(".new").write_text(json.dumps([query.offset, list(rows.values())]))
        file.with_suffix(".new").replace(file)


def _key(table: SoakTable, row: dict[str, Any]) -> Any:
    return row["k"] if table.keyed else (row["k"], row["n"])


def _checkpoint(place: Place, number: int) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the offset after the last batch of a query, and the rows that its batches have made."""
    file = place.root / f"query-{number}"
    offset, rows = json.loads(file.read_text()) if file.exists() else (None, [])
    return offset, rows


def _consume(place: Place, number: int, rng: random.Random) -> None:
    """Read the topic of a table as any client does, and look at the order."""
    name = rng.choice([*(table.name for table in LOGGED), "back"])
    options = place.open(name).options
    reader = _reader(options)
    order, count = Order(), 0
    while True:
        try:
            found = len(reader.list_topics(options["kafka.topic"], 60).topics[options["kafka.topic"]].partitions)
        except kafka.KafkaException:  # the broker was killed
            place.events("consumer").note("no answer")
            time.sleep(0.2)
            continue
        if found > count:
            reader.incremental_assign([kafka.TopicPartition(options["kafka.topic"], part, 0)
                                       for part in range(count, found)])  # fmt: skip
            count = found
        for message in reader.consume(1000, 1.0):
            if message.error() is None and (why := order.wrong(message)):
                place.fail(f"log of {name}: {why}")
        place.events("consumer").note("look")


class Order:
    """Says what is wrong with the order of records, partition by partition."""

    def __init__(self) -> None:
        self._last: dict[int, Mark] = {}

    def wrong(self, message: Any) -> str | None:
        """Take a record; return what is wrong with it, or None."""
        mark, part = mark_from(dict(message.headers())[HEADER]), message.partition()
        last = self._last.get(part)
        self._last[part] = mark
        if last is None or mark.back:
            return None
        is_next = mark.snapshot > last.snapshot if last.back or last.ends else replace(mark, ends=False) == last
        return None if is_next else f"partition {part} at {message.offset()}: {mark} behind {last}"


def _reader(options: Any) -> Any:
    return kafka.Consumer({
        "bootstrap.servers": options["kafka.bootstrap.servers"], "group.id": "campaign", "log_level": 0,
        "isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False,
    })  # fmt: skip


# the account


def _judged(place: Place, table: SoakTable) -> list[str]:
    """Hold a table against its journals, and its log against the table."""
    opened = place.open(table.name)
    rows, judge = opened.read().to_pylist(), Judge(table)
    problems = [why] if (why := judge.wrong(rows)) else []
    heads = judge.heads(rows)
    for writer in range(WRITERS):
        done, _ = place.journal(table.name, writer).position()
        if heads.get(writer) != done:
            problems.append(f"{table.name}: writer {writer} has {done} commits, and the table {heads.get(writer)}")
    return problems + [f"check: {finding}" for finding in opened.check()] + _log_judged(place, table.name)


def _log_judged(place: Place, name: str) -> list[str]:
    opened = place.open(name)
    topic = opened.options["kafka.topic"]
    reader, order = _reader(opened.options), Order()
    left = set(reader.list_topics(topic, 10).topics[topic].partitions)
    reader.assign([kafka.TopicPartition(topic, part, 0) for part in left])
    problems: list[str] = []
    commits: dict[int, tuple[Mark, set[int], list[Any]]] = {}
    per_part: dict[int, list[tuple[Mark, Any]]] = {part: [] for part in left}
    until = time.monotonic() + _SETTLE_S
    while left and time.monotonic() < until:
        for message in reader.consume(1000, 1.0):
            if message.error() is not None:
                left.discard(message.partition())
                continue
            if why := order.wrong(message):
                problems.append(f"log of {name}: {why}")
            mark = mark_from(dict(message.headers())[HEADER])
            records = per_part[message.partition()]
            if mark.back:
                records[:] = [one for one in records if one[0].snapshot <= mark.snapshot]
            else:
                records.append((mark, message))
    if left:
        problems.append(f"log of {name}: partitions {left} have no end")
    for part, records in per_part.items():
        for mark, message in records:
            one = commits.setdefault(mark.snapshot, (mark, set(), []))
            if mark.ends:
                one[1].add(part)
            if message.key() != CONTROL_KEY:
                one[2].append((message.key(), message.value()))
    reader.close()
    for number, (mark, ended, _) in commits.items():
        if len(ended) != mark.parts:
            problems.append(f"log of {name}: snapshot {number} has {len(ended)} of {mark.parts} partitions")
    upsert = mode_of(opened.definition) == "upsert"
    for snapshot in opened.snapshots():
        found = commits.get(snapshot.id)
        if found is not None and found[0].files:
            continue
        changes = opened.changes(snapshot.id, snapshot.id).to_pylist() if snapshot.commit_kind != "OVERWRITE" else []
        wanted = sorted(repr(_shown(row, upsert)) for row in changes if not (upsert and row["_row_kind"] == "-U"))
        given = sorted(repr(_read(*record)) for record in found[2]) if found else []
        if wanted != given:
            problems.append(
                f"log of {name}: snapshot {snapshot.id} ({snapshot.commit_kind}) published {len(wanted)} rows, and the "
                f"log has {len(given)}: {set(wanted) ^ set(given)!r:.400}"
            )
    return problems


def _shown(row: dict[str, Any], upsert: bool) -> Any:
    row = dict(row)
    gone = row.pop("_row_kind") in ("-U", "-D")
    return (True, row["k"]) if gone and upsert else (gone, row)


def _read(key: bytes | None, value: bytes | None) -> Any:
    if value is None:
        return True, json.loads(key or b"{}")["k"]
    told = json.loads(value)
    return (True, told["before"]) if told["op"] == "d" else (False, told["after"])


# processes


def _in_child(work: Any) -> None:
    """Work in a process of its own: threads of clients do not come along into those that this one starts later."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("what had to be done beside the campaign failed; see above")


def _started(place: Place, slot: tuple[str, int], seed: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        with (place.root / f"output-{slot[0]}").open("a") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            _work(place, *slot, seed)
    finally:
        os._exit(1)


def _kill(pid: int) -> None:
    os.kill(pid, 9)
    os.waitpid(pid, 0)


def _failures(place: Place) -> list[str]:
    return [path.read_text() for path in sorted(place.root.glob("failure-*"))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="processes that are killed, the broker among them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=10, help="it ends then, whatever was killed")
    parser.add_argument("--pause", type=float, default=0.5, help="mean seconds between kills")
    given = parser.parse_args()
    campaign = Campaign(given.kills, given.seed, given.minutes * 60, given.pause)
    sys.exit(report(campaign, campaign.run()))
