"""Steps that change rows by condition or by key: delete, update, merge, upsert."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from merganser.errors import InvalidInputError, UnsupportedError
from merganser.schema import types as t
from tests.everything.history import History, Refusal, SkippedError
from tests.everything.model import Model
from tests.everything.replica import DifferenceError
from tests.everything.steps import step
from tests.everything.values import Row, draw, plain, quoted
from tests.oracle.engines import Change

_NO_RULE = "has no rule by which a row of kind -D removes a row"
_LOST: Refusal = (InvalidInputError, "would not become what is asked for")


@dataclass(frozen=True)
class Edit:
    """A row that goes, comes, or becomes another one.

    Attributes:
        old, new: None: there is none.
        sets: columns that an update sets.
    """

    old: Row | None
    new: Row | None
    sets: frozenset[str] = frozenset()


def deletes_in_files(model: Model) -> bool:
    """Return whether a delete takes rows out of files, since no row of kind -D removes them."""
    engine = model.engine in ("partial-update", "aggregation")
    option = model.options.get
    publishes = option("changelog-producer", "none") != "none" or option("delete.force-produce-changelog") == "true"
    return engine and not _removes(model) and not publishes


def _removes(model: Model) -> bool:
    """Return whether a row of kind -D removes the row of its key."""
    names = ("remove-record-on-delete", "remove-record-on-sequence-group")
    asked = any(model.options.get(f"{model.engine}.{name}", "false") != "false" for name in names)
    return model.engine in ("deduplicate", "counting") or asked


def refused_delete(model: Model, *, by_files: bool) -> Refusal | None:
    """Return why a table takes no deletes by condition."""
    if model.engine == "append" or (by_files and deletes_in_files(model)):
        return None
    if model.options.get("ignore-delete") == "true":
        return InvalidInputError, "'ignore-delete' drops every delete"
    return None if _removes(model) else (InvalidInputError, _NO_RULE)


def refused_update(model: Model) -> Refusal | None:
    """Return why a table takes no updates by condition."""
    why = {"aggregation": "adds new values to those that are there", "first-row": "keeps the row of a key that came"}
    return (InvalidInputError, why[model.engine]) if model.engine in why else None


def _is_plain(model: Model) -> bool:
    return model.engine in ("counting", "append") or (
        model.engine == "deduplicate" and "sequence.field" not in model.options
    )


def _fewest(model: Model, edit: Edit) -> Row:
    """Return the new row of a partial update, with null for what stays as it is."""
    assert edit.new is not None
    needed = {*model.key, *model.partition, *edit.sets}
    needed |= {f.name for f in model.fields if not f.type.nullable}
    assert model.oracle is not None
    for group in model.oracle.groups:
        if not edit.sets.isdisjoint((*group.ordering, *group.protected)):
            functions = model.oracle._functions(group)
            needed |= {*group.ordering, *(name for name in group.protected if name not in functions)}
    needed |= set(model.oracle.sequence_fields)
    return {name: value if name in needed else None for name, value in edit.new.items()}


def _reaches(model: Model, edit: Edit, row: Row) -> bool:
    assert edit.old is not None
    return model.same(model.becomes(edit.old, ("+U", row)), edit.new)


def _shows(model: Model, row: Row) -> bool:
    """Return whether a row whose key has none is there once it is written: a stored delete may count more."""
    after = model.copy()
    after.flush([("+I", row)], given=True)
    return model.key_of(row) in after.by_key()


def written(model: Model, edits: Sequence[Edit]) -> tuple[list[Change], bool | None]:
    """Return the rows that are written for edits, and whether the call is taken; None: that depends on the files."""
    out: list[Change] = []
    whole, few = True, model.engine == "partial-update"
    taken: bool | None = True
    for edit in edits:
        if edit.old is None:
            assert edit.new is not None
            out.append(("+I", edit.new))
            if model.key and not _shows(model, edit.new):
                taken = False
        elif edit.new is None:
            if not _is_plain(model) and model.becomes(edit.old, ("-D", edit.old)) is not None:
                taken = False
            out.append(("-D", edit.old))
        elif model.same(edit.old, edit.new):
            continue
        elif model.engine == "counting":
            out += [("-U", edit.old), ("+U", edit.new)]
        else:
            tried = [edit.new, *([_fewest(model, edit)] if model.engine == "partial-update" else [])]
            fine = [_is_plain(model) or model.same(model.becomes(edit.old, ("+U", row)), edit.new) for row in tried]
            if not any(fine):
                taken = False
                continue
            whole, few = whole and fine[0], few and fine[-1]
            out.append(("+U", tried[fine.index(True)]))
    if taken and not whole and not few:
        taken = None
    return out, taken


def apply_edits(h: History, edits: Sequence[Edit], call: Callable[[], Any], counts: bool = True) -> None:
    """Make a call that changes rows, and do the same to the model."""
    model = h.model
    changes, taken = written(model, edits)
    if taken is False:
        h.refused(call, _LOST)
        return
    refused, snapshot = (False, call()) if taken else h.maybe_refused(call, _LOST)
    if refused:
        return
    changed = [edit for edit in edits if edit.old is None or edit.new is None or not model.same(edit.old, edit.new)]
    if model.engine == "append":
        gone = [edit.old for edit in changed if edit.old is not None]
        model.rows = [row for row in model.rows if not any(row is old for old in gone)]
        model.rows += [edit.new for edit in changed if edit.new is not None]
    else:
        model.flush(changes, given=True)
    if (snapshot is None) != (not changed):
        raise DifferenceError("edit", f"snapshot {snapshot}, but {len(changed)} rows change")
    if snapshot is not None and counts:
        wanted = (
            sum(edit.old is None for edit in changed),
            sum(edit.old is not None and edit.new is not None for edit in changed),
            sum(edit.new is None for edit in changed),
        )
        found = (snapshot.rows_inserted or 0, snapshot.rows_updated or 0, snapshot.rows_deleted or 0)
        if found != wanted:
            raise DifferenceError("edit", f"rows inserted, updated and deleted {found}, expected {wanted}")


@step(2)
def delete(h: History, rng: random.Random) -> None:
    """Delete rows by a filter, sometimes one that looks at partitions alone."""
    model = h.model
    text, holds, names = h.drawn_filter(rng, model.partition if model.partition and rng.random() < 0.25 else None)
    if rng.random() < 0.05:
        text, holds, names = "true", lambda row: True, set()
    why = refused_delete(model, by_files=True)
    if why is not None:
        h.refused(lambda: h.delete(rng, text), why)
        return
    publishes = (
        bool(model.key or model.engine == "counting") and model.options.get("changelog-producer", "none") != "none"
    )
    gone = [row for row in model.visible() if holds(row)]
    if not publishes and names <= set(model.partition):
        h.delete(rng, text)
        model.clear(holds)
        h.unpublished()
    elif deletes_in_files(model):
        snapshot = h.delete(rng, text)
        if (snapshot is None) != (not gone):
            raise DifferenceError("edit", f"delete {text}: snapshot {snapshot}, but {len(gone)} rows go")
        model.forget(holds)
        h.unpublished()
    else:
        apply_edits(h, [Edit(row, None) for row in gone], lambda: h.delete(rng, text))
        if model.engine == "append":
            h.unpublished()


@step(1)
def erase(h: History, rng: random.Random) -> None:
    """Erase rows: of a table with a key, by columns of the key, which all versions of a row share."""
    model = h.model
    names = None
    if model.key:
        names = model.key if model.moves else [*model.partition, *model.key]
    text, holds, used = h.drawn_filter(rng, names)
    everywhere = rng.random() < 0.5
    gone = [row for row in model.visible() if holds(row)]
    plain_drop = h.layout.producer == "none" and used <= set(model.partition)
    told = model.engine != "append" and refused_delete(model, by_files=False) is None and not plain_drop
    told = told and written(model, [Edit(row, None) for row in gone])[1] is True
    report = h.erase(rng, text, everywhere=everywhere)
    model.clear(holds)
    if not told:
        h.unpublished()
    if not everywhere:
        return
    decides = used | {*model.key, *model.partition}
    columns = {(f.id, f.name, str(f.type.with_nullable(True))) for f in h.main.fields if f.name in decides}
    asked = {
        name: columns <= {(f.id, f.name, str(f.type.with_nullable(True))) for f in line.fields}
        for name, line in (("main", h.main), *h.branches.items())
    }
    for one in report.held:  # rollbacks leave young files that no snapshot names
        if one.kind != "file" and not (one.kind == "branch" and not asked[one.name]):
            raise DifferenceError("erase", str(report))
    held = {one.name for one in report.held if one.kind == "branch"}
    for name, line in (("main", h.main), *h.branches.items()):
        if name not in held:  # a column that a branch never had is null in its rows
            line.model.clear(lambda row: holds({**dict.fromkeys(used), **row}))
        kept = {tag.name for tag in line.table.tags.list()}
        line.tags = {name: found for name, found in line.tags.items() if name in kept}
    left = {consumer.id for consumer in h.table.consumers.list()}
    h.consumers = {name: number for name, number in h.consumers.items() if name in left}
    if h.follower is not None and h.follower.waits:
        h.compact(rng, full=True)
    h.begin_again()


def settable(h: History) -> list[t.Field]:
    """Return the columns that an update may set."""
    model = h.model
    fixed = {*model.key, *model.partition, *model.options.get("bucket-key", "").split(",")}
    return [f for f in model.fields if f.name not in fixed and f.name != model.rowkind]


def literal(f: t.Field, rng: random.Random) -> tuple[str, Any] | None:
    """Return SQL text of a value of a column, and the value."""
    if f.type.nullable and rng.random() < 0.15:
        return "NULL", None
    if t.is_nested(f.type):
        return None
    value = draw(f.type.with_nullable(False), rng)
    match f.type:
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            return str(value), value
        case t.VarChar():
            return "'" + value.replace("'", "''") + "'", value
        case t.Decimal():
            return f"CAST('{value}' AS {f.type.with_nullable(True)})", value
        case t.Boolean():
            return str(value).lower(), value
        case t.Date():
            return f"DATE '{value}'", value
        case t.Timestamp(precision=digits) if digits in (3, 6):
            return f"TIMESTAMP '{value}'", value
        case t.LocalZonedTimestamp(precision=digits) if digits in (3, 6):
            return f"TIMESTAMP_LTZ '{value.replace(tzinfo=None)}'", value.replace(tzinfo=ZoneInfo("UTC"))  # as Arrow
    return None


@step(2)
def update(h: History, rng: random.Random) -> None:
    """Update rows by a filter."""
    model = h.model
    text, holds, _ = h.drawn_filter(rng)
    fields = settable(h)
    moments = [f for f in fields if isinstance(f.type, t.LocalZonedTimestamp)]
    fields = rng.sample(fields, min(rng.choice([1, 1, 2]), len(fields)))
    if moments and h.zone != "UTC" and rng.random() < 0.7:
        fields = list({f.name: f for f in [*fields, rng.choice(moments)]}.values())
    drawn = {f.name: found for f in fields if (found := literal(f, rng))}
    if not drawn:
        raise SkippedError
    sets = {name: sql for name, (sql, _) in drawn.items()}
    why = refused_update(model)
    if why is not None:
        h.refused(lambda: h.update(rng, text, sets), why)
        return
    values = {name: value for name, (_, value) in drawn.items()}
    edits = [Edit(row, {**row, **values}, frozenset(values)) for row in model.visible() if holds(row)]
    apply_edits(h, edits, lambda: h.update(rng, text, sets))
    if model.engine == "append":
        h.unpublished()


@step(3)
def merge(h: History, rng: random.Random) -> None:
    """Merge rows, joined by the key or by other columns."""
    model = h.model
    source = [row for _, row in h.stored([("+I", row) for _, row in h.changes(rng, rng.choice([1, 4, 12]))])]
    joined = [f for f in model.fields if _joins(f.type)]
    key = [f for f in joined if f.name in (*model.key, *model.partition)]
    if not model.key or rng.random() < 0.25 or len(key) < len({*model.key, *model.partition}):
        key = rng.sample(joined, min(len(joined), rng.choice([1, 2, 3])))
    names = [f.name for f in key]

    def met(row: Row) -> tuple[Any, ...] | None:
        found = tuple(plain(row[name]) for name in names)
        return None if any(value is None for value in found) else found

    if rng.random() < 0.9:  # each row of the table meets one row of the source
        source = list({met(row): row for row in source}.values())
        if model.key:
            source = list({model.key_of(row): row for row in source}.values())
    clauses = _Clauses(h, rng)
    target, source_name = map(quoted, clauses.names)
    on = " AND ".join(f"{target}.{quoted(name)} = {source_name}.{quoted(name)}" for name in names)
    h.merge(rng, source, on, clauses, lambda call: _merged(h, source, met, clauses, call))
    if model.engine == "append":
        h.unpublished()


def _joins(kind: t.DataType) -> bool:
    return isinstance(kind, t.TinyInt | t.SmallInt | t.Int | t.BigInt | t.VarChar | t.Date | t.Boolean)


class _Clauses:
    """The clauses of a merge, and what they mean."""

    def __init__(self, h: History, rng: random.Random) -> None:
        sets = [f.name for f in settable(h)]
        self.sets = frozenset(rng.sample(sets, min(len(sets), rng.choice([1, 2, 3]))))
        self.kinds = rng.choice(
            [("insert",), ("update", "insert"), ("update", "insert"), ("delete",), ("delete", "update", "insert")]
            + ([("update", "insert", "others")] if rng.random() < 0.3 else [])
        )
        if h.layout.adds_only:
            self.kinds = ("update", "insert")
        if not self.sets:
            self.kinds = tuple(kind for kind in self.kinds if kind != "update") or ("insert",)
        fields = [f for f in h.model.fields if _joins(f.type)]
        text, holds, _ = h.drawn_filter(rng, [rng.choice(fields).name])
        self.text, self.holds = text, holds
        named = [("target", "source")] * 2
        self.names = rng.choice([*named, ("t", "s"), ("target", "new rows"), ("source", "target")])
        self.alias = None if self.names[0] == "target" and rng.random() < 0.5 else self.names

    def of(self, merge: Any) -> Any:
        """Return a merge with the clauses."""
        if "delete" in self.kinds:
            merge = merge.when_matched_delete(condition=self.side(self.names[1]))
        if "update" in self.kinds:
            merge = merge.when_matched_update({name: f"{quoted(self.names[1])}.{quoted(name)}" for name in self.sets})
        if "others" in self.kinds:
            merge = merge.when_not_matched_by_source_delete(condition=self.side(self.names[0]))
        return merge.when_not_matched_insert() if "insert" in self.kinds else merge

    def side(self, name: str) -> str:
        """Return the condition on one side."""
        name = quoted(name)
        return self.text.replace("`", f"{name}.`", 1) if self.text.count("`") == 2 else self._each(name)

    def _each(self, name: str) -> str:
        parts = self.text.split("`")
        return "".join(
            part + (f"{name}.`" if i % 2 == 0 and i < len(parts) - 1 else "`" if i < len(parts) - 1 else "")
            for i, part in enumerate(parts)
        )


def _merged(
    h: History, source: Sequence[Row], met: Callable[[Row], Any], clauses: _Clauses, call: Callable[[], Any]
) -> None:
    model = h.model
    if "delete" in clauses.kinds or "others" in clauses.kinds:
        why = refused_delete(model, by_files=False)
        if why is not None:
            h.refused(call, why)
            return
    if "update" in clauses.kinds and (why := refused_update(model)) is not None:
        h.refused(call, why)
        return
    by: dict[Any, list[Row]] = {}
    for row in source:
        if met(row) is not None:
            by.setdefault(met(row), []).append(row)
    edits, hit = [], set[Any]()
    for row in model.visible():
        partners = by.get(met(row), []) if met(row) is not None else []
        if partners:
            hit.add(met(row))
            if len(partners) > 1 and {"delete", "update"} & set(clauses.kinds):
                h.refused(call, (InvalidInputError, "would meet more than one row of the source"))
                return
            if "delete" in clauses.kinds and clauses.holds(partners[0]):
                edits.append(Edit(row, None))
            elif "update" in clauses.kinds:
                new = {name: partners[0][name] if name in clauses.sets else value for name, value in row.items()}
                edits.append(Edit(row, new, clauses.sets))
        elif "others" in clauses.kinds and clauses.holds(row):
            edits.append(Edit(row, None))
    if "insert" in clauses.kinds:
        new = [row for row in source if met(row) is None or met(row) not in hit]
        if model.key:
            keys = [model.key_of(row) for row in new]
            there = {model.key_of(row) for row in model.visible()}
            if len(set(keys)) < len(keys) or any(key in there for key in keys):
                # which of several reasons is told depends on what is looked at first
                h.refused(call, (InvalidInputError, "would have (the key of another one|a key that is there)"), _LOST)
                return
        edits += [Edit(None, model.filled(row)) for row in new]
    apply_edits(h, edits, call)


@step(3)
def upsert(h: History, rng: random.Random) -> None:
    """Upsert whole rows or some columns of them, or insert what is absent."""
    model = h.model
    changes = h.changes(rng, rng.choice([1, 3, 12]))
    keep = rng.random() < 0.3
    if not model.key:
        h.refused(lambda: h.table.upsert(h.arrow(changes), "op"), (InvalidInputError, "has no primary key"))
        return
    if model.moves:
        h.refused(lambda: h.table.upsert(h.arrow(changes), "op"), (UnsupportedError, "may lie in any partition"))
        return
    named = [(row[model.rowkind] if model.rowkind else kind, row) for kind, row in changes]
    named = [(kind, row) for kind, row in named if not model.drops(kind, row)]
    partial = model.engine == "deduplicate" and not model.rowkind and "sequence.field" not in model.options
    if partial and rng.random() < 0.4:
        _upsert_columns(h, rng, changes, named, keep=keep)
        return
    before, named = model.by_key(), [(kind, model.filled(row)) for kind, row in named]
    if keep:
        if any(kind in ("-U", "-D") for kind, _ in named):
            h.refused(
                lambda: h.table.upsert(h.arrow(changes), "op", if_exists="keep"),
                (InvalidInputError, "takes inserts only"),
            )
            return
        first: dict[Any, Row] = {}
        for _, row in named:
            first.setdefault(model.key_of(row), row)
        done = h.table.upsert(h.arrow(changes), "op", if_exists="keep")
        model.flush([("+I", row) for key, row in first.items() if key not in before], given=True)
    else:
        done = h.table.upsert(h.arrow(changes), "op")
        model.flush(named, given=True)
    _check_upserted(h, done, {model.key_of(row) for _, row in named}, before)


def _upsert_columns(h: History, rng: random.Random, changes: list[Change], named: list[Change], *, keep: bool) -> None:
    """Upsert some columns: the others keep their values."""
    model = h.model
    own = {*model.key, *model.partition}
    others = [f.name for f in model.fields if f.name not in own]
    given = rng.sample(others, rng.randrange(len(others)))
    columns = [f.name for f in model.fields if f.name in own or f.name in given]
    rows = h.arrow(changes).select([*columns, "op"])

    def call() -> Any:
        return h.table.upsert(rows, "op", columns=columns, if_exists="keep" if keep else "update")

    if keep and any(kind in ("-U", "-D") for kind, _ in named):
        h.refused(call, (InvalidInputError, "takes inserts only"))
        return
    before = model.by_key()
    after = dict(before)
    done = call()
    named = [(kind, row) for kind, row in named if kind != "-U"]
    for kind, row in named:
        key = model.key_of(row)
        old = after.get(key)
        if keep and old is not None:
            continue
        bare = {name: row[name] if name in own else None for name in row}
        new = dict(old) if old is not None else model.filled(bare)
        if kind == "-D":
            if old is None:
                continue
            new |= dict.fromkeys(given)
            if all(new[name] is None for name in others):
                del after[key]
                continue
        else:
            new |= {name: row[name] for name in given}
        after[key] = new
    changed = []
    for key in {model.key_of(row): None for _, row in named}:
        if key in after and not model.same(before.get(key), after[key]):
            changed.append(("+I", after[key]))
        elif key in before and key not in after:
            changed.append(("-D", before[key]))
    model.flush(changed, given=True)
    _check_upserted(h, done, {model.key_of(row) for _, row in named}, before)


def _check_upserted(h: History, done: Any, keys: set[Any], before: dict[Any, Row]) -> None:
    """Compare what an upsert says that it did with the model."""
    model, after = h.model, h.model.by_key()
    wanted = [0, 0, 0, 0]
    for key in keys:
        old, new = before.get(key), after.get(key)
        if old is None and new is None:
            wanted[3] += 1
        else:
            wanted[0 if old is None else 2 if new is None else 3 if model.same(old, new) else 1] += 1
    found = [done.inserted, done.updated, done.deleted, done.unchanged]
    if found != wanted:
        raise DifferenceError("upserted", f"inserted, updated, deleted, unchanged {found}, expected {wanted}")
    h.same("upserted rows", done.rows, [after[key] for key in keys if key in after])
