"""Steps of a history: each does one thing to the table and the same to the model."""

from __future__ import annotations

import random

from merganser.errors import ConflictError, InvalidInputError, NotFoundError
from tests.everything.history import History, Line, SkippedError, State
from tests.everything.replaying import FUTURE
from tests.everything.replica import DifferenceError
from tests.everything.steps import STEPS, step


@step(8)
def write(h: History, rng: random.Random) -> None:
    """Write rows of all kinds that the table takes, in one of many forms."""
    changes = h.changes(rng, rng.choice([1, 3, 10, 40]))
    parts = rng.randrange(1, 4)
    size = -(-len(changes) // parts)
    batches = [changes[start : start + size] for start in range(0, len(changes), size)]
    forms = ["table", "table"] if h.spark is not None else []
    match rng.choice([*forms, "table", "list", "batches", "writer"]):
        case "table":
            batches = [changes]
            h.write(rng, changes)
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


@step(2)
def write_untracked(h: History, rng: random.Random) -> None:
    """Write rows whose changes are left out: readers of changes are told."""
    changes = h.changes(rng, rng.choice([1, 3, 10]))
    rows = h.arrow(changes)
    match rng.choice(["write", "writer", "overwrite", "option"]):
        case "write":
            h.write(rng, changes, tracked=False)
        case "writer":
            with h.table.writer(changes=False) as writer:
                writer.write(rows, kinds="op")
                writer.commit()
        case "overwrite":
            h.write(rng, changes, {}, tracked=False)
            h.model.clear(lambda row: True)
            h.unpublished()
        case "option":
            h.table.with_options({"change-tracking": "false"}).write(rows, kinds="op")
    h.model.flush(changes)
    h.leaves_out = True


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
            h.write(rng, changes, {})
            h.model.clear(lambda row: True)
        case "static":
            name = rng.choice(h.drawn.partition)
            value = h.drawn.draws[name](rng)
            changes = [change for change in changes if h.model.filled(change[1])[name] == value]
            h.write(rng, changes, {name: value})
            h.model.clear(lambda row: row[name] == value)
        case "dynamic":
            h.write(rng, changes, "dynamic")
            rows = [(kind, h.model.filled(row)) for kind, row in changes]
            hit = {h.model.partition_of(row) for kind, row in rows if not h.model.drops(kind, row)}
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
    """Compact the table, or some of its partitions."""
    full = rng.random() < 0.5
    if not h.drawn.partition or rng.random() < 0.5:
        h.compact(rng, full=full)
        h.is_complete = full
        return
    names = rng.sample(h.drawn.partition, rng.randrange(1, len(h.drawn.partition) + 1))
    specs = [{name: h.drawn.draws[name](rng) for name in names} for _ in range(rng.choice([1, 1, 2]))]
    refused, _ = h.maybe_refused(
        lambda: h.compact(rng, full=full, partitions=specs), (NotFoundError, "has no partition|no such partition")
    )
    there = [tuple(row[name] for name in names) for row in h.model.visible()]
    if refused and all(tuple(spec.values()) in there for spec in specs):
        raise DifferenceError("compact", f"{specs} have rows, and are not found")


@step(1)
def rescale(h: History, rng: random.Random) -> None:
    if int(h.table.options["bucket"]) == -1:
        raise SkippedError
    h.rescale(rng, rng.choice([1, 2, 3, 5]))


@step(1)
def analyze(h: History, rng: random.Random) -> None:
    """Count rows and values; no row changes."""
    names = [f.name for f in h.line.fields]
    h.table.analyze(rng.choice([None, (), rng.sample(names, 1)]))


@step(2)
def expire(h: History, rng: random.Random) -> None:
    most = rng.randrange(1, 8)
    h.table.expire(retain_max=most, retain_min=1, older_than=FUTURE)
    keeps = h.model.options.get("stream.enabled") == "true" or h.table.consumers.list()
    assert keeps or len(h.table.snapshots()) <= most


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
    draws = random.Random(f"{h.seed} rollback {h.now}")  # of its own, so that other histories stay what they were
    if h.line is h.main and h.layout.keeps and h.line.tags and draws.random() < 0.6:
        name = draws.choice(sorted(h.line.tags))  # perhaps its snapshot has expired
        number, state = h.line.tags[name]
        h.table.rollback(tag=name)
        h.compared["rollbacks to tags"] += 1
        h.line.states[number] = state
    else:
        h.table.rollback(snapshot=number)
    h.line.states = {each: state for each, state in h.line.states.items() if each <= number}
    h.line.tags = {name: (each, state) for name, (each, state) in h.line.tags.items() if each <= number}
    _go_back(h, h.line.states[number])
    if h.line is h.main:
        h.consumers = {name: min(each, number + 1) for name, each in h.consumers.items()}
        h.went_back(number)


def _go_back(h: History, state: State) -> None:
    """Take the rows of a state, with the columns of now."""
    now, model = h.model, state.model.copy()
    if h.line is h.main and bool(model.key) != bool(now.key):
        assert h.before_key is not None
        h.reopen()
        before, drawn = h.before_key
        assert h.table.schema.fields == before.fields
        model.defaults = {}
        model.become(before.fields, dict(h.table.options), {})
        model.defaults = dict(before.defaults)
        h.take_key(model, drawn)
        return
    model.defaults = {}
    model.become(
        now.fields,
        now.options,
        dict(zip(model.key, now.key, strict=True)) | dict(zip(model.partition, now.partition, strict=True)),
    )
    model.defaults = dict(now.defaults)
    h.line.model = model


@step(2)
def reopen(h: History, rng: random.Random) -> None:
    h.reopen()


@step(1)
def consumer(h: History, rng: random.Random) -> None:
    """Let a consumer stand at some snapshot, or drop one."""
    latest = h.table.latest_snapshot()
    if latest is None:
        raise SkippedError
    if h.consumers and rng.random() < 0.5:
        name = rng.choice(sorted(h.consumers))
        h.table.consumers.drop(name)
        del h.consumers[name]
        return
    name, number = next(h.names), rng.choice([latest.id + 1, rng.choice(h.table.snapshots()).id])
    h.table.consumers.set(name, number)
    h.consumers[name] = number


@step(1)
def branch(h: History, rng: random.Random) -> None:
    """Begin a branch, empty or with a tag."""
    name = next(h.names)
    tag = rng.choice(sorted(h.line.tags)) if h.line.tags and rng.random() < 0.8 else None
    h.table.branches.create(name, tag=tag)
    number, model = 0, h.model.copy()
    if tag is not None:
        number, state = h.line.tags[tag]
        model = state.model.copy()
    else:
        model.clear(lambda row: True)
    made = Line(h.opened(h.table.branch(name)), model, state.drawn if tag is not None else h.drawn, begins=number)
    if tag is not None:
        made.states[number] = state
    h.branches[name] = made


@step(3)
def on_a_branch(h: History, rng: random.Random) -> None:
    """Do one thing on a branch, and compare it."""
    if not h.branches:
        raise SkippedError
    name = rng.choice(sorted(h.branches))
    verb = rng.choice(["write", "write", "delete", "update", "upsert", "merge", "alter", "compact", "overwrite", "tag"])
    h.line = h.branches[name]
    try:
        STEPS[verb][0](h, rng)
        h.settle()
        h.compare(rng, last=False)
    finally:
        h.line = h.main
        h.is_published, h.is_complete = True, False


@step(1)
def fast_forward(h: History, rng: random.Random) -> None:
    """Let the table take over the state of a branch."""
    if not h.branches:
        raise SkippedError
    name = rng.choice(sorted(h.branches))
    theirs, main = h.branches[name], h.main
    if theirs.table.latest_snapshot() is None:
        h.refused(lambda: main.table.branches.fast_forward(name), (InvalidInputError, "the branch has no snapshot yet"))
        return
    reasons = "the table has snapshots|keeps another snapshot than that of the branch|begin with the same schema"
    refused, _ = h.maybe_refused(lambda: main.table.branches.fast_forward(name), (ConflictError, reasons))
    if refused:
        return
    begins = theirs.begins
    main.states = {n: state for n, state in main.states.items() if n <= begins} | theirs.states
    main.tags = {tag: found for tag, found in main.tags.items() if found[0] <= begins} | theirs.tags
    if bool(main.model.key) != bool(theirs.model.key):
        h.take_key(theirs.model.copy(), theirs.drawn)
    main.model, main.drawn = theirs.model.copy(), theirs.drawn
    main.old.clear()
    h.reopen()
    assert main.table.schema.fields == main.fields
    latest = main.table.latest_snapshot()
    h.consumers = {each.id: each.next_snapshot for each in main.table.consumers.list() if each.id in h.consumers}
    assert latest is not None
    h.begin_again()


@step(1)
def drop_branch(h: History, rng: random.Random) -> None:
    if not h.branches:
        raise SkippedError
    name = rng.choice(sorted(h.branches))
    h.table.branches.drop(name)
    del h.branches[name]
