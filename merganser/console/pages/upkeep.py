"""Upkeep: compaction, expiry, tags, rescaling and rollback, each shown before it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from merganser.console.page import Asked, Page
from merganser.errors import InvalidInputError, MerganserError
from merganser.handle.table import Table
from merganser.meta.snapshot import Snapshot
from merganser.meta.table_state import MetaReader
from merganser.progress.sizes import size_text
from merganser.values import dataclass

Form = Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """What an action will do.

    Attributes:
        what: in a few words.
        lines: what it will change, with numbers.
        lasting: what cannot be undone; None: nothing.
        nothing: there is nothing to do.
    """

    what: str
    lines: tuple[str, ...]
    lasting: str | None = None
    nothing: bool = False


@dataclass(frozen=True)
class Action:
    """Something that the page can do.

    Attributes:
        plan: says what it will do; it changes nothing.
        work: does it, and returns what became of it.
    """

    name: str
    plan: Callable[[Table, Form], Plan]
    work: Callable[[Table, Form], str]


def view(asked: Asked) -> Mapping[str, Any]:
    """Return the page before anything is asked."""
    return _context(asked)


def act(asked: Asked, form: Form) -> Mapping[str, Any]:
    """Show what an action will do, or, once that is confirmed, begin it."""
    table = asked.table
    action = ACTIONS.get(form.get("action", ""))
    if action is None:
        raise InvalidInputError(
            f"there is no action {form.get('action', '')!r:.40}. Choose one of: {', '.join(ACTIONS)}."
        )
    try:
        plan = action.plan(table, form)
    except MerganserError as error:
        return _context(asked, fault=error.message)
    newest = table.latest_snapshot()
    seen = "" if newest is None else str(newest.id)
    if plan.nothing or form.get("confirmed") != "yes" or (plan.lasting and form.get("seen") != seen):
        return _context(asked, plan=plan, action=action.name, given={**_given(form), "seen": seen})
    if asked.jobs.begin(asked.table_name, plan.what, lambda: action.work(table, form)) is None:
        return _context(asked, fault="Something works on this table already. Wait until it has ended.")
    return _context(asked)


def _context(
    asked: Asked,
    *,
    plan: Plan | None = None,
    action: str = "",
    given: Form | None = None,
    fault: str | None = None,
) -> dict[str, Any]:
    table = asked.table
    jobs = asked.jobs.of(asked.table_name)
    return {
        "table": table,
        "newest": table.latest_snapshot(),
        "tags": table.tags.list(),
        "plan": plan,
        "action": action,
        "given": given or {},
        "fault": fault,
        "jobs": jobs,
        "works": any(job.ended is None for job in jobs),
        "rescales": table.definition.bucket > 0,
    }


def _given(form: Form) -> Form:
    return {name: text for name, text in form.items() if name not in ("confirmed", "action")}


# compaction


def _plan_compaction(table: Table, form: Form) -> Plan:
    full = form.get("full") == "yes"
    newest = table.latest_snapshot()
    live = MetaReader(table.definition.paths, table.env, table.name).state(newest).live
    files, size = len(live), sum(entry.file.size for entry in live)
    held = f"The table has {files:,} files with {size_text(size)} in {len(live.buckets):,} buckets."
    if not files:
        return Plan("Compact", ("The table has no files.",), nothing=True)
    if full:
        return Plan("Compact everything", (held, "All rows of each bucket are merged into its highest level."))
    told = "In each bucket, universal compaction merges the runs that its rules name. The page Tree shows which."
    return Plan("Compact", (held, told))


def _compact(table: Table, form: Form) -> str:
    made = table.compact(full=form.get("full") == "yes")
    return "There was nothing to compact." if made is None else f"Done with snapshot {made.id:,}."


# expiry


def _retained(form: Form) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("retain_max", "retain_min"):
        if text := form.get(name, "").strip():
            if not text.isdigit():
                raise InvalidInputError(f"the number of snapshots to keep is {text!r:.40}. Give a whole number.")
            found[name] = int(text)
    if text := form.get("older_than", "").strip():
        found["older_than"] = text
    return found


def _plan_expiry(table: Table, form: Form) -> Plan:
    gone = table.expire(**_retained(form), dry_run=True)
    if not gone:
        return Plan("Expire snapshots", ("No snapshot would be removed.",), nothing=True)
    which = f"{gone[0].id:,}" if len(gone) == 1 else f"{gone[0].id:,} to {gone[-1].id:,}"
    times = (
        f"They were committed from {gone[0].commit_time:%Y-%m-%d %H:%M} to {gone[-1].commit_time:%Y-%m-%d %H:%M} UTC."
    )
    lasting = "The states of these snapshots cannot be read any more, but for those that tags keep."
    return Plan("Expire snapshots", (f"{len(gone):,} snapshots are removed: {which}.", times), lasting)


def _expire(table: Table, form: Form) -> str:
    return f"{len(table.expire(**_retained(form))):,} snapshots expired."


# tags


def _snapshot_of(form: Form) -> int | None:
    text = form.get("snapshot", "").strip()
    if text and not text.isdigit():
        raise InvalidInputError(f"the snapshot is {text!r:.40}. Give its number.")
    return int(text) if text else None


def _plan_tag(table: Table, form: Form) -> Plan:
    name, snapshot = form.get("name", "").strip(), _snapshot_of(form)
    if not name:
        raise InvalidInputError("the tag has no name. Give one.")
    if name in {tag.name for tag in table.tags.list()}:
        raise InvalidInputError(f"there is a tag '{name}' already. Choose another name, or drop it first.")
    of = snapshot or _newest(table).id
    return Plan("Create a tag", (f"Tag '{name}' keeps snapshot {of:,} readable until it is dropped.",))


def _newest(table: Table) -> Snapshot:
    newest = table.latest_snapshot()
    if newest is None:
        raise InvalidInputError("the table has no snapshot yet.")
    return newest


def _tag(table: Table, form: Form) -> str:
    made = table.tags.create(form["name"].strip(), snapshot=_snapshot_of(form))
    return f"Tag '{made.name}' keeps snapshot {made.snapshot.id:,}."


def _plan_drop_tag(table: Table, form: Form) -> Plan:
    found = [tag for tag in table.tags.list() if tag.name == form.get("name", "")]
    if not found:
        raise InvalidInputError(f"there is no tag '{form.get('name', '')}'.")
    lasting = (
        "If the snapshot has expired, its state cannot be read any more, and files that only it needs are removed."
    )
    return Plan("Drop a tag", (f"Tag '{found[0].name}' of snapshot {found[0].snapshot.id:,} is removed.",), lasting)


def _drop_tag(table: Table, form: Form) -> str:
    table.tags.drop(form["name"])
    return f"Tag '{form['name']}' was removed."


# rescaling


def _buckets(form: Form) -> int:
    text = form.get("buckets", "").strip()
    if not text.isdigit() or int(text) < 1:
        raise InvalidInputError(f"the number of buckets is {text!r:.40}. Give a whole number from 1 on.")
    return int(text)


def _plan_rescale(table: Table, form: Form) -> Plan:
    buckets = _buckets(form)
    live = MetaReader(table.definition.paths, table.env, table.name).state(table.latest_snapshot()).live
    size = sum(entry.file.size for entry in live)
    rows = sum(entry.file.row_count for entry in live)
    told = f"Each partition gets {buckets:,} buckets; new rows had {table.definition.bucket:,} until now."
    return Plan("Rescale", (told, f"Up to {rows:,} stored rows with {size_text(size)} are rewritten."))


def _rescale(table: Table, form: Form) -> str:
    made = table.rescale(_buckets(form))
    return "All partitions have that number already." if made is None else f"Done with snapshot {made.id:,}."


# rollback


def _plan_rollback(table: Table, form: Form) -> Plan:
    newest, target = _newest(table), _target(table, form)
    if target.id >= newest.id:
        return Plan("Roll back", (f"Snapshot {target.id:,} is the newest.",), nothing=True)
    lines = [
        f"The table is set back from snapshot {newest.id:,} to snapshot {target.id:,}, committed at "
        f"{target.commit_time:%Y-%m-%d %H:%M:%S} UTC.",
        f"{newest.id - target.id:,} snapshots are removed.",
        f"Rows stored: {newest.total_record_count or 0:,} now, {target.total_record_count or 0:,} then.",
    ]
    tags = [tag.name for tag in table.tags.list() if tag.snapshot.id > target.id]
    if tags:
        lines.append(f"Tags of later snapshots are removed: {', '.join(tags)}.")
    lasting = "What these snapshots wrote is gone for good. Stop streams that follow the table, and its writers, first."
    return Plan("Roll back", tuple(lines), lasting)


def _target(table: Table, form: Form) -> Snapshot:
    if tag := form.get("tag", ""):
        found = table.read(tag=tag).snapshot
    else:
        snapshot = _snapshot_of(form)
        if snapshot is None:
            raise InvalidInputError("there is no target. Give a snapshot or choose a tag.")
        found = table.read(snapshot=snapshot).snapshot
    assert found is not None
    return found


def _roll_back(table: Table, form: Form) -> str:
    tag = form.get("tag", "")
    made = table.rollback(tag=tag) if tag else table.rollback(snapshot=_snapshot_of(form))
    return f"Snapshot {made.id:,} is the newest now."


ACTIONS: Final = {
    action.name: action
    for action in (
        Action("compact", _plan_compaction, _compact),
        Action("expire", _plan_expiry, _expire),
        Action("tag", _plan_tag, _tag),
        Action("drop-tag", _plan_drop_tag, _drop_tag),
        Action("rescale", _plan_rescale, _rescale),
        Action("rollback", _plan_rollback, _roll_back),
    )
}

PAGE: Final = Page("upkeep", "/t/{table}/upkeep", view, title="Upkeep", key="u", changes=True, act=act)
