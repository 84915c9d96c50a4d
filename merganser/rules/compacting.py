"""What the options of a table ask of compactions: whether rows wait for one, what it looks up, what it publishes.

Every option that reads or changes depend on asks for something here, and nothing else decides it:

    option                     empties level 0   hides level 0   looks up   publishes by compaction
    producer lookup            yes                               yes        yes
    producer full-compaction                                                yes
    force-lookup               yes                               yes
    first-row                  yes               yes
    deletion vectors           yes               yes, unless they are merged on read

Tables without a key have one level, and ask for nothing.
"""

from __future__ import annotations

from typing import Final

from merganser.options import read as r
from merganser.options import upkeep as u
from merganser.options import write as w
from merganser.options.option import Options
from merganser.rules.merging import depending_on_merges
from merganser.schema.table_schema import TableSchema

PER_RECORD: Final = "per-record"
COUNTS_NEWEST: Final = frozenset(option.key for option in (w.MERGE_ENGINE, w.SEQUENCE_FIELD, w.CHANGELOG_PRODUCER))
"""Options that decide `newest_counts`."""


def empties_level_0(options: Options) -> bool:
    """Return whether each commit owes a compaction that empties level 0: it looks up what the new rows replace."""
    return (
        options.get(w.CHANGELOG_PRODUCER) == "lookup"
        or options.get(w.MERGE_ENGINE) == "first-row"
        or options.get(w.DELETION_VECTORS)
        or options.get(u.FORCE_LOOKUP)
    )


def hides_level_0(options: Options) -> bool:
    """Return whether reads leave level 0 out: rows show once a compaction has found what they replace."""
    return is_masked(options) or options.get(w.MERGE_ENGINE) == "first-row"


def is_masked(options: Options) -> bool:
    """Return whether vectors tell which rows above level 0 count, so that files are read one by one."""
    return options.get(w.DELETION_VECTORS) and not options.get(r.DELETION_VECTORS_MERGE_ON_READ)


def moves_lone_files(options: Options) -> bool:
    """Return whether the compaction after a commit moves a file as it is, if the commit adds one file to its bucket.

    The compaction writes the rows of several overlapping files of level 0 once more.
    """
    newest_wins = options.get(w.MERGE_ENGINE) == "deduplicate" and not options.get(w.SEQUENCE_FIELD)
    waits = options.get(w.WRITE_ONLY) or options.get(w.IGNORE_DELETE)
    return empties_level_0(options) and newest_wins and not waits


def looks_up(options: Options) -> bool:
    """Return whether compactions of level 0 look up the rows above it, so that what they write is the whole row."""
    return options.get(w.CHANGELOG_PRODUCER) == "lookup" or options.get(u.FORCE_LOOKUP)


def publishes_by_compaction(options: Options) -> bool:
    """Return whether compactions publish what commits changed: then it is they that may leave something out."""
    return options.get(w.CHANGELOG_PRODUCER) in ("lookup", "full-compaction")


def newest_counts(options: Options) -> bool:
    """Return whether the newest row of a key is the row of the table, and what commits store is published.

    Then readers of changes need no row before, and of a delete the key alone. Otherwise such rows have values that
    count: an aggregation subtracts them, and a sequence field orders deletes, too.
    """
    return (
        options.get(w.MERGE_ENGINE) == "deduplicate"
        and not options.get(w.SEQUENCE_FIELD)
        and options.get(w.CHANGELOG_PRODUCER) == "none"
    )


def publishes_each_record(options: Options) -> bool:
    """Return whether writers publish what each of their rows changed; then compactions publish nothing."""
    return options.get(w.ASKED_PRODUCER) == PER_RECORD and options.get(w.CHANGELOG_PRODUCER) == "input"


def keeps_order_of_merges(table: TableSchema) -> bool:
    """Return whether compactions have to keep to an order, lest they change rows that are published: see `merging`."""
    return publishes_each_record(table.options) and depending_on_merges(table) is not None
