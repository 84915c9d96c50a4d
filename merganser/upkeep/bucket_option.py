"""The option `bucket` of a table, after its rows have moved to another number of buckets, or back.

A rescale first commits the rows, and then sets the option. If it is stopped in between, the files say what it wanted:
the snapshot names the rescale, and no schema since has another number. The next writer that needs the number sets it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from merganser.meta.layout import options_since
from merganser.meta.lineage import last_rescale, rescales
from merganser.meta.next_schema import make_next_schema
from merganser.meta.table_def import TableDef
from merganser.meta.table_state import MetaReader, TableState
from merganser.options import write as w
from merganser.schema.table_schema import TableSchema
from merganser.storage.env import Env


def set_buckets(table: TableDef, env: Env, buckets: int, *, rescale: int) -> bool:
    """Make a schema with a number of buckets, unless the newest has it; return whether it did.

    Of several rescales at a time, the one that commits last chooses the number.

    Args:
        rescale: the id of the snapshot of the rescale to this number. If there is a later rescale, nothing is done.
            0: no rows had to move.
    """
    snapshots = MetaReader(table.paths, env, table.name).snapshots

    def change(now: TableDef) -> TableSchema | None:
        options = now.schema.options
        if options.get(w.BUCKET) == buckets:
            return None
        # A later rescale sets its number after its commit, so that schema is newer than any made of this answer.
        if rescale and (newest := snapshots.latest()) is not None and last_rescale(newest) > rescale:
            return None
        return replace(now.schema, options=options.merged({w.BUCKET.key: str(buckets)}))

    return make_next_schema(table, env, change)[1]


def wanted_buckets(table: TableDef, env: Env, state: TableState) -> int | None:
    """Return the number of a rescale that was stopped before it set the option; None: none was.

    Args:
        state: the newest one.
    """
    if table.bucket <= 0:
        return None
    made = list(islice(rescales(MetaReader(table.paths, env, table.name), state.snapshot), 2))
    if not made:
        return None
    known = options_since(table, env, made[0].snapshot.schema_id)
    # The rescale before it may have set its number late, where the store has no locks.
    if not {known[0], *(number for one in made[1:] for number in one.numbers)}.issuperset(known):
        return None  # it was set, by the rescale or by a person
    return next(iter(made[0].numbers.difference(known).intersection(state.live.totals)), None)


def is_overtaken(table: TableDef, env: Env, state: TableState) -> bool:
    """Return whether the number of buckets of an open table is one that the table had, and has no longer.

    A rescale that was stopped before it set the option is finished first.

    Args:
        state: the newest one.
    """
    wanted = wanted_buckets(table, env, state)
    if wanted is not None and state.snapshot is not None:
        set_buckets(table, env, wanted, rescale=last_rescale(state.snapshot))
    known = options_since(table, env, table.schema.id)
    return table.bucket != known[-1] and table.bucket in known
