"""Rules for definitions of tables and their options, and what this version can honour.

::

    alter                   the next schema of a table
    create      gaps        the first schema of a table; what this version does not do
    checks                  options with each other and with the columns
    dialects                options in the words of others
    option_changes          which options may change
    starts  merging         scan options; merge engines
    named_columns           the columns that options name
    merged                  the changes that rows to be written need
    facts                   what checks need to know of a table, and how they refuse one

Options themselves are defined in `options`, which knows no table.
"""
