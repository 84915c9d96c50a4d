"""Aggregate functions: versions of a column's value -> one value per key.

`registry.function_for` builds the function of a column from the options of its table; `function` says what all
of them promise. Every function works on whole columns: it takes n rows in k groups (`merge.groups`) and gives k
values. The rules are the format's; `testing.functions_oracle` holds them once more, one row at a time.
"""
