"""Steps of a history: each does one thing to the table and the same to the model."""

from __future__ import annotations

import random

from merganser.errors import InvalidInputError
from tests.everything.history import FUTURE, History, SkippedError, State
from tests.everything.steps import step


@step(8)
def write(h: History, rng: random.Random) -> None:
    """Write rows of all kinds that the table takes, in one of many forms."""
    changes = h.changes(rng, rng.choice([1, 3, 10, 40]))
    parts = rng.randrange(1, 4)
    size = -(-len(changes) // parts)
    batches = [changes[start : start + size] for start in range(0, len(changes), size)]
    match rng.choice(["table", "list", "batches", "writer"]):
        case "table":
            batches = [changes]
            h.table.write(h.arrow(changes), kinds="op")
        case "list":
            batches = [changes]
            h.table.write([row for _, row in changes], kinds=[kind for kind, _ in changes])
        case "batches":
            h.table.write((h.arrow(batch) for batch in batches), kinds="op")
        case "writer":
            with h.table.writer() as writer:
                for batch in batches:
                    writer.write(h.arrow(batch), kinds="op")
                writer.commit()
    for batch in batches:
        h.model.flush(batch)


@step(1)
def write_a_refused_kind(h: History, rng: random.Random) -> None:
    """A kind that the table does not take is refused, with all rows beside it."""
    kinds = [kind for kind in ("-U", "-D") if h.model.refuses(kind)]
    if not kinds or h.model.rowkind:
        raise SkippedError
    changes = [*h.changes(rng, 2), (rng.choice(kinds), h.drawn.row(rng))]
    h.refused(lambda: h.table.write(h.arrow(changes), kinds="op"), (InvalidInputError, "kind"))


@step(1)
def overwrite(h: History, rng: random.Random) -> None:
    """Replace the table, or the partitions that one value or the rows name."""
    changes = h.changes(rng, rng.choice([0, 3, 10]))
    how = rng.choice(["all", "static", "dynamic"]) if h.drawn.partition and not h.model.moves else "all"
    match how:
        case "all":
            h.table.write(h.arrow(changes), kinds="op", overwrite={})
            h.model.clear(lambda row: True)
        case "static":
            name = rng.choice(h.drawn.partition)
            value = h.drawn.draws[name](rng)
            changes = [change for change in changes if change[1][name] == value]
            h.table.write(h.arrow(changes), kinds="op", overwrite={name: value})
            h.model.clear(lambda row: row[name] == value)
        case "dynamic":
            h.table.write(h.arrow(changes), kinds="op", overwrite="dynamic")
            hit = {h.model.partition_of(row) for kind, row in changes if not h.model.drops(kind, row)}
            h.model.clear(lambda row: h.model.partition_of(row) in hit)
    h.model.flush(changes)
    h.unpublished()


@step(1)
def truncate(h: History, rng: random.Random) -> None:
    if rng.random() < 0.6:
        raise SkippedError
    h.table.truncate()
    h.model.clear(lambda row: True)
    h.unpublished()


@step(1)
def drop_partitions(h: History, rng: random.Random) -> None:
    if not h.drawn.partition:
        raise SkippedError
    names = rng.sample(h.drawn.partition, rng.randrange(1, len(h.drawn.partition) + 1))
    spec = {name: h.drawn.draws[name](rng) for name in names}
    h.table.drop_partitions([spec])
    h.model.clear(lambda row: all(row[name] == value for name, value in spec.items()))
    h.unpublished()


@step(3)
def compact(h: History, rng: random.Random) -> None:
    h.table.compact(full=rng.random() < 0.5)


@step(1)
def rescale(h: History, rng: random.Random) -> None:
    if int(h.table.options["bucket"]) == -1:
        raise SkippedError
    h.table.rescale(rng.choice([1, 2, 3, 5]))


@step(2)
def expire(h: History, rng: random.Random) -> None:
    most = rng.randrange(1, 8)
    h.table.expire(retain_max=most, retain_min=1, older_than=FUTURE)
    assert len(h.table.snapshots()) <= most


@step(1)
def tag(h: History, rng: random.Random) -> None:
    if not h.line.states:
        raise SkippedError
    number, name = rng.choice(sorted(h.line.states)), next(h.names)
    h.table.tags.create(name, snapshot=number)
    h.line.tags[name] = (number, h.line.states[number])


@step(1)
def drop_tag(h: History, rng: random.Random) -> None:
    if not h.line.tags:
        raise SkippedError
    name = rng.choice(sorted(h.line.tags))
    h.table.tags.drop(name)
    del h.line.tags[name]


@step(1)
def rollback(h: History, rng: random.Random) -> None:
    if not h.line.states:
        raise SkippedError
    number = rng.choice(sorted(h.line.states)[-4:])
    h.table.rollback(snapshot=number)
    h.line.states = {each: state for each, state in h.line.states.items() if each <= number}
    h.line.tags = {name: (each, state) for name, (each, state) in h.line.tags.items() if each <= number}
    _go_back(h, h.line.states[number])


def _go_back(h: History, state: State) -> None:
    """Take the rows of a state, with the columns of now."""
    now = h.model
    model = state.model.copy()
    model.become(
        now.fields,
        now.options,
        dict(zip(model.key, now.key, strict=True)) | dict(zip(model.partition, now.partition, strict=True)),
    )
    h.line.model = model


@step(2)
def reopen(h: History, rng: random.Random) -> None:
    h.reopen()
