"""Statements whose query reads the table that they change, and commits of another writer amid them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from merganser.commit.conflict import Reads
from merganser.sql.sources import Sources

LAYOUTS = {
    "key": ", PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '2')",
    "key-dynamic": ", PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '-1')",
    "key-vectors": ", PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '1', 'deletion-vectors.enabled' = 'true')",
    "key-in-files": ", PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket' = '1', 'merge-engine' = 'partial-update')",
    "no-key": ")",
    "no-key-vectors": ") WITH ('deletion-vectors.enabled' = 'true')",
}
STATEMENTS = {
    "scalar": "UPDATE t SET n = (SELECT max(n) + 1 FROM t) WHERE k = 1",
    "in": "UPDATE t SET n = n + 100 WHERE k IN (SELECT k FROM t WHERE n > 15)",
    "delete": "DELETE FROM t WHERE n < (SELECT avg(n) FROM t)",
    "merge": "MERGE INTO t USING (SELECT k + 1 AS k, n FROM t) AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET n = s.n "
    "WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, s.n)",
    "insert": "INSERT INTO t SELECT k + 10, n FROM t",
    "lookup": "INSERT INTO t SELECT k + 10, n FROM t WHERE k = 1",
    "overwrite": "INSERT OVERWRITE t SELECT k, n + 1 FROM t WHERE n > 5",
    "view": "INSERT INTO t SELECT k + 10, n FROM `t$audit_log` WHERE rowkind <> '-D'",
}
OTHERS = {
    "same": "UPDATE t SET n = 31 WHERE k = 1",
    "change": "UPDATE t SET n = 50 WHERE k = 2",
    "delete": "DELETE FROM t WHERE k = 1",
    "insert": "INSERT INTO t VALUES (4, 40)",
    "replace": "INSERT OVERWRITE t VALUES (1, 7), (9, 9)",
}


def made(run: Callable[[str], Any], layout: str) -> None:
    """Make the table anew."""
    run(f"DROP TABLE IF EXISTS t; CREATE TABLE t (k INT, n INT{LAYOUTS[layout]}")
    run("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")


@contextmanager
def committed_between(other: Callable[[], Any], times: int = 1) -> Iterator[list[Reads | None]]:
    """Let another writer commit when a statement has computed its rows and not committed them yet.

    Yields:
        what each computation of the statement has read.
    """
    asked, runs = Sources.reads, []

    def reads(self: Sources) -> Reads | None:
        found = asked(self)
        if self._into is None or self in others:
            return found
        runs.append(found)
        if len(runs) <= times:
            with patch.object(Sources, "reads", asked):
                other()
        return found

    others: list[Sources] = []
    with patch.object(Sources, "reads", reads):
        yield runs
