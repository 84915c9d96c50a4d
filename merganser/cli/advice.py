"""Advice of errors in the words of the command line and of SQL; the library gives it for callers in Python."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

_IN_PYTHON: Final = (
    (r"catalog\.create_database\('([^']*)'\) creates it", r"`merganser create-database \1` creates it"),
    (r"catalog\.create_table\(\.\.\.\)", "`merganser create-table`"),
    (r"catalog\.drop_table\('([^']*)'(?:, if_exists=True)?\)", r"`merganser drop-table --if-exists \1`"),
    (r"\b(if_not_exists|if_exists|cascade)=True", lambda found: "--" + found[1].replace("_", "-")),
    (r"branches\.(create|drop)\('([^']*)'\)", r"`merganser branch \1 TABLE \2`"),
    (r"tags\.create\('([^']*)'\)", r"`merganser tag create TABLE \1`"),
    (r"(?<!')\b(order_by|retain_max|retain_min|max_deletes)\b", lambda found: "--" + found[1].replace("_", "-")),
    (r"overwrite=\{\} replaces it", "--overwrite without --partition replaces it"),
    (r"\bkinds names the column", "--kinds names the column"),
    (r"table\.repair\(\)", "`merganser repair`"),
    (r"\bhow='(\w+)'", r"--how \1"),
    (r"types=\{'([^']*)': '([^']*)'\}", r"--type '\1=\2'"),
    (r"[Pp]ass parameters=\{'(\w+)': \.\.\.\}", r"pass --parameter \1=VALUE"),
    (r"\b(table|start)=(?=[ ,.])", r"--\1"),
    (r"\bNone(?=: where it is now| for it\.| for other sources| for those that are no tables)", "-"),
    (
        r"Roll '([^']*)' back with table\.rollback\(snapshot=(\d+)\)",
        r"Roll it back with `merganser rollback \1 --snapshot \2`",
    ),
    (r"table\.remove_orphans\(\)", "`merganser orphans`"),
    (
        r"call table\.remove_orphans\(older_than=\.\.\., dry_run=False\)",
        "run `merganser orphans --older-than TIME --remove`",
    ),
    (r"table\.expire\(\.\.\.\)", "`merganser expire`"),
    (r"table\.(tag|consumer)s\.drop\('([^']*)'\)", r"`merganser \1 drop TABLE \2`"),
    (r"erase\(\.\.\., everywhere=True\)", "`merganser erase --everywhere`"),
    (r"name the columns that you give", "name those that the files have with --columns"),
)
"""Advice for Python callers in error messages, and the same advice for the command line."""

_IN_SQL: Final = ((r"[Pp]ass parameters=\{'(\w+)': \.\.\.\}", r"Start the shell with --parameter \1=VALUE"),)
"""What is left of it in errors of SQL (`sql.advice`), for the shell."""


def at_the_shell(message: str) -> str:
    """Return a message with its advice for the command line."""
    return _with(message, _IN_PYTHON)


def in_sql(message: str) -> str:
    """Return a message with its advice as SQL."""
    return _with(message, _IN_SQL)


def _with(message: str, words: Iterable[tuple[str, Any]]) -> str:
    for python, other in words:
        message = re.sub(python, other, message)
    return message
