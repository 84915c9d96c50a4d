"""The log of a table: its newest changes as records of Kafka, beside the files that hold all rows.

::

    a snapshot                  contents     the rows that it publishes, by partition of the log
    rows with kinds             records      keys and values of log records, and back
    what a record says          mark         its commit, in a header
    a commit                    commit_log   prepares, shows and makes up for what the log lacks
    a reader that waits         tail         commits of the log, in the order of their snapshots
    a table                     topics       comes with a topic, and goes with it; altering
    clients                     kafka        settings, errors

The files are the truth: whatever the log lacks is sent again from them, or read from them.
"""
