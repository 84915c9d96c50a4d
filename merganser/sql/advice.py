"""Advice of errors in the words of SQL; the library gives it for callers in Python."""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = (
    (re.compile(r"catalog\.create_database\('([^']*)'\) creates it"), r"CREATE DATABASE \1 creates it"),
    (re.compile(r"catalog\.create_table\(\.\.\.\)"), "CREATE TABLE"),
    (re.compile(r"catalog\.drop_table\('([^']*)'(?:, if_exists=True)?\)"), r"DROP TABLE IF EXISTS \1"),
    (re.compile(r"\bpass if_not_exists=True"), "write IF NOT EXISTS"),
    (re.compile(r"\bpass if_exists=True"), "write IF EXISTS"),
    (re.compile(r"\bpass cascade=True"), "write CASCADE"),
    (re.compile(r"branches\.(create|drop)\('([^']*)'\)"), r"CALL sys.\1_branch('table', '\2')"),
    (re.compile(r"tags\.create\('([^']*)'\)"), r"CALL sys.create_tag('table', '\1')"),
    (re.compile(r"\bcall `delete`"), "use DELETE"),
    (re.compile(r"\bUse truncate\(\)"), "Use TRUNCATE TABLE"),
    (re.compile(r"catalog\.drop_view\('([^']*)'\)"), r"DROP VIEW \1"),
    (
        re.compile(r"overwrite is '?[^.]*?, and keys of this table"),
        "it overwrites partitions, and keys of this table",
    ),
    (
        re.compile(r"\bGive \{\} to replace the whole table"),
        "Write INSERT OVERWRITE t /*+ OPTIONS('dynamic-partition-overwrite' = 'false') */, without PARTITION, to "
        "replace the whole table",
    ),
    (re.compile(r"\bgive alias=\('t', 's'\)"), "write MERGE INTO ... AS t USING ... AS s"),
    (re.compile(r"Give two different names: alias=\('t', 's'\)"), "Write MERGE INTO ... AS t USING ... AS s"),
    (
        re.compile(r"Give alias=\('([^']*)', '([^']*)'\) if '[^']*' is the table"),
        r"Write MERGE INTO ... AS \1 USING ... AS \2 if '\1' is the table",
    ),
    (
        re.compile(r"as in when_matched_update\(\{'amount': 'source\.value'\}\)"),
        "as in UPDATE SET amount = source.value",
    ),
    (re.compile(r"Reads of other columns \(columns=\.\.\.\) work"), "Queries of other columns work"),
    (
        re.compile(r"\bcall table\.rollback\(snapshot=\.\.\.\)"),
        "run CALL sys.rollback('table', snapshot => ...)",
    ),
    (re.compile(r"\btable\.expire\(\.\.\.\)"), "CALL sys.expire_snapshots('table')"),
    (re.compile(r"\boverwrite=\{\} replaces it"), "INSERT OVERWRITE replaces it"),
)
"""Advice for callers in Python, and the same advice as SQL."""


def in_sql(message: str) -> str:
    """Return a message with its advice as SQL."""
    for python, words in _WORDS:
        message = python.sub(words, message)
    return message
