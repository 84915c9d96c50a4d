"""What one schema of a table changed of another one, as a person says it."""

from __future__ import annotations

from merganser.schema.table_schema import TableSchema


def column_changes(before: TableSchema | None, after: TableSchema | None) -> list[tuple[str, str]]:
    """Return a mark and a sentence for each change of a column, or of the keys."""
    if before is None or after is None or before.id == after.id:
        return []
    old, new = ({field.id: field for field in schema.fields} for schema in (before, after))
    told = [("good", f"column '{new[i].name}' {new[i].type} was added") for i in new if i not in old]
    told += [("bad", f"column '{old[i].name}' {old[i].type} was dropped") for i in old if i not in new]
    for a, b in ((old[i], new[i]) for i in new if i in old):
        if a.name != b.name:
            told.append(("warn", f"column '{a.name}' was renamed to '{b.name}'"))
        if a.type != b.type:
            told.append(("warn", f"column '{b.name}' was {a.type} and is {b.type}"))
        if a.description != b.description:
            told.append(("plain", f"the comment of column '{b.name}' was changed"))
    both = [i for i in old if i in new]
    if both != [i for i in new if i in old]:
        told.append(("plain", "columns were moved"))
    for what, was, now in (
        ("primary key", before.primary_keys, after.primary_keys),
        ("partition columns", before.partition_keys, after.partition_keys),
    ):
        if was != now:
            told.append(("warn", f"the {what}: {', '.join(was) or 'none'} before, {', '.join(now) or 'none'} after"))
    if before.comment != after.comment:
        told.append(("plain", "the comment of the table was changed"))
    return told


def option_changes(before: TableSchema | None, after: TableSchema | None) -> list[tuple[str, str | None, str | None]]:
    """Return each option that changed, with its values; None: it was not set."""
    if before is None or after is None:
        return []
    old, new = dict(before.options.items()), dict(after.options.items())
    return [(key, old.get(key), new.get(key)) for key in sorted(old | new) if old.get(key) != new.get(key)]
