"""Expressions: conditions that rows meet, and values computed from rows.

::

    text                        SQL text -> expressions
    prune       from_arrow      which files can hold a row that is kept; Arrow expressions -> ours
    to_polars                   ours -> conditions of Polars that keep at least as much
    predicate                   what callers hold: `Predicate` and `Projection`
    compute                     expressions over columns of rows
    arithmetic  functions       over columns; what functions take and give
    build  cast  listed         expressions put together with their types; CAST; the list of an IN
    compare                     columns with literals and with each other
    literal     names           text -> values of a type; names of columns
    tree                        the nodes

A module imports those in lines below its own (`tests/tidy/layers.py`). Which rules a value follows when its type
changes, here and elsewhere, is told in `docs/casts.md`.
"""
