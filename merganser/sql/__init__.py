"""SQL: statements over a catalog, run in this process or on Spark; see `session`."""
