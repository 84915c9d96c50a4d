"""Erasing: rows leave a table, and every file that holds them or an older version of them.

::

    sought      which rows are erased: those of a filter, or all versions of some keys
    inventory   every file of the table, and which snapshots, tags, changelogs and branches name it
    search      a job: which files hold rows that are sought
    rewriting   a job: files written again without these rows
    endings     snapshots, tags, changelogs and consumers end, and their files go
    report      what was done, and what still holds rows
    erasure     the order of all that

Docs: decision 0065.
"""
