"""The log of a table: its newest changes as records of a log system, beside the files that hold all rows.

::

    rows with kinds    records     keys and values of log records, and back

Nothing here knows a log system or a table: what is encoded comes in as columns.
"""
