"""Texts and values of JSON -> columns of the types of a table, by one set of rules for files and change records.

::

    texts of JSON    json_scan     members and elements as columns; what is no JSON is a fault of its text alone
    rows of a log    json_layout   the same of flat objects that one writer wrote, several times as fast
    cells            values        a column of a type, exact; what does not fit is a bad value of its row

`docs/files.md` has the rules as a table. No step loops over rows, and no step looks at a table.
"""
