"""Migrate: folders of files that become tables, and tables that become other tables, without reading their rows.

    folder  -> `folder`   its data files, and what their directories say of partitions
    files   -> `columns`  the columns that each file says it has; one schema that holds the rows of all
            -> `statistics`  what the footer of a file says of its values
    plan    -> `build`    the table, made under a hidden name and published by one rename
    table   -> `clone`    another table with the state of one snapshot

Decision 0061.
"""
