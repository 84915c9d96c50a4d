"""Files -> cases. Every field is checked against the format, because what is not understood cannot be judged."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.conformance.outcome import Skip

Case = dict[str, Any]

_ANYWHERE: Final = {"note", "comment", "checked_with", "source"}
_COMMON: Final = _ANYWHERE | {"name", "kind", "dialect", "needs", "legacy"}
_TABLE: Final = _COMMON | {
    "schema", "primary_key", "partition_by", "options", "steps", "expect_rows", "ordered", "final_columns", "compare",
    "expect_changelog", "expect_stream", "expect_error", "error_at", "reads", "same_bucket", "bucket_count",
    "configuration",
}  # fmt: skip
FIELDS: Final[Mapping[str, set[str]]] = {
    "table": _TABLE,
    "compaction_pick": _COMMON | {"options", "runs", "expect_pick"},
    "interval_partition": _COMMON | {"options", "files", "expect_sections"},
    "stream_api": _COMMON | {"steps", "checks"},
    "log_system": _TABLE | {"checks"},
    "cdc": _COMMON | {"format", "schema", "primary_key", "options", "messages", "expect_rows", "expect_bad"},
    "header": _COMMON | {"values"},
}
STEPS: Final[Mapping[str, set[str]]] = {
    "write": {"rows", "columns", "commit_time", "commit_identifier", "replay", "batch"},
    "compact": {"full", "partition", "now"},
    "overwrite": {"rows", "partition", "dynamic"},
    "overwrite_select": {"partition"},
    "streaming_overwrite": {"rows"},
    "truncate": set(),
    "drop_partition": {"partitions"},
    "delete": {"where"},
    "update": {"set", "where"},
    "merge": {"on", "source_columns", "source", "when_matched", "when_not_matched"},
    "alter": {"changes", "partition"},
    "tag": {"name", "snapshot"},
    "rollback": {"snapshot"},
    "expire_snapshots": {"retain_max", "retain_min", "time_retained_ms", "now", "max_deletes"},
    "set_consumer": {"consumer_id", "next_snapshot"},
    "expire_partitions": {"now"},
}
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "write": ("rows",), "overwrite": ("rows",), "overwrite_select": ("partition",), "streaming_overwrite": ("rows",),
    "drop_partition": ("partitions",), "update": ("set",), "merge": ("on", "source_columns", "source"),
    "alter": ("changes",), "tag": ("name",), "rollback": ("snapshot",),
    "set_consumer": ("consumer_id", "next_snapshot"),
    "system": ("table",), "system_stream": ("table",), "lookup": ("key",), "prefix_lookup": ("key",),
}  # fmt: skip
"""Fields without which a step or a read says nothing."""
_TIMES: Final = {"commit_time", "now"}
"""Any step may say what the time is."""
_READ: Final = {"kind", "options", "after_step", "until_step", "expect_error", "compare", "ordered"}
READS: Final[Mapping[str, set[str]]] = {
    "batch": _READ | {"columns", "expect_rows"},
    "stream": _READ | {"expect_changelog"},
    "system": _READ | {"table", "columns", "expect_rows"},
    "system_stream": _READ | {"table", "columns", "expect_rows"},
    "lookup": _READ | {"key", "expect_rows"},
    "prefix_lookup": _READ | {"key", "expect_rows"},
    "limit": _READ | {"limit", "expect_rows", "expect_row_count", "expect_count"},
    "count": _READ | {"expect_count", "expect_row_count"},
}
EXPECTATIONS: Final = (
    "expect_rows", "expect_changelog", "expect_stream", "expect_error", "reads", "same_bucket", "bucket_count",
)  # fmt: skip
NEEDS: Final = {"commit-time", "clock", "change-tracking"}
DIALECTS: Final = {"paimon", "tablestore-0.3", "fluss", "tablestore-stream"}


class BadFileError(Exception):
    """A file that holds no cases; the text says why."""


def files_of(paths: Iterable[Path]) -> list[Path]:
    """Return the files to run: those named, and of folders all `*.json`, in order.

    Raises:
        BadFileError: a path that does not exist, or a folder without cases.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.json"))
            if not inside:
                raise BadFileError(f"'{path}' holds no *.json file")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise BadFileError(f"there is no file or folder '{path}'")
    return found


def load(path: Path) -> list[Any]:
    """Return the cases of a file, not judged yet.

    Raises:
        BadFileError: the file is not a JSON array; names the line.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise BadFileError(f"not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise BadFileError(f"cannot be read: {error}") from error
    if not isinstance(found, list):
        raise BadFileError(f"holds a JSON {type(found).__name__}, not an array of cases")
    return found


def name_of(case: Any, index: int) -> str:
    """Return the name of a case, or its place in the file."""
    name = case.get("name") if isinstance(case, dict) else None
    return name if isinstance(name, str) and name else f"#{index}"


def wanted(name: str, pattern: str | None) -> bool:
    """Return whether `--only` asks for a case: a part of its name, or a glob over the whole."""
    return pattern is None or pattern in name or fnmatch.fnmatchcase(name, pattern)


def check(case: Any) -> Case:
    """Return the case, every part of it known.

    Raises:
        Skip: it is not a case of the format, or says something that the runner does not know.
    """
    if not isinstance(case, dict):
        raise Skip(f"not a case: a JSON {type(case).__name__}")
    kind = case.get("kind", "table")
    if kind not in FIELDS:
        raise Skip(f"unknown kind '{kind}'")
    _known(case, FIELDS[kind] | _ANYWHERE, "field")
    if case.get("dialect", "paimon") not in DIALECTS:
        raise Skip(f"unknown dialect '{case['dialect']}'")
    for need in case.get("needs", []):
        if need not in NEEDS:
            raise Skip(f"unknown need '{need}'")
    if kind in ("table", "log_system"):
        _check_table(case)
    return case


def _check_table(case: Case) -> None:
    _shaped(case)
    for step in case.get("steps", []):
        op = step.get("op")
        if op not in STEPS:
            raise Skip(f"unknown step op '{op}'")
        _complete(step, op)
        _known(step, STEPS[op] | _ANYWHERE | _TIMES | {"op"}, f"field of step '{op}'")
    for read in case.get("reads", []):
        kind = read.get("kind")
        if kind not in READS:
            raise Skip(f"unknown read kind '{kind}'")
        _complete(read, kind)
        _known(read, READS[kind] | _ANYWHERE, f"field of read '{kind}'")
    at = case.get("error_at")
    if at is not None and not isinstance(at, int) and at not in ("create", "merge", "create_or_use"):
        raise Skip(f"unknown error_at '{at}'")
    if not any(name in case for name in (*EXPECTATIONS, "checks")):
        raise Skip("nothing is expected")


def _shaped(case: Case) -> None:
    """Refuse a case whose parts are not of the JSON kinds that the format says."""
    if not case.get("schema"):
        raise Skip("not a case: it has no schema")
    for name, kind in (("schema", list), ("steps", list), ("reads", list), ("options", dict), ("primary_key", list)):
        if name in case and not isinstance(case[name], kind):
            raise Skip(f"not a case: '{name}' is a JSON {type(case[name]).__name__}")
    for column in case.get("schema", []):
        if not (isinstance(column, list) and len(column) == 2 and all(isinstance(part, str) for part in column)):
            raise Skip(f"not a case: {column!r} is no column")
    for part in (*case.get("steps", []), *case.get("reads", [])):
        if not isinstance(part, dict):
            raise Skip(f"not a case: {part!r:.60} is no step or read")


def _complete(part: Mapping[str, Any], what: str) -> None:
    for name in _NEEDED.get(what, ()):
        if name not in part:
            raise Skip(f"not a case: a '{what}' without '{name}'")


def _known(found: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    for name in found:
        if name not in known:
            raise Skip(f"unknown {what} '{name}'")
