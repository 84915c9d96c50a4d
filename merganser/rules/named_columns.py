"""Which columns the options of a table name, and the options under other names of columns.

A column is named in a key (`fields.<column>.<suffix>`) or in a text (`sequence.field` = `<column>,<column>`). Fields of
nested rows are named in texts of options of their column (`fields.<column>.nested-key`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import COLUMNS, Option, Options
from merganser.options.registry import find_option, split_column_key

_LISTS: Final[tuple[Option[Any], ...]] = (
    w.PRIMARY_KEY,
    w.PARTITION,
    w.BUCKET_KEY,
    w.SEQUENCE_FIELD,
    w.CHANGELOG_ROW_DEDUPLICATE_IGNORE_FIELDS,
    w.PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP,
    w.CLUSTERING_COLUMNS,
    w.BLOB_FIELD,
)
"""Options whose text is a list of columns."""
_SINGLE: Final[tuple[Option[Any], ...]] = (w.ROWKIND_FIELD, u.RECORD_LEVEL_TIME_FIELD)
_INDEX_COLUMNS: Final = re.compile(r"file-index\.[a-z-]+\.columns|blob-(?:descriptor|view)-field")
"""Other keys whose text is a list of columns. One key of a map is named `column[key]`."""
_NESTED: Final = (w.NESTED_KEY.suffix, w.NESTED_SEQUENCE_FIELD.suffix, w.TS_FIELD.suffix)

_Name = Callable[[str], str]


def naming(options: Options, column: str) -> tuple[str, ...]:
    """Return the keys of the options that name a column."""
    found = []
    for key, text in options.items():
        seen: list[str] = []
        _under(key, text, lambda name, seen=seen: seen.append(name) or name)  # type: ignore[misc]
        if column in seen:
            found.append(key)
    return tuple(found)


def renamed(options: Options, names: Mapping[str, str]) -> Options:
    """Return the options once columns have other names, given by their old ones."""
    return Options(dict(_under(key, text, lambda name: names.get(name, name)) for key, text in options.items()))


def respelled(options: Mapping[str, str], name_of: _Name) -> dict[str, str]:
    """Return options with the names of columns that a function gives; those whose names all stay are as they were."""
    found: dict[str, str] = {}
    for key, text in options.items():
        other: list[str] = []

        def name(given: str, other: list[str] = other) -> str:
            real = name_of(given)
            other += [real] if real != given else []
            return real

        changed = _under(key, text, name)
        found.update([changed if other else (key, text)])
    return found


def broken_by(options: Options, old: str, new: str) -> tuple[str, ...]:
    """Return the keys of the options that name a column and cannot name it under another name.

    Options separate names by commas, and take blanks around names away.
    """
    alone = [Options({key: options[key]}) for key in naming(options, old)]
    return tuple(key for one in alone for key in one if not naming(renamed(one, {old: new}), new))


def broken_inside(options: Options, column: str, old: str, new: str) -> tuple[str, ...]:
    """Return the keys of the options that name a field inside a column and cannot name it under another name."""
    alone = [Options({key: options[key]}) for key in naming_inside(options, column, old)]
    return tuple(
        key for one in alone for key in one if not naming_inside(renamed_inside(one, column, old, new), column, new)
    )


def renamed_inside(options: Options, column: str, old: str, new: str) -> Options:
    """Return the options once a field of the rows inside a column has another name."""
    found = {}
    for key, text in options.items():
        split = split_column_key(key)
        inside = split is not None and split[0] == column and split[1] in _NESTED
        found[key] = _listed(text, lambda name: new if name == old else name) if inside else text
    return Options(found)


def naming_inside(options: Options, column: str, field: str) -> tuple[str, ...]:
    """Return the keys of the options that name a field of the rows inside a column."""
    split = {key: split_column_key(key) for key in options}
    return tuple(
        key
        for key, of in split.items()
        if of is not None and of[0] == column and of[1] in _NESTED and field in COLUMNS.parse(options[key])
    )


def _under(key: str, text: str, name: _Name) -> tuple[str, str]:
    """Return an option with each column that it names under another name."""
    split = split_column_key(key)
    if split is not None:
        column, suffix = split
        family = key.removesuffix(f"{column}.{suffix}")
        if suffix == w.SEQUENCE_GROUP.suffix:
            return f"{family}{_listed(column, name)}.{suffix}", _listed(text, name)
        return f"{family}{name(column)}.{suffix}", text
    option = find_option(key)
    if option in _LISTS or _INDEX_COLUMNS.fullmatch(key):
        return key, _listed(text, name)
    return key, name(text.strip()) if option in _SINGLE else text


def _listed(text: str, name: _Name) -> str:
    parts = []
    for part in COLUMNS.parse(text):
        column, bracket, rest = part.partition("[")
        parts.append(f"{name(column)}{bracket}{rest}")
    return ",".join(parts)


def columns_ordering(options: Options) -> Collection[str]:
    """Return the columns whose values say which row of a key is newer."""
    groups = (split_column_key(key) for key in options)
    ordering = [name.strip() for of in groups if of and of[1] == w.SEQUENCE_GROUP.suffix for name in of[0].split(",")]
    return {*options.get(w.SEQUENCE_FIELD), *ordering}
